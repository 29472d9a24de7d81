//! Tables that are opened after a transaction has started.

use std::path::Path;

use index_table::{Error, Store};

use super::{TestResult, covering, fill, indexed, other};

fn fill_indexed(path: &Path) -> TestResult {
    fill(path)?;
    indexed::PersonRepository::open(&Store::open(path)?)?;
    Ok(())
}

#[test]
fn a_snapshot_has_the_tables_that_were_in_the_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill_indexed(dir.path())?;
    let store = Store::open(dir.path())?;
    let before = store.read()?;
    let people = indexed::PersonRepository::open(&store)?;
    store.transaction(|txn| people.delete(txn, 1))?;

    assert_eq!(people.get(&before, 1)?, Some(indexed::person(1)));
    assert_eq!(people.all(&before).count()?, 3000);
    assert_eq!(people.find_by_town(&before, "Rome").rows().count(), 3000);
    assert_eq!(people.by_age(&before).count()?, 3000);
    assert!(people.verify(&before).run()?.is_clean());
    assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 2999);

    // All repositories are dropped, and new repositories are opened after another snapshot.
    drop((before, people));
    let before = store.read()?;
    let people = indexed::PersonRepository::open(&store)?;
    assert_eq!(people.find_by_town(&before, "Rome").count()?, 2999);
    Ok(())
}

#[test]
fn a_snapshot_has_no_table_that_is_created_later() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        let before = store.read()?;
        let others = other::OtherRepository::open(&store)?;
        assert!(matches!(others.get(&before, 1), Err(Error::SnapshotTooOld { table: "other" })));
        assert!(others.get(&store.read()?, 1).is_ok());
        drop((before, others));
        let before = store.read()?;
        let others = other::OtherRepository::open(&store)?;
        let result = others.get(&before, 1).map(drop);
        assert!(matches!(result, Ok(()) | Err(Error::SnapshotTooOld { .. })), "{result:?}");
    }
    Ok(())
}

#[test]
fn a_snapshot_has_no_index_that_is_declared_later() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    let store = Store::open(dir.path())?;
    let before = store.read()?;
    let people = indexed::PersonRepository::open(&store)?;
    let result = people.find_by_town(&before, "Rome").count();
    assert!(matches!(result, Err(Error::SnapshotTooOld { table: "people" })), "{result:?}");

    // An index with the same name and the same database, and with other entries.
    drop((before, people));
    drop(store);
    let store = Store::open(dir.path())?;
    let before = store.read()?;
    let people = covering::PersonRepository::open(&store)?;
    assert_eq!(people.all(&before).count()?, 3000);
    let result = people.find_by_town(&before, "Rome").count();
    assert!(matches!(result, Err(Error::SnapshotTooOld { table: "people" })), "{result:?}");
    assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 3000);
    Ok(())
}

#[test]
fn a_snapshot_has_an_index_in_its_earlier_state() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    indexed::PersonRepository::open_online(&Store::open(dir.path())?)?;
    let store = Store::open(dir.path())?;
    let before = store.read()?;
    let people = indexed::PersonRepository::open(&store)?;
    for _ in 0..2 {
        let result = people.find_by_town(&before, "Rome").count();
        assert!(matches!(result, Err(Error::IndexNotReadable { .. })), "{result:?}");
        assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 3000);
    }
    Ok(())
}

/// Databases of unopened tables leave room for others.
#[test]
fn unopened_tables_leave_room_for_other_tables() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill_indexed(dir.path())?;
    let store = Store::options().max_databases(2).open(dir.path())?;
    other::OtherRepository::open(&store)?;
    indexed::PersonRepository::open(&store)?;
    Ok(())
}
