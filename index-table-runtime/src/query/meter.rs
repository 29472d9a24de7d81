//! The meter of a query: it counts the query's reads, and looks up the rows and the shards that it reads.

use std::{cell::Cell, sync::Arc};

use crate::{
    engine::{Count, Query, Read},
    model::{error::Result, key::Unescaped, lists::Lists, schema::Source, shard::ShardSet},
    placement::Reader,
    usage::{ReadCounters, Stats, TableCounters, trace::Trace},
};

/// The state of a transaction in addition to the engine's state.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) unescaped: Unescaped,
    pub(crate) total: Total,
}

/// The stats of a transaction's finished queries.
#[derive(Debug, Default)]
pub(crate) struct Total(Cell<Stats>);

impl Total {
    pub(crate) fn get(&self) -> Stats {
        self.0.get()
    }

    #[inline]
    pub(crate) fn add(&self, stats: Stats) {
        let mut total = self.0.get();
        total += stats;
        self.0.set(total);
    }
}

/// The destinations of a query's cost: its transaction and its table.
#[derive(Clone, Copy)]
pub(crate) struct Ledger<'txn> {
    pub(crate) session: &'txn Session,
    pub(crate) usage: &'txn Arc<TableCounters>,
    /// The lists of the table.
    pub(crate) lists: &'txn Arc<Lists>,
}

impl<'txn> Ledger<'txn> {
    #[inline]
    pub(crate) fn new(
        session: &'txn Session,
        usage: &'txn Arc<TableCounters>,
        lists: &'txn Arc<Lists>,
    ) -> Self {
        Self { session, usage, lists }
    }

    /// Returns a meter for a query of this index or of the fact table.
    #[inline]
    pub(crate) fn meter(self, source: Source, limit: Option<u64>) -> Meter<'txn> {
        let begun = self.usage.of(source).begin_query();
        Meter::new(self, source, limit, Trace::scan(self.usage, source), begun)
    }

    /// Returns a meter for one look-up in a unique index, which is never timed.
    #[inline]
    pub(crate) fn point(self, source: Source) -> Meter<'txn> {
        Meter::new(self, source, None, Trace::scan(self.usage, source), 0)
    }

    /// Returns a meter for facts that are looked up one by one.
    pub(crate) fn look_ups(self, trace: Trace) -> Meter<'txn> {
        Meter::new(self, Source::Facts, None, trace, 0)
    }

    /// Records a count of entries, without decoding.
    pub(crate) fn count(self, source: Source, count: Count) {
        let stats = Stats { seeks: count.seeks, entries: count.steps, ..Stats::default() };
        Trace::scan(self.usage, source).record(stats);
        self.session.total.add(stats);
        self.usage.of(source).add(1, stats);
    }

    /// Records the look-up of the totals of a group in some shards.
    pub(crate) fn totals(self, shards: u64, bytes: usize) {
        let bytes = bytes as u64;
        self.session.total.add(Stats { seeks: shards, entries: 1, bytes, ..Stats::default() });
    }

    /// Records the look-up of a single fact of this length.
    #[inline]
    pub(crate) fn get(self, bytes: usize) {
        let stats = Stats { facts: 1, bytes: bytes as u64, ..Stats::default() };
        self.session.total.add(stats);
        self.usage.facts.add(0, stats);
    }
}

/// Counts the cost of one query while it runs, and records it when dropped.
///
/// A query without any reads is not recorded.
pub(crate) struct Meter<'txn> {
    session: &'txn Session,
    counters: &'txn ReadCounters,
    lists: &'txn Lists,
    seeks: u64,
    facts: u64,
    bytes: u64,
    limit: u64,
    /// The remaining limit. The number of read entries is its difference from `limit`.
    left: u64,
    /// The number of entries that were read and skipped, because they don't meet the conditions.
    skipped: u64,
    shards: ShardSet,
    trace: Trace,
    /// The start of a query that is timed; 0 for other queries.
    begun: u64,
}

impl<'txn> Meter<'txn> {
    #[inline]
    fn new(
        ledger: Ledger<'txn>,
        source: Source,
        limit: Option<u64>,
        trace: Trace,
        begun: u64,
    ) -> Self {
        let (session, counters) = (ledger.session, ledger.usage.of(source));
        let limit = limit.unwrap_or(u64::MAX);
        Self {
            session,
            counters,
            lists: ledger.lists,
            seeks: 0,
            facts: 0,
            bytes: 0,
            limit,
            left: limit,
            skipped: 0,
            shards: ShardSet::None,
            trace,
            begun,
        }
    }

    /// Returns the lists of the table.
    #[inline]
    pub(crate) const fn lists(&self) -> &'txn Lists {
        self.lists
    }

    #[inline]
    pub(crate) const fn session(&self) -> &'txn Session {
        self.session
    }

    #[inline]
    pub(crate) fn stats(&self) -> Stats {
        let Self { seeks, facts, bytes, limit, left, skipped, .. } = *self;
        Stats { seeks, entries: limit - left + skipped, facts, bytes, shards: self.shards.len() }
    }

    /// Returns the different shards that were read.
    pub(crate) const fn shards(&self) -> &ShardSet {
        &self.shards
    }

    /// Returns the reader of the shard that has all entries of a query and their rows, and records that shard. Otherwise,
    /// returns the same reader.
    #[inline]
    pub(crate) fn of_query<'t>(&mut self, reader: Reader<'t>, query: &Query) -> Result<Reader<'t>> {
        reader.of_query(query, &mut self.shards)
    }

    /// Records the shards that a scan reads, with a seek for each shard after the first.
    #[inline]
    pub(crate) fn reads(&mut self, reader: Reader<'_>, query: &Query) {
        self.seeks += reader.note_shards(query, &mut self.shards).saturating_sub(1);
    }

    /// Records the shards that a count reads, without its seeks.
    #[inline]
    pub(crate) fn counts(&mut self, reader: Reader<'_>, query: &Query) {
        reader.note_shards(query, &mut self.shards);
    }

    /// Records the shard of a row.
    #[inline]
    pub(crate) fn reads_row(&mut self, reader: Reader<'_>, primary_key: &[u8]) {
        reader.note_shard_of(primary_key, &mut self.shards);
    }

    #[inline]
    pub(crate) const fn seek(&mut self) {
        self.seeks += 1;
    }

    /// Returns the remaining limit after the next entry; `None` if the limit is reached.
    #[inline]
    pub(crate) const fn left_after_next(&self) -> Option<u64> {
        self.left.checked_sub(1)
    }

    /// Records an entry, with the [remaining limit](Meter::left_after_next).
    #[inline]
    pub(crate) const fn entry(&mut self, left: u64) {
        self.left = left;
    }

    /// Records an entry of a query without a limit.
    #[inline]
    pub(crate) const fn step(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Records an entry that is not part of the result.
    pub(crate) const fn pass(&mut self) {
        self.skipped += 1;
    }

    #[inline]
    pub(crate) const fn fact(&mut self) {
        self.facts += 1;
    }

    /// Looks up the fact with this primary key, to decode it.
    #[inline]
    pub(crate) fn look_up<'t>(
        &mut self,
        reader: Reader<'t>,
        primary_key: &[u8],
    ) -> Result<Option<&'t [u8]>> {
        self.fact();
        reader.note_referred(primary_key, &mut self.shards);
        let fact = reader.fact(primary_key)?;
        self.bytes(fact.map_or(0, <[u8]>::len));
        Ok(fact)
    }

    /// Records a joined row, which counts as a look-up.
    #[inline]
    pub(crate) const fn joined(&mut self, row: &[u8]) {
        self.fact();
        self.bytes(row.len());
    }

    /// Records decoded bytes.
    #[inline]
    pub(crate) const fn bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records a count of entries within the query.
    pub(crate) fn count(&mut self, count: Count) {
        self.seeks += count.seeks;
        self.left = self.left.saturating_sub(count.steps);
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        let stats = self.stats();
        if stats == Stats::default() {
            return;
        }
        self.session.total.add(stats);
        self.counters.add(u64::from(stats.seeks > 0), stats);
        if self.begun != 0 {
            self.counters.durations().end(self.begun);
        }
        self.trace.record(stats);
    }
}
