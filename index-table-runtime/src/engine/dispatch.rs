//! Dispatch to the engines. Each type here has a variant for each engine, and each method is a `match`. The macros in
//! `forward` generate most of them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

#[cfg(feature = "memory")]
use super::memory;
#[cfg(feature = "postgres")]
use super::postgres;
use super::{
    Ascending, CommitFailure, CommitNumber, Count, Cursor, EntryResult, LongLived, NotVisible,
    Options, Query, Read, Records, Retry, SmallRecords, Space, Stamp, WithRow, Write,
    forward::{forward, of_each_engine, on_engine, unlikely},
    lmdb, read,
    shards::{self, CurrentRouting},
    write,
};
use crate::model::{
    aggregate::Totals,
    entry::RawEntry,
    error::{Boxed, Error, Result},
    maintain::{Change, Sink},
    numbering::Numbering,
    reference::Referrer,
    schema::{IndexSchema, Parts, Source, TableSchema},
    shard::{Routing, ShardNumber, ShardSet},
    stream::Place,
};

of_each_engine! {
    /// An open store.
    enum Engine { lmdb::Engine, Box<shards::Engine>, memory::Engine, postgres::Engine }
}

impl Engine {
    pub(crate) fn open(options: &Options, path: &Path) -> Result<Self> {
        lmdb::Engine::open(options, path).map(Self::Lmdb)
    }

    /// Opens a shard. With [`Durability::Journal`](super::Durability::Journal), writes fail until the journal of all
    /// shards has started.
    pub(crate) fn open_shard(
        options: &Options,
        path: &Path,
        (journal, shard): (&lmdb::SharedJournal, ShardNumber),
    ) -> Result<Self> {
        lmdb::Engine::open_shard(options, path, journal, shard).map(Self::Lmdb)
    }

    #[cfg(feature = "memory")]
    pub(crate) fn in_memory() -> Self {
        Self::Memory(memory::Engine::default())
    }

    /// Opens a store on a server.
    #[cfg(feature = "postgres")]
    pub(crate) fn connect(options: &Options, url: &str) -> Result<Self> {
        postgres::Engine::connect(options, url).map(Self::Postgres)
    }

    /// Whether other clients commit while this process has write transactions. Then, a transaction can fail because of
    /// a [conflict](Retry::Conflict).
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) const fn has_other_writers(&self) -> bool {
        #[cfg(feature = "postgres")]
        if matches!(self, Self::Postgres(_)) {
            return true;
        }
        false
    }

    /// Returns the time in which a closure runs again after conflicts.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) const fn retry_for(&self) -> Duration {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            return engine.retry_for();
        }
        Duration::ZERO
    }

    /// Returns the LMDB environment, for operations that other engines don't have.
    pub(crate) const fn lmdb(&self) -> Option<&lmdb::Engine> {
        match self {
            Self::Lmdb(engine) => Some(engine),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the store on a server.
    #[cfg(feature = "postgres")]
    pub(crate) const fn postgres(&self) -> Option<&postgres::Engine> {
        if let Self::Postgres(engine) = self { Some(engine) } else { None }
    }

    /// Returns each LMDB environment: the environment of the store, or the environments of its available shards.
    pub(crate) fn each_lmdb(&self) -> impl Iterator<Item = &lmdb::Engine> {
        let shards = self.sharded().into_iter().flat_map(shards::Engine::engines);
        self.lmdb().into_iter().chain(shards.filter_map(Self::lmdb))
    }

    /// Returns the LMDB environment, or an error if the store is sharded or in memory.
    pub(crate) fn on_disk(&self) -> Result<&lmdb::Engine> {
        match self {
            Self::Lmdb(engine) => Ok(engine),
            Self::Sharded(_) => Err(Error::NotOffered { what: "copying a sharded store" }),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Err(Error::no_file()),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(Error::NotOffered {
                what: "copies, because it is on a PostgreSQL server; use the server's backups",
            }),
        }
    }

    forward! {
        /// Begins a read transaction.
        pub(crate) fn read(&self) -> Result<Txn<'_>> as Txn;

        /// Begins a write transaction.
        pub(crate) fn write(&self) -> Result<Txn<'_>> as Txn;

        /// Prepares another run of a closure. This thread must have no transaction. Returns false if the run would
        /// fail in the same way.
        pub(crate) fn prepare(&self, retry: Retry) -> Result<bool>;
    }

    /// Begins a read transaction that may take its snapshot when it is first used.
    pub(crate) fn read_later(&self) -> Result<Txn<'_>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            return engine.read_later().map(Txn::Postgres);
        }
        self.read()
    }

    /// Returns the shards of a sharded store.
    pub(crate) const fn sharded(&self) -> Option<&shards::Engine> {
        match self {
            Self::Sharded(engine) => Some(&**engine),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the default directory of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(engine) => engine.directory().to_owned(),
            Self::Sharded(engine) => engine.directory(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => std::env::temp_dir(),
        }
    }

    /// Returns an error if this process has inherited the store in a fork.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.refuse_forked(),
            Self::Sharded(engine) => engine.refuse_forked(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.refuse_forked(),
        }
    }

    /// Whether threads of this process wait for their turn to write, or would soon have to wait.
    pub(crate) fn is_contended(&self) -> bool {
        match self {
            Self::Lmdb(engine) => engine.is_contended(),
            Self::Sharded(engine) => engine.engines().any(Self::is_contended),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => false,
        }
    }

    /// Whether this process can't write the store.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Self::Lmdb(engine) => engine.is_read_only(),
            Self::Sharded(engine) => engine.is_read_only(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.is_read_only(),
        }
    }

    /// Returns an error if this process can't write the store.
    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.refuse_read_only(),
            Self::Sharded(engine) => engine.refuse_read_only(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.refuse_read_only(),
        }
    }

    forward! {
        /// Whether the catalog can be read without the write lock.
        pub(crate) fn has_catalog(&self) -> bool;

        /// Reads all records of the catalog.
        pub(crate) fn catalog(&self) -> Result<Records>;

        /// Calls `choose` with the records of the catalog, removes the indexes whose names it returns, with their
        /// records, and returns these names.
        ///
        /// No open table may have one of the indexes, and no such table may be opened until this returns.
        ///
        /// # Errors
        ///
        /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
        pub(crate) fn drop_indexes(
            &self,
            choose: &mut dyn FnMut(&Records) -> Vec<String>,
        ) -> Result<Vec<String>, (Error, Option<Retry>)>;
    }

    /// Opens or creates the databases of a table and calls `prepare`, all in one write transaction.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        prepare: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        match self {
            Self::Lmdb(engine) => engine
                .open_table(schema, parts, |writer| prepare(&mut Writer::Lmdb(writer)))
                .map(Tables::Lmdb),
            Self::Sharded(_) => Err((Error::internal("a table is opened in its shards"), None)),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => engine
                .open_table(schema, parts, |writer| prepare(&mut Writer::Memory(writer)))
                .map(Tables::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine
                .open_table(schema, parts, |writer| prepare(&mut Writer::Postgres(writer)))
                .map(Tables::Postgres),
        }
    }

    /// Opens the databases of a table in a read-only store. Returns `None` if some are missing.
    pub(crate) fn find_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
    ) -> Result<Option<Tables>> {
        match self {
            Self::Lmdb(engine) => Ok(engine.find_table(schema, parts)?.map(Tables::Lmdb)),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => Ok(engine.find_table(schema, parts)?.map(Tables::Postgres)),
            Self::Sharded(_) => Ok(None),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(None),
        }
    }

    /// Returns the layout of an index of a table by its name in the catalog.
    pub(crate) fn layout(&self, schema: &TableSchema, index: &IndexSchema) -> &'static str {
        match self {
            Self::Lmdb(_) => lmdb::layout(schema, index),
            Self::Sharded(engine) => engine.layout(schema, index),
            #[cfg(feature = "memory")]
            Self::Memory(_) => memory::LAYOUT,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => postgres::LAYOUT,
        }
    }
}

of_each_engine! {
    /// The databases of one table.
    enum Tables { lmdb::Tables<'static>, shards::Tables, memory::Tables, postgres::Tables }
}

impl Tables {
    /// Whether older snapshots can read the table: it was in the file when the store was opened, or was opened
    /// before.
    pub(crate) fn were_known(&self) -> bool {
        match self {
            Self::Lmdb(tables) => tables.were_known(),
            Self::Sharded(tables) => tables.were_known(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => false,
        }
    }

    /// Returns the current mapping of rows to shards; `None` in a store without shards.
    pub(crate) fn routing(&self) -> Option<CurrentRouting<'_>> {
        match self {
            Self::Sharded(tables) => Some(tables.routing()),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Adds a reference of the table `of` to this table. The table `of` was opened last.
    pub(crate) fn link(&self, by: Referrer, of: &Self, source: Source) {
        match (self, of) {
            (Self::Lmdb(tables), Self::Lmdb(of)) => tables.link(by, of, source),
            #[cfg(feature = "memory")]
            (Self::Memory(tables), Self::Memory(of)) => tables.link(by, of, source),
            #[cfg(feature = "postgres")]
            (Self::Postgres(tables), Self::Postgres(of)) => tables.link(by, of, source),
            _ => {}
        }
    }

    /// Whether the rows can be in several shards.
    pub(crate) fn are_split(&self) -> bool {
        self.routing().is_some_and(|routing| routing.is_split())
    }
}

of_each_engine! {
    /// A transaction, read or write.
    enum Txn<'s> { lmdb::Txn<'s>, shards::Txn<'s>, memory::Txn<'s>, postgres::Txn<'s> }
}

impl<'s> Txn<'s> {
    /// Returns the default directory of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(txn) => txn.engine().directory().to_owned(),
            Self::Sharded(txn) => txn.directory(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => std::env::temp_dir(),
        }
    }

    /// Returns the stamp of the commit that this transaction reads. All stamps of an engine without other processes
    /// are equal here, because the record of a table can't change.
    #[inline]
    pub(crate) fn found(&self) -> Stamp {
        match self {
            Self::Lmdb(txn) => txn.found(),
            Self::Sharded(txn) => {
                unlikely();
                txn.found()
            }
            #[cfg(feature = "memory")]
            Self::Memory(_) => Stamp::default(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Stamp::UNKNOWN,
        }
    }

    forward! {
        /// Returns the stamp of the snapshot. For a write transaction, returns the stamp of its future commit.
        pub(crate) fn stamp(&self) -> Stamp;
    }

    /// Returns the stamp of a write transaction that is about to commit. It need not be known if nothing uses it.
    pub(crate) fn final_stamp(&self) -> Stamp {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(txn) = self {
            return txn.known_stamp();
        }
        self.stamp()
    }

    /// Returns the [`commit_number`](Self::commit_number) of a write transaction that is about to commit.
    pub(crate) fn final_number(&self) -> CommitNumber {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(txn) = self {
            return txn.known_stamp().commit_number();
        }
        self.commit_number()
    }

    /// Lets a write transaction assume that new keys are free. If a key is taken, the commit conflicts, and another
    /// transaction without the assumption returns the error.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn assume_new(&mut self) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(txn) = self {
            txn.assume_new();
        }
    }

    /// Lets other writers of the table wait until the end of this transaction, if its engine lets several transactions write
    /// at the same time, and the transaction has not begun on the server.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn exclude_writers(&self, tables: &Tables) {
        #[cfg(feature = "postgres")]
        if let (Self::Postgres(txn), Tables::Postgres(tables)) = (self, tables) {
            txn.exclude_writers(tables);
        }
    }

    /// Returns the transactions of the shards of a sharded store.
    pub(crate) const fn sharded(&self) -> Option<&shards::Txn<'s>> {
        match self {
            Self::Sharded(txn) => Some(txn),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the transactions of the shards of a sharded store.
    pub(crate) const fn sharded_mut(&mut self) -> Option<&mut shards::Txn<'s>> {
        match self {
            Self::Sharded(txn) => Some(txn),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the numbers of the last commits in the snapshot of each shard.
    pub(crate) fn commit_number(&self) -> CommitNumber {
        match self {
            Self::Sharded(txn) => CommitNumber::of_shards(txn.stamps()),
            Self::Lmdb(_) => self.stamp().commit_number(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => self.stamp().commit_number(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => self.stamp().commit_number(),
        }
    }

    /// Returns a reader of a table; `None` if the table belongs to another kind of engine.
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Option<Reader<'t>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.reader(tables).map(Reader::Lmdb),
            (Self::Sharded(txn), Tables::Sharded(tables)) => {
                unlikely();
                Some(Reader::Sharded(txn.reader(tables)))
            }
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => Some(Reader::Memory(txn.reader(tables))),
            #[cfg(feature = "postgres")]
            (Self::Postgres(txn), Tables::Postgres(tables)) => {
                Some(Reader::Postgres(txn.reader(tables)))
            }
            _ => None,
        }
    }

    /// Returns a writer of a table; `None` for a read transaction, or if the table belongs to another kind of engine.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t, 's>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.writer(tables).map(Writer::Lmdb),
            (Self::Sharded(txn), Tables::Sharded(tables)) => {
                unlikely();
                txn.writer(tables).map(Writer::Sharded)
            }
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => txn.writer(tables).map(Writer::Memory),
            #[cfg(feature = "postgres")]
            (Self::Postgres(txn), Tables::Postgres(tables)) => {
                txn.writer(tables).map(Writer::Postgres)
            }
            _ => None,
        }
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        match self {
            Self::Lmdb(txn) => txn.nested().map(|txn| txn.map(Txn::Lmdb)),
            Self::Sharded(txn) => txn.nested().map(|txn| txn.map(Txn::Sharded)),
            #[cfg(feature = "memory")]
            Self::Memory(txn) => txn.nested().map(|txn| Ok(Txn::Memory(txn))),
            #[cfg(feature = "postgres")]
            Self::Postgres(txn) => txn.nested().map(|txn| txn.map(Txn::Postgres)),
        }
    }

    /// Returns the reason why the closure must run again, even if it succeeded.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match self {
            Self::Lmdb(txn) => txn.retry(),
            Self::Sharded(txn) => {
                unlikely();
                txn.retry()
            }
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(txn) => txn.retry(),
        }
    }

    forward! {
        /// Commits, and calls `committed` before another write transaction of this process can begin, unless the engine
        /// has several writers.
        pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<(), CommitFailure>;
    }

    /// Makes the write transactions of several stores durable, but not yet visible. If they share a journal, all of
    /// them are durable or none. All stores must have the same kind of engine.
    pub(crate) fn prepare(txns: Vec<Self>) -> Result<Prepared<'s>, CommitFailure> {
        let mut of_lmdb = Vec::with_capacity(txns.len());
        #[cfg(feature = "memory")]
        let mut of_memory = Vec::new();
        for txn in txns {
            match txn {
                Self::Lmdb(txn) => of_lmdb.push(txn),
                Self::Sharded(_) => {
                    let error = Error::internal("a shard of a shard");
                    return Err(CommitFailure::Failed(error));
                }
                #[cfg(feature = "memory")]
                Self::Memory(txn) => of_memory.push(txn),
                #[cfg(feature = "postgres")]
                Self::Postgres(_) => {
                    let error = Error::internal("a shard on a PostgreSQL server");
                    return Err(CommitFailure::Failed(error));
                }
            }
        }
        let prepared = lmdb::Txn::prepare(of_lmdb)?;
        Ok(Prepared {
            lmdb: prepared,
            #[cfg(feature = "memory")]
            memory: of_memory,
        })
    }
}

/// The durable commits of several stores, which are not all visible yet.
pub(crate) struct Prepared<'s> {
    lmdb: lmdb::Prepared<'s>,
    #[cfg(feature = "memory")]
    memory: Vec<memory::Txn<'s>>,
}

impl Prepared<'_> {
    /// Makes the commits visible, one after the other, and calls `committed` before another transaction of this process
    /// can begin to write.
    pub(crate) fn commit(self, committed: &mut dyn FnMut()) -> Result<(), NotVisible> {
        #[cfg(feature = "memory")]
        if !self.memory.is_empty() {
            memory::Txn::commit_all(self.memory, committed);
            return Ok(());
        }
        self.lmdb.commit(committed)
    }
}

of_each_engine! {
    /// The [`Read`] of any engine.
    #[derive(Clone, Copy)]
    enum Reader<'t> { lmdb::Reader<'t>, shards::Reader<'t>, memory::Reader<'t>, postgres::Reader<'t> }
}

impl<'t> Reader<'t> {
    /// Returns the reader of the shard of a row.
    #[inline]
    pub(crate) fn of_row(self, primary_key: &[u8]) -> Result<Self> {
        let Self::Sharded(reader) = self else { return Ok(self) };
        reader.of_row(primary_key)
    }

    /// Returns the readers of the shards that together have each row exactly once, or of the shard of the rows whose
    /// primary keys begin with `shard_key`.
    pub(crate) fn of_shards(self, shard_key: Option<&[u8]>) -> Result<Vec<Self>> {
        let Self::Sharded(reader) = self else { return Ok(vec![self]) };
        reader.of_shards(shard_key)
    }

    /// Returns the reader of the shard that has all entries of a query and their rows, and adds that shard to `shards`.
    /// Otherwise, returns this reader.
    #[inline]
    pub(crate) fn of_query(self, query: &Query, shards: &mut ShardSet) -> Result<Self> {
        if let Self::Sharded(reader) = self {
            return reader.of_query(query, shards);
        }
        Ok(self)
    }

    /// Adds the shards that a query reads to `shards`, and returns their number; 0 in a store without shards.
    #[inline]
    pub(crate) fn note_shards(self, query: &Query, shards: &mut ShardSet) -> u64 {
        let Self::Sharded(reader) = self else { return 0 };
        reader.note(query, shards)
    }

    /// Adds the shard of a row to `shards`.
    #[inline]
    pub(crate) fn note_shard_of(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Sharded(reader) = self {
            reader.note_row(primary_key, shards);
        }
    }

    /// Adds the shard of a row that an entry refers to, if it can differ from the shard of the entry.
    #[inline]
    pub(crate) fn note_referred(self, primary_key: &[u8], shards: &mut ShardSet) {
        if let Self::Sharded(reader) = self
            && reader.has_global()
        {
            reader.note_row(primary_key, shards);
        }
    }

    /// Returns readers of all shards that have the row with this primary key, or its copies.
    pub(crate) fn in_shards_of(self, primary_key: &[u8]) -> Result<Vec<Self>> {
        if let Self::Sharded(reader) = self
            && reader.routing().is_reference()
        {
            let shards = reader.routing().all_shards().iter();
            return shards.map(|shard| reader.of_shard(*shard)).collect();
        }
        Ok(vec![self.of_row(primary_key)?])
    }

    /// Returns the routing of a table with global indexes, if this transaction has all shards.
    pub(crate) fn global_routing(self) -> Option<&'t Routing> {
        match self {
            Self::Sharded(reader) if reader.spans_global() => Some(reader.routing()),
            _ => None,
        }
    }

    /// Adds the unavailable shards of a query to `missing`, with the reasons.
    pub(crate) fn missing_shards(self, query: &Query, missing: &mut BTreeMap<ShardNumber, Error>) {
        if let Self::Sharded(reader) = self {
            reader.missing(query, missing);
        }
    }

    /// Returns the parts of the table in the shards of a sharded store; `None` in other stores.
    pub(crate) fn parts(self) -> Option<Result<Vec<shards::Part<'t>>>> {
        match self {
            Self::Sharded(reader) => Some(reader.parts()),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns the readers of the shards that can have changes in the stream of the table.
    pub(crate) fn with_changes(self) -> Result<Vec<(ShardNumber, Self)>> {
        if let Self::Sharded(reader) = self {
            return reader.with_changes();
        }
        Ok(vec![(0, self)])
    }

    /// Whether transactions write at the same time, so that no number ascends in the order of their commits.
    pub(crate) const fn is_concurrent(self) -> bool {
        match self {
            Self::Lmdb(_) | Self::Sharded(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// Returns the number of messages in the queue of the table, up to a limit. An engine whose transactions write at the
    /// same time counts them without a conflict with other writers, and may return a number that is a second old.
    pub(crate) fn queued(self, most: u64) -> Result<u64> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.queued(most),
            _ => Ok(self.len(Space::Queue)?.min(most)),
        }
    }

    /// Returns the number of bytes that a table or an index takes; 0 in an engine that does not measure it.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        match self {
            Self::Lmdb(reader) => reader.bytes_of(source),
            Self::Sharded(_) => Ok(0),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.bytes_of(source),
        }
    }

    /// Returns the number of bytes that a space of small records takes, if no other table has records in its database.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        match self {
            Self::Lmdb(reader) => reader.bytes_of_space(space),
            Self::Sharded(_) => Ok(0),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.bytes_of_space(space),
        }
    }

    /// Returns the reference at this position to the table. The readers of the shards of a sharded table have
    /// references; the reader of the whole table has none.
    #[inline]
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        match self {
            Self::Lmdb(reader) => reader.referrer(at),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.referrer(at),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.referrer(at),
        }
    }

    /// Returns the reader of LMDB, for physical entries, which other engines don't have.
    pub(crate) const fn lmdb(self) -> Option<lmdb::Reader<'t>> {
        match self {
            Self::Lmdb(reader) => Some(reader),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    forward! {
        fn table(self) -> &'static TableSchema;
        fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>>;
        #[inline]
        fn facts<'k>(
            self,
            primary_keys: impl Iterator<Item = &'k [u8]>,
            each: impl FnMut(Option<&'t [u8]>),
        ) -> Result<()>;
        #[inline]
        fn facts_at_once(self) -> usize;
        fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>>;
        fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>>;
        #[inline]
        fn unique_row(
            self,
            index: usize,
            key: &[u8],
        ) -> Result<Option<WithRow<'t>>>;
        fn count(self, query: &Query) -> Result<Count>;
        fn stored(self, source: Source) -> Result<Option<u64>>;
        fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>>;
        fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;
        fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>>;
        fn len(self, space: Space) -> Result<u64>;
    }

    fn records(self, space: Space, from: &[u8], limit: usize) -> Result<SmallRecords<'t>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(reader) = self {
            return reader.records(space, from, limit);
        }
        read::one_by_one(self, space, from, limit)
    }

    // For a query of one shard, a sharded store returns the entries of the shard's engine.
    fn scan(self, query: Query) -> Result<Entries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.scan(query).map(Entries::Lmdb),
            Self::Sharded(reader) => {
                unlikely();
                reader.scan(query)
            }
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.scan(query).map(Entries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.scan(query).map(Entries::Postgres),
        }
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        match self {
            Self::Lmdb(reader) => reader.cursor(query).map(LentEntries::Lmdb),
            Self::Sharded(reader) => {
                unlikely();
                reader.cursor(query)
            }
            #[cfg(feature = "memory")]
            Self::Memory(reader) => reader.cursor(query).map(LentEntries::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(reader) => reader.cursor(query).map(LentEntries::Postgres),
        }
    }
}

of_each_engine! {
    /// The [`Read::Entries`] of any engine.
    enum Entries<'t> { lmdb::Entries<'t>, shards::Entries<'t>, memory::Entries<'t>, postgres::Entries<'t> }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    forward! {
        #[inline]
        fn next(&mut self) -> Option<Self::Item>;
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        on_engine!(self, entries => LongLived::row(entries))
    }
}

of_each_engine! {
    /// The [`Read::Cursor`] of any engine.
    enum LentEntries<'t> { lmdb::LentEntries<'t>, shards::LentEntries<'t>, memory::LentEntries<'t>, postgres::LentEntries<'t> }
}

impl Cursor for LentEntries<'_> {
    forward! {
        // Without inlining, each entry costs one more call.
        #[inline(always)]
        fn advance(&mut self) -> Result<bool, Boxed>;
        #[inline]
        fn entry(&self) -> RawEntry<'_>;
        #[inline]
        fn row(&self) -> Option<&[u8]>;
    }
}

of_each_engine! {
    /// The [`Write`] of any engine.
    enum Writer<'t, 's> { lmdb::Writer<'t, 's>, shards::Writer<'t>, memory::Writer<'t>, postgres::Writer<'t> }
}

impl<'t, 's> Writer<'t, 's> {
    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Lmdb(writer) => Reader::Lmdb(writer.reader()),
            Self::Sharded(writer) => {
                unlikely();
                Reader::Sharded(writer.reader())
            }
            #[cfg(feature = "memory")]
            Self::Memory(writer) => Reader::Memory(writer.reader()),
            #[cfg(feature = "postgres")]
            Self::Postgres(writer) => Reader::Postgres(writer.reader()),
        }
    }

    /// Returns a number of the transaction, and the number of earlier calls in this transaction; `None` if the engine's
    /// transactions write one after the other.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn numbered(&self) -> Option<(u64, u64)> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return Some(writer.numbered());
        }
        None
    }

    /// Returns the next number of a block that the engine has taken; `None` if the record of the sequence is changed by the
    /// transaction.
    #[inline]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            unused_variables,
            reason = "of one engine"
        )
    )]
    pub(crate) fn next_number(&self, numbering: &Numbering<'_>) -> Result<Option<u128>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.next_number(numbering);
        }
        Ok(None)
    }

    /// Ends the block of numbers after `error` of an insertion, if another row has the assigned number. With `reruns`, the
    /// transaction runs again.
    #[cold]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn after_number(&self, reruns: bool, error: Error) -> Error {
        #[cfg(feature = "postgres")]
        if let (Self::Postgres(writer), Error::DuplicateKey { .. }) = (self, &error) {
            if reruns {
                return writer.number_is_taken();
            }
            writer.end_numbers();
            let reason = "another client has inserted a row with the assigned number, and the closure can be called once: \
                          repeat the call";
            return Error::TransactionFailed { reason: reason.to_owned() };
        }
        error
    }

    /// Whether changes of totals are added by [`add_totals`](Writer::add_totals), without reading the totals.
    #[inline]
    pub(crate) const fn adds_totals(&self) -> bool {
        match self {
            Self::Lmdb(_) | Self::Sharded(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// Adds a change of the totals of a group.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn add_totals(
        &mut self,
        aggregate: usize,
        group: &[u8],
        change: &Totals,
    ) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.add_totals(aggregate, group, change);
        }
        Err(Error::internal("an engine without stripes"))
    }

    /// Notes that a row has a new primary key.
    #[inline]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn note_key(&self, primary_key: &[u8]) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            writer.note_key(primary_key);
        }
    }

    /// Returns the writer of a sharded store.
    pub(crate) const fn sharded(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::Sharded(writer) => Some(writer),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Whether two rows are in the same shard.
    pub(crate) fn have_same_shard(&self, one: &[u8], other: &[u8]) -> bool {
        let Self::Sharded(writer) = self else { return true };
        one == other || writer.have_same_shard(one, other)
    }

    /// Replaces or removes a small record in the shard of a row, or in each copy of a reference table.
    pub(crate) fn set_beside(
        &mut self,
        primary_key: &[u8],
        space: Space,
        key: &[u8],
        record: Option<&[u8]>,
    ) -> Result<()> {
        match (self, record) {
            (Self::Sharded(writer), _) => writer.set_beside(primary_key, space, key, record),
            (writer, Some(record)) => writer.put(space, key, record),
            (writer, None) => writer.remove(space, key),
        }
    }

    /// Writes records that moves don't copy, in one shard. A store without shards has the shard 0.
    pub(crate) fn beside(
        &mut self,
        shard: ShardNumber,
        write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if let Self::Sharded(writer) = self {
            return writer.beside(shard, write);
        }
        write(self)
    }

    /// Returns the shards that can have changes in the stream of the table, or the only shard of the transaction.
    pub(crate) fn with_changes(&self) -> Vec<ShardNumber> {
        if let Self::Sharded(writer) = self {
            return writer.with_changes();
        }
        vec![0]
    }

    /// Writes in the shard of a row.
    pub(crate) fn in_shard_of(
        &mut self,
        primary_key: &[u8],
        write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if let Self::Sharded(writer) = self {
            return writer.in_shard_of(primary_key, write);
        }
        write(self)
    }

    /// Returns the writer of a sharded table with global indexes.
    #[inline]
    pub(crate) const fn with_global(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::Sharded(writer) if writer.has_global() => Some(writer),
            _ => None,
        }
    }

    /// Returns the writer of LMDB, for physical entries, which other engines don't have.
    pub(crate) const fn lmdb(&mut self) -> Option<&mut lmdb::Writer<'t, 's>> {
        match self {
            Self::Lmdb(writer) => Some(writer),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

impl Sink for Writer<'_, '_> {
    forward! {
        fn change(&mut self, change: Change<'_>) -> Result<()>;
    }
}

impl Write for Writer<'_, '_> {
    forward! {
        fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64>;
        #[inline]
        fn defer_new(&mut self) -> bool;
        fn settle_new(&mut self) -> Result<bool>;
        fn abandon_new(&mut self) -> ();
        fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool>;
        fn insert_entry(
            &mut self,
            index: usize,
            key: &[u8],
            primary_key: &[u8],
            data: &[u8],
        ) -> Result<bool>;
        fn put_shared(
            &mut self,
            index: usize,
            key: &[u8],
            primary_key: &[u8],
            data: &[u8],
        ) -> Result<()>;
        fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()>;
        fn flush(&mut self) -> Result<()>;
        fn clear(&mut self, index: usize) -> Result<()>;
        fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()>;
        fn remove(&mut self, space: Space, key: &[u8]) -> Result<()>;
        fn clear_space(&mut self, space: Space) -> Result<()>;
        fn layout(&self, index: &IndexSchema) -> &'static str;
    }

    fn exchange(
        &mut self,
        space: Space,
        removed: &[Vec<u8>],
        written: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.exchange(space, removed, written);
        }
        write::one_by_one(self, space, removed, written)
    }

    fn place_of_change(&mut self) -> Option<Place> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.place_of_change();
        }
        None
    }
}
