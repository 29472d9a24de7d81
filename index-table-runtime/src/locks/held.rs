//! The locks that a thread holds.

use std::marker::PhantomData;

#[cfg(debug_assertions)]
use super::rank::Rank;
use super::rank::Ranked;

/// A lock that the thread holds, or is about to wait for. It is dropped by the same thread.
///
/// Locks that are not of this crate have a guard of this type beside them: the writer of LMDB, locks of files, and work
/// for which other threads wait.
#[must_use]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    lock: Lock,
    /// Not `Send`.
    thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
type Lock = (Rank, u32);

impl Held {
    /// Records that the thread is about to wait for a lock with this number among the locks of its rank.
    ///
    /// # Panics
    ///
    /// With debug assertions: the thread holds a lock that comes later in the order, or is this one.
    #[inline]
    pub(crate) fn wait<R: Ranked>(number: u32) -> Self {
        #[cfg(debug_assertions)]
        checked::refuse_behind((R::RANK, number), checked::last());
        Self::got::<R>(number)
    }

    /// Records that the thread got a lock without waiting for it.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is checked"))]
    pub(crate) fn got<R: Ranked>(number: u32) -> Self {
        #[cfg(debug_assertions)]
        checked::add((R::RANK, number));
        Self {
            #[cfg(debug_assertions)]
            lock: (R::RANK, number),
            thread: PhantomData,
        }
    }

    /// Checks that the thread can wait for this lock again after it has released it.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "nothing is checked"))]
    pub(super) fn check_last(&self) {
        #[cfg(debug_assertions)]
        checked::refuse_behind(self.lock, checked::last_except(self.lock));
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checked::remove(self.lock);
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::{cell::RefCell, process, thread};

    use super::{Lock, Rank};

    #[derive(Default)]
    struct Locks {
        /// A forked process does not have the locks of its parent.
        process: u32,
        held: Vec<Lock>,
    }

    thread_local! {
        static LOCKS: RefCell<Locks> = RefCell::default();
    }

    /// Uses the locks of this thread. At the end of the thread, they no longer exist.
    fn with<T: Default>(body: impl FnOnce(&mut Vec<Lock>) -> T) -> T {
        let used = LOCKS.try_with(|locks| {
            let locks = &mut *locks.borrow_mut();
            let process = process::id();
            if locks.process != process {
                *locks = Locks { process, held: Vec::new() };
            }
            body(&mut locks.held)
        });
        used.unwrap_or_default()
    }

    pub(super) fn add(lock: Lock) {
        with(|held| held.push(lock));
    }

    pub(super) fn remove(lock: Lock) {
        with(|held| {
            if let Some(at) = held.iter().rposition(|own| *own == lock) {
                held.remove(at);
            }
        });
    }

    /// Returns the held lock that is last in the order.
    pub(super) fn last() -> Option<Lock> {
        with(|held| held.iter().max().copied())
    }

    /// Returns the held lock that is last in the order, without one that is equal to `lock`.
    pub(super) fn last_except(lock: Lock) -> Option<Lock> {
        with(|held| {
            let at = held.iter().rposition(|own| *own == lock);
            let others = held.iter().enumerate().filter(|(other, _)| Some(*other) != at);
            others.map(|(_, other)| *other).max()
        })
    }

    #[expect(clippy::panic, reason = "a mistake of this crate that may block threads for ever")]
    pub(super) fn refuse_behind(lock: Lock, last: Option<Lock>) {
        let is_behind = |last: &Lock| *last >= lock && lock.0 != Rank::Leaf;
        if let Some(last) = last.filter(|last| is_behind(last) && !thread::panicking()) {
            panic!("the lock {lock:?} is taken out of order, after {last:?}");
        }
    }
}
