//! Values without parts: numbers, texts and bytes.

use serde::de::{self, Visitor};

use super::{Reader, Value};
use crate::{
    bytes::{float_of_signed, float_of_unsigned, narrow, unzigzag, wide_unzigzag, widen},
    error::{Error, Result, damaged, unrecorded},
    kind::{Form, Kind},
};

/// A value that is not an option.
pub(super) enum Scalar<'de> {
    Unsigned(u64),
    Signed(i64),
    U128(u128),
    I128(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    Char(char),
    Text(&'de str),
    Bytes(&'de [u8]),
    Unit,
}

impl<'de> Reader<'de, '_> {
    /// Reads a value without parts.
    #[inline(never)]
    pub(super) fn scalar(&mut self, kind: &Kind) -> Result<Scalar<'de>> {
        Ok(match kind {
            Kind::U8 => Scalar::Unsigned(self.byte()?.into()),
            Kind::I8 => Scalar::Signed((self.byte()?.cast_signed()).into()),
            Kind::Unsigned => Scalar::Unsigned(self.varint()?),
            Kind::Signed => Scalar::Signed(unzigzag(self.varint()?)),
            Kind::U128 => Scalar::U128(self.wide_varint()?),
            Kind::I128 => Scalar::I128(wide_unzigzag(self.wide_varint()?)),
            Kind::F32 => Scalar::F32(f32::from_le_bytes(self.array()?)),
            Kind::F64 => Scalar::F64(f64::from_le_bytes(self.array()?)),
            Kind::Bool => match self.byte()? {
                value @ 0..=1 => Scalar::Bool(value == 1),
                _ => return Err(damaged()),
            },
            Kind::Char => Scalar::Char(self.character()?),
            Kind::Text => {
                let len = self.len()?;
                Scalar::Text(self.text(len)?)
            }
            Kind::Bytes => {
                let len = self.len()?;
                Scalar::Bytes(self.take(len)?)
            }
            Kind::Bytes16 => Scalar::Bytes(self.take(16)?),
            Kind::Unit => Scalar::Unit,
            Kind::Hole if self.has_defaults() => Scalar::Unsigned(0),
            // The hole has been filled in a later version.
            Kind::Hole => return Err(unrecorded()),
            _ => return Err(damaged()),
        })
    }

    /// Reads a value without parts for a type that is not an option. `None` if it has parts.
    #[cold]
    #[inline(never)]
    pub(super) fn plain(&mut self) -> Result<Option<Scalar<'de>>> {
        Ok(Some(match self.present()? {
            Some(Value::Unsigned(value)) => Scalar::Unsigned(value),
            Some(Value::Text(text)) => Scalar::Text(text),
            Some(Value::Bool(value)) => Scalar::Bool(value),
            Some(
                Value::Kind(
                    Kind::Seq(_)
                    | Kind::Array(..)
                    | Kind::Tuple(_)
                    | Kind::Map(_)
                    | Kind::Struct(_)
                    | Kind::Enum(_),
                )
                | Value::None
                | Value::Some
                | Value::Seq
                | Value::Map,
            )
            | None => return Ok(None),
            Some(Value::Kind(kind)) => self.scalar(kind)?,
        }))
    }

    /// A number for an integer type: as `u64` or `i64` if it fits.
    #[cold]
    #[inline(never)]
    pub(super) fn integer<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.kind {
            Kind::Unsigned => return visitor.visit_u64(self.long_varint()?),
            Kind::Signed => return visitor.visit_i64(unzigzag(self.long_varint()?)),
            _ => {}
        }
        match self.plain()? {
            Some(Scalar::Unsigned(value)) => visitor.visit_u64(value),
            Some(Scalar::Signed(value)) => visitor.visit_i64(value),
            Some(Scalar::U128(value)) => match u64::try_from(value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_u128(value),
            },
            Some(Scalar::I128(value)) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => visitor.visit_i128(value),
            },
            other => Err(unexpected(other.as_ref(), "an integer")),
        }
    }

    /// A number for a float type, if it is exact.
    #[cold]
    #[inline(never)]
    pub(super) fn float<V: Visitor<'de>>(
        &mut self,
        is_narrow: bool,
        visitor: V,
    ) -> Result<V::Value> {
        let value = match self.plain()? {
            Some(Scalar::F32(value)) if is_narrow => return visitor.visit_f32(value),
            Some(Scalar::F32(value)) => widen(value),
            Some(Scalar::F64(value)) => value,
            Some(Scalar::Unsigned(value)) => float_of_unsigned(value).ok_or_else(inexact)?,
            Some(Scalar::Signed(value)) => float_of_signed(value).ok_or_else(inexact)?,
            other => return Err(unexpected(other.as_ref(), "a number")),
        };
        if is_narrow {
            visitor.visit_f32(narrow(value).ok_or_else(inexact)?)
        } else {
            visitor.visit_f64(value)
        }
    }

    /// A text for a type that is one: bytes that happen to be UTF-8 are none.
    #[cold]
    #[inline(never)]
    pub(super) fn only_text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Text(text)) => visitor.visit_borrowed_str(text),
            Some(Value::Kind(Kind::Hole)) if self.has_defaults() => visitor.visit_borrowed_str("a"),
            Some(Value::Kind(kind @ (Kind::Text | Kind::Char))) => match self.scalar(kind)? {
                Scalar::Text(text) => visitor.visit_borrowed_str(text),
                Scalar::Char(value) => visitor.visit_char(value),
                other => Err(unexpected(Some(&other), "a text")),
            },
            // The name of a variant without payload.
            Some(Value::Kind(Kind::Enum(number))) => {
                let entry = self.entry(*number)?;
                match entry.form {
                    Form::Unit => visitor.visit_str(entry.name.text()),
                    _ => Err(unexpected(None, "a text")),
                }
            }
            Some(Value::Kind(kind @ (Kind::Bytes | Kind::Bytes16))) => {
                let value = self.scalar(kind)?;
                Err(unexpected(Some(&value), "a text"))
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// Bytes for a type that is bytes: a text is none, a sequence of numbers is. One of bytes has the form of bytes, and can
    /// be borrowed.
    #[cold]
    #[inline(never)]
    pub(super) fn only_bytes<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Text(text)) => Err(unexpected(Some(&Scalar::Text(text)), "bytes")),
            Some(Value::Kind(Kind::Hole)) if self.has_defaults() => {
                visitor.visit_borrowed_bytes(&[0; 16])
            }
            Some(Value::Kind(kind @ (Kind::Text | Kind::Char))) => {
                let value = self.scalar(kind)?;
                Err(unexpected(Some(&value), "bytes"))
            }
            Some(Value::Kind(Kind::Seq(kind))) if matches!(**kind, Kind::U8) => {
                let len = self.len()?;
                visitor.visit_borrowed_bytes(self.take(len)?)
            }
            Some(Value::Kind(Kind::Array(len, kind))) if matches!(**kind, Kind::U8) => {
                visitor.visit_borrowed_bytes(self.take(*len as usize)?)
            }
            // The sequence was always empty.
            Some(Value::Kind(Kind::Seq(kind))) if matches!(**kind, Kind::Hole) => {
                match self.len()? {
                    0 => visitor.visit_borrowed_bytes(&[]),
                    _ => Err(unrecorded()),
                }
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }
}

#[cold]
fn inexact() -> Error {
    <Error as de::Error>::custom("the stored number is not exact in this type")
}

#[cold]
pub(super) fn unexpected(value: Option<&Scalar<'_>>, expected: &str) -> Error {
    let found = match value {
        None => de::Unexpected::Other("a value with parts, or none"),
        Some(Scalar::Unsigned(value)) => de::Unexpected::Unsigned(*value),
        Some(Scalar::Signed(value)) => de::Unexpected::Signed(*value),
        Some(Scalar::U128(_)) => de::Unexpected::Other("a `u128`"),
        Some(Scalar::I128(_)) => de::Unexpected::Other("an `i128`"),
        Some(Scalar::F32(value)) => de::Unexpected::Float((*value).into()),
        Some(Scalar::F64(value)) => de::Unexpected::Float(*value),
        Some(Scalar::Bool(value)) => de::Unexpected::Bool(*value),
        Some(Scalar::Char(value)) => de::Unexpected::Char(*value),
        Some(Scalar::Text(value)) => de::Unexpected::Str(value),
        Some(Scalar::Bytes(value)) => de::Unexpected::Bytes(value),
        Some(Scalar::Unit) => de::Unexpected::Unit,
    };
    de::Error::invalid_type(found, &expected)
}
