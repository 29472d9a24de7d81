//! Forked processes, for tests of stores that are open in their parent.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    error, thread,
    time::{Duration, Instant},
};

use index_table::Error;

pub(crate) type TestResult = Result<(), Box<dyn error::Error>>;

/// No child runs longer than this.
const PATIENCE: Duration = Duration::from_mins(1);

/// Forks, runs `child` in the child and `parent` in the parent, and waits for the child. Each of them owns
/// its copy of the handles.
pub(crate) fn fork<T>(
    inherited: T,
    child: impl FnOnce(T) -> TestResult,
    parent: impl FnOnce(T) -> TestResult,
) -> TestResult {
    let mut inherited = Some(inherited);
    let pid = start_child(|| inherited.take().map_or(Ok(()), child));
    await_child(pid)?;
    inherited.map_or(Ok(()), parent)
}

/// Forks, and runs `child` in the child.
#[expect(unsafe_code, reason = "there is no safe fork")]
pub(crate) fn start_child(child: impl FnOnce() -> TestResult) -> libc::pid_t {
    // SAFETY: the child uses the memory of other threads only as far as the library does.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        index_table::__private::refuse_inherited_locks();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        let outcome = outcome.unwrap_or_else(|_| Err("a panic".into()));
        if let Err(error) = &outcome {
            // Standard output has a buffer, which this process does not write.
            eprintln!("in the child: {error}");
        }
        // SAFETY: the child ends without running the test harness.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(pid > 0);
    pid
}

/// Waits for a child, for a limited time.
#[expect(unsafe_code, reason = "there is no safe wait for a forked child")]
pub(crate) fn await_child(pid: libc::pid_t) -> TestResult {
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: `pid` is a child of this process.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
        if begun.elapsed() > PATIENCE {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return Err("the child hangs".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    ensure(status == 0, "the child failed")
}

pub(crate) fn ensure(holds: bool, what: &str) -> TestResult {
    if holds { Ok(()) } else { Err(what.into()) }
}

pub(crate) fn is_forked<T>(result: Result<T, Error>) -> TestResult {
    match result {
        Err(Error::Forked { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("a child used its parent's store".into()),
    }
}
