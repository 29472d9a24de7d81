//! Processes that are killed during an upgrade.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{CustomerRepository, TestResult, expected, fill, golden::row_version, is_clean, store};

const CHILD: &str = "INDEX_TABLE_UPGRADE_CHILD";
const ROWS: u32 = 600;

fn upgrade(path: &Path) -> TestResult {
    let store = store(path)?;
    let customers = CustomerRepository::open(&store)?;
    let reports = |at: index_table::Progress| {
        let mut out = std::io::stdout().lock();
        // The parent may have closed the pipe.
        let _ = writeln!(out, "{}", at.done).and_then(|()| out.flush());
        // The upgrade is slowed down, so that the process is killed before the end.
        std::thread::sleep(Duration::from_millis(2));
    };
    customers.upgrade(&store).batch_bytes(400).progress(reports).run()?;
    Ok(())
}

#[test]
fn a_killed_upgrade_continues() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        return upgrade(path.as_ref());
    }
    let dir = tempfile::tempdir()?;
    drop(fill(&store(dir.path())?, ROWS)?);
    let mut left = u64::from(ROWS) * 2 / 3;
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "killed::a_killed_upgrade_continues", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        // The process is killed at any moment after the batches of the previous round.
        let last = u64::from(ROWS) * (round + 1) / 6;
        for line in lines {
            if line?.parse::<u64>().is_ok_and(|rows| rows >= last) {
                break;
            }
        }
        child.kill().and_then(|()| child.wait())?;

        let store = store(dir.path())?;
        let customers = CustomerRepository::open(&store)?;
        let rows = customers.all(&store.read()?).rows().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(rows, expected(ROWS));
        is_clean(&customers, &store)?;
        let mut older = 0;
        drop(customers);
        drop(store);
        crate::golden::raw(dir.path(), "customers", |database, txn| {
            for row in database.iter(txn)? {
                older += u64::from(row_version(row?.1) != 3);
            }
            Ok(())
        })?;
        assert!(older < left || older == 0, "{older} of {left}");
        assert!(older > 0 || round > 0, "the first process was not killed during its upgrade");
        left = older;
    }
    let store = store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    assert_eq!(customers.upgrade(&store).run()?.upgraded, left);
    is_clean(&customers, &store)
}
