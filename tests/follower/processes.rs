//! The process of the original is killed under load, and its follower is promoted.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, Follower, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{Dirs, Kind, TestResult, dirs, on_each_kind, options, wait_for_archive};

on_each_kind! {
    a_child_process_commits_until_it_is_killed,
    a_child_process_promotes_until_it_is_killed,
    a_promoted_follower_lacks_only_commits_that_were_not_archived,
    a_kill_during_a_promotion_leaves_a_follower_or_the_promoted_store,
}

const CHILD: &str = "INDEX_TABLE_FOLLOWER_CHILD";
const PROMOTING: &str = "INDEX_TABLE_FOLLOWER_PROMOTING";

/// A row with its number. The numbers are consecutive from 0, and rows with consecutive numbers are in several shards.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "counted", shard_by = tenant, shard_map = "orders")]
struct Counted {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
}

fn insert(store: &Store, rows: &CountedRepository, number: u64) -> index_table::Result<()> {
    let tenant = (number * 10 % 30) as u32;
    store.transaction(|txn| rows.insert(txn, &Counted { tenant, number }))
}

/// Commits one row after another in the child process, until it is killed.
fn a_child_process_commits_until_it_is_killed(kind: Kind) -> TestResult {
    let Ok(dir) = std::env::var(CHILD) else { return Ok(()) };
    let dir = PathBuf::from(dir);
    let store = options(kind, &dir.join("archive")).open(dir.join("store"))?;
    let rows = CountedRepository::open(&store)?;
    wait_for_archive(&store);
    let mut out = std::io::stdout();
    writeln!(out)?;
    for number in 0.. {
        insert(&store, &rows, number)?;
        writeln!(out, "commit")?;
        out.flush()?;
    }
    Ok(())
}

/// Opens a follower in the child process, and promotes it.
fn a_child_process_promotes_until_it_is_killed(_: Kind) -> TestResult {
    let Ok(dir) = std::env::var(PROMOTING) else { return Ok(()) };
    let dir = PathBuf::from(dir);
    let follower = Follower::open(dir.join("standby"), dir.join("archive"))?;
    count(follower.store())?;
    writeln!(std::io::stdout(), "promoting")?;
    let _store = follower.promote()?;
    writeln!(std::io::stdout(), "promoted")?;
    thread::sleep(Duration::from_mins(1));
    Ok(())
}

/// Returns the number of rows, and checks that their numbers are consecutive from 0.
fn count(store: &Store) -> Result<u64, Box<dyn std::error::Error>> {
    let rows = CountedRepository::open(store)?;
    let txn = store.read()?;
    let keys = rows.all(&txn).keys().map(|key| key.map(|(_, number)| number));
    let mut numbers = keys.collect::<index_table::Result<Vec<_>>>()?;
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "a commit is missing");
    Ok(numbers.len() as u64)
}

/// Starts a child process that runs a test with the directories.
fn start(dirs: &Dirs, test: &str, variable: &str) -> std::io::Result<Child> {
    let test = format!("processes::{}::{test}", dirs.kind.of("one_file", "several"));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", &test, "--nocapture"]).env(variable, dirs.path(""));
    command.stdout(Stdio::piped()).spawn()
}

fn kill_and_promote(dirs: &Dirs, millis: u64) -> TestResult {
    let Dirs { archive, standby, .. } = dirs;
    let mut child = start(dirs, "a_child_process_commits_until_it_is_killed", CHILD)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let is_commit = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it == "commit");
    lines.by_ref().find(is_commit).ok_or("no commit")??;
    let follower = Follower::open(standby, archive)?;
    let counting = thread::spawn(move || 1 + lines.filter(is_commit).count() as u64);
    thread::sleep(Duration::from_millis(millis));
    child.kill()?;
    child.wait()?;
    let acknowledged = counting.join().map_err(|_| "a panic")?;

    let store = follower.promote()?;
    let promoted = count(&store)?;
    drop(store);
    let to = dirs.path("restored");
    Store::restore_archive(archive).run(&to)?;
    // The promoted store has all archived commits.
    assert_eq!(promoted, count(&Store::open(&to)?)?);
    // One commit may be archived and not acknowledged.
    assert!(promoted <= acknowledged + 1, "{promoted} of {acknowledged}");
    Ok(())
}

fn a_promoted_follower_lacks_only_commits_that_were_not_archived(kind: Kind) -> TestResult {
    for millis in kind.of([0, 400], [130, 777]) {
        kill_and_promote(&dirs(kind)?, millis)?;
    }
    Ok(())
}

/// Writes rows to the original.
fn write(dirs: &Dirs, archive: &str, numbers: std::ops::Range<u64>) -> index_table::Result<()> {
    let store = options(dirs.kind, &dirs.path(archive)).open(&dirs.store)?;
    let rows = CountedRepository::open(&store)?;
    numbers.into_iter().try_for_each(|number| insert(&store, &rows, number))?;
    wait_for_archive(&store);
    Ok(())
}

/// Kills a process that promotes a follower, so many microseconds after a file was written or removed.
fn kill_promotion(dirs: &Dirs, is_at: impl Fn(&Dirs) -> bool, micros: u64) -> TestResult {
    let Dirs { archive, standby, .. } = dirs;
    write(dirs, "archive", 0..10)?;
    drop(Follower::open(standby, archive)?);
    // The follower applies further commits before it is promoted.
    write(dirs, "archive", 10..20)?;
    let mut child = start(dirs, "a_child_process_promotes_until_it_is_killed", PROMOTING)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let is_promoting =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it == "promoting");
    lines.find(is_promoting).ok_or("no promotion")??;
    while !is_at(dirs) {
        assert!(child.try_wait()?.is_none(), "the child process has ended");
        std::hint::spin_loop();
    }
    thread::sleep(Duration::from_micros(micros));
    child.kill()?;
    child.wait()?;

    let is_refused = archive.join("promoted").exists();
    let first = options(dirs.kind, archive).open(&dirs.store)?;
    let outcome = first.write().map(drop);
    assert_eq!(matches!(outcome, Err(Error::ReopenNeeded { .. })), is_refused, "{outcome:?}");
    drop(first);
    let store = if standby.join("follower").exists() {
        let follower = Follower::open(standby, archive)?;
        assert_eq!(follower.lag()?.error, None);
        follower.promote()?
    } else {
        Store::open(standby)?
    };
    assert_eq!(count(&store)?, 20);
    let rows = CountedRepository::open(&store)?;
    insert(&store, &rows, 20)?;
    drop((store, rows));
    assert_eq!(count(&dirs.promoted().open(standby)?)?, 21);
    // The original can be written with another archive.
    Ok(write(dirs, "other", 20..25)?)
}

fn a_kill_during_a_promotion_leaves_a_follower_or_the_promoted_store(kind: Kind) -> TestResult {
    let is_fenced = |dirs: &Dirs| dirs.archive.join("promoted").exists();
    let is_store = |dirs: &Dirs| !dirs.standby.join("follower").exists();
    let kill = |is_at: &dyn Fn(&Dirs) -> bool, micros| kill_promotion(&dirs(kind)?, is_at, micros);
    kill(&|_| true, 0)?;
    for micros in kind.of([0, 700], [200, 2500]) {
        kill(&is_fenced, micros)?;
    }
    kill(&is_store, 0)
}
