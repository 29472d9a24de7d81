//! The analysis of a table.

use std::{slice, sync::Arc, time::SystemTime};

use super::{IndexSize, Table, TableSize, UntypedTable};
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, WriteRecords as _},
    model::{
        KeyRange,
        entity::Entity,
        error::{Error, Result},
        schema::{ANALYSIS, Source},
        shard::Distribution,
    },
    store::{OpenTable, ReadTxn, Store, WriteTxn},
    usage::{
        Analysis, IndexAnalysis, KeptAnalysis, KeyDistribution, Measure, Progress,
        ProgressReporter, Usage, kept,
    },
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

impl<R: Entity> Table<R> {
    /// Writes an analysis into the catalog, in the place of the one that was kept before. So other processes,
    /// and later ones, have the figures without reading the indexes.
    ///
    /// Cost: one write; in a sharded store, one in each shard of the table.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`](crate::Error::SchemaMismatch) if the analysis is of another table, and the [errors of
    /// writing](crate::Error#common-errors).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    /// let analysis = people.analyze(&store.read()?)?;
    /// store.transaction(|txn| people.keep_analysis(txn, &analysis))?;
    ///
    /// let kept = people.kept_analysis(&store.read()?)?.expect("an analysis");
    /// assert_eq!(kept.analysis, analysis);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_analysis(&self, txn: &mut WriteTxn<'_>, analysis: &Analysis) -> Result<()> {
        let record = kept::encode(self.open.schema, analysis, SystemTime::now())?;
        let (mut writer, ..) = txn.writer(&self.open)?;
        writer.put_record(ANALYSIS, &record)
    }

    /// Returns the last analysis that was [kept](Table::keep_analysis) in the catalog; `None` if there is none. Indexes
    /// that are no longer declared are left out.
    ///
    /// Cost: one look-up.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and the [errors of reading](crate::Error#common-errors).
    pub fn kept_analysis(&self, txn: &ReadTxn<'_>) -> Result<Option<KeptAnalysis>> {
        let record = txn.reader(&self.open)?.record(ANALYSIS)?;
        record.map(|record| kept::decode(self.open.schema, record)).transpose()
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
