//! Rewrites all rows of older versions, and of older lists.

use std::{fmt, time::Instant};

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read, is_of_left_shard},
    model::{
        entry::Position,
        error::{Error, Result},
        maintain::Image,
        row_vtable::TableRows,
        schema::Source,
    },
    placement::Reader,
    store::{OpenTable, ShardId, Store, engine_of, parts_of},
    upkeep::{lists, versions},
    usage::{Progress, trace::span},
    write::{Scratch, references, rows},
};

/// The default number of bytes of rows that are written in a transaction.
const BATCH_BYTES: usize = 1 << 20;

/// A transaction reads at most this multiple of the bytes that it may write.
const READ: usize = 16;

/// The entries of a global index may be in other shards than their rows.
const ONE_SHARD: &str =
    "upgrading a single shard of a reference table, or of a table with a global index";

/// Rewrites rows that have an older version, other fields, or other types inside. From the `upgrade` of a repository; it does
/// nothing until [`run`](Upgrade::run).
///
/// An upgrade is optional: such rows can be read, and are written like new rows when they change. After an upgrade, reading a row
/// no longer needs a conversion, the structs of older versions, `alias` and `default` can be removed from the code, and the file no
/// longer has the values of removed fields.
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
/// // In this release:
/// let people = PersonRepository::open(&store)?;
/// assert_eq!(people.find_by_last_name(&store.read()?, "Byron").count()?, 1);
///
/// let done = people.upgrade(&store).progress(|at| println!("{at}")).run()?;
/// assert_eq!((done.rows, done.upgraded), (1, 1));
/// # Ok(())
/// # }
/// ```
#[must_use = "an upgrade does nothing until `run`"]
pub struct Upgrade<'a> {
    store: &'a Store,
    table: &'a OpenTable,
    batch_bytes: usize,
    shard: Option<&'a ShardId>,
    drops_unknown: bool,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    stop: Option<&'a dyn Fn() -> bool>,
}

/// The result of an [`Upgrade`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Upgraded {
    /// The number of rows that were read.
    pub rows: u64,
    /// The number of rows that were rewritten.
    pub upgraded: u64,
    /// The size of these rows before, in bytes.
    pub bytes_before: u64,
    /// The size of these rows after, in bytes.
    pub bytes_after: u64,
}

impl Upgraded {
    pub(crate) const fn add(&mut self, other: Self) {
        let Self { rows, upgraded, bytes_before, bytes_after } = other;
        self.rows += rows;
        self.upgraded += upgraded;
        self.bytes_before += bytes_before;
        self.bytes_after += bytes_after;
    }
}

impl<'a> Upgrade<'a> {
    pub(crate) const fn new(store: &'a Store, table: &'a OpenTable) -> Self {
        Self {
            store,
            table,
            batch_bytes: BATCH_BYTES,
            shard: None,
            drops_unknown: false,
            progress: None,
            stop: None,
        }
    }

    /// Sets the number of bytes of rows that a transaction writes. It writes at least one row. Default: 1 MiB.
    /// Each transaction costs a commit, and other writers wait for it.
    pub const fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Rewrites the rows in one shard of a store with shards. Otherwise, the shards are upgraded one
    /// after another.
    ///
    /// A reference table, or a table with a global index, is upgraded as a whole, in transactions across all shards: with `on`,
    /// [`run`](Upgrade::run) returns [`Error::NotOffered`](crate::Error::NotOffered).
    pub const fn on(mut self, shard: &'a ShardId) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Drops the fields that a later release of the program has added, and that this one does not know. Run it with the release that
    /// stays, after the fields were removed on purpose. Afterwards, this release writes all rows; with [`on`](Upgrade::on), from the next
    /// opening of the store on, if all shards were upgraded.
    ///
    /// Otherwise, the upgrade fails at such a row with [`Error::UnknownField`](crate::Error::UnknownField), and with
    /// `#[table(keep_unknown)]` keeps the fields of the row itself.
    pub const fn drop_unknown(mut self) -> Self {
        self.drops_unknown = true;
        self
    }

    /// Calls `progress` after each transaction, with the number of rows so far. In a sharded store, the total is unknown.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Calls `stop` after each transaction. If it returns true, the upgrade ends, and the next one continues.
    #[doc(hidden)]
    pub const fn stop_when(mut self, stop: &'a dyn Fn() -> bool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Rewrites the rows, in one transaction after another. Between them, other threads and processes can write.
    /// The last transaction records that there are no rows of older versions.
    ///
    /// Rows that are added after the last row during the upgrade are written by the current struct, and are not read.
    ///
    /// The process may end at any point. The next run starts at the first row, and reads finished rows without
    /// rewriting them.
    ///
    /// Cost: the table is read once, and each row is decoded and encoded. A row with other bytes is written, with its entries in
    /// full and partial indexes. The rows of one batch are in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Conversion`](crate::Error::Conversion)
    /// for a row that can't be read or converted; [`Error::UnknownField`](crate::Error::UnknownField) without
    /// [`drop_unknown`](Upgrade::drop_unknown);
    /// [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread has a write transaction;
    /// [`Error::SchemaMismatch`](crate::Error::SchemaMismatch) if another process has since changed the
    /// declaration; [`Error::ShardUnavailable`](crate::Error::ShardUnavailable);
    /// [`Error::NotOffered`](crate::Error::NotOffered) for [one shard](Upgrade::on) of such a table;
    /// the errors of [`Store::transaction`]. Earlier transactions of the upgrade remain committed.
    pub fn run(self) -> Result<Upgraded> {
        span!(DEBUG, "upgrade", table = self.table.schema.name);
        let rows = &self.table.rows;
        let (is_whole, stop) = (self.shard.is_none(), self.stop);
        let since = self.drops_unknown.then(|| rows.lists.recorded_len());
        let done = self.run_since(since)?;
        let is_stopped = stop.is_some_and(|stop| stop());
        if let Some(since) = since.filter(|_| is_whole && !is_stopped) {
            rows.set_since(since);
        }
        Ok(done)
    }

    /// Drops unknown fields of the first `since` lists, and records that this release of the program is later than these.
    fn run_since(self, since: Option<usize>) -> Result<Upgraded> {
        let Self { store, table, batch_bytes, shard, mut progress, stop, drops_unknown: _ } = self;
        let shard = shard.map(|shard| shard.number_in(store.inner.id)).transpose()?;
        table.check_store(store.inner.id)?;
        let Some(tables) = table.tables.several() else {
            return Work { batch_bytes, since, stop, ..Work::new(store, table) }.run(progress);
        };
        store.inner.refuse_nested_write()?;
        // The copies of a reference table stay equal, also if a default is another value each time.
        if tables.routing().is_reference() || !tables.routing().global_indexes().is_empty() {
            if shard.is_some() {
                return Err(Error::NotOffered { what: ONE_SHARD });
            }
            return Work { batch_bytes, since, stop, ..Work::new(store, table) }.run(progress);
        }
        // Each shard is upgraded as a plain store.
        let _held = engine_of(store)?.hold_moves();
        let mut done = Upgraded::default();
        for (store, table) in parts_of(store, table, shard)? {
            if stop.is_some_and(|stop| stop()) {
                break;
            }
            let mut of_shard = progress.as_mut().map(|progress| {
                let earlier = done.rows;
                move |at: Progress| {
                    progress(Progress { done: earlier + at.done, total: None, left: None, ..at });
                }
            });
            let of_shard =
                of_shard.as_mut().map(|it| Box::new(it) as Box<dyn FnMut(Progress) + '_>);
            let work = Work { batch_bytes, since, stop, ..Work::new(&store, &table) };
            let of_shard = match work.run(of_shard) {
                Err(error) if shard.is_none() && is_of_left_shard(&error) => continue,
                done => done?,
            };
            done.add(of_shard);
        }
        Ok(done)
    }
}

impl fmt::Debug for Upgrade<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").field("table", &self.table.schema.name).finish_non_exhaustive()
    }
}

/// An [`Upgrade`] without its callback.
struct Work<'a> {
    store: &'a Store,
    table: &'a OpenTable,
    rows: &'a TableRows,
    batch_bytes: usize,
    since: Option<usize>,
    /// Whether only those rows are written that [a build](super::build) would write again.
    only_lists: bool,
    stop: Option<&'a dyn Fn() -> bool>,
}

/// Writes the rows with older lists again, before they get entries in indexes over fields that they lack.
///
/// # Errors
///
/// [`Error::MissingReference`](crate::Error::MissingReference) for a default that refers to no row, before any row is written, if the
/// default is the same each time and the rows to which it refers stay.
pub(super) fn renew_lists(store: &Store, table: &OpenTable) -> Result<()> {
    let work = Work { only_lists: true, ..Work::new(store, table) };
    if !table.rows.references.is_empty() {
        work.check_references()?;
    }
    work.run(None).map(drop)
}

/// The rows of a transaction.
struct Batch {
    /// The rows of older versions and lists: the primary key, the stored bytes and the new bytes of each.
    older: Vec<[Vec<u8>; 3]>,
    /// The number of rows that were read.
    rows: u64,
    /// The primary key of the last row that was read; `None` at the end of the table.
    last: Option<Vec<u8>>,
    /// The number of rows of the table.
    total: u64,
}

impl<'a> Work<'a> {
    fn new(store: &'a Store, table: &'a OpenTable) -> Self {
        let (batch_bytes, since, only_lists, stop) = (BATCH_BYTES, None, false, None);
        Self { store, table, rows: &table.rows, batch_bytes, since, only_lists, stop }
    }

    fn run(self, mut progress: Option<Box<dyn FnMut(Progress) + '_>>) -> Result<Upgraded> {
        let (mut done, mut last, started) = (Upgraded::default(), None, Instant::now());
        let end = {
            let txn = self.store.read()?;
            last_key(txn.reader(self.table)?)?
        };
        loop {
            let batch = self.next_batch(last.as_deref(), &end)?;
            done.rows += batch.rows;
            for [_, stored, renewed] in &batch.older {
                done.upgraded += 1;
                done.bytes_before += stored.len() as u64;
                done.bytes_after += renewed.len() as u64;
            }
            if let Some(progress) = &mut progress {
                progress(Progress::new("rows", done.rows, Some(batch.total), started));
            }
            if batch.last.is_none() || self.stop.is_some_and(|stop| stop()) {
                return Ok(done);
            }
            last = batch.last;
            self.store.inner.let_others_write();
        }
    }

    /// Checks the references of all rows to be written.
    fn check_references(&self) -> Result<()> {
        let (txn, mut last) = (self.store.read()?, None);
        let (reader, end) = (txn.reader(self.table)?, last_key(txn.reader(self.table)?)?);
        loop {
            let batch = self.read(reader, last.as_deref(), &end)?;
            if batch.last.is_none() {
                return Ok(());
            }
            last = batch.last;
        }
    }

    fn next_batch(&self, last: Option<&[u8]>, end: &[u8]) -> Result<Batch> {
        self.store.transaction(|txn| {
            let (mut writer, scratch, written) = txn.writer(self.table)?;
            let batch = self.read(writer.reader(), last, end)?;
            let states = self.table.states(writer.reader())?;
            let incomplete = states.iter().filter(|(_, state)| state.is_some());
            let incomplete: Vec<usize> = incomplete.map(|(index, _)| *index).collect();
            let Scratch { old, new, .. } = scratch;
            for [primary_key, stored, renewed] in &batch.older {
                let bytes = [stored.as_slice(), renewed];
                rows::load_both(self.rows, [old, new], primary_key, bytes, &incomplete)?;
                rows::renew(self.rows, &mut writer, written, old, new)?;
            }
            // No process can write rows of older versions, since each writer compares its declaration with the
            // table's record, which has the current version.
            if batch.last.is_none() && !self.only_lists {
                versions::forget(&mut writer)?;
                if let Some(since) = self.since {
                    lists::renew_release(self.rows, &mut writer, since)?;
                }
            }
            Ok(batch)
        })
    }

    /// Reads the next rows, up to the primary key `end`. A write invalidates borrowed pages, so the rows to write are
    /// copied.
    fn read(&self, reader: Reader<'_>, last: Option<&[u8]>, end: &[u8]) -> Result<Batch> {
        let total = reader.stored(Source::Facts)?.unwrap_or(0);
        let mut batch = Batch { older: Vec::new(), rows: 0, last: None, total };
        let (mut to_write, mut read, mut image) = (0, 0, Image::default());
        let position = last.map(|key| Position { key: Vec::new(), primary_key: key.to_vec() });
        let query = Query { position, ..Query::new(Source::Facts, KeyRange::ALL) };
        let mut found = reader.cursor(query)?;
        while found.advance()? {
            let fact = found.entry();
            if fact.primary_key > end {
                break;
            }
            batch.rows += 1;
            read += fact.data.len();
            let renewed = if self.only_lists {
                let mut renewed = Vec::new();
                let (rows, key) = (self.rows, fact.primary_key);
                if rows.load_renewed(&mut image, fact.data, key, &mut renewed)? {
                    // A default can be another reference than when the reference was declared.
                    let orphaned = references::orphaned(rows, reader, &image, true)?;
                    orphaned.into_iter().next().map_or(Ok(()), Err)?;
                }
                renewed
            } else {
                self.rows.renew_stored(fact.data, fact.primary_key, self.since.is_some())?
            };
            if renewed != fact.data {
                to_write += fact.data.len();
                batch.older.push([fact.primary_key.to_vec(), fact.data.to_vec(), renewed]);
            }
            if to_write >= self.batch_bytes || read / READ >= self.batch_bytes {
                batch.last = Some(fact.primary_key.to_vec());
                break;
            }
        }
        Ok(batch)
    }
}

/// Returns the last primary key of the table, or the empty byte string if the table is empty.
///
/// An upgrade doesn't read beyond this key, since another thread may add rows to the end of the table as fast as the
/// upgrade reads them. Such rows have the current version.
fn last_key(reader: Reader<'_>) -> Result<Vec<u8>> {
    let query = Query { reverse: true, limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
    let mut found = reader.cursor(query)?;
    Ok(if found.advance()? { found.entry().primary_key.to_vec() } else { Vec::new() })
}
