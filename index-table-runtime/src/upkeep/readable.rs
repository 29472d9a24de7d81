//! Whether the rows in a data file can be read with the declaration.
//!
//! A row has the names of its fields, so the struct can get, lose and rename fields without a version of the table. A row that
//! the struct can't read, such as one that lacks a field without a default, is found when the table is opened, before anything
//! is written. A damaged row is left to [`verify`](crate::Verify), and doesn't keep the table from being opened.

use index_table_rows::Reason;

use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        key::DecodeError,
        row_vtable::TableRows,
        schema::Source,
    },
    placement::Reader,
};

/// The number of rows that are read from each end of a table. All rows of a table with at most twice as many are read.
const ROWS: u64 = 2_048;

/// The maximum number of bytes of rows that are read from each end of a table.
const BYTES: usize = 16 << 20;

const WAY_OUT: &str = "give a field that rows lack `#[serde(default)]`, and one with another name or a variant with another name \
                       `#[serde(alias = …)]`; if the meaning has changed, give the struct the next `version`, and the struct \
                       that the file has as its `previous`";

/// Reads rows from both ends of a table.
///
/// # Errors
///
/// [`Error::SchemaMismatch`] for a row that its type can't read.
pub(super) fn check(rows: &TableRows, reader: Reader<'_>) -> Result<()> {
    if !rows.has_rows() {
        return Ok(());
    }
    if let Some(last) = check_end(rows, reader, false, None)? {
        check_end(rows, reader, true, Some(&last))?;
    }
    Ok(())
}

/// Reads rows from one end of a table, in ascending or descending order, up to the primary key `until`. Returns the primary key of
/// the last of them if there are more rows.
fn check_end(
    rows: &TableRows,
    reader: Reader<'_>,
    reverse: bool,
    until: Option<&[u8]>,
) -> Result<Option<Vec<u8>>> {
    let mut facts = reader.cursor(Query { reverse, ..Query::new(Source::Facts, KeyRange::ALL) })?;
    let (mut count, mut bytes) = (0, 0);
    while facts.advance()? {
        let fact = facts.entry();
        if until == Some(fact.primary_key) {
            return Ok(None);
        }
        if let Err(error) = rows.read(fact.data)
            && !is_damage(&error)
        {
            return Err(unreadable(rows, fact.primary_key, &error));
        }
        (count, bytes) = (count + 1, bytes + fact.data.len());
        if count == ROWS || bytes >= BYTES {
            return Ok(Some(fact.primary_key.to_vec()));
        }
    }
    Ok(None)
}

/// Whether the bytes are damaged, as opposed to a row that its type can't read.
fn is_damage(error: &DecodeError) -> bool {
    match error {
        DecodeError::Fields(error) => !matches!(error.reason(), Reason::Serde(_)),
        DecodeError::Missing(_) => false,
        _ => true,
    }
}

#[cold]
fn unreadable(rows: &TableRows, primary_key: &[u8], error: &DecodeError) -> Error {
    let key = rows.schema.show_primary_key(primary_key);
    Error::SchemaMismatch {
        table: rows.schema.name,
        difference: format!("the row with primary key {key} can't be read: {error}"),
        way_out: WAY_OUT,
    }
}
