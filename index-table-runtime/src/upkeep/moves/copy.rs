//! The steps of a move from the mark to the switch.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::super::changes;
use super::{
    super::numbers,
    Moved,
    changed::{put_all, read, set_all},
    entries::MovedIndex,
    rows::Copies,
    table,
};
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _},
    model::{
        KeyRange,
        entry::Position,
        error::{Error, Result},
        index_state::IndexState,
        schema::{Source, StateRecord},
        shard::{Routing, ShardNumber},
    },
    placement::{
        self,
        shards::{self, MoveRecord, MoveStep, Moving, Tracked},
    },
    store::{OpenTable, Shards, Store, transaction},
    usage::Progress,
    write::aggregates::Gathered,
};

/// The limits of a batch, which is one transaction.
pub(super) const ROWS: usize = 512;
pub(super) const BYTES: usize = 1 << 20;

/// The maximum number of rows that a batch reads. In a hash map, most of them are in other slots.
pub(super) const READ: usize = 1 << 14;

/// The number of changed rows that the switch copies itself.
const FEW: usize = 128;

/// The maximum number of times that changed rows are copied before the switch. Each time, fewer rows can have changed.
const ROUNDS: usize = 16;

/// How often the copy starts before work that makes it start again has to wait for the switch.
const PATIENT_ROUNDS: usize = 3;

/// How long such work waits at most.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The pause after a batch, in which waiting writers get the lock of the shard.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// A move that runs.
pub(super) struct Mover<'a> {
    pub(super) store: &'a Store,
    pub(super) engine: &'a Shards,
    pub(super) moving: Arc<Moving>,
    /// The tables of the shard map.
    pub(super) tables: Arc<[Arc<OpenTable>]>,
    /// The totals of the copied rows of each table.
    pub(super) totals: Vec<Gathered>,
    pub(super) moved: Moved,
    pub(super) progress: &'a mut dyn FnMut(Progress),
    pub(super) stop: super::Stop<'a>,
    pub(super) started: Instant,
}

/// Some rows of a shard.
pub(super) struct Chunk {
    pub(super) rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// The primary key of the last row that was read; `None` at the end of the range.
    pub(super) last: Option<Vec<u8>>,
}

/// How many rows a [`Chunk`] has.
pub(super) enum Until<'k, K: ?Sized = [u8]> {
    /// As many as a batch writes.
    Full,
    /// All rows up to this primary key, or all entries up to this position, or to the end of the range.
    Last(Option<&'k K>),
}

impl<K: ?Sized> Clone for Until<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for Until<'_, K> {}

impl<K: ?Sized> Until<'_, K> {
    pub(super) const fn last(&self) -> Option<&K> {
        match self {
            Self::Full => None,
            Self::Last(last) => *last,
        }
    }
}

/// The reason to start the copy again: untracked rows have changed.
struct Again;

pub(super) fn tables_of(table: &OpenTable) -> Result<&shards::Tables> {
    let Some(tables) = table.tables.several() else {
        return Err(Error::internal("a move of a table without shards"));
    };
    Ok(tables)
}

impl Mover<'_> {
    pub(super) fn record(&self) -> &MoveRecord {
        &self.moving.record
    }

    /// Makes all remaining steps.
    pub(super) fn run(&mut self) -> Result<()> {
        let started = Instant::now();
        let (engine, mut round, mut rounds) = (self.engine, started, 0);
        let mut urgent = None;
        while !self.record().is_switched {
            rounds += 1;
            if rounds > PATIENT_ROUNDS {
                // The next round takes about as long as the last one.
                drop(urgent.take());
                urgent = Some(engine.hurry_move((round.elapsed() * 2).min(LONGEST_PAUSE)));
            }
            round = Instant::now();
            self.check_states()?;
            // Work that still holds moves may change rows without tracking them.
            let (step, holds) = self.engine.step();
            let _ = self.moving.tracker.take();
            drop(step);
            self.wait_for_writers()?;
            self.copy()?;
            if self.copy_changed()?.is_break() {
                continue;
            }
            self.verify()?;
            // Comparing all rows takes so long that many can have changed, and writers wait for the switch.
            if self.copy_changed()?.is_break() {
                continue;
            }
            self.check_stop()?;
            let store = self.store;
            let _opening = store.inner.lock_opening();
            if self.add_tables()? {
                continue;
            }
            if self.switch(holds)?.is_continue() {
                let switched = Arc::new(self.moving.switched());
                self.moving = switched;
            }
        }
        drop(urgent);
        self.end(started)
    }

    /// Fails if the move was asked to stop. It is then unfinished.
    pub(super) fn check_stop(&self) -> Result<()> {
        if self.stop.is_none_or(|stop| !stop()) {
            return Ok(());
        }
        let what = format!("move {}", self.record().id);
        Err(super::refused(&what, "it was asked to stop; resume or cancel it"))
    }

    /// Adds the tables that were created since the move began, whose rows have to be copied too. Returns whether there are
    /// any. The caller has the lock of opening tables, so that no table is created before the switch.
    fn add_tables(&mut self) -> Result<bool> {
        let all = super::tables_with_map(self.store, self.engine, &self.record().map)?;
        // A reference can have been declared since the move began.
        table::refuse_references(self.engine, self.record())?;
        let names = |tables: &[Arc<OpenTable>]| -> BTreeSet<&'static str> {
            tables.iter().map(|table| table.schema.name).collect()
        };
        if names(&all).is_subset(&names(&self.tables)) {
            return Ok(false);
        }
        let MoveRecord { from, to, .. } = *self.record();
        super::open_in_shards(self.store, self.engine, &all, &[from, to])?;
        self.tables = all.into();
        Ok(true)
    }

    /// Removes the copies, and ends the move.
    pub(super) fn end(&mut self, started: Instant) -> Result<()> {
        self.clean()?;
        let (_step, _) = self.engine.step();
        self.engine.keep_map(&self.record().map)?;
        let step = MoveStep::End(Arc::clone(&self.moving));
        let attempt = || self.engine.change_move(&step, &mut |_| Ok(()));
        transaction::run(attempt, |retry| self.engine.prepare(retry))?;
        self.moved.duration += started.elapsed();
        Ok(())
    }

    /// Waits until the transactions whose changes were taken from the tracker have ended. A transaction adds a
    /// change while it has locked the shard, so snapshots that begin after the wait have these changes.
    fn wait_for_writers(&self) -> Result<()> {
        self.engine.write_on(self.record().from).map(drop)
    }

    /// Checks that all indexes, or the moved global index, have all entries in both shards.
    pub(super) fn check_states(&self) -> Result<()> {
        let MoveRecord { from, to, .. } = *self.record();
        let txn = self.engine.read()?;
        for table in self.tables.iter() {
            let reader = txn.reader(tables_of(table)?);
            let moved = MovedIndex::of(self.record(), table)?.map(|moved| moved.index);
            let positions = table.schema.positions();
            let positions = positions.filter(|at| moved.is_none_or(|moved| moved == *at));
            let indexes: Vec<_> = positions.filter_map(|at| table.schema.name_at(at)).collect();
            for (shard, index) in [from, to]
                .into_iter()
                .flat_map(|shard| indexes.iter().map(move |index| (shard, *index)))
            {
                let Some(record) = reader.of_shard(shard)?.record(index)? else { continue };
                let table = table.schema.name;
                let state = StateRecord::decode(record);
                let state = state.ok_or_else(|| StateRecord::unreadable(table, index))?;
                let state = IndexState::from(state);
                return Err(Error::IndexNotReadable { table, index, state });
            }
        }
        Ok(())
    }

    /// Copies all rows and sequences of the range.
    fn copy(&mut self) -> Result<()> {
        self.totals = self.tables.iter().map(|_| Gathered::default()).collect();
        (self.moved.rows, self.moved.bytes) = (0, 0);
        let (engine, tables) = (self.engine, Arc::clone(&self.tables));
        let MoveRecord { from, to, .. } = *self.record();
        self.moving.total.store(self.count_rows()?, Ordering::Relaxed);
        for (at, table) in tables.iter().enumerate() {
            if let Some(moved) = MovedIndex::of(self.record(), table)? {
                self.copy_entries(&moved)?;
                continue;
            }
            let of_shards = tables_of(table)?;
            let mut after: Option<Vec<u8>> = None;
            loop {
                let source = {
                    let txn = engine.read_on(from)?;
                    self.chunk(
                        txn.reader(of_shards).of_shard(from)?,
                        table,
                        after.as_deref(),
                        Until::Full,
                    )?
                };
                self.write(to, at, &mut |mover, copies, writer| {
                    copies.counts_found = false;
                    let end = source.last.as_deref();
                    let found =
                        mover.chunk(writer.reader(), table, after.as_deref(), Until::Last(end))?;
                    let rows: BTreeMap<&[u8], &[u8]> =
                        source.rows.iter().map(|(key, row)| (&**key, &**row)).collect();
                    let found = found.rows.iter().map(|(key, _)| key.as_slice());
                    let gone = found.filter(|key| !rows.contains_key(key)).map(|key| (key, None));
                    let wanted = rows.iter().map(|(key, row)| (*key, Some(*row)));
                    copies.set_all(writer, &gone.chain(wanted).collect::<Vec<_>>())
                })?;
                self.moved.rows += source.rows.len() as u64;
                let bytes = source.rows.iter().map(|(key, row)| key.len() + row.len());
                self.moved.bytes += bytes.sum::<usize>() as u64;
                self.report("rows")?;
                after = source.last;
                if after.is_none() {
                    break;
                }
                thread::sleep(PAUSE);
            }
            self.each_sequence(from, table, &mut |mover, batch| {
                mover.write(to, at, &mut |_, _, writer| batch.raise(writer))
            })?;
        }
        Ok(())
    }

    /// Writes copies of a table in one shard, in a transaction.
    pub(super) fn write(
        &mut self,
        shard: ShardNumber,
        at: usize,
        body: &mut dyn FnMut(&Self, &mut Copies<'_>, &mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let engine = self.engine;
        let Some(table) = self.tables.get(at).cloned() else { return Ok(()) };
        let (table, of_shards) = (&*table, tables_of(&table)?);
        let (_step, _) = engine.step();
        let routing = of_shards.routing();
        let mut totals = Gathered::default();
        let mover = &*self;
        let attempt = || {
            totals = Gathered::default();
            let mut copies =
                Copies { table, routing: &routing, totals: &mut totals, counts_found: true };
            engine.write_alone(shard, of_shards, &mut |writer| body(mover, &mut copies, writer))
        };
        transaction::run(attempt, |retry| engine.prepare(retry))?;
        if let Some(all) = self.totals.get_mut(at) {
            all.merge(totals);
        }
        Ok(())
    }

    /// Reads the next rows of the range in one shard, up to the limit `until`.
    pub(super) fn chunk(
        &self,
        reader: placement::Reader<'_>,
        table: &OpenTable,
        after: Option<&[u8]>,
        until: Until<'_>,
    ) -> Result<Chunk> {
        let routing = tables_of(table)?.routing();
        let MoveRecord { start, end, .. } = self.record();
        let first = if routing.is_hashed() { &[] } else { start.as_slice() };
        let primary_key = after.unwrap_or(first).to_vec();
        let query = Query {
            position: Some(Position { key: Vec::new(), primary_key }),
            inclusive: after.is_none(),
            ..Query::new(Source::Facts, KeyRange::ALL)
        };
        let mut chunk = Chunk { rows: Vec::new(), last: None };
        let (mut bytes, mut read) = (0, 0);
        let mut facts = reader.cursor(query)?;
        while facts.advance()? {
            let fact = facts.entry();
            let is_beyond = |end: &[u8]| !routing.is_hashed() && fact.primary_key >= end;
            let is_after = |until: &[u8]| fact.primary_key > until;
            if end.as_deref().is_some_and(is_beyond) || until.last().is_some_and(is_after) {
                break;
            }
            if self.has(&routing, fact.primary_key) {
                bytes += fact.data.len();
                chunk.rows.push((fact.primary_key.to_vec(), fact.data.to_vec()));
            }
            read += 1;
            let is_full = chunk.rows.len() >= ROWS || bytes >= BYTES || read >= READ;
            if matches!(until, Until::Full) && is_full {
                chunk.last = Some(fact.primary_key.to_vec());
                break;
            }
        }
        Ok(chunk)
    }

    /// Whether a row is in the range.
    pub(super) fn has(&self, routing: &Routing, primary_key: &[u8]) -> bool {
        routing.map_key(primary_key).is_some_and(|key| self.record().has(&key))
    }

    /// Passes the sequences of the range in one shard to `each`, some at a time.
    pub(super) fn each_sequence(
        &mut self,
        shard: ShardNumber,
        table: &OpenTable,
        each: &mut dyn FnMut(&mut Self, &numbers::Batch) -> Result<()>,
    ) -> Result<()> {
        let (engine, of_shards) = (self.engine, tables_of(table)?);
        let routing = of_shards.routing();
        let moving = Arc::clone(&self.moving);
        let MoveRecord { start, end, .. } = &moving.record;
        let has = |key: &[u8]| moving.record.has(&routing.map_key_of(key));
        let mut keys = numbers::Keys::within(&routing, (start, end.as_deref()), &has);
        while !keys.are_read() {
            let batch = {
                let txn = engine.read_on(shard)?;
                keys.read(txn.reader(of_shards).of_shard(shard)?)?
            };
            if !batch.records.is_empty() {
                each(self, &batch)?;
            }
        }
        Ok(())
    }

    /// Copies changed rows again, until few are left.
    fn copy_changed(&mut self) -> Result<ControlFlow<Again>> {
        let MoveRecord { from, to, .. } = *self.record();
        for _ in 0..ROUNDS {
            let Some(changed) = self.moving.tracker.take() else {
                return Ok(ControlFlow::Break(Again));
            };
            let count = changed.len();
            self.wait_for_writers()?;
            let tables = Arc::clone(&self.tables);
            for (at, of_table) in by_table(&tables, changed) {
                let Some(table) = tables.get(at) else { continue };
                let of_table: Vec<_> = of_table.into_iter().collect();
                for some in of_table.chunks(ROWS) {
                    let of_shards = tables_of(table)?;
                    let txn = self.engine.read_on(from)?;
                    let source = txn.reader(of_shards).of_shard(from)?;
                    self.write(to, at, &mut |_, copies, writer| {
                        set_all(source, copies, writer, some)
                    })?;
                    drop(txn);
                    thread::sleep(PAUSE);
                }
            }
            if count <= FEW {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Gives the keys to the target. Copies the last changed rows in the same transaction. The caller has the lock of
    /// opening tables.
    fn switch(&mut self, holds: u64) -> Result<ControlFlow<Again>> {
        let MoveRecord { from, to, .. } = *self.record();
        let (engine, tables) = (self.engine, Arc::clone(&self.tables));
        let started = Instant::now();
        let step = engine.try_step().filter(|(_, count)| *count == holds);
        let Some((_step, _)) = step else { return Ok(ControlFlow::Break(Again)) };
        let (mut changed, mut is_again) = (BTreeSet::new(), false);
        let step = MoveStep::Set(Arc::new(self.moving.switched()));
        let mut body = |txn: &mut shards::Txn<'_>| {
            let Some(more) = self.moving.tracker.take() else {
                is_again = true;
                return Err(Error::internal("the copy starts again"));
            };
            changed.extend(more);
            let mut of_tables = by_table(&tables, changed.clone());
            for (at, table) in tables.iter().enumerate() {
                let of_shards = tables_of(table)?;
                let routing = of_shards.routing();
                let mut totals = Gathered::default();
                let mut copies =
                    Copies { table, routing: &routing, totals: &mut totals, counts_found: true };
                let of_table: Vec<_> =
                    of_tables.remove(&at).unwrap_or_default().into_iter().collect();
                for some in of_table.chunks(ROWS) {
                    let source = txn.reader(of_shards).of_shard(from)?;
                    let now = some.iter().map(|it| read(source, it)).collect::<Result<Vec<_>>>()?;
                    let mut writer = txn.writer(of_shards).ok_or_else(no_writer)?;
                    writer.beside(to, &mut |writer| put_all(&mut copies, writer, some, &now))?;
                }
                if MovedIndex::of(&self.moving.record, table)?.is_some() {
                    continue;
                }
                if let Some(of_table) = self.totals.get(at) {
                    totals.merge(of_table.clone());
                }
                let mut writer = txn.writer(of_shards).ok_or_else(no_writer)?;
                writer.beside(to, &mut |writer| totals.clone().write(&table.rows, writer))?;
                if let (Some(_), Some(orders)) = (table.rows.changes, table.shared.orders.get()) {
                    writer.beside(to, &mut |writer| orders.keep(writer))?;
                }
                writer.beside(from, &mut |writer| totals.negated().write(&table.rows, writer))?;
                if table.rows.changes.is_some() {
                    // Consumers may have been created or removed since the move began.
                    changes::follow(&mut placement::Writer::Several(writer), [from, to])?;
                }
            }
            Ok(())
        };
        let attempt = || engine.change_move(&step, &mut body);
        let switched = transaction::run(attempt, |retry| engine.prepare(retry));
        if is_again {
            self.moving.tracker.restart();
            return Ok(ControlFlow::Break(Again));
        }
        if let Err(error) = switched {
            // The changes were taken from the tracker.
            self.moving.tracker.restart();
            return Err(error);
        }
        self.moved.pause = self.moved.pause.max(started.elapsed());
        Ok(ControlFlow::Continue(()))
    }
}

fn no_writer() -> Error {
    Error::internal("a write transaction without a writer")
}

/// Returns the changes of each table, by its position.
fn by_table(
    tables: &[Arc<OpenTable>],
    changed: BTreeSet<Tracked>,
) -> BTreeMap<usize, BTreeSet<Tracked>> {
    let mut all: BTreeMap<usize, BTreeSet<Tracked>> = BTreeMap::new();
    for it in changed {
        let name = it.table();
        if let Some(at) = tables.iter().position(|table| table.schema.name == name) {
            all.entry(at).or_default().insert(it);
        }
    }
    all
}
