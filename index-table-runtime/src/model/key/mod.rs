//! The order-preserving key encoding.
//!
//! A key is the concatenation of its fields' encodings. Each encoding
//!
//! - **preserves order**: comparing two encodings byte by byte gives the order of the values;
//! - **is self-delimiting**: no encoding of a type is a proper prefix of another encoding of that type, so
//!   `("ab", "c")` and `("a", "bc")` have different encodings, and later fields never change the order of
//!   earlier ones;
//! - **can be decoded**: an index entry needs no second copy of its key fields, except for hashed fields.
//!
//! | type | bytes |
//! |---|---|
//! | `u8` … `u128`, `usize` (as `u64`) | big-endian |
//! | `i8` … `i128`, `isize` (as `i64`) | big-endian, sign bit flipped |
//! | `bool` | `00`, `01` |
//! | `char` | the code point as a `u32` |
//! | `f32`, `f64` | IEEE 754 total order: sign bit flipped when positive, all bits when negative |
//! | `String`, `Vec<u8>` | the bytes, with `00` as `01 01` and `01` as `01 02`, then `00` |
//! | `[u8; N]` | the `N` bytes |
//! | `Option<T>` | `None`: `00`; `Some`: `01`, then `T` |
//! | tuples | the fields one after another |
//! | `desc(field)` | the field's encoding, every byte inverted |
//! | `hash(field)` | 16 bytes: a hash of the field's encoding |
//! | `#[derive(IndexKey)]` enums | the variant's number as a `u16` |
//! | other types | the encoding of one of the above: see [`through`] |
//!
//! A string ends with a single `00` that occurs nowhere inside it, so a reader needs no look-ahead. The
//! terminator and the escape start with different bytes. With `00` as the terminator and `00 FF` as the
//! escape, as in the tuple layer of `FoundationDB`, the end is ambiguous if the next field may start with
//! `FF`. `docs/FORMAT.md` has the test vectors.

use std::fmt::Debug;

use serde::Serialize;

mod assert;
mod buf;
mod bytes;
mod composite;
mod crates;
mod desc;
mod each;
mod hash;
mod named;
mod path;
mod plain;
mod range_of;
mod read;
mod scalar;
mod sequence;
mod shape;
mod shape_name;
mod spelled;
#[cfg(test)]
mod tests;
mod through;
mod value;

pub use assert::{
    CanBeAbsent, ComputedOf, EachOf, IsText, KeyOf, NoKey, Required, Text, assert_computed,
    assert_each, assert_key,
};
pub use buf::KeyBuf;
pub use bytes::{PrefixKey, TextKey};
pub use desc::Desc;
pub use each::Each;
pub(crate) use hash::{hash, skip as skip_hash};
pub use plain::{NotOfShape, PlainKey};
pub use range_of::RangeOf;
pub(crate) use read::StoreFailure;
pub(crate) use read::Unescaped;
pub use read::{DecodeError, KeyReader};
pub use sequence::{Sequence, Unnumbered};
pub use shape::KeyShape;
pub(crate) use shape::{fits, is_readable, show_hashed_key, show_key, show_leading};
pub(crate) use shape_name::{kept_list, kept_text, shape_of};
pub(crate) use spelled::{parameter, parameter_of, shape_of_type};
pub use value::{EnumValue, KeyValue, assert_enum_value, assert_key_value};

/// The maximum length of a key in LMDB's default configuration.
pub const MAX_KEY_LEN: usize = 511;

/// A type that can be a field of a primary key or of an index key.
///
/// Implemented for the integers, `bool`, `char`, `f32`, `f64`, `String`, `Vec<u8>`, `[u8; N]` (up to 32
/// bytes, the limit of serde), `NonZero` integers, `Duration`, `SystemTime`, IP addresses, `Box<str>`,
/// `Arc<str>`, `Cow<'static, str>`, types of other crates behind features, types with `#[derive(IndexKey)]`,
/// and `Option` and tuples of up to twelve of these.
pub trait Key: Sized {
    /// The type of a query's parameter: `&str` for `String`, the value for integers.
    type Arg<'a>: Copy;

    /// The type of a parameter of a query on a sparse index: [`Arg`](Self::Arg), or the inner type of an
    /// `Option`.
    type Present<'a>: Copy + Into<Self::Arg<'a>>;

    /// The type of the value in an entry, borrowed from the page where possible.
    type Ref<'a>: Debug + Clone + PartialEq + Serialize;

    /// The shape of the encoding, for code that is independent of the type.
    const SHAPE: KeyShape;

    /// Returns the value as a query's parameter.
    fn arg(&self) -> Self::Arg<'_>;

    /// Whether a sparse index has entries with this value: `false` for `None`.
    fn is_present(&self) -> bool {
        true
    }

    /// Appends the encoding of `value`.
    fn encode(value: Self::Arg<'_>, out: &mut KeyBuf);

    /// Reads one value, borrowed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an encoding of this type.
    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<Self::Ref<'a>, DecodeError>;

    /// Reads one value, owned.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an encoding of this type.
    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Self, DecodeError>;
}

/// Replaces `prefix` by the least byte string that is greater than every string with this prefix. Returns
/// false if there is none, that is, if `prefix` is empty or all `FF`.
pub(crate) fn successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xFF {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}
