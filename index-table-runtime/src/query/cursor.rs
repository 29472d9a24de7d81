use std::{fmt, fmt::Write as _, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{KeyList, Query},
    model::{
        entry::{Position, RawEntry},
        error::{Error, Result},
        key::KeyBuf,
        schema::{Source, TableSchema},
    },
};

/// The first byte of every cursor, which identifies its form.
const FORMAT: u8 = 1;

const OTHER: &str = "it was made by another index, direction or arguments; start without a cursor";
const CHANGED: &str = "its text was changed; start without a cursor";

/// A position between two rows of a scan, from a [`Page`](crate::Page). [`Scan::after`](crate::Scan::after)
/// returns the rows after it, and [`Scan::before`](crate::Scan::before) the rows before it.
///
/// A cursor is the gap after a row, in the direction of the scan.
///
/// `Display`, `FromStr` and serde convert it to opaque text of the characters `0`–`9` and `a`–`f`, which is
/// safe in a URL. A cursor is a position and not an offset, so rows that are inserted or deleted between two
/// pages neither repeat nor skip others. It is valid for one query, with the same index, direction and
/// arguments; any other query fails. The text contains the row's keys and is not signed: everyone with the
/// text can read these keys, and a modified text can start at another position of the same query.
///
/// The text is the hexadecimal form of: `01`; the FNV-1a hash (64 bits, big-endian) of the query; the length
/// of the index key (16 bits, big-endian); the index key; the primary key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cursor {
    query_hash: u64,
    /// The index key, which has the length `key_len`, and the primary key.
    keys: Arc<[u8]>,
    key_len: usize,
}

impl Cursor {
    /// Creates the cursor of the gap after this entry.
    pub(crate) fn new(query_hash: u64, entry: RawEntry<'_>) -> Self {
        let mut keys = KeyBuf::new();
        keys.extend(entry.key);
        keys.extend(entry.primary_key);
        Self { query_hash, keys: Arc::from(keys.as_bytes()), key_len: entry.key.len() }
    }

    /// Returns the hash of the query, and the position of the entry before the gap.
    pub(crate) fn into_parts(self) -> (u64, Position) {
        (self.query_hash, self.position())
    }

    /// Returns the primary key, if this cursor belongs to the combination with this hash.
    pub(super) fn primary_key_in(&self, schema: &TableSchema, query_hash: u64) -> Result<&[u8]> {
        if self.query_hash != query_hash {
            return Err(Error::InvalidCursor { reason: OTHER });
        }
        if self.position().is_in(schema, Source::Facts) {
            return Ok(&self.keys);
        }
        Err(Error::InvalidCursor { reason: CHANGED })
    }

    fn position(&self) -> Position {
        let (key, primary_key) = self.keys.split_at_checked(self.key_len).unwrap_or_default();
        Position { key: key.to_vec(), primary_key: primary_key.to_vec() }
    }

    /// Returns the position, if this cursor belongs to the query, whose hash is `query_hash`.
    ///
    /// The text is untrusted. A position outside of the query's bounds would return entries outside of the
    /// query, and bytes that are not a key would be an invalid position.
    pub(super) fn position_in(
        &self,
        schema: &TableSchema,
        query: &Query,
        query_hash: u64,
    ) -> Result<Position> {
        if self.query_hash != query_hash {
            return Err(Error::InvalidCursor { reason: OTHER });
        }
        let at = &*self.keys;
        let inside = at >= query.bounds.start() && query.bounds.ends_after(at);
        let listed = |list: &KeyList| list.find(at.get(query.bounds.start().len()..)?);
        let inside = inside && query.list.as_ref().is_none_or(|list| listed(list).is_some());
        let position = self.position();
        if inside && position.is_in(schema, query.source) {
            return Ok(position);
        }
        Err(Error::InvalidCursor { reason: CHANGED })
    }
}

/// Returns a hash of a query, which identifies it in cursors: of the table, the index with its fields and
/// their forms, the direction, the bounds and the list.
pub(super) fn query_hash(schema: &TableSchema, query: &Query) -> u64 {
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
    // The declaration of an index may change without its name.
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

/// Returns the FNV-1a hash of all parts.
pub(crate) fn hash_of(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| add(hash, part))
}

/// Adds the length of a part, in eight bytes, and the part to an FNV-1a hash.
fn add(hash: u64, part: &[u8]) -> u64 {
    let len = part.len() as u64;
    // A byte that is 0 only multiplies, so the first seven bytes of a short length are one multiplication.
    let hash = match u8::try_from(len) {
        Ok(_) => hash.wrapping_mul(const { PRIME.wrapping_pow(7) }),
        Err(_) => add_high(hash, len),
    };
    part.iter().copied().fold(fnv(hash, len as u8), fnv)
}

/// Adds the first seven bytes of a length.
#[cold]
fn add_high(hash: u64, len: u64) -> u64 {
    let [high @ .., _] = len.to_be_bytes();
    high.into_iter().fold(hash, fnv)
}

/// The prime of FNV-1a.
const PRIME: u64 = 0x0100_0000_01b3;

const fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(PRIME)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are at most 511 bytes long.
        write!(f, "{FORMAT:02x}{:016x}{:04x}", self.query_hash, self.key_len)?;
        self.keys.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
            .ok_or(Error::InvalidCursor { reason: "the text is not a cursor; start without one" })
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
    let (query_hash, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let key_len = usize::from(u16::from_be_bytes(*len));
    let query_hash = u64::from_be_bytes(*query_hash);
    (key_len <= rest.len()).then(|| Cursor { query_hash, keys: Arc::from(rest), key_len })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_each_length_and_part() {
        for part in [Vec::new(), vec![0, 7], vec![1; 255], vec![2; 256], vec![3; 70_000]] {
            let len = (part.len() as u64).to_be_bytes();
            let bytes = len.iter().chain(&part).copied();
            let expected = bytes.fold(5, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
            assert_eq!(add(5, &part), expected, "{} bytes", part.len());
        }
    }
}
