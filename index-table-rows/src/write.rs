//! Encoding: one pass that is led by the kinds of the catalog.
//!
//! At each place one kind is expected. A value that does not fit ends the pass with `Unrecorded`; `learn` then makes the
//! kind more general, and the next pass fits. Therefore a value has one form of bytes for a given catalog.
//!
//! Only at a union does the writer choose, among structs with different names, and it meets the names one after the other.
//! It begins with a guess, and corrects it when a name differs (`switch`); after `learn`, a guide has the names of all structs.
//!
//! What isn't inlined takes values instead of slices, and stands apart, so the fast paths need no stack.

mod sorted;

use std::fmt::{self, Write as _};

use serde::ser::{self, Serialize};

pub(crate) use self::sorted::{is_same_sorted, write_sorted};
use crate::{
    MAX_DEPTH,
    bytes::{replace_varint, take_varint, varint, varint_len, widen, zigzag},
    catalog::{Catalog, LOOSE, ROOT},
    error::{Error, Reason, Result, unrecorded},
    kind::{Field, Form, Kind, List, Union, Variant},
    seen::Names,
    tag,
};

static ROOT_KIND: Kind = Kind::Union(ROOT);

/// Appends the row of `value`.
#[inline]
pub(crate) fn write<T: Serialize + ?Sized>(
    catalog: &Catalog,
    guide: Option<&[Names]>,
    value: &T,
    out: &mut Vec<u8>,
) -> Result {
    let kind = begin(catalog, guide, out)?;
    let guide = guide.map(<[_]>::iter);
    value.serialize(&mut Writer { out, catalog, kind, guide, stored: None, depth: 0 })
}

/// Writes the number of the list if there is no choice. Returns the kind of what follows.
#[inline(always)]
fn begin<'c>(catalog: &'c Catalog, guide: Option<&[Names]>, out: &mut Vec<u8>) -> Result<&'c Kind> {
    let root = catalog.union(ROOT)?;
    let mut kind = &ROOT_KIND;
    if let (None, None, [only]) = (guide, root.other, &*root.current) {
        kind = root.kinds.get(*only as usize).ok_or_else(unrecorded)?;
        varint(out, (*only).into());
    }
    Ok(kind)
}

/// Whether a row of `value` with the lists and entries of `row` has the same bytes. They may be older than those of a
/// new row.
pub(crate) fn is_same<T: Serialize + ?Sized>(catalog: &Catalog, row: &[u8], value: &T) -> bool {
    let out = &mut Vec::with_capacity(row.len());
    let mut writer =
        Writer { out, catalog, kind: &ROOT_KIND, guide: None, stored: Some(row), depth: 0 };
    value.serialize(&mut writer).is_ok() && *out == row
}

struct Writer<'c, 'o> {
    out: &'o mut Vec<u8>,
    catalog: &'c Catalog,
    /// The kind of the next value.
    kind: &'c Kind,
    guide: Option<std::slice::Iter<'c, Names>>,
    /// The row to compare with, which decides where there is a choice.
    stored: Option<&'c [u8]>,
    /// The number of containers around the next value.
    depth: usize,
}

#[cold]
fn too_deep() -> Error {
    Reason::TooDeep.into()
}

impl<'c> Writer<'c, '_> {
    #[inline]
    fn enter(&mut self) -> Result {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn some(&mut self, write: impl Fn(&mut Self) -> Result) -> Result {
        self.enter()?;
        loop {
            match self.kind {
                Kind::Option(kind) => {
                    self.out.push(1);
                    self.kind = kind;
                    write(self)?;
                }
                Kind::Any => {
                    let start = self.out.len();
                    write(self)?;
                    if let Some(tag::NONE | tag::SOME | tag::UNIT) = self.out.get(start).copied() {
                        self.out.insert(start, tag::SOME);
                    }
                }
                Kind::Union(union) => {
                    self.choose_other(*union)?;
                    continue;
                }
                _ => return Err(unrecorded()),
            }
            self.depth -= 1;
            return Ok(());
        }
    }

    /// Passes options and unions, for a value that is neither an option nor a struct.
    #[inline(never)]
    fn settle(&mut self) -> Result {
        loop {
            match self.kind {
                Kind::Option(kind) => {
                    self.out.push(1);
                    self.kind = kind;
                }
                Kind::Union(union) => self.choose_other(*union)?,
                _ => return Ok(()),
            }
        }
    }

    fn choose_other(&mut self, union: u32) -> Result {
        let union = self.catalog.union(union)?;
        let other = match self.stored {
            None => union.other.ok_or_else(unrecorded)?,
            Some(_) => self.stored_number()?,
        };
        varint(self.out, other.into());
        self.kind = union.kinds.get(other as usize).ok_or_else(unrecorded)?;
        Ok(())
    }

    /// The number at this position of the row to compare with.
    #[cold]
    fn stored_number(&self) -> Result<u32> {
        let mut rest =
            self.stored.and_then(|row| row.get(self.out.len()..)).ok_or_else(unrecorded)?;
        let number = take_varint(&mut rest).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(unrecorded)
    }

    #[inline(never)]
    fn unsigned(&mut self, value: u64) -> Result {
        self.settle()?;
        match (self.kind, i64::try_from(value)) {
            (Kind::Unsigned, _) => varint(self.out, value),
            (Kind::U8, Ok(0..0x100)) | (Kind::I8, Ok(0..0x80)) => self.out.push(value as u8),
            (Kind::Signed, Ok(value)) => varint(self.out, zigzag(value)),
            (Kind::U128 | Kind::I128, _) => {
                self.out.extend_from_slice(&u128::from(value).to_le_bytes());
            }
            (Kind::Any, _) if value < tag::SHORT.into() => self.out.push(value as u8),
            (Kind::Any, _) => {
                self.out.push(tag::UNSIGNED);
                varint(self.out, value);
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    fn signed(&mut self, value: i64) -> Result {
        self.settle()?;
        match (self.kind, u64::try_from(value)) {
            (Kind::Signed, _) => varint(self.out, zigzag(value)),
            (Kind::I8, _) => {
                self.out.push(i8::try_from(value).map_err(|_| unrecorded())?.cast_unsigned());
            }
            (Kind::I128, _) => self.out.extend_from_slice(&i128::from(value).to_le_bytes()),
            (Kind::U8 | Kind::Unsigned | Kind::U128 | Kind::Any, Ok(value)) => {
                return self.unsigned(value);
            }
            (Kind::Any, _) => {
                self.out.push(tag::SIGNED);
                varint(self.out, zigzag(value));
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    fn unsigned128(&mut self, value: u128) -> Result {
        self.settle()?;
        match (self.kind, i128::try_from(value), u64::try_from(value)) {
            (Kind::U128, ..) => self.out.extend_from_slice(&value.to_le_bytes()),
            (Kind::I128, Ok(value), _) => self.out.extend_from_slice(&value.to_le_bytes()),
            (Kind::U8 | Kind::I8 | Kind::Unsigned | Kind::Signed, _, Ok(value)) => {
                return self.unsigned(value);
            }
            (Kind::Any, ..) => {
                self.out.push(tag::U128);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    fn signed128(&mut self, value: i128) -> Result {
        self.settle()?;
        match (self.kind, u128::try_from(value), i64::try_from(value)) {
            (Kind::I128, ..) => self.out.extend_from_slice(&value.to_le_bytes()),
            (Kind::U128, Ok(value), _) => self.out.extend_from_slice(&value.to_le_bytes()),
            (Kind::U8 | Kind::I8 | Kind::Unsigned | Kind::Signed, _, Ok(value)) => {
                return self.signed(value);
            }
            (Kind::Any, ..) => {
                self.out.push(tag::I128);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn narrow_float(&mut self, value: f32) -> Result {
        self.settle()?;
        match self.kind {
            Kind::F32 => {}
            Kind::F64 => return self.wide_float(widen(value)),
            Kind::Any => self.out.push(tag::F32),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn wide_float(&mut self, value: f64) -> Result {
        self.settle()?;
        match self.kind {
            Kind::F64 => {}
            Kind::Any => self.out.push(tag::F64),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
        Ok(())
    }

    #[inline(never)]
    fn boolean(&mut self, value: bool) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Bool => self.out.push(value.into()),
            Kind::Any => self.out.push(if value { tag::TRUE } else { tag::FALSE }),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(never)]
    fn bytes(&mut self, value: &[u8]) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Bytes16 if value.len() == 16 => {}
            Kind::Bytes => varint(self.out, value.len() as u64),
            Kind::Any if value.len() == 16 => self.out.push(tag::BYTES16),
            Kind::Any => {
                self.out.push(tag::BYTES);
                varint(self.out, value.len() as u64);
            }
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value);
        Ok(())
    }

    #[inline(never)]
    fn text(&mut self, value: &str) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Text => varint(self.out, value.len() as u64),
            Kind::Any if value.len() < tag::SHORT.into() => {
                self.out.push(tag::TEXT + value.len() as u8);
            }
            Kind::Any => {
                self.out.push(tag::LONG_TEXT);
                varint(self.out, value.len() as u64);
            }
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    /// Writes the text of a `Display`, and its length when that is known.
    fn displayed(&mut self, value: &dyn fmt::Display) -> Result {
        struct Text<'o>(&'o mut Vec<u8>);
        impl fmt::Write for Text<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        self.settle()?;
        if !matches!(self.kind, Kind::Text) {
            return self.text(&value.to_string());
        }
        let start = self.out.len();
        self.out.push(0);
        write!(Text(self.out), "{value}")
            .map_err(|_| <Error as ser::Error>::custom("its `Display` fails"))?;
        let len = self.out.len() - start - 1;
        replace_varint(self.out, start, 0, len as u64);
        Ok(())
    }

    /// The header of a sequence or tuple. `is_fixed`: its type has always this length.
    #[inline(never)]
    fn sequence(&mut self, len: usize, is_fixed: bool) -> Result<(Elements<'c>, bool)> {
        self.settle()?;
        let element = match self.kind {
            Kind::Array(own, element) if is_fixed && *own as usize == len => {
                return Ok((Elements::Same(element), false));
            }
            Kind::Tuple(list) if is_fixed => {
                let fields = &self.catalog.list(*list)?.fields;
                return if fields.len() == len {
                    Ok((Elements::Each(fields.iter()), false))
                } else {
                    Err(unrecorded())
                };
            }
            Kind::Seq(element) => element,
            Kind::Any => {
                self.out.push(tag::SEQ);
                self.kind
            }
            _ => return Err(unrecorded()),
        };
        varint(self.out, len as u64);
        Ok((Elements::Same(element), true))
    }

    #[inline]
    fn variant(
        &mut self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        form: Form,
        fits: impl Fn(&Variant) -> bool,
    ) -> Result<&'c Kind> {
        // Without skipped variants the entries often have the order of the type.
        if let Kind::Enum(number) = *self.kind
            && let Some(found) = self.catalog.enums.get(number as usize)
            && let Some(entry) = found.variants.get(index as usize)
            && entry.form == form
            && entry.current
            && self.stored.is_none()
            && entry.name.is(variant)
            && fits(entry)
        {
            varint(self.out, index.into());
            return Ok(&entry.payload);
        }
        self.any_variant(name, variant, form, &fits)
    }

    #[inline(never)]
    fn any_variant(
        &mut self,
        name: &'static str,
        variant: &'static str,
        form: Form,
        fits: &dyn Fn(&Variant) -> bool,
    ) -> Result<&'c Kind> {
        self.settle()?;
        let number = match self.kind {
            Kind::Enum(number) => *number,
            Kind::Any => {
                let number = self.catalog.enum_named(name).ok_or_else(unrecorded)?;
                self.out.push(tag::ENUM);
                varint(self.out, number.into());
                number
            }
            _ => return Err(unrecorded()),
        };
        let entries = &self.catalog.enumeration(number)?.variants;
        let is_right = |it: &Variant| it.form == form && it.name.is(variant) && fits(it);
        let position = match self.stored {
            None => {
                entries.iter().position(|it| it.current && is_right(it)).ok_or_else(unrecorded)?
            }
            Some(_) => self.stored_number()? as usize,
        };
        let entry = entries.get(position).filter(|it| is_right(it)).ok_or_else(unrecorded)?;
        varint(self.out, position as u64);
        Ok(&entry.payload)
    }

    /// Returns the names of the next struct, if there is a guide.
    fn guided(&mut self) -> Result<Option<&'c Names>> {
        match &mut self.guide {
            None => Ok(None),
            Some(guide) => guide.next().map(Some).ok_or_else(unrecorded),
        }
    }

    /// Finds the list of a struct at a place that has several, or with a guide.
    #[inline(never)]
    fn choose(&mut self, name: &'static str, len: usize) -> Result<Place<'c>> {
        let names = self.guided()?;
        while let Kind::Option(kind) = self.kind {
            self.out.push(1);
            self.kind = kind;
        }
        let number = match self.kind {
            Kind::Struct(list) => {
                return Ok(Place { union: None, start: 0, at: 0, list: self.catalog.list(*list)? });
            }
            Kind::Union(number) => *number,
            Kind::Any => {
                self.out.push(tag::STRUCT);
                LOOSE
            }
            _ => return Err(unrecorded()),
        };
        let union = self.catalog.union(number)?;
        if self.stored.is_some() {
            let at = self.stored_number()?;
            let list = self.catalog.list_in(union, at).ok_or_else(unrecorded)?;
            varint(self.out, at.into());
            return Ok(Place { union: None, start: 0, at, list });
        }
        let lists =
            || union.current.iter().filter_map(|at| Some((*at, self.catalog.list_in(union, *at)?)));
        let fits =
            |list: &List| names.map_or(list.fields.len() == len, |names| list.has_names(names));
        // Without a guide this is a guess: neither the struct's name nor its number of fields is unique.
        let by_name = lists().find(|(_, list)| fits(list) && list.name.is(name));
        let any = || if names.is_none() { lists().next_back() } else { None };
        let found = by_name.or_else(|| lists().find(|(_, list)| fits(list))).or_else(any);
        let (at, list) = found.ok_or_else(unrecorded)?;
        let start = self.out.len();
        varint(self.out, at.into());
        Ok(Place { union: Some(union), start, at, list })
    }
}

macro_rules! integers {
    ($($method:ident($type:ty) $wide:ident;)+) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result {
            self.$wide(value.into())
        }
    )+};
}

impl<'a, 'c, 'o> ser::Serializer for &'a mut Writer<'c, 'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Seq<'a, 'c, 'o>;
    type SerializeTuple = Seq<'a, 'c, 'o>;
    type SerializeTupleStruct = Seq<'a, 'c, 'o>;
    type SerializeTupleVariant = Seq<'a, 'c, 'o>;
    type SerializeMap = Map<'a, 'c, 'o>;
    type SerializeStruct = Struct<'a, 'c, 'o>;
    type SerializeStructVariant = Struct<'a, 'c, 'o>;

    integers! {
        serialize_u16(u16) serialize_u64;
        serialize_u32(u32) serialize_u64;
        serialize_i16(i16) serialize_i64;
        serialize_i32(i32) serialize_i64;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> Result {
        if let Kind::U8 = self.kind {
            self.out.push(value);
            return Ok(());
        }
        self.unsigned(value.into())
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result {
        if let Kind::Unsigned = self.kind {
            varint(self.out, value);
            return Ok(());
        }
        self.unsigned(value)
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result {
        if let Kind::Signed = self.kind {
            varint(self.out, zigzag(value));
            return Ok(());
        }
        self.signed(value)
    }

    fn serialize_u128(self, value: u128) -> Result {
        self.unsigned128(value)
    }

    fn serialize_i128(self, value: i128) -> Result {
        self.signed128(value)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result {
        if let Kind::F32 = self.kind {
            self.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.narrow_float(value)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result {
        if let Kind::F64 = self.kind {
            self.out.extend_from_slice(&value.to_bits().to_le_bytes());
            return Ok(());
        }
        self.wide_float(value)
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result {
        if let Kind::Bool = self.kind {
            self.out.push(value.into());
            return Ok(());
        }
        self.boolean(value)
    }

    fn serialize_char(self, value: char) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Char => {}
            Kind::Any => self.out.push(tag::CHAR),
            _ => return Err(unrecorded()),
        }
        self.out.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result {
        if let Kind::Text = self.kind {
            varint(self.out, value.len() as u64);
            self.out.extend_from_slice(value.as_bytes());
            return Ok(());
        }
        self.text(value)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result {
        self.displayed(&value)
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result {
        if let (Kind::Bytes16, Ok(value)) = (self.kind, <&[u8; 16]>::try_from(value)) {
            self.out.extend_from_slice(value);
            return Ok(());
        }
        self.bytes(value)
    }

    #[inline]
    fn serialize_none(self) -> Result {
        loop {
            match self.kind {
                Kind::Option(_) => self.out.push(0),
                Kind::Any => self.out.push(tag::NONE),
                Kind::Union(union) => {
                    self.choose_other(*union)?;
                    continue;
                }
                _ => return Err(unrecorded()),
            }
            return Ok(());
        }
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        self.some(|writer| value.serialize(writer))
    }

    fn serialize_unit(self) -> Result {
        self.settle()?;
        match self.kind {
            Kind::Unit => {}
            Kind::Any => self.out.push(tag::UNIT),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result {
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result {
        self.variant(name, index, variant, Form::Unit, |_| true).map(drop)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.enter()?;
        self.kind = self.variant(name, index, variant, Form::Newtype, |_| true)?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Seq<'a, 'c, 'o>> {
        self.enter()?;
        let len = len.unwrap_or(0);
        if let Kind::Seq(kind) = self.kind {
            let start = self.out.len();
            varint(self.out, len as u64);
            return Ok(Seq {
                writer: self,
                elements: Elements::Same(kind),
                start: Some(start),
                len,
                count: 0,
            });
        }
        let (elements, is_counted) = self.sequence(len, false)?;
        let start = self.out.len() - varint_len(len as u64);
        Ok(Seq { writer: self, elements, start: is_counted.then_some(start), len, count: 0 })
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Seq<'a, 'c, 'o>> {
        self.enter()?;
        if let Kind::Array(own, kind) = self.kind
            && *own as usize == len
        {
            return Ok(Seq {
                writer: self,
                elements: Elements::Same(kind),
                start: None,
                len,
                count: 0,
            });
        }
        let (elements, is_counted) = self.sequence(len, true)?;
        let start = is_counted.then(|| self.out.len() - varint_len(len as u64));
        Ok(Seq { writer: self, elements, start, len, count: 0 })
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Seq<'a, 'c, 'o>> {
        self.serialize_tuple(len)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Seq<'a, 'c, 'o>> {
        let catalog = self.catalog;
        self.kind = self.variant(name, index, variant, Form::Tuple, |it| match it.payload {
            Kind::Tuple(list) => catalog.list(list).is_ok_and(|list| list.fields.len() == len),
            _ => false,
        })?;
        self.serialize_tuple(len)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Map<'a, 'c, 'o>> {
        self.enter()?;
        self.settle()?;
        let (key, value) = match self.kind {
            Kind::Map(kinds) => (&kinds.0, &kinds.1),
            Kind::Any => {
                self.out.push(tag::MAP);
                (self.kind, self.kind)
            }
            _ => return Err(unrecorded()),
        };
        let (start, len) = (self.out.len(), len.unwrap_or(0));
        varint(self.out, len as u64);
        Ok(Map { writer: self, key, value, start, len, count: 0 })
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Struct<'a, 'c, 'o>> {
        self.enter()?;
        let place = match (self.kind, &self.guide) {
            (Kind::Struct(list), None) => {
                Place { union: None, start: 0, at: 0, list: self.catalog.list(*list)? }
            }
            _ => self.choose(name, len)?,
        };
        Ok(Struct { writer: self, fields: place.list.fields.iter(), place })
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Struct<'a, 'c, 'o>> {
        self.enter()?;
        let (names, catalog) = (self.guided()?, self.catalog);
        let list = |kind: &Kind| match kind {
            Kind::Struct(list) => catalog.list(*list).ok(),
            _ => None,
        };
        // Without a guide, `len` does not count skipped fields; then a wrong guess ends with `Unrecorded`, and `learn`.
        let fits = |list: &List| {
            names.map_or(list.absent || list.fields.len() == len, |names| list.has_names(names))
        };
        let kind = self.variant(name, index, variant, Form::Struct, |it| {
            list(&it.payload).is_some_and(fits)
        })?;
        let list = list(kind).ok_or_else(unrecorded)?;
        Ok(Struct {
            writer: self,
            fields: list.fields.iter(),
            place: Place { union: None, start: 0, at: 0, list },
        })
    }
}

enum Elements<'c> {
    Same(&'c Kind),
    Each(std::slice::Iter<'c, Field>),
}

struct Seq<'a, 'c, 'o> {
    writer: &'a mut Writer<'c, 'o>,
    elements: Elements<'c>,
    /// The position of the length, if it is written.
    start: Option<usize>,
    len: usize,
    count: usize,
}

impl Seq<'_, '_, '_> {
    #[inline]
    fn begin(&mut self) -> Result {
        self.writer.kind = match &mut self.elements {
            Elements::Same(kind) => kind,
            Elements::Each(fields) => &fields.next().ok_or_else(unrecorded)?.kind,
        };
        self.count += 1;
        Ok(())
    }

    #[inline]
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.begin()?;
        value.serialize(&mut *self.writer)
    }

    #[inline]
    fn finish(self) -> Result {
        self.writer.depth -= 1;
        if self.count == self.len { Ok(()) } else { self.correct() }
    }

    /// The length was unknown, or wrong.
    #[cold]
    fn correct(self) -> Result {
        let start = self.start.ok_or_else(unrecorded)?;
        replace_varint(self.writer.out, start, self.len as u64, self.count as u64);
        Ok(())
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident;)+) => {$(
        impl ser::$trait for Seq<'_, '_, '_> {
            type Ok = ();
            type Error = Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.add(value)
            }

            #[inline]
            fn end(self) -> Result {
                self.finish()
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

struct Map<'a, 'c, 'o> {
    writer: &'a mut Writer<'c, 'o>,
    key: &'c Kind,
    value: &'c Kind,
    /// The position of the length.
    start: usize,
    len: usize,
    count: usize,
}

impl Map<'_, '_, '_> {
    #[inline]
    fn begin_value(&mut self) {
        self.writer.kind = self.value;
    }
}

impl ser::SerializeMap for Map<'_, '_, '_> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        self.count += 1;
        self.writer.kind = self.key;
        key.serialize(&mut *self.writer)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.begin_value();
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result {
        self.writer.depth -= 1;
        if self.count != self.len {
            replace_varint(self.writer.out, self.start, self.len as u64, self.count as u64);
        }
        Ok(())
    }
}

/// The list that was chosen for a struct.
#[derive(Clone, Copy)]
struct Place<'c> {
    /// `None` if there was no choice.
    union: Option<&'c Union>,
    /// The position of the alternative's number.
    start: usize,
    at: u32,
    list: &'c List,
}

struct Struct<'a, 'c, 'o> {
    writer: &'a mut Writer<'c, 'o>,
    fields: std::slice::Iter<'c, Field>,
    place: Place<'c>,
}

impl<'c> Struct<'_, 'c, '_> {
    #[inline(always)]
    fn field(&mut self, name: &'static str) -> Result<&'c Field> {
        match self.fields.next() {
            Some(field) if field.name.is(name) => Ok(field),
            other => self.field_elsewhere(other.is_some(), name),
        }
    }

    #[cold]
    #[inline(never)]
    fn field_elsewhere(&mut self, is_taken: bool, name: &'static str) -> Result<&'c Field> {
        self.switch(self.fields.len() + usize::from(is_taken), Some(name))?;
        self.fields.next().ok_or_else(unrecorded)
    }

    /// The next name, or the end, is not that of the list: finds a struct of the union under which the fields so far have
    /// the same bytes.
    #[cold]
    #[inline(never)]
    fn switch(&mut self, left: usize, name: Option<&'static str>) -> Result {
        let Place { union, start, at, list } = self.place;
        let union = union.filter(|_| self.writer.guide.is_none()).ok_or_else(unrecorded)?;
        let done = list.fields.len() - left;
        let fits = |other: &List| {
            let next = other.fields.get(done);
            let has_next =
                name.map_or(next.is_none(), |name| next.is_some_and(|field| field.name.is(name)));
            has_next && other.fields.get(..done) == list.fields.get(..done)
        };
        let catalog = self.writer.catalog;
        let mut lists =
            union.current.iter().filter_map(|at| Some((*at, catalog.list_in(union, *at)?)));
        let (new, list) = lists.find(|(_, list)| fits(list)).ok_or_else(unrecorded)?;
        replace_varint(self.writer.out, start, at.into(), new.into());
        self.place = Place { union: Some(union), start, at: new, list };
        self.fields = list.fields.get(done..).ok_or_else(unrecorded)?.iter();
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, name: &'static str) -> Result {
        self.writer.kind = &self.field(name)?.kind;
        Ok(())
    }

    #[inline(always)]
    fn add<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
        self.begin(name)?;
        value.serialize(&mut *self.writer)
    }

    fn skip(&mut self, name: &'static str) -> Result {
        let field = self.field(name)?;
        match field.kind {
            Kind::Option(_) if field.absent => self.writer.out.push(2),
            Kind::Any if field.absent => self.writer.out.push(tag::ABSENT),
            _ => return Err(unrecorded()),
        }
        Ok(())
    }

    #[inline(always)]
    fn finish(mut self) -> Result {
        self.writer.depth -= 1;
        if self.fields.len() == 0 { Ok(()) } else { self.switch(self.fields.len(), None) }
    }
}

macro_rules! fields {
    ($($trait:ident;)+) => {$(
        impl ser::$trait for Struct<'_, '_, '_> {
            type Ok = ();
            type Error = Error;

            #[inline(always)]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
                self.add(name, value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result {
                self.skip(name)
            }

            #[inline(always)]
            fn end(self) -> Result {
                self.finish()
            }
        }
    )+};
}

fields! {
    SerializeStruct;
    SerializeStructVariant;
}
