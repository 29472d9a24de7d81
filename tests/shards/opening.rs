//! Creating, opening and closing; foreign, lost, added and left-out shards.

use std::{fs, path::Path};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::tables::{
    Kind, by_hash,
    by_value::{Order, OrderRepository},
    options, order,
};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
#[index(amount)]
pub(crate) struct Invoice {
    #[primary_key]
    pub(crate) number: u32,
    pub(crate) amount: u32,
}

fn two() -> Options {
    options(Kind::Ranges, 2)
}

/// Inserts a row in each of two shards.
fn fill(store: &Store) -> Result<()> {
    let orders = OrderRepository::open(store)?;
    store.transaction(|txn| orders.insert(txn, &order(0, 1)))?;
    store.transaction(|txn| orders.insert(txn, &order(16, 1)))
}

fn count(store: &Store) -> Result<u64> {
    OrderRepository::open(store)?.all(&store.read()?).count()
}

/// Copies the current files of a store, except LMDB's lock files. A killed process leaves the same files.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("entries") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
    }
}

pub(crate) fn reason<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Err(Error::ShardRefused { what, reason }) => format!("{what}: {reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_records_its_shards_and_maps() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = Store::options().create(false).open(dir.path());
    assert!(matches!(missing, Err(Error::StoreNotFound { .. })), "{missing:?}");
    fill(&two().open(dir.path())?)?;
    assert!(dir.path().join("s0/data.mdb").exists() && dir.path().join("s1/data.mdb").exists());

    let store = Store::open(dir.path())?;
    assert_eq!(count(&store)?, 2);
    assert!(store.unavailable_shards().is_empty());
    // Another handle to the same store.
    let again = Store::open(dir.path())?;
    assert_eq!(again.shard("s0")?, store.shard("s0")?);
    assert!(matches!(two().open(dir.path()), Err(Error::AlreadyOpen { .. })));
    drop((store, again));
    // The same declarations are accepted, others are not.
    assert_eq!(count(&two().open(dir.path())?)?, 2);
    assert!(reason(options(Kind::Ranges, 4).open(dir.path())).contains("created without it"));
    let other = two().map("tenants", ShardMap::ranges().to("s0", ..5_u32).to("s1", 5_u32..));
    assert!(
        reason(other.open(dir.path())).contains("keys of type `u8`, and it is declared with `u32`")
    );
    assert_eq!(count(&Store::open(dir.path())?)?, 2);
    Ok(())
}

#[test]
fn a_map_of_another_type_of_key_is_refused() -> Result<()> {
    let store = two().in_memory()?;
    let Err(Error::SchemaMismatch { difference, .. }) = by_hash::OrderRepository::open(&store)
    else {
        panic!("a map of ranges has no hashes")
    };
    assert_eq!(
        difference,
        "its shard key is `hash`, and shard map `tenants` has keys of type `u8`"
    );
    let wide = ShardMap::ranges().to("s0", ..5_u32).to("s1", 5_u32..);
    let store =
        Store::options().shard("s0", "").shard("s1", "").map("tenants", wide).in_memory()?;
    let Err(Error::SchemaMismatch { difference, .. }) = OrderRepository::open(&store) else {
        panic!("a map of another type")
    };
    assert_eq!(difference, "its shard key is `u8`, and shard map `tenants` has keys of type `u32`");
    let other = ShardMap::hashed(["s0"]);
    let store = Store::options().shard("s0", "").map("other", other).in_memory()?;
    let Err(Error::SchemaMismatch { difference, .. }) = OrderRepository::open(&store) else {
        panic!("no map")
    };
    assert_eq!(difference, "the store has no shard map `tenants`");
    Ok(())
}

#[test]
fn a_copied_manager_does_not_get_the_shards_of_the_original() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, disk) = (dir.path().join("shop"), dir.path().join("disk"));
    let elsewhere = || {
        Store::options()
            .shard("s0", "s0")
            .shard("s1", &disk)
            .map("tenants", crate::tables::map(Kind::Ranges, 2))
    };
    fill(&elsewhere().open(&shop)?)?;
    let copied = dir.path().join("copied");
    copy(&shop, &copied);
    assert!(reason(Store::open(&copied)).contains("this shard map manager is a copy"));
    // A moved manager keeps its shards.
    let moved = dir.path().join("moved");
    fs::rename(&shop, &moved).expect("another name");
    assert_eq!(count(&Store::open(&moved)?)?, 2);
    // A store can be copied together with all of its shards.
    let whole = dir.path().join("whole");
    fill(&two().open(&whole)?)?;
    copy(&whole, &dir.path().join("second"));
    assert_eq!(count(&Store::open(dir.path().join("second"))?)?, 2);
    // A shard of another store is refused.
    fs::remove_dir_all(whole.join("s1")).expect("removed");
    copy(&disk, &whole.join("s1"));
    assert!(reason(Store::open(&whole)).contains("it is a shard of another store"));
    Ok(())
}

#[test]
fn a_store_opens_without_a_lost_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&two().open(dir.path())?)?;
    fs::remove_dir_all(dir.path().join("s1")).expect("removed");
    let store = Store::open(dir.path())?;
    let [(shard, _)] = &store.unavailable_shards()[..] else { panic!("one shard is lost") };
    assert_eq!(shard.name(), "s1");
    assert!(!dir.path().join("s1").exists(), "a lost shard is not made again");
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(orders.find_by_tenant(&txn, 0).count()?, 1);
    assert!(matches!(orders.find_by_tenant(&txn, 16).count(), Err(Error::ShardUnavailable { .. })));
    assert!(matches!(orders.all(&txn).count(), Err(Error::ShardUnavailable { .. })));
    assert!(matches!(orders.get(&txn, 16, 1), Err(Error::ShardUnavailable { .. })));
    drop(txn);
    store.transaction(|txn| orders.insert(txn, &order(1, 1)))?;
    let lost = store.transaction(|txn| orders.insert(txn, &order(17, 1)));
    assert!(matches!(lost, Err(Error::ShardUnavailable { .. })));
    assert!(matches!(store.transaction_on(shard, |_| Ok(())), Err(Error::ShardUnavailable { .. })));
    Ok(())
}

#[test]
fn a_store_can_be_opened_with_some_of_its_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&two().open(dir.path())?)?;
    let store = Store::options().only(["s1"]).open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(orders.find_by_tenant(&txn, 16).count()?, 1);
    let Err(Error::ShardUnavailable { shard, reason }) = orders.all(&txn).count() else {
        panic!("a shard was left out")
    };
    assert_eq!(shard, "s0");
    assert!(reason.contains("left out"), "{reason}");
    drop(txn);
    drop((store, orders));
    assert!(reason_of_only(dir.path()).contains("no such shard"));
    Ok(())
}

fn reason_of_only(path: &Path) -> String {
    reason(Store::options().only(["s7"]).open(path))
}

#[test]
fn a_table_without_a_shard_key_is_in_one_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let placed = two().place("invoices", "s1");
    for options in [placed, Store::options()] {
        let store = options.open(dir.path())?;
        let invoices = InvoiceRepository::open(&store)?;
        let number = store
            .transaction(|txn| invoices.insert_with(txn, |number| Invoice { number, amount: 7 }))?;
        let txn = store.read()?;
        assert_eq!(invoices.find_by_amount(&txn, 7).count()?, u64::from(number));
        assert_eq!(txn.stats().shards, 1);
    }
    let shard = Store::options().read_only(true).open(dir.path().join("s1"))?;
    assert_eq!(InvoiceRepository::open(&shard)?.all(&shard.read()?).count()?, 2);
    drop(shard);
    assert!(
        reason(Store::options().place("invoices", "s0").open(dir.path())).contains("elsewhere")
    );
    Ok(())
}

/// Creates a store without shards, with rows of one tenant and of a table without a shard key.
fn fill_plain(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let (orders, invoices) = (OrderRepository::open(&store)?, InvoiceRepository::open(&store)?);
    store.transaction(|txn| {
        (0..20).try_for_each(|number| orders.insert(txn, &order(3, number)))?;
        invoices.insert(txn, &Invoice { number: 1, amount: 1 })
    })
}

#[test]
fn a_store_with_tables_is_refused_as_a_new_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let old = dir.path().join("old");
    fill_plain(&old)?;
    let options = Store::options()
        .shard("north", &old)
        .map("tenants", ShardMap::ranges().to("north", ..9_u8));
    let refused = reason(options.open(dir.path().join("shop")));
    assert!(refused.contains("`add_shard`"), "{refused}");
    let store = Store::open(&old)?;
    assert_eq!(InvoiceRepository::open(&store)?.all(&store.read()?).count()?, 1);
    Ok(())
}

/// Returns options that add a shard, with a map that gives the tenants from this one on to it.
fn growing(south: u8) -> Options {
    let map = ShardMap::ranges().to("main", ..south).to("south", south..);
    Store::options().add_shard("south", "south").map("tenants", map)
}

#[test]
fn a_grown_store_has_no_map_that_gives_its_rows_to_another_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill_plain(dir.path())?;
    let store = growing(2).open(dir.path())?;
    let Err(Error::SchemaMismatch { difference, .. }) = OrderRepository::open(&store) else {
        panic!("rows that would not be found")
    };
    assert!(difference.contains("(3, 0)") && difference.contains("`south`"), "{difference}");
    Ok(())
}

#[test]
fn a_grown_store_with_a_map_keeps_its_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill_plain(dir.path())?;
    for options in [growing(10), Store::options()] {
        let store = options.open(dir.path())?;
        let (orders, invoices) = (OrderRepository::open(&store)?, InvoiceRepository::open(&store)?);
        store.transaction(|txn| orders.put(txn, &order(12, 1)))?;
        assert_eq!(orders.shard_of(&store, 12)?.name(), "south");
        let txn = store.read()?;
        assert_eq!(orders.all(&txn).count()?, 21);
        assert_eq!(invoices.all(&txn).count()?, 1);
    }
    Ok(())
}

#[test]
fn shards_have_options_of_their_own() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let small = Store::options().map_size(1 << 20).max_map_size(1 << 20);
    let make = |small: Options| {
        Store::options()
            .shard("s0", "s0")
            .shard_with("s1", "s1", small)
            .map("tenants", crate::tables::map(Kind::Ranges, 2))
    };
    drop(make(small).open(dir.path())?);
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let large = |tenant| Order { note: "x".repeat(1 << 21), ..order(tenant, 1) };
    assert!(matches!(
        store.transaction(|txn| orders.insert(txn, &large(16))),
        Err(Error::MapFull { .. })
    ));
    store.transaction(|txn| orders.insert(txn, &large(0)))?;
    assert_eq!(count(&store)?, 1);
    Ok(())
}

#[test]
fn the_map_of_a_shard_grows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let small = Store::options().map_size(1 << 18);
    let store = small
        .shard("s0", "s0")
        .shard("s1", "s1")
        .map("tenants", crate::tables::map(Kind::Ranges, 2))
        .open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    for tenant in [0, 16] {
        for number in 0..20 {
            let row = Order { note: "x".repeat(1 << 15), ..order(tenant, number) };
            store.transaction(|txn| orders.insert(txn, &row))?;
        }
    }
    assert_eq!(count(&store)?, 40);
    store.check()
}

#[test]
fn a_read_only_store_refuses_writes() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&two().open(dir.path())?)?;
    let store = Store::options().read_only(true).open(dir.path())?;
    assert_eq!(count(&store)?, 2);
    assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
    assert!(matches!(store.write_on(&store.shard("s0")?), Err(Error::ReadOnly { .. })));
    Ok(())
}

#[test]
fn unsupported_operations_are_errors() -> Result<()> {
    let store = two().in_memory()?;
    OrderRepository::open(&store)?;
    assert!(matches!(store.backup_to("nowhere"), Err(Error::NotOffered { .. })));
    Ok(())
}

/// `Invoice` with a shard key.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = number, shard_map = "numbers")]
#[index(amount)]
pub(crate) struct SpreadInvoice {
    #[primary_key]
    number: u32,
    amount: u32,
}

#[test]
fn a_changed_shard_key_or_place_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = two().open(dir.path())?;
        let invoices = InvoiceRepository::open(&store)?;
        store.transaction(|txn| invoices.insert(txn, &Invoice { number: 7, amount: 1 }))?;
    }
    let numbers = ShardMap::ranges().to("s0", ..5_u32).to("s1", 5_u32..);
    let store = two().map("numbers", numbers).open(dir.path())?;
    let Err(Error::SchemaMismatch { difference, .. }) = SpreadInvoiceRepository::open(&store)
    else {
        panic!("rows that would not be found")
    };
    assert_eq!(
        difference,
        "its rows are in shard `s0`, and it is declared to have them by 1 fields and shard map `numbers`"
    );
    drop(store);
    let placed = two().place("invoices", "s1").open(dir.path());
    assert!(reason(placed).contains("its rows are elsewhere"));
    let store = Store::open(dir.path())?;
    assert_eq!(InvoiceRepository::open(&store)?.all(&store.read()?).count()?, 1);
    Ok(())
}

#[test]
fn one_process_writes_a_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(two().open(dir.path())?);
    // Takes the lock as another process would.
    let lock = fs::File::open(dir.path().join("writer.lock")).expect("a lock file");
    lock.try_lock().expect("a lock");
    assert!(matches!(Store::open(dir.path()), Err(Error::AlreadyOpen { .. })));
    drop(Store::options().read_only(true).open(dir.path())?);
    drop(lock);
    Store::open(dir.path()).map(drop)
}
