//! Declarations that differ from the file, from the same process, or from another process.

use std::path::Path;

use index_table::{Durability, Error, Store};

use super::{TestResult, fill, indexed, longer, newer, plain, retyped, same};

#[test]
fn rows_that_dont_fit_the_declaration_are_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    let store = Store::open(dir.path())?;
    let results = [
        newer::PersonRepository::open(&store).map(drop),
        longer::PersonRepository::open(&store).map(drop),
    ];
    let messages = results.map(|results| results.unwrap_err().to_string());
    assert_eq!(
        messages.each_ref().map(|message| message.split(';').next().unwrap_or_default()),
        [
            "table `people` doesn't match its declaration: it may have rows of version 1, and the chain of `previous` from version 2 does not include it",
            "table `people` doesn't match its declaration: the row with primary key 0 can't be read: missing field `email`",
        ]
    );
    assert!(messages.iter().all(|message| message.contains("`previous`")), "{messages:?}");
    // A wider integer reads the rows.
    retyped::PersonRepository::open(&store)?;
    Ok(())
}

#[test]
fn two_declarations_are_not_in_use_at_the_same_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let plain = plain::PersonRepository::open(&store)?;
    let again = plain::PersonRepository::open(&store)?;
    drop(again);
    assert!(matches!(
        indexed::PersonRepository::open(&store),
        Err(Error::SchemaMismatch { table: "people", .. })
    ));
    drop(plain);
    indexed::PersonRepository::open(&store)?;
    Ok(())
}

#[test]
fn two_types_of_row_are_not_in_one_table_at_the_same_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let plain = plain::PersonRepository::open(&store)?;
    let error = same::PersonRepository::open(&store).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table `people` doesn't match its declaration: this process uses it with another declaration: \
         `opening::plain::Person` has the same name for its table as `opening::same::Person`; declare \
         one of the two with another `#[table(name = …)]`, or drop the other's repositories first"
    );
    // The type in use can be opened again. The other type can be opened after all repositories are dropped.
    let again = plain::PersonRepository::open(&store)?;
    drop((plain, again));
    same::PersonRepository::open(&store)?;
    Ok(())
}

/// Runs the test of this name in another process.
fn in_another_process(name: &str, path: &Path) -> TestResult {
    let child = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", name])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    Ok(())
}

fn as_other_process() -> Option<std::path::PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

#[test]
fn a_changed_declaration_of_another_process_is_detected() -> TestResult {
    let full = Store::options().durability(Durability::Full);
    if let Some(path) = as_other_process() {
        let store = full.open(path)?;
        let people = indexed::PersonRepository::open(&store)?;
        people.build(&store).refuse_earlier_releases().run()?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = full.open(dir.path())?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &plain::person(1)))?;
    in_another_process(
        "other_declarations::a_changed_declaration_of_another_process_is_detected",
        dir.path(),
    )?;
    let result = store.transaction(|txn| people.insert(txn, &plain::person(2)));
    assert!(matches!(result, Err(Error::SchemaMismatch { table: "people", .. })), "{result:?}");
    assert_eq!(people.all(&store.read()?).count()?, 1, "reads fail");
    Ok(())
}
