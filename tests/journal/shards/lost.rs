//! Shards that are missing when the store is opened after a kill.

use std::fs;

use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{
    NoteRepository, SHARDS, TestResult, create, data_of, expect, expect_of, killed,
    many_checkpoints, note, options, segment, write,
};

/// Returns the files of a killed store. Its data files lack all of these steps of each shard.
fn store(
    dir: &std::path::Path,
    steps: u32,
) -> Result<std::path::PathBuf, Box<dyn std::error::Error>> {
    let path = dir.join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let old = killed(&path, &dir.join("old"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..steps {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
        }
    }
    let left = killed(&path, &dir.join("left"))?;
    for shard in 0..SHARDS {
        fs::copy(data_of(&old, shard), data_of(&left, shard))?;
    }
    Ok(left)
}

/// Commits until every segment is reused, while the last shard is missing.
fn go_on(store: &Store, path: &std::path::Path, from: u32) -> TestResult {
    assert_eq!(store.unavailable_shards().len(), 1);
    let notes = NoteRepository::open(store)?;
    for step in from..from + 100 {
        for tenant in 0..2 {
            write(store, &notes, tenant, step)?;
        }
    }
    let txn = store.read()?;
    for tenant in 0..2 {
        expect_of(&notes, &txn, tenant, from + 100)?;
    }
    assert!(matches!(notes.get(&txn, 2, 1), Err(Error::ShardUnavailable { .. })));
    assert!((0..3).all(|file| segment(path, file).is_ok_and(|segment| segment > 5)));
    Ok(())
}

#[test]
fn a_missing_shard_gets_its_commits_when_it_returns() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = store(dir.path(), 10)?;
    let (place, away) = (path.join("s2"), dir.path().join("away"));
    fs::rename(&place, &away)?;
    for round in 0..3 {
        let left = {
            let store = many_checkpoints().open(&path)?;
            go_on(&store, &path, 10 + round * 100)?;
            killed(&path, &dir.path().join(format!("{round}")))?
        };
        // The shard returns after the store was closed, or after a kill.
        killed(&away, &left.join("s2"))?;
        let store = options().open(&left)?;
        expect(&store, &[110 + round * 100, 110 + round * 100, 10])?;
        assert!(!left.join("shards.journal.left.2").exists());
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 2, 10)?;
        let again = killed(&left, &dir.path().join(format!("again {round}")))?;
        expect(&options().open(&again)?, &[110 + round * 100, 110 + round * 100, 11])?;
    }
    assert!(fs::metadata(path.join("shards.journal.left.2"))?.len() < 2 << 20);
    fs::rename(&away, &place)?;
    expect(&options().open(&path)?, &[310, 310, 10])
}

#[test]
fn a_shard_missing_in_recovery_gets_its_commits_later() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = store(dir.path(), 10)?;
    {
        let store = many_checkpoints().only(["s0", "s1"]).open(&path)?;
        go_on(&store, &path, 10)?;
    }
    // Then the missing shard is opened without the others.
    {
        let store = options().only(["s2"]).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        expect_of(&notes, &store.read()?, 2, 10)?;
        write(&store, &notes, 2, 10)?;
    }
    expect(&options().open(&path)?, &[110, 110, 11])
}

/// Notes without the unique index.
mod without_index {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", shard_by = tenant)]
    pub(super) struct Note {
        #[primary_key]
        pub(super) tenant: u8,
        #[primary_key]
        pub(super) id: u32,
        pub(super) topic: u8,
        pub(super) title: String,
        pub(super) code: u64,
        pub(super) size: u32,
        pub(super) text: String,
    }
}

/// Writes into a backup of the last shard, so that it can't be restored: a row of another shard, or two rows with a unique key.
fn spoil(backup: &std::path::Path, is_foreign: bool) -> TestResult {
    let alone = Store::open(backup)?;
    if is_foreign {
        let notes = NoteRepository::open(&alone)?;
        return Ok(alone.transaction(|txn| notes.insert(txn, &note(0, 1, 0)))?);
    }
    let notes = without_index::NoteRepository::open(&alone)?;
    let super::Note { tenant, topic, title, code, size, text, .. } = note(2, 1, 0);
    Ok(alone.transaction(|txn| {
        (1000..1002).try_for_each(|id| {
            let (title, text) = (title.clone(), text.clone());
            notes.insert(txn, &without_index::Note { tenant, id, topic, title, code, size, text })
        })
    })?)
}

#[test]
fn a_backup_that_is_not_restored_leaves_the_commits_of_the_lost_shard() -> TestResult {
    for is_foreign in [true, false] {
        let dir = tempfile::tempdir()?;
        let path = store(dir.path(), 10)?;
        let (place, away) = (path.join("s2"), dir.path().join("away"));
        let backup = dir.path().join("backup");
        {
            let copy = killed(&path, &dir.path().join("copy"))?;
            drop(options().open(&copy)?);
            Store::restore(copy.join("s2"), &backup)?;
        }
        spoil(&backup, is_foreign)?;
        fs::rename(&place, &away)?;
        let mut steps = 10;
        let left = {
            let store = many_checkpoints().open(&path)?;
            let notes = NoteRepository::open(&store)?;
            let (lost, _) = store.unavailable_shards().remove(0);
            for _ in 0..2 {
                let refused = store.restore_shard(&lost, &backup);
                match refused {
                    Err(Error::ShardRefused { .. }) if is_foreign => {}
                    Err(Error::UniqueViolation { index: "tenant_code", .. }) if !is_foreign => {}
                    refused => return Err(format!("{refused:?}").into()),
                }
                assert!(!place.exists() && path.join("shards.journal.left.2").exists());
                for tenant in 0..2 {
                    write(&store, &notes, tenant, steps)?;
                }
                steps += 1;
            }
            killed(&path, &dir.path().join("killed"))?
        };
        // The directory comes back after a kill, and after the store was closed.
        killed(&away, &left.join("s2"))?;
        fs::rename(&away, &place)?;
        for path in [left, path] {
            expect(&options().open(&path)?, &[steps, steps, 10])?;
            assert!(!path.join("shards.journal.left.2").exists());
        }
    }
    Ok(())
}

#[test]
fn a_restored_shard_gets_no_records_of_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = store(dir.path(), 10)?;
    let old = dir.path().join("backup");
    // The backup is the shard of a closed copy, without the later commits.
    {
        let copy = killed(&path, &dir.path().join("copy"))?;
        drop(options().open(&copy)?);
        fs::rename(copy.join("s2"), &old)?;
    }
    fs::remove_dir_all(path.join("s2"))?;
    {
        let store = many_checkpoints().open(&path)?;
        go_on(&store, &path, 10)?;
    }
    fs::rename(old, path.join("s2"))?;
    expect(&options().open(&path)?, &[110, 110, 10])
}
