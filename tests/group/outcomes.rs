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

/// Closures panic here, so the messages are not printed.
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
fn closures_submitted_during_a_commit_share_the_next_one_in_order() -> TestResult {
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
            assert_eq!(submitted.wait()?, (place, 0), "it sees those before it, and readers none");
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
        let mut there = BTreeMap::new();
        for pattern in 0..3_u64.pow(5) {
            let txn = hold(&store)?;
            let fates = [1, 3, 9, 27, 81].map(|place| match pattern / place % 3 {
                0 => Fate::Returns,
                1 => Fate::Fails,
                _ => Fate::Panics,
            });
            let submitted: Vec<Submitted<(), Error>> = (0..)
                .zip(fates)
                .map(|(place, fate)| {
                    let items = items.clone();
                    writer.submit(move |txn| {
                        // It changes rows of earlier closures and groups.
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
            for ((place, fate), submitted) in (0..).zip(fates).zip(submitted) {
                match (fate, submitted.wait()) {
                    (Fate::Returns, Ok(())) => {
                        if let Some(mut last) = there.last_entry() {
                            let last: &mut Item = last.get_mut();
                            last.bytes.push(1);
                        }
                        there.insert(pattern * 5 + place, item(pattern * 5 + place));
                    }
                    (Fate::Fails, Err(Error::DuplicateKey { .. })) => {}
                    (Fate::Panics, Err(Error::Panicked { message })) => {
                        assert_eq!(message, format!("at {place}"));
                    }
                    other => return Err(format!("{other:?}").into()),
                }
            }
            if pattern % 27 == 0 {
                check(&store, &items, there.keys().copied())?;
            }
        }
        let txn = store.read()?;
        let rows: Vec<Item> = items.all(&txn).rows().collect::<Result<_, _>>()?;
        assert!(rows.iter().eq(there.values()));
        check(&store, &items, there.keys().copied())?;
        // Undone writes aren't counted.
        assert_eq!(items.usage().inserts, there.len() as u64);
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
        let own = (store.clone(), writer.clone(), items.clone());
        let inside = writer.submit(move |_| {
            let (store, writer, items) = &own;
            // The queue has room for the first closure only.
            let accepted = insert(writer, items, item(1));
            let refused = [
                store.write().map(drop),
                store.transaction(|_| Ok(())),
                OtherRepository::open(store).map(drop),
                insert(writer, items, item(2)).wait(),
                accepted.wait(),
                writer.close(),
            ];
            Ok::<_, Error>(refused)
        });
        for refused in inside.wait()? {
            assert!(matches!(refused, Err(Error::WriteInProgress)), "{refused:?}");
        }
        insert(&writer, &items, item(3)).wait()?;
        check(&store, &items, [1, 3])?;

        // Nor can a thread that holds the transaction that it would wait for.
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

/// Waits for the writer, and closes it, where it is dropped.
struct Waits {
    writer: GroupWriter,
    items: ItemRepository,
    results: Sender<[Result<(), Error>; 3]>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Self { writer, items, results } = self;
        // There is room for one.
        let accepted = insert(writer, items, item(1));
        let refused = insert(writer, items, item(2)).wait();
        let _ = results.send([refused, accepted.wait(), writer.close()]);
    }
}

#[test]
fn the_drop_of_a_captured_value_can_not_wait_for_the_writer() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.queue(1);
        let (results, refused) = channel();
        let waits = Waits { writer: writer.clone(), items: items.clone(), results };
        // Its captured values, and its result without a receiver.
        let txn = hold(&store)?;
        let mut waits = Some(waits);
        drop(writer.submit(move |_| Ok::<_, Error>(waits.take())));
        drop(txn);
        for refused in refused.recv_timeout(PATIENCE)? {
            assert!(matches!(refused, Err(Error::WriteInProgress)), "{refused:?}");
        }
        writer.close()?;
        check(&store, &items, [1])?;
    }
    Ok(())
}

/// It panics when it is dropped.
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
        let held = Bomb;
        let holds = writer.submit(move |_| {
            let _held = &held;
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

/// So is one that runs again, for the map was full, and has returned such a thing before.
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
        // Whether it has room or not, it returns the same.
        writer.submit(move |txn| {
            runs.fetch_add(1, Ordering::Relaxed);
            let _ = (0..1000).try_for_each(|id| items.insert(txn, &item(id)));
            Ok::<_, Error>(Bomb)
        })
    };
    drop(txn);
    first.wait()?;
    std::mem::forget(second.wait()?);
    assert!(runs.load(Ordering::Relaxed) > 1, "it had room at first");
    check(&store, &items, (0..1000).chain([10_000]))
}

/// Later closures can use a table that was opened while the writer waited for its turn.
#[test]
fn tables_can_be_opened_meanwhile() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let txn = hold(&store)?;
    let first = insert(&writer, &items, item(1));
    let waiting = Threads::default();
    let others = thread::scope(|scope| {
        let opening = scope.spawn(|| {
            waiting.enter();
            OtherRepository::open(&store)
        });
        waiting.await_blocked(1);
        drop(txn);
        opening.join().unwrap_or_else(|_| panic!("opening"))
    })?;
    let second = writer.submit(move |txn| others.insert(txn, &Other { id: 1 }));
    first.wait()?;
    second.wait()?;
    Ok(())
}
