//! The process of the original is killed under load, and its follower is promoted.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Follower, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, dirs, options, wait};

const CHILD: &str = "INDEX_TABLE_FOLLOWER_CHILD";

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
