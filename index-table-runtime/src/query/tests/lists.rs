//! Reading rows of lists that another process has recorded.

use std::{env, path::Path, process::Command};

use serde::{Deserialize, Serialize};

use super::many::Row;
use crate::{
    Durability, Result, Store,
    model::{
        entity::Entity,
        error::EncodeError,
        key::{DecodeError, KeyBuf},
        maintain::EntryBuffer,
        row::{RowBody, RowOutput},
        schema::TableSchema,
    },
    table::KeyedTable,
};

const DIRECTORY: &str = "INDEX_TABLE_LISTS_TEST";

/// The row of another release, which the table's record does not tell from [`Row`].
#[derive(Serialize, Deserialize)]
struct Wide {
    more: u16,
    id: u16,
}

impl Entity for Wide {
    type Key = u16;
    const TABLE: &'static TableSchema = Row::TABLE;

    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError> {
        crate::private::RowFormat::<Self>::encode(self, out)
    }

    fn decode(body: RowBody<'_>) -> Result<Self, DecodeError> {
        crate::private::RowFormat::<Self>::decode(body)
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.id);
    }

    fn entries(&self, _: usize, _: &mut EntryBuffer) -> Result<(), EncodeError> {
        Ok(())
    }
}

fn open(dir: &Path) -> Result<Store> {
    // A journal has one writer.
    Store::options().durability(Durability::Full).map_size(1 << 24).open(dir)
}

/// The other process.
#[test]
#[ignore = "a test in this file runs it"]
fn write_rows() -> Result<()> {
    let Some(dir) = env::var_os(DIRECTORY) else { return Ok(()) };
    let store = open(Path::new(&dir))?;
    let table = KeyedTable::<Wide>::open(&store)?;
    store.transaction(|txn| {
        (0..3).try_for_each(|id| table.insert(txn, &Wide { more: 300 + id, id }))
    })
}

fn write_in_another_process(dir: &Path) {
    let exe = env::current_exe().expect("the path of the tests");
    let mut child = Command::new(exe);
    child.args(["query::tests::lists::write_rows", "--exact", "--ignored"]);
    let done = child.env(DIRECTORY, dir).output().expect("another process");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
}

fn check(table: &KeyedTable<Row>, store: &Store) -> Result<()> {
    let txn = store.read()?;
    let rows = table.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(rows, (0..3).map(|id| Row { id }).collect::<Vec<_>>());
    assert_eq!(table.get(&txn, 2)?, Some(Row { id: 2 }));
    Ok(())
}

#[test]
fn rows_of_another_process_are_read_without_claims() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    let table = KeyedTable::<Row>::open(&store)?;
    write_in_another_process(dir.path());
    check(&table, &store)
}

/// The transaction that claimed a list was not committed, and the other process has another list with its number.
#[test]
fn rows_of_another_process_are_read_instead_of_claims() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    let table = KeyedTable::<Row>::open(&store)?;
    let mut txn = store.write()?;
    table.insert(&mut txn, &Row { id: 7 })?;
    drop(txn);
    write_in_another_process(dir.path());
    check(&table, &store)
}

/// As before, but this process writes before it reads.
#[test]
fn a_write_after_another_process_drops_claims() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    let table = KeyedTable::<Row>::open(&store)?;
    let mut txn = store.write()?;
    table.insert(&mut txn, &Row { id: 7 })?;
    drop(txn);
    write_in_another_process(dir.path());
    store.transaction(|txn| table.insert(txn, &Row { id: 7 }))?;
    assert!(store.transaction(|txn| table.delete(txn, 7))?);
    check(&table, &store)
}
