//! The rounds of an archive, which a [background](crate::background) thread makes.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Bound, base,
    bases::{InProgress, Pinned, ShardBases, Shards},
    format::{Based, Manifest},
    outbox::{Outbox, Work},
    to::To,
};
use crate::{
    background::{Job, Lane, Task, Work as Background},
    engine::{
        Destination,
        lmdb::journal::{files::Segments, frame::Place, log, snapshot::Snapshot, tail::Fault},
    },
    locks::{Mutex, rank},
};

/// The name of the thread that makes the last round.
const NAME: &str = "index-table-archive";

const PANICKED: &str = "archiving has ended with a panic; open the store again";

/// The time between two rounds.
const TICK: Duration = Duration::from_millis(250);

/// The time between two rounds while bases of shards are due.
const SOON: Duration = Duration::from_millis(25);

/// The time after which a base that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// A new base is written after as many bytes of segments as the last base has, but not before this number.
const LEAST: u64 = 64 << 20;

/// The distance between a store and its archive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Distance {
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) has_base: bool,
    /// The time since the last base; of a sharded store, since the oldest of the last bases of the shards.
    pub(crate) base_age: Option<Duration>,
    pub(crate) error: Option<String>,
}

/// An archive that starts.
pub(in crate::engine::lmdb::journal) struct Beginning {
    outbox: Outbox,
    target: To,
    /// The shards of which the archive has a base.
    outcome: io::Result<Based>,
    /// The state for the first base.
    base: Option<Snapshot>,
    shards: Option<Arc<dyn Shards>>,
}

impl Beginning {
    /// Opens the archive. An error is reported by the lag, because commits don't depend on the archive. If the archive needs
    /// a base, `pin` is called.
    pub(in crate::engine::lmdb::journal) fn attach(
        mut outbox: Outbox,
        archive: Destination,
        pin: impl FnOnce() -> Option<Snapshot>,
    ) -> Self {
        let mut target = To::new(archive, &outbox);
        let outcome = target.attach(&mut outbox);
        let needs_base = outcome.as_ref().is_ok_and(Based::is_empty);
        let base = if needs_base { pin() } else { None };
        Self { outbox, target, outcome, base, shards: None }
    }

    /// Does the same for the archive of a sharded store.
    pub(in crate::engine::lmdb::journal) fn attach_shards(
        outbox: Outbox,
        archive: Destination,
        shards: Arc<dyn Shards>,
    ) -> Self {
        Self { shards: Some(shards), ..Self::attach(outbox, archive, || None) }
    }

    /// Returns the state that the threads share, and the rounds of the thread that archives.
    pub(in crate::engine::lmdb::journal) fn share(
        self,
        files: Arc<Segments>,
    ) -> (Arc<Archiving>, Rounds) {
        let Self { outbox, target, outcome, base, shards } = self;
        let now = Instant::now();
        let (attached, error) = match outcome {
            Ok(based) => (based, None),
            Err(error) => (Based::new(), Some(target.reason(&error))),
        };
        let has_base = shards.is_none() && !attached.is_empty();
        let manifest = *outbox.manifest();
        let generation = manifest.generation;
        let (commit, bytes, base_error) = (0, 0, None);
        let based_at = oldest(&attached);
        let status = Status {
            commit,
            current: now,
            bytes,
            has_base,
            based_at,
            generation,
            error,
            base_error,
        };
        let shared = Arc::new(Archiving {
            outbox: Mutex::new(outbox),
            files,
            wants_base: AtomicBool::new(false),
            pinned: Mutex::new(base),
            status: Mutex::new(status),
            in_progress: Arc::default(),
        });
        let own = Arc::clone(&shared);
        let mut shards =
            shards.map(|shards| ShardBases::new(shards, Arc::clone(&shared.in_progress)));
        if let Some(shards) = &mut shards
            && target.is_attached()
        {
            // Before the shards can be closed.
            shared.in_progress.found(&attached);
            shards.based = attached;
            shards.pin(&target, &shared.outbox, 0);
        }
        let request = (!has_base && target.is_attached()).then(|| Request::of(&manifest));
        let bases = Bases { request, ..Bases::default() };
        (
            shared,
            Rounds {
                shared: own,
                target,
                bases,
                shards,
                completed: now,
                has_base,
                based_at,
                generation: manifest.generation,
            },
        )
    }
}

/// The archive of a journal.
pub(in crate::engine::lmdb::journal) struct Archiver {
    job: Job,
    running: Arc<Running>,
}

/// The rounds, and their journal.
struct Running {
    /// `None` during a round, and after a panic.
    rounds: Mutex<Option<Rounds>>,
    shared: Arc<Archiving>,
    bound: Box<dyn Fn(Place) -> Bound + Send + Sync>,
    refuse: Box<dyn Fn() + Send + Sync>,
}

impl Running {
    fn run(&self, body: impl FnOnce(&mut Rounds)) {
        let rounds = self.rounds.lock().take();
        // Without the lock, because a round calls a function of the program.
        if let Some(mut rounds) = rounds {
            body(&mut rounds);
            *self.rounds.lock() = Some(rounds);
        }
    }

    /// Archives all commits, and waits for the bases that are being written.
    fn close(&self) {
        self.run(|rounds| {
            rounds.run(&self.bound, &self.refuse, true);
            rounds.finish();
        });
    }
}

impl Background for Running {
    fn run(&self) -> Option<Duration> {
        let mut after = TICK;
        self.run(|rounds| {
            rounds.run(&self.bound, &self.refuse, false);
            if rounds.has_bases_due() {
                after = SOON;
            }
        });
        Some(after)
    }

    fn panicked(&self) {
        self.shared.in_progress.remove(|_| true);
        self.shared.status.lock().error = Some(PANICKED.to_owned());
    }
}

/// The state that the threads of an archive share.
pub(in crate::engine::lmdb::journal) struct Archiving {
    outbox: Mutex<Outbox, rank::Outbox>,
    files: Arc<Segments>,
    /// A commit has to pin the state for a base.
    wants_base: AtomicBool,
    pinned: Mutex<Option<Snapshot>>,
    status: Mutex<Status>,
    in_progress: Arc<InProgress>,
}

struct Status {
    /// The number of the last commit in the archive.
    commit: u64,
    /// When the archive last had all commits.
    current: Instant,
    bytes: u64,
    has_base: bool,
    /// The time of its last base, in nanoseconds since 1970.
    based_at: Option<u64>,
    /// The generation that has the base or not.
    generation: u64,
    error: Option<String>,
    /// The reason why a base could not be written.
    base_error: Option<String>,
}

impl Archiver {
    /// Starts the rounds. `bound` returns the committed part of the journal after a position. `refuse` ends all writes,
    /// because a follower has been promoted: before this returns, if the archive has shown it at its opening, so that no
    /// commit of an original that starts again is lost.
    pub(in crate::engine::lmdb::journal) fn start(
        rounds: Rounds,
        bound: impl Fn(Place) -> Bound + Send + Sync + 'static,
        refuse: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::clone(&rounds.shared);
        if rounds.target.is_promoted() {
            refuse();
        }
        let running = Arc::new(Running {
            rounds: Mutex::new(Some(rounds)),
            shared,
            bound: Box::new(bound),
            refuse: Box::new(refuse),
        });
        let own = Arc::clone(&running) as Arc<dyn Background>;
        let job = Job::start(own, Lane::Archives, Some(Duration::ZERO))?;
        Ok(Self { job, running })
    }

    /// Makes a round soon.
    pub(in crate::engine::lmdb::journal) fn wake(&self) {
        self.job.wake();
    }

    /// Archives all commits, and ends the rounds. The last round has a thread of its own, so it does not wait for the archives
    /// of other stores, and the function of an archive never runs in the thread that closes the store.
    pub(in crate::engine::lmdb::journal) fn close(self) {
        self.job.stop();
        let own = Arc::clone(&self.running);
        match thread::Builder::new().name(NAME.to_owned()).spawn(move || own.close()) {
            Ok(thread) => drop(thread.join()),
            Err(_) => self.running.close(),
        }
    }
}

impl Archiving {
    /// Copies records of the journal to the outbox.
    fn collect(&self, outbox: &mut Outbox, bound: &Bound) -> Result<(), Fault> {
        // Without new records, the files are not read.
        let files = if outbox.has_all(bound) { Vec::new() } else { self.files.open_all()? };
        outbox.collect(&files, bound)
    }

    /// Copies all committed records of the journal, which has these files, to the outbox, before a checkpoint becomes durable. If this fails,
    /// the archive has a gap, and continues with a new base at this position of the journal and this commit.
    pub(in crate::engine::lmdb::journal) fn save(
        &self,
        files: &[File],
        bound: &Bound,
        next: (Place, u64, u64),
        number: u64,
    ) {
        let mut outbox = self.outbox.lock();
        let saved = outbox.collect(files, bound).and_then(|()| Ok(outbox.sync()?));
        if let Err(fault) = saved {
            outbox.skip(next, number);
            self.status.lock().error = Some(not_saved(&fault));
        }
    }

    /// Sets the records of the shard map manager, which follow all records up to `bound`.
    pub(in crate::engine::lmdb::journal) fn set_manager(&self, changes: Vec<u8>, bound: &Bound) {
        let mut outbox = self.outbox.lock();
        outbox.set_manager(changes);
        if let Err(fault) = self.collect(&mut outbox, bound) {
            self.status.lock().error = Some(not_saved(&fault));
        }
    }

    /// Records that the next opening of the store starts a generation, unless [`restart`](Self::restart) or
    /// [`resume`](Self::resume) is called before.
    pub(in crate::engine::lmdb::journal) fn suspend(&self) -> io::Result<()> {
        self.outbox.lock().suspend()
    }

    pub(in crate::engine::lmdb::journal) fn resume(&self) {
        self.outbox.lock().resume_generation();
    }

    /// Starts a generation, because a shard has joined that may have an older base. `pin` returns the states of all shards
    /// between two commits, and the committed part of the journal and the time at this moment. They are the first bases of the
    /// generation,
    /// so no commit is between two generations.
    pub(in crate::engine::lmdb::journal) fn restart(
        &self,
        pin: impl FnOnce() -> (Bound, u64, Vec<(u32, Option<Pinned>)>),
    ) {
        let mut outbox = self.outbox.lock();
        let (bound, time, pinned) = pin();
        let collected = self.collect(&mut outbox, &bound);
        let is_collected = collected.is_ok();
        outbox.new_generation_at(time);
        if let Err(fault) = collected {
            self.status.lock().error = Some(not_saved(&fault));
        }
        let manifest = *outbox.manifest();
        for (shard, pinned) in pinned {
            // After an error, the generation begins with later states.
            let pinned = pinned.filter(|_| is_collected);
            self.in_progress.add_shard(shard, pinned, manifest);
        }
    }

    /// Keeps the state of a shard that was added while the store was open, for its first base. Without a state, a later one
    /// is pinned.
    pub(in crate::engine::lmdb::journal) fn add_shard(&self, shard: u32, pinned: Option<Pinned>) {
        let manifest = *self.outbox.lock().manifest();
        self.in_progress.add_shard(shard, pinned, manifest);
    }

    /// Whether the archive may have a base of a shard.
    pub(in crate::engine::lmdb::journal) fn may_have_base(&self, shard: u32) -> bool {
        self.in_progress.may_have_base(shard)
    }

    /// Waits until no base of a shard is written.
    pub(in crate::engine::lmdb::journal) fn wait_for_base(&self, shard: u32) {
        self.in_progress.wait(shard);
    }

    /// Returns true if the next commit has to pin the state for a base.
    pub(in crate::engine::lmdb::journal) fn wants_base(&self) -> bool {
        self.wants_base.load(SeqCst)
    }

    /// Provides the state for a base.
    pub(in crate::engine::lmdb::journal) fn give_base(&self, snapshot: Snapshot) {
        *self.pinned.lock() = Some(snapshot);
        self.wants_base.store(false, SeqCst);
    }

    /// Returns the distance between the store and the archive. `number` is the number of the last commit.
    pub(in crate::engine::lmdb::journal) fn distance(&self, number: u64) -> Distance {
        // Another generation may have begun since the last round.
        let generation = self.outbox.lock().manifest().generation;
        let lacks_base = self.in_progress.lacks_base();
        let status = self.status.lock();
        let commits = number.saturating_sub(status.commit);
        let is_current = commits == 0;
        let error = status.error.as_ref().or(status.base_error.as_ref()).cloned();
        Distance {
            commits,
            bytes: if is_current { 0 } else { status.bytes },
            time: if is_current { Duration::ZERO } else { status.current.elapsed() },
            has_base: status.has_base && status.generation == generation && !lacks_base,
            base_age: status.based_at.map(age),
            error,
        }
    }
}

/// Returns the oldest time of the last bases of the shards.
fn oldest(based: &Based) -> Option<u64> {
    based.values().min().copied()
}

/// Returns the time since a number of nanoseconds after 1970.
fn age(time: u64) -> Duration {
    Duration::from_nanos(log::nanoseconds().saturating_sub(time))
}

fn not_saved(fault: &Fault) -> String {
    match fault {
        Fault::Io(error) => format!("the store's own directory can't be written: {error}"),
        Fault::Damaged(reason) => reason.clone(),
    }
}

/// The position of a base in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    identity: [u8; 16],
    generation: u64,
    segment: u64,
    time: u64,
}

impl Request {
    const fn of(manifest: &Manifest) -> Self {
        let Manifest { identity, generation, segment, time, .. } = *manifest;
        Self { identity, generation, segment: segment + 1, time }
    }
}

/// The bases that are written.
#[derive(Default)]
struct Bases {
    /// The base whose state was or will be pinned.
    request: Option<Request>,
    /// The base that is being written.
    writing: Option<Task<io::Result<u64>>>,
    /// The length of the last base, and the bytes of all segments then.
    length: u64,
    since: u64,
    /// When the last attempt failed.
    failed: Option<Instant>,
}

/// The work of a round.
pub(in crate::engine::lmdb::journal) struct Rounds {
    shared: Arc<Archiving>,
    target: To,
    bases: Bases,
    /// The bases of a sharded store.
    shards: Option<ShardBases>,
    /// When the last segment was completed.
    completed: Instant,
    has_base: bool,
    /// The time of the last base, in nanoseconds since 1970.
    based_at: Option<u64>,
    /// The generation that has the base or not.
    generation: u64,
}

impl Rounds {
    /// Makes a round, and records its outcome.
    fn run(&mut self, bound: &dyn Fn(Place) -> Bound, refuse: &dyn Fn(), is_closing: bool) {
        let outcome = self.round(bound, is_closing);
        if let (Err(_), Some(shards)) = (&outcome, &mut self.shards) {
            shards.cancel();
            // Pages in these states would not be reused.
            self.shared.in_progress.release();
        }
        self.shared.in_progress.end_round();
        let lacking = self.shared.outbox.lock().lacking(self.target.part());
        let mut status = self.shared.status.lock();
        (status.bytes, status.error) = (lacking, outcome.err());
        drop(status);
        if self.target.is_promoted() {
            refuse();
        }
    }

    /// Whether bases of shards are due, and the archive can be written.
    fn has_bases_due(&self) -> bool {
        let are_due = self.shards.as_ref().is_some_and(ShardBases::are_due);
        are_due && self.shared.status.lock().error.is_none()
    }

    /// Waits for the bases that are being written, after the last round.
    fn finish(&mut self) {
        self.finish_base(true);
        if let Some(shards) = &mut self.shards {
            let manifest = *self.shared.outbox.lock().manifest();
            if let Some(error) = shards.finish(true, &manifest) {
                self.shared.status.lock().base_error = Some(self.target.reason(&error));
            }
        }
    }

    fn set_based(&mut self, based: Based) {
        self.based_at = oldest(&based);
        match &mut self.shards {
            None => self.has_base = !based.is_empty(),
            Some(shards) => {
                self.shared.in_progress.found(&based);
                shards.based = based;
                // Compared with the present shards at the end of the round.
                self.has_base = false;
            }
        }
    }

    /// Moves all commits to the archive.
    fn round(&mut self, bound: &dyn Fn(Place) -> Bound, is_closing: bool) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        let at = shared.outbox.lock().at();
        let bound = bound(at);
        let mut outbox = shared.outbox.lock();
        let collected = shared.collect(&mut outbox, &bound).map_err(|fault| not_saved(&fault));
        let is_due = self.shards.as_ref().is_some_and(ShardBases::is_waiting);
        if is_closing || is_due || self.completed.elapsed() >= self.target.oldest() {
            let completed = outbox.complete();
            completed.map_err(|error| not_saved(&Fault::Io(error)))?;
            self.completed = begun;
        }
        if !self.target.is_attached() {
            let attached = self.target.attach(&mut outbox);
            self.set_based(attached.map_err(|error| self.target.reason(&error))?);
        }
        if self.generation != outbox.manifest().generation {
            let generation = outbox.manifest().generation;
            let begun = self.target.begin_generation(generation);
            begun.map_err(|error| self.target.reason(&error))?;
            self.generation = generation;
            self.set_based(self.target.based(outbox.manifest()));
        }
        let (work, pending) = (outbox.work(), outbox.directory().to_owned());
        drop(outbox);
        let mut complete = |segment| shared.outbox.lock().delivered(segment);
        let delivered = self.target.deliver(&pending, &work, &mut complete);
        let mut status = shared.status.lock();
        (status.has_base, status.generation) = (self.has_base, self.generation);
        status.based_at = self.based_at;
        status.commit = delivered.map_err(|error| self.target.reason(&error))?;
        if collected.is_ok() && status.commit == work.manifest.commit {
            status.current = begun;
        }
        drop(status);
        if self.shards.is_some() {
            self.shard_bases(&work);
        } else {
            self.bases(&work.manifest, work.written);
        }
        collected
    }

    /// Writes the bases of shards, if it is time.
    fn shard_bases(&mut self, work: &Work) {
        let Some(shards) = &mut self.shards else { return };
        let failed = shards.finish(false, &work.manifest);
        // All segments are complete in the archive.
        if work.growing == 0 {
            shards.start(&work.manifest);
        }
        shards.pin(&self.target, &self.shared.outbox, work.written);
        let present = shards.present();
        self.has_base = shards.are_complete(&present);
        self.based_at = oldest(&shards.based);
        let lacks_base = !self.has_base || self.shared.in_progress.lacks_base();
        let missing = present.missing.iter().find(|shard| !shards.based.contains_key(shard));
        let mut status = self.shared.status.lock();
        (status.has_base, status.based_at) = (self.has_base, self.based_at);
        if let Some(error) = failed {
            status.base_error = Some(self.target.reason(&error));
        } else if let Some(shard) = missing {
            let reason = format!("shard number {shard} is not available, and has no base");
            status.base_error = Some(reason);
        } else if !lacks_base {
            status.base_error = None;
        }
    }

    /// Writes a base, or requests one, if it is time.
    fn bases(&mut self, manifest: &Manifest, written: u64) {
        self.finish_base(false);
        if self.bases.writing.is_some() {
            return;
        }
        let is_of = |request: &Request| {
            request.identity == manifest.identity && request.generation == manifest.generation
        };
        if let Some(request) = self.bases.request.filter(is_of) {
            let pinned = self.shared.pinned.lock().take();
            if let Some(snapshot) = pinned {
                self.write_base(request, snapshot);
                self.bases.since = written;
            } else {
                self.shared.wants_base.store(true, SeqCst);
            }
            return;
        }
        drop(self.shared.pinned.lock().take());
        self.bases.request = None;
        let is_far = written.saturating_sub(self.bases.since) > self.bases.length.max(LEAST);
        let is_early = self.bases.failed.is_some_and(|failed| failed.elapsed() < RETRY);
        if (!self.has_base || is_far) && !is_early {
            self.bases.request = Some(Request::of(manifest));
            self.shared.wants_base.store(true, SeqCst);
        }
    }

    fn write_base(&mut self, request: Request, snapshot: Snapshot) {
        let Request { identity, generation, segment, time } = request;
        let store = self.shared.outbox.lock().store().to_owned();
        // The state has commits up to this time.
        let time = log::nanoseconds().max(time);
        self.bases.request = Some(Request { time, ..request });
        let request =
            base::Request { snapshot, store, shard: None, identity, generation, segment, time };
        let run = self.target.base(&self.shared.outbox.lock(), request);
        match Task::start(Lane::Bases, run) {
            Ok(task) => self.bases.writing = Some(task),
            Err(error) => self.shared.status.lock().base_error = Some(error.to_string()),
        }
    }

    /// Records the outcome of a base. If the base isn't complete, waits for it or returns.
    fn finish_base(&mut self, is_closing: bool) {
        if is_closing && self.bases.writing.is_none() {
            return;
        }
        let is_finished = |it: &mut Task<_>| is_closing || it.is_done();
        let Some(task) = self.bases.writing.take_if(is_finished) else { return };
        let written = task.join().unwrap_or_else(|| Err(io::ErrorKind::Other.into()));
        let mut status = self.shared.status.lock();
        let request = self.bases.request.take();
        match written {
            Ok(length) => {
                self.bases.failed = None;
                self.bases.length = length;
                // In the meantime, a gap may have started another generation.
                if let Some(request) = request.filter(|it| it.generation == self.generation) {
                    (self.has_base, self.based_at) = (true, Some(request.time));
                }
                (status.has_base, status.based_at) = (self.has_base, self.based_at);
                status.base_error = None;
            }
            Err(error) => {
                self.bases.failed = Some(Instant::now());
                status.base_error = Some(self.target.reason(&error));
            }
        }
    }
}
