//! Stores with a journal that are killed instead of closed, for random tests.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    cell::RefCell,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use index_table::{Durability, Options, Result, Store};
use tempfile::TempDir;

/// Returns options with a journal that makes a checkpoint every few commits.
pub(crate) fn journal(options: Options) -> Options {
    options.durability(Durability::Journal).checkpoint(1 << 16, 1 << 13, Duration::from_hours(1))
}

/// Copies the files of a store except LMDB's lock file: the files that remain if the process is killed now.
/// No thread may commit during the copy.
pub(crate) fn leave(store: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name() != "lock.mdb" && entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A store whose process is killed between two openings.
pub(crate) struct Killed {
    dir: TempDir,
    options: Options,
    last: RefCell<(u32, Option<Store>)>,
}

impl Killed {
    pub(crate) fn new(options: Options) -> std::io::Result<Self> {
        let last = RefCell::new((0, None));
        Ok(Self { dir: tempfile::tempdir()?, options: journal(options), last })
    }

    /// Creates the store in the first call. Later calls open the files that a killed process leaves. Every
    /// third call opens the store after it was closed.
    pub(crate) fn open(&self) -> Result<Store> {
        let (number, last) = &mut *self.last.borrow_mut();
        let path = |number: u32| self.dir.path().join(number.to_string());
        if let Some(store) = last.take() {
            if number.is_multiple_of(3) && *number > 0 {
                drop(store);
                leave(&path(*number), &path(*number + 1)).expect("a copy");
            } else {
                leave(&path(*number), &path(*number + 1)).expect("a copy");
                drop(store);
            }
            let _ = fs::remove_dir_all(path(*number));
            *number += 1;
        }
        let store = self.options.open(path(*number))?;
        *last = Some(store.clone());
        Ok(store)
    }
}

static CASES: AtomicU32 = AtomicU32::new(0);
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Runs `test` for one in six random cases, and for each case after a failure, so that it can be reduced.
pub(crate) fn sampled<E>(test: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    if !CASES.fetch_add(1, Relaxed).is_multiple_of(6) && !HAS_FAILED.load(Relaxed) {
        return Ok(());
    }
    let outcome = test();
    HAS_FAILED.fetch_or(outcome.is_err(), Relaxed);
    outcome
}
