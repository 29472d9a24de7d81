//! Checkpoints, made beside the writers.
//!
//! The thread that commits begins one ([`Journal::committed`]): it pins the state that it has left, copies
//! the meta pages and goes on in the next segment. A thread of the journal does the rest ([`Shared::finish`]):
//! it syncs the data file, writes the block into the segment and syncs that. The pin of the checkpoint before is
//! released by the next write transaction ([`Journal::begin`]), after the log has noted the new checkpoint: each
//! commit that may use pages of the old state has a frame that says so.

use std::{
    fs::File,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    block::Block,
    log::{self, Log, Switched},
    marker::{self, Journalled, Marker},
    pinned::Slots,
    recorder::{Recorded, Recorder, lock},
    snapshot::Snapshot,
    weaken,
    write_back::write_back,
};
use crate::engine::lmdb::names::Env;

const NAME: &str = "index-table-journal";

/// Bounds of the time between two looks at the clock.
pub(super) const SHORT: Duration = Duration::from_secs(1);
pub(super) const LONG: Duration = Duration::from_hours(1);

/// After this multiple of a limit, writers wait for the checkpoint.
pub(super) const PATIENCE: u64 = 4;

/// When a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) struct Limits {
    /// Bytes of changed pages, estimated.
    pub(in crate::engine::lmdb) changed: u64,
    /// Bytes of journal.
    pub(in crate::engine::lmdb) journal: u64,
    /// Time since the last one, if something has changed.
    pub(in crate::engine::lmdb) time: Duration,
}

/// The journal of a store that this process writes.
pub(in crate::engine::lmdb) struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) data: File,
    pub(super) files: Arc<Vec<File>>,
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) journalled: Journalled,
    pub(super) limits: Limits,
    pub(super) page_size: u64,
    pub(super) slots: Arc<Slots>,
    state: Mutex<State>,
    changed: Condvar,
    /// A checkpoint is durable, and the log has not noted it.
    is_done: AtomicBool,
    /// The store is not written any more.
    is_refused: AtomicBool,
}

struct State {
    /// Of the last durable checkpoint. Dropped before the environment is closed.
    pin: Option<Snapshot>,
    /// A checkpoint was begun, and the log has not noted it.
    making: bool,
    /// What the thread has not taken yet of it.
    pending: Option<Pending>,
    /// Its segment, once it is durable, and the pin of the one before.
    done: Option<(u64, Option<Snapshot>)>,
    /// The number of the last commit.
    number: u64,
    /// Bytes of pages changed since the last checkpoint was begun.
    pages: u64,
    since: Instant,
    /// A checkpoint is due, whatever the limits say.
    is_due: bool,
    /// Why the store is not written any more.
    refused: Option<&'static str>,
    is_closed: bool,
}

struct Pending {
    snapshot: Snapshot,
    switched: Switched,
}

pub(super) const DATA_SYNC: &str = "the data file could not be written to the disk; commits are in the \
                                    journal, which is applied when the store is opened again";
pub(super) const JOURNAL_SYNC: &str = "the journal could not be written to the disk";
pub(super) const PIN_LOST: &str = "the reader slot that protects the last checkpoint is gone";
pub(super) const OTHER_WRITER: &str = "a program without the journal has written to the store";

/// How many pages of the data file the operations of a commit have changed, at the most in practice: a leaf
/// for each, and for some a path of branches. Many operations share branches.
pub(super) const fn pages(operations: u64) -> u64 {
    let paths = if operations < 16 { operations } else { 16 };
    operations.saturating_add(2 * paths)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, state: &mut State, reason: &'static str) {
        state.refused.get_or_insert(reason);
        self.is_refused.store(true, SeqCst);
        self.changed.notify_all();
    }

    /// Makes the pending checkpoint durable.
    fn finish(&self, pending: &mut Pending) -> Result<(), &'static str> {
        let Pending { snapshot, switched } = pending;
        weaken::pause();
        write_back(&self.data).map_err(|_| DATA_SYNC)?;
        // LMDB's descriptor, which knows of failed writes. Its own function reads the map, which a thread that
        // begins to write may be replacing with a larger one.
        let data = self.env.try_clone_inner_file().map_err(|_| DATA_SYNC)?;
        data.sync_data().map_err(|_| DATA_SYNC)?;
        weaken::pause();
        snapshot.pin_late(&self.env);
        snapshot.copy_late(&self.data);
        let saved = snapshot.saved(0, &self.data).map_err(|_| DATA_SYNC)?;
        if !self.slots.has(snapshot.number) && !weaken::any() {
            return Err(PIN_LOST);
        }
        let Switched { salt, record, link } = *switched;
        let block = Block { salt, record, link, time: log::now(), shards: vec![saved] };
        log::put_block(&self.files, &block).map_err(|_| JOURNAL_SYNC)
    }

    fn run(&self) {
        loop {
            let mut pending = {
                let mut state = self.lock();
                loop {
                    if state.is_closed || state.refused.is_some() {
                        return;
                    }
                    if let Some(pending) = state.pending.take() {
                        break pending;
                    }
                    let age = state.since.elapsed();
                    let mut left = self.limits.time.saturating_sub(age).min(LONG);
                    if left.is_zero() {
                        // The next commit begins it. Without one, there is nothing to keep.
                        state.is_due = state.pages > 0;
                        left = self.limits.time.clamp(SHORT, LONG);
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            };
            let outcome = self.finish(&mut pending);
            let mut state = self.lock();
            match outcome {
                Ok(()) => {
                    let before = state.pin.replace(pending.snapshot);
                    state.done = Some((pending.switched.salt.sequence, before));
                    self.is_done.store(true, SeqCst);
                    self.changed.notify_all();
                }
                Err(reason) => {
                    // The pin of the last checkpoint stays, and so may this one.
                    self.refuse(&mut state, reason);
                    return;
                }
            }
        }
    }
}

/// What a journal begins with.
pub(super) struct Begun {
    pub(super) env: Env,
    pub(super) data: File,
    pub(super) files: Arc<Vec<File>>,
    pub(super) log: Log,
    pub(super) journalled: Journalled,
    pub(super) pin: Snapshot,
    /// The number of the last commit.
    pub(super) number: u64,
    pub(super) page_size: u64,
    pub(super) slots: Arc<Slots>,
}

impl Journal {
    pub(super) fn begin_with(begun: Begun, limits: Limits) -> std::io::Result<Self> {
        let Begun { env, data, files, log, journalled, pin, number, page_size, slots } = begun;
        let state = State {
            pin: Some(pin),
            making: false,
            pending: None,
            done: None,
            number,
            pages: 0,
            since: Instant::now(),
            is_due: false,
            refused: None,
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            env,
            data,
            files,
            log: Arc::new(Mutex::new(log)),
            journalled,
            limits,
            page_size,
            slots,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_done: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name(NAME.to_owned()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(in crate::engine::lmdb) fn recorder(&self) -> Recorder {
        Recorder::new(Arc::clone(&self.shared.log))
    }

    /// What has to stay open for as long as the environment.
    pub(in crate::engine::lmdb) fn slots(&self) -> Arc<Slots> {
        Arc::clone(&self.shared.slots)
    }

    /// Why the store is not written any more.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        if !self.shared.is_refused.load(SeqCst) {
            return None;
        }
        self.shared.lock().refused
    }

    /// Waits, without the turn to write, while a checkpoint is being made that is far behind.
    pub(in crate::engine::lmdb) fn wait_for_room(&self) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            let length = lock(&shared.log).length();
            let is_far = state.pages >= shared.limits.changed.saturating_mul(PATIENCE)
                || length >= shared.limits.journal.saturating_mul(PATIENCE);
            let is_working = !shared.is_done.load(SeqCst) && state.making;
            if !is_far || !is_working || state.refused.is_some() {
                return;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For a write transaction that begins: notes the checkpoint that has become durable, and releases the one
    /// before.
    pub(in crate::engine::lmdb) fn begin(&self) {
        let shared = &*self.shared;
        if !shared.is_done.load(SeqCst) {
            return;
        }
        let mut state = shared.lock();
        if let Some((sequence, before)) = state.done.take() {
            lock(&shared.log).set_checkpoint(sequence);
            drop(before);
        }
        state.making = false;
        shared.is_done.store(false, SeqCst);
    }

    /// A commit is visible. Begins a checkpoint if one is due. For the thread with the turn to write.
    pub(in crate::engine::lmdb) fn committed(&self, recorded: Recorded, number: u64) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.number = state.number.max(number);
        state.pages = state.pages.saturating_add(pages(recorded.operations) * shared.page_size);
        let is_due = state.is_due
            || state.pages >= shared.limits.changed
            || recorded.length >= shared.limits.journal
            || state.since.elapsed() >= shared.limits.time;
        if is_due && !state.making && state.refused.is_none() {
            self.begin_checkpoint(&mut state);
        }
    }

    #[cold]
    fn begin_checkpoint(&self, state: &mut State) {
        let shared = &*self.shared;
        // Without a slot for the reader it is tried again at the next commit.
        let Ok(snapshot) = Snapshot::take(&shared.env, &shared.data) else {
            state.is_due = true;
            return;
        };
        if snapshot.number > state.number {
            shared.refuse(state, OTHER_WRITER);
            return;
        }
        let switched = lock(&shared.log).switch(shared.limits.journal.saturating_mul(2));
        if weaken::is("early-release") {
            state.pin = None;
        }
        state.making = true;
        state.pending = Some(Pending { snapshot, switched });
        state.pages = 0;
        state.since = Instant::now();
        state.is_due = false;
        shared.changed.notify_all();
    }

    /// A sync has failed, or LMDB and the journal differ: nothing is written any more.
    pub(in crate::engine::lmdb) fn fail(&self) {
        let mut state = self.shared.lock();
        self.shared.refuse(&mut state, JOURNAL_SYNC);
    }

    /// Ends the journal. If all is well and the environment still has its map, the data file is complete then without
    /// the journal; otherwise the next opening applies it.
    pub(in crate::engine::lmdb) fn close(mut self, is_mapped: bool) {
        let shared = Arc::clone(&self.shared);
        shared.lock().is_closed = true;
        shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let is_sound = is_mapped && shared.lock().refused.is_none();
        if is_sound && shared.env.write_txn().is_ok() && shared.env.force_sync().is_ok() {
            let clean = Marker::Clean(shared.journalled);
            // If it is not written, the journal is applied when the store is opened, which changes nothing.
            let _ = marker::put(&shared.data, clean).and_then(|()| shared.data.sync_data());
        }
        if let Some(first) = shared.files.first() {
            // A child that was forked has the same lock.
            let _ = first.unlock();
        }
    }

    /// Leaves everything as it is: this process was forked from the one that has the journal.
    pub(in crate::engine::lmdb) fn forget(self) {
        std::mem::forget(self);
    }
}
