//! Reads of any engine: points, entries of queries, and lent entries.

#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        Count, Cursor, EntryResult, LongLived, Query, Read, Sampled, SmallRecords, Space, WithRow,
        forward::{forward, forward_cursor, forward_read, of_each_engine, on_engine},
        lmdb, read,
    },
    model::{
        entry::{RawEntry, ShortEntry},
        error::{Boxed, Result},
        reference::Referrer,
        schema::{Source, TableSchema},
    },
};

of_each_engine! {
    /// The [`Read`] of any engine.
    #[derive(Clone, Copy)]
    enum Reader<'t> { lmdb::Reader<'t>, memory::Reader<'t>, postgres::Reader<'t> }
}

impl<'t> Reader<'t> {
    /// Whether transactions write at the same time, so that no number ascends in the order of their commits.
    pub(crate) const fn is_concurrent(self) -> bool {
        match self {
            Self::Lmdb(_) => false,
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
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.bytes_of(source),
        }
    }

    /// Notes that a query on the index or aggregate at this position was allowed. On a server, the snapshot may not have begun, and be
    /// found to lack it.
    pub(crate) fn note_read(self, index: usize) {
        match self {
            Self::Lmdb(_) => {}
            #[cfg(feature = "memory")]
            Self::Memory(_) => {}
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.note_read(index),
        }
        #[cfg(not(feature = "postgres"))]
        let _ = index;
    }

    /// Returns the number of bytes that a space of small records takes, if no other table has records in its database.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        match self {
            Self::Lmdb(reader) => reader.bytes_of_space(space),
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
    #[cfg_attr(
        not(any(feature = "memory", feature = "postgres")),
        expect(clippy::unnecessary_wraps, reason = "other engines have none")
    )]
    pub(crate) const fn lmdb(self) -> Option<lmdb::Reader<'t>> {
        match self {
            Self::Lmdb(reader) => Some(reader),
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

    forward_read!(on_engine, 't);

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
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.scan(query).map(Entries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.scan(query).map(Entries::Postgres),
        }
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.cursor(query).map(LentEntries::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.cursor(query).map(LentEntries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.cursor(query).map(LentEntries::Postgres),
        }
    }
}

of_each_engine! {
    /// The [`Read::Entries`] of any engine.
    enum Entries<'t> { lmdb::Entries<'t>, memory::Entries<'t>, postgres::Entries<'t> }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    forward! {
        on_engine:
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
    enum LentEntries<'t> { lmdb::LentEntries<'t>, memory::LentEntries<'t>, postgres::LentEntries<'t> }
}

impl Cursor for LentEntries<'_> {
    forward_cursor!(on_engine);
}
