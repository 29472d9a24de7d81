//! Reading one table in one transaction.

use std::ops::AddAssign;

use super::{Cursor, LongLived, Query, Space};
use crate::model::{
    entry::ShortEntry,
    error::{Boxed, Result},
    schema::{Source, TableSchema},
};

/// One result of a scan: an entry, or an error.
pub(crate) type EntryResult<'t> = Result<ShortEntry<'t>, Boxed>;

/// An entry, and its row if the engine has joined it.
pub(crate) type WithRow<'t> = (ShortEntry<'t>, Option<&'t [u8]>);

/// Keys of small records, with the records.
pub(crate) type SmallRecords<'t> = Vec<(&'t [u8], &'t [u8])>;

/// Reading one table in one transaction.
pub(crate) trait Read<'t>: Copy {
    /// The entries of a scan, which live as long as the transaction is borrowed.
    type Entries: LongLived<'t>;
    /// The entries of a scan, each borrowed until the next step.
    type Cursor: Cursor;

    /// Returns the schema of the table.
    fn table(self) -> &'static TableSchema;

    /// Returns the bytes of the row with this primary key.
    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// Calls `each` with the result of [`fact`](Read::fact) for each primary key, in the order of the keys.
    /// An engine that sends its queries to a server sends all keys at once.
    ///
    /// # Errors
    ///
    /// After an error of the engine, `each` is not called again.
    #[inline]
    fn facts<'k>(
        self,
        primary_keys: impl Iterator<Item = &'k [u8]>,
        mut each: impl FnMut(Option<&'t [u8]>),
    ) -> Result<()> {
        for primary_key in primary_keys {
            each(self.fact(primary_key)?);
        }
        Ok(())
    }

    /// Returns the number of primary keys for one call of [`facts`](Read::facts), at least 1. If the engine
    /// looks up one key after another, a greater number would only read rows before they are needed.
    #[inline]
    fn facts_at_once(self) -> usize {
        1
    }

    /// Returns the data of the entry with these keys.
    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// Returns the entry with this key in a unique index; if there are several, the first. The key of the
    /// returned entry may be empty, since the caller has it.
    fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>>;

    /// Returns the entry of [`unique`](Read::unique). An engine that can join returns its row as well, as in
    /// [the laws](super#borrowing-and-rows).
    fn unique_row(self, index: usize, key: &[u8]) -> Result<Option<WithRow<'t>>> {
        Ok(self.unique(index, key)?.map(|entry| (entry, None)))
    }

    /// Returns the entries that the query selects. The caller applies the limit.
    fn scan(self, query: Query) -> Result<Self::Entries>;

    /// Returns the same entries as `scan`, each borrowed until the next step.
    fn cursor(self, query: Query) -> Result<Self::Cursor>;

    /// Returns the number of entries that the query selects, up to its limit.
    fn count(self, query: &Query) -> Result<Count>;

    /// Returns the engine's stored count of facts, or of physical pieces of an index; `None` if it has no
    /// such count.
    fn stored(self, source: Source) -> Result<Option<u64>>;

    /// Returns the small record with this key.
    fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// Returns the first small record at or after this key.
    fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;

    /// Returns the last small record before this key.
    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;

    /// Returns the first small records at or after this key, at most `limit` of them.
    fn records(self, space: Space, from: &[u8], limit: usize) -> Result<SmallRecords<'t>> {
        one_by_one(self, space, from, limit)
    }

    /// Returns the number of small records.
    fn len(self, space: Space) -> Result<u64>;
}

/// Returns the first small records at or after this key, with a seek for each.
pub(crate) fn one_by_one<'t>(
    reader: impl Read<'t>,
    space: Space,
    from: &[u8],
    limit: usize,
) -> Result<SmallRecords<'t>> {
    let (mut records, mut from) = (Vec::new(), from.to_vec());
    while records.len() < limit
        && let Some((key, record)) = reader.at_or_above(space, &from)?
    {
        records.push((key, record));
        key.clone_into(&mut from);
        from.push(0);
    }
    Ok(records)
}

/// The result of a count, and its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// The number of entries.
    pub(crate) found: u64,
    /// The number of seeks; 0 if the engine has stored the count.
    pub(crate) seeks: u64,
    /// The number of physical entries that were read. A packed block counts as one entry.
    pub(crate) steps: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.seeks += other.seeks;
        self.steps += other.steps;
    }
}
