//! Which engine it is: each type here has a variant for each engine, and each method is a `match`.

use std::path::{Path, PathBuf};

#[cfg(feature = "memory")]
use super::memory;
use super::{
    Ascending, CommitFailure, Count, Cursor, EntryResult, LongLived, Options, Query, Read, Records,
    Retry, Space, Stamp, Write, lmdb,
};
use crate::model::{
    entry::RawEntry,
    error::{Boxed, Error, Result},
    maintain::{Change, Sink},
    schema::{IndexSchema, Source, TableSchema},
};

/// Calls the same on whichever engine it is.
macro_rules! on_engine {
    ($value:expr, $engine:ident => $call:expr) => {
        match $value {
            Self::Lmdb($engine) => $call,
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call,
        }
    };
}

/// As `on_engine`, and wraps the value of an `Ok` or `Some` in the same variant of another type.
macro_rules! wrapped {
    ($value:expr, $engine:ident => $call:expr, $to:ident) => {
        match $value {
            Self::Lmdb($engine) => $call.map($to::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call.map($to::Memory),
        }
    };
}

/// An open store.
#[cfg_attr(
    feature = "memory",
    expect(clippy::large_enum_variant, reason = "there is one of a store")
)]
pub(crate) enum Engine {
    Lmdb(lmdb::Engine),
    #[cfg(feature = "memory")]
    Memory(memory::Engine),
}

impl Engine {
    pub(crate) fn open(options: &Options, path: &Path) -> Result<Self> {
        lmdb::Engine::open(options, path).map(Self::Lmdb)
    }

    #[cfg(feature = "memory")]
    pub(crate) fn in_memory() -> Self {
        Self::Memory(memory::Engine::default())
    }

    /// The administration of LMDB, which no other engine has.
    #[cfg_attr(
        not(feature = "memory"),
        expect(clippy::unnecessary_wraps, reason = "there may be others")
    )]
    pub(crate) const fn lmdb(&self) -> Option<&lmdb::Engine> {
        match self {
            Self::Lmdb(engine) => Some(engine),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    /// [`lmdb`](Engine::lmdb), or an error that says that there is no file.
    pub(crate) fn on_disk(&self) -> Result<&lmdb::Engine> {
        self.lmdb().ok_or(Error::InMemory)
    }

    /// Begins a read transaction.
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        wrapped!(self, engine => engine.read(), Txn)
    }

    /// Begins a write transaction.
    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        wrapped!(self, engine => engine.write(), Txn)
    }

    /// Makes it possible that a closure is run again, without a transaction of this thread; `false`: it
    /// would end as before.
    pub(crate) fn prepare(&self, retry: Retry) -> Result<bool> {
        on_engine!(self, engine => engine.prepare(retry))
    }

    /// Where temporary files go by default.
    pub(crate) fn directory(&self) -> PathBuf {
        self.lmdb().map_or_else(std::env::temp_dir, |engine| engine.directory().to_owned())
    }

    /// Refuses a store that this process has inherited from the one it was forked from.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        self.lmdb().map_or(Ok(()), lmdb::Engine::refuse_forked)
    }

    /// Whether it was opened for reading alone.
    pub(crate) fn is_read_only(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::is_read_only)
    }

    /// Refuses a store that was opened for reading alone.
    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        self.lmdb().map_or(Ok(()), lmdb::Engine::refuse_read_only)
    }

    /// Whether the catalog can be read without a turn to write.
    pub(crate) fn has_catalog(&self) -> bool {
        on_engine!(self, engine => engine.has_catalog())
    }

    /// All records of the catalog.
    pub(crate) fn catalog(&self) -> Result<Records> {
        on_engine!(self, engine => engine.catalog())
    }

    /// Removes the indexes that `choose` names as the catalog does, with their records; the answer is
    /// their names.
    ///
    /// No open table may have one of them, and none may be opened until this is done.
    ///
    /// # Errors
    ///
    /// With a [`Retry`], it may be called again once that is prepared.
    pub(crate) fn drop_indexes(
        &self,
        choose: &mut dyn FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>, (Error, Option<Retry>)> {
        on_engine!(self, engine => engine.drop_indexes(choose))
    }

    /// Opens or creates the databases of a table and lets `prepare` look at them, all in one write
    /// transaction.
    ///
    /// # Errors
    ///
    /// With a [`Retry`], it may be called again once that is prepared.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        prepare: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        match self {
            Self::Lmdb(engine) => engine
                .open_table(schema, |writer| prepare(&mut Writer::Lmdb(writer)))
                .map(Tables::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => engine
                .open_table(schema, |writer| prepare(&mut Writer::Memory(writer)))
                .map(Tables::Memory),
        }
    }

    /// The databases of a table in a store that was opened for reading alone; `None`: it lacks some.
    pub(crate) fn find_table(&self, schema: &'static TableSchema) -> Result<Option<Tables>> {
        let found = self.lmdb().map_or(Ok(None), |engine| engine.find_table(schema))?;
        Ok(found.map(Tables::Lmdb))
    }

    /// How an index of a table is laid out, as the catalog names it.
    pub(crate) fn layout(&self, schema: &TableSchema, index: &IndexSchema) -> &'static str {
        match self {
            Self::Lmdb(_) => lmdb::layout(schema, index),
            #[cfg(feature = "memory")]
            Self::Memory(_) => memory::LAYOUT,
        }
    }
}

/// The databases of one table.
pub(crate) enum Tables {
    Lmdb(lmdb::Tables<'static>),
    #[cfg(feature = "memory")]
    Memory(memory::Tables),
}

impl Tables {
    /// Whether snapshots from before can be asked for the table, because it was in the file when the store
    /// was opened, or has been open since.
    pub(crate) const fn were_known(&self) -> bool {
        match self {
            Self::Lmdb(tables) => tables.were_known(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
        }
    }
}

/// A transaction, read or write.
pub(crate) enum Txn<'s> {
    Lmdb(lmdb::Txn<'s>),
    #[cfg(feature = "memory")]
    Memory(memory::Txn<'s>),
}

impl<'s> Txn<'s> {
    /// Where temporary files go by default.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(txn) => txn.engine().directory().to_owned(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
        }
    }

    /// The stamp of the commit whose state it has found. The stamps of an engine that no other process
    /// writes are all the same here: what has been compared once stays as it was.
    #[inline]
    pub(crate) fn found(&self) -> Stamp {
        match self {
            Self::Lmdb(txn) => txn.found(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Stamp::default(),
        }
    }

    /// The stamp of its snapshot; of a write transaction, the one that its commit will have.
    pub(crate) fn stamp(&self) -> Stamp {
        on_engine!(self, txn => txn.stamp())
    }

    /// `None`: the table belongs to another kind of engine.
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Option<Reader<'t>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.reader(tables).map(Reader::Lmdb),
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => Some(Reader::Memory(txn.reader(tables))),
            #[cfg(feature = "memory")]
            _ => None,
        }
    }

    /// `None`: a read transaction, or the table belongs to another kind of engine.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t, 's>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.writer(tables).map(Writer::Lmdb),
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => txn.writer(tables).map(Writer::Memory),
            #[cfg(feature = "memory")]
            _ => None,
        }
    }

    /// Begins a transaction inside of this one. `None`: a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        match self {
            Self::Lmdb(txn) => txn.nested().map(|txn| txn.map(Txn::Lmdb)),
            #[cfg(feature = "memory")]
            Self::Memory(txn) => txn.nested().map(|txn| Ok(Txn::Memory(txn))),
        }
    }

    /// Why the closure has to be run again, whatever it has returned.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match self {
            Self::Lmdb(txn) => txn.retry(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    /// Commits, and calls `committed` before another one of this process can begin to write.
    pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        on_engine!(self, txn => txn.commit(committed))
    }
}

/// [`Read`] of whichever engine.
#[derive(Clone, Copy)]
pub(crate) enum Reader<'t> {
    Lmdb(lmdb::Reader<'t>),
    #[cfg(feature = "memory")]
    Memory(memory::Reader<'t>),
}

impl<'t> Reader<'t> {
    /// The physical entries of LMDB, which no other engine has.
    #[cfg_attr(
        not(feature = "memory"),
        expect(clippy::unnecessary_wraps, reason = "there may be others")
    )]
    pub(crate) const fn lmdb(self) -> Option<lmdb::Reader<'t>> {
        match self {
            Self::Lmdb(reader) => Some(reader),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    fn table(self) -> &'static TableSchema {
        on_engine!(self, reader => reader.table())
    }

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.fact(primary_key))
    }

    #[inline]
    fn facts<'k>(
        self,
        primary_keys: impl Iterator<Item = &'k [u8]>,
        each: impl FnMut(Option<&'t [u8]>),
    ) -> Result<()> {
        on_engine!(self, reader => reader.facts(primary_keys, each))
    }

    #[inline]
    fn facts_at_once(self) -> usize {
        on_engine!(self, reader => reader.facts_at_once())
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.entry(index, key, primary_key))
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>> {
        on_engine!(self, reader => reader.unique(index, key))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        wrapped!(self, reader => reader.scan(query), Entries)
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        wrapped!(self, reader => reader.cursor(query), LentEntries)
    }

    fn count(self, query: &Query) -> Result<Count> {
        on_engine!(self, reader => reader.count(query))
    }

    fn stored(self, source: Source) -> Result<Option<u64>> {
        on_engine!(self, reader => reader.stored(source))
    }

    fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.get(space, key))
    }

    fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        on_engine!(self, reader => reader.at_or_above(space, key))
    }

    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        on_engine!(self, reader => reader.below(space, key))
    }

    fn len(self, space: Space) -> Result<u64> {
        on_engine!(self, reader => reader.len(space))
    }
}

/// [`Read::Entries`] of whichever engine.
pub(crate) enum Entries<'t> {
    Lmdb(lmdb::Entries<'t>),
    #[cfg(feature = "memory")]
    Memory(memory::Entries<'t>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        on_engine!(self, entries => entries.next())
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        on_engine!(self, entries => LongLived::row(entries))
    }
}

/// [`Read::Cursor`] of whichever engine.
pub(crate) enum LentEntries<'t> {
    Lmdb(lmdb::LentEntries<'t>),
    #[cfg(feature = "memory")]
    Memory(memory::LentEntries<'t>),
}

impl Cursor for LentEntries<'_> {
    #[expect(clippy::inline_always, reason = "it would be one more call for each entry")]
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        on_engine!(self, entries => entries.advance())
    }

    #[inline]
    fn entry(&self) -> RawEntry<'_> {
        on_engine!(self, entries => entries.entry())
    }

    #[inline]
    fn row(&self) -> Option<&[u8]> {
        on_engine!(self, entries => entries.row())
    }
}

/// [`Write`] of whichever engine.
pub(crate) enum Writer<'t, 's> {
    Lmdb(lmdb::Writer<'t, 's>),
    #[cfg(feature = "memory")]
    Memory(memory::Writer<'t>),
}

impl<'t, 's> Writer<'t, 's> {
    /// Reads what the transaction has written so far.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Lmdb(writer) => Reader::Lmdb(writer.reader()),
            #[cfg(feature = "memory")]
            Self::Memory(writer) => Reader::Memory(writer.reader()),
        }
    }

    /// The physical entries of LMDB, which no other engine has.
    #[cfg_attr(
        not(feature = "memory"),
        expect(clippy::unnecessary_wraps, reason = "there may be others")
    )]
    pub(crate) const fn lmdb(&mut self) -> Option<&mut lmdb::Writer<'t, 's>> {
        match self {
            Self::Lmdb(writer) => Some(writer),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }
}

impl Sink for Writer<'_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        on_engine!(self, writer => writer.change(change))
    }
}

impl Write for Writer<'_, '_> {
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        on_engine!(self, writer => writer.append(source, entries))
    }

    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        on_engine!(self, writer => writer.insert_fact(primary_key, row))
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        on_engine!(self, writer => writer.insert_entry(index, key, primary_key, data))
    }

    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        on_engine!(self, writer => writer.put_shared(index, key, primary_key, data))
    }

    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.remove_shared(index, key, primary_key))
    }

    fn flush(&mut self) -> Result<()> {
        on_engine!(self, writer => writer.flush())
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        on_engine!(self, writer => writer.clear(index))
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.put(space, key, record))
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.remove(space, key))
    }

    fn clear_space(&mut self, space: Space) -> Result<()> {
        on_engine!(self, writer => writer.clear_space(space))
    }

    fn layout(&self, index: &IndexSchema) -> &'static str {
        on_engine!(self, writer => writer.layout(index))
    }
}
