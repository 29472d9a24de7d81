//! Each closure has its own result, independent of the others.

use std::{
    collections::BTreeMap,
    panic,
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};

use index_table::{Error, GroupWriter, IndexTable, Store, Submitted};
use serde::{Deserialize, Serialize};

use crate::{
    Item, ItemRepository, TestResult, block_on, check, hold, insert, item, stores,
    support::{PATIENCE, Threads},
};

/// Suppresses the messages of panics, because closures panic in these tests.
fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name() != Some("group-writer") {
                before(info);
            }
        }));
    });
}

#[test]
fn closures_submitted_during_a_commit_share_the_next_commit_in_order() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?;
        let txn = hold(&store)?;
        let submitted: Vec<Submitted<_, Error>> = (0..100)
            .map(|id| {
                let (store, items) = (store.clone(), items.clone());
                writer.submit(move |txn| {
                    let before = items.all(txn).count()?;
                    items.insert(txn, &item(id))?;
                    Ok((before, items.all(&store.read()?).count()?))
                })
            })
            .collect();
        drop(txn);
        for (place, submitted) in (0..).zip(submitted) {
            assert_eq!(
                submitted.wait()?,
                (place, 0),
                "a closure sees the writes of earlier closures, and readers see none"
            );
        }
        check(&store, &items, 0..100)?;
    }
    Ok(())
}

#[test]
fn a_commit_has_no_more_closures_than_the_limit() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.most(10);
        let txn = hold(&store)?;
        let submitted: Vec<Submitted<_, Error>> = (0..100)
            .map(|id| {
                let (store, items) = (store.clone(), items.clone());
                writer.submit(move |txn| {
                    items.insert(txn, &item(id))?;
                    items.all(&store.read()?).count()
                })
            })
            .collect();
        drop(txn);
        for (place, submitted) in (0..).zip(submitted) {
            assert_eq!(submitted.wait()?, place / 10 * 10);
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Returns,
    Fails,
    Panics,
}

/// Runs every combination of the outcomes of five closures in a group.
#[test]
fn a_closure_that_fails_or_panics_does_not_affect_others() -> TestResult {
    quiet();
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?;
        let mut expected = BTreeMap::new();
        for pattern in 0..3_u64.pow(5) {
            let txn = hold(&store)?;
            let kinds = [1, 3, 9, 27, 81].map(|divisor| match pattern / divisor % 3 {
                0 => Fate::Returns,
                1 => Fate::Fails,
                _ => Fate::Panics,
            });
            let submitted: Vec<Submitted<(), Error>> = (0..)
                .zip(kinds)
                .map(|(place, fate)| {
                    let items = items.clone();
                    writer.submit(move |txn| {
                        // The closure changes rows of earlier closures and groups.
                        let last = items.all(txn).rev().first()?;
                        items.insert(txn, &item(pattern * 5 + place))?;
                        if let Some(last) = last {
                            items.update(txn, last.id, |last| last.bytes.push(1))?;
                        }
                        match fate {
                            Fate::Returns => Ok(()),
                            Fate::Fails => items.insert(txn, &item(pattern * 5 + place)),
                            Fate::Panics => panic!("at {place}"),
                        }
                    })
                })
                .collect();
            drop(txn);
            for ((place, fate), submitted) in (0..).zip(kinds).zip(submitted) {
                match (fate, submitted.wait()) {
                    (Fate::Returns, Ok(())) => {
                        if let Some(mut last) = expected.last_entry() {
                            let last: &mut Item = last.get_mut();
                            last.bytes.push(1);
                        }
                        expected.insert(pattern * 5 + place, item(pattern * 5 + place));
                    }
                    (Fate::Fails, Err(Error::DuplicateKey { .. })) => {}
                    (Fate::Panics, Err(Error::Panicked { message })) => {
                        assert_eq!(message, format!("at {place}"));
                    }
                    other => return Err(format!("{other:?}").into()),
                }
            }
            if pattern % 27 == 0 {
                check(&store, &items, expected.keys().copied())?;
            }
        }
        let txn = store.read()?;
        let rows: Vec<Item> = items.all(&txn).rows().collect::<Result<_, _>>()?;
        assert!(rows.iter().eq(expected.values()));
        check(&store, &items, expected.keys().copied())?;
        // Rolled back writes aren't counted.
        assert_eq!(items.usage().inserts, expected.len() as u64);
    }
    Ok(())
}

#[test]
fn the_error_of_a_panic_has_its_message() -> TestResult {
    quiet();
    let store = Store::in_memory();
    let writer = store.writer()?;
    let panics: [(fn(), &str); 3] = [
        (|| panic!("no"), "no"),
        (|| panic!("{}", "formatted"), "formatted"),
        (|| panic::panic_any(7), "with a value that is not text"),
    ];
    for (panics, said) in panics {
        let submitted = writer.submit(move |_| {
            panics();
            Ok::<_, Error>(())
        });
        let outcome = block_on(submitted);
        assert!(
            matches!(&outcome, Err(Error::Panicked { message }) if message == said),
            "{outcome:?}"
        );
    }
    writer.submit(|_| Ok::<_, Error>(())).wait()?;
    Ok(())
}

#[derive(Debug)]
enum Own {
    Store(Error),
    Refused(u64),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[test]
fn errors_can_be_of_another_type() -> TestResult {
    let store = Store::in_memory();
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let submit = |id| {
        let items = items.clone();
        writer.submit(move |txn| {
            items.insert(txn, &item(id))?;
            if id == 7 { Err(Own::Refused(id)) } else { Ok(id) }
        })
    };
    assert!(matches!(submit(7).wait(), Err(Own::Refused(7))));
    assert!(matches!(submit(8).wait(), Ok(8)));
    assert!(matches!(submit(8).wait(), Err(Own::Store(Error::DuplicateKey { .. }))));
    check(&store, &items, [8])?;
    writer.close()?;
    assert!(matches!(submit(9).wait(), Err(Own::Store(Error::WriterClosed))));
    Ok(())
}

#[derive(Serialize, Deserialize, IndexTable)]
struct Other {
    #[primary_key]
    id: u8,
}

#[test]
fn a_closure_can_not_wait_for_itself() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.queue(1);
        let handles = (store.clone(), writer.clone(), items.clone());
        let inside = writer.submit(move |_| {
            let (store, writer, items) = &handles;
            // The queue has room for the first closure only.
            let accepted = insert(writer, items, item(1));
            let outcomes = [
                store.write().map(drop),
                store.transaction(|_| Ok(())),
                OtherRepository::open(store).map(drop),
                insert(writer, items, item(2)).wait(),
                accepted.wait(),
                writer.close(),
            ];
            Ok::<_, Error>(outcomes)
        });
        for outcomes in inside.wait()? {
            assert!(matches!(outcomes, Err(Error::WriteInProgress)), "{outcomes:?}");
        }
        insert(&writer, &items, item(3)).wait()?;
        check(&store, &items, [1, 3])?;

        // A thread with a write transaction can't wait either, because the closure waits for this
        // transaction.
        let txn = hold(&store)?;
        let waits = insert(&writer, &items, item(4)).wait();
        assert!(matches!(waits, Err(Error::WriteInProgress)));
        assert!(matches!(writer.close(), Err(Error::WriteInProgress)));
        drop(txn);
        writer.close()?;
        check(&store, &items, [1, 3, 4])?;
    }
    Ok(())
}

/// A value whose drop waits for the writer and closes it.
struct Waits {
    writer: GroupWriter,
    items: ItemRepository,
    results: Sender<[Result<(), Error>; 3]>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Self { writer, items, results } = self;
        // The queue has room for one closure.
        let accepted = insert(writer, items, item(1));
        let result = insert(writer, items, item(2)).wait();
        let _ = results.send([result, accepted.wait(), writer.close()]);
    }
}

#[test]
fn the_drop_of_a_captured_value_can_not_wait_for_the_writer() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.queue(1);
        let (results, received) = channel();
        let waits = Waits { writer: writer.clone(), items: items.clone(), results };
        // The value is captured by a closure, and is a result without a receiver.
        let txn = hold(&store)?;
        let mut waits = Some(waits);
        drop(writer.submit(move |_| Ok::<_, Error>(waits.take())));
        drop(txn);
        for result in received.recv_timeout(PATIENCE)? {
            assert!(matches!(result, Err(Error::WriteInProgress)), "{result:?}");
        }
        writer.close()?;
        check(&store, &items, [1])?;
    }
    Ok(())
}

/// A value that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "dropped");
    }
}

#[test]
fn a_panic_in_a_drop_does_not_affect_others() -> TestResult {
    quiet();
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?;
        let txn = hold(&store)?;
        let first = insert(&writer, &items, item(1));
        let payload = writer.submit(|_| -> Result<(), Error> { std::panic::panic_any(Bomb) });
        let bomb = Bomb;
        let holds = writer.submit(move |_| {
            let _bomb = &bomb;
            Ok::<_, Error>(())
        });
        drop(writer.submit(|_| Ok::<_, Error>(Bomb)));
        let last = insert(&writer, &items, item(2));
        drop(txn);
        first.wait()?;
        assert!(matches!(payload.wait(), Err(Error::Panicked { .. })));
        holds.wait()?;
        last.wait()?;
        check(&store, &items, [1, 2])?;
        writer.close()?;
    }
    Ok(())
}

/// If a closure runs again because the map was full, the result of its first run is dropped.
#[test]
fn the_result_of_an_earlier_run_is_dropped() -> TestResult {
    quiet();
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(1 << 18).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let txn = hold(&store)?;
    let first = insert(&writer, &items, item(10_000));
    let runs = Arc::new(AtomicU32::new(0));
    let second = {
        let (items, runs) = (items.clone(), Arc::clone(&runs));
        // The closure returns the same value with and without room.
        writer.submit(move |txn| {
            runs.fetch_add(1, Ordering::Relaxed);
            let _ = (0..1000).try_for_each(|id| items.insert(txn, &item(id)));
            Ok::<_, Error>(Bomb)
        })
    };
    drop(txn);
    first.wait()?;
    std::mem::forget(second.wait()?);
    assert!(runs.load(Ordering::Relaxed) > 1, "the map was not full");
    check(&store, &items, (0..1000).chain([10_000]))
}

/// Later closures can use a table that was opened while the writer waited for its turn.
#[test]
fn tables_can_be_opened_while_a_group_writer_waits() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let txn = hold(&store)?;
    let first = insert(&writer, &items, item(1));
    let waiting = Threads::default();
    let repository = thread::scope(|scope| {
        let opening = scope.spawn(|| {
            waiting.enter();
            OtherRepository::open(&store)
        });
        waiting.await_blocked(1);
        drop(txn);
        opening.join().unwrap_or_else(|_| panic!("opening"))
    })?;
    let second = writer.submit(move |txn| repository.insert(txn, &Other { id: 1 }));
    first.wait()?;
    second.wait()?;
    Ok(())
}
