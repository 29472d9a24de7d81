//! Attached shards without keys, and attached shards whose rows refer to reference tables.

use std::path::Path;

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "entries", shard_by = month)]
#[index(code, unique, scope = "global")]
#[index(value, consistency = "eventual")]
struct Entry {
    #[primary_key]
    month: u32,
    code: u32,
    value: u32,
}

/// How shard `b` gets its state before it is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Its keys were moved away, before or after the rows were written.
    Moved { rows_first: bool },
    /// It was added, and has never had keys.
    Added,
}

fn filled(path: &Path, before: Before) -> Result<(Store, EntryRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = if before == Before::Added {
        let map = ShardMap::ranges().to("a", ..20u32).to("c", 20u32..);
        Store::options().shard("a", "a").shard("c", "c").map("entries", map)
    } else {
        Store::options().shard("a", "a").shard("b", "b").shard("c", "c").map("entries", map)
    };
    let store = options.open(path)?;
    let entries = EntryRepository::open(&store)?;
    let insert = || {
        store.transaction(|txn| {
            let entry = |month| Entry { month, code: 100 + month, value: month % 3 };
            (0..30).try_for_each(|month| entries.insert(txn, &entry(month)))
        })
    };
    match before {
        Before::Moved { rows_first } => {
            if rows_first {
                insert()?;
            }
            store.move_range("entries", 10u32..20, "a").run()?;
            if !rows_first {
                insert()?;
            }
        }
        Before::Added => {
            store.add_shard("b", "b")?;
            insert()?;
        }
    }
    entries.drain(&store, u64::MAX)?;
    Ok((store, entries))
}

fn check(store: &Store, entries: &EntryRepository) -> Result<()> {
    entries.drain(store, u64::MAX)?;
    let txn = store.read()?;
    for month in 0..30 {
        let found = entries.get_by_code(&txn, 100 + month)?;
        assert_eq!(found.map(|entry| entry.month), Some(month));
    }
    assert_eq!(entries.by_code(&txn).count()?, 30);
    assert_eq!(entries.by_value(&txn).stale().count()?, 30);
    assert!(entries.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn keys_are_moved_to_an_attached_shard_without_keys() -> Result<()> {
    for before in
        [Before::Moved { rows_first: true }, Before::Moved { rows_first: false }, Before::Added]
    {
        for is_opened in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let (path, killed) = (dir.path().join("shop"), dir.path().join("killed"));
            let (store, entries) = filled(&path, before)?;
            store.detach_shard("b")?;
            if is_opened {
                EntryRepository::open(&Store::open(path.join("b"))?)?;
            }
            store.attach_shard("b", "b")?;
            check(&store, &entries)?;
            let moving = store.move_range("entries", 3u32..5, "b").progress(|_| {
                if !killed.exists() {
                    copy(&path, &killed).expect("copied");
                }
            });
            assert_eq!(moving.run()?.rows, 2, "{before:?}");
            store.move_slots("entries.code", ..2000, "b").run()?;
            check(&store, &entries)?;
            drop((store, entries));
            let store = Store::open(&path)?;
            check(&store, &EntryRepository::open(&store)?)?;

            // A process that was killed during the move.
            let store = Store::open(&killed)?;
            let entries = EntryRepository::open(&store)?;
            check(&store, &entries)?;
            let id = store.moves()?.first().expect("an interrupted move").id;
            store.resume_move(id).run()?;
            check(&store, &entries)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    code: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "regions", reference)]
struct Region {
    #[primary_key]
    code: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "pictures", reference)]
struct Picture {
    #[primary_key]
    code: u32,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant)]
#[index(town)]
#[index(region)]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    #[references(Town, on_delete = "restrict")]
    town: u8,
    #[references(Region, on_delete = "cascade")]
    region: Option<u8>,
}

fn with_references(
    path: &Path,
) -> Result<(Store, TownRepository, RegionRepository, PersonRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("people", map).open(path)?;
    let (towns, regions) = (TownRepository::open(&store)?, RegionRepository::open(&store)?);
    let people = PersonRepository::open(&store)?;
    Ok((store, towns, regions, people))
}

#[test]
fn a_shard_whose_rows_refer_to_deleted_rows_is_not_attached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, towns, regions, people) = with_references(&path)?;
    store.transaction(|txn| {
        (1..=3).try_for_each(|code| towns.insert(txn, &Town { code }))?;
        (1..=3).try_for_each(|code| regions.insert(txn, &Region { code }))?;
        people.insert(txn, &Person { tenant: 1, id: 1, town: 1, region: Some(1) })?;
        people.insert(txn, &Person { tenant: 20, id: 1, town: 2, region: Some(2) })
    })?;
    store.detach_shard("b")?;
    // Rows of the shard refer to the deleted rows 2, but not to the rows 3.
    store.transaction(|txn| {
        [2, 3].into_iter().try_for_each(|code| {
            assert!(towns.delete(txn, code)? && regions.delete(txn, code)?);
            Ok(())
        })
    })?;
    drop(people);
    for (table, by) in [("regions", "region"), ("towns", "town")] {
        let refused = reason(store.attach_shard("b", "b"));
        let expected = format!(
            "row (20, 1) of table `people` in it refers by `{by}` to the row with primary key 2 of the reference table `{table}`"
        );
        assert!(refused.contains(&expected), "{refused}");
        assert_eq!(store.shard_ids().len(), 1);
        // The directory is as it was.
        let plain = Store::open(path.join("b"))?;
        assert_eq!(TownRepository::open(&plain)?.all(&plain.read()?).count()?, 3);
        if table == "towns" {
            store.transaction(|txn| towns.insert(txn, &Town { code: 2 }))?;
        } else {
            RegionRepository::open(&plain)?;
            let people = PersonRepository::open(&plain)?;
            plain
                .transaction(|txn| people.update(txn, 20, 1, |row| row.region = None).map(drop))?;
        }
    }
    store.attach_shard("b", "b")?;
    let people = PersonRepository::open(&store)?;
    assert_eq!(people.all(&store.read()?).count()?, 2);
    assert_eq!(towns.all(&store.read()?).count()?, 2);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_shard_with_a_reference_table_is_attached_while_the_table_is_open() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, towns, regions, people) = with_references(&path)?;
    store.transaction(|txn| towns.insert(txn, &Town { code: 1 }))?;
    store.detach_shard("b")?;
    store.transaction(|txn| towns.insert(txn, &Town { code: 2 }))?;
    drop(towns);
    let refused = reason(store.attach_shard("b", "b"));
    assert!(refused.contains("reference table `towns`: open its repository first"), "{refused}");
    let towns = TownRepository::open(&store)?;
    store.attach_shard("b", "b")?;
    for shard in store.shard_ids() {
        assert_eq!(towns.all(&store.read_on(&shard)?).count()?, 2);
    }
    drop((store, towns, regions, people));
    let (store, ..) = with_references(&path)?;
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// Attaching the shard writes rows of the reference table, for which its map has no room.
#[test]
fn the_map_of_an_attached_shard_is_enlarged() -> Result<()> {
    const SIZE: usize = 1 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().map_size(SIZE);
    let store = options.shard("a", "a").shard("b", "b").map("people", map).open(&path)?;
    let pictures = PictureRepository::open(&store)?;
    store.detach_shard("b")?;
    for codes in [0..100, 100..200, 200..300, 300..400] {
        store.transaction(|txn| {
            let picture = |code| Picture { code, bytes: vec![7; 8000] };
            codes.clone().try_for_each(|code| pictures.insert(txn, &picture(code)))
        })?;
    }
    store.attach_shard("b", "b")?;
    for shard in store.shard_ids() {
        assert_eq!(pictures.all(&store.read_on(&shard)?).count()?, 400);
    }
    let length = std::fs::metadata(path.join("b/data.mdb")).expect("a file").len();
    assert!(length > SIZE as u64, "the map had room for {length} bytes");
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "colours", reference)]
struct Colour {
    #[primary_key]
    id: u64,
    name: String,
}

#[test]
fn numbers_of_a_reference_table_are_not_assigned_again_after_the_first_shard_came_back()
-> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, entries) = filled(&dir.path().join("shop"), Before::Added)?;
    let colours = ColourRepository::open(&store)?;
    let add = || {
        store
            .transaction(|txn| colours.insert_with(txn, |id| Colour { id, name: "red".to_owned() }))
    };
    assert_eq!(add()?, 1);
    store.detach_shard("a")?;
    assert_eq!(add()?, 2);
    store.transaction(|txn| colours.delete(txn, 2).map(drop))?;
    store.attach_shard("a", "a")?;
    assert_eq!(add()?, 3);
    check(&store, &entries)
}

#[test]
fn a_removed_shard_is_attached_without_keys() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, entries) = filled(&path, Before::Moved { rows_first: true })?;
    store.remove_shard("b")?;
    // A row that was written alone since is in the range of another shard.
    let alone = |change: &dyn Fn(&Store, &EntryRepository) -> Result<()>| {
        let alone = Store::open(path.join("b"))?;
        change(&alone, &EntryRepository::open(&alone)?)
    };
    let row = Entry { month: 12, code: 7, value: 1 };
    alone(&|store, entries| store.transaction(|txn| entries.insert(txn, &row)))?;
    let refused = store.attach_shard("b", "b");
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    check(&store, &entries)?;
    alone(&|store, entries| store.transaction(|txn| entries.delete(txn, 12)).map(drop))?;
    store.attach_shard("b", "b")?;
    check(&store, &entries)?;
    store.move_range("entries", 10u32..15, "b").run()?;
    check(&store, &entries)?;
    assert_eq!(entries.shard_of(&store, 12)?.name(), "b");
    Ok(())
}
