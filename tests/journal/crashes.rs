use std::fs;

use index_table::{Durability, Error, Store};

use crate::{NoteRepository, TestResult, expect, killed, many_checkpoints, options, write};

#[test]
fn a_store_that_is_closed_and_opened_has_its_commits() -> TestResult {
    let dir = tempfile::tempdir()?;
    for round in 0..3 {
        let store = options().open(dir.path())?;
        expect(&store, round * 10)?;
        let notes = NoteRepository::open(&store)?;
        for step in round * 10..round * 10 + 10 {
            write(&store, &notes, step)?;
        }
        expect(&store, round * 10 + 10)?;
    }
    // A closed store needs nothing of the journal.
    for at in 0..3 {
        fs::remove_file(dir.path().join(format!("journal.{at}")))?;
    }
    expect(&Store::open(dir.path())?, 30)
}

#[test]
fn commits_of_a_killed_process_are_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = options().open(dir.path().join("store"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..40 {
        write(&store, &notes, step)?;
        if step % 8 == 3 {
            let left = killed(&dir.path().join("store"), &dir.path().join(format!("{step}")))?;
            for durability in [Durability::Journal, Durability::Full] {
                expect(&Store::options().durability(durability).open(&left)?, step + 1)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_data_file_without_writes_since_the_checkpoint_is_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    drop((store, notes));
    let store = options().open(&path)?;
    let old = fs::read(path.join("data.mdb"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..60 {
        write(&store, &notes, step)?;
    }
    let left = killed(&path, &dir.path().join("left"))?;
    fs::write(left.join("data.mdb"), old)?;
    // The process may be killed during recovery too.
    for _ in 0..2 {
        let again = killed(&left, &tempfile::tempdir_in(dir.path())?.keep())?;
        expect(&options().open(&again)?, 60)?;
    }
    let store = options().open(&left)?;
    expect(&store, 60)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, 60)?;
    expect(&store, 61)
}

#[test]
fn checkpoints_run_concurrently_with_writers() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = many_checkpoints().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..300 {
        write(&store, &notes, step)?;
        if step % 50 == 49 {
            let left = killed(&path, &dir.path().join(format!("{step}")))?;
            expect(&options().open(&left)?, step + 1)?;
        }
    }
    // Each checkpoint starts a segment.
    let head = fs::read(path.join("journal.1"))?;
    let sequence = u64::from_le_bytes(head[48..56].try_into()?);
    assert!(sequence > 10, "segment {sequence}");
    assert!(fs::metadata(path.join("journal.1"))?.len() < 4 << 20);
    drop((store, notes));
    expect(&Store::open(&path)?, 300)
}

#[test]
fn large_transactions_are_recorded_in_parts() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let many = |from: u32| (from..from + 3000).map(|id| crate::note(id, 0));
    // A transaction is rolled back after some parts of its record were written.
    let rolled_back: Result<(), Error> = store.transaction(|txn| {
        many(0).try_for_each(|row| notes.insert(txn, &row))?;
        Err(Error::WriteInProgress)
    });
    assert!(rolled_back.is_err());
    store.transaction(|txn| many(10_000).try_for_each(|row| notes.insert(txn, &row)))?;
    notes.bulk_load(&store, many(20_000)).run()?;
    // One of two nested transactions is rolled back.
    store.transaction(|txn| {
        for (at, from) in [(0, 30_000), (1, 40_000), (2, 50_000)] {
            let outcome = txn.nested(|txn| {
                many(from).try_for_each(|row| notes.insert(txn, &row))?;
                if at == 1 { Err(Error::WriteInProgress) } else { Ok(()) }
            });
            assert_eq!(outcome.is_err(), at == 1);
        }
        Ok(())
    })?;
    let left = killed(&path, &dir.path().join("left"))?;
    let store = options().open(&left)?;
    let notes = NoteRepository::open(&store)?;
    let txn = store.read()?;
    store.check()?;
    let ids = notes.all(&txn).keys().collect::<Result<Vec<_>, _>>()?;
    let expected = [10_000, 20_000, 30_000, 50_000];
    assert!(ids.into_iter().eq(expected.iter().flat_map(|from| *from..from + 3000)));
    assert!(notes.verify(&txn).run()?.is_clean());
    Ok(())
}
