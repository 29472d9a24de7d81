//! The process of the original is killed under load, and its follower is promoted.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, Follower, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, dirs, options, wait};

const CHILD: &str = "INDEX_TABLE_FOLLOWER_CHILD";
const PROMOTING: &str = "INDEX_TABLE_FOLLOWER_PROMOTING";

/// A row with its number. The numbers are consecutive from 0.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "counted")]
struct Counted {
    #[primary_key]
    number: u64,
}

/// Commits one row after another in the child process, until it is killed.
#[test]
fn a_child_process_commits_until_it_is_killed() -> TestResult {
    let Ok(dir) = std::env::var(CHILD) else { return Ok(()) };
    let dir = PathBuf::from(dir);
    let store = options(&dir.join("archive")).open(dir.join("store"))?;
    let rows = CountedRepository::open(&store)?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let mut out = std::io::stdout();
    writeln!(out)?;
    for number in 0.. {
        store.transaction(|txn| rows.insert(txn, &Counted { number }))?;
        writeln!(out, "commit")?;
        out.flush()?;
    }
    Ok(())
}

/// Opens a follower in the child process, and promotes it.
#[test]
fn a_child_process_promotes_until_it_is_killed() -> TestResult {
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
    let numbers = rows.all(&txn).keys().collect::<index_table::Result<Vec<_>>>()?;
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "a commit is missing");
    Ok(numbers.len() as u64)
}

fn kill_and_promote(dir: &Path, millis: u64) -> TestResult {
    let (archive, standby) = (dir.join("archive"), dir.join("standby"));
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::a_child_process_commits_until_it_is_killed", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let is_commit = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it == "commit");
    lines.by_ref().find(is_commit).ok_or("no commit")??;
    let follower = Follower::open(&standby, &archive)?;
    let counting = thread::spawn(move || 1 + lines.filter(is_commit).count() as u64);
    thread::sleep(Duration::from_millis(millis));
    child.kill()?;
    child.wait()?;
    let acknowledged = counting.join().map_err(|_| "a panic")?;

    let store = follower.promote()?;
    let promoted = count(&store)?;
    drop(store);
    let to = dir.join("restored");
    Store::restore_archive(&archive).run(&to)?;
    // The promoted store has all archived commits.
    assert_eq!(promoted, count(&Store::open(&to)?)?);
    // One commit may be archived and not acknowledged.
    assert!(promoted <= acknowledged + 1, "{promoted} of {acknowledged}");
    Ok(())
}

#[test]
fn a_promoted_follower_lacks_only_commits_that_were_not_archived() -> TestResult {
    for millis in [0, 130, 400, 777] {
        let dirs = dirs()?;
        kill_and_promote(dirs.store.parent().ok_or("no directory")?, millis)?;
    }
    Ok(())
}

/// Writes rows to the original.
fn write(dir: &Path, archive: &str, numbers: std::ops::Range<u64>) -> index_table::Result<()> {
    let store = options(&dir.join(archive)).open(dir.join("store"))?;
    let rows = CountedRepository::open(&store)?;
    numbers
        .into_iter()
        .try_for_each(|number| store.transaction(|txn| rows.insert(txn, &Counted { number })))?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    Ok(())
}

/// Kills a process that promotes a follower, so many microseconds after a file was written or removed.
fn kill_promotion(dir: &Path, is_at: impl Fn(&Path) -> bool, micros: u64) -> TestResult {
    let (archive, standby) = (dir.join("archive"), dir.join("standby"));
    write(dir, "archive", 0..10)?;
    drop(Follower::open(&standby, &archive)?);
    // The follower applies further commits before it is promoted.
    write(dir, "archive", 10..20)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::a_child_process_promotes_until_it_is_killed", "--nocapture"])
        .env(PROMOTING, dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let is_promoting =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it == "promoting");
    lines.find(is_promoting).ok_or("no promotion")??;
    while !is_at(dir) {
        assert!(child.try_wait()?.is_none(), "the child process has ended");
        std::hint::spin_loop();
    }
    thread::sleep(Duration::from_micros(micros));
    child.kill()?;
    child.wait()?;

    let is_refused = archive.join("promoted").exists();
    let first = options(&archive).open(dir.join("store"))?;
    let outcome = first.write().map(drop);
    assert_eq!(matches!(outcome, Err(Error::ReopenNeeded { .. })), is_refused, "{outcome:?}");
    drop(first);
    let store = if standby.join("follower").exists() {
        let follower = Follower::open(&standby, &archive)?;
        assert_eq!(follower.lag()?.error, None);
        follower.promote()?
    } else {
        Store::open(&standby)?
    };
    assert_eq!(count(&store)?, 20);
    let rows = CountedRepository::open(&store)?;
    store.transaction(|txn| rows.insert(txn, &Counted { number: 20 }))?;
    drop((store, rows));
    assert_eq!(count(&options(&archive).open(&standby)?)?, 21);
    // The original can be written with another archive.
    Ok(write(dir, "other", 20..25)?)
}

#[test]
fn a_kill_during_a_promotion_leaves_a_follower_or_the_promoted_store() -> TestResult {
    let is_fenced = |dir: &Path| dir.join("archive").join("promoted").exists();
    let is_store = |dir: &Path| !dir.join("standby").join("follower").exists();
    let kill = |is_at: &dyn Fn(&Path) -> bool, micros| {
        let dirs = dirs()?;
        kill_promotion(dirs.store.parent().ok_or("no directory")?, is_at, micros)
    };
    kill(&|_| true, 0)?;
    for micros in [0, 200, 700, 2500] {
        kill(&is_fenced, micros)?;
    }
    kill(&is_store, 0)
}
