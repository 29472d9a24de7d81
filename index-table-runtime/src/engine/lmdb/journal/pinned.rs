//! Checks that LMDB's table of readers still has the pin of a checkpoint.
//!
//! The lock file stays open as long as the environment does. Closing this descriptor would drop the locks that LMDB
//! holds on the file in this process.

use std::{fs::File, path::Path, process};

use super::files::read_at;
use crate::engine::lmdb::{lock, names::LOCK_FILE};

/// The table of readers, read from the lock file.
pub(in crate::engine::lmdb) struct Slots {
    file: Option<File>,
}

impl Slots {
    /// Opens the lock file. If the layout of the file is unknown on this system, [`has`](Slots::has) is always true.
    pub(super) fn open(directory: &Path) -> Self {
        let is_known = lock::header() > 0;
        let file = is_known.then(|| File::open(directory.join(LOCK_FILE)).ok()).flatten();
        Self { file }
    }

    /// Returns true if this process has a reader of this transaction number, or if the table cannot be read.
    pub(super) fn has(&self, number: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let Ok(length) = file.metadata().map(|file| file.len()) else { return true };
        let mut at = lock::header();
        let mut slot = [0; 16];
        while at + lock::SLOT <= length {
            if read_at(file, at, &mut slot).is_err() {
                return true;
            }
            let [first, second] = [slot.first_chunk::<8>(), slot.last_chunk::<8>()];
            let reader = first.map_or(0, |word| u64::from_ne_bytes(*word));
            let owner = second.and_then(|word| word.first_chunk::<4>());
            let owner = owner.map_or(0, |word| u32::from_ne_bytes(*word));
            if reader == number && owner == process::id() {
                return true;
            }
            at += lock::SLOT;
        }
        false
    }
}
