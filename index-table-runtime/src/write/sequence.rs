//! The numbers that `insert_with` assigns.
//!
//! The file stores the last assigned number. The next number is one above this number and above the greatest
//! primary key in the table; the first number is 1. So a number is not reused after its row was deleted, and rows
//! with explicit keys cause no conflicts. A rollback also undoes the assignment.

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, WriteRecords as _, Writer},
    model::{
        entity::Entity,
        error::{Error, Result},
        key::{DecodeError, Key as _, KeyReader, Sequence, Unescaped},
        schema::Source,
    },
};

/// Returns the greatest number in use; the next number is one above it.
pub(crate) fn last<R: Entity<Key: Sequence>>(writer: &Writer<'_, '_>) -> Result<u128> {
    Ok(assigned::<R>(writer)?.max(greatest::<R>(writer)?))
}

/// Stores the last assigned number.
pub(crate) fn keep(writer: &mut Writer<'_, '_>, number: u128) -> Result<()> {
    match u64::try_from(number) {
        Ok(number) => writer.put_sequence(&number.to_be_bytes()),
        Err(_) => writer.put_sequence(&number.to_be_bytes()),
    }
}

/// Returns the error for a sequence without numbers above `last`.
#[cold]
pub(crate) fn exhausted(table: &'static str, last: u128) -> Error {
    Error::SequenceExhausted { table, last: u64::try_from(last).unwrap_or(u64::MAX) }
}

fn assigned<R: Entity>(writer: &Writer<'_, '_>) -> Result<u128> {
    let Some(bytes) = writer.reader().sequence()? else { return Ok(0) };
    if let Ok(number) = bytes.try_into() {
        return Ok(u64::from_be_bytes(number).into());
    }
    let number = bytes.try_into().map(u128::from_be_bytes);
    number.map_err(|_| Error::Corrupt {
        table: R::TABLE.name,
        index: None,
        key: "of its sequence".to_owned(),
        reason: format!("the last number has {} bytes", bytes.len()),
    })
}

fn greatest<R: Entity<Key: Sequence>>(writer: &Writer<'_, '_>) -> Result<u128> {
    let query = Query { reverse: true, ..Query::new(Source::Facts, KeyRange::ALL) };
    let mut facts = writer.reader().cursor(query)?;
    if !facts.advance()? {
        return Ok(0);
    }
    let bytes = facts.entry().primary_key;
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    let key = R::Key::decode_owned(&mut reader);
    let key =
        key.and_then(|key| if reader.rest().is_empty() { Ok(key) } else { Err(DecodeError::Long) });
    key.map(|key| key.number()).map_err(|error| R::TABLE.corrupt(Source::Facts, bytes, error))
}
