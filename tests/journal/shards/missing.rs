//! Files of a sharded store that are missing, empty, older or shorter than the journal of all shards requires.

use std::{fs, path::Path};

use index_table::{Error, Store};

use crate::directories::files;

use super::{
    NoteRepository, SHARDS, TestResult, create, data_of, expect, killed, options, with_shards,
    write,
};

const STEPS: u32 = 10;

/// Returns the files of a killed store, and a backup of it before the last half of its steps.
fn store(dir: &Path) -> std::result::Result<std::path::PathBuf, Box<dyn std::error::Error>> {
    let path = dir.join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..STEPS {
        if step == STEPS / 2 {
            store.backup_to(dir.join("backup"))?;
        }
        (0..SHARDS).try_for_each(|tenant| write(&store, &notes, tenant, step))?;
    }
    Ok(killed(&path, &dir.join("left"))?)
}

/// Opens the store, of which the last shard must not be available.
fn without_last(path: &Path, reason: &str) -> TestResult {
    let before = fs::read(data_of(path, SHARDS - 1))?;
    let store = options().open(path)?;
    let lost = store.unavailable_shards();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0.name(), "s2");
    assert!(lost[0].1.contains(reason), "{lost:?}");
    assert!(before == fs::read(data_of(path, SHARDS - 1))?, "the data file was changed");
    Ok(())
}

#[test]
fn a_lost_manager_is_not_replaced_by_an_empty_one() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = store(dir.path())?;
    let manager = left.join("data.mdb");
    let whole = fs::read(&manager)?;
    for lost in [None, Some(b"")] {
        match lost {
            None => fs::remove_file(&manager)?,
            Some(empty) => fs::write(&manager, empty)?,
        }
        let before = files(&left)?;
        match options().open(&left) {
            Err(Error::DamagedFile { reason, .. }) => {
                assert!(
                    reason.contains("shards.journal") && reason.contains("rebuild"),
                    "{reason}"
                );
            }
            outcome => panic!("{outcome:?}"),
        }
        // Without declared shards, the store would not be created.
        let outcome = Store::open(&left);
        let is_refused =
            matches!(outcome, Err(Error::DamagedFile { .. } | Error::StoreNotFound { .. }));
        assert!(is_refused, "{outcome:?}");
        assert!(before == files(&left)?, "a file was changed");
    }
    let again = killed(&left, &dir.path().join("again"))?;
    fs::remove_file(again.join("data.mdb"))?;
    drop(with_shards(Store::options()).rebuild(&again)?);
    expect(&Store::open(&again)?, &[STEPS; 3])?;
    fs::write(&manager, whole)?;
    expect(&options().open(&left)?, &[STEPS; 3])
}

#[test]
fn each_file_of_a_needed_journal_must_be_whole() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = store(dir.path())?;
    for at in 0..3 {
        let file = left.join(format!("shards.journal.{at}"));
        let whole = fs::read(&file)?;
        for lost in [None, Some(b"")] {
            match lost {
                None => fs::remove_file(&file)?,
                Some(empty) => fs::write(&file, empty)?,
            }
            let before: Vec<_> = (0..SHARDS)
                .map(|shard| fs::read(data_of(&left, shard)))
                .collect::<Result<_, _>>()?;
            for options in [options(), options().only(["s1"])] {
                let outcome = options.open(&left);
                assert!(matches!(outcome, Err(Error::DamagedFile { .. })), "{at}: {outcome:?}");
            }
            for (shard, before) in (0..).zip(before) {
                assert!(before == fs::read(data_of(&left, shard))?, "a data file was changed");
            }
        }
        fs::write(&file, whole)?;
    }
    expect(&options().open(&left)?, &[STEPS; 3])
}

#[test]
fn an_older_data_file_of_a_shard_is_not_used_beside_later_commits() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = store(dir.path())?;
    let last = data_of(&left, SHARDS - 1);
    let whole = fs::read(&last)?;
    fs::copy(dir.path().join("backup/shard.2/data.mdb"), &last)?;
    without_last(&left, "`restore_shard`")?;
    // The records of the shard are kept, in a file of their own.
    without_last(&left, "`shards.journal.left.2`")?;
    let other = killed(&left, &dir.path().join("other"))?;
    fs::write(&last, whole)?;
    expect(&options().open(&left)?, &[STEPS; 3])?;

    let older = [STEPS, STEPS, STEPS / 2];
    {
        let store = options().open(&other)?;
        let (shard, _) = store.unavailable_shards().remove(0);
        fs::remove_dir_all(other.join("s2"))?;
        store.restore_shard(&shard, dir.path().join("backup/shard.2"))?;
        expect(&store, &older)?;
        let restored = killed(&other, &dir.path().join("killed"))?;
        expect(&options().open(&restored)?, &older)?;
    }
    expect(&options().open(&other)?, &older)
}

#[test]
fn an_older_data_file_of_a_shard_that_lacks_only_deletions_is_not_used() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    create(&path)?;
    let last = SHARDS - 1;
    for deletions in [1, 3] {
        let backup = dir.path().join(format!("backup.{deletions}"));
        let left = {
            let store = options().open(&path)?;
            let notes = NoteRepository::open(&store)?;
            (0..SHARDS).try_for_each(|tenant| write(&store, &notes, tenant, 0))?;
            store.backup_to(&backup)?;
            for id in 1..=deletions {
                store.transaction(|txn| notes.delete(txn, last, id))?;
            }
            killed(&path, &dir.path().join(format!("left.{deletions}")))?
        };
        let whole = fs::read(data_of(&left, last))?;
        fs::copy(backup.join("shard.2/data.mdb"), data_of(&left, last))?;
        without_last(&left, "`restore_shard`")?;
        fs::write(data_of(&left, last), whole)?;
        let store = options().open(&left)?;
        let notes = NoteRepository::open(&store)?;
        assert!(notes.get(&store.read()?, last, deletions)?.is_none());
    }
    Ok(())
}

#[test]
fn a_truncated_data_file_of_a_shard_is_not_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = store(dir.path())?;
    let last = data_of(&left, SHARDS - 1);
    let whole = fs::read(&last)?;
    for length in [4096, 8192, 3 * 4096, 3 * 4096 + 100] {
        fs::write(&last, &whole[..length])?;
        without_last(&left, "")?;
    }
    fs::write(&last, whole)?;
    expect(&options().open(&left)?, &[STEPS; 3])
}

#[test]
fn a_half_written_marker_of_a_shard_loses_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = store(dir.path())?;
    for (round, end) in [1, 8, 9, 20, 50, 63].into_iter().enumerate() {
        let torn = killed(&left, &dir.path().join(format!("{round}")))?;
        for shard in 0..SHARDS {
            let mut data = fs::read(data_of(&torn, shard))?;
            // The end or the start of the marker is written.
            if shard == 0 {
                data[2048 + end..2112].fill(0);
            } else {
                data[2048..2048 + end].fill(0);
            }
            fs::write(data_of(&torn, shard), data)?;
        }
        expect(&options().open(&torn)?, &[STEPS; 3])?;
        expect(&options().open(&torn)?, &[STEPS; 3])?;
    }
    Ok(())
}
