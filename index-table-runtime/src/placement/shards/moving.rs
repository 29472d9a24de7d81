//! Moves of keys to other shards: their records, and the rows that change while they are copied.
//!
//! A move has these steps. Each of them is a commit in both shards, which writes the [`MoveRecord`]s of both:
//!
//! | step | the record | the boundaries of the map | queries |
//! |---|---|---|---|
//! | mark | added | the source has the keys | omit copies in the target |
//! | copy, verify | | | |
//! | switch | [`is_switched`](MoveRecord::is_switched) | the target has the keys | omit copies in the source |
//! | clean up | | | |
//! | end | removed | | omit nothing |
//!
//! A copy is a row in a shard other than the shard that the shard map assigns to it ([`Routing::is_copy`]). So the
//! boundaries of the map determine which of two equal rows is the copy, and one commit changes them.
//!
//! Rows that change while they are copied are [tracked](Tracker): each write of a row of the range adds its primary key to
//! a set in memory, and the move copies these rows again. If another process continues a move, it starts the copy
//! again, and writes only the rows that differ.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::model::shard::Routing;
use crate::{
    locks::{self, Condvar, Mutex, MutexGuard, fork, next_store, rank},
    model::{
        schema::{IndexSchema, TableSchema},
        shard::{Boundaries, ShardNumber},
    },
};

/// The unique number of a move.
pub(crate) type MoveId = u64;

/// An unfinished move, in the records of both of its shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveRecord {
    pub(crate) id: MoveId,
    /// The name of the shard map.
    pub(crate) map: String,
    /// The first key in the boundaries of the map.
    pub(crate) start: Vec<u8>,
    /// The first key after the range.
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) from: ShardNumber,
    pub(crate) to: ShardNumber,
    /// Whether the keys of the range can't be written until the switch.
    pub(crate) is_offline: bool,
    /// Whether the target has the keys.
    pub(crate) is_switched: bool,
    /// When the move began, in seconds since 1970.
    pub(crate) begun: u64,
}

/// Returns a random number for a new move.
pub(crate) fn new_id() -> MoveId {
    RandomState::new().hash_one(SystemTime::now())
}

impl MoveRecord {
    /// Whether the move has this key of the shard map.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Returns the shard that has the keys.
    pub(crate) const fn owner(&self) -> ShardNumber {
        if self.is_switched { self.to } else { self.from }
    }

    /// Returns the shard with copies.
    pub(crate) const fn copier(&self) -> ShardNumber {
        if self.is_switched { self.from } else { self.to }
    }

    /// Returns the boundaries in the state of the move; `None` if they are those of the map, as before the switch.
    pub(crate) fn boundaries(&self, map: &Boundaries) -> Option<Boundaries> {
        if map.are_all_in(&self.start, self.end.as_deref(), self.owner()) {
            return None;
        }
        let mut boundaries = map.clone();
        boundaries.assign(&self.start, self.end.as_deref(), Some(self.owner()));
        Some(boundaries)
    }
}

/// A move in this process.
pub(crate) struct Moving {
    pub(crate) record: MoveRecord,
    pub(crate) tracker: Arc<Tracker>,
    /// The number of rows, or entries of a global index, that this process has copied.
    pub(crate) rows: Arc<AtomicU64>,
    /// The bytes of these rows.
    pub(crate) bytes: Arc<AtomicU64>,
    /// The number of rows to copy; 0 if this process copies no rows.
    pub(crate) total: Arc<AtomicU64>,
}

impl Moving {
    pub(crate) fn new(record: MoveRecord) -> Self {
        let (tracker, rows) = (Arc::default(), Arc::default());
        Self { record, tracker, rows, bytes: Arc::default(), total: Arc::default() }
    }

    /// Returns the same move after the switch.
    pub(crate) fn switched(&self) -> Self {
        let record = MoveRecord { is_switched: true, ..self.record.clone() };
        let (tracker, rows) = (Arc::clone(&self.tracker), Arc::clone(&self.rows));
        let (bytes, total) = (Arc::clone(&self.bytes), Arc::clone(&self.total));
        Self { record, tracker, rows, bytes, total }
    }
}

/// A row, number or entry that has changed during the copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tracked {
    /// The row of a table with this primary key.
    Row(&'static str, Vec<u8>),
    /// The number of a table after this leading part of the primary key.
    Sequence(&'static str, Vec<u8>),
    /// The only entry of a global index with this index key.
    Only(&'static str, usize, Vec<u8>),
    /// The entry of a global index with this index key and primary key.
    Entry(&'static str, usize, Vec<u8>, Vec<u8>),
}

impl Tracked {
    /// Returns the note of an entry of a global index.
    pub(crate) fn entry(
        schema: &'static TableSchema,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
    ) -> Self {
        let (table, key) = (schema.name, key.to_vec());
        let declared = schema.indexes.get(index);
        if declared.is_some_and(IndexSchema::has_one_entry_per_key) {
            return Self::Only(table, index, key);
        }
        Self::Entry(table, index, key, primary_key.to_vec())
    }

    /// Returns the name of the table.
    pub(crate) const fn table(&self) -> &'static str {
        match self {
            Self::Row(table, _)
            | Self::Sequence(table, _)
            | Self::Only(table, ..)
            | Self::Entry(table, ..) => table,
        }
    }
}

/// The rows that have changed since the copy began.
#[derive(Default)]
pub(crate) struct Tracker(Mutex<Changed>);

#[derive(Default)]
struct Changed {
    these: BTreeSet<Tracked>,
    /// Whether there were too many. Then the copy starts again.
    too_many: bool,
}

/// The maximum number of tracked changes in memory.
const MOST: usize = 1 << 20;

impl Tracker {
    /// Adds a change. The shard is locked by the transaction that writes it, which may not be committed.
    pub(crate) fn add(&self, changed: Tracked) {
        let mut all = self.0.lock();
        if all.these.len() >= MOST {
            all.these.clear();
            all.too_many = true;
        }
        all.these.insert(changed);
    }

    /// Removes and returns the changes; `None` if there were too many.
    pub(crate) fn take(&self) -> Option<BTreeSet<Tracked>> {
        let mut all = self.0.lock();
        let Changed { these, too_many } = mem::take(&mut *all);
        (!too_many).then_some(these)
    }

    /// Restarts the copy, because untracked rows have changed.
    pub(crate) fn restart(&self) {
        self.0.lock().too_many = true;
    }

    /// Whether this has changed, or may have changed.
    pub(crate) fn has(&self, changed: &Tracked) -> bool {
        let all = self.0.lock();
        all.too_many || all.these.contains(changed)
    }
}

/// Mutual exclusion of the steps of moves and of work that writes single shards, for example a bulk load.
pub(super) struct Holds {
    state: Mutex<HoldState>,
    changed: Condvar,
    /// The number of the store, for the order of locks.
    store: u64,
}

impl Default for Holds {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), store: next_store() }
    }
}

#[derive(Default)]
struct HoldState {
    /// The number of holds.
    held: usize,
    /// Whether a step of a move is running.
    is_moving: bool,
    /// The number of holds so far.
    count: u64,
    /// Until when further holds wait for a move, which has waited or started over too often. They don't wait for ever, because
    /// the move may wait for a lock or a hold of their thread.
    urgent_until: Option<Instant>,
}

impl HoldState {
    /// Returns how long a hold has to wait for a move.
    fn urgent(&self) -> Duration {
        let until = self.urgent_until.map(|until| until.saturating_duration_since(Instant::now()));
        until.unwrap_or_default()
    }
}

/// How long a step of a move waits before further holds wait for it, and how long they do.
const SOON: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);

/// A guard that prevents steps of moves.
pub(crate) struct Held<'e> {
    holds: &'e Holds,
    /// See [`fork::forks`].
    forks: u32,
    _lock: locks::Held,
}

/// A guard that makes holds wait for the switch of a move.
pub(crate) struct Urgent<'e> {
    holds: &'e Holds,
    /// See [`fork::forks`].
    forks: u32,
}

/// A guard of a running step of a move.
pub(crate) struct Step<'e> {
    holds: &'e Holds,
    /// See [`fork::forks`].
    forks: u32,
    _lock: locks::Held,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    /// Waits until no step of a move is running, and prevents further steps.
    pub(super) fn hold(&self) -> Held<'_> {
        drop(locks::Held::wait::<rank::MoveHold>(self.store));
        let mut state = self.lock();
        loop {
            let urgent = state.urgent();
            state = match (urgent.is_zero(), state.is_moving) {
                (false, _) => self.changed.wait_timeout(state, urgent),
                (true, true) => self.changed.wait(state),
                (true, false) => break,
            };
        }
        state.held += 1;
        state.count += 1;
        Held {
            holds: self,
            forks: fork::forks(),
            _lock: locks::Held::got::<rank::MoveStep>(self.store),
        }
    }

    /// Makes further holds wait until the result is dropped, at most for this time or [`PATIENCE`].
    pub(super) fn hurry(&self, time: Duration) -> Urgent<'_> {
        self.lock().urgent_until = Instant::now().checked_add(time.max(PATIENCE));
        Urgent { holds: self, forks: fork::forks() }
    }

    /// Waits until nothing prevents a step of a move. Also returns the number of holds so far.
    pub(super) fn step(&self) -> (Step<'_>, u64) {
        drop(locks::Held::wait::<rank::MoveStep>(self.store));
        let (mut state, begun, mut hurried) = (self.lock(), Instant::now(), None);
        while state.is_moving || state.held > 0 {
            state = self.changed.wait_timeout(state, SOON);
            // Otherwise, holds that follow each other could leave no time for the step.
            if hurried.is_none() && begun.elapsed() >= SOON && state.urgent().is_zero() {
                hurried = Some(state.urgent_until);
                state.urgent_until = Instant::now().checked_add(PATIENCE);
            }
        }
        if let Some(before) = hurried {
            state.urgent_until = before;
        }
        state.is_moving = true;
        (self.running(), state.count)
    }

    /// Does the same, or returns `None` instead of waiting.
    pub(super) fn try_step(&self) -> Option<(Step<'_>, u64)> {
        let mut state = self.lock();
        if state.is_moving || state.held > 0 {
            return None;
        }
        state.is_moving = true;
        Some((self.running(), state.count))
    }

    fn running(&self) -> Step<'_> {
        Step {
            holds: self,
            forks: fork::forks(),
            _lock: locks::Held::got::<rank::MoveHold>(self.store),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // In a forked process, the lock may be held by a thread that does not exist.
        if self.forks == fork::forks() {
            self.holds.lock().held -= 1;
            self.holds.changed.notify_all();
        }
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        if self.forks == fork::forks() {
            self.holds.lock().urgent_until = None;
            self.holds.changed.notify_all();
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.forks == fork::forks() {
            self.holds.lock().is_moving = false;
            self.holds.changed.notify_all();
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::thread;

    use super::*;

    /// Whether a thread that takes locks in this way panics.
    fn is_refused(body: impl FnOnce(&Holds, &Mutex<(), rank::Opening>) + Send) -> bool {
        let (holds, opening) = (Holds::default(), Mutex::new(()));
        thread::scope(|scope| scope.spawn(|| body(&holds, &opening)).join().is_err())
    }

    #[test]
    fn holds_that_follow_each_other_leave_time_for_the_steps_of_a_move() {
        let (holds, is_done) = (Holds::default(), std::sync::atomic::AtomicBool::new(false));
        thread::scope(|scope| {
            // There is a hold at almost any time.
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                        let held = holds.hold();
                        thread::sleep(Duration::from_millis(2));
                        drop(held);
                    }
                });
            }
            for _ in 0..3 {
                drop(holds.step());
            }
            let (urgent, begun) = (holds.hurry(Duration::ZERO), Instant::now());
            let (_, first) = holds.step();
            thread::sleep(Duration::from_millis(20));
            let (_, last) = holds.step();
            assert!(first == last || begun.elapsed() >= PATIENCE);
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(urgent);
        });
    }

    #[test]
    fn steps_of_moves_and_openings_of_tables_do_not_wait_for_each_other() {
        assert!(is_refused(|holds, _| drop((holds.hold(), holds.step()))));
        assert!(is_refused(|holds, _| drop((holds.step(), holds.hold()))));
        assert!(is_refused(|holds, opening| drop((opening.lock(), holds.step()))));
        assert!(is_refused(|holds, opening| drop((holds.step(), opening.lock()))));
        let of_shard = Mutex::<_, rank::Opening>::numbered(1, ());
        assert!(!is_refused(|holds, _| drop((holds.step(), of_shard.lock()))));
        assert!(!is_refused(|holds, _| drop((holds.hold(), holds.hold()))));
        assert!(!is_refused(|holds, opening| drop((holds.hold(), opening.lock()))));
        assert!(!is_refused(|holds, opening| drop((opening.lock(), holds.hold()))));
        assert!(!is_refused(|holds, opening| {
            let _opening = opening.lock();
            assert!(holds.try_step().is_some());
        }));
    }
}
