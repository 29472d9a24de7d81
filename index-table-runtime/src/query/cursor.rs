use std::{fmt, fmt::Write as _, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{KeyList, Query},
    model::{
        entry::Position,
        error::{Error, Result},
        schema::TableSchema,
    },
};

/// The first byte of every cursor; another form would have another one.
const FORMAT: u8 = 1;

/// Where a page ended: hand it out, and continue with [`Scan::after`](crate::Scan::after).
///
/// Opaque text of the characters `0`–`9` and `a`–`f`, through `Display`, `FromStr` and serde: safe
/// in a URL. It is a position and not an offset, so rows that come or go between two pages neither
/// repeat nor skip others. It belongs to one question: the same index, direction and arguments;
/// any other refuses it. It holds the last row's keys, and it is not signed: who can read it can
/// read those, and who changes it can start elsewhere within the same question.
///
/// The text is the hexadecimal form of: `01`; the FNV-1a hash (64 bits, big-endian) of what the
/// cursor belongs to; the length of the index key (16 bits, big-endian); the index key; the
/// primary key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cursor {
    question: u64,
    position: Position,
}

impl Cursor {
    pub(crate) const fn new(question: u64, position: Position) -> Self {
        Self { question, position }
    }

    /// What it belongs to, and the place.
    pub(crate) fn into_parts(self) -> (u64, Position) {
        (self.question, self.position)
    }

    /// The position, if this cursor belongs to the query, which is this [`question`].
    ///
    /// The text comes from outside and may have been changed. A place outside of the query's
    /// bounds would lead to entries outside of the query, and one that is no key to places
    /// that no entry has.
    pub(super) fn position_in(
        self,
        schema: &TableSchema,
        query: &Query,
        question: u64,
    ) -> Result<Position> {
        if self.question != question {
            return Err(Error::InvalidCursor {
                reason: "it was made by another index, direction or arguments; start without a cursor",
            });
        }
        let at = self.position.bytes();
        let inside = at.as_slice() >= query.bounds.start() && query.bounds.ends_behind(&at);
        let listed = |list: &KeyList| list.find(at.get(query.bounds.start().len()..)?);
        let inside = inside && query.list.as_ref().is_none_or(|list| listed(list).is_some());
        if inside && self.position.is_in(schema, query.source) {
            return Ok(self.position);
        }
        Err(Error::InvalidCursor { reason: "its text was changed; start without a cursor" })
    }
}

/// What a cursor belongs to, as a number: table, index with its fields and their forms, direction
/// bounds and list.
pub(super) fn question(schema: &TableSchema, query: &Query) -> u64 {
    let end = query.bounds.end();
    let index = schema.index(query.source);
    let parts: [&[u8]; 6] = [
        schema.name.as_bytes(),
        index.map_or("", |index| index.name).as_bytes(),
        &[u8::from(query.reverse)],
        query.bounds.start(),
        &[u8::from(end.is_some())],
        end.as_deref().unwrap_or_default(),
    ];
    let hash = hash_of(&parts);
    // An index may be declared anew under its old name.
    let fields = index.map_or(&[][..], |index| index.key);
    let hash = fields
        .iter()
        .fold(hash, |hash, field| fnv(add(hash, field.name.as_bytes()), field.form as u8));
    match &query.list {
        None => hash,
        // No part of a key has the form 255.
        Some(list) => list.iter().fold(fnv(hash, u8::MAX), add),
    }
}

/// FNV-1a of all parts.
pub(crate) fn hash_of(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| add(hash, part))
}

/// FNV-1a of one more part, with its length before it.
fn add(hash: u64, part: &[u8]) -> u64 {
    let len = (part.len() as u64).to_be_bytes();
    part.iter().copied().fold(len.into_iter().fold(hash, fnv), fnv)
}

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { key, primary_key } = &self.position;
        // Keys are at most 511 bytes long.
        write!(f, "{FORMAT:02x}{:016x}{:04x}", self.question, key.len())?;
        key.iter().chain(primary_key).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursor(")?;
        fmt::Display::fmt(self, f)?;
        f.write_char(')')
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text)
            .ok_or(Error::InvalidCursor { reason: "the text is no cursor; start without one" })
    }
}

fn parse(text: &str) -> Option<Cursor> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    let bytes = bytes?;
    let (&[FORMAT], rest) = bytes.split_first_chunk::<1>()? else { return None };
    let (question, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let (key, primary_key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some(Cursor {
        question: u64::from_be_bytes(*question),
        position: Position { key: key.to_vec(), primary_key: primary_key.to_vec() },
    })
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for Cursor {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
