//! Values from JSON.

use std::{
    cell::{Cell, RefCell},
    fmt::{self, Display},
    ptr,
};

use serde::{
    Serialize,
    de::{self, DeserializeOwned, DeserializeSeed, Visitor, value::SeqDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Value;

use super::{bytes_of, to_string};

/// The reason why JSON is not a value of the type.
#[derive(Debug)]
pub struct ReadError(String);

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

/// Returns the value with this JSON in the exact form. Fields that the type does not know are ignored, unless it denies them.
///
/// # Errors
///
/// [`ReadError`]: the JSON is not a value of the type.
pub fn from_value<T: DeserializeOwned>(json: &Value) -> Result<T, ReadError> {
    read(json, None).map(|(value, _)| value)
}

/// Returns the value with this JSON. A field that the type only writes, such as one with `#[serde(skip_deserializing)]`, is known.
///
/// Cost: the cost of [`from_value`]. If the type has ignored fields, or has a map, `flatten`, `tag` or `untagged`, the value is also
/// written as JSON, and read up to twice again for each field that is not in this JSON.
///
/// # Errors
///
/// The errors of [`from_value`], and a field that the type does not know.
pub fn from_known_fields<T: Serialize + DeserializeOwned>(json: &Value) -> Result<T, ReadError> {
    let (value, noted) = read::<T>(json, None)?;
    let (mut unknown, is_buffered) = (noted.ignored.into_inner(), noted.is_buffered.get());
    if unknown.is_empty() && !is_buffered {
        return Ok(value);
    }
    let written = written(&value);
    let mut absent = Vec::new();
    compare(json, &written, &mut |name, own, is_written| {
        if is_written {
            unknown.retain(|(_, ignored)| !ptr::eq(*ignored, own));
        } else if is_buffered {
            absent.push((name, own));
        }
    });
    let written = unordered(written);
    let unused = || absent.into_iter().find(|(_, own)| is_unused::<T>(json, own, &written));
    let unknown = unknown.into_iter().next().map(|(name, _)| name);
    match unknown.or_else(|| unused().map(|(name, _)| name.to_owned())) {
        None => Ok(value),
        Some(field) => Err(ReadError(format!("unknown field `{field}`"))),
    }
}

fn written<T: Serialize>(value: &T) -> Value {
    let json = to_string(value).ok();
    json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
}

/// Sorts the elements of all arrays. A set, or the pairs of a map, can have another order each time.
fn unordered(value: Value) -> Value {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<_> = elements.into_iter().map(unordered).collect();
            elements.sort_by_cached_key(Value::to_string);
            Value::Array(elements)
        }
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, unordered(value))).collect()
        }
        scalar => scalar,
    }
}

/// Calls `each` with the fields of objects, and whether the objects at the same places in `written` have them.
fn compare<'j>(json: &'j Value, written: &Value, each: &mut dyn FnMut(&'j str, &'j Value, bool)) {
    match (json, written) {
        (Value::Object(own), Value::Object(written)) => {
            for (name, value) in own {
                let other = written.get(name);
                each(name, value, other.is_some());
                if let Some(other) = other {
                    compare(value, other, each);
                }
            }
        }
        (Value::Array(own), Value::Array(written)) => {
            own.iter().zip(written).for_each(|(own, written)| compare(own, written, each));
        }
        _ => {}
    }
}

/// Whether a value in the JSON has no effect. With `flatten`, `tag` and `untagged`, serde reads all fields before their types, and
/// does not report those that none of them takes. No type of a field accepts both text and lists.
fn is_unused<T: Serialize + DeserializeOwned>(
    json: &Value,
    own: &Value,
    written_as: &Value,
) -> bool {
    [Value::from("?"), Value::from(vec![Value::from(Vec::<Value>::new())])].into_iter().all(
        |other| {
            let read = read::<T>(json, Some((own, &other)));
            read.is_ok_and(|(value, _)| unordered(written(&value)) == *written_as)
        },
    )
}

/// Returns the value, and what was noted of it, with another value in the place of one. A row that was read without its type has
/// the form of binary formats.
fn read<T: DeserializeOwned>(
    json: &Value,
    replaced: Option<(&Value, &Value)>,
) -> Result<(T, Noted), ReadError> {
    let read = |is_readable| {
        let noted = Noted {
            is_readable,
            ignored: RefCell::default(),
            is_buffered: Cell::new(false),
            replaced: replaced.map(|(at, other)| (ptr::from_ref(at), other.clone())),
        };
        let value = T::deserialize(Reader { json, field: None, noted: &noted })?;
        Ok((value, noted))
    };
    read(true).or_else(|error| read(false).map_err(|_| error))
}

/// What the parts of a value share.
struct Noted {
    /// Whether types have their form of text formats.
    is_readable: bool,
    /// The names and values of the fields that the type ignores.
    ignored: RefCell<Vec<(String, *const Value)>>,
    /// Whether all fields of an object were read, so that ignored ones are not noted.
    is_buffered: Cell<bool>,
    replaced: Option<(*const Value, Value)>,
}

/// Reads JSON, and the exact forms.
#[derive(Clone, Copy)]
struct Reader<'j> {
    json: &'j Value,
    /// The name of the field that has the value.
    field: Option<&'j str>,
    noted: &'j Noted,
}

/// An exact form.
enum Exact<'j> {
    Float(&'j str),
    Int(&'j str),
    Bytes(Vec<u8>),
    Map(&'j [Value]),
    Some(&'j Value),
}

fn exact(json: &Value) -> Option<Exact<'_>> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    let (form, inner) = object.iter().next()?;
    match (form.as_str(), inner) {
        ("$float", Value::String(text)) => Some(Exact::Float(text)),
        ("$int", Value::String(text)) => Some(Exact::Int(text)),
        ("$map", Value::Array(pairs)) => Some(Exact::Map(pairs)),
        ("$some", value) => Some(Exact::Some(value)),
        ("$bytes", Value::String(text)) => bytes_of(text).map(Exact::Bytes),
        _ => None,
    }
}

/// Returns the bits of a NaN.
fn bits(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Returns a float of the form `$float`.
pub(super) fn f64_of(text: &str) -> Option<f64> {
    bits(text).map(f64::from_bits).or_else(|| text.parse().ok())
}

/// Returns a float of the form `$float`.
pub(super) fn f32_of(text: &str) -> Option<f32> {
    match bits(text) {
        Some(bits) => u32::try_from(bits).ok().map(f32::from_bits),
        None => text.parse().ok(),
    }
}

fn wrong(text: &str, expected: &str) -> ReadError {
    ReadError(format!("`{text}` is not {expected}"))
}

impl<'j> Reader<'j> {
    fn of(self, json: &'j Value) -> Self {
        let json = match &self.noted.replaced {
            Some((at, other)) if ptr::eq(*at, json) => other,
            _ => json,
        };
        Self { json, field: None, ..self }
    }

    /// Reads JSON without the exact forms.
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.json {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(|item| self.of(item)));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(object) => {
                let pairs = object.iter().map(|(key, value)| (Key::Name(key), value));
                visitor.visit_map(Pairs { rest: pairs, value: None, reader: self })
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

    fn map<'de, V: Visitor<'de>>(
        self,
        pairs: &'j [Value],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let pair = |item: &'j Value| match item.as_array().map(Vec::as_slice) {
            Some([key, value]) => Ok((Key::Value(key), value)),
            _ => Err(ReadError("an item of `$map` is not a key and a value".to_owned())),
        };
        let pairs: Vec<_> = pairs.iter().map(pair).collect::<Result<_, _>>()?;
        visitor.visit_map(Pairs { rest: pairs.into_iter(), value: None, reader: self })
    }
}

/// The key of a pair.
enum Key<'j> {
    Name(&'j str),
    Value(&'j Value),
}

/// The pairs of a map.
struct Pairs<'j, I> {
    rest: I,
    value: Option<Reader<'j>>,
    reader: Reader<'j>,
}

impl<'de, 'j, I: Iterator<Item = (Key<'j>, &'j Value)>> de::MapAccess<'de> for Pairs<'j, I> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        let Some((key, json)) = self.rest.next() else { return Ok(None) };
        let field = if let Key::Name(name) = key { Some(name) } else { None };
        self.value = Some(Reader { field, ..self.reader.of(json) });
        match key {
            Key::Name(name) => seed.deserialize(Name(name)).map(Some),
            Key::Value(key) => seed.deserialize(self.reader.of(key)).map(Some),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let missing = || ReadError("a key without a value".to_owned());
        let value = self.value.take().ok_or_else(missing)?;
        let field = value.field;
        seed.deserialize(value).map_err(|error| match field {
            Some(field) if !error.0.starts_with("field `") => {
                ReadError(format!("field `{field}`: {error}"))
            }
            _ => error,
        })
    }
}

/// The name of a field, or a key that is text.
struct Name<'j>(&'j str);

impl<'de> de::Deserializer<'de> for Name<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_enum(de::value::StrDeserializer::new(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl de::IntoDeserializer<'_, ReadError> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn is_human_readable(&self) -> bool {
        self.noted.is_readable
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match exact(self.json) {
            Some(Exact::Float(text)) => {
                visitor.visit_f64(f64_of(text).ok_or_else(|| wrong(text, "a float"))?)
            }
            Some(Exact::Int(text)) => match text.parse::<i128>() {
                Ok(number) => visitor.visit_i128(number),
                Err(_) => visitor.visit_u128(text.parse().map_err(|_| wrong(text, "an integer"))?),
            },
            Some(Exact::Bytes(bytes)) => visitor.visit_byte_buf(bytes),
            Some(Exact::Map(items)) => self.map(items, visitor),
            Some(Exact::Some(value)) => visitor.visit_some(self.of(value)),
            None => {
                if self.json.is_object() {
                    self.noted.is_buffered.set(true);
                }
                self.visit(visitor)
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if let Some(field) = self.field {
            self.noted.ignored.borrow_mut().push((field.to_owned(), self.json));
        }
        visitor.visit_unit()
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match (exact(self.json), self.json) {
            (Some(Exact::Float(text)), _) => {
                visitor.visit_f32(f32_of(text).ok_or_else(|| wrong(text, "a float of 32 bits"))?)
            }
            // The shortest decimals of an `f32` are also the shortest decimals of the nearest `f64`.
            (_, Value::Number(number)) => {
                let text = number.to_string();
                visitor.visit_f32(text.parse().map_err(|_| wrong(&text, "a float"))?)
            }
            (None, _) => self.visit(visitor),
            _ => Err(ReadError("expected a float".to_owned())),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match exact(self.json) {
            Some(Exact::Float(_)) => self.deserialize_any(visitor),
            None => self.visit(visitor),
            Some(_) => Err(ReadError("expected a float".to_owned())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match exact(self.json) {
            _ if self.json.is_null() => visitor.visit_none(),
            Some(Exact::Some(inner)) => visitor.visit_some(self.of(inner)),
            _ => visitor.visit_some(self),
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
        self.visit(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let expected = || ReadError("expected the name of a variant, or an object with it".into());
        match self.json {
            Value::String(name) => visitor.visit_enum(Variant { name, reader: self, value: None }),
            Value::Object(object) if object.len() == 1 => {
                let (name, value) = object.iter().next().ok_or_else(expected)?;
                visitor.visit_enum(Variant { name, reader: self, value: Some(value) })
            }
            _ => Err(expected()),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.visit(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit seq tuple
        tuple_struct map identifier
    }
}

/// A variant of an enum, with its value.
struct Variant<'j> {
    name: &'j str,
    reader: Reader<'j>,
    value: Option<&'j Value>,
}

impl<'j> Variant<'j> {
    fn value(&self) -> Result<Reader<'j>, ReadError> {
        let missing = || ReadError("the variant has no value".to_owned());
        self.value.map(|value| self.reader.of(value)).ok_or_else(missing)
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        Ok((seed.deserialize(Name(self.name))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(ReadError("the variant takes no value".to_owned())),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.value()?.visit(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.value()?.visit(visitor)
    }
}
