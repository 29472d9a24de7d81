//! Forks of the process.
//!
//! A forked process has the memory of its parent, but only the thread that called `fork`. A lock that another thread held
//! stays locked for ever, and the values on the stacks of other threads are never dropped. So a forked process uses no lock
//! of its parent: it has a value of its own for each static lock ([`OfProcess`]), and an inherited store is recognized
//! without a lock.
//!
//! heed has a static lock that can't be replaced. Its uses are [`Whole`] sections, for whose end a fork waits.

use std::{
    ops::Deref,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// The maximum time for which a fork waits for the end of sections, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

/// The maximum time for which a section waits for a fork, which copies the page tables of the process.
const FORK: Duration = Duration::from_secs(10);

static FORKS: AtomicU32 = AtomicU32::new(0);
/// The number of threads in a section.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The number of forks that have begun.
static FORKING: AtomicUsize = AtomicUsize::new(0);
static IS_CUT: AtomicBool = AtomicBool::new(false);

/// Returns the number of forks since the start of the program. In a forked process, the number differs from the
/// number of its parent. Reading it needs no system call, unlike comparing process ids.
#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Whether this process was forked while a thread of its parent was in a section. A lock of heed may be locked for ever.
pub(crate) fn is_cut() -> bool {
    IS_CUT.load(Relaxed)
}

/// Starts to count forks.
pub(crate) fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHED.load(Acquire) {
        // Two threads may both do it. Then each fork is counted twice, and differs as well. A lock could be held by a
        // thread that a forked process does not have.
        os::watch();
        IS_WATCHED.store(true, SeqCst);
    }
}

/// The process in which a value was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    forks: u32,
}

impl Origin {
    /// Returns this process.
    pub(crate) fn here() -> Self {
        watch();
        Self { forks: forks() }
    }

    /// Whether this process has inherited the value in a fork. Threads that use the value do not exist then, and its locks may
    /// be locked for ever.
    pub(crate) fn is_inherited(self) -> bool {
        self.forks != forks()
    }
}

/// Delays the fork until no thread is in a section.
#[cfg(unix)]
extern "C" fn before() {
    FORKING.fetch_add(1, SeqCst);
    let began = Instant::now();
    while INSIDE.load(SeqCst) > 0 && began.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
}

#[cfg(unix)]
extern "C" fn in_parent() {
    let _ = FORKING.fetch_update(SeqCst, SeqCst, |forking| forking.checked_sub(1));
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    if INSIDE.swap(0, SeqCst) > 0 {
        IS_CUT.store(true, Relaxed);
    }
    FORKING.store(0, SeqCst);
    super::file::release_inherited();
}

/// A section of a thread that a fork does not interrupt. It should be short. Sections are not nested.
///
/// A fork waits for a second at most. A forked process that did not wait for the end [is cut](is_cut).
pub(crate) struct Whole {
    forks: u32,
}

impl Whole {
    pub(crate) fn begin() -> Self {
        watch();
        let began = Instant::now();
        loop {
            // A fork is noted before it reads the number of threads, so that one of the two sees the other.
            INSIDE.fetch_add(1, SeqCst);
            if FORKING.load(SeqCst) == 0 || began.elapsed() > FORK {
                return Self { forks: forks() };
            }
            INSIDE.fetch_sub(1, SeqCst);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.forks == forks() {
            INSIDE.fetch_sub(1, SeqCst);
        }
    }
}

/// A static value of which each process has its own. A forked process begins with a new value, and the value of its parent
/// is leaked.
pub(crate) struct OfProcess<T: 'static> {
    make: fn() -> T,
    current: AtomicPtr<Of<T>>,
}

struct Of<T> {
    forks: u32,
    value: T,
}

impl<T> OfProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { make, current: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

#[expect(unsafe_code, reason = "a value that is made without a lock")]
impl<T: Send + Sync> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        watch();
        loop {
            let known = self.current.load(Acquire);
            // SAFETY: a value that was stored is whole, and is never freed.
            if let Some(of) = unsafe { known.as_ref() }
                && of.forks == forks()
            {
                return &of.value;
            }
            let made = Box::into_raw(Box::new(Of { forks: forks(), value: (self.make)() }));
            if self.current.compare_exchange(known, made, AcqRel, Relaxed).is_err() {
                // SAFETY: no other thread has the pointer.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}

/// A static list to which items are added without a lock. They are never removed.
pub(crate) struct Chain<T: 'static> {
    first: AtomicPtr<Link<T>>,
}

struct Link<T: 'static> {
    item: T,
    next: *const Link<T>,
}

#[expect(unsafe_code, reason = "a list that grows without a lock")]
impl<T: Send + Sync> Chain<T> {
    pub(crate) const fn new() -> Self {
        Self { first: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        let mut next = self.first.load(Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: a link that was added is whole, does not change, and is never freed.
            let link = unsafe { next.as_ref() }?;
            next = link.next;
            Some(&link.item)
        })
    }

    pub(crate) fn add(&self, item: T) -> &'static T {
        let next = self.first.load(Acquire);
        let link = Box::into_raw(Box::new(Link { item, next }));
        let mut known = next;
        while let Err(other) = self.first.compare_exchange(known, link, AcqRel, Acquire) {
            known = other;
            // SAFETY: no other thread has the link yet.
            unsafe { (*link).next = other };
        }
        // SAFETY: as in `iter`.
        &unsafe { &*link }.item
    }
}

#[cfg(unix)]
mod os {
    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    pub(super) fn watch() {
        use super::{before, in_child, in_parent};

        // SAFETY: the functions live as long as the program. `in_child` does only operations that are allowed in the child
        // of a process with threads. If the call fails for lack of memory, forks are not detected.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

/// For systems without fork.
#[cfg(not(unix))]
mod os {
    pub(super) const fn watch() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn threads_share_the_value_of_their_process() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        static VALUE: OfProcess<AtomicU32> = OfProcess::new(|| {
            MADE.fetch_add(1, Relaxed);
            AtomicU32::new(0)
        });
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| VALUE.fetch_add(1, Relaxed));
            }
        });
        assert_eq!(VALUE.load(Relaxed), 8);
        assert!(MADE.load(Relaxed) >= 1);
    }

    #[test]
    fn a_chain_has_the_items_of_all_threads() {
        static ITEMS: Chain<u32> = Chain::new();
        thread::scope(|scope| {
            for from in [0, 100, 200, 300] {
                scope.spawn(move || (from..from + 100).for_each(|item| _ = ITEMS.add(item)));
            }
        });
        let mut items: Vec<_> = ITEMS.iter().copied().collect();
        items.sort_unstable();
        assert_eq!(items, (0..400).collect::<Vec<_>>());
    }
}
