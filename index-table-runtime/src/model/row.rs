//! The fact's bytes: the struct in the order of a [list](crate::model::lists). A row of a version after the first begins with
//! the version.
//!
//! A row of an older version is decoded as the struct of that version, and then converted by the `From` or `TryFrom` of
//! each later version. Rows of the current version have no such cost.

mod fields;
mod plain;
mod unread;
mod value;

pub(crate) use fields::{check_conversion, has_same_fields};
pub(crate) use unread::{carry, decode_whole, names, unknown};
pub use value::RowValue;
pub(crate) use value::values;

use index_table_rows::Fields;
pub use index_table_rows::{Collection, CollectionField};
use serde::de::DeserializeOwned;

use crate::model::{
    entity::{Entity, Precedes, RowReader, RowVersion, Viewed},
    error::EncodeError,
    key::{DecodeError, Unescaped},
    lists::Lists,
};

/// The bytes of a struct, with the lists of its table.
#[derive(Clone, Copy)]
pub struct RowBody<'r> {
    pub(crate) lists: &'r Lists,
    pub(crate) bytes: &'r [u8],
    pub(crate) question: Option<&'r unread::Question>,
}

impl<'r> RowBody<'r> {
    #[inline]
    const fn new(lists: &'r Lists, bytes: &'r [u8]) -> Self {
        Self { lists, bytes, question: None }
    }
}

/// The buffer for the bytes of a struct, with the lists of its table.
pub struct RowOutput<'r> {
    pub(crate) lists: &'r Lists,
    /// Whether the bytes are only read, by [`Lists::private_catalog`].
    pub(crate) is_private: bool,
    pub(crate) bytes: &'r mut Vec<u8>,
}

impl std::fmt::Debug for RowBody<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RowOutput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowOutput").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The number before a version. Smaller numbers are those of lists, of which the row has the first version.
const VERSION: u32 = 8192;

/// Appends the bytes of `row` to `out`. After an error, `out` may have a part of them.
#[inline]
pub(crate) fn encode<R: Entity>(
    lists: &Lists,
    row: &R,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if R::TABLE.version != 1 {
        push_number(VERSION.saturating_add(R::TABLE.version), out);
    }
    row.encode(RowOutput { lists, is_private: false, bytes: out })
}

/// Appends the version in front of the bytes of a row, if it is not the first one.
#[cfg(feature = "json")]
pub(crate) fn begin(version: u32, out: &mut Vec<u8>) {
    if version != 1 {
        push_number(VERSION.saturating_add(version), out);
    }
}

/// Appends a varint.
fn push_number(number: u32, out: &mut Vec<u8>) {
    let mut bytes = [0; 5];
    out.extend_from_slice(postcard::to_slice(&number, &mut bytes).map_or(&[], |it| it));
}

/// Reads a whole row. With debug assertions, fails if a conversion changes a field that must keep its value.
///
/// Inlined in release builds only, because a debug build would compile it again for each caller.
#[cfg_attr(
    not(debug_assertions),
    expect(clippy::inline_always, reason = "the row would be moved once more"),
    inline(always)
)]
pub(crate) fn decode<R: Entity>(lists: &Lists, bytes: &[u8]) -> Result<R, DecodeError> {
    match body(bytes, R::TABLE.version) {
        Ok(bytes) => <R as Entity>::decode(RowBody::new(lists, bytes)),
        // A constant, so that the conversion is not compiled for a table without older versions.
        Err(error) if const { R::TABLE.previous.is_none() } => Err(error),
        Err(error) => decode_older(lists, bytes, error),
    }
}

/// Reads a whole row, without checking its conversion.
pub(crate) fn decode_unchecked<R: Entity>(lists: &Lists, bytes: &[u8]) -> Result<R, DecodeError> {
    match body(bytes, R::TABLE.version) {
        Ok(bytes) => <R as Entity>::decode(RowBody::new(lists, bytes)),
        Err(error) if const { R::TABLE.previous.is_none() } => Err(error),
        Err(error) => convert(lists, bytes, error).map(|(row, ..)| row),
    }
}

/// Reads a whole row without copying borrowed fields. `unescaped` stores the converted row of an older version, and a row
/// that lacks a field of the type.
#[inline]
pub(crate) fn view<'t, R: Viewed>(
    lists: &'t Lists,
    bytes: &'t [u8],
    unescaped: &'t Unescaped,
) -> Result<R::View<'t>, DecodeError> {
    let body = const { Body::of::<R>() };
    match view_of::<R>(body.fields(lists, bytes, unescaped)?) {
        Err(DecodeError::Missing(_)) => view_of::<R>(body.renewed(lists, bytes, unescaped)?),
        outcome => outcome,
    }
}

#[inline]
fn view_of<'t, R: Viewed>(fields: Fields<'t, 't>) -> Result<R::View<'t>, DecodeError> {
    let mut row = RowReader { fields };
    let view = R::view(&mut row)?;
    match row.fields.end() {
        Ok(()) => Ok(view),
        Err(error) => Err(DecodeError::Fields(error)),
    }
}

/// Finds the fields in rows of one type.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    /// The current version.
    version: u32,
    renew: Renew,
}

/// [`renew_to_read`]
type Renew = fn(&Lists, &[u8]) -> Result<Vec<u8>, DecodeError>;

impl Body {
    #[inline]
    pub(crate) const fn of<R: Entity>() -> Self {
        Self { version: R::TABLE.version, renew: renew_to_read::<R> }
    }

    /// Returns the fields of a row. For a row of an older version, `unescaped` stores the converted bytes.
    #[inline]
    pub(crate) fn fields<'t>(
        self,
        lists: &'t Lists,
        bytes: &'t [u8],
        unescaped: &'t Unescaped,
    ) -> Result<Fields<'t, 't>, DecodeError> {
        match body(bytes, self.version) {
            Ok(body) => lists.fields(body),
            Err(DecodeError::Version { .. }) => self.renewed(lists, bytes, unescaped),
            Err(error) => Err(error),
        }
    }

    /// Returns the fields of a row as its type would be written now.
    #[cold]
    pub(crate) fn renewed<'t>(
        self,
        lists: &'t Lists,
        bytes: &[u8],
        unescaped: &'t Unescaped,
    ) -> Result<Fields<'t, 't>, DecodeError> {
        let body = unescaped.keep((self.renew)(lists, bytes)?);
        lists.private_catalog().fields(body).map_err(DecodeError::Fields)
    }
}

/// Returns the bytes of a row of any version and list in the current version, with the current lists.
pub(crate) fn renew<R: Entity>(lists: &Lists, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decode(lists, bytes).and_then(|row: R| encoded(lists, &row))
}

/// Returns the struct of a row of any version and list, to be read by [`Lists::private_catalog`].
fn renew_to_read<R: Entity>(lists: &Lists, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decode(lists, bytes).and_then(|row: R| encoded_to_read(lists, &row))
}

/// Whether a stored row of the current version equals `new`, though its bytes differ: it has older lists.
pub(crate) fn is_same<R: Entity>(lists: &Lists, stored: &[u8], new: &[u8]) -> bool {
    body(stored, R::TABLE.version).is_ok()
        && renew::<R>(lists, stored).is_ok_and(|renewed| renewed == new)
}

/// Returns the version of a row, and its list.
pub(crate) fn list(row: &[u8]) -> Result<(u32, u32), DecodeError> {
    let (version, body) = header(row)?;
    number(body).map(|(list, _)| (version, list))
}

/// Whether two rows of the current version are of the same list.
#[inline]
pub(crate) fn has_same_list(version: u32, row: &[u8], other: &[u8]) -> bool {
    match (version, row, other) {
        (1, [own @ ..0x80, ..], [other @ ..0x80, ..]) => own == other,
        _ => has_same_long_list(version, row, other),
    }
}

#[cold]
fn has_same_long_list(version: u32, row: &[u8], other: &[u8]) -> bool {
    let list = |bytes| body(bytes, version).and_then(number).map(|(list, _)| list);
    list(row).is_ok_and(|own| list(other) == Ok(own))
}

/// Whether reading the stored row once more has the same result as `row`.
pub(crate) fn reads_alike<R: Entity>(
    lists: &Lists,
    bytes: &[u8],
    row: &R,
) -> Result<bool, DecodeError> {
    let once = encoded_to_read(lists, row)?;
    Ok(once == encoded_to_read(lists, &decode::<R>(lists, bytes)?)?)
}

fn encoded_to_read<R: Entity>(lists: &Lists, row: &R) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::new();
    row.encode(RowOutput { lists, is_private: true, bytes: &mut bytes })
        .map_err(DecodeError::from)?;
    Ok(bytes)
}

fn encoded<R: Entity>(lists: &Lists, row: &R) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::new();
    encode(lists, row, &mut bytes)?;
    Ok(bytes)
}

/// Reads a row of an older version. `error` is the error of reading it in the current version.
#[cold]
#[inline(never)]
fn decode_older<R: Entity>(
    lists: &Lists,
    bytes: &[u8],
    error: DecodeError,
) -> Result<R, DecodeError> {
    let (row, version, body) = convert(lists, bytes, error)?;
    if cfg!(debug_assertions) {
        fields::check_converted(lists, &row, version, body)?;
    }
    Ok(row)
}

/// Converts a row of an older version. Returns it with that version and the bytes of the older struct.
fn convert<'r, R: Entity>(
    lists: &Lists,
    bytes: &'r [u8],
    error: DecodeError,
) -> Result<(R, u32, &'r [u8]), DecodeError> {
    let DecodeError::Version { found, .. } = error else { return Err(error) };
    let (_, body) = header(bytes)?;
    match <R as Entity>::older(found, RowBody::new(lists, body)) {
        // The declaration has no such version.
        Err(DecodeError::Version { .. }) => Err(error),
        row => row.map(|row| (row, found, body)),
    }
}

/// Reads a row of the version of `Old` or of an earlier version, and converts it.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are not such a row, or its conversion fails.
pub fn older<Old: RowVersion + Precedes<New>, New>(
    version: u32,
    body: RowBody<'_>,
) -> Result<New, DecodeError> {
    let own = Old::ROW.version;
    let old = if version == own { Old::decode(body) } else { Old::older(version, body) };
    old?.convert().map_err(|error| unconvertible(version, own, error))
}

/// Returns the error for a row of this version, whose conversion from the struct of version `from` fails.
#[cold]
fn unconvertible(version: u32, from: u32, error: String) -> DecodeError {
    let reason = if from == version { error } else { format!("from version {from}: {error}") };
    DecodeError::Unconvertible { version, reason: reason.into() }
}

/// Reads a whole struct.
#[inline]
pub(crate) fn whole<V: DeserializeOwned>(body: RowBody<'_>) -> Result<V, DecodeError> {
    match body.question {
        None => body.lists.decode(body.bytes),
        Some(question) => question.answer(body.lists, body.bytes),
    }
}

/// Reads the version of a row.
pub(crate) fn version(bytes: &[u8]) -> Result<u32, DecodeError> {
    header(bytes).map(|(version, _)| version)
}

/// Returns the version of a row, and the bytes of the struct.
fn header(bytes: &[u8]) -> Result<(u32, &[u8]), DecodeError> {
    let (first, rest) = number(bytes)?;
    Ok(first.checked_sub(VERSION).map_or((1, bytes), |version| (version, rest)))
}

/// Returns the bytes of the struct of any version.
#[cfg(feature = "json")]
pub(crate) fn any_body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    header(bytes).map(|(_, body)| body)
}

/// Returns the bytes of the struct.
#[inline]
pub(crate) fn body(bytes: &[u8], expected: u32) -> Result<&[u8], DecodeError> {
    // Nearly every row is of the first version, and its list has a small number.
    if expected == 1 && bytes.first().is_some_and(|first| *first < 0x80) {
        return Ok(bytes);
    }
    let (found, rest) = header(bytes)?;
    if found == expected { Ok(rest) } else { Err(DecodeError::Version { found, expected }) }
}

/// Reads the number at the start.
fn number(bytes: &[u8]) -> Result<(u32, &[u8]), DecodeError> {
    postcard::take_from_bytes(bytes).map_err(DecodeError::Header)
}
