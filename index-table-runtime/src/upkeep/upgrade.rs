//! Rewriting all rows of older versions in the current version.

use std::{
    fmt,
    marker::PhantomData,
    thread,
    time::{Duration, Instant},
};

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read, Reader},
    model::{
        entity::Entity, entry::Position, error::Result, key::DecodeError, row,
        row_vtable::RowVtable, schema::Source,
    },
    store::{OpenTable, Store},
    upkeep::versions,
    usage::{Progress, trace::span},
    write::rows,
};

/// The default number of bytes of rows that are written in a transaction.
const BATCH_BYTES: usize = 1 << 20;

/// At most this many times as much is read in it, if there is nothing to write.
const READ: usize = 16;

/// The pause between two batches, so that waiting threads get the lock, which isn't fair.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes the rows of a table that have an older version in the current one. From the `upgrade` of
/// a repository; it does nothing until [`run`](Upgrade::run).
///
/// An upgrade is optional: rows of older versions can be read, and are written in the current version when
/// they change. After an upgrade, they are no longer converted each time, and the structs of older versions
/// can be removed from the code.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, RowVersion, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[table(name = "people", version = 1)]
/// struct PersonV1 {
///     #[primary_key]
///     id: u32,
///     name: String,
/// }
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[table(name = "people", version = 2, previous = PersonV1)]
/// #[index(last_name)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     first_name: String,
///     last_name: String,
/// }
///
/// impl From<PersonV1> for Person {
///     fn from(old: PersonV1) -> Self {
///         let (first, last) = old.name.split_once(' ').unwrap_or(("", &old.name));
///         Self { id: old.id, first_name: first.into(), last_name: last.into() }
///     }
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// // In an earlier release:
/// let people = PersonV1Repository::open(&store)?;
/// store.transaction(|txn| people.insert(txn, &PersonV1 { id: 1, name: "Ada Byron".into() }))?;
/// drop(people);
///
/// // In this one:
/// let people = PersonRepository::open(&store)?;
/// assert_eq!(people.find_by_last_name(&store.read()?, "Byron").count()?, 1);
///
/// let done = people.upgrade(&store).progress(|at| println!("{at}")).run()?;
/// assert_eq!((done.rows, done.upgraded), (1, 1));
/// # Ok(())
/// # }
/// ```
#[must_use = "an upgrade does nothing until `run`"]
pub struct Upgrade<'a, R> {
    store: &'a Store,
    table: &'a OpenTable,
    rows: &'static RowVtable,
    batch_bytes: usize,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    row: PhantomData<fn() -> R>,
}

/// The result of an [`Upgrade`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Upgraded {
    /// The rows that were read.
    pub rows: u64,
    /// The rows that had an older version, and have the current one now.
    pub upgraded: u64,
}

impl<'a, R: Entity> Upgrade<'a, R> {
    pub(crate) const fn new(
        store: &'a Store,
        table: &'a OpenTable,
        rows: &'static RowVtable,
    ) -> Self {
        let (batch_bytes, row) = (BATCH_BYTES, PhantomData);
        Self { store, table, rows, batch_bytes, progress: None, row }
    }

    /// The number of bytes of rows that are written in a transaction, at least one row. Default: 1 MiB. Each
    /// transaction costs a commit, and other writers wait for it.
    pub const fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Calls `progress` after each transaction, with the rows so far.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Rewrites the rows, in one transaction after another; others write in between, in this process and in
    /// other processes. The last one records that there are no rows of older versions.
    ///
    /// It may be stopped at any point, also by the end of the process. The next run starts at the first row
    /// and skips finished rows, which costs reading them. If the catalog records no older versions, the table
    /// is not read at all.
    ///
    /// Cost: the table is read once; each row of an older version is converted and written, with
    /// its entries in full indexes. Memory for a batch, for tables of any size.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Conversion`](crate::Error::Conversion)
    /// with the row that can't be read or converted;
    /// [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread has a write transaction;
    /// [`Error::SchemaMismatch`](crate::Error::SchemaMismatch) if another process has changed the declaration
    /// meanwhile; the errors of [`Store::transaction`]. Earlier transactions remain committed.
    pub fn run(self) -> Result<Upgraded> {
        span!(DEBUG, "upgrade", table = R::TABLE.name);
        let Self { store, table, rows, batch_bytes, progress, .. } = self;
        let work = Work { store, table, rows, renew: row::renew::<R>, batch_bytes };
        work.run(progress)
    }
}

impl<R> fmt::Debug for Upgrade<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").field("table", &self.table.schema.name).finish_non_exhaustive()
    }
}

/// The part of [`Upgrade`] that is compiled once.
struct Work<'a> {
    store: &'a Store,
    table: &'a OpenTable,
    rows: &'static RowVtable,
    /// [`row::renew`]
    renew: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
    batch_bytes: usize,
}

/// The rows of a transaction.
struct Batch {
    /// The rows with another version than the current one: primary key and bytes.
    older: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of rows that were read.
    rows: u64,
    /// The last of them; `None` at the end of the table.
    behind: Option<Vec<u8>>,
    /// All rows of the table.
    total: u64,
}

impl Work<'_> {
    fn run(self, mut progress: Option<Box<dyn FnMut(Progress) + '_>>) -> Result<Upgraded> {
        let (mut done, mut behind, begun) = (Upgraded::default(), None, Instant::now());
        if versions::recorded(self.store.read()?.reader(self.table)?)?.is_empty() {
            return Ok(done);
        }
        loop {
            let batch = self.next_batch(behind.as_deref())?;
            done.rows += batch.rows;
            done.upgraded += batch.older.len() as u64;
            if let Some(progress) = &mut progress {
                progress(Progress::new("rows", done.rows, Some(batch.total), begun));
            }
            if batch.behind.is_none() {
                return Ok(done);
            }
            behind = batch.behind;
            thread::sleep(PAUSE);
        }
    }

    fn next_batch(&self, behind: Option<&[u8]>) -> Result<Batch> {
        self.store.transaction(|txn| {
            let (mut writer, scratch, written) = txn.writer(self.table)?;
            let batch = self.read(writer.reader(), behind)?;
            for (primary_key, bytes) in &batch.older {
                let renewed = (self.renew)(bytes);
                let renewed = renewed.map_err(|error| self.rows.corrupt(error, primary_key))?;
                let row = (primary_key.as_slice(), bytes.as_slice(), renewed.as_slice());
                rows::upgrade(self.rows, &mut writer, scratch, written, row)?;
            }
            // No process writes rows of older versions: the table's record has the current one, with which
            // each writer compares its own.
            if batch.behind.is_none() {
                versions::forget(&mut writer)?;
            }
            Ok(batch)
        })
    }

    /// Reads the next rows. Borrowed pages don't outlive a write, so the rows to write are copied.
    fn read(&self, reader: Reader<'_>, behind: Option<&[u8]>) -> Result<Batch> {
        let total = reader.stored(Source::Facts)?.unwrap_or(0);
        let mut batch = Batch { older: Vec::new(), rows: 0, behind: None, total };
        let (mut to_write, mut read) = (0, 0);
        let position = behind.map(|key| Position { key: Vec::new(), primary_key: key.to_vec() });
        let query = Query { position, ..Query::new(Source::Facts, KeyRange::ALL) };
        let current = self.rows.schema.version;
        let mut found = reader.cursor(query)?;
        while found.advance()? {
            let fact = found.entry();
            batch.rows += 1;
            read += fact.data.len();
            if row::version(fact.data) != Ok(current) {
                to_write += fact.data.len();
                batch.older.push((fact.primary_key.to_vec(), fact.data.to_vec()));
            }
            if to_write >= self.batch_bytes || read / READ >= self.batch_bytes {
                batch.behind = Some(fact.primary_key.to_vec());
                break;
            }
        }
        Ok(batch)
    }
}
