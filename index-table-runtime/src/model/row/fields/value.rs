//! A value of any type, to be compared with another one.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};

/// A value of any type. Floating-point numbers are equal if their bits are.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Bool(bool),
    Unsigned(u128),
    Signed(i128),
    Float(u64),
    Char(char),
    Text(String),
    Bytes(Vec<u8>),
    Unit,
    Some(Box<Self>),
    Seq(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

macro_rules! visit {
    ($($method:ident($type:ty) => $value:expr;)+) => {$(
        fn $method<E>(self, value: $type) -> Result<Value, E> {
            Ok(($value)(value))
        }
    )+};
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    visit! {
        visit_bool(bool) => Value::Bool;
        visit_u64(u64) => |value: u64| Value::Unsigned(value.into());
        visit_u128(u128) => Value::Unsigned;
        visit_f32(f32) => |value: f32| Value::Float(f64::from(value).to_bits());
        visit_f64(f64) => |value: f64| Value::Float(value.to_bits());
        visit_char(char) => Value::Char;
        visit_str(&str) => |value: &str| Value::Text(value.to_owned());
        visit_bytes(&[u8]) => |value: &[u8]| Value::Bytes(value.to_vec());
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.visit_i128(value.into())
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(u128::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Unit)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Unit)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        Ok(Value::Some(Box::new(Value::deserialize(from)?)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        Value::deserialize(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = from.next_element()? {
            elements.push(element);
        }
        // A set may have been written in any order.
        elements.sort_unstable();
        Ok(Value::Seq(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = from.next_entry()? {
            pairs.push(pair);
        }
        pairs.sort_unstable();
        Ok(Value::Map(pairs))
    }
}
