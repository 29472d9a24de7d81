//! Restoring the state after any commit.

use std::time::{Duration, SystemTime};

use index_table::{CommitNumber, Error, Store};

use crate::{
    Note, NoteRepository, Random, Rows, TestResult, change, fresh, last_commit, note, options,
    rows_of, wait_for_archive,
};

#[test]
fn a_restore_to_any_commit_has_the_rows_of_that_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(1), Rows::new());
    let mut then: Vec<(CommitNumber, Rows)> = Vec::new();
    // The store is closed and opened several times.
    for _ in 0..4 {
        let store = options(&archive).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        wait_for_archive(&store);
        for _ in 0..100 {
            change(&store, &notes, &mut rows, &mut random)?;
            then.push((last_commit(&store)?, rows.clone()));
        }
    }
    let to = fresh(dir.path(), "restored");
    assert_eq!(Store::restore_archive(&archive).run(&to)?, then[399].0);
    assert!(rows_of(&to)? == rows);
    for _ in 0..40 {
        let (commit, rows) = &then[random.below(400) as usize];
        let to = fresh(dir.path(), "restored");
        let last = Store::restore_archive(&archive).until_commit(commit.clone()).run(&to)?;
        assert_eq!(last, *commit);
        assert!(rows_of(&to)? == *rows, "after commit {commit}");
    }
    Ok(())
}

#[test]
fn a_restored_store_can_be_written_and_archived_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(2), Rows::new());
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for _ in 0..50 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    let (middle, rows_then) = (last_commit(&store)?, rows.clone());
    for _ in 0..50 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    drop((store, notes));
    let second = dir.path().join("second");
    Store::restore_archive(&archive).until_commit(middle.clone()).run(&second)?;

    let mut rows = rows_then.clone();
    let store = options(&archive).open(&second)?;
    let notes = NoteRepository::open(&store)?;
    for _ in 0..20 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    wait_for_archive(&store);
    drop((store, notes));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).until_commit(middle).run(&to)?;
    assert!(rows_of(&to)? == rows_then);
    Ok(())
}

#[test]
fn a_restore_to_a_time_has_the_commits_up_to_that_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(3), Rows::new());
    let before = SystemTime::now() - Duration::from_secs(1);
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    let mut then = Vec::new();
    for _ in 0..3 {
        for _ in 0..10 {
            change(&store, &notes, &mut rows, &mut random)?;
        }
        then.push((SystemTime::now(), rows.clone()));
    }
    drop((store, notes));
    for (time, rows) in then {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until(time).run(&to)?;
        assert!(rows_of(&to)? == rows);
    }
    let to = fresh(dir.path(), "restored");
    let outcome = Store::restore_archive(&archive).until(before).run(&to);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    assert!(!to.exists());
    Ok(())
}

#[test]
fn a_restore_to_a_moment_between_two_commits_has_the_first_of_them() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    let mut then = Vec::new();
    // Some of these commits are in the same millisecond.
    for id in 0..100 {
        store.transaction(|txn| notes.insert(txn, &crate::note(id, 0)))?;
        then.push((SystemTime::now(), id));
    }
    drop((store, notes));
    for (moment, id) in then.into_iter().step_by(3) {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until(moment).run(&to)?;
        assert_eq!(rows_of(&to)?.into_keys().last(), Some(id));
    }
    Ok(())
}

#[test]
fn an_open_store_is_archived_within_a_moment_and_without_a_close() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(4), Rows::new());
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for round in 0..3 {
        for _ in 0..30 {
            change(&store, &notes, &mut rows, &mut random)?;
        }
        wait_for_archive(&store);
        let to = dir.path().join(format!("restored {round}"));
        let mut done = 0;
        let restore = Store::restore_archive(&archive).progress(|at| {
            assert!(at.done > done);
            done = at.done;
        });
        assert_eq!(restore.run(&to)?, last_commit(&store)?);
        assert!(done > 0);
        assert!(rows_of(&to)? == rows);
    }
    Ok(())
}

#[test]
fn a_commit_that_is_not_in_the_archive_is_an_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(5), Rows::new());
    let write = |options: index_table::Options, rows: &mut Rows, random: &mut Random| {
        let store = options.open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for _ in 0..10 {
            change(&store, &notes, rows, random)?;
        }
        if store.archive_lag().is_some() {
            wait_for_archive(&store);
        }
        last_commit(&store)
    };
    let first = write(options(&archive), &mut rows, &mut random)?;
    let rows_then = rows.clone();
    // Without the archive, with the journal and without it.
    let plain = || Store::options().durability(index_table::Durability::Journal);
    let gap = write(plain().without_archive(), &mut rows, &mut random)?;
    write(plain(), &mut rows, &mut random)?;
    write(Store::options(), &mut rows, &mut random)?;
    let last = write(options(&archive), &mut rows, &mut random)?;

    let to = fresh(dir.path(), "restored");
    for missing in [gap, CommitNumber::from(1_000_000)] {
        let outcome = Store::restore_archive(&archive).until_commit(missing).run(&to);
        assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
        assert!(!to.exists());
    }
    Store::restore_archive(&archive).until_commit(first).run(&to)?;
    assert!(rows_of(&to)? == rows_then);
    let to = fresh(dir.path(), "restored");
    assert_eq!(Store::restore_archive(&archive).run(&to)?, last);
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_large_transaction_is_archived_whole() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    let mut rows = Rows::new();
    let before = last_commit(&store)?;
    // Its record has several parts. The part of a transaction that is rolled back is overwritten.
    let large = |version: u32| (0..6000).map(move |id| crate::note(id, version));
    let mut txn = store.write()?;
    for note in large(1) {
        notes.put(&mut txn, &note)?;
    }
    drop(txn);
    store.transaction(|txn| large(2).try_for_each(|note| notes.put(txn, &note).map(drop)))?;
    rows.extend(large(2).map(|note| (note.id, note)));
    drop((store, notes));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).until_commit(before).run(&to)?;
    assert!(rows_of(&to)?.is_empty());
    Ok(())
}

#[test]
fn a_restore_has_the_unique_keys_that_rows_have_exchanged() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let mut commits = Vec::new();
    {
        let store = options(&archive).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        store.transaction(|txn| (0..4).try_for_each(|id| notes.insert(txn, &note(id, 0))))?;
        wait_for_archive(&store);
        let mut codes = [0, 1, 2, 3].map(|id| note(id, 0).code);
        for round in 0..10 {
            let (one, other) = (round % 4, (round * 3 + 1) % 4);
            codes.swap(one, other);
            let with = |at: usize, code| Note { code, ..note(at as u32, 0) };
            store.transaction(|txn| {
                notes.put(txn, &with(one, 7))?;
                notes.put(txn, &with(other, codes[other]))?;
                notes.put(txn, &with(one, codes[one]))
            })?;
            commits.push((last_commit(&store)?, codes));
        }
    }
    for (commit, codes) in commits {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(commit).run(&to)?;
        let store = Store::open(&to)?;
        let notes = NoteRepository::open(&store)?;
        let txn = store.read()?;
        for (id, code) in (0..).zip(codes) {
            assert_eq!(notes.get_by_code(&txn, code)?.map(|note| note.id), Some(id));
        }
        assert!(notes.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
