//! Journals that are damaged, torn or missing.

use std::{fs, path::Path};

use index_table::{Error, Result, Store};

use super::{
    NoteRepository, SHARDS, TestResult, create, data_of, expect, expect_of, killed, options, write,
};

/// Returns the files of a killed store whose data files lack all commits since the checkpoint, and the number
/// of the file with the records.
fn store(dir: &Path) -> Result<(std::path::PathBuf, u8), Box<dyn std::error::Error>> {
    let path = dir.join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let old = killed(&path, &dir.join("old"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..10 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
        }
    }
    let left = killed(&path, &dir.join("left"))?;
    for shard in 0..SHARDS {
        fs::copy(data_of(&old, shard), data_of(&left, shard))?;
    }
    let newest = |file: &u8| super::segment(&left, *file).unwrap_or_default();
    let file = (0..3).max_by_key(newest).unwrap_or_default();
    Ok((left, file))
}

/// Returns the positions of the frames.
fn frames(journal: &[u8]) -> Vec<usize> {
    (4096..journal.len() - 4).step_by(8).filter(|at| &journal[*at..at + 4] == b"itJF").collect()
}

#[test]
fn a_torn_tail_ends_the_journal_of_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (left, file) = store(dir.path())?;
    let file = left.join(format!("shards.journal.{file}"));
    let whole = fs::read(&file)?;
    let frames = frames(&whole);
    assert_eq!(frames.len(), 30);
    for count in [0, 1, 2, 14, 28, 29] {
        let mut torn = whole.clone();
        // The tail is torn from the middle of a frame.
        torn[frames[count] + 60..].fill(0);
        fs::write(&file, torn)?;
        let image = killed(&left, &dir.path().join(format!("{count}")))?;
        let store = options().open(&image)?;
        let count = count as u32;
        expect(&store, &[count.div_ceil(3), (count + 1) / 3, count / 3])?;
    }
    Ok(())
}

#[test]
fn damage_before_durable_records_is_an_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (left, file) = store(dir.path())?;
    let file = left.join(format!("shards.journal.{file}"));
    let whole = fs::read(&file)?;
    let frames = frames(&whole);
    for count in [0, 10, 27] {
        let mut damaged = whole.clone();
        damaged[frames[count] + 90] ^= 4;
        fs::write(&file, damaged)?;
        let before = fs::read(data_of(&left, 0))?;
        for options in [options(), options().only(["s1"])] {
            let outcome = options.open(&left);
            assert!(
                matches!(&outcome, Err(Error::DamagedFile { reason, .. }) if reason.contains("durable")),
                "{outcome:?}"
            );
        }
        assert!(before == fs::read(data_of(&left, 0))?, "a data file was changed");
    }
    fs::write(&file, whole)?;
    expect(&options().open(&left)?, &[10; 3])
}

#[test]
fn a_missing_journal_is_detected() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (left, _) = store(dir.path())?;
    for file in 0..3 {
        fs::remove_file(left.join(format!("shards.journal.{file}")))?;
    }
    let outcome = options().open(&left);
    assert!(
        matches!(&outcome, Err(Error::DamagedFile { reason, .. }) if reason.contains("missing")),
        "{outcome:?}"
    );
    Ok(())
}

#[test]
fn records_are_not_applied_to_an_old_data_file_of_a_shard() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (left, _) = store(dir.path())?;
    // Another data file of the same shard, with the same marker.
    let other = killed(&left, &dir.path().join("other"))?;
    {
        let store = options().open(&other)?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 1, 10)?;
    }
    let marker = fs::read(data_of(&left, 1))?[2048..2112].to_vec();
    let mut data = fs::read(data_of(&other, 1))?;
    data[2048..2112].copy_from_slice(&marker);
    fs::write(data_of(&left, 1), data)?;
    let store: Store = options().open(&left)?;
    let lost = store.unavailable_shards();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].1.contains("not the file that its journal was written for"), "{lost:?}");
    let notes = NoteRepository::open(&store)?;
    expect_of(&notes, &store.read()?, 0, 10)?;
    Ok(())
}
