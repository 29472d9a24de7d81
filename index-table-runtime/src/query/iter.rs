use std::{fmt, iter::FusedIterator, marker::PhantomData, sync::Arc};

use crate::{
    engine::{EntryResult, Query, Reader},
    model::{
        entity::{Entity, EntryReader, Form, IndexEntry, Viewed},
        entry::RawEntry,
        error::{Boxed, Error, Result},
        key::{DecodeError, Key, KeyReader, Unescaped},
        row,
        schema::{Source, TableSchema},
    },
    query::{
        Scan,
        matches::{Hashed, Matches},
    },
    usage::{Ledger, Meter, Stats},
};

/// The [rows](Scan::rows) of the scan.
impl<'txn, E: IndexEntry<'txn>> IntoIterator for Scan<'txn, E> {
    type Item = Result<E::Row>;
    type IntoIter = Rows<'txn, E>;

    fn into_iter(self) -> Rows<'txn, E> {
        self.rows()
    }
}

/// The undecoded entries of a query that runs. Ends at the limit, and at the first error.
pub(super) struct Raw<'txn> {
    /// For facts; `None` if the query could not be run.
    reader: Option<Reader<'txn>>,
    /// The answer; `None` once it has ended.
    running: Option<Matches<'txn>>,
    /// Why the query could not be run: what the first entry is, instead.
    failure: Option<Boxed>,
    schema: &'static TableSchema,
    source: Source,
    form: Form,
    /// Counts, and keeps the limit.
    meter: Meter<'txn>,
}

impl<'txn> Raw<'txn> {
    pub(super) fn new(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        query: Query,
        hashed: Option<&Arc<Hashed>>,
    ) -> Self {
        let source = query.source;
        let mut meter = ledger.meter(source, query.limit);
        meter.seek();
        let opened =
            reader.and_then(|reader| Ok((reader, Matches::new(reader, schema, query, hashed)?)));
        let (reader, running, failure) = match opened {
            Ok((reader, entries)) => (Some(reader), Some(entries), None),
            Err(error) => (None, None, Some(error.into())),
        };
        let form = Form::of(schema, source);
        Self { reader, running, failure, schema, source, form, meter }
    }

    pub(super) const fn stats(&self) -> Stats {
        self.meter.stats()
    }

    pub(super) const fn unescaped(&self) -> &'txn Unescaped {
        &self.meter.session().unescaped
    }

    /// What an entry that can't be decoded, or leads nowhere, is reported as.
    #[cold]
    fn corrupt(&self, entry: RawEntry<'_>, error: DecodeError) -> Error {
        let key = match self.source {
            Source::Facts => entry.primary_key,
            Source::Index(_) => entry.key,
        };
        self.schema.corrupt(self.source, key, error)
    }

    /// The next entry, as `decode` makes it from what `read` finds of it. Stops for good when
    /// either fails.
    ///
    /// In two steps, so that what is made, which may be large, is not moved once more.
    #[expect(clippy::inline_always, reason = "what is made would be moved once more")]
    #[inline(always)]
    fn decode_next<I, T>(
        &mut self,
        read: impl FnOnce(&mut Self, RawEntry<'txn>) -> Result<I, Failure>,
        decode: impl FnOnce(I) -> Result<T, DecodeError>,
    ) -> Option<Result<T>> {
        let entry = match self.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        let input = match read(self, entry) {
            Ok(input) => input,
            Err(failure) => return Some(Err(self.failed(entry, failure))),
        };
        match decode(input) {
            Ok(value) => Some(Ok(value)),
            Err(error) => Some(Err(self.failed(entry, error.into()))),
        }
    }

    #[cold]
    fn failed(&mut self, entry: RawEntry<'_>, failure: Failure) -> Error {
        self.running = None;
        match failure {
            Failure::Decode(error) => self.corrupt(entry, error),
            Failure::Other(error) => error,
        }
    }

    /// Whether the entries carry their rows.
    const fn carries_rows(&self) -> bool {
        matches!(self.form, Form::Fact | Form::FullEntry)
    }

    /// Whether an entry's row has been read when the entry comes.
    pub(super) fn has_rows(&self) -> bool {
        self.carries_rows() || self.running.as_ref().is_some_and(Matches::looks_up)
    }

    /// The row with this primary key, which an entry refers to.
    pub(super) fn fact<R: Entity>(&mut self, primary_key: &[u8]) -> Result<R> {
        let row = self.look_up(primary_key).and_then(|bytes| Ok(row::decode(bytes)?));
        row.map_err(|failure| {
            self.running = None;
            match failure {
                Failure::Decode(error) => self.schema.corrupt(Source::Facts, primary_key, error),
                Failure::Other(error) => error,
            }
        })
    }

    /// The next row, and its entry into `last`.
    #[inline]
    pub(super) fn next_row<R: Entity>(
        &mut self,
        last: &mut Option<RawEntry<'txn>>,
    ) -> Option<Result<R>> {
        self.decode_next(
            |raw, entry| {
                *last = Some(entry);
                raw.row_bytes(entry)
            },
            |bytes| row::decode(bytes),
        )
    }

    /// What `decode` makes of the next row.
    pub(super) fn next_bytes<T>(
        &mut self,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Option<Result<T>> {
        self.decode_next(Self::row_bytes, decode)
    }

    /// The row of an entry.
    fn row_bytes(&mut self, entry: RawEntry<'txn>) -> Result<&'txn [u8], Failure> {
        if self.carries_rows() {
            self.meter.bytes(entry.data.len());
            return Ok(entry.data);
        }
        match self.running.as_ref().and_then(Matches::fact) {
            Some(fact) => Ok(fact),
            None => self.look_up(entry.primary_key),
        }
    }

    /// The bytes of the row with this primary key.
    pub(super) fn fact_if_any(&mut self, primary_key: &[u8]) -> Result<Option<&'txn [u8]>> {
        let Some(reader) = self.reader else { return Ok(None) };
        self.meter.look_up(reader, primary_key)
    }

    fn look_up(&mut self, primary_key: &[u8]) -> Result<&'txn [u8], Failure> {
        let fact = self.fact_if_any(primary_key).map_err(Failure::Other)?;
        fact.ok_or_else(Failure::dangling)
    }

    #[cold]
    fn end(&mut self) -> Option<EntryResult<'txn>> {
        self.running = None;
        self.failure.take().map(Err)
    }
}

enum Failure {
    Decode(DecodeError),
    Other(Error),
}

/// Why an entry without its row is damage.
pub(crate) const DANGLING: DecodeError =
    DecodeError::Value("the entry refers to a row that is not in the fact table");

impl Failure {
    fn dangling() -> Self {
        Self::Decode(DANGLING)
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl<'txn> Iterator for Raw<'txn> {
    type Item = EntryResult<'txn>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Some(left) = self.meter.left_behind_next() else { return self.end() };
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
}

/// The iterators differ in their name, their item, how they make it and what the row has to be.
macro_rules! iterator {
    (
        $(#[$docs:meta])* $name:ident, $item:ty, $read:expr, $decode:expr
        $(, where $row:ident)?
    ) => {
        $(#[$docs])*
        #[must_use = "iterators are lazy"]
        pub struct $name<'txn, E> {
            raw: Raw<'txn>,
            entry: PhantomData<fn() -> E>,
        }

        impl<'txn, E> $name<'txn, E> {
            pub(super) const fn new(raw: Raw<'txn>) -> Self {
                Self { raw, entry: PhantomData }
            }

            /// What has been read so far, by this scan alone.
            #[must_use]
            pub fn stats(&self) -> Stats {
                self.raw.stats()
            }
        }

        impl<'txn, E: IndexEntry<'txn $(, Row: $row)?>> Iterator for $name<'txn, E> {
            type Item = Result<$item>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                self.raw.decode_next($read, $decode)
            }
        }

        impl<'txn, E: IndexEntry<'txn $(, Row: $row)?>> FusedIterator for $name<'txn, E> {}

        impl<E> fmt::Debug for $name<'_, E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

iterator! {
    /// The rows of a scan; see [`Scan::rows`](crate::Scan::rows). Ends after the first error.
    Rows, E::Row, Raw::row_bytes,
    #[expect(clippy::redundant_closure, reason = "the function is not inlined, and moves the row")]
    |bytes| row::decode(bytes)
}

iterator! {
    /// The views of a scan's rows; see [`Scan::views`](crate::Scan::views). Ends after the first
    /// error.
    Views, <E::Row as Viewed>::View<'txn>, |raw, entry| {
        Ok((raw.row_bytes(entry)?, raw.unescaped()))
    }, |(bytes, kept)| row::view::<E::Row>(bytes, kept), where Viewed
}

iterator! {
    /// The entries of a scan; see [`Scan::entries`](crate::Scan::entries). Ends after the first
    /// error.
    Entries, E, |raw, entry| {
        raw.meter.bytes(entry.key.len() + entry.primary_key.len() + entry.data.len());
        Ok(EntryReader::new::<E::Row>(entry, raw.form, raw.unescaped())?)
    }, E::decode
}

iterator! {
    /// The primary keys of a scan; see [`Scan::keys`](crate::Scan::keys). Ends after the first
    /// error.
    Keys, <E::Row as Entity>::Key, |raw, entry| {
        raw.meter.bytes(entry.primary_key.len());
        Ok(KeyReader::new(entry.primary_key, raw.unescaped()))
    }, |mut primary_key| Key::decode_owned(&mut primary_key)
}
