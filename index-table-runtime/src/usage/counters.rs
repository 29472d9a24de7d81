//! The counters of a report: atomics that all threads of the process increment.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    model::schema::{Source, TableSchema},
    usage::{Stats, latency},
};

/// The usage of a table and its indexes since the table was opened.
pub(crate) struct TableCounters {
    pub(crate) schema: &'static TableSchema,
    pub(crate) facts: ReadCounters,
    pub(crate) indexes: Box<[ReadCounters]>,
    writes: [AtomicU64; 4],
    written: Box<[AtomicU64]>,
    refused_expiries: AtomicU64,
    uncommitted: AtomicU64,
}

impl TableCounters {
    pub(crate) fn new(schema: &'static TableSchema) -> Self {
        let (facts, writes) = (ReadCounters::default(), Default::default());
        let indexes = schema.indexes.iter().map(|_| ReadCounters::default()).collect();
        let written = schema.indexes.iter().map(|_| AtomicU64::new(0)).collect();
        let [refused_expiries, uncommitted] = [const { AtomicU64::new(0) }; 2];
        Self { schema, facts, indexes, writes, written, refused_expiries, uncommitted }
    }

    /// Returns the counters of an index or of the fact table.
    #[inline]
    pub(crate) fn of(&self, source: Source) -> &ReadCounters {
        match source {
            Source::Facts => &self.facts,
            // The position is always valid, because it is from the schema of this table.
            Source::Index(position) => self.indexes.get(position).unwrap_or(&self.facts),
        }
    }

    /// Adds the writes of a committed transaction.
    pub(crate) fn add(&self, tally: &Tally) {
        let [writes, written] =
            [(&self.writes[..], &tally.writes[..]), (&self.written, &tally.written)];
        for (counters, counts) in [writes, written] {
            for (counter, count) in counters.iter().zip(counts).filter(|(_, count)| **count > 0) {
                counter.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn writes(&self, kind: RowWrite) -> u64 {
        self.writes.get(kind as usize).map_or(0, load)
    }

    /// Counts an expired row that could not be deleted.
    pub(crate) fn note_refused_expiry(&self) {
        self.refused_expiries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused_expiries(&self) -> u64 {
        load(&self.refused_expiries)
    }

    /// Counts a transaction with changes of the table that was dropped without a commit.
    pub(crate) fn note_uncommitted(&self) {
        self.uncommitted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn uncommitted(&self) -> u64 {
        load(&self.uncommitted)
    }

    /// Returns the number of writes of rows of all kinds.
    pub(crate) fn all_writes(&self) -> u64 {
        self.writes.iter().map(load).sum()
    }

    pub(crate) fn written(&self, index: usize) -> u64 {
        self.written.get(index).map_or(0, load)
    }
}

/// The reads of an index or of the fact table. Each value has its own cache line, because different threads
/// query different indexes.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct ReadCounters {
    queries: AtomicU64,
    entries: AtomicU64,
    facts: AtomicU64,
    /// Of some of the queries.
    durations: latency::Durations,
}

impl ReadCounters {
    /// Adds queries and their cost.
    #[inline]
    pub(crate) fn add(&self, queries: u64, stats: Stats) {
        let Self { queries: all_queries, entries, facts, durations: _ } = self;
        for (counter, count) in
            [(all_queries, queries), (entries, stats.entries), (facts, stats.facts)]
        {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Returns the current time, if the next query is timed; otherwise 0.
    #[inline]
    pub(crate) fn begin_query(&self) -> u64 {
        latency::begin_query(load(&self.queries))
    }

    pub(crate) const fn durations(&self) -> &latency::Durations {
        &self.durations
    }

    /// Returns the numbers of queries, entries and facts.
    pub(crate) fn get(&self) -> [u64; 3] {
        [load(&self.queries), load(&self.entries), load(&self.facts)]
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowWrite {
    Insert,
    Put,
    Update,
    Delete,
}

/// The writes of a transaction to a table so far. They count when the transaction is committed.
pub(crate) struct Tally {
    writes: [u64; 4],
    written: Box<[u64]>,
}

impl Tally {
    pub(crate) fn new(schema: &TableSchema) -> Self {
        Self { writes: [0; 4], written: schema.indexes.iter().map(|_| 0).collect() }
    }

    pub(crate) fn row(&mut self, kind: RowWrite) {
        if let Some(count) = self.writes.get_mut(kind as usize) {
            *count += 1;
        }
    }

    pub(crate) fn rows(&mut self, kind: RowWrite, count: u64) {
        if let Some(counted) = self.writes.get_mut(kind as usize) {
            *counted += count;
        }
    }

    /// Returns the number of written rows of all kinds.
    pub(crate) fn row_count(&self) -> u64 {
        self.writes.iter().sum()
    }

    /// Adds written or removed entries of an index.
    #[inline]
    pub(crate) fn entries(&mut self, index: usize, count: u64) {
        if let Some(counted) = self.written.get_mut(index) {
            *counted += count;
        }
    }

    /// Adds the writes of a nested transaction to the same table.
    pub(crate) fn add(&mut self, other: &Self) {
        let writes = self.writes.iter_mut().zip(&other.writes);
        for (count, more) in writes.chain(self.written.iter_mut().zip(&other.written)) {
            *count += more;
        }
    }
}

/// The transactions of a store with one shard.
#[derive(Default)]
pub(crate) struct Requests {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Requests {
    /// Counts a read transaction.
    #[inline]
    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a commit with changes.
    pub(crate) fn write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of read transactions and of commits.
    pub(crate) fn get(&self) -> (u64, u64) {
        (load(&self.reads), load(&self.writes))
    }
}
