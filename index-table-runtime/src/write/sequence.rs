//! The numbers that `insert_with` assigns.
//!
//! The file stores the last assigned number. The next number is one above this number and above the greatest
//! primary key in the table; the first number is 1. So a number is not reused after its row was deleted, and rows
//! with explicit keys cause no conflicts. A rollback also undoes the assignment.
//!
//! The rows of a table with a shard key are numbered within their shard key: the last field of the primary key, after
//! the leading fields. The file then stores a number for each shard key.

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, WriteRecords as _, Writer},
    model::{
        error::{Error, Result},
        key::{DecodeError, KeyReader, Sequence, Unescaped},
        schema::{Source, TableSchema},
    },
};

/// The longest shard key for which numbers are stored, in bytes.
const LONGEST: usize = 400;

/// Returns the greatest number in use after the leading fields of the primary key; the next number is one above it.
pub(crate) fn last<N: Sequence>(
    schema: &'static TableSchema,
    writer: &Writer<'_, '_>,
    leading: &[u8],
) -> Result<u128> {
    if leading.len() > LONGEST {
        return Err(schema.too_long(Source::Facts, leading, leading.len()));
    }
    Ok(assigned(schema, writer, leading)?.max(greatest::<N>(schema, writer, leading)?))
}

/// Stores the last assigned number.
pub(crate) fn keep(writer: &mut Writer<'_, '_>, leading: &[u8], number: u128) -> Result<()> {
    match u64::try_from(number) {
        Ok(number) => writer.put_sequence(leading, &number.to_be_bytes()),
        Err(_) => writer.put_sequence(leading, &number.to_be_bytes()),
    }
}

/// Returns the error for a sequence without numbers above `last`.
#[cold]
pub(crate) fn exhausted(table: &'static str, last: u128) -> Error {
    Error::SequenceExhausted { table, last: u64::try_from(last).unwrap_or(u64::MAX) }
}

fn assigned(schema: &'static TableSchema, writer: &Writer<'_, '_>, leading: &[u8]) -> Result<u128> {
    let Some(bytes) = writer.reader().sequence(leading)? else { return Ok(0) };
    if let Ok(number) = bytes.try_into() {
        return Ok(u64::from_be_bytes(number).into());
    }
    let number = bytes.try_into().map(u128::from_be_bytes);
    number.map_err(|_| Error::Corrupt {
        table: schema.name,
        index: None,
        key: "of its sequence".to_owned(),
        reason: format!("the last number has {} bytes", bytes.len()),
    })
}

fn greatest<N: Sequence>(
    schema: &'static TableSchema,
    writer: &Writer<'_, '_>,
    leading: &[u8],
) -> Result<u128> {
    let range = if leading.is_empty() { KeyRange::ALL } else { KeyRange::beginning_with(leading) };
    let query = Query { reverse: true, ..Query::new(Source::Facts, range) };
    let mut facts = writer.reader().cursor(query)?;
    if !facts.advance()? {
        return Ok(0);
    }
    let bytes = facts.entry().primary_key;
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes.get(leading.len()..).unwrap_or_default(), &unescaped);
    let key = N::decode_owned(&mut reader);
    let key =
        key.and_then(|key| if reader.rest().is_empty() { Ok(key) } else { Err(DecodeError::Long) });
    key.map(|key| key.number()).map_err(|error| schema.corrupt(Source::Facts, bytes, error))
}
