//! Global indexes: their entries are sharded by their own keys.

use std::fs;

use index_table::{Durability, Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::tables::{
    self, Kind, Stores,
    global::{Order, OrderRepository},
    options, with_maps_of_indexes,
};

fn order(tenant: u8, number: u16) -> Order {
    let (town, note) = (format!("town {number}"), format!("note {tenant} {number}"));
    let (code, tags) = (u16::from(tenant) * 100 + number, vec!["a".to_owned()]);
    Order { tenant, number, town, size: 0, code, note, tags }
}

/// Returns stores in memory and on disk, with four shards of eight tenants each.
fn stores() -> Result<Stores> {
    tables::stores([options(Kind::Ranges, 4), with_maps_of_indexes(Kind::Ranges, 4)])
}

#[test]
fn a_look_up_reads_the_shards_of_the_entry_and_of_the_row() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            (0..32).try_for_each(|tenant| orders.insert(txn, &order(tenant, 1)))
        })?;
        let mut of_one = 0;
        for tenant in 0..32 {
            let (txn, code) = (store.read()?, u16::from(tenant) * 100 + 1);
            assert_eq!(orders.get_by_spot(&txn, code)?, Some(order(tenant, 1)));
            assert!([1, 2].contains(&txn.stats().shards), "{:?}", txn.stats());
            of_one += u64::from(txn.stats().shards == 1);
            let txn = store.read()?;
            assert_eq!(orders.find_by_spot(&txn, code).count()?, 1);
            assert_eq!(txn.stats().shards, 1);
        }
        assert!(of_one < 32);
        // The entries of one key are in one shard. Their rows are in all shards.
        let txn = store.read()?;
        assert_eq!(orders.find_by_town(&txn, "town 1").count()?, 32);
        assert_eq!(txn.stats().shards, 1);
        let mut rows = orders.find_by_town(&txn, "town 1").rows();
        assert_eq!(rows.by_ref().count(), 32);
        assert_eq!(rows.stats().shards, 4);
        assert!(orders.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_key_is_unique_across_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(0, 1)))?;
        for tenant in 1..32 {
            let taken = Order { code: 1, ..order(tenant, 1) };
            let refused = store.transaction(|txn| orders.insert(txn, &taken));
            let Err(Error::UniqueViolation { index, .. }) = refused else { panic!("{refused:?}") };
            assert_eq!(index, "spot");
        }
        // An operation that fails changes nothing in any shard.
        store.transaction(|txn| {
            orders.insert(txn, &order(24, 1))?;
            let taken = Order { code: 1, ..order(9, 1) };
            assert!(matches!(
                orders.put(txn, &taken),
                Err(Error::UniqueViolation { .. } | Error::OtherShard { .. })
            ));
            let updated = orders.update(txn, 24, 1, |order| order.code = 1);
            assert!(matches!(
                updated,
                Err(Error::UniqueViolation { .. } | Error::OtherShard { .. })
            ));
            Ok::<_, Error>(())
        })?;
        assert_eq!(orders.all(&store.read()?).count()?, 2);
        // The key is free when its row has been deleted.
        store.transaction(|txn| orders.delete(txn, 0, 1))?;
        store.transaction(|txn| orders.insert(txn, &Order { code: 1, ..order(31, 1) }))?;
        assert!(orders.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_transaction_of_one_shard_can_change_rows_but_not_global_entries() -> Result<()> {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "users", shard_by = tenant, shard_map = "tenants")]
    #[index(email, unique, scope = "global", include = [name])]
    #[index(town)]
    struct User {
        #[primary_key]
        tenant: u8,
        #[primary_key]
        id: u16,
        email: String,
        name: String,
        town: String,
    }

    let [email, name, town] = ["a@example.com", "a", "Oslo"].map(str::to_owned);
    let user = User { tenant: 0, id: 1, email, name, town };
    let on = |dir: Option<&tempfile::TempDir>| match dir {
        Some(dir) => options(Kind::Ranges, 4).open(dir.path()),
        None => options(Kind::Ranges, 4).in_memory(),
    };
    let dir = tempfile::tempdir().expect("a directory");
    for store in [on(None)?, on(Some(&dir))?] {
        let users = UserRepository::open(&store)?;
        let shard = users.shard_of(&store, 0)?;
        let refused = |outcome: Result<()>| {
            let Err(Error::OtherShard { table, own, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!((table, own.as_str()), ("users", "s0"));
        };
        for id in 0..20 {
            let new = User { id, email: format!("{id}"), ..user.clone() };
            refused(store.transaction_on(&shard, |txn| users.insert(txn, &new)));
            refused(store.transaction_on(&shard, |txn| users.put(txn, &new)));
        }
        store.transaction(|txn| users.insert(txn, &user))?;
        store.transaction_on(&shard, |txn| {
            // A refused operation leaves the transaction as it was.
            refused(users.insert(txn, &User { id: 2, email: String::new(), ..user.clone() }));
            refused(users.update(txn, 0, 1, |user| user.email.push('b')).map(drop));
            refused(users.update(txn, 0, 1, |user| user.name.push('b')).map(drop));
            refused(users.update(txn, 0, 1, |user| user.id = 2).map(drop));
            refused(users.delete(txn, 0, 1).map(drop));
            users.update(txn, 0, 1, |user| user.town = "Bergen".to_owned())?;
            users.put(txn, &User { town: "Rome".to_owned(), ..user.clone() })
        })?;
        let txn = store.read()?;
        let moved = User { town: "Rome".to_owned(), ..user.clone() };
        assert_eq!(users.get_by_email(&txn, "a@example.com")?, Some(moved));
        assert_eq!(users.find_by_town(&txn, "Rome").count()?, 1);
        assert_eq!(users.all(&txn).count()?, 1);
        assert!(users.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

/// An insert locks the shards of the row and of its entries in the order of their numbers.
#[test]
fn an_insert_runs_its_closure_once() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        for tenant in 0..32 {
            let mut runs = 0;
            store.transaction(|txn| {
                runs += 1;
                orders.insert(txn, &order(tenant, 1))
            })?;
            assert_eq!(runs, 1);
        }
    }
    Ok(())
}

mod scopes {
    use super::*;

    macro_rules! people {
        ($module:ident, $($index:tt)*) => {
            pub(crate) mod $module {
                use super::*;

                #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
                #[table(name = "people", shard_by = tenant, shard_map = "tenants")]
                $($index)*
                pub(crate) struct Person {
                    #[primary_key]
                    pub(crate) tenant: u8,
                    pub(crate) town: String,
                    pub(crate) email: String,
                }
            }
        };
    }

    people!(none,);
    people!(local, #[index(town)]);
    people!(global, #[index(town, scope = "global")]);
    people!(
        unique,
        #[indexes((town, scope = "global"), (email, unique, scope = "global"))]
    );
}

fn towns(store: &Store) -> Result<(u64, u64)> {
    use scopes::global::PersonRepository;
    let people = PersonRepository::open(store)?;
    let txn = store.read()?;
    assert!(people.verify(&txn).run()?.is_clean());
    let found = people.find_by_town(&txn, "Oslo").rows().count() as u64;
    assert_eq!(found, people.find_by_town(&txn, "Oslo").count()?);
    let txn = store.read()?;
    people.find_by_town(&txn, "Oslo").count()?;
    Ok((found, txn.stats().shards))
}

/// The index is built when it is new, and when its scope changes in either direction.
#[test]
fn an_index_is_rebuilt_when_its_scope_changes() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        use scopes::none::{Person, PersonRepository};
        let store = options(Kind::Ranges, 4).open(dir.path())?;
        let people = PersonRepository::open(&store)?;
        for tenant in 0..32 {
            let (town, email) = ("Oslo".to_owned(), format!("{}", tenant / 2));
            let person = Person { tenant, town, email };
            store.transaction(|txn| people.insert(txn, &person))?;
        }
    }
    for _ in 0..2 {
        assert_eq!(towns(&Store::open(dir.path())?)?, (32, 1));
        let store = Store::open(dir.path())?;
        let people = scopes::local::PersonRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(people.find_by_town(&txn, "Oslo").count()?, 32);
        assert_eq!(txn.stats().shards, 4);
        assert!(people.verify(&txn).run()?.is_clean());
    }
    // If two rows in different shards or in the same shard have the same key, the index is not built.
    let store = Store::open(dir.path())?;
    for _ in 0..2 {
        let refused = scopes::unique::PersonRepository::open(&store).map(drop);
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
    }
    {
        let people = scopes::none::PersonRepository::open(&store)?;
        store.transaction(|txn| {
            (0..16).try_for_each(|half| people.delete(txn, half * 2).map(drop))
        })?;
    }
    let people = scopes::unique::PersonRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(people.get_by_email(&txn, "7")?.map(|person| person.tenant), Some(15));
    assert!(people.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn a_global_index_is_built_across_all_shards_after_growth() -> Result<()> {
    use scopes::global::{Person, PersonRepository};
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    let person = |tenant| Person { tenant, town: "Oslo".to_owned(), email: String::new() };
    {
        // The scope makes no difference in a plain store.
        let store = Store::open(&shop)?;
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| {
            (0..10).try_for_each(|tenant| people.insert(txn, &person(tenant)))
        })?;
        assert_eq!(people.find_by_town(&store.read()?, "Oslo").count()?, 10);
        assert!(people.verify(&store.read()?).run()?.is_clean());
    }
    {
        let store = Store::options()
            .add_shard("s1", "s1")
            .map("tenants", ShardMap::ranges().to("main", ..16_u8).to("s1", 16_u8..))
            .map("people.town", ShardMap::ranges().to("main", .."A").to("s1", "A"..))
            .open(&shop)?;
        assert_eq!(towns(&store)?, (10, 1));
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| people.insert(txn, &person(20)))?;
        assert_eq!(towns(&store)?, (11, 1));
    }
    // A copy of the shard can be opened as a plain store with its own rows, and then as the shard again.
    crate::verify::alone(&shop.join("s1"), |store| {
        let people = PersonRepository::open(store)?;
        assert_eq!(people.find_by_town(&store.read()?, "Oslo").count()?, 1);
        Ok(())
    })?;
    assert_eq!(towns(&Store::open(&shop)?)?, (11, 1));
    Ok(())
}

#[test]
fn the_keys_of_a_map_are_the_leading_fields_of_its_index() -> Result<()> {
    use scopes::global::PersonRepository;
    for map in [ShardMap::ranges().to("s0", ..7_u16), ShardMap::ranges().to("s0", ..(7_u8, 7_u8))] {
        let store = options(Kind::Ranges, 2).map("people.town", map).in_memory()?;
        let refused = PersonRepository::open(&store).map(drop);
        let Err(Error::SchemaMismatch { difference, .. }) = refused else { panic!("{refused:?}") };
        assert!(difference.contains("`people.town`"), "{difference}");
    }
    // A row with a key without a shard is refused before anything is written. A query for this key finds nothing.
    let map = ShardMap::ranges().to("s0", .."M");
    let store = options(Kind::Ranges, 2).map("people.town", map).in_memory()?;
    let people = PersonRepository::open(&store)?;
    let person = |town: &str| scopes::global::Person {
        tenant: 20,
        town: town.to_owned(),
        email: String::new(),
    };
    store.transaction(|txn| {
        people.insert(txn, &person("Bergen"))?;
        let refused = people.put(txn, &person("Oslo"));
        let Err(Error::NoShard { map, key, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((map.as_str(), key.as_str()), ("people.town", "\"Oslo\""));
        assert_eq!(people.find_by_town(txn, "Oslo").count()?, 0);
        Ok(())
    })?;
    assert_eq!(people.find_by_town(&store.read()?, "Bergen").rows().count(), 1);
    assert_eq!(people.by_town(&store.read()?).rows().count(), 1);
    Ok(())
}

#[test]
fn the_map_of_a_global_index_is_permanent() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let insert = |store: &Store, number| {
        let orders = OrderRepository::open(store)?;
        (0..32).try_for_each(|tenant| {
            store.transaction(|txn| orders.insert(txn, &order(tenant, number)))
        })
    };
    insert(&with_maps_of_indexes(Kind::Ranges, 3).open(dir.path())?, 1)?;
    insert(&Store::open(dir.path())?, 2)?;
    let other = Store::options()
        .map("orders.town", ShardMap::hashed(["s0", "s1"]))
        .open(dir.path())
        .map(drop);
    assert!(matches!(other, Err(Error::ShardRefused { .. })), "{other:?}");
    // Each shard has recorded its ranges, so a lost manager can be rebuilt.
    fs::remove_file(dir.path().join("data.mdb")).expect("removed");
    let shards = ["s0", "s1", "s2"];
    let rebuild = shards.iter().fold(Store::options(), |all, name| all.shard(*name, *name));
    insert(&rebuild.rebuild(dir.path())?, 3)?;
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(orders.find_by_town(&txn, "town 3").rows().count(), 32);
    assert!(orders.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn a_restored_shard_gets_the_entries_of_all_rows() -> Result<()> {
    for is_in_use in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        let insert = |number| {
            let store = options(Kind::Ranges, 2).open(&shop)?;
            let orders = OrderRepository::open(&store)?;
            (0..32).try_for_each(|tenant| {
                store.transaction(|txn| orders.insert(txn, &order(tenant, number)))
            })
        };
        insert(1)?;
        Store::options().read_only(true).open(shop.join("s1"))?.backup_to(&backup)?;
        insert(2)?;
        fs::remove_dir_all(shop.join("s1")).expect("removed");
        let store = Store::open(&shop)?;
        let orders = is_in_use.then(|| OrderRepository::open(&store)).transpose()?;
        store.restore_shard(&store.shard("s1")?, &backup)?;
        let orders = orders.map_or_else(|| OrderRepository::open(&store), Ok)?;
        // The entries of global indexes didn't match the restored rows.
        for (town, rows) in [("town 1", 32), ("town 2", 16)] {
            assert_eq!(orders.find_by_town(&store.read()?, town).rows().count(), rows);
        }
        assert_eq!(orders.all(&store.read()?).count()?, 48);
        // One commit of both shards.
        store.transaction(|txn| {
            [3, 20].into_iter().try_for_each(|tenant| orders.insert(txn, &order(tenant, 3)))
        })?;
        assert!(orders.verify(&store.read()?).run()?.is_clean());
        drop((orders, store));
        {
            let store = Store::open(&shop)?;
            let orders = OrderRepository::open(&store)?;
            let txn = store.read()?;
            for (town, rows) in [("town 1", 32), ("town 2", 16), ("town 3", 2)] {
                assert_eq!(orders.find_by_town(&txn, town).rows().count(), rows);
            }
            assert!(orders.verify(&txn).run()?.is_clean());
        }
        let reopened = || {
            let store = Store::open(&shop)?;
            let orders = OrderRepository::open(&store)?;
            (0..32).try_for_each(|tenant| {
                store.transaction(|txn| orders.put(txn, &order(tenant, 2)))
            })?;
            assert_eq!(orders.find_by_town(&store.read()?, "town 2").rows().count(), 32);
            assert!(orders.verify(&store.read()?).run()?.is_clean());
            Ok::<_, Error>(())
        };
        reopened()?;
    }
    Ok(())
}

#[test]
fn a_restored_shard_without_a_journal_gets_the_entries_of_all_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let insert = |number| {
        let store = options(Kind::Ranges, 2).durability(Durability::Relaxed).open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        (0..32).try_for_each(|tenant| {
            store.transaction(|txn| orders.insert(txn, &order(tenant, number)))
        })
    };
    insert(1)?;
    Store::options().read_only(true).open(shop.join("s1"))?.backup_to(&backup)?;
    insert(2)?;
    fs::remove_dir_all(shop.join("s1")).expect("removed");
    let store = Store::options().durability(Durability::Relaxed).open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    store.restore_shard(&store.shard("s1")?, &backup)?;
    let txn = store.read()?;
    for (town, rows) in [("town 1", 32), ("town 2", 16), ("town 3", 0)] {
        assert_eq!(orders.find_by_town(&txn, town).rows().count(), rows);
    }
    assert!(orders.verify(&txn).run()?.is_clean());
    drop(txn);
    assert_eq!(orders.build(&store).run()?.indexes, []);
    Ok(())
}

#[test]
fn a_bulk_load_writes_the_entries_of_all_shards() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let rows = || (0..32).flat_map(|tenant| (0..5).map(move |number| order(tenant, number)));
        assert_eq!(orders.bulk_load(&store, rows()).run()?.written, 160);
        let refused = orders.bulk_load(&store, [Order { code: 3001, ..order(0, 9) }]).run();
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
        let txn = store.read()?;
        assert_eq!(orders.get_by_spot(&txn, 3104)?, Some(order(31, 4)));
        assert_eq!(orders.find_by_town(&txn, "town 4").rows().count(), 32);
        assert!(orders.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_scan_of_available_shards_omits_rows_of_missing_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = with_maps_of_indexes(Kind::Ranges, 4).open(dir.path())?;
        let orders = OrderRepository::open(&store)?;
        for tenant in 0..32 {
            store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
        }
    }
    // The entries of this index are in `s0` and `s3`.
    let store = Store::options().only(["s0", "s2", "s3"]).open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    let towns = || orders.find_by_town(&txn, "town 1");
    assert_eq!(towns().count()?, 32);
    assert!(towns().rows().any(|row| matches!(row, Err(Error::ShardUnavailable { .. }))));
    let found = towns().available();
    let missing: Vec<_> = found.missing.iter().map(|missing| missing.name.as_str()).collect();
    assert_eq!(missing, ["s1"]);
    assert_eq!(found.scan.count()?, 24);
    let keys = |scan: index_table::Scan<'_, _>| scan.keys().collect::<Result<Vec<_>>>();
    let expected: Vec<_> = (0..8).chain(16..32).map(|tenant| (tenant, 1)).collect();
    assert_eq!(keys(towns().available().scan)?, expected);
    assert_eq!(keys(towns().rev().limit(3).available().scan)?, [(31, 1), (30, 1), (29, 1)]);
    assert_eq!(towns().limit(10).available().scan.count()?, 10);
    assert_eq!(towns().available().scan.rows().collect::<Result<Vec<_>>>()?.len(), 24);
    assert_eq!(towns().available().scan.page(20)?.items.len(), 20);
    // A row can't be written without the shard of one of its entries.
    let refused = store
        .transaction(|txn| (0..8).try_for_each(|tenant| orders.insert(txn, &order(tenant, 2))));
    assert!(matches!(refused, Err(Error::ShardUnavailable { .. })), "{refused:?}");
    assert_eq!(orders.all(&txn).available().scan.count()?, 24);
    Ok(())
}
