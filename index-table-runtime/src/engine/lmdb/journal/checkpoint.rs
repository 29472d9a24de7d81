//! Checkpoints, concurrent with writers.
//!
//! 1. A committing thread begins a checkpoint ([`Journal::committed`]). It pins the committed state, copies the meta pages
//!    and switches to the next segment.
//! 2. A [background](crate::background) thread makes it durable ([`Shared::finish`]). It syncs the data file, writes the block
//!    into the segment and syncs the segment.
//! 3. The next write transaction ([`Journal::begin`]) records the new checkpoint in the log, and then releases the pin of
//!    the previous checkpoint. So each commit that may reuse pages of the old state has a frame that names the new
//!    checkpoint.

pub(in crate::engine::lmdb) mod direct;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use super::{
    archive::worker::{Archiver, Archiving, Beginning, Distance},
    block::{Block, HEAD},
    files::Segments,
    frame::Place,
    group::Group,
    limits::Limits,
    log::{self, Switched},
    marker::{self, Journalled, Marker},
    pace::{PATIENCE, Pace},
    pinned::Slots,
    recorder::{Recorded, Recorder},
    snapshot::{Refused, Snapshot},
    weaken,
    write_back::write_back,
};
use crate::{
    background::{Job, Lane, Work},
    engine::{files::FileId, lmdb::names::Env},
    locks::{Condvar, Mutex, MutexGuard, Unshared, rank},
};

/// The pause before another attempt, and the shortest time between two looks at the age of the last checkpoint.
pub(super) const SHORT: Duration = Duration::from_secs(1);
pub(super) const LONG: Duration = Duration::from_hours(1);

/// The maximum time to wait for a checkpoint that makes pages free.
const ROOM: Duration = Duration::from_secs(30);

/// The journal of a store whose writer is this process.
pub(in crate::engine::lmdb) struct Journal {
    shared: Arc<Shared>,
    job: Job,
    archiver: Option<Archiver>,
}

pub(super) struct Shared {
    pub(super) env: Env,
    /// See [`lock_writer`](super::presence::lock_writer).
    _unshared: Unshared,
    pub(super) files: Arc<Segments>,
    pub(super) group: Arc<Group>,
    pub(super) journalled: Journalled,
    pub(super) limits: Arc<Limits>,
    pub(super) page_size: u64,
    pub(super) slots: Arc<Slots>,
    archive: Option<Arc<Archiving>>,
    state: Mutex<State, rank::JournalState>,
    changed: Condvar,
    /// A checkpoint is durable, but not yet recorded in the log.
    is_done: AtomicBool,
    /// A writer waits for the checkpoint in progress, with the turn, so that no other thread commits.
    is_waited_for: AtomicBool,
    /// The store is no longer written.
    is_refused: AtomicBool,
}

struct State {
    /// The pin of the last durable checkpoint. It is dropped before the environment is closed.
    pin: Option<Snapshot>,
    /// A checkpoint was begun, and is not yet recorded in the log.
    making: bool,
    /// The begun checkpoint, until the job takes it.
    pending: Option<Pending>,
    /// The segment of a checkpoint that has become durable, and the pin of the previous one.
    done: Option<(u64, Option<Snapshot>)>,
    /// The number of the last commit.
    number: u64,
    /// The estimated size of the pages that were changed since the last checkpoint began.
    pages: u64,
    /// The start of the last checkpoint.
    since: Instant,
    /// The pace of the writers while a checkpoint is in progress.
    pace: Pace,
    /// A checkpoint is due, regardless of the limits.
    is_due: bool,
    /// The reason why the store is no longer written.
    refused: Option<&'static str>,
}

struct Pending {
    snapshot: Snapshot,
    data: File,
    /// The file of the segment, for the block.
    block: File,
    /// All files of the journal, for an archive.
    all: Vec<File>,
    switched: Switched,
}

/// The files that a checkpoint needs. They are opened before it begins, so that it does not fail afterwards if no descriptor is
/// free.
struct Opened {
    data: File,
    /// The file of the next segment, for the commits.
    next: File,
    /// The same file, for the block.
    block: File,
    /// All files of the journal, for an archive.
    all: Vec<File>,
}

pub(in crate::engine::lmdb) const DATA_SYNC: &str = "the data file could not be written to the disk; commits are in the \
                                    journal, which is applied when the store is opened again";
pub(super) const JOURNAL_SYNC: &str = "the journal could not be written to the disk";
pub(super) const PANICKED: &str = "a checkpoint has ended with a panic";
pub(super) const PIN_LOST: &str = "the reader slot that protects the last checkpoint is gone";
pub(super) const MAP_LOST: &str = "the data file of a shard could not be mapped again";
pub(super) const PROMOTED: &str = "a follower of its archive has been promoted and is written instead, so that this \
                                  store needs another archive";
pub(super) const OTHER_WRITER: &str = "a program without the journal has written to the store";

/// Estimates the number of pages that a commit with this number of operations has changed. Each operation changes a leaf.
/// The first 16 operations change two branch pages each, and later operations share them.
pub(in crate::engine::lmdb) const fn pages(operations: u64) -> u64 {
    let paths = if operations < 16 { operations } else { 16 };
    operations.saturating_add(2 * paths)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Opens the files for a checkpoint.
    fn open(&self) -> Result<Opened, Refused> {
        let (next, block) = (self.group.next_file()?, self.group.next_file()?);
        let all = if self.archive.is_some() { self.files.open_all()? } else { Vec::new() };
        Ok(Opened { data: self.data()?, next, block, all })
    }

    /// Returns LMDB's descriptor of the data file, whose sync returns the errors of earlier writes. LMDB's own function to sync
    /// reads the map, which a writer may be replacing. The result is not kept, so that a store has few open files.
    fn data(&self) -> Result<File, Refused> {
        Ok(self.env.try_clone_inner_file()?)
    }

    fn refuse(&self, state: &mut State, reason: &'static str) {
        state.refused.get_or_insert(reason);
        self.is_refused.store(true, SeqCst);
        self.changed.notify_all();
    }

    /// Makes a pending checkpoint durable. `is_synced` if the data file has been synced since its last change.
    fn finish(&self, pending: &mut Pending, is_synced: bool) -> Result<(), &'static str> {
        let Pending { snapshot, data, block: file, all, switched } = pending;
        weaken::pause();
        if !is_synced {
            // This or the sync returns the error of an earlier write.
            write_back(data, || self.is_waited_for.load(Relaxed)).map_err(|_| DATA_SYNC)?;
        }
        data.sync_data().map_err(|_| DATA_SYNC)?;
        weaken::pause();
        snapshot.pin_late(&self.env);
        snapshot.copy_late(data);
        let saved = snapshot.saved(0, data).map_err(|_| DATA_SYNC)?;
        self.limits.follow(snapshot.used(data));
        if !self.slots.has(snapshot.number) && !weaken::any() {
            return Err(PIN_LOST);
        }
        let Switched { salt, record, link } = *switched;
        let block = Block { salt, record, link, time: log::now(), shards: vec![saved] };
        if let Some(archive) = &self.archive {
            // Files of the journal are reused after the checkpoint.
            let at = Place { sequence: salt.sequence, offset: HEAD };
            let bound = self.group.bound(Place::default());
            archive.save(all, &bound, (at, link, record), snapshot.number);
        }
        log::put_block(file, &block).map_err(|_| JOURNAL_SYNC)
    }

    /// Continues in the next segment.
    fn switch(&self, file: File) -> Result<Switched, &'static str> {
        self.group.switch(file, self.limits.longest()).map_err(|_| JOURNAL_SYNC)
    }

    /// Truncates long files of the journal, which the last checkpoint has made free. An archive has their records in its
    /// outbox, or continues after them.
    fn shrink(&self) {
        self.group.shrink(self.limits.longest());
    }

    /// Makes a last checkpoint if files of the journal are long, so that they can be truncated. No thread writes.
    fn shrink_closed(&self) {
        if !self.group.is_longer(self.limits.longest()) {
            return;
        }
        let Ok(Opened { data, next, block, all }) = self.open() else { return };
        let Ok(snapshot) = Snapshot::of_last(&self.env, &data) else { return };
        let finish =
            |switched| self.finish(&mut Pending { snapshot, data, block, all, switched }, false);
        match self.switch(next).and_then(finish) {
            Ok(()) => self.shrink(),
            Err(reason) => self.refuse(&mut self.lock(), reason),
        }
    }
}

impl Work for Shared {
    fn run(&self) -> Option<Duration> {
        let mut state = self.lock();
        if state.refused.is_some() {
            return None;
        }
        let mut pending = state.pending.take()?;
        drop(state);
        let outcome = self.finish(&mut pending, false);
        if outcome.is_ok() {
            self.shrink();
        }
        let mut state = self.lock();
        match outcome {
            Ok(()) => {
                let before = state.pin.replace(pending.snapshot);
                state.done = Some((pending.switched.salt.sequence, before));
                let time = state.since.elapsed();
                state.pace.follow(time);
                self.is_done.store(true, SeqCst);
                self.changed.notify_all();
            }
            // The pin of the last checkpoint stays, and the pin of this checkpoint may stay.
            Err(reason) => self.refuse(&mut state, reason),
        }
        None
    }

    fn panicked(&self) {
        self.refuse(&mut self.lock(), PANICKED);
    }
}

/// The state of a journal that starts.
pub(super) struct Start {
    pub(super) env: Env,
    pub(super) data: File,
    pub(super) unshared: Unshared,
    pub(super) files: Arc<Segments>,
    pub(super) group: Group,
    pub(super) journalled: Journalled,
    pub(super) pin: Snapshot,
    /// The number of the last commit.
    pub(super) number: u64,
    pub(super) page_size: u64,
    pub(super) slots: Arc<Slots>,
    pub(super) archive: Option<Beginning>,
}

impl Journal {
    pub(super) fn begin_with(start: Start, limits: Limits) -> std::io::Result<Self> {
        let Start {
            env,
            data,
            unshared,
            files,
            group,
            journalled,
            pin,
            number,
            page_size,
            slots,
            ..
        } = start;
        let (archive, rounds) = start.archive.map(|it| it.share(Arc::clone(&files))).unzip();
        let state = State {
            pin: Some(pin),
            making: false,
            pending: None,
            done: None,
            number,
            pages: 0,
            since: Instant::now(),
            pace: Pace::default(),
            is_due: false,
            refused: None,
        };
        let shared = Arc::new(Shared {
            env,
            _unshared: unshared,
            files,
            group: Arc::new(group),
            journalled,
            limits: Arc::new(limits),
            page_size,
            slots,
            archive,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_done: AtomicBool::new(false),
            is_waited_for: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared.group);
        let bound = move |after| own.bound(after);
        let own = Arc::clone(&shared);
        let refuse = move || own.refuse(&mut own.lock(), PROMOTED);
        let archiver = rounds.map(|rounds| Archiver::start(rounds, bound, refuse)).transpose()?;
        let own = Arc::clone(&shared) as Arc<dyn Work>;
        let job = Job::start(own, Lane::of(&data), None)?;
        Ok(Self { shared, job, archiver })
    }

    /// Returns the recorder of the data file. `may_be_direct` if transactions that are too large for the journal need not be in
    /// it. An archive gets its records from the journal.
    pub(in crate::engine::lmdb) fn recorder(&self, may_be_direct: bool) -> Recorder {
        let limits = (may_be_direct && self.archiver.is_none()).then(|| &self.shared.limits);
        Recorder::new(Arc::clone(&self.shared.group), 0, limits.map(Arc::clone))
    }

    /// Returns the paths and the numbers of the files of the journal.
    pub(in crate::engine::lmdb) fn files(&self) -> impl Iterator<Item = (PathBuf, FileId)> {
        self.shared.files.paths()
    }

    /// Returns the distance between the store and its archive; `None` without an archive.
    pub(in crate::engine::lmdb) fn archive_distance(&self) -> Option<Distance> {
        let archive = self.shared.archive.as_ref()?;
        Some(archive.distance(self.shared.group.last_commit()))
    }

    /// Returns the file that must stay open as long as the environment does.
    pub(in crate::engine::lmdb) fn slots(&self) -> Arc<Slots> {
        Arc::clone(&self.shared.slots)
    }

    /// Returns the reason why the store is no longer written.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        if !self.shared.is_refused.load(SeqCst) {
            return None;
        }
        self.shared.lock().refused
    }

    /// Whether a checkpoint is in progress, and half as much has changed since its start as makes writers wait.
    pub(in crate::engine::lmdb) fn is_behind(&self) -> bool {
        let shared = &*self.shared;
        let state = shared.lock();
        let is_working = !shared.is_done.load(SeqCst) && state.making;
        is_working && state.pages >= shared.limits.changed().saturating_mul(PATIENCE) / 2
    }

    /// Prepares for a write transaction: waits if a checkpoint is in progress and more has changed since its start than its
    /// [`Pace`] allows, and records a checkpoint that has become durable. The calling thread must have the turn to write, so
    /// that the transactions of waiting threads count too.
    pub(in crate::engine::lmdb) fn begin(&self) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        while state.making && !shared.is_done.load(SeqCst) && state.refused.is_none() {
            let length = shared.group.length();
            let pages = state.pace.time_of(state.pages, shared.limits.changed());
            let journal = state.pace.time_of(length, shared.limits.journal());
            let left = match (pages, journal) {
                (Some(pages), Some(journal)) => {
                    pages.max(journal).saturating_sub(state.since.elapsed())
                }
                // At the limit, the end of the checkpoint wakes the thread.
                _ => LONG,
            };
            if left.is_zero() {
                break;
            }
            shared.is_waited_for.store(true, Relaxed);
            state = shared.changed.wait_timeout(state, left);
            shared.is_waited_for.store(false, Relaxed);
        }
        drop(state);
        self.record();
    }

    /// Records a checkpoint that has become durable, and releases the previous one. The calling thread must have the turn to
    /// write.
    fn record(&self) {
        let shared = &*self.shared;
        if !shared.is_done.load(SeqCst) {
            return;
        }
        let mut state = shared.lock();
        if let Some((sequence, before)) = state.done.take() {
            shared.group.set_checkpoint(sequence);
            drop(before);
        }
        state.making = false;
        shared.is_done.store(false, SeqCst);
    }

    /// Begins a checkpoint if pages were changed since the last one. The calling thread must have the turn to write.
    #[cold]
    pub(in crate::engine::lmdb) fn begin_freeing_pages(&self) {
        let mut state = self.shared.lock();
        if state.pages > 0 && !state.making && state.refused.is_none() {
            self.begin_checkpoint(&mut state);
        }
    }

    /// Makes a checkpoint if pages were changed since the last one, and waits for it, at most [`ROOM`]. Returns whether a
    /// checkpoint has ended. The calling thread must have the turn to write.
    #[cold]
    pub(in crate::engine::lmdb) fn free_pages(&self) -> bool {
        let (shared, end) = (&*self.shared, Instant::now() + ROOM);
        let (mut has_ended, mut is_last) = (false, false);
        loop {
            // A checkpoint that is in progress lacks later changes.
            if !is_last {
                self.begin_freeing_pages();
            }
            let state = shared.lock();
            if !state.making {
                return has_ended && state.refused.is_none();
            }
            is_last = state.pages == 0;
            let left = end.saturating_duration_since(Instant::now());
            let is_open = |state: &mut State| state.done.is_none() && state.refused.is_none();
            let state = shared.changed.wait_timeout_while(state, left, is_open);
            if state.done.is_none() {
                return false;
            }
            drop(state);
            self.record();
            has_ended = true;
        }
    }

    /// Records that a commit is visible, and begins a checkpoint if one is due. The calling thread must have the turn to
    /// write.
    pub(in crate::engine::lmdb) fn committed(&self, recorded: Recorded, number: u64) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.number = state.number.max(number);
        if shared.archive.is_some() {
            shared.group.committed(recorded.record, number);
        }
        state.pages = state.pages.saturating_add(pages(recorded.operations) * shared.page_size);
        let is_due = state.is_due
            || state.pages >= shared.limits.changed()
            || recorded.length >= shared.limits.journal()
            || state.since.elapsed() >= shared.limits.time();
        if is_due && !state.making && state.refused.is_none() {
            self.begin_checkpoint(&mut state);
        }
        if shared.archive.as_ref().is_some_and(|archive| archive.wants_base()) {
            self.pin_base();
        }
    }

    /// Pins the state for a base of the archive. Without a free reader slot, the next commit tries again.
    #[cold]
    fn pin_base(&self) {
        let shared = &*self.shared;
        let take = |data: File| Snapshot::take(&shared.env, &data);
        if let (Some(archive), Ok(snapshot)) = (&shared.archive, shared.data().and_then(take)) {
            archive.give_base(snapshot);
        }
    }

    #[cold]
    fn begin_checkpoint(&self, state: &mut State) {
        let shared = &*self.shared;
        // Without a free reader slot or a descriptor, the next commit tries again.
        let opened = shared.open();
        let take = |opened: Opened| Ok((Snapshot::take(&shared.env, &opened.data)?, opened));
        let Ok((snapshot, Opened { data, next, block, all })) = opened.and_then(take) else {
            state.is_due = true;
            return;
        };
        if snapshot.number > state.number {
            shared.refuse(state, OTHER_WRITER);
            return;
        }
        let switched = match shared.switch(next) {
            Ok(switched) => switched,
            Err(reason) => return shared.refuse(state, reason),
        };
        if weaken::is("early-release") {
            state.pin = None;
        }
        state.making = true;
        state.pending = Some(Pending { snapshot, data, block, all, switched });
        state.pages = 0;
        state.since = Instant::now();
        state.is_due = false;
        self.job.wake();
    }

    /// Stops all writes, because a sync has failed, or because LMDB and the journal differ.
    pub(in crate::engine::lmdb) fn fail(&self) {
        let mut state = self.shared.lock();
        self.shared.refuse(&mut state, JOURNAL_SYNC);
    }

    /// Ends the journal. If there was no failure and LMDB can still write, the data file is then complete without the journal.
    /// Otherwise the next opening applies the journal.
    pub(in crate::engine::lmdb) fn close(mut self, is_writable: bool) {
        let shared = Arc::clone(&self.shared);
        self.job.stop();
        if let Some(archiver) = self.archiver.take() {
            archiver.close();
        }
        let is_sound = || is_writable && shared.lock().refused.is_none();
        if is_sound() {
            shared.shrink_closed();
        }
        if is_sound() && shared.env.force_sync().is_ok() {
            let clean = Marker::Clean(shared.journalled);
            // Without the marker, the next opening applies the journal, which changes nothing.
            let put = |data: File| Ok(marker::put(&data, clean).and_then(|()| data.sync_data())?);
            let _ = shared.data().and_then(put);
        }
        // A process that another thread is starting has the file open too, so closing it does not release the lock.
        let _ = shared.files.first().unlock();
    }

    /// Leaks the journal, in a process that was forked from the writer of the journal.
    pub(in crate::engine::lmdb) fn forget(self) {
        std::mem::forget(self);
    }
}
