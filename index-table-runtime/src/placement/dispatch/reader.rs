//! Reads of one engine or of several shards: points, entries of queries, and lent entries.

use std::collections::BTreeMap;

use super::{on_each, unlikely};
use crate::{
    engine::{
        self, Count, Cursor, EntryResult, LongLived, Pieces, Query, Read, Sampled, SmallRecords,
        Space, WithRow, forward, forward_cursor, forward_read,
    },
    model::{
        KeyRange,
        entry::{RawEntry, ShortEntry},
        error::{Boxed, Error, Result},
        reference::Referrer,
        schema::{Source, TableSchema},
        shard::{Routing, ShardNumber, ShardSet},
    },
    placement::shards,
};

/// The [`Read`] of one engine or of several shards.
#[derive(Clone, Copy)]
pub(crate) enum Reader<'t> {
    One(engine::Reader<'t>),
    Several(shards::Reader<'t>),
}

impl<'t> Reader<'t> {
    /// Returns the reader of the shard of a row.
    #[inline]
    pub(crate) fn of_row(self, primary_key: &[u8]) -> Result<Self> {
        let Self::Several(reader) = self else { return Ok(self) };
        reader.of_row(primary_key)
    }

    /// Returns the readers of the shards that together have each row exactly once, or of the shard of the rows whose
    /// primary keys begin with `shard_key`.
    pub(crate) fn of_shards(self, shard_key: Option<&[u8]>) -> Result<Vec<Self>> {
        let Self::Several(reader) = self else { return Ok(vec![self]) };
        reader.of_shards(shard_key)
    }

    /// Returns the reader of the shard that has all entries of a query and their rows, and adds that shard to `shards`.
    /// Otherwise, returns this reader.
    #[inline]
    pub(crate) fn of_query(self, query: &Query, shards: &mut ShardSet) -> Result<Self> {
        if let Self::Several(reader) = self {
            return reader.of_query(query, shards);
        }
        Ok(self)
    }

    /// Adds the shards that a query reads to `shards`, and returns their number; 0 in a store with one shard.
    #[inline]
    pub(crate) fn note_shards(self, query: &Query, shards: &mut ShardSet) -> u64 {
        let Self::Several(reader) = self else { return 0 };
        reader.note(query, shards)
    }

    /// Adds the shard of a row to `shards`.
    #[inline]
    pub(crate) fn note_shard_of(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Several(reader) = self {
            reader.note_row(primary_key, shards);
        }
    }

    /// Adds the shard of a row that an entry refers to, if it can differ from the shard of the entry.
    #[inline]
    pub(crate) fn note_referred(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Several(reader) = self
            && reader.has_global()
        {
            reader.note_row(primary_key, shards);
        }
    }

    /// Returns readers of all shards that have the row with this primary key, or its copies.
    pub(crate) fn in_shards_of(self, primary_key: &[u8]) -> Result<Vec<Self>> {
        if let Self::Several(reader) = self
            && reader.routing().is_reference()
        {
            let shards = reader.routing().all_shards().iter();
            return shards.map(|shard| reader.of_shard(*shard)).collect();
        }
        Ok(vec![self.of_row(primary_key)?])
    }

    /// Returns the routing of a table with global indexes, or with parts of rows in other shards, if this transaction has
    /// all shards.
    pub(crate) fn global_routing(self) -> Option<&'t Routing> {
        match self {
            Self::Several(reader) if reader.spans_shards() => Some(reader.routing()),
            _ => None,
        }
    }

    /// Whether the main row of the part with this primary key exists; `None` if the main row is in the shard of the part, or if
    /// the table has no parts.
    pub(crate) fn has_main_row(self, primary_key: &[u8]) -> Result<Option<bool>> {
        let Self::Several(reader) = self else { return Ok(None) };
        reader.has_main_row(primary_key)
    }

    /// Returns a reference of which the row with this primary key has a part in another shard.
    #[inline]
    pub(crate) fn placed_part(self, primary_key: &[u8]) -> Result<Option<Referrer>> {
        let Self::Several(reader) = self else { return Ok(None) };
        reader.placed_part(primary_key)
    }

    /// Adds the unavailable shards of a query to `missing`, with the reasons.
    pub(crate) fn missing_shards(self, query: &Query, missing: &mut BTreeMap<ShardNumber, Error>) {
        if let Self::Several(reader) = self {
            reader.missing(query, missing);
        }
    }

    /// Returns the parts of the table in several shards; `None` in one engine.
    pub(crate) fn parts(self) -> Option<Result<Vec<shards::Part<'t>>>> {
        match self {
            Self::One(_) => None,
            Self::Several(reader) => Some(reader.parts()),
        }
    }

    /// Returns the readers of the shards that can have changes in the stream of the table.
    pub(crate) fn with_changes(self) -> Result<Vec<(ShardNumber, Self)>> {
        let Self::Several(reader) = self else { return Ok(vec![(0, self)]) };
        reader.with_changes()
    }

    /// Whether transactions write at the same time, so that no number ascends in the order of their commits.
    pub(crate) const fn is_concurrent(self) -> bool {
        matches!(self, Self::One(reader) if reader.is_concurrent())
    }

    /// Returns the number of messages in the queue of the table, up to a limit. An engine whose transactions write at the
    /// same time counts them without a conflict with other writers, and may return a number that is a second old.
    pub(crate) fn queued(self, most: u64) -> Result<u64> {
        match self {
            Self::One(reader) => reader.queued(most),
            Self::Several(reader) => Ok(reader.len(Space::Queue)?.min(most)),
        }
    }

    /// Returns the number of bytes that a table or an index takes; 0 in several shards, and in an engine that does not
    /// measure it.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        self.one().map_or(Ok(0), |reader| reader.bytes_of(source))
    }

    /// Notes that a query on the index or aggregate at this position was allowed.
    pub(crate) fn note_read(self, index: usize) {
        if let Some(reader) = self.one() {
            reader.note_read(index);
        }
    }

    /// Returns the number of bytes that a space of small records takes, if no other table has records in its database.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        self.one().map_or(Ok(0), |reader| reader.bytes_of_space(space))
    }

    /// Returns the reference at this position to the table. The readers of the shards of a table have references; the
    /// reader of several shards has none.
    #[inline]
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        match self {
            Self::One(reader) => reader.referrer(at),
            Self::Several(_) => None,
        }
    }

    /// Calls `each` with sampled entries of a database, in the order of their keys. Returns their number, or `None` if
    /// the engine takes no samples. See [`engine::Reader::sample`].
    pub(crate) fn sample(
        self,
        source: Source,
        leaves: usize,
        each: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<Option<u64>> {
        self.one().map_or(Ok(None), |reader| reader.sample(source, leaves, each))
    }

    /// Returns the number of leaf pages of a database; `None` if the engine takes no samples.
    pub(crate) fn leaves_of(self, source: Source) -> Result<Option<u64>> {
        self.one().map_or(Ok(None), |reader| reader.leaves_of(source))
    }

    /// Whether entries of an index are packed, so that the engine does not maintain their number.
    pub(crate) fn is_packed(self, source: Source) -> Result<bool> {
        self.one().map_or(Ok(false), |reader| reader.is_packed(source))
    }

    /// Whether the shards of this transaction have entries of `source` that queries leave out. A transaction of one shard reads all of
    /// its entries.
    pub(crate) fn leaves_out(self, source: Source) -> bool {
        matches!(self, Self::Several(reader) if !reader.is_alone() && reader.routing().omits(source))
    }

    /// Estimates the share of a database's entries in a range of keys, from 0 to 1. Returns `None` if it can't be estimated
    /// at the moment.
    pub(crate) fn share_of(self, source: Source, range: &KeyRange) -> Result<Option<f64>> {
        self.one().map_or(Ok(None), |reader| reader.share_of(source, range))
    }

    /// Returns the number of pieces of an index; 0 if the engine stores none.
    pub(crate) fn piece_count(self, index: usize) -> Result<u64> {
        self.one().map_or(Ok(0), |reader| reader.piece_count(index))
    }

    /// Returns the pieces of an index after a position; `None` if the engine stores none.
    pub(crate) fn pieces(self, index: usize, after: Option<&[u8]>) -> Result<Option<Pieces<'t>>> {
        self.one().map_or(Ok(None), |reader| reader.pieces(index, after))
    }

    const fn one(self) -> Option<engine::Reader<'t>> {
        match self {
            Self::One(reader) => Some(reader),
            Self::Several(_) => None,
        }
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    forward_read!(on_each, 't);

    fn records(self, space: Space, from: &[u8], limit: usize) -> Result<SmallRecords<'t>> {
        match self {
            Self::One(reader) => reader.records(space, from, limit),
            Self::Several(_) => engine::one_by_one(self, space, from, limit),
        }
    }

    // For a query of one shard, the entries are those of the shard's engine.
    fn scan(self, query: Query) -> Result<Entries<'t>> {
        match self {
            Self::One(reader) => reader.scan(query).map(Entries::One),
            Self::Several(reader) => {
                unlikely();
                reader.scan(query)
            }
        }
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        match self {
            Self::One(reader) => reader.cursor(query).map(LentEntries::One),
            Self::Several(reader) => {
                unlikely();
                reader.cursor(query)
            }
        }
    }
}

/// The [`Read::Entries`] of one engine or of several shards.
#[allow(
    clippy::large_enum_variant,
    reason = "one engine is the usual case, and would be reached by a pointer"
)]
pub(crate) enum Entries<'t> {
    One(engine::Entries<'t>),
    Several(shards::Entries<'t>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    forward! {
        on_each:
        #[inline]
        fn next(&mut self) -> Option<Self::Item>;
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        on_each!(self, entries => LongLived::row(entries))
    }
}

/// The [`Read::Cursor`] of one engine or of several shards.
#[allow(
    clippy::large_enum_variant,
    reason = "one engine is the usual case, and would be reached by a pointer"
)]
pub(crate) enum LentEntries<'t> {
    One(engine::LentEntries<'t>),
    Several(shards::LentEntries<'t>),
}

impl Cursor for LentEntries<'_> {
    forward_cursor!(on_each);
}
