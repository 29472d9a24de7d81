use std::{cell::Cell, fmt, ops::Deref};

use crate::{
    engine::{Count, Reader, Txn, Writer},
    error::{Error, Result},
    key::Unescaped,
    maintain::Image,
    store::{OpenTable, WriterGuard},
};

/// A read transaction: one snapshot of the store. From [`Store::read`](crate::Store::read).
///
/// What scans borrow lives as long as it. It may be sent to another thread.
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
    /// references of a normalized or partial index.
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

impl fmt::Debug for ReadTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTxn").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The write transaction. From [`Store::write`](crate::Store::write).
///
/// It reads what it has written: wherever a `&ReadTxn` is taken, a `&WriteTxn` is too. Dropped
/// without [`commit`](WriteTxn::commit), it has changed nothing.
pub struct WriteTxn<'s> {
    read: ReadTxn<'s>,
    scratch: Scratch,
    /// Behind the transaction, so that it is dropped after it.
    _guard: WriterGuard<'s>,
}

/// Buffers that every operation of the transaction uses again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) old: Image,
    pub(crate) new: Image,
}

impl<'s> WriteTxn<'s> {
    pub(crate) fn new(read: ReadTxn<'s>, guard: WriterGuard<'s>) -> Self {
        Self { read, scratch: Scratch::default(), _guard: guard }
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
        self.read.engine.commit()
    }

    pub(crate) fn writer<'t>(
        &'t mut self,
        table: &'t OpenTable,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch)> {
        self.read.check(table)?;
        let writer = self.read.engine.writer(&table.tables);
        Ok((writer.ok_or(Error::WrongStore { table: table.name })?, &mut self.scratch))
    }
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
