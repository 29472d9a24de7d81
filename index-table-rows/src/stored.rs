//! The bytes of a catalog.
//!
//! | part | bytes |
//! |---|---|
//! | format | a varint, 1 |
//! | version | a varint |
//! | lists | a varint with their number; each: a text with the struct's name, a varint with the number of fields, and the fields |
//! | field | a text with its name, a byte (1: rows may lack it), a kind |
//! | enums | a varint with their number; each: a text with the type's name, a varint with the number of entries, and the entries |
//! | entry | a text with the variant's name, a byte (its form: 0 unit, 1 newtype, 2 tuple, 3 struct; plus 4 if a later entry took its place), a kind |
//! | unions | a varint with their number; each: a varint with the number of alternatives, their kinds; a varint with the number of structs that are written, a varint for each; a varint with the other alternative and one, or 0 |
//! | kind | a byte with its position in the list below, and what it refers to |
//!
//! A text is a varint with the number of its bytes, and UTF-8. The kinds, from 0: hole, `u8`, `i8`, unsigned, signed, `u128`,
//! `i128`, `f32`, `f64`, `bool`, `char`, text, bytes, 16 bytes, unit, any, option (a kind), sequence (a kind), array (a varint, a
//! kind), map (two kinds), struct (a varint), tuple (a varint), enum (a varint), union (a varint).

use crate::{
    bytes::{take_varint, varint},
    catalog::Catalog,
    error::{Result, damaged},
    kind::{Enum, Field, Form, Kind, List, Name, Union, Variant},
};

const FORMAT: u64 = 1;

/// Kinds inside of each other in one field. `learn` makes fewer.
const MAX_NESTED: usize = 4 * crate::MAX_KIND_DEPTH;

/// The kinds that refer to nothing, in the order of their numbers.
const PLAIN: [Kind; 16] = [
    Kind::Hole,
    Kind::U8,
    Kind::I8,
    Kind::Unsigned,
    Kind::Signed,
    Kind::U128,
    Kind::I128,
    Kind::F32,
    Kind::F64,
    Kind::Bool,
    Kind::Char,
    Kind::Text,
    Kind::Bytes,
    Kind::Bytes16,
    Kind::Unit,
    Kind::Any,
];
const OPTION: u8 = 16;
const SEQ: u8 = 17;
const ARRAY: u8 = 18;
const MAP: u8 = 19;
const STRUCT: u8 = 20;
const TUPLE: u8 = 21;
const ENUM: u8 = 22;
const UNION: u8 = 23;

/// Whether a later entry took the place of this one.
const REPLACED: u8 = 4;

impl Catalog {
    /// Returns the bytes of the catalog. They have no checksum.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, FORMAT);
        varint(&mut out, self.version);
        varint(&mut out, self.lists.len() as u64);
        for list in &self.lists {
            text(&mut out, list.name.text());
            varint(&mut out, list.fields.len() as u64);
            for field in &list.fields {
                text(&mut out, field.name.text());
                out.push(field.absent.into());
                put_kind(&mut out, &field.kind);
            }
        }
        varint(&mut out, self.enums.len() as u64);
        for it in &self.enums {
            text(&mut out, it.name.text());
            varint(&mut out, it.variants.len() as u64);
            for variant in &it.variants {
                text(&mut out, variant.name.text());
                out.push(variant.form as u8 + if variant.current { 0 } else { REPLACED });
                put_kind(&mut out, &variant.payload);
            }
        }
        varint(&mut out, self.unions.len() as u64);
        for union in &self.unions {
            varint(&mut out, union.kinds.len() as u64);
            union.kinds.iter().for_each(|kind| put_kind(&mut out, kind));
            varint(&mut out, union.current.len() as u64);
            union.current.iter().for_each(|at| varint(&mut out, (*at).into()));
            varint(&mut out, union.other.map_or(0, |at| u64::from(at) + 1));
        }
        out
    }

    /// Reads the bytes of a catalog, and checks that reading rows with it is bounded by their bytes.
    ///
    /// # Errors
    ///
    /// [`Reason::Damaged`](crate::Reason::Damaged) if the bytes are not a catalog, and
    /// [`Reason::TooLarge`](crate::Reason::TooLarge).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut from = Bytes { rest: bytes };
        if from.varint()? != FORMAT {
            return Err(damaged());
        }
        let version = from.varint()?;
        let lists = from.all(|from| {
            let name = from.text()?;
            let fields = from.all(|from| {
                Ok(Field {
                    name: Name::new(from.text()?),
                    absent: from.flag()?,
                    kind: from.kind(0)?,
                })
            })?;
            Ok(List::new(name, fields))
        })?;
        let mut number = 0;
        let enums = from.all(|from| {
            let name = Name::new(from.text()?);
            let variants = from.all(Bytes::variant)?;
            number += 1;
            Ok(Enum { name, kind: Kind::Enum(number - 1), variants })
        })?;
        let unions = from.all(|from| {
            let kinds = from.all(|from| from.kind(0))?;
            let current = from.all(Bytes::number)?;
            let other = from.number()?.checked_sub(1);
            Ok(Union { kinds, current, other })
        })?;
        if !from.rest.is_empty() {
            return Err(damaged());
        }
        let catalog = Self { lists, enums, unions, version };
        catalog.check()?;
        Ok(catalog)
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_kind(out: &mut Vec<u8>, kind: &Kind) {
    match kind {
        Kind::Option(inner) => {
            out.push(OPTION);
            put_kind(out, inner);
        }
        Kind::Seq(element) => {
            out.push(SEQ);
            put_kind(out, element);
        }
        Kind::Array(len, element) => {
            out.push(ARRAY);
            varint(out, (*len).into());
            put_kind(out, element);
        }
        Kind::Map(kinds) => {
            out.push(MAP);
            put_kind(out, &kinds.0);
            put_kind(out, &kinds.1);
        }
        Kind::Struct(number) => put_reference(out, STRUCT, *number),
        Kind::Tuple(number) => put_reference(out, TUPLE, *number),
        Kind::Enum(number) => put_reference(out, ENUM, *number),
        Kind::Union(number) => put_reference(out, UNION, *number),
        plain => out.extend(PLAIN.iter().position(|it| it == plain).map(|position| position as u8)),
    }
}

fn put_reference(out: &mut Vec<u8>, code: u8, number: u32) {
    out.push(code);
    varint(out, number.into());
}

struct Bytes<'b> {
    rest: &'b [u8],
}

impl<'b> Bytes<'b> {
    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(byte)
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged()),
        }
    }

    fn varint(&mut self) -> Result<u64> {
        take_varint(&mut self.rest).ok_or_else(damaged)
    }

    fn number(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| damaged())
    }

    fn text(&mut self) -> Result<&'b str> {
        let len = usize::try_from(self.varint()?).map_err(|_| damaged())?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or_else(damaged)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| damaged())
    }

    /// Reads a number of items. Each takes at least a byte.
    fn all<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = usize::try_from(self.varint()?).map_err(|_| damaged())?;
        if count > self.rest.len() {
            return Err(damaged());
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn variant(&mut self) -> Result<Variant> {
        let name = Name::new(self.text()?);
        let byte = self.byte()?;
        let form = match byte & !REPLACED {
            0 => Form::Unit,
            1 => Form::Newtype,
            2 => Form::Tuple,
            3 => Form::Struct,
            _ => return Err(damaged()),
        };
        Ok(Variant { name, form, payload: self.kind(0)?, current: byte & REPLACED == 0 })
    }

    fn kind(&mut self, depth: usize) -> Result<Kind> {
        if depth > MAX_NESTED {
            return Err(damaged());
        }
        let code = self.byte()?;
        if let Some(plain) = PLAIN.get(usize::from(code)) {
            return Ok(plain.clone());
        }
        let mut inner = || self.kind(depth + 1);
        Ok(match code {
            OPTION => Kind::Option(inner()?.into()),
            SEQ => Kind::Seq(inner()?.into()),
            MAP => Kind::Map((inner()?, inner()?).into()),
            ARRAY => Kind::Array(self.number()?, self.kind(depth + 1)?.into()),
            STRUCT => Kind::Struct(self.number()?),
            TUPLE => Kind::Tuple(self.number()?),
            ENUM => Kind::Enum(self.number()?),
            UNION => Kind::Union(self.number()?),
            _ => return Err(damaged()),
        })
    }
}
