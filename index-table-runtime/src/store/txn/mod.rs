//! Read transactions, and write transactions ([`write`]).

mod write;

pub use self::write::WriteTxn;

use std::{fmt, rc::Rc};

use crate::{
    engine::{CommitNumber, Read as _, Stamp},
    model::{
        error::{Error, Result},
        schema::Source,
    },
    placement::{Reader, Txn, shards},
    query::{Ledger, Session},
    store::OpenTable,
    usage::Stats,
};

/// A read transaction: one snapshot of the store. From [`Store::read`](crate::Store::read).
///
/// Scans borrow from it. It can be sent to another thread, but not shared:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<index_table::ReadTxn<'_>>();
/// ```
pub struct ReadTxn<'s> {
    engine: Txn<'s>,
    /// The store's id, and its counter of tables and indexes before the transaction began.
    store: u64,
    opened: u64,
    /// The stamp of the snapshot.
    snapshot: Stamp,
    pub(crate) session: Session,
}

impl<'s> ReadTxn<'s> {
    #[inline]
    pub(crate) fn new(engine: Txn<'s>, store: u64, opened: u64) -> Self {
        let snapshot = engine.found();
        Self { engine, store, opened, snapshot, session: Session::default() }
    }

    /// Returns the cost of the finished queries of this transaction. A covered query adds nothing to `facts`;
    /// a query that follows references adds one for each row.
    ///
    /// A query is counted when its iterator is dropped. A running iterator has its own `stats`, such as
    /// [`Rows::stats`](crate::Rows::stats).
    ///
    /// Counting is always on. Each scan has its own counters, which are added once.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
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
    /// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Redmond".into() }))?;
    ///
    /// let txn = store.read()?;
    /// assert_eq!(people.find_by_town(&txn, "Redmond").entries().count(), 1);
    /// assert_eq!((txn.stats().entries, txn.stats().facts), (1, 0)); // from the index alone
    /// assert_eq!(people.find_by_town(&txn, "Redmond").rows().count(), 1);
    /// assert_eq!((txn.stats().entries, txn.stats().facts), (2, 1)); // with a second look-up
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shards = self.engine.several().map_or(0, shards::Txn::shards_read);
        Stats { shards, ..self.session.total.get() }
    }

    /// Returns the number of the last commit in this snapshot; in a write transaction, the number that its
    /// commit will have (across several shards: the numbers in the shards written so far). Each commit with
    /// changes has a greater number than all earlier commits of any process.
    ///
    /// The snapshot contains the changes of every [`Event`](crate::Event) up to this number, so events with
    /// greater numbers continue the snapshot without a gap.
    ///
    /// # Examples
    ///
    /// ```
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
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let watcher = notes.watch(&store).start()?;
    /// let before = store.read()?.commit_number();
    ///
    /// let mut txn = store.write()?;
    /// notes.insert(&mut txn, &Note { id: 1 })?;
    /// let own = txn.commit_number();
    /// txn.commit()?;
    ///
    /// assert!(own > before);
    /// assert_eq!(store.read()?.commit_number(), own);
    /// assert_eq!(watcher.recv().map(|event| event.commit_number()), Some(own));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Two read transactions with the same commit number are snapshots of the same instant. A `ReadTxn` can be sent to another
    /// thread, but not shared. So several threads read one instant, each a range of keys with a transaction of its own:
    ///
    /// ```
    /// use std::{ops::RangeInclusive, thread};
    ///
    /// use index_table::{IndexTable, ReadTxn, Result, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    ///     total: i64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::options()
    /// #     .shard("north", "north")
    /// #     .shard("south", "south")
    /// #     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    /// #     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// # store.transaction(|txn| {
    /// #     (0..200).try_for_each(|tenant| orders.insert(txn, &Order { tenant, number: 1, total: 20 }))
    /// # })?;
    /// let (north, south) = loop {
    ///     let (north, south) = (store.read()?, store.read()?);
    ///     // Otherwise, a commit has become visible between the two.
    ///     if north.commit_number() == south.commit_number() {
    ///         break (north, south);
    ///     }
    /// };
    ///
    /// let total = |txn: ReadTxn<'_>, tenants: RangeInclusive<u32>| -> Result<i64> {
    ///     let mut rows = orders.find_by_tenant_range(&txn, tenants).rows();
    ///     rows.try_fold(0, |total, row| Ok(total + row?.total))
    /// };
    /// let sum = thread::scope(|scope| -> Result<i64> {
    ///     let north = scope.spawn(|| total(north, 0..=99));
    ///     let south = total(south, 100..=u32::MAX)?;
    ///     Ok(north.join().expect("no panic")? + south)
    /// })?;
    /// assert_eq!(sum, 4000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Here, each thread reads one shard, because its range is a range of the shard map. An index, or a store with one data
    /// file, can be divided in the same way: each thread reads a range of the index, and the concatenated results are in its
    /// order.
    #[must_use]
    pub fn commit_number(&self) -> CommitNumber {
        self.engine.commit_number()
    }

    /// From now on, checks each page of a data file before LMDB reads it, so that a damaged page is
    /// [`Error::Corrupt`](crate::Error::Corrupt) and not a crash. `verify` calls it.
    pub(crate) fn check_pages(&self) -> Result<()> {
        self.engine.check_pages()
    }

    pub(crate) fn reader<'t>(&'t self, table: &'t OpenTable) -> Result<Reader<'t>> {
        self.check(table)?;
        self.engine.reader(&table.tables).ok_or_else(|| wrong_store(table))
    }

    /// Returns a reader for an aggregate.
    pub(crate) fn reader_of_aggregate<'t>(
        &'t self,
        table: &'t OpenTable,
        aggregate: usize,
    ) -> Result<Reader<'t>> {
        // Aggregates follow the indexes.
        self.reader_of(table, Source::Index(table.schema.indexes.len() + aggregate))
    }

    /// Whether the table has aggregates, and all of them are certainly readable in the snapshot, or eventual.
    #[inline]
    pub(crate) fn has_aggregates(&self, table: &OpenTable) -> bool {
        !table.rows.aggregates.is_empty()
            && self.opened >= table.opened
            && table.is_as_declared(self.snapshot)
            && table.schema.positions().skip(table.schema.indexes.len()).all(|position| {
                table.schema.is_eventual(position) || table.is_readable(position, self.opened)
            })
    }

    /// Returns the bytes of the row with this primary key.
    pub(crate) fn fact<'t>(
        &'t self,
        table: &'t OpenTable,
        primary_key: &[u8],
    ) -> Result<Option<&'t [u8]>> {
        let bytes = self.reader(table)?.fact(primary_key)?;
        let ledger = Ledger::new(&self.session, &table.shared.usage, &table.rows.lists);
        ledger.get(bytes.map_or(0, <[u8]>::len));
        Ok(bytes)
    }

    /// Returns a reader like [`reader`](ReadTxn::reader), to look up single entries of this index.
    #[inline]
    pub(crate) fn reader_of<'t>(
        &'t self,
        table: &'t OpenTable,
        source: Source,
    ) -> Result<Reader<'t>> {
        let reader = self.reader(table)?;
        if let Source::Index(index) = source
            && !(table.is_readable(index, self.opened) && table.is_as_declared(self.snapshot))
        {
            table.check_readable(reader, index, self.snapshot, self.opened)?;
        }
        Ok(reader)
    }

    /// Returns a reader like [`reader`](ReadTxn::reader), to scan this index, and whether the index is
    /// violated: then, a key may have several entries although the index is unique.
    #[inline]
    pub(crate) fn reader_to_scan<'t>(
        &'t self,
        table: &'t OpenTable,
        source: Source,
    ) -> Result<(Reader<'t>, bool)> {
        let reader = self.reader(table)?;
        if let Source::Index(index) = source
            && !(table.is_readable(index, self.opened) && table.is_as_declared(self.snapshot))
        {
            let violated = table.check_scannable(reader, index, self.snapshot, self.opened)?;
            return Ok((reader, violated));
        }
        Ok((reader, false))
    }

    /// Returns the positions of the declared indexes and aggregates that the table's record in this snapshot lacks.
    pub(crate) fn lacking(&self, table: &OpenTable) -> Result<Vec<usize>> {
        table.lacking_in(self.reader(table)?)
    }

    /// Returns the table's indexes and aggregates that are not readable in this snapshot.
    pub(crate) fn unreadable(&self, table: &OpenTable) -> Result<Unreadable> {
        let reader = self.reader(table)?;
        let (mut incomplete, mut violated) = (Vec::new(), Vec::new());
        for index in table.schema.positions() {
            match table.check_scannable(reader, index, self.snapshot, self.opened) {
                Ok(false) => {}
                Ok(true) => violated.push(index),
                Err(Error::IndexNotReadable { .. }) => incomplete.push(index),
                Err(error) => return Err(error),
            }
        }
        Ok(Unreadable { incomplete: incomplete.into(), violated: violated.into() })
    }

    /// Checks that the transaction can use the handles of the table: they are valid for later transactions of
    /// the same store.
    #[inline]
    fn check(&self, table: &OpenTable) -> Result<()> {
        #[cfg(feature = "async")]
        crate::store::orders::refuse_aborted()?;
        if self.store != table.store {
            return Err(wrong_store(table));
        }
        if self.opened < table.since {
            return Err(Error::SnapshotTooOld { table: table.schema.name });
        }
        Ok(())
    }
}

/// The indexes and aggregates of a table that are not readable, by their positions.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    /// The indexes that lack entries.
    pub(crate) incomplete: Rc<[usize]>,
    /// The unique indexes that have the entries of all rows, and several entries of one key.
    pub(crate) violated: Rc<[usize]>,
}

#[expect(unsafe_code, reason = "one variant inside is not `Send`, and never occurs")]
// SAFETY: all fields are `Send`, except an engine's write transaction. `Store::read` creates only read
// transactions. A `WriteTxn` contains a write transaction and is not `Send`. It lends its `ReadTxn` by shared
// reference only, which is not `Send`, since a `ReadTxn` is not `Sync`.
unsafe impl Send for ReadTxn<'_> {}

#[expect(unsafe_code, reason = "no transaction meets the condition")]
// SAFETY: no type meets the condition. Without this impl, a program that shares a transaction would get an
// error for each private field that is not `Sync`.
unsafe impl<'s> Sync for ReadTxn<'s> where ReadTxn<'s>: Shareable {}

/// A transaction that several threads could share; no type implements this trait.
#[diagnostic::on_unimplemented(
    message = "a `ReadTxn` cannot be shared between threads",
    label = "a `ReadTxn` cannot be shared between threads",
    note = "begin one in each thread, by `store.read()`, or move it into the thread"
)]
pub trait Shareable {}

#[expect(unsafe_code, reason = "no transaction meets the condition")]
// SAFETY: no type meets the condition, because LMDB's write transaction belongs to its thread. Without this impl, the
// error would name private fields.
unsafe impl<'s> Send for WriteTxn<'s> where WriteTxn<'s>: Movable {}

/// A write transaction that another thread could use; no type implements this trait.
#[diagnostic::on_unimplemented(
    message = "a `WriteTxn` stays in its thread: begin it inside, and drop it before `.await`",
    label = "a `WriteTxn` stays in its thread",
    note = "`store.transaction(…)` begins and commits one in the thread that calls it"
)]
pub trait Movable {}

impl fmt::Debug for ReadTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTxn").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cold]
fn wrong_store(table: &OpenTable) -> Error {
    Error::WrongStore { table: table.schema.name }
}
