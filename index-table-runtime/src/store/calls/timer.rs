//! Wakes tasks after a time, on any executor.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{
    background::{Job, Lane, Work},
    locks::{Mutex, Origin},
    model::error::{Error, Result},
    write::watch,
};

/// The waiting tasks of a store, and the job that wakes them.
#[derive(Default)]
pub(super) struct Timers {
    waiting: Arc<Waiting>,
    job: OnceLock<Job>,
}

#[derive(Default)]
struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    tasks: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    /// Starts the job.
    fn job(&self) -> Result<&Job> {
        if let Some(job) = self.job.get() {
            return Ok(job);
        }
        let work = Arc::clone(&self.waiting) as Arc<dyn Work>;
        let job = Job::start(work, Lane::Timers, None)
            .map_err(|source| Error::Thread { name: "index-table-clock", source })?;
        // If another thread has started one meanwhile, this one ends.
        Ok(self.job.get_or_init(|| job))
    }

    /// Returns a future that is ready at this time.
    pub(super) fn sleep(&self, until: Instant) -> Result<Sleep<'_>> {
        let job = self.job()?;
        Ok(Sleep { waiting: &self.waiting, job, until, number: None, origin: Origin::here() })
    }
}

impl Work for Waiting {
    fn run(&self) -> Option<Duration> {
        let (due, next) = {
            let mut state = self.0.lock();
            let later = state.tasks.split_off(&(Instant::now(), u64::MAX));
            let due = std::mem::replace(&mut state.tasks, later);
            (due, state.tasks.first_key_value().map(|((at, _), _)| *at))
        };
        watch::wake(due.into_values().collect());
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn panicked(&self) {}
}

/// A wait for a time.
pub(super) struct Sleep<'t> {
    waiting: &'t Waiting,
    job: &'t Job,
    until: Instant,
    number: Option<u64>,
    origin: Origin,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.origin.is_inherited() || Instant::now() >= this.until {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let (is_first, before) = {
            let mut state = this.waiting.0.lock();
            let number = *this.number.get_or_insert_with(|| {
                state.next += 1;
                state.next
            });
            let key = (this.until, number);
            let before = state.tasks.insert(key, waker);
            (state.tasks.first_key_value().is_some_and(|(first, _)| *first == key), before)
        };
        let is_new = before.is_none();
        drop(before);
        if is_first && is_new {
            this.job.wake();
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && !self.origin.is_inherited()
        {
            let waker = self.waiting.0.lock().tasks.remove(&(self.until, number));
            drop(waker);
        }
    }
}
