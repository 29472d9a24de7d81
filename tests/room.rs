//! Maps that are full, or too small because another process has enlarged the store.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use index_table::{Durability, Error, IndexTable, Options, Store};
use serde::{Deserialize, Serialize};

#[path = "support/threads.rs"]
mod support;
use support::{Threads, await_true};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(group)]
struct Blob {
    #[primary_key]
    id: u32,
    group: u8,
    bytes: Vec<u8>,
}

/// The same table with another index.
mod indexed {
    use super::{Deserialize, IndexTable, Serialize};

    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(group)]
    #[index(group, strategy = "full", name = "whole", allow(redundant))]
    pub(crate) struct Blob {
        #[primary_key]
        id: u32,
        group: u8,
        bytes: Vec<u8>,
    }
}

const SMALL: usize = 1 << 18;

fn blob(id: u32) -> Blob {
    Blob { id, group: id as u8, bytes: vec![id as u8; 1000] }
}

fn small(path: &Path) -> index_table::Result<(Store, BlobRepository)> {
    open(Store::options(), path)
}

/// Opens a store that several processes write.
fn shared(path: &Path) -> index_table::Result<(Store, BlobRepository)> {
    open(Store::options().durability(Durability::Full), path)
}

fn open(options: Options, path: &Path) -> index_table::Result<(Store, BlobRepository)> {
    let store = options.map_size(SMALL).open(path)?;
    let blobs = BlobRepository::open(&store)?;
    Ok((store, blobs))
}

fn check(store: &Store, blobs: &BlobRepository, ids: std::ops::Range<u32>) -> TestResult {
    let txn = store.read()?;
    let rows: Vec<Blob> = blobs.all(&txn).rows().collect::<Result<_, _>>()?;
    assert!(rows.iter().eq(ids.clone().map(blob).collect::<Vec<_>>().iter()), "{}", rows.len());
    assert_eq!(blobs.by_group(&txn).count()?, ids.len() as u64);
    Ok(())
}

/// Runs the test of this name in another process.
fn in_another_process(name: &str, path: &Path) -> Result<Child, std::io::Error> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", name])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .stdout(Stdio::piped())
        .spawn()
}

fn done(child: Child) -> TestResult {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    Ok(())
}

fn as_other_process() -> Option<PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

#[test]
fn transactions_enlarge_the_map() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = small(dir.path())?;
    let mut runs = 0;
    store.transaction(|txn| {
        runs += 1;
        (0..3000).try_for_each(|id| blobs.insert(txn, &blob(id)))
    })?;
    assert!((4..12).contains(&runs), "the map did not double each time: {runs}");
    check(&store, &blobs, 0..3000)?;
    // The map also grows in small transactions.
    for id in 3000..4000 {
        store.transaction(|txn| blobs.insert(txn, &blob(id)))?;
    }
    check(&store, &blobs, 0..4000)?;
    drop(store);
    let (store, blobs) = small(dir.path())?;
    check(&store, &blobs, 0..4000)
}

#[test]
fn the_map_grows_while_others_read() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = small(dir.path())?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| -> index_table::Result<u64> {
                    let mut before = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let txn = store.read()?;
                        let rows = blobs.all(&txn).count()?;
                        assert_eq!(blobs.by_group(&txn).count()?, rows);
                        assert!(rows >= before && rows.is_multiple_of(10), "{rows} after {before}");
                        for row in blobs.all(&txn).rev().limit(5).rows() {
                            let row = row?;
                            assert_eq!(row, blob(row.id));
                        }
                        before = rows;
                    }
                    Ok(before)
                })
            })
            .collect();
        let written = (0..500).try_for_each(|round| {
            store.transaction(|txn| {
                (round * 10..(round + 1) * 10).try_for_each(|id| blobs.insert(txn, &blob(id)))
            })
        });
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            let rows = reader.join().unwrap_or_else(|_| panic!("a reader"))?;
            assert!(rows > 0, "no row was read during the writes");
        }
        written
    })?;
    check(&store, &blobs, 0..5000)
}

#[derive(Debug)]
struct Own;

impl From<Error> for Own {
    fn from(_: Error) -> Self {
        Self
    }
}

#[test]
fn a_closure_runs_again_even_if_it_hides_the_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = small(dir.path())?;
    store
        .try_transaction(|txn| -> Result<(), Own> {
            (0..1000).try_for_each(|id| blobs.insert(txn, &blob(id)))?;
            Ok(())
        })
        .map_err(|Own| "not grown")?;
    check(&store, &blobs, 0..1000)?;
    // The closure runs again even if it treats the error as success.
    store.transaction(|txn| {
        (1000..4000).for_each(|id| drop(blobs.insert(txn, &blob(id))));
        Ok(())
    })?;
    check(&store, &blobs, 0..4000)?;
    // A closure with another error does not run again.
    let mut runs = 0;
    let result = store.transaction(|txn| {
        runs += 1;
        blobs.insert(txn, &blob(0))
    });
    assert!(matches!(result, Err(Error::DuplicateKey { .. })));
    assert_eq!(runs, 1);
    Ok(())
}

#[test]
fn opening_a_table_enlarges_the_map() -> TestResult {
    let dir = tempfile::tempdir()?;
    let size = 1 << 21;
    let open = || Store::options().map_size(size).reserve(0).open(dir.path());
    let length = || std::fs::metadata(dir.path().join("data.mdb")).map(|file| file.len());
    {
        let store = open()?;
        let blobs = BlobRepository::open(&store)?;
        store.transaction(|txn| (0..1000).try_for_each(|id| blobs.insert(txn, &blob(id))))?;
    }
    assert!(length()? < size as u64, "the rows alone are too large: {}", length()?);
    let store = open()?;
    let blobs = indexed::BlobRepository::open(&store)?;
    assert_eq!(blobs.by_whole(&store.read()?).rows().count(), 1000);
    assert!(length()? > size as u64, "the map has not grown: {}", length()?);
    Ok(())
}

#[test]
fn a_full_map_loses_no_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = Store::options().map_size(SMALL).max_map_size(SMALL * 3).open(dir.path())?;
        let blobs = BlobRepository::open(&store)?;
        store.transaction(|txn| (0..10).try_for_each(|id| blobs.insert(txn, &blob(id))))?;

        // The error of an explicit transaction names the remedy.
        let mut txn = store.write()?;
        let full = (10..3000).try_for_each(|id| blobs.insert(&mut txn, &blob(id)));
        let Err(error @ Error::MapFull { map_size: SMALL }) = full else {
            return Err(format!("{full:?}").into());
        };
        for way_out in ["store.transaction(…)", "max_map_size(…)", "`map_size(…)"] {
            assert!(error.to_string().contains(way_out), "{error}");
        }
        let again = blobs.insert(&mut txn, &blob(10));
        let Err(error @ Error::TransactionFailed { .. }) = again else {
            return Err(format!("{again:?}").into());
        };
        assert!(!error.to_string().contains("LMDB"), "{error}");
        assert!(txn.commit().is_err());
        check(&store, &blobs, 0..10)?;

        // A closure enlarges the map up to its limit.
        let full =
            store.transaction(|txn| (10..3000).try_for_each(|id| blobs.insert(txn, &blob(id))));
        let limit = SMALL * 3;
        assert!(matches!(full, Err(Error::MapFull { map_size }) if map_size == limit), "{full:?}");
        check(&store, &blobs, 0..10)?;
        store.transaction(|txn| (10..100).try_for_each(|id| blobs.insert(txn, &blob(id))))?;
        check(&store, &blobs, 0..100)?;
    }
    let (store, blobs) = small(dir.path())?;
    store.transaction(|txn| (100..3000).try_for_each(|id| blobs.insert(txn, &blob(id))))?;
    check(&store, &blobs, 0..3000)
}

#[test]
fn a_blocking_reader_is_reported_with_its_age() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = small(dir.path())?;
    let held = store.read()?;
    thread::sleep(Duration::from_millis(100));
    let blocked =
        store.transaction(|txn| (0..1000).try_for_each(|id| blobs.insert(txn, &blob(id))));
    let Err(Error::GrowthBlocked { map_size: SMALL, readers: 1, oldest }) = blocked else {
        return Err(format!("{blocked:?}").into());
    };
    assert!(oldest >= Duration::from_millis(100), "{oldest:?}");
    assert_eq!(blobs.all(&held).count()?, 0, "the snapshot has changed");
    drop(held);

    // Growth waits for a reader that ends in time.
    let held = store.read()?;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            drop(held);
        });
        store.transaction(|txn| (0..1000).try_for_each(|id| blobs.insert(txn, &blob(id))))
    })?;
    check(&store, &blobs, 0..1000)
}

/// While growth waits for a transaction, the thread of that transaction begins another one. If it waited for the growth, both
/// would wait for each other.
#[test]
fn a_thread_with_a_transaction_begins_another_while_growth_waits() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = small(dir.path())?;
    let held = store.read()?;
    let grown = thread::scope(|scope| -> index_table::Result<_> {
        let growing = scope.spawn(|| {
            store.transaction(|txn| (0..1000).try_for_each(|id| blobs.insert(txn, &blob(id))))
        });
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(40));
            assert_eq!(blobs.all(&store.read()?).count()?, 0);
        }
        drop(held);
        Ok(growing.join())
    })?;
    grown.map_err(|_| "a panic")??;
    check(&store, &blobs, 0..1000)
}

/// The first row of another process is read in a snapshot that the own map has, when the last commit needs a larger one.
#[test]
fn lists_of_another_process_are_found_without_a_larger_map() -> TestResult {
    const NAME: &str = "lists_of_another_process_are_found_without_a_larger_map";
    if let Some(path) = as_other_process() {
        let (store, blobs) = shared(&path)?;
        let rows = if blobs.all(&store.read()?).exists()? { 1..2000 } else { 0..1 };
        store.transaction(|txn| rows.clone().try_for_each(|id| blobs.insert(txn, &blob(id))))?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (store, blobs) = shared(dir.path())?;
    done(in_another_process(NAME, dir.path())?)?;
    let snapshot = store.read()?;
    done(in_another_process(NAME, dir.path())?)?;
    assert!(matches!(store.read().map(drop), Err(Error::GrowthBlocked { readers: 1, .. })));
    assert_eq!(blobs.get(&snapshot, 0)?, Some(blob(0)));
    drop(snapshot);
    check(&store, &blobs, 0..2000)
}

#[test]
fn a_map_enlarged_by_another_process_is_adopted() -> TestResult {
    const NAME: &str = "a_map_enlarged_by_another_process_is_adopted";
    if let Some(path) = as_other_process() {
        let (store, blobs) = shared(&path)?;
        let first = blobs.all(&store.read()?).count()? as u32;
        store.transaction(|txn| {
            (first..first + 2000).try_for_each(|id| blobs.insert(txn, &blob(id)))
        })?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (store, blobs) = shared(dir.path())?;
    let before = store.read()?;
    done(in_another_process(NAME, dir.path())?)?;
    let blocked = store.read().map(drop);
    assert!(matches!(blocked, Err(Error::GrowthBlocked { readers: 1, .. })), "{blocked:?}");
    assert_eq!(blobs.all(&before).count()?, 0, "the snapshot has changed");
    drop(before);
    check(&store, &blobs, 0..2000)?;

    done(in_another_process(NAME, dir.path())?)?;
    let mut txn = store.write()?;
    blobs.delete(&mut txn, 3999)?;
    txn.commit()?;
    check(&store, &blobs, 0..3999)?;

    done(in_another_process(NAME, dir.path())?)?;
    indexed::BlobRepository::open(&{
        drop(blobs);
        store.clone()
    })?;
    let blobs = BlobRepository::open(&store)?;
    check(&store, &blobs, 0..5999)
}

/// Waits until a file exists.
fn await_file(file: &Path) {
    await_true(|| file.exists());
}

#[test]
fn a_read_succeeds_while_a_write_waits_for_another_process() -> TestResult {
    const NAME: &str = "a_read_succeeds_while_a_write_waits_for_another_process";
    if let Some(path) = as_other_process() {
        let (store, blobs) = shared(&path)?;
        store.transaction(|txn| (0..2000).try_for_each(|id| blobs.insert(txn, &blob(id))))?;
        let txn = store.write()?;
        std::fs::write(path.join("locked"), "")?;
        await_file(&path.join("unlock"));
        drop(txn);
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (store, blobs) = shared(dir.path())?;
    let other = in_another_process(NAME, dir.path())?;
    await_file(&dir.path().join("locked"));
    let (waiting, started) = (Threads::default(), AtomicBool::new(false));
    thread::scope(|scope| -> TestResult {
        let writer = scope.spawn(|| {
            waiting.enter();
            store.write().map(drop)
        });
        waiting.await_blocked(1);
        let reader = scope.spawn(|| {
            started.store(true, Ordering::Relaxed);
            blobs.all(&store.read()?).count()
        });
        await_true(|| started.load(Ordering::Relaxed));
        // This is longer than growth waits for a reader.
        thread::sleep(Duration::from_millis(2500));
        std::fs::write(dir.path().join("unlock"), "")?;
        writer.join().unwrap_or_else(|_| panic!("the writer"))?;
        assert_eq!(reader.join().unwrap_or_else(|_| panic!("the reader"))?, 2000);
        Ok(())
    })?;
    done(other)?;
    check(&store, &blobs, 0..2000)
}

/// A process can read a file that is larger than its own limit.
#[test]
fn a_map_enlarged_by_another_process_is_adopted_beyond_the_limit() -> TestResult {
    const NAME: &str = "a_map_enlarged_by_another_process_is_adopted_beyond_the_limit";
    if let Some(path) = as_other_process() {
        let (store, blobs) = shared(&path)?;
        store.transaction(|txn| (0..2000).try_for_each(|id| blobs.insert(txn, &blob(id))))?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let options = Store::options().durability(Durability::Full);
    let store = options.map_size(SMALL).max_map_size(SMALL).open(dir.path())?;
    let blobs = BlobRepository::open(&store)?;
    done(in_another_process(NAME, dir.path())?)?;
    check(&store, &blobs, 0..2000)?;
    let full =
        store.transaction(|txn| (2000..3000).try_for_each(|id| blobs.insert(txn, &blob(id))));
    assert!(matches!(full, Err(Error::MapFull { .. })), "{full:?}");
    check(&store, &blobs, 0..2000)
}

/// Replaces the rows of a map with little room in many transactions. The pages that a journal keeps for its last checkpoint
/// become free when the map is full.
#[test]
fn rows_of_an_almost_full_map_are_replaced() -> TestResult {
    let map = SMALL * 8;
    for (durability, is_manual) in [
        (None, false),
        (None, true),
        (Some(Durability::Full), false),
        (Some(Durability::Full), true),
    ] {
        let dir = tempfile::tempdir()?;
        // No other checkpoint is made.
        let options = Store::options().checkpoint(u64::MAX, u64::MAX, Duration::from_hours(1));
        let options = options.map_size(map).max_map_size(map);
        let options = durability.into_iter().fold(options, Options::durability);
        let store = options.open(dir.path())?;
        let blobs = BlobRepository::open(&store)?;
        let put = |id| store.transaction(|txn| blobs.put(txn, &blob(id)));
        (0..1000).try_for_each(put)?;
        let full =
            store.transaction(|txn| (1000..2000).try_for_each(|id| blobs.put(txn, &blob(id))));
        assert!(matches!(full, Err(Error::MapFull { .. })), "{full:?}");
        for id in 0..1000 {
            if !is_manual {
                store.transaction(|txn| {
                    blobs.delete(txn, id).and_then(|_| blobs.insert(txn, &blob(id)))
                })?;
                continue;
            }
            // Without a closure that runs again, a later transaction finds free pages.
            let mut outcome = Ok(());
            for _ in 0..1000 {
                outcome = store.write().and_then(|mut txn| {
                    blobs.delete(&mut txn, id)?;
                    blobs.insert(&mut txn, &blob(id))?;
                    txn.commit()
                });
                if outcome.is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            outcome.map_err(|error| format!("{durability:?}: {id}: {error}"))?;
        }
        check(&store, &blobs, 0..1000)?;
    }
    Ok(())
}

/// Each process maps the pages of the other processes, and adds pages itself.
#[test]
fn several_processes_can_enlarge_a_store() -> TestResult {
    const NAME: &str = "several_processes_can_enlarge_a_store";
    const ROWS: u32 = 1000;
    if let Some(path) = as_other_process() {
        let (store, blobs) = shared(&path)?;
        for _ in 0..ROWS / 10 {
            store.transaction(|txn| {
                let next = blobs.all(txn).rev().keys().next().transpose()?.map_or(0, |id| id + 1);
                (next..next + 10).try_for_each(|id| blobs.insert(txn, &blob(id)))
            })?;
            let txn = store.read()?;
            let last = blobs.all(&txn).rev().rows().next().ok_or("no row")??;
            assert_eq!(last, blob(last.id));
        }
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (store, blobs) = shared(dir.path())?;
    let children: Vec<Child> =
        (0..3).map(|_| in_another_process(NAME, dir.path())).collect::<Result<_, _>>()?;
    for child in children {
        done(child)?;
    }
    check(&store, &blobs, 0..3 * ROWS)
}

/// A process with little address space gets a smaller map than the default, and an error when the map can't
/// grow.
#[cfg(target_os = "linux")]
#[test]
fn a_store_opens_with_little_address_space() -> TestResult {
    const NAME: &str = "a_store_opens_with_little_address_space";
    if let Some(path) = as_other_process() {
        let store = Store::open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        store.transaction(|txn| blobs.insert(txn, &blob(0)))?;
        drop(store);
        let options = Store::options().map_size(1 << 26);
        let store = options.durability(Durability::None).open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        let huge = |id| Blob { id, group: 0, bytes: vec![0; 1 << 22] };
        let full = store.transaction(|txn| (1..40).try_for_each(|id| blobs.insert(txn, &huge(id))));
        assert!(matches!(full, Err(Error::MapFull { .. })), "{full:?}");
        check(&store, &blobs, 0..1)?;
        store.transaction(|txn| blobs.insert(txn, &blob(1)))?;
        return check(&store, &blobs, 0..2);
    }
    let dir = tempfile::tempdir()?;
    let child = Command::new("sh")
        .args(["-c", "ulimit -v 250000; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe()?)
        .arg(NAME)
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    done(child)
}
