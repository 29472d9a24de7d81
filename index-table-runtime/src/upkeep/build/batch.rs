//! One batch of a build: the rows that one transaction reads.

use super::{
    duplicates,
    rows::{self, Met, Range},
};
use crate::{
    engine::{Read, ReadRecords as _, Write, WriteRecords as _, Writer},
    model::{
        error::Result,
        row_vtable::RowVtable,
        schema::{Building, Duplicate, IndexSchema, Source, StateRecord},
    },
    store::OpenTable,
    usage::trace::span,
    write::queue,
};

/// How a batch is built.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildOptions {
    /// Whether violated indexes are looked through, and disabled ones are built from the first row.
    pub(super) retry: bool,
    /// All rows at once, and from the first one.
    pub(super) exclusive: bool,
    pub(super) bytes: usize,
    pub(super) memory: usize,
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(super) struct BuildBatch {
    /// The indexes that it was about; none: there is nothing to be built.
    pub(super) indexes: Vec<usize>,
    pub(super) rows: u64,
    /// How far these indexes are, and how many rows there are.
    pub(super) done: u64,
    pub(super) of: u64,
    /// The states of all indexes that are not readable, or were not before the batch.
    pub(super) states: Vec<(usize, Option<StateRecord>)>,
}

/// Adds the entries of the next rows to the indexes that are furthest behind.
pub(super) fn build_batch(
    rows: &RowVtable,
    table: &OpenTable,
    writer: &mut Writer<'_, '_>,
    options: BuildOptions,
) -> Result<BuildBatch> {
    let mut batch = BuildBatch {
        of: writer.reader().stored(Source::Facts)?.unwrap_or(0),
        ..BuildBatch::default()
    };
    let (mut building, mut restarted) = (Vec::new(), Vec::new());
    for index in 0..rows.schema.indexes.len() {
        match table.state(writer.reader(), index)? {
            None => {}
            Some(StateRecord::Building(state)) => building.push((index, state)),
            Some(StateRecord::Violated(_)) if options.retry => {
                let state = violation(rows, writer, index)?;
                record(rows, writer, index, state.as_ref())?;
                batch.states.push((index, state));
            }
            Some(StateRecord::Emptied(_)) if options.retry => {
                writer.clear(index)?;
                building.push((index, Building::default()));
            }
            Some(StateRecord::Disabled) if options.retry => {
                writer.clear(index)?;
                restarted.push(index);
                building.push((index, Building::default()));
            }
            state => batch.states.push((index, state)),
        }
    }
    if options.exclusive {
        for (index, state) in &mut building {
            writer.clear(*index)?;
            *state = Building::default();
            restarted.push(*index);
        }
    }
    purge(rows, writer, &restarted)?;
    // Indexes that were declared at different times come together where one is at the other's
    // place.
    let behind = building.iter().map(|(_, state)| state.behind.clone()).min().flatten();
    let (mut group, others): (Vec<_>, Vec<_>) =
        building.into_iter().partition(|(_, state)| state.behind == behind);
    let until = others.iter().filter_map(|(_, state)| state.behind.clone()).min();
    batch.states.extend(
        others.into_iter().map(|(index, state)| (index, Some(StateRecord::Building(state)))),
    );
    batch.indexes = group.iter().map(|(index, _)| *index).collect();
    if group.is_empty() {
        return Ok(batch);
    }

    let bytes = (!options.exclusive).then_some(options.bytes);
    let range = Range { behind: behind.as_deref(), until: until.as_deref(), bytes };
    let mut note = |met: Met<'_>| {
        if let Some((_, state)) = group.iter_mut().find(|(index, _)| *index == met.index) {
            state.duplicates.add(met.count, || duplicate(rows, &met));
        }
        Ok(())
    };
    let done = rows::add(rows, writer, &batch.indexes, range, options.memory, &mut note)?;
    batch.rows = done.rows;
    let behind = done.behind.or(until);
    for (index, mut state) in group {
        state.rows += done.rows;
        (state.of, state.behind) = (batch.of, behind.clone());
        batch.done = state.rows;
        let state = if behind.is_some() {
            Some(StateRecord::Building(state))
        } else if state.duplicates.count > 0 {
            // Some may have been resolved since the build has met them.
            violation(rows, writer, index)?
        } else {
            None
        };
        record(rows, writer, index, state.as_ref())?;
        batch.states.push((index, state));
    }
    Ok(batch)
}

/// The state of a unique index that has the entries of all rows, by the duplicates in it.
fn violation(
    rows: &RowVtable,
    writer: &Writer<'_, '_>,
    index: usize,
) -> Result<Option<StateRecord>> {
    let duplicates = duplicates::list(rows, writer.reader(), index)?;
    Ok((duplicates.count > 0).then_some(StateRecord::Violated(duplicates)))
}

/// Builds these indexes from all rows, as part of a larger transaction.
///
/// # Errors
///
/// [`Error::UniqueViolation`](crate::Error::UniqueViolation) for the first duplicate.
pub(crate) fn at_once(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
    memory: usize,
) -> Result<()> {
    for &index in indexes {
        writer.clear(index)?;
        record(rows, writer, index, None)?;
    }
    purge(rows, writer, indexes)?;
    if !indexes.is_empty() {
        span!(DEBUG, "build", table = rows.schema.name, indexes = indexes.len());
        let mut refuse = |Met { index, key, holder, image, .. }: Met<'_>| {
            Err(rows.taken(index, key, image.hashed(index), holder))
        };
        rows::add(rows, writer, indexes, Range::default(), memory, &mut refuse)?;
    }
    Ok(())
}

/// Declares that these indexes are to be built; `of`: the rows that there are.
pub(crate) fn declare(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
    of: u64,
) -> Result<()> {
    let building = StateRecord::Building(Building { of, ..Building::default() });
    for &index in indexes {
        writer.clear(index)?;
        record(rows, writer, index, (of > 0).then_some(&building))?;
    }
    Ok(())
}

/// Lets the builds of these indexes begin with the first row again, as far as they are being built.
pub(crate) fn restart(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
) -> Result<()> {
    let of = writer.reader().stored(Source::Facts)?.unwrap_or(0);
    for &index in indexes {
        let Some(declared) = rows.schema.indexes.get(index) else { continue };
        let state = writer.reader().record(declared.name)?.and_then(StateRecord::decode);
        if let Some(StateRecord::Building(_)) = state {
            writer.clear(index)?;
            let building = StateRecord::Building(Building { of, ..Building::default() });
            record(rows, writer, index, Some(&building))?;
        }
    }
    Ok(())
}

/// Takes indexes that are empty out of what is queued: their builds come to all rows.
fn purge(rows: &RowVtable, writer: &mut Writer<'_, '_>, indexes: &[usize]) -> Result<()> {
    let schema = rows.schema;
    if indexes.iter().any(|index| schema.is_eventual(*index)) {
        let is_empty = |name: &str| {
            let named = |index: &IndexSchema| index.name == name;
            indexes.iter().filter_map(|index| schema.indexes.get(*index)).any(named)
        };
        queue::purge(schema, writer, |name| !is_empty(name))?;
    }
    Ok(())
}

/// Writes the state of an index; `None`: it is readable.
fn record(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    index: usize,
    state: Option<&StateRecord>,
) -> Result<()> {
    let Some(declared) = rows.schema.indexes.get(index) else { return Ok(()) };
    match state {
        Some(state) => writer.put_record(declared.name, &state.encode(rows.schema.name)?),
        None => writer.remove_record(declared.name),
    }
}

fn duplicate(rows: &RowVtable, Met { image, index, key, holder, .. }: &Met<'_>) -> Duplicate {
    Duplicate {
        key: rows.schema.show_hashed_key(Source::Index(*index), key, image.hashed(*index)),
        holder: rows.schema.show_primary_key(holder),
        row: rows.schema.show_primary_key(image.primary_key()),
    }
}
