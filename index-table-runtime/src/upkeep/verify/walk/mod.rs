//! The walk through a table. It checks the queue, then each index (its physical pieces, then its entries),
//! and then the rows.
//!
//! The check of the entries finds wrong entries, and the check of the rows finds missing entries. In this order, a
//! repair removes the wrong entries before it writes the missing entries, and each problem is found once.

mod copies;
mod look;
mod totals;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    finding::FindingKind,
    images::Images,
    raw_finding::{Fix, RawFinding},
    resume_point::{ResumePoint, Stage},
    stop::{Stop, check_stop},
    sums::Sums,
};
use crate::{
    engine::{Cursor as _, Pieces, Query, Read, ReadRecords as _},
    model::{
        KeyRange,
        entry::{Position, RawEntry},
        error::{Error, Result, is_damaged_page},
        maintain::Image,
        row_vtable::TableRows,
        schema::{IndexSchema, Source, StateRecord, TableSchema},
        shard::{Routing, ShardNumber},
    },
    placement::{LentEntries, Reader, shards::Part},
    store::Unreadable,
    write::queue::{self, Queued},
};

enum Running<'t> {
    Copy,
    Queue,
    Pieces(Pieces<'t>),
    /// The pieces of an engine that stores none.
    NoPieces,
    Entries(Box<LentEntries<'t>>),
    Totals,
}

/// Facts about the rows and the indexes that remain valid after repairs.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The sums that show which entries are correct, by index.
    sums: BTreeMap<usize, Sums>,
    /// The indexes whose pieces are all intact. In these, look-ups and scans find the same entries.
    intact: BTreeSet<usize>,
    /// The images of rows with many entries in one index.
    images: Images,
}

/// A walk through a table, step by step.
pub(super) struct TableCheck<'t> {
    vtable: &'t TableRows,
    reader: Reader<'t>,
    pub(super) stage: Stage,
    /// The cursor of the current stage; `None` until the stage starts.
    running: Option<Running<'t>>,
    /// The current stage starts after this position; `None` if it starts with its first step.
    after: Option<Position>,
    /// The position of the last step in this stage.
    last: Option<Position>,
    /// The position of the step before the last step.
    previous: Option<Position>,
    /// The number of steps in this stage; `None` if the stage started after a position.
    steps: Option<u64>,
    is_finished: bool,
    findings: VecDeque<RawFinding>,
    image: Image,
    pub(super) known: Known,
    /// Whether the walk may end early. Then, it does not read all rows before the entries of an index.
    in_parts: bool,
    pub(super) stop: Stop<'t>,
    pub(super) rows: u64,
    pub(super) entries: u64,
    /// The pending changes of eventual indexes; loaded on the first use.
    queued: Option<Queued>,
    /// Whether differences that a queued message will correct are reported too.
    include_queued: bool,
    /// The indexes that are not readable. Incomplete indexes are skipped.
    unreadable: Unreadable,
    /// The shard, in a sharded store.
    pub(super) shard: Option<&'t Arc<str>>,
    /// The shards of the rows and of global entries, and the number of this shard.
    place: Option<(&'t Routing, ShardNumber)>,
    /// The routing, if the walk only compares the global indexes, and the main rows of parts, with the rows of all shards.
    only_global: Option<&'t Routing>,
    /// The first copy of a reference table, if this is a later copy.
    first_copy: Option<Reader<'t>>,
}

impl<'t> TableCheck<'t> {
    pub(super) fn new(
        vtable: &'t TableRows,
        reader: Reader<'t>,
        unreadable: Unreadable,
        ResumePoint { stage, after }: ResumePoint,
    ) -> Self {
        Self {
            vtable,
            reader,
            unreadable,
            stage,
            running: None,
            after,
            last: None,
            previous: None,
            steps: None,
            is_finished: false,
            findings: VecDeque::new(),
            image: Image::to_read(),
            known: Known::default(),
            in_parts: false,
            stop: None,
            rows: 0,
            entries: 0,
            queued: None,
            include_queued: false,
            shard: None,
            place: None,
            only_global: None,
            first_copy: None,
        }
    }

    /// Returns a walk that compares the global indexes of a table, and the main rows of its parts, with the rows of all shards.
    /// `reader` has all shards. The walks of the parts check the pieces of these indexes and the shards of the entries.
    pub(super) fn of_global(
        vtable: &'t TableRows,
        reader: Reader<'t>,
        routing: &'t Routing,
    ) -> Result<Self> {
        let unreadable = unreadable(vtable.schema, reader)?;
        let first = ResumePoint::after_queue(vtable.schema);
        let walk = Self::new(vtable, reader, unreadable, first);
        Ok(Self { only_global: Some(routing), ..walk })
    }

    /// Returns a walk through the part of a table in one shard.
    pub(super) fn of_part(vtable: &'t TableRows, part: &Part<'t>) -> Result<Self> {
        let Part { shard, number, routing, reader, first_copy } = *part;
        let unreadable = unreadable(vtable.schema, reader)?;
        let first = ResumePoint::first(vtable.schema);
        let walk = Self::new(vtable, reader, unreadable, first);
        let place = (!routing.is_reference()).then_some((routing, number));
        let stage = if first_copy.is_some() { Stage::Copy } else { walk.stage };
        Ok(Self { shard: Some(shard), place, first_copy, stage, ..walk })
    }

    /// Returns a walk with the same options that starts at `resume_point`.
    pub(super) fn start_at(self, resume_point: ResumePoint) -> Self {
        let Self { include_queued, in_parts, stop, shard, place, only_global, first_copy, .. } =
            self;
        Self {
            in_parts,
            stop,
            include_queued,
            shard,
            place,
            only_global,
            first_copy,
            ..Self::new(self.vtable, self.reader, self.unreadable, resume_point)
        }
    }

    /// Returns the walk of a repair, through the part of a table in this shard, or through its global
    /// indexes.
    pub(super) fn placed(
        self,
        place: Option<(&'t Routing, ShardNumber)>,
        only_global: bool,
    ) -> Self {
        let only_global = self.reader.global_routing().filter(|_| only_global);
        Self { place, only_global, ..self }
    }

    /// Makes the walk report differences that a queued message will correct, too.
    pub(super) fn include_queued(self) -> Self {
        Self { include_queued: true, ..self }
    }

    /// Does not read all rows before the entries of an index, because the walk may end early.
    pub(super) fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// Makes each step fail when `stop` returns true.
    pub(super) fn stop_when(self, stop: Stop<'t>) -> Self {
        Self { stop, ..self }
    }

    /// Whether an index is skipped: it is incomplete, or another walk checks it.
    fn is_skipped(&self, index: usize) -> bool {
        let is_left_to_parts =
            self.only_global.is_some_and(|routing| routing.global(index).is_none());
        is_left_to_parts || self.unreadable.incomplete.contains(&index)
    }

    /// Whether an index is global, and this walk has one shard.
    fn is_part_of_global(&self, index: usize) -> bool {
        self.place.is_some_and(|(routing, _)| routing.global(index).is_some())
    }

    /// Whether the rows are parts whose main rows can be in other shards.
    fn has_main_rows_elsewhere(&self) -> bool {
        self.place.is_some_and(|(routing, _)| routing.has_main_rows_elsewhere())
    }

    /// Whether a row of this shard is a copy that is being moved. The rows of its shard are checked.
    fn is_copy(&self, primary_key: &[u8]) -> bool {
        let is_copy =
            |(routing, own): (&Routing, _)| routing.is_copy(Source::Facts, (&[], primary_key), own);
        self.place.is_some_and(is_copy)
    }

    /// Whether each key of an index has at most one entry: it is unique, and not violated.
    fn has_one_entry_per_key(&self, index: usize, declared: &IndexSchema) -> bool {
        declared.has_one_entry_per_key() && !self.unreadable.violated.contains(&index)
    }

    /// Returns the number of steps of a whole walk.
    pub(super) fn total(&self) -> Result<u64> {
        // The check of the queue is a step, and so is the end of each stage.
        let mut total = self.reader.stored(Source::Facts)?.unwrap_or(0)
            + 1
            + 2 * self.vtable.schema.indexes.len() as u64;
        total += u64::from(self.vtable.schema.has_eventual());
        total += self.vtable.aggregates.len() as u64;
        for index in (0..self.vtable.schema.indexes.len()).filter(|index| !self.is_skipped(*index))
        {
            let source = Source::Index(index);
            let pieces = self.reader.piece_count(index)?;
            let entries = match self.reader.count(&Query::new(source, KeyRange::ALL)) {
                // The walk reports the damage as a finding.
                Err(error @ Error::Corrupt { .. }) if !is_damaged_page(&error) => pieces,
                count => count?.found,
            };
            total += pieces + entries;
        }
        Ok(total)
    }

    /// Removes and returns the next finding of the previous steps.
    pub(super) fn next_raw(&mut self) -> Option<RawFinding> {
        self.findings.pop_front()
    }

    /// Returns the position after the last step whose findings were all returned; `None` at the end.
    pub(super) fn resume_point(&self) -> Option<ResumePoint> {
        if self.is_finished && self.findings.is_empty() {
            return None;
        }
        let last = if self.findings.is_empty() { &self.last } else { &self.previous };
        let after = last.as_ref().or(self.after.as_ref()).cloned();
        Some(ResumePoint { stage: self.stage, after })
    }

    /// Checks the next piece, entry or row. Returns `false` at the end.
    pub(super) fn step(&mut self) -> Result<bool> {
        check_stop(self.stop)?;
        if self.is_finished {
            return Ok(false);
        }
        if let Stage::Pieces(index) | Stage::Entries(index) = self.stage
            && self.is_skipped(index)
        {
            self.next_stage();
            return Ok(true);
        }
        let running = match self.running.take() {
            Some(running) => running,
            None => self.begin()?,
        };
        match running {
            Running::Copy => self.compare_copies()?,
            Running::Totals => self.compare_totals()?,
            Running::Queue => {
                let damage = queue::damage(self.vtable.schema, self.reader)?;
                self.findings.extend(damage.as_deref().map(RawFinding::queue));
                self.next_stage();
            }
            Running::NoPieces => self.next_stage(),
            Running::Pieces(mut pieces) => {
                let next = pieces.next().transpose()?;
                self.running = Some(Running::Pieces(pieces));
                match next {
                    Some(piece) => self.piece(piece),
                    None => self.end()?,
                }
            }
            Running::Entries(mut entries) => {
                let is_there = loop {
                    match entries.advance().map_err(Error::from) {
                        // The damaged piece has been reported in the previous stage.
                        Err(error @ Error::Corrupt { .. }) if !is_damaged_page(&error) => {}
                        Ok(true) if self.is_out_of_order(&entries.entry()) => {}
                        next => break next?,
                    }
                };
                let checked = if is_there { self.entry(entries.entry()) } else { Ok(()) };
                self.running = Some(Running::Entries(entries));
                checked?;
                if !is_there {
                    self.end()?;
                }
            }
        }
        self.leave_out_queued()?;
        Ok(true)
    }

    /// Removes the findings that a queued message will correct.
    fn leave_out_queued(&mut self) -> Result<()> {
        let is_late = |found: &RawFinding| {
            matches!(found.kind, FindingKind::Stale | FindingKind::Dangling | FindingKind::Missing)
                && matches!(found.source, Source::Index(index) if self.vtable.schema.is_eventual(index))
        };
        if self.include_queued || !self.findings.iter().any(is_late) {
            return Ok(());
        }
        let queued = match self.queued.take() {
            Some(queued) => queued,
            None => Queued::read(self.vtable.schema, self.reader)?,
        };
        self.findings.retain(|found| match found.source {
            Source::Index(index) => !(is_late(found) && queued.has(index, &found.primary_key)),
            Source::Facts => true,
        });
        self.queued = Some(queued);
        Ok(())
    }

    fn begin(&mut self) -> Result<Running<'t>> {
        let after = self.after.clone();
        self.steps = after.is_none().then_some(0);
        let scan = |source| {
            let query = Query { position: after.clone(), ..Query::new(source, KeyRange::ALL) };
            self.reader.cursor(query).map(Box::new).map(Running::Entries)
        };
        match self.stage {
            Stage::Copy => Ok(Running::Copy),
            Stage::Totals(_) => Ok(Running::Totals),
            Stage::Queue => Ok(Running::Queue),
            Stage::Pieces(index) => {
                // Assumes that the index is intact until a fault is found.
                if after.is_none() {
                    self.known.intact.insert(index);
                } else {
                    self.known.intact.remove(&index);
                }
                let after = after.as_ref().map(Position::bytes);
                let pieces = self.reader.pieces(index, after.as_deref())?;
                Ok(pieces.map_or(Running::NoPieces, Running::Pieces))
            }
            Stage::Entries(index) => {
                if after.is_none() && !self.in_parts && !self.is_part_of_global(index) {
                    let sums =
                        Sums::of(self.vtable, self.reader, index, (&mut self.image, self.stop))?;
                    self.known.sums.insert(index, sums);
                }
                scan(Source::Index(index))
            }
            Stage::Facts => scan(Source::Facts),
        }
    }

    /// Compares the number of steps with the engine's count, and moves to the next stage.
    fn end(&mut self) -> Result<()> {
        let source = match self.stage {
            Stage::Pieces(index) => Some(Source::Index(index)),
            Stage::Copy | Stage::Queue | Stage::Entries(_) | Stage::Totals(_) => None,
            Stage::Facts => Some(Source::Facts),
        };
        if let (Some(source), Some(steps)) = (source, self.steps) {
            let stored = self.reader.stored(source)?;
            if let Some(stored) = stored.filter(|stored| *stored != steps) {
                let fix = if source == Source::Facts { Fix::None } else { Fix::Rewrite };
                let reason = format!("LMDB counts {stored} of them, and there are {steps}");
                self.report(FindingKind::WrongCount, source, RawEntry::NOWHERE, reason, fix);
            }
        }
        self.next_stage();
        Ok(())
    }

    fn next_stage(&mut self) {
        let next = match self.stage {
            Stage::Copy => Some(ResumePoint::first(self.vtable.schema).stage),
            Stage::Queue => Some(ResumePoint::after_queue(self.vtable.schema).stage),
            Stage::Pieces(index) => Some(Stage::Entries(index)),
            Stage::Entries(index) if index + 1 < self.vtable.schema.indexes.len() => {
                Some(Stage::Pieces(index + 1))
            }
            Stage::Entries(_) => Some(Stage::Facts),
            Stage::Facts => self.totals_after(None),
            Stage::Totals(aggregate) => self.totals_after(Some(aggregate)),
        };
        (self.running, self.after, self.last, self.previous) = (None, None, None, None);
        match next {
            Some(stage) => self.stage = stage,
            None => self.is_finished = true,
        }
    }

    /// Returns true if an entry is not after the last entry with the same key. It is in a damaged block. A
    /// walk that continued at its position would repeat steps.
    fn is_out_of_order(&self, entry: &RawEntry<'_>) -> bool {
        let seen = self.last.as_ref().or(self.after.as_ref());
        seen.is_some_and(|Position { key, primary_key }| {
            entry.key == key && entry.primary_key <= primary_key.as_slice()
        })
    }

    /// Records the position of a step.
    fn stepped(&mut self, at: RawEntry<'_>) {
        // The buffers of `previous` are reused.
        std::mem::swap(&mut self.previous, &mut self.last);
        let nowhere = || Position { key: Vec::new(), primary_key: Vec::new() };
        let Position { key, primary_key } = self.last.get_or_insert_with(nowhere);
        at.key.clone_into(key);
        at.primary_key.clone_into(primary_key);
        self.steps = self.steps.map(|steps| steps + 1);
    }
}

/// Returns the indexes that are not readable in a shard.
pub(super) fn unreadable(schema: &'static TableSchema, reader: Reader<'_>) -> Result<Unreadable> {
    let (mut incomplete, mut violated) = (Vec::new(), Vec::new());
    for index in schema.positions() {
        let is_unique = schema.indexes.get(index).is_some_and(|declared| declared.unique);
        match schema.name_at(index).map_or(Ok(None), |name| reader.record(name))? {
            None => {}
            Some(state) if is_unique && StateRecord::is_violated(state) => {
                violated.push(index);
            }
            Some(_) => incomplete.push(index),
        }
    }
    Ok(Unreadable { incomplete: incomplete.into(), violated: violated.into() })
}
