//! Processes that are killed while many threads submit closures.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use index_table::Store;

use crate::{ItemRepository, TestResult, check, insert, item};

const CHILD: &str = "INDEX_TABLE_KILLED_GROUP";
const THREADS: u64 = 16;
/// The number of rows that are acknowledged before a process is killed.
const COMMITS: usize = 40;

/// Each thread inserts every sixteenth row, and prints its number after the commit.
fn write_until_killed(path: &Path) -> TestResult {
    let store = Store::open(path)?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let first =
        items.all(&store.read()?).rev().keys().next().transpose()?.map_or(0, |last| last + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (writer, items) = (&writer, &items);
            scope.spawn(move || {
                for id in (0..).map(|n| first + n * THREADS + thread) {
                    if insert(writer, items, item(id)).wait().is_err()
                        || writeln!(std::io::stdout(), "{id}").is_err()
                    {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}

#[test]
fn acknowledged_closures_survive_a_kill() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(path.as_ref());
    }
    let dir = tempfile::tempdir()?;
    let mut known = BTreeSet::new();
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "killed::acknowledged_closures_survive_a_kill", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        // The other output of the test harness has no numbers.
        let mut ids = lines.filter_map(|line| line.ok()?.parse::<u64>().ok());
        let acknowledged = COMMITS + 13 * round;
        let before = known.len();
        known.extend(ids.by_ref().take(acknowledged));
        assert_eq!(known.len() - before, acknowledged, "the process ended before it was killed");
        child.kill()?;
        known.extend(ids);
        child.wait()?;

        let store = Store::open(dir.path())?;
        let items = ItemRepository::open(&store)?;
        let stored_ids: BTreeSet<u64> =
            items.all(&store.read()?).keys().collect::<Result<_, _>>()?;
        assert!(
            stored_ids.is_superset(&known),
            "{:?}",
            known.difference(&stored_ids).collect::<Vec<_>>()
        );
        // For each thread and round, one closure may have been committed without its number being printed.
        assert!(stored_ids.len() - known.len() <= THREADS as usize * (round + 1));
        check(&store, &items, stored_ids)?;
    }
    Ok(())
}
