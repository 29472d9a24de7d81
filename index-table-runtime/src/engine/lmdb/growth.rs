//! Readers of a store with one data file that another process makes a store with shards.
//!
//! Rows can then be in other data files. The writer creates the lock of a store with shards before it moves any row, and each of its
//! later commits has a new number. So a reader looks for this file when its snapshot has another number than the last one, and no
//! snapshot lacks rows without an error.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::env::Engine;
use crate::{
    engine::files,
    model::error::{Error, Result},
};

/// What a reader of a data file knows of the growth of its store.
pub(super) enum Growth {
    /// This process writes the store, or it has shards already.
    Known,
    /// The number of the last snapshot at which the store had one data file.
    OneFile(AtomicUsize),
}

impl Growth {
    /// Returns what a process knows that opens the data file in a directory. `is_reader` if it opens it as a whole store, without
    /// writing it.
    pub(super) fn of(path: &Path, is_reader: bool) -> Self {
        // After an error, the first transaction looks again.
        let is_one = is_reader && !has_shards(path).unwrap_or(false);
        if is_one { Self::OneFile(AtomicUsize::new(0)) } else { Self::Known }
    }
}

fn has_shards(path: &Path) -> Result<bool> {
    let exists = files::exists(&path.join(files::WRITER_LOCK));
    exists.map_err(|source| Error::io(path, source))
}

impl Engine {
    /// Fails if another process has added a data file to the store, and the snapshot with this number may lack rows.
    #[inline]
    pub(super) fn refuse_grown(&self, number: usize) -> Result<()> {
        match &self.growth {
            Growth::OneFile(last) if last.load(Relaxed) != number => {
                self.look_for_shards(last, number)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn look_for_shards(&self, last: &AtomicUsize, number: usize) -> Result<()> {
        if has_shards(&self.path)? {
            let reason = "another process has added a data file to the store";
            return Err(Error::ReopenNeeded { path: self.path.clone(), reason });
        }
        last.store(number, Relaxed);
        Ok(())
    }
}
