//! The delivery of events.

use std::{
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, TryRecvError, channel},
    },
    thread,
    time::Duration,
};

use index_table::{ChangeKind::*, Error, Event, OnDuplicate, Store};

use crate::{
    Person, PersonRepository, TestResult, on_each, person, received, summary,
    support::{PATIENCE, Threads},
};

#[test]
fn every_kind_of_write_gives_an_event() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        let mut txn = store.write()?;
        people.insert(&mut txn, &person(1))?;
        people.put(&mut txn, &person(2))?;
        let mut other = person(2);
        other.age = 99;
        people.put(&mut txn, &other)?;
        people.put(&mut txn, &other)?; // unchanged
        people.update(&mut txn, 1, |row| row.town = "Oslo".into())?;
        people.update(&mut txn, 1, |_| ())?; // unchanged
        people.update(&mut txn, 1, |row| row.id = 7)?;
        people.delete(&mut txn, 2)?;
        people.delete(&mut txn, 2)?; // already deleted
        people.insert_with(&mut txn, person)?;
        assert!(matches!(people.insert(&mut txn, &person(7)), Err(Error::DuplicateKey { .. })));
        let number = txn.commit_number();
        assert!(received(&watcher).is_empty(), "an event before the commit");
        txn.commit()?;

        let events = received(&watcher);
        assert_eq!(
            events.iter().map(summary).collect::<Vec<_>>(),
            [
                (Inserted, None, Some(1)),
                (Inserted, None, Some(2)),
                (Updated, Some(2), Some(2)),
                (Updated, Some(1), Some(1)),
                (Moved, Some(1), Some(7)),
                (Deleted, Some(2), None),
                (Inserted, None, Some(8)),
            ]
        );
        assert!(events.iter().all(|event| event.commit_number() == number));
        assert_eq!(store.read()?.commit_number(), number);
        let Event::Change(updated) = &events[2] else { panic!("{events:?}") };
        let (before, after) = (updated.before().ok_or("before")?, updated.after().ok_or("after")?);
        assert_eq!((before.row()?, after.row()?), (person(2), other));
        Ok(())
    })
}

#[test]
fn a_rollback_gives_no_events() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        let mut txn = store.write()?;
        people.insert(&mut txn, &person(1))?;
        drop(txn);
        let failed: Result<(), _> = store.transaction(|txn| {
            people.insert(txn, &person(2))?;
            Err(Error::WriterClosed)
        });
        assert!(failed.is_err());
        assert!(received(&watcher).is_empty());
        store.transaction(|txn| people.insert(txn, &person(3)))?;
        assert_eq!(
            received(&watcher).iter().map(summary).collect::<Vec<_>>(),
            [(Inserted, None, Some(3))]
        );
        Ok(())
    })
}

#[test]
fn a_failed_commit_gives_no_events() -> TestResult {
    let dir = tempfile::tempdir()?;
    let size = 1 << 20;
    let store = Store::options().map_size(size).max_map_size(64 * size).open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    let watcher = people.watch(&store).buffer(100_000).start()?;
    let long = |id| Person { notes: "n".repeat(500), ..person(id) };
    let mut txn = store.write()?;
    let mut written = (0..5_000).map(|id| people.insert(&mut txn, &long(id)));
    assert!(written.any(|written| matches!(written, Err(Error::MapFull { .. }))));
    drop(written);
    assert!(txn.commit().is_err());
    assert!(watcher.try_recv().is_err());

    // A closure that runs again in a larger map gives its events once.
    let mut runs = 0;
    store.transaction(|txn| {
        runs += 1;
        (0..5_000).try_for_each(|id| people.insert(txn, &long(id)))
    })?;
    assert!(runs > 1, "the map was not too small");
    assert_eq!(received(&watcher).len(), 5_000);
    Ok(())
}

#[test]
fn only_successful_closures_of_a_group_give_events() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        let held = store.write()?;
        let writer = store.writer()?;
        let submitted: Vec<_> = (0..20)
            .map(|id| {
                let people = people.clone();
                writer.submit(move |txn| {
                    people.insert(txn, &person(id))?;
                    if id % 3 == 1 { Err(Error::WriterClosed) } else { Ok(()) }
                })
            })
            .collect();
        drop(held);
        for (id, submitted) in (0..).zip(submitted) {
            match (id % 3, submitted.wait()) {
                (1, Err(Error::WriterClosed)) | (0 | 2, Ok(())) => {}
                (_, outcome) => return Err(format!("{id}: {outcome:?}").into()),
            }
        }
        let summary: Vec<_> = received(&watcher).iter().map(summary).collect();
        let expected = (0..20).filter(|id| id % 3 != 1);
        assert_eq!(summary, expected.map(|id| (Inserted, None, Some(id))).collect::<Vec<_>>());
        Ok(())
    })
}

#[test]
fn a_load_gives_events() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        people.bulk_load(&store, (0..10).map(person)).run()?;
        let events = received(&watcher);
        assert_eq!(events.len(), 10);
        let rows = events.iter().filter_map(|event| match event {
            Event::Change(change) => change.after().and_then(|row| row.row().ok()),
            Event::Lagged(_) => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), (0..10).map(person).collect::<Vec<_>>());

        let others = (8..12).map(|id| {
            let mut row = person(id);
            row.age = if id == 8 { row.age } else { 50 };
            row
        });
        people.bulk_load(&store, others).on_duplicate(OnDuplicate::Replace).run()?;
        assert_eq!(
            received(&watcher).iter().map(summary).collect::<Vec<_>>(),
            [(Updated, Some(9), Some(9)), (Inserted, None, Some(10)), (Inserted, None, Some(11))]
        );
        people.bulk_load(&store, (10..14).map(person)).on_duplicate(OnDuplicate::Skip).run()?;
        assert_eq!(
            received(&watcher).iter().map(summary).collect::<Vec<_>>(),
            [(Inserted, None, Some(12)), (Inserted, None, Some(13))]
        );
        let failed = people.bulk_load(&store, (13..15).map(person)).run();
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        assert!(received(&watcher).is_empty());
        Ok(())
    })
}

#[test]
fn a_watcher_ends_with_the_store() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        assert!(matches!(watcher.try_recv(), Err(TryRecvError::Empty)));
        let soon = Duration::from_millis(5);
        assert!(matches!(watcher.recv_timeout(soon), Err(RecvTimeoutError::Timeout)));
        store.transaction(|txn| people.insert(txn, &person(1)))?;
        let (threads, (sender, receiver)) = (Arc::new(Threads::default()), channel());
        let waiting = Arc::clone(&threads);
        thread::spawn(move || {
            waiting.enter();
            sender.send((watcher.iter().count(), watcher))
        });
        // The watcher has received the change, and waits for the next event.
        threads.await_blocked(1);
        drop((store, people));
        let (count, watcher) = receiver.recv_timeout(PATIENCE)?;
        assert_eq!(count, 1);
        assert!(matches!(watcher.try_recv(), Err(TryRecvError::Disconnected)));
        assert!(matches!(watcher.recv_timeout(soon), Err(RecvTimeoutError::Disconnected)));
        assert!(watcher.into_iter().next().is_none());
        Ok(())
    })
}

/// The repository may be dropped and opened again while a watcher exists.
#[test]
fn a_watcher_keeps_the_table_in_use() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        drop(people);
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| people.insert(txn, &person(1)))?;
        assert_eq!(received(&watcher).len(), 1);
        Ok(())
    })
}

#[test]
fn a_repository_of_another_store_is_refused() -> TestResult {
    let (store, other) = (Store::in_memory(), Store::in_memory());
    let people = PersonRepository::open(&other)?;
    assert!(matches!(people.watch(&store).start(), Err(Error::WrongStore { .. })));
    Ok(())
}
