//! Pages that end after a number of examined entries.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use super::{Cursor, Page, Scan, conditions::Conditions, request::ScanRequest};
use crate::model::{
    entity::{IndexEntry, Viewed},
    entry::{Position, RawEntry},
    error::Result,
};

/// A scan whose pages end after a number of examined entries, from [`Scan::examine_at_most`]. It only has pages: rows, a
/// count or a deletion that ended early would not differ from the complete result, while a page has the cursor for the rest.
#[must_use = "a scan does nothing until a page is read"]
pub struct BoundedScan<'txn, E> {
    scan: Scan<'txn, E>,
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Bounds the cost of a page, which ends after `entries` entries were read and tested, even if it has fewer rows than its
    /// size, or none. Its cursor [`next`](Page::next), or [`previous`](Page::previous) for a page [`before`](Scan::before)
    /// a cursor, is the position where it ended, so the next page continues there.
    ///
    /// With a [`filter`](Scan::filter), a page otherwise reads until it is full, which can be the whole scan. The pages together
    /// have the same rows as without the bound. A page with fewer rows than its size and a cursor ended at the bound. If
    /// the bound is reached at the last entry, the page has a cursor too, and the next page is empty.
    ///
    /// Entries are examined if they are within the range of the scan: those whose rows the filter tests, and those that a
    /// hashed field or an eventual index leaves out.
    ///
    /// Cost: at most `entries` steps, and as many look-ups of rows if the scan looks up rows. A page before a cursor makes one
    /// more step. In a sharded store, each further shard that the scan reads adds a step. A PostgreSQL server sends at
    /// most `entries` entries, or one more before a cursor.
    ///
    /// Only pages can be bounded; see [`BoundedScan`]. If `entries` is 0, they fail with
    /// [`Error::EmptyPage`](crate::Error::EmptyPage), because each page would end where it began.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     phone: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     (0..100).try_for_each(|id| {
    ///         people.insert(txn, &Person { id, town: "Oslo".into(), phone: format!("555-{id}") })
    ///     })
    /// })?;
    ///
    /// let txn = store.read()?;
    /// let scan = || people.find_by_town(&txn, "Oslo").filter(|row| row.phone == "555-77");
    /// let page = scan().examine_at_most(50).page(10)?;
    /// assert!(page.items.is_empty()); // among the first 50
    /// let cursor = page.next.ok_or("there are 50 more")?;
    /// let page = scan().after(&cursor).examine_at_most(50).page(10)?;
    /// assert_eq!(page.items[0].id, 77);
    /// # Ok(())
    /// # }
    /// ```
    pub fn examine_at_most(mut self, entries: usize) -> BoundedScan<'txn, E> {
        let bound = ExamineBound::new(entries as u64, self.request.before.is_some());
        self.request.query.at_most = Some(bound.steps());
        Conditions::bound(&mut self.request.conditions, bound);
        BoundedScan { scan: self }
    }
}

impl<'txn, E: IndexEntry<'txn>> BoundedScan<'txn, E> {
    /// Returns a page of at most `size` rows, like [`Scan::page`].
    ///
    /// Cost: see [`Scan::examine_at_most`].
    ///
    /// # Errors
    ///
    /// The errors of [`Scan::page`], and [`Error::EmptyPage`](crate::Error::EmptyPage) if no entry may be examined.
    pub fn page(self, size: usize) -> Result<Page<E::Row>> {
        self.scan.page(size)
    }

    /// Returns a page of at most `size` [views](Scan::views), like [`Scan::page_views`].
    ///
    /// Cost: see [`Scan::examine_at_most`].
    ///
    /// # Errors
    ///
    /// The errors of [`page`](BoundedScan::page).
    pub fn page_views(self, size: usize) -> Result<Page<<E::Row as Viewed>::View<'txn>>>
    where
        E::Row: Viewed,
    {
        self.scan.page_views(size)
    }

    /// Returns a page of at most `size` [entries](Scan::entries), like [`Scan::page_entries`].
    ///
    /// Cost: see [`Scan::examine_at_most`].
    ///
    /// # Errors
    ///
    /// The errors of [`page`](BoundedScan::page).
    pub fn page_entries(self, size: usize) -> Result<Page<E>> {
        self.scan.page_entries(size)
    }
}

impl<E> fmt::Debug for BoundedScan<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedScan").field("scan", &self.scan).finish_non_exhaustive()
    }
}

/// The bound of the entries that a page examines. The running query counts them, and its page reads where it stopped.
pub(super) struct ExamineBound {
    left: Cell<u64>,
    /// Whether the page is read backward, from the gap `before`.
    is_backward: bool,
    /// The last examined entry, or the entry before it if the page is read backward. A cursor is the gap after an entry.
    position: RefCell<Option<Position>>,
    has_stopped: Cell<bool>,
}

impl ExamineBound {
    fn new(entries: u64, is_backward: bool) -> Self {
        let (position, has_stopped) = (RefCell::default(), Cell::default());
        Self { left: Cell::new(entries), is_backward, position, has_stopped }
    }

    /// Returns the maximum number of entries that the query reads.
    fn steps(&self) -> u64 {
        self.left.get().saturating_add(self.is_backward.into())
    }

    /// Whether the query may read the next entry. A backward page reads one more, for its cursor.
    pub(super) fn allows_step(&self) -> bool {
        let is_allowed = self.left.get() > 0 || self.is_backward;
        self.has_stopped.set(!is_allowed);
        is_allowed
    }

    /// Counts an entry. Returns whether the query stops before it.
    pub(super) fn stops_before(&self, entry: RawEntry<'_>) -> bool {
        let left = self.left.get().checked_sub(1);
        if matches!(left, None | Some(0)) {
            self.position.replace(Some(entry.position()));
        }
        self.left.set(left.unwrap_or_default());
        self.has_stopped.set(left.is_none());
        left.is_none()
    }

    /// Returns the cursor of the position where the query stopped; `None` if it ended otherwise.
    fn cursor(&self, query_hash: u64) -> Option<Cursor> {
        if !self.has_stopped.get() {
            return None;
        }
        let position = self.position.borrow();
        let Position { key, primary_key } = position.as_ref()?;
        Some(Cursor::new(query_hash, RawEntry { key, primary_key, data: &[] }))
    }
}

/// The bound of a page, if it has one.
pub(super) struct PageBound(Option<Rc<ExamineBound>>);

impl PageBound {
    /// Returns the bound of the pages of a request.
    pub(super) fn of(request: &ScanRequest<'_>) -> Self {
        Self(request.conditions.as_ref().and_then(|conditions| conditions.bound.clone()))
    }

    /// Whether no entry may be examined.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(|bound| bound.left.get() == 0)
    }

    /// Returns the cursor of the position where the bound stopped the query; `None` if it ended otherwise.
    pub(super) fn cursor(&self, query_hash: u64) -> Option<Cursor> {
        self.0.as_ref()?.cursor(query_hash)
    }
}
