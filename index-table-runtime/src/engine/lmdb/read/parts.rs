//! The parts of an entry that is stored separately.

use crate::engine::lmdb::layout;
use crate::model::{
    entry::{ShortEntry, ShortKey},
    error::Error,
    key::DecodeError,
    schema::{IndexSchema, Source, TableSchema},
};

/// The way to split an entry that is stored separately, prepared once for all entries of a scan.
#[derive(Clone, Copy)]
pub(in crate::engine::lmdb) struct Parts {
    schema: &'static TableSchema,
    /// `None` for the fact table.
    index: Option<&'static IndexSchema>,
    /// Whether a key has one entry, with the primary key in its value.
    unique: bool,
    /// The length of a primary key, if it is fixed.
    primary_key: Option<usize>,
    /// The length of a whole primary key, if values have short ones.
    short: Option<usize>,
    /// The length of a primary key, if it is fixed and the primary key ends each key. This is the most frequent case.
    at_end: Option<usize>,
}

impl Parts {
    pub(in crate::engine::lmdb) fn of(schema: &'static TableSchema, source: Source) -> Self {
        let index = schema.index(source);
        let unique = index.is_some_and(IndexSchema::has_one_entry_per_key);
        let primary_key = schema.fixed_primary_key();
        let at_end = primary_key.filter(|_| index.is_some() && !unique);
        let short = index.and_then(|index| layout::short_unique(index, primary_key));
        Self { schema, index, unique, primary_key, short, at_end }
    }

    /// Returns the entry; `None` if it is [`damaged`](Parts::damaged).
    #[expect(clippy::inline_always, reason = "it would be one more call for each entry")]
    #[inline(always)]
    pub(in crate::engine::lmdb) fn entry<'t>(
        &self,
        key: &'t [u8],
        value: &'t [u8],
    ) -> Option<ShortEntry<'t>> {
        if let Some(len) = self.at_end {
            // A shorter key has no such place.
            let (key, primary_key) = key.split_at_checked(key.len().wrapping_sub(len))?;
            let primary_key = ShortKey::whole(primary_key);
            return Some(ShortEntry { key, primary_key, data: value });
        }
        let Some(index) = self.index else {
            return Some(ShortEntry { key: &[], primary_key: ShortKey::whole(key), data: value });
        };
        if self.unique {
            let (primary_key, data) = self.first(value)?;
            let entry = ShortEntry { key, primary_key, data };
            // For most keys, comparing the last byte shows that this is not a further entry.
            if key.last() == primary_key.bytes.last() && ends_with(key, primary_key) {
                return further(index, entry);
            }
            return Some(entry);
        }
        let (key, primary_key) = key.split_at_checked(index.key_len(key).ok()?)?;
        Some(ShortEntry { key, primary_key: ShortKey::whole(primary_key), data: value })
    }

    /// Returns the primary key and the data in a value of a unique index.
    #[inline]
    pub(in crate::engine::lmdb) fn first<'t>(
        &self,
        value: &'t [u8],
    ) -> Option<(ShortKey<'t>, &'t [u8])> {
        if let Some(len) = self.short {
            let zeros = len.checked_sub(value.len())?;
            let (key, data) = value.split_at_checked(value.len())?;
            return (!key.is_empty()).then_some((ShortKey { bytes: key, zeros }, data));
        }
        let at = match self.primary_key {
            Some(len) => len,
            None => self.schema.primary_key_len(value).ok()?,
        };
        let (primary_key, data) = value.split_at_checked(at)?;
        Some((ShortKey::whole(primary_key), data))
    }

    /// Returns the damage of an entry.
    #[cold]
    pub(in crate::engine::lmdb) fn damaged(
        &self,
        source: Source,
        key: &[u8],
        value: &[u8],
    ) -> Error {
        let len = match self.index {
            Some(index) if !self.unique => index.key_len(key),
            _ => self.schema.primary_key_len(value),
        };
        let error = match self.short {
            Some(short) if value.len() > short => DecodeError::Long,
            _ => len.err().unwrap_or(DecodeError::Short),
        };
        self.schema.corrupt(source, key, error)
    }
}

/// Whether a physical key ends with a primary key.
fn ends_with(key: &[u8], primary_key: ShortKey<'_>) -> bool {
    let at = key.len().checked_sub(primary_key.len());
    at.and_then(|at| key.get(at..)).is_some_and(|end| primary_key.is(end))
}

/// Returns the entry if its physical key ends with its primary key, so that it may be a
/// [further entry](crate::engine::lmdb::shared) of its key. Returns `None` if it is damaged.
#[cold]
fn further<'t>(index: &IndexSchema, entry: ShortEntry<'t>) -> Option<ShortEntry<'t>> {
    let (key, suffix) = entry.key.split_at_checked(index.key_len(entry.key).ok()?)?;
    match suffix.len() {
        0 => Some(entry),
        len if len == entry.primary_key.len() => Some(ShortEntry { key, ..entry }),
        _ => None,
    }
}
