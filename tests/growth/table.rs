//! Tables without `shard_by` move to another shard while they are used.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime},
};

use index_table::{
    Error, IndexTable, Result, ShardMap, Store,
    report::{MoveState, Moved},
};
use serde::{Deserialize, Serialize};

use crate::basic::{All, PostalCode, PostalCodeRepository};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", expires = expires_at, changes)]
#[index(customer)]
#[index(code, unique)]
#[index(postal_code)]
#[index(amount, consistency = "eventual")]
#[aggregate(customer, sum = [amount])]
#[aggregate(sum = [amount])]
pub(crate) struct Invoice {
    #[primary_key]
    pub(crate) number: u64,
    #[revision]
    pub(crate) revision: u64,
    pub(crate) customer: u64,
    pub(crate) amount: i64,
    pub(crate) code: String,
    #[references(PostalCode, on_delete = "restrict")]
    pub(crate) postal_code: String,
    pub(crate) expires_at: Option<SystemTime>,
}

pub(crate) fn invoice(number: u64) -> Invoice {
    Invoice {
        number,
        revision: 0,
        customer: number % 7,
        amount: 100,
        code: format!("code {number}"),
        postal_code: "98052".into(),
        expires_at: (number == 3).then(|| SystemTime::now() + Duration::from_hours(1)),
    }
}

/// The number of rows that [`fill`] inserts.
pub(crate) const ROWS: u64 = 2000;

pub(crate) fn fill(store: &Store) -> Result<(All, InvoiceRepository)> {
    let all = All::open(store)?;
    all.fill(store)?;
    let invoices = InvoiceRepository::open(store)?;
    store.transaction(|txn| {
        for _ in 1..=ROWS {
            let inserted = invoices.insert_with(txn, invoice)?;
            assert!(inserted <= ROWS);
        }
        Ok(())
    })?;
    Ok((all, invoices))
}

/// Compares all rows, entries and totals with those of [`fill`].
pub(crate) fn check(store: &Store, invoices: &InvoiceRepository) -> Result<()> {
    All::open(store)?.check(store)?;
    invoices.drain(store, u64::MAX)?;
    let txn = store.read()?;
    assert_eq!(invoices.all(&txn).count()?, ROWS);
    assert_eq!(invoices.all(&txn).rows().count() as u64, ROWS);
    assert_eq!(invoices.find_by_customer(&txn, 3).count()?, (ROWS + 4) / 7);
    assert_eq!(invoices.by_amount(&txn).verified().rows().count() as u64, ROWS);
    assert_eq!(invoices.get_by_code(&txn, "code 9")?.map(|it| it.number), Some(9));
    let totals = invoices.aggregate(&txn)?;
    assert_eq!((totals.count, totals.sum_amount), (ROWS, i128::from(ROWS) * 100));
    assert_eq!(invoices.aggregate_by_customer(&txn, 3)?.count, (ROWS + 4) / 7);
    assert!(store.verify()?.is_clean());
    drop(txn);
    let taken = store.transaction(|txn| {
        let other = Invoice { number: 1_000_000, ..invoice(9) };
        invoices.insert(txn, &other)
    });
    assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
    let codes = PostalCodeRepository::open(store)?;
    let used = store.transaction(|txn| codes.delete(txn, "98052").map(drop));
    assert!(matches!(used, Err(Error::Referenced { .. })), "{used:?}");
    Ok(())
}

fn reason(result: Result<Moved>) -> String {
    match result {
        Err(Error::ShardRefused { what, reason }) => format!("{what}: {reason}"),
        other => panic!("{other:?}"),
    }
}

fn shard_of(store: &Store, invoices: &InvoiceRepository) -> Result<String> {
    assert!(invoices.all(&store.read()?).count()? >= ROWS);
    let shards = store.shards()?;
    let mut with_rows = shards.into_iter().filter(|shard| shard.rows >= ROWS);
    Ok(with_rows.next().map(|shard| shard.name).unwrap_or_default())
}

#[test]
fn a_table_without_a_shard_key_moves_with_all_that_belongs_to_it() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop");
    let store = Store::open(&path)?;
    let (all, invoices) = fill(&store)?;
    let mut mailer = invoices.changes(&store, "mailer")?;
    mailer.next_batch(10)?.commit(&store)?;
    let old = store.read()?;

    store.add_shard("billing", "billing")?;
    let old_of_shards = store.read()?;
    let moved = store.move_table("invoices", "billing").run()?;
    assert_eq!(moved.rows, ROWS);
    assert!(store.moves()?.is_empty());
    assert_eq!(shard_of(&store, &invoices)?, "billing");
    // Older snapshots keep their rows.
    assert_eq!(invoices.all(&old).rows().count() as u64, ROWS);
    assert_eq!(invoices.all(&old_of_shards).rows().count() as u64, ROWS);
    drop((old, old_of_shards));
    check(&store, &invoices)?;
    let rows = |name: &str| -> Result<u64> {
        let shards = store.shards()?;
        Ok(shards.iter().find(|shard| shard.name == name).unwrap().rows)
    };
    // The reference table has a copy there.
    assert_eq!(rows("billing")?, ROWS + 1);
    let txn = store.read()?;
    invoices.find_by_customer(&txn, 3).count()?;
    assert_eq!(txn.stats().shards, 1);
    drop(txn);

    // It is where it should be.
    assert_eq!(store.move_table("invoices", "billing").run()?, Moved::default());

    // The numbers and the revisions go on, and so does the stream.
    let next = store.transaction(|txn| invoices.insert_with(txn, invoice))?;
    assert_eq!(next, ROWS + 1);
    store.transaction(|txn| invoices.update(txn, 1, |it| it.amount = 7).map(drop))?;
    let stale = store
        .transaction(|txn| invoices.put(txn, &Invoice { revision: 1, ..invoice(1) }).map(drop));
    assert!(matches!(stale, Err(Error::Conflict { .. })), "{stale:?}");
    let mut changes = 10;
    let mut last = 0;
    loop {
        let batch = mailer.next_batch(512)?;
        let Some(change) = batch.iter().last() else { break };
        last = change.row.number;
        changes += batch.iter().count() as u64;
        batch.commit(&store)?;
    }
    assert_eq!((changes, last), (ROWS + 2, 1));
    drop((mailer, all, invoices, store));

    // The next openings find it there, also read-only.
    for read_only in [true, false] {
        let store = Store::options().read_only(read_only).open(&path)?;
        let invoices = InvoiceRepository::open(&store)?;
        assert_eq!(shard_of(&store, &invoices)?, "billing");
        assert_eq!(invoices.all(&store.read()?).count()?, ROWS + 1);
        assert_eq!(invoices.find_by_customer(&store.read()?, 3).count()?, (ROWS + 4) / 7);
    }
    let store = Store::open(&path)?;
    let invoices = InvoiceRepository::open(&store)?;
    store.transaction(|txn| {
        invoices.delete(txn, ROWS + 1)?;
        invoices.update(txn, 1, |it| it.amount = 100).map(drop)
    })?;
    check(&store, &invoices)?;
    let refused = store.remove_shard("billing");
    assert!(format!("{refused:?}").contains("table `invoices` is placed in it"), "{refused:?}");
    store.move_table("invoices", "main").offline().run()?;
    check(&store, &invoices)?;
    let mut mailer = invoices.changes(&store, "mailer")?;
    let batch = mailer.next_batch(512)?;
    // The deletion and the update after the other openings.
    assert_eq!(batch.iter().count(), 2);
    batch.commit(&store)?;
    store.remove_shard("billing")?;
    check(&store, &invoices)
}

#[test]
fn other_tables_and_shards_are_refused_with_what_to_do() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("shop"))?;
    let (all, invoices) = fill(&store)?;
    let one = store.move_table("invoices", "billing").run();
    assert!(matches!(one, Err(Error::NotOffered { what }) if what.contains("add_shard")));

    store.add_shard("billing", "billing")?;
    for (table, expected) in [
        ("customers", "`move_range`"),
        ("orders", "`move_range` of shard map `customers`"),
        ("postal_codes", "reference table"),
        ("nothing", "no such table"),
    ] {
        let error = reason(store.move_table(table, "billing").run());
        assert!(error.contains(expected) && error.contains(table), "{error}");
    }
    let error = reason(store.move_table("invoices", "nowhere").run());
    assert!(error.contains("there is no shard `nowhere`"), "{error}");
    let error = reason(store.move_range("invoices", ..100u64, "billing").run());
    assert!(error.contains("`move_table`"), "{error}");
    let error = reason(store.move_slots("invoices", ..100, "billing").run());
    assert!(error.contains("`move_table`"), "{error}");
    drop((invoices, all));
    let error = reason(store.move_table("invoices", "billing").run());
    assert!(error.contains("open its repository first"), "{error}");
    Ok(())
}

#[test]
fn a_place_of_before_the_move_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop");
    let options = || Store::options().shard("a", "a").shard("b", "b");
    let maps = |options: index_table::Options| {
        let map = ShardMap::ranges().to("a", 0u32..);
        options.map("customers", map).map("events", ShardMap::hashed(["a", "b"]))
    };
    let store = maps(options()).place("invoices", "a").open(&path)?;
    let (all, invoices) = fill(&store)?;
    store.move_table("invoices", "b").run()?;
    check(&store, &invoices)?;
    drop((all, invoices, store));
    let refused = maps(options()).place("invoices", "a").open(&path);
    assert!(format!("{refused:?}").contains("moved to shard `b`"), "{refused:?}");
    let store = maps(options()).place("invoices", "b").open(&path)?;
    check(&store, &InvoiceRepository::open(&store)?)?;
    drop(store);
    let store = Store::open(&path)?;
    check(&store, &InvoiceRepository::open(&store)?)?;
    drop(store);

    // The shards have the place when the manager is lost.
    std::fs::remove_file(path.join("data.mdb")).unwrap();
    let store = options().rebuild(&path)?;
    let invoices = InvoiceRepository::open(&store)?;
    check(&store, &invoices)?;
    assert_eq!(shard_of(&store, &invoices)?, "b");
    Ok(())
}

#[test]
fn rows_that_change_while_their_table_moves_keep_their_changes() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("shop"))?;
    let (_all, invoices) = fill(&store)?;
    store.add_shard("billing", "billing")?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut written = 0;
            while !stop.load(Relaxed) {
                let own = store.transaction(|txn| {
                    let added = invoices.insert_with(txn, invoice)?;
                    invoices.delete(txn, added)?;
                    let number = added % ROWS + 1;
                    invoices.update(txn, number, |it| it.customer = (it.customer + 1) % 7)?;
                    invoices.update(txn, number, |it| it.customer = (it.customer + 6) % 7)?;
                    Ok(added)
                })?;
                assert!(own > ROWS + written, "{own}");
                written += 1;
            }
            Ok(written)
        });
        let reader = scope.spawn(|| -> Result<()> {
            while !stop.load(Relaxed) {
                let txn = store.read()?;
                assert_eq!(invoices.all(&txn).rows().count() as u64, ROWS);
                assert_eq!(invoices.find_by_customer(&txn, 3).count()?, (ROWS + 4) / 7);
                assert_eq!(invoices.aggregate(&txn)?.count, ROWS);
            }
            Ok(())
        });
        let moves = (0..3).try_for_each(|_| {
            store.move_table("invoices", "billing").run()?;
            store.move_table("invoices", "main").run().map(drop)
        });
        stop.store(true, Relaxed);
        reader.join().unwrap()?;
        assert!(writer.join().unwrap()? > 0);
        moves
    })?;
    check(&store, &invoices)
}

#[test]
fn an_unfinished_move_of_a_table_is_resumed_or_cancelled() -> Result<()> {
    for is_cancelled in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop");
        let store = Store::open(&path)?;
        let (all, invoices) = fill(&store)?;
        store.add_shard("billing", "billing")?;
        // The progress function panics after the first batch.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.move_table("invoices", "billing").progress(|_| panic!("stopped")).run()
        }));
        assert!(failed.is_err());
        check(&store, &invoices)?;
        drop((store, all, invoices));

        let store = Store::open(&path)?;
        let invoices = InvoiceRepository::open(&store)?;
        let unfinished = store.moves()?.remove(0);
        assert_eq!((unfinished.map.as_str(), unfinished.is_table), ("invoices", true));
        assert_eq!(unfinished.state, MoveState::Copying);
        assert!(unfinished.to_string().contains("table `invoices` from `main` to `billing`"));
        assert_eq!(shard_of(&store, &invoices)?, "main");
        check(&store, &invoices)?;
        let error = reason(store.move_table("invoices", "billing").run());
        assert!(error.contains("is unfinished"), "{error}");
        if is_cancelled {
            store.cancel_move(unfinished.id)?;
        } else {
            store.resume_move(unfinished.id).run()?;
        }
        let expected = if is_cancelled { "main" } else { "billing" };
        assert_eq!(shard_of(&store, &invoices)?, expected);
        assert!(store.moves()?.is_empty());
        check(&store, &invoices)?;
        drop((store, invoices));
        let store = Store::open(&path)?;
        let invoices = InvoiceRepository::open(&store)?;
        assert_eq!(shard_of(&store, &invoices)?, expected);
        check(&store, &invoices)?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoice_scans", part_of = Invoice)]
struct InvoiceScan {
    #[primary_key]
    number: u64,
    pdf: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[index(invoice)]
struct Payment {
    #[primary_key]
    id: u64,
    #[references(Invoice)]
    invoice: u64,
}

#[test]
fn a_table_with_references_to_others_in_its_shard_stays() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("shop"))?;
    let (_all, _invoices) = fill(&store)?;
    store.add_shard("billing", "billing")?;
    let scans = InvoiceScanRepository::open(&store)?;
    for (table, other) in [("invoices", "invoice_scans"), ("invoice_scans", "invoices")] {
        let error = reason(store.move_table(table, "billing").run());
        assert!(error.contains(&format!("table `{other}`")), "{error}");
    }
    drop(scans);
    let error = reason(store.move_table("invoices", "billing").run());
    assert!(error.contains("`invoice_scans`"), "{error}");
    assert!(store.moves()?.is_empty());
    drop(store);

    let store = Store::open(dir.path().join("other"))?;
    let (_all, invoices) = fill(&store)?;
    let payments = PaymentRepository::open(&store)?;
    store.transaction(|txn| payments.insert(txn, &Payment { id: 1, invoice: 7 }))?;
    store.add_shard("billing", "billing")?;
    for (table, other) in [("invoices", "payments"), ("payments", "invoices")] {
        let error = reason(store.move_table(table, "billing").run());
        assert!(error.contains(&format!("table `{other}`")), "{error}");
    }
    check(&store, &invoices)
}
