//! JSON as a value of the kind that is recorded for its place.

use index_table_rows::{
    RecordedEnum, RecordedForm, RecordedKind, RecordedStruct, RecordedVariant, VariantForm,
};
use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap as _, SerializeSeq as _, SerializeStruct as _, SerializeStructVariant as _,
        SerializeTuple as _, SerializeTupleVariant as _,
    },
};
use serde_json::{Map, Value};

use std::cell::RefCell;

use super::{
    bytes_of,
    read::{f32_of, f64_of},
};

/// JSON in the exact form, which is written as the type of its place writes it: integers, floats and texts of the recorded kind,
/// structs with the recorded fields in their order. What is not of this kind is an error.
#[derive(Clone, Copy)]
pub(crate) struct Guided<'g> {
    pub(crate) kind: RecordedKind<'g>,
    pub(crate) json: &'g Value,
    /// Returns whether values of any kind may be in a field of the outermost struct.
    pub(crate) takes_any: &'g dyn Fn(&str) -> bool,
    /// The field that has the value.
    pub(crate) place: Option<&'g FieldPath<'g>>,
    /// The first error.
    pub(crate) refused: &'g RefCell<Option<Refused>>,
}

/// A field, and the fields around it.
#[derive(Clone, Copy)]
pub(crate) struct FieldPath<'p> {
    name: &'static str,
    outer: Option<&'p Self>,
}

/// A value that is not of its recorded kind.
pub(crate) struct Refused {
    /// The fields around it, such as `lines.price`; empty for the row itself.
    pub(crate) field: String,
    pub(crate) reason: String,
}

impl FieldPath<'_> {
    fn names(&self) -> Vec<&'static str> {
        let mut names = self.outer.map(Self::names).unwrap_or_default();
        names.push(self.name);
        names
    }
}

impl<'g> Guided<'g> {
    const fn of(self, kind: RecordedKind<'g>, json: &'g Value) -> Self {
        Self { kind, json, ..self }
    }

    /// Notes the error with its place.
    #[cold]
    fn refuse<E: serde::ser::Error>(self, reason: impl Into<String>) -> E {
        let reason = reason.into();
        let error = E::custom(&reason);
        let field = self.place.map(FieldPath::names).unwrap_or_default().join(".");
        self.refused.borrow_mut().get_or_insert(Refused { field, reason });
        error
    }

    fn wrong<E: serde::ser::Error>(self, expected: &str) -> E {
        const SHOWN: usize = 80;
        let mut json = self.json.to_string();
        if json.len() > SHOWN {
            json.truncate(json.floor_char_boundary(SHOWN));
            json.push('…');
        }
        self.refuse(format!("{json} is not {expected}"))
    }

    /// Returns the field of the row that has the value.
    fn outermost(self) -> Option<&'static str> {
        self.place?.names().first().copied()
    }

    /// Returns the value of an exact form.
    fn form(self, name: &str) -> Option<&'g Value> {
        form(self.json, name)
    }

    fn unsigned<E: serde::ser::Error>(self, most: u128, expected: &str) -> Result<u128, E> {
        let wide = || self.form("$int")?.as_str()?.parse().ok();
        let number = self.json.as_u64().map(u128::from).or_else(wide);
        number.filter(|number| *number <= most).ok_or_else(|| self.wrong(expected))
    }

    fn signed<E: serde::ser::Error>(self, bytes: u32, expected: &str) -> Result<i128, E> {
        let small = || self.json.as_u64().map(i128::from);
        let wide = || self.form("$int")?.as_str()?.parse().ok();
        let number = self.json.as_i64().map(i128::from).or_else(small).or_else(wide);
        let shift = 128 - bytes * 8;
        let fits = |number: &i128| *number << shift >> shift == *number;
        number.filter(fits).ok_or_else(|| self.wrong(expected))
    }

    fn text<E: serde::ser::Error>(self, expected: &str) -> Result<&'g str, E> {
        self.json.as_str().ok_or_else(|| self.wrong(expected))
    }

    fn bytes<E: serde::ser::Error>(self, len: Option<usize>) -> Result<Vec<u8>, E> {
        let bytes = self.form("$bytes").and_then(Value::as_str).and_then(bytes_of);
        let bytes = bytes.filter(|bytes| len.is_none_or(|len| len == bytes.len()));
        bytes.ok_or_else(|| match len {
            Some(len) => self.wrong(&format!("`{{\"$bytes\": …}}` with {len} bytes in hex")),
            None => self.wrong("`{\"$bytes\": …}` with bytes in hex"),
        })
    }

    fn array<E: serde::ser::Error>(self, len: Option<usize>) -> Result<&'g [Value], E> {
        let elements = self.json.as_array().map(Vec::as_slice);
        let elements = elements.filter(|all| len.is_none_or(|len| len == all.len()));
        elements.ok_or_else(|| match len {
            Some(len) => self.wrong(&format!("an array of {len} values")),
            None => self.wrong("an array"),
        })
    }

    fn object<E: serde::ser::Error>(self) -> Result<&'g Map<String, Value>, E> {
        self.json.as_object().ok_or_else(|| self.wrong("an object with fields"))
    }

    /// Returns the fields of a struct, with the values that this JSON has.
    fn fields<E: serde::ser::Error>(
        self,
        of: RecordedStruct<'g>,
    ) -> Result<Vec<(&'static str, Option<Self>)>, E> {
        let object = self.object()?;
        let fields = of.fields().map(|field| {
            let value = object.get(field.name);
            if value.is_none() && !field.absent {
                return Err(self.refuse(format!("it lacks the field `{}`", field.name)));
            }
            Ok((field.name, value.map(|json| self.of(field.kind, json))))
        });
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let is_known = |name: &&String| fields.iter().any(|(own, _)| own == name);
        match object.keys().find(|name| !is_known(name)) {
            Some(name) => Err(self.refuse(format!("it has the unknown field `{name}`"))),
            None => Ok(fields),
        }
    }

    /// Whether an object has the fields of a struct.
    fn has_fields(self, of: RecordedStruct<'g>) -> bool {
        self.json.as_object().is_some_and(|object| {
            let has_all = of.fields().all(|field| field.absent || object.contains_key(field.name));
            has_all && object.keys().all(|name| of.fields().any(|field| field.name == name))
        })
    }

    fn structure<S: Serializer>(self, of: RecordedStruct<'g>, to: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields(of)?;
        let len = fields.iter().filter(|(_, value)| value.is_some()).count();
        let mut out = to.serialize_struct(of.name, len)?;
        for (name, value) in fields {
            match value {
                Some(value) => {
                    let place = FieldPath { name, outer: self.place };
                    out.serialize_field(name, &Guided { place: Some(&place), ..value })?;
                }
                None => out.skip_field(name)?,
            }
        }
        out.end()
    }

    /// Returns the variant, and its payload.
    fn variant<E: serde::ser::Error>(
        self,
        of: RecordedEnum<'g>,
    ) -> Result<(RecordedVariant<'g>, &'g Value), E> {
        let (name, payload) = match self.json {
            Value::String(name) => (name, None),
            Value::Object(object) if object.len() == 1 => {
                let pair = object.iter().next();
                let (name, value) = pair.ok_or_else(|| self.wrong("a variant"))?;
                (name, Some(value))
            }
            _ => return Err(self.wrong("the name of a variant, or an object with it")),
        };
        let fits = |variant: &RecordedVariant<'g>| {
            variant.name == name && (variant.form == VariantForm::Unit) == payload.is_none()
        };
        let variant = of.variants().find(fits).ok_or_else(|| {
            let names: Vec<_> = of.variants().map(|it| format!("`{}`", it.name)).collect();
            self.wrong(&format!("one of the recorded variants: {}", names.join(", ")))
        })?;
        Ok((variant, payload.unwrap_or(self.json)))
    }

    fn enumeration<S: Serializer>(self, of: RecordedEnum<'g>, to: S) -> Result<S::Ok, S::Error> {
        let (variant, json) = self.variant(of)?;
        let RecordedVariant { at, name, form, payload } = variant;
        let payload = self.of(payload, json);
        match (form, payload.kind.form()) {
            (VariantForm::Unit, _) => to.serialize_unit_variant(of.name, at, name),
            (VariantForm::Tuple, RecordedForm::Tuple(kinds)) => {
                let elements = payload.array(Some(kinds.len()))?;
                let mut out = to.serialize_tuple_variant(of.name, at, name, kinds.len())?;
                for (kind, json) in kinds.into_iter().zip(elements) {
                    out.serialize_field(&self.of(kind, json))?;
                }
                out.end()
            }
            (VariantForm::Struct, RecordedForm::Struct(own)) => {
                let fields = payload.fields(own)?;
                let len = fields.iter().filter(|(_, value)| value.is_some()).count();
                let mut out = to.serialize_struct_variant(of.name, at, name, len)?;
                for (name, value) in fields {
                    match value {
                        Some(value) => {
                            let place = FieldPath { name, outer: self.place };
                            out.serialize_field(name, &Guided { place: Some(&place), ..value })?;
                        }
                        None => out.skip_field(name)?,
                    }
                }
                out.end()
            }
            _ => to.serialize_newtype_variant(of.name, at, name, &payload),
        }
    }

    fn map<S: Serializer>(
        self,
        (key, value): (RecordedKind<'g>, RecordedKind<'g>),
        to: S,
    ) -> Result<S::Ok, S::Error> {
        if let Some(Value::Array(pairs)) = self.form("$map") {
            let mut out = to.serialize_map(Some(pairs.len()))?;
            for pair in pairs {
                let Some([own, json]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(self.refuse("an item of `$map` is not a key and a value"));
                };
                out.serialize_entry(&self.of(key, own), &self.of(value, json))?;
            }
            return out.end();
        }
        let object = self.object()?;
        let mut out = to.serialize_map(Some(object.len()))?;
        for (name, json) in object {
            let name = Value::from(name.as_str());
            let own = Guided { json: &name, ..self.of(key, self.json) };
            out.serialize_entry(&own, &self.of(value, json))?;
        }
        out.end()
    }

    /// Writes a value of the alternative to which it belongs.
    fn one_of<S: Serializer>(self, kinds: &[RecordedKind<'g>], to: S) -> Result<S::Ok, S::Error> {
        let is_own = |kind: &&RecordedKind<'g>| match kind.form() {
            RecordedForm::Struct(of) => self.has_fields(of),
            _ => false,
        };
        let other = |kind: &&RecordedKind<'g>| !matches!(kind.form(), RecordedForm::Struct(_));
        let found = kinds.iter().find(is_own).or_else(|| kinds.iter().find(other));
        let kind = found.ok_or_else(|| self.wrong("a struct with recorded fields"))?;
        self.of(*kind, self.json).serialize(to)
    }

    /// Writes a value at a place that takes any JSON, such as a `serde_json::Value`.
    fn any<S: Serializer>(self, to: S) -> Result<S::Ok, S::Error> {
        if !self.outermost().is_some_and(self.takes_any) {
            return Err(self.refuse(
                "rows have values of several kinds here, so only the struct has the kind of this one",
            ));
        }
        match self.json {
            Value::Null => to.serialize_unit(),
            Value::Bool(value) => to.serialize_bool(*value),
            Value::String(text) => to.serialize_str(text),
            Value::Number(number) => {
                if let Some(number) = number.as_u64() {
                    to.serialize_u64(number)
                } else if let Some(number) = number.as_i64() {
                    to.serialize_i64(number)
                } else {
                    to.serialize_f64(number.as_f64().unwrap_or(f64::NAN))
                }
            }
            Value::Array(elements) => {
                let mut out = to.serialize_seq(Some(elements.len()))?;
                for json in elements {
                    out.serialize_element(&self.of(self.kind, json))?;
                }
                out.end()
            }
            Value::Object(object)
                if object.len() == 1
                    && self.form("$map").is_none()
                    && object.keys().all(|name| name.starts_with('$')) =>
            {
                Err(self.wrong("JSON; a key that begins with `$` is written as `$map`"))
            }
            Value::Object(_) => self.map((self.kind, self.kind), to),
        }
    }
}

fn form<'j>(json: &'j Value, name: &str) -> Option<&'j Value> {
    json.as_object().filter(|object| object.len() == 1)?.get(name)
}

impl Serialize for Guided<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let own = *self;
        match own.kind.form() {
            RecordedForm::Unseen => Err(own.refuse(
                "no row has a value here, so its kind is not recorded; write one with the struct first",
            )),
            RecordedForm::U8 => {
                let value = own.unsigned(u8::MAX.into(), "an unsigned integer of 8 bits")?;
                to.serialize_u8(u8::try_from(value).unwrap_or(u8::MAX))
            }
            RecordedForm::Unsigned => {
                let value = own.unsigned(u64::MAX.into(), "an unsigned integer of 64 bits")?;
                to.serialize_u64(u64::try_from(value).unwrap_or(u64::MAX))
            }
            RecordedForm::U128 => {
                to.serialize_u128(own.unsigned(u128::MAX, "an unsigned integer of 128 bits")?)
            }
            RecordedForm::I8 => {
                let value = own.signed(1, "an integer of 8 bits")?;
                to.serialize_i8(i8::try_from(value).unwrap_or(i8::MAX))
            }
            RecordedForm::Signed => {
                let value = own.signed(8, "an integer of 64 bits")?;
                to.serialize_i64(i64::try_from(value).unwrap_or(i64::MAX))
            }
            RecordedForm::I128 => to.serialize_i128(own.signed(16, "an integer of 128 bits")?),
            RecordedForm::F32 => {
                let exact = || f32_of(own.form("$float")?.as_str()?);
                let plain = || own.json.is_number().then(|| own.json.to_string().parse().ok())?;
                let value = plain().filter(|value: &f32| value.is_finite()).or_else(exact);
                to.serialize_f32(value.ok_or_else(|| own.wrong("a float of 32 bits"))?)
            }
            RecordedForm::F64 => {
                let exact = || f64_of(own.form("$float")?.as_str()?);
                let value = own.json.as_f64().or_else(exact);
                to.serialize_f64(value.ok_or_else(|| own.wrong("a float of 64 bits"))?)
            }
            RecordedForm::Bool => {
                let value = own.json.as_bool();
                to.serialize_bool(value.ok_or_else(|| own.wrong("true or false"))?)
            }
            RecordedForm::Char => {
                let value = own.json.as_str().and_then(|text| text.parse().ok());
                to.serialize_char(value.ok_or_else(|| own.wrong("text of one character"))?)
            }
            RecordedForm::Text => to.serialize_str(own.text("text")?),
            RecordedForm::Bytes(len) => to.serialize_bytes(&own.bytes::<S::Error>(len)?),
            RecordedForm::Unit if own.json.is_null() => to.serialize_unit(),
            RecordedForm::Unit => Err(own.wrong("null")),
            RecordedForm::Any => own.any(to),
            RecordedForm::Option(_) if own.json.is_null() => to.serialize_none(),
            RecordedForm::Option(kind) => {
                to.serialize_some(&own.of(kind, own.form("$some").unwrap_or(own.json)))
            }
            RecordedForm::Seq(kind) => {
                let elements = own.array(None)?;
                let mut out = to.serialize_seq(Some(elements.len()))?;
                for json in elements {
                    out.serialize_element(&own.of(kind, json))?;
                }
                out.end()
            }
            RecordedForm::Array(len, kind) => {
                let mut out = to.serialize_tuple(len)?;
                for json in own.array(Some(len))? {
                    out.serialize_element(&own.of(kind, json))?;
                }
                out.end()
            }
            RecordedForm::Tuple(kinds) => {
                let elements = own.array(Some(kinds.len()))?;
                let mut out = to.serialize_tuple(kinds.len())?;
                for (kind, json) in kinds.into_iter().zip(elements) {
                    out.serialize_element(&own.of(kind, json))?;
                }
                out.end()
            }
            RecordedForm::Map(key, value) => own.map((key, value), to),
            RecordedForm::Struct(of) => own.structure(of, to),
            RecordedForm::Enum(of) => own.enumeration(of, to),
            RecordedForm::OneOf(kinds) => own.one_of(&kinds, to),
        }
    }
}
