//! The state that the future of an asynchronous call shares with its closure.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};

use crate::model::error::{Error, Result};

/// The closure has not begun.
const WAITING: u8 = 0;
/// The closure has begun.
const BEGUN: u8 = 1;
/// The future was dropped before the closure has begun.
const LEFT: u8 = 2;
/// The future was dropped while the closure ran, and its transaction is rolled back.
const ABORTED: u8 = 3;

/// The state that a future and its closure share.
#[derive(Debug)]
pub(in crate::store) struct Orders(AtomicU8);

impl Orders {
    pub(in crate::store) const fn new() -> Self {
        Self(AtomicU8::new(WAITING))
    }

    /// Begins the closure, also when it runs again. Returns false if it must not run.
    pub(in crate::store) fn begin(&self) -> bool {
        matches!(self.0.compare_exchange(WAITING, BEGUN, SeqCst, SeqCst), Ok(_) | Err(BEGUN))
    }

    /// Records that the future was dropped.
    pub(in crate::store) fn leave(&self, aborts: bool) {
        let left = self.0.compare_exchange(WAITING, LEFT, SeqCst, SeqCst);
        if left == Err(BEGUN) && aborts {
            self.0.store(ABORTED, SeqCst);
        }
    }

    /// Fails if the transaction is rolled back.
    pub(in crate::store) fn check(&self) -> Result<()> {
        if self.0.load(SeqCst) == ABORTED { Err(Error::CallDropped) } else { Ok(()) }
    }
}

thread_local! {
    /// Whether this thread runs the closure of a call.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// The state of this call.
    static CURRENT: RefCell<Option<Arc<Orders>>> = const { RefCell::new(None) };
}

/// Runs the closure of a call in this thread.
pub(in crate::store) fn run_for<T>(orders: &Arc<Orders>, run: impl FnOnce() -> T) -> T {
    struct Restored(Option<Arc<Orders>>);

    impl Drop for Restored {
        fn drop(&mut self) {
            RUNS.set(self.0.is_some());
            CURRENT.set(self.0.take());
        }
    }

    let _restored = Restored(CURRENT.replace(Some(Arc::clone(orders))));
    RUNS.set(true);
    run()
}

/// Fails in the closure of a call whose transaction is rolled back.
#[inline]
pub(crate) fn refuse_aborted() -> Result<()> {
    if RUNS.get() { check_current() } else { Ok(()) }
}

#[cold]
fn check_current() -> Result<()> {
    CURRENT.with_borrow(|orders| orders.as_ref().map_or(Ok(()), |orders| orders.check()))
}
