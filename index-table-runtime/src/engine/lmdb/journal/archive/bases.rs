//! The bases of the shards of a store. Each shard has bases of its own, which are pinned at different times.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    base::Request,
    format::{Based, Manifest},
    outbox::Outbox,
    to::{To, Writing},
};
use crate::{
    background::{Lane, Task},
    engine::lmdb::journal::{log, snapshot::Snapshot},
    locks::{Condvar, Mutex, rank},
};

/// The time between a failed attempt to write bases and the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// How long the end of a new shard waits for the start of its first base.
const PATIENCE: Duration = Duration::from_secs(10);

/// New bases are written when the segments since the last bases are longer than these bases and than this number of
/// bytes.
const LEAST: u64 = 64 << 20;

/// The shards of a journal.
pub(in crate::engine::lmdb::journal) trait Shards:
    Send + Sync
{
    fn present(&self) -> Present;

    /// Returns the number of the last committed record.
    fn last_record(&self) -> u64;

    /// Pins the state of a shard. Returns `None` if no reader slot is free, or if the shard is closed.
    fn pin(&self, shard: u32) -> Option<Pinned>;
}

/// The numbers of the shards of a store.
#[derive(Debug, Default)]
pub(in crate::engine::lmdb::journal) struct Present {
    pub(in crate::engine::lmdb::journal) open: Vec<u32>,
    /// The shards that were not available when the store was opened.
    pub(in crate::engine::lmdb::journal) missing: Vec<u32>,
}

impl Present {
    /// Whether each shard has a base, or is new.
    fn is_within(&self, based: &Based, new: &BTreeSet<u32>) -> bool {
        let mut shards = self.open.iter().chain(&self.missing);
        shards.all(|shard| based.contains_key(shard) || new.contains(shard))
    }
}

/// A pinned state of a shard.
pub(in crate::engine::lmdb::journal) struct Pinned {
    pub(in crate::engine::lmdb::journal) snapshot: Snapshot,
    pub(in crate::engine::lmdb::journal) directory: PathBuf,
}

/// The state of a shard for its first base: before its first commit, or at the beginning of a generation.
struct Added {
    shard: u32,
    pinned: Pinned,
    /// The end of the archive when the shard was added.
    manifest: Manifest,
}

/// The bases that are not complete. Their shards must not be closed.
#[derive(Default)]
pub(super) struct InProgress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The shards whose bases are pinned or written.
    writing: BTreeSet<u32>,
    /// The states of new shards that are not taken yet.
    added: Vec<Added>,
    /// The new shards that have no base yet.
    unbased: BTreeSet<u32>,
    /// The shards that may have a base in the archive. Some of them could not be added, so their numbers are used again. `None`
    /// before the archive was read.
    known: Option<BTreeSet<u32>>,
    /// How often a round has tried to take them.
    rounds: u64,
}

impl InProgress {
    /// Keeps the state of a shard without a base, for its first base.
    pub(super) fn add_shard(&self, shard: u32, pinned: Option<Pinned>, manifest: Manifest) {
        let mut state = self.state.lock();
        state.added.retain(|added| added.shard != shard);
        state.added.extend(pinned.map(|pinned| Added { shard, pinned, manifest }));
        state.unbased.insert(shard);
    }

    /// Releases the states that are not taken yet, because the archive can't be written. Later states are pinned instead.
    pub(super) fn release(&self) {
        self.state.lock().added.clear();
        self.changed.notify_all();
    }

    /// Whether a new shard has no base yet.
    pub(super) fn lacks_base(&self) -> bool {
        !self.state.lock().unbased.is_empty()
    }

    /// Records that the archive has bases of these shards.
    pub(super) fn found(&self, based: &Based) {
        self.state.lock().known.get_or_insert_default().extend(based.keys());
    }

    /// Whether the archive may have a base of the shard.
    pub(super) fn may_have_base(&self, shard: u32) -> bool {
        self.state.lock().known.as_ref().is_none_or(|known| known.contains(&shard))
    }

    fn has_base(&self, shard: u32) {
        self.state.lock().unbased.remove(&shard);
    }

    /// Returns the new shards.
    fn added(&self) -> Vec<u32> {
        self.state.lock().added.iter().map(|added| added.shard).collect()
    }

    /// Returns the state of a new shard, unless another generation has begun since.
    fn take_added(&self, shard: u32, generation: u64) -> Option<Added> {
        let mut state = self.state.lock();
        let at = state.added.iter().position(|added| added.shard == shard)?;
        Some(state.added.swap_remove(at)).filter(|added| added.manifest.generation == generation)
    }

    fn add(&self, shard: u32) {
        let mut state = self.state.lock();
        state.writing.insert(shard);
        state.known.get_or_insert_default().insert(shard);
    }

    /// Removes the shards that `is_done` accepts.
    pub(super) fn remove(&self, is_done: impl Fn(u32) -> bool) {
        self.state.lock().writing.retain(|shard| !is_done(*shard));
        self.changed.notify_all();
    }

    /// Records that a round has tried to write what is due.
    pub(super) fn end_round(&self) {
        self.state.lock().rounds += 1;
        self.changed.notify_all();
    }

    /// Waits until no base of the shard is being written. The first base of a new shard is written before, if the archive
    /// can be written.
    pub(super) fn wait(&self, shard: u32) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        let mut last = None;
        loop {
            let is_new = state.added.iter().any(|added| added.shard == shard);
            if !state.writing.contains(&shard) {
                // The current round may have begun before.
                let last = *last.get_or_insert(state.rounds + 2);
                let is_tried = state.writing.is_empty() && state.rounds >= last;
                if !is_new || is_tried || begun.elapsed() > PATIENCE {
                    break;
                }
            }
            if !state.writing.is_empty() {
                last = None;
            }
            state = self.changed.wait_timeout(state, Duration::from_secs(1));
        }
        state.added.retain(|added| added.shard != shard);
        state.unbased.remove(&shard);
    }
}

/// The outcomes of bases: the shard, and the length of the base.
type Outcomes = Vec<(u32, io::Result<u64>)>;

/// Bases whose states are pinned. They are written when the archive has all commits in these states: a base with commits that
/// the segments lack would restore half of a transaction of several shards.
struct Waiting {
    requests: Vec<(u32, Writing)>,
    generation: u64,
    /// The last record that can be in the states.
    record: u64,
}

/// The bases of a generation.
pub(super) struct ShardBases {
    shards: Arc<dyn Shards>,
    in_progress: Arc<InProgress>,
    pub(super) based: Based,
    waiting: Option<Waiting>,
    writing: Option<Task<Outcomes>>,
    /// The generation of the bases that are being written.
    generation: u64,
    /// The time of their states, in nanoseconds since 1970.
    time: u64,
    /// The length of the last bases, and the length of all segments when these bases were pinned.
    length: u64,
    since: u64,
    /// The time at which the last attempt failed.
    failed: Option<Instant>,
}

impl ShardBases {
    pub(super) fn new(shards: Arc<dyn Shards>, in_progress: Arc<InProgress>) -> Self {
        Self {
            shards,
            in_progress,
            based: Based::new(),
            waiting: None,
            writing: None,
            generation: 0,
            time: 0,
            length: 0,
            since: 0,
            failed: None,
        }
    }

    pub(super) fn present(&self) -> Present {
        self.shards.present()
    }

    /// Whether each shard has a base, except new shards, which may not be added.
    pub(super) fn are_complete(&self, present: &Present) -> bool {
        present.is_within(&self.based, &self.in_progress.state.lock().unbased)
    }

    /// Whether a base waits, is written, or is wanted.
    pub(super) fn are_due(&self) -> bool {
        let is_tried = || self.failed.is_none_or(|failed| failed.elapsed() >= RETRY);
        self.is_waiting() || self.writing.is_some() || (self.in_progress.lacks_base() && is_tried())
    }

    /// Whether pinned states wait for the segment to which records are appended.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Writes the bases that wait, if the archive has all commits up to `manifest` in complete segments.
    pub(super) fn start(&mut self, manifest: &Manifest) {
        let Some(waiting) = &self.waiting else { return };
        if waiting.generation != manifest.generation {
            self.cancel();
        } else if waiting.record <= manifest.commit
            && let Some(waiting) = self.waiting.take()
        {
            self.spawn(waiting.requests);
        }
    }

    /// Releases the pinned states, because the archive can't be written.
    pub(super) fn cancel(&mut self) {
        if let Some(Waiting { requests, .. }) = self.waiting.take() {
            self.in_progress.remove(|it| requests.iter().any(|(shard, _)| *shard == it));
        }
    }

    /// Pins the shards that need a base. Their bases are written by [`start`](Self::start).
    pub(super) fn pin(&mut self, target: &To, outbox: &Mutex<Outbox, rank::Outbox>, written: u64) {
        let is_early = self.failed.is_some_and(|failed| failed.elapsed() < RETRY);
        if self.writing.is_some() || self.waiting.is_some() || is_early {
            return;
        }
        let is_far = written.saturating_sub(self.since) > self.length.max(LEAST);
        let open = self.shards.present().open.into_iter();
        let mut wanted: BTreeSet<_> =
            open.filter(|shard| is_far || !self.based.contains_key(shard)).collect();
        // A new shard may be about to be closed.
        wanted.extend(self.in_progress.added());
        if wanted.is_empty() {
            return;
        }
        // Records after the pinned states are in the segment after the last complete segment, or in later segments.
        let outbox = outbox.lock();
        let (manifest, manager) = (*outbox.manifest(), outbox.manager().unwrap_or_default());
        let mut requests: Vec<(u32, Writing)> = Vec::new();
        for shard in wanted {
            self.in_progress.add(shard);
            let added = self.in_progress.take_added(shard, manifest.generation);
            let (pinned, manifest, time) = if let Some(added) = added {
                // It has no commit after the end of the archive.
                (Some(added.pinned), added.manifest, added.manifest.time)
            } else {
                let pinned = self.shards.pin(shard);
                (pinned, manifest, log::nanoseconds().max(manifest.time))
            };
            let Some(pinned) = pinned else {
                self.in_progress.remove(|it| it == shard);
                continue;
            };
            let request = Request {
                snapshot: pinned.snapshot,
                store: pinned.directory,
                shard: Some((shard, manager.clone())),
                identity: manifest.identity,
                generation: manifest.generation,
                segment: manifest.segment + 1,
                time,
            };
            requests.push((shard, target.base(&outbox, request)));
        }
        drop(outbox);
        (self.generation, self.since) = (manifest.generation, written);
        self.time = log::nanoseconds();
        let (generation, record) = (manifest.generation, self.shards.last_record());
        self.waiting = Some(Waiting { requests, generation, record });
    }

    fn spawn(&mut self, requests: Vec<(u32, Writing)>) {
        let numbers: Vec<_> = requests.iter().map(|(shard, _)| *shard).collect();
        let in_progress = Arc::clone(&self.in_progress);
        let run = move || {
            let mut outcomes = Vec::with_capacity(requests.len());
            for (shard, write) in requests {
                outcomes.push((shard, write()));
                in_progress.remove(|it| it == shard);
            }
            outcomes
        };
        if let Ok(task) = Task::start(Lane::Bases, run) {
            self.writing = Some(task);
        } else {
            self.failed = Some(Instant::now());
            self.in_progress.remove(|it| numbers.contains(&it));
        }
    }

    /// Records the outcome of bases, and returns the first error. Incomplete bases are awaited if `is_closing`;
    /// otherwise, this returns `None`.
    pub(super) fn finish(&mut self, is_closing: bool, manifest: &Manifest) -> Option<io::Error> {
        let is_finished = |it: &mut Task<_>| is_closing || it.is_done();
        let task = self.writing.take_if(is_finished)?;
        let Some(outcomes) = task.join() else {
            self.in_progress.remove(|_| true);
            return Some(io::ErrorKind::Other.into());
        };
        let (mut length, mut error) = (0, None);
        for (shard, outcome) in outcomes {
            match outcome {
                Ok(bytes) => {
                    length += bytes;
                    // In the meantime, a gap may have started another generation.
                    if self.generation == manifest.generation {
                        self.based.insert(shard, self.time);
                        self.in_progress.has_base(shard);
                    }
                }
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        self.length = self.length.max(length);
        self.failed = error.as_ref().map(|_| Instant::now());
        error
    }
}
