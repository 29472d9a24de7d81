//! One scan of a combination. It returns primary keys in the direction of the combination.

use std::{ops::Bound, rc::Rc};

use super::{
    primary_key::{PrimaryKey, is_at},
    sorted::SortedKeys,
};
use crate::{
    engine::Query,
    model::{
        entry::{KeyBuffer, Position},
        error::Result,
        schema::{Source, TableSchema},
    },
    placement::{Entries, Reader},
    query::meter::Meter,
    query::{conditions::Conditions, matches::Matches},
};

/// The number of entries to step over before a seek is assumed to be cheaper.
const STEPS: usize = 16;

/// The query of one scan.
#[derive(Clone)]
pub(super) struct Part<'txn> {
    pub(super) query: Query,
    /// The conditions; `None` if there are none but the bounds.
    pub(super) conditions: Option<Rc<Conditions<'txn>>>,
    /// Whether the entries are in the order of the primary key. Otherwise their primary keys are sorted
    /// first.
    pub(super) is_ordered: bool,
}

/// One running scan.
pub(super) struct Leaf<'txn> {
    schema: &'static TableSchema,
    part: Box<Part<'txn>>,
    reverse: bool,
    /// The entries. At their end they stay open until [`Tree`](super::tree::Tree) drops them.
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
        // Entries to be sorted are read in the order of their index.
        part.query.reverse = reverse && part.is_ordered;
        Self { schema, part, reverse, entries: None, sorted: None, meter }
    }

    pub(super) const fn is_ordered(&self) -> bool {
        self.part.is_ordered
    }

    /// Returns the first primary key within `from`, which is after the last primary key read.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
    ) -> Result<Option<PrimaryKey<'txn>>> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.first(from);
        }
        let (mut steps, mut buffer) = (0, KeyBuffer::new());
        loop {
            if self.entries.is_none() || steps == STEPS {
                self.meter.seek();
                let query = self.query_from(from);
                let conditions = self.part.conditions.as_ref();
                let entries =
                    Matches::scan(reader, self.schema, query, conditions, &mut self.meter)?;
                self.entries = Some(entries);
                steps = 0;
            }
            let Some(entries) = &mut self.entries else { return Ok(None) };
            steps += 1;
            let Some(entry) = entries.next(&mut self.meter).transpose()? else { return Ok(None) };
            self.meter.step();
            let whole = entry.primary_key.in_buffer(&mut buffer);
            if is_at(whole, from, self.reverse) {
                return Ok(Some(PrimaryKey::new(entry.primary_key, whole)));
            }
        }
    }

    /// Reads all entries, and calls `each` with the primary keys within `from`.
    pub(super) fn read(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.meter.seek();
        let (query, conditions) = (self.part.query.clone(), self.part.conditions.as_ref());
        let mut entries = Matches::cursor(reader, self.schema, query, conditions, &mut self.meter)?;
        while entries.advance(&mut self.meter)? || entries.advance_range(reader, &mut self.meter)? {
            self.meter.step();
            let primary_key = entries.entry().primary_key;
            if is_at(primary_key, from, self.reverse) {
                each(primary_key)?;
            }
        }
        Ok(())
    }

    /// Replaces the scan by its sorted primary keys.
    pub(super) fn read_sorted(&mut self, keys: SortedKeys) {
        self.sorted = Some(keys);
    }

    /// Returns the query that starts at a primary key. It includes the entry of this primary key, because an
    /// entry of a unique index is found by its key alone.
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
        // The position may precede the bounds. An engine starts at the position even then.
        let at = position.bytes();
        let precedes_bounds = if self.reverse {
            at.as_slice() >= start && !query.bounds.ends_after(&at)
        } else {
            at.as_slice() < start
        };
        if precedes_bounds {
            return query;
        }
        Query { position: Some(position), inclusive: true, ..query }
    }
}
