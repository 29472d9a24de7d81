//! Checks that the names of the files still lead to the open files.
//!
//! If a file was removed, renamed or replaced while it is open, this process can still write it, but no other process
//! finds it. So a commit is acknowledged only if each name has led to the open file within the last few milliseconds. This
//! is checked before a commit, which then fails and changes nothing, and after it: it may have waited for the disk, or been
//! delayed by the operating system.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{env::Engine, turn::Writing};
use crate::{
    engine::{
        CommitFailure,
        files::{FileId, id, number_of},
    },
    model::error::{Error, Result},
};

/// The maximum age of a check when a commit is acknowledged.
const AGE: Duration = Duration::from_millis(5);

/// The files that a writer must not lose.
#[derive(Default)]
pub(super) struct Paths {
    files: Vec<(PathBuf, FileId)>,
    /// The time until which the last check is recent; `None` if it did not find all files.
    recent: Option<Instant>,
}

impl Paths {
    pub(super) fn add(&mut self, path: PathBuf, file: FileId) {
        self.files.retain(|(own, _)| *own != path);
        self.files.push((path, file));
        self.recent = None;
    }

    /// Adds files.
    pub(super) fn add_all(&mut self, files: impl Iterator<Item = (PathBuf, FileId)>) {
        files.for_each(|(path, file)| self.add(path, file));
    }

    /// Removes the paths of files that are no longer needed.
    pub(super) fn remove_all(&mut self, files: impl Iterator<Item = (PathBuf, FileId)>) {
        files.for_each(|(path, _)| self.files.retain(|(own, _)| *own != path));
    }

    /// Adds an open file. On systems without numbers of files, does nothing.
    pub(super) fn add_open(&mut self, path: PathBuf, file: &File) {
        if let Ok(Some(file)) = number_of(file) {
            self.add(path, file);
        }
    }

    /// Returns a path that no longer leads to its file. Does nothing if the last check is recent.
    #[inline]
    pub(super) fn lost(&mut self) -> Option<PathBuf> {
        let now = Instant::now();
        if self.recent.is_some_and(|end| now < end) {
            return None;
        }
        self.check(now)
    }

    /// Does the same after a check that did not find all files. Otherwise, does nothing, and does not read the clock.
    #[inline]
    fn still_lost(&mut self) -> Option<PathBuf> {
        if self.recent.is_some() { None } else { self.check(Instant::now()) }
    }

    // `scripts/instructions` finds it by its name.
    #[cold]
    #[inline(never)]
    fn check(&mut self, now: Instant) -> Option<PathBuf> {
        let lost = self.files.iter().find(|(path, file)| !leads_to(path, *file));
        self.recent = if lost.is_none() { now.checked_add(AGE) } else { None };
        lost.map(|(path, _)| path.clone())
    }
}

/// Whether a path leads to this file. A path that this process may not read is not an error.
pub(super) fn leads_to(path: &Path, file: FileId) -> bool {
    match fs::metadata(path).and_then(|found| id(&found)) {
        Ok(found) => found == file,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

impl Engine {
    /// Refuses commits when this path no longer leads to the file that is there now.
    pub(crate) fn watch_path(&self, path: PathBuf) {
        if let Ok(file) = fs::metadata(&path).and_then(|file| id(&file)) {
            self.lock_writing().paths.add(path, file);
        }
    }

    /// Fails if a file of the store was removed, renamed or replaced.
    #[inline]
    pub(super) fn refuse_lost(writing: &mut Writing) -> Result<()> {
        refuse(writing.paths.lost())
    }

    /// Fails if a transaction was refused for this reason, and the file is not back.
    #[inline]
    pub(super) fn refuse_still_lost(writing: &mut Writing) -> Result<()> {
        refuse(writing.paths.still_lost())
    }

    /// Fails if a file was lost during a commit.
    #[inline]
    pub(super) fn refuse_lost_meanwhile(writing: &mut Writing) -> Result<(), CommitFailure> {
        Self::refuse_lost(writing).map_err(CommitFailure::Unknown)
    }
}

#[inline]
fn refuse(lost: Option<PathBuf>) -> Result<()> {
    match lost {
        None => Ok(()),
        Some(path) => Err(Error::FileReplaced { path }),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::thread;

    use super::*;
    use crate::engine::{DataFile, Durability, Options, lmdb::names::FILE};

    #[test]
    fn a_file_that_is_lost_during_a_commit_makes_the_commit_unknown() {
        let all = [Durability::Full, Durability::Relaxed, Durability::None, Durability::Journal];
        for durability in all {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().canonicalize().expect("the directory");
            let options = Options::default().durability(durability);
            let engine = Engine::open(&options, &path).expect("an engine");
            let outcome = engine.write().expect("a transaction").commit(|| {
                fs::remove_file(path.join(FILE)).expect("the file");
                thread::sleep(2 * AGE);
            });
            let Err(CommitFailure::Unknown(Error::FileReplaced { path: lost })) = outcome else {
                panic!("{durability:?}: the commit was acknowledged, or has failed");
            };
            assert_eq!(lost, path.join(FILE));
            drop(engine);
            DataFile(&path).wait_until_closed();
        }
    }
}
