//! Group writers: a group for each shard.

use std::{sync::mpsc, thread};

use index_table::{Error, Result};

use crate::tables::{self, Kind, Stores, by_value::OrderRepository, options, order};

fn stores() -> Result<Stores> {
    tables::stores([options(Kind::Ranges, 4)])
}

#[test]
fn closures_of_many_threads_are_committed_in_their_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        thread::scope(|scope| {
            for thread in 0..4_u16 {
                let (store, orders, writer) = (&store, &orders, writer.clone());
                scope.spawn(move || {
                    let submitted: Vec<_> = (0..64_u8)
                        .map(|at| {
                            let tenant = at % 32;
                            let number = thread * 100 + u16::from(at / 32);
                            let shard = orders.shard_of(store, tenant).expect("a shard");
                            let orders = orders.clone();
                            writer.submit_on(&shard, move |txn| {
                                orders.insert(txn, &order(tenant, number))
                            })
                        })
                        .collect();
                    for one in submitted {
                        one.wait().expect("a row");
                    }
                });
            }
        });
        assert_eq!(orders.all(&store.read()?).count()?, 4 * 64);
        writer.close()?;
        assert!(writer.is_closed());
        let shard = store.shard("s0")?;
        assert!(matches!(
            writer.submit_on(&shard, |_| Ok::<_, Error>(())).wait(),
            Err(Error::WriterClosed)
        ));
    }
    Ok(())
}

#[test]
fn a_closure_that_takes_long_delays_its_own_shard_only() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let (go_on, wait) = mpsc::channel();
        let first = writer.submit_on(&store.shard("s0")?, move |_| {
            wait.recv().expect("a signal");
            Ok::<_, Error>(())
        });
        let inserting = orders.clone();
        let second =
            writer.submit_on(&store.shard("s1")?, move |txn| inserting.insert(txn, &order(8, 1)));
        second.wait()?;
        go_on.send(()).expect("it waits");
        first.wait()?;
    }
    Ok(())
}

#[test]
fn a_closure_writes_its_own_shard_only() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?.most(8);
        let shard = store.shard("s0")?;
        let insert = |tenant| {
            let orders = orders.clone();
            move |txn: &mut index_table::WriteTxn<'_>| orders.insert(txn, &order(tenant, 1))
        };
        let submitted = [0, 8, 1].map(|tenant| writer.submit_on(&shard, insert(tenant)));
        let outcomes = submitted.map(index_table::Submitted::wait);
        assert!(
            matches!(&outcomes, [Ok(()), Err(Error::OtherShard { .. }), Ok(())]),
            "{outcomes:?}"
        );
        assert_eq!(orders.all(&store.read()?).count()?, 2);
        // The shard belongs to another store.
        let other = options(Kind::Ranges, 4).in_memory()?;
        let outcome = writer.submit_on(&other.shard("s0")?, insert(2)).wait();
        assert!(matches!(outcome, Err(Error::ShardRefused { .. })), "{outcome:?}");
        // The writer of one shard has the same groups, and the methods of a group writer.
        let own = writer.on(&shard)?;
        own.submit(insert(3)).wait()?;
        assert!(own.try_submit(insert(4)).is_ok_and(|submitted| submitted.wait().is_ok()));
        let outcome = own.submit_on(&store.shard("s1")?, insert(8)).wait();
        assert!(matches!(outcome, Err(Error::ShardRefused { .. })), "{outcome:?}");
        writer.close()?;
        assert!(own.is_closed());
    }
    Ok(())
}
