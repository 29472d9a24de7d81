//! The walk through a table: the queue, each index, first its physical pieces and then its entries, and the
//! rows last.
//!
//! In this order, a repair removes wrong entries first and writes missing ones later, and each problem is
//! found once: an entry shows whether it is right, and a row whether its entries exist.

mod look;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    marker::PhantomData,
};

use super::{
    finding::FindingKind,
    images::Images,
    raw_finding::{Fix, RawFinding},
    resume_point::{ResumePoint, Stage},
    sums::Sums,
};
use crate::{
    engine::{Cursor as _, LentEntries, Query, Read, Reader, lmdb::Pieces},
    model::{
        KeyRange,
        entity::Entity,
        entry::{Position, RawEntry},
        error::{Error, Result},
        maintain::Image,
        schema::{IndexSchema, Source},
    },
    store::Unreadable,
    write::queue::{self, Queued},
};

enum Running<'t> {
    Queue,
    Pieces(Box<Pieces<'t>>),
    /// The engine has no pieces to look at.
    NoPieces,
    Entries(Box<LentEntries<'t>>),
}

/// Knowledge about the rows and the indexes. It stays true after repairs.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The entries that are right, by index.
    sums: BTreeMap<usize, Sums>,
    /// The indexes whose pieces are all intact, so that a look-up finds the same as a scan.
    sound: BTreeSet<usize>,
    /// Images of rows with many entries in an index.
    images: Images,
}

/// Goes through a table, a step at a time.
pub(super) struct TableCheck<'t, R> {
    reader: Reader<'t>,
    pub(super) stage: Stage,
    /// The rest of the stage; `None` if it has not begun.
    running: Option<Running<'t>>,
    /// The start of the stage.
    behind: Option<Position>,
    /// The last step in this stage, and the one before it.
    last: Option<Position>,
    previous: Option<Position>,
    /// Steps in this stage, if the walk started at its first step.
    counted: Option<u64>,
    over: bool,
    found: VecDeque<RawFinding>,
    image: Image,
    pub(super) known: Known,
    /// It must not read all rows for possibly few entries.
    in_parts: bool,
    pub(super) rows: u64,
    pub(super) entries: u64,
    /// The changes that eventual indexes lack, when they are needed.
    queued: Option<Queued>,
    /// Late entries are repaired too.
    impatient: bool,
    /// The indexes that are not readable; those that lack entries are skipped.
    unreadable: Unreadable,
    row: PhantomData<fn() -> R>,
}

impl<'t, R: Entity> TableCheck<'t, R> {
    pub(super) fn new(
        reader: Reader<'t>,
        unreadable: Unreadable,
        ResumePoint { stage, behind }: ResumePoint,
    ) -> Self {
        Self {
            reader,
            unreadable,
            stage,
            running: None,
            behind,
            last: None,
            previous: None,
            counted: None,
            over: false,
            found: VecDeque::new(),
            image: Image::default(),
            known: Known::default(),
            in_parts: false,
            rows: 0,
            entries: 0,
            queued: None,
            impatient: false,
            row: PhantomData,
        }
    }

    /// The same from another position on.
    pub(super) fn at(self, place: ResumePoint) -> Self {
        let Self { impatient, in_parts, .. } = self;
        Self { in_parts, impatient, ..Self::new(self.reader, self.unreadable, place) }
    }

    /// Also reports the late changes of eventual indexes.
    pub(super) fn impatient(self) -> Self {
        Self { impatient: true, ..self }
    }

    /// Without reading all rows before an index.
    pub(super) fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// Whether an index lacks entries.
    fn is_skipped(&self, index: usize) -> bool {
        self.unreadable.incomplete.contains(&index)
    }

    /// Whether each key of an index has at most one entry: it is unique, and not violated.
    fn has_one_entry_per_key(&self, index: usize, declared: &IndexSchema) -> bool {
        declared.has_one_entry_per_key() && !self.unreadable.violated.contains(&index)
    }

    /// The number of steps from the start to the end.
    pub(super) fn total(&self) -> Result<u64> {
        // The end of a stage is a step too, and so is the queue.
        let mut total =
            self.reader.stored(Source::Facts)?.unwrap_or(0) + 1 + 2 * R::TABLE.indexes.len() as u64;
        total += u64::from(R::TABLE.has_eventual());
        for index in (0..R::TABLE.indexes.len()).filter(|index| !self.is_skipped(*index)) {
            let source = Source::Index(index);
            let pieces =
                self.reader.lmdb().map_or(Ok(None), |lmdb| lmdb.stored(source))?.unwrap_or(0);
            let entries = match self.reader.count(&Query::new(source, KeyRange::ALL)) {
                // Damage of the queue is a finding.
                Err(Error::Corrupt { .. }) => pieces,
                count => count?.found,
            };
            total += pieces + entries;
        }
        Ok(total)
    }

    /// Findings that were not taken yet.
    pub(super) fn next_raw(&mut self) -> Option<RawFinding> {
        self.found.pop_front()
    }

    /// The position behind the last step whose findings were all taken; `None` at the end.
    pub(super) fn place(&self) -> Option<ResumePoint> {
        if self.over && self.found.is_empty() {
            return None;
        }
        let last = if self.found.is_empty() { &self.last } else { &self.previous };
        let behind = last.as_ref().or(self.behind.as_ref()).cloned();
        Some(ResumePoint { stage: self.stage, behind })
    }

    /// Steps to the next piece, entry or row; `false` at the end.
    pub(super) fn step(&mut self) -> Result<bool> {
        if self.over {
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
            Running::Queue => {
                let damage = queue::damage(R::TABLE, self.reader)?;
                self.found.extend(damage.as_deref().map(RawFinding::queue));
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
                        // Its piece is damaged and has been reported.
                        Err(Error::Corrupt { .. }) => {}
                        Ok(true) if self.is_behind(&entries.entry()) => {}
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

    /// A difference that a message explains is not wrong.
    fn leave_out_queued(&mut self) -> Result<()> {
        let is_late = |found: &RawFinding| {
            matches!(found.kind, FindingKind::Stale | FindingKind::Dangling | FindingKind::Missing)
                && matches!(found.source, Source::Index(index) if R::TABLE.is_eventual(index))
        };
        if self.impatient || !self.found.iter().any(is_late) {
            return Ok(());
        }
        let queued = match self.queued.take() {
            Some(queued) => queued,
            None => Queued::read(R::TABLE, self.reader)?,
        };
        self.found.retain(|found| match found.source {
            Source::Index(index) => !(is_late(found) && queued.has(index, &found.primary_key)),
            Source::Facts => true,
        });
        self.queued = Some(queued);
        Ok(())
    }

    fn begin(&mut self) -> Result<Running<'t>> {
        let behind = self.behind.clone();
        self.counted = behind.is_none().then_some(0);
        let scan = |source| {
            let query = Query { position: behind.clone(), ..Query::new(source, KeyRange::ALL) };
            self.reader.cursor(query).map(Box::new).map(Running::Entries)
        };
        match self.stage {
            Stage::Queue => Ok(Running::Queue),
            Stage::Pieces(index) => {
                // Until a fault is found.
                if behind.is_none() {
                    self.known.sound.insert(index);
                } else {
                    self.known.sound.remove(&index);
                }
                let behind = behind.as_ref().map(Position::bytes);
                match self.reader.lmdb() {
                    Some(reader) => {
                        reader.pieces(index, behind.as_deref()).map(Box::new).map(Running::Pieces)
                    }
                    None => Ok(Running::NoPieces),
                }
            }
            Stage::Entries(index) => {
                if behind.is_none() && !self.in_parts {
                    let sums = Sums::of::<R>(self.reader, index, &mut self.image)?;
                    self.known.sums.insert(index, sums);
                }
                scan(Source::Index(index))
            }
            Stage::Facts => scan(Source::Facts),
        }
    }

    /// Compares the steps with the engine's count, and continues with the next stage.
    fn end(&mut self) -> Result<()> {
        let source = match self.stage {
            Stage::Pieces(index) => Some(Source::Index(index)),
            Stage::Queue | Stage::Entries(_) => None,
            Stage::Facts => Some(Source::Facts),
        };
        if let (Some(source), Some(counted)) = (source, self.counted) {
            let stored = self.reader.stored(source)?;
            if let Some(stored) = stored.filter(|stored| *stored != counted) {
                let fix = if source == Source::Facts { Fix::None } else { Fix::Clear };
                let reason = format!("LMDB counts {stored} of them, and there are {counted}");
                self.report(FindingKind::WrongCount, source, RawEntry::NOWHERE, reason, fix);
            }
        }
        self.next_stage();
        Ok(())
    }

    fn next_stage(&mut self) {
        let next = match self.stage {
            Stage::Queue => Some(ResumePoint::behind_queue::<R>().stage),
            Stage::Pieces(index) => Some(Stage::Entries(index)),
            Stage::Entries(index) if index + 1 < R::TABLE.indexes.len() => {
                Some(Stage::Pieces(index + 1))
            }
            Stage::Entries(_) => Some(Stage::Facts),
            Stage::Facts => None,
        };
        (self.running, self.behind, self.last, self.previous) = (None, None, None, None);
        match next {
            Some(stage) => self.stage = stage,
            None => self.over = true,
        }
    }

    /// Whether an entry is before an earlier one of its key, and so in a damaged block: continuing there
    /// would go back.
    fn is_behind(&self, entry: &RawEntry<'_>) -> bool {
        let seen = self.last.as_ref().or(self.behind.as_ref());
        seen.is_some_and(|Position { key, primary_key }| {
            entry.key == key && entry.primary_key <= primary_key.as_slice()
        })
    }

    /// Records the place of a step.
    fn stepped(&mut self, on: RawEntry<'_>) {
        // The buffers of the step before the last one are used again.
        std::mem::swap(&mut self.previous, &mut self.last);
        let nowhere = || Position { key: Vec::new(), primary_key: Vec::new() };
        let Position { key, primary_key } = self.last.get_or_insert_with(nowhere);
        on.key.clone_into(key);
        on.primary_key.clone_into(primary_key);
        self.counted = self.counted.map(|counted| counted + 1);
    }
}
