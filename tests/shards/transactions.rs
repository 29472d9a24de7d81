//! Transactions of one shard that run concurrently, and snapshots of one instant.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use index_table::{Durability, Error, Result};

use crate::tables::{self, Kind, Stores, by_value::OrderRepository, options, order};

fn stores() -> Result<Stores> {
    tables::stores([options(Kind::Ranges, 4).durability(Durability::None)])
}

#[test]
fn a_transaction_refuses_rows_of_other_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let shard = orders.shard_of(&store, 0)?;
        let outcome = store.transaction_on(&shard, |txn| {
            orders.insert(txn, &order(7, 1))?;
            let other = orders.insert(txn, &order(8, 1));
            let Err(Error::OtherShard { table: "orders", key: Some(key), shard, own }) = &other
            else {
                panic!("{other:?}")
            };
            assert_eq!((key.as_str(), shard.as_str(), own.as_str()), ("(8, 1)", "s1", "s0"));
            assert!(matches!(orders.get(txn, 8, 1), Err(Error::OtherShard { .. })));
            assert!(matches!(
                orders.find_by_town(txn, "Oslo").count(),
                Err(Error::OtherShard { key: None, .. })
            ));
            // An update that would move the row to another shard changes nothing.
            let moved = orders.update(txn, 7, 1, |order| order.tenant = 8);
            assert!(matches!(moved, Err(Error::OtherShard { .. })));
            assert_eq!(orders.find_by_tenant(txn, 7).count()?, 1);
            Ok(())
        });
        outcome?;
        store.transaction(|txn| orders.insert(txn, &order(31, 1)))?;
        let txn = store.read()?;
        assert_eq!(orders.all(&txn).keys().collect::<Result<Vec<_>>>()?, [(7, 1), (31, 1)]);
        let txn = store.read_on(&shard)?;
        assert_eq!(orders.find_by_tenant(&txn, 7).count()?, 1);
        assert!(matches!(orders.get(&txn, 31, 1), Err(Error::OtherShard { .. })));
        Ok::<_, Error>(())?;
    }
    Ok(())
}

#[test]
fn a_failed_savepoint_does_not_limit_the_transaction_to_its_shard() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            let failed = txn.nested(|txn| -> Result<()> {
                orders.insert(txn, &order(0, 1))?;
                Err(Error::WriteInProgress)
            });
            assert!(matches!(failed, Err(Error::WriteInProgress)));
            txn.nested(|txn| orders.insert(txn, &order(8, 1)))?;
            txn.nested(|txn| orders.insert(txn, &order(9, 1)))?;
            let failed = txn.nested(|txn| -> Result<()> {
                orders.insert(txn, &order(9, 2))?;
                Err(Error::WriteInProgress)
            });
            assert!(matches!(failed, Err(Error::WriteInProgress)));
            Ok(())
        })?;
        let txn = store.read()?;
        assert_eq!(orders.all(&txn).keys().collect::<Result<Vec<_>>>()?, [(8, 1), (9, 1)]);
    }
    Ok(())
}

#[test]
fn one_thread_has_one_write_transaction() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let (first, second) = (orders.shard_of(&store, 0)?, orders.shard_of(&store, 8)?);
        let txn = store.write_on(&first)?;
        assert!(matches!(store.write_on(&second), Err(Error::WriteInProgress)));
        assert!(matches!(store.write(), Err(Error::WriteInProgress)));
        thread::scope(|scope| {
            scope
                .spawn(|| drop(store.write_on(&second).expect("another shard")))
                .join()
                .expect("no panic");
        });
        drop(txn);
        drop(store.write_on(&second)?);
    }
    Ok(())
}

#[test]
fn transactions_of_different_shards_run_concurrently() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let together = Barrier::new(4);
        thread::scope(|scope| {
            for tenant in [0, 8, 16, 24] {
                let (store, orders, together) = (&store, &orders, &together);
                scope.spawn(move || {
                    store.transaction(|txn| {
                        orders.insert(txn, &order(tenant, 1))?;
                        // All four threads are in their transactions.
                        together.wait();
                        Ok(())
                    })
                });
            }
        });
        assert_eq!(orders.all(&store.read()?).count()?, 4);
    }
    Ok(())
}

/// A writer inserts row n in one shard after another. A snapshot never has a later row without the earlier rows.
#[test]
fn a_snapshot_has_no_commit_without_the_commits_before_it() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..300 {
                    // The last shard is written first. So snapshots taken in the order of the shards would be wrong.
                    for tenant in [24, 16, 8, 0] {
                        store
                            .transaction(|txn| orders.insert(txn, &order(tenant, number)))
                            .expect("a row");
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                let txn = store.read().expect("a snapshot");
                let counts = [24, 16, 8, 0]
                    .map(|tenant| orders.find_by_tenant(&txn, tenant).count().expect("a count"));
                assert!(counts.is_sorted_by(|first, second| first >= second), "{counts:?}");
            }
        });
    }
    Ok(())
}

#[test]
fn commit_numbers_have_a_number_for_each_shard() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let before = store.read()?.commit_number();
        let write = |tenant| {
            let mut txn = store.write()?;
            orders.insert(&mut txn, &order(tenant, 1))?;
            let number = txn.commit_number();
            txn.commit()?;
            Ok::<_, Error>(number)
        };
        let first = write(0)?;
        let between = store.read()?.commit_number();
        let second = write(31)?;
        let after = store.read()?.commit_number();
        assert!(before < between && between < after);
        assert!(first <= between && first <= after && second <= after);
        assert_eq!(second.partial_cmp(&between), None);
        let text = serde_json::to_string(&after).expect("text");
        assert_eq!(
            serde_json::from_str::<index_table::CommitNumber>(&text).expect("a number"),
            after
        );
    }
    Ok(())
}
