//! Decoding: fast paths for the kind that a type expects, and one parser of all kinds for everything else.
//!
//! A struct is read by position if the list has its fields in its order, and otherwise by names. `FIELDS` decides which,
//! and each read by position is checked, because `FIELDS` may hold aliases and is shared by types with the same literals.

mod access;
mod fields;

use serde::de::{self, IntoDeserializer, Visitor};

use self::access::{Elements, ListAccess, One, Pairs, Payload};
pub use self::fields::Fields;
use crate::{
    MAX_DEPTH,
    bytes::{float_of_signed, float_of_unsigned, narrow, take_varint, unzigzag, widen},
    catalog::{Catalog, LOOSE, ROOT},
    error::{Error, Reason, Result, damaged, unrecorded},
    kind::{Field, Form, Kind, List, Variant},
    tag,
};

/// The reader counts at most two containers where the writer counts one.
const MAX_READ_DEPTH: usize = 2 * MAX_DEPTH;

static ROOT_KIND: Kind = Kind::Union(ROOT);

/// Reads a value in a row: a [`Deserializer`](de::Deserializer).
pub struct Reader<'de, 'c> {
    rest: &'de [u8],
    /// The kind of the next value.
    kind: &'c Kind,
    catalog: &'c Catalog,
    depth: usize,
    /// Whether structs are read by names only, and what is left unread is noted.
    by_names: bool,
    /// Whether a struct was read by position that must be read by names.
    misplaced: bool,
    /// The struct that could not be read by position.
    suspect: Option<(&'c List, &'static [&'static str])>,
    /// The first field or variant that was not read.
    lost: Option<String>,
}

/// A value of any kind without its tag.
#[derive(Clone, Copy)]
enum Value<'de, 'c> {
    Kind(&'c Kind),
    Unsigned(u64),
    Text(&'de str),
    Bool(bool),
    None,
    /// A value with a tag follows.
    Some,
    Seq,
    Map,
}

/// A value that is not an option.
enum Scalar<'de> {
    Unsigned(u64),
    Signed(i64),
    U128(u128),
    I128(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    Char(char),
    Text(&'de str),
    Bytes(&'de [u8]),
    Unit,
}

impl<'de, 'c> Reader<'de, 'c> {
    #[inline]
    pub(crate) fn new(catalog: &'c Catalog, row: &'de [u8]) -> Self {
        let mut reader = Self {
            rest: row,
            kind: &ROOT_KIND,
            catalog,
            depth: 0,
            by_names: false,
            misplaced: false,
            suspect: None,
            lost: None,
        };
        // Nearly every row has a number of one byte.
        if let [at @ ..0x80, rest @ ..] = row
            && let Some(root) = catalog.unions.first()
            && let Some(kind) = root.kinds.get(usize::from(*at))
        {
            reader.kind = kind;
            reader.rest = rest;
        }
        reader
    }

    pub(crate) fn by_names(catalog: &'c Catalog, row: &'de [u8]) -> Self {
        Self { by_names: true, ..Self::new(catalog, row) }
    }

    /// Whether the value was read from all bytes.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_empty() && !self.misplaced
    }

    pub(crate) fn is_misplaced(&self) -> bool {
        self.misplaced
    }

    /// Notes that the struct that could not be read by position has been read by names.
    pub(crate) fn confirm(self) {
        if let Some((list, names)) = self.suspect {
            list.set_by_names(names);
        }
    }

    pub(crate) fn into_lost(self) -> Option<String> {
        self.lost
    }

    /// Notes a field or a variant that is not read.
    #[cold]
    fn lose(&mut self, name: &str) {
        self.lost.get_or_insert_with(|| name.to_owned());
    }

    /// Whether this row lacks the field. Then the reader is behind it.
    #[inline]
    fn passes_absent(&mut self, field: &Field) -> bool {
        if !field.absent {
            return false;
        }
        match (&field.kind, self.rest) {
            (Kind::Option(_), [2, rest @ ..]) | (Kind::Any, [tag::ABSENT, rest @ ..]) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'de [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64> {
        match *self.rest {
            [a @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(a.into())
            }
            [a, b @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(a & 0x7f) | u64::from(b) << 7)
            }
            [a, b, c @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(a & 0x7f) | u64::from(b & 0x7f) << 7 | u64::from(c) << 14)
            }
            _ => take_varint(&mut self.rest).ok_or_else(damaged),
        }
    }

    /// A number in the catalog.
    #[inline]
    fn number(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| damaged())
    }

    #[inline]
    fn len(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| damaged())
    }

    /// The number of elements. Each takes at least one byte, so damage leads neither to a long loop nor to a large
    /// allocation.
    #[inline]
    fn count(&mut self) -> Result<usize> {
        let count = self.len()?;
        if count <= self.rest.len() { Ok(count) } else { Err(damaged()) }
    }

    #[inline]
    fn text(&mut self, len: usize) -> Result<&'de str> {
        std::str::from_utf8(self.take(len)?).map_err(|_| damaged())
    }

    fn character(&mut self) -> Result<char> {
        let len = self.rest.first().ok_or_else(damaged)?.leading_ones().max(1);
        self.text(len as usize)?.chars().next().ok_or_else(damaged)
    }

    #[inline]
    fn entry(&mut self, number: u32) -> Result<&'c Variant> {
        let at = self.number()?;
        self.catalog.enumeration(number)?.variants.get(at as usize).ok_or_else(unrecorded)
    }

    #[inline]
    fn alternative(&mut self, union: u32) -> Result {
        let at = self.number()?;
        self.kind = self.catalog.union(union)?.kinds.get(at as usize).ok_or_else(unrecorded)?;
        Ok(())
    }

    #[inline]
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_READ_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Reads the number of an alternative, and the tag.
    #[inline]
    fn next(&mut self) -> Result<Value<'de, 'c>> {
        while let Kind::Union(union) = *self.kind {
            self.alternative(union)?;
        }
        if let Kind::Any = self.kind { self.tagged() } else { Ok(Value::Kind(self.kind)) }
    }

    #[inline(never)]
    fn tagged(&mut self) -> Result<Value<'de, 'c>> {
        macro_rules! kinds {
            ($tag:expr, $($name:ident => $kind:ident,)+) => {
                match $tag {
                    $(tag::$name => &Kind::$kind,)+
                    _ => return Err(damaged()),
                }
            };
        }
        let kind = match self.byte()? {
            small @ ..tag::TEXT => return Ok(Value::Unsigned(small.into())),
            short @ tag::TEXT..tag::UNSIGNED => {
                return Ok(Value::Text(self.text((short - tag::TEXT).into())?));
            }
            tag::FALSE => return Ok(Value::Bool(false)),
            tag::TRUE => return Ok(Value::Bool(true)),
            tag::NONE => return Ok(Value::None),
            tag::SOME => return Ok(Value::Some),
            tag::SEQ => return Ok(Value::Seq),
            tag::MAP => return Ok(Value::Map),
            tag::STRUCT => {
                self.alternative(LOOSE)?;
                match self.kind {
                    Kind::Struct(_) => self.kind,
                    _ => return Err(damaged()),
                }
            }
            tag::ENUM => {
                let number = self.number()?;
                &self.catalog.enumeration(number)?.kind
            }
            tag => kinds! {
                tag,
                UNSIGNED => Unsigned,
                SIGNED => Signed,
                U128 => U128,
                I128 => I128,
                F32 => F32,
                F64 => F64,
                CHAR => Char,
                LONG_TEXT => Text,
                BYTES => Bytes,
                BYTES16 => Bytes16,
                UNIT => Unit,
            },
        };
        self.kind = kind;
        Ok(Value::Kind(kind))
    }

    /// Passes options to the value. `None` if there is no value.
    fn present(&mut self) -> Result<Option<Value<'de, 'c>>> {
        loop {
            match self.next()? {
                Value::None => return Ok(None),
                Value::Some => self.kind = &tag::ANY,
                Value::Kind(Kind::Option(kind)) => match self.byte()? {
                    0 => return Ok(None),
                    1 => self.kind = kind,
                    _ => return Err(damaged()),
                },
                value => return Ok(Some(value)),
            }
        }
    }

    /// A value for a type that is not an option.
    #[cold]
    #[inline(never)]
    fn typed<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// A value for a type that takes any.
    #[cold]
    #[inline(never)]
    fn any<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.next()? {
            Value::None => visitor.visit_none(),
            Value::Some => {
                self.kind = &tag::ANY;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            Value::Kind(Kind::Option(kind)) => {
                match self.byte()? {
                    0 => return visitor.visit_none(),
                    1 => self.kind = kind,
                    _ => return Err(damaged()),
                }
                // `Some` is left out, except in front of what looks like `None`.
                match self.kind {
                    Kind::Option(_) | Kind::Unit => {
                        self.deeper(|reader| visitor.visit_some(reader))
                    }
                    _ => self.deeper(|reader| reader.any(visitor)),
                }
            }
            value => self.value(value, visitor),
        }
    }

    fn value<V: Visitor<'de>>(&mut self, value: Value<'de, 'c>, visitor: V) -> Result<V::Value> {
        match value {
            Value::Unsigned(value) => visitor.visit_u64(value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::None | Value::Some => Err(damaged()),
            Value::Seq => {
                let count = self.count()?;
                self.seq(count, &tag::ANY, visitor)
            }
            Value::Map => self.map(&tag::ANY, &tag::ANY, visitor),
            Value::Kind(kind) => match kind {
                Kind::Seq(element) => {
                    let count = self.count()?;
                    self.seq(count, element, visitor)
                }
                Kind::Array(len, element) => self.elements(*len, element, visitor),
                Kind::Tuple(list) => {
                    let list = self.catalog.list(*list)?;
                    self.tuple(list, visitor)
                }
                Kind::Map(kinds) => self.map(&kinds.0, &kinds.1, visitor),
                Kind::Struct(list) => {
                    let list = self.catalog.list(*list)?;
                    self.fields(list, visitor)
                }
                Kind::Enum(number) => {
                    let entry = self.entry(*number)?;
                    match entry.form {
                        Form::Unit => visitor.visit_str(entry.name.text()),
                        _ => self.deeper(|reader| {
                            visitor.visit_map(One(Some(Payload { reader, entry })))
                        }),
                    }
                }
                kind => match self.scalar(kind)? {
                    Scalar::Unsigned(value) => visitor.visit_u64(value),
                    Scalar::Signed(value) => visitor.visit_i64(value),
                    Scalar::U128(value) => visitor.visit_u128(value),
                    Scalar::I128(value) => visitor.visit_i128(value),
                    Scalar::F32(value) => visitor.visit_f32(value),
                    Scalar::F64(value) => visitor.visit_f64(value),
                    Scalar::Bool(value) => visitor.visit_bool(value),
                    Scalar::Char(value) => visitor.visit_char(value),
                    Scalar::Text(value) => visitor.visit_borrowed_str(value),
                    Scalar::Bytes(value) => visitor.visit_borrowed_bytes(value),
                    Scalar::Unit => visitor.visit_unit(),
                },
            },
        }
    }

    /// Reads a value without parts.
    #[inline(never)]
    fn scalar(&mut self, kind: &Kind) -> Result<Scalar<'de>> {
        Ok(match kind {
            Kind::U8 => Scalar::Unsigned(self.byte()?.into()),
            Kind::I8 => Scalar::Signed((self.byte()?.cast_signed()).into()),
            Kind::Unsigned => Scalar::Unsigned(self.varint()?),
            Kind::Signed => Scalar::Signed(unzigzag(self.varint()?)),
            Kind::U128 => Scalar::U128(u128::from_le_bytes(self.array()?)),
            Kind::I128 => Scalar::I128(i128::from_le_bytes(self.array()?)),
            Kind::F32 => Scalar::F32(f32::from_le_bytes(self.array()?)),
            Kind::F64 => Scalar::F64(f64::from_le_bytes(self.array()?)),
            Kind::Bool => match self.byte()? {
                value @ 0..=1 => Scalar::Bool(value == 1),
                _ => return Err(damaged()),
            },
            Kind::Char => Scalar::Char(self.character()?),
            Kind::Text => {
                let len = self.len()?;
                Scalar::Text(self.text(len)?)
            }
            Kind::Bytes => {
                let len = self.len()?;
                Scalar::Bytes(self.take(len)?)
            }
            Kind::Bytes16 => Scalar::Bytes(self.take(16)?),
            Kind::Unit => Scalar::Unit,
            // The hole has been filled in a later version.
            Kind::Hole => return Err(unrecorded()),
            _ => return Err(damaged()),
        })
    }

    /// Reads a value without parts for a type that is not an option. `None` if it has parts.
    #[cold]
    #[inline(never)]
    fn plain(&mut self) -> Result<Option<Scalar<'de>>> {
        Ok(Some(match self.present()? {
            Some(Value::Unsigned(value)) => Scalar::Unsigned(value),
            Some(Value::Text(text)) => Scalar::Text(text),
            Some(Value::Bool(value)) => Scalar::Bool(value),
            Some(
                Value::Kind(
                    Kind::Seq(_)
                    | Kind::Array(..)
                    | Kind::Tuple(_)
                    | Kind::Map(_)
                    | Kind::Struct(_)
                    | Kind::Enum(_),
                )
                | Value::None
                | Value::Some
                | Value::Seq
                | Value::Map,
            )
            | None => return Ok(None),
            Some(Value::Kind(kind)) => self.scalar(kind)?,
        }))
    }

    /// A number for an integer type: as `u64` or `i64` if it fits.
    #[cold]
    #[inline(never)]
    fn integer<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.plain()? {
            Some(Scalar::Unsigned(value)) => visitor.visit_u64(value),
            Some(Scalar::Signed(value)) => visitor.visit_i64(value),
            Some(Scalar::U128(value)) => match u64::try_from(value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_u128(value),
            },
            Some(Scalar::I128(value)) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => visitor.visit_i128(value),
            },
            other => Err(unexpected(other.as_ref(), "an integer")),
        }
    }

    /// A number for a float type, if it is exact.
    #[cold]
    #[inline(never)]
    fn float<V: Visitor<'de>>(&mut self, is_narrow: bool, visitor: V) -> Result<V::Value> {
        let value = match self.plain()? {
            Some(Scalar::F32(value)) if is_narrow => return visitor.visit_f32(value),
            Some(Scalar::F32(value)) => widen(value),
            Some(Scalar::F64(value)) => value,
            Some(Scalar::Unsigned(value)) => float_of_unsigned(value).ok_or_else(inexact)?,
            Some(Scalar::Signed(value)) => float_of_signed(value).ok_or_else(inexact)?,
            other => return Err(unexpected(other.as_ref(), "a number")),
        };
        if is_narrow {
            visitor.visit_f32(narrow(value).ok_or_else(inexact)?)
        } else {
            visitor.visit_f64(value)
        }
    }

    /// A text for a type that is one: bytes that happen to be UTF-8 are none.
    #[cold]
    #[inline(never)]
    fn only_text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Text(text)) => visitor.visit_borrowed_str(text),
            Some(Value::Kind(kind @ (Kind::Text | Kind::Char))) => match self.scalar(kind)? {
                Scalar::Text(text) => visitor.visit_borrowed_str(text),
                Scalar::Char(value) => visitor.visit_char(value),
                other => Err(unexpected(Some(&other), "a text")),
            },
            // The name of a variant without payload.
            Some(Value::Kind(Kind::Enum(number))) => {
                let entry = self.entry(*number)?;
                match entry.form {
                    Form::Unit => visitor.visit_str(entry.name.text()),
                    _ => Err(unexpected(None, "a text")),
                }
            }
            Some(Value::Kind(kind @ (Kind::Bytes | Kind::Bytes16))) => {
                let value = self.scalar(kind)?;
                Err(unexpected(Some(&value), "a text"))
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// Bytes for a type that is bytes: a text is none, a sequence of numbers is. One of bytes has the form of bytes, and can
    /// be borrowed.
    #[cold]
    #[inline(never)]
    fn only_bytes<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Text(text)) => Err(unexpected(Some(&Scalar::Text(text)), "bytes")),
            Some(Value::Kind(kind @ (Kind::Text | Kind::Char))) => {
                let value = self.scalar(kind)?;
                Err(unexpected(Some(&value), "bytes"))
            }
            Some(Value::Kind(Kind::Seq(kind))) if matches!(**kind, Kind::U8) => {
                let len = self.len()?;
                visitor.visit_borrowed_bytes(self.take(len)?)
            }
            Some(Value::Kind(Kind::Array(len, kind))) if matches!(**kind, Kind::U8) => {
                visitor.visit_borrowed_bytes(self.take(*len as usize)?)
            }
            // The sequence was always empty.
            Some(Value::Kind(Kind::Seq(kind))) if matches!(**kind, Kind::Hole) => {
                match self.len()? {
                    0 => visitor.visit_borrowed_bytes(&[]),
                    _ => Err(unrecorded()),
                }
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    /// Elements for a type that is a sequence.
    #[cold]
    #[inline(never)]
    fn any_seq<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.present()? {
            Some(Value::Kind(kind @ (Kind::Bytes | Kind::Bytes16))) => {
                let len = if let Kind::Bytes = kind { self.len()? } else { 16 };
                if len > self.rest.len() {
                    return Err(damaged());
                }
                self.seq(len, &Kind::U8, visitor)
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    #[inline]
    fn seq<V: Visitor<'de>>(
        &mut self,
        count: usize,
        kind: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut elements = Elements { reader, kind, left: count };
            let value = visitor.visit_seq(&mut elements)?;
            // What a shorter tuple leaves would be lost when the row is written again.
            if elements.left == 0 { Ok(value) } else { Err(left_over(elements.left)) }
        })
    }

    /// The elements of an array. Each takes at least one byte.
    #[inline]
    fn elements<V: Visitor<'de>>(
        &mut self,
        len: u32,
        kind: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        let len = len as usize;
        if len <= self.rest.len() { self.seq(len, kind, visitor) } else { Err(damaged()) }
    }

    fn tuple<V: Visitor<'de>>(&mut self, list: &'c List, visitor: V) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let value = visitor.visit_seq(&mut fields)?;
            match fields.left() {
                0 => Ok(value),
                left => Err(left_over(left)),
            }
        })
    }

    fn map<V: Visitor<'de>>(
        &mut self,
        key: &'c Kind,
        value: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        let count = self.count()?;
        self.deeper(|reader| {
            let mut pairs = Pairs { reader, key, value, left: count };
            let value = visitor.visit_map(&mut pairs)?;
            if pairs.left == 0 { Ok(value) } else { Err(left_over(pairs.left)) }
        })
    }

    #[inline]
    fn structure<V: Visitor<'de>>(
        &mut self,
        list: u32,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let list = self.catalog.list(list)?;
        if self.by_names || !list.has_positions(names) {
            return self.fields(list, visitor);
        }
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let result = visitor.visit_seq(&mut fields);
            if fields.is_asked_for(names.len()) && result.is_ok() {
                result
            } else {
                fields.misplace(names, result)
            }
        })
    }

    /// Reads a struct by names.
    #[inline(never)]
    fn fields<V: Visitor<'de>>(&mut self, list: &'c List, visitor: V) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let value = visitor.visit_map(&mut fields)?;
            fields.skip_rest()?;
            Ok(value)
        })
    }

    fn skip_as(&mut self, kind: &'c Kind) -> Result {
        self.kind = kind;
        self.skip()
    }

    /// Skips a value.
    #[inline(never)]
    fn skip(&mut self) -> Result {
        match self.kind {
            Kind::Text | Kind::Bytes => {
                let len = self.len()?;
                return self.take(len).map(drop);
            }
            Kind::Unsigned | Kind::Signed => return self.varint().map(drop),
            Kind::Bytes16 => return self.take(16).map(drop),
            _ => {}
        }
        let Some(value) = self.present()? else { return Ok(()) };
        match value {
            Value::Kind(Kind::Seq(kind)) => {
                let count = self.count()?;
                self.skip_elements(count, kind)
            }
            Value::Seq => {
                let count = self.count()?;
                self.skip_elements(count, &tag::ANY)
            }
            Value::Kind(Kind::Array(len, kind)) => self.skip_elements(*len as usize, kind),
            Value::Kind(Kind::Map(kinds)) => self.skip_pairs(&kinds.0, &kinds.1),
            Value::Map => self.skip_pairs(&tag::ANY, &tag::ANY),
            Value::Kind(Kind::Struct(list) | Kind::Tuple(list)) => {
                let list = self.catalog.list(*list)?;
                self.deeper(|reader| ListAccess::new(reader, list).skip_rest())
            }
            Value::Kind(Kind::Enum(number)) => {
                let entry = self.entry(*number)?;
                self.deeper(|reader| reader.skip_as(&entry.payload))
            }
            Value::Kind(kind) => self.scalar(kind).map(drop),
            Value::Unsigned(_) | Value::Text(_) | Value::Bool(_) => Ok(()),
            Value::None | Value::Some => Err(damaged()),
        }
    }

    fn skip_elements(&mut self, count: usize, kind: &'c Kind) -> Result {
        self.deeper(|reader| (0..count).try_for_each(|_| reader.skip_as(kind)))
    }

    fn skip_pairs(&mut self, key: &'c Kind, value: &'c Kind) -> Result {
        let count = self.count()?;
        self.deeper(|reader| {
            (0..count).try_for_each(|_| {
                reader.skip_as(key)?;
                reader.skip_as(value)
            })
        })
    }
}

#[cold]
fn too_deep() -> Error {
    Reason::TooDeep.into()
}

#[cold]
fn inexact() -> Error {
    <Error as de::Error>::custom("the stored number is not exact in this type")
}

#[cold]
fn left_over(left: usize) -> Error {
    <Error as de::Error>::custom(format_args!("the type leaves {left} of the stored values unread"))
}

#[cold]
fn unexpected(value: Option<&Scalar<'_>>, expected: &str) -> Error {
    let found = match value {
        None => de::Unexpected::Other("a value with parts, or none"),
        Some(Scalar::Unsigned(value)) => de::Unexpected::Unsigned(*value),
        Some(Scalar::Signed(value)) => de::Unexpected::Signed(*value),
        Some(Scalar::U128(_)) => de::Unexpected::Other("a `u128`"),
        Some(Scalar::I128(_)) => de::Unexpected::Other("an `i128`"),
        Some(Scalar::F32(value)) => de::Unexpected::Float((*value).into()),
        Some(Scalar::F64(value)) => de::Unexpected::Float(*value),
        Some(Scalar::Bool(value)) => de::Unexpected::Bool(*value),
        Some(Scalar::Char(value)) => de::Unexpected::Char(*value),
        Some(Scalar::Text(value)) => de::Unexpected::Str(value),
        Some(Scalar::Bytes(value)) => de::Unexpected::Bytes(value),
        Some(Scalar::Unit) => de::Unexpected::Unit,
    };
    de::Error::invalid_type(found, &expected)
}

macro_rules! integers {
    ($($kind:ident: $($method:ident)+;)+) => {$($(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if let Kind::$kind = self.kind {
                let value = self.varint()?;
                return integers!(@visit $kind, visitor, value);
            }
            self.integer(visitor)
        }
    )+)+};
    (@visit Unsigned, $visitor:ident, $value:ident) => { $visitor.visit_u64($value) };
    (@visit Signed, $visitor:ident, $value:ident) => { $visitor.visit_i64(unzigzag($value)) };
}

macro_rules! typed {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.typed(visitor)
        }
    )+};
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de, '_> {
    type Error = Error;

    integers! {
        Unsigned: deserialize_u16 deserialize_u32 deserialize_u64;
        Signed: deserialize_i16 deserialize_i32 deserialize_i64;
    }

    typed! {
        deserialize_unit
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::U8 = self.kind {
            return visitor.visit_u8(self.byte()?);
        }
        self.integer(visitor)
    }

    #[inline]
    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::I8 = self.kind {
            return visitor.visit_i8(self.byte()?.cast_signed());
        }
        self.integer(visitor)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.integer(visitor)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.integer(visitor)
    }

    #[inline]
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::F32 = self.kind {
            return visitor.visit_f32(f32::from_le_bytes(self.array()?));
        }
        self.float(true, visitor)
    }

    #[inline]
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::F64 = self.kind {
            return visitor.visit_f64(f64::from_le_bytes(self.array()?));
        }
        self.float(false, visitor)
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let (Kind::Bool, &[value @ 0..=1, ref rest @ ..]) = (self.kind, self.rest) {
            self.rest = rest;
            return visitor.visit_bool(value == 1);
        }
        self.typed(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.only_text(visitor)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        // Short texts here, others elsewhere.
        if let (Kind::Text, &[len @ ..0x80, ref rest @ ..]) = (self.kind, self.rest)
            && let Some((text, rest)) = rest.split_at_checked(len.into())
            && let Ok(text) = std::str::from_utf8(text)
        {
            self.rest = rest;
            return visitor.visit_borrowed_str(text);
        }
        self.only_text(visitor)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Bytes16 = self.kind {
            return visitor.visit_borrowed_bytes(self.take(16)?);
        }
        self.only_bytes(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Option(kind) = self.kind {
            return match self.byte()? {
                0 => visitor.visit_none(),
                1 => {
                    self.kind = kind;
                    self.deeper(|reader| visitor.visit_some(reader))
                }
                _ => Err(damaged()),
            };
        }
        self.any_option(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        self.typed(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Seq(kind) = self.kind {
            let count = self.count()?;
            return self.seq(count, kind, visitor);
        }
        self.any_seq(visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        if let Kind::Array(len, kind) = self.kind {
            return self.elements(*len, kind, visitor);
        }
        self.any_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Kind::Map(kinds) = self.kind {
            return self.map(&kinds.0, &kinds.1, visitor);
        }
        self.typed(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        if let Kind::Struct(list) = *self.kind {
            return self.structure(list, names, visitor);
        }
        match self.present()? {
            Some(Value::Kind(Kind::Struct(list))) => self.structure(*list, names, visitor),
            // A struct is read by names, never from the elements of a sequence.
            Some(Value::Kind(Kind::Seq(_) | Kind::Array(..) | Kind::Tuple(_)) | Value::Seq) => {
                Err(unexpected(None, "a struct"))
            }
            Some(value) => self.value(value, visitor),
            None => visitor.visit_none(),
        }
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let number = match *self.kind {
            Kind::Enum(number) => number,
            _ => match self.present()? {
                Some(Value::Kind(Kind::Enum(number))) => *number,
                // The name of a variant, written by a type that was not an enum.
                Some(Value::Text(text)) => return visitor.visit_enum(text.into_deserializer()),
                Some(Value::Kind(Kind::Text)) => {
                    let len = self.len()?;
                    return visitor.visit_enum(self.text(len)?.into_deserializer());
                }
                Some(value) => return self.value(value, visitor),
                None => return visitor.visit_none(),
            },
        };
        let entry = self.entry(number)?;
        if self.by_names && !variants.contains(&entry.name.text()) {
            self.lose(entry.name.text());
        }
        self.deeper(|reader| visitor.visit_enum(Payload { reader, entry }))
    }

    #[inline]
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }
}

impl<'de> Reader<'de, '_> {
    /// A value for an option, at a place whose kind is none.
    #[inline(never)]
    fn any_option<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        while let Kind::Union(union) = *self.kind {
            self.alternative(union)?;
        }
        match (self.kind, self.rest) {
            (Kind::Option(_), _) => de::Deserializer::deserialize_option(self, visitor),
            (Kind::Any, [tag::NONE, rest @ ..]) => {
                self.rest = rest;
                visitor.visit_none()
            }
            (Kind::Any, [tag::SOME, rest @ ..]) => {
                self.rest = rest;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            _ => self.deeper(|reader| visitor.visit_some(reader)),
        }
    }
}
