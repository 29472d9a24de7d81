//! Shards that are added while the store is open.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use index_table::{Durability, Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
#[index(country)]
struct Town {
    #[primary_key]
    name: String,
    country: String,
}

fn order(tenant: u32, number: u64) -> Order {
    let (town, email) = (format!("t{}", number % 3), format!("{tenant}-{number}"));
    Order { tenant, number, town, email }
}

fn town(number: u32) -> Town {
    Town { name: format!("t{number}"), country: format!("c{}", number % 2) }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    Store::options().shard("a", "a").shard("b", "b").map("orders", map)
}

struct Tables {
    orders: OrderRepository,
    towns: TownRepository,
}

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        Ok(Self { orders: OrderRepository::open(store)?, towns: TownRepository::open(store)? })
    }

    fn fill(&self, store: &Store) -> Result<()> {
        store.transaction(|txn| {
            for tenant in 0..40 {
                (0..5).try_for_each(|number| self.orders.insert(txn, &order(tenant, number)))?;
            }
            (0..3).try_for_each(|number| self.towns.insert(txn, &town(number)))
        })
    }

    /// Checks that all rows are there once, by each index, and that `verify` finds nothing.
    fn check(&self, store: &Store, orders: u64) -> Result<()> {
        let txn = store.read()?;
        assert_eq!(self.orders.all(&txn).count()?, orders);
        assert_eq!(self.orders.by_town(&txn).rows().count() as u64, orders);
        assert_eq!(self.orders.by_email(&txn).rows().count() as u64, orders);
        drop(txn);
        assert!(store.verify()?.is_clean());
        Ok(())
    }
}

#[test]
fn a_shard_that_is_added_gets_keys_and_keeps_them() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    {
        let store = options().open(&path)?;
        let tables = Tables::open(&store)?;
        tables.fill(&store)?;
        let east = store.add_shard("east", "east")?;
        assert_eq!(east.name(), "east");
        let names: Vec<_> = store.shard_ids().iter().map(|it| it.name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "east"]);
        let moved = store.move_range("orders", 10u32..30, "east").run()?;
        assert_eq!(moved.rows, 100);
        tables.check(&store, 200)?;
        assert_eq!(tables.orders.shard_of(&store, 15)?, east);
        // A commit in the old shards and in the new shard.
        store.transaction(|txn| {
            tables.orders.insert(txn, &order(0, 100))?;
            tables.orders.insert(txn, &order(15, 100))
        })?;
        let delete = store.transaction_on(&east, |txn| tables.orders.delete(txn, 15, 0).map(drop));
        assert!(matches!(delete, Err(Error::OtherShard { .. })), "its global entry: {delete:?}");
        tables.check(&store, 202)?;
    }
    let store = Store::open(&path)?;
    let tables = Tables::open(&store)?;
    tables.check(&store, 202)?;
    assert_eq!(tables.orders.shard_of(&store, 15)?.name(), "east");
    let plain = store.shards()?;
    assert_eq!(plain.last().map(|shard| shard.rows), Some(101 + 3));
    Ok(())
}

#[test]
fn a_shard_that_is_added_has_the_copies_of_reference_tables() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let before = store.read()?;
    let east = store.add_shard("east", "east")?;
    let north = |txn: &_| tables.towns.find_by_country(txn, "c0").rows().count();
    assert_eq!(north(&store.read_on(&east)?), 2);
    assert_eq!(north(&before), 2);
    store.transaction(|txn| tables.towns.insert(txn, &town(4)))?;
    assert_eq!(north(&store.read_on(&east)?), 3);
    assert_eq!(north(&before), 2);
    drop(before);
    tables.check(&store, 200)?;
    let (closed, orders) = (tables.towns, tables.orders);
    drop(closed);
    // A reference table whose repository is not open gets its copy when it is opened.
    let west = store.add_shard("west", "west")?;
    let tables = Tables { orders, towns: TownRepository::open(&store)? };
    assert_eq!(tables.towns.all(&store.read_on(&west)?).count()?, 4);
    tables.check(&store, 200)
}

#[test]
fn a_shard_is_added_without_reading_the_journal_that_writers_change() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    // A checkpoint that can't be read is damage to everything that reads the journal.
    let damaged = [0xFF; 4096];
    let files: Vec<_> = (0..3)
        .map(|at| {
            let name = path.join(format!("shards.journal.{at}"));
            let file = File::options().read(true).write(true).open(name).expect("a file");
            let mut checkpoint = [0; 4096];
            file.read_exact_at(&mut checkpoint, 0).expect("a checkpoint");
            file.write_all_at(&damaged, 0).expect("damaged");
            (file, checkpoint)
        })
        .collect();
    let added = store.add_shard("east", "east");
    for (file, checkpoint) in files {
        let mut now = [0; 4096];
        file.read_exact_at(&mut now, 0).expect("a checkpoint");
        // A later checkpoint has replaced the damaged bytes.
        if now == damaged {
            file.write_all_at(&checkpoint, 0).expect("repaired");
        }
    }
    added?;
    tables.check(&store, 200)
}

#[test]
fn shards_are_added_beside_readers_and_writers() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let done = AtomicBool::new(false);
    let written = thread::scope(|scope| -> Result<u64> {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut written = 0;
            while !done.load(Relaxed) {
                store.transaction(|txn| {
                    tables.orders.insert(txn, &order(5, 1000 + written))?;
                    tables.orders.insert(txn, &order(35, 1000 + written))
                })?;
                let number = u32::try_from(written % 50).unwrap_or_default();
                store.transaction(|txn| tables.towns.put(txn, &town(number)).map(drop))?;
                written += 1;
            }
            Ok(written)
        });
        let reader = scope.spawn(|| -> Result<()> {
            while !done.load(Relaxed) {
                let txn = store.read()?;
                let rows = tables.orders.by_town(&txn).rows().count() as u64;
                assert_eq!(rows, tables.orders.all(&txn).count()?);
                assert_eq!(rows % 2, 0, "a pair is there as a whole or not at all");
            }
            Ok(())
        });
        let added = (0..4_u32).try_for_each(|number| {
            let (name, start) = (format!("added-{number}"), number * 10);
            store.add_shard(&name, &name)?;
            store.move_range("orders", start..start + 10, &name).run().map(drop)
        });
        done.store(true, Relaxed);
        reader.join().expect("the reader has not panicked")?;
        let written = writer.join().expect("the writer has not panicked");
        added.and(written)
    })?;
    tables.check(&store, 200 + 2 * written)?;
    drop((tables, store));
    let store = Store::open(&path)?;
    Tables::open(&store)?.check(&store, 200 + 2 * written)
}

#[test]
fn a_shard_that_is_refused_leaves_the_store_without_it() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    assert_eq!(reason(store.add_shard("a", "other")), "shard `a`: the store has it already");
    fs::create_dir(path.join("full")).expect("a directory");
    TownRepository::open(&Store::open(path.join("full"))?).map(drop)?;
    let refused = reason(store.add_shard("full", "full"));
    assert!(
        refused.contains("it has a store with tables; declare an empty directory"),
        "{refused}"
    );
    fs::write(path.join("file"), "no directory").expect("a file");
    store.add_shard("file", "file").expect_err("no directory");
    store
        .transaction(|_| store.add_shard("nested", "nested").map(drop))
        .expect_err("a transaction");
    assert_eq!(store.shard_ids().len(), 2);
    tables.check(&store, 200)?;
    store.add_shard("full", "empty")?;
    drop((tables, store));
    let store = Store::open(&path)?;
    assert_eq!(store.shard_ids().len(), 3);
    assert!(store.unavailable_shards().is_empty());
    Tables::open(&store)?.check(&store, 200)
}

#[test]
fn a_reader_of_another_handle_sees_the_new_shard_after_reopening() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().durability(Durability::Relaxed).open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    store.add_shard("east", "east")?;
    drop((tables, store));
    let reader = Store::options().read_only(true).open(&path)?;
    assert_eq!(reader.shard_ids().len(), 3);
    let refused = reader.add_shard("west", "west").expect_err("read-only");
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    Tables::open(&reader)?.check(&reader, 200)
}

#[test]
fn a_shard_in_memory_is_added_too() -> Result<()> {
    let store = options().in_memory()?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    store.add_shard("east", "")?;
    store.move_range("orders", 10u32..30, "east").run()?;
    assert_eq!(tables.orders.shard_of(&store, 15)?.name(), "east");
    tables.check(&store, 200)
}

#[test]
fn a_journal_has_room_for_64_more_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let small = Options::default().map_size(1 << 22);
    let store = small.shard("first", "first").open(&path)?;
    for number in 0..64 {
        store.add_shard(format!("s{number}"), format!("s{number}"))?;
    }
    let refused = store.add_shard("last", "last").expect_err("no room");
    assert!(refused.to_string().contains("open it again, and then add the shard"), "{refused}");
    assert_eq!(store.shard_ids().len(), 65);
    drop(store);
    let store = Store::open(&path)?;
    store.add_shard("last", "last")?;
    assert_eq!(store.shard_ids().len(), 66);
    Ok(())
}
