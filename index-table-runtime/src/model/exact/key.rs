//! The values of keys as JSON.
//!
//! | shape | JSON |
//! |---|---|
//! | integers, floats, `bool` | as in a row, with the exact forms `$int` and `$float` |
//! | text, `char`, IP addresses, variants | text |
//! | bytes, hashes | `{"$bytes": "00ff"}`; an array of numbers is read, too |
//! | `Option` | `null`, or the value; `{"$some": …}` if the value is `null` or has this form |
//! | tuples | an array |
//! | dates, times, durations, UUIDs, ULIDs, decimals | the text that reports show: `2024-02-29`, `1.5s` |

use std::{fmt::Write as _, net::IpAddr};

use serde_json::{Value, json};

use super::{
    bytes_of, calendar,
    id::{decimal, ulid, uuid},
    read::{f32_of, f64_of},
    to_string,
};
use crate::model::key::{KeyShape, PlainKey};

/// Returns the value of a key's field as JSON.
#[must_use]
pub fn value_of(shape: &KeyShape, value: &PlainKey) -> Value {
    match (shape, value) {
        (KeyShape::Desc(inner), value) => value_of(inner, value),
        (KeyShape::Named(name, inner), value) => {
            value.show_as(name).map_or_else(|| value_of(inner, value), Value::from)
        }
        (KeyShape::Option(inner), PlainKey::Option(Some(value))) => {
            let value = value_of(inner, value);
            let is_ambiguous = value.is_null() || value.get("$some").is_some();
            if is_ambiguous { json!({ "$some": value }) } else { value }
        }
        (KeyShape::Tuple(shapes), PlainKey::Tuple(values)) => {
            shapes.iter().zip(values).map(|(shape, value)| value_of(shape, value)).collect()
        }
        (_, PlainKey::Option(_)) => Value::Null,
        (_, PlainKey::Bool(value)) => (*value).into(),
        (_, PlainKey::Unsigned(value)) => {
            u64::try_from(*value).map_or_else(|_| json!({ "$int": value.to_string() }), Value::from)
        }
        (_, PlainKey::Signed(value)) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            _ => json!({ "$int": value.to_string() }),
        },
        (_, PlainKey::F32(value)) => parsed(value),
        (_, PlainKey::F64(value)) => parsed(value),
        (_, PlainKey::Text(text)) => text.as_str().into(),
        (_, PlainKey::Char(value)) => value.to_string().into(),
        (_, PlainKey::Bytes(bytes)) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                // Writing to a `String` can't fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            json!({ "$bytes": hex })
        }
        (_, PlainKey::IpAddr(address)) => address.to_string().into(),
        (_, PlainKey::Variant(name)) => (*name).into(),
        (_, PlainKey::Tuple(values)) => values.iter().map(|value| format!("{value:?}")).collect(),
    }
}

/// Returns the exact form of a number.
fn parsed(value: &impl serde::Serialize) -> Value {
    let json = to_string(value).unwrap_or_default();
    serde_json::from_str(&json).unwrap_or_default()
}

/// Returns the value of a key's field from JSON. The name of a variant may have another case, as `rename_all` of serde gives it, if
/// no other variant then has the same name.
///
/// # Errors
///
/// The reason: JSON that is not a value of this shape.
pub fn key_of(shape: &KeyShape, json: &Value) -> Result<PlainKey, String> {
    let wrong = |form: &str| format!("{json} is not {form}");
    let form = |name: &str| json.as_object().filter(|it| it.len() == 1).and_then(|it| it.get(name));
    let exact = |name: &str| form(name).and_then(Value::as_str);
    let text = || json.as_str();
    Ok(match shape {
        KeyShape::Desc(inner) | KeyShape::Hash(inner) => key_of(inner, json)?,
        KeyShape::Option(_) if json.is_null() => PlainKey::Option(None),
        KeyShape::Option(inner) => {
            PlainKey::Option(Some(Box::new(key_of(inner, form("$some").unwrap_or(json))?)))
        }
        KeyShape::Unsigned(bytes) => {
            let bits = u32::from(*bytes) * 8;
            let wide = || exact("$int").and_then(|text| text.parse().ok());
            let number = json.as_u64().map(u128::from).or_else(wide);
            let number = number.filter(|number| *bytes == 16 || number >> bits == 0);
            let wrong = || wrong(&format!("an unsigned integer of {bits} bits"));
            PlainKey::Unsigned(number.ok_or_else(wrong)?)
        }
        KeyShape::Signed(bytes) => {
            let bits = u32::from(*bytes) * 8;
            let wide = || exact("$int").and_then(|text| text.parse().ok());
            let small = || json.as_u64().map(i128::from);
            let number = json.as_i64().map(i128::from).or_else(small).or_else(wide);
            let number = number.filter(|number| matches!(number >> (bits - 1), 0 | -1));
            let wrong = || wrong(&format!("an integer of {bits} bits"));
            PlainKey::Signed(number.ok_or_else(wrong)?)
        }
        KeyShape::Bool => PlainKey::Bool(json.as_bool().ok_or_else(|| wrong("true or false"))?),
        KeyShape::Char => PlainKey::Char(
            text().and_then(|it| it.parse().ok()).ok_or_else(|| wrong("one character"))?,
        ),
        KeyShape::F32 => {
            let number = json.is_number().then(|| json.to_string());
            let number = number.as_deref().or_else(|| exact("$float")).and_then(f32_of);
            PlainKey::F32(number.ok_or_else(|| wrong("a number"))?)
        }
        KeyShape::F64 => {
            let number = json.as_f64().or_else(|| exact("$float").and_then(f64_of));
            PlainKey::F64(number.ok_or_else(|| wrong("a number"))?)
        }
        KeyShape::Text => PlainKey::Text(text().ok_or_else(|| wrong("text"))?.to_owned()),
        KeyShape::Bytes | KeyShape::Array(_) => {
            let wrong = || wrong("bytes such as {\"$bytes\":\"00ff\"}");
            let listed = || json.as_array()?.iter().map(byte).collect();
            let bytes: Vec<u8> =
                exact("$bytes").and_then(bytes_of).or_else(listed).ok_or_else(wrong)?;
            match shape {
                KeyShape::Array(len) if *len != bytes.len() => {
                    return Err(format!("{json} does not have {len} bytes"));
                }
                _ => PlainKey::Bytes(bytes),
            }
        }
        KeyShape::IpAddr => {
            let address = text().and_then(|text| text.parse().ok());
            PlainKey::IpAddr(address.ok_or_else(|| wrong("an IP address"))?)
        }
        KeyShape::Enum(variants) => {
            PlainKey::Variant(variant(variants, json).ok_or_else(|| {
                let names: Vec<_> =
                    variants.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                wrong(&format!("one of {}", names.join(", ")))
            })?)
        }
        KeyShape::Tuple(shapes) => {
            let values = json.as_array().filter(|values| values.len() == shapes.len());
            let values =
                values.ok_or_else(|| wrong(&format!("an array of {} values", shapes.len())))?;
            let values = shapes.iter().zip(values).map(|(shape, value)| key_of(shape, value));
            PlainKey::Tuple(values.collect::<Result<_, _>>()?)
        }
        KeyShape::Named(name, inner) => match text().map(|text| PlainKey::named(name, text)) {
            Some(Ok(value)) => value,
            Some(Err(form)) => return Err(wrong(form)),
            // Beyond the calendar, the value has the form of its numbers.
            None => key_of(inner, json)?,
        },
    })
}

fn byte(json: &Value) -> Option<u8> {
    json.as_u64()?.try_into().ok()
}

fn variant(variants: &[(&'static str, u16)], json: &Value) -> Option<&'static str> {
    let text = json.as_str()?;
    if let Some((name, _)) = variants.iter().find(|(name, _)| *name == text) {
        return Some(name);
    }
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let mut same = variants.iter().filter(|(name, _)| plain(name) == plain(text));
    let (name, _) = same.next()?;
    same.next().is_none().then_some(*name)
}

impl PlainKey {
    /// Reads the text that [`show_as`](PlainKey::show_as) returns, and other usual forms of the type with this name.
    ///
    /// # Errors
    ///
    /// The expected form.
    pub fn named(name: &str, text: &str) -> Result<Self, &'static str> {
        let pair = |(seconds, nanos): (Self, u32)| {
            Self::Tuple(vec![seconds, Self::Unsigned(nanos.into())])
        };
        let address = |text: &str| text.parse::<IpAddr>().ok();
        match name {
            "date" => {
                let days = calendar::date(text).ok_or("a date such as `2024-02-29`")?;
                Ok(Self::Signed(days.into()))
            }
            "datetime" => {
                let (days, seconds, nanos) =
                    calendar::date_time(text.strip_suffix('Z').unwrap_or(text))
                        .ok_or("a time such as `2024-02-29T12:30:00`")?;
                let of_day = [seconds, nanos].map(|part| Self::Unsigned(part.into()));
                Ok(Self::Tuple([Self::Signed(days.into())].into_iter().chain(of_day).collect()))
            }
            "instant" => {
                let (seconds, nanos) = calendar::instant(text)
                    .ok_or("a time in UTC such as `2024-02-29T12:30:00Z`")?;
                Ok(pair((Self::Signed(seconds.into()), nanos)))
            }
            "duration" => {
                let (seconds, nanos) =
                    calendar::duration(text).ok_or("a duration such as `1.5s`")?;
                Ok(pair((Self::Unsigned(seconds.into()), nanos)))
            }
            "ipv4" => match address(text) {
                Some(IpAddr::V4(address)) => Ok(Self::Bytes(address.octets().to_vec())),
                _ => Err("an ipv4 address"),
            },
            "ipv6" => match address(text) {
                Some(IpAddr::V6(address)) => Ok(Self::Bytes(address.octets().to_vec())),
                _ => Err("an ipv6 address"),
            },
            "uuid" => uuid(text).map(Self::Bytes).ok_or("a UUID"),
            "ulid" => ulid(text).map(Self::Bytes).ok_or("a ULID"),
            "decimal" => decimal(text).map(Self::Bytes).ok_or("a decimal number"),
            _ => Err("of a type that this release can read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::key::{Key, KeyBuf};

    fn through<T: Key>(value: &T, form: &str) {
        let mut key = KeyBuf::new();
        key.push(value);
        let plain = KeyShape::read_key([&T::SHAPE], key.as_bytes()).expect("a key");
        let json = value_of(&T::SHAPE, &plain[0]);
        assert_eq!(json.to_string(), form);
        assert_eq!(key_of(&T::SHAPE, &json).as_ref(), Ok(&plain[0]), "{form}");
    }

    #[test]
    fn each_key_is_read_as_it_is_written() {
        through(&u64::MAX, "18446744073709551615");
        through(&i8::MIN, "-128");
        through(&u128::MAX, r#"{"$int":"340282366920938463463374607431768211455"}"#);
        through(&i128::MIN, r#"{"$int":"-170141183460469231731687303715884105728"}"#);
        through(&0.1_f32, "0.1");
        through(&f64::NEG_INFINITY, r#"{"$float":"-inf"}"#);
        through(&'é', "\"é\"");
        through(&"a\0".to_owned(), r#""a\u0000""#);
        through(&vec![0_u8, 255], r#"{"$bytes":"00ff"}"#);
        through(&Some(Some(1_u8)), "1");
        through(&Some(None::<u8>), r#"{"$some":null}"#);
        through(&(true, "x".to_owned()), r#"[true,"x"]"#);
        through(&IpAddr::from([127, 0, 0, 1]), "\"127.0.0.1\"");
        through(&Duration::from_millis(1500), "\"1.5s\"");
        through(&std::time::SystemTime::UNIX_EPOCH, "\"1970-01-01T00:00:00Z\"");
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_the_expected_form() {
        for (shape, json, reason) in [
            (u8::SHAPE, json!(256), "256 is not an unsigned integer of 8 bits"),
            (i8::SHAPE, json!(-129), "-129 is not an integer of 8 bits"),
            (String::SHAPE, json!(1), "1 is not text"),
            (bool::SHAPE, json!(null), "null is not true or false"),
            (<[u8; 2]>::SHAPE, json!([1]), "[1] does not have 2 bytes"),
            (Duration::SHAPE, json!("x"), "\"x\" is not a duration such as `1.5s`"),
        ] {
            assert_eq!(key_of(&shape, &json), Err(reason.to_owned()));
        }
    }

    #[test]
    fn variants_have_their_name_or_another_case_of_it() {
        const SHAPE: KeyShape = KeyShape::Enum(&[("InWork", 0), ("Done", 1)]);
        for text in ["InWork", "in_work", "IN-WORK", "inWork"] {
            assert_eq!(key_of(&SHAPE, &json!(text)), Ok(PlainKey::Variant("InWork")));
        }
        let reason = "\"Open\" is not one of \"InWork\", \"Done\"".to_owned();
        assert_eq!(key_of(&SHAPE, &json!("Open")), Err(reason));
    }
}
