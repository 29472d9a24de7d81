//! One scan of a combination, whose entries have ascending primary keys.

use std::{cmp::Ordering, ops::Bound, rc::Rc};

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

/// How many entries are stepped over before a seek is assumed to be cheaper.
const STEPS: usize = 16;

/// What one scan looks for.
pub(super) struct Part<'txn> {
    pub(super) query: Query,
    /// `None`: its bounds are the only condition.
    pub(super) conditions: Option<Rc<Conditions<'txn>>>,
}

/// One scan, and how far it has been read.
pub(super) struct Leaf<'txn> {
    schema: &'static TableSchema,
    part: Box<Part<'txn>>,
    /// Kept when they have come to their end; [`Tree`](super::tree::Tree) drops them.
    entries: Option<Matches<'txn, Entries<'txn>>>,
    pub(super) meter: Meter<'txn>,
}

impl<'txn> Leaf<'txn> {
    pub(super) const fn new(
        schema: &'static TableSchema,
        part: Box<Part<'txn>>,
        meter: Meter<'txn>,
    ) -> Self {
        Self { schema, part, entries: None, meter }
    }

    /// The first primary key at the place or behind it, which is behind the last one that was read.
    ///
    /// The first place is no excluded one: an entry of a unique index is found by its key alone.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
    ) -> Result<Option<&'txn [u8]>> {
        let mut steps = 0;
        loop {
            if self.entries.is_none() || steps == STEPS {
                self.meter.seek();
                let query = self.part.query_from(from);
                let conditions = self.part.conditions.as_ref();
                self.entries = Some(Matches::scan(reader, self.schema, query, conditions)?);
                steps = 0;
            }
            let Some(entries) = &mut self.entries else { return Ok(None) };
            steps += 1;
            let Some(entry) = entries.next(&mut self.meter).transpose()? else { return Ok(None) };
            self.meter.step();
            if is_at(entry.primary_key, from) {
                return Ok(Some(entry.primary_key));
            }
        }
    }
}

impl Part<'_> {
    fn query_from(&self, from: Bound<&[u8]>) -> Query {
        let query = self.query.clone();
        let (Bound::Included(primary_key) | Bound::Excluded(primary_key)) = from else {
            return query;
        };
        let start = query.bounds.start();
        let key = match query.source {
            // The bounds begin behind the place.
            Source::Facts if primary_key < start => return query,
            Source::Facts => Vec::new(),
            Source::Index(_) => start.to_vec(),
        };
        let position = Position { key, primary_key: primary_key.to_vec() };
        Query { position: Some(position), inclusive: matches!(from, Bound::Included(_)), ..query }
    }
}

/// Whether this primary key is not before the place.
pub(super) fn is_at(primary_key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(place) => primary_key.cmp(place) != Ordering::Less,
        Bound::Excluded(place) => primary_key.cmp(place) == Ordering::Greater,
        Bound::Unbounded => true,
    }
}
