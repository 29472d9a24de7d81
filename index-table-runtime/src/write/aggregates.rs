//! Changing the aggregates of a table with a row: in its transaction, or by a message for the worker.

use crate::{
    engine::{Read as _, Space, Write as _},
    model::{
        aggregate::Totals, error::Result, maintain::Image, row_vtable::TableRows,
        schema::AggregateSchema,
    },
    placement::Writer,
    write::{
        maintenance::{MaintenancePlan, RowCount},
        queue::totals::{self, TotalsChange},
    },
};

/// The changes of the aggregates that a write of a row makes; `None` for a table without aggregates, which costs nothing.
#[derive(Debug)]
pub(crate) struct NewTotals(Option<Box<TotalsChanges>>);

/// The new records of the groups, and the changes that a worker will apply.
#[derive(Debug)]
struct TotalsChanges {
    records: Vec<NewRecord>,
    later: Vec<LaterChange>,
}

/// A change of an eventual aggregate.
#[derive(Debug)]
struct LaterChange {
    position: usize,
    is_of_old: bool,
}

#[derive(Debug)]
struct NewRecord {
    aggregate: usize,
    /// Whether the record is in the shard of the old row.
    is_of_old: bool,
    group: Vec<u8>,
    change: RecordChange,
}

#[derive(Debug)]
enum RecordChange {
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
        rows: &TableRows,
        writer: &Writer<'_, '_>,
        plan: Option<&MaintenancePlan>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<Self> {
        if rows.aggregates.is_empty() {
            return Ok(Self(None));
        }
        Self::of_aggregates(rows, writer, plan, old, new)
    }

    #[inline(never)]
    fn of_aggregates(
        rows: &TableRows,
        writer: &Writer<'_, '_>,
        plan: Option<&MaintenancePlan>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<Self> {
        let is_same_shard = match (old, new) {
            (Some(old), Some(new)) => writer.have_same_shard(old.primary_key(), new.primary_key()),
            _ => false,
        };
        let (mut records, mut later) = (Vec::new(), Vec::new());
        for (aggregate, declared) in rows.aggregates.iter().enumerate() {
            let position = rows.schema.indexes.len() + aggregate;
            let [before, after] = [old, new].map(|image| image.map(|it| it.group(position)));
            let counts = |image: Option<&Image>| match plan {
                Some(plan) => {
                    image.map(|it| plan.counts(writer.reader(), position, it.primary_key()))
                }
                None => image.map(|_| RowCount::InTransaction),
            };
            let counts = [old, new].map(counts);
            let is_same_count = is_same_shard && counts[0] == counts[1];
            if is_same_count && before == after {
                continue;
            }
            for (count, is_of_old) in counts.into_iter().zip([true, false]) {
                if count == Some(RowCount::Later) {
                    later.push(LaterChange { position, is_of_old });
                }
            }
            let [before, after] = [(before, counts[0]), (after, counts[1])]
                .map(|(group, count)| group.filter(|_| count == Some(RowCount::InTransaction)));
            let is_same_group =
                is_same_count && before.map(|(group, _)| group) == after.map(|(group, _)| group);
            let mut record =
                |image: Option<&Image>, is_of_old, group: &[u8], [less, more]: [_; 2]| {
                    let Some(image) = image else { return Ok(()) };
                    let mut push = |change| {
                        let group = group.to_vec();
                        records.push(NewRecord { aggregate, is_of_old, group, change });
                    };
                    if writer.adds_totals() {
                        push(RecordChange::Added(difference(less, more)));
                        return Ok(());
                    }
                    let reader = writer.reader().of_row(image.primary_key())?;
                    let stored = reader.get(Space::Aggregate(aggregate), group)?;
                    let record = changed(rows, declared, group, stored, less, more)?;
                    push(RecordChange::Record(record));
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
        Ok(Self(Some(Box::new(TotalsChanges { records, later }))))
    }

    /// Writes the records, and notes the changes for the worker.
    #[inline]
    pub(crate) fn write(
        &self,
        writer: &mut Writer<'_, '_>,
        plan: Option<&mut MaintenancePlan>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |changes| changes.write(writer, plan, old, new))
    }
}

impl TotalsChanges {
    #[inline(never)]
    fn write(
        &self,
        writer: &mut Writer<'_, '_>,
        plan: Option<&mut MaintenancePlan>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        if let Some(plan) = plan {
            for LaterChange { position, is_of_old } in &self.later {
                let image = if *is_of_old { old } else { new };
                let Some(image) = image else { continue };
                let (group, summands) = image.group(*position);
                let change = TotalsChange { is_added: !is_of_old, group, summands };
                plan.note_totals(*position, image.primary_key(), &totals::encode(change));
            }
        }
        for NewRecord { aggregate, is_of_old, group, change } in &self.records {
            let record = match change {
                RecordChange::Record(record) => record,
                RecordChange::Added(change) => {
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
    rows: &TableRows,
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
        rows: &TableRows,
        writer: &mut Writer<'_, '_>,
        plan: Option<&MaintenancePlan>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        if writer.several().is_some() {
            return NewTotals::of(rows, writer, plan, old, new)?.write(writer, None, old, new);
        }
        let reader = writer.reader();
        self.add_counted(rows, old, new, &|position, image| {
            plan.is_none_or(|plan| {
                plan.counts(reader, position, image.primary_key()) != RowCount::Never
            })
        });
        if self.is_full() { self.write(rows, writer) } else { Ok(()) }
    }

    /// Notes that a row has changed from `old` to `new`, in memory.
    pub(crate) fn add(&mut self, rows: &TableRows, old: Option<&Image>, new: Option<&Image>) {
        self.add_counted(rows, old, new, &|_, _| true);
    }

    /// Notes that a row has changed, in memory, for the aggregates in which `is_counted` counts the images.
    fn add_counted(
        &mut self,
        rows: &TableRows,
        old: Option<&Image>,
        new: Option<&Image>,
        is_counted: &dyn Fn(usize, &Image) -> bool,
    ) {
        for aggregate in 0..rows.aggregates.len() {
            let position = rows.schema.indexes.len() + aggregate;
            for (image, change) in [(old, Totals::remove as fn(&mut _, &_)), (new, Totals::add)] {
                let Some(image) = image.filter(|image| is_counted(position, image)) else {
                    continue;
                };
                let (group, summands) = image.group(position);
                change(self.groups.entry((aggregate, group.to_vec())).or_default(), summands);
            }
        }
    }

    /// Whether the groups in memory have to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.groups.len() > MOST
    }

    /// Adds a row of this image to one aggregate.
    pub(crate) fn add_to(&mut self, rows: &TableRows, aggregate: usize, image: &Image) {
        let (group, summands) = image.group(rows.schema.indexes.len() + aggregate);
        self.groups.entry((aggregate, group.to_vec())).or_default().add(summands);
    }

    /// Adds the change in a message.
    pub(crate) fn add_change(&mut self, aggregate: usize, change: TotalsChange<'_>) {
        let TotalsChange { is_added, group, summands } = change;
        let totals = self.groups.entry((aggregate, group.to_vec())).or_default();
        if is_added { totals.add(summands) } else { totals.remove(summands) }
    }

    /// Returns the noted changes of one aggregate by group, in the order of the groups.
    pub(crate) fn of_aggregate(&self, aggregate: usize) -> impl Iterator<Item = (&[u8], &Totals)> {
        let groups = self.groups.range((aggregate, Vec::new())..(aggregate + 1, Vec::new()));
        groups.map(|((_, group), totals)| (group.as_slice(), totals))
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

    /// Adds the noted changes to the records. After an error, nothing has changed.
    pub(crate) fn write(&mut self, rows: &TableRows, writer: &mut Writer<'_, '_>) -> Result<()> {
        let mut records = Vec::new();
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
            records.push((aggregate, group, record));
        }
        for (aggregate, group, record) in records {
            set(writer, aggregate, &group, record.as_deref())?;
        }
        Ok(())
    }
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
