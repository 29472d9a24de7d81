//! Closures for the rows with one shard key: they run in the shard that has these rows, and in others that they need.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use index_table::{Error, GroupWriter, Result, Store, Submitted, WriteTxn};

use crate::tables::{self, Kind, Stores, by_value::OrderRepository, global, options, order};

fn stores() -> Result<Stores> {
    tables::stores([options(Kind::Ranges, 4)])
}

/// Blocks the thread of a writer for a shard until the result is dropped.
fn block(writer: &GroupWriter, store: &Store, shard: &str) -> Result<Blocked> {
    let (go_on, wait) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    let submitted = writer.submit_on(&store.shard(shard)?, move |_| {
        let _ = began.send(());
        let _ = wait.recv();
        Ok::<_, Error>(())
    });
    begins.recv().expect("it begins");
    Ok(Blocked { _go_on: go_on, _submitted: submitted })
}

struct Blocked {
    _go_on: mpsc::Sender<()>,
    _submitted: Submitted<(), Error>,
}

fn inserting(
    orders: &OrderRepository,
    tenant: u8,
    number: u16,
) -> impl FnMut(&mut WriteTxn<'_>) -> Result<()> + Send + 'static {
    let orders = orders.clone();
    move |txn| orders.insert(txn, &order(tenant, number))
}

#[test]
fn closures_are_right_while_their_keys_move() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let is_over = AtomicBool::new(false);
        let submitted = thread::scope(|scope| -> Result<u64> {
            let submitters: Vec<_> = (0..3_u8)
                .map(|thread| {
                    let (orders, writer, is_over) = (&orders, &writer, &is_over);
                    scope.spawn(move || -> Result<u64> {
                        let mut number = 0;
                        while !is_over.load(Relaxed) {
                            number += 1;
                            let tenant = (number % 10) as u8;
                            let own = u16::from(thread) * 20_000 + number;
                            orders
                                .submit_for(writer, tenant, inserting(orders, tenant, own))
                                .wait()?;
                        }
                        Ok(u64::from(number))
                    })
                })
                .collect();
            let mut moved = Ok(());
            for to in ["s1", "s3", "s0", "s2"].repeat(3) {
                moved =
                    moved.and_then(|()| store.move_range("tenants", ..10_u8, to).run().map(drop));
            }
            is_over.store(true, Relaxed);
            let counts = submitters.into_iter().map(|it| it.join().expect("no panic"));
            let count = counts.sum::<Result<u64>>()?;
            moved.map(|()| count)
        })?;
        assert_eq!(orders.all(&store.read()?).count()?, submitted);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_closure_runs_in_the_shard_to_which_its_rows_have_moved() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let (began, begins) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        // It has the thread of the shard, and not the shard, when it gets an error.
        let first = writer.submit_on(&store.shard("s0")?, {
            let mut is_first = true;
            move |_| {
                if is_first {
                    is_first = false;
                    let _ = began.send(());
                    let _ = wait.recv();
                }
                Ok::<_, Error>(())
            }
        });
        begins.recv().expect("it begins");
        let submitted: Vec<_> = (1..=3)
            .map(|number| orders.submit_for(&writer, 1, inserting(&orders, 1, number)))
            .collect();
        drop(go_on);
        store.move_range("tenants", ..8_u8, "s2").run()?;
        store.remove_shard("s0")?;
        first.wait()?;
        submitted.into_iter().try_for_each(Submitted::wait)?;
        let later: Vec<_> = (4..=6)
            .map(|number| orders.submit_for(&writer, 1, inserting(&orders, 1, number)))
            .collect();
        later.into_iter().try_for_each(Submitted::wait)?;
        let txn = store.read_on(&store.shard("s2")?)?;
        let numbers = orders.find_by_tenant_town(&txn, 1, "Oslo").count()?;
        assert_eq!(numbers, 6);
    }
    Ok(())
}

#[test]
fn a_closure_uses_other_shards_too() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let blocked = block(&writer, &store, "s1")?;
        // Tenants 8 to 15 are in `s1`; the others precede and follow it. All of them are in one group.
        let both = |number: u16, own: u8, other: u8| {
            let orders = orders.clone();
            move |txn: &mut WriteTxn<'_>| {
                orders.insert(txn, &order(own, number))?;
                orders.insert(txn, &order(other, number))
            }
        };
        let submitted = [
            orders.submit_for(&writer, 8, both(1, 8, 24)),
            orders.submit_for(&writer, 8, both(2, 8, 0)),
            orders.submit_for(&writer, 8, both(3, 0, 8)),
            orders.submit_for(&writer, 8, both(4, 24, 16)),
            // Refused: the row is there already.
            orders.submit_for(&writer, 8, both(1, 8, 24)),
            orders.submit_for(&writer, 8, both(6, 8, 9)),
        ];
        drop(blocked);
        let outcomes = submitted.map(Submitted::wait);
        let [Ok(()), Ok(()), Ok(()), Ok(()), Err(Error::DuplicateKey { .. }), Ok(())] = outcomes
        else {
            panic!("{outcomes:?}")
        };
        let txn = store.read()?;
        let rows = orders.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        let found: Vec<_> = rows.iter().map(|row| (row.tenant, row.number)).collect();
        let expected =
            [(0, 2), (0, 3), (8, 1), (8, 2), (8, 3), (8, 6), (9, 6), (16, 4), (24, 1), (24, 4)];
        assert_eq!(found, expected);
    }
    Ok(())
}

#[test]
fn a_closure_changes_entries_of_a_global_index() -> Result<()> {
    for (_dir, store) in tables::stores([tables::with_maps_of_indexes(Kind::Ranges, 4)])? {
        let orders = global::OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let blocked = block(&writer, &store, "s2")?;
        let row = |tenant: u8, number: u16| {
            let super::tables::by_value::Order { town, size, code, note, tags, .. } =
                order(tenant, number);
            global::Order { tenant, number, town, size, code, note, tags }
        };
        let submitted: Vec<_> = (0..20_u16)
            .map(|at| {
                let (inserting, row) = (orders.clone(), row(16 + (at % 8) as u8, 90 + at));
                orders.submit_for(&writer, row.tenant, move |txn| inserting.insert(txn, &row))
            })
            .collect();
        let (inserting, taken) = (orders.clone(), row(0, 95));
        let taken = orders.submit_for(&writer, 16, move |txn| inserting.insert(txn, &taken));
        drop(blocked);
        submitted.into_iter().try_for_each(Submitted::wait)?;
        let taken = taken.wait();
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn closures_for_keys_and_for_a_shard_are_separate_groups() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?;
        let blocked = block(&writer, &store, "s1")?;
        let shard = store.shard("s1")?;
        let own = orders.submit_for(&writer, 8, inserting(&orders, 8, 1));
        // Only a closure for a key can use another shard.
        let refused = writer.submit_on(&shard, inserting(&orders, 0, 2));
        let other = orders.submit_for(&writer, 8, inserting(&orders, 0, 3));
        let last = writer.submit_on(&shard, inserting(&orders, 8, 4));
        drop(blocked);
        own.wait()?;
        let refused = refused.wait();
        assert!(matches!(refused, Err(Error::OtherShard { .. })), "{refused:?}");
        other.wait()?;
        last.wait()?;
        assert_eq!(orders.all(&store.read()?).count()?, 3);
        // The writer of one shard takes closures for all keys.
        let writer = writer.on(&shard)?;
        orders.submit_for(&writer, 24, inserting(&orders, 24, 5)).wait()?;
    }
    Ok(())
}

#[test]
fn a_key_without_a_shard_is_an_error_of_its_closure() -> Result<()> {
    let ranges = index_table::ShardMap::ranges().to("a", ..8_u8);
    let store = Store::options().shard("a", "a").shard("b", "b").map("tenants", ranges);
    let store = store.in_memory()?;
    let orders = OrderRepository::open(&store)?;
    let writer = store.writer()?;
    let refused = orders.submit_for(&writer, 9, inserting(&orders, 9, 1)).wait();
    assert!(matches!(refused, Err(Error::NoShard { .. })), "{refused:?}");
    let other = Store::in_memory();
    let refused = orders.submit_for(&other.writer()?, 1, inserting(&orders, 1, 1)).wait();
    assert!(matches!(refused, Err(Error::WrongStore { .. })), "{refused:?}");
    orders.submit_for(&writer, 1, inserting(&orders, 1, 1)).wait()
}

#[test]
fn a_full_queue_refuses_only_closures_for_its_shard() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let writer = store.writer()?.queue(1);
        let blocked = block(&writer, &store, "s1")?;
        let waiting = orders.submit_for(&writer, 8, inserting(&orders, 8, 1));
        let refused = orders.try_submit_for(&writer, 9, inserting(&orders, 9, 2));
        assert!(refused.is_err(), "the queue has room");
        let other = orders.try_submit_for(&writer, 24, inserting(&orders, 24, 3));
        other.expect("room in another shard").wait()?;
        drop(blocked);
        waiting.wait()?;
        writer.close()?;
        let closed = orders.submit_for(&writer, 8, inserting(&orders, 8, 4)).wait();
        assert!(matches!(closed, Err(Error::WriterClosed)), "{closed:?}");
        assert_eq!(orders.all(&store.read()?).count()?, 2);
    }
    Ok(())
}
