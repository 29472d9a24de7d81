//! The counters of a store's use of its server.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{engine::ServerUsage, locks::Mutex};

/// The counters since the store was opened.
#[derive(Default)]
pub(super) struct Counters {
    /// Each connection adds to it.
    pub(super) statements: Arc<AtomicU64>,
    retries: AtomicU64,
    unknown_commits: AtomicU64,
    /// The threads that wait for a connection now.
    waiting: AtomicU64,
    waits: AtomicU64,
    /// The time of all waits that have ended, in nanoseconds.
    waited: AtomicU64,
    conflicts: AtomicU64,
    /// The conflicts by table. A table is in it from its first conflict on.
    by_table: Mutex<BTreeMap<&'static str, u64>>,
}

/// A thread that waits for a connection, until this is dropped.
pub(super) struct Wait<'c> {
    counters: &'c Counters,
    begun: Instant,
}

impl Counters {
    /// Counts a wait for a connection until the result is dropped.
    pub(super) fn begin_wait(&self) -> Wait<'_> {
        self.waiting.fetch_add(1, Relaxed);
        self.waits.fetch_add(1, Relaxed);
        Wait { counters: self, begun: Instant::now() }
    }

    /// Counts a closure that runs again.
    pub(super) fn note_retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Counts a commit whose outcome is not known.
    pub(super) fn note_unknown(&self) {
        self.unknown_commits.fetch_add(1, Relaxed);
    }

    /// Counts the conflict of a transaction that has written these tables.
    #[cold]
    pub(super) fn note_conflict(&self, tables: &[&'static str]) {
        self.conflicts.fetch_add(1, Relaxed);
        let mut by_table = self.by_table.lock();
        for table in tables {
            *by_table.entry(table).or_default() += 1;
        }
    }

    /// Returns the counts, with the numbers of connections that are open, in use, and allowed.
    pub(super) fn report(&self, [open, in_use, most]: [usize; 3]) -> ServerUsage {
        let number = |number| u64::try_from(number).unwrap_or(u64::MAX);
        ServerUsage {
            connections: number(open),
            connections_in_use: number(in_use),
            connections_most: number(most),
            waiting: self.waiting.load(Relaxed),
            waits: self.waits.load(Relaxed),
            waited: Duration::from_nanos(self.waited.load(Relaxed)),
            statements: self.statements.load(Relaxed),
            retries: self.retries.load(Relaxed),
            unknown_commits: self.unknown_commits.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            conflicts_by_table: self.by_table.lock().iter().map(|(k, v)| (*k, *v)).collect(),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Counters { waiting, waited, .. } = self.counters;
        waiting.fetch_sub(1, Relaxed);
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        waited.fetch_add(nanos, Relaxed);
    }
}
