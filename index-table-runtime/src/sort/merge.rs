//! Merging sorted records: the next record is the least of the current records of all sources.

use std::sync::Arc;

use super::{
    Reader, Runs,
    arena::{Arena, Records},
    record,
};
use crate::{
    engine::Ascending,
    model::{entry::RawEntry, error::Result},
};

/// The sources of sorted records.
#[derive(Debug)]
pub(super) enum Source {
    Run(Reader),
    Memory(Records),
}

impl Source {
    #[inline]
    fn record(&self) -> &[u8] {
        match self {
            Self::Run(reader) => reader.record(),
            Self::Memory(records) => records.record(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Run(reader) => reader.advance(),
            Self::Memory(records) => Ok(records.advance()),
        }
    }
}

/// Returns these runs and the records in memory, in the order of arrival.
pub(super) fn sources(
    runs: Option<&Arc<Runs>>,
    first: usize,
    end: usize,
    buffer: usize,
    memory: Option<&Arc<Arena>>,
) -> Vec<Source> {
    let runs = runs.into_iter().flat_map(|runs| (first..end).map(|run| runs.read(run, buffer)));
    let memory = memory.map(|arena| Source::Memory(arena.records()));
    runs.map(Source::Run).chain(memory).collect()
}

/// The records of several sources in order. The merge owns its sources.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    /// The sources that have not ended, as a heap with the least record at its top.
    heap: Vec<usize>,
    started: bool,
}

impl Merge {
    /// Creates a merge. Among records with the same keys, the records of earlier sources come first.
    pub(super) const fn new(sources: Vec<Source>) -> Self {
        Self { sources, heap: Vec::new(), started: false }
    }

    /// Steps to the next record; `false` at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.started {
            self.step()?;
        } else {
            self.begin()?;
        }
        Ok(!self.heap.is_empty())
    }

    /// Returns the current record.
    #[inline]
    pub(super) fn record(&self) -> &[u8] {
        let top = self.heap.first().and_then(|top| self.sources.get(*top));
        top.map_or(&[], Source::record)
    }

    /// Returns the current entry.
    #[inline]
    pub(crate) fn entry(&self) -> RawEntry<'_> {
        record::entry(self.record())
    }

    fn begin(&mut self) -> Result<()> {
        self.started = true;
        for (at, source) in self.sources.iter_mut().enumerate() {
            if source.advance()? {
                self.heap.push(at);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        Ok(())
    }

    /// Steps in the source with the least record.
    #[inline]
    fn step(&mut self) -> Result<()> {
        let Some(top) = self.heap.first() else { return Ok(()) };
        let Some(source) = self.sources.get_mut(*top) else { return Ok(()) };
        if !source.advance()? {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if self.is_less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// Whether the record at one position of the heap comes before the record at another; `false` if there is
    /// no such position.
    fn is_less(&self, one: usize, other: usize) -> bool {
        let (Some(first), Some(second)) = (self.heap.get(one), self.heap.get(other)) else {
            return false;
        };
        let key = |source: usize| {
            self.sources.get(source).map_or(&[][..], |source| record::sort_key(source.record()))
        };
        key(*first).cmp(key(*second)).then(first.cmp(second)).is_lt()
    }
}

impl Ascending for Merge {
    #[inline]
    fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        Ok(if Self::advance(self)? { Some(self.entry()) } else { None })
    }
}
