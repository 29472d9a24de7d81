//! One scan of a combination, whose primary keys come in the direction of the combination.

use std::{ops::Bound, rc::Rc};

use super::{
    primary_key::{PrimaryKey, is_at},
    sorted::SortedKeys,
};
use crate::{
    engine::{Entries, Query, Reader},
    model::{
        entry::Position,
        error::Result,
        schema::{Source, TableSchema},
    },
    query::{conditions::Conditions, matches::Matches},
    usage::Meter,
};

/// The number of entries to step over before a seek is assumed to be cheaper.
const STEPS: usize = 16;

/// The query of one scan.
#[derive(Clone)]
pub(super) struct Part<'txn> {
    pub(super) query: Query,
    /// `None` if its bounds are the only condition.
    pub(super) conditions: Option<Rc<Conditions<'txn>>>,
    /// Its entries are in the order of the primary key. Otherwise they are sorted first.
    pub(super) is_ordered: bool,
}

/// One scan, and its position.
pub(super) struct Leaf<'txn> {
    schema: &'static TableSchema,
    part: Box<Part<'txn>>,
    reverse: bool,
    /// Kept at their end; [`Tree`](super::tree::Tree) drops them.
    entries: Option<Matches<'txn, Entries<'txn>>>,
    sorted: Option<SortedKeys>,
    pub(super) meter: Meter<'txn>,
}

impl<'txn> Leaf<'txn> {
    pub(super) fn new(
        schema: &'static TableSchema,
        mut part: Box<Part<'txn>>,
        reverse: bool,
        meter: Meter<'txn>,
    ) -> Self {
        // What is sorted is read in the order of its index.
        part.query.reverse = reverse && part.is_ordered;
        Self { schema, part, reverse, entries: None, sorted: None, meter }
    }

    pub(super) const fn is_ordered(&self) -> bool {
        self.part.is_ordered
    }

    /// The first primary key at or behind the place, which is behind the last one that was read.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
    ) -> Result<Option<PrimaryKey<'txn>>> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.first(from);
        }
        let mut steps = 0;
        loop {
            if self.entries.is_none() || steps == STEPS {
                self.meter.seek();
                let query = self.query_from(from);
                let conditions = self.part.conditions.as_ref();
                self.entries = Some(Matches::scan(reader, self.schema, query, conditions)?);
                steps = 0;
            }
            let Some(entries) = &mut self.entries else { return Ok(None) };
            steps += 1;
            let Some(entry) = entries.next(&mut self.meter).transpose()? else { return Ok(None) };
            self.meter.step();
            if is_at(entry.primary_key, from, self.reverse) {
                return Ok(Some(PrimaryKey::Lent(entry.primary_key)));
            }
        }
    }

    /// Reads all its entries, and gives the primary keys at the place or behind it to `each`.
    pub(super) fn read(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.meter.seek();
        let (query, conditions) = (self.part.query.clone(), self.part.conditions.as_ref());
        let mut entries = Matches::cursor(reader, self.schema, query, conditions)?;
        while entries.advance(&mut self.meter)? || entries.advance_range(reader, &mut self.meter)? {
            self.meter.step();
            let primary_key = entries.entry().primary_key;
            if is_at(primary_key, from, self.reverse) {
                each(primary_key)?;
            }
        }
        Ok(())
    }

    /// Reads these primary keys from now on.
    pub(super) fn read_sorted(&mut self, keys: SortedKeys) {
        self.sorted = Some(keys);
    }

    /// The query from a place on. It includes the place, because an entry of a unique index is found by its key
    /// alone.
    fn query_from(&self, from: Bound<&[u8]>) -> Query {
        let query = self.part.query.clone();
        let (Bound::Included(primary_key) | Bound::Excluded(primary_key)) = from else {
            return query;
        };
        let start = query.bounds.start();
        let key = match query.source {
            Source::Facts => Vec::new(),
            Source::Index(_) => start.to_vec(),
        };
        let position = Position { key, primary_key: primary_key.to_vec() };
        // The place may be in front of the bounds. An engine reads from a position on, wherever it is.
        let at = position.bytes();
        let is_in_front = if self.reverse {
            at.as_slice() >= start && !query.bounds.ends_behind(&at)
        } else {
            at.as_slice() < start
        };
        if is_in_front {
            return query;
        }
        Query { position: Some(position), inclusive: true, ..query }
    }
}
