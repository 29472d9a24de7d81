//! Sixty-four threads that submit closures in different ways.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Store};

use crate::{Item, ItemRepository, TestResult, block_on, check, insert, item, stores};

const THREADS: u64 = 64;

/// Each thread writes its own rows, and increments a row that all threads share.
#[test]
fn many_threads_lose_no_closure() -> TestResult {
    for (store, dir) in stores()? {
        let rounds: u64 = if dir.is_some() { 60 } else { 6 };
        let items = ItemRepository::open(&store)?;
        store.transaction(|txn| items.insert(txn, &item(0)))?;
        let writer = store.writer()?.queue(16).most(40);
        let counted = AtomicU64::new(0);
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (1..=THREADS)
                .map(|thread| {
                    let (store, writer, items, counted) = (&store, &writer, &items, &counted);
                    scope.spawn(move || -> Result<BTreeMap<u64, Item>, Error> {
                        let mut counts = BTreeMap::new();
                        for round in 0..rounds {
                            let id = thread * 1000 + round;
                            let fails = (id * 7919) % 5 == 0;
                            let items = items.clone();
                            let body = move |txn: &mut index_table::WriteTxn<'_>| {
                                items.insert(txn, &item(id))?;
                                items.update(txn, 0, |row| row.code = row.code.wrapping_add(1))?;
                                items.delete(txn, id - 1)?;
                                if fails { items.insert(txn, &item(id)) } else { Ok(()) }
                            };
                            let outcome = match id % 4 {
                                0 => writer.submit(body).wait(),
                                1 => block_on(writer.submit_async(body)),
                                2 => match writer.try_submit(body) {
                                    Ok(submitted) => submitted.wait(),
                                    Err(full) => writer.submit(full.0).wait(),
                                },
                                _ => store.transaction(body),
                            };
                            match outcome {
                                Ok(()) if !fails => {
                                    counts.remove(&(id - 1));
                                    counts.insert(id, item(id));
                                    counted.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(Error::DuplicateKey { .. }) if fails => {}
                                Ok(()) => panic!("{id} succeeded"),
                                Err(error) => return Err(error),
                            }
                        }
                        Ok(counts)
                    })
                })
                .collect();
            let mut counts = BTreeMap::new();
            for thread in threads {
                counts.append(&mut thread.join().unwrap_or_else(|_| panic!("a thread"))?);
            }
            Ok::<_, Error>(counts)
        })?;
        let counted = counted.load(Ordering::Relaxed);
        assert_eq!(
            items.get(&store.read()?, 0)?.map(|row| row.code),
            Some(item(0).code.wrapping_add(counted))
        );
        check(&store, &items, counts.into_keys().chain([0]))?;
    }
    Ok(())
}

/// Explicit transactions get their turn to write while a group writer is busy.
#[test]
fn a_group_writer_does_not_starve_explicit_transactions() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (writer, items, is_over) = (&writer, &items, &is_over);
            scope.spawn(move || {
                for id in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    drop(insert(writer, items, item(1_000_000 * (thread + 1) + id)));
                }
            });
        }
        let began = Instant::now();
        let written =
            (0..50).try_for_each(|id| store.transaction(|txn| items.insert(txn, &item(id))));
        is_over.store(true, Ordering::Relaxed);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        written
    })?;
    Ok(())
}
