use std::time::Duration;

use super::Store;
use crate::model::error::Result;

/// The read transactions of this process; from [`Store::readers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Readers {
    /// How many there are.
    pub count: usize,
    /// How long the oldest of them has been there.
    pub oldest: Option<Duration>,
}

impl Store {
    /// The read transactions of this process, copies among them, and how old the oldest is.
    ///
    /// A reader that is held makes the file larger with every commit, because nothing that it sees
    /// is used again, and it keeps the map from growing. So a program that can't be sure of its
    /// readers looks here from time to time; [`Error::GrowthBlocked`](crate::Error::GrowthBlocked) and
    /// [`Error::TooManyReaders`](crate::Error::TooManyReaders) have the same age. Those of a store in
    /// memory are in nobody's way, and are not counted.
    ///
    /// Cost: a look at each of the [`max_readers`](super::Options::max_readers) slots; a transaction
    /// notes the time when it begins.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = index_table::Store::open(dir.path())?;
    /// let txn = store.read()?;
    /// let readers = store.readers();
    /// if readers.oldest > Some(Duration::from_secs(60)) {
    ///     eprintln!("{} read transactions, the oldest for {:?}", readers.count, readers.oldest);
    /// }
    /// # assert_eq!(readers.count, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn readers(&self) -> Readers {
        let mut readers = Readers::default();
        for (count, oldest) in
            self.inner.engine.each_lmdb().map(crate::engine::lmdb::Engine::readers)
        {
            readers.count += count;
            readers.oldest = readers.oldest.max(oldest);
        }
        readers
    }

    /// Gives back what read transactions of processes that have died held; how many there were.
    ///
    /// That happens too when a store is opened, and when all slots are taken. A process that is killed
    /// in a read transaction keeps others from using pages again until one of these.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked), [`Error::Engine`](crate::Error::Engine).
    pub fn clear_stale_readers(&self) -> Result<usize> {
        let engines = self.inner.engine.each_lmdb();
        engines.map(crate::engine::lmdb::Engine::clear_stale_readers).sum()
    }
}
