//! Long read transactions, and read transactions of killed processes.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

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
    let mut child = Command::new(std::env::current_exe()?)
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

/// Holds read transactions until the standard input ends, or until the process is killed.
fn hold(path: &Path) -> TestResult {
    let store = Store::options().max_readers(4).open(path)?;
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
    let store = Store::options().max_readers(4).open(dir.path())?;
    assert_eq!(store.clear_stale_readers()?, 0);

    // Stale readers are cleared on request, and the file stops growing.
    let blobs = BlobRepository::open(&store)?;
    kill(other_process(NAME, dir.path(), 2)?)?;
    let grown = || -> Result<u64, Box<dyn std::error::Error>> {
        let length = || std::fs::metadata(dir.path().join("data.mdb")).map(|file| file.len());
        let before = length()?;
        for round in 0..50_u8 {
            store.transaction(|txn| blobs.put(txn, &Blob { id: 1, bytes: vec![round; 50_000] }))?;
        }
        Ok(length()? - before)
    };
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
