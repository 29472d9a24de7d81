//! What applications hold: the store and its transactions, group writers, watchers, copies.

mod check;
mod copy;
mod group;
mod inner;
mod open_table;
mod readers;
pub(crate) mod rerun;
mod sharded;
mod shared;
mod txn;
mod waiting;
pub(crate) mod watch;

pub use copy::Backup;
pub use group::{GroupOptions, GroupWriter, QueueFull, Submission, Submitted};
pub(crate) use inner::{Declared, Inner, WriterGuard};
pub(crate) use open_table::OpenTable;
pub use readers::Readers;
pub use sharded::{ShardId, ShardedOptions, ShardedStore};
pub(crate) use sharded::{engine_of, shard_id, store_of};
pub(crate) use txn::Unreadable;
pub use txn::{ReadTxn, Shareable, WriteTxn};
use waiting::Waiting;
pub(crate) use waiting::wait_for;

use std::{fmt, path::Path, sync::Arc};

use crate::{
    engine::Options,
    model::error::{Error, Result},
};
use inner::ALL_OPENED;

/// A directory with an LMDB environment: the tables and their indexes.
///
/// Cloning is cheap and gives the same store, which is closed when the last clone is dropped;
/// repositories don't keep it open. Opening a directory that this process has open is cloning too.
/// Several processes may have it open at the same time; those that write must declare their tables
/// alike, because each maintains the indexes that it knows.
///
/// # Examples
///
/// ```
/// use index_table::{Durability, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Counter {
///     #[primary_key]
///     name: String,
///     value: u64,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::options().durability(Durability::Relaxed).open(dir.path().join("counters"))?;
/// let counters = CounterRepository::open(&store)?;
///
/// // A transaction by hand ...
/// let mut txn = store.write()?;
/// counters.insert(&mut txn, &Counter { name: "visits".into(), value: 0 })?;
/// txn.commit()?;
///
/// // ... or by closure: committed if it returns `Ok`.
/// let value = store.transaction(|txn| {
///     counters.update(txn, "visits", |counter| counter.value += 1)?;
///     Ok(counters.get(txn, "visits")?.map(|counter| counter.value))
/// })?;
/// assert_eq!(value, Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Store {
    /// Opens the store in the directory `path`, which is created if it is not there, with the
    /// default [`Options`]. On Unix, only the owner has access to new directories and files (`0700`,
    /// `0600`).
    ///
    /// LMDB must not open a directory twice in a process, so a second time gives another handle to
    /// the store that is open, whichever way the path is written (through symbolic links too). Other
    /// options than those that it was opened with are an error, and so is another path to the same file
    /// (renamed, a hard link, mounted elsewhere).
    ///
    /// # What it assumes about the files
    ///
    /// LMDB maps `data.mdb` into memory and trusts it. While it is open, nothing but LMDB may
    /// write to the files in the directory, shorten them or remove them, and the directory is not
    /// on a network file system. A file that was cut off or is not LMDB's is recognized when it is
    /// opened, and [`check`](Store::check) finds other damage; if it is not asked, a damaged file may
    /// give wrong answers or make LMDB crash, and one that is cut while it is open makes the operating
    /// system end the process. As for `mmap` in general, no program can keep
    /// another one from doing that, so a function that is `unsafe` for this reason could never be
    /// called soundly: like other stores that are mapped, this one is a safe function for a
    /// directory that is the program's own. What this crate can see to, it does: a directory is
    /// mapped once in a process, and transactions can't be used with other stores or, to write,
    /// on other threads.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyOpen`], [`Error::ReadOnly`], [`Error::DamagedFile`], [`Error::Forked`],
    /// [`Error::LockFile`], [`Error::NoAddressSpace`], [`Error::TooManyOpenFiles`], [`Error::DiskFull`],
    /// [`Error::Io`], [`Error::Engine`]. An option that can't work, and a `data.mdb` or `lock.mdb` that is
    /// not a regular file (a symbolic link, a FIFO, a device), are [`Error::Io`] with the kind
    /// `InvalidInput`; with options, [`Error::StoreNotFound`] and
    /// [`Error::NoReaderSlot`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Options to open a store with.
    pub fn options() -> Options {
        Options::default()
    }

    /// A store in memory, for tests: the same repositories, transactions and answers, nothing on
    /// disk.
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            inner: Arc::new(Inner::new(
                crate::engine::Engine::in_memory(),
                Options::default().index_queue,
            )),
        }
    }

    /// Begins a read transaction: a snapshot of the store as the last commit left it, which
    /// neither waits for writers nor makes them wait.
    ///
    /// While it lives, pages that later commits free are not used again, so it should be short.
    ///
    /// When another process has made the store larger than the map, a larger one is mapped first. That
    /// waits until no write transaction of this process waits for the other process.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyReaders`], [`Error::GrowthBlocked`] and [`Error::MapTooSmall`] when another
    /// process has made the store larger than the map, [`Error::Forked`], [`Error::Engine`].
    pub fn read(&self) -> Result<ReadTxn<'_>> {
        // Before the transaction, so that it knows all the tables that were open by then.
        let opened = self.inner.opened();
        Ok(ReadTxn::new(self.inner.engine.read()?, self.inner.id, opened))
    }

    /// Begins the write transaction. There is one at a time in a store; others wait for it.
    ///
    /// Dropped without [`commit`](WriteTxn::commit), it has changed nothing. When the map is full, its
    /// operations fail with [`Error::MapFull`]; [`transaction`](Store::transaction) lets it grow.
    ///
    /// # Errors
    ///
    /// [`Error::WriteInProgress`] when this thread has one already, [`Error::ReadOnly`], and what
    /// [`read`](Store::read) does.
    pub fn write(&self) -> Result<WriteTxn<'_>> {
        self.inner.refuse_nested_write()?;
        let txn = ReadTxn::new(self.inner.engine.write()?, self.inner.id, ALL_OPENED);
        Ok(WriteTxn::new(txn, WriterGuard::new(&self.inner)))
    }

    /// Runs `body` in a write transaction, commits if it returns `Ok`, and rolls back otherwise.
    ///
    /// `body` should have no effects but through the transaction: when the map is full, twice as much
    /// is mapped, up to [`max_map_size`](Options::max_map_size), and it is run again. That needs a moment
    /// without transactions of this process, for which it waits up to two seconds; those that begin
    /// meanwhile wait for it. When the queue of eventual indexes was full and is to be
    /// [waited for](crate::WhenFull::Wait), it is run again as well. To roll back with an error of your own,
    /// use [`try_transaction`](Store::try_transaction).
    ///
    /// # Errors
    ///
    /// What `body` returns, and what [`write`](Store::write) and [`WriteTxn::commit`] do;
    /// [`Error::MapFull`] only at the limit, and [`Error::GrowthBlocked`] when read transactions were
    /// in the way.
    pub fn transaction<T>(&self, body: impl FnMut(&mut WriteTxn<'_>) -> Result<T>) -> Result<T> {
        self.try_transaction(body)
    }

    /// As [`transaction`](Store::transaction), with an error of your own.
    ///
    /// The error's type is often to be named: `Ok::<_, MyError>(value)`.
    ///
    /// # Errors
    ///
    /// As [`transaction`](Store::transaction).
    pub fn try_transaction<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(|| self.write(), body)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the store in the directory `path`, which is created if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        self.check().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        shared::open(self, path).map(|inner| Store { inner })
    }
}
