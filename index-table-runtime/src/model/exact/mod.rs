//! Rows as JSON, with an exact form for values that JSON lacks.
//!
//! | value | form |
//! |---|---|
//! | an infinity, a NaN | `{"$float": "inf"}`, `{"$float": "-inf"}`, `{"$float": "0x7ff8000000000000"}`: its bits |
//! | an integer of more than 64 bits | `{"$int": "18446744073709551616"}` |
//! | bytes | `{"$bytes": "00ff"}` |
//! | a map whose keys are not all text, or begin with `$` | `{"$map": [[key, value], …]}` |
//! | `Some` of a value that is written as `null` or `$some` | `{"$some": null}` |
//!
//! Everything else has the form that serde gives it in JSON. The forms are read where the type of the row has such a
//! value.

mod calendar;
mod guided;
mod id;
mod key;
mod read;
mod write;

pub use calendar::instant;
pub(crate) use guided::{Guided, Refused};
pub use key::{key_of, value_of};
pub use read::{ReadError, from_known_fields, from_value};
pub use write::{WriteError, append, to_string};

/// Reads hex digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashMap, HashSet},
        fmt::Debug,
        net::IpAddr,
        time::Duration,
    };

    use serde::{Deserialize, Serialize, de::DeserializeOwned};

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Unit,
        One(Option<u8>),
        Two(i8, String),
        Named { width: f32, name: char },
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Marker;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Wrapped(u64);

    fn through<T: Serialize + DeserializeOwned>(value: &T) -> (String, T) {
        let json = to_string(value).expect("JSON");
        let read = serde_json::from_str(&json).expect("JSON that serde_json reads");
        (json, from_value(&read).expect("a value of the type"))
    }

    #[track_caller]
    fn exact<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, form: &str) {
        let (json, read) = through(value);
        assert_eq!(json, form);
        assert_eq!(read, *value);
    }

    #[test]
    fn values_that_json_has_are_plain() {
        exact(&(1_u8, -2_i64, true, 'x', "a\"\u{1}".to_owned()), r#"[1,-2,true,"x","a\"\u0001"]"#);
        exact(&Some(Wrapped(7)), "7");
        exact(&vec![Some(1), None], "[1,null]");
        exact(&[Shape::Unit, Shape::One(None)].to_vec(), r#"["Unit",{"One":null}]"#);
        exact(&Shape::Two(-1, "é".into()), r#"{"Two":[-1,"é"]}"#);
        exact(
            &Shape::Named { width: 1.1, name: '\0' },
            r#"{"Named":{"width":1.1,"name":"\u0000"}}"#,
        );
        exact(&(Marker, ()), "[null,null]");
        exact(&BTreeMap::from([("b".to_owned(), 1), ("a".to_owned(), 2)]), r#"{"a":2,"b":1}"#);
        exact(&IpAddr::from([127, 0, 0, 1]), r#""127.0.0.1""#);
        exact(&Duration::from_millis(1500), r#"{"secs":1,"nanos":500000000}"#);
    }

    #[test]
    fn integers_of_any_size_are_exact() {
        exact(&u64::MAX, "18446744073709551615");
        exact(&i64::MIN, "-9223372036854775808");
        exact(&u128::MAX, r#"{"$int":"340282366920938463463374607431768211455"}"#);
        exact(&i128::MIN, r#"{"$int":"-170141183460469231731687303715884105728"}"#);
        exact(&7_u128, "7");
        exact(&-7_i128, "-7");
    }

    #[test]
    fn floats_of_any_bits_are_exact() {
        for bits in [
            0,
            1,
            1 << 63,
            0x7ff0_0000_0000_0000,
            0x7ff8_0000_0000_0000,
            0xfff0_0000_0000_0001,
            f64::MAX.to_bits(),
            0.1_f64.to_bits(),
            5e-324_f64.to_bits(),
            u64::MAX,
        ] {
            let (json, read) = through(&f64::from_bits(bits));
            assert_eq!(read.to_bits(), bits, "{json}");
        }
        let mut bits = 1_u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (json, read) = through(&f32::from_bits(bits));
            assert_eq!(read.to_bits(), bits, "{json}");
        }
        exact(&f64::INFINITY, r#"{"$float":"inf"}"#);
        assert_eq!(to_string(&f32::NAN).expect("JSON"), r#"{"$float":"0x7fc00000"}"#);
    }

    #[test]
    fn maps_with_other_keys_and_nested_options_are_exact() {
        exact(
            &BTreeMap::from([((1, 'a'), None), ((2, 'b'), Some(1))]),
            r#"{"$map":[[[1,"a"],null],[[2,"b"],1]]}"#,
        );
        exact(&HashMap::from([("$some".to_owned(), 1)]), r#"{"$map":[["$some",1]]}"#);
        exact(&vec![None, Some(None), Some(Some(1))], r#"[null,{"$some":null},1]"#);
        exact(&Some(Some(None::<u8>)), r#"{"$some":{"$some":null}}"#);
        exact(&Some(()), r#"{"$some":null}"#);
        exact(&BTreeMap::from([(Some(1), 2)]), r#"{"$map":[[1,2]]}"#);
    }

    #[test]
    fn forms_of_binary_formats_are_read_too() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let json = serde_json::json!({ "V4": [127, 0, 0, 1] });
        assert_eq!(from_value::<IpAddr>(&json).expect("an address"), address);
    }

    #[test]
    fn bytes_are_hex() {
        #[derive(Debug, PartialEq)]
        struct Raw(Vec<u8>);
        impl Serialize for Raw {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_bytes(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for Raw {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = Raw;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("bytes")
                    }
                    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Raw, E> {
                        Ok(Raw(bytes.to_vec()))
                    }
                }
                from.deserialize_bytes(Visitor)
            }
        }
        exact(&Raw(vec![0, 255]), r#"{"$bytes":"00ff"}"#);
    }

    #[test]
    fn wrong_types_and_missing_fields_are_errors() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Row {
            id: u8,
        }
        let row = |json: &str| from_value::<Row>(&serde_json::from_str(json).expect("JSON"));
        assert!(row(r#"{"id": 256}"#).is_err());
        assert!(row(r#"{"id": "1"}"#).is_err());
        assert!(row("{}").expect_err("refused").to_string().contains("id"));
        assert!(row(r#"{"id": {"$int": "x"}}"#).is_err());
        assert!(row(r#"{"id": 1, "other": 2}"#).is_ok());
        let json = serde_json::json!({ "id": 1, "other": 2 });
        let error = from_known_fields::<Row>(&json).expect_err("refused").to_string();
        assert_eq!(error, "unknown field `other`");
    }

    #[test]
    fn fields_that_are_only_written_are_known() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Sum {
            one: u8,
            #[serde(skip_deserializing)]
            total: u8,
        }
        #[derive(Debug, Serialize, Deserialize)]
        struct Row {
            sums: Vec<Sum>,
        }
        let row = |json: &str| from_known_fields::<Row>(&serde_json::from_str(json).expect("JSON"));
        assert_eq!(row(r#"{"sums":[{"one":1,"total":2}]}"#).expect("a row").sums[0].total, 0);
        for wrong in [r#"{"sums":[{"one":1}],"total":2}"#, r#"{"sums":[{"one":1,"totl":2}]}"#] {
            assert!(row(wrong).expect_err("refused").to_string().contains("unknown field `tot"));
        }
    }

    #[test]
    fn unknown_fields_are_found_beside_those_that_serde_reads_before_their_types() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Address {
            street: String,
            #[serde(default, alias = "mail", skip_serializing_if = "String::is_empty")]
            email: String,
            #[serde(default, skip_serializing)]
            secret: bool,
        }
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        enum Kind {
            None,
            Some { size: Option<u8> },
        }
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(untagged)]
        enum Note {
            Text(String),
            Parts {
                title: String,
                #[serde(default)]
                body: String,
            },
        }
        #[derive(Debug, Serialize, Deserialize)]
        struct Row {
            #[serde(flatten)]
            address: Address,
            #[serde(flatten)]
            further: Option<Sizes>,
            kind: Kind,
            note: Note,
            // It is written in another order each time.
            #[serde(default)]
            tags: HashSet<String>,
        }
        #[derive(Debug, Serialize, Deserialize)]
        struct Sizes {
            width: u8,
        }
        let row = |json: &str| from_known_fields::<Row>(&serde_json::from_str(json).expect("JSON"));
        for right in [
            r#"{"street":"A","kind":{"kind":"None"},"note":"text"}"#,
            r#"{"street":"A","email":"","secret":true,"kind":{"kind":"Some","size":null},"note":"text"}"#,
            r#"{"street":"A","mail":"b","width":1,"kind":{"kind":"None"},"note":{"title":"b"}}"#,
            r#"{"street":"A","kind":{"kind":"None"},"note":"text","tags":["a","b","c","d","e","f"]}"#,
        ] {
            assert_eq!(row(right).expect("a row").address.secret, right.contains("secret"));
        }
        for wrong in [
            r#"{"street":"A","WRONG":"b","kind":{"kind":"None"},"note":"text"}"#,
            r#"{"street":"A","kind":{"kind":"Some","size":1,"WRONG":2},"note":"text"}"#,
            r#"{"street":"A","kind":{"kind":"None"},"note":{"title":"b","WRONG":"c"}}"#,
            r#"{"street":"A","WRONG":1,"kind":{"kind":"None"},"note":"b","tags":["a","b","c","d","e","f"]}"#,
        ] {
            let error = row(wrong).expect_err("refused").to_string();
            assert_eq!(error, "unknown field `WRONG`", "{wrong}");
        }
    }
}
