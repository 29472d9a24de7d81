//! Converts rows to sorted facts and entries.

use std::{path::Path, sync::OnceLock};

use super::OnDuplicate;
use crate::{
    model::{
        entry::RawEntry,
        error::{Error, Result},
        maintain::Image,
        schema::{IndexSchema, TableSchema},
    },
    sort::{LEAST_MEMORY, Merge, Sorted, Sorters},
};

/// Collects the facts and entries of rows in sorters.
pub(crate) struct Gatherer {
    schema: &'static TableSchema,
    /// The sorters of the facts, and then of each index.
    sorters: Sorters,
    policy: Policy,
    memory: usize,
    directory: Box<Path>,
    read: u64,
    tail: Vec<u8>,
}

/// The policy for duplicates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Policy {
    pub(super) on_duplicate: OnDuplicate,
    /// Whether a row that fails is reported by its number.
    pub(super) reports_number: bool,
    /// Whether the rows are added to the change stream.
    pub(super) notes_changes: bool,
}

/// The number of the row that fails, and the number of the earlier row with the same key, if it is in the load.
pub(super) type FailedRow = (u64, Option<u64>);

/// All rows, as facts and entries in order.
pub(crate) struct Gathered {
    pub(super) facts: Records,
    pub(super) indexes: Vec<Records>,
    pub(super) on_duplicate: OnDuplicate,
    /// Whether the rows are added to the change stream.
    pub(super) notes_changes: bool,
    /// The number of rows.
    pub(super) rows: u64,
    /// Set with [`Policy::reports_number`].
    pub(super) failed: OnceLock<FailedRow>,
    /// The memory for decisions about rows, in bytes.
    pub(super) memory: usize,
    pub(super) directory: Box<Path>,
}

/// The facts, or the entries of an index, in order. Each has a tail.
pub(crate) struct Records {
    sorted: Sorted,
    tail: Tail,
}

/// The parts of the tail, which follows the data of each entry.
///
/// If the index is unique and has hashed fields, the tail has their values, and then the length of the values as
/// a `u32`. If rows may be left out, or a row that fails is reported, the number of the row as a `u64` follows. The rows
/// of a load are numbered from 0.
#[derive(Debug, Clone, Copy)]
struct Tail {
    hashed: bool,
    number: bool,
}

impl Tail {
    /// Returns the parts of the tails of an index, or of the facts if `index` is `None`.
    fn of(index: Option<&IndexSchema>, policy: Policy) -> Self {
        let hashed = index.is_some_and(|index| index.unique && index.is_hashed());
        let number = policy.on_duplicate != OnDuplicate::Fail || policy.reports_number;
        Self { hashed, number }
    }

    fn write(self, tail: &mut Vec<u8>, hashed: &[u8], number: u64) {
        tail.clear();
        if self.hashed {
            tail.extend_from_slice(hashed);
            tail.extend_from_slice(&(hashed.len() as u32).to_ne_bytes());
        }
        if self.number {
            tail.extend_from_slice(&number.to_ne_bytes());
        }
    }

    #[inline]
    fn read(self, mut entry: RawEntry<'_>) -> Gist<'_> {
        let (mut hashed, mut number): (&[u8], u64) = (&[], 0);
        if self.number
            && let Some((data, bytes)) = entry.data.split_last_chunk()
        {
            (entry.data, number) = (data, u64::from_ne_bytes(*bytes));
        }
        if self.hashed
            && let Some((data, len)) = entry.data.split_last_chunk()
            && let Some(at) = data.len().checked_sub(u32::from_ne_bytes(*len) as usize)
        {
            (entry.data, hashed) = data.split_at(at);
        }
        Gist { entry, hashed, number }
    }
}

/// An entry, and its decoded tail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gist<'a> {
    pub(super) entry: RawEntry<'a>,
    /// The values of hashed fields.
    pub(super) hashed: &'a [u8],
    /// The number of the entry's row; 0 if it is not needed.
    pub(super) number: u64,
}

impl Gatherer {
    pub(super) fn new(
        schema: &'static TableSchema,
        directory: &Path,
        memory: usize,
        policy: Policy,
    ) -> Self {
        let sorters = Sorters::new(schema.indexes.len() + 1, directory, memory);
        let directory = directory.into();
        Self { schema, sorters, policy, memory, directory, read: 0, tail: Vec::new() }
    }

    /// Adds the row with this number.
    pub(super) fn add(&mut self, image: &Image, number: u64) -> Result<()> {
        let Self { schema, sorters, policy, read, tail, .. } = self;
        let primary_key = image.primary_key();
        *read += 1;
        Tail::of(None, *policy).write(tail, &[], number);
        sorters.push(0, &[], primary_key, image.row(), tail)?;
        for (index, declared) in schema.indexes.iter().enumerate() {
            let data = image.data(index, declared);
            Tail::of(Some(declared), *policy).write(tail, image.hashed(index), number);
            for key in image.keys(index) {
                sorters.push(index + 1, key, primary_key, data, tail)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Gathered> {
        let Self { schema, sorters, policy, memory, directory, read, .. } = self;
        let indexes = schema.indexes.iter().map(Some);
        let tails = std::iter::once(None).chain(indexes).map(|it| Tail::of(it, policy));
        let records = sorters.finish()?.into_iter().zip(tails);
        let mut records = records.map(|(sorted, tail)| Records { sorted, tail });
        let facts = records.next();
        let indexes = records.collect();
        // The facts have the first sorter.
        let none = || Sorters::new(1, &directory, 0).finish().map(|mut none| none.remove(0));
        let facts = match facts {
            Some(facts) => facts,
            None => Records { sorted: none()?, tail: Tail::of(None, policy) },
        };
        // Half of an eighth of the memory is for records, and half for the buffers of their merge.
        let memory = memory.max(LEAST_MEMORY) / 16;
        let Policy { on_duplicate, notes_changes, .. } = policy;
        let failed = OnceLock::new();
        Ok(Gathered {
            facts,
            indexes,
            on_duplicate,
            notes_changes,
            rows: read,
            failed,
            memory,
            directory,
        })
    }
}

impl Gathered {
    /// Returns the error of a row, after noting its number.
    #[cold]
    pub(super) fn failed(&self, row: u64, earlier: Option<u64>, error: Error) -> Error {
        // The first row stays.
        let _ = self.failed.set((row, earlier));
        error
    }
}

impl Records {
    pub(super) fn len(&self) -> u64 {
        self.sorted.len()
    }

    /// Whether the rows arrived in strictly ascending order.
    pub(super) fn came_ascending(&self) -> bool {
        self.sorted.came_ascending()
    }

    pub(super) fn read(&self) -> Reading {
        Reading { merge: self.sorted.read(), tail: self.tail }
    }
}

/// A reader of records, in order.
pub(super) struct Reading {
    merge: Merge,
    tail: Tail,
}

impl Reading {
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Gist<'_>>> {
        Ok(if self.advance()? { Some(self.gist()) } else { None })
    }

    /// Moves to the next record. Returns false at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.merge.advance()
    }

    /// Returns the current record.
    #[inline]
    pub(super) fn gist(&self) -> Gist<'_> {
        self.tail.read(self.merge.entry())
    }
}
