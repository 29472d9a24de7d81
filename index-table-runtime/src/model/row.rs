//! The fact's bytes: the row's version, then postcard's encoding of the struct.
//!
//! A row of an older version is decoded as the struct of that version, and then converted by the `From` of
//! each later version. Rows of the current version have no such cost.

mod canonical;
mod fields;

pub use canonical::{Collection, CollectionField};
pub(crate) use canonical::{append_field, append_row};
pub(crate) use fields::{check_conversion, locate_fields};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::model::{
    entity::{Entity, Precedes, RowReader, RowVersion, Viewed},
    error::EncodeError,
    key::{DecodeError, Unescaped},
};

/// postcard's deserializer for a slice.
pub(crate) type Deserializer<'a> = postcard::Deserializer<'a, postcard::de_flavors::Slice<'a>>;

/// Appends the bytes of `row` to `out`.
pub(crate) fn encode<R: Entity>(row: &R, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    append(&R::TABLE.version, out)?;
    row.encode(out)
}

/// Reads a whole row. With debug assertions, fails if a conversion changes a field that must keep its value.
///
/// Inlined in release builds only, because a debug build would compile it again for each caller.
#[cfg_attr(
    not(debug_assertions),
    expect(clippy::inline_always, reason = "the row would be moved once more"),
    inline(always)
)]
pub(crate) fn decode<R: Entity>(bytes: &[u8]) -> Result<R, DecodeError> {
    match body(bytes, R::TABLE.version) {
        Ok(body) => <R as Entity>::decode(body),
        // A constant, so that the conversion is not compiled for a table without older versions.
        Err(error) if const { R::TABLE.previous.is_none() } => Err(error),
        Err(error) => decode_older(bytes, error),
    }
}

/// Reads a whole row, without checking its conversion.
pub(crate) fn decode_unchecked<R: Entity>(bytes: &[u8]) -> Result<R, DecodeError> {
    match body(bytes, R::TABLE.version) {
        Ok(body) => <R as Entity>::decode(body),
        Err(error) if const { R::TABLE.previous.is_none() } => Err(error),
        Err(error) => convert(bytes, error).map(|(row, ..)| row),
    }
}

/// Reads a whole row without copying borrowed fields. `unescaped` stores the converted row of an older
/// version.
#[inline]
pub(crate) fn view<'t, R: Viewed>(
    bytes: &'t [u8],
    unescaped: &'t Unescaped,
) -> Result<R::View<'t>, DecodeError> {
    let from = Deserializer::from_bytes(const { Body::of::<R>() }.current(bytes, unescaped)?);
    let mut row = RowReader { from };
    let view = R::view(&mut row)?;
    let rest = row.from.finalize().map_err(DecodeError::Row)?;
    if rest.is_empty() { Ok(view) } else { Err(DecodeError::Long) }
}

/// Finds the bytes of the struct in rows of one type.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    /// The current version.
    version: u32,
    renew: Option<Renew>,
}

/// [`renew`]
type Renew = fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

impl Body {
    #[inline]
    pub(crate) const fn of<R: Entity>() -> Self {
        Self { version: R::TABLE.version, renew: renewal::<R>() }
    }

    /// Returns the bytes of the struct in a row. For a row of an older version, `unescaped` stores the
    /// converted bytes.
    #[inline]
    pub(crate) fn current<'t>(
        self,
        bytes: &'t [u8],
        unescaped: &'t Unescaped,
    ) -> Result<&'t [u8], DecodeError> {
        match body(bytes, self.version) {
            Ok(body) => Ok(body),
            Err(error) => self.renewed(bytes, unescaped, error),
        }
    }

    #[cold]
    fn renewed<'t>(
        self,
        bytes: &[u8],
        unescaped: &'t Unescaped,
        error: DecodeError,
    ) -> Result<&'t [u8], DecodeError> {
        let Some(renew) = self.renew else { return Err(error) };
        body(unescaped.keep(renew(bytes)?), self.version)
    }
}

/// Returns [`renew`] if the table has older versions.
pub(crate) const fn renewal<R: Entity>() -> Option<Renew> {
    if R::TABLE.previous.is_some() { Some(renew::<R>) } else { None }
}

/// Returns the bytes of a row of any version in the current version.
fn renew<R: Entity>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decode(bytes).and_then(|row: R| encoded(&row))
}

/// Whether a stored row equals `new` except for the order of the elements of its collections, which earlier
/// releases did not sort.
pub(crate) fn is_reordered<R: Entity>(stored: &[u8], new: &[u8]) -> bool {
    stored.len() == new.len()
        && body(stored, R::TABLE.version).is_ok()
        && renew::<R>(stored).is_ok_and(|renewed| renewed == new)
}

fn encoded<R: Entity>(row: &R) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::new();
    encode(row, &mut bytes).map_err(|error| DecodeError::Row(error.0))?;
    Ok(bytes)
}

/// Reads a row of an older version. `error` is the error of reading it in the current version.
#[cold]
#[inline(never)]
fn decode_older<R: Entity>(bytes: &[u8], error: DecodeError) -> Result<R, DecodeError> {
    let (row, version, body) = convert(bytes, error)?;
    if cfg!(debug_assertions) {
        fields::check_converted(&row, version, body)?;
    }
    Ok(row)
}

/// Converts a row of an older version. Returns it with that version and the bytes of the older struct.
fn convert<R: Entity>(bytes: &[u8], error: DecodeError) -> Result<(R, u32, &[u8]), DecodeError> {
    let DecodeError::Version { found, .. } = error else { return Err(error) };
    let (_, body) = take::<u32>(bytes)?;
    match <R as Entity>::older(found, body) {
        // The declaration has no such version.
        Err(DecodeError::Version { .. }) => Err(error),
        row => row.map(|row| (row, found, body)),
    }
}

/// Reads a row of the version of `Old` or of an earlier version, and converts it.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are not such a row.
pub fn older<Old: RowVersion + Precedes<New>, New>(
    version: u32,
    body: &[u8],
) -> Result<New, DecodeError> {
    let old =
        if version == Old::ROW.version { Old::decode(body) } else { Old::older(version, body) };
    old.map(Old::convert)
}

/// Reads a whole struct.
#[inline]
pub(crate) fn whole<V: DeserializeOwned>(body: &[u8]) -> Result<V, DecodeError> {
    let mut from = Deserializer::from_bytes(body);
    // Without `?` and `map_err`, which a debug build compiles for each type.
    match V::deserialize(&mut from) {
        Ok(row) => match check_end(from) {
            Ok(()) => Ok(row),
            Err(error) => Err(error),
        },
        Err(error) => Err(DecodeError::Row(error)),
    }
}

#[inline]
fn check_end(from: Deserializer<'_>) -> Result<(), DecodeError> {
    let rest = from.finalize().map_err(DecodeError::Row)?;
    if rest.is_empty() { Ok(()) } else { Err(DecodeError::Long) }
}

/// Reads the version at the start of a row.
pub(crate) fn version(bytes: &[u8]) -> Result<u32, DecodeError> {
    take(bytes).map(|(version, _)| version)
}

/// Returns the bytes of the struct, after the version.
#[inline]
pub(crate) fn body(bytes: &[u8], expected: u32) -> Result<&[u8], DecodeError> {
    // Nearly every version takes one byte.
    if expected < 0x80
        && let Some((&first, rest)) = bytes.split_first()
        && u32::from(first) == expected
    {
        return Ok(rest);
    }
    let (found, rest) = take::<u32>(bytes)?;
    if found == expected { Ok(rest) } else { Err(DecodeError::Version { found, expected }) }
}

/// Reads the first value.
pub(crate) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    postcard::take_from_bytes(bytes).map_err(DecodeError::Row)
}

/// Appends the bytes of an included field or of a row.
pub(crate) fn append<T: Serialize + ?Sized>(
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    postcard::serialize_with_flavor(value, Append(out)).map_err(EncodeError::from)
}

/// Appends to a reused buffer, because postcard's flavor for a `Vec` owns its buffer.
struct Append<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
