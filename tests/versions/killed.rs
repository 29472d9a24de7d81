//! A process that is killed in an upgrade leaves complete rows, and the next upgrade continues.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{CustomerRepository, TestResult, expected, fill, is_clean, store};

const CHILD: &str = "INDEX_TABLE_UPGRADE_CHILD";
const ROWS: u32 = 600;

fn upgrade(path: &Path) -> TestResult {
    let store = store(path)?;
    let customers = CustomerRepository::open(&store)?;
    let reports = |at: index_table::Progress| {
        let mut out = std::io::stdout().lock();
        // Nobody may be there to read it.
        let _ = writeln!(out, "{}", at.done).and_then(|()| out.flush());
        // So that it is killed before it is done.
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
        // Behind the batches of the round before, and then wherever it is.
        let until = u64::from(ROWS) * (round + 1) / 6;
        for line in lines {
            if line?.parse::<u64>().is_ok_and(|rows| rows >= until) {
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
                older += u64::from(row?.1.first() != Some(&3));
            }
            Ok(())
        })?;
        assert!(older < left || older == 0, "{older} of {left}");
        assert!(older > 0 || round > 0, "it is killed in the middle at first");
        left = older;
    }
    let store = store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    assert_eq!(customers.upgrade(&store).run()?.upgraded, left);
    is_clean(&customers, &store)
}
