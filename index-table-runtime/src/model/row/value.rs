//! The value of a row without its type, to compare rows of two stores.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, EnumAccess, MapAccess, SeqAccess, VariantAccess as _, Visitor},
    ser::{SerializeMap as _, SerializeSeq as _},
};

use super::header;
use crate::model::{key::DecodeError, lists::Lists};

/// A value, as the list of its row describes it. Integers of different sizes with the same value are equal, and so are a character
/// and a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowValue {
    /// `None`, or a unit.
    Null,
    /// A `bool`.
    Bool(bool),
    /// An integer, except a large one.
    Integer(i128),
    /// An integer that is larger than each `i128`.
    Large(u128),
    /// The bits of an `f64`. An `f32` is converted to it, without loss.
    Float(u64),
    /// A text or a `char`.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A `Some` of a value that looks like `None`.
    Some(Box<Self>),
    /// The elements of a sequence, a set, an array or a tuple.
    Elements(Vec<Self>),
    /// The pairs of a map; the fields of a struct; the variant of an enum with its value.
    Pairs(Vec<(Self, Self)>),
}

/// Returns the version of a row, and the values of its fields by name, in the order of the names. A row that is not a struct has one
/// field without a name.
pub(crate) fn values(
    lists: &Lists,
    bytes: &[u8],
) -> Result<(u32, Vec<(String, RowValue)>), DecodeError> {
    let (version, body) = header(bytes)?;
    let mut fields = match lists.decode::<RowValue>(body)? {
        RowValue::Pairs(pairs) => {
            let field = |(name, value)| match name {
                RowValue::Text(name) => (name, value),
                other => (format!("{other:?}"), value),
            };
            pairs.into_iter().map(field).collect()
        }
        value => vec![(String::new(), value)],
    };
    fields.sort_unstable();
    Ok((version, fields))
}

impl<'de> Deserialize<'de> for RowValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = RowValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<RowValue, E> {
        Ok(RowValue::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<RowValue, E> {
        Ok(RowValue::Integer(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<RowValue, E> {
        Ok(RowValue::Integer(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<RowValue, E> {
        Ok(RowValue::Integer(value.into()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<RowValue, E> {
        Ok(i128::try_from(value).map_or(RowValue::Large(value), RowValue::Integer))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<RowValue, E> {
        Ok(RowValue::Float(value.to_bits()))
    }

    fn visit_char<E: de::Error>(self, value: char) -> Result<RowValue, E> {
        Ok(RowValue::Text(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<RowValue, E> {
        Ok(RowValue::Text(value.to_owned()))
    }

    fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<RowValue, E> {
        Ok(RowValue::Bytes(value.to_vec()))
    }

    fn visit_none<E: de::Error>(self) -> Result<RowValue, E> {
        Ok(RowValue::Null)
    }

    fn visit_unit<E: de::Error>(self) -> Result<RowValue, E> {
        Ok(RowValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<RowValue, D::Error> {
        Ok(match RowValue::deserialize(inner)? {
            inner @ (RowValue::Null | RowValue::Some(_)) => RowValue::Some(Box::new(inner)),
            inner => inner,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<RowValue, D::Error> {
        RowValue::deserialize(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<RowValue, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        Ok(RowValue::Elements(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<RowValue, A::Error> {
        let mut all = Vec::new();
        while let Some(pair) = pairs.next_entry()? {
            all.push(pair);
        }
        // Maps without an order, and structs whose fields have changed places.
        all.sort_unstable();
        Ok(RowValue::Pairs(all))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<RowValue, A::Error> {
        let (name, value) = variant.variant()?;
        Ok(RowValue::Pairs(vec![(name, value.newtype_variant()?)]))
    }
}

impl Serialize for RowValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_u64(value),
                (_, Ok(value)) => serializer.serialize_i64(value),
                _ => serializer.serialize_i128(*value),
            },
            Self::Large(value) => serializer.serialize_u128(*value),
            Self::Float(bits) => serializer.serialize_f64(f64::from_bits(*bits)),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::Some(value) => serializer.serialize_some(&**value),
            Self::Elements(elements) => {
                let mut all = serializer.serialize_seq(Some(elements.len()))?;
                elements.iter().try_for_each(|element| all.serialize_element(element))?;
                all.end()
            }
            Self::Pairs(pairs) => {
                let mut all = serializer.serialize_map(Some(pairs.len()))?;
                pairs.iter().try_for_each(|(key, value)| all.serialize_entry(key, value))?;
                all.end()
            }
        }
    }
}
