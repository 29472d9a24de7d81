//! Followers of a store whose rows move, and whose shards change.

use std::thread;

use index_table::Result;

use crate::{Kind, OrderRepository, Rows, TestResult, dirs, rows_of, wait_for, write};

#[test]
fn moves_and_changed_shards_reach_a_follower() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    dirs.write(&mut rows, 0..40)?;
    let (store, orders) = dirs.open()?;
    let (follower, copies) = dirs.follow()?;
    store.move_range("orders", 5u32..15, "c").run()?;
    write(&store, &orders, &mut rows, 40..60)?;
    wait_for(&follower, &store)?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(copies.shard_of(follower.store(), 7)?.name(), "c");
    store.move_range("orders", 15u32..20, "a").run()?;
    store.remove_shard("b")?;
    write(&store, &orders, &mut rows, 60..80)?;
    wait_for(&follower, &store)?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(follower.store().shard_ids().len(), 2);

    // The follower takes an added shard.
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 80..90)?;
    wait_for(&follower, &store)?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(copies.shard_of(follower.store(), 3)?.name(), "d");
    let promoted = follower.promote()?;
    write(&promoted, &copies, &mut rows, 90..95)?;
    promoted.move_range("orders", 20u32.., "d").run()?;
    assert!(rows_of(&promoted, &copies)? == rows);
    Ok(())
}

#[test]
fn a_repository_that_is_opened_during_a_move_has_all_rows() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    dirs.write(&mut rows, 0..40)?;
    let (store, _orders) = dirs.open()?;
    let (follower, _copies) = dirs.follow()?;
    thread::scope(|scope| -> TestResult {
        let mover = scope.spawn(|| {
            (0..60).try_for_each(|round| {
                let to = ["b", "c", "a"][round % 3];
                store.move_range("orders", ..30u32, to).run().map(drop)
            })
        });
        let mut opened = 0_u64;
        while !mover.is_finished() || follower.lag()?.commits > 0 {
            let copies = OrderRepository::open(follower.store())?;
            for _ in 0..2 {
                let txn = follower.store().read()?;
                let found = copies.all(&txn).keys().collect::<Result<Vec<_>>>()?;
                assert!(found.iter().eq(rows.keys()), "{} of {} rows", found.len(), rows.len());
            }
            opened += 1;
        }
        mover.join().expect("no panic")?;
        assert!(opened > 20);
        Ok(())
    })
}
