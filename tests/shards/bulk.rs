//! Bulk loads: rows are divided among the shards, which are loaded at the same time.

use index_table::{Error, IndexTable, OnDuplicate, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::reference::{Town, TownRepository};

mod before {
    use super::*;

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant)]
    pub(super) struct Person {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) name: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant)]
#[indexes((tenant, name, unique), (name, name = "named"))]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    name: String,
}

fn person(tenant: u32, id: u64) -> Person {
    Person { tenant, id, name: format!("Person {id}") }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..200).to("c", 200u32..300);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("people", map)
}

/// Returns this number of people for a tenant of each shard, in turn.
fn people(each: u64) -> impl Iterator<Item = Person> {
    (0..each).flat_map(|id| [1, 100, 200].map(|tenant| person(tenant, id)))
}

#[test]
fn the_shards_are_loaded_and_the_report_names_them() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        let repository = PersonRepository::open(&store)?;
        let mut last = Vec::new();
        let load = repository.bulk_load(&store, people(2000));
        let report = load.progress(|at| last.push((at.unit, at.done, at.total))).run()?;
        assert_eq!((report.read, report.written), (6000, 6000));
        let shards: Vec<_> =
            report.shards.iter().map(|it| (it.shard.as_str(), it.written)).collect();
        assert_eq!(shards, [("a", 2000), ("b", 2000), ("c", 2000)]);
        assert!(last.iter().any(|(unit, ..)| *unit == "rows read"));
        assert!(last.iter().any(|(unit, ..)| *unit == "rows and entries written"));
        let txn = store.read()?;
        assert_eq!(repository.all(&txn).count()?, 6000);
        assert_eq!(repository.find_by_named(&txn, "Person 7").count()?, 3);
        assert!(store.verify()?.is_clean());
        drop(txn);

        let report = repository.bulk_load(&store, [person(100, 1), person(100, 5000)]);
        let report = report.on_duplicate(OnDuplicate::Skip).run()?;
        assert_eq!((report.read, report.written, report.skipped), (2, 1, 1));
        assert_eq!(report.shards.len(), 1);
        assert_eq!((report.shards[0].shard.as_str(), report.shards[0].skipped), ("b", 1));
    }
    Ok(())
}

#[test]
fn a_shard_that_fails_leaves_the_others_loaded() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        let repository = PersonRepository::open(&store)?;
        store.transaction(|txn| repository.insert(txn, &person(100, 5)))?;
        let failed = repository.bulk_load(&store, people(10)).run();
        let Err(Error::ShardsNotLoaded { table, loaded, not_loaded, source }) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(table, "people");
        assert_eq!(loaded, ["a", "c"]);
        assert_eq!(not_loaded, ["b"]);
        assert!(matches!(*source, Error::DuplicateKey { .. }), "{source:?}");
        assert_eq!(repository.all(&store.read()?).count()?, 21);

        // The same load completes the rows when it is repeated.
        let load = repository.bulk_load(&store, people(10)).on_duplicate(OnDuplicate::Skip);
        let report = load.run()?;
        assert_eq!((report.written, report.skipped), (9, 21));
        assert_eq!(repository.all(&store.read()?).count()?, 30);

        // A load that fails in all shards, or before its rows are written, has its own error.
        let failed = repository.bulk_load(&store, people(10)).run();
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })), "{failed:?}");
        let failed = repository.bulk_load(&store, [person(1, 99), person(300, 1)]).run();
        assert!(matches!(failed, Err(Error::NoShard { .. })), "{failed:?}");
        assert_eq!(repository.all(&store.read()?).count()?, 30);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_load_in_a_transaction_is_atomic_across_all_shards() -> Result<()> {
    let store = options().in_memory()?;
    let repository = PersonRepository::open(&store)?;
    store.transaction(|txn| repository.insert(txn, &person(100, 5)))?;
    let failed = store.transaction(|txn| repository.bulk_load_in(txn, people(10)).run().map(drop));
    assert!(matches!(failed, Err(Error::DuplicateKey { .. })), "{failed:?}");
    assert_eq!(repository.all(&store.read()?).count()?, 1);
    let mut txn = store.write()?;
    let report = repository.bulk_load_in(&mut txn, people(3)).run()?;
    assert_eq!((report.written, report.shards.len()), (9, 0));
    let waits = repository.bulk_load(&store, people(1)).run();
    assert!(matches!(waits, Err(Error::WriteInProgress)), "{waits:?}");
    txn.commit()?;
    assert_eq!(repository.all(&store.read()?).count()?, 10);
    Ok(())
}

#[test]
fn a_reference_table_is_loaded_in_all_shards_at_once() -> Result<()> {
    let store = options().in_memory()?;
    let towns = TownRepository::open(&store)?;
    let rows = (0..50).map(|code| Town { code, name: format!("Town {}", code % 7) });
    let report = towns.bulk_load(&store, rows).run()?;
    assert_eq!((report.written, report.shards.len()), (50, 0));
    for shard in store.shard_ids() {
        assert_eq!(towns.find_by_name(&store.read_on(&shard)?, "Town 3").count()?, 7);
    }
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn indexes_of_large_tables_are_built_when_the_table_is_opened() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().durability(index_table::Durability::None).open(dir.path())?;
    fill_before(&store)?;
    let repository = PersonRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(repository.find_by_named(&txn, "Person 4500").count()?, 3);
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// The number of rows of each shard: too many to build an index in the transaction that declares it.
pub(crate) fn fill_before(store: &Store) -> Result<()> {
    let repository = before::PersonRepository::open(store)?;
    let rows = (0..5000).flat_map(|id| {
        [1, 100, 200].map(|tenant| before::Person { tenant, id, name: format!("Person {id}") })
    });
    repository.bulk_load(store, rows).run().map(drop)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant, shard_map = "people")]
#[index(code, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    code: u32,
}

#[test]
fn a_load_exchanges_unique_keys_within_and_between_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        let (people, members) = (PersonRepository::open(&store)?, MemberRepository::open(&store)?);
        let member = |tenant, code| Member { tenant, code };
        store.transaction(|txn| {
            (0..4).try_for_each(|id| people.insert(txn, &person(1, id)))?;
            [1, 100, 200].into_iter().try_for_each(|it| members.insert(txn, &member(it, it)))
        })?;
        let named = |id, name: u64| Person { name: format!("Person {name}"), ..person(1, id) };
        let exchanged = [named(0, 3), named(1, 0), named(3, 1)];
        people.bulk_load(&store, &exchanged).on_duplicate(OnDuplicate::Replace).run()?;
        let rotated = [member(1, 200), member(100, 1), member(200, 100)];
        members.bulk_load(&store, &rotated).on_duplicate(OnDuplicate::Replace).run()?;
        let txn = store.read()?;
        for one in &exchanged {
            assert_eq!(people.get_by_tenant_name(&txn, 1, &one.name)?.as_ref(), Some(one));
        }
        for one in &rotated {
            assert_eq!(members.get_by_code(&txn, one.code)?.as_ref(), Some(one));
        }
        assert!(people.verify(&txn).run()?.is_clean() && members.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

/// The rows of a load are divided among the shards, and then the shards are written.
#[test]
fn a_load_of_a_shard_that_is_detached_meanwhile_names_the_shard_and_loses_nothing() -> Result<()> {
    for is_divided in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options().open(dir.path().join("shop"))?;
        let repository = PersonRepository::open(&store)?;
        store.transaction(|txn| repository.insert(txn, &person(100, 1000)))?;
        let detach = || {
            let detach = || store.detach_shard("b").expect("detached");
            std::thread::scope(|scope| scope.spawn(detach).join().expect("no panic"));
            None
        };
        let (before, after) = if is_divided { (60, 0) } else { (30, 30) };
        let rows = people(20).take(before).chain(std::iter::from_fn(detach));
        let rows = rows.chain(people(20).skip(60 - after));
        let loaded = repository.bulk_load(&store, rows).run();
        let rows = match loaded {
            Err(Error::NoShard { table: "people", key, map }) if !is_divided => {
                assert_eq!((key.as_str(), map.as_str()), ("(100, 10)", "people"));
                0
            }
            Err(Error::ShardsNotLoaded { loaded, not_loaded, source, .. }) if is_divided => {
                assert_eq!((loaded, not_loaded), (vec!["a".into(), "c".into()], vec!["b".into()]));
                let message = source.to_string();
                assert!(message.contains("`b`") && message.contains("attach"), "{message}");
                40
            }
            loaded => panic!("{loaded:?}"),
        };
        assert_eq!(repository.all(&store.read()?).count()?, rows);
        assert!(store.verify()?.is_clean());

        store.attach_shard("b", "b")?;
        assert_eq!(repository.all(&store.read()?).count()?, rows + 1);
        let again = repository.bulk_load(&store, people(20)).on_duplicate(OnDuplicate::Skip);
        let report = again.run()?;
        assert_eq!((report.written, report.skipped), (60 - rows, rows));
        assert_eq!(repository.all(&store.read()?).count()?, 61);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}
