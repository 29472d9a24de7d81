//! Threads of a store that run closures, in the order of their submission.

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    locks::{Condvar, Mutex, Origin},
    model::error::{Error, Result},
    store::group::contained,
};

/// The name of the threads.
const NAME: &str = "index-table-call";

/// The time after which a thread without a closure ends.
pub(super) const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that are started when they are needed.
#[derive(Default)]
pub(super) struct Pool {
    /// `None` before the first job.
    shared: OnceLock<Arc<Shared>>,
    /// The maximum number of threads; 0 for twice the number of cores.
    most: AtomicU32,
}

struct Shared {
    state: Mutex<State>,
    /// There is a job, or the pool has ended.
    work: Condvar,
    /// The process with the threads.
    origin: Origin,
}

#[derive(Default)]
struct State {
    /// The jobs that no thread has taken, by their numbers.
    queue: BTreeMap<u64, Job>,
    next: u64,
    threads: usize,
    idle: usize,
    has_ended: bool,
}

/// The place of a job in the queue. If it is dropped before a thread has taken the job, the job is dropped.
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Pool {
    /// Sets the maximum number of threads; 0 for twice the number of cores.
    pub(super) fn set_most(&self, threads: u32) {
        self.most.store(threads, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        match self.most.load(Ordering::Relaxed) {
            0 => 2 * thread::available_parallelism().map_or(1, NonZero::get),
            threads => usize::try_from(threads).unwrap_or(usize::MAX),
        }
    }

    /// Appends a job to the queue, and starts a thread for it if all are busy and there may be another.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`] if there is no thread and none can be started, with the job.
    pub(super) fn push(&self, job: Job) -> Result<Place, (Error, Job)> {
        let shared = self.shared.get_or_init(|| {
            let (state, work, origin) = (Mutex::default(), Condvar::new(), Origin::here());
            Arc::new(Shared { state, work, origin })
        });
        let mut state = shared.state.lock();
        if state.queue.len() >= state.idle && state.threads < self.most() {
            let own = Arc::clone(shared);
            // With the lock, so that the number of threads is right when another thread looks.
            match thread::Builder::new().name(NAME.to_owned()).spawn(move || own.work()) {
                Ok(_) => state.threads += 1,
                // Another thread takes the job.
                Err(_) if state.threads > 0 => {}
                Err(source) => return Err((Error::Thread { name: NAME, source }, job)),
            }
        }
        let number = state.next;
        state.next += 1;
        state.queue.insert(number, job);
        drop(state);
        shared.work.notify_one();
        Ok(Place { shared: Arc::clone(shared), number })
    }

    /// Ends the threads when there are no more jobs.
    pub(super) fn end(&self) {
        if let Some(shared) = self.shared.get() {
            shared.state.lock().has_ended = true;
            shared.work.notify_all();
        }
    }

    /// Returns the number of jobs that no thread has taken.
    pub(super) fn waiting(&self) -> usize {
        self.shared.get().map_or(0, |shared| shared.state.lock().queue.len())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.shared.origin.is_inherited() {
            return;
        }
        let job = self.shared.state.lock().queue.remove(&self.number);
        // User code must not run under the lock.
        drop(job);
    }
}

impl Shared {
    /// Runs in a thread.
    fn work(&self) {
        while let Some(job) = self.take() {
            contained(job);
        }
    }

    /// Waits for a job. Returns `None` if the thread has to end.
    fn take(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some((_, job)) = state.queue.pop_first() {
                return Some(job);
            }
            if state.has_ended {
                state.threads -= 1;
                return None;
            }
            let begun = Instant::now();
            state.idle += 1;
            state = self.work.wait_timeout(state, IDLE);
            state.idle -= 1;
            if state.queue.is_empty() && begun.elapsed() >= IDLE {
                state.threads -= 1;
                return None;
            }
        }
    }
}
