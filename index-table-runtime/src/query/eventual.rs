//! Queries on an eventual index.

use std::fmt;

use super::{
    Cursor, Scan,
    conditions::{Conditions, Existence, has_entry},
};
use crate::model::entity::IndexEntry;

/// A query on an index with `consistency = "eventual"`. The caller first chooses how to treat entries that
/// the index worker has not updated yet.
///
/// The index lags behind the rows: until the worker has applied the message of a written row, the index has
/// the entries of the row's earlier version. So it has outdated entries of rows that were changed or deleted,
/// and lacks entries of new or changed rows. [`stale`](EventualScan::stale) returns a scan of the index in
/// its current state, and [`verified`](EventualScan::verified) returns a scan of the rows that still have
/// their entry. Both lack the rows that the worker has not added yet. The `wait_for` of the repository waits
/// until the index has the writes of a transaction.
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
/// let entry = people.find_by_town(&txn, "Rome").stale().entries().next().unwrap()?;
/// assert_eq!((entry.id, entry.town), (1, "Rome")); // the row's earlier version
/// assert_eq!(people.find_by_town(&txn, "Rome").verified().first()?, None);
/// assert_eq!(people.find_by_town(&txn, "Oslo").verified().first()?, None); // not added yet
///
/// people.drain(&store, u64::MAX)?;
/// let txn = store.read()?;
/// assert_eq!(people.find_by_town(&txn, "Oslo").verified().first()?.unwrap().id, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "an eventual index is read by `stale` or `verified`"]
pub struct EventualScan<'txn, E> {
    scan: Scan<'txn, E>,
}

impl<'txn, E: IndexEntry<'txn>> EventualScan<'txn, E> {
    pub(crate) const fn new(scan: Scan<'txn, E>) -> Self {
        Self { scan }
    }

    /// Reverses the order, like [`Scan::rev`].
    pub fn rev(mut self) -> Self {
        self.scan = self.scan.rev();
        self
    }

    /// Limits the number of rows, like [`Scan::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.scan = self.scan.limit(limit);
        self
    }

    /// Starts after a cursor, like [`Scan::after`].
    pub fn after(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.after(cursor);
        self
    }

    /// Ends before a cursor, like [`Scan::before`].
    pub fn before(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.before(cursor);
        self
    }

    /// Returns a scan of the index in its current state, which may lag behind the rows.
    ///
    /// [`entries`](Scan::entries), [`keys`](Scan::keys) and [`count`](Scan::count) read the index alone: the
    /// row of an entry may have been deleted, or may have other fields. For a full index,
    /// [`rows`](Scan::rows) returns the rows that the entries carry. For other indexes, it returns the
    /// current rows, whether or not they still have the entry, and leaves out deleted rows.
    ///
    /// Cost: the same as for a strong index.
    pub fn stale(self) -> Scan<'txn, E> {
        self.scan
    }

    /// Returns a scan of the rows that still have their entry. Each row is read from the fact table, and an
    /// entry is left out if its row was deleted or now has another key.
    ///
    /// The entries of this scan are the rows, as in a [`boxed`](Scan::boxed) scan. A [`limit`](Scan::limit),
    /// a [`page`](Scan::page) and a [`count`](Scan::count) apply to the rows that are found. Cursors are
    /// valid for both scans.
    ///
    /// Rows are missing if the worker has not added them yet, including rows that have changed to this key.
    ///
    /// Cost: a look-up of each row with every strategy, even for a count. The row is decoded, and its keys in
    /// this index are computed and compared. A returned row is decoded again.
    pub fn verified(self) -> Scan<'txn, E::Row> {
        let mut scan = self.scan.boxed();
        let existence = Existence::HasEntry(has_entry::<E::Row>);
        Conditions::require(&mut scan.request.conditions, existence);
        scan
    }

    /// Returns the scan, for callers that read the rows and not the index.
    pub(crate) fn into_scan(self) -> Scan<'txn, E> {
        self.scan
    }
}

impl<E> fmt::Debug for EventualScan<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventualScan").finish_non_exhaustive()
    }
}
