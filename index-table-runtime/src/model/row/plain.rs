//! The keys of the values in rows.

use super::RowValue;
use crate::model::key::{KeyShape, PlainKey};

impl RowValue {
    /// Returns the key of a value whose type has this shape. Types with another form in rows than in keys have no key here: enums, and
    /// of the named shapes all except `instant`, `duration` and `uuid`.
    #[must_use]
    pub fn key(&self, shape: &KeyShape) -> Option<PlainKey> {
        Some(match (shape, self) {
            (KeyShape::Desc(inner) | KeyShape::Hash(inner), value) => value.key(inner)?,
            (KeyShape::Named("instant", _), value) => {
                let [seconds, nanos] = value.parts(["secs_since_epoch", "nanos_since_epoch"])?;
                PlainKey::Tuple(vec![PlainKey::Signed(seconds), unsigned(nanos)?])
            }
            (KeyShape::Named("duration", _), value) => {
                let [seconds, nanos] = value.parts(["secs", "nanos"])?;
                PlainKey::Tuple(vec![unsigned(seconds)?, unsigned(nanos)?])
            }
            (KeyShape::Named("uuid", _), Self::Bytes(bytes)) if bytes.len() == 16 => {
                PlainKey::Bytes(bytes.clone())
            }
            (KeyShape::Option(_), Self::Null) => PlainKey::Option(None),
            (KeyShape::Option(inner), Self::Some(value)) => {
                PlainKey::Option(Some(Box::new(value.key(inner)?)))
            }
            (KeyShape::Option(inner), value) => PlainKey::Option(Some(Box::new(value.key(inner)?))),
            (KeyShape::Unsigned(_), Self::Integer(value)) => unsigned(*value)?,
            (KeyShape::Unsigned(_), Self::Large(value)) => PlainKey::Unsigned(*value),
            (KeyShape::Signed(_), Self::Integer(value)) => PlainKey::Signed(*value),
            (KeyShape::Bool, Self::Bool(value)) => PlainKey::Bool(*value),
            #[expect(clippy::cast_possible_truncation, reason = "it was an f32")]
            (KeyShape::F32, Self::Float(bits)) => PlainKey::F32(f64::from_bits(*bits) as f32),
            (KeyShape::F64, Self::Float(bits)) => PlainKey::F64(f64::from_bits(*bits)),
            (KeyShape::Text, Self::Text(text)) => PlainKey::Text(text.clone()),
            (KeyShape::Char, Self::Text(text)) => PlainKey::Char(text.parse().ok()?),
            (KeyShape::Bytes | KeyShape::Array(_), Self::Bytes(bytes)) => {
                PlainKey::Bytes(bytes.clone())
            }
            (KeyShape::Bytes | KeyShape::Array(_), Self::Elements(elements)) => {
                let byte = |element: &Self| match element {
                    Self::Integer(byte) => u8::try_from(*byte).ok(),
                    _ => None,
                };
                PlainKey::Bytes(elements.iter().map(byte).collect::<Option<_>>()?)
            }
            (KeyShape::Tuple(shapes), Self::Elements(values)) if shapes.len() == values.len() => {
                let values = shapes.iter().zip(values).map(|(shape, value)| value.key(shape));
                PlainKey::Tuple(values.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// Returns the integers of a struct with these two fields.
    fn parts(&self, names: [&str; 2]) -> Option<[i128; 2]> {
        let Self::Pairs(pairs) = self else { return None };
        let part = |name: &str| {
            pairs.iter().find_map(|pair| match pair {
                (Self::Text(own), Self::Integer(value)) if own == name => Some(*value),
                _ => None,
            })
        };
        let [first, second] = names;
        Some([part(first)?, part(second)?]).filter(|_| pairs.len() == 2)
    }
}

fn unsigned(value: i128) -> Option<PlainKey> {
    u128::try_from(value).ok().map(PlainKey::Unsigned)
}
