//! Several processes with a journal: one writes, others read.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use index_table::{Error, Store};

use crate::{NoteRepository, TestResult, expect, options, write};

const CHILD: &str = "INDEX_TABLE_JOURNAL_CHILD";

/// Writes some steps in the child process, and waits until it is killed.
#[test]
fn a_child_process_writes_and_waits() -> TestResult {
    let Ok(path) = std::env::var(CHILD) else { return Ok(()) };
    let store = options().open(path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..10 {
        write(&store, &notes, step)?;
    }
    println!("\nwritten");
    std::io::stdout().flush()?;
    std::thread::sleep(std::time::Duration::from_mins(5));
    Ok(())
}

fn writer(path: &Path) -> Result<Child, Box<dyn std::error::Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::a_child_process_writes_and_waits", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("no output")?;
    let written = BufReader::new(out).lines().any(|line| line.is_ok_and(|line| line == "written"));
    assert!(written, "the child has ended");
    Ok(child)
}

#[test]
fn a_second_process_reads_and_does_not_write() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut child = writer(dir.path())?;
    for options in [options(), Store::options()] {
        let outcome = options.open(dir.path());
        let is_refused = matches!(outcome, Err(Error::WriterElsewhere { process, .. })
            if process == Some(child.id()));
        assert!(is_refused, "{outcome:?}");
    }
    expect(&Store::options().read_only(true).open(dir.path())?, 10)?;
    child.kill()?;
    child.wait()?;
    let store = options().open(dir.path())?;
    expect(&store, 10)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, 10)?;
    expect(&store, 11)
}

/// Reads the store in a child process until it is killed.
#[test]
fn a_child_process_reads_and_waits() -> TestResult {
    let Ok(path) = std::env::var(format!("{CHILD}_READER")) else { return Ok(()) };
    let store = Store::options().read_only(true).open(path)?;
    println!("\nreading");
    std::io::stdout().flush()?;
    std::thread::sleep(std::time::Duration::from_mins(5));
    drop(store);
    Ok(())
}

#[test]
fn a_writer_is_replaced_while_another_process_reads() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut first = writer(dir.path())?;
    let mut reader = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::a_child_process_reads_and_waits", "--nocapture"])
        .env(format!("{CHILD}_READER"), dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = reader.stdout.take().ok_or("no output")?;
    assert!(BufReader::new(out).lines().any(|line| line.is_ok_and(|line| line == "reading")));
    first.kill()?;
    first.wait()?;
    // No segment is reused, since the reader has the store open.
    let store = options().open(dir.path())?;
    expect(&store, 10)?;
    let notes = NoteRepository::open(&store)?;
    for step in 10..30 {
        write(&store, &notes, step)?;
    }
    expect(&store, 30)?;
    let left = crate::killed(dir.path(), &tempfile::tempdir()?.keep())?;
    expect(&options().open(&left)?, 30)?;
    std::fs::remove_dir_all(left)?;
    drop((store, notes));
    reader.kill()?;
    reader.wait()?;
    expect(&options().open(dir.path())?, 30)
}
