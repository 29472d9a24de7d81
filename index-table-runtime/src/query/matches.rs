//! The entries that match a query: the engine's entries, without those that only share a hash with its values.
//!
//! Every query that reads entries reads them through here.

use std::sync::Arc;

use super::{DANGLING, list::Ranges};
use crate::{
    engine::{
        Cursor as _, Entries, EntryResult, KeyList, LentEntries, LongLived as _, Query, Read,
        Reader,
    },
    model::{
        entity::{Entity, EntryReader, Form},
        entry::RawEntry,
        error::{Boxed, Result},
        key::{DecodeError, KeyBuf, Unescaped},
        row,
        schema::{IndexSchema, Source, TableSchema},
    },
    usage::{Ledger, Meter},
};

/// The values that a query gives for hashed fields.
#[derive(Debug, Clone)]
pub(super) struct Hashed {
    /// Their encodings, in the order of the key. Each ends by itself, so a row has these values if
    /// its own begin with these bytes, however many more of its fields are hashed.
    pub(super) values: Vec<u8>,
    /// The values that one more field may have, behind the others.
    pub(super) list: Option<Arc<KeyList>>,
    pub(super) of_row: ValuesOf,
}

impl Hashed {
    /// Whether the row with these bytes has these values.
    pub(super) fn are_of(&self, index: usize, row: &[u8]) -> bool {
        let mut values = KeyBuf::new();
        let read = (self.of_row)(index, ValueSource::Fact(row), &mut values);
        read.is_ok() && self.are(values.as_bytes())
    }

    /// Whether a row has these values, of which all are given.
    fn are(&self, values: &[u8]) -> bool {
        match (&self.list, values.strip_prefix(self.values.as_slice())) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(list), Some(rest)) => list.find(rest).is_some(),
        }
    }
}

/// [`values_of`] a type of row.
pub(super) type ValuesOf = fn(usize, ValueSource<'_>, &mut KeyBuf) -> Result<(), DecodeError>;

/// Where the hashed values of a row are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueSource<'a> {
    Fact(&'a [u8]),
    /// An entry that carries them.
    Entry(RawEntry<'a>, Form),
}

/// Appends the encodings of the fields that the index at this position has as hashes.
pub(super) fn values_of<R: Entity>(
    index: usize,
    source: ValueSource<'_>,
    values: &mut KeyBuf,
) -> Result<(), DecodeError> {
    match source {
        ValueSource::Fact(bytes) => row::decode::<R>(bytes).map(|row| row.hashed(index, values)),
        ValueSource::Entry(entry, form) => {
            let unescaped = Unescaped::default();
            R::hashed_in_entry(index, EntryReader::new::<R>(entry, form, &unescaped)?, values)
        }
    }
}

/// The entries that match a query, without its limit: the caller keeps the limit and counts the entries.
///
/// `C` is [`Entries`] or [`LentEntries`].
pub(super) struct Matches<'txn, C> {
    entries: C,
    /// `None`: the query gives no value for a hashed field.
    check: Option<Box<Check<'txn>>>,
    /// `None`: the query has no list.
    ranges: Option<Box<Ranges>>,
}

impl<C> Matches<'_, C> {
    /// Whether a fact is looked up for each entry.
    pub(super) fn looks_up(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.looks_up)
    }
}

impl<'txn> Matches<'txn, Entries<'txn>> {
    /// Entries that live as long as the transaction.
    pub(super) fn scan(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        mut query: Query,
        hashed: Option<&Arc<Hashed>>,
    ) -> Result<Self> {
        let check = Check::of(reader, schema, &mut query, hashed);
        let ranges = Ranges::behind_first(&mut query);
        Ok(Self { entries: reader.scan(query)?, check, ranges })
    }

    /// The first entry of the ranges of a list behind this one, which has ended.
    pub(super) fn next_range(
        &mut self,
        reader: Reader<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Option<EntryResult<'txn>> {
        while let Some(query) = self.ranges.as_mut()?.next() {
            meter.seek();
            match reader.scan(query) {
                Ok(entries) => self.entries = entries,
                Err(error) => return Some(Err(error.into())),
            }
            if let Some(entry) = self.next(meter) {
                return Some(entry);
            }
        }
        None
    }

    /// The next entry. The meter counts what it takes to compare values, and not the entry.
    #[expect(clippy::inline_always, reason = "the entry would be copied once more")]
    #[inline(always)]
    pub(super) fn next(&mut self, meter: &mut Meter<'txn>) -> Option<EntryResult<'txn>> {
        match &mut self.check {
            None => self.entries.next(),
            Some(check) => check.next(&mut self.entries, meter),
        }
    }

    /// The row of the last entry, if the engine has joined it or it was looked up.
    pub(super) fn scanned_row(&self) -> Option<&'txn [u8]> {
        self.entries.row().or_else(|| self.check.as_ref().and_then(|check| check.fact))
    }
}

impl<'txn> Matches<'txn, LentEntries<'txn>> {
    /// Entries that are lent until the next step.
    pub(super) fn cursor(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        mut query: Query,
        hashed: Option<&Arc<Hashed>>,
    ) -> Result<Self> {
        let check = Check::of(reader, schema, &mut query, hashed);
        let ranges = Ranges::behind_first(&mut query);
        Ok(Self { entries: reader.cursor(query)?, check, ranges })
    }

    /// Goes to the first entry of the ranges of a list behind this one, which has ended; `false`: there is none.
    pub(super) fn advance_range(
        &mut self,
        reader: Reader<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool, Boxed> {
        while let Some(query) = self.ranges.as_mut().and_then(Iterator::next) {
            meter.seek();
            self.entries = reader.cursor(query)?;
            if self.advance(meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes to the next entry; `false`: there is none. The meter counts what it takes to compare values, and not
    /// the entry.
    #[expect(clippy::inline_always, reason = "it would be one more call for each entry")]
    #[inline(always)]
    pub(super) fn advance(&mut self, meter: &mut Meter<'txn>) -> Result<bool, Boxed> {
        match &mut self.check {
            None => self.entries.advance(),
            Some(check) => check.advance(&mut self.entries, meter),
        }
    }

    /// The entry of the last step.
    #[inline]
    pub(super) fn entry(&self) -> RawEntry<'_> {
        self.entries.entry()
    }

    /// Its row, if the engine has joined it or it was looked up.
    #[inline]
    pub(super) fn row(&self) -> Option<&[u8]> {
        self.entries.row().or_else(|| self.check.as_ref().and_then(|check| check.fact))
    }
}

/// How many entries match a query, up to its limit.
pub(super) fn count<'txn>(
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    meter: &mut Meter<'txn>,
    query: Query,
    hashed: Option<&Arc<Hashed>>,
) -> Result<u64> {
    if hashed.is_none() {
        let count = reader.count(&query)?;
        meter.count(count);
        return Ok(count.found);
    }
    let limit = query.limit.unwrap_or(u64::MAX);
    meter.seek();
    let mut matches = Matches::cursor(reader, schema, query, hashed)?;
    let mut count = 0;
    while count < limit && matches.advance(meter)? {
        meter.step();
        count += 1;
    }
    Ok(count)
}

/// The row with this key in a unique index: by one look-up, where a scan would place a cursor.
pub(crate) fn row_by<'txn>(
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    ledger: Ledger<'txn>,
    source: Source,
    key: &[u8],
) -> Result<Option<&'txn [u8]>> {
    let Source::Index(index) = source else { return reader.fact(key) };
    let mut meter = ledger.meter(source, None);
    meter.seek();
    let Some(entry) = reader.unique(index, key)? else { return Ok(None) };
    meter.step();
    let row = match Form::of(schema, source) {
        Form::Fact | Form::FullEntry => entry.data,
        Form::Entry => {
            meter.fact();
            let fact = reader.fact(entry.primary_key)?;
            fact.ok_or_else(|| schema.corrupt(source, key, DANGLING))?
        }
    };
    meter.bytes(row.len());
    Ok(Some(row))
}

/// Compares the values that a query gives for hashed fields with those of rows.
struct Check<'txn> {
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    index: usize,
    /// The entries carry the values.
    carried: bool,
    /// Neither do they carry the row.
    looks_up: bool,
    form: Form,
    expected: Arc<Hashed>,
    /// Those of the last entry's row.
    values: KeyBuf,
    /// The row of the last entry, if it was looked up to compare them.
    fact: Option<&'txn [u8]>,
}

impl<'txn> Check<'txn> {
    fn of(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        query: &mut Query,
        hashed: Option<&Arc<Hashed>>,
    ) -> Option<Box<Self>> {
        let (Source::Index(index), Some(expected)) = (query.source, hashed) else { return None };
        let carried = schema.index(query.source).is_some_and(IndexSchema::carries_hashed);
        let form = Form::of(schema, query.source);
        let looks_up = !carried && !form.carries_row();
        query.rows |= looks_up;
        Some(Box::new(Self {
            reader,
            schema,
            index,
            carried,
            looks_up,
            form,
            expected: Arc::clone(expected),
            values: KeyBuf::new(),
            fact: None,
        }))
    }

    /// The next entry whose row has the expected values.
    ///
    /// Not inlined: a scan that has nothing to compare pays a branch, and no copy of the entry.
    #[inline(never)]
    fn next(
        &mut self,
        entries: &mut Entries<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Option<EntryResult<'txn>> {
        loop {
            let entry = match entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            match self.has_values(entry, entries.row(), meter) {
                Ok(true) => return Some(Ok(entry)),
                Ok(false) => meter.pass(),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Goes to the next entry whose row has the expected values; `false`: there is none.
    #[inline(never)]
    fn advance(
        &mut self,
        entries: &mut LentEntries<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool, Boxed> {
        while entries.advance()? {
            if self.has_values(entries.entry(), entries.row(), meter)? {
                return Ok(true);
            }
            meter.pass();
        }
        Ok(false)
    }

    fn has_values(
        &mut self,
        entry: RawEntry<'_>,
        joined: Option<&[u8]>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool> {
        self.values.clear();
        let read = if self.carried {
            let source = ValueSource::Entry(entry, self.form);
            (self.expected.of_row)(self.index, source, &mut self.values)
        } else if !self.looks_up {
            (self.expected.of_row)(self.index, ValueSource::Fact(entry.data), &mut self.values)
        } else {
            let row = if let Some(row) = joined {
                meter.joined(row);
                joined
            } else {
                self.fact = meter.look_up(self.reader, entry.primary_key)?;
                self.fact
            };
            if row.is_none() && self.schema.is_eventual(self.index) {
                return Ok(false);
            }
            row.ok_or(DANGLING).and_then(|row| {
                (self.expected.of_row)(self.index, ValueSource::Fact(row), &mut self.values)
            })
        };
        read.map_err(|error| self.schema.corrupt(Source::Index(self.index), entry.key, error))?;
        Ok(self.expected.are(self.values.as_bytes()))
    }
}
