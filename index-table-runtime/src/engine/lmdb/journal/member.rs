//! A member of a journal: a data file that this process writes. A store with one data file is the only member of its journal.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use super::{
    checkpoint::{LONG, TRIES, pages},
    common::{Common, JOURNAL_SYNC, Open, Shard, State},
    limits::Limits,
    pace,
    pinned::Slots,
    recorder::{Recorded, Recorder},
};
use crate::{
    engine::{JournalState, files::FileId, lmdb::error::LEFT},
    locks::{Held as LockHeld, MutexGuard, rank},
};

/// After this multiple of a limit, the writers of several members wait for the checkpoint.
const PATIENCE: u64 = 4;

/// A data file that this process writes with a journal.
pub(in crate::engine::lmdb) struct Member {
    pub(super) common: Arc<Common>,
    /// The position among the shards of the journal.
    pub(super) at: usize,
}

/// A lock that excludes other commits of a shard, and checkpoints.
pub(in crate::engine::lmdb) struct Held<'c>(MutexGuard<'c, Option<Open>>);

impl Held<'_> {
    /// Prevents checkpoints of the shard, because LMDB has no map.
    pub(in crate::engine::lmdb) fn map_lost(&mut self) {
        if let Some(open) = &mut *self.0 {
            open.is_mapped = false;
        }
    }

    /// Sets the number of the last commit.
    pub(super) fn set_number(&mut self, number: u64) {
        if let Some(open) = &mut *self.0 {
            open.number = open.number.max(number);
        }
    }
}

impl Member {
    pub(super) fn shard(&self) -> Option<&Shard> {
        self.common.shards.get(self.at)
    }

    /// Whether the journal can have other members.
    pub(in crate::engine::lmdb) fn is_shared(&self) -> bool {
        !self.common.is_streamed()
    }

    /// Returns the recorder of the data file. `may_be_direct` if transactions that are too large for the journal need not be in
    /// it. An archive gets its records from the journal, and only the records of one member have
    /// [direct commits](super::checkpoint::direct).
    pub(in crate::engine::lmdb) fn recorder(&self, may_be_direct: bool) -> Recorder {
        let common = &*self.common;
        let number = self.shard().map_or(0, |shard| shard.number);
        let is_limited = may_be_direct && common.is_streamed() && common.archive.get().is_none();
        let limits: Option<&Arc<Limits>> = is_limited.then_some(&common.limits);
        Recorder::new(Arc::clone(&common.group), number, limits.map(Arc::clone))
    }

    /// Returns the paths and the numbers of the files of the journal.
    pub(in crate::engine::lmdb) fn files(&self) -> impl Iterator<Item = (PathBuf, FileId)> {
        self.common.files.paths()
    }

    /// Returns the state of the journal.
    pub(in crate::engine::lmdb) fn state(&self) -> JournalState {
        let length = |(path, _)| fs::metadata(path).map_or(0, |file| file.len());
        let age = self.common.lock().since.elapsed();
        JournalState {
            bytes: self.files().map(length).sum(),
            checkpoint_age: self.common.has_changes().then_some(age),
            changed: self.common.shards.iter().map(|shard| shard.pages.load(SeqCst)).sum(),
            refused: self.refused(),
        }
    }

    /// Returns the slots, which have to stay open as long as the environment.
    pub(in crate::engine::lmdb) fn slots(&self) -> Option<Arc<Slots>> {
        self.shard()?.lock().as_ref().map(|open| Arc::clone(&open.slots))
    }

    /// Returns the reason why the data file is no longer written.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        let has_left = self.shard().is_none_or(|shard| shard.has_left.load(SeqCst));
        if has_left { Some(LEFT) } else { self.common.refused() }
    }

    /// Whether writers wait for a checkpoint, or will soon have to wait for the one in progress.
    pub(in crate::engine::lmdb) fn is_behind(&self) -> bool {
        let common = &*self.common;
        if !common.is_begun.load(SeqCst) {
            return common.is_waited_for.load(SeqCst);
        }
        let is_working = common.lock().is_working;
        is_working && self.pages() >= common.limits.changed().saturating_mul(pace::PATIENCE) / 2
    }

    /// Waits, without the turn to write, while a late checkpoint of several members is being made. The writers of a single member
    /// wait in [`begin`](Self::begin).
    pub(in crate::engine::lmdb) fn wait_for_room(&self) {
        let common = &*self.common;
        if common.is_streamed() || !common.is_waited_for.load(SeqCst) {
            return;
        }
        drop(LockHeld::wait::<rank::Checkpoint>(0));
        let mut state = common.lock();
        let is_late = || common.is_waited_for.load(SeqCst) && common.refused().is_none();
        while is_late() && !state.is_closed {
            state = common.changed.wait_timeout(state, Duration::from_secs(1));
        }
    }

    /// Prepares for a write transaction of a single member: waits if a checkpoint is in progress and more has changed since its
    /// start than its [pace](super::pace) allows, and records a checkpoint that has become durable. The calling thread must have
    /// the turn to write, so that the transactions of waiting threads count too.
    pub(in crate::engine::lmdb) fn begin(&self) {
        let common = &*self.common;
        if !common.is_begun.load(SeqCst) {
            return;
        }
        let mut state = common.lock();
        while state.is_working && common.refused().is_none() {
            let left = self.left(&state);
            if left.is_zero() {
                break;
            }
            common.is_waited_for.store(true, SeqCst);
            state = common.changed.wait_timeout(state, left);
            common.is_waited_for.store(false, SeqCst);
        }
        drop(state);
        common.record_streamed();
    }

    /// Returns the time for which writers wait beside a checkpoint.
    fn left(&self, state: &State) -> Duration {
        let limits = &self.common.limits;
        let pages = state.pace.time_of(self.pages(), limits.changed());
        let journal = state.pace.time_of(self.common.group.length(), limits.journal());
        match (pages, journal) {
            (Some(pages), Some(journal)) => {
                pages.max(journal).saturating_sub(state.since.elapsed())
            }
            // At the limit, the end of the checkpoint wakes the thread.
            _ => LONG,
        }
    }

    /// Begins a checkpoint if pages of this data file were changed since the last one, because a transaction had no room. The
    /// calling thread must have the turn to write.
    #[cold]
    pub(in crate::engine::lmdb) fn begin_freeing_pages(&self) {
        let common = &*self.common;
        if self.pages() == 0 {
        } else if common.is_streamed() {
            common.begin_streamed();
        } else if !common.is_due.swap(true, SeqCst) {
            common.wake();
        }
    }

    /// Makes a checkpoint if pages of this data file were changed since the last one. Returns whether a checkpoint has ended. The
    /// calling thread must have the turn to write exactly if the journal is not [shared](Self::is_shared).
    #[cold]
    pub(in crate::engine::lmdb) fn free_pages(&self) -> bool {
        let common = &*self.common;
        let is_changed = self.pages() > 0;
        if !is_changed && !common.is_begun.load(SeqCst) {
            return false;
        }
        let turn = common.turn();
        // A checkpoint that was in progress lacks later changes.
        let has_ended = common.record_streamed();
        let tries = if common.is_streamed() { 1 } else { TRIES };
        let is_made = is_changed && common.checkpoint_now(&turn, tries).is_ok();
        is_made || (has_ended && common.refused().is_none())
    }

    /// Returns the bytes of pages changed since the start of the last checkpoint.
    fn pages(&self) -> u64 {
        self.shard().map_or(0, |shard| shard.pages.load(SeqCst))
    }

    /// Excludes checkpoints, from before a record is appended until LMDB has committed it, and while LMDB has no map.
    pub(in crate::engine::lmdb) fn hold(&self) -> Option<Held<'_>> {
        self.shard().map(|shard| Held(shard.lock()))
    }

    /// Counts a visible commit, and begins a checkpoint if one is due. The calling thread must have the turn to write.
    pub(in crate::engine::lmdb) fn committed(
        &self,
        mut held: Held<'_>,
        recorded: Recorded,
        number: u64,
    ) {
        let common = &*self.common;
        let (Some(open), Some(shard)) = (&*held.0, self.shard()) else { return };
        let changed = pages(recorded.operations) * u64::from(open.saved.page_size);
        let pages = shard.pages.load(SeqCst).saturating_add(changed);
        shard.pages.store(pages, SeqCst);
        held.set_number(number);
        let exceeds = |times: u64| {
            pages >= common.limits.changed().saturating_mul(times)
                || recorded.length >= common.limits.journal().saturating_mul(times)
        };
        let (is_due, is_far) = (exceeds(1), exceeds(PATIENCE));
        common.count_for_archive(recorded.record, number);
        // The job locks a shard with its own lock.
        drop(held);
        if common.is_streamed() {
            let is_old = || common.lock().since.elapsed() >= common.limits.time();
            if is_due || common.is_due.load(SeqCst) || is_old() {
                common.begin_streamed();
            }
            return common.give_base();
        }
        if is_far {
            common.is_waited_for.store(true, SeqCst);
        }
        if is_due && !common.is_due.swap(true, SeqCst) {
            common.wake();
        }
    }

    /// Refuses further writes, because a sync has failed, or because LMDB and the journal differ.
    pub(in crate::engine::lmdb) fn fail(&self) {
        self.refuse(JOURNAL_SYNC);
    }

    /// Refuses further writes, for this reason.
    pub(in crate::engine::lmdb) fn refuse(&self, reason: &'static str) {
        self.common.refuse(reason);
    }
}
