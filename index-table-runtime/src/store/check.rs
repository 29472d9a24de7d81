use super::Store;
use crate::model::error::Result;

impl Store {
    /// Looks at every page of the file that is in use: whether each is where it should be, of the kind
    /// that it should be, with its keys in order, and used once. That is what LMDB relies on and does
    /// not look at itself, and what it can crash at. The numbers of the last two commits have to follow
    /// each other: LMDB takes the state with the greater number for the last commit.
    ///
    /// Opening a store looks at its first pages, the names of its databases and the root of each, and
    /// reads nothing else. So after a crash of the machine, or where a disk is not trusted, call this
    /// before a table is opened; it sees one snapshot, and others may go on. LMDB has no checksums: rows
    /// whose bytes were changed look like any others here. Whether the indexes are what the rows say is
    /// the question of a repository's `verify`, for a file that is sound.
    ///
    /// Cost: each page that is in use is read once, and a bit is kept for it; long values are not read.
    /// 1 GiB takes about a second if it is in the system's cache. A store in memory has no file, and
    /// nothing is done.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedFile`](crate::Error::DamagedFile) with the first thing that is wrong; what
    /// [`read`](Store::read) does, and [`Error::Io`](crate::Error::Io).
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
        self.inner.engine.each_lmdb().try_for_each(crate::engine::lmdb::Engine::check)
    }
}
