//! The parts of a value: elements, pairs and fields.

use serde::ser::{self, Serialize};

use super::{Blank, Writer, choice::Place};
use crate::{
    bytes::{replace_varint, varint_len},
    error::{Error, Result, unrecorded},
    kind::{Field, Kind},
    tag,
};

/// The kinds of elements.
pub(super) trait Elements<'c> {
    fn next(&mut self) -> Result<&'c Kind>;
}

/// All elements have the same kind.
impl<'c> Elements<'c> for &'c Kind {
    #[inline(always)]
    fn next(&mut self) -> Result<&'c Kind> {
        Ok(self)
    }
}

pub(super) enum TupleElements<'c> {
    Same(&'c Kind),
    Each(std::slice::Iter<'c, Field>),
}

impl<'c> Elements<'c> for TupleElements<'c> {
    #[inline(always)]
    fn next(&mut self) -> Result<&'c Kind> {
        Ok(match self {
            Self::Same(kind) => kind,
            Self::Each(fields) => &fields.next().ok_or_else(unrecorded)?.kind,
        })
    }
}

pub(super) struct Seq<'a, 'c, 'o, E> {
    pub(super) writer: &'a mut Writer<'c, 'o>,
    pub(super) elements: E,
    /// The position behind the length, if it is written.
    pub(super) start: Option<usize>,
    pub(super) len: usize,
    pub(super) count: usize,
}

impl<'c, 'o, E: Elements<'c>> Seq<'_, 'c, 'o, E> {
    #[inline(always)]
    pub(super) fn begin(&mut self) -> Result<Blank<'_, 'c, 'o>> {
        let kind = self.elements.next()?;
        self.count += 1;
        Ok(self.writer.expecting(kind))
    }

    #[inline]
    pub(super) fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        value.serialize(self.begin()?)
    }

    #[inline]
    pub(super) fn finish(self) -> Result {
        self.writer.depth -= 1;
        if self.count == self.len { Ok(()) } else { self.correct() }
    }

    /// The length was unknown, or wrong.
    #[cold]
    pub(super) fn correct(self) -> Result {
        let len = self.len as u64;
        let start = self.start.ok_or_else(unrecorded)? - varint_len(len);
        replace_varint(self.writer.out, start, len, self.count as u64);
        Ok(())
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident $elements:ty;)+) => {$(
        impl<'c> ser::$trait for Seq<'_, 'c, '_, $elements> {
            type Ok = ();
            type Error = Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.add(value)
            }

            #[inline]
            fn end(self) -> Result {
                self.finish()
            }
        }
    )+};
}

elements! {
    SerializeSeq serialize_element &'c Kind;
    SerializeTuple serialize_element TupleElements<'c>;
    SerializeTupleStruct serialize_field TupleElements<'c>;
    SerializeTupleVariant serialize_field TupleElements<'c>;
}

pub(super) struct Map<'a, 'c, 'o> {
    pub(super) writer: &'a mut Writer<'c, 'o>,
    pub(super) key: &'c Kind,
    pub(super) value: &'c Kind,
    /// The position of the length.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) count: usize,
}

impl<'c, 'o> Map<'_, 'c, 'o> {
    #[inline]
    pub(super) fn begin_value(&mut self) -> Blank<'_, 'c, 'o> {
        self.writer.expecting(self.value)
    }
}

impl ser::SerializeMap for Map<'_, '_, '_> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        self.count += 1;
        key.serialize(self.writer.expecting(self.key))
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        value.serialize(self.begin_value())
    }

    #[inline]
    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result {
        self.serialize_key(key)?;
        self.serialize_value(value)
    }

    #[inline]
    fn end(self) -> Result {
        self.writer.depth -= 1;
        if self.count != self.len {
            replace_varint(self.writer.out, self.start, self.len as u64, self.count as u64);
        }
        Ok(())
    }
}

pub(super) struct Struct<'a, 'c, 'o> {
    pub(super) writer: &'a mut Writer<'c, 'o>,
    /// The fields that follow.
    pub(super) fields: std::slice::Iter<'c, Field>,
    pub(super) place: Place<'c>,
}

impl<'c, 'o> Struct<'_, 'c, 'o> {
    #[inline(always)]
    fn field(&mut self, name: &'static str) -> Result<&'c Field> {
        let mut fields = self.fields.clone();
        if let Some(field) = fields.next()
            && field.name.is_literal(name)
        {
            self.fields = fields;
            return Ok(field);
        }
        let (field, fields, place) = self.place.find(self.writer, self.fields.as_slice(), name)?;
        (self.fields, self.place) = (fields.iter(), place);
        Ok(field)
    }

    #[inline(always)]
    pub(super) fn begin(&mut self, name: &'static str) -> Result<Blank<'_, 'c, 'o>> {
        let kind = &self.field(name)?.kind;
        Ok(self.writer.expecting(kind))
    }

    #[inline(always)]
    pub(super) fn add<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
        value.serialize(self.begin(name)?)
    }

    pub(super) fn skip(&mut self, name: &'static str) -> Result {
        let field = self.field(name)?;
        match field.kind {
            Kind::Option(_) if field.absent => self.writer.out.push(2),
            Kind::Any if field.absent => self.writer.out.push(tag::ABSENT),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn finish(self) -> Result {
        self.writer.depth -= 1;
        if self.fields.len() == 0 {
            return Ok(());
        }
        self.place.switch(self.writer, self.fields.len(), None).map(drop)
    }
}

macro_rules! fields {
    ($($trait:ident;)+) => {$(
        impl ser::$trait for Struct<'_, '_, '_> {
            type Ok = ();
            type Error = Error;

            #[inline(always)]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
                self.add(name, value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result {
                self.skip(name)
            }

            #[inline(always)]
            fn end(self) -> Result {
                self.finish()
            }
        }
    )+};
}

fields! {
    SerializeStruct;
    SerializeStructVariant;
}
