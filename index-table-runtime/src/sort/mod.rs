//! External sorting of entries, in memory up to a bound, and in temporary files beyond it.
//!
//! A [`Sorter`] takes the entries of one index, or the facts, in any order, and returns them in the order of
//! the database: by index key, then by primary key. Entries with the same keys stay in the order of arrival.
//! [`Sorters`] are several sorters with a common memory bound. When they exceed it, the largest sorter sorts
//! its records and writes them to a file as a run. The result is a merge of the runs and of the records in
//! memory, and can be read several times.
//!
//! Entries that arrive in ascending order are not sorted.

mod arena;
mod merge;
mod record;
mod run;
#[cfg(test)]
mod tests;

use std::{io, mem, path::Path, sync::Arc};

use crate::model::error::{Error, Result};
use arena::Arena;
pub(crate) use merge::Merge;
use merge::sources;
use run::{Reader, Runs};

/// The minimum bound; smaller bounds are raised to it.
pub(crate) const LEAST_MEMORY: usize = 64 << 10;

/// The minimum number of bytes to read from a run at a time.
const LEAST_BUFFER: usize = 4 << 10;
/// The maximum number of bytes to read from a run at a time. More does not make reading faster.
const LARGEST_BUFFER: usize = 256 << 10;

/// Sorts the entries of several databases, with one bound for all.
#[derive(Debug)]
pub(crate) struct Sorters {
    each: Vec<Sorter>,
    /// The memory bound of all of them, in bytes.
    bound: usize,
    /// The memory that all sorters use, in bytes.
    allocated: usize,
    /// The memory for the buffers of a merge, in bytes.
    merging: usize,
}

impl Sorters {
    /// Creates a number of sorters with `memory` bytes: three quarters for entries, an eighth for merging,
    /// and an eighth for the caller.
    pub(crate) fn new(count: usize, directory: &Path, memory: usize) -> Self {
        let memory = memory.max(LEAST_MEMORY);
        let directory: Arc<Path> = directory.into();
        let segment = (memory / 64 / count.max(1)).clamp(1 << 10, 1 << 20);
        let each = (0..count).map(|_| Sorter::new(Arc::clone(&directory), segment)).collect();
        Self { each, bound: memory / 4 * 3, allocated: 0, merging: memory / 8 }
    }

    /// Adds an entry of the database at this position. `tail` is appended to its data.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`](crate::Error::DiskFull) and [`Error::Io`](crate::Error::Io) of a temporary file.
    #[inline]
    pub(crate) fn push(
        &mut self,
        database: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
        tail: &[u8],
    ) -> Result<()> {
        let Some(sorter) = self.each.get_mut(database) else { return Ok(()) };
        let before = sorter.memory();
        sorter.push(key, primary_key, data, tail)?;
        self.allocated += sorter.memory() - before;
        if self.allocated > self.bound { self.spill_largest() } else { Ok(()) }
    }

    #[cold]
    fn spill_largest(&mut self) -> Result<()> {
        let Some(largest) = self.each.iter_mut().max_by_key(|sorter| sorter.memory()) else {
            return Ok(());
        };
        largest.spill(self.merging.clamp(LEAST_BUFFER, LARGEST_BUFFER))?;
        self.allocated = self.each.iter().map(Sorter::memory).sum();
        Ok(())
    }

    /// Returns the sorted entries of each database.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`](crate::Error::DiskFull) and [`Error::Io`](crate::Error::Io) of a temporary file.
    pub(crate) fn finish(self) -> Result<Vec<Sorted>> {
        self.each.into_iter().map(|sorter| sorter.finish(self.merging)).collect()
    }

    /// Like [`finish`](Sorters::finish), for entries that are read at the same time and therefore share the
    /// memory for merging.
    ///
    /// # Errors
    ///
    /// The errors of [`finish`](Sorters::finish).
    pub(crate) fn finish_together(self) -> Result<Vec<Sorted>> {
        let merging = self.merging / self.each.len().max(1);
        self.each.into_iter().map(|sorter| sorter.finish(merging)).collect()
    }
}

/// Sorts the entries of one database.
#[derive(Debug)]
pub(crate) struct Sorter {
    directory: Arc<Path>,
    arena: Arena,
    /// The runs in a file; `None` before the first run.
    runs: Option<Runs>,
    /// The greatest keys in the runs, concatenated.
    greatest: Vec<u8>,
    /// Whether the entries arrived in strictly ascending order.
    ascending: bool,
    len: u64,
}

impl Sorter {
    /// Creates a sorter. `segment` is the size of its allocations, in bytes.
    pub(crate) fn new(directory: Arc<Path>, segment: usize) -> Self {
        let (arena, greatest) = (Arena::new(segment), Vec::new());
        Self { directory, arena, runs: None, greatest, ascending: true, len: 0 }
    }

    /// Adds an entry. `tail` is appended to its data.
    #[inline]
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
        tail: &[u8],
    ) -> Result<()> {
        self.len += 1;
        self.arena.push(key, primary_key, data, tail).ok_or_else(|| too_long(&self.directory))
    }

    /// Returns the used memory, in bytes.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.arena.memory()
    }

    /// Writes the records in memory to a file, as a run.
    pub(crate) fn spill(&mut self, buffer: usize) -> Result<()> {
        let mut arena = self.arena.take();
        self.follow(&arena);
        arena.sort();
        let runs = match &mut self.runs {
            Some(runs) => runs,
            None => self.runs.insert(Runs::new(Arc::clone(&self.directory))?),
        };
        let mut writer = runs.begin(buffer)?;
        let mut records = Arc::new(arena).records();
        while records.advance() {
            writer.add(records.record())?;
        }
        writer.finish()
    }

    /// Updates `ascending` and `greatest` for the records of another arena, which follow the runs.
    fn follow(&mut self, arena: &Arena) {
        let Some((first, last)) = arena.ascending() else {
            self.ascending &= arena.is_empty();
            return;
        };
        self.ascending &= self.runs.is_none() || self.greatest.as_slice() < first;
        self.greatest.clear();
        self.greatest.extend_from_slice(last);
    }

    /// Returns the sorted entries. `memory` is for the buffers of a merge, in bytes.
    pub(crate) fn finish(mut self, memory: usize) -> Result<Sorted> {
        let mut tail = mem::replace(&mut self.arena, Arena::new(0));
        self.follow(&tail);
        tail.sort();
        let Self { runs, ascending, len, .. } = self;
        let (runs, tail) = (runs.map(Arc::new), Arc::new(tail));
        let mut sorted = Sorted { runs, tail, ascending, len, memory };
        sorted.reduce()?;
        Ok(sorted)
    }
}

#[cold]
fn too_long(directory: &Path) -> Error {
    let source = io::Error::new(io::ErrorKind::FileTooLarge, "an entry is longer than 4 GiB");
    Error::Io { path: directory.to_owned(), source }
}

/// Sorted entries, which can be read any number of times.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Option<Arc<Runs>>,
    /// The entries in memory, which arrived after the entries in the runs.
    tail: Arc<Arena>,
    ascending: bool,
    len: u64,
    /// The memory for the buffers of a merge, in bytes.
    memory: usize,
}

impl Sorted {
    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the entries arrived in strictly ascending order, so that no keys are equal.
    pub(crate) const fn came_ascending(&self) -> bool {
        self.ascending
    }

    /// Reads the entries from the start.
    pub(crate) fn read(&self) -> Merge {
        let runs = self.runs.as_ref().map_or(0, |runs| runs.len());
        Merge::new(sources(self.runs.as_ref(), 0, runs, self.buffer(runs), Some(&self.tail)))
    }

    fn buffer(&self, runs: usize) -> usize {
        (self.memory / (runs + 1)).clamp(LEAST_BUFFER, LARGEST_BUFFER)
    }

    /// Returns the number of runs for which the memory has buffers. Each buffer has room for a whole record.
    fn most_runs(&self) -> usize {
        let largest = self.runs.as_ref().map_or(0, |runs| runs.largest());
        (self.memory / LEAST_BUFFER.max(largest)).saturating_sub(1).clamp(2, 256)
    }

    /// Merges runs until there are buffers for all of them.
    fn reduce(&mut self) -> Result<()> {
        let most = self.most_runs();
        while let Some(runs) = &self.runs
            && runs.len() > most
        {
            let buffer = self.buffer(most);
            let mut merged = Runs::new(Arc::clone(runs.directory()))?;
            for first in (0..runs.len()).step_by(most) {
                let end = (first + most).min(runs.len());
                let mut merge = Merge::new(sources(Some(runs), first, end, buffer, None));
                let mut writer = merged.begin(buffer)?;
                while merge.advance()? {
                    writer.add(merge.record())?;
                }
                writer.finish()?;
            }
            self.runs = Some(Arc::new(merged));
        }
        Ok(())
    }
}
