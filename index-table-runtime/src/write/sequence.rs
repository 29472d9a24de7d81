//! The numbers that `insert_with` assigns.
//!
//! The file stores the last assigned number. The next number is one above this number and above the greatest
//! primary key in the table; the first number is 1. So a number is not reused after its row was deleted, and rows
//! with explicit keys cause no conflicts. A rollback also undoes the assignment.
//!
//! The rows of a table with a shard key are numbered within their shard key: the last field of the primary key, after
//! the leading fields. The file then stores a number for each shard key.

use std::marker::PhantomData;

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        key::{DecodeError, KeyReader, Sequence, Unescaped},
        numbering::{self, Numbering},
        schema::{Source, TableSchema},
    },
    placement::Writer,
};

/// The longest shard key for which numbers are stored, in bytes.
const LONGEST: usize = 400;

/// The next number of a sequence.
pub(crate) struct Next<N> {
    table: &'static str,
    number: u128,
    /// Whether the engine has assigned the number before the transaction, so that no record is written with the row.
    pub(crate) is_of_block: bool,
    key: PhantomData<fn() -> N>,
}

impl<N> Clone for Next<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Next<N> {}

impl<N> PartialEq for Next<N> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<N: Sequence> Next<N> {
    /// Returns the number as a key.
    pub(crate) fn key(&self) -> Result<N> {
        let last = self.number.saturating_sub(1);
        N::from_number(self.number).ok_or_else(|| numbering::exhausted(self.table, last))
    }

    /// Stores the number as the last assigned one.
    pub(crate) fn keep(&self, writer: &mut Writer<'_, '_>, leading: &[u8]) -> Result<()> {
        if self.is_of_block {
            return Ok(());
        }
        numbering::encode(self.number, |record| writer.put_sequence(leading, record))
    }

    /// Returns the error of the insertion. If another client has inserted a row with a number of a block, the block ends, and
    /// with `reruns`, the transaction runs again.
    #[cold]
    pub(crate) fn after(&self, writer: &Writer<'_, '_>, reruns: bool, error: Error) -> Error {
        if self.is_of_block { writer.after_number(reruns, error) } else { error }
    }
}

/// Returns the next number after the leading fields of the primary key.
pub(crate) fn next<N: Sequence>(
    schema: &'static TableSchema,
    writer: &Writer<'_, '_>,
    leading: &[u8],
) -> Result<Next<N>> {
    if leading.len() > LONGEST {
        return Err(schema.too_long(Source::Facts, leading, None, leading.len()));
    }
    let (table, key) = (schema.name, PhantomData);
    let numbering = Numbering {
        leading,
        can_assign: |number| N::from_number(number).is_some(),
        number_of: number_of::<N>,
    };
    if let Some(number) = writer.next_number(&numbering)? {
        return Ok(Next { table, number, is_of_block: true, key });
    }
    let last = assigned(schema, writer, leading)?.max(greatest::<N>(schema, writer, leading)?);
    let number = last.checked_add(1).ok_or_else(|| numbering::exhausted(table, last))?;
    Ok(Next { table, number, is_of_block: false, key })
}

/// Returns the error for a closure that would have to run again with another number.
#[cold]
pub(crate) fn changed() -> Error {
    let reason = "it has to run again, for example because the map was enlarged, and its closure can be called once: \
                  repeat the call";
    Error::TransactionFailed { reason: reason.to_owned() }
}

fn assigned(schema: &'static TableSchema, writer: &Writer<'_, '_>, leading: &[u8]) -> Result<u128> {
    numbering::decode(schema, writer.reader().sequence(leading)?)
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
    number_of::<N>(schema, facts.entry().primary_key, leading.len())
}

/// Returns the number of a primary key, after leading fields of this length.
fn number_of<N: Sequence>(
    schema: &'static TableSchema,
    bytes: &[u8],
    leading: usize,
) -> Result<u128> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes.get(leading..).unwrap_or_default(), &unescaped);
    let key = N::decode_owned(&mut reader);
    let key =
        key.and_then(|key| if reader.rest().is_empty() { Ok(key) } else { Err(DecodeError::Long) });
    key.map(|key| key.number()).map_err(|error| schema.corrupt(Source::Facts, bytes, error))
}
