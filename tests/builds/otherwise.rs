//! A process with an open table that another process then declares in another way.

use std::{path::Path, process::Command};

use index_table::{Durability, Error, IndexState, Result, Store};

use crate::{TestResult, after, assert_clean, before, item};

const ROWS: u32 = 500;

mod first {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town)]
    #[index(desc(code), unique, name = "single")]
    #[index(code, name = "kept")]
    #[index(town, strategy = "full", name = "gone")]
    pub(crate) struct Place {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) town: String,
        pub(crate) code: u32,
    }
}

/// A declaration with two indexes of the same names and different entries, and one unchanged index.
mod changed {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town, include = [code])]
    #[index(town, name = "single")]
    #[index(code, name = "kept")]
    pub(crate) struct Place {
        #[primary_key]
        id: u32,
        town: String,
        code: u32,
    }
}

/// Opens a store that two processes write.
fn open(path: &Path) -> Result<Store> {
    Store::options().durability(Durability::Full).open(path)
}

/// Runs `work` in the other process, and returns true there.
fn as_other_process(work: impl FnOnce(&Store) -> Result<()>) -> Result<bool> {
    match std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        Some(path) => work(&open(Path::new(&path))?).map(|()| true),
        None => Ok(false),
    }
}

fn in_another_process(name: &str, path: &Path) -> TestResult {
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", name])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    Ok(())
}

fn is_not_readable<T: std::fmt::Debug>(result: Result<T>, state: &IndexState) -> TestResult {
    match result {
        Err(Error::IndexNotReadable { state: found, .. }) if found == *state => Ok(()),
        result => Err(format!("{result:?}").into()),
    }
}

/// Queries fail because the entries of the index have another declaration or are not built yet.
#[test]
fn queries_on_an_index_with_another_declaration_are_refused() -> TestResult {
    if as_other_process(|store| changed::PlaceRepository::open_online(store).map(drop))? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let towns = first::PlaceRepository::open(&store)?;
    store.transaction(|txn| {
        (0..ROWS).try_for_each(|id| {
            towns.insert(txn, &first::Place { id, town: format!("town {}", id % 5), code: id })
        })
    })?;
    let before = store.read()?;
    assert_eq!(towns.by_gone(&before).count()?, u64::from(ROWS));
    in_another_process(
        "otherwise::queries_on_an_index_with_another_declaration_are_refused",
        dir.path(),
    )?;
    assert_eq!(towns.find_by_town(&before, "town 1").count()?, 100, "the snapshot has changed");
    for txn in [&store.read()?, &*store.write()?] {
        let announced = &IndexState::Announced;
        is_not_readable(towns.find_by_town(txn, "town 1").count(), announced)?;
        let first = towns.find_by_town(txn, "town 1").keys().next().transpose();
        is_not_readable(first, announced)?;
        is_not_readable(towns.get_by_single(txn, 5).map(|row| row.map(|row| row.id)), announced)?;
        is_not_readable(towns.by_gone(txn).count(), &IndexState::Retired)?;
        assert!(towns.verify(txn).run()?.is_clean());
        assert_eq!(towns.find_by_kept(txn, 5).count()?, 1, "both declarations have this index");
        assert_eq!(towns.get(txn, 5)?.map(|row| row.code), Some(5));
    }
    Ok(())
}

/// LMDB has the dropped databases open in this process. The error names the reason and the remedy.
#[test]
fn an_index_dropped_by_another_process_needs_a_reopened_store() -> TestResult {
    if as_other_process(|store| {
        let _items = before::ItemRepository::open(store)?;
        assert_eq!(store.drop_retired()?.len(), 11);
        Ok(())
    })? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let items = after::ItemRepository::open(&store)?;
    store.transaction(|txn| items.insert(txn, &item(1, 1)))?;
    in_another_process(
        "otherwise::an_index_dropped_by_another_process_needs_a_reopened_store",
        dir.path(),
    )?;
    is_not_readable(items.by_code(&store.read()?).count(), &IndexState::Retired)?;
    drop(items);
    let error = after::ItemRepository::open(&store).map(drop).err().ok_or("it opens")?;
    assert!(matches!(error, Error::ReopenNeeded { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("another process has dropped an index"), "{message}");
    assert!(message.contains("close the store"), "{message}");
    drop(store);
    let store = open(dir.path())?;
    let items = after::ItemRepository::open(&store)?;
    assert_eq!(items.by_code(&store.read()?).count()?, 1);
    assert_clean(&items, &store.read()?)?;
    Ok(())
}
