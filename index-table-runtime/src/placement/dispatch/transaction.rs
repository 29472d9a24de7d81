//! A transaction of one engine or of several shards.

use std::path::PathBuf;

use super::{Reader, Tables, Writer, on_each, unlikely};
use crate::{
    engine::{self, CommitFailure, CommitNumber, Retry, Stamp, forward},
    model::error::Result,
    placement::shards,
};

/// A transaction, read or write.
#[allow(
    clippy::large_enum_variant,
    reason = "one engine is the usual case, and would be reached by a pointer"
)]
pub(crate) enum Txn<'s> {
    One(engine::Txn<'s>),
    Several(shards::Txn<'s>),
}

impl<'s> Txn<'s> {
    forward! {
        on_each:
        /// Returns the default directory of temporary files.
        pub(crate) fn directory(&self) -> PathBuf;

        /// Returns the stamp of the commit that this transaction reads. All stamps of an engine without other processes
        /// are equal here, because the record of a table can't change.
        #[inline]
        pub(crate) fn found(&self) -> Stamp;

        /// Returns the stamp of the snapshot. For a write transaction, returns the stamp of its future commit.
        pub(crate) fn stamp(&self) -> Stamp;

        /// Returns the reason why the closure must run again, even if it succeeded.
        pub(crate) fn retry(&self) -> Option<Retry>;

        /// Commits, and calls `committed` before another write transaction of this process can begin, unless the engine
        /// has several writers.
        pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<(), CommitFailure>;
    }

    /// From now on, checks the pages of LMDB before it reads them.
    pub(crate) fn check_pages(&self) -> Result<()> {
        match self {
            Self::One(txn) => txn.check_pages(),
            Self::Several(txn) => txn.check_pages(),
        }
    }

    /// Returns the stamp of a write transaction that is about to commit. It need not be known if nothing uses it.
    pub(crate) fn final_stamp(&self) -> Stamp {
        match self {
            Self::One(txn) => txn.final_stamp(),
            Self::Several(_) => self.stamp(),
        }
    }

    /// Returns the numbers of the last commits in the snapshot of each shard.
    pub(crate) fn commit_number(&self) -> CommitNumber {
        match self {
            Self::One(_) => self.stamp().commit_number(),
            Self::Several(txn) => CommitNumber::of_shards(txn.stamps()),
        }
    }

    /// Returns the [`commit_number`](Self::commit_number) of a write transaction that is about to commit.
    pub(crate) fn final_number(&self) -> CommitNumber {
        match self {
            Self::One(txn) => txn.final_stamp().commit_number(),
            Self::Several(_) => self.commit_number(),
        }
    }

    /// Lets a write transaction assume that new keys are free. If a key is taken, the commit conflicts, and another
    /// transaction without the assumption returns the error.
    pub(crate) fn assume_new(&mut self) {
        if let Self::One(txn) = self {
            txn.assume_new();
        }
    }

    /// Notes that no closure runs again after a conflict of this transaction, which has not begun on the server.
    pub(crate) fn has_one_attempt(&self) {
        if let Self::One(txn) = self {
            txn.has_one_attempt();
        }
    }

    /// Lets other writers of the table wait until the end of this transaction, if its engine lets several transactions write
    /// at the same time, and the transaction has not begun on the server.
    pub(crate) fn exclude_writers(&self, tables: &Tables) {
        if let (Self::One(txn), Some(tables)) = (self, tables.one()) {
            txn.exclude_writers(tables);
        }
    }

    /// Lets other transactions that call this for the table wait until the end of this one, under the conditions of
    /// [`exclude_writers`](Self::exclude_writers).
    pub(crate) fn exclude_builders(&self, tables: &Tables) -> Result<()> {
        match (self, tables.one()) {
            (Self::One(txn), Some(tables)) => txn.exclude_builders(tables),
            _ => Ok(()),
        }
    }

    /// Returns the transactions of the shards; `None` for one engine.
    pub(crate) const fn several(&self) -> Option<&shards::Txn<'s>> {
        match self {
            Self::One(_) => None,
            Self::Several(txn) => Some(txn),
        }
    }

    /// Returns the transactions of the shards; `None` for one engine.
    pub(crate) const fn several_mut(&mut self) -> Option<&mut shards::Txn<'s>> {
        match self {
            Self::One(_) => None,
            Self::Several(txn) => Some(txn),
        }
    }

    /// Returns a reader of a table; `None` if the table belongs to another kind of engine.
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Option<Reader<'t>> {
        match self {
            Self::One(txn) => txn.reader(tables.one()?).map(Reader::One),
            Self::Several(txn) => {
                unlikely();
                Some(Reader::Several(txn.reader(tables.several()?)))
            }
        }
    }

    /// Returns a writer of a table; `None` for a read transaction, or if the table belongs to another kind of engine.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t, 's>> {
        match self {
            Self::One(txn) => txn.writer(tables.one()?).map(Writer::One),
            Self::Several(txn) => {
                unlikely();
                txn.writer(tables.several()?).map(Writer::Several)
            }
        }
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        match self {
            Self::One(txn) => txn.nested().map(|txn| txn.map(Txn::One)),
            Self::Several(txn) => txn.nested().map(|txn| txn.map(Txn::Several)),
        }
    }
}
