//! A condition variable that commits and batches notify.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use crate::locks::{Condvar, Mutex, MutexGuard};

/// Signals about the queues of a store in this process.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of threads in [`awaited`](Signals::awaited).
    waiting: AtomicUsize,
    /// The number of failures of workers.
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The number of signals.
    events: u64,
    /// Whether a thread waits until messages are applied.
    hurry: bool,
}

impl Signals {
    /// Signals that messages were written or applied, or that a worker has to stop.
    pub(crate) fn notify(&self) {
        self.state().events += 1;
        self.changed.notify_all();
    }

    /// [`notify`](Signals::notify), if a thread waits. For commits, most of which nobody waits for.
    #[inline]
    pub(crate) fn notify_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.notify();
        }
    }

    /// Counts a failure of a worker after a success.
    pub(crate) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Runs `wait`. The signals of [`notify_waiting`](Signals::notify_waiting) are sent meanwhile.
    pub(crate) fn awaited<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = wait();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub(crate) fn events(&self) -> u64 {
        self.state().events
    }

    /// Makes workers apply messages without waiting for more of them.
    pub(crate) fn hurry(&self) {
        self.state().hurry = true;
        self.changed.notify_all();
    }

    /// Waits for the next signal, up to a timeout.
    pub(crate) fn wait(&self, since: u64, time: Duration) {
        self.wait_while(time, |state| state.events == since && !state.hurry);
    }

    /// Waits for further messages if there was a signal after `since` and no thread waits for the result.
    pub(crate) fn gather(&self, since: u64, time: Duration, stopped: impl Fn() -> bool) {
        self.wait_while(time, |state| state.events != since && !state.hurry && !stopped());
        self.state().hurry = false;
    }

    /// Waits like [`wait`](Signals::wait), for a thread that waits until messages are applied.
    pub(crate) fn wait_for_event(&self, since: u64, time: Duration) {
        self.wait_while(time, |state| state.events == since);
    }

    fn wait_while(&self, time: Duration, goes_on: impl Fn(&State) -> bool) {
        drop(self.changed.wait_timeout_while(self.state(), time, |state| goes_on(state)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
