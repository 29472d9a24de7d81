//! Full queues.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, IndexState, Store, Submitted, WhenFull, WriteTxn};

use crate::{ItemRepository, TestResult, assert_clean, assert_drained, item};

/// Rows of two versions, and a full index.
mod versions {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", version = 1)]
    #[index(text, strategy = "full", consistency = "eventual")]
    pub(crate) struct NoteV1 {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) text: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", version = 2, previous = NoteV1)]
    #[index(text, strategy = "full", consistency = "eventual")]
    pub(crate) struct Note {
        #[primary_key]
        id: u32,
        text: String,
        stars: u8,
    }

    impl From<NoteV1> for Note {
        fn from(NoteV1 { id, text }: NoteV1) -> Self {
            Self { id, text, stars: 0 }
        }
    }
}

pub(crate) fn store(
    messages: u64,
    when_full: WhenFull,
) -> index_table::Result<(tempfile::TempDir, Store)> {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Store::options().map_size(1 << 26).durability(Durability::None);
    let store = options.index_queue(messages, when_full).open(dir.path())?;
    Ok((dir, store))
}

#[test]
fn with_a_full_queue_entries_are_changed_in_line() -> TestResult {
    let (_dir, store) = store(3, WhenFull::ApplyInLine)?;
    let items = ItemRepository::open(&store)?;
    for id in 0..8 {
        store.transaction(|txn| items.insert(txn, &item(id, 1)))?;
    }
    let txn = store.read()?;
    assert_eq!(items.lag(&txn)?.messages, 3);
    let town = item(0, 1).town;
    let found: Vec<u32> =
        items.find_by_town(&txn, &town).stale().keys().collect::<Result<_, _>>()?;
    assert_eq!(found, [3, 4, 5, 6, 7]);
    assert_clean(&items, &txn)?;
    drop(txn);
    // Rows with a pending message are changed in line too.
    store.transaction(|txn| {
        items.put(txn, &item(1, 2))?;
        items.put(txn, &item(1, 3))?;
        items.delete(txn, 2).map(drop)
    })?;
    assert_clean(&items, &store.read()?)?;
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}

#[test]
fn a_writer_waits_for_the_worker() -> TestResult {
    let (_dir, store) = store(3, WhenFull::Wait(Duration::MAX))?;
    let items = ItemRepository::open(&store)?;
    // A transaction with a message can add further messages.
    store.transaction(|txn| (0..5).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    // An explicit transaction fails instead of waiting, and is unchanged.
    let mut txn = store.write()?;
    let Err(Error::IndexQueueFull { table: "items", messages: 5 }) =
        items.put(&mut txn, &item(7, 7))
    else {
        return Err("a full queue accepted a message".into());
    };
    assert_eq!(items.get(&txn, 7)?, None);
    drop(txn);
    let worker = store.start_index_worker()?;
    for id in 10..60 {
        store.transaction(|txn| items.insert(txn, &item(id, id)))?;
        assert!(items.lag(&store.read()?)?.messages <= 5);
    }
    drop(worker);
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}

#[test]
fn a_writer_waits_no_longer_than_its_timeout() -> TestResult {
    let wait = Duration::from_millis(50);
    let (_dir, store) = store(2, WhenFull::Wait(wait))?;
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| (0..2).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    let started = Instant::now();
    let result = store.transaction(|txn| items.insert(txn, &item(3, 3)));
    let Err(error @ Error::IndexQueueFull { messages: 2, .. }) = result else {
        return Err(format!("{result:?}").into());
    };
    assert!(error.to_string().contains("start_index_worker"), "{error}");
    assert!(started.elapsed() >= wait);
    assert_eq!(items.get(&store.read()?, 3)?, None);
    items.drain(&store, 1)?;
    store.transaction(|txn| items.insert(txn, &item(3, 3)))?;
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}

/// The refused write is in a nested transaction, which is rolled back before the closure ends.
#[test]
fn a_writer_waits_when_a_nested_transaction_was_refused() -> TestResult {
    let (_dir, store) = store(2, WhenFull::Wait(Duration::from_mins(1)))?;
    let items = ItemRepository::open(&store)?;
    let worker = store.start_index_worker()?;
    for ids in [0..2, 2..4, 4..6] {
        store.transaction(|txn| {
            txn.nested(|txn| ids.clone().try_for_each(|id| items.insert(txn, &item(id, id))))
        })?;
    }
    drop(worker);
    items.drain(&store, u64::MAX)?;
    assert_eq!(items.all(&store.read()?).count()?, 6);
    assert_drained(&items, &store)?;
    Ok(())
}

/// The transaction of the group does not block the worker.
#[test]
fn a_group_writer_waits_for_the_worker() -> TestResult {
    let (_dir, store) = store(3, WhenFull::Wait(Duration::from_mins(1)))?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?.most(1);
    let (runs, order) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let submitted: Vec<_> = (0..200)
        .map(|id| {
            let (items, runs, order) = (items.clone(), Arc::clone(&runs), Arc::clone(&order));
            writer.submit(move |txn| {
                runs.fetch_add(1, Ordering::Relaxed);
                items.insert(txn, &item(id, id))?;
                order.lock().expect("no panics").push(id);
                Ok::<_, Error>(())
            })
        })
        .collect();
    // The fourth message is rejected while no worker runs.
    while runs.load(Ordering::Relaxed) < 4 {
        thread::yield_now();
    }
    let worker = store.start_index_worker()?;
    submitted.into_iter().try_for_each(Submitted::wait)?;
    assert!(runs.load(Ordering::Relaxed) > 200, "no closure ran again");
    assert!(order.lock().expect("no panics").is_sorted());
    drop(worker);
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    assert_eq!(items.all(&store.read()?).count()?, 200);
    Ok(())
}

#[test]
fn a_group_writer_waits_no_longer_than_its_timeout() -> TestResult {
    let wait = Duration::from_millis(200);
    let (_dir, store) = store(2, WhenFull::Wait(wait))?;
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| (0..2).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    let submitted = Instant::now();
    let (writer, held) = (store.writer()?, store.write()?);
    let insert = |id| {
        let items = items.clone();
        move |txn: &mut WriteTxn<'_>| items.insert(txn, &item(id, id))
    };
    // A closure without a message.
    let unneeded = |txn: &mut WriteTxn<'_>| Ok::<_, Error>(txn.stats().seeks);
    let before = writer.submit(unneeded);
    let all = (3..43).map(|id| writer.submit(insert(id))).collect::<Vec<_>>();
    let after = writer.submit(unneeded);
    drop(held);
    before.wait()?;
    for insert in all {
        assert!(matches!(insert.wait(), Err(Error::IndexQueueFull { messages: 2, .. })));
    }
    // The writers waited at the same time, not in sequence.
    assert!((wait..30 * wait).contains(&submitted.elapsed()));
    after.wait()?;
    items.drain(&store, 1)?;
    writer.submit(insert(3)).wait()?;
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    assert_eq!(items.all(&store.read()?).count()?, 3);
    Ok(())
}

#[test]
fn disabled_indexes_are_rebuilt() -> TestResult {
    let (_dir, store) = store(4, WhenFull::Disable)?;
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| (0..4).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    assert!(items.find_by_town(&store.read()?, "Rome").stale().count().is_ok());
    let before = store.read()?;
    store.transaction(|txn| (4..9).try_for_each(|id| items.insert(txn, &item(id, id))))?;

    let txn = store.read()?;
    let result = items.find_by_town(&txn, "Rome").verified().count();
    let Err(error @ Error::IndexNotReadable { index: "town", state: IndexState::Disabled, .. }) =
        result
    else {
        return Err(format!("{result:?}").into());
    };
    assert!(error.to_string().contains("`build`"), "{error}");
    // The earlier snapshot and the strong indexes are unchanged.
    assert!(items.find_by_town(&before, "Rome").stale().count().is_ok());
    assert_eq!(items.by_now(&txn).count()?, 9);
    assert_clean(&items, &txn)?;
    let states: Vec<_> =
        store.catalog()?.tables[0].indexes.iter().map(|it| it.state.clone()).collect();
    assert_eq!(states.iter().filter(|state| **state == IndexState::Disabled).count(), 9);
    drop((txn, before));
    // No further messages are queued, and the queued messages are ignored.
    store.transaction(|txn| items.delete(txn, 1).map(drop))?;
    assert_eq!(items.lag(&store.read()?)?.messages, 4);
    assert_eq!(items.drain(&store, 2)?.applied, 2);

    let report = items.build(&store).run()?;
    assert!(report.is_readable(), "{report}");
    store.transaction(|txn| items.put(txn, &item(2, 7)))?;
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}

/// Messages for rebuilt indexes are removed. Otherwise the next write would disable the indexes again.
#[test]
fn a_rebuild_empties_the_queue() -> TestResult {
    let (_dir, store) = store(4, WhenFull::Disable)?;
    let items = ItemRepository::open(&store)?;
    let fill = |from: u32| {
        store.transaction(|txn| {
            (from..from + 6).try_for_each(|id| items.insert(txn, &item(id, id)))?;
            Ok(txn.token())
        })
    };
    for (round, from) in (0..4).zip((0..).step_by(10)) {
        let token = fill(from)?;
        assert!(items.find_by_town(&store.read()?, "Rome").stale().count().is_err());
        assert!(!items.wait_for(&store, &token, Duration::ZERO)?);
        match round {
            0 => drop(items.build(&store).run()?),
            1 => drop(items.build(&store).exclusive().run()?),
            2 => drop(items.build(&store).batch_bytes(100).limit(2).run()?),
            // Opening the table rebuilds disabled indexes too.
            _ => drop(ItemRepository::open(&store)?),
        }
        assert_eq!(items.lag(&store.read()?)?.messages, 0);
        assert!(items.wait_for(&store, &token, Duration::ZERO)?);
        store.transaction(|txn| {
            (0..4).try_for_each(|id| items.put(txn, &item(id, from + id + 1)))
        })?;
        assert!(items.build(&store).run()?.is_readable());
        assert_eq!(items.lag(&store.read()?)?.messages, 4);
        assert_clean(&items, &store.read()?)?;
        items.drain(&store, u64::MAX)?;
        assert_drained(&items, &store)?;
    }
    Ok(())
}

/// An upgrade does not wait for the queue, even if it has more rows than the queue can hold.
#[test]
fn an_upgrade_fills_no_queue() -> TestResult {
    for when_full in [WhenFull::ApplyInLine, WhenFull::Wait(Duration::ZERO), WhenFull::Disable] {
        let (_dir, store) = store(4, when_full)?;
        let notes = versions::NoteV1Repository::open(&store)?;
        let rows = (0..50).map(|id| versions::NoteV1 { id, text: "none".to_owned() });
        notes.bulk_load(&store, rows).run()?;
        drop(notes);
        let notes = versions::NoteRepository::open(&store)?;
        assert_eq!(notes.upgrade(&store).batch_bytes(100).run()?.upgraded, 50);
        let txn = store.read()?;
        assert_eq!(notes.lag(&txn)?.messages, 0, "{when_full:?}");
        assert_eq!(notes.find_by_text(&txn, "none").verified().count()?, 50);
        let report = notes.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
    }
    Ok(())
}
