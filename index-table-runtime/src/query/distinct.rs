//! The different values of the first fields of an index, by seeking from one to the next.

use std::{fmt, iter::FusedIterator, marker::PhantomData, rc::Rc};

use super::{
    Bounds,
    conditions::Conditions,
    matches::{self, Matches},
};
use crate::{
    engine::{Entries, Query, Reader},
    model::{
        KeyRange,
        entry::RawEntry,
        error::{Error, Result},
        key::{DecodeError, Key, KeyReader},
        schema::{Source, TableSchema},
    },
    usage::{Ledger, Meter, Stats},
};

/// Each different value of some fields of an index, once and in order: a query that has not run yet. From the
/// `distinct_…` methods of a repository.
///
/// [`values`](Distinct::values), [`counts`](Distinct::counts) and [`first`](Distinct::first) run
/// it. Nothing is read before that, and memory does not grow with the result.
///
/// `V` is the type of the field, or the tuple of the fields' types; for a `desc` field, [`Desc`] of
/// its type.
///
/// [`Desc`]: crate::Desc
#[must_use = "it does nothing until its values or counts are read"]
pub struct Distinct<'txn, V> {
    /// Also, whether a unique index is violated.
    reader: Result<(Reader<'txn>, bool)>,
    schema: &'static TableSchema,
    ledger: Ledger<'txn>,
    query: Query,
    conditions: Option<Rc<Conditions<'txn>>>,
    value: PhantomData<fn() -> V>,
}

impl<'txn, V: Key> Distinct<'txn, V> {
    pub(crate) fn new(
        reader: Result<(Reader<'txn>, bool)>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        source: Source,
        leading: Bounds,
    ) -> Self {
        let (query, hashed) = leading.into_query(source);
        let conditions = Conditions::of(hashed);
        Self { reader, schema, ledger, query, conditions, value: PhantomData }
    }

    /// From the last value in the index's order to the first: from the greatest to the smallest, or the other
    /// way round for a `desc` field. A second `rev` restores the order.
    pub fn rev(mut self) -> Self {
        self.query.reverse = !self.query.reverse;
        self
    }

    /// The values, borrowed from the transaction's snapshot where possible: `&str` for a `String`.
    ///
    /// Cost: one seek for each value, for any number of rows, and one at the end. If no two rows have the
    /// same value, in a unique index or the fact table with all fields of the key, it is a step instead of a
    /// seek. The fact table is not read.
    pub fn values(self) -> DistinctValues<'txn, V> {
        DistinctValues { cursor: self.into_cursor(), value: PhantomData }
    }

    /// The values, and the number of entries of each: the [`count`](crate::Scan::count) of `find_by_…` with
    /// the value in the same index.
    ///
    /// Cost: that of [`values`](Distinct::values), and of a `count` for each value.
    pub fn counts(self) -> DistinctCounts<'txn, V> {
        DistinctCounts { cursor: self.into_cursor(), value: PhantomData }
    }

    /// The first value in the index's order: the smallest, or after [`rev`](Distinct::rev) the greatest; for
    /// a `desc` field the other way round.
    ///
    /// Cost: one seek.
    ///
    /// # Errors
    ///
    /// [`Error`] when the store can't be read.
    pub fn first(self) -> Result<Option<V::Ref<'txn>>> {
        self.values().next().transpose()
    }

    fn into_cursor(self) -> DistinctCursor<'txn> {
        let Self { reader, schema, ledger, query, conditions, .. } = self;
        let meter = ledger.meter(query.source, None);
        let (reader, violated, failure) = match reader {
            Ok((reader, violated)) => (Some(reader), violated, None),
            Err(error) => (None, false, Some(error)),
        };
        let leading = query.bounds.start().len();
        let once = !violated && schema.index(query.source).is_none_or(|index| index.unique);
        DistinctCursor {
            reader,
            failure,
            schema,
            meter,
            query,
            conditions,
            leading,
            once,
            entries: None,
        }
    }
}

impl<V> fmt::Debug for Distinct<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distinct")
            .field("table", &self.schema.name)
            .field("index", &self.schema.index_name(self.query.source))
            .field("reverse", &self.query.reverse)
            .finish_non_exhaustive()
    }
}

/// Seeks from value to value. Ends at the first error.
struct DistinctCursor<'txn> {
    /// `None` once it has ended.
    reader: Option<Reader<'txn>>,
    /// The error if the query can't run, which replaces the first value.
    failure: Option<Error>,
    schema: &'static TableSchema,
    meter: Meter<'txn>,
    /// The rest, when `entries` is `None`.
    query: Query,
    conditions: Option<Rc<Conditions<'txn>>>,
    /// The length of the fields before the value's, which are equal in all entries.
    leading: usize,
    /// A whole key, with the values of its hashed fields, is in one entry.
    once: bool,
    /// The position to continue from without a seek.
    entries: Option<Matches<'txn, Entries<'txn>>>,
}

/// A value, and the common prefix of all keys with it.
struct Met<'txn, T> {
    value: T,
    prefix: &'txn [u8],
    /// Exactly one entry has it.
    once: bool,
}

impl<'txn> DistinctCursor<'txn> {
    fn next<V: Key>(&mut self) -> Option<Result<Met<'txn, V::Ref<'txn>>>> {
        let Some(reader) = self.reader else { return self.failure.take().map(Err) };
        let met = self.step::<V>(reader).transpose();
        if !matches!(met, Some(Ok(_))) {
            (self.reader, self.entries) = (None, None);
        }
        met
    }

    fn step<V: Key>(&mut self, reader: Reader<'txn>) -> Result<Option<Met<'txn, V::Ref<'txn>>>> {
        let entries = match &mut self.entries {
            Some(entries) => entries,
            none => {
                self.meter.seek();
                none.insert(Matches::scan(
                    reader,
                    self.schema,
                    self.query.clone(),
                    self.conditions.as_ref(),
                )?)
            }
        };
        let Some(entry) = entries.next(&mut self.meter).transpose()? else { return Ok(None) };
        self.meter.step();
        self.meter.bytes(self.key(entry).len());
        let met = self.decode::<V>(entry).map_err(|error| self.corrupt(entry, error))?;
        if !met.once {
            self.entries = None;
            if self.query.reverse {
                let bounds = std::mem::take(&mut self.query.bounds);
                self.query.bounds = bounds.before(met.prefix);
            } else if let Some(left) = self.query.bounds.behind(met.prefix) {
                self.query.bounds = left;
            } else {
                self.reader = None;
            }
        }
        Ok(Some(met))
    }

    fn decode<V: Key>(
        &self,
        entry: RawEntry<'txn>,
    ) -> Result<Met<'txn, V::Ref<'txn>>, DecodeError> {
        let key = self.key(entry);
        let fields = key.get(self.leading..).ok_or(DecodeError::Short)?;
        let mut reader = KeyReader::new(fields, &self.meter.session().unescaped);
        let value = V::decode(&mut reader)?;
        let rest = reader.rest();
        let prefix = key.strip_suffix(rest).ok_or(DecodeError::Short)?;
        Ok(Met { value, prefix, once: self.once && rest.is_empty() })
    }

    fn key(&self, entry: RawEntry<'txn>) -> &'txn [u8] {
        match self.query.source {
            Source::Facts => entry.primary_key,
            Source::Index(_) => entry.key,
        }
    }

    #[cold]
    fn corrupt(&self, entry: RawEntry<'txn>, error: DecodeError) -> Error {
        self.schema.corrupt(self.query.source, self.key(entry), error)
    }

    /// The number of entries with this value.
    fn count<T>(&mut self, met: &Met<'txn, T>, reader: Reader<'txn>) -> Result<u64> {
        if met.once {
            return Ok(1);
        }
        let query = Query::new(self.query.source, KeyRange::beginning_with(met.prefix));
        matches::count(reader, self.schema, &mut self.meter, query, self.conditions.as_ref())
    }
}

/// The values of a [`Distinct`]; see [`Distinct::values`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct DistinctValues<'txn, V> {
    cursor: DistinctCursor<'txn>,
    value: PhantomData<fn() -> V>,
}

impl<V> DistinctValues<'_, V> {
    /// The reads of this query so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cursor.meter.stats()
    }
}

impl<'txn, V: Key> Iterator for DistinctValues<'txn, V> {
    type Item = Result<V::Ref<'txn>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next::<V>().map(|met| met.map(|met| met.value))
    }
}

/// The values of a [`Distinct`] with the numbers of their entries; see [`Distinct::counts`]. Ends
/// after the first error.
#[must_use = "iterators are lazy"]
pub struct DistinctCounts<'txn, V> {
    cursor: DistinctCursor<'txn>,
    value: PhantomData<fn() -> V>,
}

impl<V> DistinctCounts<'_, V> {
    /// The reads of this query so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cursor.meter.stats()
    }
}

impl<'txn, V: Key> Iterator for DistinctCounts<'txn, V> {
    type Item = Result<(V::Ref<'txn>, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.cursor.reader;
        let counted = self.cursor.next::<V>()?.and_then(|met| {
            let count = reader.map_or(Ok(0), |reader| self.cursor.count(&met, reader))?;
            Ok((met.value, count))
        });
        if counted.is_err() {
            self.cursor.reader = None;
        }
        Some(counted)
    }
}

impl<V: Key> FusedIterator for DistinctValues<'_, V> {}
impl<V: Key> FusedIterator for DistinctCounts<'_, V> {}

impl<V> fmt::Debug for DistinctValues<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistinctValues").finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for DistinctCounts<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistinctCounts").finish_non_exhaustive()
    }
}
