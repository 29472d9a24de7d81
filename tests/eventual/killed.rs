//! Processes that are killed while they write rows and apply messages.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{Store, WhenFull};

use crate::{ItemRepository, TestResult, assert_clean, assert_drained, item};

fn store(path: &Path) -> index_table::Result<Store> {
    Store::options()
        .map_size(1 << 26)
        .index_queue(200, WhenFull::ApplyInLine)
        .durability(index_table::Durability::None)
        .open(path)
}

/// Writes rows and applies messages in the child process until it is killed. Prints a line every 20 rounds.
fn write(path: &Path) -> index_table::Result<()> {
    let store = store(path)?;
    let items = ItemRepository::open(&store)?;
    let _worker = store.start_index_worker()?;
    for round in 0.. {
        store.transaction(|txn| {
            items.put(txn, &item(round % 50, round))?;
            items.put(txn, &item(round % 7, round / 2))?;
            items.delete(txn, round % 11).map(drop)
        })?;
        if round % 20 == 0 {
            items.drain(&store, 13)?;
            println!("round {round}");
        }
    }
    Ok(())
}

#[test]
fn a_killed_worker_loses_and_repeats_no_message() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        write(Path::new(&path))?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    for rounds in [3, 9, 17, 6] {
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "--exact",
                "killed::a_killed_worker_loses_and_repeats_no_message",
                "--nocapture",
            ])
            .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let reports =
            lines.map_while(Result::ok).filter(|line| line.contains("round ")).take(rounds);
        let reports = reports.count();
        child.kill()?;
        child.wait()?;
        assert_eq!(reports, rounds);

        let store = store(dir.path())?;
        let items = ItemRepository::open(&store)?;
        assert_clean(&items, &store.read()?)?;
        items.drain(&store, u64::MAX)?;
        assert_drained(&items, &store)?;
    }
    Ok(())
}

/// A worker applies the messages of another process, and that process waits for the worker.
#[test]
fn messages_are_applied_by_a_worker_in_another_process() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        let store = store(Path::new(&path))?;
        let items = ItemRepository::open(&store)?;
        let _worker = store.start_index_worker()?;
        println!("round 0");
        // Runs until the parent has written this row.
        while items.get(&store.read()?, 99)?.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = store(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "killed::messages_are_applied_by_a_worker_in_another_process",
            "--nocapture",
        ])
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("round "))));
    let mut txn = store.write()?;
    items.insert(&mut txn, &item(1, 1))?;
    let token = txn.commit_with_token()?;
    let waited = items.wait_for(&store, &token, std::time::Duration::from_mins(1))?;
    store.transaction(|txn| items.insert(txn, &item(99, 1)))?;
    assert!(child.wait()?.success());
    assert!(waited);
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}
