//! Index entries and facts as bytes.

use std::{cmp::Ordering, iter};

use crate::model::{
    maintain::Change,
    schema::{Source, TableSchema},
};

/// One entry as bytes, borrowed from the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawEntry<'t> {
    /// The index key; empty for a fact.
    pub(crate) key: &'t [u8],
    /// The primary key of the row.
    pub(crate) primary_key: &'t [u8],
    /// The data of the entry; for a fact, the row.
    pub(crate) data: &'t [u8],
}

impl<'t> RawEntry<'t> {
    /// The entry of a finding that concerns no entry.
    pub(crate) const NOWHERE: Self = Self { key: &[], primary_key: &[], data: &[] };

    /// Returns the change that writes this entry.
    pub(crate) const fn put(self, source: Source) -> Change<'t> {
        let Self { key, primary_key, data } = self;
        match source {
            Source::Facts => Change::PutFact { primary_key, row: data },
            Source::Index(index) => Change::PutEntry { index, key, primary_key, data },
        }
    }

    /// Returns the position of this entry in the order of the database.
    pub(crate) fn position(&self) -> Position {
        Position { key: self.key.to_vec(), primary_key: self.primary_key.to_vec() }
    }
}

/// The maximum length of a primary key that an engine shortens. Two row numbers, or a UUID.
pub(crate) const LONGEST_SHORT_KEY: usize = 16;

/// A primary key, possibly without some of its first bytes, which are all `00`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortKey<'t> {
    /// The bytes after the missing zeros.
    pub(crate) bytes: &'t [u8],
    /// The number of missing zeros.
    pub(crate) zeros: usize,
}

impl<'t> ShortKey<'t> {
    /// Returns a primary key that is stored with all of its bytes.
    pub(crate) const fn whole(bytes: &'t [u8]) -> Self {
        Self { bytes, zeros: 0 }
    }

    /// Returns the length of the whole primary key.
    pub(crate) const fn len(self) -> usize {
        self.zeros + self.bytes.len()
    }

    /// Returns all bytes, in `buffer` if some are missing.
    #[inline]
    pub(crate) fn in_buffer<'a>(self, buffer: &'a mut KeyBuffer) -> &'a [u8]
    where
        't: 'a,
    {
        if self.zeros == 0 {
            return self.bytes;
        }
        buffer.fill(self);
        buffer.first(self.len())
    }

    /// Returns a copy of all bytes.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.zeros];
        bytes.extend_from_slice(self.bytes);
        bytes
    }

    /// Compares the whole primary keys.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        let zeros = self.zeros.min(other.zeros);
        let first = |key: Self| iter::repeat_n(&0, key.zeros - zeros).chain(key.bytes);
        first(self).cmp(first(other))
    }

    /// Whether this is the primary key with these bytes.
    pub(crate) fn is(self, whole: &[u8]) -> bool {
        whole.split_at_checked(self.zeros).is_some_and(|(zeros, bytes)| {
            bytes == self.bytes && zeros.iter().all(|&zero| zero == 0)
        })
    }
}

/// Memory for a primary key that lacks bytes.
#[derive(Debug, Clone)]
pub(crate) struct KeyBuffer([u8; LONGEST_SHORT_KEY]);

impl KeyBuffer {
    pub(crate) const fn new() -> Self {
        Self([0; LONGEST_SHORT_KEY])
    }

    /// Writes all bytes of a primary key.
    #[inline]
    pub(crate) fn fill(&mut self, key: ShortKey<'_>) {
        // The length of a row number. Copies of a few bytes would be calls.
        if key.len() == 8
            && let Some(whole) = self.0.first_chunk_mut()
        {
            *whole = number(key.bytes).to_be_bytes();
        } else {
            self.fill_any(key);
        }
    }

    #[inline(never)]
    fn fill_any(&mut self, key: ShortKey<'_>) {
        if let Some(whole) = self.0.get_mut(..key.len())
            && let Some((zeros, bytes)) = whole.split_at_mut_checked(key.zeros)
        {
            zeros.fill(0);
            bytes.copy_from_slice(key.bytes);
        }
    }

    /// Returns the first `len` bytes.
    #[inline]
    pub(crate) fn first(&self, len: usize) -> &[u8] {
        self.0.get(..len).unwrap_or_default()
    }
}

/// Returns up to eight bytes as a number.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    // Two overlapping loads are faster than a loop.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let first = u64::from(u32::from_be_bytes(*first));
        return first << (8 * (bytes.len() - 4)) | u64::from(u32::from_be_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let first = u64::from(u16::from_be_bytes(*first));
        return first << (8 * (bytes.len() - 2)) | u64::from(u16::from_be_bytes(*last));
    }
    bytes.first().copied().map_or(0, u64::from)
}

/// One entry of a scan whose entries live as long as the transaction. Its primary key may lack bytes, since those are
/// nowhere in the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortEntry<'t> {
    /// The index key; empty for a fact.
    pub(crate) key: &'t [u8],
    /// The primary key of the row.
    pub(crate) primary_key: ShortKey<'t>,
    /// The data of the entry; for a fact, the row.
    pub(crate) data: &'t [u8],
}

impl<'t> ShortEntry<'t> {
    /// The entry of no scan.
    pub(crate) const NOWHERE: Self =
        Self { key: &[], primary_key: ShortKey::whole(&[]), data: &[] };

    /// Returns the entry with its whole primary key, in `buffer` if bytes are missing.
    #[inline]
    pub(crate) fn in_buffer<'a>(self, buffer: &'a mut KeyBuffer) -> RawEntry<'a>
    where
        't: 'a,
    {
        let Self { key, primary_key, data } = self;
        RawEntry { key, primary_key: primary_key.in_buffer(buffer), data }
    }

    /// Returns the entry with its whole primary key, which `buffer` has if bytes are missing.
    #[inline]
    pub(crate) fn after_fill<'a>(&'a self, buffer: &'a KeyBuffer) -> RawEntry<'a> {
        let Self { key, primary_key, data } = *self;
        let primary_key = match primary_key.zeros {
            0 => primary_key.bytes,
            _ => buffer.first(primary_key.len()),
        };
        RawEntry { key, primary_key, data }
    }
}

impl<'t> From<RawEntry<'t>> for ShortEntry<'t> {
    #[inline]
    fn from(RawEntry { key, primary_key, data }: RawEntry<'t>) -> Self {
        Self { key, primary_key: ShortKey::whole(primary_key), data }
    }
}

/// The position of one entry in the order of a database, even if the entry was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The index key; empty for the fact table.
    pub(crate) key: Vec<u8>,
    /// The primary key.
    pub(crate) primary_key: Vec<u8>,
}

impl Position {
    /// Whether both keys are valid for entries of `source`.
    #[inline]
    pub(crate) fn is_in(&self, schema: &TableSchema, source: Source) -> bool {
        let key_len = match schema.index(source) {
            Some(index) => index.key_len(&self.key),
            None => Ok(0),
        };
        key_len == Ok(self.key.len())
            && schema.primary_key_len(&self.primary_key) == Ok(self.primary_key.len())
    }

    /// Returns the concatenation of both keys. Entries are in the order of these bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.key.as_slice(), &self.primary_key].concat()
    }
}
