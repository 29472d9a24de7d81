//! What serde emits, with a fast path for the kind that is expected most often.

use std::fmt;

use serde::ser::{self, Serialize};

use super::{
    Writer,
    choice::Place,
    parts::{Elements, Map, Seq, Struct},
};
use crate::{
    bytes::{varint, varint_len, zigzag},
    error::{Error, Result, unrecorded},
    kind::{Form, Kind, List},
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

impl<'a, 'c, 'o> ser::Serializer for &'a mut Writer<'c, 'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Seq<'a, 'c, 'o>;
    type SerializeTuple = Seq<'a, 'c, 'o>;
    type SerializeTupleStruct = Seq<'a, 'c, 'o>;
    type SerializeTupleVariant = Seq<'a, 'c, 'o>;
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
        if let Kind::U8 = self.kind {
            self.out.push(value);
            return Ok(());
        }
        self.unsigned(value.into())
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result {
        if let Kind::Unsigned = self.kind {
            varint(self.out, value);
            return Ok(());
        }
        self.unsigned(value)
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result {
        if let Kind::Signed = self.kind {
            varint(self.out, zigzag(value));
            return Ok(());
        }
        self.signed(value)
    }

    fn serialize_u128(self, value: u128) -> Result {
        self.unsigned128(value)
    }

    fn serialize_i128(self, value: i128) -> Result {
        self.signed128(value)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result {
        if let Kind::F32 = self.kind {
            self.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.narrow_float(value)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result {
        if let Kind::F64 = self.kind {
            self.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.wide_float(value)
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result {
        if let Kind::Bool = self.kind {
            self.out.push(value.into());
            return Ok(());
        }
        self.boolean(value)
    }

    fn serialize_char(self, value: char) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Char => {}
            Kind::Any => self.out.push(tag::CHAR),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result {
        // Short texts here, others elsewhere.
        if let (Kind::Text, len @ 0..0x80) = (self.kind, value.len()) {
            self.out.push(len as u8);
            self.out.extend_from_slice(value.as_bytes());
            return Ok(());
        }
        self.text(value)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result {
        self.displayed(&value)
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result {
        if let (Kind::Bytes16, Ok(value)) = (self.kind, <&[u8; 16]>::try_from(value)) {
            self.out.extend_from_slice(value);
            return Ok(());
        }
        self.bytes(value)
    }

    #[inline]
    fn serialize_none(self) -> Result {
        if let Kind::Option(_) = self.kind {
            self.out.push(0);
            return Ok(());
        }
        self.other_none()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        self.some(|writer| value.serialize(writer))
    }

    fn serialize_unit(self) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Unit => {}
            Kind::Any => self.out.push(tag::UNIT),
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
        self.variant(name, index, variant, Form::Unit, |_| true).map(drop)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.enter()?;
        self.kind = self.variant(name, index, variant, Form::Newtype, |_| true)?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Seq<'a, 'c, 'o>> {
        self.enter()?;
        let len = len.unwrap_or(0);
        if let Kind::Seq(kind) = self.kind {
            let start = self.out.len();
            varint(self.out, len as u64);
            return Ok(Seq {
                writer: self,
                elements: Elements::Same(kind),
                start: Some(start),
                len,
                count: 0,
            });
        }
        let (elements, is_counted) = self.sequence(len, false)?;
        let start = self.out.len() - varint_len(len as u64);
        Ok(Seq { writer: self, elements, start: is_counted.then_some(start), len, count: 0 })
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Seq<'a, 'c, 'o>> {
        self.enter()?;
        if let Kind::Array(own, kind) = self.kind
            && *own as usize == len
        {
            return Ok(Seq {
                writer: self,
                elements: Elements::Same(kind),
                start: None,
                len,
                count: 0,
            });
        }
        if let Kind::Tuple(list) = *self.kind
            && let Some(list) = self.catalog.lists.get(list as usize)
            && list.fields.len() == len
        {
            let elements = Elements::Each(list.fields.iter());
            return Ok(Seq { writer: self, elements, start: None, len, count: 0 });
        }
        let (elements, is_counted) = self.sequence(len, true)?;
        let start = is_counted.then(|| self.out.len() - varint_len(len as u64));
        Ok(Seq { writer: self, elements, start, len, count: 0 })
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Seq<'a, 'c, 'o>> {
        self.serialize_tuple(len)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Seq<'a, 'c, 'o>> {
        if let Some(entry) = self.entry(index, variant, Form::Tuple)
            && let Kind::Tuple(list) = entry.payload
            && let Some(list) = self.catalog.lists.get(list as usize)
            && list.fields.len() == len
        {
            self.enter()?;
            varint(self.out, index.into());
            let elements = Elements::Each(list.fields.iter());
            return Ok(Seq { writer: self, elements, start: None, len, count: 0 });
        }
        let catalog = self.catalog;
        self.kind = self.variant(name, index, variant, Form::Tuple, |it| match it.payload {
            Kind::Tuple(list) => catalog.list(list).is_ok_and(|list| list.fields.len() == len),
            _ => false,
        })?;
        self.serialize_tuple(len)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Map<'a, 'c, 'o>> {
        self.enter()?;
        let (key, value) = match self.kind {
            Kind::Map(kinds) => (&kinds.0, &kinds.1),
            _ => self.other_map()?,
        };
        let (start, len) = (self.out.len(), len.unwrap_or(0));
        varint(self.out, len as u64);
        Ok(Map { writer: self, key, value, start, len, count: 0 })
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Struct<'a, 'c, 'o>> {
        self.enter()?;
        let place = match (self.kind, &self.guide) {
            (Kind::Struct(list), None) => {
                Place { among: None, start: 0, at: 0, list: self.catalog.list(*list)? }
            }
            _ => self.choose(name, len)?,
        };
        Ok(Struct { writer: self, fields: place.list.fields.iter(), place })
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Struct<'a, 'c, 'o>> {
        self.enter()?;
        let start = self.out.len();
        if let Some(entry) = self.entry(index, variant, Form::Struct)
            && self.guide.is_none()
            && let Kind::Struct(list) = entry.payload
            && let Some(list) = self.catalog.lists.get(list as usize)
            && list.fields.len() == len
        {
            varint(self.out, index.into());
            let place = Place { among: Some(self.kind), start, at: index, list };
            return Ok(Struct { writer: self, fields: list.fields.iter(), place });
        }
        self.other_struct_variant(name, variant, len)
    }
}

impl<'c, 'o> Writer<'c, 'o> {
    /// The kinds of keys and values at a place that does not expect a map only.
    #[inline(never)]
    fn other_map(&mut self) -> Result<(&'c Kind, &'c Kind)> {
        self.settle()?;
        match self.kind {
            Kind::Map(kinds) => Ok((&kinds.0, &kinds.1)),
            Kind::Any => {
                self.out.push(tag::MAP);
                Ok((self.kind, self.kind))
            }
            _ => Err(unrecorded()),
        }
    }

    /// A struct variant whose entry is not at its position in the type, or with a guide.
    #[inline(never)]
    fn other_struct_variant<'a>(
        &'a mut self,
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
        let (found, at) = self
            .any_variant(name, variant, Form::Struct, &|it| list(&it.payload).is_some_and(fits))?;
        let start = self.out.len() - varint_len(at as u64);
        let among = if is_stored { None } else { Some(&found.kind) };
        let payload = found.variants.get(at).map(|entry| &entry.payload);
        let list = payload.and_then(list).ok_or_else(unrecorded)?;
        let place = Place { among, start, at: at as u32, list };
        Ok(Struct { writer: self, fields: list.fields.iter(), place })
    }
}
