//! The archive of a sharded store.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use index_table::{CommitNumber, Durability, Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{Random, TestResult, fresh, last_commit, wait_for_archive};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(topic)]
#[index(code, unique, scope = "global")]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) topic: u8,
    pub(crate) code: u64,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
    rows: u64,
}

pub(crate) type Orders = BTreeMap<(u32, u32), Order>;

pub(crate) fn order(tenant: u32, id: u32, version: u32) -> Order {
    Order {
        tenant,
        id,
        topic: ((id + version) % 5) as u8,
        code: u64::from(tenant) << 40 | u64::from(id) << 20 | u64::from(version % (1 << 20)),
        text: "x".repeat((id * 7 + version % 1000 * 13) as usize % 97 * 30),
    }
}

/// Returns options of a store with three shards, whose journal makes a checkpoint every few commits.
pub(crate) fn options(archive: &Path) -> Options {
    without_archive().archive(archive)
}

fn without_archive() -> Options {
    let options = Store::options().durability(Durability::Journal);
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    options
        .checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
        .shard("a", "a")
        .shard("b", "b")
        .shard("c", "c")
        .map("orders", map)
}

/// Commits some changes in one or several shards, at least one put, and makes the same changes in the model.
pub(crate) fn change(
    store: &Store,
    orders: &OrderRepository,
    rows: &mut Orders,
    random: &mut Random,
) -> Result<()> {
    let count = 1 + random.below(4);
    let changes: Vec<_> = (0..count)
        .map(|at| {
            let is_deleted = at > 0 && random.below(4) == 0;
            (random.below(30), random.below(12), random.below(1 << 16), is_deleted)
        })
        .collect();
    store.transaction(|txn| {
        for (tenant, id, version, is_deleted) in &changes {
            if *is_deleted {
                orders.delete(txn, *tenant, *id)?;
            } else {
                orders.put(txn, &order(*tenant, *id, *version))?;
            }
        }
        Ok::<_, Error>(())
    })?;
    for (tenant, id, version, is_deleted) in changes {
        if is_deleted {
            rows.remove(&(tenant, id));
        } else {
            rows.insert((tenant, id), order(tenant, id, version));
        }
    }
    Ok(())
}

/// Returns the rows of a store, after all checks.
pub(crate) fn rows_in(store: &Store) -> std::result::Result<Orders, Box<dyn std::error::Error>> {
    assert!(store.unavailable_shards().is_empty(), "{:?}", store.unavailable_shards());
    let orders = OrderRepository::open(store)?;
    let txn = store.read()?;
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    let rows = orders.all(&txn).rows().map(|row| row.map(|row| ((row.tenant, row.id), row)));
    Ok(rows.collect::<Result<_>>()?)
}

fn rows_of(path: &Path) -> std::result::Result<Orders, Box<dyn std::error::Error>> {
    rows_in(&Store::open(path)?)
}

#[test]
fn a_restore_to_any_commit_has_the_rows_of_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(31), Orders::new());
    let mut then: Vec<(CommitNumber, SystemTime, Orders)> = Vec::new();
    // The store is closed and opened several times, once before it has all bases.
    for round in 0..4 {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        if round != 1 {
            wait_for_archive(&store);
        }
        for _ in 0..100 {
            change(&store, &orders, &mut rows, &mut random)?;
            let commit = last_commit(&store)?;
            thread::sleep(Duration::from_millis(2));
            then.push((commit, SystemTime::now(), rows.clone()));
            thread::sleep(Duration::from_millis(1));
        }
    }
    let to = fresh(dir.path(), "restored");
    assert_eq!(Store::restore_archive(&archive).run(&to)?, then[399].0);
    assert!(rows_of(&to)? == rows);
    for _ in 0..20 {
        let (commit, time, rows) = &then[random.below(400) as usize];
        let to = fresh(dir.path(), "restored");
        let last = Store::restore_archive(&archive).until_commit(commit.clone()).run(&to)?;
        assert_eq!(last, *commit);
        assert!(rows_of(&to)? == *rows, "after commit {commit}");
        let to = fresh(dir.path(), "restored");
        assert_eq!(Store::restore_archive(&archive).until(*time).run(&to)?, *commit);
        assert!(rows_of(&to)? == *rows, "after {time:?}");
    }
    let to = fresh(dir.path(), "restored");
    let before = SystemTime::now() - Duration::from_hours(1);
    let outcome = Store::restore_archive(&archive).until(before).run(&to);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    assert!(!to.exists());
    Ok(())
}

#[test]
fn an_archive_has_every_commit_of_threads_that_write_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let store = options(&archive).open(&path)?;
    let orders = OrderRepository::open(&store)?;
    wait_for_archive(&store);
    let write = |thread: u32| -> Result<Vec<(CommitNumber, u32)>> {
        let mut then = Vec::new();
        for step in 0..150 {
            store.transaction(|txn| {
                // A thread has a tenant of its own in each shard. Every third transaction writes all shards.
                let shards = if step % 3 == 0 { 0..3 } else { thread % 3..thread % 3 + 1 };
                for shard in shards {
                    orders.put(txn, &order(shard * 10 + thread, 1, step))?;
                }
                Ok::<_, Error>(())
            })?;
            then.push((last_commit(&store)?, step));
        }
        Ok(then)
    };
    let write = &write;
    let all: Vec<Vec<(CommitNumber, u32)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let rows = rows_in(&store)?;
    assert_eq!(store.archive_lag().ok_or("no archive")?.error, None);
    drop((store, orders));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    // A restore to a commit of a thread has this commit, and only whole transactions of the other threads.
    let mut random = Random(32);
    for _ in 0..12 {
        let thread = random.below(4);
        let (commit, step) = &all[thread as usize][random.below(150) as usize];
        let to = fresh(dir.path(), "restored");
        assert_eq!(
            Store::restore_archive(&archive).until_commit(commit.clone()).run(&to)?,
            *commit
        );
        let found = rows_of(&to)?;
        let text = |tenant: u32| found.get(&(tenant, 1)).map(|order| order.code & 0xf_ffff);
        let own = thread % 3 * 10 + thread;
        assert!(text(own) >= Some(u64::from(*step)), "{commit}: {:?}", text(own));
        for thread in 0..4 {
            let steps: Vec<_> = (0..3).map(|shard| text(shard * 10 + thread)).collect();
            let last_of_all = steps.iter().map(|step| step.map(|step| step / 3 * 3)).max();
            let own = steps[thread as usize % 3];
            assert_eq!(last_of_all, Some(own.map(|step| step / 3 * 3)), "{steps:?}");
            for (shard, step) in steps.iter().enumerate() {
                let is_own = shard == thread as usize % 3;
                assert!(is_own || *step == own.map(|step| step / 3 * 3), "{steps:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn moved_rows_and_added_and_removed_shards_are_archived() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(33), Orders::new());
    let mut then: Vec<(CommitNumber, Orders, usize)> = Vec::new();
    let store = options(&archive).open(&path)?;
    let orders = OrderRepository::open(&store)?;
    let towns = TownRepository::open(&store)?;
    wait_for_archive(&store);
    let mut write = |rows: &mut Orders, count: usize| -> Result<()> {
        for _ in 0..10 {
            change(&store, &orders, rows, &mut random)?;
            let town = Town { name: "Redmond".to_owned(), rows: rows.len() as u64 };
            store.transaction(|txn| towns.put(txn, &town))?;
            then.push((last_commit(&store)?, rows.clone(), count));
        }
        Ok(())
    };
    write(&mut rows, 3)?;
    store.add_shard("d", "d")?;
    write(&mut rows, 4)?;
    store.move_range("orders", 5u32..15, "d").run()?;
    write(&mut rows, 4)?;
    store.move_range("orders", 20u32.., "a").run()?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&mut rows, 4)?;
    store.move_range("orders", 15u32..20, "a").run()?;
    wait_for_archive(&store);
    write(&mut rows, 4)?;
    store.remove_shard("c")?;
    write(&mut rows, 3)?;
    wait_for_archive(&store);
    drop((store, orders, towns));
    // The store is opened again, for one more commit.
    let store = Store::options().archive(&archive).open(&path)?;
    let orders = OrderRepository::open(&store)?;
    let towns = TownRepository::open(&store)?;
    change(&store, &orders, &mut rows, &mut Random(34))?;
    let town = Town { name: "Redmond".to_owned(), rows: rows.len() as u64 };
    store.transaction(|txn| towns.put(txn, &town))?;
    then.push((last_commit(&store)?, rows.clone(), 3));
    drop((store, orders, towns));

    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    for (commit, rows, count) in then {
        let to = fresh(dir.path(), "restored");
        let outcome = Store::restore_archive(&archive).until_commit(commit.clone()).run(&to);
        assert!(outcome.is_ok(), "commit {commit}: {outcome:?}");
        assert!(rows_of(&to)? == rows, "after commit {commit}");
        let store = Store::open(&to)?;
        assert_eq!(store.shard_ids().len(), count, "after commit {commit}");
        let towns = TownRepository::open(&store)?;
        let town = towns.get(&store.read()?, "Redmond")?;
        assert_eq!(town.map(|town| town.rows), Some(rows.len() as u64));
    }
    Ok(())
}

#[test]
fn a_restored_sharded_store_continues_the_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(35), Orders::new());
    let store = options(&archive).open(&path)?;
    let orders = OrderRepository::open(&store)?;
    wait_for_archive(&store);
    for _ in 0..40 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    let (middle, rows_then) = (last_commit(&store)?, rows.clone());
    for _ in 0..40 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    drop((store, orders));
    let second = dir.path().join("second");
    Store::restore_archive(&archive).until_commit(middle.clone()).run(&second)?;
    let mut rows = rows_then.clone();
    let store = Store::options().archive(&archive).open(&second)?;
    let orders = OrderRepository::open(&store)?;
    for _ in 0..20 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    wait_for_archive(&store);
    drop((store, orders));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).until_commit(middle).run(&to)?;
    assert!(rows_of(&to)? == rows_then);
    Ok(())
}

#[test]
fn commits_without_the_archive_leave_a_gap_and_new_bases() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(36), Orders::new());
    let mut write = |options: Options, rows: &mut Orders| -> Result<CommitNumber> {
        let store = options.open(&path)?;
        let orders = OrderRepository::open(&store)?;
        for _ in 0..10 {
            change(&store, &orders, rows, &mut random)?;
        }
        if store.archive_lag().is_some() {
            wait_for_archive(&store);
        }
        last_commit(&store)
    };
    let first = write(options(&archive), &mut rows)?;
    let rows_then = rows.clone();
    let gap = write(without_archive().without_archive(), &mut rows)?;
    write(without_archive(), &mut rows)?;
    // One shard is written outside of the store, in a copy that replaces it.
    write(options(&archive), &mut rows)?;
    let (shard, aside) = (path.join("a"), path.join("aside"));
    Store::restore(&shard, &aside)?;
    fs::remove_dir_all(&shard)?;
    {
        let alone = Store::open(&aside)?;
        let other = NoteOfShardRepository::open(&alone)?;
        alone.transaction(|txn| other.insert(txn, &NoteOfShard { id: 1 }))?;
    }
    fs::rename(&aside, &shard)?;
    let last = write(options(&archive), &mut rows)?;
    let to = fresh(dir.path(), "restored");
    let outcome = Store::restore_archive(&archive).until_commit(gap).run(&to);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    assert!(!to.exists());
    Store::restore_archive(&archive).until_commit(first).run(&to)?;
    assert!(rows_of(&to)? == rows_then);
    let to = fresh(dir.path(), "restored");
    assert_eq!(Store::restore_archive(&archive).run(&to)?, last);
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
struct NoteOfShard {
    #[primary_key]
    id: u32,
}

#[test]
fn a_missing_shard_stays_in_the_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(37), Orders::new());
    let write =
        |tenants: std::ops::Range<u32>, rows: &mut Orders, random: &mut Random, only: &[&str]| {
            let store =
                Store::options().only(only.iter().copied()).archive(&archive).open(&path)?;
            let orders = OrderRepository::open(&store)?;
            for step in 0..30 {
                let (tenant, version) =
                    (tenants.start + step % tenants.len() as u32, random.below(999));
                let row = order(tenant, step % 7, version);
                let shard = orders.shard_of(&store, tenant)?;
                // Without the global index, which needs all shards.
                let written = store.transaction_on(&shard, |txn| orders.put(txn, &row));
                if written.is_ok() {
                    rows.insert((row.tenant, row.id), row);
                }
            }
            let error = store.archive_lag().and_then(|lag| lag.error);
            Ok::<_, Error>(error)
        };
    drop(options(&archive).open(&path)?);
    {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        wait_for_archive(&store);
        for _ in 0..30 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
    }
    assert_eq!(write(0..20, &mut rows, &mut random, &["a", "b"])?, None);
    assert_eq!(write(20..30, &mut rows, &mut random, &["c"])?, None);
    write(0..30, &mut rows, &mut random, &["a", "b", "c"])?;
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_restored_shard_is_archived() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (archive, backup) = (path("archive"), path("backup"));
    let (mut random, mut rows) = (Random(39), Orders::new());
    let store = options(&archive).open(path("store"))?;
    let orders = OrderRepository::open(&store)?;
    wait_for_archive(&store);
    for _ in 0..20 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    store.backup_to(&backup)?;
    drop((store, orders));
    fs::remove_dir_all(path("store").join("b"))?;
    let store = Store::options().archive(&archive).open(path("store"))?;
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
    let orders = OrderRepository::open(&store)?;
    for _ in 0..20 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    wait_for_archive(&store);
    drop((store, orders));
    let to = fresh(dir.path(), "restored.1");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let store = Store::options().archive(&archive).open(path("store"))?;
    let orders = OrderRepository::open(&store)?;
    change(&store, &orders, &mut rows, &mut random)?;
    wait_for_archive(&store);
    drop((store, orders));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_sharded_archive_reports_its_lag_and_errors() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("disk").join("archive"));
    fs::write(dir.path().join("disk"), "")?;
    let (mut random, mut rows) = (Random(38), Orders::new());
    for _ in 0..2 {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        for _ in 0..100 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
        let lag = store.archive_lag().ok_or("no archive")?;
        assert!(lag.commits >= 100, "{lag:?}");
        assert!(lag.error.is_some_and(|error| error.contains("archive")));
        assert!(!lag.has_base);
    }
    fs::remove_file(dir.path().join("disk"))?;
    let store = options(&archive).open(&path)?;
    let orders = OrderRepository::open(&store)?;
    wait_for_archive(&store);
    change(&store, &orders, &mut rows, &mut random)?;
    let begun = Instant::now();
    wait_for_archive(&store);
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop((store, orders));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn all_shards_have_the_journal_if_there_is_an_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let relaxed = || Store::options().durability(Durability::Relaxed);
    let archived = Store::options().durability(Durability::Journal).archive(&archive);
    let all = Store::options().shard("a", "a").shard("b", "b");
    for own in [relaxed(), archived] {
        let options = all.clone().shard_with("c", "c", own);
        let outcome = options.archive(&archive).open(&path);
        assert!(matches!(outcome, Err(Error::NotOffered { .. })), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn a_new_shard_has_a_base_when_the_store_is_closed_at_once() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let mut rows = Orders::new();
    {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| (0..5).try_for_each(|id| orders.insert(txn, &order(15, id, 0))))?;
        wait_for_archive(&store);
        store.add_shard("d", "d")?;
        assert!(!store.archive_lag().ok_or("an archive")?.has_base);
        store.move_range("orders", 15u32..=15, "d").run()?;
        store.transaction(|txn| (5..9).try_for_each(|id| orders.insert(txn, &order(15, id, 0))))?;
    }
    rows.extend((0..9).map(|id| ((15, id), order(15, id, 0))));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_base_is_not_handed_over_before_the_segments_with_its_commits() -> TestResult {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (takes_segments, takes_bases) =
        (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let (segments, bases, to) =
        (Arc::clone(&takes_segments), Arc::clone(&takes_bases), bucket.clone());
    let store = without_archive()
        .archive_with(move |file| {
            let is_taken = if file.name.contains("/base.") { &bases } else { &segments };
            if !is_taken.load(SeqCst) {
                return Err(std::io::Error::other("not now"));
            }
            let object = to.join(file.name);
            fs::create_dir_all(object.parent().expect("a directory"))?;
            fs::copy(file.path, object).map(drop)
        })
        .open(&path)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(5, 0, 0)))?;
    wait_for_archive(&store);
    takes_bases.store(false, SeqCst);
    store.add_shard("d", "d")?;
    // The first state of the shard is not taken, so that a later state is pinned.
    let begun = Instant::now();
    while store.archive_lag().ok_or("an archive")?.error.is_none() {
        assert!(begun.elapsed() < Duration::from_mins(1));
        thread::sleep(Duration::from_millis(10));
    }
    takes_segments.store(false, SeqCst);
    takes_bases.store(true, SeqCst);
    store.transaction(|txn| orders.insert(txn, &order(6, 0, 0)))?;
    // The next attempt follows 10 s later.
    let begun = Instant::now();
    let directory = fs::read_dir(&bucket)?.next().ok_or("no archive")??.path();
    while begun.elapsed() < Duration::from_secs(12) {
        for entry in fs::read_dir(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            assert!(!(name.starts_with("base.") && name.ends_with(".3")), "{name}");
        }
        thread::sleep(Duration::from_millis(200));
    }
    takes_segments.store(true, SeqCst);
    wait_for_archive(&store);
    drop((store, orders));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&directory).run(&to)?;
    assert_eq!(rows_of(&to)?.len(), 2);
    Ok(())
}

const CHILD: &str = "INDEX_TABLE_SHARDED_ARCHIVE_CHILD";

/// Puts a row into each shard in the child process until it is killed, and prints the number of each commit.
#[test]
fn a_child_process_commits_to_all_shards_until_it_is_killed() -> TestResult {
    let Ok(dir) = std::env::var(CHILD) else { return Ok(()) };
    let dir = Path::new(&dir);
    let store = options(&dir.join("archive")).open(dir.join("store"))?;
    let orders = OrderRepository::open(&store)?;
    wait_for_archive(&store);
    let mut out = std::io::stdout();
    writeln!(out)?;
    for step in 0.. {
        store.transaction(|txn| {
            (0..3).try_for_each(|shard| orders.put(txn, &order(shard * 10, step, step)))
        })?;
        writeln!(out, "commit {}", serde_json::to_string(&last_commit(&store)?)?)?;
        out.flush()?;
    }
    Ok(())
}

#[test]
fn the_archive_gets_the_commits_of_all_shards_that_a_reader_has_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "shards::a_child_process_commits_to_all_shards_until_it_is_killed",
            "--nocapture",
        ])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut commits = Vec::new();
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        if let Some(number) = line?.strip_prefix("commit ") {
            commits.push(serde_json::from_str::<CommitNumber>(number)?);
        }
        if commits.len() == 100 {
            child.kill()?;
        }
    }
    child.wait()?;

    let reader = Store::options().read_only(true).open(&path)?;
    assert!(reader.was_recovered());
    let rows = rows_in(&reader)?;
    assert!(rows.len() >= 3 * commits.len());
    drop(reader);
    let store = options(&archive).open(&path)?;
    wait_for_archive(&store);
    assert!(!store.was_recovered() && rows_in(&store)? == rows);
    drop(store);
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    for (step, commit) in commits.iter().enumerate().rev().step_by(9) {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(commit.clone()).run(&to)?;
        assert_eq!(rows_of(&to)?.len(), 3 * (step + 1), "commit {commit}");
    }
    Ok(())
}
