//! Access to the parts of a value.

use std::marker::PhantomData;

use serde::de::{self, Deserialize, DeserializeSeed, Visitor, value::StrDeserializer};

use super::Reader;
use crate::{
    error::{Error, Result, damaged},
    kind::{Field, Form, Kind, List, Variant},
};

/// The fields of a struct or tuple, by position or by name.
pub(super) struct ListAccess<'r, 'de, 'c> {
    reader: &'r mut Reader<'de, 'c>,
    list: &'c List,
    rest: std::slice::Iter<'c, Field>,
    /// The field whose name was read last.
    field: Option<&'c Field>,
    /// How often a field was asked for after the last.
    missing: usize,
}

impl<'r, 'de, 'c> ListAccess<'r, 'de, 'c> {
    #[inline]
    pub(super) fn new(reader: &'r mut Reader<'de, 'c>, list: &'c List) -> Self {
        Self { reader, list, rest: list.fields.iter(), field: None, missing: 0 }
    }

    /// The number of fields that were not asked for.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether as many fields were asked for as the type has names. If one of these is an alias, the positions are wrong.
    #[inline]
    pub(super) fn is_asked_for(&self, names: usize) -> bool {
        self.rest.len() == 0 && self.list.fields.len() + self.missing == names
    }

    /// The struct must be read by names, with the whole row.
    #[cold]
    #[inline(never)]
    pub(super) fn misplace(self, names: &'static [&'static str], is_ok: bool) {
        self.reader.misplaced = true;
        if is_ok {
            self.list.set_by_names(names);
        } else {
            // Only if reading by names succeeds. The innermost struct is the first.
            self.reader.noted.get_or_insert_default().suspect.get_or_insert((self.list, names));
        }
    }

    /// The next field that the row has.
    #[inline]
    fn present(&mut self) -> Option<&'c Field> {
        loop {
            let field = self.rest.next()?;
            if !self.reader.passes_absent(field) {
                return Some(field);
            }
        }
    }

    /// Skips the fields that were not asked for.
    pub(super) fn skip_rest(mut self) -> Result {
        while let Some(field) = self.present() {
            self.reader.left = true;
            if self.reader.by_names {
                self.reader.lose_field(self.list, field);
                self.reader.skip_noted(&field.kind)?;
            } else {
                self.reader.skip_as(&field.kind)?;
            }
        }
        Ok(())
    }
}

impl<'de> de::SeqAccess<'de> for &mut ListAccess<'_, 'de, '_> {
    type Error = Error;

    #[inline(always)]
    fn next_element<T: Deserialize<'de>>(&mut self) -> Result<Option<T>> {
        self.next_element_seed(PhantomData)
    }

    #[inline(always)]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some(field) = self.rest.next() else {
            self.missing += 1;
            return Ok(None);
        };
        self.reader.kind = &field.kind;
        match seed.deserialize(&mut *self.reader) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(error.within(field.name.text())),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

impl<'de> de::MapAccess<'de> for &mut ListAccess<'_, 'de, '_> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some(field) = self.present() else { return Ok(None) };
        self.field = Some(field);
        seed.deserialize(StrDeserializer::new(field.name.text())).map(Some)
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let field = self.field.take().ok_or_else(damaged)?;
        self.reader.kind = &field.kind;
        if self.reader.by_names {
            return seed
                .deserialize(Noting { reader: self.reader, list: self.list, field })
                .map_err(|error| error.within(field.name.text()));
        }
        match seed.deserialize(&mut *self.reader) {
            Ok(value) => Ok(value),
            Err(error) => Err(error.within(field.name.text())),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The value of a field, which is noted if the type ignores it.
struct Noting<'r, 'de, 'c> {
    reader: &'r mut Reader<'de, 'c>,
    list: &'c List,
    field: &'c Field,
}

macro_rules! noting {
    ($($method:ident($($argument:ident: $type:ty),*);)+) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value> {
            de::Deserializer::$method(self.reader, $($argument,)* visitor)
        }
    )+};
}

impl<'de> de::Deserializer<'de> for Noting<'_, 'de, '_> {
    type Error = Error;

    noting! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.reader.left = true;
        self.reader.lose_field(self.list, self.field);
        self.reader.skip_noted(&self.field.kind)?;
        visitor.visit_unit()
    }
}

pub(super) struct Elements<'r, 'de, 'c> {
    pub(super) reader: &'r mut Reader<'de, 'c>,
    pub(super) kind: &'c Kind,
    pub(super) left: usize,
}

impl<'de> de::SeqAccess<'de> for &mut Elements<'_, 'de, '_> {
    type Error = Error;

    #[inline(always)]
    fn next_element<T: Deserialize<'de>>(&mut self) -> Result<Option<T>> {
        self.next_element_seed(PhantomData)
    }

    #[inline(always)]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.reader.kind = self.kind;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

pub(super) struct Pairs<'r, 'de, 'c> {
    pub(super) reader: &'r mut Reader<'de, 'c>,
    pub(super) key: &'c Kind,
    pub(super) value: &'c Kind,
    pub(super) left: usize,
}

impl<'de> de::MapAccess<'de> for &mut Pairs<'_, 'de, '_> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.reader.kind = self.key;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        self.reader.kind = self.value;
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant, after its number.
pub(super) struct Payload<'r, 'de, 'c> {
    pub(super) reader: &'r mut Reader<'de, 'c>,
    pub(super) entry: &'c Variant,
}

impl<'r, 'de, 'c> Payload<'r, 'de, 'c> {
    #[inline]
    fn value(self) -> &'r mut Reader<'de, 'c> {
        self.reader.kind = &self.entry.payload;
        self.reader
    }
}

impl<'de> de::EnumAccess<'de> for Payload<'_, 'de, '_> {
    type Error = Error;
    type Variant = Self;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self)> {
        let name = seed.deserialize(StrDeserializer::<Error>::new(self.entry.name.text()))?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Payload<'_, 'de, '_> {
    type Error = Error;

    #[inline]
    fn unit_variant(self) -> Result {
        if self.entry.form == Form::Unit {
            return Ok(());
        }
        let Self { reader, entry } = self;
        reader.left = true;
        if reader.by_names {
            reader.lose_variant(entry);
            return reader.skip_noted(&entry.payload);
        }
        reader.skip_as(&entry.payload)
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        match self.entry.form {
            Form::Unit => seed.deserialize(Content(self)),
            // Also the fields of a variant that became a struct of its own.
            _ => seed.deserialize(self.value()),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        de::Deserializer::deserialize_tuple(self.value(), len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        de::Deserializer::deserialize_struct(self.value(), "", names, visitor)
    }
}

/// The payload for a type that was not written as it is read.
struct Content<'r, 'de, 'c>(Payload<'r, 'de, 'c>);

impl<'de> de::Deserializer<'de> for Content<'_, 'de, '_> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.0.value().any(visitor)
    }

    /// A unit variant that got a payload: the value may be `None`.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.0.entry.form == Form::Unit {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A variant with a payload as a map with one pair, for types that take any value.
pub(super) struct One<'r, 'de, 'c>(pub(super) Option<Payload<'r, 'de, 'c>>);

impl<'de> de::MapAccess<'de> for One<'_, 'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some(payload) = &self.0 else { return Ok(None) };
        seed.deserialize(StrDeserializer::<Error>::new(payload.entry.name.text())).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let payload = self.0.take().ok_or_else(damaged)?;
        seed.deserialize(Content(payload))
    }
}
