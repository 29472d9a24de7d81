//! A canonical order for unordered collections.
//!
//! Serde writes a `HashSet` in the order of its iterator. Two equal sets may have different orders, so two
//! equal rows would have different bytes. Instead, the bytes of the elements are sorted in each field whose
//! type is spelled with `HashSet` or `HashMap`. Serde's data model has sequences but no sets. Therefore the
//! derive lists these fields with their offsets in the struct, and the serializer in this module recognizes a
//! field by its address. serde's `with` serializes a value at another address, so its format is unchanged.

use std::ptr;

use index_table_rows::{Collection, CollectionField};
use postcard::ser_flavors::Flavor as _;
use serde::{Serialize, Serializer, ser};

use super::Append;
use crate::model::{entity::Entity, error::EncodeError};

type Result<T, E = postcard::Error> = std::result::Result<T, E>;

/// A type without sorted collections.
static PLAIN: Collection = Collection { sorted: false, inside: &[] };

const fn is_plain(collection: &Collection) -> bool {
    !collection.sorted && collection.inside.is_empty()
}

/// Returns the type of the element at this position.
fn element(collection: &'static Collection, position: usize) -> &'static Collection {
    collection.inside.get(position).or(collection.inside.last()).unwrap_or(&PLAIN)
}

/// Appends the bytes of a field of a row.
pub(crate) fn append_field<R: Entity, T: Serialize + ?Sized>(
    row: &R,
    field: &T,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let collection = Value::row(row).field(field);
    serialize(field, collection, &mut Plain { output: Append(out) }).map_err(EncodeError::from)
}

/// Serializes a value of the type `collection`.
fn serialize<T: Serialize + ?Sized>(
    value: &T,
    collection: &'static Collection,
    plain: &mut Plain<'_>,
) -> Result<()> {
    if is_plain(collection) {
        value.serialize(plain)
    } else {
        value.serialize(Canonical { plain, value: Value::Collection(collection) })
    }
}

type Plain<'o> = postcard::Serializer<Append<'o>>;

/// The value to serialize.
#[derive(Clone, Copy)]
enum Value {
    Row { address: usize, fields: &'static [CollectionField] },
    Collection(&'static Collection),
}

impl Value {
    fn row<R: Entity>(row: &R) -> Self {
        Self::Row { address: ptr::from_ref(row).addr(), fields: R::COLLECTIONS }
    }

    /// Returns the type of a field of the row.
    fn field<T: ?Sized>(self, field: &T) -> &'static Collection {
        let Self::Row { address, fields } = self else { return &PLAIN };
        let offset = ptr::from_ref(field).addr().wrapping_sub(address);
        let field = fields.iter().find(|field| field.offset == offset);
        field.map_or(&PLAIN, |field| &field.collection)
    }

    /// Returns the type of the element at this position of the collection.
    fn element(self, position: usize) -> &'static Collection {
        match self {
            Self::Row { .. } => &PLAIN,
            Self::Collection(collection) => element(collection, position),
        }
    }

    const fn is_sorted(self) -> bool {
        matches!(self, Self::Collection(Collection { sorted: true, .. }))
    }
}

/// Writes the output of postcard, with the elements of some collections sorted.
struct Canonical<'a, 'o> {
    plain: &'a mut Plain<'o>,
    value: Value,
}

/// The fields of a row, or the elements of a collection.
struct Elements<'a, 'o> {
    plain: &'a mut Plain<'o>,
    value: Value,
    /// The number of elements so far.
    position: usize,
    /// The elements so far, if they are to be sorted.
    sorting: Option<Sorting>,
}

#[derive(Default)]
struct Sorting {
    bytes: Vec<u8>,
    /// The end of each element.
    ends: Vec<usize>,
}

impl<'a, 'o> Canonical<'a, 'o> {
    fn elements(self, sorting: Option<Sorting>) -> Elements<'a, 'o> {
        Elements { plain: self.plain, value: self.value, position: 0, sorting }
    }
}

impl Elements<'_, '_> {
    /// Adds an element, or a key or a value of a map.
    fn add<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        collection: &'static Collection,
    ) -> Result<()> {
        match &mut self.sorting {
            Some(Sorting { bytes, .. }) => {
                serialize(value, collection, &mut Plain { output: Append(bytes) })
            }
            None => serialize(value, collection, self.plain),
        }
    }

    /// Adds the last part of an element.
    fn add_last<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.add(value, self.value.element(self.position))?;
        self.position += 1;
        if let Some(Sorting { bytes, ends }) = &mut self.sorting {
            ends.push(bytes.len());
        }
        Ok(())
    }

    /// Writes the sorted elements, if they are to be sorted.
    fn finish(self) -> Result<()> {
        let Some(Sorting { bytes, ends }) = self.sorting else { return Ok(()) };
        ends.len().serialize(&mut *self.plain)?;
        let mut start = 0;
        let elements = ends.into_iter().map(|end| {
            let element = bytes.get(start..end).unwrap_or_default();
            start = end;
            element
        });
        let mut elements: Vec<&[u8]> = elements.collect();
        elements.sort_unstable();
        elements.into_iter().try_for_each(|element| self.plain.output.try_extend(element))
    }
}

/// Implements the methods for values that are not collections.
macro_rules! plain {
    ($($method:ident($($argument:ident: $type:ty),*) -> $returned:ty;)+) => {$(
        fn $method(self, $($argument: $type),*) -> Result<$returned> {
            self.plain.$method($($argument),*)
        }
    )+};
}

impl<'a, 'o> Serializer for Canonical<'a, 'o> {
    type Ok = ();
    type Error = postcard::Error;
    type SerializeSeq = Elements<'a, 'o>;
    type SerializeMap = Elements<'a, 'o>;
    type SerializeTuple = Elements<'a, 'o>;
    type SerializeStruct = Elements<'a, 'o>;
    type SerializeTupleStruct = &'a mut Plain<'o>;
    type SerializeTupleVariant = &'a mut Plain<'o>;
    type SerializeStructVariant = &'a mut Plain<'o>;

    plain! {
        serialize_bool(value: bool) -> ();
        serialize_i8(value: i8) -> ();
        serialize_i16(value: i16) -> ();
        serialize_i32(value: i32) -> ();
        serialize_i64(value: i64) -> ();
        serialize_i128(value: i128) -> ();
        serialize_u8(value: u8) -> ();
        serialize_u16(value: u16) -> ();
        serialize_u32(value: u32) -> ();
        serialize_u64(value: u64) -> ();
        serialize_u128(value: u128) -> ();
        serialize_f32(value: f32) -> ();
        serialize_f64(value: f64) -> ();
        serialize_char(value: char) -> ();
        serialize_str(value: &str) -> ();
        serialize_bytes(value: &[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(name: &'static str) -> ();
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str) -> ();
        serialize_tuple_struct(name: &'static str, len: usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeTupleVariant;
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> Self::SerializeStructVariant;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<()> {
        self.plain.collect_str(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        self.plain.output.try_push(1)?;
        serialize(value, self.value.element(0), self.plain)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        self.plain.serialize_newtype_variant(name, index, variant, value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq> {
        if self.value.is_sorted() {
            return Ok(self.elements(Some(Sorting::default())));
        }
        self.plain.serialize_seq(len)?;
        Ok(self.elements(None))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap> {
        if self.value.is_sorted() {
            return Ok(self.elements(Some(Sorting::default())));
        }
        self.plain.serialize_map(len)?;
        Ok(self.elements(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple> {
        Ok(self.elements(None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct> {
        Ok(self.elements(None))
    }
}

impl ser::SerializeSeq for Elements<'_, '_> {
    type Ok = ();
    type Error = postcard::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.add_last(value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

impl ser::SerializeTuple for Elements<'_, '_> {
    type Ok = ();
    type Error = postcard::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.add_last(value)
    }

    fn end(self) -> Result<()> {
        Ok(())
    }
}

impl ser::SerializeMap for Elements<'_, '_> {
    type Ok = ();
    type Error = postcard::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.add(key, &PLAIN)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.add_last(value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

impl ser::SerializeStruct for Elements<'_, '_> {
    type Ok = ();
    type Error = postcard::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, field: &T) -> Result<()> {
        self.add(field, self.value.field(field))
    }

    fn end(self) -> Result<()> {
        Ok(())
    }
}
