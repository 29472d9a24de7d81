//! The numbers that `insert_with` assigns, and the record of the last number. This code is pure.

use super::{
    error::{Error, Result},
    schema::TableSchema,
};

/// The numbers after the leading fields of a primary key, for an engine that takes blocks of them.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "of one engine"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbering<'n> {
    pub(crate) leading: &'n [u8],
    /// Whether the type of the keys has a number.
    pub(crate) can_assign: fn(u128) -> bool,
    /// Returns the number of a primary key whose leading fields have this length.
    pub(crate) number_of: fn(&'static TableSchema, &[u8], usize) -> Result<u128>,
}

/// Returns the last assigned number of a record.
///
/// # Errors
///
/// [`Error::Corrupt`]
pub(crate) fn decode(schema: &'static TableSchema, record: Option<&[u8]>) -> Result<u128> {
    let Some(bytes) = record else { return Ok(0) };
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

/// Calls `write` with the record of the last assigned number.
pub(crate) fn encode<T>(number: u128, write: impl FnOnce(&[u8]) -> T) -> T {
    match u64::try_from(number) {
        Ok(number) => write(&number.to_be_bytes()),
        Err(_) => write(&number.to_be_bytes()),
    }
}

/// Returns the error for a sequence without numbers above `last`.
#[cold]
pub(crate) fn exhausted(table: &'static str, last: u128) -> Error {
    Error::SequenceExhausted { table, last: u64::try_from(last).unwrap_or(u64::MAX) }
}
