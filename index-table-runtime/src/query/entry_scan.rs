//! The undecoded entries of a running query, and their conversion for the iterators.
//!
//! Iterators of owned values (rows, keys, pages) read entries that are lent until the next step. Iterators
//! that borrow from the snapshot (entries, views) read entries that live as long as the transaction.

use std::rc::Rc;

use crate::{
    engine::{EntryResult, Query},
    model::{
        entity::{Entity, EntryContext, Form},
        entry::{KeyBuffer, RawEntry, ShortEntry},
        error::{Boxed, Error, Result},
        key::{DecodeError, Key, KeyReader, Unescaped},
        lists::Lists,
        row::{self, Body},
        schema::{Source, TableSchema},
    },
    placement::{Entries, LentEntries, Reader},
    query::meter::{Ledger, Meter},
    query::{conditions::Conditions, matches::Matches, request::Transferable},
    usage::Stats,
};

/// The error for an entry without its row.
pub(crate) const DANGLING: DecodeError =
    DecodeError::Value("the entry refers to a row that is not in the fact table");

/// An encoded primary key, and the bytes of its row.
pub(crate) type KeyAndRow<'r> = (&'r [u8], &'r [u8]);

/// Reads a row with this encoded primary key and these bytes.
pub(crate) type ReadRow<'r> = dyn FnMut(&[u8], &[u8]) -> Result<(), DecodeError> + 'r;

/// The undecoded entries of a running query. Ends at the limit, and at the first error.
///
/// `C` is [`Entries`] or [`LentEntries`].
pub(super) struct EntryScan<'txn, C> {
    /// The reader of facts; `None` if the query can't run.
    reader: Option<Reader<'txn>>,
    /// The running query; `None` after the end.
    running: Option<Matches<'txn, C>>,
    /// The reason why the query can't run, to be returned as the first result.
    failure: Option<Boxed>,
    schema: &'static TableSchema,
    source: Source,
    form: Form,
    /// Whether the row of each entry is looked up and counted before the entry is returned.
    has_looked_up: bool,
    /// Whether the row is in the data of the entry.
    carries_row: bool,
    /// Counts the reads, and applies the limit.
    meter: Meter<'txn>,
}

#[expect(unsafe_code, reason = "no scan meets the condition")]
// SAFETY: no type meets the condition. Without this impl, there would be an error for each private field that is not
// `Send`.
unsafe impl<'txn, C> Send for EntryScan<'txn, C> where EntryScan<'txn, C>: Transferable {}

#[expect(unsafe_code, reason = "no scan meets the condition")]
// SAFETY: no type meets the condition, as above.
unsafe impl<'txn, C> Sync for EntryScan<'txn, C> where EntryScan<'txn, C>: Transferable {}

impl<'txn> EntryScan<'txn, Entries<'txn>> {
    /// Runs a query for entries that live as long as the transaction.
    pub(super) fn scan(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        query: Query,
        conditions: Option<&Rc<Conditions<'txn>>>,
    ) -> Self {
        Self::new(reader, schema, ledger, query, |reader, query, meter| {
            Matches::scan(reader, schema, query, conditions, meter)
        })
    }
}

impl<'txn> EntryScan<'txn, LentEntries<'txn>> {
    /// Runs a query for entries that are lent until the next step.
    pub(super) fn cursor(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        query: Query,
        conditions: Option<&Rc<Conditions<'txn>>>,
    ) -> Self {
        Self::new(reader, schema, ledger, query, |reader, query, meter| {
            Matches::cursor(reader, schema, query, conditions, meter)
        })
    }
}

impl<'txn, C> EntryScan<'txn, C> {
    fn new(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        query: Query,
        run: impl FnOnce(Reader<'txn>, Query, &mut Meter<'txn>) -> Result<Matches<'txn, C>>,
    ) -> Self {
        let source = query.source;
        let mut meter = ledger.meter(source, query.limit);
        meter.seek();
        let matches = reader.and_then(|reader| {
            let reader = meter.of_query(reader, &query)?;
            Ok((reader, run(reader, query, &mut meter)?))
        });
        let (reader, running, failure) = match matches {
            Ok((reader, matches)) => (Some(reader), Some(matches), None),
            Err(error) => (None, None, Some(error.into())),
        };
        let form = Form::of(schema, source);
        let has_looked_up = running.as_ref().is_some_and(Matches::looks_up);
        let carries_row = form.carries_row() && !has_looked_up;
        Self { reader, running, failure, schema, source, form, has_looked_up, carries_row, meter }
    }

    pub(super) fn stats(&self) -> Stats {
        self.meter.stats()
    }

    pub(super) const fn lists(&self) -> &'txn Lists {
        self.meter.lists()
    }

    pub(super) const fn unescaped(&self) -> &'txn Unescaped {
        &self.meter.session().unescaped
    }

    /// Ends the scan with an error of an entry.
    #[cold]
    fn failed(&mut self, entry: &ShortEntry<'_>, failure: impl Into<Failure>) -> Error {
        self.running = None;
        let mut buffer = KeyBuffer::new();
        corrupt(self.schema, self.source, &entry.in_buffer(&mut buffer), failure.into())
    }
}

impl<'txn> EntryScan<'txn, LentEntries<'txn>> {
    /// Steps to the next entry; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool, Boxed> {
        self.step()
    }

    #[expect(clippy::inline_always, reason = "it would cost a call for each row")]
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Boxed> {
        if let Some(left) = self.meter.left_after_next()
            && let Some(matches) = &mut self.running
        {
            match matches.advance(&mut self.meter) {
                Ok(true) => {
                    self.meter.entry(left);
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => {
                    self.running = None;
                    return Err(error);
                }
            }
        }
        self.end()
    }

    #[cold]
    fn end(&mut self) -> Result<bool, Boxed> {
        if let Some(left) = self.meter.left_after_next()
            && let (Some(matches), Some(reader)) = (&mut self.running, self.reader)
        {
            match matches.advance_range(reader, &mut self.meter) {
                Ok(true) => {
                    self.meter.entry(left);
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => {
                    self.running = None;
                    return Err(error);
                }
            }
        }
        self.running = None;
        self.failure.take().map_or(Ok(false), Err)
    }

    /// Returns the entry of the last step.
    #[inline]
    pub(super) fn entry(&self) -> RawEntry<'_> {
        self.running.as_ref().map_or(RawEntry::NOWHERE, Matches::entry)
    }

    /// Reads the next row.
    #[expect(clippy::inline_always, reason = "the row would be moved once more")]
    #[inline(always)]
    pub(super) fn next_row<R: Entity>(&mut self) -> Option<Result<R>> {
        let lists = self.meter.lists();
        let failure = match self.next_bytes() {
            Ok(Some((_, bytes))) => match row::decode::<R>(lists, bytes) {
                Ok(row) => return Some(Ok(row)),
                Err(error) => Failure::Decode(error),
            },
            Ok(None) => return None,
            Err(error) => Failure::Other(error.into()),
        };
        Some(Err(self.stop(failure)))
    }

    /// Reads the next row by `read`, which gets its encoded primary key and its bytes; `false` at the end.
    pub(super) fn read_row(&mut self, read: &mut ReadRow<'_>) -> Result<bool> {
        let failure = match self.next_bytes() {
            Ok(Some((primary_key, bytes))) => match read(primary_key, bytes) {
                Ok(()) => return Ok(true),
                Err(error) => Failure::Decode(error),
            },
            Ok(None) => return Ok(false),
            Err(error) => Failure::Other(error.into()),
        };
        Err(self.stop(failure))
    }

    /// Reads the primary key and the bytes of the next row. Not generic, so that everything but the decoding of a row is compiled
    /// once.
    pub(super) fn next_bytes(&mut self) -> Result<Option<KeyAndRow<'_>>, Boxed> {
        if !self.step()? {
            return Ok(None);
        }
        let Some(matches) = &self.running else { return Ok(None) };
        let entry = matches.entry();
        if self.carries_row {
            self.meter.bytes(entry.data.len());
            return Ok(Some((entry.primary_key, entry.data)));
        }
        let row = matches.row();
        let primary_key = entry.primary_key;
        match referred_row(self.reader, &mut self.meter, primary_key, row, self.has_looked_up) {
            Ok(bytes) => Ok(Some((primary_key, bytes))),
            Err(failure) => Err(corrupt(self.schema, self.source, &entry, failure).into()),
        }
    }

    /// Ends the scan with an error of the last entry.
    #[cold]
    fn stop(&mut self, failure: Failure) -> Error {
        let error = corrupt(self.schema, self.source, &self.entry(), failure);
        self.running = None;
        error
    }

    /// Reads the next primary key.
    #[inline]
    pub(super) fn next_key<R: Entity>(&mut self) -> Option<Result<R::Key>> {
        match self.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error.into())),
        }
        let unescaped = self.unescaped();
        let entry = self.running.as_ref()?.entry();
        self.meter.bytes(entry.primary_key.len());
        let mut reader = KeyReader::new(entry.primary_key, unescaped);
        match R::Key::decode_owned(&mut reader) {
            Ok(key) => Some(Ok(key)),
            Err(error) => Some(Err(self.stop(error.into()))),
        }
    }
}

impl<'txn> EntryScan<'txn, Entries<'txn>> {
    /// Reads the next entry with `read`, and decodes it with `decode`. Ends when either fails.
    ///
    /// The two steps avoid a further move of the result, which may be large.
    #[expect(clippy::inline_always, reason = "the result would be moved once more")]
    #[inline(always)]
    pub(super) fn decode_next<I, T>(
        &mut self,
        read: impl FnOnce(&mut Self, ShortEntry<'txn>) -> Result<I, Failure>,
        decode: impl FnOnce(I) -> Result<T, DecodeError>,
    ) -> Option<Result<T>> {
        let entry = match self.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        let input = match read(self, entry) {
            Ok(input) => input,
            Err(failure) => return Some(Err(self.failed(&entry, failure))),
        };
        match decode(input) {
            Ok(value) => Some(Ok(value)),
            Err(error) => Some(Err(self.failed(&entry, error))),
        }
    }

    /// Reads the next row, and decodes it with `decode`.
    pub(super) fn next_bytes<T>(
        &mut self,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Option<Result<T>> {
        self.decode_next(Self::row_bytes, decode)
    }

    /// Returns the bytes of an entry's row.
    pub(super) fn row_bytes(&mut self, entry: ShortEntry<'txn>) -> Result<&'txn [u8], Failure> {
        if self.carries_row {
            self.meter.bytes(entry.data.len());
            return Ok(entry.data);
        }
        let row = self.running.as_ref().and_then(Matches::scanned_row);
        let mut buffer = KeyBuffer::new();
        let primary_key = entry.primary_key.in_buffer(&mut buffer);
        referred_row(self.reader, &mut self.meter, primary_key, row, self.has_looked_up)
    }

    /// Returns an entry of the index or, if `source` is the fact table, its row, to be read by [`EntryReader::read`]. `body`
    /// is of the type of its row.
    #[inline]
    pub(super) fn entry_to_read(
        &mut self,
        entry: ShortEntry<'txn>,
        source: Source,
        body: Body,
    ) -> Result<(ShortEntry<'txn>, Form, EntryContext<'txn>), Failure> {
        let context = EntryContext { lists: self.lists(), unescaped: self.unescaped(), body };
        if matches!(source, Source::Facts) {
            self.meter.bytes(entry.key.len() + entry.primary_key.len());
            let row = ShortEntry { data: self.row_bytes(entry)?, ..entry };
            return Ok((row, Form::Fact, context));
        }
        self.meter.bytes(entry.key.len() + entry.primary_key.len() + entry.data.len());
        Ok((entry, self.form, context))
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<EntryResult<'txn>> {
        let Some(left) = self.meter.left_after_next() else { return self.end() };
        let Some(matches) = &mut self.running else { return self.end() };
        match matches.next(&mut self.meter) {
            Some(Ok(entry)) => {
                self.meter.entry(left);
                Some(Ok(entry))
            }
            Some(Err(error)) => {
                self.running = None;
                Some(Err(error))
            }
            None => self.end(),
        }
    }

    #[cold]
    fn end(&mut self) -> Option<EntryResult<'txn>> {
        if let Some(left) = self.meter.left_after_next()
            && let (Some(matches), Some(reader)) = (&mut self.running, self.reader)
            && let Some(entry) = matches.next_range(reader, &mut self.meter)
        {
            match entry {
                Ok(_) => self.meter.entry(left),
                Err(_) => self.running = None,
            }
            return Some(entry);
        }
        self.running = None;
        self.failure.take().map(Err)
    }
}

/// Returns the row that an entry refers to: `row`, if it was looked up for a comparison or joined by the
/// engine, or else the fact.
#[inline]
fn referred_row<'row, 'txn: 'row>(
    reader: Option<Reader<'txn>>,
    meter: &mut Meter<'txn>,
    primary_key: &[u8],
    row: Option<&'row [u8]>,
    has_looked_up: bool,
) -> Result<&'row [u8], Failure> {
    if let Some(row) = row {
        if !has_looked_up {
            meter.joined(row);
        }
        return Ok(row);
    }
    let Some(reader) = reader else { return Err(DANGLING.into()) };
    let fact = meter.look_up(reader, primary_key).map_err(Failure::Other)?;
    fact.ok_or(Failure::Decode(DANGLING))
}

/// The error of an entry or its row.
pub(super) enum Failure {
    Decode(DecodeError),
    Other(Error),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

#[cold]
fn corrupt(schema: &TableSchema, source: Source, entry: &RawEntry<'_>, failure: Failure) -> Error {
    match failure {
        Failure::Decode(error) => schema.corrupt_entry(source, *entry, error),
        Failure::Other(error) => error,
    }
}
