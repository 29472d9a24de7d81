//! Look-ups in the thread of the task, as long as they do not wait for a disk.
//!
//! A look-up of a row in memory takes about a microsecond, and a change of threads takes ten. But a page that is not in memory is read
//! by the thread that needs it, and a task must not make the others of its thread wait for a disk. So the reads that had to wait are
//! counted, by the kernel's major page faults of the thread. At first, and after one of them, look-ups run in the pool, until [`WARM`] of
//! them in a row have read memory only. Then, look-ups run in place. So at most one look-up in [`WARM`] waits for a disk in the thread of
//! a task.
//!
//! A look-up in place is ready at once, so after [`IN_A_ROW`] of them, a thread returns to its executor once.
//!
//! Where the kernel does not count the faults of a thread (other systems than Linux), all look-ups of files run in the pool.

use std::{
    cell::Cell,
    future::poll_fn,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    task::Poll,
};

/// The number of look-ups without a wait after which the next ones run in place.
const WARM: u32 = 32;

/// The number of look-ups of a thread in place after which it returns to its executor.
const IN_A_ROW: u32 = 32;

thread_local! {
    static MADE: Cell<u32> = const { Cell::new(0) };
}

/// Returns to the executor now and then, because a task whose look-ups are all ready would let no other task of its thread run.
pub(super) async fn make_way() {
    let made = MADE.get() + 1;
    MADE.set(made % IN_A_ROW);
    let mut stays = made < IN_A_ROW;
    poll_fn(|context| {
        if stays {
            return Poll::Ready(());
        }
        stays = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The number of look-ups in the pool without a wait for a disk that are left until look-ups run in place.
pub(super) struct Warmth(AtomicU32);

impl Default for Warmth {
    fn default() -> Self {
        // A file may have been opened without being read.
        Self(AtomicU32::new(WARM))
    }
}

impl Warmth {
    /// Whether a look-up can run in place.
    pub(super) fn is_warm(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Runs a look-up, and counts its wait.
    pub(super) fn note<T>(&self, look_up: impl FnOnce() -> T) -> T {
        let before = major_faults();
        let found = look_up();
        if before.is_none() || before != major_faults() {
            self.0.store(WARM, Relaxed);
        } else {
            // Several threads may count the same one, which delays the change.
            let left = self.0.load(Relaxed);
            if left > 0 {
                self.0.store(left - 1, Relaxed);
            }
        }
        found
    }
}

/// Returns the number of pages for which this thread had to wait; `None` if the system does not count them.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn major_faults() -> Option<libc::c_long> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    // SAFETY: the call fills the structure, which is valid with zeros too.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    Some(usage.ru_majflt)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn major_faults() -> Option<i64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_run_in_the_pool_until_enough_of_them_have_not_waited() {
        let warmth = Warmth::default();
        for _ in 0..WARM {
            assert!(!warmth.is_warm());
            warmth.note(|| ());
        }
        assert_eq!(warmth.is_warm(), major_faults().is_some());
    }
}
