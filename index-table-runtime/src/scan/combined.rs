//! Several scans of one table as one, in the order of the primary key.

use std::{cmp::Ordering, fmt, iter::FusedIterator, marker::PhantomData, ops::Bound};

use super::{DANGLING, Position, Query, Scan, asked::Asked, found::Found};
use crate::{
    engine::{Read, Reader},
    entity::{Entity, IndexEntry, Viewed},
    error::{Error, Result},
    key::{DecodeError, Key, KeyReader},
    row,
    schema::{Source, TableSchema},
    stats::{Ledger, Meter, Stats},
    trace::Trace,
};

/// How many entries are stepped over before a seek is thought to be the shorter way.
const STEPS: usize = 16;

/// What is said of a part that is not all of its rows in ascending order.
const LIMITED: &str = "no part may have a `rev`, `limit` or `after`; limit the whole instead";

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// The rows that are in both.
    ///
    /// Both scans have to yield their rows in the order of the primary key: all fields of an
    /// index given with their values, or any scan of the fact table; and without `rev`, `limit`
    /// and `after`. [`Error::NotCombinable`] says so when the combination is run.
    ///
    /// Cost: see [`Combined`].
    pub fn and(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).and(other)
    }

    /// The rows that are in one of them or in both, each once.
    ///
    /// The same scans as for [`and`](Scan::and) can be combined.
    ///
    /// Cost: see [`Combined`].
    pub fn or(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).or(other)
    }
}

/// Scans of one table combined by [`and`](Scan::and) and [`or`](Scan::or): the rows in the order of
/// the primary key, each once.
///
/// A combination can be combined again. Nothing is read before it is asked for, nothing is
/// collected, and memory does not grow with the answer.
///
/// Cost: `or` steps through all of its scans. `and` goes from each primary key in one scan to the
/// same place in the other, over a few entries by stepping and over more by a seek: about as
/// many seeks as the smaller scan has entries, at most, and few if their entries lie apart. An
/// index over all the fields of both needs one seek; this needs no index more. Each entry that is
/// stepped on costs a look-up in the fact table where it is found by a hashed field that it doesn't
/// carry.
#[must_use = "it does nothing until it is asked for rows, views, keys or a count"]
pub struct Combined<'txn, R> {
    reader: Result<Reader<'txn>>,
    ledger: Ledger<'txn>,
    plan: Node<'txn>,
    limit: Option<u64>,
    row: PhantomData<fn() -> R>,
}

impl<'txn, R: Entity> Combined<'txn, R> {
    /// The rows that are in both; see [`Scan::and`].
    pub fn and(self, other: impl Into<Self>) -> Self {
        self.with(other.into(), |a, b| match a {
            Node::And(mut parts) => {
                parts.push(b);
                Node::And(parts)
            }
            a => Node::And(vec![a, b]),
        })
    }

    /// The rows that are in one of them or in both, each once; see [`Scan::or`].
    pub fn or(self, other: impl Into<Self>) -> Self {
        self.with(other.into(), |a, b| match a {
            Node::Or(mut parts) => {
                parts.push(b);
                Node::Or(parts)
            }
            a => Node::Or(vec![a, b]),
        })
    }

    fn with(self, other: Self, combine: impl FnOnce(Node<'txn>, Node<'txn>) -> Node<'txn>) -> Self {
        let refusal = if self.limit.is_some() || other.limit.is_some() {
            Some(LIMITED)
        } else if !std::ptr::eq(self.ledger.session, other.ledger.session) {
            Some("they are from different transactions")
        } else {
            None
        };
        let reader = self.reader.and_then(|reader| other.reader.map(|_| reader));
        let reader = reader.and_then(|reader| match refusal {
            None => Ok(reader),
            Some(reason) => Err(Error::NotCombinable { table: R::TABLE.name, index: None, reason }),
        });
        Self { reader, plan: combine(self.plan, other.plan), limit: None, ..self }
    }

    /// At most `limit` rows; of two limits, the smaller one holds.
    pub fn limit(mut self, limit: usize) -> Self {
        let limit = limit as u64;
        self.limit = Some(self.limit.map_or(limit, |other| other.min(limit)));
        self
    }

    /// The rows.
    ///
    /// Cost: that of [`keys`](Combined::keys), and one look-up in the fact table for each row.
    pub fn rows(self) -> CombinedRows<'txn, R> {
        CombinedRows { run: Run::new(self), row: PhantomData }
    }

    /// The rows, with their strings and bytes borrowed from the transaction's snapshot; see
    /// [`Scan::views`].
    ///
    /// Cost: the seeks, steps and look-ups of [`rows`](Combined::rows).
    pub fn views(self) -> CombinedViews<'txn, R>
    where
        R: Viewed,
    {
        CombinedViews { run: Run::new(self), row: PhantomData }
    }

    /// The primary keys: the value for a primary key of one field, a tuple for a composite one.
    ///
    /// Cost: see [`Combined`]; no row is looked up.
    pub fn keys(self) -> CombinedKeys<'txn, R> {
        CombinedKeys { run: Run::new(self), row: PhantomData }
    }

    /// How many rows there are.
    ///
    /// Cost: that of [`keys`](Combined::keys) without decoding them.
    ///
    /// # Errors
    ///
    /// [`Error::NotCombinable`]; [`Error`] when the store can't be read.
    pub fn count(self) -> Result<u64> {
        let mut run = Run::new(self);
        let mut count = 0;
        while run.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Whether there is a row at all.
    ///
    /// Cost: that of [`keys`](Combined::keys) for one key, without decoding it.
    ///
    /// # Errors
    ///
    /// As [`count`](Combined::count).
    pub fn exists(self) -> Result<bool> {
        self.limit(1).count().map(|count| count > 0)
    }

    /// The first row, if there is one.
    ///
    /// Cost: that of [`rows`](Combined::rows) for one row.
    ///
    /// # Errors
    ///
    /// As [`count`](Combined::count).
    pub fn first(self) -> Result<Option<R>> {
        self.limit(1).rows().next().transpose()
    }
}

impl<'txn, E: IndexEntry<'txn>> From<Scan<'txn, E>> for Combined<'txn, E::Row> {
    fn from(scan: Scan<'txn, E>) -> Self {
        let Asked { reader, schema, ledger, query, after } = scan.asked;
        let refusal = if query.reverse || query.limit.is_some() || after.is_some() {
            Some(LIMITED)
        } else if in_primary_key_order(schema, &query) {
            None
        } else {
            Some(
                "its rows are not in the order of the primary key; give each field of the index \
                 with its value",
            )
        };
        let reader = reader.and_then(|reader| match refusal {
            None => Ok(reader),
            Some(reason) => Err(Error::NotCombinable {
                table: schema.name,
                index: schema.index_name(query.source),
                reason,
            }),
        });
        let meter = ledger.meter(query.source, None);
        let leaf = Leaf { schema, query, entries: None, current: None, ended: false, meter };
        Self { reader, ledger, plan: Node::Scan(Box::new(leaf)), limit: None, row: PhantomData }
    }
}

impl<R: Entity> fmt::Debug for Combined<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined")
            .field("table", &R::TABLE.name)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Whether all entries have the same key, so that what orders them is the primary key.
fn in_primary_key_order(schema: &TableSchema, query: &Query) -> bool {
    let Some(index) = schema.index(query.source) else { return true };
    // What a text starts with has no end, so it is not taken for a whole field.
    query.bounds.as_prefix().is_some_and(|key| index.key_len(key) == Ok(key.len()))
}

/// What is combined, and how far it has been read.
enum Node<'txn> {
    Scan(Box<Leaf<'txn>>),
    And(Vec<Node<'txn>>),
    Or(Vec<Node<'txn>>),
}

impl<'txn> Node<'txn> {
    /// The first primary key there. The places that are asked for never go back, and the first of
    /// them is no excluded one: an entry of a unique index is found by its key alone.
    fn first(&mut self, reader: Reader<'txn>, from: Bound<&[u8]>) -> Result<Option<&'txn [u8]>> {
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
    fn add_stats(&self, stats: &mut Stats) {
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
struct Leaf<'txn> {
    schema: &'static TableSchema,
    query: Query,
    entries: Option<Found<'txn>>,
    /// The primary key of the last entry that was read.
    current: Option<&'txn [u8]>,
    ended: bool,
    meter: Meter<'txn>,
}

impl<'txn> Leaf<'txn> {
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
                self.entries = Some(Found::new(reader, self.schema, self.query_from(from))?);
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

/// A combination that runs. Ends at the limit, and at the first error.
struct Run<'txn> {
    /// `None` once it has ended.
    reader: Option<Reader<'txn>>,
    /// Why it could not be run: what the first answer is, instead.
    failure: Option<Error>,
    /// What is not counted by a scan: the rows.
    meter: Meter<'txn>,
    plan: Node<'txn>,
    last: Option<&'txn [u8]>,
    /// How many more may come.
    left: u64,
}

impl<'txn> Run<'txn> {
    fn new<R>(combined: Combined<'txn, R>) -> Self {
        let Combined { reader, ledger, plan, limit, .. } = combined;
        let meter = ledger.look_ups(Trace::none());
        let (reader, failure) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        Self { reader, failure, meter, plan, last: None, left: limit.unwrap_or(u64::MAX) }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.meter.stats();
        self.plan.add_stats(&mut stats);
        stats
    }

    /// The next primary key.
    fn next(&mut self) -> Result<Option<&'txn [u8]>> {
        let Some(reader) = self.reader else { return self.failure.take().map_or(Ok(None), Err) };
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.plan.first(reader, from);
        match next {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => self.reader = None,
        }
        self.last = next.as_ref().ok().copied().flatten();
        next
    }

    /// The next primary key, and what `decode` makes of it.
    fn decode_next<R: Entity, T>(
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
}

/// What `decode` makes of the row with this primary key.
fn look_up<'txn, T>(
    run: &mut Run<'txn>,
    reader: Reader<'txn>,
    primary_key: &[u8],
    decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
) -> Result<Result<T, DecodeError>> {
    run.meter.fact();
    let fact = reader.fact(primary_key)?;
    run.meter.bytes(fact.map_or(0, <[u8]>::len));
    Ok(fact.ok_or(DANGLING).and_then(decode))
}

/// The rows of a [`Combined`]; see [`Combined::rows`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct CombinedRows<'txn, R> {
    run: Run<'txn>,
    row: PhantomData<fn() -> R>,
}

impl<R> CombinedRows<'_, R> {
    /// What has been read so far, by all scans together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.run.stats()
    }
}

impl<R: Entity> Iterator for CombinedRows<'_, R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.decode_next::<R, R>(|run, reader, primary_key| {
            look_up(run, reader, primary_key, row::decode)
        })
    }
}

/// The views of the rows of a [`Combined`]; see [`Combined::views`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct CombinedViews<'txn, R> {
    run: Run<'txn>,
    row: PhantomData<fn() -> R>,
}

impl<R> CombinedViews<'_, R> {
    /// What has been read so far, by all scans together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.run.stats()
    }
}

impl<'txn, R: Viewed> Iterator for CombinedViews<'txn, R> {
    type Item = Result<R::View<'txn>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.decode_next::<R, _>(|run, reader, primary_key| {
            let kept = &run.meter.session().unescaped;
            look_up(run, reader, primary_key, |bytes| row::view::<R>(bytes, kept))
        })
    }
}

/// The primary keys of a [`Combined`]; see [`Combined::keys`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct CombinedKeys<'txn, R> {
    run: Run<'txn>,
    row: PhantomData<fn() -> R>,
}

impl<R> CombinedKeys<'_, R> {
    /// What has been read so far, by all scans together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.run.stats()
    }
}

impl<R: Entity> Iterator for CombinedKeys<'_, R> {
    type Item = Result<R::Key>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.decode_next::<R, R::Key>(|run, _, primary_key| {
            run.meter.bytes(primary_key.len());
            let mut reader = KeyReader::new(primary_key, &run.meter.session().unescaped);
            Ok(R::Key::decode_owned(&mut reader))
        })
    }
}

impl<R: Entity> FusedIterator for CombinedRows<'_, R> {}
impl<R: Viewed> FusedIterator for CombinedViews<'_, R> {}
impl<R: Entity> FusedIterator for CombinedKeys<'_, R> {}

impl<R> fmt::Debug for CombinedRows<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedRows").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for CombinedViews<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedViews").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for CombinedKeys<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedKeys").finish_non_exhaustive()
    }
}
