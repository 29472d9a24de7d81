//! A condition variable that commits and batches notify.

#[cfg(feature = "async")]
use std::{collections::BTreeMap, mem, task::Waker};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

#[cfg(feature = "async")]
use crate::locks::Origin;
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
    /// The waiting tasks, by their numbers.
    #[cfg(feature = "async")]
    tasks: BTreeMap<u64, Waker>,
    #[cfg(feature = "async")]
    next_task: u64,
}

impl Signals {
    /// Signals that messages were written or applied, or that a worker has to stop.
    pub(crate) fn notify(&self) {
        let mut state = self.state();
        state.events += 1;
        #[cfg(feature = "async")]
        let tasks = mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        #[cfg(feature = "async")]
        crate::write::watch::wake(tasks.into_values().collect());
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

/// A task that waits for signals, with those of [`Signals::notify_waiting`].
#[cfg(feature = "async")]
pub(crate) struct Waiter<'s> {
    signals: &'s Signals,
    number: u64,
    /// In a forked process, a thread that does not exist may hold a lock.
    origin: Origin,
}

#[cfg(feature = "async")]
impl Signals {
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state();
        state.next_task += 1;
        Waiter { signals: self, number: state.next_task, origin: Origin::here() }
    }
}

#[cfg(feature = "async")]
impl Waiter<'_> {
    /// Whether there was a signal after `since`. Otherwise, the next one wakes the task.
    pub(crate) fn is_signalled(&self, since: u64, waker: &Waker) -> bool {
        if self.origin.is_inherited() {
            return true;
        }
        let waker = waker.clone();
        let mut state = self.signals.state();
        if state.events != since {
            return true;
        }
        let before = state.tasks.insert(self.number, waker);
        drop(state);
        drop(before);
        false
    }
}

#[cfg(feature = "async")]
impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.origin.is_inherited() {
            return;
        }
        self.signals.waiting.fetch_sub(1, Ordering::SeqCst);
        let waker = self.signals.state().tasks.remove(&self.number);
        drop(waker);
    }
}
