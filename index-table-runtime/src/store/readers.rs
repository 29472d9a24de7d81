use std::time::Duration;

use super::Store;
use crate::model::error::Result;

/// The read transactions of this process; from [`Store::readers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Readers {
    /// The number of read transactions.
    pub count: usize,
    /// The age of the oldest read transaction.
    pub oldest: Option<Duration>,
}

impl Store {
    /// Returns the number of read transactions of this process, including copies, and the age of the oldest.
    ///
    /// With a long-lived reader, the file grows with every commit, because the pages of its snapshot can't be
    /// reused. It also prevents the map from growing. A program can call this method from time to time to find such
    /// readers. [`Error::GrowthBlocked`](crate::Error::GrowthBlocked) and
    /// [`Error::TooManyReaders`](crate::Error::TooManyReaders) contain the same age. Readers of a store in
    /// memory block nothing, and are not counted.
    ///
    /// Cost: each of the [`max_readers`](super::Options::max_readers) slots is read; a transaction records
    /// the time when it begins.
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
        let readers = self.inner.engines.each().map(crate::engine::Engine::readers);
        let sum = |(all, oldest): (usize, Option<_>), (count, age)| (all + count, oldest.max(age));
        let (count, oldest) = readers.fold((0, None), sum);
        Readers { count, oldest }
    }

    /// Clears the reader slots of processes that have ended, and returns the number of these slots.
    ///
    /// The same happens when a store is opened, and when all slots are taken. Until then, the slot of a
    /// process that was killed in a read transaction prevents pages from being reused.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked), [`Error::Engine`](crate::Error::Engine).
    pub fn clear_stale_readers(&self) -> Result<usize> {
        let engines = self.inner.engines.each();
        engines.map(crate::engine::Engine::clear_stale_readers).sum()
    }
}
