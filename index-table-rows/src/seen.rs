//! What a value emits, joined for each place: all elements of a sequence are at one place.

use std::{fmt, rc::Rc};

use serde::{Serialize, ser};

use crate::{
    MAX_DEPTH,
    error::{Error, Reason, Result},
    kind::{Form, Kind},
};

/// The names of a struct's fields.
pub(crate) type Names = Rc<[&'static str]>;

/// The different things at one place, in the order of their occurrence.
pub(crate) type Seen = Vec<Part>;

/// Tuples with more elements are recorded as arrays, with one kind for all elements.
const LONGEST_TUPLE: usize = 16;

#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A value without parts.
    Of(Kind),
    /// A `u64` that is too large for an `i64`.
    LargeU64,
    /// A `u128` that is too large for an `i128`.
    LargeU128,
    Option(Seen),
    /// A field that was skipped.
    Absent,
    Seq(Seen),
    Tuple(Vec<Seen>),
    Array(u32, Seen),
    Map(Seen, Seen),
    Struct(Struct),
    Enum(Variants),
}

#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    pub(crate) names: Names,
    pub(crate) fields: Vec<Seen>,
    /// Whether it is inside of a struct with the same name. Its kind would contain itself, so it gets a tag.
    pub(crate) recursive: bool,
}

/// The variants of one enum at one place.
#[derive(Clone, Debug)]
pub(crate) struct Variants {
    pub(crate) name: &'static str,
    pub(crate) variants: Vec<SeenVariant>,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenVariant {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Empty for a unit variant.
    pub(crate) payload: Seen,
}

/// Adds a part to those at its place.
fn join(seen: &mut Seen, part: Part) {
    let mut part = Some(part);
    for old in seen.iter_mut() {
        join_with(old, &mut part);
        if part.is_none() {
            return;
        }
    }
    seen.extend(part);
}

fn join_all(seen: &mut Seen, parts: Seen) {
    for part in parts {
        join(seen, part);
    }
}

/// Moves `part` into `old` if both are of one sort.
fn join_with(old: &mut Part, part: &mut Option<Part>) {
    let is_one = match (&*old, &*part) {
        (Part::Of(a), Some(Part::Of(b))) => a == b,
        (Part::LargeU64, Some(Part::LargeU64))
        | (Part::LargeU128, Some(Part::LargeU128))
        | (Part::Absent, Some(Part::Absent))
        | (Part::Option(_), Some(Part::Option(_)))
        | (Part::Seq(_), Some(Part::Seq(_)))
        | (Part::Map(..), Some(Part::Map(..))) => true,
        (Part::Array(a, _), Some(Part::Array(b, _))) => a == b,
        (Part::Tuple(a), Some(Part::Tuple(b))) => a.len() == b.len(),
        (Part::Struct(a), Some(Part::Struct(b))) => {
            a.names == b.names && a.recursive == b.recursive
        }
        (Part::Enum(a), Some(Part::Enum(b))) => a.name == b.name,
        _ => false,
    };
    if !is_one {
        return;
    }
    match (old, part.take()) {
        (Part::Option(a), Some(Part::Option(b)))
        | (Part::Seq(a), Some(Part::Seq(b)))
        | (Part::Array(_, a), Some(Part::Array(_, b))) => join_all(a, b),
        (Part::Map(keys, values), Some(Part::Map(more_keys, more_values))) => {
            join_all(keys, more_keys);
            join_all(values, more_values);
        }
        (Part::Tuple(a), Some(Part::Tuple(b))) => join_each(a, b),
        (Part::Struct(a), Some(Part::Struct(b))) => join_each(&mut a.fields, b.fields),
        (Part::Enum(a), Some(Part::Enum(b))) => {
            for variant in b.variants {
                join_variant(&mut a.variants, variant);
            }
        }
        _ => {}
    }
}

fn join_each(seen: &mut [Seen], parts: Vec<Seen>) {
    for (seen, parts) in seen.iter_mut().zip(parts) {
        join_all(seen, parts);
    }
}

fn join_variant(variants: &mut Vec<SeenVariant>, variant: SeenVariant) {
    match variants.iter_mut().find(|it| it.name == variant.name && it.form == variant.form) {
        Some(old) => join_all(&mut old.payload, variant.payload),
        None => variants.push(variant),
    }
}

/// Returns what `value` emits, and the names of its structs in the order in which they begin.
pub(crate) fn see<T: Serialize + ?Sized>(value: &T) -> Result<(Part, Vec<Names>)> {
    let mut observer = Observer { guide: Vec::new(), open: Vec::new(), depth: 0 };
    let part = value.serialize(&mut observer)?;
    Ok((part, observer.guide))
}

struct Observer {
    guide: Vec<Names>,
    /// The names of the structs around the value.
    open: Vec<&'static str>,
    /// The number of containers around the value, as the reader counts them.
    depth: usize,
}

impl Observer {
    fn enter(&mut self) -> Result {
        if self.depth == MAX_DEPTH {
            return Err(Reason::TooDeep.into());
        }
        self.depth += 1;
        Ok(())
    }

    /// Returns what a value in a container emits.
    fn inside<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<Part> {
        self.enter()?;
        let part = value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(part)
    }

    fn begin(&mut self, what: What) -> Result<Parts<'_>> {
        self.enter()?;
        let place = self.guide.len();
        if let What::Struct { name, .. } = what {
            if name.starts_with("$serde_json::private::") {
                return Err(Reason::Private(name.to_owned()).into());
            }
            self.guide.push(Rc::new([]));
        }
        Ok(Parts { observer: self, what, place, count: 0, names: Vec::new(), fields: Vec::new() })
    }
}

/// What is being collected.
enum What {
    Seq(Seen),
    Array(Seen),
    Map(Seen, Seen),
    Tuple(Option<(&'static str, &'static str)>),
    Struct { name: &'static str, variant: Option<&'static str>, recursive: bool },
}

struct Parts<'o> {
    observer: &'o mut Observer,
    what: What,
    /// The position of this struct's names in the guide.
    place: usize,
    count: u32,
    names: Vec<&'static str>,
    fields: Vec<Seen>,
}

fn variant(name: &'static str, variant: &'static str, form: Form, payload: Seen) -> Part {
    Part::Enum(Variants { name, variants: vec![SeenVariant { name: variant, form, payload }] })
}

impl Parts<'_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let part = value.serialize(&mut *self.observer)?;
        self.count = self.count.saturating_add(1);
        match &mut self.what {
            What::Seq(seen) | What::Array(seen) | What::Map(_, seen) => join(seen, part),
            What::Tuple(_) | What::Struct { .. } => self.fields.push(vec![part]),
        }
        Ok(())
    }

    fn add_name(&mut self, name: &'static str) -> Result {
        if self.names.contains(&name) {
            return Err(Reason::SameName(name.to_owned()).into());
        }
        self.names.push(name);
        Ok(())
    }

    fn finish(self) -> Part {
        let Self { observer, what, place, count, names, fields } = self;
        observer.depth -= 1;
        match what {
            What::Seq(seen) => Part::Seq(seen),
            What::Array(seen) => Part::Array(count, seen),
            What::Map(keys, values) => Part::Map(keys, values),
            What::Tuple(None) => Part::Tuple(fields),
            What::Tuple(Some((name, tuple))) => {
                variant(name, tuple, Form::Tuple, vec![Part::Tuple(fields)])
            }
            What::Struct { name, variant: of, recursive } => {
                let names: Names = names.into();
                if let Some(place) = observer.guide.get_mut(place) {
                    *place = names.clone();
                }
                let part = Struct { name: of.unwrap_or(name), names, fields, recursive };
                if let Some(of) = of {
                    variant(name, of, Form::Struct, vec![Part::Struct(part)])
                } else {
                    observer.open.pop();
                    Part::Struct(part)
                }
            }
        }
    }
}

macro_rules! kinds {
    ($($method:ident($type:ty) $kind:ident;)+) => {$(
        fn $method(self, _: $type) -> Result<Part> {
            Ok(Part::Of(Kind::$kind))
        }
    )+};
}

impl<'o> ser::Serializer for &'o mut Observer {
    type Ok = Part;
    type Error = Error;
    type SerializeSeq = Parts<'o>;
    type SerializeTuple = Parts<'o>;
    type SerializeTupleStruct = Parts<'o>;
    type SerializeTupleVariant = Parts<'o>;
    type SerializeMap = Parts<'o>;
    type SerializeStruct = Parts<'o>;
    type SerializeStructVariant = Parts<'o>;

    kinds! {
        serialize_bool(bool) Bool;
        serialize_i8(i8) I8;
        serialize_i16(i16) Signed;
        serialize_i32(i32) Signed;
        serialize_i64(i64) Signed;
        serialize_i128(i128) I128;
        serialize_u8(u8) U8;
        serialize_u16(u16) Unsigned;
        serialize_u32(u32) Unsigned;
        serialize_f32(f32) F32;
        serialize_f64(f64) F64;
        serialize_char(char) Char;
        serialize_str(&str) Text;
        serialize_unit_struct(&'static str) Unit;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_u64(self, value: u64) -> Result<Part> {
        Ok(if i64::try_from(value).is_ok() { Part::Of(Kind::Unsigned) } else { Part::LargeU64 })
    }

    fn serialize_u128(self, value: u128) -> Result<Part> {
        Ok(if i128::try_from(value).is_ok() { Part::Of(Kind::U128) } else { Part::LargeU128 })
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Part> {
        Ok(Part::Of(if value.len() == 16 { Kind::Bytes16 } else { Kind::Bytes }))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<Part> {
        Ok(Part::Of(Kind::Text))
    }

    fn serialize_none(self) -> Result<Part> {
        Ok(Part::Option(Vec::new()))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Part> {
        Ok(Part::Option(vec![self.inside(value)?]))
    }

    fn serialize_unit(self) -> Result<Part> {
        Ok(Part::Of(Kind::Unit))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Part> {
        if name.starts_with("$serde_json::private::") {
            return Err(Reason::Private(name.to_owned()).into());
        }
        value.serialize(self)
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, of: &'static str) -> Result<Part> {
        Ok(variant(name, of, Form::Unit, Vec::new()))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        of: &'static str,
        value: &T,
    ) -> Result<Part> {
        Ok(variant(name, of, Form::Newtype, vec![self.inside(value)?]))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'o>> {
        self.begin(What::Seq(Vec::new()))
    }

    fn serialize_tuple(self, len: usize) -> Result<Parts<'o>> {
        self.begin(if len <= LONGEST_TUPLE { What::Tuple(None) } else { What::Array(Vec::new()) })
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Parts<'o>> {
        self.serialize_tuple(len)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        of: &'static str,
        _: usize,
    ) -> Result<Parts<'o>> {
        self.begin(What::Tuple(Some((name, of))))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'o>> {
        self.begin(What::Map(Vec::new(), Vec::new()))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'o>> {
        let recursive = self.open.contains(&name);
        self.open.push(name);
        self.begin(What::Struct { name, variant: None, recursive })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        of: &'static str,
        _: usize,
    ) -> Result<Parts<'o>> {
        self.begin(What::Struct { name, variant: Some(of), recursive: false })
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident;)+) => {$(
        impl ser::$trait for Parts<'_> {
            type Ok = Part;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.add(value)
            }

            fn end(self) -> Result<Part> {
                Ok(self.finish())
            }
        }
    )+};
}

elements! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

impl ser::SerializeMap for Parts<'_> {
    type Ok = Part;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        let part = key.serialize(&mut *self.observer)?;
        if let What::Map(keys, _) = &mut self.what {
            join(keys, part);
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.add(value)
    }

    fn end(self) -> Result<Part> {
        Ok(self.finish())
    }
}

macro_rules! fields {
    ($($trait:ident;)+) => {$(
        impl ser::$trait for Parts<'_> {
            type Ok = Part;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
                self.add_name(name)?;
                self.add(value).map_err(|error| error.within(name))
            }

            fn skip_field(&mut self, name: &'static str) -> Result {
                self.add_name(name)?;
                self.fields.push(vec![Part::Absent]);
                Ok(())
            }

            fn end(self) -> Result<Part> {
                Ok(self.finish())
            }
        }
    )+};
}

fields! {
    SerializeStruct;
    SerializeStructVariant;
}
