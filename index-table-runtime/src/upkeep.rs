//! Keeping up the indexes of a table of which some are not readable.
//!
//! An index that is being built gets the entries of all rows that are written, wherever its build
//! is, and the build adds those of every row, again if need be. What is there is so always right,
//! and at the end nothing is missing. Where a key has one entry at most, the second of two rows
//! with the same key must not take the first one's entry: the build meets the one without an entry
//! when it comes to it. An index that is violated is empty, and stays so.

use crate::{
    engine::{Read, Reader, Writer},
    error::Result,
    maintain::{Change, Sink},
    schema::{IndexSchema, StateRecord},
    store::OpenTable,
    usage::Counting,
};

/// How each index of a table is kept up in a transaction.
#[derive(Debug)]
pub(crate) struct Upkeep(Box<[Kept]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// As it is declared.
    Up,
    /// A key's entry stays with the row that it belongs to.
    UpForOne,
    Not,
}

impl Upkeep {
    /// `None`: all indexes are kept up as they are declared.
    pub(crate) fn of(table: &OpenTable, reader: Reader<'_>, opened: u64) -> Result<Option<Self>> {
        if table.is_all_readable(opened) {
            return Ok(None);
        }
        let mut kept: Box<[Kept]> = table.schema.indexes.iter().map(|_| Kept::Up).collect();
        for (index, state) in table.unreadable(reader, opened)? {
            let of = table.schema.indexes.get(index);
            if let Some(kept) = kept.get_mut(index) {
                *kept = match state {
                    StateRecord::Building(_)
                        if of.is_some_and(IndexSchema::has_one_entry_per_key) =>
                    {
                        Kept::UpForOne
                    }
                    StateRecord::Building(_) => Kept::Up,
                    StateRecord::Violated(_) | StateRecord::Retired(_) => Kept::Not,
                };
            }
        }
        Ok(kept.iter().any(|kept| *kept != Kept::Up).then_some(Self(kept)))
    }

    /// Whether the keys of an index are to be compared with those of other rows.
    pub(crate) fn keeps(&self, index: usize) -> bool {
        self.kept(index) != Kept::Not
    }

    /// Whether an index is kept up as it is declared.
    pub(crate) fn is_up(&self, index: usize) -> bool {
        self.kept(index) == Kept::Up
    }

    /// A sink that hands on what is to be done to the indexes when a row is written, which was
    /// stored under the primary key `old` before.
    pub(crate) fn filter<'a, 't, 's>(
        &'a self,
        to: Counting<'a, Writer<'t, 's>>,
        old: Option<&'a [u8]>,
    ) -> Filter<'a, 't, 's> {
        Filter { upkeep: self, to, old }
    }

    fn kept(&self, index: usize) -> Kept {
        self.0.get(index).copied().unwrap_or(Kept::Up)
    }
}

pub(crate) struct Filter<'a, 't, 's> {
    upkeep: &'a Upkeep,
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
        let passes = match self.upkeep.kept(index) {
            Kept::Up => true,
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
