//! Delivers the result of a closure to its submitter.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use super::thread;
use crate::{
    locks::{Condvar, Mutex, MutexGuard, Origin},
    model::error::{Error, Result},
    store::Inner,
};

/// The future result of a closure that was submitted to a [`GroupWriter`](crate::GroupWriter). Threads can
/// [`wait`](Submitted::wait) for it.
///
/// Dropping it does not cancel the closure. The closure runs, and its result is lost.
#[must_use = "it has the result, and whether anything was written"]
pub struct Submitted<T, E> {
    slot: Arc<Slot<T, E>>,
    store: Weak<Inner>,
    origin: Origin,
}

struct Slot<T, E> {
    state: Mutex<State<T, E>>,
    filled: Condvar,
}

struct State<T, E> {
    /// The result. The outer error means that the closure has not returned, or that its writes were not committed.
    outcome: Option<Result<Result<T, E>>>,
    waker: Option<Waker>,
}

/// The sender of a result. If it is dropped without a result, it reports that the writer is closed.
pub(in crate::store) struct Replier<T, E>(Option<Arc<Slot<T, E>>>);

impl<T, E> Submitted<T, E> {
    pub(in crate::store) fn new(store: &Arc<Inner>) -> (Replier<T, E>, Self) {
        let state = Mutex::new(State { outcome: None, waker: None });
        let slot = Arc::new(Slot { state, filled: Condvar::new() });
        (
            Replier(Some(Arc::clone(&slot))),
            Self { slot, store: Arc::downgrade(store), origin: Origin::here() },
        )
    }

    /// Returns the error of a closure that was not accepted.
    pub(super) fn refused(store: &Arc<Inner>, error: Error) -> Self {
        let (replier, submitted) = Self::new(store);
        replier.reply(Err(error));
        submitted
    }
}

impl<T, E: From<Error>> Submitted<T, E> {
    /// Waits until the writes of the closure are committed, and returns its result.
    ///
    /// # Errors
    ///
    /// The errors of [`submit`](crate::GroupWriter::submit). [`Error::WriteInProgress`] in a closure of the writer,
    /// in the `drop` of a captured value, and in a thread with a write transaction. Then, the closure still runs,
    /// after that transaction.
    pub fn wait(self) -> Result<T, E> {
        self.refuse_forked()?;
        let mut state = self.slot.state();
        if state.outcome.is_none()
            && let Some(store) = self.store.upgrade()
        {
            drop(state);
            thread::refuse_to_wait(&store)?;
            drop(store);
            state = self.slot.state();
        }
        loop {
            if let Some(outcome) = state.outcome.take() {
                drop(state);
                return outcome?;
            }
            state = self.slot.filled.wait(state);
        }
    }
}

impl<T, E> Submitted<T, E> {
    /// Fails in a forked process, which has no thread that could reply.
    fn refuse_forked(&self) -> Result<()> {
        if !self.origin.is_inherited() {
            return Ok(());
        }
        let refused = self.store.upgrade().map_or(Ok(()), |store| store.engines.refuse_forked());
        refused.and(Err(Error::WriterClosed))
    }
}

impl<T, E: From<Error>> Future for Submitted<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.refuse_forked()?;
        let mut state = self.slot.state();
        if let Some(outcome) = state.outcome.take() {
            drop(state);
            return Poll::Ready(outcome?);
        }
        let before = state.waker.replace(context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<T, E> fmt::Debug for Submitted<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replied = !self.origin.is_inherited() && self.slot.state().outcome.is_some();
        f.debug_struct("Submitted").field("replied", &replied).finish_non_exhaustive()
    }
}

impl<T, E> Slot<T, E> {
    fn state(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock()
    }

    fn fill(&self, outcome: Result<Result<T, E>>) {
        let waker = {
            let mut state = self.state();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        self.filled.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T, E> Replier<T, E> {
    pub(in crate::store) fn reply(mut self, outcome: Result<Result<T, E>>) {
        if let Some(slot) = self.0.take() {
            slot.fill(outcome);
        }
    }
}

impl<T, E> Drop for Replier<T, E> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.fill(Err(Error::WriterClosed));
        }
    }
}
