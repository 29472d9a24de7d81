//! Maintenance of the indexes of a table if some are not readable, or are eventual.
//!
//! During the build of an index, each write of a row also writes its entries, at any progress of the
//! build. The build writes the entries of every row, some of them a second time. Therefore, all entries are correct
//! at any time, and none is missing at the end. Until then, a unique index can have several entries of one key,
//! because rows that are older than the index can share a key: each row has an entry, and the build counts the
//! duplicates. A row that the build has not reached, and that shares a key with another row, must not move to a
//! primary key that the build has passed.
//!
//! A violated index is maintained in the same way, but no key is refused. Changes of an eventual index become
//! messages for the worker; see [`queue`](crate::write::queue).
//!
//! An aggregate under construction has the totals of the rows up to the last row that the build has read. A write changes
//! the totals of such rows only; the build counts the later rows. So each row is counted once.
//!
//! In a sharded store, each shard builds its local indexes by itself, so the state of an index differs between shards.
//! A transaction reads the states in the shard of each row that it writes. The shard is locked, so its states don't change
//! until the transaction ends. The state of a global index changes in transactions of all shards, so each shard has it.

use crate::engine::Limit;
use crate::{
    engine::{ReadRecords as _, Write as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        index_state::{Duplicates, IndexState},
        maintain::{self, Change, Image, Sink},
        schema::{StateRecord, TableSchema},
        shard::ShardNumber,
    },
    placement::{Reader, Writer},
    write::{Counting, queue::Outbox},
};

/// The maintenance of each index of a table in a transaction.
#[derive(Debug)]
pub(crate) struct MaintenancePlan {
    /// The maintenance where the rows are. A table in several shards has an element for each shard whose rows the
    /// transaction has written, because an index may be readable in one shard and under construction in another.
    places: Vec<Place>,
    /// The position of the place of the current row.
    current: usize,
    /// Whether the rows are in several shards.
    is_by_shard: bool,
    /// The messages of the transaction, if an index is eventual.
    later: Option<Outbox>,
}

/// The maintenance of each index for the rows of a plain store, or of a shard.
#[derive(Debug)]
struct Place {
    /// `None` if all rows are in one place.
    shard: Option<ShardNumber>,
    /// The maintenance of each index, and then of each aggregate.
    by_index: Box<[Maintenance]>,
    /// For unique indexes under construction, the last row that the build has read.
    built: Vec<(usize, Vec<u8>)>,
    /// The unique indexes in which several rows may have a key.
    violated: Vec<usize>,
    /// The unique indexes that are emptied, so that no taken key is found.
    emptied: Vec<usize>,
    /// For aggregates under construction, the last row that the build has counted.
    counted: Vec<(usize, Option<Vec<u8>>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maintenance {
    /// The transaction changes the entries as declared.
    Immediate,
    /// The transaction changes the entries, and several rows may have entries with the same key.
    Shared,
    /// The worker changes the entries after the transaction.
    Eventual,
    None,
}

impl Place {
    fn of(
        schema: &TableSchema,
        shard: Option<ShardNumber>,
        states: impl IntoIterator<Item = (usize, StateRecord)>,
    ) -> Self {
        let declared = |position| {
            if schema.is_eventual(position) {
                Maintenance::Eventual
            } else {
                Maintenance::Immediate
            }
        };
        let mut by_index: Box<[Maintenance]> = schema.positions().map(declared).collect();
        let (mut built, mut violated, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        let mut emptied = Vec::new();
        for (index, state) in states {
            let Some(how) = by_index.get_mut(index) else { continue };
            let Some(of) = schema.indexes.get(index) else {
                match state {
                    StateRecord::Building(state) => counted.push((index, state.last_read)),
                    _ => *how = Maintenance::None,
                }
                continue;
            };
            match state {
                StateRecord::Building(state) => {
                    if of.has_one_entry_per_key() {
                        *how = Maintenance::Shared;
                    }
                    built.extend(state.last_read.filter(|_| of.unique).map(|at| (index, at)));
                }
                StateRecord::Violated(_) => {
                    if of.has_one_entry_per_key() {
                        *how = Maintenance::Shared;
                    }
                    violated.push(index);
                }
                StateRecord::Emptied(_) => {
                    *how = Maintenance::None;
                    emptied.extend(of.unique.then_some(index));
                }
                StateRecord::Retired(_) | StateRecord::Disabled | StateRecord::Announced(_) => {
                    *how = Maintenance::None;
                }
            }
        }
        Self { shard, by_index, built, violated, emptied, counted }
    }

    fn how(&self, index: usize) -> Maintenance {
        self.by_index.get(index).copied().unwrap_or(Maintenance::Immediate)
    }

    fn enforces(&self, index: usize) -> bool {
        self.how(index) != Maintenance::None && !self.violated.contains(&index)
    }
}

impl MaintenancePlan {
    /// Returns the plan; `None` if all indexes are maintained as declared, in the transaction.
    pub(crate) fn of(
        schema: &TableSchema,
        limit: Limit,
        reader: Reader<'_>,
        states: Vec<(usize, StateRecord)>,
    ) -> Result<Option<Self>> {
        let place = Place::of(schema, None, states);
        let later = if place.by_index.contains(&Maintenance::Eventual) {
            Some(Outbox::new(schema, reader, limit)?)
        } else {
            None
        };
        let is_needed = !place.violated.is_empty()
            || !place.counted.is_empty()
            || place.by_index.iter().any(|how| *how != Maintenance::Immediate);
        let plan = || Self { places: vec![place], current: 0, is_by_shard: false, later };
        Ok(is_needed.then(plan))
    }

    /// Returns the plan of a table in several shards. Before each row, [`turn_to`](Self::turn_to) reads the states of
    /// the indexes in the row's shard. So the plan locks no shard that the transaction does not write.
    pub(crate) fn by_shard(schema: &TableSchema, limit: Limit) -> Self {
        let later = schema.has_eventual().then(|| Outbox::by_shard(limit));
        Self { places: Vec::new(), current: 0, is_by_shard: true, later }
    }

    /// Reads the states of the indexes in the shards of a row, before it is written. A global index has the same state in
    /// all shards.
    pub(crate) fn turn_to(
        &mut self,
        schema: &TableSchema,
        reader: Reader<'_>,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        if !self.is_by_shard {
            return Ok(());
        }
        for row in [old, new].into_iter().flatten() {
            if let Some((shard, reader)) = reader.shard_of_row(row.primary_key())? {
                self.turn_to_shard(schema, shard, reader)?;
            }
        }
        let rows = [old, new].into_iter().flatten().map(Image::primary_key);
        self.later.as_mut().map_or(Ok(()), |later| later.enter(schema, reader, rows))
    }

    /// Whether the transaction changes the entries of eventual indexes of the current row.
    pub(crate) fn is_in_line(&self) -> bool {
        self.later.as_ref().is_some_and(|later| later.in_line)
    }

    /// Reads the states of the indexes in all shards.
    pub(crate) fn turn_to_all(&mut self, schema: &TableSchema, reader: Reader<'_>) -> Result<()> {
        if self.is_by_shard {
            for (shard, reader) in reader.shards_of_rows()? {
                self.turn_to_shard(schema, shard, reader)?;
            }
        }
        Ok(())
    }

    /// Reads the states of the indexes in a shard with rows.
    pub(crate) fn turn_to_shard(
        &mut self,
        schema: &TableSchema,
        shard: ShardNumber,
        reader: Reader<'_>,
    ) -> Result<()> {
        if let Some(known) = self.places.iter().position(|place| place.shard == Some(shard)) {
            self.current = known;
            return Ok(());
        }
        let mut states = Vec::new();
        for (position, name) in
            schema.positions().filter_map(|at| schema.name_at(at).map(|it| (at, it)))
        {
            if let Some(record) = reader.record(name)? {
                let state = StateRecord::decode(record);
                let damaged = || StateRecord::unreadable(schema.name, name);
                states.push((position, state.ok_or_else(damaged)?));
            }
        }
        self.current = self.places.len();
        self.places.push(Place::of(schema, Some(shard), states));
        Ok(())
    }

    fn place(&self) -> Option<&Place> {
        self.places.get(self.current)
    }

    /// Whether an index is maintained, in the transaction or later.
    pub(crate) fn maintains(&self, index: usize) -> bool {
        self.place().is_none_or(|place| place.how(index) != Maintenance::None)
    }

    /// Whether the entries of an index change in the transaction.
    pub(crate) fn is_immediate(&self, index: usize) -> bool {
        let is_immediate =
            |how: Maintenance| matches!(how, Maintenance::Immediate | Maintenance::Shared);
        self.place().is_none_or(|place| is_immediate(place.how(index)))
    }

    /// Whether a unique index refuses a second row with the key of the current row.
    pub(crate) fn enforces(&self, index: usize) -> bool {
        self.place().is_none_or(|place| place.enforces(index))
    }

    /// Fails if a unique index is emptied in a shard that the transaction has written, so that no taken key is found.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`]
    pub(crate) fn refuse_emptied(&self, schema: &TableSchema, index: usize) -> Result<()> {
        if self.places.iter().all(|place| !place.emptied.contains(&index)) {
            return Ok(());
        }
        Err(Error::IndexNotReadable {
            table: schema.name,
            index: schema.name_at(index).unwrap_or_default(),
            state: IndexState::Building { rows: 0, of: 0, duplicates: Duplicates::default() },
        })
    }

    /// Whether a unique index refuses a second row with the same key in some place.
    pub(crate) fn enforces_anywhere(&self, index: usize) -> bool {
        self.places.is_empty() || self.places.iter().any(|place| place.enforces(index))
    }

    /// Returns the unique indexes in which several rows may have entries with the key of the current row.
    pub(crate) fn shared(&self) -> impl Iterator<Item = usize> {
        let by_index = self.place().map(|place| &*place.by_index).unwrap_or_default();
        let shared = by_index.iter().enumerate().filter(|(_, how)| **how == Maintenance::Shared);
        shared.map(|(index, _)| index)
    }

    /// Whether a load may write all entries of an index as declared. This includes eventual indexes.
    pub(crate) fn is_up(&self, index: usize) -> bool {
        let is_up =
            |how: Maintenance| matches!(how, Maintenance::Immediate | Maintenance::Eventual);
        self.places.iter().all(|place| is_up(place.how(index)))
    }

    /// Returns the unique indexes whose builds would miss a row that moves from the primary key `old`, which they
    /// have not reached, to `new`, which they have passed. In a local index, a row that moves to another shard also gets
    /// another key, so the check of the new key suffices.
    pub(crate) fn passed(&self, old: &[u8], new: &[u8]) -> impl Iterator<Item = usize> {
        let built = self.place().map(|place| &*place.built).unwrap_or_default();
        let passed = move |at: &[u8]| new <= at && at < old;
        built.iter().filter(move |(_, at)| passed(at)).map(|(index, _)| *index)
    }

    /// Returns when a row with this primary key is counted in the aggregate at this position.
    pub(crate) fn counts(
        &self,
        reader: Reader<'_>,
        position: usize,
        primary_key: &[u8],
    ) -> RowCount {
        let place = place_of(&self.places, reader, primary_key);
        let Some(place) = place else { return RowCount::InTransaction };
        let counted = place.counted.iter().find(|(building, _)| *building == position);
        let is_counted =
            counted.is_none_or(|(_, last)| last.as_deref().is_some_and(|last| primary_key <= last));
        match place.how(position) {
            _ if !is_counted => RowCount::Never,
            Maintenance::None => RowCount::Never,
            Maintenance::Eventual if self.later.as_ref().is_some_and(|later| !later.in_line) => {
                RowCount::Later
            }
            _ => RowCount::InTransaction,
        }
    }

    /// Notes a change of the totals of an eventual aggregate for [`leave`](Self::leave).
    pub(crate) fn note_totals(&mut self, position: usize, primary_key: &[u8], change: &[u8]) {
        if let Some(later) = &mut self.later {
            later.note_part(position, primary_key, Some(change));
        }
    }

    /// Starts an operation on a row. With `in_line`, the transaction makes all changes, and leaves no message.
    pub(crate) fn begin(&mut self, in_line: bool) {
        if let Some(later) = &mut self.later {
            later.begin(in_line);
        }
    }

    /// Whether writes that leave a message have to wait for room.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.later.as_ref().is_some_and(Outbox::has_to_wait)
    }

    /// Fails if the changes from `old` to `new` leave a message. Called before anything is written.
    ///
    /// # Errors
    ///
    /// [`Error::IndexQueueFull`](crate::Error::IndexQueueFull)
    pub(crate) fn refuse(
        &mut self,
        schema: &TableSchema,
        old: Option<&Image>,
        new: Option<&Image>,
    ) -> Result<()> {
        let Self { places, current, later: Some(later), .. } = self else { return Ok(()) };
        let by_index = places.get(*current).map(|place| &*place.by_index).unwrap_or_default();
        let is_changed = |position: usize| {
            let [old, new] = [old, new].map(|image| image.map(|image| image.group(position)));
            old != new
        };
        let mut aggregates = schema.positions().skip(schema.indexes.len());
        if aggregates.any(|at| by_index.get(at) == Some(&Maintenance::Eventual) && is_changed(at)) {
            return Err(later.refuse(schema));
        }
        maintain::entry_changes(schema, old, new, &mut Refuse { by_index, later, schema })
    }

    /// Returns a sink for the index changes of a write of a row that had the primary key `old`. The sink passes on
    /// immediate changes and notes deferred changes for [`leave`](MaintenancePlan::leave).
    pub(crate) fn filter<'a, 't, 's>(
        &'a mut self,
        to: Counting<'a, Writer<'t, 's>>,
        old: Option<&'a [u8]>,
    ) -> Filter<'a, 't, 's> {
        let Self { places, later, .. } = self;
        Filter { places, later: later.as_mut().filter(|later| !later.in_line), to, old }
    }

    /// Returns a sink that passes on all changes, including the changes of eventual indexes.
    pub(crate) fn filter_in_line<'a, 't, 's>(
        &'a self,
        to: Counting<'a, Writer<'t, 's>>,
    ) -> Filter<'a, 't, 's> {
        Filter { places: &self.places, later: None, to, old: None }
    }

    /// Leaves messages about the noted changes. If the queue has no room, disables the indexes instead.
    pub(crate) fn leave(
        &mut self,
        schema: &TableSchema,
        writer: &mut Writer<'_, '_>,
    ) -> Result<()> {
        let Some(later) = &mut self.later else { return Ok(()) };
        if !later.disables() {
            return later.write(schema, writer);
        }
        let state = StateRecord::Disabled.encode(schema.name)?;
        let by_index =
            self.places.iter_mut().flat_map(|place| place.by_index.iter_mut().enumerate());
        for (position, how) in by_index {
            if let Some(name) = schema.name_at(position).filter(|_| *how == Maintenance::Eventual) {
                *how = Maintenance::None;
                writer.put_record(name, &state)?;
            }
        }
        Ok(())
    }

    /// Returns the messages of the transaction.
    pub(crate) fn later(&self) -> Option<&Outbox> {
        self.later.as_ref()
    }

    /// Continues with the plan of a nested transaction that was committed.
    pub(crate) fn continue_with(&mut self, mut inner: Self) {
        if let (Some(later), Some(outer)) = (&mut inner.later, &self.later) {
            later.continues(outer);
        }
        *self = inner;
    }
}

/// When a row is counted in an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowCount {
    /// In the transaction that writes the row.
    InTransaction,
    /// By the worker.
    Later,
    /// By the build of the aggregate, or never, because the aggregate is disabled.
    Never,
}

/// Returns the place of a row.
fn place_of<'a>(places: &'a [Place], reader: Reader<'_>, primary_key: &[u8]) -> Option<&'a Place> {
    match places {
        [only] => Some(only),
        places => {
            let shard = reader.number_of_shard(primary_key);
            places.iter().find(|place| place.shard == shard)
        }
    }
}

/// A sink that fails for deferred changes.
struct Refuse<'a> {
    by_index: &'a [Maintenance],
    later: &'a mut Outbox,
    schema: &'a TableSchema,
}

impl Sink for Refuse<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. }
                if self.by_index.get(index) == Some(&Maintenance::Eventual) =>
            {
                Err(self.later.refuse(self.schema))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) struct Filter<'a, 't, 's> {
    places: &'a [Place],
    /// `None` if all changes are made at once.
    later: Option<&'a mut Outbox>,
    to: Counting<'a, Writer<'t, 's>>,
    old: Option<&'a [u8]>,
}

impl Sink for Filter<'_, '_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        let (Change::PutEntry { index, primary_key, .. }
        | Change::DeleteEntry { index, primary_key, .. }) = change
        else {
            return self.to.change(change);
        };
        let place = place_of(self.places, self.to.sink().reader(), primary_key);
        match place.map_or(Maintenance::Immediate, |place| place.how(index)) {
            Maintenance::Immediate => self.to.change(change),
            Maintenance::Eventual => match &mut self.later {
                Some(later) => {
                    later.note(change);
                    Ok(())
                }
                None => self.to.change(change),
            },
            Maintenance::None => Ok(()),
            Maintenance::Shared => self.share(change),
        }
    }
}

impl Filter<'_, '_, '_> {
    /// Changes an entry, and keeps the entries of other rows with the same key.
    fn share(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutEntry { index, key, primary_key, data } => {
                let writer = self.to.count_entry(index);
                // A moved row keeps the key, so its entry under the old primary key is removed here.
                if let Some(old) = self.old.filter(|old| *old != primary_key) {
                    writer.remove_shared(index, key, old)?;
                }
                writer.put_shared(index, key, primary_key, data)
            }
            Change::DeleteEntry { index, key, primary_key } => {
                self.to.count_entry(index).remove_shared(index, key, primary_key)
            }
            Change::PutFact { .. } | Change::DeleteFact { .. } => self.to.change(change),
        }
    }
}
