//! Shards that are added to a store, and shards whose directories change.

use std::{fs, path::Path};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::{copy, reason};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
#[index(email, unique, scope = "global")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    email: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
}

fn order(tenant: u32, number: u64) -> Order {
    let (town, email) = ("Oslo".to_owned(), format!("{tenant}-{number}"));
    Order { tenant, number, town, email }
}

fn new() -> Options {
    let orders = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..);
    Store::options().shard("north", "north").shard("south", "south").map("orders", orders)
}

fn east() -> Options {
    Store::options()
        .add_shard("east", "east")
        .map("events", ShardMap::hashed(["north", "south", "east"]))
}

/// Creates a store with rows in two shards, and closes it.
fn create(path: &Path) -> Result<()> {
    let store = new().open(path)?;
    let (orders, towns) = (OrderRepository::open(&store)?, TownRepository::open(&store)?);
    store.transaction(|txn| {
        orders.insert(txn, &order(7, 1))?;
        orders.insert(txn, &order(107, 1))?;
        towns.insert(txn, &Town { name: "Oslo".to_owned() })
    })
}

/// Checks a store that has the rows of `create`, and as many events.
fn check(store: &Store, events: u64) -> Result<()> {
    let (orders, towns) = (OrderRepository::open(store)?, TownRepository::open(store)?);
    let all = EventRepository::open(store)?;
    let txn = store.read()?;
    assert_eq!(
        orders.find_by_town(&txn, "Oslo").rows().collect::<Result<Vec<_>>>()?,
        [order(7, 1), order(107, 1)]
    );
    assert_eq!(orders.get_by_email(&txn, "107-1")?, Some(order(107, 1)));
    assert_eq!(all.all(&txn).count()?, events);
    for shard in store.shard_ids() {
        assert_eq!(towns.all(&store.read_on(&shard)?).count()?, 1, "the copy in {shard}");
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn insert_events(store: &Store) -> Result<()> {
    let events = EventRepository::open(store)?;
    store.transaction(|txn| (0..100).try_for_each(|id| events.insert(txn, &Event { id })))?;
    let east = store.shard("east")?;
    assert!(store.sizes_on(&east)?.iter().any(|size| size.table == "events" && size.rows > 0));
    Ok(())
}

#[test]
fn an_added_shard_is_recorded_and_stores_new_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    create(dir.path())?;
    {
        let store = east().open(dir.path())?;
        let names: Vec<_> = store.shard_ids().iter().map(|shard| shard.name().to_owned()).collect();
        assert_eq!(names, ["north", "south", "east"]);
        check(&store, 0)?;
        insert_events(&store)?;
        check(&store, 100)?;
    }
    check(&Store::open(dir.path())?, 100)?;
    // It is there already.
    check(&east().open(dir.path())?, 100)?;
    let elsewhere = Store::options().add_shard("east", "west").open(dir.path());
    assert!(reason(elsewhere).contains("the store has it in `east`"));
    Ok(())
}

#[test]
fn a_killed_process_leaves_a_store_with_the_added_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, killed) = (dir.path().join("shop"), dir.path().join("killed"));
    create(&path)?;
    let store = east().open(&path)?;
    check(&store, 0)?;
    insert_events(&store)?;
    copy(&path, &killed);
    // The manager records the location of the shard, so the original must be removed before its copy is opened.
    drop(store);
    fs::remove_dir_all(&path).expect("removed");
    fs::rename(&killed, &path).expect("renamed");
    check(&Store::open(&path)?, 100)
}

#[test]
fn a_store_keeps_its_shards_if_a_further_shard_can_not_be_added() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    create(&path)?;
    // A file is in the way.
    fs::write(path.join("east"), b"").expect("written");
    assert!(east().open(&path).is_err());
    let store = Store::open(&path)?;
    assert_eq!(store.shard_ids().len(), 2);
    drop(store);
    // A plain store has tables that are not in the records of the sharded store.
    fs::remove_file(path.join("east")).expect("removed");
    {
        let plain = Store::open(path.join("east"))?;
        let towns = TownRepository::open(&plain)?;
        plain.transaction(|txn| towns.insert(txn, &Town { name: "Bergen".to_owned() }))?;
    }
    assert!(reason(east().open(&path)).contains("a store with tables"));
    assert_eq!(Store::open(&path)?.shard_ids().len(), 2);
    fs::remove_dir_all(path.join("east")).expect("removed");
    let store = east().open(&path)?;
    check(&store, 0)
}

#[test]
fn a_new_store_needs_shards_that_are_not_added() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    assert!(matches!(east().open(&path), Err(Error::StoreNotFound { .. })));
    let both = new().add_shard("east", "east").open(&path)?;
    assert_eq!(both.shard_ids().len(), 3);
    Ok(())
}

#[test]
fn a_relocated_shard_keeps_its_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, disk) = (dir.path().join("shop"), dir.path().join("disk"));
    create(&path)?;
    fs::rename(path.join("south"), &disk).expect("renamed");
    {
        let store = Store::options().relocate("south", &disk).open(&path)?;
        assert!(store.unavailable_shards().is_empty());
        check_orders(&store)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.update(txn, 107, 1, |order| order.town = "Oslo".into()))?;
    }
    assert!(!path.join("south").exists());
    let store = Store::open(&path)?;
    assert!(store.unavailable_shards().is_empty());
    check_orders(&store)
}

fn check_orders(store: &Store) -> Result<()> {
    let orders = OrderRepository::open(store)?;
    assert_eq!(orders.all(&store.read()?).count()?, 2);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_directory_without_the_shard_is_refused_and_not_kept() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    create(&path)?;
    let relocated = |name: &str, place: &str| Store::options().relocate(name, place);
    assert!(matches!(relocated("south", "nowhere").open(&path), Err(Error::StoreNotFound { .. })));
    // It has another shard.
    copy(&path.join("north"), &path.join("copy"));
    assert!(relocated("south", "copy").open(&path).is_err());
    assert!(reason(relocated("west", "copy").open(&path)).contains("no such shard"));
    let without = relocated("south", "copy").only(["north"]).open(&path);
    assert!(reason(without).contains("left out"));
    let store = Store::open(&path)?;
    assert!(store.unavailable_shards().is_empty());
    check_orders(&store)
}

#[test]
fn an_incomplete_copy_in_an_added_shard_is_never_read() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    create(dir.path())?;
    drop(east().open(dir.path())?);
    let store = Store::options().read_only(true).open(dir.path())?;
    // Its copy of the reference table is not made yet: an error, or all rows.
    if let Ok(towns) = TownRepository::open(&store) {
        assert_eq!(towns.all(&store.read()?).count()?, 1);
        for shard in store.shard_ids() {
            if let Ok(count) = towns.all(&store.read_on(&shard)?).count() {
                assert_eq!(count, 1, "the copy in {shard}");
            }
        }
    }
    Ok(())
}
