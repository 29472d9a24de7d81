//! The state that the members of a journal share.

use std::{
    fs::File,
    io,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use super::{
    archive::worker::{Archiver, Archiving},
    block::Saved,
    files::Segments,
    group::{Group, Strategy},
    limits::Limits,
    log::Switched,
    marker::Journalled,
    pace::Pace,
    pinned::Slots,
    presence::WriterLock,
    snapshot::Snapshot,
};
use crate::{
    background::Job,
    engine::{list::List, lmdb::names::Env},
    locks::{Condvar, Held as LockHeld, Mutex, MutexGuard, rank},
};

pub(in crate::engine::lmdb) const DATA_SYNC: &str = "the data file could not be written to the disk; commits are in the \
                                    journal, which is applied when the store is opened again";
pub(super) const JOURNAL_SYNC: &str = "the journal could not be written to the disk";
pub(super) const PROMOTED: &str = "a follower of its archive has been promoted and is written instead, so that this \
                                  store needs another archive";

/// The state that the members of a journal share.
pub(super) struct Common {
    pub(super) group: Arc<Group>,
    pub(super) files: Arc<Segments>,
    pub(super) journalled: Journalled,
    pub(super) limits: Arc<Limits>,
    pub(super) shards: List<Shard>,
    /// The number of states in each block.
    pub(super) room: usize,
    pub(super) archive: OnceLock<Arc<Archiving>>,
    pub(super) state: Mutex<State, rank::JournalState>,
    /// The job that makes checkpoints.
    pub(super) job: OnceLock<Job>,
    pub(super) changed: Condvar,
    /// Whether a limit requires a checkpoint.
    pub(super) is_due: AtomicBool,
    /// Whether writers wait for the checkpoint.
    pub(super) is_waited_for: AtomicBool,
    /// Whether a committing thread has begun a checkpoint that no write transaction has recorded yet.
    pub(super) is_begun: AtomicBool,
    /// The reason why the members are no longer written.
    pub(super) refused: OnceLock<&'static str>,
}

/// A member of a journal.
pub(super) struct Shard {
    pub(super) number: u32,
    /// The open shard, or `None` if it is closed. Locked for each commit, from the append to the end of
    /// LMDB's commit.
    pub(super) open: Mutex<Option<Open>, rank::JournalShard>,
    /// The bytes of pages changed since the start of the last checkpoint.
    pub(super) pages: AtomicU64,
    /// The number of the last commit, after the data file was closed as complete; otherwise 0.
    pub(super) closed: AtomicU64,
    /// Whether the shard is not written: it is joining, or it was removed from the store while it was open.
    pub(super) has_left: AtomicBool,
    /// The state in which it was removed.
    pub(super) left: Mutex<Option<Left>>,
}

/// The state of a shard when it left the journal.
pub(super) struct Left {
    /// The slots, as long as the environment is open.
    pub(super) slots: Weak<Slots>,
    /// The number of the last commit.
    pub(super) number: u64,
}

/// An open shard.
pub(super) struct Open {
    pub(super) env: Env,
    pub(super) slots: Arc<Slots>,
    /// The lock of the writer of the data file.
    pub(super) _writer: WriterLock,
    /// The pin of the last durable checkpoint. Dropped before the environment is closed.
    pub(super) pin: Snapshot,
    pub(super) saved: Saved,
    /// The number of the last commit.
    pub(super) number: u64,
    /// The bytes of the pages in use, at the last checkpoint.
    pub(super) used: u64,
    /// Whether the data file is mapped. If it could not be mapped again, LMDB must not be called.
    pub(super) is_mapped: bool,
}

pub(super) struct State {
    pub(super) archiver: Option<Archiver>,
    /// Whether a checkpoint is being made.
    pub(super) is_working: bool,
    /// The started segment of a checkpoint that could not be made.
    pub(super) begun: Option<Segment>,
    /// The checkpoint that a committing thread has begun, until the job takes it.
    pub(super) pending: Option<Making>,
    /// The same checkpoint when it is durable, until a write transaction records it.
    pub(super) done: Option<Making>,
    /// The start of the last checkpoint.
    pub(super) since: Instant,
    /// The pace of the writers while a checkpoint is in progress.
    pub(super) pace: Pace,
    /// The number of open shards.
    pub(super) open: usize,
    /// Whether checkpoints are no longer made.
    pub(super) is_closed: bool,
    /// The shards of the store that are not available.
    pub(super) missing: Vec<u32>,
}

/// The turn to make a checkpoint.
pub(super) struct Turn<'c> {
    pub(super) common: &'c Common,
    /// Whether the job of checkpoints has it. Otherwise the job is woken afterwards, because it has not begun a checkpoint
    /// meanwhile.
    pub(super) is_job: bool,
    pub(super) _held: LockHeld,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.common.lock().is_working = false;
        self.common.changed.notify_all();
        if !self.is_job && !self.common.is_streamed() {
            self.common.wake();
        }
    }
}

/// The files of the next segment. They are opened before the checkpoint begins, so that it does not fail afterwards if no
/// descriptor is free.
pub(super) struct Opened {
    /// For the commits.
    pub(super) next: File,
    /// The same file, for the block.
    pub(super) block: File,
    /// All files of the journal, for an archive.
    pub(super) all: Vec<File>,
    /// The data file, if the journal has one member. Otherwise, each data file is opened when it is synced.
    pub(super) data: Option<File>,
}

/// The segment of a checkpoint that is not durable yet.
pub(super) struct Segment {
    pub(super) switched: Switched,
    pub(super) block: File,
    pub(super) all: Vec<File>,
}

/// A checkpoint that was begun.
pub(super) struct Making {
    pub(super) segment: Segment,
    pub(super) parts: Vec<Part>,
}

/// The state of a member in a checkpoint.
pub(super) struct Part {
    /// The position among the shards of the journal.
    pub(super) at: usize,
    /// `None` if the shard is closed.
    pub(super) slots: Option<Arc<Slots>>,
    pub(super) saved: Saved,
    pub(super) used: u64,
    /// The pinned state, if the shard has changed since its last checkpoint.
    pub(super) taken: Option<Snapshot>,
    pub(super) data: Option<File>,
}

/// The reason why there is no checkpoint.
pub(super) enum Missed {
    /// The checkpoint is tried again.
    Now,
    /// The same, after a file of the journal could not be opened.
    File(io::Error),
    /// This process makes no further checkpoint.
    Ever(&'static str),
}

impl Shard {
    pub(super) const fn new(number: u32, open: Open, is_joining: bool) -> Self {
        Self {
            number,
            open: Mutex::numbered(number as u64, Some(open)),
            pages: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            has_left: AtomicBool::new(is_joining),
            left: Mutex::new(None),
        }
    }

    /// Opens the shard in its place. It is not written before it has [joined](Self::join). The caller has the turn to make a
    /// checkpoint.
    pub(super) fn enter(&self, open: Open) {
        self.pages.store(0, SeqCst);
        *self.lock() = Some(open);
    }

    pub(super) fn join(&self) {
        *self.left.lock() = None;
        self.closed.store(0, SeqCst);
        self.has_left.store(false, SeqCst);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock()
    }
}

impl Common {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether the journal has one member, whose thread with the turn to write begins and records checkpoints.
    pub(super) fn is_streamed(&self) -> bool {
        self.group.strategy == Strategy::Streamed
    }

    /// Returns the record of the journal in the marker of a shard.
    pub(super) fn journalled(&self, shard: u32) -> Journalled {
        Journalled { shard: (!self.is_streamed()).then_some(shard), ..self.journalled }
    }

    pub(super) fn refuse(&self, reason: &'static str) {
        let _ = self.refused.set(reason);
        self.notify();
    }

    /// Waits for the turn to make a checkpoint. While a thread has it, no checkpoint begins, and no other thread opens or
    /// closes a shard.
    pub(super) fn turn(&self) -> Turn<'_> {
        let held = LockHeld::wait::<rank::Checkpoint>(0);
        let mut state = self.changed.wait_while(self.lock(), |state| state.is_working);
        state.is_working = true;
        Turn { common: self, is_job: false, _held: held }
    }

    /// Runs the job of checkpoints.
    pub(super) fn wake(&self) {
        if let Some(job) = self.job.get() {
            job.wake();
        }
    }

    /// Wakes the waiting threads. They wait with the lock, so they can't miss the notification.
    pub(super) fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    pub(super) fn refused(&self) -> Option<&'static str> {
        self.refused.get().copied().or_else(|| self.group.has_failed().then_some(JOURNAL_SYNC))
    }

    /// Counts a shard that was closed.
    pub(super) fn count_closed(&self) {
        let mut state = self.lock();
        state.open = state.open.saturating_sub(1);
    }

    /// Sets the limits for the size of all shards.
    pub(super) fn follow_size(&self) {
        let used = |shard: &Shard| shard.lock().as_ref().map_or(0, |open| open.used);
        self.limits.follow(self.shards.iter().map(used).fold(0, u64::saturating_add));
    }
}

impl Open {
    /// Returns LMDB's descriptor of the data file. Its next sync returns the error of any failed write. LMDB's own sync function
    /// is not used, because it reads the map, which a writer may be replacing.
    pub(super) fn data(&self) -> io::Result<File> {
        self.env.try_clone_inner_file().map_err(|error| match error {
            heed::Error::Io(error) => error,
            error => io::Error::other(error),
        })
    }

    /// Pins the last state, if there is a free reader slot. The calling thread prevents commits.
    pub(super) fn pin_last(&self) -> Option<Snapshot> {
        Snapshot::of_last(&self.env, &self.data().ok()?).ok()
    }
}
