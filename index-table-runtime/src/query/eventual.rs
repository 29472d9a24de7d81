//! Queries on an index that is eventual.

use std::{fmt, iter::FusedIterator, marker::PhantomData, ops::Deref};

use super::{
    Cursor, Entries, Keys, Page, Scan,
    entry_scan::EntryScan,
    page::{RESERVED, page_back},
};
use crate::{
    engine::LentEntries,
    model::{
        entity::{Entity, IndexEntry},
        entry::RawEntry,
        error::Result,
        maintain::Image,
        row,
        schema::Source,
    },
};

/// What an eventual index says, which may be behind the rows: of a row that has changed or is gone,
/// or not with all rows in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unverified<T>(T);

impl<T> Unverified<T> {
    /// What it says, for who knows that.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Unverified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A query that has not been run yet on an index with `consistency = "eventual"`, as [`Scan`] is on
/// others.
///
/// The index follows the rows: until the worker has come to a row that was written, the index has
/// the entries of the row as it was. So it has entries of rows that have become others or are gone,
/// and lacks entries of rows as they are. [`verified`](EventualScan::verified) reads each row and
/// leaves out the former; the latter are missing still. The `wait_for` of the repository waits
/// until what a transaction has written is there.
///
/// There are no rows without a look at them, and no `and` and `or`.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
/// #[index(town, consistency = "eventual")]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Rome".into() }))?;
/// people.drain(&store, u64::MAX)?;
/// store.transaction(|txn| people.update(txn, 1, |person| person.town = "Oslo".into()))?;
///
/// let txn = store.read()?;
/// let said = people.find_by_town(&txn, "Rome").entries().next().unwrap()?;
/// assert_eq!((said.id, said.town), (1, "Rome")); // so it was
/// assert_eq!(people.find_by_town(&txn, "Rome").verified().first()?, None);
/// assert_eq!(people.find_by_town(&txn, "Oslo").verified().first()?, None); // not there yet
///
/// people.drain(&store, u64::MAX)?;
/// let txn = store.read()?;
/// assert_eq!(people.find_by_town(&txn, "Oslo").verified().first()?.unwrap().id, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a scan does nothing until it is asked for entries, keys, a count or verified rows"]
pub struct EventualScan<'txn, E> {
    scan: Scan<'txn, E>,
    /// Kept apart: what is left out is not to count.
    limit: Option<usize>,
}

impl<'txn, E: IndexEntry<'txn>> EventualScan<'txn, E> {
    pub(crate) const fn new(scan: Scan<'txn, E>) -> Self {
        Self { scan, limit: None }
    }

    /// As [`Scan::rev`].
    pub fn rev(mut self) -> Self {
        self.scan = self.scan.rev();
        self
    }

    /// As [`Scan::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(self.limit.map_or(limit, |other| other.min(limit)));
        self
    }

    /// As [`Scan::after`], behind a [`page`](VerifiedScan::page) of the same scan.
    pub fn after(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.after(cursor);
        self
    }

    /// As [`Scan::before`], in front of a [`page`](VerifiedScan::page) of the same scan.
    pub fn before(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.before(cursor);
        self
    }

    /// The entries, as the index has them; see [`Scan::entries`].
    pub fn entries(self) -> UnverifiedEntries<'txn, E> {
        UnverifiedEntries { entries: self.limited().entries() }
    }

    /// The primary keys, as the index has them; see [`Scan::keys`]. There may be no row with one.
    pub fn keys(self) -> UnverifiedKeys<'txn, E> {
        UnverifiedKeys { keys: self.limited().keys() }
    }

    /// How many entries the index has; see [`Scan::count`].
    ///
    /// # Errors
    ///
    /// As [`Scan::count`].
    pub fn count(self) -> Result<Unverified<u64>> {
        self.limited().count().map(Unverified)
    }

    /// The rows that are as the index says: each is read, and one that is gone or has become
    /// another one is left out.
    ///
    /// Rows are missing that the worker has not come to, or that had changed when it was asked.
    pub fn verified(self) -> VerifiedScan<'txn, E> {
        VerifiedScan { scan: self.scan, limit: self.limit }
    }

    /// The question, for who asks the rows and not the index.
    pub(crate) fn into_scan(self) -> Scan<'txn, E> {
        self.scan
    }

    fn limited(self) -> Scan<'txn, E> {
        match self.limit {
            Some(limit) => self.scan.limit(limit),
            None => self.scan,
        }
    }
}

/// The rows of an eventual index that are as it says; from [`EventualScan::verified`].
///
/// A [limit](EventualScan::limit) counts rows, and not what is left out between them.
#[must_use = "a scan does nothing until it is asked for rows or a count"]
pub struct VerifiedScan<'txn, E> {
    scan: Scan<'txn, E>,
    limit: Option<usize>,
}

/// The [rows](VerifiedScan::rows) of the scan.
impl<'txn, E: IndexEntry<'txn>> IntoIterator for VerifiedScan<'txn, E> {
    type Item = Result<E::Row>;
    type IntoIter = VerifiedRows<'txn, E>;

    fn into_iter(self) -> VerifiedRows<'txn, E> {
        self.rows()
    }
}

impl<'txn, E: IndexEntry<'txn>> VerifiedScan<'txn, E> {
    /// The rows.
    ///
    /// Cost: as [`Scan::rows`] on a normalized index, whatever the strategy is, for what is left
    /// out too; and the keys of each row in this index are made and compared.
    pub fn rows(mut self) -> VerifiedRows<'txn, E> {
        self.scan.request.query.rows = true;
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.limit.is_some() && self.scan.request.before.is_some() {
            self.begin_at_last(limit);
        }
        VerifiedRows::new(self.scan.cursor(), limit)
    }

    /// Begins at the first of the last rows before the cursor, as many as the limit.
    #[cold]
    fn begin_at_last(&mut self, limit: usize) {
        let request = &mut self.scan.request;
        let Some(mut back) = request.copy() else { return };
        request.stop_at_gap(None);
        (request.after, request.before) = (None, None);
        back.turn_back(None);
        let mut rows = VerifiedRows::<E>::new(back.cursor(None), usize::MAX);
        for _ in 0..limit {
            match rows.next() {
                Some(Ok(_)) => {}
                Some(Err(error)) => request.reader = Err(error),
                None => return,
            }
        }
        if limit > 0 {
            request.query.position = Some(rows.scan.entry().position());
            request.query.inclusive = true;
        }
    }

    /// How many rows there are.
    ///
    /// Cost: as [`rows`](VerifiedScan::rows).
    ///
    /// # Errors
    ///
    /// [`Error`](crate::Error) when the store can't be read.
    pub fn count(self) -> Result<u64> {
        self.rows().try_fold(0, |count, row| row.map(|_| count + 1))
    }

    /// Whether there is a row at all.
    ///
    /// # Errors
    ///
    /// [`Error`](crate::Error) when the store can't be read.
    pub fn exists(self) -> Result<bool> {
        self.first().map(|row| row.is_some())
    }

    /// The first row, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error`](crate::Error) when the store can't be read.
    pub fn first(self) -> Result<Option<E::Row>> {
        self.rows().next().transpose()
    }

    /// A page of `size` rows, see [`Scan::page`]. It ignores a limit of the scan.
    ///
    /// # Errors
    ///
    /// As [`Scan::page`].
    pub fn page(mut self, size: usize) -> Result<Page<E::Row>> {
        let question = self.scan.request.question();
        if self.scan.request.before.is_some() {
            let cursors = self.scan.request.turn_back(Some(question));
            let more = |rows: &mut VerifiedRows<'txn, E>| {
                let row = rows.next().transpose()?;
                Ok(row.map(|_| Cursor::new(question, rows.scan.entry())))
            };
            let rows = Self { limit: None, ..self }.rows();
            return page_back(rows, size, cursors, VerifiedRows::next, more);
        }
        let previous = self.scan.request.after.clone();
        let mut rows = Self { limit: None, ..self }.rows();
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(row) = rows.next() else { return Ok(Page { items, next: None, previous }) };
            items.push(row?);
        }
        if size == 0 {
            return Ok(Page { items, next: None, previous: None });
        }
        let last = Cursor::new(question, rows.scan.entry());
        let next = rows.next().transpose()?.map(|_| last);
        Ok(Page { items, next, previous })
    }
}

/// The rows of a [`VerifiedScan`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct VerifiedRows<'txn, E> {
    scan: EntryScan<'txn, LentEntries<'txn>>,
    image: Image,
    left: usize,
    entry: PhantomData<fn() -> E>,
}

impl<'txn, E: IndexEntry<'txn>> VerifiedRows<'txn, E> {
    fn new(scan: EntryScan<'txn, LentEntries<'txn>>, left: usize) -> Self {
        Self { scan, image: Image::default(), left, entry: PhantomData }
    }

    fn next_row(&mut self) -> Result<Option<E::Row>> {
        while self.left > 0 && self.scan.advance()? {
            let (entry, fact) = self.scan.entry_with_fact()?;
            if let Some(row) = row_of::<E>(&mut self.image, entry, fact)? {
                self.left -= 1;
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// The row of an entry, if its fact still has the entry.
fn row_of<'txn, E: IndexEntry<'txn>>(
    image: &mut Image,
    entry: RawEntry<'_>,
    fact: Option<&[u8]>,
) -> Result<Option<E::Row>> {
    let (Source::Index(index), Some(fact)) = (E::SOURCE, fact) else { return Ok(None) };
    let row: E::Row = row::decode(fact)
        .map_err(|error| E::Row::TABLE.corrupt(Source::Facts, entry.primary_key, error))?;
    image.load_stored_of(&row, fact, index)?;
    Ok(image.keys(index).any(|key| key == entry.key).then_some(row))
}

impl<'txn, E: IndexEntry<'txn>> Iterator for VerifiedRows<'txn, E> {
    type Item = Result<E::Row>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next_row().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.left = 0;
        }
        row
    }
}

impl<'txn, E: IndexEntry<'txn>> FusedIterator for VerifiedRows<'txn, E> {}

/// The entries of an [`EventualScan`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct UnverifiedEntries<'txn, E> {
    entries: Entries<'txn, E>,
}

impl<'txn, E: IndexEntry<'txn>> Iterator for UnverifiedEntries<'txn, E> {
    type Item = Result<Unverified<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|entry| entry.map(Unverified))
    }
}

impl<'txn, E: IndexEntry<'txn>> FusedIterator for UnverifiedEntries<'txn, E> {}

/// The primary keys of an [`EventualScan`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct UnverifiedKeys<'txn, E> {
    keys: Keys<'txn, E>,
}

impl<'txn, E: IndexEntry<'txn>> Iterator for UnverifiedKeys<'txn, E> {
    type Item = Result<Unverified<<E::Row as Entity>::Key>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.keys.next().map(|key| key.map(Unverified))
    }
}

impl<'txn, E: IndexEntry<'txn>> FusedIterator for UnverifiedKeys<'txn, E> {}

macro_rules! debug {
    ($($name:ident)*) => {$(
        impl<E> fmt::Debug for $name<'_, E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

debug!(EventualScan VerifiedScan VerifiedRows UnverifiedEntries UnverifiedKeys);
