//! Values as JSON text.

use std::fmt::{self, Display, Write as _};

use serde::ser::{self, Serialize};

/// The reason why a value can't be written: its `Serialize` failed.
#[derive(Debug)]
pub(crate) struct WriteError(String);

impl Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WriteError {}

impl ser::Error for WriteError {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Outcome = Result<String, WriteError>;

/// Returns a value as JSON in one line.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Outcome {
    value.serialize(Writer)
}

/// Returns the JSON text of each value.
struct Writer;

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn exact(form: &str, text: &str) -> String {
    format!("{{\"${form}\":{text}}}")
}

fn variant(name: &str, value: &str) -> String {
    format!("{{{}:{value}}}", quoted(name))
}

impl ser::Serializer for Writer {
    type Ok = String;
    type Error = WriteError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Map;
    type SerializeStruct = Struct;
    type SerializeStructVariant = Struct;

    fn serialize_bool(self, value: bool) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_i8(self, value: i8) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_i16(self, value: i16) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_i32(self, value: i32) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_i64(self, value: i64) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_i128(self, value: i128) -> Outcome {
        let fits = i64::try_from(value).is_ok() || u64::try_from(value).is_ok();
        Ok(if fits { value.to_string() } else { exact("int", &format!("\"{value}\"")) })
    }

    fn serialize_u8(self, value: u8) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_u16(self, value: u16) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_u32(self, value: u32) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_u64(self, value: u64) -> Outcome {
        Ok(value.to_string())
    }

    fn serialize_u128(self, value: u128) -> Outcome {
        let fits = u64::try_from(value).is_ok();
        Ok(if fits { value.to_string() } else { exact("int", &format!("\"{value}\"")) })
    }

    fn serialize_f32(self, value: f32) -> Outcome {
        Ok(match value {
            _ if value.is_nan() => exact("float", &format!("\"0x{:08x}\"", value.to_bits())),
            _ if value.is_infinite() => exact("float", &format!("\"{value}\"")),
            _ => format!("{value:?}"),
        })
    }

    fn serialize_f64(self, value: f64) -> Outcome {
        Ok(match value {
            _ if value.is_nan() => exact("float", &format!("\"0x{:016x}\"", value.to_bits())),
            _ if value.is_infinite() => exact("float", &format!("\"{value}\"")),
            _ => format!("{value:?}"),
        })
    }

    fn serialize_char(self, value: char) -> Outcome {
        Ok(quoted(&value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Outcome {
        Ok(quoted(value))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Outcome {
        let mut hex = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a `String` can't fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Ok(exact("bytes", &format!("\"{hex}\"")))
    }

    fn serialize_none(self) -> Outcome {
        Ok("null".to_owned())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        let json = to_json(value)?;
        let is_ambiguous = json == "null" || json.starts_with("{\"$some\":");
        Ok(if is_ambiguous { exact("some", &json) } else { json })
    }

    fn serialize_unit(self) -> Outcome {
        Ok("null".to_owned())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        Ok("null".to_owned())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Outcome {
        Ok(quoted(name))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Outcome {
        to_json(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Outcome {
        Ok(variant(name, &to_json(value)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, WriteError> {
        Ok(List::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<List, WriteError> {
        Ok(List::default())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, WriteError> {
        Ok(List::default())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<List, WriteError> {
        Ok(List { items: Vec::new(), variant: Some(name) })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Map, WriteError> {
        Ok(Map::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Struct, WriteError> {
        Ok(Struct::default())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Struct, WriteError> {
        Ok(Struct { fields: Vec::new(), variant: Some(name) })
    }
}

/// A list of values.
#[derive(Default)]
struct List {
    items: Vec<String>,
    variant: Option<&'static str>,
}

impl List {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.items.push(to_json(value)?);
        Ok(())
    }

    fn finish(self) -> String {
        let list = format!("[{}]", self.items.join(","));
        self.variant.map_or(list.clone(), |name| variant(name, &list))
    }
}

macro_rules! list {
    ($($compound:ident $method:ident)*) => {$(
        impl ser::$compound for List {
            type Ok = String;
            type Error = WriteError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
                self.add(value)
            }

            fn end(self) -> Outcome {
                Ok(self.finish())
            }
        }
    )*};
}

list! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

/// The fields of a struct.
#[derive(Default)]
struct Struct {
    fields: Vec<String>,
    variant: Option<&'static str>,
}

macro_rules! fields {
    ($($compound:ident)*) => {$(
        impl ser::$compound for Struct {
            type Ok = String;
            type Error = WriteError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), WriteError> {
                self.fields.push(format!("{}:{}", quoted(name), to_json(value)?));
                Ok(())
            }

            fn end(self) -> Outcome {
                let fields = format!("{{{}}}", self.fields.join(","));
                Ok(self.variant.map_or(fields.clone(), |name| variant(name, &fields)))
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

/// The keys and values of a map, as JSON.
#[derive(Default)]
struct Map {
    pairs: Vec<(String, String)>,
}

impl ser::SerializeMap for Map {
    type Ok = String;
    type Error = WriteError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WriteError> {
        self.pairs.push((to_json(key)?, String::new()));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        if let Some((_, own)) = self.pairs.last_mut() {
            *own = to_json(value)?;
        }
        Ok(())
    }

    fn end(self) -> Outcome {
        let is_plain =
            |(key, _): &(String, String)| key.starts_with('"') && !key.starts_with("\"$");
        if self.pairs.iter().all(is_plain) {
            let pairs: Vec<_> =
                self.pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            return Ok(format!("{{{}}}", pairs.join(",")));
        }
        let pairs = self.pairs.iter().map(|(key, value)| format!("[{key},{value}]"));
        Ok(exact("map", &format!("[{}]", pairs.collect::<Vec<_>>().join(","))))
    }
}
