//! The locks that a thread holds.

use std::marker::PhantomData;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::rank::Ranked;
#[cfg(debug_assertions)]
use super::{fork::forks, rank::Rank};

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
type Lock = (Rank, u64);

impl Held {
    /// Records that the thread is about to wait for a lock with this number among the locks of its rank.
    ///
    /// # Panics
    ///
    /// With debug assertions: the thread holds a lock that comes later in the order, or is this one.
    #[inline]
    pub(crate) fn wait<R: Ranked>(number: u64) -> Self {
        #[cfg(debug_assertions)]
        checked::refuse_behind((R::RANK, number), None);
        Self::got::<R>(number)
    }

    /// Records that the thread got a lock without waiting for it.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is checked"))]
    pub(crate) fn got<R: Ranked>(number: u64) -> Self {
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
        checked::refuse_behind(self.lock, Some(self.lock));
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checked::remove(self.lock);
    }
}

/// Whether [`refuse_inherited_locks`] was called.
#[cfg(debug_assertions)]
static REFUSES_INHERITED: AtomicBool = AtomicBool::new(false);

/// Lets this process panic where it waits for a lock of its parent, with debug assertions. For tests.
pub fn refuse_inherited_locks() {
    #[cfg(debug_assertions)]
    REFUSES_INHERITED.store(true, Relaxed);
}

/// The process that has waited for a lock.
#[cfg(debug_assertions)]
pub(super) struct User(AtomicU32);

#[cfg(debug_assertions)]
impl User {
    const NONE: u32 = u32::MAX;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }

    /// Panics, if this was [requested](refuse_inherited_locks) and the process from which this process was forked has used
    /// the lock. A thread that this process does not have may hold it.
    #[expect(clippy::panic, reason = "a mistake of this crate that may block threads for ever")]
    pub(super) fn refuse_inherited(&self, rank: Rank) {
        let forks = forks();
        let known = self.0.compare_exchange(Self::NONE, forks, Relaxed, Relaxed);
        if known.is_err_and(|known| known != forks)
            && REFUSES_INHERITED.load(Relaxed)
            && !std::thread::panicking()
        {
            panic!("a forked process waits for a lock of its parent: {rank:?}");
        }
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

    /// Panics if the thread holds a lock other than `except` that does not come before this one.
    #[expect(clippy::panic, reason = "a mistake of this crate that may block threads for ever")]
    pub(super) fn refuse_behind(lock: Lock, except: Option<Lock>) {
        let later = with(|held| {
            let except = except.and_then(|own| held.iter().rposition(|other| *other == own));
            let others = (0..).zip(held.iter()).filter(|(at, _)| Some(*at) != except);
            others.map(|(_, other)| *other).find(|other| is_later(*other, lock))
        });
        if let Some(later) = later.filter(|_| !thread::panicking()) {
            panic!("the lock {lock:?} is taken out of order, after {later:?}");
        }
    }

    /// Whether a held lock must be taken after this one.
    fn is_later(held: Lock, lock: Lock) -> bool {
        match (held, lock) {
            ((Rank::Turn, held), (Rank::Turn, own)) => {
                store_of(held) == store_of(own) && held >= own
            }
            ((Rank::Turn, _), (earlier, _)) if earlier < Rank::Turn => false,
            // A step of a move opens tables in a single shard, whose lock of openings has another number.
            ((Rank::MoveHold, _), (Rank::Opening, 1..)) => false,
            // The moves of different stores are independent.
            ((Rank::MoveStep, held), (Rank::MoveStep, own))
            | ((Rank::MoveHold, held), (Rank::MoveHold, own)) => held == own,
            _ => held >= lock,
        }
    }

    /// Returns the store whose turn to write has this number; see [`place`](super::super::place).
    const fn store_of(number: u64) -> u64 {
        number >> 32
    }
}
