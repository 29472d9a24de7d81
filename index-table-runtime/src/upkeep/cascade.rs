//! Deleting rows together with the rows that refer to them, by references with `on_delete = "cascade"`.
//!
//! A row is deleted first, and then the rows that refer to it, one after the other, each found by the index of the
//! reference. So rows that refer to each other in a cycle are deleted once, and no list of rows is kept: the memory is that
//! of a path, from the row to one that refers to it, to one that refers to that, with the rows on it that have
//! further rows to delete.
//!
//! References with `on_delete = "restrict"` to any of these rows are checked before the row is deleted, as SQL's
//! `RESTRICT` does. If one of them has rows, the whole cascade is undone.

use std::sync::Arc;

use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        reference::Referrer,
        schema::Source,
    },
    store::{OpenTable, WriteTxn},
    write::{
        Scratch, references,
        rows::{self, Cascading, Deleted},
    },
};

/// The length of a path after which the rows on it without further rows are left out.
const LONG: usize = 1_024;

/// Deletes the row if `deleted` says that it needs a cascade. Returns whether it is deleted.
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
/// [`Error::Referenced`], [`Error::RepositoryNeeded`] and the errors of deleting a row. The transaction may have deleted
/// some of the rows.
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
        delete_row(txn, &row.0, &row.1)?;
        if path.len() >= LONG {
            shorten(txn, &mut path)?;
        }
        path.push(row);
    }
    Ok(true)
}

fn delete_row(
    txn: &mut WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
) -> Result<Deleted> {
    let (mut writer, Scratch { old, .. }, written) = txn.row_writer(table)?;
    rows::delete(table.rows, &mut writer, (primary_key, Cascading::Yes), old, written)
}

/// Leaves out the last rows of the path that no row refers to.
fn shorten(txn: &WriteTxn<'_>, path: &mut Vec<(Arc<OpenTable>, Vec<u8>)>) -> Result<()> {
    while let Some((table, primary_key)) = path.last()
        && next_referring(txn, table, primary_key)?.is_none()
    {
        path.pop();
    }
    Ok(())
}

/// Returns a row that is deleted with the row with this primary key, and its table.
fn next_referring(
    txn: &WriteTxn<'_>,
    table: &Arc<OpenTable>,
    primary_key: &[u8],
) -> Result<Option<(Arc<OpenTable>, Vec<u8>)>> {
    for reader in txn.reader(table)?.in_shards_of(primary_key)? {
        for by in references::referrers(reader) {
            let (_, by) = by?;
            let Some(repository) = by.cascade else { continue };
            let Some(from) = txn.table(by.table) else {
                // Without rows that refer to the row, the table is not needed.
                if !references::has_rows_of(reader, by, primary_key)? {
                    continue;
                }
                return Err(Error::RepositoryNeeded {
                    table: table.schema.name,
                    key: table.schema.show_primary_key(primary_key),
                    by: by.table,
                    reference: by.reference,
                    repository,
                });
            };
            if let Some(row) = first_row(txn, &from, by, primary_key)? {
                return Ok(Some((from, row)));
            }
        }
    }
    Ok(None)
}

/// Returns the primary key of the first row that refers to the row with this primary key.
fn first_row(
    txn: &WriteTxn<'_>,
    from: &OpenTable,
    by: &Referrer,
    primary_key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let index = from.schema.indexes.iter().position(|index| index.name == by.index);
    let source = index.map_or(Source::Facts, Source::Index);
    let bounds = KeyRange::beginning_with(&by.prefix(primary_key));
    let query = Query { limit: Some(1), ..Query::new(source, bounds) };
    let mut rows = txn.reader(from)?.cursor(query)?;
    let found = rows.advance()?;
    Ok(found.then(|| rows.entry().primary_key.to_vec()))
}
