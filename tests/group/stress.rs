//! Sixty-four threads at once, in every way.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Store};

use crate::{Item, ItemRepository, TestResult, block_on, check, insert, item, stores};

const THREADS: u64 = 64;

/// Each thread has rows of its own, and one that all of them count up.
#[test]
fn many_threads_lose_no_closure() -> TestResult {
    for (store, dir) in stores()? {
        let rounds: u64 = if dir.is_some() { 60 } else { 6 };
        let items = ItemRepository::open(&store)?;
        store.transaction(|txn| items.insert(txn, &item(0)))?;
        let writer = store.writer()?.queue(16).most(40);
        let counted = AtomicU64::new(0);
        let kept = thread::scope(|scope| {
            let threads: Vec<_> = (1..=THREADS)
                .map(|thread| {
                    let (store, writer, items, counted) = (&store, &writer, &items, &counted);
                    scope.spawn(move || -> Result<BTreeMap<u64, Item>, Error> {
                        let mut kept = BTreeMap::new();
                        for round in 0..rounds {
                            let id = thread * 1000 + round;
                            let fails = (id * 7919) % 5 == 0;
                            let own = items.clone();
                            let body = move |txn: &mut index_table::WriteTxn<'_>| {
                                own.insert(txn, &item(id))?;
                                own.update(txn, 0, |row| row.code = row.code.wrapping_add(1))?;
                                own.delete(txn, id - 1)?;
                                if fails { own.insert(txn, &item(id)) } else { Ok(()) }
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
                                    kept.remove(&(id - 1));
                                    kept.insert(id, item(id));
                                    counted.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(Error::DuplicateKey { .. }) if fails => {}
                                Ok(()) => panic!("{id} was to fail"),
                                Err(error) => return Err(error),
                            }
                        }
                        Ok(kept)
                    })
                })
                .collect();
            let mut kept = BTreeMap::new();
            for thread in threads {
                kept.append(&mut thread.join().unwrap_or_else(|_| panic!("a thread"))?);
            }
            Ok::<_, Error>(kept)
        })?;
        let counted = counted.load(Ordering::Relaxed);
        assert_eq!(
            items.get(&store.read()?, 0)?.map(|row| row.code),
            Some(item(0).code.wrapping_add(counted))
        );
        check(&store, &items, kept.into_keys().chain([0]))?;
    }
    Ok(())
}

/// Explicit transactions get their turn to write while a group writer is busy.
#[test]
fn transactions_beside_a_group_writer_get_their_turn() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (writer, items, over) = (&writer, &items, &over);
            scope.spawn(move || {
                for id in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    drop(insert(writer, items, item(1_000_000 * (thread + 1) + id)));
                }
            });
        }
        let began = Instant::now();
        let written =
            (0..50).try_for_each(|id| store.transaction(|txn| items.insert(txn, &item(id))));
        over.store(true, Ordering::Relaxed);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        written
    })?;
    Ok(())
}
