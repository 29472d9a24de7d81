//! Loading many rows at once.
//!
//! 1. Without a transaction, the fact and the entries of each row are added to sorters ([`gather`]).
//! 2. In a transaction, the rows to write are selected ([`decide`]).
//! 3. In the same transaction, they are written, one database after another, in the order of the keys
//!    ([`apply`]).
//!
//! If the map has to grow, the transaction is repeated with the same sorted records.

mod apply;
mod decide;
mod gather;
mod shards;
#[cfg(test)]
mod tests;

use std::{
    borrow::Borrow,
    fmt,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        maintain::Image,
    },
    store::{OpenTable, Store, WriteTxn},
    usage::{Progress, ProgressReporter, trace::span},
    write::{Scratch, rows::LoadRow as _},
};
use apply::apply;
use gather::{FailedRow, Gatherer, Policy};

/// See [`BulkLoad::on_failed_row`].
type OnFailedRow<'a> = Box<dyn FnMut(u64, Option<u64>) + 'a>;

/// See [`BulkLoad::memory`].
const DEFAULT_MEMORY: usize = 256 << 20;

/// Loads many rows at once, in one transaction. From the `bulk_load` and `bulk_load_in` of a
/// repository; it does nothing until [`run`](BulkLoad::run).
///
/// The result is the same as inserting the rows one by one in a transaction. A load takes less time, because
/// rows and entries are sorted, and written in the order of their keys. The pages of an empty table become
/// nearly full, so the table takes less space on disk.
///
/// The rows are read and sorted before the transaction begins. Meanwhile, other threads can write, and the
/// iterator may use the store. Rows and entries that don't fit into the [`memory`](BulkLoad::memory) are
/// written to temporary files.
///
/// A load is atomic: after an error, or if the process is killed, no row is loaded. With `bulk_load_in`, the
/// load is part of the given transaction.
///
/// In a store with shards, the rows of a table with a shard key are divided among the shards, and the
/// shards are loaded at the same time, each in a transaction of its own. So a load is atomic within a shard: if some
/// shards fail, [`Error::ShardsNotLoaded`] names them and the others. With [`OnDuplicate::Skip`] or
/// [`OnDuplicate::Replace`], the same load can then be repeated. The [`memory`](BulkLoad::memory) is divided among the
/// shards. `bulk_load_in` loads all shards in the given transaction. A table with a global index is loaded in one transaction of
/// all shards, because an entry can be in another shard than its row.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, OnDuplicate, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
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
/// let person = |id| Person { id, town: "Redmond".into() };
///
/// let report = people.bulk_load(&store, (1..=1000).map(person)).run()?;
/// assert_eq!((report.read, report.written), (1000, 1000));
/// assert_eq!(people.find_by_town(&store.read()?, "Redmond").count()?, 1000);
///
/// let load = people.bulk_load(&store, (901..=1100).map(person));
/// let report = load.on_duplicate(OnDuplicate::Skip).run()?;
/// assert_eq!((report.written, report.skipped), (100, 100));
/// # Ok(())
/// # }
/// ```
#[must_use = "a load does nothing until `run`"]
pub struct BulkLoad<'a, 's, R, I> {
    table: &'a OpenTable,
    target: Target<'a, 's>,
    rows: I,
    memory: usize,
    on_duplicate: OnDuplicate,
    notes_changes: bool,
    temporary: Option<PathBuf>,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    failed: Option<OnFailedRow<'a>>,
    row: PhantomData<fn(&R)>,
}

/// The destination of the rows.
pub(crate) enum Target<'a, 's> {
    /// A new transaction of this store.
    Store(&'a Store),
    Txn(&'a mut WriteTxn<'s>),
}

/// The policy of a [`BulkLoad`] for rows with the same primary key, or with the same key in a unique index.
/// Both rows may be in the load, or one of them may be in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The load fails with [`Error::DuplicateKey`] or [`Error::UniqueViolation`], which name one of the
    /// duplicates. Nothing is written. The default.
    #[default]
    Fail,
    /// The first row wins, and rows in the table come first. The result is the same as inserting the rows one
    /// by one and leaving out the rows that fail.
    Skip,
    /// The last row with a primary key wins, and replaces the row in the table. The load fails with
    /// [`Error::UniqueViolation`] if two rows have the same key in a unique index at the end, so rows may
    /// exchange such keys.
    Replace,
}

/// The result of a [`BulkLoad`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// The number of rows of the iterator.
    pub read: u64,
    /// The number of rows of the iterator that are in the table now, including rows that were already in the
    /// table with the same bytes.
    pub written: u64,
    /// The number of rows that were left out because of another row with the same key.
    pub skipped: u64,
    /// The number of written rows that replaced a row with other content.
    pub replaced: u64,
    /// The shards that have got rows, if they were loaded in transactions of their own.
    pub shards: Vec<LoadedShard>,
}

/// The part of a [`LoadReport`] about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadedShard {
    /// The name of the shard.
    pub shard: String,
    /// See [`LoadReport::written`].
    pub written: u64,
    /// See [`LoadReport::skipped`].
    pub skipped: u64,
    /// See [`LoadReport::replaced`].
    pub replaced: u64,
}

impl<'a, 's, R: Entity, I: Iterator> BulkLoad<'a, 's, R, I> {
    pub(crate) fn new(table: &'a OpenTable, target: Target<'a, 's>, rows: I) -> Self {
        let (memory, on_duplicate) = (DEFAULT_MEMORY, OnDuplicate::Fail);
        Self {
            table,
            target,
            rows,
            memory,
            on_duplicate,
            notes_changes: true,
            temporary: None,
            progress: None,
            failed: None,
            row: PhantomData,
        }
    }

    /// Sets the policy for rows with the same key. Default: [`OnDuplicate::Fail`].
    pub const fn on_duplicate(mut self, policy: OnDuplicate) -> Self {
        self.on_duplicate = policy;
        self
    }

    /// Adds no changes to the [change stream](crate::Table::changes) of the table, so that no consumer receives the loaded
    /// rows. Without this, each written row is a change, and its effects are repeated: mails are sent again, for example.
    ///
    /// Use it to move or restore rows whose changes the consumers have already received. A copy that is kept up to date by
    /// the stream lacks the rows, so load them there, too. [Watchers](crate::Watcher) receive the rows as ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// let rows = (0..1000).map(|number| Invoice { number });
    /// invoices.bulk_load(&store, rows).without_changes().run()?;
    /// assert!(invoices.changes(&store, "mailer")?.next_batch(100)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn without_changes(mut self) -> Self {
        self.notes_changes = false;
        self
    }

    /// Sets the memory for rows and entries, in bytes. If they need more, they are written to temporary
    /// files. The minimum is 64 KiB, or the need of the largest row. Default: 256 MiB.
    ///
    /// The limit does not include some copies of the current row, a bit for each row if rows are left out,
    /// and the pages of the transaction. LMDB keeps up to 512 MiB of pages before it writes them.
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the directory for temporary files. Default: the store's directory; for a store in memory, the
    /// temporary directory of the operating system.
    ///
    /// The files have no names (`O_TMPFILE`), so a killed process leaves no files. If the file system does
    /// not support such files, a process that is killed at the wrong moment may leave an empty file
    /// `.index-table-….tmp`. The next load with the same directory removes it.
    ///
    /// The files take the size of the rows and entries. If the memory is much smaller, they take up to twice
    /// this size for a short time.
    pub fn temporary(mut self, directory: impl AsRef<Path>) -> Self {
        self.temporary = Some(directory.as_ref().to_owned());
        self
    }

    /// Calls `progress` every few thousand rows: first with `"rows read"` and no total, and then with `"rows and
    /// entries written"`. The second count restarts at 0 if the map has to grow.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Calls `failed` if the load fails because of the key of a row, or because of a row that it refers to, with the
    /// number of the row, and with the number of an earlier row of the load that has the same key. The rows are numbered
    /// from 0. This takes 8 bytes for each row and each entry.
    #[doc(hidden)]
    pub fn on_failed_row(mut self, failed: impl FnMut(u64, Option<u64>) + 'a) -> Self {
        self.failed = Some(Box::new(failed));
        self
    }

    /// Loads the rows.
    ///
    /// Cost: each row and its entries are encoded, copied and sorted, and in a table with rows also looked
    /// up, in the order of their keys. In an empty table, nothing is looked up.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateKey`] and [`Error::UniqueViolation`], depending on [`OnDuplicate`];
    /// [`Error::KeyTooLong`] and [`Error::Codec`] for a row that can't be written; [`Error::Corrupt`] for a
    /// row in the table that has to be replaced; [`Error::DiskFull`] and [`Error::Io`], also for the
    /// temporary files; the [errors of writing](crate::Error#common-errors).
    ///
    /// [`Error::ShardsNotLoaded`] if some shards are loaded and others are not. After any other error, nothing has
    /// changed, and your transaction can continue. If writing the rows had started,
    /// your transaction can't be committed. The same applies if `progress` panics.
    pub fn run(self) -> Result<LoadReport>
    where
        I: Iterator<Item: Borrow<R>>,
    {
        let (mut loading, rows) = self.begin()?;
        for row in rows {
            loading.add(row.borrow())?;
        }
        loading.finish()
    }

    /// Loads the rows of an iterator of results, like [`run`](BulkLoad::run). The first error ends the load,
    /// and nothing is written.
    ///
    /// # Errors
    ///
    /// The error of the iterator, and the errors of [`run`](BulkLoad::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Word {
    ///     #[primary_key]
    ///     text: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let words = WordRepository::open(&store)?;
    /// let file = std::io::Cursor::new("one\ntwo\nthree\n");
    /// let lines = std::io::BufRead::lines(file).map(|line| line.map(|text| Word { text }));
    /// let lines = lines.map(|line| line.map_err(Box::<dyn std::error::Error>::from));
    /// assert_eq!(words.bulk_load(&store, lines).try_run()?.written, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_run<T: Borrow<R>, E: From<Error>>(self) -> Result<LoadReport, E>
    where
        I: Iterator<Item = Result<T, E>>,
    {
        let (mut loading, rows) = self.begin()?;
        for row in rows {
            loading.add(row?.borrow())?;
        }
        Ok(loading.finish()?)
    }

    fn begin(self) -> Result<(Loading<'a, 's, R>, I)> {
        let Self { table, target, rows, memory, temporary, progress, failed, .. } = self;
        let Self { on_duplicate, notes_changes, .. } = self;
        let reports_number = failed.is_some();
        let policy = Policy { on_duplicate, reports_number, notes_changes };
        if let Target::Store(store) = &target {
            // Fails before reading the rows.
            store.inner.engines.refuse_read_only()?;
        }
        let directory = match (temporary, &target) {
            (Some(directory), _) => directory,
            (None, Target::Store(store)) => store.inner.engines.directory(),
            (None, Target::Txn(txn)) => txn.directory(),
        };
        table.check_store(match &target {
            Target::Store(store) => store.inner.id,
            Target::Txn(txn) => txn.store(),
        })?;
        let shards = match &target {
            Target::Store(store) => shards::Split::of(store, table)?,
            Target::Txn(_) => None,
        };
        let gatherer = match shards {
            Some(split) => Gathering::Shards(split.with(directory, memory, policy)),
            None => Gathering::One(Gatherer::new(R::TABLE, &directory, memory, policy)),
        };
        let (new, tried) = Default::default();
        let reporter = ProgressReporter::new(progress, "rows read", None);
        let row = PhantomData;
        let read = 0;
        let lineage = table.rows.lists.lineage();
        let loading =
            Loading { table, target, gatherer, new, tried, reporter, read, failed, lineage, row };
        Ok((loading, rows))
    }
}

/// The rows that were read so far.
enum Gathering<'a> {
    One(Gatherer),
    /// For each shard.
    Shards(shards::Gatherers<'a>),
}

/// A running load.
struct Loading<'a, 's, R> {
    table: &'a OpenTable,
    target: Target<'a, 's>,
    gatherer: Gathering<'a>,
    new: Image,
    tried: Image,
    reporter: ProgressReporter<'a>,
    read: u64,
    failed: Option<OnFailedRow<'a>>,
    /// The lineage of the lists before the first row.
    lineage: u64,
    row: PhantomData<fn(&R)>,
}

impl<R: Entity> Loading<'_, '_, R> {
    fn add(&mut self, row: &R) -> Result<()> {
        self.table.new_row(row).load(&mut self.new, &mut self.tried)?;
        self.table.rows.begin_missing_revision(&mut self.new)?;
        self.reporter.add(1);
        let number = self.read;
        self.read += 1;
        match &mut self.gatherer {
            Gathering::One(gatherer) => gatherer.add(&self.new, number),
            Gathering::Shards(gatherers) => gatherers.add(&self.new, number),
        }
    }

    fn finish(mut self) -> Result<LoadReport> {
        let (mut row, mut failed) = (None, self.failed.take());
        let outcome = self.load(&mut row);
        if let (Some((row, earlier)), Some(failed), Err(_)) = (row, &mut failed, &outcome) {
            failed(row, earlier);
        }
        outcome
    }

    fn load(self, failed: &mut Option<FailedRow>) -> Result<LoadReport> {
        let Self { table, target, gatherer, new, tried, mut reporter, lineage, .. } = self;
        drop((new, tried));
        span!(DEBUG, "bulk_load", table = R::TABLE.name);
        let gathered = match (gatherer, &target) {
            (Gathering::One(gatherer), _) => gatherer.finish()?,
            (Gathering::Shards(gatherers), Target::Store(store)) => {
                return gatherers.load(store, &mut reporter, failed);
            }
            (Gathering::Shards(_), Target::Txn(_)) => {
                return Err(Error::internal("a load of shards in a transaction"));
            }
        };
        let mut load = |txn: &mut WriteTxn<'_>| {
            let (mut writer, Scratch { old, new, .. }, written) = txn.writer(table)?;
            // The rows may be of lists that were lost before the transaction began.
            if table.rows.lists.lineage() != lineage {
                return Err(Error::TransactionFailed {
                    reason: format!(
                        "another process has recorded other fields of the rows of table `{}` during the load; load \
                         them again",
                        R::TABLE.name
                    ),
                });
            }
            if let Some(plan) = &mut written.plan {
                plan.turn_to_all(table.schema, writer.reader())?;
            }
            apply(&table.rows, &mut writer, [old, new], &gathered, written, &mut reporter)
        };
        let outcome = match target {
            Target::Store(store) => store.transaction(load),
            Target::Txn(txn) => load(txn),
        };
        *failed = gathered.failed.get().copied();
        outcome
    }
}

impl<R, I> fmt::Debug for BulkLoad<'_, '_, R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, on_duplicate, notes_changes, temporary, .. } = self;
        f.debug_struct("BulkLoad")
            .field("memory", memory)
            .field("on_duplicate", on_duplicate)
            .field("notes_changes", notes_changes)
            .field("temporary", temporary)
            .finish_non_exhaustive()
    }
}
