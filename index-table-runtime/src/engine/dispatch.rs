//! Which engine it is: each type here is one variant for each engine, and each method a `match`.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Ascending, Count, Piece, Read, Records, Step, Write};
use crate::model::entry::RawEntry;
#[cfg(feature = "memory")]
use crate::{engine::memory, model::error::Error};
use crate::{
    engine::{CopyKind, Options, Query, lmdb},
    model::{
        error::Result,
        maintain::{Change, Sink},
        schema::{IndexSchema, Source, TableSchema},
    },
};

/// Calls the same method on whichever engine it is.
macro_rules! on_engine {
    ($value:expr, $engine:ident => $call:expr) => {
        match $value {
            Self::Lmdb($engine) => $call,
            #[cfg(feature = "memory")]
            Self::Memory($engine) => $call,
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

    pub(crate) fn wait_until_closed(path: &Path) {
        lmdb::Engine::wait_until_closed(path);
    }

    #[cfg(feature = "memory")]
    pub(crate) fn in_memory() -> Self {
        Self::Memory(memory::Engine::default())
    }

    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        match self {
            Self::Lmdb(engine) => engine.read().map(Txn::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => Ok(Txn::Memory(engine.read())),
        }
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        match self {
            Self::Lmdb(engine) => engine.write().map(Txn::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => Ok(Txn::Memory(engine.write())),
        }
    }

    /// Where temporary files go by default.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(engine) => engine.directory().to_owned(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
        }
    }

    /// The bytes of its file.
    pub(crate) fn size(&self) -> Result<u64> {
        match self {
            Self::Lmdb(engine) => engine.size(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Err(Error::InMemory),
        }
    }

    /// Writes a snapshot into an empty file.
    pub(crate) fn copy(&self, file: &File, copy: CopyKind) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.copy(file, copy),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Err(Error::InMemory),
        }
    }

    /// Looks at each page of its file that is in use.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.check(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
        }
    }

    /// Refuses a store that this process has inherited from the one it was forked from.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.refuse_forked(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
        }
    }

    /// How many read transactions this process has, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        match self {
            Self::Lmdb(engine) => engine.readers(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => (0, None),
        }
    }

    /// Gives back the slots of readers whose processes have died; how many there were.
    pub(crate) fn clear_stale_readers(&self) -> Result<usize> {
        match self {
            Self::Lmdb(engine) => engine.clear_stale_readers(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
        }
    }

    /// The size of the map when the write transaction met its end, if it did.
    pub(crate) fn full_at(&self) -> Option<usize> {
        match self {
            Self::Lmdb(engine) => engine.full_at(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    /// Whether the write transaction, or one inside of it, could change no more pages.
    pub(crate) fn is_too_large(&self) -> bool {
        match self {
            Self::Lmdb(engine) => engine.is_too_large(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
        }
    }

    /// Maps more than was there when it was full; `false`: that's the most.
    pub(crate) fn grow(&self, full_at: usize) -> Result<bool> {
        match self {
            Self::Lmdb(engine) => engine.grow(full_at),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(false),
        }
    }

    /// Whether the catalog can be read without a turn to write.
    pub(crate) fn has_catalog(&self) -> bool {
        match self {
            Self::Lmdb(engine) => engine.has_catalog(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => true,
        }
    }

    /// All that the catalog has.
    pub(crate) fn catalog(&self) -> Result<Records> {
        match self {
            Self::Lmdb(engine) => engine.catalog(),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => Ok(engine.catalog()),
        }
    }

    /// Removes the indexes that `choose` names as the catalog does, with their records; the answer is
    /// their names. It may be asked more than once.
    ///
    /// No table that is open may have one of them, nor be opened until this is done.
    pub(crate) fn drop_indexes(
        &self,
        choose: impl FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>> {
        match self {
            Self::Lmdb(engine) => engine.drop_indexes(choose),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => Ok(engine.drop_indexes(choose)),
        }
    }

    /// Opens or creates the databases of a table and lets `prepare` look at them, all in one
    /// write transaction, which may be run more than once.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        mut prepare: impl FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables> {
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
}

/// The databases of one table.
pub(crate) enum Tables {
    Lmdb(lmdb::Tables<'static>),
    #[cfg(feature = "memory")]
    Memory(memory::Tables),
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

    /// The number of the commit whose state it has found; 0 where no other process commits.
    #[inline]
    pub(crate) fn snapshot(&self) -> u64 {
        match self {
            Self::Lmdb(txn) => txn.snapshot(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => 0,
        }
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

    /// Begins a transaction inside of this one: committed, it is part of this one, and dropped, it was
    /// not. `None`: a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        match self {
            Self::Lmdb(txn) => txn.nested().map(|txn| txn.map(Txn::Lmdb)),
            #[cfg(feature = "memory")]
            Self::Memory(txn) => txn.nested().map(|txn| Ok(Txn::Memory(txn))),
        }
    }

    /// The number of the commit whose snapshot it is, or, if it writes, that its own has.
    pub(crate) fn number(&self) -> u64 {
        on_engine!(self, txn => txn.number())
    }

    /// Commits, and calls `committed` before another one of this process can begin to write.
    pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<()> {
        match self {
            Self::Lmdb(txn) => txn.commit(committed),
            #[cfg(feature = "memory")]
            Self::Memory(txn) => {
                txn.commit(committed);
                Ok(())
            }
        }
    }
}

/// [`Read`] of whichever engine.
#[derive(Clone, Copy)]
pub(crate) enum Reader<'t> {
    Lmdb(lmdb::Reader<'t>),
    #[cfg(feature = "memory")]
    Memory(memory::Reader<'t>),
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Pieces = Pieces<'t>;

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.fact(primary_key))
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.entry(index, key, primary_key))
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>> {
        on_engine!(self, reader => reader.unique(index, key))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.scan(query).map(Entries::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.scan(query).map(Entries::Memory),
        }
    }

    fn count(self, query: Query) -> Result<Count> {
        on_engine!(self, reader => reader.count(query))
    }

    fn pieces(self, index: usize, behind: Option<&[u8]>) -> Result<Pieces<'t>> {
        match self {
            Self::Lmdb(reader) => reader.pieces(index, behind).map(Box::new).map(Pieces::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.pieces(index, behind).map(Pieces::Memory),
        }
    }

    fn stored(self, source: Source) -> Result<u64> {
        on_engine!(self, reader => reader.stored(source))
    }

    fn record(self, part: &str) -> Result<Option<&'t [u8]>> {
        on_engine!(self, reader => reader.record(part))
    }

    fn recorded_parts(self) -> Result<Vec<String>> {
        on_engine!(self, reader => reader.recorded_parts())
    }

    fn message(self, from: u64) -> Result<Option<(u64, &'t [u8])>> {
        on_engine!(self, reader => reader.message(from))
    }

    fn message_below(self, below: u64) -> Result<Option<(u64, &'t [u8])>> {
        on_engine!(self, reader => reader.message_below(below))
    }

    fn messages(self) -> Result<u64> {
        on_engine!(self, reader => reader.messages())
    }
}

/// [`Read::Entries`] of whichever engine.
pub(crate) enum Entries<'t> {
    Lmdb(lmdb::Entries<'t>),
    #[cfg(feature = "memory")]
    Memory(memory::Entries<'t>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = Step<'t>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        on_engine!(self, entries => entries.next())
    }
}

/// [`Read::Pieces`] of whichever engine.
pub(crate) enum Pieces<'t> {
    Lmdb(Box<lmdb::Pieces<'t>>),
    #[cfg(feature = "memory")]
    Memory(memory::Pieces<'t>),
}

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<Piece<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        on_engine!(self, pieces => pieces.next())
    }
}

/// [`Write`] of whichever engine.
pub(crate) enum Writer<'t, 's> {
    Lmdb(lmdb::Writer<'t, 's>),
    #[cfg(feature = "memory")]
    Memory(memory::Writer<'t>),
}

impl Writer<'_, '_> {
    /// Reads what the transaction has written so far.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Lmdb(writer) => Reader::Lmdb(writer.reader()),
            #[cfg(feature = "memory")]
            Self::Memory(writer) => Reader::Memory(writer.reader()),
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

    fn remove_pieces(&mut self, index: usize, at: &[u8], all: bool) -> Result<bool> {
        on_engine!(self, writer => writer.remove_pieces(index, at, all))
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        on_engine!(self, writer => writer.clear(index))
    }

    fn put_record(&mut self, part: &str, record: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.put_record(part, record))
    }

    fn remove_record(&mut self, part: &str) -> Result<()> {
        on_engine!(self, writer => writer.remove_record(part))
    }

    fn sequence(&self) -> Result<Option<&[u8]>> {
        on_engine!(self, writer => writer.sequence())
    }

    fn put_sequence(&mut self, sequence: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.put_sequence(sequence))
    }

    fn put_message(&mut self, number: u64, message: &[u8]) -> Result<()> {
        on_engine!(self, writer => writer.put_message(number, message))
    }

    fn remove_message(&mut self, number: u64) -> Result<()> {
        on_engine!(self, writer => writer.remove_message(number))
    }

    fn clear_messages(&mut self) -> Result<()> {
        on_engine!(self, writer => writer.clear_messages())
    }

    fn layout(&self, index: &IndexSchema) -> &'static str {
        on_engine!(self, writer => writer.layout(index))
    }
}
