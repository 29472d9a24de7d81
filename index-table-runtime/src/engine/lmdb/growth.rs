//! Readers and followers of a store with one data file that another process makes a store with shards.
//!
//! Rows can then be in other data files. The writer creates the lock of a store with shards before it moves any row, and each of its
//! later commits has a new number. So a reader looks for this file when its snapshot has another number than the last one, and no
//! snapshot lacks rows without an error.

use std::{
    path::Path,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{env::Engine, journal::changes::Operations, names::SHARD};
use crate::{
    engine::{Options, files},
    model::error::{Error, Result},
};

/// In the place of the number of a snapshot.
const NONE: usize = usize::MAX;

/// What a reader knows about the growth of its store.
pub(super) enum Growth {
    /// This process writes the store, or it has shards already.
    Known,
    /// The number of the last snapshot at which the store had one data file, or [`NONE`].
    OneFile(AtomicUsize),
    /// Whether the original of this follower has several data files now.
    Followed(AtomicBool),
}

impl Growth {
    /// Returns what a process knows that opens the data file in a directory.
    pub(super) fn of(options: &Options, is_shard: bool) -> Self {
        if is_shard || options.manager {
            Self::Known
        } else if options.follower {
            Self::Followed(AtomicBool::new(false))
        // The store can have grown since this opening found one data file, so the first transaction looks, too.
        } else if options.read_only && options.refuses_shards {
            Self::OneFile(AtomicUsize::new(NONE))
        } else {
            Self::Known
        }
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
            Growth::Followed(has_grown) if has_grown.load(Acquire) => Err(self.grown()),
            _ => Ok(()),
        }
    }

    #[cold]
    fn look_for_shards(&self, last: &AtomicUsize, number: usize) -> Result<()> {
        if has_shards(&self.path)? {
            return Err(self.grown());
        }
        last.store(number, Relaxed);
        Ok(())
    }

    #[cold]
    fn grown(&self) -> Error {
        let reason = "another process has added a data file to the store, or to the original of this follower";
        Error::ReopenNeeded { path: self.path.clone(), reason }
    }

    /// Notes changes that a follower with one data file is about to apply: the original can have other data files from the commit
    /// on that has its own record as a shard.
    pub(super) fn note_growth(&self, changes: &[u8]) {
        if let Growth::Followed(has_grown) = &self.growth
            && Operations::of(changes).any(|it| it.is_ok_and(|(name, _)| name == SHARD))
        {
            has_grown.store(true, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::engine;

    /// The store grows after its opening has found one data file, and before the data file is opened.
    #[test]
    fn a_reader_that_is_opened_beside_the_growth_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        drop(engine::Engine::open(&Options::default(), directory.path()).expect("a store"));
        fs::write(directory.path().join(files::WRITER_LOCK), "").expect("a file");
        let options = Options { refuses_shards: true, ..Options::default().read_only(true) };
        let reader = engine::Engine::open(&options, directory.path()).expect("a store");
        let refused = reader.read().map(drop);
        assert!(matches!(refused, Err(Error::ReopenNeeded { .. })), "{refused:?}");
    }
}
