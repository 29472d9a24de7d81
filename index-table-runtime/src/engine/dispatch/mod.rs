//! Dispatch to the engines. Each type here has a variant for each engine, and each method is a `match`. The macros in
//! `forward` generate most of them.

mod reader;
mod transaction;
mod writer;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

#[cfg(feature = "async")]
use crate::engine::Later;
#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        Durability, DurabilityReason, ListRecords, Options, Records, Rename, Retry, ServerUsage,
        forward::{forward, of_each_engine, on_engine},
        lmdb,
    },
    model::{
        error::{Error, Result},
        lists::{LISTS, Registry},
        reference::Referrer,
        schema::{IndexSchema, Parts, Source, TableSchema, renamed_to},
        shard::ShardNumber,
    },
};

pub(crate) use reader::{Entries, LentEntries, Reader};
pub(crate) use transaction::Txn;
pub(crate) use writer::Writer;

of_each_engine! {
    /// An open store.
    enum Engine { lmdb::Engine, memory::Engine, postgres::Engine }
}

impl Engine {
    pub(crate) fn open(options: &Options, path: &Path) -> Result<Self> {
        lmdb::Engine::open(options, path).map(Self::Lmdb)
    }

    /// Opens a shard. With [`Durability::Journal`](crate::engine::Durability::Journal), writes fail until the journal of all
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

    /// Returns the use of the server; `None` for another engine.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn server_usage(&self) -> Option<ServerUsage> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            return Some(engine.usage());
        }
        None
    }

    /// Counts a closure that runs again after a conflict.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn note_retry(&self) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            engine.note_retry();
        }
    }

    /// Returns the LMDB environment, for operations that other engines don't have.
    #[cfg_attr(
        not(any(feature = "memory", feature = "postgres")),
        expect(clippy::unnecessary_wraps, reason = "other engines have none")
    )]
    pub(crate) const fn lmdb(&self) -> Option<&lmdb::Engine> {
        match self {
            Self::Lmdb(engine) => Some(engine),
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

    /// Returns the LMDB environment, or an error if the store is sharded or in memory.
    #[cfg_attr(
        not(any(feature = "memory", feature = "postgres")),
        expect(clippy::unnecessary_wraps, reason = "other engines have none")
    )]
    pub(crate) fn on_disk(&self) -> Result<&lmdb::Engine> {
        match self {
            Self::Lmdb(engine) => Ok(engine),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Err(Error::no_file()),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(Error::NotOffered {
                what: "copies, because it is on a PostgreSQL server; use the server's backups",
            }),
        }
    }

    forward! {
        on_engine:
        /// Begins a read transaction.
        pub(crate) fn read(&self) -> Result<Txn<'_>> as Txn;

        /// Begins a write transaction.
        pub(crate) fn write(&self) -> Result<Txn<'_>> as Txn;

        /// Prepares another run of a closure. This thread must have no transaction. Returns false if the run would
        /// fail in the same way.
        pub(crate) fn prepare(&self, retry: Retry) -> Result<bool>;
    }

    /// Begins a read transaction that sees the result of the write transactions in some order.
    pub(crate) fn read_serializable(&self) -> Result<Txn<'_>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            return engine.read_serializable().map(Txn::Postgres);
        }
        self.read()
    }

    /// Begins a read transaction that may take its snapshot when it is first used.
    pub(crate) fn read_later(&self) -> Result<Txn<'_>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(engine) = self {
            return engine.read_later().map(Txn::Postgres);
        }
        self.read()
    }

    /// Returns a future that looks up a row without a transaction of this thread, for asynchronous callers; `None` in an engine whose look-ups
    /// don't wait for a server. The future begins with its first poll, and borrows nothing.
    #[cfg(feature = "async")]
    pub(crate) fn get_later(
        &self,
        tables: &Tables,
        primary_key: &[u8],
    ) -> Option<Later<Option<Vec<u8>>>> {
        #[cfg(feature = "postgres")]
        if let (Self::Postgres(engine), Tables::Postgres(tables)) = (self, tables) {
            return Some(engine.get_later(tables, primary_key));
        }
        #[cfg(not(feature = "postgres"))]
        let _ = (self, tables, primary_key);
        None
    }

    /// Returns a read transaction without a snapshot, in the place of a snapshot that has to end. It is not used to read.
    #[cfg_attr(
        not(any(feature = "memory", feature = "postgres")),
        expect(clippy::unnecessary_wraps, reason = "other engines can fail")
    )]
    pub(crate) fn without_snapshot(&self) -> Result<Txn<'_>> {
        match self {
            Self::Lmdb(engine) => Ok(Txn::Lmdb(lmdb::Txn::over(engine))),
            #[cfg(feature = "memory")]
            Self::Memory(_) => self.read(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => self.read_later(),
        }
    }

    /// Returns the durability of commits, and why it is not that of a journal.
    pub(crate) fn durability(&self) -> (Durability, Option<DurabilityReason>) {
        match self {
            Self::Lmdb(engine) => engine.durability(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => (Durability::None, Some(DurabilityReason::Memory)),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => (Durability::Full, Some(DurabilityReason::Server)),
        }
    }

    /// Returns why the store can't have a second data file.
    #[cold]
    pub(crate) const fn why_one(&self) -> &'static str {
        match self {
            Self::Lmdb(_) => {
                "a second shard, because it has one data file; `Store::add_shard` adds another one"
            }
            #[cfg(feature = "memory")]
            Self::Memory(_) => {
                "a second shard, because it was created without shards; create it by \
                 `Store::options().shard(…).in_memory()`"
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "a second shard, because it is on a PostgreSQL server",
        }
    }

    /// Tells other clients of the store that this one has a table open for writing and maintains these parts, or that it no longer
    /// does.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unnecessary_wraps, reason = "a server can refuse it")
    )]
    pub(crate) fn note_client(&self, table: &str, parts: &[u64], is_open: bool) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.note_client(table, parts, is_open),
            #[cfg(feature = "memory")]
            Self::Memory(_) => {}
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.note_client(table, parts, is_open)?,
        }
        Ok(())
    }

    /// Returns for each of these parts whether another client has the table open without it.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unnecessary_wraps, reason = "a server can refuse it")
    )]
    pub(crate) fn others_lack(&self, table: &str, parts: &[u64]) -> Result<Vec<bool>> {
        match self {
            Self::Lmdb(engine) => Ok(engine.others_lack(table, parts)),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(vec![false; parts.len()]),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.others_lack(table, parts),
        }
    }

    /// Returns the default directory of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(engine) => engine.directory().to_owned(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => std::env::temp_dir(),
        }
    }

    /// Returns the directory or the server of the store, for errors.
    pub(crate) fn location(&self) -> PathBuf {
        match self {
            Self::Lmdb(engine) => engine.directory().to_owned(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => "memory".into(),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.location(),
        }
    }

    /// Uses the lists of a store. Each commit of a data file then writes the records of lists that the file lacks.
    pub(crate) fn use_lists(&self, lists: &Arc<Registry>) {
        match self {
            Self::Lmdb(engine) => engine.use_lists(lists),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => engine.use_lists(lists),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
        }
    }

    /// Whether the store is in memory.
    pub(crate) const fn is_in_memory(&self) -> bool {
        match self {
            Self::Lmdb(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => true,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => false,
        }
    }

    /// Sets the place of the turn to write this shard among the turns of all shards.
    pub(crate) fn set_place(&self, place: u64) {
        match self {
            Self::Lmdb(engine) => engine.set_place(place),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => engine.set_place(place),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
        }
    }

    /// Returns an error if this process has inherited the store in a fork.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        match self {
            Self::Lmdb(engine) => engine.refuse_forked(),
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
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine.refuse_read_only(),
        }
    }

    forward! {
        on_engine:
        /// Whether the catalog can be read without the write lock.
        pub(crate) fn has_catalog(&self) -> bool;

        /// Reads all records of the catalog, with those under the former names of tables.
        pub(crate) fn all_records(&self) -> Result<Records>;

        /// Calls `choose` with the records of the catalog, removes the indexes whose names it returns, with their
        /// records, and returns these names.
        ///
        /// Open tables have the databases `in_use`, by their names in the data file. Such a database stays, with its records. No table
        /// may be opened until this returns.
        ///
        /// # Errors
        ///
        /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
        pub(crate) fn drop_indexes(
            &self,
            in_use: &BTreeSet<String>,
            choose: &mut dyn FnMut(&Records) -> Vec<String>,
        ) -> Result<Vec<String>, (Error, Option<Retry>)>;
    }

    /// Whether the file has got second copies of the records of lists, as far as this process knows.
    pub(crate) fn has_list_copies(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::has_list_copies)
    }

    /// Returns the second copy of the record of a table's lists; `None` if there is none.
    pub(crate) fn list_copy(&self, table: &str) -> Result<Option<Vec<u8>>> {
        self.lmdb().map_or(Ok(None), |engine| engine.list_copy(table))
    }

    /// Returns the record of a table's lists, and its second copy, also while a transaction of this thread is active.
    pub(crate) fn list_records(&self, table: &str) -> Result<ListRecords> {
        if let Some(engine) = self.lmdb() {
            return engine.list_records(table);
        }
        let own = format!("{table}.{LISTS}");
        let found = self.catalog()?.into_iter().find(|(name, _)| *name == own);
        Ok([found.map(|(_, record)| record), None])
    }

    /// Reads the records of the catalog.
    pub(crate) fn catalog(&self) -> Result<Records> {
        let mut records = self.all_records()?;
        records.retain(|(name, record)| name.contains('.') || renamed_to(record).is_none());
        Ok(records)
    }

    /// Opens or creates the databases of a table and calls `prepare`, all in one write transaction. Before, `rename` can change
    /// the records of the catalog, if the table, or a table to which it refers, is new or has a former name. With
    /// `excludes_writers`, concurrent writers of the table wait for it instead of conflicting with it, where the engine
    /// offers that.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "locks of a server"))]
    pub(crate) fn open_or_rename(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        excludes_writers: bool,
        rename: &mut Rename<'_>,
        prepare: &mut dyn FnMut(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        match self {
            Self::Lmdb(engine) => engine
                .open_table(schema, parts, rename, |writer| prepare(Writer::Lmdb(writer)))
                .map(Tables::Lmdb),
            #[cfg(feature = "memory")]
            Self::Memory(engine) => engine
                .open_table(schema, parts, rename, |writer| prepare(Writer::Memory(writer)))
                .map(Tables::Memory),
            #[cfg(feature = "postgres")]
            Self::Postgres(engine) => engine
                .open_table(schema, parts, excludes_writers, rename, |writer| {
                    prepare(Writer::Postgres(writer))
                })
                .map(Tables::Postgres),
        }
    }

    /// Opens or creates the databases of a table that is never renamed; see [`open_or_rename`](Engine::open_or_rename).
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        excludes_writers: bool,
        prepare: &mut dyn FnMut(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        self.open_or_rename(schema, parts, excludes_writers, &mut |_| Ok(()), prepare)
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
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(Some(Tables::Memory(memory::Tables::new(schema, parts)))),
        }
    }

    /// Returns the layout of an index of a table by its name in the catalog.
    pub(crate) fn layout(&self, schema: &TableSchema, index: &IndexSchema) -> &'static str {
        match self {
            Self::Lmdb(_) => lmdb::layout(schema, index),
            #[cfg(feature = "memory")]
            Self::Memory(_) => memory::LAYOUT,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => postgres::LAYOUT,
        }
    }
}

of_each_engine! {
    /// The databases of one table.
    enum Tables { lmdb::Tables<'static>, memory::Tables, postgres::Tables }
}

impl Tables {
    /// Whether older snapshots can read the table: it was in the file when the store was opened, or was opened
    /// before.
    pub(crate) fn were_known(&self) -> bool {
        match self {
            Self::Lmdb(tables) => tables.were_known(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => false,
        }
    }

    /// Returns the names of the databases of the table in the file. Other engines keep no handles to databases.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Lmdb(tables) => tables.names(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Vec::new(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Vec::new(),
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
            #[cfg(any(feature = "memory", feature = "postgres"))]
            _ => {}
        }
    }
}
