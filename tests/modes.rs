//! The modes of the files and directories of a store.

#![cfg(unix)]

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use index_table::{Durability, Error, IndexTable, Options, ShardMap, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = id, shard_map = "items")]
struct Item {
    #[primary_key]
    id: u32,
}

/// Returns the distinct modes of the directory and of all files and directories in it.
fn modes(path: &Path) -> io::Result<Vec<u32>> {
    let mode = |path: &Path| fs::metadata(path).map(|entry| entry.permissions().mode() & 0o7777);
    let mut modes = vec![mode(path)?];
    for entry in fs::read_dir(path)? {
        modes.push(mode(&entry?.path())?);
    }
    modes.sort_unstable();
    modes.dedup();
    Ok(modes)
}

/// Sets the strictest umask. The tested modes must not depend on it.
fn restrict_new_files() {
    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    // SAFETY: all tests of this process set the same mask, and no memory is passed.
    unsafe {
        libc::umask(0o077)
    };
}

fn for_a_group() -> Options {
    Store::options().directory_mode(0o2770).file_mode(0o660)
}

#[test]
fn new_files_and_directories_have_the_given_modes() -> TestResult {
    restrict_new_files();
    for durability in [Durability::Full, Durability::Journal] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("new/store");
        let store = for_a_group().durability(durability).open(&path)?;
        let items = ItemRepository::open(&store)?;
        store.transaction(|txn| items.insert(txn, &Item { id: 1 }))?;
        assert_eq!(modes(&path)?, [0o660, 0o2770], "{durability:?}");
        assert_eq!(modes(&dir.path().join("new"))?, [0o2770]);
        // A copy has them as well.
        store.backup_to(dir.path().join("copy"))?;
        assert_eq!(modes(&dir.path().join("copy"))?, [0o660, 0o2770]);
    }
    Ok(())
}

#[test]
fn existing_files_keep_their_modes() -> TestResult {
    restrict_new_files();
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    drop(Store::open(&path)?);
    assert_eq!(modes(&path)?, [0o600, 0o700]);
    drop(for_a_group().durability(Durability::Journal).open(&path)?);
    assert_eq!(modes(&path)?, [0o600, 0o700]);
    Ok(())
}

#[test]
fn each_shard_has_its_modes() -> TestResult {
    restrict_new_files();
    let dir = tempfile::tempdir()?;
    let store = for_a_group()
        .shard("north", "north")
        .shard_with("vault", "vault", Store::options().directory_mode(0o750).file_mode(0o640))
        .map("items", ShardMap::ranges().to("north", ..100_u32).to("vault", 100_u32..))
        .durability(Durability::Journal)
        .open(dir.path().join("shop"))?;
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| {
        items.insert(txn, &Item { id: 1 })?;
        items.insert(txn, &Item { id: 100 })
    })?;
    assert_eq!(modes(&dir.path().join("shop/north"))?, [0o660, 0o2770]);
    assert_eq!(modes(&dir.path().join("shop/vault"))?, [0o640, 0o750]);
    // The shard map manager, the journal of all shards, and the directories.
    assert_eq!(modes(&dir.path().join("shop"))?, [0o660, 0o750, 0o2770]);
    Ok(())
}

#[test]
fn modes_that_exclude_the_owner_are_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    let refused = [
        Store::options().file_mode(0o440),
        Store::options().file_mode(0o4600),
        Store::options().directory_mode(0o070),
        Store::options().directory_mode(0o10700),
    ];
    for options in refused {
        let Err(Error::Io { source, .. }) = options.open(dir.path().join("store")) else {
            panic!("{options:?}");
        };
        assert_eq!(source.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(!dir.path().join("store").exists());
    Ok(())
}
