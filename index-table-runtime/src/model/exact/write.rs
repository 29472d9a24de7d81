//! Values as JSON text.

use std::fmt::{self, Display, Write as _};

use serde::ser::{self, Serialize};

/// The reason why a value can't be written: its `Serialize` failed.
#[derive(Debug)]
pub struct WriteError(String);

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

type Outcome = Result<(), WriteError>;

/// Returns a value in the exact form, in one line.
///
/// # Errors
///
/// [`WriteError`]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, WriteError> {
    let mut out = String::new();
    append(value, &mut out)?;
    Ok(out)
}

/// Appends a value in the exact form, in one line. After an error, `out` may have a part of it.
///
/// # Errors
///
/// [`WriteError`]
pub fn append<T: Serialize + ?Sized>(value: &T, out: &mut String) -> Outcome {
    value.serialize(Writer(out))
}

/// Appends the JSON text of a value.
struct Writer<'o>(&'o mut String);

#[expect(clippy::unnecessary_wraps, reason = "the methods of a serializer return their result")]
impl Writer<'_> {
    fn put(&mut self, value: impl Display) -> Outcome {
        // Writing to a `String` can't fail.
        let _ = write!(self.0, "{value}");
        Ok(())
    }

    fn quoted(&mut self, text: &str) -> Outcome {
        if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            return self.put(serde_json::Value::from(text));
        }
        self.0.push('"');
        self.0.push_str(text);
        self.0.push('"');
        Ok(())
    }

    fn exact(&mut self, form: &str, text: impl Display) -> Outcome {
        self.put(format_args!("{{\"${form}\":\"{text}\"}}"))
    }
}

macro_rules! displayed {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(mut self, value: $type) -> Outcome {
            self.put(value)
        }
    )*};
}

macro_rules! floats {
    ($($method:ident: $type:ty, $digits:literal),*) => {$(
        fn $method(mut self, value: $type) -> Outcome {
            match value {
                _ if value.is_nan() => {
                    self.exact("float", format_args!(concat!("0x{:0", $digits, "x}"), value.to_bits()))
                }
                _ if value.is_infinite() => self.exact("float", value),
                _ => self.put(format_args!("{value:?}")),
            }
        }
    )*};
}

impl<'o> ser::Serializer for Writer<'o> {
    type Ok = ();
    type Error = WriteError;
    type SerializeSeq = List<'o>;
    type SerializeTuple = List<'o>;
    type SerializeTupleStruct = List<'o>;
    type SerializeTupleVariant = List<'o>;
    type SerializeMap = Map<'o>;
    type SerializeStruct = Struct<'o>;
    type SerializeStructVariant = Struct<'o>;

    displayed! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    floats! { serialize_f32: f32, "8", serialize_f64: f64, "16" }

    fn serialize_i128(mut self, value: i128) -> Outcome {
        let fits = i64::try_from(value).is_ok() || u64::try_from(value).is_ok();
        if fits { self.put(value) } else { self.exact("int", value) }
    }

    fn serialize_u128(mut self, value: u128) -> Outcome {
        if u64::try_from(value).is_ok() { self.put(value) } else { self.exact("int", value) }
    }

    fn serialize_char(mut self, value: char) -> Outcome {
        self.quoted(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(mut self, value: &str) -> Outcome {
        self.quoted(value)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Outcome {
        self.0.push_str("{\"$bytes\":\"");
        for byte in bytes {
            // Writing to a `String` can't fail.
            let _ = write!(self.0, "{byte:02x}");
        }
        self.0.push_str("\"}");
        Ok(())
    }

    fn serialize_none(self) -> Outcome {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        let start = self.0.len();
        append(value, self.0)?;
        let is_ambiguous =
            self.0.get(start..).is_some_and(|it| it == "null" || it.starts_with("{\"$some\":"));
        if is_ambiguous {
            self.0.insert_str(start, "{\"$some\":");
            self.0.push('}');
        }
        Ok(())
    }

    fn serialize_unit(self) -> Outcome {
        self.0.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        self.serialize_unit()
    }

    fn serialize_unit_variant(mut self, _: &'static str, _: u32, name: &'static str) -> Outcome {
        self.quoted(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Outcome {
        append(value, self.0)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Outcome {
        let Parts { out, end, .. } = Parts::new(self, Some(name), "", "")?;
        append(value, out)?;
        out.push_str(end.1);
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'o>, WriteError> {
        Parts::new(self, None, "[", "]").map(List)
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'o>, WriteError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'o>, WriteError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<List<'o>, WriteError> {
        Parts::new(self, Some(name), "[", "]").map(List)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Map<'o>, WriteError> {
        Ok(Map { start: self.0.len(), out: self.0, pairs: Vec::new(), is_plain: true })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Struct<'o>, WriteError> {
        Parts::new(self, None, "{", "}").map(Struct)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Struct<'o>, WriteError> {
        Parts::new(self, Some(name), "{", "}").map(Struct)
    }
}

/// Parts between commas.
struct Parts<'o> {
    out: &'o mut String,
    is_first: bool,
    /// The end of the parts, and of the variant around them.
    end: (&'static str, &'static str),
}

impl<'o> Parts<'o> {
    fn new(
        mut to: Writer<'o>,
        variant: Option<&'static str>,
        start: &'static str,
        end: &'static str,
    ) -> Result<Self, WriteError> {
        if let Some(name) = variant {
            to.0.push('{');
            to.quoted(name)?;
            to.0.push(':');
        }
        to.0.push_str(start);
        let around = if variant.is_some() { "}" } else { "" };
        Ok(Self { out: to.0, is_first: true, end: (end, around) })
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
    }

    fn end(self) {
        self.out.push_str(self.end.0);
        self.out.push_str(self.end.1);
    }
}

/// A list of values.
struct List<'o>(Parts<'o>);

macro_rules! list {
    ($($compound:ident $method:ident)*) => {$(
        impl ser::$compound for List<'_> {
            type Ok = ();
            type Error = WriteError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
                self.0.separate();
                append(value, self.0.out)
            }

            fn end(self) -> Outcome {
                self.0.end();
                Ok(())
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
struct Struct<'o>(Parts<'o>);

macro_rules! fields {
    ($($compound:ident)*) => {$(
        impl ser::$compound for Struct<'_> {
            type Ok = ();
            type Error = WriteError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Outcome {
                self.0.separate();
                Writer(self.0.out).quoted(name)?;
                self.0.out.push(':');
                append(value, self.0.out)
            }

            fn end(self) -> Outcome {
                self.0.end();
                Ok(())
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

/// The keys and values of a map, one after another. Only at the end is it known whether all keys are plain.
struct Map<'o> {
    out: &'o mut String,
    start: usize,
    /// The starts of each key and of its value.
    pairs: Vec<(usize, usize)>,
    is_plain: bool,
}

impl ser::SerializeMap for Map<'_> {
    type Ok = ();
    type Error = WriteError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Outcome {
        let is_first = self.pairs.is_empty();
        self.out.push(if is_first { '{' } else { ',' });
        let start = self.out.len();
        append(key, self.out)?;
        let key = self.out.get(start..).unwrap_or_default();
        self.is_plain &= key.starts_with('"') && !key.starts_with("\"$");
        self.out.push(':');
        self.pairs.push((start, self.out.len()));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        append(value, self.out)
    }

    fn end(self) -> Outcome {
        if self.pairs.is_empty() {
            self.out.push('{');
        }
        self.out.push('}');
        if self.is_plain {
            return Ok(());
        }
        let text = self.out.split_off(self.start);
        let ends = self.pairs.iter().skip(1).map(|(start, _)| *start);
        let ends = ends.chain([self.start + text.len()]);
        self.out.push_str("{\"$map\":");
        for (at, ((key, value), end)) in self.pairs.iter().zip(ends).enumerate() {
            // Without the colon, and the comma or the bracket at the end.
            let part = |from: usize, to: usize| {
                text.get(from - self.start..to - 1 - self.start).unwrap_or_default()
            };
            self.out.push(if at == 0 { '[' } else { ',' });
            let (key, value) = (part(*key, *value), part(*value, end));
            // Writing to a `String` can't fail.
            let _ = write!(self.out, "[{key},{value}]");
        }
        self.out.push_str("]}");
        Ok(())
    }
}
