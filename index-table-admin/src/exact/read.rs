//! Values from JSON.

use std::fmt::{self, Display};

use serde::{
    de::{
        self, DeserializeOwned, DeserializeSeed, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::Value;

use crate::value;

/// The reason why JSON is not a value of the type.
#[derive(Debug)]
pub(crate) struct ReadError(String);

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Returns the value with this JSON.
pub(crate) fn from_value<T: DeserializeOwned>(json: Value) -> Result<T, ReadError> {
    T::deserialize(Reader(json))
}

/// Reads JSON, and the exact forms.
struct Reader(Value);

/// An exact form.
enum Exact {
    Float(String),
    Int(String),
    Bytes(Vec<u8>),
    Map(Vec<Value>),
    Some(Value),
}

impl Reader {
    /// Returns the exact form, or the value if it has none.
    fn exact(self) -> Result<Exact, Value> {
        let Value::Object(mut object) = self.0 else { return Err(self.0) };
        let form = match object.keys().next() {
            Some(form) if object.len() == 1 && form.starts_with('$') => form.clone(),
            _ => return Err(Value::Object(object)),
        };
        let inner = object.remove(&form).unwrap_or_default();
        match (form.as_str(), inner) {
            ("$float", Value::String(text)) => Ok(Exact::Float(text)),
            ("$int", Value::String(text)) => Ok(Exact::Int(text)),
            ("$map", Value::Array(pairs)) => Ok(Exact::Map(pairs)),
            ("$some", value) => Ok(Exact::Some(value)),
            ("$bytes", Value::String(text)) => match value::bytes(&text) {
                Some(bytes) => Ok(Exact::Bytes(bytes)),
                None => Err(Value::Object([(form, Value::String(text))].into_iter().collect())),
            },
            (_, inner) => Err(Value::Object([(form, inner)].into_iter().collect())),
        }
    }
}

/// Returns the bits of a NaN.
fn bits(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn wrong(text: &str, expected: &str) -> ReadError {
    ReadError(format!("`{text}` is not {expected}"))
}

fn visit<'de, V: Visitor<'de>>(json: Value, visitor: V) -> Result<V::Value, ReadError> {
    match json {
        Value::Null => visitor.visit_unit(),
        Value::Bool(value) => visitor.visit_bool(value),
        Value::String(text) => visitor.visit_string(text),
        Value::Array(items) => list(items, visitor),
        Value::Object(object) => {
            let pairs = object.into_iter().map(|(key, value)| (Value::String(key), value));
            map(pairs.collect(), visitor)
        }
        Value::Number(number) => {
            if let Some(number) = number.as_u64() {
                visitor.visit_u64(number)
            } else if let Some(number) = number.as_i64() {
                visitor.visit_i64(number)
            } else {
                visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
            }
        }
    }
}

fn list<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, ReadError> {
    let mut items = SeqDeserializer::new(items.into_iter().map(Reader));
    let value = visitor.visit_seq(&mut items)?;
    items.end()?;
    Ok(value)
}

fn map<'de, V: Visitor<'de>>(
    pairs: Vec<(Value, Value)>,
    visitor: V,
) -> Result<V::Value, ReadError> {
    let pairs = pairs.into_iter().map(|(key, value)| (Reader(key), Reader(value)));
    let mut pairs = MapDeserializer::new(pairs);
    let value = visitor.visit_map(&mut pairs)?;
    pairs.end()?;
    Ok(value)
}

fn pairs(items: Vec<Value>) -> Result<Vec<(Value, Value)>, ReadError> {
    let pair = |item| match item {
        Value::Array(pair) => match <[Value; 2]>::try_from(pair) {
            Ok([key, value]) => Ok((key, value)),
            Err(_) => Err(ReadError("an item of `$map` is not a key and a value".to_owned())),
        },
        _ => Err(ReadError("an item of `$map` is not a key and a value".to_owned())),
    };
    items.into_iter().map(pair).collect()
}

impl de::IntoDeserializer<'_, ReadError> for Reader {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Reader {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.exact() {
            Ok(Exact::Float(text)) => Reader::float(&text, visitor),
            Ok(Exact::Int(text)) => Reader::int(&text, visitor),
            Ok(Exact::Bytes(bytes)) => visitor.visit_byte_buf(bytes),
            Ok(Exact::Map(items)) => map(pairs(items)?, visitor),
            Ok(Exact::Some(value)) => visitor.visit_some(Reader(value)),
            Err(json) => visit(json, visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.exact() {
            Ok(Exact::Float(text)) => match bits(&text) {
                Some(bits) => {
                    let bits =
                        u32::try_from(bits).map_err(|_| wrong(&text, "the bits of an f32"))?;
                    visitor.visit_f32(f32::from_bits(bits))
                }
                None => visitor.visit_f32(text.parse().map_err(|_| wrong(&text, "a float"))?),
            },
            // The shortest decimals of an `f32` are also the shortest decimals of the nearest `f64`.
            Err(Value::Number(number)) => {
                let text = number.to_string();
                visitor.visit_f32(text.parse().map_err(|_| wrong(&text, "a float"))?)
            }
            Err(json) => visit(json, visitor),
            Ok(_) => Err(ReadError("expected a float".to_owned())),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.exact() {
            Ok(Exact::Float(text)) => Reader::float(&text, visitor),
            Err(json) => visit(json, visitor),
            Ok(_) => Err(ReadError("expected a float".to_owned())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.0.is_null() {
            return visitor.visit_none();
        }
        match self.0 {
            Value::Object(object) if object.len() == 1 && object.contains_key("$some") => {
                let inner = object.into_iter().next().map(|(_, value)| value).unwrap_or_default();
                visitor.visit_some(Reader(inner))
            }
            other => visitor.visit_some(Reader(other)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        // The field of a struct may have the name of a form.
        visit(self.0, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, value: None }),
            Value::Object(object) if object.len() == 1 => match object.into_iter().next() {
                Some((name, value)) => visitor.visit_enum(Variant { name, value: Some(value) }),
                None => Err(ReadError("expected a variant".to_owned())),
            },
            _ => Err(ReadError("expected the name of a variant, or an object with it".to_owned())),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visit(self.0, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit seq tuple
        tuple_struct map identifier ignored_any
    }
}

impl Reader {
    fn float<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, ReadError> {
        match bits(text) {
            Some(bits) => visitor.visit_f64(f64::from_bits(bits)),
            None => visitor.visit_f64(text.parse().map_err(|_| wrong(text, "a float"))?),
        }
    }

    fn int<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, ReadError> {
        match text.parse::<i128>() {
            Ok(number) => visitor.visit_i128(number),
            Err(_) => visitor.visit_u128(text.parse().map_err(|_| wrong(text, "an integer"))?),
        }
    }
}

/// A variant of an enum, with its value.
struct Variant {
    name: String,
    value: Option<Value>,
}

impl<'de> de::EnumAccess<'de> for Variant {
    type Error = ReadError;
    type Variant = Content;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content), ReadError> {
        let name = seed.deserialize(Reader(Value::String(self.name)))?;
        Ok((name, Content(self.value)))
    }
}

/// The value of a variant.
struct Content(Option<Value>);

impl Content {
    fn value(self) -> Result<Value, ReadError> {
        self.0.ok_or_else(|| ReadError("the variant has no value".to_owned()))
    }
}

impl<'de> de::VariantAccess<'de> for Content {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.0 {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(ReadError("the variant takes no value".to_owned())),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(Reader(self.value()?))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        visit(self.value()?, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visit(self.value()?, visitor)
    }
}
