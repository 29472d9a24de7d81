//! Consumers: their positions, batches and commits.

use std::{
    thread,
    time::{Duration, Instant},
};

use index_table::{
    ChangeKind::{Inserted, Updated},
    Error, Result, Store,
};

use crate::{InvoiceRepository, all_stores, invoice, seen, stores::plain_stores};

fn fill(store: &Store, invoices: &InvoiceRepository, numbers: std::ops::Range<u32>) -> Result<()> {
    store.transaction(|txn| {
        numbers.clone().try_for_each(|number| invoices.insert(txn, &invoice(number, 0)))
    })
}

#[test]
fn a_consumer_gets_each_change_until_it_commits() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 0..10)?;
        let mut changes = invoices.changes(&store, "mailer")?;
        let first = changes.next_batch(4)?;
        assert_eq!(first.iter().map(|change| change.key).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(seen(&changes.next_batch(4)?), seen(&first));
        first.commit(&store)?;
        let second = changes.next_batch(100)?;
        assert_eq!(second.iter().map(|change| change.key).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
        let numbers: Vec<_> = first.iter().chain(&second).map(|change| change.number).collect();
        // In a sharded store, runs of the closure that were repeated have taken numbers.
        assert!(numbers.is_sorted_by(|one, next| one < next));
        assert!(store.is_sharded || numbers.iter().copied().eq(1..=10));
        second.commit(&store)?;
        let empty = changes.next_batch(100)?;
        assert!(empty.is_empty());
        empty.commit(&store)?;
        // Another consumer has its own position, and begins at the oldest change.
        let mut other = invoices.changes(&store, "ledger")?;
        assert_eq!(other.next_batch(100)?.len(), 10);
        assert_eq!(changes.next_batch(100)?.len(), 0);
        let again = invoices.changes(&store, "mailer")?.next_batch(100)?;
        assert_eq!(again.len(), 0);
    }
    Ok(())
}

#[test]
fn a_position_survives_closing_the_store() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..3 {
        let store = Store::open(directory.path())?;
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, round * 10..round * 10 + 10)?;
        let mut changes = invoices.changes(&store, "mailer")?;
        let batch = changes.next_batch(5)?;
        let first = batch.first().map(|change| change.key);
        assert_eq!(first, Some(round * 5));
        batch.commit(&store)?;
        assert_eq!(changes.lag()?.changes, u64::from((round + 1) * 5));
    }
    Ok(())
}

#[test]
fn effects_in_the_store_happen_once_with_the_commit_of_the_batch() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 0..3)?;
        let mut changes = invoices.changes(&store, "counter")?;
        let batch = changes.next_batch(100)?;
        let rolled_back: Result<()> = store.transaction(|txn| {
            invoices.update(txn, 0, |row| row.amount += 1)?;
            batch.commit_in(txn)?;
            Err(Error::WriteInProgress)
        });
        assert!(rolled_back.is_err());
        assert_eq!(seen(&changes.next_batch(100)?), seen(&batch));
        store.transaction(|txn| {
            invoices.update(txn, 0, |row| row.amount += 1)?;
            batch.commit_in(txn)
        })?;
        assert_eq!(seen(&changes.next_batch(100)?), [(Updated, 0, 1)]);

        // Another worker of this consumer was first, so the effect is refused.
        let twice = store.transaction(|txn| {
            invoices.update(txn, 0, |row| row.amount += 1)?;
            batch.commit_in(txn)
        });
        let superseded = twice.expect_err("superseded");
        assert!(
            matches!(&superseded, Error::BatchSuperseded { table: "invoices", consumer } if consumer == "counter"),
            "{superseded:?}"
        );
        assert!(superseded.to_string().contains("consumer `counter`"), "{superseded}");
        assert_eq!(invoices.get(&store.read()?, 0)?.map(|row| row.amount), Some(1));
    }
    Ok(())
}

#[test]
fn a_batch_is_not_committed_in_another_store() -> Result<()> {
    let [one, other] = plain_stores()?;
    let (invoices, others) = (InvoiceRepository::open(&one)?, InvoiceRepository::open(&other)?);
    fill(&one, &invoices, 0..3)?;
    let batch = invoices.changes(&one, "mailer")?.next_batch(2)?;
    assert!(matches!(batch.commit(&other), Err(Error::WrongStore { table: "invoices" })));
    assert!(matches!(others.changes(&one, "mailer"), Err(Error::WrongStore { .. })));
    assert_eq!(invoices.changes(&one, "mailer")?.next_batch(9)?.len(), 3);
    Ok(())
}

#[test]
fn consumers_are_listed_with_their_lags_and_removed_by_hand() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let mut mailer = invoices.changes(&store, "mailer")?;
        fill(&store, &invoices, 0..10)?;
        let idle = invoices.changes(&store, "idle")?;
        mailer.next_batch(4)?.commit(&store)?;
        let listed = invoices.change_consumers(&store.read()?)?;
        let names: Vec<_> = listed.iter().map(|consumer| consumer.name.as_str()).collect();
        assert_eq!(names, ["idle", "mailer"]);
        assert_eq!((listed[0].position, listed[0].lag.changes, listed[0].missed), (0, 10, 0));
        assert_eq!(listed[1].lag.changes, 6);
        assert!(if store.is_sharded { listed[1].position >= 4 } else { listed[1].position == 4 });
        let bytes = [listed[0].lag.bytes * 6, listed[1].lag.bytes * 10];
        assert!(store.is_sharded || bytes[0] == bytes[1], "{listed:?}");
        assert!(listed[1].lag.since.is_some() && listed[0].last_commit <= listed[1].last_commit);
        assert_eq!(mailer.lag()?, listed[1].lag);
        mailer.skip_to(u64::MAX)?;
        assert_eq!((mailer.lag()?.changes, mailer.lag()?.bytes, mailer.lag()?.since), (0, 0, None));

        let batch = mailer.next_batch(1)?;
        assert!(batch.is_empty());
        fill(&store, &invoices, 10..11)?;
        let batch = mailer.next_batch(1)?;
        assert!(invoices.remove_change_consumer(&store, "mailer")?);
        assert!(!invoices.remove_change_consumer(&store, "mailer")?);
        for failed in [batch.commit(&store), mailer.next_batch(1).map(drop), mailer.lag().map(drop)]
        {
            let failed = failed.expect_err("removed");
            assert!(
                matches!(&failed, Error::NoConsumer { table: "invoices", consumer } if consumer == "mailer"),
                "{failed:?}"
            );
        }
        assert_eq!(invoices.change_consumers(&store.read()?)?.len(), 1);
        assert_eq!(idle.name(), "idle");
    }
    Ok(())
}

#[test]
fn a_consumer_moves_forward_only() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 0..10)?;
        let mut changes = invoices.changes(&store, "mailer")?;
        let all: Vec<_> =
            changes.next_batch(10)?.iter().map(|change| (change.number, change.key)).collect();
        assert_eq!(changes.skip_to(all[3].0)?, 4);
        assert_eq!(changes.next_batch(1)?.first().map(|change| change.number), Some(all[4].0));
        assert_eq!((changes.skip_to(all[1].0)?, changes.skip_removed()?), (0, 0));
        assert_eq!(changes.next_batch(1)?.first().map(|change| change.key), Some(all[4].1));
        assert_eq!(changes.skip_to(100)?, 6);
        assert!(changes.next_batch(1)?.is_empty());
        fill(&store, &invoices, 10..11)?;
        assert_eq!(seen(&changes.next_batch(9)?), [(Inserted, 10, 0)]);
    }
    Ok(())
}

#[test]
fn names_of_consumers_have_a_limit() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let longest = "é".repeat(240);
        assert_eq!(invoices.changes(&store, &longest)?.name(), longest);
        let refused = invoices.changes(&store, &format!("{longest}x"));
        assert!(matches!(refused, Err(Error::KeyTooLong { len: 482, .. })), "{refused:?}");
        invoices.changes(&store, "")?;
        assert_eq!(invoices.change_consumers(&store.read()?)?.len(), 2);
    }
    Ok(())
}

#[test]
fn a_batch_is_superseded_if_the_consumer_was_removed_and_created_again() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 0..3)?;
        let former = invoices.changes(&store, "mailer")?.next_batch(10)?;
        assert!(invoices.remove_change_consumer(&store, "mailer")?);
        let mut changes = invoices.changes(&store, "mailer")?;
        let refused = former.commit(&store).expect_err("of the former consumer");
        assert!(matches!(refused, Error::BatchSuperseded { .. }), "{refused:?}");
        assert_eq!(changes.next_batch(10)?.len(), 3);
    }
    Ok(())
}

#[test]
fn a_consumer_waits_for_changes() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let mut changes = invoices.changes(&store, "mailer")?;
        let begun = Instant::now();
        assert!(!changes.wait(Duration::from_millis(30))?);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let writer = {
            let (store, invoices) = (Store::clone(&store), invoices.clone());
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                store.transaction(|txn| {
                    (1..=3).try_for_each(|id| invoices.insert(txn, &invoice(id, 1)))
                })
            })
        };
        assert!(changes.wait(Duration::from_mins(1))?);
        writer.join().expect("no panic")?;
        assert!(begun.elapsed() < Duration::from_secs(30));
        let batch = changes.next_batch(2)?;
        batch.commit(&store)?;
        assert!(changes.wait(Duration::ZERO)?, "one change is left");
        changes.next_batch(2)?.commit(&store)?;
        assert!(!changes.wait(Duration::ZERO)?);
        // A write transaction of this thread keeps others from committing.
        let txn = store.write()?;
        assert!(changes.wait(Duration::from_mins(1)).is_err());
        drop(txn);
        assert!(invoices.remove_change_consumer(&store, "mailer")?);
        assert!(matches!(changes.wait(Duration::ZERO), Err(Error::NoConsumer { .. })));
    }
    Ok(())
}
