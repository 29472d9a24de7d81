//! Keeping up the indexes of a table of which some are not readable, or are eventual.
//!
//! An index that is being built gets the entries of all rows that are written, wherever its build
//! is, and the build adds those of every row, again if need be. What is there is so always right,
//! and at the end nothing is missing. Where a key has one entry at most, the second of two rows
//! with the same key must not take the first one's entry: the build meets the one without an entry
//! when it comes to it, so this one must not move to where the build has been. An index that is
//! violated is empty, and stays so. What happens to one that is eventual is noted for the worker,
//! see [`queue`](crate::write::queue).

use crate::engine::Limit;
use crate::{
    engine::{Read, Reader, WriteRecords as _, Writer},
    model::{
        error::Result,
        maintain::{self, Change, Image, Sink},
        schema::{IndexSchema, StateRecord, TableSchema},
    },
    usage::Counting,
    write::queue::Outbox,
};

/// How each index of a table is kept up in a transaction.
#[derive(Debug)]
pub(crate) struct Upkeep {
    kept: Box<[Kept]>,
    /// If some are kept up later.
    later: Option<Outbox>,
    /// For unique indexes that are being built, the last row that the build has been at.
    built: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// As it is declared.
    Up,
    /// A key's entry stays with the row that it belongs to.
    UpForOne,
    /// By the worker.
    Later,
    Not,
}

impl Upkeep {
    /// `None`: all indexes are kept up as they are declared, with their rows.
    pub(crate) fn of(
        schema: &TableSchema,
        limit: Limit,
        reader: Reader<'_>,
        states: Vec<(usize, StateRecord)>,
    ) -> Result<Option<Self>> {
        let indexes = schema.indexes;
        let declared = |index: &IndexSchema| if index.eventual { Kept::Later } else { Kept::Up };
        let mut kept: Box<[Kept]> = indexes.iter().map(declared).collect();
        let mut built = Vec::new();
        for (index, state) in states {
            if let (Some(kept), Some(of)) = (kept.get_mut(index), indexes.get(index)) {
                match state {
                    StateRecord::Building(state) => {
                        if of.has_one_entry_per_key() {
                            *kept = Kept::UpForOne;
                        }
                        built.extend(state.behind.filter(|_| of.unique).map(|at| (index, at)));
                    }
                    StateRecord::Violated(_) | StateRecord::Retired(_) | StateRecord::Disabled => {
                        *kept = Kept::Not;
                    }
                }
            }
        }
        let later = if kept.contains(&Kept::Later) {
            Some(Outbox::new(schema, reader, limit)?)
        } else {
            None
        };
        Ok(kept.iter().any(|kept| *kept != Kept::Up).then_some(Self { kept, later, built }))
    }

    /// Whether the entries of an index are kept up at all.
    pub(crate) fn keeps(&self, index: usize) -> bool {
        self.kept(index) != Kept::Not
    }

    /// Whether entries of an index may be written as it is declared: that they would be kept up
    /// later is no hindrance.
    pub(crate) fn is_up(&self, index: usize) -> bool {
        matches!(self.kept(index), Kept::Up | Kept::Later)
    }

    /// The unique indexes whose builds have not been at the row `old` and don't come to it when it has
    /// become `new`.
    pub(crate) fn passed(&self, old: &[u8], new: &[u8]) -> impl Iterator<Item = usize> {
        let passed = move |at: &[u8]| new <= at && at < old;
        self.built.iter().filter(move |(_, at)| passed(at)).map(|(index, _)| *index)
    }

    /// Before an operation on a row; `in_line`: all of its changes are to be made at once.
    pub(crate) fn begin(&mut self, in_line: bool) {
        if let Some(later) = &mut self.later {
            later.begin(in_line);
        }
    }

    /// Whether what leaves a message has to wait for room.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.later.as_ref().is_some_and(Outbox::has_to_wait)
    }

    /// Refuses the changes from `old` to `new`, of which nothing is written yet, if they leave a message.
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
        let Self { kept, later: Some(later), .. } = self else { return Ok(()) };
        maintain::entry_changes(schema, old, new, &mut Refuse { kept, later, schema })
    }

    /// A sink that hands on what is to be done to the indexes when a row is written, which was
    /// stored under the primary key `old` before. What is to be done later is
    /// [noted](Upkeep::leave).
    pub(crate) fn filter<'a, 't, 's>(
        &'a mut self,
        to: Counting<'a, Writer<'t, 's>>,
        old: Option<&'a [u8]>,
    ) -> Filter<'a, 't, 's> {
        let Self { kept, later, .. } = self;
        Filter { kept, later: later.as_mut().filter(|later| !later.in_line), to, old }
    }

    /// The same, with everything done at once.
    pub(crate) fn filter_in_line<'a, 't, 's>(
        &'a self,
        to: Counting<'a, Writer<'t, 's>>,
    ) -> Filter<'a, 't, 's> {
        Filter { kept: &self.kept, later: None, to, old: None }
    }

    /// Leaves messages about what was noted, or disables the indexes if there is no room for them.
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
        for (kept, index) in self.kept.iter_mut().zip(schema.indexes) {
            if *kept == Kept::Later {
                *kept = Kept::Not;
                writer.put_record(index.name, &state)?;
            }
        }
        Ok(())
    }

    /// The messages of the transaction.
    pub(crate) fn later(&self) -> Option<&Outbox> {
        self.later.as_ref()
    }

    /// Goes on where a transaction inside of this one has ended.
    pub(crate) fn continue_with(&mut self, mut inner: Self) {
        if let (Some(later), Some(outer)) = (&mut inner.later, &self.later) {
            later.continues(outer);
        }
        *self = inner;
    }

    fn kept(&self, index: usize) -> Kept {
        self.kept.get(index).copied().unwrap_or(Kept::Up)
    }
}

/// Refuses what is to be done later.
struct Refuse<'a> {
    kept: &'a [Kept],
    later: &'a mut Outbox,
    schema: &'a TableSchema,
}

impl Sink for Refuse<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. }
                if self.kept.get(index) == Some(&Kept::Later) =>
            {
                Err(self.later.refuse(self.schema))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) struct Filter<'a, 't, 's> {
    kept: &'a [Kept],
    /// `None`: everything is done at once.
    later: Option<&'a mut Outbox>,
    to: Counting<'a, Writer<'t, 's>>,
    old: Option<&'a [u8]>,
}

impl Sink for Filter<'_, '_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        let (Change::PutEntry { index, key, primary_key, .. }
        | Change::DeleteEntry { index, key, primary_key }) = change
        else {
            return self.to.change(change);
        };
        let passes = match self.kept.get(index).copied().unwrap_or(Kept::Up) {
            Kept::Up => true,
            Kept::Later => match &mut self.later {
                Some(later) => {
                    later.note(change);
                    false
                }
                None => true,
            },
            Kept::Not => false,
            Kept::UpForOne => {
                let holder = self.to.sink().reader().unique(index, key)?;
                holder.is_none_or(|entry| {
                    entry.primary_key == primary_key || Some(entry.primary_key) == self.old
                })
            }
        };
        if passes { self.to.change(change) } else { Ok(()) }
    }
}
