mod check;
mod copy;
mod options;
mod readable;
mod readers;
mod shared;

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use crate::{
    engine::{Engine, Records, Tables},
    error::{Error, Result},
    queue::{self, IndexWorker, Limit, Signals},
    schema::{TableRecord, TableSchema},
    txn::{ReadTxn, Scratch, WriteTxn},
    usage::TableCounters,
    watch::Watchers,
    write::RowType,
};

pub(crate) use copy::Copy;
pub use copy::CopyProgress;
pub(crate) use options::DEFAULT_MAP_SIZE;
pub use options::{Durability, Options};
use readable::Readable;
pub use readers::Readers;

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

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    /// Tells this store's transactions and repositories from those of others.
    pub(crate) id: u64,
    writer: Mutex<WriterState>,
    /// What happens to queues of tables.
    pub(crate) signals: Arc<Signals>,
    /// How long queues may get.
    limit: Limit,
    /// The tables that have been opened, and how they were declared. No transaction is waited for
    /// while it is locked: the thread that has it may be waiting for this.
    tables: Mutex<BTreeMap<&'static str, (TableRecord, Weak<OpenTable>)>>,
    /// Held while a table is opened, so that it is opened once.
    opening: Mutex<()>,
    /// How many tables have been opened, and how often an index has become readable since.
    opened: Arc<AtomicU64>,
}

/// What write transactions have for [`Inner::opened`]: opening a table takes one, so they know all that
/// are open. The counter for an index that isn't readable is above it.
const ALL_OPENED: u64 = u64::MAX - 1;

/// What opening a table has made of its declaration.
#[derive(Default)]
pub(crate) struct Declared {
    /// Its record in the catalog.
    pub(crate) record: Vec<u8>,
    /// For each index, whether it can be asked.
    pub(crate) readable: Vec<bool>,
}

/// What is kept of the write transaction, of which there is one at a time.
#[derive(Default)]
struct WriterState {
    /// The thread that holds it.
    thread: Option<ThreadId>,
    /// The buffers of the last one, for the next one.
    scratch: Option<Box<Scratch>>,
}

/// A table in use: what its repositories share.
pub(crate) struct OpenTable {
    pub(crate) schema: &'static TableSchema,
    pub(crate) rows: &'static RowType,
    pub(crate) tables: Tables,
    /// How long its queue may get.
    pub(crate) limit: Limit,
    /// The [`Inner::id`] of its store.
    pub(crate) store: u64,
    /// The [`Inner::opened`] of its store once it was open.
    pub(crate) opened: u64,
    /// Its record in the catalog.
    pub(crate) record: Vec<u8>,
    readable: Readable,
    /// How many rows have been written and read back for a test.
    pub(crate) tried: AtomicU64,
    pub(crate) told: Arc<Told>,
}

/// What a commit is told to. Transactions that write the table keep it until then.
pub(crate) struct Told {
    /// What the table is used for.
    pub(crate) usage: TableCounters,
    /// Who watches it.
    pub(crate) watchers: Watchers,
    /// The last commit that is known to have left this record.
    pub(crate) as_declared: AtomicU64,
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
    /// [`Error::Io`], [`Error::Engine`].
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
        Self { inner: Arc::new(Inner::new(Engine::in_memory(), Options::default().index_queue)) }
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
    /// [`Error::WriteInProgress`] when this thread has one already, and what [`read`](Store::read) does.
    pub fn write(&self) -> Result<WriteTxn<'_>> {
        self.inner.refuse_nested_write()?;
        let txn = ReadTxn::new(self.inner.engine.write()?, self.inner.id, ALL_OPENED);
        Ok(WriteTxn::new(txn, WriterGuard::new(&self.inner)))
    }

    /// Starts a thread that applies the messages of the queues to eventual indexes, of those tables of which
    /// this process has a repository, until what this returns is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and [`Error::Thread`] when the thread can't be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town, consistency = "eventual")]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// let worker = store.start_index_worker()?;
    ///
    /// let mut txn = store.write()?;
    /// people.insert(&mut txn, &Person { id: 1, town: "Redmond".into() })?;
    /// let token = txn.commit_with_token()?;
    /// assert!(people.wait_for(&store, &token, Duration::from_secs(10))?);
    /// let txn = store.read()?;
    /// assert_eq!(people.find_by_town(&txn, "Redmond").verified().rows().count(), 1);
    /// # drop(worker);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_index_worker(&self) -> Result<IndexWorker> {
        self.inner.engine.refuse_forked()?;
        IndexWorker::start(self)
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
        mut body: impl FnMut(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut waiting = queue::Waiting::default();
        loop {
            let mut txn = self.write()?;
            let outcome = body(&mut txn);
            let refused = txn.refused();
            // While the transaction is there, so that it is this one that met the end of the map,
            // whatever the closure has made of the error.
            let mut full_at = self.inner.engine.full_at();
            let error = match outcome {
                Ok(value) => match txn.commit() {
                    Ok(()) => return Ok(value),
                    Err(error) => {
                        if let Error::MapFull { map_size } = error {
                            full_at = Some(map_size);
                        }
                        error.into()
                    }
                },
                Err(error) => {
                    drop(txn);
                    error
                }
            };
            if let Some(table) = refused
                && waiting.wait_for_room(self, table)?
            {
                continue;
            }
            match full_at {
                Some(full_at) if self.inner.engine.grow(full_at)? => {}
                _ => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Inner {
    fn new(engine: Engine, limit: Limit) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (writer, tables, opening) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (opened, signals) = (Arc::default(), Arc::default());
        Self { engine, id, writer, signals, limit, tables, opening, opened }
    }

    /// Opens a table, or gives it again while a repository of it is in use. One with another
    /// declaration is refused then: each would write rows without the other's indexes.
    pub(crate) fn open_once(
        &self,
        rows: &'static RowType,
        open: impl FnOnce(&Engine) -> Result<(Tables, Declared)>,
    ) -> Result<Arc<OpenTable>> {
        let schema = rows.schema;
        let declared = TableRecord::of(schema, |_| "");
        if let Some(used) = self.used(schema, &declared)? {
            return Ok(used);
        }
        self.refuse_nested_write()?;
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = self.used(schema, &declared)? {
            return Ok(used);
        }
        let (opened, Declared { record, readable }) = open(&self.engine)?;
        let table = Arc::new(OpenTable {
            schema,
            rows,
            tables: opened,
            limit: self.limit,
            record,
            readable: Readable::new(schema, &readable, &self.opened),
            tried: AtomicU64::new(0),
            told: Arc::new(Told {
                usage: TableCounters::new(schema),
                watchers: Watchers::default(),
                as_declared: AtomicU64::new(0),
            }),
            store: self.id,
            opened: self.opened.fetch_add(1, Ordering::AcqRel) + 1,
        });
        self.tables().insert(schema.name, (declared, Arc::downgrade(&table)));
        Ok(table)
    }

    /// The table, if a repository of it is in use.
    fn used(
        &self,
        schema: &'static TableSchema,
        declared: &TableRecord,
    ) -> Result<Option<Arc<OpenTable>>> {
        let tables = self.tables();
        let Some((other, used)) = tables.get(schema.name) else { return Ok(None) };
        let Some(used) = used.upgrade() else { return Ok(None) };
        // Rows of older versions are read by the type that asks, so it has to know the same.
        if other == declared && used.schema.previous == schema.previous {
            return Ok(Some(used));
        }
        Err(Error::SchemaMismatch {
            table: schema.name,
            difference: "this process uses it with another declaration".to_owned(),
            way_out: "declare one of the two with another `#[table(name = …)]`, or drop the \
                      other's repositories first",
        })
    }

    /// The tables that this process has in use and that have eventual indexes.
    pub(crate) fn eventual_tables(&self) -> Vec<Arc<OpenTable>> {
        let tables = self.tables();
        let used = tables.values().filter_map(|(_, used)| used.upgrade());
        used.filter(|table| table.schema.has_eventual()).collect()
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<&'static str, (TableRecord, Weak<OpenTable>)>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What transactions know that begin now.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// All that the catalog has.
    pub(crate) fn catalog(&self) -> Result<Records> {
        if !self.engine.has_catalog() {
            self.refuse_nested_write()?;
        }
        self.engine.catalog()
    }

    /// Drops the indexes that `choose` names: of all records, those that no open table has, of which it
    /// is told the table and the index.
    pub(crate) fn drop_indexes(
        &self,
        mut choose: impl FnMut(&Records, &dyn Fn(&str, &str) -> bool) -> Vec<String>,
    ) -> Result<Vec<String>> {
        self.refuse_nested_write()?;
        // Nothing is opened meanwhile.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in_use = |table: &str, index: &str| {
            let used = self.tables().get(table).and_then(|(_, used)| used.upgrade());
            used.is_some_and(|used| used.schema.indexes.iter().any(|own| own.name == index))
        };
        self.engine.drop_indexes(|records| choose(records, &is_in_use))
    }

    /// LMDB would let the thread wait for itself.
    pub(crate) fn refuse_nested_write(&self) -> Result<()> {
        if self.writer().thread == Some(thread::current().id()) {
            return Err(Error::WriteInProgress);
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, WriterState> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a forked process, a lock may be a thread's that is not there.
        if self.engine.refuse_forked().is_ok() {
            let tables: Vec<_> =
                self.tables().values().filter_map(|(_, it)| it.upgrade()).collect();
            for table in &tables {
                table.told.watchers.close();
            }
        }
    }
}

/// Keeps the thread of the write transaction on record while it lives, and has its buffers.
pub(crate) struct WriterGuard<'s> {
    inner: &'s Inner,
    scratch: Option<Box<Scratch>>,
}

impl<'s> WriterGuard<'s> {
    fn new(inner: &'s Inner) -> Self {
        let mut writer = inner.writer();
        writer.thread = Some(thread::current().id());
        let scratch = writer.scratch.take();
        Self { inner, scratch }
    }

    pub(crate) const fn store(&self) -> &'s Inner {
        self.inner
    }

    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let scratch = self.scratch.take().filter(|scratch| !scratch.is_large());
        *self.inner.writer() = WriterState { thread: None, scratch };
    }
}
