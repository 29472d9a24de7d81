//! Many rows by their primary keys.

use std::{borrow::Borrow, fmt, marker::PhantomData};

use crate::{
    engine::Reader,
    model::{
        entity::{Entity, Viewed},
        error::{Error, Result},
        key::{DecodeError, KeyBuf},
        row,
        schema::Source,
    },
    usage::{Ledger, Meter, Stats, trace::Trace},
};

/// The rows with given primary keys, in the order of these: `None` where there is none. From the
/// `get_many` of a repository. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct GetMany<'txn, R, I> {
    /// `None` once it has ended.
    reader: Option<Reader<'txn>>,
    /// Why nothing can be read: the result in the place of the first row.
    failure: Option<Error>,
    meter: Meter<'txn>,
    keys: I,
    buffer: KeyBuf,
    row: PhantomData<fn() -> R>,
}

impl<'txn, R, I> GetMany<'txn, R, I> {
    pub(crate) fn new(reader: Result<Reader<'txn>>, ledger: Ledger<'txn>, keys: I) -> Self {
        let meter = ledger.look_ups(Trace::get_many(ledger.usage));
        let (reader, failure) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        Self { reader, failure, meter, keys, buffer: KeyBuf::new(), row: PhantomData }
    }

    /// What has been read so far: a fact for each key.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.meter.stats()
    }

    /// The views of the same rows; see [`Scan::views`](crate::Scan::views).
    ///
    /// Cost: one look-up for each.
    pub fn views(self) -> GetManyViews<'txn, R, I>
    where
        R: Viewed,
    {
        GetManyViews { rows: self }
    }
}

impl<'txn, R: Entity, I: Iterator<Item: Borrow<R::Key>>> GetMany<'txn, R, I> {
    /// What `decode` makes of the next row.
    fn decode_next<T>(
        &mut self,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Option<Result<Option<T>>> {
        let Some(reader) = self.reader else { return self.failure.take().map(Err) };
        let key = self.keys.next()?;
        self.buffer.clear();
        self.buffer.push::<R::Key>(key.borrow());
        let primary_key = self.buffer.as_bytes();
        let row = self.meter.look_up(reader, primary_key).and_then(|bytes| {
            let corrupt = |error| R::TABLE.corrupt(Source::Facts, primary_key, error);
            bytes.map(decode).transpose().map_err(corrupt)
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
        self.decode_next(row::decode)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match (&self.reader, &self.failure) {
            (Some(_), _) => (0, self.keys.size_hint().1),
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
    /// What has been read so far: a fact for each key.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.rows.meter.stats()
    }
}

impl<'txn, R: Viewed, I: Iterator<Item: Borrow<R::Key>>> Iterator for GetManyViews<'txn, R, I> {
    type Item = Result<Option<R::View<'txn>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let kept = &self.rows.meter.session().unescaped;
        self.rows.decode_next(|bytes| row::view::<R>(bytes, kept))
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
