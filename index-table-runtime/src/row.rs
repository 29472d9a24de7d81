//! The fact's bytes: the row's version, then postcard's encoding of the struct.

use serde::{Deserialize, Serialize};

use crate::{
    entity::{Entity, RowReader, Viewed},
    error::EncodeError,
    key::DecodeError,
};

/// What reads a field.
pub(crate) type Deserializer<'a> = postcard::Deserializer<'a, postcard::de_flavors::Slice<'a>>;

/// Appends the bytes of `row` to `out`.
pub(crate) fn encode<R: Entity>(row: &R, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    append(&R::TABLE.version, out)?;
    append(row, out)
}

/// Reads a whole row.
#[inline]
pub(crate) fn decode<R: Entity>(bytes: &[u8]) -> Result<R, DecodeError> {
    let mut from = Deserializer::from_bytes(body(bytes, R::TABLE.version)?);
    let row = R::deserialize(&mut from).map_err(DecodeError::Row)?;
    let rest = from.finalize().map_err(DecodeError::Row)?;
    if rest.is_empty() { Ok(row) } else { Err(DecodeError::Long) }
}

/// Reads a whole row without copying what its view borrows.
#[inline]
pub(crate) fn view<R: Viewed>(bytes: &[u8]) -> Result<R::View<'_>, DecodeError> {
    let from = Deserializer::from_bytes(body(bytes, R::TABLE.version)?);
    let mut row = RowReader { from };
    let view = R::view(&mut row)?;
    let rest = row.from.finalize().map_err(DecodeError::Row)?;
    if rest.is_empty() { Ok(view) } else { Err(DecodeError::Long) }
}

/// The bytes of the struct, behind the version.
#[inline]
pub(crate) fn body(bytes: &[u8], expected: u32) -> Result<&[u8], DecodeError> {
    // Nearly every version takes one byte.
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
        && u32::from(first) == expected
    {
        return Ok(rest);
    }
    let (found, rest) = take::<u32>(bytes)?;
    if found == expected { Ok(rest) } else { Err(DecodeError::Version { found, expected }) }
}

/// Reads one value off the front.
pub(crate) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    postcard::take_from_bytes(bytes).map_err(DecodeError::Row)
}

/// Appends the bytes of one value: of an included field, or of a row.
pub(crate) fn append<T: Serialize + ?Sized>(
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    postcard::serialize_with_flavor(value, Append(out)).map_err(EncodeError::from)
}

/// postcard's own flavor for a `Vec` owns it; this one appends to a buffer that is used again.
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
