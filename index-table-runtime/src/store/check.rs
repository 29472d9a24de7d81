//! Checking the files of a store.

use std::{io, time::Instant};

use super::Store;
use crate::{
    model::error::{Error, Result},
    usage::Progress,
};

impl Store {
    /// Checks the structure of the file: each page in use has the right position and kind, has its keys in order,
    /// and is used once. LMDB relies on these properties without checking them, and can crash if they don't hold.
    /// The numbers of the last two commits must be consecutive, since LMDB treats the state with the greater
    /// number as the last commit. Each table must have both copies of the lists of its rows' names and kinds, and they must be
    /// equal. If one of them is not intact, the rows can still be read; a writer that opens the table writes it again.
    ///
    /// Opening a store reads only its first pages, the names of its databases, the root of each database, and the second copies of
    /// lists. After
    /// a crash of the machine, or if you don't trust the disk, call this method before opening a table. It checks
    /// one snapshot, while other threads and processes may write. LMDB has no checksums, so changed bytes in a row
    /// are not detected. To compare the indexes with the rows of an intact file, use a repository's `verify`.
    ///
    /// Cost: each page in use is read once, and takes one bit of memory. Long values are not read. 1 GiB takes about
    /// a second if it is in the system's cache. For a store in memory, this method does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedFile`](crate::Error::DamagedFile) with the first damage;
    /// [`Error::Corrupt`](crate::Error::Corrupt) with the first table whose lists have a damaged, missing or differing copy; the errors of
    /// [`read`](Store::read); [`Error::Io`](crate::Error::Io); [`Error::NotOffered`](crate::Error::NotOffered) for a
    /// store on a server. [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread has a write transaction, and the
    /// process has opened no table of a store that was empty, or that an earlier release has written.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = index_table::Store::open(dir.path().join("shop"))?;
    /// store.check()?;
    /// // Only now: open tables.
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.check_with(&mut |_| ())
    }

    /// Checks the structure of the file like [`check`](Store::check), and calls `progress` after each 1,024 pages. A
    /// sharded store begins again for each shard, and for the shard map manager.
    ///
    /// # Errors
    ///
    /// The errors of [`check`](Store::check).
    #[doc(hidden)]
    pub fn check_with(&self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        if self.inner.engines.has_other_writers() {
            let what = "checking the pages of files; use the server's extension `amcheck`";
            return Err(Error::NotOffered { what });
        }
        let outcome = self.check_files(progress);
        self.inner.inspections.note("check", &outcome, |()| None);
        outcome
    }

    fn check_files(&self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        self.inner.engines.each_lmdb().try_for_each(|engine| {
            engine.check(&mut pages(progress))?;
            if !engine.knows_lists() {
                self.inner.refuse_nested_write()?;
            }
            engine.check_lists()
        })?;
        let shards = self.inner.engines.several();
        let Some(manager) = shards.and_then(|shards| shards.manager()) else { return Ok(()) };
        if let Some(engine) = manager.engine().lmdb() {
            engine.check(&mut pages(progress))?;
        }
        manager.check_lists()
    }

    /// Returns the damage of roots with which a program can't open the store. The command line tool has opened it in spite of it.
    #[doc(hidden)]
    #[must_use]
    pub fn damaged_roots(&self) -> Vec<Error> {
        self.inner.engines.each_lmdb().filter_map(|engine| engine.check_roots().err()).collect()
    }
}

/// Returns a function that calls `progress` with a number of pages.
fn pages(progress: &mut dyn FnMut(Progress)) -> impl FnMut(u64, u64) -> io::Result<()> {
    let begun = Instant::now();
    move |done, all| {
        progress(Progress::new("pages", done, Some(all), begun));
        Ok(())
    }
}
