//! Checkpoints of all members of a journal, concurrent with their writers.
//!
//! 1. *Begin*: the log continues in the next segment, all earlier segments are durable, and each member that has changed
//!    since its last checkpoint is pinned with the lock of its commits. Its meta pages are copied.
//! 2. *Finish*: a [background](crate::background) thread syncs the data files of these members, checks that LMDB's reader
//!    tables have the pins of all members, writes the block into the segment, and syncs the segment.
//! 3. *Record*: later frames name the new checkpoint. Then the previous pins are released, each with the lock of the
//!    member's commits. So each commit that may use the released pages has a later frame.
//!
//! The [strategy](super::group::Strategy) of the journal's group decides who begins and records:
//!
//! | strategy | 1 | 3 |
//! |---|---|---|
//! | streamed | the committing thread, with the turn to write: pins the member, and then continues in the next segment, because the segment must not have a record of the pinned state | the next write transaction, before its first frame |
//! | gathered | the background thread: continues in the next segment, and then pins the members, because the state of each member must have its records of earlier segments | the background thread |

pub(in crate::engine::lmdb) mod direct;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use super::{
    block::{Block, Saved},
    common::{Common, DATA_SYNC, JOURNAL_SYNC, Making, Missed, Open, Opened, Part, Segment, Turn},
    log::{self, Switched},
    snapshot::{Refused, Snapshot},
    weaken,
    write_back::write_back,
};
use crate::{
    background::Work,
    locks::{Held as LockHeld, rank},
};

/// The pause before another attempt, and the shortest time between two looks at the age of the last checkpoint.
const SHORT: Duration = Duration::from_secs(1);
pub(super) const LONG: Duration = Duration::from_hours(1);

/// How often a checkpoint for a new shard is tried, with pauses of [`SHORT`].
pub(super) const TRIES: u32 = 10;

const PANICKED: &str = "a checkpoint has ended with a panic";
const PIN_LOST: &str = "the reader slot that protects the last checkpoint is gone";
const MAP_LOST: &str = "the data file of a shard could not be mapped again";
const OTHER_WRITER: &str = "a program without the journal has written to the store";
const CLOSED: &str = "the store is being closed";

/// Estimates the number of pages that a commit with this number of operations has changed. Each operation changes a leaf.
/// The first 16 operations change two branch pages each, and later operations share them.
pub(in crate::engine::lmdb) const fn pages(operations: u64) -> u64 {
    let paths = if operations < 16 { operations } else { 16 };
    operations.saturating_add(2 * paths)
}

impl Common {
    /// Returns the time until the age of the last checkpoint has to be looked at.
    pub(super) fn left(&self) -> Duration {
        let age = self.lock().since.elapsed();
        let left = self.limits.time().saturating_sub(age);
        if left.is_zero() { self.limits.time().clamp(SHORT, LONG) } else { left.min(LONG) }
    }

    /// Makes a checkpoint in this thread, for example because a shard was added.
    pub(super) fn checkpoint_now(&self, _turn: &Turn<'_>, tries: u32) -> io::Result<()> {
        for tried in 1..=tries {
            if let Some(reason) = self.refused() {
                return Err(io::Error::other(reason));
            }
            if self.lock().is_closed {
                return Err(io::Error::other(CLOSED));
            }
            self.lock().since = Instant::now();
            match self.checkpoint() {
                Ok(()) => return Ok(()),
                Err(Missed::Ever(reason)) => self.refuse(reason),
                Err(Missed::Now) if tried < tries => thread::sleep(SHORT),
                Err(Missed::Now) => {}
                Err(Missed::File(error)) => {
                    let reason = format!("a file of the journal could not be opened: {error}");
                    return Err(io::Error::new(error.kind(), reason));
                }
            }
        }
        let reason = "no checkpoint could be made, because all reader slots are taken";
        Err(io::Error::other(self.refused().unwrap_or(reason)))
    }

    /// Whether a shard has changes, or is committing. This does not wait for a commit, because callers have the lock of the state.
    pub(super) fn has_changes(&self) -> bool {
        self.shards.iter().any(|shard| {
            let Some(open) = shard.open.try_lock() else { return true };
            open.as_ref().is_some_and(|open| open.number > open.saved.number)
        })
    }

    /// Makes a checkpoint in this thread, which has the turn.
    fn checkpoint(&self) -> Result<(), Missed> {
        let mut making = self.begin(&mut None)?;
        if let Err(missed) = self.finish(&mut making, false) {
            self.lock().begun = Some(making.segment);
            return Err(missed);
        }
        self.record(making);
        Ok(())
    }

    /// Opens the files of the next segment.
    pub(super) fn open(&self) -> io::Result<Opened> {
        let (next, block) = (self.group.next_file()?, self.group.next_file()?);
        let has_archive = self.archive.get().is_some();
        let all = if has_archive { self.files.open_all()? } else { Vec::new() };
        let data = if self.is_streamed() { Some(self.data(0)?) } else { None };
        Ok(Opened { next, block, all, data })
    }

    /// Opens the data file of the shard at this position.
    fn data(&self, at: usize) -> io::Result<File> {
        let shard = self.shards.get(at).ok_or(io::ErrorKind::NotFound)?;
        shard.lock().as_ref().ok_or(io::ErrorKind::NotFound)?.data()
    }

    /// Begins a checkpoint. The files are opened if they are not, and are kept if the state can't be pinned.
    pub(super) fn begin(&self, opened: &mut Option<Opened>) -> Result<Making, Missed> {
        let begun = self.lock().begun.take();
        if begun.is_none() && opened.is_none() {
            *opened = Some(self.open().map_err(Missed::File)?);
        }
        let pins_first = self.is_streamed() || weaken::is("pin-first");
        let mut data = opened.as_mut().and_then(|opened| opened.data.take());
        let pinned = pins_first.then(|| self.pin(&mut data)).transpose()?;
        weaken::pause();
        let segment = match (begun, opened.take()) {
            (Some(segment), _) => segment,
            (None, Some(Opened { next, block, all, .. })) => {
                let switched = self.group.switch(next, self.limits.longest());
                Segment { switched: switched.map_err(|_| Missed::Ever(JOURNAL_SYNC))?, block, all }
            }
            (None, None) => return Err(Missed::Now),
        };
        match pinned.map_or_else(|| self.pin(&mut data), Ok) {
            Ok(parts) => Ok(Making { segment, parts }),
            Err(missed) => {
                self.lock().begun = Some(segment);
                Err(missed)
            }
        }
    }

    /// Returns the states of all shards. Each shard that has changed since its last checkpoint is pinned.
    fn pin(&self, data: &mut Option<File>) -> Result<Vec<Part>, Missed> {
        let mut parts = Vec::with_capacity(self.shards.len());
        for (at, shard) in self.shards.iter().enumerate() {
            let mut open = shard.lock();
            let Some(open) = &mut *open else {
                let saved = Saved::gone(shard.number, shard.closed.load(SeqCst));
                parts.push(Part { at, slots: None, saved, used: 0, taken: None, data: None });
                continue;
            };
            let (slots, saved) = (Some(Arc::clone(&open.slots)), open.saved.clone());
            let mut part = Part { at, slots, saved, used: open.used, taken: None, data: None };
            if open.number != open.saved.number {
                let data = data.take().map_or_else(|| open.data(), Ok).map_err(|_| Missed::Now)?;
                part.taken = Some(open.snapshot(&data, self.is_streamed())?);
                part.data = self.is_streamed().then_some(data);
                shard.pages.store(0, SeqCst);
                open.pin.release_early();
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// Makes a checkpoint durable. `is_synced` if the data file has been synced since its last change.
    pub(super) fn finish(&self, making: &mut Making, is_synced: bool) -> Result<(), Missed> {
        let failed = |_| Missed::Ever(DATA_SYNC);
        for part in &mut making.parts {
            let Some(snapshot) = &mut part.taken else { continue };
            weaken::pause();
            let data = part.data.take().map_or_else(|| self.data(part.at), Ok);
            let data = data.map_err(|_| Missed::Now)?;
            if !is_synced {
                // This or the sync returns the error of an earlier write.
                write_back(&data, || self.is_waited_for.load(SeqCst)).map_err(failed)?;
            }
            data.sync_data().map_err(failed)?;
            weaken::pause();
            if weaken::any()
                && let Some(shard) = self.shards.get(part.at)
                && let Some(open) = &*shard.lock()
            {
                snapshot.pin_late(&open.env);
                snapshot.copy_late(&data);
            }
            part.saved = snapshot.saved(part.saved.shard, &data).map_err(failed)?;
            part.used = snapshot.used(&data);
        }
        let is_pinned = |part: &Part| {
            part.slots.as_ref().is_none_or(|slots| slots.has(part.saved.number) || weaken::any())
        };
        if !making.parts.iter().all(is_pinned) {
            return Err(Missed::Ever(PIN_LOST));
        }
        let mut shards = Vec::with_capacity(self.room);
        shards.extend(making.parts.iter().map(|part| part.saved.clone()));
        Saved::pad(&mut shards, self.room);
        // A record before the segment whose commit has failed in some shards would be lost in the others. It
        // has refused further writes before its shards could be pinned.
        if let Some(reason) = self.refused() {
            return Err(Missed::Ever(reason));
        }
        let Switched { salt, record, link } = making.segment.switched;
        let block = Block { salt, record, link, time: log::now(), shards };
        self.save_archive(&making.segment.all, &block);
        let put = log::put_block(&making.segment.block, &block);
        put.map_err(|_| Missed::Ever(JOURNAL_SYNC))?;
        // An archive has the records of earlier segments in its outbox, or continues after them.
        self.group.shrink(self.limits.longest());
        Ok(())
    }

    /// Lets later frames name a durable checkpoint, and releases the pins before it.
    pub(super) fn record(&self, Making { segment, parts }: Making) {
        self.group.set_checkpoint(segment.switched.salt.sequence);
        for Part { at, saved, used, taken, .. } in parts {
            // Dropped with the lock: no commit is between its frame and LMDB's commit.
            if let Some(snapshot) = taken
                && let Some(shard) = self.shards.get(at)
                && let Some(open) = &mut *shard.lock()
            {
                (open.saved, open.used) = (saved, used);
                open.pin = snapshot;
            }
        }
        self.follow_size();
    }

    /// Begins a checkpoint, unless another one is in progress. The calling thread has the turn to write the only member.
    #[cold]
    pub(super) fn begin_streamed(&self) {
        let mut state = self.lock();
        if state.is_working || state.done.is_some() || self.refused().is_some() {
            return;
        }
        state.is_working = true;
        drop(state);
        match self.begin(&mut None) {
            Ok(making) => {
                self.is_due.store(false, SeqCst);
                self.is_begun.store(true, SeqCst);
                let mut state = self.lock();
                (state.pending, state.since) = (Some(making), Instant::now());
                drop(state);
                self.wake();
            }
            Err(missed) => {
                self.lock().is_working = false;
                self.changed.notify_all();
                // Without a free reader slot or a descriptor, the next commit tries again.
                self.is_due.store(true, SeqCst);
                if let Missed::Ever(reason) = missed {
                    self.refuse(reason);
                }
            }
        }
    }

    /// Records the checkpoint that a committing thread has begun, if it is durable. Returns whether it was. The calling thread
    /// has the turn to write the only member.
    pub(super) fn record_streamed(&self) -> bool {
        let mut state = self.lock();
        let done = state.done.take();
        self.is_begun.store(state.is_working, SeqCst);
        drop(state);
        let is_done = done.is_some();
        if let Some(done) = done {
            self.record(done);
        }
        is_done
    }

    /// Makes a last checkpoint if files of the journal are long, so that they are truncated. The caller closes a shard that can
    /// be written.
    pub(super) fn shrink_closed(&self, _turn: &Turn<'_>) {
        let is_long = || self.group.is_longer(self.limits.longest());
        // After a shard was closed with an incomplete data file, a checkpoint would lack the state of this shard. Then writes
        // are refused.
        if self.refused().is_none()
            && is_long()
            && let Err(Missed::Ever(reason)) = self.checkpoint()
        {
            self.refuse(reason);
        }
    }

    /// Makes the checkpoint durable that a committing thread has begun. The job gets the turn from that thread.
    fn finish_streamed(&self, mut making: Making) {
        let held = LockHeld::got::<rank::Checkpoint>(0);
        let turn = Turn { common: self, is_job: true, _held: held };
        // The pin of the last checkpoint stays after an error.
        let outcome = self.finish(&mut making, false);
        if outcome.is_ok() {
            let mut state = self.lock();
            state.done = Some(making);
            let time = state.since.elapsed();
            state.pace.follow(time);
        } else {
            self.refuse(match outcome {
                Err(Missed::Ever(reason)) => reason,
                _ => DATA_SYNC,
            });
        }
        drop(turn);
    }
}

impl Work for Common {
    fn run(&self) -> Option<Duration> {
        let mut state = self.lock();
        if let Some(making) = state.pending.take() {
            drop(state);
            self.finish_streamed(making);
            return None;
        }
        // Another thread makes a checkpoint with a new shard, and then wakes the job.
        let is_refused = state.is_closed || self.refused.get().is_some();
        if is_refused || state.is_working || self.is_streamed() {
            return None;
        }
        // Without changes, no checkpoint is needed.
        let is_old = || state.since.elapsed() >= self.limits.time() && self.has_changes();
        if !self.is_due.load(SeqCst) && !is_old() {
            drop(state);
            return Some(self.left());
        }
        (state.is_working, state.since) = (true, Instant::now());
        self.is_due.store(false, SeqCst);
        drop(state);
        let held = LockHeld::got::<rank::Checkpoint>(0);
        let turn = Turn { common: self, is_job: true, _held: held };
        let outcome = self.checkpoint();
        self.is_waited_for.store(false, SeqCst);
        drop(turn);
        match outcome {
            Ok(()) => Some(self.left()),
            Err(Missed::Ever(reason)) => {
                // The pins of the last checkpoint are kept.
                self.refuse(reason);
                None
            }
            Err(Missed::Now | Missed::File(_)) => {
                self.is_due.store(true, SeqCst);
                Some(SHORT)
            }
        }
    }

    fn panicked(&self) {
        self.refuse(PANICKED);
    }
}

impl Open {
    /// Pins the last state for a checkpoint. LMDB may not have counted the last commit of a member whose records are streamed,
    /// because the commit has changed nothing.
    fn snapshot(&self, data: &File, is_streamed: bool) -> Result<Snapshot, Missed> {
        if !self.is_mapped {
            return Err(Missed::Ever(MAP_LOST));
        }
        // Without a reader slot, the checkpoint is tried again.
        let snapshot = Snapshot::of_last(&self.env, data).map_err(|refused| match refused {
            Refused::Lmdb(_) | Refused::Io(_) => Missed::Now,
            Refused::Changed(reason) => Missed::Ever(reason),
        })?;
        let is_last = snapshot.number == self.number;
        let is_known = is_last || (is_streamed && snapshot.number < self.number);
        if !is_known {
            return Err(Missed::Ever(OTHER_WRITER));
        }
        Ok(snapshot)
    }
}
