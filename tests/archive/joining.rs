//! The archive of a sharded store while a shard is added, attached or restored beside writes.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant, SystemTime},
};

use index_table::{CommitNumber, Error, IndexTable, RestoreArchive, Store};
use serde::{Deserialize, Serialize};

use crate::{
    TestResult, fresh, last_commit,
    shards::{OrderRepository, options, order, rows_in},
    wait_for_archive,
};

/// Rows that can be written while a shard is missing, because they have no entries in other shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "steps", shard_by = tenant, shard_map = "orders")]
pub(crate) struct Step {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
}

/// The state after each commit: the number of the commit, and a time before the next commit.
type Commits = Vec<(CommitNumber, SystemTime)>;

/// Commits a row in each of two shards until the end, and returns all commits.
fn write(
    store: &Store,
    steps: &StepRepository,
    written: &AtomicUsize,
    is_over: &AtomicBool,
) -> index_table::Result<Commits> {
    let mut commits = Commits::new();
    while !is_over.load(SeqCst) {
        let id = u32::try_from(commits.len()).unwrap_or(u32::MAX);
        store.transaction(|txn| {
            [5, 25].into_iter().try_for_each(|tenant| steps.insert(txn, &Step { tenant, id }))
        })?;
        let commit = last_commit(store)?;
        thread::sleep(Duration::from_millis(2));
        commits.push((commit, SystemTime::now()));
        written.store(commits.len(), SeqCst);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(commits)
}

fn wait_for(written: &AtomicUsize, count: usize) {
    let begun = Instant::now();
    while written.load(SeqCst) < count {
        assert!(begun.elapsed() < Duration::from_mins(1), "no further commit");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Restores a store, and checks that it has the rows of this number of commits, and those of the shard that came.
fn restores(restore: RestoreArchive<'_>, to: &Path, count: usize, what: &str) -> TestResult {
    let restored = restore.run(to);
    assert!(restored.is_ok(), "{what}: {restored:?}");
    let store = Store::open(to)?;
    rows_in(&store)?;
    let steps = StepRepository::open(&store)?;
    let txn = store.read()?;
    let of = |tenant| steps.find_by_tenant(&txn, tenant).count();
    assert_eq!((of(5)?, of(25)?), (count as u64, count as u64), "{what}");
    Ok(())
}

/// Calls `come` beside writes, and checks each state around it in the archive.
fn comes(
    (dir, archive): (&Path, &Path),
    store: Store,
    come: &dyn Fn(&Store) -> index_table::Result<()>,
    what: &str,
) -> TestResult {
    let (orders, steps) = (OrderRepository::open(&store)?, StepRepository::open(&store)?);
    wait_for_archive(&store);
    let (written, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (commits, before, after) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&store, &steps, &written, &is_over));
        let outcome = (|| {
            wait_for(&written, 10);
            let before = written.load(SeqCst);
            come(&store)?;
            let after = written.load(SeqCst);
            wait_for(&written, after + 5);
            // The archive does not report a base that it lacks.
            let begun = Instant::now();
            while !store.archive_lag().is_some_and(|lag| lag.has_base) {
                assert!(begun.elapsed() < Duration::from_mins(1), "{what}: no base");
                thread::sleep(Duration::from_millis(1));
            }
            Store::restore_archive(archive).run(fresh(dir, "restored"))?;
            Ok::<_, Error>((before, after))
        })();
        is_over.store(true, SeqCst);
        let commits = writer.join().expect("no panic")?;
        let (before, after) = outcome?;
        Ok::<_, Error>((commits, before, after))
    })?;
    wait_for_archive(&store);
    drop((store, orders, steps));
    let span = after + 5 - before;
    for at in (0..6).map(|step| before + span * step / 6) {
        let (commit, time) = &commits[at];
        let restore = || Store::restore_archive(archive);
        let to = fresh(dir, "restored");
        let of_commit = format!("{what}, commit {at} of {before} to {after}");
        restores(restore().until_commit(commit.clone()), &to, at + 1, &of_commit)?;
        let to = fresh(dir, "restored");
        restores(restore().until(*time), &to, at + 1, &format!("{of_commit}, by its time"))?;
    }
    Ok(())
}

#[test]
fn no_commit_is_left_out_while_a_shard_is_added_or_attached() -> TestResult {
    for is_attached in [false, true] {
        let dir = tempfile::tempdir()?;
        let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
        let store = options(&archive).open(&path)?;
        let what = if is_attached { "attached" } else { "added" };
        let come = |store: &Store| {
            if is_attached {
                store.attach_shard("b", "b").map(drop)
            } else {
                store.add_shard("d", "d").map(drop)
            }
        };
        if is_attached {
            let (orders, _steps) = (OrderRepository::open(&store)?, StepRepository::open(&store)?);
            store.transaction(|txn| orders.insert(txn, &order(15, 0, 0)))?;
            wait_for_archive(&store);
            store.detach_shard("b")?;
        }
        comes((dir.path(), &archive), store, &come, what)?;
    }
    Ok(())
}

#[test]
fn no_commit_is_left_out_while_a_shard_is_restored() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    {
        let store = options(&path("archive")).open(path("store"))?;
        let (orders, _steps) = (OrderRepository::open(&store)?, StepRepository::open(&store)?);
        store.transaction(|txn| orders.insert(txn, &order(15, 0, 0)))?;
        store.backup_to(path("backup"))?;
        store.transaction(|txn| orders.insert(txn, &order(15, 1, 0)))?;
        wait_for_archive(&store);
    }
    fs::remove_dir_all(path("store").join("b"))?;
    let store = Store::options().archive(path("archive")).open(path("store"))?;
    let come =
        |store: &Store| store.restore_shard(&store.shard("b")?, path("backup").join("shard.1"));
    comes((dir.path(), &path("archive")), store, &come, "restored")
}

/// A shard that has not joined needs no base.
#[test]
fn a_shard_that_can_not_be_added_leaves_the_archive_complete() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let store = Store::options().shard("a", "a").archive(&archive).open(&path)?;
    let added = |number: u32| store.add_shard(format!("s{number}"), format!("s{number}"));
    let full = (0..1000).find(|number| added(*number).is_err()).unwrap_or_default();
    wait_for_archive(&store);
    let wait_for_error = || {
        let begun = Instant::now();
        while store.archive_lag().is_some_and(|lag| lag.error.is_none()) {
            assert!(begun.elapsed() < Duration::from_mins(1), "no error");
            thread::sleep(Duration::from_millis(5));
        }
    };

    // The base can't be written before the error.
    let away = dir.path().join("away");
    fs::rename(&archive, &away)?;
    wait_for_error();
    let refused = added(full);
    assert!(matches!(&refused, Err(Error::Io { .. })), "{refused:?}");
    wait_for_error();
    fs::rename(&away, &archive)?;
    wait_for_archive(&store);
    Ok(())
}
