use std::{fmt, iter::FusedIterator, marker::PhantomData};

use crate::{
    engine::{RawEntry, Read, Reader},
    entity::{Entity, EntryReader, Form, IndexEntry},
    error::{Error, Result},
    key::{DecodeError, Key, KeyReader},
    row,
    scan::{Query, found::Found},
    schema::{Source, TableSchema},
    txn::Session,
};

/// The undecoded entries of a query that runs. Ends at the limit, and at the first error.
pub(super) struct Raw<'txn> {
    /// For facts; `None` if the query could not be run.
    reader: Option<Reader<'txn>>,
    /// The answer; `None` once it has ended.
    running: Option<Found<'txn>>,
    /// Why the query could not be run: what the first entry is, instead.
    failure: Option<Error>,
    schema: &'static TableSchema,
    source: Source,
    form: Form,
    session: &'txn Session,
    /// How many more entries may come.
    left: u64,
}

impl<'txn> Raw<'txn> {
    pub(super) fn new(
        reader: Result<Reader<'txn>>,
        schema: &'static TableSchema,
        session: &'txn Session,
        query: Query,
    ) -> Self {
        let (source, left) = (query.source, query.limit.unwrap_or(u64::MAX));
        session.count_seek();
        let asked =
            reader.and_then(|reader| Ok((reader, Found::new(reader, schema, session, query)?)));
        let (reader, running, failure) = match asked {
            Ok((reader, entries)) => (Some(reader), Some(entries), None),
            Err(error) => (None, None, Some(error)),
        };
        let form = Form::of(schema, source);
        Self { reader, running, failure, schema, source, form, session, left }
    }

    /// What an entry that can't be decoded, or leads nowhere, is reported as.
    #[cold]
    fn corrupt(&self, entry: RawEntry<'_>, error: DecodeError) -> Error {
        let (name, shown) = match self.source {
            Source::Facts => (None, self.schema.show_primary_key(entry.primary_key)),
            Source::Index(_) => {
                (self.schema.index_name(self.source), self.schema.show_key(self.source, entry.key))
            }
        };
        error.at(self.schema.name, name, shown)
    }

    /// Decodes with `decode`, and stops for good when that fails.
    #[inline]
    fn decode_next<T>(
        &mut self,
        decode: impl FnOnce(&Self, RawEntry<'txn>) -> Result<T, Failure>,
    ) -> Option<Result<T>> {
        let entry = match self.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        Some(decode(self, entry).map_err(|failure| {
            let error = match failure {
                Failure::Decode(error) => self.corrupt(entry, error),
                Failure::Other(error) => error,
            };
            self.running = None;
            error
        }))
    }

    /// Whether the entries carry their rows.
    const fn carries_rows(&self) -> bool {
        matches!(self.form, Form::Fact | Form::FullEntry { .. })
    }

    /// Whether an entry's row has been read when the entry comes.
    pub(super) fn has_rows(&self) -> bool {
        self.carries_rows() || self.running.as_ref().is_some_and(Found::looks_up)
    }

    /// The row with this primary key, which an entry refers to.
    pub(super) fn fact<R: Entity>(&mut self, primary_key: &[u8]) -> Result<R> {
        self.look_up(primary_key).map_err(|failure| {
            self.running = None;
            match failure {
                Failure::Decode(error) => {
                    error.at(self.schema.name, None, self.schema.show_primary_key(primary_key))
                }
                Failure::Other(error) => error,
            }
        })
    }

    /// The next entry with its row.
    pub(super) fn next_row<R: Entity>(&mut self) -> Option<Result<(RawEntry<'txn>, R)>> {
        self.decode_next(|raw, entry| Ok((entry, raw.row(entry)?)))
    }

    /// The row of an entry.
    fn row<R: Entity>(&self, entry: RawEntry<'txn>) -> Result<R, Failure> {
        if self.carries_rows() {
            return Ok(row::decode(entry.data)?);
        }
        match self.running.as_ref().and_then(Found::fact) {
            Some(fact) => Ok(row::decode(fact)?),
            None => self.look_up(entry.primary_key),
        }
    }

    fn look_up<R: Entity>(&self, primary_key: &[u8]) -> Result<R, Failure> {
        let Some(reader) = self.reader else { return Err(Failure::dangling()) };
        self.session.count_fact();
        let fact = reader.fact(primary_key).map_err(Failure::Other)?;
        Ok(row::decode(fact.ok_or_else(Failure::dangling)?)?)
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
    type Item = Result<RawEntry<'txn>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entries) = &mut self.running
            && let Some(left) = self.left.checked_sub(1)
            && let Some(next) = entries.next()
        {
            self.left = left;
            self.session.count_entry();
            if next.is_err() {
                self.running = None;
            }
            return Some(next);
        }
        self.running = None;
        self.failure.take().map(Err)
    }
}

/// The three iterators differ in their name, their item and how they make it.
macro_rules! iterator {
    ($(#[$docs:meta])* $name:ident, $item:ty, |$raw:ident, $entry:ident| $decode:expr) => {
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
        }

        impl<'txn, E: IndexEntry<'txn>> Iterator for $name<'txn, E> {
            type Item = Result<$item>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                self.raw.decode_next(|$raw, $entry| $decode)
            }
        }

        impl<'txn, E: IndexEntry<'txn>> FusedIterator for $name<'txn, E> {}

        impl<E> fmt::Debug for $name<'_, E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

iterator! {
    /// The rows of a scan; see [`Scan::rows`](crate::Scan::rows). Ends after the first error.
    Rows, E::Row, |raw, entry| raw.row(entry)
}

iterator! {
    /// The entries of a scan; see [`Scan::entries`](crate::Scan::entries). Ends after the first
    /// error.
    Entries, E, |raw, entry| {
        Ok(E::decode(EntryReader::new(entry, raw.form, &raw.session.unescaped)?)?)
    }
}

iterator! {
    /// The primary keys of a scan; see [`Scan::keys`](crate::Scan::keys). Ends after the first
    /// error.
    Keys, <E::Row as Entity>::Key, |raw, entry| {
        let mut reader = KeyReader::new(entry.primary_key, &raw.session.unescaped);
        Ok(Key::decode_owned(&mut reader)?)
    }
}
