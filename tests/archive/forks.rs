//! Two stores that have written to the same archive: a copy of a store was opened with it by mistake.

use std::{path::Path, time::SystemTime};

use index_table::{CommitNumber, Error, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change, directories::copied, fresh, last_commit,
    options, rows_of, shards, wait_for_archive,
};

type Written<R> = std::result::Result<Vec<(CommitNumber, R)>, Box<dyn std::error::Error>>;

fn refused_as_two_copies<T: std::fmt::Debug>(outcome: &index_table::Result<T>) {
    let is_refused = matches!(outcome, Err(Error::NotInArchive { reason, .. })
        if reason.contains("two copies"));
    assert!(is_refused, "{outcome:?}");
}

#[test]
fn a_commit_of_two_copies_of_a_store_is_not_restored_from_either_by_chance() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let archive = dir.path().join("archive");
    let (mut random, mut rows) = (Random(15), Rows::new());
    let mut write = |path: &Path, count: u32, rows: &mut Rows| -> Written<Rows> {
        let store = options(&archive).open(path)?;
        let notes = NoteRepository::open(&store)?;
        let mut commits = Vec::new();
        for _ in 0..count {
            change(&store, &notes, rows, &mut random)?;
            commits.push((last_commit(&store)?, rows.clone()));
        }
        wait_for_archive(&store);
        Ok(commits)
    };
    let before = write(&path, 20, &mut rows)?;
    copied(&path, &copy)?;
    let mut others = rows.clone();
    let original = write(&path, 40, &mut rows)?;
    let time = SystemTime::now();
    // By mistake, the copy is opened with the same archive.
    write(&copy, 20, &mut others)?;
    let restore = |commit: &CommitNumber| {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(commit.clone()).run(&to).map(|_| to)
    };
    for (commit, rows) in [&before[5], &before[19]] {
        assert!(rows_of(&restore(commit)?)? == *rows);
    }
    for (commit, _) in &original[2..18] {
        refused_as_two_copies(&restore(commit));
    }
    // Only the original has these commits.
    for (commit, rows) in &original[25..] {
        assert!(rows_of(&restore(commit)?)? == *rows);
    }
    // At a time, the store is the one that began last before it.
    for (time, rows) in [(time, &rows), (SystemTime::now(), &others)] {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until(time).run(&to)?;
        assert!(rows_of(&to)? == *rows);
    }
    Ok(())
}

#[test]
fn a_commit_of_two_copies_of_a_sharded_store_is_not_restored_by_chance() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let archive = dir.path().join("archive");
    let (mut random, mut rows) = (Random(16), shards::Orders::new());
    let mut write = |path: &Path, count: u32, rows: &mut shards::Orders| -> Written<_> {
        let store = shards::options(&archive).open(path)?;
        let orders = shards::OrderRepository::open(&store)?;
        let mut commits = Vec::new();
        for _ in 0..count {
            shards::change(&store, &orders, rows, &mut random)?;
            commits.push((last_commit(&store)?, rows.clone()));
        }
        wait_for_archive(&store);
        Ok(commits)
    };
    let before = write(&path, 10, &mut rows)?;
    copied(&path, &copy)?;
    let mut others = rows.clone();
    let original = write(&path, 40, &mut rows)?;
    let time = SystemTime::now();
    write(&copy, 15, &mut others)?;

    let rows_in = |to: &Path| shards::rows_in(&Store::open(to)?);
    let restore = |commit: &CommitNumber| {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(commit.clone()).run(&to).map(|_| to)
    };
    for (commit, rows) in [&before[4], &before[9]] {
        assert!(rows_in(&restore(commit)?)? == *rows);
    }
    for (commit, _) in &original[5..8] {
        refused_as_two_copies(&restore(commit));
    }
    for (commit, rows) in &original[35..] {
        assert!(rows_in(&restore(commit)?)? == *rows);
    }
    for (time, rows) in [(time, &rows), (SystemTime::now(), &others)] {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until(time).run(&to)?;
        assert!(rows_in(&to)? == *rows);
    }
    Ok(())
}
