//! Many stores in a process, up to the limits of the process.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use index_table::{Error, Store};

use super::{TestResult, plain};

/// Runs the test of this name in another process with these limits.
fn with_limits(name: &str, limits: &str, path: &Path) -> TestResult {
    let child = Command::new("sh")
        .args(["-c", &format!("{limits} && exec \"$0\" --exact \"$1\"")])
        .arg(std::env::current_exe()?)
        .arg(format!("many::{name}"))
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .output()?;
    let said = [child.stdout, child.stderr].concat();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&said));
    Ok(())
}

fn as_other_process() -> Option<PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

#[test]
fn a_thousand_stores_are_open_with_defaults() -> TestResult {
    const NAME: &str = "a_thousand_stores_are_open_with_defaults";
    if let Some(path) = as_other_process() {
        let mut stores = Vec::new();
        for number in 0..1000 {
            stores.push(Store::open(path.join(number.to_string()))?);
        }
        for store in [0, 500, 999].map(|at| &stores[at]) {
            let people = plain::PersonRepository::open(store)?;
            store.transaction(|txn| people.insert(txn, &plain::person(1)))?;
        }
        // There is still address space for others.
        drop(Vec::<u8>::with_capacity(1 << 32));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    with_limits(NAME, "ulimit -n 7200", dir.path())
}

#[test]
fn a_limit_of_open_files_is_named() -> TestResult {
    const NAME: &str = "a_limit_of_open_files_is_named";
    if let Some(path) = as_other_process() {
        let mut stores = Vec::new();
        let error = loop {
            match Store::open(path.join(stores.len().to_string())) {
                Ok(store) => stores.push(store),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::TooManyOpenFiles { limit: 70..80, .. }), "{error:?}");
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        assert!(stores.len() > 5, "{}", stores.len());
        return Ok(());
    }
    // A store has seven open files, and more while it is opened. Each of these limits is reached at a different step.
    for limit in 70..80 {
        let dir = tempfile::tempdir()?;
        with_limits(NAME, &format!("ulimit -n {limit}"), dir.path())?;
    }
    Ok(())
}

#[test]
fn a_map_that_the_process_may_not_have_is_named() -> TestResult {
    const NAME: &str = "a_map_that_the_process_may_not_have_is_named";
    if let Some(path) = as_other_process() {
        let result = Store::options().map_size(1 << 30).open(&path);
        let Err(error @ Error::NoAddressSpace { map_size: 0x4000_0000, .. }) = result else {
            return Err(format!("{result:?}").into());
        };
        assert!(error.to_string().contains("`Store::options().map_size(…)`"), "{error}");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    with_limits(NAME, "ulimit -v 500000", dir.path())
}
