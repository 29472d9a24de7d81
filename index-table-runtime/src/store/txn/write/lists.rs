//! Recording lists: a transaction that writes a table leaves the current lists of the table in each data file that it
//! writes.

use std::sync::{Arc, atomic::Ordering};

use super::WriteTxn;
use crate::{
    engine::{CommitFailure, ReadRecords as _, Stamp, WriteRecords as _},
    model::{
        error::{Error, Result},
        lists::LISTS,
    },
    placement::Writer,
    store::OpenTable,
    write::Written,
};

/// The lists that a commit records, each with its version.
pub(super) type Recorded = Vec<(Arc<OpenTable>, u64)>;

impl WriteTxn<'_> {
    /// Writes the records of lists that the written data files lack. Before the commit, because rows of the transaction may
    /// be of these lists.
    ///
    /// # Errors
    ///
    /// [`CommitFailure::Conflict`] if another client has recorded other lists since the transaction began.
    #[inline]
    pub(super) fn record_lists(&mut self) -> Result<Recorded, CommitFailure> {
        if self.written.iter().all(Written::has_lists) {
            return Ok(Recorded::new());
        }
        self.record_new_lists()
    }

    #[cold]
    fn record_new_lists(&mut self) -> Result<Recorded, CommitFailure> {
        let mut recorded = Recorded::new();
        for at in 0..self.written.len() {
            let Some(written) = self.written.get(at).filter(|it| !it.has_lists()) else { continue };
            let name = written.shared.usage.schema.name;
            let gone =
                || CommitFailure::Failed(Error::internal("a written table that is not open"));
            let table = self.guard.store().table(name).ok_or_else(gone)?;
            let parts = self.parts_of(&table);
            for (part, shard) in parts {
                self.record_lists_of(&table, &part, shard, &mut recorded)
                    .map_err(CommitFailure::Failed)?;
            }
            if self.written.get(at).is_some_and(Written::has_lost_lists) {
                return Err(CommitFailure::Conflict(Error::TransactionFailed {
                    reason: format!(
                        "another process has recorded other fields of the rows of table `{name}`; run it again"
                    ),
                }));
            }
        }
        Ok(recorded)
    }

    /// Returns the table in each shard that the transaction writes, or the table of the only data file.
    fn parts_of(&self, table: &Arc<OpenTable>) -> Vec<(Arc<OpenTable>, Option<u32>)> {
        let Some(txn) = self.read.engine.several() else { return vec![(Arc::clone(table), None)] };
        let stamps = (0..).zip(txn.stamps());
        let written = stamps.filter(|(_, stamp)| *stamp != Stamp::default());
        written.filter_map(|(shard, _)| Some((table.in_shard(shard)?, Some(shard)))).collect()
    }

    fn record_lists_of(
        &mut self,
        table: &OpenTable,
        part: &Arc<OpenTable>,
        shard: Option<u32>,
        recorded: &mut Recorded,
    ) -> Result<()> {
        let lists = &table.rows.lists;
        if part.shared.recorded.load(Ordering::Acquire) >= lists.version() {
            return Ok(());
        }
        let missing = || Error::internal("a write transaction without a writer");
        let mut writer = self.read.engine.writer(&table.tables).ok_or_else(missing)?;
        let mut write = |writer: &mut Writer<'_, '_>| {
            let found = writer.reader().record(LISTS)?.map(<[u8]>::to_vec);
            if shard.is_none()
                && let Some(found) = &found
            {
                lists.see(found);
            }
            let (version, record) = lists.record();
            if found.is_none_or(|found| found != record) {
                writer.put_record(LISTS, &record)?;
            }
            recorded.push((Arc::clone(part), version));
            Ok(())
        };
        match shard {
            Some(shard) => writer.beside(shard, &mut write),
            None => write(&mut writer),
        }
    }
}

/// Notes the lists that were committed.
#[inline]
pub(super) fn note(recorded: Recorded) {
    for (part, version) in recorded {
        part.shared.recorded.fetch_max(version, Ordering::AcqRel);
        part.rows.lists.note_recorded(version);
    }
}
