//! Transactions that are too large for the journal, with the default limits.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Options, Store, WriteTxn};

use crate::{Note, NoteRepository, TestResult, killed};

/// Returns a row with more than 1 KiB.
fn note(id: u32, version: u32) -> Note {
    let size = id.wrapping_mul(version + 1) % 97;
    let code = u64::from(id) << 32 | u64::from(version);
    let text = char::from(b'a' + (version % 26) as u8).to_string().repeat(1024);
    Note { id, topic: (id % 251) as u8, title: format!("title {size}"), code, size, text }
}

fn journalled() -> Options {
    Store::options().durability(Durability::Journal)
}

fn put_all(
    txn: &mut WriteTxn<'_>,
    notes: &NoteRepository,
    rows: u32,
    version: u32,
) -> Result<(), Error> {
    (0..rows).try_for_each(|id| notes.put(txn, &note(id, version)))
}

/// The bytes of the journal's files.
fn journal(directory: &Path) -> std::io::Result<u64> {
    let length = |at| fs::metadata(directory.join(format!("journal.{at}"))).map(|file| file.len());
    (0..3).map(length).sum()
}

/// Checks the rows of a copy of a store that was not closed.
fn expect(store: &Path, versions: &[u32]) -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = journalled().open(killed(store, dir.path())?)?;
    store.check()?;
    let notes = NoteRepository::open(&store)?;
    let txn = store.read()?;
    assert!(notes.verify(&txn).run()?.is_clean());
    let expected = (0..).zip(versions).map(|(id, version)| note(id, *version));
    assert!(notes.all(&txn).rows().map_while(Result::ok).eq(expected));
    assert_eq!(notes.all(&txn).count()?, versions.len() as u64);
    Ok(())
}

#[test]
fn a_large_transaction_is_not_written_to_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = journalled().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let mut versions = vec![0; 8_000];
    store.transaction(|txn| put_all(txn, &notes, 8_000, 0))?;
    assert!(journal(&path)? < 5 << 20, "{}", journal(&path)?);
    expect(&path, &versions)?;
    // Small transactions after it.
    for id in 0..20 {
        store.transaction(|txn| notes.put(txn, &note(id, 1)))?;
        versions[id as usize] = 1;
    }
    expect(&path, &versions)?;
    // A small transaction is between two large ones, and a reader has the state before.
    let before = store.read()?;
    for version in 2..4 {
        store.transaction(|txn| put_all(txn, &notes, 8_000, version))?;
        versions.fill(version);
        expect(&path, &versions)?;
        store.transaction(|txn| notes.put(txn, &note(5, version + 10)))?;
        versions[5] = version + 10;
        expect(&path, &versions)?;
    }
    assert_eq!(notes.get(&before, 7_999)?, Some(note(7_999, 0)));
    drop(before);
    // The limit has grown with the store.
    assert!(journal(&path)? < 60 << 20, "{}", journal(&path)?);
    drop((notes, store));
    expect(&path, &versions)
}

#[test]
fn a_large_transaction_is_rolled_back() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = journalled().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| put_all(txn, &notes, 10, 0))?;
    let rolled_back = store.transaction(|txn| {
        put_all(txn, &notes, 4_000, 1)?;
        Err::<(), _>(Error::WriteInProgress)
    });
    assert!(rolled_back.is_err());
    expect(&path, &[0; 10])?;
    store.transaction(|txn| notes.put(txn, &note(3, 2)))?;
    let mut versions = vec![0; 10];
    versions[3] = 2;
    expect(&path, &versions)?;
    // The nested transaction is too large for the journal, and what remains is not.
    store.transaction(|txn| {
        notes.put(txn, &note(4, 3))?;
        let nested = txn.nested(|txn| {
            put_all(txn, &notes, 4_000, 1)?;
            Err::<(), _>(Error::WriteInProgress)
        });
        assert!(nested.is_err());
        notes.put(txn, &note(5, 3))
    })?;
    (versions[4], versions[5]) = (3, 3);
    expect(&path, &versions)?;
    // Nothing remains.
    store.transaction(|txn| {
        let nested = txn.nested(|txn| {
            put_all(txn, &notes, 4_000, 1)?;
            Err::<(), _>(Error::WriteInProgress)
        });
        assert!(nested.is_err());
        Ok::<_, Error>(())
    })?;
    expect(&path, &versions)?;
    store.transaction(|txn| notes.put(txn, &note(6, 4)))?;
    versions[6] = 4;
    expect(&path, &versions)?;
    drop((notes, store));
    expect(&path, &versions)
}

#[test]
fn a_bulk_load_is_not_written_to_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    // The map is enlarged during the load.
    let store = journalled().map_size(1 << 20).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let rows = 10_000;
    notes.bulk_load(&store, (0..rows).map(|id| note(id, 0))).run()?;
    assert!(journal(&path)? < 5 << 20, "{}", journal(&path)?);
    expect(&path, &vec![0; rows as usize])
}

#[test]
fn a_large_transaction_waits_for_a_checkpoint_in_progress() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    // Each commit begins a checkpoint, if none is in progress.
    let store = journalled().checkpoint(4096, 4096, Duration::from_mins(1)).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let begun = Instant::now();
    let mut versions = vec![0; 2_000];
    for version in 0..10 {
        store.transaction(|txn| put_all(txn, &notes, 100, version))?;
        store.transaction(|txn| put_all(txn, &notes, 2_000, version))?;
        versions.fill(version);
        if begun.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    expect(&path, &versions)
}
