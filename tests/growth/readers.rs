//! Processes that read a store with one data file while another process makes it a store with shards.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{Error, Result, Store};

use crate::basic::All;

const SHOP: &str = "INDEX_TABLE_GROWTH_READ_SHOP";

/// Opens the store read-only, and reads it once for each line. Prints the number of rows, or `reopen`.
fn child(shop: &Path) -> Result<()> {
    let options = || Store::options().read_only(true);
    let mut store = options().open(shop)?;
    let mut all = All::open(&store)?;
    println!("open");
    for _ in std::io::stdin().lines() {
        let read = store.read().and_then(|txn| all.customers.all(&txn).count());
        match read {
            Ok(rows) => println!("rows {rows}"),
            Err(Error::ReopenNeeded { .. }) => {
                println!("reopen");
                drop((all, store));
                store = options().open(shop)?;
                all = All::open(&store)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[test]
fn a_reader_in_another_process_never_lacks_rows() -> Result<()> {
    if let Some(shop) = std::env::var_os(SHOP) {
        return child(Path::new(&shop));
    }
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    let store = Store::open(&shop)?;
    let all = All::open(&store)?;
    all.fill(&store)?;

    let name = "readers::a_reader_in_another_process_never_lacks_rows";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(SHOP, &shop)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines().map_while(std::result::Result::ok);
    let mut next =
        |is_answer: fn(&str) -> bool| lines.find(|line| is_answer(line)).expect("a line");
    let is_answer = |line: &str| line.starts_with("rows") || line == "reopen";
    let _ = next(|line| line.ends_with("open"));
    let mut ask = || {
        input.write_all(b"\n").unwrap();
        next(is_answer)
    };
    let mut grow = || -> Result<()> {
        assert_eq!(ask(), "rows 300");
        store.add_shard("east", "east")?;
        assert_eq!(ask(), "reopen");
        assert_eq!(ask(), "rows 300");
        store.move_range("customers", 50u32.., "east").run()?;
        assert_eq!(ask(), "reopen");
        assert_eq!(ask(), "rows 300");
        Ok(())
    };
    let grown = grow();
    drop(input);
    assert!(child.wait().unwrap().success());
    grown
}
