//! Closing a writer: accepted closures are finished, and later closures are refused.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use index_table::{Durability, Error, Store};

use crate::{
    ItemRepository, TestResult, block_on, check, hold, insert, item, stores,
    support::{Threads, await_true},
};

#[test]
fn close_finishes_accepted_closures() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?;
        assert!(!writer.is_closed());
        let txn = hold(&store)?;
        for id in 0..50 {
            // No thread waits for these results.
            drop(insert(&writer, &items, item(id)));
        }
        drop(txn);
        let other = writer.clone();
        other.close()?;
        check(&store, &items, 0..50)?;

        assert!(writer.is_closed());
        let result = insert(&writer, &items, item(50)).wait();
        assert!(matches!(result, Err(Error::WriterClosed)), "{result:?}");
        let result = block_on(writer.submit_async(|_| Ok::<_, Error>(())));
        assert!(matches!(result, Err(Error::WriterClosed)), "{result:?}");
        let submitted =
            writer.try_submit(|_| Ok::<_, Error>(())).map_err(|full| full.to_string())?;
        assert!(matches!(submitted.wait(), Err(Error::WriterClosed)));
        writer.close()?;
        // Another writer can be started.
        insert(&store.writer()?, &items, item(50)).wait()?;
        check(&store, &items, 0..51)?;
    }
    Ok(())
}

#[test]
fn closures_that_wait_for_room_are_refused_by_close() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.queue(1).most(1);
        let (txn, waiting) = (hold(&store)?, Threads::default());
        let (threads, task, closing) = thread::scope(|scope| {
            let (writer, items, waiting) = (&writer, &items, &waiting);
            let threads: Vec<_> = (0..8)
                .map(|id| {
                    scope.spawn(move || {
                        waiting.enter();
                        insert(writer, items, item(id)).wait()
                    })
                })
                .collect();
            waiting.await_blocked(8);
            let task = scope.spawn(move || {
                waiting.enter();
                let items = items.clone();
                block_on(writer.submit_async(move |txn| items.insert(txn, &item(8))))
            });
            waiting.await_blocked(9);
            let closing = scope.spawn(|| writer.close());
            while !writer.is_closed() {
                thread::yield_now();
            }
            drop(txn);
            let threads: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (threads, task.join(), closing.join())
        });
        closing.map_err(|_| "closing")??;
        let mut ids = Vec::new();
        for (id, outcome) in (0..).zip(threads.into_iter().chain([task])) {
            match outcome.map_err(|_| "a thread")? {
                Ok(()) => ids.push(id),
                Err(Error::WriterClosed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        assert!((1..=3).contains(&ids.len()), "{ids:?}");
        check(&store, &items, ids)?;
    }
    Ok(())
}

/// After `close`, the store can be closed at once.
#[test]
fn a_closed_writer_releases_the_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    for round in 0..50 {
        // The options differ each time, so an open store would be an error.
        let store = Store::options().map_size(1 << (24 + round % 3)).durability(Durability::None);
        let store = store.open(dir.path())?;
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?;
        let submitted = insert(&writer, &items, item(round));
        if round % 2 == 0 {
            writer.close()?;
        }
        drop((writer, store, items));
        submitted.wait()?;
    }
    let store = Store::open(dir.path())?;
    check(&store, &ItemRepository::open(&store)?, 0..50)
}

/// The last handle can be dropped in any thread while closures are waiting.
#[test]
fn the_last_handle_can_be_dropped_at_any_time() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let mut submitted = Vec::new();
        for round in 0..20 {
            let writer = store.writer()?;
            for id in 0..10 {
                let (items, handle) = (items.clone(), writer.clone());
                submitted.push(writer.submit(move |txn| {
                    let _handle = &handle;
                    items.insert(txn, &item(round * 10 + id))
                }));
            }
        }
        for submitted in submitted {
            submitted.wait()?;
        }
        check(&store, &items, 0..200)?;
    }
    Ok(())
}

/// Closing races with submitting. Each submission has one result, which matches the table.
#[test]
fn every_closure_gets_a_result_when_the_writer_closes() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let mut rejected = 0;
        for round in 0..30 {
            let writer = store.writer()?.queue(3).most(2);
            let (go, submitted) = (AtomicBool::new(false), AtomicU64::new(0));
            let outcomes = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|thread| {
                        let (writer, items, go, submitted) = (&writer, &items, &go, &submitted);
                        scope.spawn(move || {
                            while !go.load(Ordering::Acquire) {
                                thread::yield_now();
                            }
                            let ids = (0..5).map(|n| round * 100 + thread * 10 + n);
                            let insert = |id| {
                                let submitted_item = insert(writer, items, item(id));
                                submitted.fetch_add(1, Ordering::Release);
                                (id, submitted_item)
                            };
                            let pending: Vec<_> = ids.map(insert).collect();
                            pending
                                .into_iter()
                                .map(|(id, submitted_item)| (id, submitted_item.wait()))
                                .collect::<Vec<_>>()
                        })
                    })
                    .collect();
                go.store(true, Ordering::Release);
                await_true(|| submitted.load(Ordering::Acquire) >= round.min(19));
                writer.close().map(|()| {
                    threads
                        .into_iter()
                        .flat_map(|thread| thread.join().unwrap_or_default())
                        .collect::<Vec<_>>()
                })
            })?;
            assert_eq!(outcomes.len(), 20);
            let (txn, mut accepted) = (store.read()?, 0);
            for (id, outcome) in outcomes {
                match outcome {
                    Ok(()) => {
                        assert!(items.get(&txn, id)?.is_some(), "{id}");
                        accepted += 1;
                    }
                    Err(Error::WriterClosed) => {
                        assert!(items.get(&txn, id)?.is_none(), "{id}");
                        rejected += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            assert!(
                accepted >= round.min(19),
                "{accepted} accepted of the closures submitted before the close"
            );
        }
        assert!(rejected > 0, "the writer was closed after every submission");
    }
    Ok(())
}
