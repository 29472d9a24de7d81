//! What serde emits, with a fast path for the kind that is expected most often.

use std::fmt;

use serde::ser::{self, Serialize};

use super::{
    Blank, Writer,
    choice::Place,
    parts::{Map, Seq, Struct, TupleElements},
};
use crate::{
    bytes::{has_room, short_varint, varint, varint_len, zigzag},
    error::{Error, Result, unrecorded},
    kind::{Form, Kind, List, Variant},
    tag,
};

macro_rules! integers {
    ($($method:ident($type:ty) $wide:ident;)+) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result {
            self.$wide(value.into())
        }
    )+};
}

impl<'a, 'c, 'o> ser::Serializer for Blank<'a, 'c, 'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Seq<'a, 'c, 'o, &'c Kind>;
    type SerializeTuple = Seq<'a, 'c, 'o, TupleElements<'c>>;
    type SerializeTupleStruct = Self::SerializeTuple;
    type SerializeTupleVariant = Self::SerializeTuple;
    type SerializeMap = Map<'a, 'c, 'o>;
    type SerializeStruct = Struct<'a, 'c, 'o>;
    type SerializeStructVariant = Struct<'a, 'c, 'o>;

    integers! {
        serialize_u16(u16) serialize_u64;
        serialize_u32(u32) serialize_u64;
        serialize_i16(i16) serialize_i64;
        serialize_i32(i32) serialize_i64;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> Result {
        if let Kind::U8 = self.kind
            && has_room(self.writer.out, 1)
        {
            self.writer.out.extend_from_slice(&[value]);
            return Ok(());
        }
        self.writer.unsigned(self.kind, value.into())
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result {
        if let Kind::Unsigned = self.kind
            && short_varint(self.writer.out, value)
        {
            return Ok(());
        }
        self.writer.unsigned(self.kind, value)
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result {
        if let Kind::Signed = self.kind
            && short_varint(self.writer.out, zigzag(value))
        {
            return Ok(());
        }
        self.writer.signed(self.kind, value)
    }

    fn serialize_u128(self, value: u128) -> Result {
        self.writer.unsigned128(self.kind, value)
    }

    fn serialize_i128(self, value: i128) -> Result {
        self.writer.signed128(self.kind, value)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result {
        if let Kind::F32 = self.kind
            && has_room(self.writer.out, 4)
        {
            self.writer.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.writer.narrow_float(self.kind, value)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result {
        if let Kind::F64 = self.kind
            && has_room(self.writer.out, 8)
        {
            self.writer.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.writer.wide_float(self.kind, value)
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result {
        if let Kind::Bool = self.kind
            && has_room(self.writer.out, 1)
        {
            self.writer.out.extend_from_slice(&[value.into()]);
            return Ok(());
        }
        self.writer.boolean(self.kind, value)
    }

    fn serialize_char(self, value: char) -> Result {
        match self.writer.settle(self.kind)? {
            Kind::Char => {}
            Kind::Any => self.writer.out.push(tag::CHAR),
            _ => return Err(unrecorded()),
        }
        self.writer.out.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result {
        // Short texts here, others elsewhere.
        if let (Kind::Text, len @ 0..0x80) = (self.kind, value.len())
            && has_room(self.writer.out, len + 1)
        {
            self.writer.out.extend_from_slice(&[len as u8]);
            self.writer.out.extend_from_slice(value.as_bytes());
            return Ok(());
        }
        self.writer.text(self.kind, value)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result {
        self.writer.displayed(self.kind, &value)
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result {
        if let (Kind::Bytes16, Ok(value)) = (self.kind, <&[u8; 16]>::try_from(value))
            && has_room(self.writer.out, 16)
        {
            self.writer.out.extend_from_slice(value);
            return Ok(());
        }
        self.writer.bytes(self.kind, value)
    }

    #[inline]
    fn serialize_none(self) -> Result {
        if let Kind::Option(_) = self.kind
            && has_room(self.writer.out, 1)
        {
            self.writer.out.extend_from_slice(&[0]);
            return Ok(());
        }
        self.writer.other_none(self.kind)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        self.writer.some(self.kind, |blank| value.serialize(blank))
    }

    fn serialize_unit(self) -> Result {
        match self.writer.settle(self.kind)? {
            Kind::Unit => {}
            Kind::Any => self.writer.out.push(tag::UNIT),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result {
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result {
        self.writer.variant(self.kind, name, index, variant, Form::Unit, |_| true).map(drop)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.writer.enter()?;
        let kind = self.writer.variant(self.kind, name, index, variant, Form::Newtype, |_| true)?;
        value.serialize(self.writer.expecting(kind))?;
        self.writer.depth -= 1;
        Ok(())
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq> {
        self.writer.enter()?;
        let len = len.unwrap_or(0);
        let elements = match self.kind {
            Kind::Seq(element) if short_varint(self.writer.out, len as u64) => element,
            _ => self.writer.sequence(self.kind, len)?,
        };
        let start = Some(self.writer.out.len());
        Ok(Seq { writer: self.writer, elements, start, len, count: 0 })
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple> {
        self.writer.enter()?;
        let (elements, is_counted) = match *self.kind {
            Kind::Array(own, ref element) if own as usize == len => {
                (TupleElements::Same(element), false)
            }
            Kind::Tuple(list)
                if let Some(list) = self.writer.catalog.lists.get(list as usize)
                    && list.fields.len() == len =>
            {
                (TupleElements::Each(list.fields.iter()), false)
            }
            _ => self.writer.tuple(self.kind, len)?,
        };
        let start = is_counted.then_some(self.writer.out.len());
        Ok(Seq { writer: self.writer, elements, start, len, count: 0 })
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Self::SerializeTuple> {
        self.serialize_tuple(len)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTuple> {
        let catalog = self.writer.catalog;
        let fits = |it: &Variant| match it.payload {
            Kind::Tuple(list) => catalog.list(list).is_ok_and(|list| list.fields.len() == len),
            _ => false,
        };
        let kind = self.writer.variant(self.kind, name, index, variant, Form::Tuple, fits)?;
        self.writer.expecting(kind).serialize_tuple(len)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Map<'a, 'c, 'o>> {
        self.writer.enter()?;
        let (key, value) = match self.kind {
            Kind::Map(kinds) => (&kinds.0, &kinds.1),
            _ => self.writer.other_map(self.kind)?,
        };
        let (start, len) = (self.writer.out.len(), len.unwrap_or(0));
        varint(self.writer.out, len as u64);
        Ok(Map { writer: self.writer, key, value, start, len, count: 0 })
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Struct<'a, 'c, 'o>> {
        self.writer.enter()?;
        let place = match (self.kind, &self.writer.guide) {
            (Kind::Struct(list), None) => {
                Place { among: None, start: 0, at: 0, list: self.writer.catalog.list(*list)? }
            }
            _ => self.writer.choose(self.kind, name, len)?,
        };
        Ok(Struct { writer: self.writer, fields: place.list.fields.iter(), place })
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Struct<'a, 'c, 'o>> {
        self.writer.enter()?;
        let start = self.writer.out.len();
        if let Some(entry) = self.writer.entry(self.kind, index, variant, Form::Struct)
            && self.writer.guide.is_none()
            && let Kind::Struct(list) = entry.payload
            && let Some(list) = self.writer.catalog.lists.get(list as usize)
            && list.fields.len() == len
        {
            varint(self.writer.out, index.into());
            let place = Place { among: Some(self.kind), start, at: index, list };
            return Ok(Struct { writer: self.writer, fields: list.fields.iter(), place });
        }
        self.writer.other_struct_variant(self.kind, name, variant, len)
    }
}

impl<'c, 'o> Writer<'c, 'o> {
    /// The kinds of keys and values at a place that does not expect a map only.
    #[inline(never)]
    fn other_map(&mut self, kind: &'c Kind) -> Result<(&'c Kind, &'c Kind)> {
        let kind = self.settle(kind)?;
        match kind {
            Kind::Map(kinds) => Ok((&kinds.0, &kinds.1)),
            Kind::Any => {
                self.out.push(tag::MAP);
                Ok((kind, kind))
            }
            _ => Err(unrecorded()),
        }
    }

    /// A struct variant whose entry is not at its position in the type, or with a guide.
    #[inline(never)]
    fn other_struct_variant<'a>(
        &'a mut self,
        kind: &'c Kind,
        name: &'static str,
        variant: &'static str,
        len: usize,
    ) -> Result<Struct<'a, 'c, 'o>> {
        let (names, catalog) = (self.guided()?, self.catalog);
        let list = |kind: &Kind| match kind {
            Kind::Struct(list) => catalog.lists.get(*list as usize),
            _ => None,
        };
        // Without a guide, `len` does not count skipped fields, and the list is a guess.
        let fits = |list: &List| {
            names.map_or(list.absent || list.fields.len() == len, |names| list.has_names(names))
        };
        let is_stored = self.stored.is_some();
        let (found, at) = self.any_variant(kind, name, variant, Form::Struct, &|it| {
            list(&it.payload).is_some_and(fits)
        })?;
        let start = self.out.len() - varint_len(at as u64);
        let among = if is_stored { None } else { Some(&found.kind) };
        let payload = found.variants.get(at).map(|entry| &entry.payload);
        let list = payload.and_then(list).ok_or_else(unrecorded)?;
        let place = Place { among, start, at: at as u32, list };
        Ok(Struct { writer: self, fields: list.fields.iter(), place })
    }
}
