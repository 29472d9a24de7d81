//! The threads that work for the stores of this process.
//!
//! All stores share these threads, so their number does not grow with the number of stores:
//!
//! | thread | number | does |
//! |---|---|---|
//! | `index-table-clock` | one, while a job exists | queues the jobs whose time has come, and starts threads of the other kind; never touches a file |
//! | `index-table-work` | one, while there is work and for [`IDLE`] after it | runs queued jobs, one after the other |
//!
//! A [job](Job) is the work of one store: its checkpoints ([`wake`](Job::wake) when a commit has begun one), the rounds of
//! its archive or of a follower (by time), or a copy that is made once ([`Task`]). A job runs in one thread at a time. A job
//! that is woken while it runs runs again.
//!
//! # A disk that hangs
//!
//! A thread that waits for a disk can't be interrupted. So if a queued job has waited for [`PATIENCE`], the clock starts
//! another thread, and one more after each further [`PATIENCE`]. These threads end when there is no work. Jobs that may
//! hang together have the same [`Lane`]: the stores of a disk, the archives, the followers, the copies, the servers. At most [`MOST`] jobs
//! of a lane run at the same time, and a thread takes a job of the lane with the fewest running jobs. So there are at most
//! [`MOST`] threads for each lane, and a lane that hangs does not delay the others for longer than [`PATIENCE`].
//!
//! If no thread can be started, the clock runs the jobs itself.
//!
//! # The end of a job
//!
//! [`Job::stop`] removes the job from the queue, and waits while it runs. The job never runs afterwards. The last job of the
//! process ends all threads; nothing waits for them. A panic ends its job only ([`Work::panicked`]).
//!
//! # Forks
//!
//! A forked process has none of these threads, and may have inherited a held lock. So it begins with [a value of its
//! own](OfProcess), which the first store that it opens uses. The inherited jobs are never used: an inherited store is not
//! written, and its journal is leaked.

pub(crate) mod clock;
mod queue;
mod task;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use self::queue::{Queue, Taken};
pub(crate) use self::task::Task;
use crate::locks::{Condvar, Mutex, MutexGuard, OfProcess, fork, rank};

const CLOCK: &str = "index-table-clock";
const WORK: &str = "index-table-work";

/// The time for which a queued job waits before another thread is started.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(1);

/// The maximum number of jobs of a lane that run at the same time.
const MOST: usize = 8;

/// The longest wait of the clock.
const LONG: Duration = Duration::from_hours(1);

static BACKGROUND: OfProcess<Background> = OfProcess::new(Background::new);

thread_local! {
    /// The job that this thread runs.
    static RUNS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The work of a job.
pub(crate) trait Work: Send + Sync {
    /// Does all work that is due. Returns the time after which it runs again; `None` if it only runs when it is woken.
    fn run(&self) -> Option<Duration>;

    /// Records that a panic has ended the job.
    fn panicked(&self);
}

/// Jobs that may hang together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// The checkpoints of the stores on a disk, which has this number.
    Disk(u64),
    /// The rounds of archives.
    Archives,
    /// The bases of archives.
    Bases,
    /// The rounds of followers.
    Followers,
    /// The clients of servers.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "of one engine"))]
    Servers,
    /// Builds of indexes that clients of earlier releases have delayed.
    Rollouts,
    /// The timers of waiting tasks.
    #[cfg(feature = "async")]
    Timers,
}

impl Lane {
    /// Returns the lane of the disk with this file. Without numbers of disks, all stores have the same lane.
    pub(crate) fn of(file: &File) -> Self {
        #[cfg(unix)]
        let number = file.metadata().map_or(0, |file| std::os::unix::fs::MetadataExt::dev(&file));
        #[cfg(not(unix))]
        let number = {
            let _ = file;
            0
        };
        Self::Disk(number)
    }
}

/// A job of a store. It ends when it is dropped.
#[must_use]
pub(crate) struct Job {
    background: &'static Background,
    number: u64,
    /// See [`fork::forks`].
    forks: u32,
}

impl Drop for Job {
    fn drop(&mut self) {
        // A forked process has no threads of its parent, and a lock may be held for ever.
        if self.forks == fork::forks() {
            self.stop();
        }
    }
}

/// The threads, and the jobs that wait for them.
struct Background {
    state: Mutex<State, rank::Background>,
    /// There is another job, an earlier time, or a job that no idle thread takes.
    clock: Condvar,
    /// There is a job in the queue.
    work: Condvar,
    /// A job does not run any more.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue,
    has_clock: bool,
    threads: usize,
    /// The number of threads that wait for work: one at most.
    idle: usize,
    /// When the last thread was started.
    started: Option<Instant>,
}

impl Job {
    /// Adds a job, which runs for the first time after this time; `None` if it only runs when it is woken.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(crate) fn start(
        work: Arc<dyn Work>,
        lane: Lane,
        after: Option<Duration>,
    ) -> io::Result<Self> {
        BACKGROUND.start(work, lane, after)
    }

    /// Runs the job soon, and again if it is running.
    pub(crate) fn wake(&self) {
        let mut state = self.background.lock();
        if state.queue.wake(self.number) {
            self.background.notify(&state);
        }
    }

    /// Whether a panic has ended the job.
    pub(crate) fn has_ended(&self) -> bool {
        self.background.lock().queue.has_ended(self.number)
    }

    /// Ends the job, and does not wait while it runs.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "of one engine"))]
    pub(crate) fn detach(self) {
        let mut state = self.background.lock();
        state.queue.end(self.number);
        let work = state.queue.remove(self.number);
        drop(state);
        drop(work);
    }

    /// Ends the job, and waits while it runs. In the job itself, it does not wait.
    pub(crate) fn stop(&self) {
        let mut state = self.background.lock();
        state.queue.end(self.number);
        if RUNS.get() != Some(self.number) {
            let runs = |state: &mut State| state.queue.is_running(self.number);
            state = self.background.ended.wait_while(state, runs);
        }
        let work = state.queue.remove(self.number);
        if state.queue.is_empty() {
            self.background.clock.notify_all();
            self.background.work.notify_all();
        }
        drop(state);
        // It may close files.
        drop(work);
    }
}

impl Background {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                queue: Queue::new(),
                has_clock: false,
                threads: 0,
                idle: 0,
                started: None,
            }),
            clock: Condvar::new(),
            work: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn start(
        &'static self,
        work: Arc<dyn Work>,
        lane: Lane,
        after: Option<Duration>,
    ) -> io::Result<Job> {
        let mut state = self.lock();
        if !state.has_clock {
            thread::Builder::new().name(CLOCK.to_owned()).spawn(|| self.keep_time())?;
            state.has_clock = true;
        }
        let number = state.queue.add(work, lane);
        let now = Instant::now();
        state.queue.set_time(number, after.map(|after| now + after.min(LONG)));
        self.clock.notify_one();
        Ok(Job { background: self, number, forks: fork::forks() })
    }

    /// Wakes a thread for a job that was added to the queue.
    fn notify(&self, state: &State) {
        if state.idle > 0 {
            self.work.notify_one();
        }
        // Another job may need another thread, or wait for its lane.
        if state.queue.waiting() > state.idle {
            self.clock.notify_one();
        }
    }

    /// Runs in the clock.
    fn keep_time(&'static self) {
        let mut state = self.lock();
        while !state.queue.is_empty() {
            let now = Instant::now();
            while state.queue.queue_due(now) {
                self.notify(&state);
            }
            let mut until = state.queue.next_time().unwrap_or(now + LONG);
            if let Some(since) = state.queue.waits_since() {
                let due = match state.started.filter(|_| state.threads > 0) {
                    Some(started) => since.max(started) + PATIENCE,
                    None => now,
                };
                if due <= now {
                    state = self.start_thread(state, now);
                    continue;
                }
                until = until.min(due);
            }
            state = self.clock.wait_timeout(state, until.saturating_duration_since(now).min(LONG));
        }
        state.has_clock = false;
    }

    /// Starts a thread, or runs a job in this thread, if there is no thread.
    fn start_thread<'b>(
        &'static self,
        mut state: MutexGuard<'b, State>,
        now: Instant,
    ) -> MutexGuard<'b, State> {
        let started = thread::Builder::new().name(WORK.to_owned()).spawn(|| self.work());
        state.started = Some(now);
        if started.is_ok() {
            state.threads += 1;
        } else if state.threads == 0
            && let Some(taken) = state.queue.take()
        {
            return self.run(state, taken);
        }
        state
    }

    /// Runs in a thread that works.
    fn work(&'static self) {
        let mut state = self.lock();
        while !state.queue.is_empty() {
            if let Some(taken) = state.queue.take() {
                state = self.run(state, taken);
                continue;
            }
            // One thread waits for work, and the others end.
            if state.idle > 0 {
                break;
            }
            state.idle += 1;
            let begun = Instant::now();
            state = self.work.wait_timeout(state, IDLE);
            state.idle -= 1;
            if begun.elapsed() >= IDLE && state.queue.waits_since().is_none() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Runs a job without the lock.
    fn run<'b>(&'b self, state: MutexGuard<'b, State>, taken: Taken) -> MutexGuard<'b, State> {
        drop(state);
        let Taken { number, work } = taken;
        RUNS.set(Some(number));
        let outcome = catch_unwind(AssertUnwindSafe(|| work.run()));
        let has_panicked = outcome.is_err();
        if has_panicked {
            let _ = catch_unwind(AssertUnwindSafe(|| work.panicked()));
        }
        let next = outcome.ok().flatten();
        // The job itself has another reference, unless it was stopped in this thread.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
        RUNS.set(None);
        let mut state = self.lock();
        if has_panicked {
            state.queue.end(number);
        }
        let next = next.map(|next| Instant::now() + next.min(LONG));
        let is_queued = state.queue.ran(number, next);
        self.ended.notify_all();
        if is_queued {
            self.notify(&state);
        } else if next.is_some() {
            self.clock.notify_one();
        }
        state
    }
}
