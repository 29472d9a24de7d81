//! IN lists: several values for one field of a key.

use std::{ops::Range, sync::Arc};

use crate::{
    engine::{KeyList, Query},
    model::key::{Key, KeyBuf},
};

/// The encoded values of an IN list, in their given order.
#[derive(Debug)]
pub struct Values(pub(super) Vec<Box<[u8]>>);

impl Values {
    /// Encodes values of the type of a query's parameter.
    pub fn new<'a, T: Key>(values: impl IntoIterator<Item = T::Arg<'a>>) -> Self {
        Self::encoded(values, T::encode)
    }

    /// Encodes values for an index without entries for absent values.
    pub fn present<'a, T: Key>(values: impl IntoIterator<Item = T::Present<'a>>) -> Self {
        Self::encoded(values, encode_present::<T>)
    }

    /// Encodes texts, for a field with texts or an `Option` of them.
    pub fn texts<T>(values: impl IntoIterator<Item: AsRef<str>>) -> Self
    where
        T: for<'a> Key<Present<'a> = &'a str>,
    {
        Self::encoded(values, |value, out| encode_present::<T>(value.as_ref(), out))
    }

    /// Encodes bytes, for a field with bytes or an `Option` of them.
    pub fn bytes<T>(values: impl IntoIterator<Item: AsRef<[u8]>>) -> Self
    where
        T: for<'a> Key<Present<'a> = &'a [u8]>,
    {
        Self::encoded(values, |value, out| encode_present::<T>(value.as_ref(), out))
    }

    fn encoded<I: IntoIterator>(values: I, encode: impl Fn(I::Item, &mut KeyBuf)) -> Self {
        let mut buffer = KeyBuf::new();
        let encoded = values.into_iter().map(|value| {
            buffer.clear();
            encode(value, &mut buffer);
            Box::from(buffer.as_bytes())
        });
        Self(encoded.collect())
    }
}

fn encode_present<T: Key>(value: T::Present<'_>, out: &mut KeyBuf) {
    T::encode(value.into(), out);
}

/// Splits a query with a list into queries without a list: a range for each value, in the order of the scan.
/// The caller applies the position to the first range.
pub(super) struct Ranges {
    /// The query without its list and its position.
    query: Query,
    list: Arc<KeyList>,
    left: Range<usize>,
}

impl Ranges {
    /// Replaces `query` by the first range, and returns the other ranges. Returns `None` if the query has no
    /// list.
    #[inline]
    pub(super) fn split_first(query: &mut Query) -> Option<Box<Self>> {
        query.list.is_some().then(|| Self::split(query))
    }

    #[cold]
    fn split(query: &mut Query) -> Box<Self> {
        let mut ranges = Self::of(query.clone());
        *query = match ranges.next() {
            Some(first) => Query { position: query.position.take(), ..first },
            None => Query { list: None, bounds: query.bounds.clone().before(&[]), ..query.clone() },
        };
        Box::new(ranges)
    }

    /// Creates all ranges from the position of a query.
    pub(super) fn of(mut query: Query) -> Self {
        let list = query.list.take().unwrap_or_default();
        let all = 0..list.len();
        let leading = query.bounds.start().len();
        let position = query.position.take().map(|position| position.bytes());
        let at = position.and_then(|at| list.find(at.get(leading..)?));
        let left = match at {
            Some(at) if query.reverse => 0..at + 1,
            Some(at) => at..list.len(),
            None => all,
        };
        Self { query, list, left }
    }
}

impl Iterator for Ranges {
    type Item = Query;

    fn next(&mut self) -> Option<Query> {
        let at = if self.query.reverse { self.left.next_back() } else { self.left.next() }?;
        let mut query = self.query.clone();
        query.bounds.start.extend(self.list.get(at)?);
        Some(query)
    }
}
