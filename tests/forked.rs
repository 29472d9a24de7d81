//! Processes forked from a process with an open store.
#![cfg(unix)]

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use index_table::{Error, GroupWriter, IndexTable, ShardMap, ShardedStore, Store};
use serde::{Deserialize, Serialize};

#[path = "support/threads.rs"]
mod support;
use support::{await_blocked_process, await_true};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Row {
    #[primary_key]
    id: u32,
    note: String,
}

fn row(id: u32) -> Row {
    Row { id, note: format!("row {id}") }
}

/// Forks, runs `child` in the child and `parent` in the parent, and waits for the child. Each of them owns
/// its copy of the handles.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn fork<T>(
    inherited: T,
    child: impl FnOnce(T) -> TestResult,
    parent: impl FnOnce(T) -> TestResult,
) -> TestResult {
    // SAFETY: this process runs this test alone, and no other thread holds a lock.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let outcome = child(inherited);
        if let Err(error) = &outcome {
            println!("in the child: {error}");
        }
        // SAFETY: the child ends without running the test harness.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: `pid` is a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
    parent(inherited)
}

fn ensure(holds: bool, what: &str) -> TestResult {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn is_forked<T>(result: Result<T, Error>) -> TestResult {
    match result {
        Err(Error::Forked { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("a child used its parent's store".into()),
    }
}

fn assert_refused(store: &Store, rows: &RowRepository, path: &Path) -> TestResult {
    is_forked(store.read())?;
    is_forked(store.write())?;
    is_forked(store.transaction(|txn| rows.insert(txn, &row(9))))?;
    is_forked(store.backup_to(path.join("copy")))?;
    is_forked(store.clear_stale_readers())?;
    is_forked(Store::open(path))
}

fn open(path: &Path) -> Result<(Store, RowRepository), Error> {
    let store = Store::options().max_readers(2).open(path)?;
    let rows = RowRepository::open(&store)?;
    Ok((store, rows))
}

/// Forks a child that inherits a reader and drops it.
fn with_a_reader(path: &Path) -> TestResult {
    let (store, rows) = open(path)?;
    store.transaction(|txn| rows.insert(txn, &row(1)))?;
    let handles = (store.clone(), rows);
    // A transaction borrows from its store, and both go to the child.
    let store: &'static Store = Box::leak(Box::new(store));
    let held = store.read()?;
    fork(
        (handles, held),
        |((store, rows), held)| {
            assert_refused(&store, &rows, path)?;
            ensure(rows.get(&held, 1)?.is_some(), "the snapshot has lost its row")?;
            drop(held);
            is_forked(store.read())
        },
        |((_, rows), held)| {
            // The parent uses one of two slots, and the other slot is free.
            assert!(other_process("readers", path)?.wait()?.success());
            assert!(rows.get(&held, 1)?.is_some());
            Ok(())
        },
    )
}

/// A store that the child opens again belongs to the child.
fn opened_again(path: &Path) -> TestResult {
    let handles = open(path)?;
    handles.0.transaction(|txn| handles.1.put(txn, &row(1)))?;
    fork(
        handles,
        |(store, rows)| {
            assert_refused(&store, &rows, path)?;
            drop((store, rows));
            let (store, rows) = open(path)?;
            ensure(rows.get(&store.read()?, 1)?.is_some(), "the row is missing")?;
            store.transaction(|txn| rows.put(txn, &row(2)))?;
            Ok(())
        },
        |(store, rows)| {
            assert_eq!(rows.get(&store.read()?, 2)?, Some(row(2)));
            store.transaction(|txn| rows.put(txn, &row(3)))?;
            assert!(rows.get(&store.read()?, 3)?.is_some());
            Ok(())
        },
    )
}

/// The child inherits a write transaction. It commits nothing, and does not end the parent's transaction.
fn with_a_writer(path: &Path) -> TestResult {
    let (store, rows) = open(path)?;
    let store: &'static Store = Box::leak(Box::new(store));
    for commit in [true, false] {
        let mut txn = store.write()?;
        rows.put(&mut txn, &row(4))?;
        fork(
            txn,
            |mut txn| {
                rows.put(&mut txn, &row(5))?;
                if commit {
                    return is_forked(txn.commit());
                }
                drop(txn);
                Ok(())
            },
            |txn| {
                assert!(rows.get(&store.read()?, 5)?.is_none());
                // Another process waits for the parent's lock.
                let started = path.join("started");
                let _ = std::fs::remove_file(&started);
                let mut other = other_process("writer", path)?;
                await_true(|| started.exists());
                await_blocked_process(other.id());
                assert!(other.try_wait()?.is_none(), "the parent's lock was released");
                txn.commit()?;
                assert!(other.wait()?.success());
                Ok(())
            },
        )?;
        assert!(rows.get(&store.read()?, 4)?.is_some());
        assert!(rows.get(&store.read()?, 5)?.is_none());
    }
    Ok(())
}

/// The thread of a group writer stays in the parent, and writes the parent's closures. After dropping its
/// handles, the child opens the store again.
fn with_a_group_writer(path: &Path) -> TestResult {
    let (store, rows) = open(path)?;
    let writer = store.writer()?;
    let submit = |writer: &GroupWriter, rows: &RowRepository, id| {
        let rows = rows.clone();
        writer.submit(move |txn| rows.put(txn, &row(id)))
    };
    submit(&writer, &rows, 1).wait()?;
    let submitted = submit(&writer, &rows, 2);
    // The writer has finished both closures before the fork.
    while rows.get(&store.read()?, 2)?.is_none() {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    fork(
        (store, rows, writer, submitted),
        |(store, rows, writer, submitted)| {
            is_forked(submit(&writer, &rows, 3).wait())?;
            is_forked(writer.try_submit(|_| Ok::<_, Error>(())).map_err(|_| "full")?.wait())?;
            is_forked(submitted.wait())?;
            is_forked(writer.close())?;
            is_forked(store.writer())?;
            ensure(writer.is_closed(), "the writer accepts closures in the child")?;
            drop((store, rows, writer));
            let (store, rows) = open(path)?;
            submit(&store.writer()?, &rows, 4).wait()?;
            Ok(())
        },
        |(store, rows, writer, submitted)| {
            submitted.wait()?;
            submit(&writer, &rows, 5).wait()?;
            writer.close()?;
            let txn = store.read()?;
            let ids = rows.all(&txn).keys().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(ids, [1, 2, 4, 5]);
            Ok(())
        },
    )
}

/// A watcher in the child receives nothing and does not wait.
fn with_a_watcher(path: &Path) -> TestResult {
    let (store, rows) = open(path)?;
    let watcher = rows.watch(&store).start()?;
    store.transaction(|txn| rows.put(txn, &row(1)))?;
    fork(
        (store, rows, watcher),
        |(store, rows, watcher)| {
            ensure(watcher.recv().is_none(), "the watcher has not ended")?;
            is_forked(rows.watch(&store).start())
        },
        |(store, rows, watcher)| {
            store.transaction(|txn| rows.put(txn, &row(2)))?;
            drop((store, rows));
            assert_eq!(watcher.iter().count(), 2);
            Ok(())
        },
    )
}

const NAME: &str = "a_forked_process_is_refused_and_does_not_disturb_its_parent";
const ROLE: &str = "INDEX_TABLE_FORK_ROLE";
const PATH: &str = "INDEX_TABLE_OTHER_PROCESS";

fn other_process(role: &str, path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", NAME])
        .env(ROLE, role)
        .env(PATH, path)
        .spawn()
}

#[test]
fn a_forked_process_is_refused_and_does_not_disturb_its_parent() -> TestResult {
    if let (Ok(role), Some(path)) = (std::env::var(ROLE), std::env::var_os(PATH)) {
        let path = PathBuf::from(path);
        return match role.as_str() {
            "reader" => with_a_reader(&path),
            "again" => opened_again(&path),
            "group" => with_a_group_writer(&path),
            "watcher" => with_a_watcher(&path),
            "forker" => with_a_writer(&path),
            "readers" => {
                let (store, _rows) = open(&path)?;
                let _one = store.read()?;
                let two = store.read();
                ensure(
                    matches!(two, Err(Error::TooManyReaders { .. })),
                    "a reader slot was released",
                )
            }
            _ => {
                // Opening the table writes too.
                std::fs::write(path.join("started"), "")?;
                let (store, rows) = open(&path)?;
                Ok(store.transaction(|txn| rows.put(txn, &row(6)))?)
            }
        };
    }
    for role in ["reader", "again", "forker", "group", "watcher"] {
        let dir = tempfile::tempdir()?;
        let output = Command::new(std::env::current_exe()?)
            .args(["--exact", NAME])
            .env(ROLE, role)
            .env(PATH, dir.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{role}: {said}");
    }
    Ok(())
}

/// A child has the files of its parent open until it runs another program, and a forked process until it ends.
#[test]
fn a_sharded_store_can_be_opened_again_while_a_child_has_its_files() -> TestResult {
    let dir = tempfile::tempdir()?;
    let map = ShardMap::hashed(["north"]);
    let options = ShardedStore::options().shard("north", "north").map("rows", map);
    let store = options.open(dir.path())?;
    let (mut ended, end) = std::io::pipe()?;
    #[expect(unsafe_code, reason = "there is no safe fork")]
    // SAFETY: the child only reads from a pipe, and ends without running the test harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(end);
        let _ = ended.read(&mut [0]);
        #[expect(unsafe_code, reason = "there is no safe end of a child")]
        // SAFETY: as above.
        unsafe {
            libc::_exit(0)
        };
    }
    assert!(pid > 0);
    drop(store);
    let reopened = ShardedStore::open(dir.path()).map(drop);
    drop(end);
    let mut status = 0;
    #[expect(unsafe_code, reason = "there is no safe wait for a forked child")]
    // SAFETY: `pid` is a child of this process.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    Ok(reopened?)
}
