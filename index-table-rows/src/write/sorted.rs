//! Unordered collections in a canonical order.
//!
//! Serde writes a `HashSet` in the order of its iterator, so two equal sets would have different bytes. Here, the elements
//! of some collections are written in that order, and then sorted by their bytes. Serde's data model has sequences but no
//! sets. Therefore a field is recognized by its address in the struct. serde's `with` serializes a value at another address,
//! so its order is kept.

use std::{fmt, ptr};

use serde::ser::{self, Serialize, Serializer};

use super::{
    Blank, ROOT_KIND, Writer, begin,
    parts::{Elements, Map, Seq, Struct, TupleElements},
};
use crate::{
    catalog::Catalog,
    collection::{Collection, CollectionField, PLAIN, Sorted, find},
    error::{Error, Result},
    kind::Kind,
    seen::Names,
};

/// Appends the row of `value`, like [`write`](super::write).
pub(crate) fn write_sorted<T: Serialize + ?Sized>(
    catalog: &Catalog,
    guide: Option<&[Names]>,
    value: &T,
    sorted: Sorted,
    out: &mut Vec<u8>,
) -> Result {
    let kind = begin(catalog, guide, out)?;
    let guide = guide.map(<[_]>::iter);
    let mut writer = Writer { out, catalog, guide, stored: None, depth: 0 };
    value.serialize(SortingWriter::new(writer.expecting(kind), value, sorted))
}

/// Like [`is_same`](super::is_same). The elements of a sorted collection must have the lists and entries of a new row.
pub(crate) fn is_same_sorted<T: Serialize + ?Sized>(
    catalog: &Catalog,
    row: &[u8],
    value: &T,
    sorted: Sorted,
) -> bool {
    let out = &mut Vec::with_capacity(row.len());
    let mut writer = Writer { out, catalog, guide: None, stored: Some(row), depth: 0 };
    let written = value.serialize(SortingWriter::new(writer.expecting(&ROOT_KIND), value, sorted));
    written.is_ok() && *out == row
}

/// The type of the value to write.
#[derive(Clone, Copy)]
enum TypedPlace {
    /// A struct at this address.
    Struct(usize, &'static [CollectionField]),
    Collection(&'static Collection),
}

impl TypedPlace {
    /// Returns the type of the struct's field, or of the element at this position.
    fn inside<T: ?Sized>(self, value: &T, position: usize) -> &'static Collection {
        match self {
            Self::Struct(address, fields) => find(fields, address, value),
            Self::Collection(collection) => collection.element(position),
        }
    }

    /// Returns the type of a field of the struct. A struct in a collection has its own, which have no types here.
    fn field<T: ?Sized>(self, value: &T) -> &'static Collection {
        match self {
            Self::Struct(address, fields) => find(fields, address, value),
            Self::Collection(_) => &PLAIN,
        }
    }

    const fn is_sorted(self) -> bool {
        matches!(self, Self::Collection(Collection { sorted: true, .. }))
    }
}

/// Writes a value of the type `collection`.
fn write<T: Serialize + ?Sized>(
    value: &T,
    collection: &'static Collection,
    blank: Blank<'_, '_, '_>,
) -> Result {
    if collection.is_plain() {
        value.serialize(blank)
    } else {
        value.serialize(SortingWriter { blank, place: TypedPlace::Collection(collection) })
    }
}

/// Writes a value with the elements of some collections sorted.
struct SortingWriter<'a, 'c, 'o> {
    blank: Blank<'a, 'c, 'o>,
    place: TypedPlace,
}

impl<'a, 'c, 'o> SortingWriter<'a, 'c, 'o> {
    fn new<T: ?Sized>(blank: Blank<'a, 'c, 'o>, value: &T, sorted: Sorted) -> Self {
        let place = match sorted {
            Sorted::Fields(fields) => TypedPlace::Struct(ptr::from_ref(value).addr(), fields),
            Sorted::Collection(collection) => TypedPlace::Collection(collection),
        };
        Self { blank, place }
    }
}

/// The parts of a value: `Seq`, `Map` or `Struct`.
struct SortingParts<'c, P> {
    inner: P,
    place: TypedPlace,
    /// The number of elements so far.
    position: usize,
    sorting: Option<Sorting<'c>>,
}

/// The elements of a sorted collection, at the end of the row.
struct Sorting<'c> {
    /// The start of the first element.
    start: usize,
    /// The end of each element.
    ends: Vec<usize>,
    /// The row to compare with. Its elements have other positions.
    stored: Option<&'c [u8]>,
}

impl<P> SortingParts<'_, P> {
    fn new(inner: P, place: TypedPlace) -> Self {
        Self { inner, place, position: 0, sorting: None }
    }

    /// Notes the end of an element.
    fn count(&mut self, end: usize) {
        self.position += 1;
        if let Some(sorting) = &mut self.sorting {
            sorting.ends.push(end);
        }
    }
}

impl<'c> Sorting<'c> {
    fn begin(writer: &mut Writer<'c, '_>, place: TypedPlace) -> Option<Self> {
        let start = writer.out.len();
        place.is_sorted().then(|| Self { start, ends: Vec::new(), stored: writer.stored.take() })
    }

    fn finish(self, writer: &mut Writer<'c, '_>) {
        let Self { mut start, ends, stored } = self;
        writer.stored = stored;
        let first = start;
        let elements = ends.into_iter().map(|end| {
            let element = writer.out.get(start..end).unwrap_or_default();
            start = end;
            element
        });
        let mut elements: Vec<&[u8]> = elements.collect();
        if !elements.is_sorted() {
            elements.sort_unstable();
            let elements = elements.concat();
            writer.out.truncate(first);
            writer.out.extend_from_slice(&elements);
        }
    }
}

/// Implements the methods for values that are not collections.
macro_rules! plain {
    ($($method:ident($($argument:ident: $type:ty),*) -> $returned:ty;)+) => {$(
        fn $method(self, $($argument: $type),*) -> Result<$returned> {
            self.blank.$method($($argument),*)
        }
    )+};
}

impl<'a, 'c, 'o> Serializer for SortingWriter<'a, 'c, 'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = SortingParts<'c, Seq<'a, 'c, 'o, &'c Kind>>;
    type SerializeMap = SortingParts<'c, Map<'a, 'c, 'o>>;
    type SerializeTuple = SortingParts<'c, Seq<'a, 'c, 'o, TupleElements<'c>>>;
    type SerializeStruct = SortingParts<'c, Struct<'a, 'c, 'o>>;
    type SerializeTupleStruct = Seq<'a, 'c, 'o, TupleElements<'c>>;
    type SerializeTupleVariant = Seq<'a, 'c, 'o, TupleElements<'c>>;
    type SerializeStructVariant = Struct<'a, 'c, 'o>;

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

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result {
        self.blank.collect_str(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        let collection = self.place.inside(value, 0);
        self.blank.writer.some(self.blank.kind, |blank| write(value, collection, blank))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.blank.serialize_newtype_variant(name, index, variant, value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq> {
        let seq = self.blank.serialize_seq(len)?;
        let sorting = Sorting::begin(seq.writer, self.place);
        Ok(SortingParts { sorting, ..SortingParts::new(seq, self.place) })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap> {
        let map = self.blank.serialize_map(len)?;
        let sorting = Sorting::begin(map.writer, self.place);
        Ok(SortingParts { sorting, ..SortingParts::new(map, self.place) })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple> {
        Ok(SortingParts::new(self.blank.serialize_tuple(len)?, self.place))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct> {
        Ok(SortingParts::new(self.blank.serialize_struct(name, len)?, self.place))
    }
}

impl<'c, E: Elements<'c>> SortingParts<'c, Seq<'_, 'c, '_, E>> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let collection = self.place.inside(value, self.position);
        write(value, collection, self.inner.begin()?)?;
        self.count(self.inner.writer.out.len());
        Ok(())
    }
}

macro_rules! elements {
    ($($trait:ident $elements:ty;)+) => {$(
        impl<'c> ser::$trait for SortingParts<'c, Seq<'_, 'c, '_, $elements>> {
            type Ok = ();
            type Error = Error;

            fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.add(value)
            }

            fn end(self) -> Result {
                if let Some(sorting) = self.sorting {
                    sorting.finish(self.inner.writer);
                }
                self.inner.finish()
            }
        }
    )+};
}

elements! {
    SerializeSeq &'c Kind;
    SerializeTuple TupleElements<'c>;
}

impl<'c> ser::SerializeMap for SortingParts<'c, Map<'_, 'c, '_>> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let collection = self.place.inside(value, self.position);
        write(value, collection, self.inner.begin_value())?;
        self.count(self.inner.writer.out.len());
        Ok(())
    }

    fn end(self) -> Result {
        if let Some(sorting) = self.sorting {
            sorting.finish(self.inner.writer);
        }
        self.inner.end()
    }
}

impl<'c> ser::SerializeStruct for SortingParts<'c, Struct<'_, 'c, '_>> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
        write(value, self.place.field(value), self.inner.begin(name)?)
    }

    fn skip_field(&mut self, name: &'static str) -> Result {
        self.inner.skip(name)
    }

    fn end(self) -> Result {
        self.inner.finish()
    }
}
