//! Decoding: fast paths for the kind that a type expects, and one parser of all kinds for everything else.
//!
//! A struct is read by position if the list has its fields in its order, and otherwise by names. `FIELDS` decides which,
//! and each read by position is checked, because `FIELDS` may hold aliases and is shared by types with the same literals.

mod access;
mod any;
mod containers;
mod copy;
mod deserializer;
mod fields;
mod names;
mod row;
mod scalars;
mod skip;

use std::{collections::BTreeSet, ptr};

use self::names::Pass;
pub(crate) use self::{copy::copy, fields::copy_values};
pub use self::{fields::Fields, names::names, row::Row};
use crate::{
    MAX_DEPTH,
    bytes::{take_varint, take_wide_varint},
    catalog::{Catalog, LOOSE, ROOT},
    error::{Error, Reason, Result, damaged, unrecorded},
    kind::{Field, Kind, List, Variant},
    tag,
};

/// The reader counts at most two containers where the writer counts one.
const MAX_READ_DEPTH: u16 = 2 * MAX_DEPTH as u16;

static ROOT_KIND: Kind = Kind::Union(ROOT);

/// Reads a value in a row: a [`Deserializer`](serde::Deserializer).
pub struct Reader<'de, 'c> {
    rest: &'de [u8],
    /// The kind of the next value.
    kind: &'c Kind,
    catalog: &'c Catalog,
    depth: u16,
    /// Whether structs are read by names only, and what is left unread is noted.
    by_names: bool,
    /// Whether a struct was read by position that must be read by names.
    misplaced: bool,
    /// Whether a value was not read.
    left: bool,
    noted: Option<Box<Noted<'c>>>,
}

/// The fields of a row that a type does not know: see [`Catalog::unknown`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// The names of the fields of the row itself.
    pub fields: Vec<String>,
    /// The names of fields inside of fields that the type knows.
    pub inside: BTreeSet<String>,
}

/// What few reads note. It is not in the reader, which is moved often.
#[derive(Default)]
struct Noted<'c> {
    /// The struct that could not be read by position.
    suspect: Option<(&'c List, &'static [&'static str])>,
    /// The first field or variant that was not read.
    lost: Option<String>,
    /// The first list whose fields are unknown.
    since: usize,
    unknown: Unknown,
    /// The pass without a row.
    pass: Option<Pass>,
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
            left: false,
            noted: None,
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
        if let Some((list, names)) = self.noted.and_then(|noted| noted.suspect) {
            list.set_by_names(names);
        }
    }

    /// Reads by names. Fields of the lists from this number on are unknown if they are not read.
    pub(crate) fn since(catalog: &'c Catalog, row: &'de [u8], since: usize) -> Self {
        let noted = Some(Box::new(Noted { since, ..Noted::default() }));
        Self { noted, ..Self::by_names(catalog, row) }
    }

    /// Whether a value was not read.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    pub(crate) fn into_lost(self) -> Option<String> {
        self.noted?.lost
    }

    pub(crate) fn into_unknown(self) -> Unknown {
        self.noted.map(|noted| noted.unknown).unwrap_or_default()
    }

    /// Notes a field that is not read.
    #[cold]
    fn lose_field(&mut self, list: &List, field: &Field) {
        let noted = self.noted.get_or_insert_default();
        let name = || field.name.text().to_owned();
        noted.lost.get_or_insert_with(name);
        let earlier = self.catalog.lists.get(..noted.since).unwrap_or(&self.catalog.lists);
        if earlier.as_ptr_range().contains(&ptr::from_ref(list)) {
            return;
        }
        if self.depth == 1 {
            noted.unknown.fields.push(name());
        } else {
            noted.unknown.inside.insert(name());
        }
    }

    /// Notes a variant whose content is not read. It is unknown like a field, if the content has a list.
    #[cold]
    fn lose_variant(&mut self, variant: &Variant) {
        let noted = self.noted.get_or_insert_default();
        let name = || variant.name.text().to_owned();
        noted.lost.get_or_insert_with(name);
        if let Kind::Struct(list) | Kind::Tuple(list) = variant.payload
            && list as usize >= noted.since
        {
            noted.unknown.inside.insert(name());
        }
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
        match self.short_varint() {
            Some(value) => Ok(value),
            None => self.long_varint(),
        }
    }

    /// Reads a varint. It takes less time than [`varint`](Self::varint) if the value has more than three bytes.
    #[inline]
    fn long_varint(&mut self) -> Result<u64> {
        take_varint(&mut self.rest).ok_or_else(damaged)
    }

    /// Reads a varint of at most three bytes.
    #[inline(always)]
    fn short_varint(&mut self) -> Option<u64> {
        let (value, rest) = match *self.rest {
            [a @ ..0x80, ref rest @ ..] => (a.into(), rest),
            [a, b @ ..0x80, ref rest @ ..] => (u64::from(a & 0x7f) | u64::from(b) << 7, rest),
            [a, b, c @ ..0x80, ref rest @ ..] => {
                (u64::from(a & 0x7f) | u64::from(b & 0x7f) << 7 | u64::from(c) << 14, rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    fn wide_varint(&mut self) -> Result<u128> {
        take_wide_varint(&mut self.rest).ok_or_else(damaged)
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
        text(self.take(len)?)
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
        self.enter()?;
        let result = inner(self);
        self.leave();
        result
    }

    #[inline]
    fn enter(&mut self) -> Result {
        if self.depth == MAX_READ_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn leave(&mut self) {
        self.depth -= 1;
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
}

/// Returns bytes as text. For short texts, the check for ASCII takes a fraction of the time of a check for UTF-8.
#[inline]
fn text(bytes: &[u8]) -> Result<&str> {
    if bytes.is_ascii() {
        #[expect(unsafe_code, reason = "the standard library has no stable safe function yet")]
        // SAFETY: ASCII is UTF-8.
        return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).map_err(|_| damaged())
}

#[cold]
fn too_deep() -> Error {
    Reason::TooDeep.into()
}
