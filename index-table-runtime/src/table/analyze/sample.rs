//! The analysis of a table from a sample of the leaves of each index.

use std::{collections::BTreeSet, sync::Arc};

use super::super::Table;
use crate::{
    engine::{Cursor as _, Query, Read as _, Sampled},
    model::{
        KeyRange,
        entity::Entity,
        entry::RawEntry,
        error::{Error, Result},
        schema::{KeyField, Source, key_len},
        shard::Distribution,
    },
    placement::Reader,
    store::{OpenTable, ReadTxn},
    upkeep::analyze::{Analysis, Estimate, IndexAnalysis, KeyDistribution, Lookup, Measure, Part},
    usage::{ProgressReporter, Usage},
};

/// The maximum number of entries that are counted for a value. The number of further entries is estimated.
const COUNTED: u32 = 1024;

/// The minimum number of leaves in the sample of a shard.
const LEAVES_OF_SHARD: u64 = 16;

impl<R: Entity> Table<R> {
    /// Estimates the figures of [`analyze`](Table::analyze) from a sample: at most about this number of leaf pages of
    /// each index, for any number of entries. [`Analysis::sample`] is the number of entries in the samples. An index
    /// with fewer pages is read completely, and its figures are exact; if this is true for all of them, `sample` is
    /// `None`.
    ///
    /// The pages are at equal distances in the order of the keys. If the pages are about equally full, the error of the
    /// share of a value is at most about 2/n with n pages: 0.2 % of the entries with 1,024 pages. If a key has up to n
    /// distinct values, all of them are listed, and their number is exact. If it has more, only values with a share of
    /// 2/n or more are in `most_common`, and no sample misses these; the number of distinct values and the quantiles
    /// are estimates without a bias from rare values, and the minimum and the maximum are those of the sample. The
    /// number of entries is exact, except in a normalized index with primary keys of a fixed size, and in a table whose
    /// pages differ much in their fill after many deletions.
    ///
    /// The figures are exact, at the cost of [`analyze`](Table::analyze), where no sample is offered: in memory, on a
    /// server, and in a sharded store while keys of the table move to another shard.
    ///
    /// Use it for large tables. The exact analysis takes about 60 ns of processor time for each entry. A sample of
    /// 1,024 pages of three indexes takes as long as the exact analysis of a million rows, 0.2 s, and half as long as
    /// the exact analysis of four million rows.
    ///
    /// Cost: up to this number of pages of each index, and of the rows if the table has a shard key; up to 1,024
    /// entries for each value at an end of a page, and for each value of a key with few values; in a sharded store, a
    /// look-up of each value of the sample in each shard. The keys of the sample are in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and the [errors of reading](crate::Error#common-errors).
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
    ///     name: String,
    ///     town: u8,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// let person = |number: u32| Person { name: format!("{number:06}"), town: (number % 4) as u8 };
    /// people.bulk_load(&store, (0..20_000).map(person)).run()?;
    ///
    /// let analysis = people.analyze_sampled(&store.read()?, 32)?;
    /// assert!(analysis.sample.is_some_and(|entries| entries < 10_000));
    /// let towns = &analysis.indexes[0].keys[0];
    /// assert_eq!(towns.distinct, 4);
    /// assert!(towns.most_common.iter().all(|it| (0.2..0.3).contains(&it.share)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn analyze_sampled(&self, txn: &ReadTxn<'_>, pages: u64) -> Result<Analysis> {
        self.open.analyze_sampled(txn, pages)
    }
}

/// The figures of an index, and the number of entries in the sample, if they are estimated.
struct Figures {
    entries: u64,
    keys: Vec<KeyDistribution>,
    sample: Option<u64>,
}

impl OpenTable {
    pub(super) fn analyze_sampled(
        self: &Arc<Self>,
        txn: &ReadTxn<'_>,
        pages: u64,
    ) -> Result<Analysis> {
        let (schema, reader) = (self.schema, txn.reader(self)?);
        let parts = parts_of(reader)?;
        let mut sample = None;
        let mut add = |figures: Figures| {
            if let Some(entries) = figures.sample {
                sample = Some(sample.unwrap_or(0) + entries);
            }
            (figures.entries, figures.keys)
        };
        let bytes_of = |source| -> Result<u64> {
            parts.iter().map(|(reader, _)| reader.bytes_of(source)).sum()
        };
        let mut rows = 0;
        for (reader, is_copy) in &parts {
            if !is_copy {
                rows += reader.count(&Query::new(Source::Facts, KeyRange::ALL))?.found;
            }
        }
        let (shard_key, global) = match self.rows.distribution {
            Distribution::ByKey(key) => {
                let fields = schema.primary_key.get(..key.fields).unwrap_or_default();
                let measure = Measure::whole(fields);
                let estimate = Estimate::new(fields, [fields.len()].into_iter());
                let (_, keys) =
                    add(self.figures(txn, Source::Facts, (measure, estimate), pages)?);
                (keys.into_iter().next(), key.global)
            }
            Distribution::Whole | Distribution::Reference => (None, [].as_slice()),
        };
        let unreadable = txn.unreadable(self)?;
        let mut indexes = Vec::with_capacity(schema.indexes.len());
        for (position, declared) in schema.indexes.iter().enumerate() {
            let (name, source) = (declared.name, Source::Index(position));
            let readable = !unreadable.incomplete.contains(&position);
            let (entries, keys) = if readable {
                let measure = Measure::each_prefix(declared.key);
                let estimate = Estimate::new(declared.key, 1..=declared.key.len());
                add(self.figures(txn, source, (measure, estimate), pages)?)
            } else {
                let whole = Query::new(source, KeyRange::ALL);
                (reader.count(&whole)?.found, Vec::new())
            };
            let bytes = bytes_of(source)?;
            indexes.push(IndexAnalysis { name, readable, entries, bytes, keys });
        }
        let (table, bytes, advice) = (schema.name, bytes_of(Source::Facts)?, Vec::new());
        let analysis = Analysis { table, rows, bytes, shard_key, indexes, advice, sample };
        Ok(analysis.advised(schema, &Usage::of(&self.shared.usage), global))
    }

    /// Estimates the distributions of a source, or measures them if it is small or has no sample.
    fn figures(
        &self,
        txn: &ReadTxn<'_>,
        source: Source,
        (measure, estimate): (Measure, Estimate),
        pages: u64,
    ) -> Result<Figures> {
        let (reader, _) = txn.reader_to_scan(self, source)?;
        if let Some(readers) = sampled_readers(reader, source, pages)?
            && let Some(figures) = self.estimate(&readers, source, estimate, pages)?
        {
            return Ok(figures);
        }
        let steps = &mut ProgressReporter::new(None, "entries", None);
        let (entries, keys) = self.measure(txn, source, measure, steps, &mut || false)?;
        Ok(Figures { entries, keys, sample: None })
    }

    /// Returns `None` if a sample can't be taken at the moment.
    fn estimate(
        &self,
        readers: &[(Reader<'_>, u64)],
        source: Source,
        mut estimate: Estimate,
        pages: u64,
    ) -> Result<Option<Figures>> {
        let all: u64 = readers.iter().map(|(_, leaves)| leaves).sum();
        let (mut sample, mut per_shard) = (0, Vec::with_capacity(readers.len()));
        for (reader, leaves) in readers {
            let own = u128::from(pages) * u128::from(*leaves) / u128::from(all.max(1));
            let own = usize::try_from(own).unwrap_or(usize::MAX);
            let (mut failed, mut represented) = (None, 0.0);
            let mut each = |sampled: Sampled<'_>| {
                let Sampled { leaf, read, entries, .. } = sampled;
                let key = match source {
                    Source::Facts => sampled.primary_key,
                    Source::Index(_) => sampled.key,
                };
                represented += entries;
                let part = Part { leaf, read, represented: entries };
                if let Err(error) = estimate.add(key, part)
                    && failed.is_none()
                {
                    failed = Some(self.corrupt(source, key, error));
                }
            };
            let least = usize::try_from(LEAVES_OF_SHARD).unwrap_or(usize::MAX);
            let Some(read) = reader.sample(source, own.max(least), &mut each)? else {
                return Ok(None);
            };
            if let Some(error) = failed {
                return Err(error);
            }
            if read == 0 {
                // All pages are new in this transaction.
                return Ok(None);
            }
            estimate.begin();
            sample += read;
            per_shard.push((*reader, represented));
        }
        let (entries, keys) =
            estimate.finish(&mut Index { table: self, readers: per_shard, source, pages })?;
        Ok(Some(Figures { entries, keys, sample: Some(sample) }))
    }
}

/// Returns the readers of the parts of a table, and whether each is a further copy.
fn parts_of(reader: Reader<'_>) -> Result<Vec<(Reader<'_>, bool)>> {
    Ok(match reader.parts() {
        None => vec![(reader, false)],
        Some(parts) => parts?.iter().map(|part| (part.reader, part.first_copy.is_some())).collect(),
    })
}

/// Returns the readers of the shards that have entries, with the numbers of their leaves; `None` if the source has no sample, or
/// has fewer leaves.
fn sampled_readers(
    reader: Reader<'_>,
    source: Source,
    pages: u64,
) -> Result<Option<Vec<(Reader<'_>, u64)>>> {
    // While keys move, shards have copies of rows.
    let parts = reader.parts().transpose()?;
    if parts.is_some_and(|parts| parts.iter().any(|part| part.routing.moves())) {
        return Ok(None);
    }
    let mut readers = Vec::new();
    for (reader, _) in parts_of(reader)?.into_iter().filter(|(_, is_copy)| !is_copy) {
        let Some(leaves) = reader.leaves_of(source)? else { return Ok(None) };
        if leaves > 0 {
            readers.push((reader, leaves));
        }
    }
    let leaves: u64 = readers.iter().map(|(_, leaves)| leaves).sum();
    Ok((leaves > pages.max(LEAVES_OF_SHARD)).then_some(readers))
}

/// The index of a sample.
struct Index<'t> {
    table: &'t OpenTable,
    /// The readers of the shards, with the numbers of entries.
    readers: Vec<(Reader<'t>, f64)>,
    source: Source,
    pages: u64,
}

impl Lookup<Error> for Index<'_> {
    fn is_split(&self) -> bool {
        self.readers.len() > 1
    }

    /// Returns the number of entries of a value in all shards. More than [`COUNTED`] in a shard are estimated.
    fn count(&mut self, value: &[u8]) -> Result<f64> {
        let (mut sum, source) = (0.0, self.source);
        for (reader, entries) in &self.readers {
            let range = KeyRange::beginning_with(value);
            let query = Query { limit: Some(COUNTED.into()), ..Query::new(source, range.clone()) };
            #[expect(clippy::cast_precision_loss, reason = "it is limited")]
            let counted = reader.count(&query)?.found as f64;
            sum += if counted < f64::from(COUNTED) {
                counted
            } else {
                let share = reader.share_of(source, &range)?;
                share.map_or(counted, |share| (share * entries).max(counted))
            };
        }
        Ok(sum)
    }

    /// Lists about as many values as pages.
    fn list(&mut self, fields: &[KeyField], distinct: f64) -> Result<Option<Vec<Vec<u8>>>> {
        #[expect(clippy::cast_precision_loss, reason = "few values are exact")]
        if distinct > self.pages as f64 {
            return Ok(None);
        }
        let most = usize::try_from(self.pages.saturating_mul(2)).unwrap_or(usize::MAX);
        let mut values = BTreeSet::new();
        for (reader, _) in &self.readers {
            let mut rest = Some(KeyRange::ALL);
            while let Some(range) = rest {
                let query = Query { limit: Some(1), ..Query::new(self.source, range.clone()) };
                let mut cursor = reader.cursor(query)?;
                if !cursor.advance()? {
                    break;
                }
                let key = key_of(self.source, cursor.entry());
                let len = key_len(fields, key)
                    .map_err(|error| self.table.corrupt(self.source, key, error))?;
                let value = key.get(..len).unwrap_or_default();
                rest = range.after_prefix(value);
                values.insert(value.to_vec());
                if values.len() > most {
                    return Ok(None);
                }
            }
        }
        Ok(Some(values.into_iter().collect()))
    }
}

fn key_of(source: Source, entry: RawEntry<'_>) -> &[u8] {
    match source {
        Source::Facts => entry.primary_key,
        Source::Index(_) => entry.key,
    }
}
