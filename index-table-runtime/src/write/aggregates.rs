//! Changing the aggregates of a table in the transaction that writes a row.

use crate::{
    engine::{Read as _, Space, Write as _, Writer},
    model::{
        aggregate::{AggregateSchema, Totals},
        error::Result,
        maintain::Image,
        row_vtable::RowVtable,
    },
};

/// The new records of the groups that a write of a row changes.
#[derive(Debug, Default)]
pub(crate) struct NewTotals(Vec<NewRecord>);

#[derive(Debug)]
struct NewRecord {
    aggregate: usize,
    /// Whether the record is in the shard of the old row.
    is_of_old: bool,
    group: Vec<u8>,
    change: TotalsChange,
}

#[derive(Debug)]
enum TotalsChange {
    /// The new record; `None` if the group has no rows left.
    Record(Option<Vec<u8>>),
    /// The difference, for an engine that adds it without reading the record.
    Added(Totals),
}

impl NewTotals {
    /// Computes the records after a row has changed from `old` to `new`. Writes nothing, so that an operation that fails
    /// here has changed nothing.
    ///
    /// # Errors
    ///
    /// [`Error::AggregateOverflow`](crate::Error::AggregateOverflow), and [`Error::Corrupt`](crate::Error::Corrupt)
    /// if the stored totals don't agree with the rows.
    #[inline]
    pub(crate) fn of(
        rows: &RowVtable,
        writer: &Writer<'_, '_>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<Self> {
        if rows.aggregates.is_empty() {
            return Ok(Self::default());
        }
        Self::of_aggregates(rows, writer, old, new)
    }

    #[inline(never)]
    fn of_aggregates(
        rows: &RowVtable,
        writer: &Writer<'_, '_>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<Self> {
        let is_same_shard = match (old, new) {
            (Some(old), Some(new)) => writer.have_same_shard(old.primary_key(), new.primary_key()),
            _ => false,
        };
        let mut records = Vec::new();
        for (aggregate, declared) in rows.aggregates.iter().enumerate() {
            let position = rows.schema.indexes.len() + aggregate;
            let [before, after] = [old, new].map(|image| image.map(|it| it.group(position)));
            if is_same_shard && before == after {
                continue;
            }
            let is_same_group =
                is_same_shard && before.map(|(group, _)| group) == after.map(|(group, _)| group);
            let mut record =
                |image: Option<&Image>, is_of_old, group: &[u8], [less, more]: [_; 2]| {
                    let Some(image) = image else { return Ok(()) };
                    let mut push = |change| {
                        let group = group.to_vec();
                        records.push(NewRecord { aggregate, is_of_old, group, change });
                    };
                    if writer.adds_totals() {
                        push(TotalsChange::Added(difference(less, more)));
                        return Ok(());
                    }
                    let reader = writer.reader().of_row(image.primary_key())?;
                    let stored = reader.get(Space::Aggregate(aggregate), group)?;
                    let record = changed(rows, declared, group, stored, less, more)?;
                    push(TotalsChange::Record(record));
                    Ok::<_, crate::Error>(())
                };
            match (before, after) {
                (Some((group, less)), Some((_, more))) if is_same_group => {
                    record(new, false, group, [Some(less), Some(more)])?;
                }
                _ => {
                    if let Some((group, less)) = before {
                        record(old, true, group, [Some(less), None])?;
                    }
                    if let Some((group, more)) = after {
                        record(new, false, group, [None, Some(more)])?;
                    }
                }
            }
        }
        Ok(Self(records))
    }

    /// Writes the records.
    #[inline]
    pub(crate) fn write(
        &self,
        writer: &mut Writer<'_, '_>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        for NewRecord { aggregate, is_of_old, group, change } in &self.0 {
            let record = match change {
                TotalsChange::Record(record) => record,
                TotalsChange::Added(change) => {
                    writer.add_totals(*aggregate, group, change)?;
                    continue;
                }
            };
            let image = if *is_of_old { old } else { new };
            let Some(image) = image else { continue };
            let space = Space::Aggregate(*aggregate);
            writer.set_beside(image.primary_key(), space, group, record.as_deref())?;
        }
        Ok(())
    }
}

/// Returns the totals of an added row without those of a removed row.
fn difference(less: Option<&[u8]>, more: Option<&[u8]>) -> Totals {
    let mut totals = Totals::default();
    if let Some(less) = less {
        totals.remove(less);
    }
    if let Some(more) = more {
        totals.add(more);
    }
    totals
}

/// Returns the record of a group after one row is removed and another is added.
fn changed(
    rows: &RowVtable,
    declared: &AggregateSchema,
    group: &[u8],
    stored: Option<&[u8]>,
    less: Option<&[u8]>,
    more: Option<&[u8]>,
) -> Result<Option<Vec<u8>>> {
    let totals = Totals::decode(stored, declared);
    let mut totals = totals.map_err(|error| declared.corrupt(rows.schema, group, error))?;
    if let Some(less) = less {
        totals.remove(less);
    }
    if let Some(more) = more {
        totals.add(more);
    }
    totals.record(declared).map_err(|reason| declared.unrecordable(rows.schema, group, reason))
}

/// Totals of rows that were written without their aggregates, by group, in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gathered {
    /// The removed rows and the added rows of each group.
    groups: std::collections::BTreeMap<(usize, Vec<u8>), Totals>,
}

/// The maximum number of groups that are in memory.
const MOST: usize = 1 << 16;

impl Gathered {
    /// Notes that a row has changed from `old` to `new`, in the shard of `writer`.
    pub(crate) fn note(
        &mut self,
        rows: &RowVtable,
        writer: &mut Writer<'_, '_>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        if writer.sharded().is_some() {
            return NewTotals::of(rows, writer, old, new)?.write(writer, old, new);
        }
        self.add(rows, old, new);
        if self.groups.len() > MOST { self.write(rows, writer) } else { Ok(()) }
    }

    /// Notes that a row has changed from `old` to `new`, in memory.
    pub(crate) fn add(&mut self, rows: &RowVtable, old: Option<&Image>, new: Option<&Image>) {
        for aggregate in 0..rows.aggregates.len() {
            let position = rows.schema.indexes.len() + aggregate;
            for (image, change) in [(old, Totals::remove as fn(&mut _, &_)), (new, Totals::add)] {
                let Some(image) = image else { continue };
                let (group, summands) = image.group(position);
                change(self.groups.entry((aggregate, group.to_vec())).or_default(), summands);
            }
        }
    }

    /// Adds the changes that were noted elsewhere.
    pub(crate) fn merge(&mut self, other: Self) {
        for (group, totals) in other.groups {
            self.groups.entry(group).or_default().add_all(&totals);
        }
    }

    /// Returns the opposite changes.
    pub(crate) fn negated(&self) -> Self {
        let opposite = |(group, totals): (&(usize, Vec<u8>), &Totals)| {
            let mut none = Totals::default();
            none.remove_all(totals);
            (group.clone(), none)
        };
        Self { groups: self.groups.iter().map(opposite).collect() }
    }

    /// Adds the noted changes to the records.
    pub(crate) fn write(&mut self, rows: &RowVtable, writer: &mut Writer<'_, '_>) -> Result<()> {
        for ((aggregate, group), change) in std::mem::take(&mut self.groups) {
            let Some(declared) = rows.aggregates.get(aggregate) else { continue };
            if writer.adds_totals() {
                writer.add_totals(aggregate, &group, &change)?;
                continue;
            }
            let space = Space::Aggregate(aggregate);
            let totals = Totals::decode(writer.reader().get(space, &group)?, declared);
            let mut totals =
                totals.map_err(|error| declared.corrupt(rows.schema, &group, error))?;
            totals.add_all(&change);
            let record = totals.record(declared);
            let record =
                record.map_err(|reason| declared.unrecordable(rows.schema, &group, reason))?;
            set(writer, aggregate, &group, record.as_deref())?;
        }
        Ok(())
    }
}

/// Writes the totals of a group without a record.
pub(crate) fn write_first(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    (aggregate, declared): (usize, &AggregateSchema),
    group: &[u8],
    totals: &Totals,
) -> Result<()> {
    let record = totals.record(declared);
    let record = record.map_err(|reason| declared.unrecordable(rows.schema, group, reason))?;
    if writer.adds_totals() {
        return writer.add_totals(aggregate, group, totals);
    }
    set(writer, aggregate, group, record.as_deref())
}

/// Replaces or removes the record of a group.
pub(crate) fn set(
    writer: &mut Writer<'_, '_>,
    aggregate: usize,
    group: &[u8],
    record: Option<&[u8]>,
) -> Result<()> {
    let space = Space::Aggregate(aggregate);
    match record {
        Some(record) => writer.put(space, group, record),
        None => writer.remove(space, group),
    }
}
