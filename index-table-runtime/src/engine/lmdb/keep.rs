//! The records of lists: each commit of a data file writes those that the file lacks.
//!
//! So a file has the list of each of its rows, whatever wrote the row: a transaction, a load, a build, a move. A commit
//! compares one number, unless a table has new lists.

use std::sync::{Arc, atomic::Ordering};

use heed::RwTxn;

use super::{
    env::Engine,
    journal::recorder::Recorder,
    names::{CATALOG, Database},
};
use crate::engine::CommitFailure;
use crate::model::{
    error::Error,
    lists::{Contradicted, LISTS, Lists, Registry, decode},
};

/// The records that a commit writes.
#[derive(Default)]
pub(super) struct Kept {
    generation: u64,
    recorded: Vec<(Arc<Lists>, u64)>,
}

impl Engine {
    /// Uses the lists of a store. A data file can be opened as a store of its own, and then be a shard.
    pub(crate) fn use_lists(&self, lists: &Arc<Registry>) {
        let mut own = self.lists.write();
        if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own, lists)) {
            *own = Some(Arc::clone(lists));
            self.kept.store(u64::MAX, Ordering::Release);
        }
    }

    /// Writes the records that the data file lacks. With `all`, the file may have got another table.
    ///
    /// # Errors
    ///
    /// The errors of LMDB. [`CommitFailure::Conflict`] if another process has recorded other lists of a table: rows of the
    /// transaction can be of lists that nobody records. Not with `all`, because the transaction that opens a table has read them.
    #[inline]
    pub(super) fn keep_lists(
        &self,
        txn: &mut RwTxn<'_>,
        catalog: Option<Database<'_>>,
        recorder: &mut Recorder,
        all: bool,
    ) -> Result<Kept, CommitFailure> {
        let lists = self.lists.read().clone();
        let (Some(lists), Some(catalog)) = (lists, catalog) else {
            return Ok(Kept::default());
        };
        let generation = lists.generation();
        if !all && generation == self.kept.load(Ordering::Acquire) {
            return Ok(Kept { generation, recorded: Vec::new() });
        }
        self.keep_new(&lists, generation, txn, (catalog, recorder), all)
    }

    #[cold]
    fn keep_new(
        &self,
        lists: &Registry,
        generation: u64,
        txn: &mut RwTxn<'_>,
        (catalog, recorder): (Database<'_>, &mut Recorder),
        all: bool,
    ) -> Result<Kept, CommitFailure> {
        let failed = |error| CommitFailure::Failed(self.error(error));
        let mut kept = Kept { generation, recorded: Vec::new() };
        for (table, lists) in lists.all() {
            if catalog.get(txn, table.as_bytes()).map_err(failed)?.is_none() {
                continue;
            }
            let name = format!("{table}.{LISTS}");
            let found = catalog.get(txn, name.as_bytes()).map_err(failed)?;
            let found = found.and_then(decode);
            let (version, record) = match lists.to_keep(found) {
                Ok(Some(kept)) => kept,
                Err(Contradicted) if !all => return Err(CommitFailure::Conflict(lost(table))),
                Ok(None) | Err(Contradicted) => continue,
            };
            catalog.put(txn, name.as_bytes(), &record).map_err(failed)?;
            recorder.put(CATALOG, name.as_bytes(), &record).map_err(failed)?;
            kept.recorded.push((lists, version));
        }
        Ok(kept)
    }

    /// Notes that the records are in the data file.
    #[inline]
    pub(super) fn kept(&self, Kept { generation, recorded }: Kept) {
        self.kept.store(generation, Ordering::Release);
        for (lists, version) in recorded {
            lists.note_recorded(version);
        }
    }
}

#[cold]
fn lost(table: &str) -> Error {
    Error::TransactionFailed {
        reason: format!(
            "another process has recorded other fields of the rows of table `{table}`; run it again"
        ),
    }
}
