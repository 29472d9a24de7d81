//! Queries on an eventual index.

use std::fmt;

use super::{
    Cursor, Scan,
    conditions::{Conditions, Existence, has_entry},
};
use crate::model::entity::IndexEntry;

/// A query on an index with `consistency = "eventual"`, which says first what becomes of entries that the index
/// worker has not changed yet.
///
/// The index follows the rows: until the worker has applied the message of a row that was written, the index has
/// the entries of the row as it was. So it has entries of rows that have changed or were deleted, and lacks entries
/// of rows as they are. [`stale`](EventualScan::stale) is the scan of the entries as they are, and
/// [`verified`](EventualScan::verified) is a scan of rows that have the entry still. Both lack the rows that the
/// worker has not added yet; the `wait_for` of the repository waits until the index has the writes of a
/// transaction.
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
/// let said = people.find_by_town(&txn, "Rome").stale().entries().next().unwrap()?;
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
#[must_use = "an eventual index is read by `stale` or `verified`"]
pub struct EventualScan<'txn, E> {
    scan: Scan<'txn, E>,
}

impl<'txn, E: IndexEntry<'txn>> EventualScan<'txn, E> {
    pub(crate) const fn new(scan: Scan<'txn, E>) -> Self {
        Self { scan }
    }

    /// As [`Scan::rev`].
    pub fn rev(mut self) -> Self {
        self.scan = self.scan.rev();
        self
    }

    /// As [`Scan::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.scan = self.scan.limit(limit);
        self
    }

    /// As [`Scan::after`].
    pub fn after(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.after(cursor);
        self
    }

    /// As [`Scan::before`].
    pub fn before(mut self, cursor: &Cursor) -> Self {
        self.scan = self.scan.before(cursor);
        self
    }

    /// The scan of the index as it is, which may be behind the rows.
    ///
    /// [`entries`](Scan::entries), [`keys`](Scan::keys) and [`count`](Scan::count) read the index alone: there may be
    /// no row with such a key, or one with other fields. [`rows`](Scan::rows) of a full index are those that its
    /// entries carry; of other indexes they are the rows as they are now, whether or not they have the entry still,
    /// and entries of deleted rows are left out.
    ///
    /// Cost: as on an index that is not eventual.
    pub fn stale(self) -> Scan<'txn, E> {
        self.scan
    }

    /// The scan of the rows that have their entry still. Each row is read from the fact table, and an entry
    /// is left out if its row was deleted or has another key now.
    ///
    /// The entries of this scan are the rows, as those of a [`boxed`](Scan::boxed) scan. A [`limit`](Scan::limit),
    /// a [`page`](Scan::page) and a [`count`](Scan::count) are of rows that are found, and cursors are valid for
    /// both scans.
    ///
    /// Rows are missing if the worker has not added them yet, also those that have changed to this key.
    ///
    /// Cost: a look-up of each row, for a count too, whatever the strategy is; the row is decoded and its keys in this
    /// index are made and compared; a row that is returned is decoded again.
    pub fn verified(self) -> Scan<'txn, E::Row> {
        let mut scan = self.scan.boxed();
        let existence = Existence::HasEntry(has_entry::<E::Row>);
        Conditions::require(&mut scan.request.conditions, existence);
        scan
    }

    /// The query, for callers that read the rows and not the index.
    pub(crate) fn into_scan(self) -> Scan<'txn, E> {
        self.scan
    }
}

impl<E> fmt::Debug for EventualScan<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventualScan").finish_non_exhaustive()
    }
}
