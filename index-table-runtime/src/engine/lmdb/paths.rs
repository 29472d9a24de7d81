//! Checks that the names of the files still lead to the open files.
//!
//! If a file was removed, renamed or replaced while it is open, this process can still write it, but no other process
//! finds it. So a commit is acknowledged only if each name has led to the open file within the last few milliseconds.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{env::Engine, turn::Writing};
use crate::{
    engine::files::{FileId, id},
    model::error::{Error, Result},
};

/// The maximum age of a check when a commit is acknowledged.
const AGE: Duration = Duration::from_millis(5);

/// The files that a writer must not lose.
#[derive(Default)]
pub(super) struct Paths {
    files: Vec<(PathBuf, FileId)>,
    /// The time until which the last check that found all files is recent.
    recent: Option<Instant>,
}

impl Paths {
    pub(super) fn add(&mut self, path: PathBuf, file: FileId) {
        self.files.retain(|(own, _)| *own != path);
        self.files.push((path, file));
        self.recent = None;
    }

    /// Adds open files.
    pub(super) fn add_all<'f>(&mut self, files: impl Iterator<Item = (PathBuf, &'f File)>) {
        files.for_each(|(path, file)| self.add_open(path, file));
    }

    /// Adds an open file. On systems without numbers of files, does nothing.
    pub(super) fn add_open(&mut self, path: PathBuf, file: &File) {
        if let Ok(file) = file.metadata().and_then(|file| id(&file)) {
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

    #[cold]
    fn check(&mut self, now: Instant) -> Option<PathBuf> {
        let lost = self.files.iter().find(|(path, file)| !leads_to(path, *file));
        if lost.is_none() {
            self.recent = now.checked_add(AGE);
        }
        lost.map(|(path, _)| path.clone())
    }
}

/// Whether a path leads to this file. A path that this process may not read is not an error.
fn leads_to(path: &Path, file: FileId) -> bool {
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
        match writing.paths.lost() {
            None => Ok(()),
            Some(path) => Err(Error::FileReplaced { path }),
        }
    }
}
