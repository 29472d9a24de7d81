//! The tags in front of values whose kinds vary.
//!
//! | tag | value |
//! |---|---|
//! | `00..=3f` | a number of 0 to 63, without further bytes |
//! | `40..=7f` | a text of 0 to 63 bytes |
//! | `80`, `81` | a varint, a zigzag varint |
//! | `82`, `83` | a `u128`, an `i128`: a varint, a zigzag varint |
//! | `84`, `85` | an `f32`, an `f64`: 4 and 8 bytes, the lowest first |
//! | `86`, `87` | `false`, `true` |
//! | `88` | a `char` in UTF-8 |
//! | `89`, `8a` | a text, bytes: a varint with their number, and the bytes |
//! | `8b` | 16 bytes |
//! | `8c` | `()` |
//! | `8d` | `None` |
//! | `8e` | `Some`, only in front of `8c`, `8d` and `8e` |
//! | `8f` | a sequence: a varint with the number of elements, each with a tag |
//! | `90` | a map: a varint with the number of pairs; each key and each value with a tag |
//! | `91` | a struct: a varint with its number among the loose structs, and its fields |
//! | `92` | a variant: a varint with the number of the enum, a varint with the entry, and the payload |
//! | `93` | a field that was skipped |

use crate::kind::Kind;

pub(crate) const TEXT: u8 = 0x40;
pub(crate) const UNSIGNED: u8 = 0x80;
pub(crate) const SIGNED: u8 = 0x81;
pub(crate) const U128: u8 = 0x82;
pub(crate) const I128: u8 = 0x83;
pub(crate) const F32: u8 = 0x84;
pub(crate) const F64: u8 = 0x85;
pub(crate) const FALSE: u8 = 0x86;
pub(crate) const TRUE: u8 = 0x87;
pub(crate) const CHAR: u8 = 0x88;
pub(crate) const LONG_TEXT: u8 = 0x89;
pub(crate) const BYTES: u8 = 0x8a;
pub(crate) const BYTES16: u8 = 0x8b;
pub(crate) const UNIT: u8 = 0x8c;
pub(crate) const NONE: u8 = 0x8d;
pub(crate) const SOME: u8 = 0x8e;
pub(crate) const SEQ: u8 = 0x8f;
pub(crate) const MAP: u8 = 0x90;
pub(crate) const STRUCT: u8 = 0x91;
pub(crate) const ENUM: u8 = 0x92;
pub(crate) const ABSENT: u8 = 0x93;

/// The number of texts and of small numbers that need no length.
pub(crate) const SHORT: u8 = 0x40;

pub(crate) static ANY: Kind = Kind::Any;
