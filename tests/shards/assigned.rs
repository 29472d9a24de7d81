//! Keys that no shard has are assigned to a shard.

use std::path::Path;

use index_table::{Error, ListMap, Result, ShardMap, Store};

use crate::{
    opening::reason,
    random_local::random_together::copy,
    reattached::{OrderRepository, order},
};

fn opened(path: &Path, map: impl Into<ShardMap>) -> Result<(Store, OrderRepository)> {
    let store = Store::options().shard("a", "a").shard("b", "b").map("orders", map).open(path)?;
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

fn list() -> ListMap {
    ShardMap::list().to("a", [1u32, 2])
}

fn check(store: &Store, orders: &OrderRepository, tenants: &[u32]) -> Result<()> {
    let txn = store.read()?;
    let found: Vec<_> = orders.all(&txn).rows().collect::<Result<_>>()?;
    assert_eq!(found.iter().map(|row| row.tenant).collect::<Vec<_>>(), tenants);
    assert_eq!(orders.by_town(&txn).rows().count(), tenants.len());
    assert_eq!(orders.by_code(&txn).rows().count(), tenants.len());
    drop(txn);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_list_gets_further_keys() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path, list())?;
    store.transaction(|txn| orders.insert(txn, &order(1, 0)))?;
    let before = store.read()?;
    let refused = store.transaction(|txn| orders.insert(txn, &order(9, 0)));
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("`move_keys`"), "{refused}");

    let moved = store.move_keys("orders", [9u32, 1], "b").run()?;
    assert_eq!(moved.rows, 1);
    store.transaction(|txn| orders.insert(txn, &order(9, 0)))?;
    assert_eq!(orders.shard_of(&store, 9)?.name(), "b");
    assert!(matches!(orders.shard_of(&store, 10), Err(Error::NoShard { .. })));
    assert!(matches!(orders.get(&before, 9, 0), Err(Error::NoShard { .. })));
    assert_eq!(orders.all(&before).count()?, 1);
    drop(before);
    check(&store, &orders, &[1, 9])?;

    // A killed process leaves these files.
    let killed = dir.path().join("killed");
    copy(&path, &killed).expect("copied");
    drop((store, orders));
    for path in [path, killed] {
        let (store, orders) = opened(&path, list())?;
        check(&store, &orders, &[1, 9])?;
        store.transaction(|txn| orders.insert(txn, &order(9, 1)))?;
        check(&store, &orders, &[1, 9, 9])?;
    }
    Ok(())
}

#[test]
fn a_range_that_was_left_out_is_assigned_as_a_whole() -> Result<()> {
    let ranges = ShardMap::ranges().to("a", ..10u32).to("b", 20u32..30);
    let store =
        Store::options().shard("a", "a").shard("b", "b").map("orders", ranges).in_memory()?;
    let orders = OrderRepository::open(&store)?;
    // Only a part of this range belongs to no shard.
    store.move_range("orders", 5u32..15, "b").run()?;
    assert_eq!(orders.shard_of(&store, 5)?.name(), "b");
    assert!(matches!(orders.shard_of(&store, 10), Err(Error::NoShard { .. })));
    store.move_range("orders", 10u32..20, "a").run()?;
    store.move_range("orders", 30u32.., "b").run()?;
    let owners = [5, 10, 19, 20, 30, u32::MAX];
    let owners = owners.map(|tenant| orders.shard_of(&store, tenant).map(|id| id.to_string()));
    assert_eq!(owners.into_iter().collect::<Result<Vec<_>>>()?, ["b", "a", "a", "b", "b", "b"]);
    store.transaction(|txn| {
        [4, 15, 40].iter().try_for_each(|it| orders.insert(txn, &order(*it, 0)))
    })?;
    check(&store, &orders, &[4, 15, 40])
}

#[test]
fn a_detached_shard_is_not_attached_after_its_range_was_assigned() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let ranges = || ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    let (store, orders) = opened(&path, ranges())?;
    store.transaction(|txn| orders.insert(txn, &order(25, 0)))?;
    store.detach_shard("b")?;
    store.move_range("orders", 20u32.., "a").run()?;
    store.transaction(|txn| orders.insert(txn, &order(25, 7)))?;
    check(&store, &orders, &[25])?;
    let refused = reason(store.attach_shard("b", "b"));
    assert!(refused.contains("orders"), "{refused}");
    check(&store, &orders, &[25])?;
    drop((store, orders));
    let (store, orders) = opened(&path, ranges())?;
    check(&store, &orders, &[25])
}
