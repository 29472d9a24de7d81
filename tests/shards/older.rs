//! A shard whose files were replaced by an older copy while the store was closed.

use std::{fs, path::Path};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::directories::copied;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    email: String,
}

fn member(tenant: u32, id: u32) -> Member {
    Member { tenant, id, email: format!("{id}@{tenant}") }
}

fn insert(shop: &Path, id: u32) -> Result<()> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("members", map).open(shop)?;
    let members = MemberRepository::open(&store)?;
    store.transaction(|txn| {
        [1, 11].into_iter().try_for_each(|it| members.insert(txn, &member(it, id)))
    })
}

/// Makes a copy of shard `a` with the first row, inserts another, and puts the copy in the place of the shard, which is renamed to
/// `newer`.
fn replace(dir: &Path, copy: impl FnOnce(&Path, &Path)) -> Result<()> {
    let (shop, older) = (dir.join("shop"), dir.join("older"));
    let shard = shop.join("a");
    insert(&shop, 1)?;
    copy(&shard, &older);
    assert!(read(&shop)?.unavailable_shards().is_empty());
    insert(&shop, 2)?;
    fs::rename(&shard, dir.join("newer")).expect("renamed");
    copied(&older, &shard).expect("copied");
    Ok(())
}

fn read(shop: &Path) -> Result<Store> {
    Store::options().read_only(true).open(shop)
}

/// Checks that shard `a` is not available to readers, for this reason.
fn refused(shop: &Path, expected: &str) -> Result<()> {
    for _ in 0..2 {
        let store = read(shop)?;
        let unavailable = store.unavailable_shards();
        let [(name, reason)] = &unavailable[..] else { panic!("{unavailable:?}") };
        assert!(name.name() == "a" && reason.contains(expected), "{reason}");
        let members = MemberRepository::open(&store)?;
        let found = members.get_by_email(&store.read()?, "2@11");
        assert!(matches!(found, Err(Error::ShardUnavailable { .. })), "{found:?}");
    }
    Ok(())
}

/// Checks that the store has this number of rows, each with its entry.
fn has(store: &Store, rows: u64) -> Result<()> {
    let members = MemberRepository::open(store)?;
    let txn = store.read()?;
    assert_eq!(members.get_by_email(&txn, "2@11")?, Some(member(11, 2)));
    assert_eq!((members.all(&txn).count()?, members.by_email(&txn).count()?), (rows, rows));
    assert!(members.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn a_reader_finds_that_a_shard_lacks_commits() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, newer) = (dir.path().join("shop"), dir.path().join("newer"));
    replace(dir.path(), |shard, copy| copied(shard, copy).expect("copied"))?;
    refused(&shop, "restore_shard")?;
    fs::remove_dir_all(shop.join("a")).expect("removed");
    fs::rename(&newer, shop.join("a")).expect("renamed");
    has(&read(&shop)?, 4)
}

#[test]
fn a_reader_waits_until_a_writer_has_checked_a_backup_of_a_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    replace(dir.path(), |shard, copy| {
        let alone = Store::options().read_only(true).open(shard).expect("opened");
        alone.backup_to(copy).expect("copied");
    })?;
    refused(&shop, "open the store for writing")?;
    // The writer has not opened the table.
    drop(Store::open(&shop)?);
    let store = read(&shop)?;
    let opened = MemberRepository::open(&store);
    assert!(
        matches!(&opened, Err(Error::ShardUnavailable { shard, .. }) if shard == "a"),
        "{opened:?}"
    );
    drop(store);
    has(&Store::open(&shop)?, 3)?;
    has(&read(&shop)?, 3)
}

/// Attaches shard `c` from a copy with entries of a global index that have been moved away since, and moves rows to it.
fn attach_older(dir: &Path) -> Result<(Store, MemberRepository)> {
    let (shop, older) = (dir.join("shop"), dir.join("older"));
    let options =
        ["a", "b", "c"].into_iter().fold(Store::options(), |it, name| it.shard(name, name));
    let options = options
        .map("members", ShardMap::ranges().to("a", ..10u32).to("b", 10u32..))
        .map("members.email", ShardMap::ranges().to("a", .."0").to("c", "0"..));
    let store = options.open(&shop)?;
    let members = MemberRepository::open(&store)?;
    store.transaction(|txn| {
        [1, 11].into_iter().try_for_each(|tenant| members.insert(txn, &member(tenant, 1)))
    })?;
    drop((store, members));
    copied(&shop.join("c"), &older).expect("copied");

    let store = Store::open(&shop)?;
    let members = MemberRepository::open(&store)?;
    store.move_range("members.email", "0".., "a").run()?;
    store.transaction(|txn| {
        members.delete(txn, 11, 1)?;
        members.insert(txn, &member(11, 2))
    })?;
    store.detach_shard("c")?;
    drop((store, members));
    fs::remove_dir_all(shop.join("c")).expect("removed");
    copied(&older, &shop.join("c")).expect("copied");

    let store = Store::open(&shop)?;
    let members = MemberRepository::open(&store)?;
    store.attach_shard("c", "c")?;
    store.move_range("members", 11u32..12, "c").run()?;
    Ok((store, members))
}

#[test]
fn entries_that_an_older_copy_brings_back_are_never_found() -> Result<()> {
    for is_reopened in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let shop = dir.path().join("shop");
        let (mut store, mut members) = attach_older(dir.path())?;
        if is_reopened {
            drop((store, members));
            // The table was recorded as checked, so the shard has none of these entries.
            has(&read(&shop)?, 2)?;
            store = Store::open(&shop)?;
            members = MemberRepository::open(&store)?;
        }
        store.move_range("members.email", "0".., "c").run()?;
        assert_eq!(members.get_by_email(&store.read()?, "1@11")?, None);
        has(&store, 2)?;
        store.transaction(|txn| members.insert(txn, &member(11, 1)))?;
        has(&store, 3)?;
        drop((store, members));
        has(&Store::open(&shop)?, 3)?;
        has(&read(&shop)?, 3)?;
    }
    Ok(())
}
