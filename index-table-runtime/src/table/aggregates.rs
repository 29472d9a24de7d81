//! Reading aggregates.

use std::{fmt, iter::FusedIterator, marker::PhantomData};

use super::KeyedTable;
use crate::{
    engine::{Cursor as _, Query, Read as _, Space},
    model::{
        KeyRange,
        aggregate::{Aggregate, Totals, WHOLE_TABLE},
        entity::Entity,
        error::{Error, Result},
        row_vtable::TableRows,
        schema::{AggregateSchema, Extreme, Source},
    },
    placement::Reader,
    query::{Bounds, GroupTotals, Ledger, decode_totals, of_groups_within, totals_of_group},
    store::{OpenTable, ReadTxn},
};

/// An iterator over the groups of an aggregate, in the order of their keys; from the `aggregates_by_…` methods of a
/// repository. Some of these methods select the groups with given leading fields. It ends after the first error.
///
/// Cost: one seek for each group, and one more. In a sharded store, one seek in each shard, and one for each group in each
/// shard that has it; the totals of a group are added up. Leading fields that begin with the shard key select one shard.
/// Memory does not grow with the number of groups.
#[must_use = "an iterator does nothing until it is used"]
pub struct Aggregates<'txn, A> {
    groups: Result<Groups<'txn>, Option<Error>>,
    aggregate: PhantomData<fn() -> A>,
}

/// The groups of the shards, from each shard its next group.
struct Groups<'txn> {
    shards: Vec<Shard<'txn>>,
    table: &'txn OpenTable,
    txn: &'txn ReadTxn<'txn>,
    aggregate: usize,
    /// The encoding of the leading fields, with which all groups begin.
    prefix: Box<[u8]>,
    ledger: Ledger<'txn>,
}

struct Shard<'txn> {
    reader: Reader<'txn>,
    next: Option<(&'txn [u8], &'txn [u8])>,
}

impl<R: Entity> KeyedTable<R> {
    /// Returns the totals of a group. A group without rows has zeros.
    #[doc(hidden)]
    pub fn aggregate<A: Aggregate<Row = R>>(&self, txn: &ReadTxn<'_>, group: &Bounds) -> Result<A> {
        let declared = declared(&self.open.rows, A::POSITION)?;
        let group = match group.range.start() {
            [] => WHOLE_TABLE,
            group => group,
        };
        let mut totals = self.open.totals(txn, A::POSITION, declared, group)?;
        self.open.add_extremes(txn, declared, group, &mut totals)?;
        declared.read(group, &totals)
    }

    /// Returns all groups.
    #[doc(hidden)]
    pub fn aggregates<'txn, A: Aggregate<Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
    ) -> Aggregates<'txn, A> {
        self.aggregates_within(txn, &Bounds::new())
    }

    /// Returns the groups whose leading fields have these values.
    #[doc(hidden)]
    pub fn aggregates_within<'txn, A: Aggregate<Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        leading: &Bounds,
    ) -> Aggregates<'txn, A> {
        let groups =
            Groups::within(&self.open, txn, A::POSITION, leading.range.start()).map_err(Some);
        Aggregates { groups, aggregate: PhantomData }
    }
}

fn declared(rows: &TableRows, aggregate: usize) -> Result<&'static AggregateSchema> {
    rows.aggregates.get(aggregate).ok_or_else(|| Error::internal("there is no such aggregate"))
}

impl OpenTable {
    /// Returns the totals of a group in all shards that can have it.
    fn totals(
        &self,
        txn: &ReadTxn<'_>,
        aggregate: usize,
        declared: &AggregateSchema,
        group: &[u8],
    ) -> Result<Totals> {
        let reader = txn.reader_of_aggregate(self, aggregate)?;
        let GroupTotals { totals, seeks, bytes } =
            totals_of_group(reader, &self.rows, (aggregate, declared), group)?;
        Ledger::new(&txn.session, &self.shared.usage, &self.rows.lists).totals(seeks, bytes);
        Ok(totals)
    }
}

impl OpenTable {
    /// Adds the extremes of a group, from the indexes.
    fn add_extremes(
        &self,
        txn: &ReadTxn<'_>,
        declared: &AggregateSchema,
        group: &[u8],
        totals: &mut Totals,
    ) -> Result<()> {
        let prefix = if declared.key.is_empty() { &[] } else { group };
        for Extreme { index, greatest } in declared.extremes {
            let source = Source::Index(*index);
            let reader = txn.reader_of(self, source)?;
            let bounds =
                if prefix.is_empty() { KeyRange::ALL } else { KeyRange::beginning_with(prefix) };
            let query = Query { reverse: *greatest, limit: Some(1), ..Query::new(source, bounds) };
            let mut meter = Ledger::new(&txn.session, &self.shared.usage, &self.rows.lists)
                .meter(source, Some(1));
            let reader = meter.of_query(reader, &query)?;
            meter.reads(reader, &query);
            let mut entries = reader.cursor(query)?;
            if entries.advance()? {
                totals.push_extreme(entries.entry().key.get(prefix.len()..));
            } else {
                totals.push_extreme(None);
            }
        }
        Ok(())
    }
}

/// Returns the first group of a shard at or after a position whose key begins with a prefix.
fn next_within<'txn>(
    reader: Reader<'txn>,
    aggregate: usize,
    prefix: &[u8],
    from: &[u8],
) -> Result<Option<(&'txn [u8], &'txn [u8])>> {
    let next = reader.at_or_above(Space::Aggregate(aggregate), from)?;
    Ok(next.filter(|(group, _)| group.starts_with(prefix)))
}

impl<'txn> Groups<'txn> {
    /// Returns the groups whose keys begin with a prefix.
    fn within(
        table: &'txn OpenTable,
        txn: &'txn ReadTxn<'_>,
        aggregate: usize,
        prefix: &[u8],
    ) -> Result<Self> {
        let reader = txn.reader_of_aggregate(table, aggregate)?;
        let declared = declared(&table.rows, aggregate)?;
        let readers = of_groups_within(reader, &table.rows, declared, prefix)?;
        // No key of a group is less than 0.
        let from = if prefix.is_empty() { &[0] } else { prefix };
        let shards = readers.into_iter().map(|reader| {
            let next = next_within(reader, aggregate, prefix, from)?;
            Ok(Shard { reader, next })
        });
        let shards = shards.collect::<Result<_>>()?;
        let ledger = Ledger::new(&txn.session, &table.shared.usage, &table.rows.lists);
        Ok(Self { shards, table, txn, aggregate, prefix: Box::from(prefix), ledger })
    }

    /// Returns the next group with rows. An eventual aggregate can lag behind and have records of groups without rows.
    fn next_with_rows(&mut self) -> Result<Option<(&'txn [u8], Totals)>> {
        loop {
            match self.next()? {
                Some((_, totals)) if !totals.has_rows() => {}
                next => return Ok(next),
            }
        }
    }

    /// Returns the next group with its totals in all shards.
    fn next(&mut self) -> Result<Option<(&'txn [u8], Totals)>> {
        let rows = &self.table.rows;
        let declared = declared(rows, self.aggregate)?;
        let heads = self.shards.iter().filter_map(|shard| shard.next.map(|(group, _)| group));
        let Some(group) = heads.min() else { return Ok(None) };
        let after = [group, &[0]].concat();
        let (mut totals, mut seeks, mut bytes) = (Totals::default(), 0, 0);
        for Shard { reader, next } in &mut self.shards {
            let Some((_, record)) = next.filter(|(other, _)| *other == group) else { continue };
            totals.add_all(&decode_totals(rows, declared, group, Some(record))?);
            *next = next_within(*reader, self.aggregate, &self.prefix, &after)?;
            seeks += 1;
            bytes += group.len() + record.len();
        }
        self.ledger.totals(seeks, bytes);
        self.table.add_extremes(self.txn, declared, group, &mut totals)?;
        Ok(Some((group, totals)))
    }
}

impl<A: Aggregate> Iterator for Aggregates<'_, A> {
    type Item = Result<A>;

    fn next(&mut self) -> Option<Self::Item> {
        let groups = match &mut self.groups {
            Ok(groups) => groups,
            Err(error) => return error.take().map(Err),
        };
        let next = groups.next_with_rows().and_then(|next| {
            let Some((group, totals)) = next else { return Ok(None) };
            declared(&groups.table.rows, groups.aggregate)?.read(group, &totals).map(Some)
        });
        if !matches!(next, Ok(Some(_))) {
            self.groups = Err(None);
        }
        next.transpose()
    }
}

impl<A: Aggregate> FusedIterator for Aggregates<'_, A> {}

impl<A> fmt::Debug for Aggregates<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregates").finish_non_exhaustive()
    }
}
