//! Shards that are detached and attached again in one process.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, IndexTable, Result, ShardMap, ShardedStore, Store};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
#[index(code, unique, scope = "global")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    code: u64,
}

fn order(tenant: u32, number: u64) -> Order {
    let (town, code) = (format!("t{}", number % 3), u64::from(tenant) * 1000 + number);
    Order { tenant, number, town, code }
}

fn opened(path: &Path) -> Result<(ShardedStore, OrderRepository)> {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    let store =
        ShardedStore::options().shard("a", "a").shard("b", "b").map("orders", map).open(path)?;
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

/// Inserts two orders of each of 40 tenants.
fn fill(store: &ShardedStore, orders: &OrderRepository) -> Result<()> {
    store.transaction(|txn| {
        (0..40).try_for_each(|tenant| {
            orders.insert(txn, &order(tenant, 0))?;
            orders.insert(txn, &order(tenant, 1))
        })
    })
}

fn check(store: &ShardedStore, orders: &OrderRepository, expected: u64) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(orders.all(&txn).count()?, expected);
    assert_eq!(orders.by_town(&txn).rows().count() as u64, expected);
    assert_eq!(orders.by_code(&txn).rows().count() as u64, expected);
    drop(txn);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_detached_shard_is_attached_again_in_the_same_process() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    for round in 1..4 {
        let before = store.read()?;
        store.detach_shard("b")?;
        check(&store, &orders, 40 + round - 1)?;
        let refused = orders.get(&store.read()?, 25, 0);
        assert!(matches!(refused, Err(Error::NoShard { .. })), "{refused:?}");
        store.transaction(|txn| orders.insert(txn, &order(7, 100 + round)))?;
        store.attach_shard("b", "b")?;
        assert_eq!(orders.all(&before).count()?, 80 + 2 * (round - 1));
        drop(before);
        check(&store, &orders, 80 + 2 * round - 1)?;
        store.transaction(|txn| {
            orders.update(txn, 8, 0, |row| row.town.push('x'))?;
            orders.insert(txn, &order(27, 100 + round))
        })?;
        check(&store, &orders, 80 + 2 * round)?;
        // A killed process leaves these files.
        let killed = dir.path().join(format!("killed.{round}"));
        copy(&path, &killed).expect("copied");
        let killed = ShardedStore::open(&killed)?;
        check(&killed, &OrderRepository::open(&killed)?, 80 + 2 * round)?;
    }
    drop((store, orders));
    let (store, orders) = opened(&path)?;
    check(&store, &orders, 86)
}

/// The directory of a detached shard, which this process has to write.
const DETACHED: &str = "INDEX_TABLE_DETACHED";

#[test]
fn a_detached_shard_that_another_process_has_written_is_refused() -> Result<()> {
    if let Some(path) = std::env::var_os(DETACHED) {
        let plain = Store::options().durability(Durability::Journal).open(path)?;
        let orders = OrderRepository::open(&plain)?;
        return plain.transaction(|txn| orders.insert(txn, &order(27, 200)));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    store.detach_shard("b")?;
    let test = "reattached::a_detached_shard_that_another_process_has_written_is_refused";
    let other = Command::new(std::env::current_exe().expect("the test"))
        .args(["--exact", test])
        .env(DETACHED, path.join("b"))
        .output()
        .expect("a process");
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    let refused = store.attach_shard("b", "b").expect_err("it was written").to_string();
    assert!(refused.contains("another process has opened its directory"), "{refused}");
    check(&store, &orders, 40)?;
    // The next process sees the row.
    drop((store, orders));
    let store = ShardedStore::open(&path)?;
    let orders = OrderRepository::open(&store)?;
    store.attach_shard("b", "b")?;
    check(&store, &orders, 81)
}

#[test]
fn a_detached_shard_whose_directory_was_renamed_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    store.detach_shard("b")?;
    fs::rename(path.join("b"), path.join("archive")).expect("renamed");
    let refused = reason(store.attach_shard("b", "archive"));
    assert!(refused.contains("this process has it open in"), "{refused}");
    assert!(matches!(store.attach_shard("b", "b"), Err(Error::Io { .. })));
    fs::rename(path.join("archive"), path.join("b")).expect("renamed");
    store.attach_shard("b", "b")?;
    check(&store, &orders, 80)
}

#[test]
fn an_archive_has_the_commits_before_and_after_a_shard_was_away() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    {
        let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
        let options = ShardedStore::options().shard("a", "a").shard("b", "b").map("orders", map);
        let store = options.archive(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        fill(&store, &orders)?;
        store.detach_shard("b")?;
        store.transaction(|txn| orders.insert(txn, &order(7, 100)))?;
        store.attach_shard("b", "b")?;
        store.transaction(|txn| {
            orders.insert(txn, &order(8, 100))?;
            orders.insert(txn, &order(27, 100))
        })?;
        check(&store, &orders, 83)?;
        // The archive continues after a gap, with new bases of both shards.
        let begun = Instant::now();
        while store.archive_lag().is_none_or(|lag| !lag.has_base) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", store.archive_lag());
            thread::sleep(Duration::from_millis(10));
        }
    }
    let restored = dir.path().join("restored");
    ShardedStore::restore_archive(&archive).run(&restored)?;
    let store = ShardedStore::open(&restored)?;
    check(&store, &OrderRepository::open(&store)?, 83)
}
