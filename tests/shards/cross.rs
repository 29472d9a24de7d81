//! Transactions of several shards: locks, rollback and savepoints.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Scope, ScopedJoinHandle},
    time::Duration,
};

use index_table::{Durability, Error, Result, Store, WriteTxn};

use crate::tables::{
    self, Kind, Stores,
    by_value::{Order, OrderRepository},
    options, order,
};

/// Returns stores with four shards of eight tenants each.
fn stores() -> Result<Stores> {
    let durabilities = [Durability::None, Durability::Journal, Durability::Relaxed];
    tables::stores(durabilities.map(|durability| options(Kind::Ranges, 4).durability(durability)))
}

/// Starts a thread that inserts an order, and checks that its transaction ends after `is_over` is set.
fn insert_in_thread<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (store, orders): (&'scope Store, &'scope OrderRepository),
    row: Order,
    is_over: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, Result<()>> {
    scope.spawn(move || {
        store.transaction(|txn| orders.insert(txn, &row))?;
        assert!(is_over.load(Ordering::SeqCst));
        Ok(())
    })
}

fn keys(store: &Store, orders: &OrderRepository) -> Result<Vec<(u8, u16)>> {
    orders.all(&store.read()?).keys().collect()
}

#[test]
fn a_closure_that_needs_an_earlier_shard_runs_again() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        for (number, tenants, expected) in [
            (0, &[0, 8, 16, 24][..], 1),
            (1, &[8], 1),
            (2, &[24, 25, 24], 1),
            (3, &[8, 24, 9, 30], 1),
            (4, &[8, 0], 2),
            (5, &[8, 0, 24, 1, 9], 2),
            (6, &[24, 16, 8, 0], 3),
            (7, &[16, 24, 8, 0], 3),
        ] {
            let mut runs = 0;
            store.transaction(|txn| {
                runs += 1;
                for tenant in tenants {
                    orders.put(txn, &order(*tenant, number))?;
                }
                Ok(())
            })?;
            assert_eq!(runs, expected, "{tenants:?}");
            let txn = store.read()?;
            for tenant in tenants {
                assert!(orders.get(&txn, *tenant, number)?.is_some());
            }
        }
        assert!(orders.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_closure_that_ignores_the_error_still_runs_again() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let mut runs = 0;
        store.transaction(|txn| {
            runs += 1;
            let outcomes = [24, 0, 24].map(|tenant| orders.insert(txn, &order(tenant, runs)));
            if runs == 1 {
                let [first, second, third] = &outcomes;
                assert!(first.is_ok());
                assert!(matches!(second, Err(Error::OtherShard { .. })), "{second:?}");
                assert!(matches!(third, Err(Error::OtherShard { .. })), "{third:?}");
            }
            Ok(())
        })?;
        assert_eq!(keys(&store, &orders)?, [(0, 2), (24, 2)]);
    }
    Ok(())
}

#[test]
fn an_error_or_a_panic_undoes_the_writes_in_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let write = |txn: &mut WriteTxn<'_>| {
            [0, 8, 24].iter().try_for_each(|tenant| orders.insert(txn, &order(*tenant, 1)))
        };
        let failed: Result<()> = store.transaction(|txn| {
            write(txn)?;
            Err(Error::WriteInProgress)
        });
        assert!(matches!(failed, Err(Error::WriteInProgress)));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            store.transaction(|txn| -> Result<()> {
                write(txn)?;
                panic!("in the closure")
            })
        }));
        assert!(panicked.is_err());
        let mut txn = store.write()?;
        write(&mut txn)?;
        drop(txn);
        assert_eq!(keys(&store, &orders)?, []);
        let outcome = store.try_transaction(|txn| {
            write(txn).map_err(|error| error.to_string())?;
            Err::<(), _>(Failure("of my own".to_owned()))
        });
        assert_eq!(outcome.map_err(|failure| failure.0), Err("of my own".to_owned()));
        store.transaction(write)?;
        assert_eq!(keys(&store, &orders)?, [(0, 1), (8, 1), (24, 1)]);
    }
    Ok(())
}

struct Failure(String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[test]
fn write_locks_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let mut txn = store.write()?;
        for tenant in [24, 0, 16, 8] {
            orders.insert(&mut txn, &order(tenant, 1))?;
        }
        assert_eq!(orders.find_by_town(&txn, "Oslo").count()?, 4);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = insert_in_thread(scope, (&store, &orders), order(30, 1), &is_over);
            thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::SeqCst);
            txn.commit()?;
            other.join().expect("no panic")
        })?;
        assert_eq!(keys(&store, &orders)?.len(), 5);
    }
    Ok(())
}

/// Another transaction can't change rows that this one has read.
#[test]
fn a_shard_that_was_read_is_locked() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut other = None;
            store.transaction(|txn| {
                assert_eq!(orders.find_by_tenant(txn, 0).count()?, 0);
                orders.insert(txn, &order(24, 1))?;
                other = Some(insert_in_thread(scope, (&store, &orders), order(0, 1), &is_over));
                thread::sleep(Duration::from_millis(20));
                assert_eq!(orders.find_by_tenant(txn, 0).count()?, 0);
                is_over.store(true, Ordering::SeqCst);
                Ok(())
            })?;
            other.expect("a thread").join().expect("no panic")
        })?;
        assert_eq!(keys(&store, &orders)?, [(0, 1), (24, 1)]);
    }
    Ok(())
}

#[test]
fn queries_read_the_writes_in_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(10, 1)))?;
        let mut runs = 0;
        let found = store.transaction(|txn| {
            runs += 1;
            orders.insert(txn, &order(24, 2))?;
            orders.insert(txn, &order(31, 3))?;
            let found = orders.find_by_town(txn, "Oslo").keys().collect::<Result<Vec<_>>>()?;
            assert_eq!(txn.stats().shards, 4);
            Ok(found)
        })?;
        assert_eq!(found, [(10, 1), (24, 2), (31, 3)]);
        assert!(runs <= 3);
        // A row moves to another shard with its entries, there and back.
        for (from, to) in [(10, 26), (26, 2)] {
            let moved =
                store.transaction(|txn| orders.update(txn, from, 1, |order| order.tenant = to))?;
            assert!(moved);
            let txn = store.read()?;
            assert_eq!(orders.find_by_tenant(&txn, from).count()?, 0);
            assert_eq!(orders.get(&txn, to, 1)?, Some(order(to, 1)));
            assert!(orders.verify(&txn).run()?.is_clean());
        }
    }
    Ok(())
}

#[test]
fn savepoints_are_undone_in_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let insert = |txn: &mut WriteTxn<'_>, tenants: &[u8], number| {
            tenants.iter().try_for_each(|tenant| orders.insert(txn, &order(*tenant, number)))
        };
        // Some shards are first used by the transaction, some by a committed savepoint, some by a failed one.
        let body = |txn: &mut WriteTxn<'_>| -> Result<()> {
            txn.nested(|txn| insert(txn, &[16], 1))?;
            insert(txn, &[0], 1)?;
            let failed = txn.nested(|txn| -> Result<()> {
                insert(txn, &[0, 8, 24], 2)?;
                txn.nested(|txn| insert(txn, &[25, 9], 2))?;
                Err(Error::WriteInProgress)
            });
            if !matches!(failed, Err(Error::WriteInProgress)) {
                return failed;
            }
            txn.nested(|txn| {
                insert(txn, &[8, 0], 3)?;
                let inner = txn.nested(|txn| -> Result<()> {
                    insert(txn, &[8, 16], 4)?;
                    Err(Error::WriteInProgress)
                });
                if !matches!(inner, Err(Error::WriteInProgress)) {
                    return inner;
                }
                txn.nested(|txn| insert(txn, &[24], 5))
            })?;
            assert_eq!(orders.find_by_town(txn, "Oslo").count()?, 5);
            Ok(())
        };
        let expected = [(0, 1), (0, 3), (8, 3), (16, 1), (24, 5)];
        let mut runs = 0;
        store.transaction(|txn| {
            runs += 1;
            body(txn)
        })?;
        assert!(runs <= 3, "{runs} runs");
        assert_eq!(keys(&store, &orders)?, expected);
        for (tenant, number) in expected {
            store.transaction(|txn| orders.delete(txn, tenant, number))?;
        }
        let mut txn = store.write()?;
        body(&mut txn)?;
        txn.commit()?;
        assert_eq!(keys(&store, &orders)?, expected);
        assert!(orders.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn shards_read_by_a_failed_savepoint_stay_locked() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut other = None;
            store.transaction(|txn| {
                let read = txn.nested(|txn| -> Result<()> {
                    assert_eq!(orders.get(txn, 0, 1)?, None);
                    Err(Error::WriteInProgress)
                });
                assert!(read.is_err());
                other.get_or_insert_with(|| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(20));
                        store.transaction(|txn| orders.insert(txn, &order(0, 1)))?;
                        assert!(is_over.load(Ordering::SeqCst));
                        Ok::<_, Error>(())
                    })
                });
                orders.insert(txn, &order(24, 1))?;
                thread::sleep(Duration::from_millis(40));
                is_over.store(true, Ordering::SeqCst);
                Ok(())
            })?;
            other.expect("a thread").join().expect("no panic")
        })?;
    }
    Ok(())
}

#[test]
fn transactions_that_use_shards_in_any_order_do_not_deadlock() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u8)
                .map(|thread| {
                    let (store, orders) = (&store, &orders);
                    scope.spawn(move || {
                        for number in 0..40_u16 {
                            let own = u16::from(thread) * 1000 + number;
                            store.transaction(|txn| {
                                for step in 0..4_u8 {
                                    let shard = (thread + step * (1 + thread % 3)) % 4;
                                    orders.put(txn, &order(shard * 8 + step, own))?;
                                }
                                Ok(())
                            })?;
                        }
                        Ok::<_, Error>(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        let txn = store.read()?;
        assert_eq!(orders.all(&txn).count()?, 4 * 40 * 4);
        assert!(orders.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_shard_that_is_not_available_is_an_error() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(options(Kind::Ranges, 4).open(dir.path())?);
    let store = Store::options().only(["s0", "s2", "s3"]).open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let mut runs = 0;
    let outcome = store.transaction(|txn| {
        runs += 1;
        orders.insert(txn, &order(16, 1))?;
        orders.insert(txn, &order(8, 1))
    });
    assert!(matches!(&outcome, Err(Error::ShardUnavailable { shard, .. }) if shard == "s1"));
    assert_eq!(runs, 1);
    let mut txn = store.write()?;
    orders.insert(&mut txn, &order(24, 1))?;
    orders.insert(&mut txn, &order(0, 1))?;
    let outcome = orders.insert(&mut txn, &order(8, 1));
    assert!(matches!(&outcome, Err(Error::ShardUnavailable { shard, .. }) if shard == "s1"));
    txn.commit()?;
    assert_eq!(orders.all(&store.read()?).available().scan.count()?, 2);
    Ok(())
}

#[test]
fn the_maps_of_all_shards_grow() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let small = options(Kind::Ranges, 4).map_size(1 << 18).max_map_size(1 << 26);
    let store = small.open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    for number in 0..200 {
        store.transaction(|txn| {
            for tenant in [0, 8, 24] {
                let note = "x".repeat(5000);
                orders.insert(txn, &Order { note, ..order(tenant, number) })?;
            }
            Ok(())
        })?;
    }
    let txn = store.read()?;
    assert_eq!(orders.all(&txn).count()?, 600);
    assert!(orders.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn a_group_writer_commits_closures_of_any_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?.most(8);
        let submitted: Vec<_> = (0..60_u16)
            .map(|number| {
                let orders = orders.clone();
                writer.submit(move |txn| {
                    for tenant in [24, 0, 8] {
                        orders.insert(txn, &order(tenant, number))?;
                    }
                    match number % 5 {
                        3 => Err(Error::WriteInProgress),
                        4 => panic!("in a closure"),
                        _ => Ok(()),
                    }
                })
            })
            .collect();
        let own = orders.clone();
        let shard = store.shard("s1")?;
        writer.submit_on(&shard, move |txn| own.insert(txn, &order(9, 1))).wait()?;
        for (number, submitted) in (0..).zip(submitted) {
            let outcome = submitted.wait();
            let is_expected = match number % 5 {
                3 => matches!(outcome, Err(Error::WriteInProgress)),
                4 => matches!(outcome, Err(Error::Panicked { .. })),
                _ => outcome.is_ok(),
            };
            assert!(is_expected, "{number}: {outcome:?}");
        }
        let own = orders.clone();
        let tried = writer.try_submit(move |txn| own.insert(txn, &order(30, 1)));
        tried.map_err(|_| Error::WriterClosed)?.wait()?;
        writer.close()?;
        assert!(matches!(writer.submit(|_| Ok(())).wait(), Err(Error::WriterClosed)));
        assert_eq!(orders.all(&store.read()?).count()?, 36 * 3 + 2);
        assert!(orders.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_commit_number_covers_the_written_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let before = store.read()?.commit_number();
        let number = store.transaction(|txn| {
            orders.get(txn, 0, 1)?;
            orders.insert(txn, &order(8, 1))?;
            orders.insert(txn, &order(24, 1))?;
            Ok(txn.commit_number())
        })?;
        let after = store.read()?.commit_number();
        assert!(before < after && number <= after);
        assert_ne!(number.partial_cmp(&before), Some(std::cmp::Ordering::Less));
    }
    Ok(())
}
