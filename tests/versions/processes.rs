//! Two processes with a store, one of them with an older declaration.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{Durability, Error, Store};

use crate::{CustomerRepository, Customers2, TestResult, customer, customer2, fill_older};

const CHILD: &str = "INDEX_TABLE_VERSIONS_CHILD";

/// Opens a store that two processes write.
fn store(path: &Path) -> index_table::Result<Store> {
    Store::options().map_size(1 << 26).durability(Durability::Full).open(path)
}

/// Opens the table in the process with the older declaration, prints a line, and waits until the other
/// process has written.
fn older_process(path: &Path) -> TestResult {
    let store = store(path)?;
    let customers = Customers2::open(&store)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "open")?;
    out.flush()?;
    std::io::stdin().read_exact(&mut [0])?;

    let txn = store.read()?;
    let result = customers.get(&txn, 100);
    let Err(Error::NewerRow { table: "customers", index: None, key, version: 3, known: 2 }) =
        result
    else {
        return Err(format!("{result:?}").into());
    };
    assert_eq!(key, "100");
    assert!(customers.get(&txn, 1)?.is_some(), "a row of a known version is not read");
    let last = customers.all(&txn).views().last();
    assert!(matches!(last, Some(Err(Error::NewerRow { .. }))), "{last:?}");
    drop(txn);

    let mut txn = store.write()?;
    for result in [
        customers.put(&mut txn, &customer2(1)),
        customers.delete(&mut txn, 1).map(drop),
        customers.repair(&mut txn).delete_unreadable_rows().run().map(drop),
    ] {
        assert!(matches!(result, Err(Error::SchemaMismatch { .. })), "{result:?}");
    }
    drop(txn);
    let result = customers.upgrade(&store).run();
    assert!(matches!(result, Err(Error::SchemaMismatch { .. })), "{result:?}");
    drop(customers);

    let result = Customers2::open(&store).map(drop).err().ok_or("it opens")?.to_string();
    assert!(result.contains("version 3 in the file and 2 in the code"), "{result}");
    Ok(())
}

#[test]
fn the_process_with_the_older_declaration_is_refused() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        return older_process(path.as_ref());
    }
    let dir = tempfile::tempdir()?;
    fill_older(&store(dir.path())?, 9)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::the_process_with_the_older_declaration_is_refused"])
        .arg("--nocapture")
        .env(CHILD, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    while lines.next().ok_or("it did not open the table")?? != "open" {}
    let store = store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| customers.insert(txn, &customer(100, 3)))?;
    child.stdin.take().ok_or("no input")?.write_all(b"!")?;
    let said: Vec<String> = lines.collect::<Result<_, _>>()?;
    assert!(child.wait()?.success(), "{said:?}");
    Ok(())
}
