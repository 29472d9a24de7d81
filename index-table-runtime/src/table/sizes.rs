//! Measuring the sizes of tables: exact, or from a limited number of pages.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the numbers are estimates, and conversions of floats saturate"
)]

use std::sync::Arc;

use super::{AggregateSize, IndexSize, TableSize};
use crate::{
    engine::{Query, Read as _, Sampled, Space},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::{Routing, ShardNumber},
    },
    placement::Reader,
    store::{OpenTable, ReadTxn},
};

/// The number of leaves in the samples of all indexes. For each leaf, up to five pages are read: two branches, the leaf, the next leaf,
/// and one page of the level that is read completely.
const LEAVES: u64 = 60;

/// The minimum number of leaves in the sample of an index in a shard.
const LEAVES_OF_SHARD: u64 = 4;

/// An index with at most this multiple of the leaves of its sample is counted, since a sample would read as many pages.
const COUNTED: u64 = 2;

/// Whether the numbers of entries may be estimates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Exact,
    Estimated,
}

/// Returns the sizes of tables. `failed` decides whether the part with an error is left out.
pub(super) fn measure(
    tables: &[Arc<OpenTable>],
    txn: &ReadTxn<'_>,
    counting: Counting,
    failed: &mut dyn FnMut(Error) -> Result<()>,
) -> Result<Vec<TableSize>> {
    let whole = tables.iter().map(|table| Whole::new(table, txn)).collect::<Result<Vec<_>>>()?;
    let sampled: u64 = whole.iter().map(Whole::sampled_sources).sum();
    let leaves = (counting == Counting::Estimated).then(|| LEAVES / sampled.max(1));
    let mut sizes = Vec::with_capacity(tables.len());
    for table in &whole {
        sizes.extend(table.size(leaves, failed)?);
    }
    Ok(sizes)
}

/// Counts the rows of tables. Returns their number, and their bytes with those of their entries, which are not counted.
pub(super) fn rows_and_bytes(tables: &[Arc<OpenTable>], txn: &ReadTxn<'_>) -> Result<[u64; 2]> {
    let (mut rows, mut bytes) = (0, 0);
    for table in tables {
        let whole = Whole::new(table, txn)?;
        rows += whole.exact(Source::Facts)?.count;
        let indexes = (0..table.schema.indexes.len()).map(Source::Index);
        for source in [Source::Facts].into_iter().chain(indexes) {
            bytes += whole.bytes_of(source)?;
        }
    }
    Ok([rows, bytes])
}

/// A part of a table in a shard.
struct Part<'t> {
    reader: Reader<'t>,
    /// The shard, with the routing of the table; `None` in one engine.
    place: Option<(ShardNumber, &'t Routing)>,
    /// Whether it is a further copy of a reference table.
    is_copy: bool,
}

/// A table with its parts.
struct Whole<'t> {
    table: &'t OpenTable,
    reader: Reader<'t>,
    parts: Vec<Part<'t>>,
}

/// A number of rows or entries.
#[derive(Clone, Copy)]
struct Number {
    count: u64,
    is_exact: bool,
}

/// The estimated numbers of entries in a part.
struct Sample {
    all: f64,
    /// Without the copies of entries of other shards.
    own: f64,
}

impl<'t> Whole<'t> {
    fn new(table: &'t Arc<OpenTable>, txn: &'t ReadTxn<'_>) -> Result<Self> {
        let reader = txn.reader(table)?;
        let parts = match reader.parts() {
            None => vec![Part { reader, place: None, is_copy: false }],
            Some(parts) => parts?
                .into_iter()
                .map(|part| Part {
                    reader: part.reader,
                    place: Some((part.number, part.routing)),
                    is_copy: part.first_copy.is_some(),
                })
                .collect(),
        };
        Ok(Self { table, reader, parts })
    }

    /// Returns the number of sources of which a sample may be taken.
    fn sampled_sources(&self) -> u64 {
        let indexes = (0..self.table.schema.indexes.len()).map(Source::Index);
        let sources = [Source::Facts].into_iter().chain(indexes);
        let is_sampled = |source: &Source| {
            (self.is_packed(*source) || self.is_sorted_out(*source)) && self.is_large(*source)
        };
        sources.filter(is_sampled).count() as u64
    }

    /// Whether a source has so many leaves that it is not counted in each case.
    fn is_large(&self, source: Source) -> bool {
        let leaves = self.own_parts().map(|part| part.reader.leaves_of(source));
        // An unknown number can be large.
        let leaves = leaves.map(|leaves| leaves.ok().flatten().unwrap_or(u64::MAX));
        leaves.fold(0, u64::saturating_add) > LEAVES_OF_SHARD * COUNTED
    }

    fn is_packed(&self, source: Source) -> bool {
        self.parts.iter().any(|part| part.reader.is_packed(source).unwrap_or_default())
    }

    /// Whether a sample tells the copies of moving entries from the others, and so is taken during a move: the rows, or a
    /// global index, of which the keys move.
    fn is_sorted_out(&self, source: Source) -> bool {
        self.reader.leaves_out(source) && (source == Source::Facts || self.is_global(source))
    }

    fn is_global(&self, source: Source) -> bool {
        let Source::Index(index) = source else { return false };
        let mut places = self.parts.iter().filter_map(|part| part.place);
        places.any(|(_, routing)| routing.global(index).is_some())
    }

    /// Returns the size; `None` if the rows are left out. `leaves` is the number of leaves in a sample, if numbers may be estimates.
    fn size(
        &self,
        leaves: Option<u64>,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Option<TableSize>> {
        let with_bytes = |source, rows| -> Result<(Number, u64)> {
            let number = match leaves {
                None => self.exact(source)?,
                Some(leaves) => self.estimate(source, leaves, rows)?,
            };
            Ok((number, self.bytes_of(source)?))
        };
        let (rows, bytes) = match with_bytes(Source::Facts, None) {
            Ok(found) => found,
            Err(error) => {
                failed(error)?;
                return Ok(None);
            }
        };
        let schema = self.table.schema;
        let mut indexes = Vec::with_capacity(schema.indexes.len());
        for (position, index) in schema.indexes.iter().enumerate() {
            match with_bytes(Source::Index(position), Some(rows.count)) {
                Ok((Number { count, is_exact }, bytes)) => indexes.push(IndexSize {
                    name: index.name,
                    entries: count,
                    entries_exact: is_exact,
                    bytes,
                }),
                Err(error) => failed(error)?,
            }
        }
        let aggregates =
            self.table.rows.aggregates.iter().enumerate().map(|(position, declared)| {
                let (space, mut groups, mut bytes) = (Space::Aggregate(position), 0, 0);
                for Part { reader, is_copy, .. } in &self.parts {
                    if !is_copy {
                        groups += reader.len(space)?;
                    }
                    bytes += reader.bytes_of_space(space)?;
                }
                Ok(AggregateSize { name: declared.name, groups, bytes })
            });
        let aggregates = aggregates.collect::<Result<_>>()?;
        let mut change_bytes = 0;
        if self.table.rows.changes.is_some() {
            for Part { reader, .. } in &self.parts {
                change_bytes += reader.bytes_of_space(Space::Changes)?;
            }
        }
        let (table, Number { count, is_exact }) = (schema.name, rows);
        Ok(Some(TableSize {
            table,
            rows: count,
            rows_exact: is_exact,
            bytes,
            indexes,
            aggregates,
            change_bytes,
        }))
    }

    fn bytes_of(&self, source: Source) -> Result<u64> {
        self.parts.iter().map(|part| part.reader.bytes_of(source)).sum()
    }

    /// Returns the parts that together have each entry once, except copies of moving entries.
    fn own_parts(&self) -> impl Iterator<Item = &Part<'t>> {
        self.parts.iter().filter(|part| !part.is_copy)
    }

    fn exact(&self, source: Source) -> Result<Number> {
        let whole = Query::new(source, KeyRange::ALL);
        let count = if self.reader.leaves_out(source) {
            self.reader.count(&whole)?.found
        } else {
            let counts = self.own_parts().map(|part| Ok(part.reader.count(&whole)?.found));
            counts.sum::<Result<_>>()?
        };
        Ok(Number { count, is_exact: true })
    }

    /// Returns the number that the engine maintains, or an estimate from a sample. `rows` is the number of rows, once each.
    fn estimate(&self, source: Source, leaves: u64, rows: Option<u64>) -> Result<Number> {
        let omits = self.reader.leaves_out(source);
        if !omits && !self.is_packed(source) {
            return self.exact(source);
        }
        let mut with_leaves = Vec::with_capacity(self.parts.len());
        for part in self.own_parts() {
            let Some(leaves) = part.reader.leaves_of(source)? else { return self.exact(source) };
            if leaves > 0 {
                with_leaves.push((part, leaves));
            }
        }
        let all: u64 = with_leaves.iter().map(|(_, leaves)| leaves).sum();
        if all <= leaves.max(LEAVES_OF_SHARD) * COUNTED {
            return self.exact(source);
        }
        let (mut sum, is_sorted_out) = (0.0, self.is_sorted_out(source));
        for (part, own) in with_leaves {
            let stored =
                if part.reader.is_packed(source)? { None } else { part.reader.stored(source)? };
            if let Some(stored) = stored.filter(|_| !is_sorted_out) {
                sum += stored as f64;
                continue;
            }
            let own = (u128::from(leaves) * u128::from(own) / u128::from(all)) as u64;
            let own = own.max(LEAVES_OF_SHARD);
            let Some(Sample { all, own }) = part.sample(source, own)? else {
                return self.exact(source);
            };
            sum += match stored {
                Some(stored) => stored as f64 * own / all.max(1.0),
                None => own,
            };
        }
        if omits && !is_sorted_out {
            sum *= self.share_of_own_rows(rows)?;
        }
        Ok(Number { count: sum.round() as u64, is_exact: false })
    }

    /// Returns the part of the rows in all shards that are not copies. The entries of local indexes move with their rows.
    fn share_of_own_rows(&self, rows: Option<u64>) -> Result<f64> {
        let Some(rows) = rows else { return Ok(1.0) };
        let mut stored = 0;
        for part in self.own_parts() {
            stored += part.reader.stored(Source::Facts)?.unwrap_or_default();
        }
        Ok(rows as f64 / stored.max(rows).max(1) as f64)
    }
}

impl Part<'_> {
    /// Estimates the number of entries from leaves; `None` if no sample can be taken at the moment.
    ///
    /// The number of leaves is known, and leaves differ less in their entries than blocks do: most indexes have blocks of one entry and
    /// blocks of a hundred.
    fn sample(&self, source: Source, most: u64) -> Result<Option<Sample>> {
        let Some(leaves) = self.reader.leaves_of(source)? else { return Ok(None) };
        let (mut sample, mut represented, mut last) = (Sample { all: 0.0, own: 0.0 }, 0.0, None);
        let mut each = |sampled: Sampled<'_>| {
            if last.replace(sampled.leaf) != Some(sampled.leaf) {
                represented += sampled.leaves;
            }
            let entries = sampled.read as f64 * sampled.leaves;
            sample.all += entries;
            let keys = (sampled.key, sampled.primary_key);
            let is_copy = |(shard, routing): (ShardNumber, &Routing)| {
                // A block has no primary key here, and is of one key.
                let is_known = !sampled.primary_key.is_empty()
                    || matches!(source, Source::Index(index) if routing.global(index).is_some());
                is_known && routing.is_copy(source, keys, shard)
            };
            if !self.place.is_some_and(is_copy) {
                sample.own += entries;
            }
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if self.reader.sample(source, most, &mut each)?.unwrap_or_default() == 0 {
            // All pages are new in this transaction.
            return Ok(None);
        }
        let scale = leaves as f64 / represented;
        Ok(Some(Sample { all: sample.all * scale, own: sample.own * scale }))
    }
}
