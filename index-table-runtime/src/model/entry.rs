//! Index entries and facts as bytes.

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
