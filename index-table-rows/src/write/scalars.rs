//! Values without parts, at a place that expects another kind than theirs, or any.

use std::fmt::{self, Write as _};

use serde::ser;

use super::Writer;
use crate::{
    bytes::{replace_varint, varint, wide_varint, wide_zigzag, widen, zigzag},
    error::{Error, Result, unrecorded},
    kind::Kind,
    tag,
};

impl<'c> Writer<'c, '_> {
    #[inline(never)]
    pub(super) fn unsigned(&mut self, kind: &'c Kind, value: u64) -> Result {
        if let Kind::Unsigned = kind {
            varint(self.out, value);
            return Ok(());
        }
        let kind = self.settle(kind)?;
        match (kind, i64::try_from(value)) {
            (Kind::Unsigned | Kind::U128, _) => varint(self.out, value),
            (Kind::U8, Ok(0..0x100)) | (Kind::I8, Ok(0..0x80)) => self.out.push(value as u8),
            (Kind::Signed, Ok(value)) => varint(self.out, zigzag(value)),
            (Kind::I128, _) => wide_varint(self.out, wide_zigzag(value.into())),
            (Kind::Any, _) if value < tag::SHORT.into() => self.out.push(value as u8),
            (Kind::Any, _) => {
                self.out.push(tag::UNSIGNED);
                varint(self.out, value);
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn signed(&mut self, kind: &'c Kind, value: i64) -> Result {
        if let Kind::Signed = kind {
            varint(self.out, zigzag(value));
            return Ok(());
        }
        let kind = self.settle(kind)?;
        match (kind, u64::try_from(value)) {
            (Kind::Signed | Kind::I128, _) => varint(self.out, zigzag(value)),
            (Kind::I8, _) => {
                self.out.push(i8::try_from(value).map_err(|_| unrecorded())?.cast_unsigned());
            }
            (Kind::U8 | Kind::Unsigned | Kind::U128 | Kind::Any, Ok(value)) => {
                return self.unsigned(kind, value);
            }
            (Kind::Any, _) => {
                self.out.push(tag::SIGNED);
                varint(self.out, zigzag(value));
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn unsigned128(&mut self, kind: &'c Kind, value: u128) -> Result {
        let kind = self.settle(kind)?;
        match (kind, i128::try_from(value), u64::try_from(value)) {
            (Kind::U128, ..) => wide_varint(self.out, value),
            (Kind::I128, Ok(value), _) => wide_varint(self.out, wide_zigzag(value)),
            (Kind::U8 | Kind::I8 | Kind::Unsigned | Kind::Signed, _, Ok(value)) => {
                return self.unsigned(kind, value);
            }
            (Kind::Any, ..) => {
                self.out.push(tag::U128);
                wide_varint(self.out, value);
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn signed128(&mut self, kind: &'c Kind, value: i128) -> Result {
        let kind = self.settle(kind)?;
        match (kind, u128::try_from(value), i64::try_from(value)) {
            (Kind::I128, ..) => wide_varint(self.out, wide_zigzag(value)),
            (Kind::U128, Ok(value), _) => wide_varint(self.out, value),
            (Kind::U8 | Kind::I8 | Kind::Unsigned | Kind::Signed, _, Ok(value)) => {
                return self.signed(kind, value);
            }
            (Kind::Any, ..) => {
                self.out.push(tag::I128);
                wide_varint(self.out, wide_zigzag(value));
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn narrow_float(&mut self, kind: &'c Kind, value: f32) -> Result {
        let kind = self.settle(kind)?;
        match kind {
            Kind::F32 => {}
            Kind::F64 => return self.wide_float(kind, widen(value)),
            Kind::Any => self.out.push(tag::F32),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wide_float(&mut self, kind: &'c Kind, value: f64) -> Result {
        let kind = self.settle(kind)?;
        match kind {
            Kind::F64 => {}
            Kind::Any => self.out.push(tag::F64),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
        Ok(())
    }

    #[inline(never)]
    pub(super) fn boolean(&mut self, kind: &'c Kind, value: bool) -> Result {
        let kind = self.settle(kind)?;
        match kind {
            Kind::Bool => self.out.push(value.into()),
            Kind::Any => self.out.push(if value { tag::TRUE } else { tag::FALSE }),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn bytes(&mut self, kind: &'c Kind, value: &[u8]) -> Result {
        let kind = self.settle(kind)?;
        match kind {
            Kind::Bytes16 if value.len() == 16 => {}
            Kind::Bytes => varint(self.out, value.len() as u64),
            Kind::Any if value.len() == 16 => self.out.push(tag::BYTES16),
            Kind::Any => {
                self.out.push(tag::BYTES);
                varint(self.out, value.len() as u64);
            }
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn text(&mut self, kind: &'c Kind, value: &str) -> Result {
        let kind = self.settle(kind)?;
        match kind {
            Kind::Text => varint(self.out, value.len() as u64),
            Kind::Any if value.len() < tag::SHORT.into() => {
                self.out.push(tag::TEXT + value.len() as u8);
            }
            Kind::Any => {
                self.out.push(tag::LONG_TEXT);
                varint(self.out, value.len() as u64);
            }
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    /// Writes the text of a `Display`, and its length when that is known.
    pub(super) fn displayed(&mut self, kind: &'c Kind, value: &dyn fmt::Display) -> Result {
        struct Text<'o>(&'o mut Vec<u8>);
        impl fmt::Write for Text<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        let kind = self.settle(kind)?;
        if !matches!(kind, Kind::Text) {
            return self.text(kind, &value.to_string());
        }
        let start = self.out.len();
        self.out.push(0);
        write!(Text(self.out), "{value}")
            .map_err(|_| <Error as ser::Error>::custom("its `Display` fails"))?;
        let len = self.out.len() - start - 1;
        replace_varint(self.out, start, 0, len as u64);
        Ok(())
    }
}
