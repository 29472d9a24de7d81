//! The active transactions of this process, with their ages.
//!
//! The map may be replaced only while no transaction of the process is active. A transaction writes only its
//! own slot, when it begins and when it ends. Only a thread that replaces the map waits.
//!
//! The gate owns the open files. When a shard has left its store, the gate is [retired](Gate::retire): no transaction
//! begins, and the thread that ends the last transaction closes the files.

use crate::locks::{Condvar, Mutex, MutexGuard, rank};
use std::{
    cell::UnsafeCell,
    mem,
    ops::Deref,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

/// Transactions may begin.
const OPEN: u8 = 0;
/// Transactions wait.
const CLOSED: u8 = 1;
/// The map is gone.
const BROKEN: u8 = 2;
/// No transaction begins. When all have ended, the files are closed.
const RETIRED: u8 = 3;
/// The files are being closed.
const CLOSING: u8 = 4;
/// The files are closed.
const GONE: u8 = 5;

/// The gate of all transactions, with the open files.
pub(super) struct Gate<T> {
    /// Written once: by the thread that has set the state to `CLOSING`.
    inside: UnsafeCell<Option<T>>,
    created: Instant,
    /// Not 0 if there is a writer.
    writer: [AtomicU64; 1],
    /// For each slot, the start of the transaction in nanoseconds since `created`; 0 if the slot is free.
    readers: Box<[AtomicU64]>,
    state: AtomicU8,
    /// The lock for changing `state`, and for waiting until it changes.
    lock: Mutex<(), rank::Gate>,
    changed: Condvar,
}

/// The kind of a transaction. The engine ensures that there is one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reader,
    Writer,
}

/// The reason why a transaction can't begin, or the map can't be replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// All slots are taken.
    Full,
    /// The map no longer exists.
    Broken,
    /// The gate is retired.
    Retired,
    /// Transactions have not ended in time.
    Busy,
}

#[expect(unsafe_code, reason = "the contents are shared by threads, and dropped by one of them")]
// SAFETY: threads get shared references, as `T: Sync` allows, and any thread may drop the contents, as `T: Send` allows.
// `Gate::finish` drops them when no thread has a reference.
unsafe impl<T: Send + Sync> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Returns the contents; `None` after they were dropped. The caller is inside the gate, and does not use the result after
    /// its pass was dropped; or no other thread can retire the gate.
    #[inline]
    pub(super) fn inside(&self) -> Option<&T> {
        #[expect(unsafe_code, reason = "the contents may be dropped while the gate is borrowed")]
        // SAFETY: only `finish` writes, when no pass exists, none is given out, and no thread has the lock. Callers have a
        // pass or the lock.
        unsafe { &*self.inside.get() }.as_ref()
    }

    /// Returns the contents.
    pub(super) fn inside_mut(&mut self) -> Option<&mut T> {
        self.inside.get_mut().as_mut()
    }

    pub(super) fn new(readers: u32, inside: T) -> Self {
        Self {
            inside: UnsafeCell::new(Some(inside)),
            created: Instant::now(),
            writer: Default::default(),
            readers: (0..readers).map(|_| AtomicU64::default()).collect(),
            state: AtomicU8::new(OPEN),
            lock: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Lets a transaction begin; waits while the map is being replaced.
    pub(super) fn enter(&self, kind: Kind) -> Result<Pass<'_, T>, Refused> {
        let slots = match kind {
            Kind::Reader => &*self.readers,
            Kind::Writer => &self.writer,
        };
        loop {
            // Nothing reads the age of the writer.
            let now = if kind == Kind::Reader { self.now() } else { 1 };
            let slot = slots.iter().find(|slot| {
                slot.load(SeqCst) == 0 && slot.compare_exchange(0, now, SeqCst, SeqCst).is_ok()
            });
            let pass = Pass { gate: self, slot: slot.ok_or(Refused::Full)? };
            // A thread that closes the gate sets the state and then reads the slots. This thread sets its
            // slot and then reads the state, so at least one of them sees the other's write.
            match self.state.load(SeqCst) {
                OPEN => return Ok(pass),
                BROKEN => return Err(Refused::Broken),
                CLOSED => drop(pass),
                _ => return Err(Refused::Retired),
            }
            drop(self.until(self.lock(), None, || self.state.load(SeqCst) != CLOSED));
        }
    }

    /// Prevents new transactions, and waits until all transactions have ended. Returns `None` if another
    /// thread has closed the gate.
    pub(super) fn close(&self, limit: Duration) -> Result<Option<Closed<'_, T>>, Refused> {
        let deadline = Instant::now() + limit;
        let lock = self.lock();
        match self.state.load(SeqCst) {
            OPEN => self.state.store(CLOSED, SeqCst),
            BROKEN => return Err(Refused::Broken),
            CLOSED => {
                drop(self.until(lock, None, || self.state.load(SeqCst) != CLOSED));
                return Ok(None);
            }
            _ => return Err(Refused::Retired),
        }
        let closed = Closed(self);
        // The slots aren't read again after the wait: a thread that begins too late takes a slot for a moment.
        let (lock, is_empty) = self.until(lock, Some(deadline), || self.is_empty());
        drop(lock);
        if is_empty { Ok(Some(closed)) } else { Err(Refused::Busy) }
    }

    /// Prevents new transactions permanently. When all transactions have ended, the contents are dropped: by this call,
    /// or by the thread that ends the last transaction.
    pub(super) fn retire(&self) {
        let (lock, _) = self.until(self.lock(), None, || self.state.load(SeqCst) != CLOSED);
        if self.state.load(SeqCst) < RETIRED {
            self.state.store(RETIRED, SeqCst);
        }
        drop(lock);
        self.finish();
    }

    /// Lets transactions begin again, unless the contents were dropped meanwhile. Returns whether they can begin.
    pub(super) fn reopen(&self) -> bool {
        let _lock = self.lock();
        let reopened = self.state.compare_exchange(RETIRED, OPEN, SeqCst, SeqCst);
        reopened.is_ok() || self.state.load(SeqCst) < RETIRED
    }

    /// Calls `body` with the contents, which are not dropped meanwhile, although the calling thread may have no pass.
    /// Returns `None` if they are dropped.
    pub(super) fn hold<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        let _lock = self.lock();
        // The state changes to `CLOSING` with the lock.
        let inside = if self.state.load(SeqCst) < CLOSING { self.inside() } else { None };
        inside.map(body)
    }

    /// Whether the gate is retired, and the contents are dropped. Waits while another thread drops them.
    pub(super) fn is_gone(&self) -> bool {
        let is_closing = || self.state.load(SeqCst) == CLOSING;
        drop(self.until(self.lock(), None, || !is_closing()));
        self.state.load(SeqCst) == GONE
    }

    /// Whether a transaction that begins now would wait.
    pub(super) fn is_closed(&self) -> bool {
        self.state.load(SeqCst) == CLOSED
    }

    /// Whether the gate is retired.
    pub(super) fn is_retired(&self) -> bool {
        self.state.load(SeqCst) >= RETIRED
    }

    /// Drops the contents, if the gate is retired and no transaction is active.
    #[cold]
    fn finish(&self) {
        let lock = self.lock();
        // A thread that comes too late takes a slot for a moment. When it frees the slot, it calls this function.
        if self.state.load(SeqCst) != RETIRED || !self.is_empty() {
            return;
        }
        self.state.store(CLOSING, SeqCst);
        drop(lock);
        #[expect(unsafe_code, reason = "references to the contents would become invalid")]
        // SAFETY: each transaction sets its slot and then reads the state, and no slot was set after the state. So no pass
        // exists, and none is given out. No other thread writes, because only one has changed the state to `CLOSING`.
        drop(mem::take(unsafe { &mut *self.inside.get() }));
        self.state.store(GONE, SeqCst);
        self.notify();
    }

    /// Returns the number of read transactions, and the age of the oldest.
    pub(super) fn readers(&self) -> (usize, Option<Duration>) {
        let began = self.readers.iter().map(|slot| slot.load(SeqCst)).filter(|began| *began != 0);
        let (count, oldest) = began.fold((0, u64::MAX), |(n, oldest), at| (n + 1, oldest.min(at)));
        let age = Duration::from_nanos(self.now().saturating_sub(oldest));
        (count, (count > 0).then_some(age))
    }

    fn is_empty(&self) -> bool {
        self.writer.iter().chain(&self.readers).all(|slot| slot.load(SeqCst) == 0)
    }

    /// Returns the current time in nanoseconds since `created`; never 0.
    fn now(&self) -> u64 {
        let since = self.created.elapsed();
        since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(since.subsec_nanos().into()) | 1
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    /// Waits for `done`, or for the deadline. Returns whether it is done.
    fn until<'g>(
        &'g self,
        mut lock: MutexGuard<'g, ()>,
        deadline: Option<Instant>,
        done: impl Fn() -> bool,
    ) -> (MutexGuard<'g, ()>, bool) {
        while !done() {
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(1),
            };
            if left.is_zero() {
                return (lock, false);
            }
            lock = self.changed.wait_timeout(lock, left);
        }
        (lock, true)
    }

    /// Notifies waiting threads. They check their condition under the lock, so they can't miss a
    /// notification.
    #[cold]
    fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }
}

/// The pass of an active transaction, which is dropped when the transaction has ended.
pub(super) struct Pass<'g, T> {
    gate: &'g Gate<T>,
    slot: &'g AtomicU64,
}

impl<T> Drop for Pass<'_, T> {
    fn drop(&mut self) {
        self.slot.store(0, SeqCst);
        match self.gate.state.load(SeqCst) {
            CLOSED => self.gate.notify(),
            RETIRED => self.gate.finish(),
            _ => {}
        }
    }
}

/// What was begun with a pass. It ends before the pass, because its files may be closed as soon as the pass has ended: the fields are dropped in
/// this order.
pub(super) struct Entered<'g, T, F> {
    begun: T,
    pass: Pass<'g, F>,
}

impl<'g, T, F> Entered<'g, T, F> {
    pub(super) const fn new(pass: Pass<'g, F>, begun: T) -> Self {
        Self { begun, pass }
    }

    /// Returns the parts in an order in which two variables are dropped correctly: the last one first.
    pub(super) fn into_parts(self) -> (Pass<'g, F>, T) {
        (self.pass, self.begun)
    }
}

impl<T, F> Deref for Entered<'_, T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.begun
    }
}

/// A guard of the closed gate: no transaction is active, and none begins until the guard is dropped.
pub(super) struct Closed<'g, T>(&'g Gate<T>);

impl<T> Closed<'_, T> {
    /// Records that the map no longer exists, so that no further transaction can start.
    pub(super) fn broken(self) {
        self.0.state.store(BROKEN, SeqCst);
    }
}

impl<T> Drop for Closed<'_, T> {
    fn drop(&mut self) {
        // A broken gate stays broken.
        let _ = self.0.state.compare_exchange(CLOSED, OPEN, SeqCst, SeqCst);
        self.0.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, thread};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_mins(1);

    #[test]
    fn slots_are_assigned_and_released() {
        let gate = Gate::new(2, ());
        let passes = (gate.enter(Kind::Reader), gate.enter(Kind::Reader), gate.enter(Kind::Writer));
        assert!(passes.0.is_ok() && passes.1.is_ok() && passes.2.is_ok());
        assert_eq!(gate.enter(Kind::Reader).err(), Some(Refused::Full));
        assert_eq!(gate.enter(Kind::Writer).err(), Some(Refused::Full));
        drop(passes.1);
        thread::sleep(SOON);
        let fresh = gate.enter(Kind::Reader);
        assert!(matches!(gate.readers(), (2, Some(age)) if age >= SOON));
        drop(passes.0);
        assert!(matches!(gate.readers(), (1, Some(_))));
        drop(fresh);
        assert_eq!(gate.readers(), (0, None));
    }

    #[test]
    fn closing_waits_for_active_transactions() {
        for kind in [Kind::Reader, Kind::Writer] {
            let gate = Gate::new(2, ());
            let pass = gate.enter(kind);
            assert_eq!(gate.close(SOON).err(), Some(Refused::Busy));
            assert!(gate.enter(Kind::Reader).is_ok(), "it is open again");
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(SOON);
                    drop(pass);
                });
                assert!(matches!(gate.close(LATE), Ok(Some(_))));
            });
        }
    }

    #[test]
    fn no_transaction_begins_after_the_gate_is_broken() {
        let gate = Gate::new(2, ());
        if let Ok(Some(closed)) = gate.close(SOON) {
            closed.broken();
        }
        assert_eq!(gate.enter(Kind::Reader).err(), Some(Refused::Broken));
        assert_eq!(gate.close(SOON).err(), Some(Refused::Broken));
    }

    /// Counts how often it is dropped.
    struct Dropped<'d>(&'d AtomicUsize);

    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn the_last_transaction_drops_the_contents_of_a_retired_gate() {
        for kind in [Kind::Reader, Kind::Writer] {
            let dropped = AtomicUsize::new(0);
            let gate = Gate::new(3, Dropped(&dropped));
            let (first, last) = (gate.enter(kind), gate.enter(Kind::Reader));
            gate.retire();
            assert_eq!(gate.enter(Kind::Reader).err(), Some(Refused::Retired));
            assert_eq!(gate.close(SOON).err(), Some(Refused::Retired));
            drop(first);
            assert!(gate.is_retired() && !gate.is_gone() && gate.inside().is_some());
            drop(last);
            assert!(gate.is_gone() && gate.inside().is_none() && !gate.reopen());
            assert_eq!(dropped.load(SeqCst), 1);
            gate.retire();
            drop(gate);
            assert_eq!(dropped.load(SeqCst), 1);
        }
    }

    /// A transaction, which uses the contents of the gate until it ends.
    struct Using<'d>(&'d AtomicUsize);

    impl Drop for Using<'_> {
        fn drop(&mut self) {
            assert_eq!(self.0.load(SeqCst), 0, "the contents are gone");
        }
    }

    #[test]
    fn what_was_begun_ends_before_the_contents_are_dropped() {
        for has_parts in [false, true] {
            let dropped = AtomicUsize::new(0);
            let gate = Gate::new(1, Dropped(&dropped));
            let pass = gate.enter(Kind::Reader).expect("a pass");
            let begun = Entered::new(pass, Using(&dropped));
            gate.retire();
            if has_parts {
                let (_pass, _using) = begun.into_parts();
            } else {
                drop(begun);
            }
            assert_eq!(dropped.load(SeqCst), 1);
        }
    }

    #[test]
    fn a_retired_gate_with_transactions_can_be_opened_again() {
        let gate = Gate::new(2, ());
        let pass = gate.enter(Kind::Reader);
        gate.retire();
        assert!(gate.reopen());
        drop(pass);
        assert!(gate.enter(Kind::Reader).is_ok() && !gate.is_retired());
        gate.retire();
        assert!(gate.is_gone());
    }

    #[test]
    fn the_contents_are_dropped_once_beside_threads_that_enter() {
        for _ in 0..200 {
            let dropped = AtomicUsize::new(0);
            let gate = Gate::new(8, Dropped(&dropped));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Ok(pass) = gate.enter(Kind::Reader) {
                            assert!(gate.inside().is_some());
                            thread::yield_now();
                            drop(pass);
                        }
                    });
                }
                thread::yield_now();
                gate.retire();
            });
            assert!(gate.is_gone());
            assert_eq!(dropped.load(SeqCst), 1);
        }
    }

    #[test]
    fn no_transaction_is_active_while_the_gate_is_closed() {
        let gate = Gate::new(16, ());
        let (inside, closed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let busy = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    while closed.load(SeqCst) < 8000 {
                        let pass = gate.enter(Kind::Reader);
                        inside.fetch_add(1, SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        drop(pass);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while closed.load(SeqCst) < 8000 {
                        let held = gate.close(LATE);
                        if matches!(held, Ok(Some(_))) {
                            busy.fetch_add(inside.load(SeqCst), SeqCst);
                            thread::yield_now();
                            busy.fetch_add(inside.load(SeqCst), SeqCst);
                        }
                        // A reader that waits for the gate doesn't make it busy.
                        busy.fetch_add(held.is_err().into(), SeqCst);
                        closed.fetch_add(1, SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(busy.load(SeqCst), 0);
    }
}
