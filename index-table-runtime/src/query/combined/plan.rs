//! What is combined, as a tree of scans, and the one question that it answers.

use std::{cmp::Ordering, ops::Bound, sync::Arc};

use crate::{
    engine::{Query, Reader},
    model::{
        entry::Position,
        error::Result,
        schema::{Source, TableSchema},
    },
    query::found::{Found, Hashed},
    usage::{Meter, Stats},
};

/// How many entries are stepped over before a seek is thought to be the shorter way.
const STEPS: usize = 16;

/// What is combined, and how far it has been read.
pub(super) enum Node<'txn> {
    Scan(Box<Leaf<'txn>>),
    And(Vec<Node<'txn>>),
    Or(Vec<Node<'txn>>),
}

impl<'txn> Node<'txn> {
    /// The first primary key there. The places that are asked for never go back, and the first of
    /// them is no excluded one: an entry of a unique index is found by its key alone.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        from: Bound<&[u8]>,
    ) -> Result<Option<&'txn [u8]>> {
        match self {
            Self::Scan(leaf) => leaf.first(reader, from),
            Self::And(parts) => {
                let Some(part) = parts.first_mut() else { return Ok(None) };
                let Some(mut found) = part.first(reader, from)? else { return Ok(None) };
                'behind: loop {
                    for part in &mut *parts {
                        match part.first(reader, Bound::Included(found))? {
                            None => return Ok(None),
                            Some(at) if at == found => {}
                            Some(at) => {
                                found = at;
                                continue 'behind;
                            }
                        }
                    }
                    return Ok(Some(found));
                }
            }
            Self::Or(parts) => {
                let mut first = None;
                for part in parts {
                    let found = part.first(reader, from)?;
                    first = first.into_iter().chain(found).min();
                }
                Ok(first)
            }
        }
    }
}

impl Node<'_> {
    /// Adds what its scans have read.
    pub(super) fn add_stats(&self, stats: &mut Stats) {
        match self {
            Self::Scan(leaf) => *stats += leaf.meter.stats(),
            Self::And(parts) | Self::Or(parts) => {
                for part in parts {
                    part.add_stats(stats);
                }
            }
        }
    }
}

/// One scan, whose entries have ascending primary keys.
pub(super) struct Leaf<'txn> {
    schema: &'static TableSchema,
    query: Query,
    /// The values of hashed fields.
    hashed: Option<Arc<Hashed>>,
    entries: Option<Found<'txn>>,
    /// The primary key of the last entry that was read.
    current: Option<&'txn [u8]>,
    ended: bool,
    meter: Meter<'txn>,
}

impl<'txn> Leaf<'txn> {
    pub(super) const fn new(
        schema: &'static TableSchema,
        query: Query,
        hashed: Option<Arc<Hashed>>,
        meter: Meter<'txn>,
    ) -> Self {
        Self { schema, query, hashed, entries: None, current: None, ended: false, meter }
    }

    fn first(&mut self, reader: Reader<'txn>, from: Bound<&[u8]>) -> Result<Option<&'txn [u8]>> {
        if self.ended {
            return Ok(None);
        }
        if let Some(current) = self.current
            && is_at(current, from)
        {
            return Ok(self.current);
        }
        let mut steps = 0;
        loop {
            if self.entries.is_none() || steps == STEPS {
                self.meter.seek();
                self.entries = Some(Found::new(
                    reader,
                    self.schema,
                    self.query_from(from),
                    self.hashed.as_ref(),
                )?);
                steps = 0;
            }
            let Some(entries) = &mut self.entries else { return Ok(None) };
            steps += 1;
            let Some(entry) = entries.next(&mut self.meter).transpose()? else {
                (self.ended, self.entries) = (true, None);
                return Ok(None);
            };
            self.meter.step();
            self.current = Some(entry.primary_key);
            if is_at(entry.primary_key, from) {
                return Ok(self.current);
            }
        }
    }

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
fn is_at(primary_key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(place) => primary_key.cmp(place) != Ordering::Less,
        Bound::Excluded(place) => primary_key.cmp(place) == Ordering::Greater,
        Bound::Unbounded => true,
    }
}
