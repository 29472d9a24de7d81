//! Work that is done once, and has a result.

use std::{io, sync::Arc, time::Duration};

use super::{Job, Lane, Work};
use crate::locks::Mutex;

type Body<T> = Box<dyn FnOnce() -> T + Send>;

/// Work that is done once.
pub(crate) struct Task<T> {
    job: Job,
    state: Arc<Mutex<State<T>>>,
}

enum State<T> {
    New(Body<T>),
    /// The work has begun, or has panicked.
    Begun,
    Done(T),
}

struct Once<T>(Arc<Mutex<State<T>>>);

impl<T: Send + 'static> Task<T> {
    /// Queues the work.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(crate) fn start(lane: Lane, body: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::New(Box::new(body) as Body<T>)));
        let job = Job::start(Arc::new(Once(Arc::clone(&state))), lane, None)?;
        job.wake();
        Ok(Self { job, state })
    }

    /// Whether the work is done, or has panicked.
    pub(crate) fn is_done(&self) -> bool {
        // The other reference belongs to the job, which ends with a panic.
        matches!(*self.state.lock(), State::Done(_)) || self.job.has_ended()
    }

    /// Returns the result; `None` after a panic. Waits while the work is being done. If it has not begun, this thread does it.
    pub(crate) fn join(self) -> Option<T> {
        self.job.stop();
        let state = std::mem::replace(&mut *self.state.lock(), State::Begun);
        match state {
            State::New(body) => Some(body()),
            State::Begun => None,
            State::Done(result) => Some(result),
        }
    }
}

impl<T: Send> Work for Once<T> {
    fn run(&self) -> Option<Duration> {
        let state = std::mem::replace(&mut *self.0.lock(), State::Begun);
        let state = match state {
            State::New(body) => State::Done(body()),
            state => state,
        };
        *self.0.lock() = state;
        None
    }

    fn panicked(&self) {}
}
