//! One batch of a build: the rows that one transaction reads.

use super::{
    duplicates,
    rows::{self, Met, Range, Renewal, WriteAgain},
};
use crate::{
    engine::{Read, ReadRecords as _, Space, Write, WriteRecords as _},
    model::{
        error::{Error, Result},
        index_state::{Duplicate, Duplicates},
        maintain::{Change, Image, Sink, data_changes},
        row_vtable::TableRows,
        schema::{Building, Source, StateRecord, TableSchema},
    },
    placement::Writer,
    store::OpenTable,
    usage::trace::span,
    write::{Written, queue, rows::renew},
};

/// The mode of a batch.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
pub(super) struct BuildOptions {
    /// Whether violated indexes are checked for duplicates, and disabled indexes are rebuilt.
    pub(super) retry: bool,
    /// Whether the batch reads all rows, starting with the first row.
    pub(super) exclusive: bool,
    pub(super) bytes: usize,
    pub(super) memory: usize,
    pub(super) chosen: Chosen,
    /// Whether announced indexes are built although clients that don't declare them have the table open.
    pub(super) refuses_earlier: bool,
    /// Whether the build can write rows again.
    pub(super) renews: bool,
    /// Whether all pages of the table are checked before the first batch. The command line tool does, because a damaged page would end it.
    pub(super) checks: bool,
}

/// The indexes that a build builds, by their positions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chosen {
    All,
    /// All indexes but these.
    Without(&'static [usize]),
    Only(&'static [usize]),
}

impl Chosen {
    fn contains(self, index: usize) -> bool {
        match self {
            Self::All => true,
            Self::Without(others) => !others.contains(&index),
            Self::Only(these) => these.contains(&index),
        }
    }
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(super) struct BuildBatch {
    /// The indexes of the batch; empty if there is nothing to build.
    pub(super) indexes: Vec<usize>,
    pub(super) rows: u64,
    /// The number of rows whose entries these indexes have.
    pub(super) done: u64,
    /// The number of rows in the table.
    pub(super) of: u64,
    /// The states of all indexes that were not readable before the batch; `None` for an index that is now.
    pub(super) states: Vec<(usize, Option<StateRecord>)>,
}

/// Adds the entries of the next rows to the indexes with the least progress.
pub(super) fn build_batch(
    rows: &TableRows,
    table: &OpenTable,
    writer: &mut Writer<'_, '_>,
    written: &mut Written,
    options: BuildOptions,
) -> Result<BuildBatch, NotBuilt> {
    let mut batch = BuildBatch {
        of: writer.reader().stored(Source::Facts)?.unwrap_or(0),
        ..BuildBatch::default()
    };
    let (mut building, mut restarted) = (Vec::new(), Vec::new());
    let states = table.states(writer.reader())?;
    let incomplete = states.iter().filter(|(_, state)| state.is_some());
    let incomplete: Vec<usize> = incomplete.map(|(index, _)| *index).collect();
    for (index, state) in states.into_iter().filter(|(index, _)| options.chosen.contains(*index)) {
        match state {
            None => {}
            Some(StateRecord::Building(state)) => building.push((index, state)),
            Some(StateRecord::Violated(_)) if options.retry => {
                let state = violation(rows, writer, index)?;
                record(rows, writer, index, state.as_ref())?;
                batch.states.push((index, state));
            }
            Some(StateRecord::Emptied(_)) if options.retry => {
                clear(rows, writer, index)?;
                building.push((index, Building::default()));
            }
            Some(StateRecord::Disabled) if options.retry => {
                clear(rows, writer, index)?;
                restarted.push(index);
                building.push((index, Building::default()));
            }
            state => batch.states.push((index, state)),
        }
    }
    if options.exclusive {
        for (index, state) in &mut building {
            clear(rows, writer, *index)?;
            *state = Building::default();
            restarted.push(*index);
        }
    }
    purge(rows, writer, &restarted)?;
    // The indexes with the least progress are built up to the position of the next index. After that, all of
    // them are built together.
    let last_read = building.iter().map(|(_, state)| state.last_read.clone()).min().flatten();
    let (mut group, others): (Vec<_>, Vec<_>) =
        building.into_iter().partition(|(_, state)| state.last_read == last_read);
    let until = others.iter().filter_map(|(_, state)| state.last_read.clone()).min();
    batch.states.extend(
        others.into_iter().map(|(index, state)| (index, Some(StateRecord::Building(state)))),
    );
    batch.indexes = group.iter().map(|(index, _)| *index).collect();
    if group.is_empty() {
        return Ok(batch);
    }

    let bytes = (!options.exclusive).then_some(options.bytes);
    let range = Range { after: last_read.as_deref(), until: until.as_deref(), bytes };
    let mut note = |met: Met<'_>| {
        if let Some((_, state)) = group.iter_mut().find(|(index, _)| *index == met.index) {
            state.duplicates.add(met.count, || duplicate(rows, &met));
        }
        Ok(())
    };
    let mut write = |writer: &mut Writer<'_, '_>, old: &Image, new: &Image| {
        renew(rows, writer, written, old, new)
    };
    let write: Option<WriteAgain<'_>> = if options.renews { Some(&mut write) } else { None };
    let renewal = &mut Renewal { incomplete: &incomplete, write };
    let done = rows::add(rows, writer, &batch.indexes, range, options.memory, renewal, &mut note)?;
    if done.is_refused {
        return Err(NotBuilt::NeedsAllShards);
    }
    batch.rows = done.rows;
    let last_read = done.last_read.or(until);
    for (index, mut state) in group {
        state.rows += done.rows;
        (state.total, state.last_read) = (batch.of, last_read.clone());
        batch.done = state.rows;
        let state = if last_read.is_some() {
            Some(StateRecord::Building(state))
        } else if state.duplicates.count > 0 {
            // Some duplicates may have been resolved since the build found them.
            violation(rows, writer, index)?
        } else {
            None
        };
        record(rows, writer, index, state.as_ref())?;
        batch.states.push((index, state));
    }
    Ok(batch)
}

/// Returns the state of a unique index that has the entries of all rows: violated if it has duplicates, and
/// `None` otherwise.
fn violation(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    index: usize,
) -> Result<Option<StateRecord>> {
    let duplicates = duplicates::list(rows, writer.reader(), index)?;
    Ok((duplicates.count > 0).then_some(StateRecord::Violated(duplicates)))
}

/// Why a batch has failed.
pub(super) enum NotBuilt {
    /// A row has to be written again in all shards at once, and the build is of one shard.
    NeedsAllShards,
    Other(Error),
}

impl From<Error> for NotBuilt {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl NotBuilt {
    /// Returns the error for a table with this schema.
    #[cold]
    pub(super) fn error(self, schema: &TableSchema) -> Error {
        match self {
            Self::Other(error) => error,
            Self::NeedsAllShards => Error::SchemaMismatch {
                table: schema.name,
                difference: "its rows lack fields of the struct, and have to be written again before an index is built, at the \
                             same time in all shards"
                    .to_owned(),
                way_out: "open the store with all shards of the table",
            },
        }
    }
}

/// Builds these indexes from all rows, as part of a larger transaction. `incomplete` are all indexes that don't have the entries of
/// all rows. Returns `false` if a row has to be written again first, and the writer is of one shard that can't do that: then the
/// indexes have to be [declared](declare).
///
/// # Errors
///
/// [`Error::UniqueViolation`](crate::Error::UniqueViolation) for the first duplicate.
pub(crate) fn at_once(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
    (incomplete, renews): (&[usize], bool),
    memory: usize,
) -> Result<bool> {
    for &index in indexes {
        clear(rows, writer, index)?;
        record(rows, writer, index, None)?;
    }
    purge(rows, writer, indexes)?;
    if indexes.is_empty() {
        return Ok(true);
    }
    span!(DEBUG, "build", table = rows.schema.name, indexes = indexes.len());
    let mut refuse = |Met { index, key, holder, image, .. }: Met<'_>| {
        Err(rows.taken(index, key, image.hashed(index), holder))
    };
    let mut write = write_at_once(rows, incomplete);
    let write: Option<WriteAgain<'_>> = if renews { Some(&mut write) } else { None };
    let renewal = &mut Renewal { incomplete, write };
    let done = rows::add(rows, writer, indexes, Range::default(), memory, renewal, &mut refuse)?;
    Ok(!done.is_refused)
}

/// Writes all readable rows with older lists again, as part of a larger transaction. `incomplete` are all indexes that don't have
/// the entries of all rows. Entries of the others may have keys that a row no longer has, so entries of unique indexes, where a key
/// can be that of another row, stay as they are.
pub(crate) fn renew_all(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    incomplete: &[usize],
) -> Result<()> {
    let all: Vec<usize> = (0..rows.first_reference() + rows.references.len()).collect();
    let unique = rows.schema.indexes.iter().enumerate().filter(|(_, index)| index.unique);
    let incomplete: Vec<usize> =
        unique.map(|(at, _)| at).chain(incomplete.iter().copied()).collect();
    let write = Some(&mut write_at_once(rows, &incomplete) as WriteAgain<'_>);
    rows::renew(rows, writer, &mut Renewal { incomplete: &all, write })
}

/// Writes a row again, with the data of its entries in all indexes but the incomplete ones.
fn write_at_once(
    rows: &TableRows,
    incomplete: &[usize],
) -> impl FnMut(&mut Writer<'_, '_>, &Image, &Image) -> Result<()> {
    move |writer, old, new| {
        writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
        data_changes(rows.schema, old, new, &mut Complete { writer, incomplete })
    }
}

/// Passes on the changes of all indexes but the incomplete ones.
struct Complete<'a, 't, 's> {
    writer: &'a mut Writer<'t, 's>,
    incomplete: &'a [usize],
}

impl Sink for Complete<'_, '_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. }
                if self.incomplete.contains(&index) =>
            {
                Ok(())
            }
            _ => self.writer.change(change),
        }
    }
}

/// Empties these indexes, and records that they have to be built.
pub(crate) fn empty(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
) -> Result<()> {
    let emptied = StateRecord::Emptied(Duplicates::default());
    for &index in indexes {
        writer.clear(index)?;
        record(rows, writer, index, Some(&emptied))?;
    }
    Ok(())
}

/// Empties the parts of these global indexes in a shard without keys of them. They are complete. Queued messages stay: they can be
/// of rows that have moved to other shards.
pub(crate) fn leave_to_others(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
) -> Result<()> {
    for &index in indexes {
        writer.clear(index)?;
        record(rows, writer, index, None)?;
    }
    Ok(())
}

/// Records that these indexes have to be built; `of` is the number of rows.
pub(crate) fn declare(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
    of: u64,
) -> Result<()> {
    let building = StateRecord::Building(Building { total: of, ..Building::default() });
    for &index in indexes {
        clear(rows, writer, index)?;
        record(rows, writer, index, (of > 0).then_some(&building))?;
    }
    purge_totals(rows, writer, indexes)
}

/// Restarts the builds of these indexes from the first row.
pub(crate) fn restart(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
) -> Result<()> {
    let (of, mut restarted) = (writer.reader().stored(Source::Facts)?.unwrap_or(0), Vec::new());
    for &index in indexes {
        let Some(name) = rows.schema.name_at(index) else { continue };
        let state = writer.reader().record(name)?.and_then(StateRecord::decode);
        if let Some(StateRecord::Building(_)) = state {
            clear(rows, writer, index)?;
            let building = StateRecord::Building(Building { total: of, ..Building::default() });
            record(rows, writer, index, Some(&building))?;
            restarted.push(index);
        }
    }
    purge_totals(rows, writer, &restarted)
}

/// Removes emptied aggregates from the queued messages. Messages for an emptied index do no harm.
fn purge_totals(rows: &TableRows, writer: &mut Writer<'_, '_>, positions: &[usize]) -> Result<()> {
    let is_aggregate = |position: &usize| rows.schema.aggregate(*position).is_some();
    let aggregates: Vec<usize> = positions.iter().copied().filter(is_aggregate).collect();
    purge(rows, writer, &aggregates)
}

/// Removes emptied indexes from the queued messages, since their builds read all rows.
fn purge(rows: &TableRows, writer: &mut Writer<'_, '_>, indexes: &[usize]) -> Result<()> {
    let schema = rows.schema;
    if indexes.iter().any(|index| schema.is_eventual(*index)) {
        let is_empty = |name: &str| {
            indexes.iter().filter_map(|index| schema.name_at(*index)).any(|it| it == name)
        };
        if writer.reader().is_split()
            && let Some(sharded) = writer.several()
        {
            // Each shard has a queue.
            for shard in sharded.parts() {
                sharded.part(shard, &mut |writer| {
                    queue::purge(schema, writer, |name| !is_empty(name))
                })?;
            }
            return Ok(());
        }
        queue::purge(schema, writer, |name| !is_empty(name))?;
    }
    Ok(())
}

/// Writes the state of an index; `None` means readable.
fn record(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    index: usize,
    state: Option<&StateRecord>,
) -> Result<()> {
    let Some(name) = rows.schema.name_at(index) else { return Ok(()) };
    match state {
        Some(state) => writer.put_record(name, &state.encode(rows.schema.name)?),
        None => writer.remove_record(name),
    }
}

/// Empties the index or aggregate at this position.
fn clear(rows: &TableRows, writer: &mut Writer<'_, '_>, position: usize) -> Result<()> {
    match position.checked_sub(rows.schema.indexes.len()) {
        Some(aggregate) => writer.clear_space(Space::Aggregate(aggregate)),
        None => writer.clear(position),
    }
}

fn duplicate(rows: &TableRows, Met { image, index, key, holder, .. }: &Met<'_>) -> Duplicate {
    Duplicate {
        key: rows.schema.show_hashed_key(Source::Index(*index), key, image.hashed(*index)),
        holder: rows.schema.show_primary_key(holder),
        row: rows.schema.show_primary_key(image.primary_key()),
    }
}
