//! Waiting until threads are blocked, for tests of concurrent operations.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// No test waits longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Threads of this process, each from its call of [`enter`](Self::enter) on.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<PathBuf>>);

impl Threads {
    /// Registers the calling thread.
    pub(crate) fn enter(&self) {
        // `PID/task/TID`, which Linux alone has.
        let thread = fs::read_link("/proc/thread-self").unwrap_or_default();
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(Path::new("/proc").join(thread));
    }

    /// Returns when `count` threads have entered and all of them are blocked.
    pub(crate) fn await_blocked(&self, count: usize) {
        await_true(|| {
            let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            threads.len() >= count && are_blocked(&threads)
        });
    }
}

/// Returns when all threads of another process are blocked.
pub(crate) fn await_blocked_process(pid: u32) {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    await_true(|| {
        let threads = fs::read_dir(&tasks).into_iter().flatten().flatten();
        let threads: Vec<_> = threads.map(|thread| thread.path()).collect();
        (!threads.is_empty() || !has_proc()) && are_blocked(&threads)
    });
}

/// Returns when `condition` holds; panics if it doesn't within [`PATIENCE`].
#[track_caller]
pub(crate) fn await_true(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "the condition does not become true");
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_proc() -> bool {
    Path::new("/proc/self/task").exists()
}

/// Whether each of these threads sleeps, and has not run in between two looks. Systems without `/proc` get
/// some time instead.
fn are_blocked(threads: &[PathBuf]) -> bool {
    if !has_proc() {
        thread::sleep(Duration::from_millis(100));
        return true;
    }
    let sleeping = || threads.iter().map(|thread| sleeping(thread)).collect::<Option<Vec<_>>>();
    let before = sleeping();
    thread::sleep(Duration::from_millis(2));
    before.is_some() && before == sleeping()
}

/// Returns the number of context switches of a sleeping thread, or `None` if the thread runs or has ended.
fn sleeping(thread: &Path) -> Option<String> {
    let status = fs::read_to_string(thread.join("status")).ok()?;
    let state = status.lines().find_map(|line| line.strip_prefix("State:"))?;
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    state.trim_start().starts_with('S').then(|| switches.collect())
}
