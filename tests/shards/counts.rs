//! Counts across several shards. Long counts run in several threads. With `tables::options`, short counts do so, too.

use std::fs;

use index_table::{Durability, Error, ReadTxn, Result, Store};

use crate::{
    tables::{
        Kind, TENANTS,
        by_value::{Order, OrderRepository},
        options,
    },
    verify_global::raw,
};

const TOWNS: [&str; 4] = ["Bergen", "Oslo", "Oslo 2", "Paris"];
/// The number of rows of each tenant.
const ROWS: u16 = 40;

fn order(tenant: u8, number: u16) -> Order {
    let town = TOWNS[usize::from(number % 4)].to_owned();
    let tags = vec!["a".to_owned(), town.clone()];
    let note = format!("note {}", number % 3);
    Order { tenant, number, town, size: (number % 5) as i8, code: number, note, tags }
}

fn fill(store: &Store) -> Result<OrderRepository> {
    let orders = OrderRepository::open(store)?;
    store.transaction(|txn| {
        let mut rows = (0..TENANTS).flat_map(|tenant| (0..ROWS).map(move |at| order(tenant, at)));
        rows.try_for_each(|row| orders.insert(txn, &row))
    })?;
    Ok(orders)
}

/// Creates a store on disk with four shards of eight tenants each.
fn on_disk() -> Result<(tempfile::TempDir, Store, OrderRepository)> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options(Kind::Ranges, 4).durability(Durability::Relaxed).open(dir.path())?;
    let orders = fill(&store)?;
    Ok((dir, store, orders))
}

type Count = (&'static str, fn(&OrderRepository, &ReadTxn<'_>) -> Result<u64>);

/// Counts that each shard does by itself.
const COUNTS: [Count; 11] = [
    ("all", |orders, txn| orders.all(txn).count()),
    ("towns", |orders, txn| orders.by_town(txn).count()),
    ("town", |orders, txn| orders.find_by_town(txn, "Oslo").count()),
    ("towns in a range", |orders, txn| orders.find_by_town_range(txn, "Oslo".."Oslo 2").count()),
    ("prefix", |orders, txn| orders.find_by_town_starting_with(txn, "Oslo").count()),
    ("list", |orders, txn| orders.find_by_town_in(txn, ["Paris", "none", "Oslo"]).count()),
    ("sizes", |orders, txn| orders.by_size_town(txn).count()),
    ("size", |orders, txn| orders.find_by_size(txn, 3).count()),
    ("tag", |orders, txn| orders.find_by_tags(txn, "a").count()),
    ("no town", |orders, txn| orders.find_by_town(txn, "none").count()),
    ("reversed", |orders, txn| orders.by_town(txn).rev().count()),
];

/// Counts of merged entries, counts with limits, and counts of parts of a result.
const OTHER_COUNTS: [Count; 6] = [
    ("limited", |orders, txn| orders.by_town(txn).limit(700).count()),
    ("hashed", |orders, txn| orders.find_by_note(txn, "note 1").count()),
    ("filtered", |orders, txn| orders.by_town(txn).filter(|row| row.number > 20).count()),
    ("or", |orders, txn| {
        orders.find_by_town(txn, "Oslo").or(orders.find_by_tags(txn, "Paris")).count()
    }),
    ("distinct", |orders, txn| {
        orders.distinct_town(txn).counts().try_fold(0, |sum, count| Ok(sum * 7 + count?.1))
    }),
    ("after a cursor", |orders, txn| {
        let next = orders.by_town(txn).page(500)?.next.expect("a cursor");
        orders.by_town(txn).after(&next).count()
    }),
];

/// Returns the result and the cost of a count.
fn cost(count: &Count, orders: &OrderRepository, txn: &ReadTxn<'_>) -> Result<(u64, u64, u64)> {
    let before = txn.stats();
    let found = count.1(orders, txn)?;
    let after = txn.stats();
    Ok((found, after.seeks - before.seeks, after.entries - before.entries))
}

#[test]
fn counts_in_several_threads_have_the_results_of_one_store() -> Result<()> {
    let one = Store::in_memory();
    let expected = fill(&one)?;
    let one = one.read()?;
    let (_dir, disk, on_disk) = on_disk()?;
    let memory = options(Kind::List, 4).in_memory()?;
    for (store, orders) in [(&disk, &on_disk), (&memory, &fill(&memory)?)] {
        let txn = store.read()?;
        // A started scan continues after the counts.
        let mut begun = orders.by_town(&txn).rows();
        assert!(begun.next().transpose()?.is_some());
        for (what, count) in COUNTS.iter().chain(&OTHER_COUNTS) {
            assert_eq!(count(orders, &txn)?, count(&expected, &one)?, "{what}");
        }
        let rows = begun.try_fold(1, |rows, row| row.map(|_| rows + 1))?;
        assert_eq!(rows, u32::from(TENANTS) * u32::from(ROWS));
    }
    Ok(())
}

#[test]
fn a_count_in_several_threads_reports_the_sum_of_the_costs_of_all_shards() -> Result<()> {
    let (_dir, store, orders) = on_disk()?;
    let mut in_threads = Vec::new();
    for count in &COUNTS {
        let txn = store.read()?;
        in_threads.push((count.0, cost(count, &orders, &txn)?));
        assert_eq!(txn.stats().shards, 4, "{}", count.0);
    }
    // A write transaction counts in one shard after another.
    let txn = store.write()?;
    for (count, in_threads) in COUNTS.iter().zip(in_threads) {
        assert_eq!((count.0, cost(count, &orders, &txn)?), in_threads);
    }
    Ok(())
}

#[test]
fn a_count_fails_if_a_shard_is_lost() -> Result<()> {
    let (dir, store, orders) = on_disk()?;
    drop((store, orders));
    fs::remove_dir_all(dir.path().join("s2")).expect("removed");
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    for (what, count) in &COUNTS {
        let error = count(&orders, &txn);
        let Err(Error::ShardUnavailable { shard, .. }) = error else { panic!("{what}: {error:?}") };
        assert_eq!(shard, "s2", "{what}");
    }
    let rows = u64::from(TENANTS) * u64::from(ROWS) * 3 / 4;
    assert_eq!(orders.by_town(&txn).available().scan.count()?, rows);
    assert_eq!(orders.find_by_town(&txn, "Oslo").available().scan.count()?, rows / 4);
    assert_eq!(orders.find_by_tags(&txn, "a").available().scan.count()?, rows);
    assert_eq!(orders.by_size_town(&txn).available().scan.count()?, rows);
    Ok(())
}

#[test]
fn a_count_fails_with_the_error_of_the_first_damaged_shard() -> Result<()> {
    let (dir, store, orders) = on_disk()?;
    drop((store, orders));
    // The length of a block is not a multiple of the length of a primary key.
    for (shard, block) in [("s1", 3), ("s3", 0)] {
        raw(dir.path(), shard, "orders.town", |index, txn| {
            let keys = index.iter(txn)?.map(|block| Ok(block?.0.to_vec()));
            let keys = keys.collect::<heed::Result<Vec<_>>>()?;
            index.put(txn, keys.get(block).expect("a block"), &[1])
        })
        .expect("damaged");
    }
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    let error = orders.by_town(&txn).count().expect_err("damaged");
    assert!(matches!(&error, Error::Corrupt { .. }), "{error:?}");
    assert_eq!(orders.by_size_town(&txn).count()?, u64::from(TENANTS) * u64::from(ROWS));
    drop(txn);

    // A write transaction counts in one shard after another.
    let txn = store.write()?;
    let expected = orders.by_town(&txn).count().expect_err("damaged");
    assert_eq!(error.to_string(), expected.to_string());
    drop(txn);
    drop((store, orders));
    fs::remove_dir_all(dir.path().join("s2")).expect("removed");
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let error = orders.by_town(&store.read()?).count().expect_err("damaged");
    assert_eq!(error.to_string(), expected.to_string());
    Ok(())
}
