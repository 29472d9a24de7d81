//! The analysis of a table.

mod sample;

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
    upkeep::analyze::{
        Advice, Analysis, IndexAnalysis, KeptAnalysis, KeyDistribution, Measure, kept,
    },
    usage::{Progress, ProgressReporter, Usage},
};

/// The number of entries that are read between two calls of a function that can end an analysis.
const BETWEEN: u64 = 1024;

impl<R: Entity> Table<R> {
    /// Measures the distribution of the keys in each index, and returns it with advice from these distributions and from the
    /// [`usage`](Table::usage) in this process. The figures are exact for the snapshot of the transaction.
    ///
    /// In a sharded store, the figures cover all shards. Pending messages of an eventual index are not applied first.
    ///
    /// Cost: each entry of each index is read once, and the rows are read once if the table has a shard key. The
    /// counters of usage don't change. Up to ten values for each leading part of a key are kept in memory. Memory grows
    /// at most with the square root of the number of entries. [`analyze_sampled`](Table::analyze_sampled) reads a limited
    /// number of pages instead.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and the [errors of reading](crate::Error#common-errors).
    pub fn analyze(&self, txn: &ReadTxn<'_>) -> Result<Analysis> {
        self.open.analyze(txn, None)
    }
}

impl<R: Entity> Table<R> {
    /// Writes an analysis into the catalog, and replaces the former analysis. So other processes, and this program
    /// after a restart, have the figures without reading the indexes.
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

    /// Estimates the distribution of the keys in each index from up to about this number of leaf pages.
    ///
    /// # Errors
    ///
    /// The errors of the repository's `analyze_sampled`.
    pub fn analyze_sampled(&self, txn: &ReadTxn<'_>, pages: u64) -> Result<Analysis> {
        self.open_table().analyze_sampled(txn, pages)
    }

    /// Measures the distribution of the keys of one index, and returns it with the advice about this index. `None`: the
    /// table has no such index, the index is not readable, or `is_over` has returned true; it is called after some entries.
    ///
    /// # Errors
    ///
    /// The errors of the repository's `analyze`.
    pub fn analyze_index(
        &self,
        txn: &ReadTxn<'_>,
        index: &str,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(IndexAnalysis, Vec<Advice>)>> {
        let own = self.open_table();
        let Some(position) = self.index_names().position(|name| name == index) else {
            return Ok(None);
        };
        let mut analysis = own.analyze_only(txn, Some(position), None, is_over)?;
        let found = analysis.indexes.iter().position(|it| it.name == index);
        let Some(found) = found.map(|at| analysis.indexes.swap_remove(at)) else {
            return Ok(None);
        };
        let mut advice = analysis.advice;
        advice.retain(|it| it.index == Some(found.name));
        Ok((!found.keys.is_empty()).then_some((found, advice)))
    }
}

impl OpenTable {
    fn analyze(
        self: &Arc<Self>,
        txn: &ReadTxn<'_>,
        progress: Option<Box<dyn FnMut(Progress) + '_>>,
    ) -> Result<Analysis> {
        self.analyze_only(txn, None, progress, &mut || false)
    }

    /// Measures the keys of all indexes and the shard key, or of one index alone.
    fn analyze_only(
        self: &Arc<Self>,
        txn: &ReadTxn<'_>,
        only: Option<usize>,
        progress: Option<Box<dyn FnMut(Progress) + '_>>,
        is_over: &mut dyn FnMut() -> bool,
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
            Distribution::ByKey(key) if only.is_some() => (None, key.global),
            Distribution::ByKey(key) => {
                let fields = schema.primary_key.get(..key.fields).unwrap_or_default();
                let measure = Measure::whole(fields);
                let (_, keys) = self.measure(txn, Source::Facts, measure, steps, is_over)?;
                (keys.into_iter().next(), key.global)
            }
            Distribution::Whole | Distribution::Reference => (None, [].as_slice()),
        };
        let indexes = indexes.into_iter().zip(schema.indexes).enumerate();
        let indexes = indexes.map(|(position, (size, declared))| {
            let IndexSize { name, entries, bytes, .. } = size;
            let readable = !unreadable.incomplete.contains(&position);
            let is_measured = readable && only.is_none_or(|only| only == position);
            let (entries, keys) = if is_measured {
                let measure = Measure::each_prefix(declared.key);
                self.measure(txn, Source::Index(position), measure, steps, is_over)?
            } else {
                (entries, Vec::new())
            };
            Ok(IndexAnalysis { name, readable, entries, bytes, keys })
        });
        let indexes = indexes.collect::<Result<_>>()?;
        let (advice, sample) = (Vec::new(), None);
        let analysis = Analysis { table, rows, bytes, shard_key, indexes, advice, sample };
        Ok(analysis.advised(schema, &Usage::of(&self.shared.usage), global))
    }

    /// Measures the keys of an index, or the primary keys of the rows. Returns no distributions if `is_over` returns true.
    fn measure(
        &self,
        txn: &ReadTxn<'_>,
        source: Source,
        mut measure: Measure,
        steps: &mut ProgressReporter<'_>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<(u64, Vec<KeyDistribution>)> {
        let (reader, _) = txn.reader_to_scan(self, source)?;
        let mut cursor = reader.cursor(Query::new(source, KeyRange::ALL))?;
        let mut read = 0_u64;
        while cursor.advance()? {
            steps.add(1);
            read += 1;
            if read.is_multiple_of(BETWEEN) && is_over() {
                return Ok((read, Vec::new()));
            }
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
