//! What serde asks for, with a fast path for the kind that is stored most often.

use serde::de::{self, IntoDeserializer, Visitor};

use super::{Reader, Value, access::Payload, scalars::unexpected};
use crate::{
    bytes::unzigzag,
    error::{Error, Result},
    kind::Kind,
};

macro_rules! integers {
    ($($kind:ident: $($method:ident)+;)+) => {$($(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if let Kind::$kind = self.kind
                && let Some(value) = self.short_varint()
            {
                return integers!(@visit $kind, visitor, value);
            }
            self.integer(visitor)
        }
    )+)+};
    (@visit Unsigned, $visitor:ident, $value:ident) => { $visitor.visit_u64($value) };
    (@visit Signed, $visitor:ident, $value:ident) => { $visitor.visit_i64(unzigzag($value)) };
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de, '_> {
    type Error = Error;

    integers! {
        Unsigned: deserialize_u16 deserialize_u32 deserialize_u64;
        Signed: deserialize_i16 deserialize_i32 deserialize_i64;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.left = true;
        self.skip()?;
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::U8 = self.kind {
            return visitor.visit_u8(self.byte()?);
        }
        self.integer(visitor)
    }

    #[inline]
    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::I8 = self.kind {
            return visitor.visit_i8(self.byte()?.cast_signed());
        }
        self.integer(visitor)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.integer(visitor)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.integer(visitor)
    }

    #[inline]
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::F32 = self.kind {
            return visitor.visit_f32(f32::from_le_bytes(self.array()?));
        }
        self.float(true, visitor)
    }

    #[inline]
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::F64 = self.kind {
            return visitor.visit_f64(f64::from_le_bytes(self.array()?));
        }
        self.float(false, visitor)
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let (Kind::Bool, &[value @ 0..=1, ref rest @ ..]) = (self.kind, self.rest) {
            self.rest = rest;
            return visitor.visit_bool(value == 1);
        }
        self.any_bool(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.only_text(visitor)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        // Short texts here, others elsewhere.
        if let (Kind::Text, &[len @ ..0x80, ref rest @ ..]) = (self.kind, self.rest)
            && let Some((text, rest)) = rest.split_at_checked(len.into())
            && let Ok(text) = super::text(text)
        {
            self.rest = rest;
            return visitor.visit_borrowed_str(text);
        }
        self.only_text(visitor)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Bytes16 = self.kind {
            return visitor.visit_borrowed_bytes(self.take(16)?);
        }
        self.only_bytes(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match (self.kind, self.rest) {
            (Kind::Option(_), [0, rest @ ..]) => {
                self.rest = rest;
                visitor.visit_none()
            }
            (Kind::Option(kind), [1, rest @ ..]) => {
                self.rest = rest;
                self.kind = kind;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            _ => self.any_option(visitor),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.typed(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        self.typed(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Seq(kind) = self.kind {
            let count = self.count()?;
            return self.seq(count, kind, visitor);
        }
        self.any_seq(None, visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        match self.kind {
            Kind::Array(len, kind) => self.elements(*len, kind, visitor),
            Kind::Tuple(list) => {
                let list = self.catalog.list(*list)?;
                self.tuple(list, visitor)
            }
            _ => self.any_seq(Some(len), visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Map(kinds) = self.kind {
            return self.map(&kinds.0, &kinds.1, visitor);
        }
        self.any_map(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        if let Kind::Struct(list) = *self.kind {
            return self.structure(list, names, visitor);
        }
        match self.present()? {
            Some(Value::Kind(Kind::Struct(list))) => self.structure(*list, names, visitor),
            Some(Value::Kind(Kind::Hole)) => self.ask_for_struct(names, visitor),
            // A struct is read by names, never from the elements of a sequence.
            Some(Value::Kind(Kind::Seq(_) | Kind::Array(..) | Kind::Tuple(_)) | Value::Seq) => {
                Err(unexpected(None, "a struct"))
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let number = match *self.kind {
            Kind::Enum(number) => number,
            _ => match self.present()? {
                Some(Value::Kind(Kind::Enum(number))) => *number,
                Some(Value::Kind(Kind::Hole)) => return self.ask_for_enum(variants, visitor),
                // The name of a variant, written by a type that was not an enum.
                Some(Value::Text(text)) => return visitor.visit_enum(text.into_deserializer()),
                Some(Value::Kind(Kind::Text)) => {
                    let len = self.len()?;
                    return visitor.visit_enum(self.text(len)?.into_deserializer());
                }
                Some(value) => return self.value(value, visitor),
                None => return visitor.visit_none(),
            },
        };
        let entry = self.entry(number)?;
        if self.by_names && !variants.contains(&entry.name.text()) {
            self.left = true;
            self.lose_variant(entry);
        }
        self.deeper(|reader| visitor.visit_enum(Payload { reader, entry }))
    }

    #[inline]
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }
}
