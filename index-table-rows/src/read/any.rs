//! Values for types that take any kind, or another one than is stored.

use serde::de::{self, Visitor};

use super::{
    Reader, Value,
    access::{One, Payload},
    scalars::Scalar,
};
use crate::{
    error::{Result, damaged},
    kind::{Form, Kind},
    tag,
};

impl<'de, 'c> Reader<'de, 'c> {
    /// A value for a type that is not an option.
    #[cold]
    #[inline(never)]
    pub(super) fn typed<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// A value for a type that takes any.
    #[cold]
    #[inline(never)]
    pub(super) fn any<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.next()? {
            Value::None => visitor.visit_none(),
            Value::Some => {
                self.kind = &tag::ANY;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            Value::Kind(Kind::Option(kind)) => {
                match self.byte()? {
                    0 => return visitor.visit_none(),
                    1 => self.kind = kind,
                    _ => return Err(damaged()),
                }
                // `Some` is left out, except in front of what looks like `None`.
                match self.kind {
                    Kind::Option(_) | Kind::Unit => {
                        self.deeper(|reader| visitor.visit_some(reader))
                    }
                    _ => self.deeper(|reader| reader.any(visitor)),
                }
            }
            value => self.value(value, visitor),
        }
    }

    pub(super) fn value<V: Visitor<'de>>(
        &mut self,
        value: Value<'de, 'c>,
        visitor: V,
    ) -> Result<V::Value> {
        match value {
            Value::Unsigned(value) => visitor.visit_u64(value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::None | Value::Some => Err(damaged()),
            Value::Seq => {
                let count = self.count()?;
                self.seq(count, &tag::ANY, visitor)
            }
            Value::Map => self.map(&tag::ANY, &tag::ANY, visitor),
            Value::Kind(kind) => match kind {
                Kind::Seq(element) => {
                    let count = self.count()?;
                    self.seq(count, element, visitor)
                }
                Kind::Array(len, element) => self.elements(*len, element, visitor),
                Kind::Tuple(list) => {
                    let list = self.catalog.list(*list)?;
                    self.tuple(list, visitor)
                }
                Kind::Map(kinds) => self.map(&kinds.0, &kinds.1, visitor),
                Kind::Struct(list) => {
                    let list = self.catalog.list(*list)?;
                    self.fields(list, visitor)
                }
                Kind::Enum(number) => {
                    let entry = self.entry(*number)?;
                    match entry.form {
                        Form::Unit => visitor.visit_str(entry.name.text()),
                        _ => self.deeper(|reader| {
                            visitor.visit_map(One(Some(Payload { reader, entry })))
                        }),
                    }
                }
                kind => match self.scalar(kind)? {
                    Scalar::Unsigned(value) => visitor.visit_u64(value),
                    Scalar::Signed(value) => visitor.visit_i64(value),
                    Scalar::U128(value) => visitor.visit_u128(value),
                    Scalar::I128(value) => visitor.visit_i128(value),
                    Scalar::F32(value) => visitor.visit_f32(value),
                    Scalar::F64(value) => visitor.visit_f64(value),
                    Scalar::Bool(value) => visitor.visit_bool(value),
                    Scalar::Char(value) => visitor.visit_char(value),
                    Scalar::Text(value) => visitor.visit_borrowed_str(value),
                    Scalar::Bytes(value) => visitor.visit_borrowed_bytes(value),
                    Scalar::Unit => visitor.visit_unit(),
                },
            },
        }
    }

    /// A value for `bool`.
    #[cold]
    #[inline(never)]
    pub(super) fn any_bool<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        if self.has_defaults() { visitor.visit_bool(false) } else { self.typed(visitor) }
    }

    /// Pairs for a type that is a map.
    #[cold]
    #[inline(never)]
    pub(super) fn any_map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Kind(Kind::Hole)) => self.ask_for_pair(visitor),
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// Elements for a type that is a sequence, or a tuple of `len` elements.
    #[cold]
    #[inline(never)]
    pub(super) fn any_seq<V: Visitor<'de>>(
        &mut self,
        len: Option<usize>,
        visitor: V,
    ) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Kind(Kind::Hole)) => self.ask_for_elements(len, visitor),
            Some(Value::Kind(kind @ (Kind::Bytes | Kind::Bytes16))) => {
                let len = if let Kind::Bytes = kind { self.len()? } else { 16 };
                if len > self.rest.len() {
                    return Err(damaged());
                }
                self.seq(len, &Kind::U8, visitor)
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// A value for an option, at a place whose kind is none.
    #[inline(never)]
    pub(super) fn any_option<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        while let Kind::Union(union) = *self.kind {
            self.alternative(union)?;
        }
        match (self.kind, self.rest) {
            (Kind::Option(_), [0 | 1, ..]) => de::Deserializer::deserialize_option(self, visitor),
            (Kind::Option(_), _) => Err(damaged()),
            (Kind::Any, [tag::NONE, rest @ ..]) => {
                self.rest = rest;
                visitor.visit_none()
            }
            (Kind::Any, [tag::SOME, rest @ ..]) => {
                self.rest = rest;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            _ => self.deeper(|reader| visitor.visit_some(reader)),
        }
    }
}
