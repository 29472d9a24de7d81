//! The bases of the shards of a store. Each shard has bases of its own, which are pinned at different times.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    base::Request,
    format::Manifest,
    outbox::Outbox,
    to::{To, Writing},
};
use crate::{
    engine::lmdb::journal::snapshot::Snapshot,
    locks::{Condvar, Mutex},
};

const NAME: &str = "index-table-base";

/// The time between a failed attempt to write bases and the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// New bases are written when the segments since the last bases are longer than these bases and than this number of
/// bytes.
const LEAST: u64 = 64 << 20;

/// The shards of a journal.
pub(in crate::engine::lmdb::journal) trait Shards:
    Send + Sync
{
    fn present(&self) -> Present;

    /// Pins the state of a shard. Returns `None` if no reader slot is free, or if the shard is closed.
    fn pin(&self, shard: u32) -> Option<Pinned>;
}

/// The numbers of the shards of a store.
#[derive(Debug, Default)]
pub(in crate::engine::lmdb::journal) struct Present {
    pub(in crate::engine::lmdb::journal) open: Vec<u32>,
    /// The shards that were not available when the store was opened.
    pub(in crate::engine::lmdb::journal) missing: Vec<u32>,
    /// The shards that were restored since the store was opened. They don't have this journal.
    pub(in crate::engine::lmdb::journal) restored: Vec<u32>,
}

impl Present {
    /// Returns the first shard without a base.
    pub(super) fn without_base(&self, based: &BTreeSet<u32>) -> Option<u32> {
        self.open.iter().chain(&self.missing).find(|shard| !based.contains(shard)).copied()
    }
}

/// A pinned state of a shard.
pub(in crate::engine::lmdb::journal) struct Pinned {
    pub(in crate::engine::lmdb::journal) snapshot: Snapshot,
    pub(in crate::engine::lmdb::journal) directory: PathBuf,
}

/// The state of a shard before its first commit, if the shard was added while the store was open.
struct Added {
    shard: u32,
    pinned: Pinned,
    /// The end of the archive when the shard was added.
    manifest: Manifest,
}

/// The shards whose bases are being written. These shards must not be closed.
#[derive(Default)]
pub(super) struct InProgress {
    shards: Mutex<BTreeSet<u32>>,
    changed: Condvar,
    added: Mutex<Vec<Added>>,
}

impl InProgress {
    /// Keeps the state of a new shard for its first base.
    pub(super) fn add_shard(&self, shard: u32, pinned: Pinned, manifest: Manifest) {
        let mut added = self.added.lock();
        added.push(Added { shard, pinned, manifest });
    }

    /// Returns the state of a new shard, unless another generation has begun since.
    fn take_added(&self, shard: u32, generation: u64) -> Option<Added> {
        let mut added = self.added.lock();
        let at = added.iter().position(|added| added.shard == shard)?;
        Some(added.swap_remove(at)).filter(|added| added.manifest.generation == generation)
    }

    fn add(&self, shard: u32) {
        self.shards.lock().insert(shard);
    }

    /// Removes the shards that `is_done` accepts.
    fn remove(&self, is_done: impl Fn(u32) -> bool) {
        let mut shards = self.shards.lock();
        shards.retain(|shard| !is_done(*shard));
        self.changed.notify_all();
    }

    /// Waits until no base of the shard is being written.
    pub(super) fn wait(&self, shard: u32) {
        drop(self.take_added(shard, 0));
        let shards = self.shards.lock();
        drop(self.changed.wait_while(shards, |shards| shards.contains(&shard)));
    }
}

/// The outcomes of bases: the shard, and the length of the base.
type Outcomes = Vec<(u32, io::Result<u64>)>;

/// The bases of a generation.
pub(super) struct ShardBases {
    shards: Arc<dyn Shards>,
    in_progress: Arc<InProgress>,
    /// The shards that have a base.
    pub(super) based: BTreeSet<u32>,
    writing: Option<JoinHandle<Outcomes>>,
    /// The generation of the bases that are being written.
    generation: u64,
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
            based: BTreeSet::new(),
            writing: None,
            generation: 0,
            length: 0,
            since: 0,
            failed: None,
        }
    }

    pub(super) fn present(&self) -> Present {
        self.shards.present()
    }

    /// Pins the shards that need a base, and starts to write their bases.
    pub(super) fn write(&mut self, target: &To, outbox: &Mutex<Outbox>, written: u64) {
        let is_early = self.failed.is_some_and(|failed| failed.elapsed() < RETRY);
        if self.writing.is_some() || is_early {
            return;
        }
        let is_far = written.saturating_sub(self.since) > self.length.max(LEAST);
        let open = self.shards.present().open.into_iter();
        let wanted: Vec<_> = open.filter(|shard| is_far || !self.based.contains(shard)).collect();
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
            let (pinned, manifest) = match added {
                Some(added) => (Some(added.pinned), added.manifest),
                None => (self.shards.pin(shard), manifest),
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
                time: manifest.time,
            };
            requests.push((shard, target.base(&outbox, request)));
        }
        drop(outbox);
        (self.generation, self.since) = (manifest.generation, written);
        self.spawn(requests);
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
        if let Ok(thread) = thread::Builder::new().name(NAME.to_owned()).spawn(run) {
            self.writing = Some(thread);
        } else {
            self.failed = Some(Instant::now());
            self.in_progress.remove(|it| numbers.contains(&it));
        }
    }

    /// Records the outcome of bases, and returns the first error. Incomplete bases are awaited if `is_closing`;
    /// otherwise, this returns `None`.
    pub(super) fn finish(&mut self, is_closing: bool, manifest: &Manifest) -> Option<io::Error> {
        let is_finished = |it: &mut JoinHandle<_>| is_closing || it.is_finished();
        let thread = self.writing.take_if(is_finished)?;
        let Ok(outcomes) = thread.join() else {
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
                        self.based.insert(shard);
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
