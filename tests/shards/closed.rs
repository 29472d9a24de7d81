//! Shards are attached and restored while the repositories of their tables are closed.

use std::{fs, path::Path};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant)]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    email: String,
}

fn member(tenant: u32, email: &str) -> Member {
    Member { tenant, email: email.to_owned() }
}

fn opened(path: &Path) -> Result<Store> {
    let map = || ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b");
    options.map("notes", map()).map("members", map()).open(path)
}

#[test]
fn a_row_of_a_closed_table_outside_of_the_ranges_is_found_before_its_shard_is_attached()
-> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    {
        let store = opened(&shop)?;
        let notes = NoteRepository::open(&store)?;
        store.transaction(|txn| {
            [1, 11]
                .iter()
                .try_for_each(|tenant| notes.insert(txn, &Note { tenant: *tenant, id: 1 }))
        })?;
        store.detach_shard("b")?;
    }
    let alone = |change: &dyn Fn(&Store, &NoteRepository) -> Result<()>| {
        let alone = Store::open(shop.join("b"))?;
        change(&alone, &NoteRepository::open(&alone)?)
    };
    alone(&|store, notes| store.transaction(|txn| notes.insert(txn, &Note { tenant: 2, id: 7 })))?;
    {
        let store = opened(&shop)?;
        for _ in 0..2 {
            let refused = store.attach_shard("b", "b");
            let Err(Error::SchemaMismatch { table: "notes", difference, .. }) = refused else {
                panic!("{refused:?}");
            };
            let expected =
                "the row with primary key (2, 7) is in shard `b`, and belongs to shard `a`";
            assert_eq!(difference, expected);
        }
        // The table is as before.
        let notes = NoteRepository::open(&store)?;
        assert_eq!(notes.all(&store.read()?).count()?, 1);
    }
    alone(&|store, notes| store.transaction(|txn| notes.delete(txn, 2, 7)).map(drop))?;
    let store = opened(&shop)?;
    store.attach_shard("b", "b")?;
    let notes = NoteRepository::open(&store)?;
    assert_eq!(notes.all(&store.read()?).count()?, 2);
    Ok(())
}

#[test]
fn a_closed_table_opens_online_if_a_restored_row_has_a_key_that_was_given_to_another() -> Result<()>
{
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let store = opened(&shop)?;
        let members = MemberRepository::open(&store)?;
        store.transaction(|txn| members.insert(txn, &member(11, "x")))?;
        store.backup_to(&backup)?;
        store.transaction(|txn| {
            members.put(txn, &member(11, "y"))?;
            members.insert(txn, &member(1, "x"))
        })?;
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    let store = opened(&shop)?;
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
    for _ in 0..2 {
        let refused = MemberRepository::open(&store);
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{:?}", refused.map(drop));
    }
    let members = MemberRepository::open_online(&store)?;
    let refused = members.build(&store).run()?;
    assert!(!refused.is_readable());
    store.transaction(|txn| members.update(txn, 11, |row| row.email.push('z')))?;
    assert!(members.build(&store).run()?.is_readable());
    assert_eq!(members.get_by_email(&store.read()?, "x")?, Some(member(1, "x")));
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    code: u8,
}

/// The reference is at the start of the primary key, so it has no index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "stays", shard_by = town)]
struct Stay {
    #[primary_key]
    #[references(Town)]
    town: u8,
    #[primary_key]
    night: u32,
}

#[test]
fn the_error_of_a_deleted_row_names_the_first_referring_row_of_a_closed_table() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    let map = ShardMap::ranges().to("a", ..10u8).to("b", 10u8..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("stays", map);
    let store = options.open(&shop)?;
    let towns = TownRepository::open(&store)?;
    let stays = StayRepository::open(&store)?;
    store.transaction(|txn| {
        [20, 21].into_iter().try_for_each(|code| {
            towns.insert(txn, &Town { code })?;
            [4, 3].into_iter().try_for_each(|night| stays.insert(txn, &Stay { town: code, night }))
        })
    })?;
    store.detach_shard("b")?;
    drop(stays);
    assert!(store.transaction(|txn| towns.delete(txn, 21))?);
    let refused = reason(store.attach_shard("b", "b"));
    let expected = "row (21, 3) of table `stays` in it refers by `town` to the row with primary key 21 of the reference \
                    table `towns`";
    assert!(refused.contains(expected), "{refused}");
    store.transaction(|txn| towns.insert(txn, &Town { code: 21 }))?;
    store.attach_shard("b", "b")?;
    assert!(store.verify()?.is_clean());
    Ok(())
}
