//! A combination that runs: one primary key after another.

use std::ops::Bound;

use super::{plan::Plan, tree::Tree};
use crate::{
    engine::Reader,
    model::{
        entity::Entity,
        error::{Error, Result},
        key::DecodeError,
        schema::{Source, TableSchema},
    },
    query::DANGLING,
    usage::{Ledger, Meter, Stats, trace::Trace},
};

/// A combination that runs. Ends at the limit, and at the first error.
pub(super) struct Run<'txn> {
    /// `None` once it has ended.
    reader: Option<Reader<'txn>>,
    /// Why it could not be run: what the first answer is, instead.
    failure: Option<Error>,
    /// What is not counted by a scan: the rows.
    pub(super) meter: Meter<'txn>,
    tree: Tree<'txn>,
    last: Option<&'txn [u8]>,
    /// How many more may come.
    left: u64,
}

impl<'txn> Run<'txn> {
    pub(super) fn new(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        plan: Plan<'txn>,
        limit: Option<u64>,
    ) -> Self {
        let tree = Tree::new(plan, schema, ledger);
        let meter = ledger.look_ups(Trace::none());
        let (reader, failure) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        Self { reader, failure, meter, tree, last: None, left: limit.unwrap_or(u64::MAX) }
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.tree.stats();
        stats += self.meter.stats();
        stats
    }

    /// The next primary key.
    pub(super) fn next(&mut self) -> Result<Option<&'txn [u8]>> {
        let Some(reader) = self.reader else { return self.failure.take().map_or(Ok(None), Err) };
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.tree.first(reader, from);
        match next {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => self.reader = None,
        }
        self.last = next.as_ref().ok().copied().flatten();
        next
    }

    /// The next primary key, and what `decode` makes of it.
    pub(super) fn decode_next<R: Entity, T>(
        &mut self,
        decode: impl FnOnce(&mut Self, Reader<'txn>, &'txn [u8]) -> Result<Result<T, DecodeError>>,
    ) -> Option<Result<T>> {
        let reader = self.reader;
        let primary_key = match self.next().transpose()? {
            Ok(primary_key) => primary_key,
            Err(error) => return Some(Err(error)),
        };
        let decoded = decode(self, reader?, primary_key).and_then(|decoded| {
            decoded.map_err(|error| R::TABLE.corrupt(Source::Facts, primary_key, error))
        });
        if decoded.is_err() {
            self.reader = None;
        }
        Some(decoded)
    }

    /// What `decode` makes of the row with this primary key.
    pub(super) fn look_up<T>(
        &mut self,
        reader: Reader<'txn>,
        primary_key: &[u8],
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Result<Result<T, DecodeError>> {
        let fact = self.meter.look_up(reader, primary_key)?;
        Ok(fact.ok_or(DANGLING).and_then(decode))
    }
}
