//! Loading many rows at once.
//!
//! Rows are read first, without a transaction: each becomes its fact and its entries, and those
//! go to sorters ([`gather`]). Then, in one transaction, it is decided which rows are to be written
//! ([`decide`]), before anything is, and they are, database after database in the order of
//! its keys ([`apply`]). What was sorted can be read again, should the map have to grow.

mod apply;
mod decide;
mod gather;

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
    write::Scratch,
};
use apply::apply;
use gather::Gatherer;

/// See [`BulkLoad::memory`].
const DEFAULT_MEMORY: usize = 256 << 20;

/// Loads many rows at once, in one transaction. From the `bulk_load` and `bulk_load_in` of a
/// repository; it does nothing until [`run`](BulkLoad::run).
///
/// It does what inserting the rows one by one in a transaction does, and in less time: rows and
/// entries are sorted, and written in the order of their keys. An empty table has nearly full pages
/// then, and takes less of the disk.
///
/// The rows are read and sorted before the transaction begins, so that others can write meanwhile,
/// and the iterator may use the store itself. What doesn't fit into the
/// [`memory`](BulkLoad::memory) goes to temporary files.
///
/// All or nothing: if there is an error, or the process dies, nothing was loaded. With
/// `bulk_load_in`, what was loaded is part of that transaction.
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
    temporary: Option<PathBuf>,
    tell: Option<Box<dyn FnMut(Progress) + 'a>>,
    row: PhantomData<fn(&R)>,
}

/// Where the rows go to.
pub(crate) enum Target<'a, 's> {
    /// A transaction of its own.
    Store(&'a Store),
    Txn(&'a mut WriteTxn<'s>),
}

/// What [`BulkLoad`] does with rows that can't be there together: those with the same primary key,
/// or with the same key in a unique index, be they in the table already or both among those that are
/// loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The load fails with [`Error::DuplicateKey`] or [`Error::UniqueViolation`], which name one of
    /// them; nothing is written. The default.
    #[default]
    Fail,
    /// The first one stays, those in the table before all: as if the rows were inserted one by one,
    /// and those that are refused left out.
    Skip,
    /// Of those with the same primary key the last one is written, over the one in the table. Two
    /// rows with the same key in a unique index are [`Error::UniqueViolation`] if they would both
    /// be there in the end: rows that are loaded may exchange such keys, and take those of rows that
    /// give them up.
    Replace,
}

/// What a [`BulkLoad`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// The rows that it was given.
    pub read: u64,
    /// Those of them that are in the table now, also if they were there before, byte for byte.
    pub written: u64,
    /// The others: those that were left out for another one with the same key.
    pub skipped: u64,
    /// How many of those that were written took the place of a row with other content in the table.
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
            temporary: None,
            tell: None,
            row: PhantomData,
        }
    }

    /// What to do about rows that can't be there together. Default: [`OnDuplicate::Fail`].
    pub const fn on_duplicate(mut self, policy: OnDuplicate) -> Self {
        self.on_duplicate = policy;
        self
    }

    /// The bytes that it takes for rows and entries, which go to temporary files beyond that; less than
    /// 64 KiB, or than the largest row needs, is taken for that. Default: 256 MiB.
    ///
    /// Not in it are some copies of the row that is read, a bit for each row, once rows are left out, and
    /// what LMDB does in any transaction: it keeps the pages that are written, up to 512 MiB of them,
    /// before it gives them to the operating system.
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// The directory for temporary files. Default: the store's; for one in memory, that of the operating
    /// system.
    ///
    /// The files have no names (`O_TMPFILE`), so that a killed process leaves nothing. Where the file
    /// system has no such files, a process that is killed at the wrong moment may leave an empty file
    /// `.index-table-….tmp`, which the next load into the directory removes.
    ///
    /// They take what the rows and entries take, and twice that for a moment if the memory is a very
    /// small part of it.
    pub fn temporary(mut self, directory: impl AsRef<Path>) -> Self {
        self.temporary = Some(directory.as_ref().to_owned());
        self
    }

    /// Calls `tell` every few thousand rows: with `"rows read"` and no total first, and then with `"rows and entries
    /// written"`, which begin at 0 again if the map has to grow.
    pub fn progress(mut self, tell: impl FnMut(Progress) + 'a) -> Self {
        self.tell = Some(Box::new(tell));
        self
    }

    /// Loads the rows.
    ///
    /// Cost: for each row, its bytes and entries are made, copied and sorted, and in a table that has
    /// rows, looked up in the order of their keys. In an empty one nothing is looked up.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateKey`] and [`Error::UniqueViolation`] as [`OnDuplicate`] says;
    /// [`Error::KeyTooLong`] and [`Error::Codec`] for a row that can't be written;
    /// [`Error::Corrupt`] for a row in the table that is to be replaced. [`Error::DiskFull`] and
    /// [`Error::Io`] for the temporary files too, [`Error::MapFull`] and errors of the engine. Nothing has changed then, and a transaction
    /// of yours goes on, unless the rows were being written already: it refuses to be committed then,
    /// as it does if `progress` panics meanwhile.
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

    /// As [`run`](BulkLoad::run), with an iterator of results. The first error ends it, and nothing has
    /// been written then.
    ///
    /// # Errors
    ///
    /// That of the iterator, and as [`run`](BulkLoad::run).
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
        let Self { table, target, rows, memory, on_duplicate, temporary, tell, .. } = self;
        if let Target::Store(store) = &target {
            // Not when all rows have been read.
            store.inner.engine.refuse_read_only()?;
        }
        let directory = match (temporary, &target) {
            (Some(directory), _) => directory,
            (None, Target::Store(store)) => store.inner.engine.directory(),
            (None, Target::Txn(txn)) => txn.directory(),
        };
        table.check_store(match &target {
            Target::Store(store) => store.inner.id,
            Target::Txn(txn) => txn.store(),
        })?;
        let gatherer = Gatherer::new(R::TABLE, &directory, memory, on_duplicate);
        let (new, tried) = Default::default();
        let reporter = ProgressReporter::new(tell, "rows read", None);
        let row = PhantomData;
        Ok((Loading { table, target, gatherer, new, tried, reporter, row }, rows))
    }
}

/// A load that is under way.
struct Loading<'a, 's, R> {
    table: &'a OpenTable,
    target: Target<'a, 's>,
    gatherer: Gatherer,
    new: Image,
    tried: Image,
    reporter: ProgressReporter<'a>,
    row: PhantomData<fn(&R)>,
}

impl<R: Entity> Loading<'_, '_, R> {
    fn add(&mut self, row: &R) -> Result<()> {
        self.table.load_new(row, &mut self.new, &mut self.tried)?;
        self.reporter.add(1);
        self.gatherer.add(&self.new)
    }

    fn finish(self) -> Result<LoadReport> {
        let Self { table, target, gatherer, new, tried, mut reporter, .. } = self;
        drop((new, tried));
        span!(DEBUG, "bulk_load", table = R::TABLE.name);
        let gathered = gatherer.finish()?;
        let mut load = |txn: &mut WriteTxn<'_>| {
            let (mut writer, Scratch { old, new, .. }, written) = txn.writer(table)?;
            apply(table.rows, &mut writer, [old, new], &gathered, written, &mut reporter)
        };
        match target {
            Target::Store(store) => store.transaction(load),
            Target::Txn(txn) => load(txn),
        }
    }
}

impl<R, I> fmt::Debug for BulkLoad<'_, '_, R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, on_duplicate, temporary, .. } = self;
        f.debug_struct("BulkLoad")
            .field("memory", memory)
            .field("on_duplicate", on_duplicate)
            .field("temporary", temporary)
            .finish_non_exhaustive()
    }
}
