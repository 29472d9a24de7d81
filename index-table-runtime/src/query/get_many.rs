//! Many rows by their primary keys.

use std::{borrow::Borrow, fmt, marker::PhantomData};

use crate::{
    engine::Read as _,
    model::{
        entity::{Entity, Viewed},
        error::{Error, Result},
        key::{DecodeError, Key, KeyBuf},
        row,
        schema::Source,
    },
    placement::Reader,
    query::meter::{Ledger, Meter},
    usage::{Stats, trace::Trace},
};

/// An iterator over the rows with given primary keys, in the order of these keys, with `None` for a missing
/// row. From the `get_many` of a repository. Ends after the first error.
///
/// Cost: one look-up for each key. Several keys may be taken from their iterator and looked up before the
/// first of their rows is returned.
#[must_use = "iterators are lazy"]
pub struct GetMany<'txn, R, I> {
    /// The reader; `None` after the end.
    reader: Option<Reader<'txn>>,
    /// The reason why no row can be read, to be returned as the first result.
    failure: Option<Error>,
    meter: Meter<'txn>,
    keys: I,
    batch: Batch<'txn>,
    row: PhantomData<fn() -> R>,
}

/// A primary key, and its fact if there is one.
type LookUp<'k, 'txn> = (&'k [u8], Option<&'txn [u8]>);

/// Facts that were looked up at once.
struct Batch<'txn> {
    /// The primary keys of the facts, followed by unused buffers.
    primary_keys: Vec<KeyBuf>,
    facts: Vec<Option<&'txn [u8]>>,
    /// The number of facts that have been taken.
    taken: usize,
    /// The reason why there are no further facts.
    failure: Option<Error>,
}

impl<'txn> Batch<'txn> {
    const fn new() -> Self {
        Self { primary_keys: Vec::new(), facts: Vec::new(), taken: 0, failure: None }
    }

    /// Takes the next fact, with its primary key.
    #[inline]
    fn take(&mut self) -> Option<Result<LookUp<'_, 'txn>>> {
        match (self.primary_keys.get(self.taken), self.facts.get(self.taken)) {
            (Some(primary_key), Some(fact)) => {
                self.taken += 1;
                Some(Ok((primary_key.as_bytes(), *fact)))
            }
            _ => self.failure.take().map(Err),
        }
    }

    fn is_over(&self) -> bool {
        self.taken == self.facts.len() && self.failure.is_none()
    }

    /// Looks up the number of facts that the engine reads at once.
    fn fill<K: Key>(
        &mut self,
        reader: Reader<'txn>,
        meter: &mut Meter<'txn>,
        keys: &mut impl Iterator<Item: Borrow<K>>,
    ) {
        self.facts.clear();
        self.taken = 0;
        let mut count = 0;
        for key in keys.take(reader.facts_at_once().max(1)) {
            if self.primary_keys.len() == count {
                self.primary_keys.push(KeyBuf::new());
            }
            if let Some(buffer) = self.primary_keys.get_mut(count) {
                buffer.clear();
                buffer.push::<K>(key.borrow());
                meter.reads_row(reader, buffer.as_bytes());
            }
            count += 1;
        }
        let primary_keys = self.primary_keys.iter().take(count).map(KeyBuf::as_bytes);
        let found = reader.facts(primary_keys, |fact| {
            meter.fact();
            meter.bytes(fact.map_or(0, <[u8]>::len));
            self.facts.push(fact);
        });
        self.failure = found.err();
    }
}

impl<'txn, R, I> GetMany<'txn, R, I> {
    pub(crate) fn new(reader: Result<Reader<'txn>>, ledger: Ledger<'txn>, keys: I) -> Self {
        let meter = ledger.look_ups(Trace::get_many(ledger.usage));
        let (reader, failure) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        Self { reader, failure, meter, keys, batch: Batch::new(), row: PhantomData }
    }

    /// Returns the reads so far, a fact for each key.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.meter.stats()
    }

    /// Returns an iterator over the views of the same rows; see [`Scan::views`](crate::Scan::views).
    ///
    /// Cost: one look-up for each key.
    pub fn views(self) -> GetManyViews<'txn, R, I>
    where
        R: Viewed,
    {
        GetManyViews { rows: self }
    }
}

impl<'txn, R: Entity, I: Iterator<Item: Borrow<R::Key>>> GetMany<'txn, R, I> {
    /// Reads the next row, and decodes it with `decode`.
    fn decode_next<T>(
        &mut self,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Option<Result<Option<T>>> {
        let Some(reader) = self.reader else { return self.failure.take().map(Err) };
        if self.batch.is_over() {
            self.batch.fill::<R::Key>(reader, &mut self.meter, &mut self.keys);
        }
        let row = self.batch.take()?.and_then(|(primary_key, fact)| {
            let corrupt = |error| R::TABLE.corrupt(Source::Facts, primary_key, error);
            fact.map(decode).transpose().map_err(corrupt)
        });
        if row.is_err() {
            self.reader = None;
        }
        Some(row)
    }
}

impl<R: Entity, I: Iterator<Item: Borrow<R::Key>>> Iterator for GetMany<'_, R, I> {
    type Item = Result<Option<R>>;

    fn next(&mut self) -> Option<Self::Item> {
        let lists = self.meter.lists();
        self.decode_next(|bytes| row::decode(lists, bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match (&self.reader, &self.failure) {
            (Some(_), _) => {
                let looked_up = self.batch.facts.len() - self.batch.taken;
                let left = self.keys.size_hint().1.and_then(|left| left.checked_add(looked_up));
                // The error adds one result.
                (
                    0,
                    left.and_then(|left| {
                        left.checked_add(usize::from(self.batch.failure.is_some()))
                    }),
                )
            }
            (None, failure) => {
                let left = usize::from(failure.is_some());
                (left, Some(left))
            }
        }
    }
}

impl<R, I> fmt::Debug for GetMany<'_, R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").finish_non_exhaustive()
    }
}

/// The views of the rows with given primary keys; see [`GetMany::views`]. Ends after the first
/// error.
#[must_use = "iterators are lazy"]
pub struct GetManyViews<'txn, R, I> {
    rows: GetMany<'txn, R, I>,
}

impl<R, I> GetManyViews<'_, R, I> {
    /// Returns the reads so far, a fact for each key.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.rows.meter.stats()
    }
}

impl<'txn, R: Viewed, I: Iterator<Item: Borrow<R::Key>>> Iterator for GetManyViews<'txn, R, I> {
    type Item = Result<Option<R::View<'txn>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let meter = &self.rows.meter;
        let (lists, unescaped) = (meter.lists(), &meter.session().unescaped);
        self.rows.decode_next(|bytes| row::view::<R>(lists, bytes, unescaped))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl<R, I> fmt::Debug for GetManyViews<'_, R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetManyViews").finish_non_exhaustive()
    }
}
