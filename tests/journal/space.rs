//! The space that a store with a journal takes on disk, with the default limits.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use index_table::{Durability, Options, Store};

use crate::{Note, NoteRepository, TestResult};

/// Returns a row whose index entries are all at other places than those of its neighbours.
fn note(id: u32, version: u32) -> Note {
    let random = id.wrapping_mul(2_654_435_761) ^ version.wrapping_mul(40_503);
    Note {
        id,
        topic: (random % 251) as u8,
        title: format!("title {random}"),
        code: u64::from(id) << 32 | u64::from(random),
        size: random % 9_973,
        text: "x".repeat(60),
    }
}

fn journalled() -> Options {
    Store::options().durability(Durability::Journal)
}

fn bytes(directory: &Path, is_counted: impl Fn(&str) -> bool) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_counted(&entry.file_name().to_string_lossy()) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

#[test]
fn a_small_store_stays_small() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = journalled().open(dir.path())?;
    let notes = NoteRepository::open(&store)?;
    let rows = 2_500;
    store.transaction(|txn| (0..rows).try_for_each(|id| notes.insert(txn, &note(id, 0))))?;
    // Single changes, and changes of many rows at different places.
    let mut most = 0;
    for version in 1..400 {
        for id in 0..10 {
            store.transaction(|txn| notes.put(txn, &note((id * 271 + version) % rows, version)))?;
        }
        store.transaction(|txn| {
            (0..40).try_for_each(|id| notes.put(txn, &note((id * 61 + version) % rows, version)))
        })?;
        notes.drain(&store, u64::MAX)?;
        most = most.max(bytes(dir.path(), |_| true)?);
    }
    let copy = dir.path().join("copy");
    store.compact_to(&copy)?;
    let data = bytes(&copy, |name| name == "data.mdb")?;
    println!("{data} bytes of data, {most} bytes on disk");
    assert!(data > 700 << 10, "{data}");
    assert!(most <= 8 << 20, "{most} bytes on disk for {data} bytes of data");
    Ok(())
}

/// Returns the bytes of the blocks that the files of a directory have on the disk.
#[cfg(unix)]
fn allocated(directory: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

/// With the default durability. A container has 64 MiB of `/dev/shm`.
#[cfg(unix)]
#[test]
fn ten_small_stores_fit_into_64_mib() -> TestResult {
    let dir = tempfile::tempdir()?;
    let paths: Vec<_> = (0..10).map(|at| dir.path().join(at.to_string())).collect();
    let mut stores = Vec::new();
    for path in &paths {
        let store = Store::open(path)?;
        let notes = NoteRepository::open(&store)?;
        for first in (0..3_600).step_by(900) {
            let mut ids = first..first + 900;
            store.transaction(|txn| ids.try_for_each(|id| notes.insert(txn, &note(id, 0))))?;
        }
        for id in 0..20 {
            store.transaction(|txn| notes.put(txn, &note(id * 171, 1)))?;
        }
        stores.push((store, notes));
    }
    let sizes: Vec<_> = paths.iter().map(|path| allocated(path)).collect::<Result<_, _>>()?;
    let copy = dir.path().join("copy");
    stores[0].0.compact_to(&copy)?;
    let data = bytes(&copy, |name| name == "data.mdb")?;
    println!("{data} bytes of data, {sizes:?} bytes on disk");
    assert!(data >= 1 << 20, "{data}");
    assert!(sizes.iter().all(|size| *size <= 8 << 20), "{sizes:?} bytes on disk");
    assert!(sizes.iter().sum::<u64>() < 64 << 20, "{sizes:?} bytes on disk");
    Ok(())
}

/// Loads rows in transactions, and updates some of them. Returns the length of the data file.
fn length_after_updates(options: &Options) -> Result<u64, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = options.open(dir.path())?;
    let notes = NoteRepository::open(&store)?;
    let rows = 50_000;
    for first in (0..rows).step_by(1_000) {
        let mut ids = first..first + 1_000;
        store.transaction(|txn| ids.try_for_each(|id| notes.insert(txn, &note(id, 0))))?;
    }
    for first in (0..2_800).step_by(28) {
        let mut ids = first..first + 28;
        store
            .transaction(|txn| ids.try_for_each(|id| notes.put(txn, &note(id * 271 % rows, 1))))?;
    }
    Ok(bytes(dir.path(), |name| name == "data.mdb")?)
}

/// Writers wait at twice a limit, so the result hardly depends on the speed of the disk.
#[test]
fn pages_that_checkpoints_keep_are_used_again() -> TestResult {
    let without = length_after_updates(&Store::options().durability(Durability::Full))?;
    let limits = journalled().checkpoint(1 << 20, 1 << 19, Duration::from_mins(1));
    let with = length_after_updates(&limits)?;
    println!("{with} bytes with checkpoints, {without} bytes without");
    assert!(with < without * 8 / 5, "{with} bytes with checkpoints, {without} bytes without");
    Ok(())
}

#[test]
fn a_journal_with_an_archive_shrinks() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let open = || journalled().archive(&archive).open(&path);
    let store = open()?;
    let notes = NoteRepository::open(&store)?;
    let longest = || bytes(&path, |name: &str| name.starts_with("journal."));
    let large = |txn: &mut index_table::WriteTxn<'_>, from: u32| {
        (from..from + 100)
            .try_for_each(|version| (0..300).try_for_each(|id| notes.put(txn, &note(id, version))))
    };
    store.transaction(|txn| large(txn, 0))?;
    assert!(longest()? > 6 << 20);
    notes.drain(&store, u64::MAX)?;
    let started = Instant::now();
    while longest()? > 3 << 20 {
        assert!(started.elapsed() < Duration::from_mins(1), "{}", longest()?);
        store.transaction(|txn| notes.put(txn, &note(1, 99)))?;
    }
    // The last transaction is large.
    store.transaction(|txn| large(txn, 100))?;
    let generation = |from: &Path| -> std::io::Result<usize> {
        let names = fs::read_dir(from)?.filter_map(|it| it.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with("base.")).count())
    };
    drop((notes, store));
    assert!(longest()? <= 6 << 20, "{}", longest()?);
    let bases = generation(&archive)?;
    // The archive continues without a gap.
    let store = open()?;
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| notes.put(txn, &note(301, 1)))?;
    drop((notes, store));
    assert_eq!(generation(&archive)?, bases);
    let restored = dir.path().join("restored");
    Store::restore_archive(&archive).run(&restored)?;
    let store = Store::open(&restored)?;
    let notes = NoteRepository::open(&store)?;
    assert_eq!(notes.get(&store.read()?, 0)?, Some(note(0, 199)));
    assert_eq!(notes.all(&store.read()?).count()?, 301);
    Ok(())
}
