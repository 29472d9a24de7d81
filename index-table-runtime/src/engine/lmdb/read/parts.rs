//! An entry that is stored by itself, taken apart.

use crate::model::{
    entry::RawEntry,
    error::Error,
    key::DecodeError,
    schema::{IndexSchema, Source, TableSchema},
};

/// How the parts of an entry that is stored by itself are told from one another: what is the same
/// for all entries of a scan, looked up once.
#[derive(Clone, Copy)]
pub(in crate::engine::lmdb) struct Parts {
    schema: &'static TableSchema,
    /// `None`: the fact table.
    index: Option<&'static IndexSchema>,
    /// A key has one entry, which has the primary key in its value.
    unique: bool,
    /// The length of a primary key, where it is fixed.
    primary_key: Option<usize>,
}

impl Parts {
    pub(in crate::engine::lmdb) fn of(schema: &'static TableSchema, source: Source) -> Self {
        let index = schema.index(source);
        let unique = index.is_some_and(IndexSchema::has_one_entry_per_key);
        Self { schema, index, unique, primary_key: schema.fixed_primary_key() }
    }

    /// `None`: it is [`damaged`](Parts::damaged).
    #[inline]
    pub(in crate::engine::lmdb) fn entry<'t>(
        &self,
        key: &'t [u8],
        value: &'t [u8],
    ) -> Option<RawEntry<'t>> {
        let Some(index) = self.index else {
            return Some(RawEntry { key: &[], primary_key: key, data: value });
        };
        if self.unique {
            let at = match self.primary_key {
                Some(len) => len,
                None => self.schema.primary_key_len(value).ok()?,
            };
            let (primary_key, data) = value.split_at_checked(at)?;
            return Some(RawEntry { key, primary_key, data });
        }
        let at = match self.primary_key {
            Some(len) => key.len().checked_sub(len)?,
            None => index.key_len(key).ok()?,
        };
        let (key, primary_key) = key.split_at_checked(at)?;
        Some(RawEntry { key, primary_key, data: value })
    }

    /// Why an entry is none.
    #[cold]
    pub(super) fn damaged(&self, source: Source, key: &[u8], value: &[u8]) -> Error {
        let len = match self.index {
            Some(index) if !self.unique => index.key_len(key),
            _ => self.schema.primary_key_len(value),
        };
        self.schema.corrupt(source, key, len.err().unwrap_or(DecodeError::Short))
    }
}
