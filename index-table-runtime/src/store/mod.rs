//! The types that applications hold: the store and its transactions, group writers, watchers, copies.

mod archive;
#[cfg(feature = "async")]
mod calls;
mod check;
mod client;
mod commits;
mod copy;
mod durability;
mod engines;
mod features;
mod follower;
mod group;
mod inner;
mod lists;
mod making;
mod monitoring;
mod open_table;
#[cfg(feature = "async")]
mod orders;
mod outcome;
mod readers;
mod relied;
mod rollout;
mod salvage;
mod sharded;
mod shared;
pub(crate) mod transaction;
mod txn;
mod waiting;
pub(crate) mod watch;

pub use archive::{ArchiveLag, RecordedArchive, RestoreArchive};
#[cfg(feature = "async")]
pub use calls::Call;
#[cfg(feature = "async")]
pub(crate) use calls::{change_row, look_up, look_up_row, wait_for_signals, write_row};
pub(crate) use client::Client;
pub use commits::{Commits, FailedCommit};
pub use copy::Backup;
pub(crate) use engines::{Engines, Member, Shards};
pub use follower::{Follower, FollowerLag};
pub(crate) use group::RowKey;
pub use group::{GroupWriter, QueueFull, Submission, Submitted};
pub(crate) use inner::{Declared, Inner, Renewed, WriterGuard};
pub use monitoring::{DataFileInfo, JournalInfo, OtherReader};
pub(crate) use open_table::OpenTable;
pub use outcome::TransactionBody;
pub use readers::Readers;
pub use salvage::{LostRange, SalvageReport, SalvagedTable};
pub use sharded::ShardId;
pub(crate) use sharded::{
    Growing, MAIN, engine_of, engine_to_change, leave_records, left_copies, name_of_copy,
    open_added, open_attached, open_copy, open_restored, parts_of, shard_id, shards_of,
};
pub(crate) use txn::Unreadable;
pub use txn::{Movable, ReadTxn, Shareable, WriteTxn};
use waiting::Waiting;
#[cfg(feature = "async")]
pub(crate) use waiting::wait_for_async;
pub(crate) use waiting::{wait_for, wait_for_commit};

use std::{fmt, path::Path, sync::Arc};

use crate::{
    engine::{Declarations, Options, files},
    model::error::{Error, Result},
};

/// A directory with the data files of a store: the tables and their indexes. Each data file is an LMDB environment.
///
/// Cloning is cheap, and returns another handle to the same store. The store is closed when the last handle
/// is dropped; repositories don't keep it open. Opening a directory that this process already has open
/// returns another handle too. Several processes may have a store open at the same time. Processes that write
/// can have different declarations of a table, as in a rolling deployment: each maintains the indexes that the table's record has.
///
/// # Shards
///
/// A store has one data file, or several, which are its shards; [`Options::shard`] declares them. A table that is declared
/// with `shard_by` is distributed over the shards. Its shard map assigns each shard key to a shard. Repositories,
/// transactions and queries are the same. A query with the whole shard key reads one shard. Other queries read all shards,
/// and merge the results in the same order as with one data file.
///
/// A store with one data file, a store in memory without shards, and a store on a server have one shard, which is named
/// `main`. Methods that need another shard fail there with [`Error::NotOffered`]: see the table in the guide's chapter on
/// shards.
///
/// A [transaction](Store::transaction) can read and write in any shards, and is committed in all of them or in none.
/// It locks the shards that it uses. Transactions in other shards run at the same time. A [`read`](Store::read)
/// transaction sees each commit in all of its shards or in none, and does not wait for writers.
///
/// One process at a time can write to a store with shards. Other processes can open it with
/// [`read_only`](Options::read_only). They see each commit in all of its shards or in none, but can see commits of different
/// shards in another order. When another process adds, attaches or restores a shard or moves keys, their next transaction can
/// fail with [`Error::ReopenNeeded`]: open the store again.
/// A shard that can't be opened is not an error of [`open`](Store::open); see
/// [`unavailable_shards`](Store::unavailable_shards).
///
/// ```
/// use index_table::{IndexTable, ShardMap, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
/// #[table(name = "customers", shard_by = tenant)]
/// #[index(town)]
/// struct Customer {
///     #[primary_key]
///     tenant: u32,
///     #[primary_key]
///     id: u64,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::options()
///     .shard("north", "north")
///     .shard("south", "south")
///     .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
///     .open(dir.path().join("shop"))?;
/// let customers = CustomerRepository::open(&store)?;
/// for (tenant, id) in [(7, 1), (107, 1), (107, 2)] {
///     let town = "Redmond".to_owned();
///     store.transaction(|txn| customers.insert(txn, &Customer { tenant, id, town: town.clone() }))?;
/// }
///
/// let txn = store.read()?;
/// assert_eq!(customers.find_by_town(&txn, "Redmond").count()?, 3); // both shards
/// assert_eq!(customers.find_by_tenant(&txn, 107).count()?, 2); // shard `south` only
/// assert_eq!(customers.shard_of(&store, 107)?.name(), "south");
/// # Ok(())
/// # }
/// ```
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
    /// Opens the store in the directory `path`, or creates it, with the default [`Options`]. On Unix, only
    /// the owner has access to new directories and files (`0700`, `0600`).
    ///
    /// LMDB must not open a directory twice in a process, so a second call returns another handle to the open
    /// store, for any spelling of the path (through symbolic links too). Different options are an error, and
    /// so is another path to the same file (renamed, a hard link, mounted elsewhere).
    ///
    /// # Assumptions about the files
    ///
    /// LMDB maps `data.mdb` into memory, and uses its contents without checking them. While a store is open,
    /// no other software may write to the files in the directory, truncate them or remove them. The directory
    /// must not be on a network file system.
    ///
    /// Opening detects a truncated file, and a file that is not an LMDB file. [`check`](Store::check) finds
    /// other damage. Without that check, a damaged file can cause wrong results, or a crash of LMDB. If a
    /// file is truncated while it is open, the operating system ends the process.
    ///
    /// As with `mmap` in general, a program can't prevent other programs from changing the file, so the
    /// conditions of an `unsafe` function could never be met. Like the functions of other memory-mapped
    /// stores, this function is safe, for directories that belong to the program. This crate ensures that a
    /// directory is mapped once in a process, that transactions are not used with other stores, and that
    /// write transactions stay on their threads.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyOpen`], [`Error::ReadOnly`], [`Error::DamagedFile`], [`Error::Forked`], [`Error::LockFile`],
    /// [`Error::NoAddressSpace`], [`Error::TooManyOpenFiles`], [`Error::DiskFull`], [`Error::Io`], [`Error::Engine`];
    /// [`Error::WriterElsewhere`] if another process writes a store with a journal, or may write without one while a
    /// journal was requested. An option that can't work, and a `data.mdb` or
    /// `lock.mdb` that is not a regular file (a symbolic link, a FIFO, a device), are [`Error::Io`] with the kind
    /// `InvalidInput`. [`Error::ShardRefused`] for the directory of a shard that belongs to a store, which can
    /// be opened with [`read_only`](Options::read_only). With shards: [`Error::AlreadyOpen`] if another process writes the
    /// store; [`Error::ShardRefused`] if shards, maps or places are invalid or differ from those of the store, or if a shard
    /// belongs to another store. With options, [`Error::StoreNotFound`],
    /// [`Error::NoReaderSlot`] and [`Error::RecoveryNeeded`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Returns options for opening a store.
    pub fn options() -> Options {
        Options::default()
    }

    /// Returns a store in memory, for tests. Repositories, transactions and results are the same, without
    /// files.
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            inner: Arc::new(Inner::new(
                crate::engine::Engine::in_memory().into(),
                Options::default().index_queue,
            )),
        }
    }

    /// Begins a read transaction: a snapshot of the last commit. It does not wait for writers, and writers do
    /// not wait for it.
    ///
    /// While the transaction is open, pages that later commits free are not reused, so it should be short.
    ///
    /// If another process has made the store larger than the map, the map is enlarged first. This waits until
    /// no write transaction of this process waits for the other process.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyReaders`], [`Error::GrowthBlocked`] and [`Error::MapTooSmall`] if another process has
    /// made the store larger than the map, [`Error::Forked`], [`Error::DamagedFile`], [`Error::Engine`]; on a store with shards,
    /// [`Error::ReopenNeeded`] after the commit of a transaction has failed in some of its shards, or after another process has
    /// ended during such a commit.
    pub fn read(&self) -> Result<ReadTxn<'_>> {
        // The counter is read before the transaction begins, so that the snapshot has all tables it counts.
        let opened = self.inner.opened();
        let txn = self.inner.engines.read()?;
        self.inner.requests.read();
        Ok(ReadTxn::new(txn, self.inner.id, opened))
    }

    /// Begins a read transaction that sees the rows as if all write transactions had run one after another.
    ///
    /// Except on a PostgreSQL server, this is [`read`](Store::read). There, a snapshot of `read` can have the commit of a write
    /// transaction without that of another one that has to precede it. This function waits until no write transaction that is running can
    /// cause that, and takes its snapshot then. It costs a round trip, and causes no conflicts. The store must be on the primary.
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Clone, Serialize, Deserialize, IndexTable)]
    /// # #[table(name = "notes")]
    /// # struct Note { #[primary_key] id: u64 }
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let txn = store.read_serializable()?;
    /// assert_eq!(notes.all(&txn).count()?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read); [`Error::WriteInProgress`] if this thread has a write transaction, for which it would wait;
    /// [`Error::Unreachable`] after `response_timeout`, if write transactions run for longer; [`Error::Engine`] on a standby.
    pub fn read_serializable(&self) -> Result<ReadTxn<'_>> {
        self.inner.refuse_nested_write()?;
        let opened = self.inner.opened();
        let txn = self.inner.engines.read_serializable()?;
        self.inner.requests.read();
        Ok(ReadTxn::new(txn, self.inner.id, opened))
    }

    /// Begins a read transaction that may take its snapshot when it is first used.
    pub(crate) fn read_later(&self) -> Result<ReadTxn<'_>> {
        let opened = self.inner.opened();
        Ok(ReadTxn::new(self.inner.engines.read_later()?, self.inner.id, opened))
    }

    /// Begins the write transaction. A store has one write transaction at a time, so this waits for others.
    /// On a store with shards, it locks all shards that are available; [`transaction`](Store::transaction)
    /// locks the shards that it uses.
    ///
    /// If the transaction is dropped without [`commit`](WriteTxn::commit), nothing changes. If the map is
    /// full, its operations fail with [`Error::MapFull`]; [`transaction`](Store::transaction) enlarges the
    /// map.
    ///
    /// # Errors
    ///
    /// [`Error::WriteInProgress`] if this thread already has a write transaction, [`Error::ReadOnly`], and the errors of
    /// [`read`](Store::read).
    pub fn write(&self) -> Result<WriteTxn<'_>> {
        self.begin_write().map(WriteTxn::reporting_loss)
    }

    /// [`write`](Store::write), for a transaction whose changes may be dropped.
    pub(crate) fn begin_write(&self) -> Result<WriteTxn<'_>> {
        self.inner.refuse_nested_write()?;
        Ok(self.writing(self.inner.engines.write()?))
    }

    /// Whether opening the store has recovered it from its [journal](crate::Durability::Journal), because the process that
    /// wrote it was killed or ended without closing it, or the power failed. No commit is lost.
    ///
    /// This holds for a store that was opened with [`read_only`](Options::read_only) too. On a store with shards, it states
    /// whether one of the shards was recovered. A store without a journal needs no recovery.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = index_table::Store::open(dir.path())?;
    /// if store.was_recovered() {
    ///     eprintln!("the store was not closed, and has been recovered");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn was_recovered(&self) -> bool {
        self.inner.engines.each().any(crate::engine::Engine::was_recovered)
    }

    /// Returns a write transaction that commits each operation as its own transaction: when `insert` returns, the row
    /// is committed. Other writers can write between two operations.
    ///
    /// This is for programs that write single rows, in functions that take a [`WriteTxn`]. An operation runs again like the
    /// closure of [`transaction`](Store::transaction), except for operations with a closure, such as `update`: these fail
    /// with [`Error::TransactionFailed`] and can be repeated. A [`nested`](WriteTxn::nested) transaction is one transaction.
    /// Reads see the state after the last operation; between operations, this is a snapshot like that of a
    /// [`read`](Store::read) transaction. [`commit`](WriteTxn::commit) has no effect.
    ///
    /// Cost: each operation has the cost of a commit. For several rows, `transaction` is cheaper.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], and the errors of [`read`](Store::read). The operations also have the errors of
    /// [`transaction`](Store::transaction). `bulk_load_in` and `repair` fail with [`Error::NotOffered`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let mut each = store.autocommit()?;
    /// notes.insert(&mut each, &Note { id: 1 })?; // committed
    /// assert!(matches!(notes.insert(&mut each, &Note { id: 1 }), Err(Error::DuplicateKey { .. })));
    /// notes.insert(&mut each, &Note { id: 2 })?;
    /// assert_eq!(notes.all(&store.read()?).count()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn autocommit(&self) -> Result<WriteTxn<'_>> {
        if self.inner.engines.is_read_only() {
            return Err(Error::ReadOnly { path: self.inner.engines.directory(), source: None });
        }
        WriteTxn::each_of(self)
    }

    /// Runs `body` in a write transaction, commits if it returns `Ok`, and rolls back otherwise.
    ///
    /// `body` should have no effects outside the transaction, because it can run again. If the map is full,
    /// its size is doubled, up to [`max_map_size`](Options::max_map_size), and `body` runs again. The map
    /// can only be enlarged while this process has no other transactions. The call waits up to two seconds for them to
    /// end, and new transactions wait for 50 milliseconds at most. If the disk is full, or the map at its limit, `body` runs again after a
    /// checkpoint of the journal, which makes pages free. `body` also runs again after [waiting](crate::WhenFull::Wait) for a full
    /// queue of eventual indexes.
    ///
    /// On a store with shards, the transaction may read and write any shards. All of its writes are committed,
    /// or none, with one sync of the journal. It locks a shard when `body` first reads or writes it, until
    /// the transaction ends, in the order of the shards. If `body` needs a shard that precedes a locked
    /// shard, the operation fails with [`Error::OtherShard`] and `body` runs again: first with the shards
    /// locked that it has used, and then with all shards. So use shards in their order if you can. Use a [read
    /// transaction](Store::read) for rows that may change before the commit. A transaction of several shards needs about 32 free
    /// pages in the map of each of them, and 256 KiB on each disk. Otherwise, it fails and changes no shard.
    ///
    /// `body` returns a [`Result`](crate::Result) of this crate. To roll back with an error of your own, use
    /// [`try_transaction`](Store::try_transaction).
    ///
    /// # Errors
    ///
    /// The errors of `body`, of [`write`](Store::write) and of [`WriteTxn::commit`]; [`Error::MapFull`] only
    /// at the limit, and [`Error::GrowthBlocked`] if read transactions blocked the growth;
    /// [`Error::ShardUnavailable`].
    pub fn transaction<T, E, F>(&self, mut body: F) -> Result<T, E>
    where
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + TransactionBody<E>,
    {
        self.try_transaction(|txn| body(txn).map_err(F::into_error)).map_err(F::of)
    }

    /// Runs `body` like [`transaction`](Store::transaction), with an error of your own.
    ///
    /// Often, the error's type has to be named: `Ok::<_, MyError>(value)`.
    ///
    /// # Errors
    ///
    /// The errors of [`transaction`](Store::transaction).
    pub fn try_transaction<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(|locks| self.write_with(locks), body)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the store in the directory `path`, or creates it.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        self.open_path(path.as_ref()).map_err(|error| match error {
            // Its advice is to open the store read-only.
            Error::ReadOnly { path, source: Some(source) } if self.read_only => {
                Error::Io { path, source }
            }
            error => error,
        })
    }

    fn open_path(&self, path: &Path) -> Result<Store> {
        if !self.read_only && !self.follower {
            sharded::refuse_new_shard(path)?;
        }
        let is_sharded = || {
            let exists = files::exists(&path.join(sharded::LOCK));
            exists.map_err(|source| Error::opening(path, source))
        };
        let is_sharded = is_sharded()?;
        let can_grow =
            !is_sharded && !self.read_only && !self.follower && self.declared.only_adds();
        if can_grow && sharded::has_one_file(path)? {
            self.grow(path)?;
            return sharded::open(self, path);
        }
        if !self.declared.is_empty() || is_sharded {
            return sharded::open(self, path);
        }
        self.open_one(path)
    }

    /// Adds the declared shards to a store with one data file, and closes it.
    fn grow(&self, path: &Path) -> Result<()> {
        let declared = &self.declared.shards;
        let store = Self { declared: Declarations::default(), ..self.clone() }.open_one(path)?;
        declared.iter().try_for_each(|it| store.add_shard(&it.name, &it.place).map(drop))
    }

    /// Opens a store with one data file, or what its directory has.
    fn open_one(&self, path: &Path) -> Result<Store> {
        self.check().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let careful = Self { refuses_shards: !self.follower, ..self.clone() };
        let inner = match shared::open(&careful, path) {
            // Of a copy of a store with shards, which no process has written.
            Err(Error::AlreadyOpen { .. }) if sharded::is_open(path) => {
                return sharded::open(self, path);
            }
            Err(Error::ShardRefused { .. }) if sharded::has_manager(path) => {
                return sharded::open(self, path);
            }
            Err(Error::ShardRefused { .. }) => {
                sharded::refuse_shard(path)?;
                shared::open(self, path)?
            }
            opened => opened?,
        };
        Ok(Store { inner })
    }

    /// Opens the store in a schema of a PostgreSQL server, or creates it. The same repositories, transactions and
    /// queries run on it. The guide's chapter "from one machine to many" has the differences.
    ///
    /// The URL has the form `postgresql://user:password@host:port/database`. Each call opens a store with its own
    /// connections, so a program opens its store once, and clones it.
    ///
    /// With the Cargo feature `postgres-tls`, connections are encrypted if the server supports that, and `sslmode=require`
    /// in the URL refuses other connections. The certificate of the server is always verified. Without the feature,
    /// connections are not encrypted.
    ///
    /// The options [`create`](Options::create), [`read_only`](Options::read_only),
    /// [`index_queue`](Options::index_queue), [`schema`](Options::schema), [`connections`](Options::connections) and
    /// [`retry_for`](Options::retry_for) apply. A
    /// read-only store needs only the right to read its schema. Another option that is not the default is an error,
    /// because a server has its own settings for the same purposes.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], also for a server older than PostgreSQL 13 or of another kind; [`Error::NotOffered`] for an option of files; [`Error::Io`] with the kind `InvalidInput` for
    /// a URL or a schema that can't work;
    /// [`Error::StoreNotFound`]; [`Error::SchemaMismatch`] if another release has written the schema;
    /// [`Error::Engine`] if the server refuses a statement, for example because of missing privileges.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// let store = Store::options().schema("shop").connect("postgresql://app@127.0.0.1:5432/app")?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "postgres")]
    pub fn connect(&self, url: &str) -> Result<Store> {
        if !self.declared.is_empty() {
            let what =
                "`shard` and the other options of shards, because a server has one data file";
            return Err(Error::NotOffered { what });
        }
        let index_queue = self.index_queue;
        let usual = Self {
            index_queue,
            read_only: self.read_only,
            // A server syncs each commit.
            durability: self.durability.map(|_| crate::Durability::Full),
            schema: self.schema.clone(),
            #[cfg(feature = "async")]
            async_threads: self.async_threads,
            connections: self.connections,
            retry_for: self.retry_for,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            commit_timeout: self.commit_timeout,
            root_certificates: self.root_certificates.clone(),
            ..Self::default()
        };
        let other = self.difference(&usual).map(|(option, ..)| option);
        if let Some(option) = other.or_else(|| self.other_mode()) {
            return Err(Error::NotOffered { what: Self::not_on_servers(option) });
        }
        let engine = crate::engine::Engine::connect(self, url)?;
        let inner = Inner::new(engine.into(), index_queue);
        #[cfg(feature = "async")]
        inner.calls.set_threads(match self.async_threads {
            0 => self.connections,
            threads => threads,
        });
        Ok(Store { inner: Arc::new(inner) })
    }
}
