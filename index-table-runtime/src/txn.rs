use std::{cell::Cell, fmt, marker::PhantomData, ops::Deref};

use crate::{
    engine::{Count, Reader, Txn, Write, Writer},
    error::{Error, Result},
    key::Unescaped,
    maintain::Image,
    store::{OpenTable, WriterGuard},
};

/// A read transaction: one snapshot of the store. From [`Store::read`](crate::Store::read).
///
/// What scans borrow lives as long as it. It may be sent to another thread, and not be shared:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<index_table::ReadTxn<'_>>();
/// ```
pub struct ReadTxn<'s> {
    engine: Txn<'s>,
    /// The store's id, and how many tables were open when the transaction began.
    store: u64,
    opened: u64,
    pub(crate) session: Session,
}

/// What a transaction keeps beside the engine's own.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) unescaped: Unescaped,
    seeks: Cell<u64>,
    entries: Cell<u64>,
    facts: Cell<u64>,
}

impl Session {
    #[inline]
    pub(crate) fn count_seek(&self) {
        self.seeks.set(self.seeks.get() + 1);
    }

    /// What a count took, in which nothing was decoded.
    pub(crate) fn count_count(&self, count: Count) {
        self.seeks.set(self.seeks.get() + count.seeks);
        self.entries.set(self.entries.get() + count.steps);
    }

    #[inline]
    pub(crate) fn count_entry(&self) {
        self.entries.set(self.entries.get() + 1);
    }

    #[inline]
    pub(crate) fn count_fact(&self) {
        self.facts.set(self.facts.get() + 1);
    }
}

/// What the queries of a transaction have read so far. From [`ReadTxn::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Places that were looked for in an index, or in a fact table as the index of its primary
    /// key: one for each scan that was run; for each value of a [`Distinct`](crate::Distinct), and
    /// for each leap of a [`Combined`](crate::Combined), one more.
    pub seeks: u64,
    /// Entries that were stepped on, of indexes and of fact tables. A scan counts each entry of a
    /// packed block; [`Scan::count`](crate::Scan::count), which reads no more of a block than its
    /// length, counts the block as one, and none where the size of the whole is known.
    pub entries: u64,
    /// Facts looked up by their primary key: by `get` and `get_many`, and by following the
    /// references of a normalized or partial index, be it only to compare a hashed field.
    pub facts: u64,
}

impl<'s> ReadTxn<'s> {
    pub(crate) fn new(engine: Txn<'s>, store: u64, opened: u64) -> Self {
        Self { engine, store, opened, session: Session::default() }
    }

    /// How the queries of this transaction were answered: a covered query leaves `facts` as it
    /// is, one that follows references adds one for each row.
    ///
    /// Always on; it costs an addition for each entry.
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
        let Session { seeks, entries, facts, .. } = &self.session;
        Stats { seeks: seeks.get(), entries: entries.get(), facts: facts.get() }
    }

    pub(crate) fn reader<'t>(&'t self, table: &'t OpenTable) -> Result<Reader<'t>> {
        self.check(table)?;
        self.engine.reader(&table.tables).ok_or(Error::WrongStore { table: table.name })
    }

    /// An engine's handles are good for the transactions of its store that began later.
    #[inline]
    fn check(&self, table: &OpenTable) -> Result<()> {
        if self.store != table.store {
            return Err(Error::WrongStore { table: table.name });
        }
        if self.opened < table.opened {
            return Err(Error::SnapshotTooOld { table: table.name });
        }
        Ok(())
    }
}

#[expect(unsafe_code, reason = "one variant inside is not `Send`, and is never there")]
// SAFETY: everything in it is `Send` but the writing kind of an engine's transaction. `Store::read`
// makes only the other kind. A `WriteTxn` has the writing kind, is not `Send` itself, and hands its
// `ReadTxn` out by shared reference only, which is not `Send` either, since a `ReadTxn` is not
// `Sync`.
unsafe impl Send for ReadTxn<'_> {}

impl fmt::Debug for ReadTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTxn").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The write transaction. From [`Store::write`](crate::Store::write).
///
/// It reads what it has written: wherever a `&ReadTxn` is taken, a `&WriteTxn` is too. Dropped
/// without [`commit`](WriteTxn::commit), it has changed nothing.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<index_table::WriteTxn<'_>>();
/// ```
pub struct WriteTxn<'s> {
    /// Before the transaction, so that it is dropped before it: once another thread has begun to
    /// write, the record is that thread's.
    guard: WriterGuard<'s>,
    read: ReadTxn<'s>,
    scratch: Scratch,
    /// LMDB's write transaction belongs to its thread.
    not_send: PhantomData<*const ()>,
}

/// Buffers that every operation of the transaction uses again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) old: Image,
    pub(crate) new: Image,
    /// The new row, read back for a test.
    pub(crate) tried: Image,
    /// The tables, by their [`OpenTable::opened`], whose records have been compared.
    checked: Vec<u64>,
}

impl<'s> WriteTxn<'s> {
    pub(crate) fn new(read: ReadTxn<'s>, guard: WriterGuard<'s>) -> Self {
        Self { guard, read, scratch: Scratch::default(), not_send: PhantomData }
    }

    /// Makes everything that the transaction has written visible, all at once, and durable as the
    /// store's [`Durability`](crate::Durability) says.
    ///
    /// Cost: with full durability two syncs, however many rows were written.
    ///
    /// # Errors
    ///
    /// [`Error::MapFull`], [`Error::Io`], [`Error::Engine`]; nothing has changed then.
    pub fn commit(self) -> Result<()> {
        let Self { guard, read, .. } = self;
        drop(guard);
        read.engine.commit()
    }

    pub(crate) fn writer<'t>(
        &'t mut self,
        table: &'t OpenTable,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch)> {
        self.read.check(table)?;
        let writer = self.read.engine.writer(&table.tables);
        let writer = writer.ok_or(Error::WrongStore { table: table.name })?;
        if !self.scratch.checked.contains(&table.opened) {
            check_record(&writer, table)?;
            self.scratch.checked.push(table.opened);
        }
        Ok((writer, &mut self.scratch))
    }
}

/// Another process may have opened the table with another declaration meanwhile, and maintain
/// indexes that this one doesn't know.
fn check_record(writer: &Writer<'_, '_>, table: &OpenTable) -> Result<()> {
    if writer.record()?.is_some_and(|record| record == table.record) {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: table.name,
        difference: "another process has opened it with another declaration since".to_owned(),
        way_out: "all processes that write to it must declare it alike; restart this one with the \
                  declaration that is in use",
    })
}

impl<'s> Deref for WriteTxn<'s> {
    type Target = ReadTxn<'s>;

    fn deref(&self) -> &ReadTxn<'s> {
        &self.read
    }
}

impl fmt::Debug for WriteTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTxn").field("store", &self.read.store).finish_non_exhaustive()
    }
}
