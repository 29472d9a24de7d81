//! Checkpoints of all shards, which a [background](crate::background) thread makes.
//!
//! 1. The thread continues the log in the next segment. All earlier segments are durable.
//! 2. For each shard that has changed: with the lock of its commits, it pins the last state and copies the
//!    meta pages.
//! 3. It syncs the data files of these shards, checks that LMDB's reader tables have the pins of all shards,
//!    writes the block into the segment, and syncs the segment.
//! 4. Later frames name the new checkpoint. For each shard, with the lock of its commits, the
//!    previous pin is released. Each commit that may use the released pages has a later frame.

use std::{
    fs::File,
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        archive::{
            outbox::Outbox,
            worker::{Archiver, Archiving},
        },
        block::{Block, Saved},
        checkpoint::{
            DATA_SYNC, JOURNAL_SYNC, LONG, MAP_LOST, OTHER_WRITER, PANICKED, PIN_LOST, SHORT, pages,
        },
        files::Segments,
        group::Group,
        limits::Limits,
        log::{self, Switched},
        marker::{self, Journalled, Marker},
        pinned::Slots,
        presence::WriterLock,
        recorder::{Recorded, Recorder},
        snapshot::{Refused, Snapshot},
        start::NotStarted,
        weaken,
        write_back::write_back,
    },
    archived,
    start::{Joining, open},
};
use crate::{
    background::{Job, Lane, Work},
    engine::{Destination, files::FileId, list::List, lmdb::names::Env},
    locks::{Condvar, Held as LockHeld, Mutex, MutexGuard, rank},
};

/// After this multiple of a limit, writers wait for the checkpoint.
const PATIENCE: u64 = 4;

const CLOSED: &str = "the store is being closed";

/// How often a checkpoint for a new shard is tried, with pauses of [`SHORT`].
const TRIES: u32 = 10;

/// A shard that this process writes, with the journal of all shards.
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
}

/// The state that the shards of a journal share.
pub(super) struct Common {
    pub(super) group: Arc<Group>,
    pub(super) files: Arc<Segments>,
    pub(super) journalled: Journalled,
    limits: Limits,
    pub(super) shards: List<Shard>,
    /// The number of states in each block.
    room: usize,
    pub(super) archive: OnceLock<Arc<Archiving>>,
    /// The started segment of a checkpoint that could not be made.
    begun: Mutex<Option<Switched>, rank::CheckpointBegun>,
    state: Mutex<State, rank::JournalState>,
    /// The job that makes checkpoints.
    pub(super) job: OnceLock<Job>,
    pub(super) changed: Condvar,
    /// Whether the limit of written bytes requires a checkpoint.
    is_due: AtomicBool,
    /// Whether writers wait for the checkpoint.
    is_far: AtomicBool,
    /// The reason why the shards are no longer written.
    refused: OnceLock<&'static str>,
}

pub(super) struct Shard {
    pub(super) number: u32,
    /// The open shard, or `None` if it is closed. Locked for each commit, from the append to the end of
    /// LMDB's commit.
    open: Mutex<Option<Open>, rank::JournalShard>,
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
    /// The bytes of pages changed since the start of the last checkpoint.
    pub(super) pages: u64,
    /// The bytes of the pages in use, at the last checkpoint.
    pub(super) used: u64,
    /// Whether the data file is mapped. If it could not be mapped again, LMDB must not be called.
    pub(super) is_mapped: bool,
}

pub(super) struct State {
    pub(super) archiver: Option<Archiver>,
    /// Whether a checkpoint is being made.
    pub(super) is_working: bool,
    /// The start of the last checkpoint.
    since: Instant,
    /// The number of open shards.
    pub(super) open: usize,
    /// Whether checkpoints are no longer made.
    pub(super) is_closed: bool,
    /// The shards of the store that are not available.
    pub(super) missing: Vec<u32>,
}

/// The turn to make a checkpoint.
pub(super) struct Turn<'c> {
    common: &'c Common,
    /// Whether the job of checkpoints has it. Otherwise the job is woken afterwards, because it has not begun a checkpoint
    /// meanwhile.
    is_job: bool,
    _held: LockHeld,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.common.lock().is_working = false;
        self.common.changed.notify_all();
        if !self.is_job {
            self.common.wake();
        }
    }
}

/// The values with which a journal starts.
pub(super) struct Begun {
    pub(super) group: Arc<Group>,
    pub(super) files: Arc<Segments>,
    pub(super) journalled: Journalled,
    pub(super) limits: Limits,
    pub(super) shards: Vec<(u32, Open)>,
    /// The shards that are not available.
    pub(super) missing: Vec<u32>,
    /// The number of states in each block.
    pub(super) room: usize,
    pub(super) archive: Option<(Outbox, Destination)>,
}

impl Begun {
    /// Starts the checkpoints. Returns the members in the order of the shards.
    pub(super) fn start(self) -> std::io::Result<Vec<Member>> {
        let Self { group, files, journalled, limits, shards, missing, room, archive } = self;
        let open = shards.len();
        let shard = |(number, open)| Shard::new(number, open, false);
        let state = State {
            archiver: None,
            is_working: false,
            since: Instant::now(),
            open,
            is_closed: false,
            missing,
        };
        let common = Arc::new(Common {
            group,
            files,
            journalled,
            limits,
            shards: shards.into_iter().map(shard).collect(),
            room,
            archive: OnceLock::new(),
            begun: Mutex::default(),
            state: Mutex::new(state),
            job: OnceLock::new(),
            changed: Condvar::new(),
            is_due: AtomicBool::new(false),
            is_far: AtomicBool::new(false),
            refused: OnceLock::new(),
        });
        common.follow_size();
        if let Some((outbox, destination)) = archive {
            archived::start(&common, outbox, destination)?;
        }
        let lane = Lane::of(common.files.first());
        let own = Arc::clone(&common) as Arc<dyn Work>;
        let _ = common.job.set(Job::start(own, lane, Some(common.left()))?);
        Ok((0..open).map(|at| Member { common: Arc::clone(&common), at }).collect())
    }
}

impl Shard {
    const fn new(number: u32, open: Open, is_joining: bool) -> Self {
        Self {
            number,
            open: Mutex::numbered(number as u64, Some(open)),
            closed: AtomicU64::new(0),
            has_left: AtomicBool::new(is_joining),
            left: Mutex::new(None),
        }
    }

    /// Opens the shard in its place. It is not written before it has [joined](Self::join). The caller has the turn to make a
    /// checkpoint.
    pub(super) fn enter(&self, open: Open) {
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

/// A checkpoint of one shard that is being made.
struct Made<'c> {
    shard: &'c Shard,
    snapshot: Snapshot,
    saved: Saved,
    used: u64,
}

/// The reason why there is no checkpoint.
enum Missed {
    /// The checkpoint is tried again.
    Now,
    /// The same, after a file of the journal could not be opened.
    File(std::io::Error),
    /// This process makes no further checkpoint.
    Ever(&'static str),
}

impl Common {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
    fn wake(&self) {
        if let Some(job) = self.job.get() {
            job.wake();
        }
    }

    /// Wakes the waiting threads. They wait with the lock, so they can't miss the notification.
    fn notify(&self) {
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

    /// Returns the time until the age of the last checkpoint has to be looked at.
    fn left(&self) -> Duration {
        let age = self.lock().since.elapsed();
        let left = self.limits.time().saturating_sub(age);
        if left.is_zero() { self.limits.time().clamp(SHORT, LONG) } else { left.min(LONG) }
    }

    /// Makes a checkpoint in this thread, for example because a shard was added.
    pub(super) fn checkpoint_now(&self, _turn: &Turn<'_>) -> std::io::Result<()> {
        for _ in 0..TRIES {
            if let Some(reason) = self.refused() {
                return Err(std::io::Error::other(reason));
            }
            if self.lock().is_closed {
                return Err(std::io::Error::other(CLOSED));
            }
            self.lock().since = Instant::now();
            match self.checkpoint() {
                Ok(()) => return Ok(()),
                Err(Missed::Ever(reason)) => self.refuse(reason),
                Err(Missed::Now) => thread::sleep(SHORT),
                Err(Missed::File(error)) => {
                    let reason = format!("a file of the journal could not be opened: {error}");
                    return Err(std::io::Error::new(error.kind(), reason));
                }
            }
        }
        Err(std::io::Error::other(
            "no checkpoint could be made, because all reader slots are taken",
        ))
    }

    /// Whether a shard has changes. The caller has the lock of the state, so this must not wait for a commit.
    fn has_changes(&self) -> bool {
        self.shards.iter().any(|shard| {
            let Some(open) = shard.open.try_lock() else { return true };
            open.as_ref().is_some_and(|open| open.number > open.saved.number)
        })
    }

    fn checkpoint(&self) -> Result<(), Missed> {
        let mut begun = self.begun.lock();
        let longest = self.limits.longest();
        let too_early = weaken::is("pin-first").then(|| self.pin()).transpose()?;
        weaken::pause();
        let switched = if let Some(switched) = *begun {
            switched
        } else {
            let file = self.group.next_file().map_err(Missed::File)?;
            self.group.switch(file, longest).map_err(|_| Missed::Ever(JOURNAL_SYNC))?
        };
        *begun = Some(switched);
        // The checkpoint is tried again if no descriptor is free.
        let file = self.files.of(switched.salt.sequence).map_err(Missed::File)?;
        let has_archive = self.archive.get().is_some();
        let all = if has_archive { self.files.open_all() } else { Ok(Vec::new()) };
        let all = all.map_err(Missed::File)?;
        let pinned = too_early.map_or_else(|| self.pin(), Ok)?;
        let mut all_made = Vec::with_capacity(pinned.len());
        for (shard, mut snapshot) in pinned {
            weaken::pause();
            let Some(data) = shard.lock().as_ref().map(Open::data) else { continue };
            let data = data.map_err(|_| Missed::Now)?;
            // Either of the two returns the error of an earlier write.
            write_back(&data, || self.is_far.load(SeqCst)).map_err(|_| Missed::Ever(DATA_SYNC))?;
            data.sync_data().map_err(|_| Missed::Ever(DATA_SYNC))?;
            weaken::pause();
            if weaken::any()
                && let Some(open) = &*shard.lock()
            {
                snapshot.pin_late(&open.env);
                snapshot.copy_late(&data);
            }
            let saved = snapshot.saved(shard.number, &data).map_err(|_| Missed::Ever(DATA_SYNC))?;
            let used = snapshot.used(&data);
            all_made.push(Made { shard, snapshot, saved, used });
        }
        let mut shards = Vec::with_capacity(self.room);
        for shard in self.shards.iter() {
            let made = all_made.iter().find(|made| made.shard.number == shard.number);
            let open = shard.lock();
            let Some(open) = &*open else {
                shards.push(Saved::gone(shard.number, shard.closed.load(SeqCst)));
                continue;
            };
            let saved = made.map_or(&open.saved, |made| &made.saved);
            if !open.slots.has(saved.number) && !weaken::any() {
                return Err(Missed::Ever(PIN_LOST));
            }
            shards.push(saved.clone());
        }
        Saved::pad(&mut shards, self.room);
        // A record before the segment whose commit has failed in some shards would be lost in the others. It
        // has refused further writes before its shards could be pinned.
        if let Some(reason) = self.refused() {
            return Err(Missed::Ever(reason));
        }
        let Switched { salt, record, link } = switched;
        let block = Block { salt, record, link, time: log::now(), shards };
        self.save_archive(&all, &block);
        log::put_block(&file, &block).map_err(|_| Missed::Ever(JOURNAL_SYNC))?;
        self.group.set_checkpoint(salt.sequence);
        *begun = None;
        drop(begun);
        for Made { shard, snapshot, saved, used } in all_made {
            // Dropped with the lock: no commit is between its frame and LMDB's commit.
            if let Some(open) = &mut *shard.lock() {
                (open.saved, open.used) = (saved, used);
                open.pin = snapshot;
            }
        }
        self.follow_size();
        // An archive has the records of earlier segments in its outbox, or continues after them.
        self.group.shrink(self.limits.longest());
        Ok(())
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

    /// Sets the limits for the size of all shards.
    fn follow_size(&self) {
        let used = |shard: &Shard| shard.lock().as_ref().map_or(0, |open| open.used);
        self.limits.follow(self.shards.iter().map(used).fold(0, u64::saturating_add));
    }

    /// Pins each shard that has changed since its last checkpoint.
    fn pin(&self) -> Result<Vec<(&Shard, Snapshot)>, Missed> {
        let mut pinned = Vec::new();
        for shard in self.shards.iter() {
            if let Some(open) = &mut *shard.lock()
                && let Some(snapshot) = open.snapshot()?
            {
                open.pin.release_early();
                pinned.push((shard, snapshot));
            }
        }
        Ok(pinned)
    }
}

impl Work for Common {
    fn run(&self) -> Option<Duration> {
        let mut state = self.lock();
        if state.is_closed || self.refused.get().is_some() {
            return None;
        }
        // Another thread makes a checkpoint with a new shard, and then wakes the job.
        if state.is_working {
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
        self.is_far.store(false, SeqCst);
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
    /// Returns LMDB's descriptor of the data file. Its next sync returns the error of any failed write. LMDB's own sync function
    /// is not used, because it reads the map, which a writer may be replacing.
    pub(super) fn data(&self) -> std::io::Result<File> {
        self.env.try_clone_inner_file().map_err(|error| match error {
            heed::Error::Io(error) => error,
            error => std::io::Error::other(error),
        })
    }

    /// Pins the last state, if there is a free reader slot. The calling thread prevents commits.
    pub(super) fn pin_last(&self) -> Option<Snapshot> {
        Snapshot::of_last(&self.env, &self.data().ok()?).ok()
    }

    /// Pins the state of a shard that has changed since its last checkpoint.
    fn snapshot(&mut self) -> Result<Option<Snapshot>, Missed> {
        if self.number == self.saved.number {
            return Ok(None);
        }
        if !self.is_mapped {
            return Err(Missed::Ever(MAP_LOST));
        }
        // Without a reader slot, the checkpoint is tried again.
        let snapshot = Snapshot::of_last(&self.env, &self.data().map_err(|_| Missed::Now)?)
            .map_err(|refused| match refused {
                Refused::Lmdb(_) | Refused::Io(_) => Missed::Now,
                Refused::Changed(reason) => Missed::Ever(reason),
            })?;
        if snapshot.number != self.number {
            return Err(Missed::Ever(OTHER_WRITER));
        }
        self.pages = 0;
        Ok(Some(snapshot))
    }
}

impl Member {
    /// Adds a shard to the journal while it is running: pins its state, makes a checkpoint that has it, and then writes its
    /// marker. A shard that has left the journal, and whose environment was closed meanwhile, gets its place again.
    ///
    /// `is_known` if the store has had the shard before.
    pub(in crate::engine::lmdb) fn join(
        &self,
        joining: Joining,
        is_known: bool,
    ) -> Result<Self, NotStarted> {
        let (shard, common) = (joining.shard, &self.common);
        let (epoch, open) = open(joining, &common.journalled.identity, None)?;
        if epoch > common.journalled.epoch {
            let reason = "it was written after the journal of the other shards was started";
            return Err(NotStarted::Damaged(reason.to_owned()));
        }
        let data = open.data()?;
        let before = marker::find(&data)?.unwrap_or(Marker::None);
        let base = common.first_base(shard, is_known)?;
        let turn = common.turn();
        let at = {
            let is_free = |own: &Shard| own.number == shard && own.lock().is_none();
            let known = common.shards.iter().position(is_free);
            if known.is_none() && common.shards.len() >= common.room {
                let reason = "too many shards have been added since the store was opened; open it again, and then add the shard";
                return Err(std::io::Error::other(reason).into());
            }
            common.lock().open += 1;
            if let Some((at, own)) = known.and_then(|at| Some((at, common.shards.get(at)?))) {
                own.enter(open);
                at
            } else {
                common.shards.push(Shard::new(shard, open, true));
                common.shards.len() - 1
            }
        };
        let member = Self { common: Arc::clone(common), at };
        let journalled = Journalled { shard: Some(shard), ..common.journalled };
        let joined = common.checkpoint_now(&turn).and_then(|()| {
            marker::put(&data, Marker::Needed(journalled))?;
            data.sync_data()
        });
        if let Err(error) = joined {
            // Nothing was written to the shard, so it is complete without the journal.
            let _ = marker::put(&data, before).and_then(|()| data.sync_data());
            common.count_closed();
            drop(member.shard().and_then(|shard| shard.lock().take()));
            return Err(error.into());
        }
        drop(turn);
        base.joined();
        if let Some(shard) = member.shard() {
            shard.join();
        }
        Ok(member)
    }

    pub(super) fn shard(&self) -> Option<&Shard> {
        self.common.shards.get(self.at)
    }

    pub(in crate::engine::lmdb) fn recorder(&self) -> Recorder {
        let number = self.shard().map_or(0, |shard| shard.number);
        Recorder::new(Arc::clone(&self.common.group), number, None)
    }

    /// Returns the paths and the numbers of the files of the journal.
    pub(in crate::engine::lmdb) fn files(&self) -> impl Iterator<Item = (PathBuf, FileId)> {
        self.common.files.paths()
    }

    /// Returns the slots, which have to stay open as long as the environment.
    pub(in crate::engine::lmdb) fn slots(&self) -> Option<Arc<Slots>> {
        self.shard()?.lock().as_ref().map(|open| Arc::clone(&open.slots))
    }

    /// Returns the reason why the shard is no longer written.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        let has_left = self.shard().is_none_or(|shard| shard.has_left.load(SeqCst));
        if has_left { Some(crate::engine::lmdb::error::LEFT) } else { self.common.refused() }
    }

    /// Whether writers wait for a late checkpoint.
    pub(in crate::engine::lmdb) fn is_behind(&self) -> bool {
        self.common.is_far.load(SeqCst)
    }

    /// Waits, without the turn to write, while a late checkpoint is being made.
    pub(in crate::engine::lmdb) fn wait_for_room(&self) {
        let common = &*self.common;
        if !common.is_far.load(SeqCst) {
            return;
        }
        drop(LockHeld::wait::<rank::Checkpoint>(0));
        let mut state = common.lock();
        while common.is_far.load(SeqCst) && common.refused().is_none() && !state.is_closed {
            state = common.changed.wait_timeout(state, Duration::from_secs(1));
        }
    }

    /// Begins a checkpoint if pages of this shard were changed since the last one.
    #[cold]
    pub(in crate::engine::lmdb) fn begin_freeing_pages(&self) {
        if self.has_changed_pages() && !self.common.is_due.swap(true, SeqCst) {
            self.common.wake();
        }
    }

    /// Makes a checkpoint of all shards if pages of this shard were changed since the last one. Returns whether it has
    /// succeeded. The caller must not have the turn to write.
    #[cold]
    pub(in crate::engine::lmdb) fn free_pages(&self) -> bool {
        self.has_changed_pages() && self.common.checkpoint_now(&self.common.turn()).is_ok()
    }

    fn has_changed_pages(&self) -> bool {
        self.shard().is_some_and(|shard| shard.lock().as_ref().is_some_and(|open| open.pages > 0))
    }

    /// Excludes checkpoints, from before a record is appended until LMDB has committed it.
    pub(in crate::engine::lmdb) fn hold(&self) -> Option<Held<'_>> {
        self.shard().map(|shard| Held(shard.lock()))
    }

    /// Counts a visible commit.
    pub(in crate::engine::lmdb) fn committed(
        &self,
        mut held: Held<'_>,
        recorded: Recorded,
        number: u64,
    ) {
        let (changed, journal) = (self.common.limits.changed(), self.common.limits.journal());
        let Some(open) = &mut *held.0 else { return };
        let page_size = u64::from(open.saved.page_size);
        open.number = open.number.max(number);
        open.pages = open.pages.saturating_add(pages(recorded.operations) * page_size);
        let exceeds = |times: u64| {
            open.pages >= changed.saturating_mul(times)
                || recorded.length >= journal.saturating_mul(times)
        };
        let (is_due, is_far) = (exceeds(1), exceeds(PATIENCE));
        self.common.count_for_archive(recorded.record);
        // The job locks a shard with its own lock.
        drop(held);
        if is_far {
            self.common.is_far.store(true, SeqCst);
        }
        if is_due && !self.common.is_due.swap(true, SeqCst) {
            self.common.wake();
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
