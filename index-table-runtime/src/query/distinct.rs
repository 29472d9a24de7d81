//! The distinct values of the first fields of an index, found by a seek from each value to the next.

use std::{fmt, iter::FusedIterator, marker::PhantomData, rc::Rc};

use super::{
    Bounds,
    conditions::Conditions,
    matches::{self, Matches},
};
use crate::{
    engine::Query,
    model::{
        KeyRange,
        entry::ShortEntry,
        error::{Error, Result},
        key::{DecodeError, Key, KeyReader},
        schema::{Source, TableSchema},
    },
    placement::{Entries, Reader},
    query::meter::{Ledger, Meter},
    usage::Stats,
};

/// A query for the distinct values of some fields of an index, in order; from the `distinct_…` methods of a
/// repository.
///
/// [`values`](Distinct::values), [`counts`](Distinct::counts) and [`first`](Distinct::first) run the query.
/// Nothing is read before that, and memory does not grow with the result.
///
/// `V` is the type of the field, or the tuple of the fields' types. For a `desc` field, it is [`Desc`] of the
/// field's type.
///
/// [`Desc`]: crate::Desc
#[must_use = "it does nothing until its values or counts are read"]
pub struct Distinct<'txn, V> {
    pub(crate) request: DistinctRequest<'txn>,
    pub(crate) value: PhantomData<fn() -> V>,
}

/// A [`Distinct`] without the type of its values, so that its code is compiled once.
pub(crate) struct DistinctRequest<'txn> {
    /// The reader, and whether a unique index is violated.
    reader: Result<(Reader<'txn>, bool)>,
    schema: &'static TableSchema,
    ledger: Ledger<'txn>,
    query: Query,
    conditions: Option<Rc<Conditions<'txn>>>,
}

impl<'txn> DistinctRequest<'txn> {
    pub(crate) fn new(
        reader: Result<(Reader<'txn>, bool)>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        source: Source,
        leading: Bounds,
    ) -> Self {
        let (query, hashed) = leading.into_query(source);
        let conditions = Conditions::of(hashed);
        Self { reader, schema, ledger, query, conditions }
    }

    fn into_cursor(self) -> DistinctCursor<'txn> {
        let Self { reader, schema, ledger, query, conditions } = self;
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

impl<'txn, V: Key> Distinct<'txn, V> {
    /// Reads from the last value in the index's order to the first: from the greatest to the smallest, or the
    /// reverse for a `desc` field. A second `rev` restores the order.
    pub fn rev(mut self) -> Self {
        self.request.query.reverse = !self.request.query.reverse;
        self
    }

    /// Returns an iterator over the values, borrowed from the transaction's snapshot where possible: `&str`
    /// for a `String`.
    ///
    /// Cost: one seek for each value, independent of the number of rows, and one seek at the end. With all
    /// fields of the key of a unique index or of the fact table, no two rows have the same value, so the cost
    /// is one step instead of a seek. An index query does not read the fact table.
    pub fn values(self) -> DistinctValues<'txn, V> {
        DistinctValues { cursor: self.request.into_cursor(), value: PhantomData }
    }

    /// Returns an iterator over the values with the number of entries of each, which is the
    /// [`count`](crate::Scan::count) of `find_by_…` with this value.
    ///
    /// Cost: the cost of [`values`](Distinct::values), and of a `count` for each value.
    pub fn counts(self) -> DistinctCounts<'txn, V> {
        DistinctCounts { cursor: self.request.into_cursor(), value: PhantomData }
    }

    /// Returns the first value in the index's order: the smallest, or the greatest after
    /// [`rev`](Distinct::rev), and the reverse for a `desc` field.
    ///
    /// Cost: one seek.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`], and the [errors of reading](crate::Error#common-errors).
    pub fn first(self) -> Result<Option<V::Ref<'txn>>> {
        self.values().next().transpose()
    }
}

impl<V> fmt::Debug for Distinct<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DistinctRequest { schema, query, .. } = &self.request;
        f.debug_struct("Distinct")
            .field("table", &schema.name)
            .field("index", &schema.index_name(query.source))
            .field("reverse", &query.reverse)
            .finish_non_exhaustive()
    }
}

/// Seeks from value to value. Ends at the first error.
struct DistinctCursor<'txn> {
    /// The reader; `None` after the end.
    reader: Option<Reader<'txn>>,
    /// The reason why the query can't run, to be returned as the first result.
    failure: Option<Error>,
    schema: &'static TableSchema,
    meter: Meter<'txn>,
    /// The remaining query, if `entries` is `None`.
    query: Query,
    conditions: Option<Rc<Conditions<'txn>>>,
    /// The length of the fields before the value, which are equal in all entries.
    leading: usize,
    /// Whether a whole key, with the values of its hashed fields, has one entry.
    once: bool,
    /// The position to continue from without a seek.
    entries: Option<Matches<'txn, Entries<'txn>>>,
}

/// A value, and the common prefix of all keys with it.
struct DistinctValue<'txn, T> {
    value: T,
    prefix: &'txn [u8],
    /// Whether exactly one entry has the value.
    once: bool,
}

impl<'txn> DistinctCursor<'txn> {
    fn next<V: Key>(&mut self) -> Option<Result<DistinctValue<'txn, V::Ref<'txn>>>> {
        let Some(reader) = self.reader else { return self.failure.take().map(Err) };
        let found = self.step::<V>(reader).transpose();
        if !matches!(found, Some(Ok(_))) {
            (self.reader, self.entries) = (None, None);
        }
        found
    }

    fn step<V: Key>(
        &mut self,
        reader: Reader<'txn>,
    ) -> Result<Option<DistinctValue<'txn, V::Ref<'txn>>>> {
        let entries = match &mut self.entries {
            Some(entries) => entries,
            none => {
                self.meter.seek();
                none.insert(Matches::scan(
                    reader,
                    self.schema,
                    self.query.clone(),
                    self.conditions.as_ref(),
                    &mut self.meter,
                )?)
            }
        };
        let Some(entry) = entries.next(&mut self.meter).transpose()? else { return Ok(None) };
        self.meter.step();
        self.meter.bytes(self.key(entry).len());
        let found = self.decode::<V>(entry).map_err(|error| self.corrupt(entry, error))?;
        if !found.once {
            self.entries = None;
            if self.query.reverse {
                let bounds = std::mem::take(&mut self.query.bounds);
                self.query.bounds = bounds.before(found.prefix);
            } else if let Some(rest) = self.query.bounds.after_prefix(found.prefix) {
                self.query.bounds = rest;
            } else {
                self.reader = None;
            }
        }
        Ok(Some(found))
    }

    fn decode<V: Key>(
        &self,
        entry: ShortEntry<'txn>,
    ) -> Result<DistinctValue<'txn, V::Ref<'txn>>, DecodeError> {
        let key = self.key(entry);
        let fields = key.get(self.leading..).ok_or(DecodeError::Short)?;
        let mut reader = KeyReader::new(fields, &self.meter.session().unescaped);
        let value = V::decode(&mut reader)?;
        let rest = reader.rest();
        let prefix = key.strip_suffix(rest).ok_or(DecodeError::Short)?;
        Ok(DistinctValue { value, prefix, once: self.once && rest.is_empty() })
    }

    fn key(&self, entry: ShortEntry<'txn>) -> &'txn [u8] {
        match self.query.source {
            // The fact table has whole primary keys.
            Source::Facts => entry.primary_key.bytes,
            Source::Index(_) => entry.key,
        }
    }

    #[cold]
    fn corrupt(&self, entry: ShortEntry<'txn>, error: DecodeError) -> Error {
        self.schema.corrupt(self.query.source, self.key(entry), error)
    }

    /// Counts the entries with this value.
    fn count<T>(&mut self, found: &DistinctValue<'txn, T>, reader: Reader<'txn>) -> Result<u64> {
        if found.once {
            return Ok(1);
        }
        let query = Query::new(self.query.source, KeyRange::beginning_with(found.prefix));
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
    /// Returns the reads of this query so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cursor.meter.stats()
    }
}

impl<'txn, V: Key> Iterator for DistinctValues<'txn, V> {
    type Item = Result<V::Ref<'txn>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next::<V>().map(|found| found.map(|found| found.value))
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
    /// Returns the reads of this query so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cursor.meter.stats()
    }
}

impl<'txn, V: Key> Iterator for DistinctCounts<'txn, V> {
    type Item = Result<(V::Ref<'txn>, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.cursor.reader;
        let counted = self.cursor.next::<V>()?.and_then(|found| {
            let count = reader.map_or(Ok(0), |reader| self.cursor.count(&found, reader))?;
            Ok((found.value, count))
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
