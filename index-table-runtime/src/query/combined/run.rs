//! A running combination, which finds one primary key after another.

use std::ops::Bound;

use super::{
    plan::Plan,
    primary_key::{KeyBound, PrimaryKey, is_at},
    tree::Tree,
};
use crate::{
    model::{
        entity::Entity,
        entry::RawEntry,
        error::{Error, Result},
        key::DecodeError,
        schema::{Source, TableSchema},
    },
    placement::Reader,
    query::meter::{Ledger, Meter},
    query::{Cursor, DANGLING, conditions::RowTest},
    usage::{Stats, trace::Trace},
};

/// The part of a combination to return, and its direction and tests.
#[derive(Clone)]
pub(super) struct Extent<'txn> {
    pub(super) reverse: bool,
    pub(super) limit: Option<u64>,
    /// The start.
    pub(super) from: KeyBound<'txn>,
    /// The end.
    pub(super) to: KeyBound<'txn>,
    /// The tests of [`Combined::filter`](super::Combined::filter).
    pub(super) tests: Vec<RowTest<'txn>>,
}

impl Extent<'_> {
    pub(super) const ALL: Self = Self {
        reverse: false,
        limit: None,
        from: Bound::Unbounded,
        to: Bound::Unbounded,
        tests: Vec::new(),
    };

    /// Whether the extent ends before this primary key.
    fn ends_before(&self, primary_key: &[u8]) -> bool {
        let after_end = match &self.to {
            Bound::Included(last) => Bound::Excluded(&**last),
            Bound::Excluded(end) => Bound::Included(&**end),
            Bound::Unbounded => return false,
        };
        is_at(primary_key, after_end, self.reverse)
    }
}

/// A running combination. Ends at the limit, and at the first error.
pub(super) struct Run<'txn> {
    /// The reader; `None` after the end.
    reader: Option<Reader<'txn>>,
    /// The reason why the combination can't run, to be returned as the first result.
    failure: Option<Error>,
    schema: &'static TableSchema,
    /// Counts the look-ups of rows, which no scan counts.
    pub(super) meter: Meter<'txn>,
    tree: Tree<'txn>,
    /// Whether the scans that need sorting have been sorted.
    is_sorted: bool,
    /// The start, or the last primary key.
    position: KeyBound<'txn>,
    extent: Extent<'txn>,
    /// The fact of the last primary key, if it was looked up for a test.
    fact: Option<&'txn [u8]>,
    /// The remaining limit.
    left: u64,
}

impl<'txn> Run<'txn> {
    pub(super) fn new(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        plan: Plan<'txn>,
        extent: Extent<'txn>,
    ) -> Self {
        let tree = Tree::new(plan, schema, ledger, extent.reverse);
        let meter = ledger.look_ups(Trace::none());
        let (reader, failure) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        let (position, left) = (extent.from.clone(), extent.limit.unwrap_or(u64::MAX));
        let (is_sorted, fact) = (false, None);
        Self { reader, failure, schema, meter, tree, is_sorted, position, extent, fact, left }
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.tree.stats();
        stats += self.meter.stats();
        stats
    }

    /// Returns the next primary key.
    pub(super) fn next(&mut self) -> Result<Option<PrimaryKey<'txn>>> {
        let Some(reader) = self.reader else { return self.failure.take().map_or(Ok(None), Err) };
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let next = self.search(reader);
        match next {
            Ok(Some(_)) => self.left = left,
            Ok(None) | Err(_) => self.reader = None,
        }
        next
    }

    fn search(&mut self, reader: Reader<'txn>) -> Result<Option<PrimaryKey<'txn>>> {
        if !self.is_sorted {
            self.is_sorted = true;
            self.tree.sort(reader, &self.position)?;
        }
        loop {
            let Some(key) = self.tree.first(reader, self.position.clone())? else {
                return Ok(None);
            };
            if self.extent.ends_before(&key) {
                return Ok(None);
            }
            self.position = Bound::Excluded(key.clone());
            if self.passes(reader, &key)? {
                return Ok(Some(key));
            }
        }
    }

    /// Whether the row with this primary key passes the tests.
    fn passes(&mut self, reader: Reader<'txn>, primary_key: &[u8]) -> Result<bool> {
        if self.extent.tests.is_empty() {
            return Ok(true);
        }
        let corrupt = |error| self.schema.corrupt(Source::Facts, primary_key, error);
        self.fact = self.meter.look_up(reader, primary_key)?;
        let fact = self.fact.ok_or_else(|| corrupt(DANGLING))?;
        for test in &self.extent.tests {
            if !test(self.meter.lists(), fact).map_err(corrupt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the cursor of the gap after the last primary key.
    pub(super) fn cursor(&self, query_hash: u64) -> Option<Cursor> {
        let (Bound::Excluded(primary_key) | Bound::Included(primary_key)) = &self.position else {
            return None;
        };
        Some(Cursor::new(query_hash, RawEntry { key: &[], primary_key, data: &[] }))
    }

    /// Returns the next primary key, decoded by `decode`.
    pub(super) fn decode_next<R: Entity, T>(
        &mut self,
        decode: impl FnOnce(&mut Self, Reader<'txn>, &[u8]) -> Result<Result<T, DecodeError>>,
    ) -> Option<Result<T>> {
        let reader = self.reader;
        let primary_key = match self.next().transpose()? {
            Ok(primary_key) => primary_key,
            Err(error) => return Some(Err(error)),
        };
        let decoded = decode(self, reader?, &primary_key).and_then(|decoded| {
            decoded.map_err(|error| R::TABLE.corrupt(Source::Facts, &primary_key, error))
        });
        if decoded.is_err() {
            self.reader = None;
        }
        Some(decoded)
    }

    /// Looks up the row with the last primary key, and decodes it.
    pub(super) fn look_up<T>(
        &mut self,
        reader: Reader<'txn>,
        primary_key: &[u8],
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Result<Result<T, DecodeError>> {
        let fact = match self.fact.take() {
            Some(fact) => Some(fact),
            None => self.meter.look_up(reader, primary_key)?,
        };
        Ok(fact.ok_or(DANGLING).and_then(decode))
    }
}
