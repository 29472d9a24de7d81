//! The analysis of a table.

use std::{slice, sync::Arc};

use super::{IndexSize, Table, TableSize, UntypedTable};
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        entity::Entity,
        error::{Error, Result},
        schema::Source,
        shard::Distribution,
    },
    store::{OpenTable, ReadTxn, Store},
    usage::{Analysis, IndexAnalysis, KeyDistribution, Measure, Progress, ProgressReporter, Usage},
};

impl<R: Entity> Table<R> {
    /// Measures the distribution of the keys in each index, and returns it with advice from these distributions and from the
    /// [`usage`](Table::usage) in this process. The figures are exact for the snapshot of the transaction.
    ///
    /// In a sharded store, the figures cover all shards. Pending messages of an eventual index are not applied first.
    ///
    /// Cost: each entry of each index is read once, and the rows are read once if the table has a shard key. The
    /// counters of usage don't change. Up to ten values for each leading part of a key are kept in memory. Memory grows
    /// at most with the square root of the number of entries.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and the [errors of reading](crate::Error#common-errors).
    pub fn analyze(&self, txn: &ReadTxn<'_>) -> Result<Analysis> {
        self.open.analyze(txn, None)
    }
}

impl UntypedTable {
    /// Measures the distribution of the keys in each index. Calls `progress` every few thousand entries.
    ///
    /// # Errors
    ///
    /// The errors of the repository's `analyze`.
    pub fn analyze(
        &self,
        txn: &ReadTxn<'_>,
        progress: Option<Box<dyn FnMut(Progress) + '_>>,
    ) -> Result<Analysis> {
        self.open_table().analyze(txn, progress)
    }
}

impl OpenTable {
    fn analyze(
        self: &Arc<Self>,
        txn: &ReadTxn<'_>,
        progress: Option<Box<dyn FnMut(Progress) + '_>>,
    ) -> Result<Analysis> {
        let schema = self.schema;
        let sizes = Store::sizes_of(slice::from_ref(self), txn)?;
        let Some(TableSize { table, rows, bytes, indexes, .. }) = sizes.into_iter().next() else {
            return Err(Error::internal("a table has no size"));
        };
        let with_rows = matches!(self.rows.distribution, Distribution::ByKey(_));
        let entries: u64 = indexes.iter().map(|index| index.entries).sum();
        let total = entries + if with_rows { rows } else { 0 };
        let steps = &mut ProgressReporter::new(progress, "entries", Some(total));
        let unreadable = txn.unreadable(self)?;
        let (shard_key, global) = match self.rows.distribution {
            Distribution::ByKey(key) => {
                let fields = schema.primary_key.get(..key.fields).unwrap_or_default();
                let (_, keys) = self.measure(txn, Source::Facts, Measure::whole(fields), steps)?;
                (keys.into_iter().next(), key.global)
            }
            Distribution::Whole | Distribution::Reference => (None, [].as_slice()),
        };
        let indexes = indexes.into_iter().zip(schema.indexes).enumerate();
        let indexes = indexes.map(|(position, (size, declared))| {
            let IndexSize { name, entries, bytes } = size;
            let readable = !unreadable.incomplete.contains(&position);
            let (entries, keys) = if readable {
                let measure = Measure::each_prefix(declared.key);
                self.measure(txn, Source::Index(position), measure, steps)?
            } else {
                (entries, Vec::new())
            };
            Ok(IndexAnalysis { name, readable, entries, bytes, keys })
        });
        let indexes = indexes.collect::<Result<_>>()?;
        let analysis = Analysis { table, rows, bytes, shard_key, indexes, advice: Vec::new() };
        Ok(analysis.advised(schema, &Usage::of(&self.shared.usage), global))
    }

    /// Measures the keys of an index, or the primary keys of the rows.
    fn measure(
        &self,
        txn: &ReadTxn<'_>,
        source: Source,
        mut measure: Measure,
        steps: &mut ProgressReporter<'_>,
    ) -> Result<(u64, Vec<KeyDistribution>)> {
        let (reader, _) = txn.reader_to_scan(self, source)?;
        let mut cursor = reader.cursor(Query::new(source, KeyRange::ALL))?;
        while cursor.advance()? {
            steps.add(1);
            let entry = cursor.entry();
            let key = match source {
                Source::Facts => entry.primary_key,
                Source::Index(_) => entry.key,
            };
            measure.add(key).map_err(|error| self.corrupt(source, key, error))?;
        }
        Ok(measure.finish())
    }
}
