//! Processes forked from a process with an open store.
#![cfg(unix)]

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, GroupWriter, IndexTable, Options, ShardId, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[path = "support/fork.rs"]
mod child;
#[path = "support/threads.rs"]
mod support;
use child::{TestResult, await_child, ensure, fork, is_forked, start_child};
use support::{PATIENCE, Threads, await_blocked_process, await_true};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Row {
    #[primary_key]
    id: u32,
    note: String,
}

fn row(id: u32) -> Row {
    Row { id, note: format!("row {id}") }
}

fn assert_refused(store: &Store, rows: &RowRepository, path: &Path) -> TestResult {
    is_forked(store.read())?;
    is_forked(store.write())?;
    is_forked(store.transaction(|txn| rows.insert(txn, &row(9))))?;
    is_forked(store.backup_to(path.join("copy")))?;
    is_forked(store.clear_stale_readers())?;
    is_forked(store.data_files())?;
    assert!(store.journal().is_none() && store.inspections().is_empty());
    assert_eq!(store.commits().count, 0);
    is_forked(Store::open(path))
}

/// The durability of the stores in this process, which another process has chosen.
fn durability() -> Durability {
    named(&std::env::var(DURABILITY).unwrap_or_default())
}

fn named(durability: &str) -> Durability {
    match durability {
        "journal" => Durability::Journal,
        "relaxed" => Durability::Relaxed,
        "none" => Durability::None,
        _ => Durability::Full,
    }
}

/// Whether a second process can write.
fn is_shared() -> bool {
    durability() != Durability::Journal
}

/// Checks the result of a write in a second process.
fn written(result: Result<(), Error>) -> TestResult {
    match result {
        Err(Error::ReadOnly { .. }) if !is_shared() => Ok(()),
        result => Ok(result?),
    }
}

fn open(path: &Path) -> Result<(Store, RowRepository), Error> {
    let options = Store::options().durability(durability()).max_readers(2);
    // Each checkpoint checks the reader slot of the last one.
    let store = match options.checkpoint(1 << 16, 1 << 16, Duration::from_hours(1)).open(path) {
        // A second process reads.
        Err(Error::WriterElsewhere { .. }) if !is_shared() => {
            Store::options().read_only(true).open(path)?
        }
        opened => opened?,
    };
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
            // The parent uses one of two slots, and the other slot is free. A journal has further slots.
            assert!(!is_shared() || other_process("readers", path)?.wait()?.success());
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
            written(store.transaction(|txn| rows.put(txn, &row(2))))
        },
        |(store, rows)| {
            assert_eq!(rows.get(&store.read()?, 2)?, is_shared().then(|| row(2)));
            for id in 3..200 {
                store.transaction(|txn| rows.put(txn, &row(id)))?;
            }
            assert!(rows.get(&store.read()?, 199)?.is_some());
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
                if !is_shared() {
                    return Ok(txn.commit()?);
                }
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
    let threads = Arc::new(Threads::default());
    let submit = |writer: &GroupWriter, rows: &RowRepository, id| {
        let (rows, threads) = (rows.clone(), Arc::clone(&threads));
        writer.submit(move |txn| {
            threads.enter();
            rows.put(txn, &row(id))
        })
    };
    submit(&writer, &rows, 1).wait()?;
    let submitted = submit(&writer, &rows, 2);
    // The writer has finished both closures before the fork, and waits.
    await_true(|| store.read().is_ok_and(|txn| rows.get(&txn, 2).is_ok_and(|row| row.is_some())));
    threads.await_blocked(2);
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
            written(store.writer().and_then(|writer| submit(&writer, &rows, 4).wait()))
        },
        |(store, rows, writer, submitted)| {
            submitted.wait()?;
            submit(&writer, &rows, 5).wait()?;
            writer.close()?;
            let txn = store.read()?;
            let ids = rows.all(&txn).keys().collect::<Result<Vec<_>, _>>()?;
            let expected: &[u32] = if is_shared() { &[1, 2, 4, 5] } else { &[1, 2, 5] };
            assert_eq!(ids, expected);
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

/// The child of a store with shards inherits transactions, and opens the store again.
fn with_shards(path: &Path) -> TestResult {
    let options = sharded(durability());
    let store: &'static Store = Box::leak(Box::new(options.open(path)?));
    let rows = SpreadRepository::open(store)?;
    store.transaction(|txn| {
        [1, 2, 3].iter().try_for_each(|id| rows.put(txn, &Spread { id: *id }))
    })?;
    let (read, mut write) = (store.read()?, store.write()?);
    rows.put(&mut write, &Spread { id: 4 })?;
    fork(
        (rows, read, write),
        |(rows, read, write)| {
            is_forked(store.read())?;
            is_forked(store.write())?;
            is_forked(store.transaction(|txn| rows.put(txn, &Spread { id: 9 })))?;
            is_forked(Store::open(path))?;
            is_forked(SpreadRepository::open(store))?;
            // Some of these requests are samples of the load.
            for _ in 0..100 {
                ensure(rows.get(&read, 3)?.is_some(), "the snapshot has lost its row")?;
            }
            is_forked(write.commit())?;
            drop((read, rows));
            #[expect(unsafe_code, reason = "the store was leaked")]
            // SAFETY: it is from `Box::leak`, and nothing borrows from it any more.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(store).cast_mut()) });
            let other = Store::open(path);
            ensure(matches!(other, Err(Error::AlreadyOpen { .. })), "two processes write")?;
            let store = Store::options().read_only(true).open(path)?;
            let rows = SpreadRepository::open(&store)?;
            ensure(rows.all(&store.read()?).count()? == 3, "rows are missing")
        },
        |(rows, read, write)| {
            assert!(rows.get(&read, 3)?.is_some());
            write.commit()?;
            store.transaction(|txn| rows.put(txn, &Spread { id: 5 }))?;
            assert_eq!(rows.all(&store.read()?).count()?, 5);
            Ok(())
        },
    )
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(expires = ends, changes, shard_by = id)]
#[index(note, consistency = "eventual")]
#[index(code, unique, scope = "global")]
struct Job {
    #[primary_key]
    id: u32,
    note: String,
    code: u32,
    ends: std::time::SystemTime,
}

/// Tries the methods of an inherited store that return an error in a child.
fn methods_are_refused(store: &Store, shard: &ShardId, path: &Path) -> TestResult {
    is_forked(store.rebalance("job").plan())?;
    is_forked(store.verify())?;
    is_forked(store.sizes())?;
    is_forked(store.check())?;
    is_forked(store.catalog())?;
    is_forked(store.upgrade())?;
    is_forked(store.drop_retired())?;
    is_forked(store.autocommit())?;
    is_forked(store.scrub(1))?;
    is_forked(store.start_index_worker())?;
    is_forked(store.start_expiry_worker())?;
    is_forked(store.backup_to(path.join("copy")))?;
    is_forked(store.compact_to(path.join("copy")))?;
    is_forked(store.backup_shard(shard, path.join("copy")))?;
    is_forked(store.read_on(shard))?;
    is_forked(store.write_on(shard))?;
    is_forked(store.verify_on(shard))?;
    is_forked(store.sizes_on(shard))?;
    is_forked(store.shards())?;
    is_forked(store.ranges("job"))?;
    is_forked(store.moves())?;
    is_forked(store.move_range("job", 5u32.., "south").run())?;
    is_forked(store.resume_move(1).run())?;
    is_forked(store.cancel_move(1))?;
    is_forked(store.hot_keys("job", 1))?;
    is_forked(store.shard_advice("job"))?;
    is_forked(store.add_shard("east", "east"))?;
    is_forked(store.detach_shard("south"))?;
    is_forked(store.attach_shard("south", "south"))?;
    is_forked(store.remove_shard("south"))?;
    is_forked(store.restore_shard(shard, path.join("copy")))?;
    Ok(())
}

/// No method of an inherited handle waits for a lock. In builds with debug assertions, it would panic.
fn with_handles(path: &Path) -> TestResult {
    let (store, jobs) = {
        let map = ShardMap::ranges().to("north", 0u32..);
        let codes = ShardMap::ranges().to("south", 0u32..);
        let options = Store::options().durability(durability());
        let options = options.shard("north", "north").shard("south", "south");
        let store = options.map("job", map).map("job.code", codes).open(path)?;
        (store.clone(), JobRepository::open(&store)?)
    };
    let ends = std::time::SystemTime::now() + Duration::from_hours(1);
    let job = move |id| Job { id, note: format!("job {id}"), code: id, ends };
    let changes = jobs.changes(&store, "mailer")?;
    let mut txn = store.write()?;
    jobs.insert(&mut txn, &job(1))?;
    let token = txn.commit_with_token()?;
    let shard = store.shard("north")?;
    let handles = (
        (store.start_index_worker()?, store.start_expiry_worker()?, store.scrub(1_000_000)?),
        (store.writer()?, changes),
    );
    let submitted = {
        let jobs = jobs.clone();
        handles.1.0.submit(move |txn| jobs.insert(txn, &job(2)))
    };
    await_true(|| handles.0.2.is_done());
    // Each lock is in use before the fork.
    assert!(handles.0.0.error().is_none() && handles.0.1.error().is_none());
    drop((store.moves()?, store.shards()?, store.hot_keys("job", 1)?, store.sizes()?));
    drop((store.usage(), store.readers(), store.backup_to(path.join("before"))?));
    drop((store.data_files()?, store.journal(), store.commits(), store.inspections()));
    fork(
        (handles, submitted),
        |(((worker, expiry, scrub), (writer, mut changes)), submitted)| {
            let (again, hour) = (|error: Option<Error>| error.map_or(Ok(()), Err), 3600);
            is_forked(again(worker.error()))?;
            is_forked(again(expiry.error()))?;
            ensure(expiry.deleted() == 0, "a child has deleted rows")?;
            ensure(scrub.is_done() && scrub.report().tables.is_empty(), "a child has a report")?;
            let shown =
                format!("{worker:?} {expiry:?} {scrub:?} {writer:?} {submitted:?} {store:?}");
            ensure(!shown.is_empty(), "nothing is shown")?;
            is_forked(scrub.wait())?;
            is_forked(writer.on(&shard))?;
            is_forked(writer.submit_on(&shard, |_| Ok::<_, Error>(())).wait())?;
            is_forked(changes.lag())?;
            is_forked(changes.next_batch(1))?;
            is_forked(changes.skip_to(9))?;
            is_forked(jobs.changes(&store, "other"))?;
            is_forked(jobs.remove_change_consumer(&store, "mailer"))?;
            is_forked(jobs.drain(&store, 1))?;
            is_forked(jobs.wait_for(&store, &token, Duration::from_secs(hour)))?;
            is_forked(jobs.expire(&store, ends, 1))?;
            is_forked(jobs.build(&store).run())?;
            is_forked(jobs.upgrade(&store).run())?;
            is_forked(jobs.bulk_load(&store, [job(9)]).run())?;
            is_forked(jobs.shard_of(&store, 1))?;
            methods_are_refused(&store, &shard, path)?;
            ensure(store.usage().is_empty(), "a child has statistics")?;
            drop((store.readers(), store.archive_lag(), store.was_recovered(), jobs.usage()));
            drop((store.data_files(), store.journal(), store.commits(), store.inspections()));
            drop((store.shard_ids(), store.unavailable_shards()));
            // Without the store, no thread can finish the closure.
            drop((store, jobs, worker, expiry, writer, changes));
            let lost = submitted.wait();
            ensure(matches!(lost, Err(Error::WriterClosed | Error::Forked { .. })), "it is done")
        },
        |(((worker, expiry, scrub), (writer, ..)), submitted)| {
            assert!(scrub.wait()?.is_clean());
            submitted.wait()?;
            writer.close()?;
            assert!(worker.error().is_none() && expiry.error().is_none());
            Ok(())
        },
    )
}

/// Forks while other threads use the store, and open and close others.
fn beside_threads(path: &Path) -> TestResult {
    let (store, rows) = open(&path.join("store"))?;
    store.transaction(|txn| rows.put(txn, &row(1)))?;
    let is_over = AtomicBool::new(false);
    let repeat = |body: &dyn Fn() -> Result<(), Error>| -> Result<(), Error> {
        while !is_over.load(Relaxed) {
            body()?;
        }
        Ok(())
    };
    let write = || store.transaction(|txn| rows.put(txn, &row(2)));
    let read = || {
        let begun = store.read();
        if matches!(begun, Err(Error::TooManyReaders { .. })) {
            return Ok(());
        }
        rows.get(&begun?, 1).map(drop)
    };
    let reopen = || {
        let (store, rows) = open(&path.join("other"))?;
        store.transaction(|txn| rows.put(txn, &row(1)))
    };
    let child = |number: u32| {
        is_forked(store.read())?;
        is_forked(store.write())?;
        is_forked(RowRepository::open(&store))?;
        is_forked(Store::open(path.join("store")))?;
        ensure(store.usage().is_empty(), "a child has statistics")?;
        // The other threads opened and closed a store when the process was forked, which takes less than a second unless
        // the machine is very busy.
        match open(&path.join(format!("of {number}"))) {
            Err(Error::Forked { .. }) => Ok(()),
            opened => {
                let (store, rows) = opened?;
                store.transaction(|txn| rows.put(txn, &row(1)))?;
                let txn = store.read()?;
                ensure(rows.get(&txn, 1)?.is_some(), "the row is missing")
            }
        }
    };
    thread::scope(|scope| {
        let works: [&(dyn Fn() -> Result<(), Error> + Sync); 3] = [&write, &read, &reopen];
        let threads = works.map(|work| scope.spawn(|| repeat(work)));
        let begun = Instant::now();
        let mut forks = (0..40).take_while(|_| begun.elapsed() < Duration::from_secs(2));
        let forked = forks.try_for_each(|number| await_child(start_child(|| child(number))));
        is_over.store(true, Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread has panicked")??;
        }
        forked
    })
}

/// Ends by a signal while a child has the files open.
#[expect(unsafe_code, reason = "there is no safe end of a process without destructors")]
fn killed(path: &Path) -> TestResult {
    let (is_sharded, store) = (path.join("shards").exists(), path.join("store"));
    let archive = path.join("archive");
    let plain = (!is_sharded).then(|| {
        let options = Store::options().durability(durability()).max_readers(2);
        let options = if is_shared() { options } else { options.archive(&archive) };
        let store = options.open(&store)?;
        RowRepository::open(&store)?;
        Ok::<_, Error>(store)
    });
    let _plain = plain.transpose()?;
    let _sharded = is_sharded.then(|| sharded(durability()).open(&store)).transpose()?;
    let started = path.join("started");
    start_child(|| {
        std::fs::write(&started, std::process::id().to_string())?;
        thread::sleep(2 * PATIENCE);
        Ok(())
    });
    await_true(|| std::fs::read(&started).is_ok_and(|pid| !pid.is_empty()));
    // SAFETY: it ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = hash(id))]
struct Spread {
    #[primary_key]
    id: u32,
}

fn sharded(durability: Durability) -> Options {
    let map = ShardMap::hashed(["north", "south"]);
    let options = Store::options().durability(durability);
    options.shard("north", "north").shard("south", "south").map("spread", map)
}

const DURABILITIES: [&str; 4] = ["full", "journal", "relaxed", "none"];
/// The durabilities of a store with shards.
const OF_SHARDS: [&str; 3] = ["journal", "relaxed", "none"];
const DURABILITY: &str = "INDEX_TABLE_FORK_DURABILITY";
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
            "shards" => with_shards(&path),
            "handles" => with_handles(&path),
            "threads" => beside_threads(&path),
            "killed" => killed(&path),
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
    for durability in DURABILITIES {
        for role in ["reader", "again", "forker", "group", "watcher"] {
            run(role, durability)?;
        }
    }
    for durability in OF_SHARDS {
        for role in ["shards", "handles"] {
            run(role, durability)?;
        }
    }
    Ok(())
}

#[test]
fn a_process_that_is_forked_beside_threads_does_not_hang() -> TestResult {
    DURABILITIES.iter().try_for_each(|durability| run("threads", durability))
}

#[test]
fn a_child_does_not_keep_the_locks_of_a_killed_parent() -> TestResult {
    let plain = DURABILITIES.map(|durability| (durability, false));
    let sharded_too = OF_SHARDS.map(|durability| (durability, true));
    for (durability, is_sharded) in plain.into_iter().chain(sharded_too) {
        let dir = tempfile::tempdir()?;
        let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
        if is_sharded {
            std::fs::write(dir.path().join("shards"), "")?;
        }
        // The child would keep a pipe open.
        role("killed", durability, dir.path())?.stdout(Stdio::null()).status()?;
        let child = std::fs::read_to_string(dir.path().join("started"))?.parse()?;
        let reopened = if is_sharded {
            let store = sharded(named(durability)).open(&store)?;
            let rows = SpreadRepository::open(&store)?;
            store.transaction(|txn| rows.put(txn, &Spread { id: 1 }))
        } else if durability == "journal" {
            let store = Store::options().durability(Durability::Journal).archive(&archive);
            let store = store.open(dir.path().join("store"))?;
            let rows = RowRepository::open(&store)?;
            let written = store.transaction(|txn| rows.put(txn, &row(1)));
            await_true(|| {
                let lag = store.archive_lag();
                lag.is_some_and(|lag| lag.commits == 0 && lag.error.is_none())
            });
            written
        } else {
            let store = Store::options().durability(named(durability)).open(&store)?;
            let rows = RowRepository::open(&store)?;
            store.transaction(|txn| rows.put(txn, &row(1)))
        };
        #[expect(unsafe_code, reason = "there is no safe signal")]
        // SAFETY: it is the child of the other process.
        let killed = unsafe { libc::kill(child, libc::SIGKILL) };
        assert_eq!(killed, 0, "the child has ended");
        reopened?;
    }
    Ok(())
}

fn role(role: &str, durability: &str, path: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", NAME]).env(ROLE, role).env(PATH, path).env(DURABILITY, durability);
    Ok(command)
}

/// Runs a test in another process.
fn run(name: &str, durability: &str) -> TestResult {
    let dir = tempfile::tempdir()?;
    let output = role(name, durability, dir.path())?.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let is_passed = output.status.success() && said.contains("1 passed");
    assert!(is_passed, "{name}, {durability}: {said}");
    Ok(())
}

/// A child has the files of its parent open until it runs another program, and a forked process until it ends.
#[test]
fn a_sharded_store_can_be_opened_again_while_a_child_has_its_files() -> TestResult {
    let dir = tempfile::tempdir()?;
    let map = ShardMap::hashed(["north"]);
    let options = Store::options().shard("north", "north").map("rows", map);
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
    let reopened = Store::open(dir.path()).map(drop);
    drop(end);
    let mut status = 0;
    #[expect(unsafe_code, reason = "there is no safe wait for a forked child")]
    // SAFETY: `pid` is a child of this process.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    Ok(reopened?)
}
