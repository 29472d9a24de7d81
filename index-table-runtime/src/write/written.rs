//! The state of a write transaction for each table that it writes.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock, atomic::AtomicU64},
    thread,
};

use super::{
    changes::Orders,
    maintenance::MaintenancePlan,
    queue::{Ends, Outbox},
    watch::{Watched, Watchers},
};
use crate::{
    locks::{Mutex, MutexGuard},
    model::{
        error::{Error, Result},
        key::DecodeError,
        lists::Lineage,
        maintain::Image,
    },
    usage::{RowWrite, TableCounters, Tally, trace},
};

/// The counters and subscribers that receive the result of a commit. Transactions that write the table keep this
/// value until they end.
pub(crate) struct SharedTable {
    /// The usage of the table.
    pub(crate) usage: Arc<TableCounters>,
    /// The subscribers to the table.
    pub(crate) watchers: Watchers,
    /// The last commit whose catalog is known to have the table's declaration.
    pub(crate) as_declared: AtomicU64,
    /// The function that gets expired rows before they are deleted.
    pub(crate) archive: Mutex<Option<Archive>>,
    /// The places of the table's changes in the order of all shards; empty in a store without shards.
    pub(crate) orders: OnceLock<Orders>,
}

/// The tables that a transaction writes.
pub(crate) struct WrittenTables {
    tables: Vec<Written>,
    /// Whether changes are reported if this is dropped without [`end`](Self::end).
    is_reported: bool,
}

impl WrittenTables {
    pub(crate) const fn new() -> Self {
        Self { tables: Vec::new(), is_reported: false }
    }

    /// Lets changes be reported if this is dropped without [`end`](Self::end).
    pub(crate) const fn report_loss(&mut self) {
        self.is_reported = true;
    }

    /// Notes that the transaction is committed, or that its caller gets an error.
    pub(crate) const fn end(&mut self) {
        self.is_reported = false;
    }

    /// Returns the tables of a transaction that has ended.
    pub(crate) fn take(mut self) -> Vec<Written> {
        self.is_reported = false;
        std::mem::take(&mut self.tables)
    }

    #[cold]
    fn note_loss(&self) {
        // The panic is reported elsewhere.
        if thread::panicking() {
            return;
        }
        let changed = || self.tables.iter().filter(|own| own.tally.row_count() > 0);
        for table in changed() {
            table.shared.usage.note_uncommitted();
        }
        if changed().next().is_some() {
            trace::uncommitted(changed().map(|table| table.shared.usage.schema.name));
        }
    }
}

impl Drop for WrittenTables {
    #[inline]
    fn drop(&mut self) {
        if self.is_reported && !self.tables.is_empty() {
            self.note_loss();
        }
    }
}

impl Deref for WrittenTables {
    type Target = Vec<Written>;

    fn deref(&self) -> &Vec<Written> {
        &self.tables
    }
}

impl DerefMut for WrittenTables {
    fn deref_mut(&mut self) -> &mut Vec<Written> {
        &mut self.tables
    }
}

/// A function that gets the bytes of rows before they are deleted. It returns the positions of those that can't be read, and
/// leaves them out.
pub(crate) type Archive =
    Arc<dyn Fn(&[Vec<u8>]) -> Result<Vec<(usize, DecodeError)>> + Send + Sync>;

impl SharedTable {
    /// Locks the function that gets expired rows.
    pub(crate) fn archive(&self) -> MutexGuard<'_, Option<Archive>> {
        self.archive.lock()
    }
}

/// A table that the transaction writes.
pub(crate) struct Written {
    /// The `OpenTable::opened` of the table.
    pub(crate) opened: u64,
    pub(crate) tally: Tally,
    /// `None` if all indexes are maintained as declared.
    pub(crate) plan: Option<MaintenancePlan>,
    /// The notes for the subscribers of the table.
    pub(crate) watched: Watched,
    /// Whether a load has started to write its rows and has not finished. Then, the transaction must not be
    /// committed.
    pub(crate) unfinished: bool,
    pub(crate) shared: Arc<SharedTable>,
    /// The lists of its rows.
    pub(crate) lineage: Lineage,
}

impl Written {
    /// Records a written row, which replaces `old`.
    pub(crate) fn row(&mut self, kind: RowWrite, old: Option<&Image>, new: Option<&Image>) {
        self.tally.row(kind);
        self.watched.note(old, new);
    }

    /// Fails if the transaction must not be committed.
    pub(crate) fn refuse_unfinished(&self) -> Result<()> {
        if self.unfinished {
            let table = self.shared.usage.schema.name;
            return Err(Error::TransactionFailed {
                reason: format!("a load into table `{table}` has failed before its end"),
            });
        }
        Ok(())
    }

    /// Adds the writes of a nested transaction to the same table.
    pub(crate) fn add(&mut self, more: Self) {
        self.tally.add(&more.tally);
        self.watched.add(more.watched);
        match (&mut self.plan, more.plan) {
            (Some(outer), Some(inner)) => outer.continue_with(inner),
            (outer, inner) => *outer = inner,
        }
    }

    /// Returns the numbers of the last messages that have to be applied for the written rows.
    pub(crate) fn token(&self) -> Ends {
        let later = self.plan.as_ref().and_then(MaintenancePlan::later);
        later.map(Outbox::token).unwrap_or_default()
    }

    /// Whether the transaction leaves messages for workers.
    pub(crate) fn has_left(&self) -> bool {
        self.plan.as_ref().and_then(MaintenancePlan::later).is_some_and(Outbox::has_left)
    }
}
