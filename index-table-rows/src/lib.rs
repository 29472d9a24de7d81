//! The row format of [`index-table`](https://docs.rs/index-table): values in the order of a list of names and kinds that
//! is recorded once, outside of the rows.
//!
//! A row is a varint with the number of its list, and the values of the fields, without names and without tags. The
//! [`Catalog`] has the lists. A struct of a later release reads the row by the names in the list: fields may have been
//! added, removed, renamed and reordered, at every depth.
//!
//! | kind | bytes |
//! |---|---|
//! | `u8`, `i8`, `bool` | one |
//! | unsigned and signed numbers | a varint; a zigzag varint |
//! | `u128`, `i128`, `f32`, `f64` | 16, 16, 4 and 8, the lowest first |
//! | `char`, text, bytes | UTF-8; a varint with the number of bytes, and the bytes; 16 bytes have no length if all are 16 |
//! | unit | none |
//! | option | 0 for `None`, 1 in front of a value, 2 for a field that `skip_serializing_if` left out |
//! | sequence, map | a varint with the number of elements or pairs, and these |
//! | array, tuple | the elements |
//! | struct | the fields of its list |
//! | enum | a varint with the entry in a table of names, forms and kinds, and the payload |
//! | union | a varint with the alternative, and its value: where structs have different names at one place |
//! | any | a tag, and the value: where kinds do not agree |
//!
//! A list has what `Serialize` emits, in its order. A kind becomes more general when a value does not fit; then a new list
//! is recorded, and older rows keep theirs.
//!
//! # Limits
//!
//! A value has at most [`MAX_DEPTH`] containers inside of each other, and a catalog at most [`MAX_LISTS`] lists. Reading a
//! row takes time and memory in proportion to its bytes, also if the row or the catalog is damaged.
//!
//! serde buffers the content of `tag`, `untagged` and `flatten`, and the buffer has neither 128-bit integers nor the form
//! of types whose text form differs from their binary form, such as `IpAddr`. Such a value is encoded, but can't be
//! decoded. Decode a row after [`Catalog::record`], before it is stored.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
// The fast paths of a value are inlined into the code of its type.
#![allow(clippy::inline_always)]

mod bytes;
mod carry;
mod catalog;
mod check;
mod collection;
mod describe;
mod error;
mod extends;
mod kind;
mod learn;
mod place;
mod read;
mod seen;
mod stored;
mod tag;
mod write;

pub use catalog::Catalog;
pub use collection::{Collection, CollectionField, Sorted};
pub use describe::{RowField, RowList};
pub use error::{Error, Reason};
pub use place::{
    RecordedEnum, RecordedField, RecordedForm, RecordedKind, RecordedStruct, RecordedVariant,
    VariantForm,
};
pub use read::{Fields, Reader, Row, Unknown, names};

/// The largest number of containers inside of each other: structs, tuples, sequences, maps, `Some` and payloads of
/// variants.
pub const MAX_DEPTH: usize = 128;

/// The largest number of lists in a catalog, of enums, and of unions.
pub const MAX_LISTS: usize = 4096;

/// The largest number of kinds inside of each other, before a value gets a tag.
pub(crate) const MAX_KIND_DEPTH: usize = 24;
