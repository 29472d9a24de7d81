//! Commits of killed processes: no acknowledged commit is lost, and none is partial.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const CHILD: &str = "INDEX_TABLE_DURABILITY_CHILD";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(batch)]
#[index(batch, state, name = "state", include = [note])]
#[index(code, unique)]
struct Job {
    #[primary_key]
    id: u64,
    batch: u32,
    state: u8,
    code: u64,
    note: String,
}

/// Rows written in one transaction.
const BATCH: u64 = 20;

fn job(id: u64) -> Job {
    let batch = (id / BATCH) as u32;
    Job { id, batch, state: 0, code: !id, note: format!("job {id}") }
}

/// Commits batch after batch, and prints the number of each. A commit inserts a batch and changes all rows of
/// the previous batch.
fn write_until_killed(path: &Path) -> TestResult {
    let store = Store::open(path)?;
    let jobs = JobRepository::open(&store)?;
    let first = jobs.all(&store.read()?).count()? / BATCH;
    for batch in first.. {
        store.transaction(|txn| {
            let ids = batch * BATCH..(batch + 1) * BATCH;
            ids.clone().try_for_each(|id| jobs.insert(txn, &job(id)))?;
            if batch > 0 {
                for id in ids {
                    jobs.update(txn, id - BATCH, |job| job.state += 1)?;
                }
            }
            Ok(())
        })?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{batch}")?;
        out.flush()?;
    }
    Ok(())
}

#[test]
fn commits_survive_a_kill() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(path.as_ref());
    }
    let dir = tempfile::tempdir()?;
    // The number of commits after which a process is killed.
    for commits in 1..13 {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "commits_survive_a_kill", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        // The other output of the test harness has no numbers.
        let mut batches = lines.filter_map(|line| line.ok()?.parse::<u64>().ok());
        let acknowledged: Vec<u64> = batches.by_ref().take(commits).collect();
        assert_eq!(acknowledged.len(), commits, "the process ended before it was killed");
        // The process is killed at different moments of the next commits.
        std::thread::sleep(Duration::from_micros(commits as u64 * 700));
        child.kill()?;
        let committed = batches.last().or(acknowledged.last().copied()).ok_or("no commit")?;
        child.wait()?;

        let store = Store::open(dir.path())?;
        let jobs = JobRepository::open(&store)?;
        let txn = store.read()?;
        let rows: Vec<Job> = jobs.all(&txn).rows().collect::<Result<_, _>>()?;
        let batches = rows.len() as u64 / BATCH;
        assert_eq!(rows.len() as u64 % BATCH, 0, "a batch is incomplete");
        assert!(committed < batches, "{committed} of {batches}");
        for row in &rows {
            let state = u8::from(u64::from(row.batch) + 1 < batches);
            assert_eq!(row, &Job { state, ..job(row.id) });
            assert_eq!(jobs.get_by_code(&txn, row.code)?.as_ref(), Some(row));
        }
        for batch in 0..batches as u32 {
            let expected: Vec<_> = rows.iter().filter(|row| row.batch == batch).cloned().collect();
            let found: Vec<_> = jobs.find_by_batch(&txn, batch).rows().collect::<Result<_, _>>()?;
            assert_eq!(found, expected);
        }
        let entries: Vec<_> = jobs.by_state(&txn).entries().collect::<Result<_, _>>()?;
        let expected = rows.iter().map(|row| (row.batch, row.state, row.id, row.note.as_str()));
        let found = entries.iter().map(|entry| (entry.batch, entry.state, entry.id, entry.note));
        assert!(found.eq(expected));
        assert_eq!(jobs.by_code(&txn).count()?, rows.len() as u64);
    }
    Ok(())
}
