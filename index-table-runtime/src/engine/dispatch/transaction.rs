//! Transactions of any engine, and commits of several stores together.

use std::path::PathBuf;

#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        CommitFailure, NotVisible, Retry, Stamp,
        dispatch::{Reader, Tables, Writer},
        forward::{forward, of_each_engine, on_engine},
        lmdb,
    },
    model::error::Result,
};

of_each_engine! {
    /// A transaction, read or write.
    enum Txn<'s> { lmdb::Txn<'s>, memory::Txn<'s>, postgres::Txn<'s> }
}

impl<'s> Txn<'s> {
    /// Returns the default directory of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Lmdb(txn) => txn.engine().directory().to_owned(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => std::env::temp_dir(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => std::env::temp_dir(),
        }
    }

    /// From now on, checks the pages of LMDB before it reads them; see [`lmdb::Txn::check_pages`].
    pub(crate) fn check_pages(&self) -> Result<()> {
        match self {
            Self::Lmdb(txn) => txn.check_pages(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Returns the stamp of the commit that this transaction reads. All stamps of an engine without other processes
    /// are equal here, because the record of a table can't change.
    #[inline]
    pub(crate) fn found(&self) -> Stamp {
        match self {
            Self::Lmdb(txn) => txn.found(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Stamp::default(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Stamp::UNKNOWN,
        }
    }

    forward! {
        on_engine:
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

    /// Lets a write transaction assume that new keys are free. If a key is taken, the commit conflicts, and another
    /// transaction without the assumption returns the error.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn assume_new(&mut self) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(txn) = self {
            txn.assume_new();
        }
    }

    /// Notes that no closure runs again after a conflict of this transaction, which has not begun on the server.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn has_one_attempt(&self) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(txn) = self {
            txn.has_one_attempt();
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

    /// Lets other transactions that call this for the table wait until the end of this one, under the conditions of
    /// [`exclude_writers`](Self::exclude_writers).
    #[cfg_attr(
        not(feature = "postgres"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            unused_variables,
            reason = "of one engine"
        )
    )]
    pub(crate) fn exclude_builders(&self, tables: &Tables) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let (Self::Postgres(txn), Tables::Postgres(tables)) = (self, tables) {
            return txn.exclude_builders(tables);
        }
        Ok(())
    }

    /// Returns a reader of a table; `None` if the table belongs to another kind of engine.
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Option<Reader<'t>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.reader(tables).map(Reader::Lmdb),
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => Some(Reader::Memory(txn.reader(tables))),
            #[cfg(feature = "postgres")]
            (Self::Postgres(txn), Tables::Postgres(tables)) => {
                Some(Reader::Postgres(txn.reader(tables)))
            }
            #[cfg(any(feature = "memory", feature = "postgres"))]
            _ => None,
        }
    }

    /// Returns a writer of a table; `None` for a read transaction, or if the table belongs to another kind of engine.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t, 's>> {
        match (self, tables) {
            (Self::Lmdb(txn), Tables::Lmdb(tables)) => txn.writer(tables).map(Writer::Lmdb),
            #[cfg(feature = "memory")]
            (Self::Memory(txn), Tables::Memory(tables)) => txn.writer(tables).map(Writer::Memory),
            #[cfg(feature = "postgres")]
            (Self::Postgres(txn), Tables::Postgres(tables)) => {
                txn.writer(tables).map(Writer::Postgres)
            }
            #[cfg(any(feature = "memory", feature = "postgres"))]
            _ => None,
        }
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        match self {
            Self::Lmdb(txn) => txn.nested().map(|txn| txn.map(Txn::Lmdb)),
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
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(txn) => txn.retry(),
        }
    }

    forward! {
        on_engine:
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
                #[cfg(feature = "memory")]
                Self::Memory(txn) => of_memory.push(txn),
                #[cfg(feature = "postgres")]
                Self::Postgres(_) => {
                    let error =
                        crate::model::error::Error::internal("a shard on a PostgreSQL server");
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
