//! Shards that are removed while the store is open.

use std::{fs, path::Path, thread};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
#[index(email, unique, scope = "global")]
#[aggregate(town)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    email: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
struct Note {
    #[primary_key]
    id: u64,
}

fn order(tenant: u32, number: u64) -> Order {
    let (town, email) = (format!("t{}", number % 3), format!("{tenant}-{number}"));
    Order { tenant, number, town, email }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("orders", map)
        .map("events", ShardMap::hashed(["a", "b", "c"]))
}

struct Tables {
    orders: OrderRepository,
    events: EventRepository,
    towns: TownRepository,
}

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        let (orders, events) = (OrderRepository::open(store)?, EventRepository::open(store)?);
        Ok(Self { orders, events, towns: TownRepository::open(store)? })
    }

    /// Opens all tables, and writes 200 orders.
    fn filled(store: &Store) -> Result<Self> {
        let tables = Self::open(store)?;
        store.transaction(|txn| {
            for tenant in 0..40 {
                (0..5).try_for_each(|number| tables.orders.insert(txn, &order(tenant, number)))?;
            }
            tables.towns.insert(txn, &Town { name: "t0".to_owned() })
        })?;
        Ok(tables)
    }

    fn check(&self, store: &Store, orders: u64) -> Result<()> {
        let txn = store.read()?;
        assert_eq!(self.orders.all(&txn).count()?, orders);
        assert_eq!(self.orders.by_town(&txn).rows().count() as u64, orders);
        assert_eq!(self.orders.by_email(&txn).rows().count() as u64, orders);
        assert!(self.orders.get_by_email(&txn, "7-1")?.is_some());
        drop(txn);
        assert!(store.verify()?.is_clean());
        Ok(())
    }
}

fn names(store: &Store) -> Vec<String> {
    store.shard_ids().iter().map(|shard| shard.name().to_owned()).collect()
}

fn with_store(test: impl FnOnce(&Path, Store) -> Result<()>) -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("shop");
    let store = options().open(&path)?;
    test(&path, store)
}

#[test]
fn a_shard_is_removed_when_its_rows_are_elsewhere() -> Result<()> {
    with_store(|path, store| {
        let tables = Tables::filled(&store)?;
        let before = store.read()?;
        let refused = reason(store.remove_shard("a"));
        assert_eq!(refused, "the removal of shard `a`: it has rows of table `orders`; move them");
        tables.check(&store, 200)?;
        store.move_range("orders", ..20u32, "c").run()?;
        store.remove_shard("a")?;
        assert_eq!(names(&store), ["b", "c"]);
        assert!(store.unavailable_shards().is_empty());
        tables.check(&store, 200)?;
        assert_eq!(tables.orders.all(&before).count()?, 200);
        drop(before);
        // The slots of the removed shard are in the others, and reference tables can be written.
        store.transaction(|txn| {
            (0..100).try_for_each(|id| tables.events.insert(txn, &Event { id }))?;
            tables.towns.insert(txn, &Town { name: "t1".to_owned() })?;
            tables.orders.insert(txn, &order(0, 100))
        })?;
        tables.check(&store, 201)?;
        drop((tables, store));
        fs::remove_dir_all(path.join("a")).expect("it is no longer needed");
        let store = Store::open(path)?;
        assert_eq!(names(&store), ["b", "c"]);
        assert!(store.unavailable_shards().is_empty());
        let tables = Tables::open(&store)?;
        tables.check(&store, 201)?;
        assert_eq!(tables.events.all(&store.read()?).count()?, 100);
        // The name is free again, and the number is not used again.
        store.add_shard("a", "again")?;
        store.move_range("orders", ..10u32, "a").run()?;
        tables.check(&store, 201)?;
        drop((tables, store));
        let store = Store::open(path)?;
        assert_eq!(names(&store), ["b", "c", "a"]);
        Tables::open(&store)?.check(&store, 201)
    })
}

#[test]
fn the_directory_of_a_removed_shard_is_a_store_without_rows() -> Result<()> {
    with_store(|path, store| {
        let tables = Tables::filled(&store)?;
        store.remove_shard("c")?;
        tables.check(&store, 200)?;
        drop((tables, store));
        let plain = Store::open(path.join("c"))?;
        assert_eq!(OrderRepository::open(&plain)?.all(&plain.read()?).count()?, 0);
        Ok(())
    })
}

#[test]
fn a_manager_is_rebuilt_without_the_removed_shard() -> Result<()> {
    with_store(|path, store| {
        let tables = Tables::filled(&store)?;
        store.move_range("orders", ..20u32, "c").run()?;
        store.remove_shard("a")?;
        drop((tables, store));
        fs::remove_file(path.join("data.mdb")).expect("the manager");
        let store = Store::options().shard("b", "b").shard("c", "c").rebuild(path)?;
        assert_eq!(names(&store), ["b", "c"]);
        Tables::open(&store)?.check(&store, 200)
    })
}

#[test]
fn removals_of_shards_in_use_are_refused() -> Result<()> {
    with_store(|_, store| {
        let tables = Tables::filled(&store)?;
        let text = |name: &str| reason(store.remove_shard(name));
        assert_eq!(text("x"), "the removal of shard `x`: the store has no such shard");
        let notes = NoteRepository::open(&store)?;
        assert_eq!(text("a"), "the removal of shard `a`: table `notes` is placed in it");
        drop(notes);
        let nested = store.transaction(|_| store.remove_shard("c"));
        assert!(matches!(nested, Err(Error::WriteInProgress)), "{nested:?}");
        let Tables { orders, events, towns } = tables;
        drop(events);
        let refused = text("c");
        assert!(refused.ends_with("open the repository of table `events` first"), "{refused}");
        let tables = Tables { orders, events: EventRepository::open(&store)?, towns };
        store.remove_shard("c")?;
        tables.check(&store, 200)
    })
}

/// An operation on the rows of tenant 7, which are in shard `a` at first.
type Operation = fn(&OrderRepository, &mut WriteTxn<'_>) -> Result<u64>;

#[test]
fn a_transaction_that_began_before_a_removal_runs_again_elsewhere() -> Result<()> {
    let operations: [(&str, Operation); 6] = [
        ("a look-up", |orders, txn| Ok(u64::from(orders.get(txn, 7, 1)?.is_some()))),
        ("a count", |orders, txn| Ok(orders.all(txn).count()? - 199)),
        ("a scan", |orders, txn| orders.all(txn).rows().try_fold(0, |_, row| row.map(|_| 1))),
        ("an update", |orders, txn| {
            Ok(u64::from(orders.update(txn, 7, 1, |row| row.town = "moved".to_owned())?))
        }),
        ("an insertion", |orders, txn| orders.insert(txn, &order(7, 99)).map(|()| 1)),
        ("a nested transaction", |orders, txn| {
            txn.nested(|txn| Ok(u64::from(orders.delete(txn, 7, 1)?)))
        }),
    ];
    for (what, operation) in operations {
        with_store(|_, store| {
            let tables = Tables::filled(&store)?;
            let mut runs = 0;
            let found = store.transaction(|txn| {
                runs += 1;
                if runs == 1 {
                    let remove = || {
                        store.move_range("orders", ..20u32, "c").run()?;
                        store.remove_shard("a")
                    };
                    thread::scope(|scope| scope.spawn(remove).join().expect("no panic"))?;
                }
                operation(&tables.orders, txn)
            });
            assert_eq!(found.unwrap_or_else(|error| panic!("{what}: {error}")), 1, "{what}");
            assert!(runs > 1, "{what} used the shard maps of before");
            assert!(store.verify()?.is_clean(), "{what}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn the_last_shard_is_not_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::options().shard("a", "a").open(dir.path().join("shop"))?;
    assert_eq!(reason(store.remove_shard("a")), "the removal of shard `a`: it is the only shard");
    Ok(())
}

#[test]
fn a_shard_in_memory_is_removed_too() -> Result<()> {
    let store = options().in_memory()?;
    let tables = Tables::filled(&store)?;
    store.move_range("orders", ..20u32, "c").run()?;
    store.remove_shard("a")?;
    assert_eq!(names(&store), ["b", "c"]);
    tables.check(&store, 200)
}

/// Checks the rows after shard `a` was detached.
fn check_without_a(store: &Store, tables: &Tables) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(tables.orders.all(&txn).count()?, 100);
    assert_eq!(tables.orders.by_email(&txn).rows().count(), 100);
    assert_eq!(tables.orders.find_by_town(&txn, "t1").count()?, 40);
    assert_eq!(tables.orders.get_by_email(&txn, "7-1")?, None);
    assert!(tables.orders.get_by_email(&txn, "27-1")?.is_some());
    let refused = tables.orders.get(&txn, 7, 1);
    assert!(matches!(refused, Err(Error::NoShard { .. })), "{refused:?}");
    drop(txn);
    let refused = store.transaction(|txn| tables.orders.insert(txn, &order(7, 100)));
    assert!(matches!(refused, Err(Error::NoShard { .. })), "{refused:?}");
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_detached_shard_is_a_plain_store_and_is_attached_again() -> Result<()> {
    with_store(|path, store| {
        let tables = Tables::filled(&store)?;
        let before = store.read()?;
        store.detach_shard("a")?;
        assert_eq!(names(&store), ["b", "c"]);
        check_without_a(&store, &tables)?;
        assert_eq!(tables.orders.all(&before).count()?, 200);
        drop(before);
        drop((tables, store));
        // Its rows are changed as those of a plain store, and it is moved.
        {
            let plain = Store::open(path.join("a"))?;
            let orders = OrderRepository::open(&plain)?;
            assert_eq!(orders.all(&plain.read()?).count()?, 100);
            assert!(orders.get_by_email(&plain.read()?, "7-1")?.is_some());
            plain.transaction(|txn| orders.insert(txn, &order(7, 100)))?;
            assert!(plain.verify()?.is_clean());
        }
        fs::create_dir(path.join("archive")).expect("a directory");
        fs::rename(path.join("a"), path.join("archive/a")).expect("the directory");
        {
            let store = Store::open(path)?;
            let tables = Tables::open(&store)?;
            check_without_a(&store, &tables)?;
            let refused = store.attach_shard("a", "b");
            assert!(matches!(refused, Err(Error::AlreadyOpen { .. })), "{refused:?}");
            assert!(reason(store.attach_shard("x", "x")).contains("has not had such a shard"));
            store.transaction(|txn| tables.towns.insert(txn, &Town { name: "t1".to_owned() }))?;
            let shard = store.attach_shard("a", "archive/a")?;
            assert_eq!(tables.towns.all(&store.read_on(&shard)?).count()?, 2);
            assert_eq!(names(&store), ["a", "b", "c"]);
            tables.check(&store, 201)?;
            store.transaction(|txn| {
                tables.orders.insert(txn, &order(8, 100))?;
                tables.orders.insert(txn, &order(28, 100))
            })?;
            tables.check(&store, 203)?;
        }
        let store = Store::open(path)?;
        assert!(store.unavailable_shards().is_empty());
        Tables::open(&store)?.check(&store, 203)
    })
}

#[test]
fn a_shard_that_was_attached_elsewhere_is_declared_there() -> Result<()> {
    with_store(|path, store| {
        let tables = Tables::filled(&store)?;
        store.detach_shard("a")?;
        fs::rename(path.join("a"), path.join("archived")).expect("the directory");
        store.attach_shard("a", "archived")?;
        drop((tables, store));
        let refused = reason(options().open(path));
        for part in ["shard `a`", "has it in `archived`", "declared in `a`", "`relocate`"] {
            assert!(refused.contains(part), "{refused}");
        }
        let open = |options: Options| {
            let store = options.open(path)?;
            assert!(store.unavailable_shards().is_empty());
            Tables::open(&store)?.check(&store, 200)
        };
        open(Store::options())?;
        open(Store::options().shard("a", "archived").shard("b", "b"))?;
        // The files are moved to the declared directory again.
        fs::rename(path.join("archived"), path.join("a")).expect("the directory");
        open(Store::options().relocate("a", "a"))?;
        open(options())
    })
}

#[test]
fn a_shard_whose_range_another_has_is_not_attached() -> Result<()> {
    with_store(|path, store| {
        drop((Tables::filled(&store)?, store));
        {
            let store = Store::open(path)?;
            let tables = Tables::open(&store)?;
            store.detach_shard("a")?;
            check_without_a(&store, &tables)?;
        }
        // A row that was written meanwhile is outside of its range.
        {
            let plain = Store::open(path.join("a"))?;
            let orders = OrderRepository::open(&plain)?;
            plain.transaction(|txn| orders.insert(txn, &order(30, 100)))?;
        }
        let store = Store::open(path)?;
        let tables = Tables::open(&store)?;
        let refused = store.attach_shard("a", "a").expect_err("a foreign row");
        assert!(matches!(refused, Error::SchemaMismatch { .. }), "{refused}");
        check_without_a(&store, &tables)?;
        drop((tables, store));
        let store = Store::open(path)?;
        check_without_a(&store, &Tables::open(&store)?)
    })
}

#[test]
fn a_program_that_declares_a_detached_shard_opens_its_store() -> Result<()> {
    with_store(|path, store| {
        let added = || options().add_shard("d", "d");
        let tables = Tables::filled(&store)?;
        store.detach_shard("a")?;
        drop((tables, store));
        for _ in 0..2 {
            let store = added().open(path)?;
            let tables = Tables::open(&store)?;
            assert_eq!(names(&store), ["b", "c", "d"]);
            check_without_a(&store, &tables)?;
        }
        let store = added().open(path)?;
        let tables = Tables::open(&store)?;
        store.remove_shard("d")?;
        store.attach_shard("a", "a")?;
        tables.check(&store, 200)?;
        drop((tables, store));
        let store = added().open(path)?;
        assert_eq!(names(&store), ["a", "b", "c"]);
        Tables::open(&store)?.check(&store, 200)?;
        drop(store);
        // A new map has no keys in a shard that the store does not have.
        let store = options().open(path)?;
        let tables = Tables::open(&store)?;
        store.detach_shard("a")?;
        drop((tables, store));
        let new = options().map("new", ShardMap::ranges().to("a", 0u32..));
        assert!(reason(new.open(path)).contains("`a`"));
        // A declaration in another directory adds a new shard.
        let store = options().add_shard("d", "d2").open(path)?;
        assert_eq!(names(&store), ["b", "c", "d"]);
        Ok(())
    })
}

#[test]
fn keys_of_a_table_whose_only_shard_is_detached_have_no_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Store::options().shard("a", "a").shard("b", "b");
    let options = options.map("orders", ShardMap::ranges().to("b", 0u32..));
    let store = options.open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| (1..5).try_for_each(|number| orders.insert(txn, &order(7, number))))?;
    store.detach_shard("b")?;
    let txn = store.read()?;
    assert!(matches!(orders.get(&txn, 7, 1), Err(Error::NoShard { .. })));
    let counted = orders.find_by_tenant(&txn, 7).count();
    assert!(matches!(counted, Err(Error::NoShard { .. })), "{counted:?}");
    let first = orders.find_by_tenant_number_range(&txn, 7, 2..).rows().next().transpose();
    assert!(matches!(first, Err(Error::NoShard { .. })), "{first:?}");
    assert_eq!(orders.all(&txn).count()?, 0);
    drop(txn);
    let deleted =
        store.transaction(|txn| orders.find_by_tenant(txn, 7).query().delete(txn).map(drop));
    assert!(matches!(deleted, Err(Error::NoShard { .. })), "{deleted:?}");
    store.attach_shard("b", "b")?;
    assert_eq!(orders.find_by_tenant(&store.read()?, 7).count()?, 4);
    Ok(())
}

#[test]
fn slots_with_rows_are_not_detached() -> Result<()> {
    with_store(|_, store| {
        let tables = Tables::filled(&store)?;
        store.transaction(|txn| {
            (0..100).try_for_each(|id| tables.events.insert(txn, &Event { id }))
        })?;
        let refused = reason(store.detach_shard("a"));
        assert_eq!(refused, "the detaching of shard `a`: it has rows of table `events`; move them");
        tables.check(&store, 200)
    })
}

#[test]
fn a_backup_of_a_store_without_its_middle_shard_has_all_rows() -> Result<()> {
    for is_detached in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options().open(dir.path().join("shop"))?;
        let (orders, events) = (OrderRepository::open(&store)?, EventRepository::open(&store)?);
        store.transaction(|txn| {
            (0..40).try_for_each(|tenant| orders.insert(txn, &order(tenant, 1)))?;
            (0..40).try_for_each(|id| events.insert(txn, &Event { id }))
        })?;
        store.move_range("orders", 30u32.., "c").run()?;
        store.move_slots("events", .., "c").run()?;
        if is_detached {
            store.detach_shard("b")?;
        } else {
            store.move_range("orders", 20u32..30, "a").run()?;
            store.remove_shard("b")?;
        }
        let txn = store.read()?;
        let expected: Vec<_> = orders.all(&txn).keys().collect::<Result<_>>()?;
        let of_events: Vec<_> = events.all(&txn).keys().collect::<Result<_>>()?;
        assert_eq!(expected.len(), if is_detached { 30 } else { 40 });

        let [copy, compact, restored] =
            ["copy", "compact", "restored"].map(|name| dir.path().join(name));
        store.backup_to(&copy)?;
        store.compact_to(&compact)?;
        Store::restore(&copy, &restored)?;
        for path in [&copy, &compact, &restored] {
            let store = Store::open(path)?;
            assert!(store.unavailable_shards().is_empty());
            let (orders, events) = (OrderRepository::open(&store)?, EventRepository::open(&store)?);
            let txn = store.read()?;
            assert_eq!(orders.all(&txn).keys().collect::<Result<Vec<_>>>()?, expected);
            assert_eq!(events.all(&txn).keys().collect::<Result<Vec<_>>>()?, of_events);
            drop(txn);
            assert!(store.verify()?.is_clean());
            store.transaction(|txn| orders.insert(txn, &order(35, 2)))?;
        }
        // The directory of a shard in the copy has its number.
        assert!(copy.join("shard.2/data.mdb").exists() && !copy.join("shard.1").exists());
    }
    Ok(())
}
