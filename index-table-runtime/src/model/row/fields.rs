//! The locations of fields in the bytes of a row, and the check that a conversion keeps their values.
//!
//! An index stays readable when the version changes, unless a version changes its fields. Therefore each
//! unchanged field must have the same value in a row of an older version and in the converted row. The bytes
//! of a row have no separators between fields, so the struct is decoded again to find the end of each
//! field.

use std::{cell::Cell, fmt};

use postcard::de_flavors::Flavor;
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{body, decode_unchecked, encoded, take};
use crate::model::{
    entity::Entity,
    key::DecodeError,
    schema::{FieldEnds, TableSchema},
};

/// Locates the fields in the bytes of a `V`. Returns `None` if its `Deserialize` doesn't read field by field.
pub(crate) fn locate_fields<V: DeserializeOwned>(body: &[u8]) -> Option<FieldEnds> {
    let left = Cell::new(body.len());
    let mut ends = FieldEnds::default();
    let mut from = postcard::Deserializer::from_flavor(Counted { rest: body, left: &left });
    let located = Locating { from: &mut from, len: body.len(), left: &left, ends: &mut ends };
    V::deserialize(located).ok().map(|_| ends)
}

/// Checks that the conversion of a row of an older version keeps the values of unchanged fields.
///
/// # Errors
///
/// [`DecodeError::Altered`], and the errors of reading the row.
pub(crate) fn check_conversion<R: Entity>(bytes: &[u8]) -> Result<(), DecodeError> {
    if const { R::TABLE.previous.is_none() } {
        return Ok(());
    }
    let (version, older) = take::<u32>(bytes)?;
    if version == R::TABLE.version {
        return Ok(());
    }
    let row: R = decode_unchecked(bytes)?;
    check_converted(&row, version, older)
}

/// Like [`check_conversion`], for a row that has been converted from `older`.
pub(super) fn check_converted<R: Entity>(
    row: &R,
    version: u32,
    older: &[u8],
) -> Result<(), DecodeError> {
    let Some(locate_new) = R::TABLE.previous.map(|previous| previous.locate_next) else {
        return Ok(());
    };
    let Some(locate_old) = R::TABLE.older(version).map(|older| older.locate_fields) else {
        return Ok(());
    };
    let new = encoded(row)?;
    let new = body(&new, R::TABLE.version)?;
    let (Some(old_ends), Some(new_ends)) = (locate_old(older), locate_new(new)) else {
        return Ok(());
    };
    let is_altered = |field: &&'static str| {
        match (old_ends.field(field, older), new_ends.field(field, new)) {
            (Some(old), Some(new)) => !is_same(old, new),
            // The field can't be compared.
            _ => false,
        }
    };
    match kept_fields(R::TABLE, version).find(is_altered) {
        Some(field) => Err(DecodeError::Altered { version, field }),
        None => Ok(()),
    }
}

/// Returns the fields in entries of indexes that no version after this one changes.
fn kept_fields(schema: &TableSchema, version: u32) -> impl Iterator<Item = &'static str> {
    let fields = schema.fields.iter().map(|field| field.name);
    let is_indexed = |name: &str| schema.indexes.iter().any(|index| index.has_field(name));
    fields.filter(move |name| is_indexed(name) && schema.keeps(version, name))
}

/// Whether two encodings of one type may represent equal values. A set may be written in any order.
fn is_same(old: &[u8], new: &[u8]) -> bool {
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    old == new || (old.len() == new.len() && sorted(old) == sorted(new))
}

/// Bytes with a count of the remaining bytes.
struct Counted<'de> {
    rest: &'de [u8],
    left: &'de Cell<usize>,
}

impl<'de> Counted<'de> {
    fn take(&mut self, count: usize) -> postcard::Result<&'de [u8]> {
        let taken = self.rest.split_at_checked(count);
        let (taken, rest) = taken.ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        self.left.set(rest.len());
        Ok(taken)
    }
}

impl<'de> Flavor<'de> for Counted<'de> {
    type Remainder = &'de [u8];
    type Source = &'de [u8];

    fn pop(&mut self) -> postcard::Result<u8> {
        let taken = self.take(1)?;
        taken.first().copied().ok_or(postcard::Error::DeserializeUnexpectedEnd)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }

    fn try_take_n(&mut self, count: usize) -> postcard::Result<&'de [u8]> {
        self.take(count)
    }

    fn finalize(self) -> postcard::Result<&'de [u8]> {
        Ok(self.rest)
    }
}

/// Reads a struct, and records the end of each field.
struct Locating<'l, T> {
    /// The deserializer of the struct, its visitor, or the access to its fields.
    from: T,
    /// The number of bytes of the struct.
    len: usize,
    /// The number of bytes after the last field read.
    left: &'l Cell<usize>,
    ends: &'l mut FieldEnds,
}

impl<'l, T> Locating<'l, T> {
    fn with<U>(self, from: U) -> (T, Locating<'l, U>) {
        let Self { from: inner, len, left, ends } = self;
        (inner, Locating { from, len, left, ends })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Locating<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.ends.names = fields;
        let (from, visitor) = self.with(visitor);
        from.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("it is not read as a struct"))
    }

    fn is_human_readable(&self) -> bool {
        self.from.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Locating<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.from.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let (visitor, fields) = self.with(fields);
        visitor.visit_seq(fields)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Locating<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let field = self.from.next_element_seed(seed)?;
        self.ends.ends.push(self.len - self.left.get());
        Ok(field)
    }

    fn size_hint(&self) -> Option<usize> {
        self.from.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Row {
        id: u32,
        text: String,
        #[serde(skip)]
        _note: String,
        pair: (u8, Option<u16>),
        none: Option<u8>,
        #[serde(rename = "label")]
        name: String,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(from = "u32", into = "u32")]
    struct Number(u32);

    impl From<u32> for Number {
        fn from(number: u32) -> Self {
            Self(number)
        }
    }

    impl From<Number> for u32 {
        fn from(Number(number): Number) -> Self {
            number
        }
    }

    impl Clone for Number {
        fn clone(&self) -> Self {
            Self(self.0)
        }
    }

    #[test]
    fn each_field_is_found_under_its_name() {
        let row = Row {
            id: 300,
            text: "ab".into(),
            _note: "gone".into(),
            pair: (7, Some(9)),
            none: None,
            name: String::new(),
        };
        let bytes = postcard::to_stdvec(&row).unwrap();
        let fields = locate_fields::<Row>(&bytes).unwrap();
        let field = |name| fields.field(name, &bytes);
        assert_eq!(field("id"), Some(&[0xAC, 0x02][..]));
        assert_eq!(field("text"), Some(&b"\x02ab"[..]));
        assert_eq!(field("pair"), Some(&[7, 1, 9][..]));
        assert_eq!(field("none"), Some(&[0][..]));
        assert_eq!(field("label"), Some(&[0][..]));
        assert_eq!((field("_note"), field("name"), field("other")), (None, None, None));
    }

    #[test]
    fn types_other_than_structs_have_no_fields() {
        assert_eq!(locate_fields::<Number>(&[7]), None);
        assert_eq!(locate_fields::<Row>(&[7]), None);
    }

    #[test]
    fn a_set_in_another_order_is_the_same() {
        let set: HashSet<u16> = (0..50).collect();
        let copy: HashSet<u16> = set.iter().copied().collect();
        let [set, copy] = [set, copy].map(|set| postcard::to_stdvec(&set).unwrap());
        assert!(is_same(&set, &copy));
        assert!(!is_same(b"\x02ab", b"\x02ac") && !is_same(b"\x01a", b"\x02aa"));
    }
}
