//! The locks of the runtime, and the order in which a thread takes them.
//!
//! Each lock has a [rank](rank::Rank), which its type names, and may have a number among the locks of its rank. A thread
//! that holds locks waits only for a lock of a greater rank, or of the same rank and a greater number. So two threads
//! never wait for each other. A [`Condvar`] releases its own lock only. So the thread that waits must not hold a lock that
//! another thread needs before it notifies.
//!
//! In builds with debug assertions, a thread that would wait for a lock out of order panics. Other builds have no check.
//! A closure of the program runs with the turns to write that its transaction has, and may use other stores. The program
//! chooses the order of its stores. So the turns of different stores are not compared, and neither is a turn with the locks
//! that come before it: within a store, [`Error::WriteInProgress`](crate::Error::WriteInProgress) prevents that.
//!
//! An attempt that does not wait (`try_lock`) can't block, so any order is allowed.
//!
//! A panic while a lock is held does not make its value unusable: the values are valid after each of their changes.
//!
//! A lock that is held when it is dropped was inherited in a [fork], and another thread of the parent may have been changing
//! its value. Then the value is leaked.
#![expect(clippy::disallowed_types, reason = "all other modules use the locks of this module")]

pub(crate) mod file;
pub(crate) mod fork;
mod held;
pub(crate) mod rank;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::{
        self, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub(crate) use file::Unshared;
pub(crate) use fork::{OfProcess, Origin};
pub(crate) use held::Held;
pub use held::refuse_inherited_locks;
use rank::{Leaf, Ranked};

/// A value that one thread uses at a time.
pub(crate) struct Mutex<T, R: Ranked = Leaf> {
    number: Number<R>,
    value: ManuallyDrop<sync::Mutex<T>>,
}

/// A locked [`Mutex`].
pub(crate) struct MutexGuard<'m, T> {
    value: sync::MutexGuard<'m, T>,
    held: Held,
}

/// A value that several threads read, or one thread changes.
pub(crate) struct RwLock<T, R: Ranked = Leaf> {
    number: Number<R>,
    value: ManuallyDrop<sync::RwLock<T>>,
}

/// A [`RwLock`] that is locked for reading.
pub(crate) struct RwLockReadGuard<'l, T> {
    value: sync::RwLockReadGuard<'l, T>,
    _held: Held,
}

/// A [`RwLock`] that is locked for writing.
pub(crate) struct RwLockWriteGuard<'l, T> {
    value: sync::RwLockWriteGuard<'l, T>,
    _held: Held,
}

/// Threads that wait with a [`Mutex`] until its value changes.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

/// Returns the number of a turn to write: of a store, by a number of its own, and of a shard in the store.
pub(crate) const fn place(store: u64, shard: u32) -> u64 {
    (store << 32) | shard as u64
}

/// Returns a number for a store that no other store of this process has.
pub(crate) fn next_store() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The number of a lock among the locks of its rank.
struct Number<R> {
    #[cfg(debug_assertions)]
    value: AtomicU64,
    #[cfg(debug_assertions)]
    user: held::User,
    rank: PhantomData<fn() -> R>,
}

impl<R: Ranked> Number<R> {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is checked"))]
    const fn new(number: u64) -> Self {
        Self {
            #[cfg(debug_assertions)]
            value: AtomicU64::new(number),
            #[cfg(debug_assertions)]
            user: held::User::new(),
            rank: PhantomData,
        }
    }

    /// Records that the thread is about to wait for the lock.
    #[inline]
    fn wait(&self) -> Held {
        #[cfg(debug_assertions)]
        self.user.refuse_inherited(R::RANK);
        #[cfg(debug_assertions)]
        return Held::wait::<R>(self.value.load(Relaxed));
        #[cfg(not(debug_assertions))]
        Held::wait::<R>(0)
    }

    /// Records that the thread got the lock without waiting.
    #[inline]
    fn got(&self) -> Held {
        #[cfg(debug_assertions)]
        return Held::got::<R>(self.value.load(Relaxed));
        #[cfg(not(debug_assertions))]
        Held::got::<R>(0)
    }
}

impl<T, R: Ranked> Mutex<T, R> {
    pub(crate) const fn new(value: T) -> Self {
        Self::numbered(0, value)
    }

    /// Creates a lock with a number among the locks of its rank.
    pub(crate) const fn numbered(number: u64, value: T) -> Self {
        let value = ManuallyDrop::new(sync::Mutex::new(value));
        Self { number: Number::new(number), value }
    }

    /// Changes the number of the lock, which no thread holds.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is checked"))]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "nothing is checked"))]
    pub(crate) fn set_number(&self, number: u64) {
        #[cfg(debug_assertions)]
        self.number.value.store(number, Relaxed);
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.number.wait();
        MutexGuard { value: self.value.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Locks the value, if no thread has locked it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { value, held: self.number.got() })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        let mut own = ManuallyDrop::new(self);
        #[expect(unsafe_code, reason = "the value of a type with a destructor is moved out")]
        // SAFETY: the lock is not used or dropped afterwards, and its other fields need no destructor.
        let value = unsafe { ManuallyDrop::take(&mut own.value) };
        value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, R: Ranked> Drop for Mutex<T, R> {
    fn drop(&mut self) {
        if !matches!(self.value.try_lock(), Err(TryLockError::WouldBlock)) {
            #[expect(unsafe_code, reason = "the value of a held lock is leaked")]
            // SAFETY: it is dropped once.
            unsafe {
                ManuallyDrop::drop(&mut self.value);
            }
        }
    }
}

impl<T, R: Ranked> Drop for RwLock<T, R> {
    fn drop(&mut self) {
        if !matches!(self.value.try_write(), Err(TryLockError::WouldBlock)) {
            #[expect(unsafe_code, reason = "the value of a held lock is leaked")]
            // SAFETY: it is dropped once.
            unsafe {
                ManuallyDrop::drop(&mut self.value);
            }
        }
    }
}

impl<T, R: Ranked> RwLock<T, R> {
    pub(crate) const fn new(value: T) -> Self {
        let value = ManuallyDrop::new(sync::RwLock::new(value));
        Self { number: Number::new(0), value }
    }

    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.number.wait();
        RwLockReadGuard {
            value: self.value.read().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    /// Locks the value for reading with another rank, where no thread can hold locks between the two ranks and wait for
    /// this lock.
    pub(crate) fn read_as<A: Ranked>(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::wait::<A>(0);
        RwLockReadGuard {
            value: self.value.read().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.number.wait();
        RwLockWriteGuard {
            value: self.value.write().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks the value until a notification.
    pub(crate) fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        let MutexGuard { value, held } = guard;
        held.check_last();
        MutexGuard { value: self.0.wait(value).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Unlocks the value until a notification, or until the time is over.
    pub(crate) fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        time: Duration,
    ) -> MutexGuard<'m, T> {
        let MutexGuard { value, held } = guard;
        held.check_last();
        let (value, _) = self.0.wait_timeout(value, time).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { value, held }
    }

    /// Unlocks the value while this is true.
    pub(crate) fn wait_while<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        mut goes_on: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        while goes_on(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Unlocks the value while this is true, until the time is over.
    pub(crate) fn wait_timeout_while<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        time: Duration,
        goes_on: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        let MutexGuard { value, held } = guard;
        held.check_last();
        let waited = self.0.wait_timeout_while(value, time, goes_on);
        MutexGuard { value: waited.unwrap_or_else(PoisonError::into_inner).0, held }
    }
}

impl<T: Default, R: Ranked> Default for Mutex<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default, R: Ranked> Default for RwLock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug, R: Ranked> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: fmt::Debug, R: Ranked> fmt::Debug for RwLock<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
