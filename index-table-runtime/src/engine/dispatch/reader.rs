//! Reads of any engine: points, entries of queries, and lent entries.

use std::collections::BTreeMap;

#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        Count, Cursor, EntryResult, LongLived, Query, Read, Sampled, SmallRecords, Space, WithRow,
        forward::{forward, of_each_engine, on_engine, unlikely},
        lmdb, read,
        shards::{self},
    },
    model::{
        entry::{RawEntry, ShortEntry},
        error::{Boxed, Error, Result},
        reference::Referrer,
        schema::{Source, TableSchema},
        shard::{Routing, ShardNumber, ShardSet},
    },
};

of_each_engine! {
    /// The [`Read`] of any engine.
    #[derive(Clone, Copy)]
    enum Reader<'t> { lmdb::Reader<'t>, shards::Reader<'t>, memory::Reader<'t>, postgres::Reader<'t> }
}

impl<'t> Reader<'t> {
    /// Returns the reader of the shard of a row.
    #[inline]
    pub(crate) fn of_row(self, primary_key: &[u8]) -> Result<Self> {
        let Self::Sharded(reader) = self else { return Ok(self) };
        reader.of_row(primary_key)
    }

    /// Returns the readers of the shards that together have each row exactly once, or of the shard of the rows whose
    /// primary keys begin with `shard_key`.
    pub(crate) fn of_shards(self, shard_key: Option<&[u8]>) -> Result<Vec<Self>> {
        let Self::Sharded(reader) = self else { return Ok(vec![self]) };
        reader.of_shards(shard_key)
    }

    /// Returns the reader of the shard that has all entries of a query and their rows, and adds that shard to `shards`.
    /// Otherwise, returns this reader.
    #[inline]
    pub(crate) fn of_query(self, query: &Query, shards: &mut ShardSet) -> Result<Self> {
        if let Self::Sharded(reader) = self {
            return reader.of_query(query, shards);
        }
        Ok(self)
    }

    /// Adds the shards that a query reads to `shards`, and returns their number; 0 in a store without shards.
    #[inline]
    pub(crate) fn note_shards(self, query: &Query, shards: &mut ShardSet) -> u64 {
        let Self::Sharded(reader) = self else { return 0 };
        reader.note(query, shards)
    }

    /// Adds the shard of a row to `shards`.
    #[inline]
    pub(crate) fn note_shard_of(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Sharded(reader) = self {
            reader.note_row(primary_key, shards);
        }
    }

    /// Adds the shard of a row that an entry refers to, if it can differ from the shard of the entry.
    #[inline]
    pub(crate) fn note_referred(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Sharded(reader) = self
            && reader.has_global()
        {
            reader.note_row(primary_key, shards);
        }
    }

    /// Returns readers of all shards that have the row with this primary key, or its copies.
    pub(crate) fn in_shards_of(self, primary_key: &[u8]) -> Result<Vec<Self>> {
        if let Self::Sharded(reader) = self
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
            Self::Sharded(reader) if reader.spans_shards() => Some(reader.routing()),
            _ => None,
        }
    }

    /// Whether the main row of the part with this primary key exists; `None` if the main row is in the shard of the part, or if
    /// the table has no parts.
    pub(crate) fn has_main_row(self, primary_key: &[u8]) -> Result<Option<bool>> {
        let Self::Sharded(reader) = self else { return Ok(None) };
        reader.has_main_row(primary_key)
    }

    /// Returns a reference of which the row with this primary key has a part in another shard.
    #[inline]
    pub(crate) fn placed_part(self, primary_key: &[u8]) -> Result<Option<Referrer>> {
        let Self::Sharded(reader) = self else { return Ok(None) };
        reader.placed_part(primary_key)
    }

    /// Adds the unavailable shards of a query to `missing`, with the reasons.
    pub(crate) fn missing_shards(self, query: &Query, missing: &mut BTreeMap<ShardNumber, Error>) {
        if let Self::Sharded(reader) = self {
            reader.missing(query, missing);
        }
    }

    /// Returns the parts of the table in the shards of a sharded store; `None` in other stores.
    pub(crate) fn parts(self) -> Option<Result<Vec<shards::Part<'t>>>> {
        match self {
            Self::Sharded(reader) => Some(reader.parts()),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the readers of the shards that can have changes in the stream of the table.
    pub(crate) fn with_changes(self) -> Result<Vec<(ShardNumber, Self)>> {
        if let Self::Sharded(reader) = self {
            return reader.with_changes();
        }
        Ok(vec![(0, self)])
    }

    /// Whether transactions write at the same time, so that no number ascends in the order of their commits.
    pub(crate) const fn is_concurrent(self) -> bool {
        match self {
            Self::Lmdb(_) | Self::Sharded(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// Returns the number of messages in the queue of the table, up to a limit. An engine whose transactions write at the
    /// same time counts them without a conflict with other writers, and may return a number that is a second old.
    pub(crate) fn queued(self, most: u64) -> Result<u64> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.queued(most),
            _ => Ok(self.len(Space::Queue)?.min(most)),
        }
    }

    /// Returns the number of bytes that a table or an index takes; 0 in an engine that does not measure it.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        match self {
            Self::Lmdb(reader) => reader.bytes_of(source),
            Self::Sharded(_) => Ok(0),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.bytes_of(source),
        }
    }

    /// Returns the number of bytes that a space of small records takes, if no other table has records in its database.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        match self {
            Self::Lmdb(reader) => reader.bytes_of_space(space),
            Self::Sharded(_) => Ok(0),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.bytes_of_space(space),
        }
    }

    /// Returns the reference at this position to the table. The readers of the shards of a sharded table have
    /// references; the reader of the whole table has none.
    #[inline]
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        match self {
            Self::Lmdb(reader) => reader.referrer(at),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.referrer(at),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.referrer(at),
        }
    }

    /// Calls `each` with a sample of the entries of a database, in the order of their keys. Returns their number, or `None` if
    /// the engine takes no samples. See [`lmdb::Reader::sample`].
    pub(crate) fn sample(
        self,
        source: Source,
        leaves: usize,
        each: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<Option<u64>> {
        self.lmdb().map_or(Ok(None), |reader| reader.sample(source, leaves, each))
    }

    /// Returns the reader of LMDB, for physical entries, which other engines don't have.
    pub(crate) const fn lmdb(self) -> Option<lmdb::Reader<'t>> {
        match self {
            Self::Lmdb(reader) => Some(reader),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    forward! {
        fn table(self) -> &'static TableSchema;
        fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>>;
        #[inline]
        fn facts<'k>(
            self,
            primary_keys: impl Iterator<Item = &'k [u8]>,
            each: impl FnMut(Option<&'t [u8]>),
        ) -> Result<()>;
        #[inline]
        fn facts_at_once(self) -> usize;
        fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>>;
        fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>>;
        #[inline]
        fn unique_row(
            self,
            index: usize,
            key: &[u8],
        ) -> Result<Option<WithRow<'t>>>;
        fn count(self, query: &Query) -> Result<Count>;
        fn stored(self, source: Source) -> Result<Option<u64>>;
        fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>>;
        fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;
        fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;
        fn len(self, space: Space) -> Result<u64>;
    }

    fn records(self, space: Space, from: &[u8], limit: usize) -> Result<SmallRecords<'t>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(reader) = self {
            return reader.records(space, from, limit);
        }
        read::one_by_one(self, space, from, limit)
    }

    // For a query of one shard, a sharded store returns the entries of the shard's engine.
    fn scan(self, query: Query) -> Result<Entries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.scan(query).map(Entries::Lmdb),
            Self::Sharded(reader) => {
                unlikely();
                reader.scan(query)
            }
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.scan(query).map(Entries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.scan(query).map(Entries::Postgres),
        }
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.cursor(query).map(LentEntries::Lmdb),
            Self::Sharded(reader) => {
                unlikely();
                reader.cursor(query)
            }
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.cursor(query).map(LentEntries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.cursor(query).map(LentEntries::Postgres),
        }
    }
}

of_each_engine! {
    /// The [`Read::Entries`] of any engine.
    enum Entries<'t> { lmdb::Entries<'t>, shards::Entries<'t>, memory::Entries<'t>, postgres::Entries<'t> }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    forward! {
        #[inline]
        fn next(&mut self) -> Option<Self::Item>;
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        on_engine!(self, entries => LongLived::row(entries))
    }
}

of_each_engine! {
    /// The [`Read::Cursor`] of any engine.
    enum LentEntries<'t> { lmdb::LentEntries<'t>, shards::LentEntries<'t>, memory::LentEntries<'t>, postgres::LentEntries<'t> }
}

impl Cursor for LentEntries<'_> {
    forward! {
        // Without inlining, each entry costs one more call.
        #[inline(always)]
        fn advance(&mut self) -> Result<bool, Boxed>;
        #[inline]
        fn entry(&self) -> RawEntry<'_>;
        #[inline]
        fn row(&self) -> Option<&[u8]>;
    }
}
