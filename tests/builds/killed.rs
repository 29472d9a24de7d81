//! Processes that are killed during a build.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{Error, IndexState, Store};

use crate::{TestResult, after, assert_clean, before, fill, item, unreadable};

const ROWS: u32 = 3000;

fn store(path: &Path) -> index_table::Result<Store> {
    Store::options().map_size(1 << 26).durability(index_table::Durability::None).open(path)
}

/// Builds in small batches in the child process, and acknowledges each batch.
fn build(path: &Path) -> index_table::Result<()> {
    let store = store(path)?;
    let items = after::ItemRepository::open_online(&store)?;
    let reports = |progress: index_table::Progress| println!("rows {}", progress.done);
    items.build(&store).batch_bytes(4000).progress(reports).run().map(drop)
}

#[test]
fn a_killed_build_continues_from_its_position() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        build(Path::new(&path))?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    fill(&store(dir.path())?, (0..ROWS).map(|id| item(id, id)))?;
    for steps in [1, 3, 2] {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "killed::a_killed_build_continues_from_its_position", "--nocapture"])
            .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let reports = lines.map_while(Result::ok).filter(|line| line.contains("rows ")).take(steps);
        assert_eq!(reports.count(), steps);
        child.kill()?;
        child.wait()?;

        let store = store(dir.path())?;
        let items = after::ItemRepository::open_online(&store)?;
        let states = unreadable(&store)?;
        assert_eq!(states.len(), 11);
        let IndexState::Building { rows, .. } = states[0].1 else { return Err("building".into()) };
        assert!(rows > 0 && rows < u64::from(ROWS), "{rows}");
        // Rows are written and deleted before and after the position of the build.
        store.transaction(|txn| {
            for id in [steps as u32, ROWS - steps as u32] {
                items.update(txn, id, |row| row.town = "Bonn".into())?;
                items.delete(txn, id + 100)?;
            }
            Ok(())
        })?;
        assert_clean(&items, &store.read()?)?;
    }
    let store = store(dir.path())?;
    let items = after::ItemRepository::open_online(&store)?;
    let report = items.build(&store).run()?;
    assert!(report.is_readable() && report.rows < u64::from(ROWS), "{report}");
    assert_clean(&items, &store.read()?)?;
    assert_eq!(items.find_by_town(&store.read()?, "Bonn").count()?, 6);
    Ok(())
}

/// Another process declares the table in another way, and then as before. The states of the indexes that this
/// process has read are outdated.
#[test]
fn a_process_detects_a_declaration_that_changed_and_changed_back() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        let store = store(Path::new(&path))?;
        drop(before::ItemRepository::open(&store)?);
        after::ItemRepository::open_online(&store)?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = store(dir.path())?;
    let items = after::ItemRepository::open(&store)?;
    store.transaction(|txn| items.insert(txn, &item(1, 1)))?;
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "killed::a_process_detects_a_declaration_that_changed_and_changed_back"])
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    store.transaction(|txn| items.insert(txn, &item(2, 2)))?;
    let refused = items.by_code(&store.read()?).count();
    let Err(Error::IndexNotReadable { state: IndexState::Building { .. }, .. }) = refused else {
        return Err(format!("{refused:?}").into());
    };
    assert!(items.build(&store).run()?.is_readable());
    assert_eq!(items.by_code(&store.read()?).count()?, 2);
    assert_clean(&items, &store.read()?)?;
    Ok(())
}

/// An index is not dropped while a repository uses it.
#[test]
fn an_index_retired_by_another_process_is_kept_while_in_use() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        before::ItemRepository::open(&store(Path::new(&path))?)?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = store(dir.path())?;
    let items = after::ItemRepository::open(&store)?;
    store.transaction(|txn| items.insert(txn, &item(1, 1)))?;
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "killed::an_index_retired_by_another_process_is_kept_while_in_use"])
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert_eq!(unreadable(&store)?.len(), 11);
    assert!(store.drop_retired()?.is_empty());
    let result = items.by_code(&store.read()?).count();
    let state = IndexState::Retired;
    assert!(matches!(result, Err(Error::IndexNotReadable { state: it, .. }) if it == state));
    drop(items);
    assert_eq!(store.drop_retired()?.len(), 11);
    let items = after::ItemRepository::open(&store)?;
    assert_eq!(items.by_code(&store.read()?).count()?, 1);
    assert_clean(&items, &store.read()?)?;
    Ok(())
}

/// Another process finishes the build of a table that this process has open.
#[test]
fn an_index_built_by_another_process_is_readable() -> TestResult {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        build(Path::new(&path))?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = store(dir.path())?;
    fill(&store, (0..ROWS).map(|id| item(id, id)))?;
    let items = after::ItemRepository::open_online(&store)?;
    let before = store.read()?;
    assert!(items.by_code(&before).count().is_err());
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "killed::an_index_built_by_another_process_is_readable"])
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    for _ in 0..2 {
        assert!(items.by_code(&before).count().is_err());
        assert_eq!(items.by_code(&store.read()?).count()?, u64::from(ROWS));
    }
    drop(before);
    store.transaction(|txn| items.insert(txn, &item(ROWS, ROWS)))?;
    assert_clean(&items, &store.read()?)?;
    assert!(items.build(&store).run()?.indexes.is_empty());
    Ok(())
}
