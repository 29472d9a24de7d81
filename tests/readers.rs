//! Long read transactions, and read transactions of killed processes.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Durability, Error, IndexTable, Options, Store};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
#[path = "support/privileges.rs"]
mod privileges;

type TestError = Box<dyn std::error::Error>;
type TestResult = Result<(), TestError>;

#[derive(Serialize, Deserialize, IndexTable)]
struct Blob {
    #[primary_key]
    id: u32,
    bytes: Vec<u8>,
}

fn as_other_process() -> Option<PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

/// Starts the test of this name in another process, and waits until it holds its readers.
fn other_process(name: &str, path: &Path, held: usize) -> Result<Child, std::io::Error> {
    started(Command::new(std::env::current_exe()?), name, path, held)
}

fn started(
    mut command: Command,
    name: &str,
    path: &Path,
    held: usize,
) -> Result<Child, std::io::Error> {
    let mut child = command
        .args(["--exact", name, "--nocapture"])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .env("HELD", held.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    for line in lines {
        if line?.contains("ready") {
            return Ok(child);
        }
    }
    Err(std::io::Error::other("the process ended before it was ready"))
}

/// Returns options of processes that write the same store.
fn shared() -> Options {
    Store::options().durability(Durability::Full)
}

/// Holds read transactions until the standard input ends, or until the process is killed.
fn hold(path: &Path) -> TestResult {
    let store = shared().max_readers(4).open(path)?;
    let held: usize = std::env::var("HELD")?.parse()?;
    let readers = (0..held).map(|_| store.read()).collect::<Result<Vec<_>, _>>()?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    drop(readers);
    Ok(())
}

fn kill(mut child: Child) -> TestResult {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Replaces a row 50 times, and returns the number of bytes by which the file has grown.
fn grown(
    store: &Store,
    blobs: &BlobRepository,
    path: &Path,
) -> Result<u64, Box<dyn std::error::Error>> {
    let length = || std::fs::metadata(path.join("data.mdb")).map(|file| file.len());
    let before = length()?;
    for round in 0..50_u8 {
        store.transaction(|txn| blobs.put(txn, &Blob { id: 1, bytes: vec![round; 50_000] }))?;
    }
    Ok(length()? - before)
}

#[test]
fn readers_of_killed_processes_are_cleared() -> TestResult {
    const NAME: &str = "readers_of_killed_processes_are_cleared";
    if let Some(path) = as_other_process() {
        return hold(&path);
    }
    let dir = tempfile::tempdir()?;
    // This process keeps the lock file in use, which LMDB would otherwise initialize again.
    let witness = other_process(NAME, dir.path(), 1)?;

    // Stale readers are cleared when the store is opened.
    kill(other_process(NAME, dir.path(), 2)?)?;
    let store = shared().max_readers(4).open(dir.path())?;
    assert_eq!(store.clear_stale_readers()?, 0);

    // Stale readers are cleared on request, and the file stops growing.
    let blobs = BlobRepository::open(&store)?;
    kill(other_process(NAME, dir.path(), 2)?)?;
    let grown = || grown(&store, &blobs, dir.path());
    kill(witness)?;
    assert!(grown()? > 2_000_000, "the readers of killed processes don't retain pages");
    assert_eq!(store.clear_stale_readers()?, 3);
    assert_eq!(store.clear_stale_readers()?, 0);
    assert!(grown()? < 500_000, "pages are not reused");

    // Stale readers are cleared when all slots are in use.
    kill(other_process(NAME, dir.path(), 4)?)?;
    let _readers = [store.read()?, store.read()?, store.read()?, store.read()?];
    Ok(())
}

/// A program in a container usually has the process id 1, before and after it is restarted.
#[cfg(target_os = "linux")]
mod with_the_same_id {
    use super::{privileges::not_privileged, *};

    /// Starts the test in a pid namespace of its own, in which it has the process id 1. If it is killed, so is the
    /// test. Returns `None` if this process can't make pid namespaces.
    fn in_a_container(name: &str, path: &Path, held: usize) -> Result<Option<Child>, TestError> {
        const OWN: [&str; 3] = ["--pid", "--fork", "--kill-child"];
        let mut unshare = Command::new("unshare");
        unshare.args(OWN).arg("true").stderr(Stdio::null());
        if !unshare.status().is_ok_and(|status| status.success()) {
            not_privileged("this process can't make a pid namespace")?;
            return Ok(None);
        }
        let mut unshare = Command::new("unshare");
        unshare.args(OWN).arg(std::env::current_exe()?);
        Ok(Some(started(unshare, name, path, held)?))
    }

    #[test]
    fn a_killed_reader_is_cleared_by_its_successor() -> TestResult {
        const NAME: &str = "with_the_same_id::a_killed_reader_is_cleared_by_its_successor";
        if let Some(path) = as_other_process() {
            return hold(&path);
        }
        let dir = tempfile::tempdir()?;
        let store = shared().max_readers(8).open(dir.path())?;
        let blobs = BlobRepository::open(&store)?;
        store.transaction(|txn| blobs.put(txn, &Blob { id: 1, bytes: vec![7; 50_000] }))?;
        for _ in 0..3 {
            let Some(killed) = in_a_container(NAME, dir.path(), 2)? else { return Ok(()) };
            kill(killed)?;
        }
        let Some(successor) = in_a_container(NAME, dir.path(), 0)? else { return Ok(()) };
        assert_eq!(store.clear_stale_readers()?, 0);
        assert!(grown(&store, &blobs, dir.path())? < 1_000_000, "pages are not reused");
        kill(successor)
    }

    #[test]
    fn a_second_process_is_refused_and_the_error_names_the_cause() -> TestResult {
        const NAME: &str =
            "with_the_same_id::a_second_process_is_refused_and_the_error_names_the_cause";
        if let Some(path) = as_other_process() {
            if std::env::var("HELD")? == "1" {
                return hold(&path);
            }
            for read_only in [false, true] {
                let opened = shared().read_only(read_only).open(&path);
                let Err(error @ Error::AlreadyOpen { .. }) = &opened else {
                    return Err(format!("{opened:?}").into());
                };
                let message = error.to_string();
                assert!(message.contains("in another pid namespace"), "{message}");
            }
            println!("ready");
            return Ok(());
        }
        let dir = tempfile::tempdir()?;
        let Some(first) = in_a_container(NAME, dir.path(), 1)? else { return Ok(()) };
        let Some(second) = in_a_container(NAME, dir.path(), 0)? else { return Ok(()) };
        kill(second)?;
        // A process with another id shares the store with the first.
        let store = shared().open(dir.path())?;
        drop(store.read()?);
        kill(first)
    }
}

#[test]
fn readers_have_an_age() -> TestResult {
    const AGE: Duration = Duration::from_millis(30);
    let dir = tempfile::tempdir()?;
    let store = Store::options().max_readers(2).open(dir.path())?;
    assert_eq!((store.readers().count, store.readers().oldest), (0, None));
    let first = store.read()?;
    thread::sleep(AGE);
    let second = store.read()?;
    assert!(matches!(store.readers().oldest, Some(age) if age >= AGE));
    let result = store.read();
    let Err(Error::TooManyReaders { max_readers: 2, oldest: Some(age) }) = result else {
        return Err(format!("{result:?}").into());
    };
    assert!(age >= AGE);
    drop(first);
    assert_eq!(store.readers().count, 1);
    drop(second);
    // A write transaction is no reader.
    let _writer = store.write()?;
    assert_eq!(store.readers().count, 0);
    assert_eq!(Store::in_memory().readers().count, 0);
    Ok(())
}
