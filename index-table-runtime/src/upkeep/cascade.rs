//! Deleting rows together with the rows that refer to them, by references with `on_delete = "cascade"`.
//!
//! A row is deleted first. Then its referring rows are found by the index of the reference, and deleted one after
//! another, each in the same way. So the rows of a cycle are deleted once. No list of all rows is kept in memory, only
//! a path: the first row, a row that refers to it, a row that refers to that row, and so on, as far as these rows have
//! further referring rows to delete.
//!
//! References with `on_delete = "restrict"` to a row are checked before the row is deleted, as SQL's `RESTRICT` does.
//! If a referring row exists, the whole cascade is undone.

use std::sync::Arc;

use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        reference::Referrer,
        schema::Source,
    },
    query::DANGLING,
    store::{OpenTable, WriteTxn},
    write::{
        Scratch, references,
        rows::{self, Cascading, Deleted},
    },
};

/// The length of a path from which rows without further referring rows are removed.
const LONG: usize = 1_024;

/// Deletes the row if `deleted` is [`Deleted::NeedsCascade`]. Returns whether the row has been deleted.
///
/// # Errors
///
/// The errors of [`delete_in`], after which nothing has changed.
#[inline]
pub(crate) fn finish(
    txn: &mut WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
    deleted: Deleted,
) -> Result<bool> {
    match deleted {
        Deleted::Row => Ok(true),
        Deleted::Missing => Ok(false),
        Deleted::NeedsCascade => txn.nested(|txn| delete_in(txn, table, primary_key)),
    }
}

/// Deletes a row with the rows that refer to it. Returns false if there is no such row.
///
/// # Errors
///
/// [`Error::Referenced`], [`Error::RepositoryNeeded`], [`Error::Corrupt`] for an entry without its row, and the errors of
/// deleting a row. The transaction may have deleted some of the rows.
pub(crate) fn delete_in(
    txn: &mut WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
) -> Result<bool> {
    if delete_row(txn, table, primary_key)? == Deleted::Missing {
        return Ok(false);
    }
    let mut path = vec![(Arc::clone(table), primary_key.to_vec())];
    while let Some((table, primary_key)) = path.last() {
        let Some(row) = next_referring(txn, table, primary_key)? else {
            path.pop();
            continue;
        };
        if delete_row(txn, &row.table, &row.primary_key)? == Deleted::Missing {
            // Its entry stays, and would be found again.
            return Err(row.dangling());
        }
        if path.len() >= LONG {
            shorten(txn, &mut path)?;
        }
        path.push((row.table, row.primary_key));
    }
    Ok(true)
}

fn delete_row(
    txn: &mut WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
) -> Result<Deleted> {
    let (mut writer, Scratch { old, .. }, written) = txn.row_writer(table)?;
    rows::delete(&table.rows, &mut writer, (primary_key, Cascading::Yes), old, written)
}

/// Removes the last rows of the path without further referring rows.
fn shorten(txn: &WriteTxn<'_>, path: &mut Vec<(Arc<OpenTable>, Vec<u8>)>) -> Result<()> {
    while let Some((table, primary_key)) = path.last()
        && next_referring(txn, table, primary_key)?.is_none()
    {
        path.pop();
    }
    Ok(())
}

/// A referring row, and the entry by which it was found.
struct Referring {
    table: Arc<OpenTable>,
    primary_key: Vec<u8>,
    source: Source,
    key: Vec<u8>,
}

impl Referring {
    /// Returns the error for an entry without its row.
    #[cold]
    fn dangling(&self) -> Error {
        self.table.schema.corrupt(self.source, &self.key, DANGLING)
    }
}

/// Returns a row that is deleted with the row with this primary key.
fn next_referring(
    txn: &WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
) -> Result<Option<Referring>> {
    let reader = txn.reader(table)?;
    if let Some(by) = reader.placed_part(primary_key)? {
        let table = txn.table(by.table).ok_or_else(|| needed(table, primary_key, &by))?;
        let [primary_key, key] = [primary_key.to_vec(), primary_key.to_vec()];
        return Ok(Some(Referring { table, primary_key, source: Source::Facts, key }));
    }
    for reader in reader.in_shards_of(primary_key)? {
        for by in references::referrers(reader) {
            let (_, by) = by?;
            if by.cascade.is_none() {
                continue;
            }
            let Some(from) = txn.table(by.table) else {
                // Without referring rows, the table is not needed.
                if !references::has_rows_of(reader, by, primary_key)? {
                    continue;
                }
                return Err(needed(table, primary_key, by));
            };
            if let Some(row) = first_row(txn, from, by, primary_key)? {
                return Ok(Some(row));
            }
        }
    }
    Ok(None)
}

#[cold]
fn needed(table: &OpenTable, primary_key: &[u8], by: &Referrer) -> Error {
    Error::RepositoryNeeded {
        table: table.schema.name,
        key: table.schema.show_primary_key(primary_key),
        by: by.table,
        reference: by.reference,
        repository: by.cascade.unwrap_or_default(),
    }
}

/// Returns the first row of `table` that refers to the row with this primary key.
fn first_row(
    txn: &WriteTxn<'_>,
    table: Arc<OpenTable>,
    by: &Referrer,
    primary_key: &[u8],
) -> Result<Option<Referring>> {
    let index = table.schema.indexes.iter().position(|index| index.name == by.index);
    let source = index.map_or(Source::Facts, Source::Index);
    let bounds = KeyRange::beginning_with(&by.prefix(primary_key));
    let query = Query { limit: Some(1), ..Query::new(source, bounds) };
    let mut rows = txn.reader(&table)?.cursor(query)?;
    if !rows.advance()? {
        return Ok(None);
    }
    let entry = rows.entry();
    let [primary_key, key] = [entry.primary_key.to_vec(), entry.key.to_vec()];
    drop(rows);
    Ok(Some(Referring { table, primary_key, source, key }))
}
