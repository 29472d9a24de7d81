//! Queries as values ([`Bounds`], [`Query`]), and the value that runs them ([`Scan`]).

mod available;
mod before;
mod bounded;
mod bounds;
mod check;
mod combined;
mod conditions;
mod cursor;
mod detached;
mod distinct;
mod entry_scan;
mod eventual;
mod filter;
mod get_many;
mod iter;
mod list;
mod matches;
mod meter;
mod page;
#[cfg(feature = "json")]
mod raw;
mod request;
#[cfg(test)]
mod tests;
mod total;

pub use available::{Available, MissingShard};
pub use bounded::BoundedScan;
pub use bounds::Bounds;
pub use combined::{Combined, CombinedKeys, CombinedRows, CombinedViews};
pub use cursor::Cursor;
pub(crate) use cursor::hash_of;
pub use detached::DetachedQuery;
pub(crate) use distinct::DistinctRequest;
pub use distinct::{Distinct, DistinctCounts, DistinctValues};
pub(crate) use entry_scan::DANGLING;
pub use eventual::EventualScan;
pub use get_many::{GetMany, GetManyViews};
pub use iter::{Entries, Keys, Rows, Views};
pub use list::Values;
pub(crate) use matches::row_by;
pub(crate) use meter::{Ledger, Session};
pub use page::Page;
#[cfg(feature = "json")]
pub(crate) use raw::RawRows;
pub(crate) use request::ScanRequest;
pub use request::Transferable;
pub(crate) use total::{
    GroupTotals, decode as decode_totals, of_group as totals_of_group, of_groups_within,
};

use std::{fmt, marker::PhantomData};

use crate::{
    model::{
        entity::{IndexEntry, Viewed},
        error::Result,
        schema::Source,
    },
    placement::LentEntries,
};
use entry_scan::EntryScan;

/// A query that has not run yet: a contiguous part of an index, or of the fact table, in key order.
///
/// The methods [`rev`](Scan::rev), [`limit`](Scan::limit), [`filter`](Scan::filter), [`after`](Scan::after)
/// and [`before`](Scan::before) change the query. The methods [`rows`](Scan::rows), [`views`](Scan::views),
/// [`entries`](Scan::entries), [`keys`](Scan::keys), [`count`](Scan::count), [`exists`](Scan::exists),
/// [`first`](Scan::first), [`page`](Scan::page), [`page_views`](Scan::page_views) and
/// [`page_entries`](Scan::page_entries) run it. [`examine_at_most`](Scan::examine_at_most) bounds the cost
/// of its pages. [`and`](Scan::and) and [`or`](Scan::or) combine it with another scan.
///
/// Nothing is read before the query runs, and memory does not grow with the result. There is one exception:
/// strings with U+0000 or U+0001 in a key are escaped and can't be borrowed, so
/// [`entries`](Scan::entries) copies them into memory of the transaction.
///
/// `E` is the entry struct of the index, or the row for the fact table and for a [`boxed`](Scan::boxed) scan.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
/// #[index(town, name)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
///     name: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| {
///     for (id, name) in [(1, "Smith"), (2, "Jones"), (3, "Brown")] {
///         people.insert(txn, &Person { id, town: "Redmond".into(), name: name.into() })?;
///     }
///     Ok(())
/// })?;
///
/// let txn = store.read()?;
/// let in_redmond = || people.find_by_town(&txn, "Redmond");
/// assert_eq!(in_redmond().count()?, 3);
/// assert_eq!(in_redmond().keys().collect::<Result<Vec<u32>, _>>()?, [3, 2, 1]);
/// assert_eq!(in_redmond().rev().first()?.map(|row| row.name), Some("Smith".to_owned()));
/// for entry in in_redmond().limit(2).entries() {
///     let PersonByTownName { town, name, id } = entry?; // borrowed from the snapshot
///     println!("{town} {name} {id}");
/// }
///
/// let page = in_redmond().page(2)?;
/// let cursor = page.next.ok_or("there is a third one")?;
/// assert_eq!(in_redmond().after(&cursor).page(2)?.items[0].id, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a scan does nothing until its rows, views, entries, keys or count are read"]
pub struct Scan<'txn, E> {
    pub(crate) request: ScanRequest<'txn>,
    pub(crate) entry: PhantomData<fn() -> E>,
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Returns the table or index and the bounds, or the reason why the scan can't run.
    pub(crate) fn into_bounds(mut self) -> Result<(Source, Bounds)> {
        self.request.reject_tests("a watcher takes no `filter`; filter its events");
        let ScanRequest { reader, query, conditions, .. } = self.request;
        let hashed = conditions.and_then(|conditions| conditions.hashed.clone());
        reader.map(|_| (query.source, Bounds::of_query(query, hashed))).map_err(|error| *error)
    }

    /// Reads from the last key to the first. A second `rev` restores the order.
    pub fn rev(mut self) -> Self {
        self.request.query.reverse = !self.request.query.reverse;
        self
    }

    /// Returns at most `limit` rows. Of two limits, the smaller one applies.
    pub fn limit(mut self, limit: usize) -> Self {
        let limit = limit as u64;
        let limits = &mut self.request.query.limit;
        *limits = Some(limits.map_or(limit, |other| other.min(limit)));
        self
    }

    /// Keeps only the rows after a cursor of the same scan, such as [`Page::next`].
    ///
    /// Cost: none except for the seek, at any depth.
    ///
    /// With a cursor of another scan, running the scan fails with
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor).
    pub fn after(mut self, cursor: &Cursor) -> Self {
        self.request.after = Some(cursor.clone());
        self
    }

    /// Returns an iterator over the rows, as `for row in scan` does.
    ///
    /// Cost: one seek and one step for each entry. On a normalized or partial index, each row also costs a look-up in the
    /// fact table, which is not repeated to compare hashed fields. Each row is decoded into
    /// owned values. A row of an older version is also converted.
    pub fn rows(mut self) -> Rows<'txn, E> {
        self.request.reads_rows();
        Rows::new(self.cursor())
    }

    /// Returns an iterator over the views of the rows, with strings and bytes borrowed from the transaction's
    /// snapshot, for a row type with `#[table(view)]`.
    ///
    /// Cost: the seeks, steps and look-ups of [`rows`](Scan::rows). There is no allocation if the view has
    /// only numbers, borrowed strings and borrowed bytes.
    ///
    /// A row of an older version can't be borrowed. It is converted, and encoded in the current version in
    /// memory of the transaction.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(view)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     name: String,
    ///     photo: Option<Vec<u8>>,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     let (town, name) = ("Redmond".into(), "Smith".into());
    ///     people.insert(txn, &Person { id: 1, town, name, photo: Some(vec![1, 2]) })
    /// })?;
    ///
    /// let txn = store.read()?;
    /// for person in people.find_by_town(&txn, "Redmond").views() {
    ///     let PersonView { id, town, name, photo } = person?; // nothing was copied
    ///     assert_eq!((id, town, name), (1, "Redmond", "Smith"));
    ///     assert_eq!(photo, Some(&[1, 2][..]));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn views(mut self) -> Views<'txn, E>
    where
        E::Row: Viewed,
    {
        self.request.reads_rows();
        Views::new(self.request.scan(None))
    }

    /// Returns an iterator over the entries, borrowed from the transaction's snapshot. The fact table is read
    /// only to compare hashed fields that are not in the entries.
    ///
    /// Cost: one seek and one step for each entry. There is no allocation if the entry struct has only
    /// numbers and borrowed strings. In a full index, the entry of a row of an older version is converted
    /// like its [view](Scan::views). The entries of the fact table and of a [`boxed`](Scan::boxed) scan are
    /// the rows, at the cost of [`rows`](Scan::rows).
    pub fn entries(mut self) -> Entries<'txn, E> {
        if matches!(E::SOURCE, Source::Facts) {
            self.request.reads_rows();
        }
        Entries::new(self.request.scan(None))
    }

    /// Returns an iterator over the primary keys: a value for a primary key of one field, a tuple for several
    /// fields.
    ///
    /// Cost: one seek and one step for each entry. The fact table is read only as for
    /// [`entries`](Scan::entries).
    pub fn keys(self) -> Keys<'txn, E> {
        Keys::new(self.cursor())
    }

    /// Counts the rows.
    ///
    /// Cost: nothing is decoded. The size of a whole index or table that stores each entry separately is
    /// known. A normalized index with a primary key of fixed length reads one block for about 64 rows.
    /// Otherwise, there is one step for each entry. Nothing is read after the limit. For a query with the
    /// value of a hashed field, the cost is the same as of [`entries`](Scan::entries).
    ///
    /// If the table has an `#[aggregate(…)]` of exactly the fields that the query compares for equality, the count of this
    /// group is read instead: one look-up, or one in each shard that can have the group.
    ///
    /// In a read transaction of a store with shards, a count across several shards without a
    /// limit uses other threads when it has made 4,096 steps in one shard. All counts together use at most as
    /// many other threads as the machine has cores, less one.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable),
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor), and the [errors of reading](crate::Error#common-errors).
    pub fn count(self) -> Result<u64> {
        self.request.count()
    }

    /// Whether there is a row.
    ///
    /// Cost: one seek, or none if the size is known. Nothing is decoded, except as for
    /// [`count`](Scan::count).
    ///
    /// # Errors
    ///
    /// The errors of [`count`](Scan::count).
    pub fn exists(self) -> Result<bool> {
        self.limit(1).count().map(|count| count > 0)
    }

    /// Returns the first row, if there is one.
    ///
    /// Cost: the cost of [`rows`](Scan::rows) for one row.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable),
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor), and the [errors of reading](crate::Error#common-errors).
    pub fn first(self) -> Result<Option<E::Row>> {
        // Before a cursor, a limit selects the last rows.
        let scan = if self.request.before.is_none() { self.limit(1) } else { self };
        scan.rows().next().transpose()
    }

    /// Converts the scan to a type that is common to the scans of all indexes of a table, the type of
    /// [`all`](crate::Table::all). Use it to choose between scans at run time.
    ///
    /// The scan finds the same rows in the same order, and cursors of either scan are valid for the other.
    /// Only its [`entries`](Scan::entries) differ: they are the rows.
    ///
    /// Cost: none. Nothing is allocated, and nothing is called through a pointer.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ReadTxn, Result, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town, name)]
    /// #[index(name)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     name: String,
    /// }
    ///
    /// fn search(
    ///     people: &PersonRepository,
    ///     txn: &ReadTxn<'_>,
    ///     town: Option<&str>,
    ///     name: Option<&str>,
    /// ) -> Result<Vec<Person>> {
    ///     let scan = match (town, name) {
    ///         (Some(town), Some(name)) => people.find_by_town_name(txn, town, name).boxed(),
    ///         (Some(town), None) => people.find_by_town(txn, town).boxed(),
    ///         (None, Some(name)) => people.find_by_name(txn, name).boxed(),
    ///         (None, None) => people.all(txn),
    ///     };
    ///     scan.limit(20).rows().collect()
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     for (id, town, name) in [(1, "Oslo", "Berg"), (2, "Oslo", "Dahl"), (3, "Rome", "Dahl")] {
    ///         people.insert(txn, &Person { id, town: town.into(), name: name.into() })?;
    ///     }
    ///     Ok(())
    /// })?;
    ///
    /// let txn = store.read()?;
    /// assert_eq!(search(&people, &txn, Some("Oslo"), Some("Dahl"))?.len(), 1);
    /// assert_eq!(search(&people, &txn, None, Some("Dahl"))?.len(), 2);
    /// assert_eq!(search(&people, &txn, None, None)?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn boxed(self) -> Scan<'txn, E::Row> {
        Scan { request: self.request, entry: PhantomData }
    }

    /// Returns the query of the scan, which borrows no transaction, to [delete](DetachedQuery::delete) its
    /// rows.
    pub fn query(self) -> DetachedQuery<E::Row> {
        DetachedQuery::new(self.request)
    }

    /// Only for its error.
    #[doc(hidden)]
    pub fn delete(self) -> Result<u64>
    where
        Self: Unborrowed,
    {
        Ok(0)
    }

    fn cursor(self) -> EntryScan<'txn, LentEntries<'txn>> {
        self.request.cursor(None)
    }
}

/// A scan that borrows no transaction, so that a method can write to it. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a scan borrows its transaction, so it can't delete rows",
    label = "borrows its transaction",
    note = "`query` returns the scan without the borrow: `repository.find_by_…(txn, …).query().delete(txn)`"
)]
pub trait Unborrowed {}

impl<E> fmt::Debug for Scan<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScanRequest { schema, query, .. } = &self.request;
        f.debug_struct("Scan")
            .field("table", &schema.name)
            .field("index", &schema.index_name(query.source))
            .field("reverse", &query.reverse)
            .field("limit", &query.limit)
            .finish_non_exhaustive()
    }
}
