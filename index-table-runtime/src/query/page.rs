//! Pages: some rows, views or entries of a scan, and the cursor for the next page.

use super::{Cursor, Scan, entry_scan::EntryScan, request::ScanRequest};
use crate::{
    engine::{Entries, LentEntries},
    model::{
        entity::{IndexEntry, Viewed},
        entry::RawEntry,
        error::Result,
        row,
        schema::Source,
    },
};

/// The memory of a page of up to this many rows is allocated at once.
pub(super) const RESERVED: usize = 128;

/// Some rows, views or entries of a scan, and the cursor for the next page. From [`Scan::page`],
/// [`Scan::page_views`] and [`Scan::page_entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The rows, views or entries, in the order of the scan.
    pub items: Vec<T>,
    /// Where the next page begins, for [`Scan::after`]; `None` if nothing follows.
    pub next: Option<Cursor>,
    /// Where the previous page ends, for [`Scan::before`]; `None` if nothing precedes. Behind a cursor, it is that
    /// cursor.
    pub previous: Option<Cursor>,
}

/// A page of the last items before a gap, of which `next` reads one after another, backward, and `more` the entry in
/// front of them. `cursors`: those between which the scan is.
pub(super) fn page_back<S, T>(
    mut scan: S,
    size: usize,
    cursors: [Option<Cursor>; 2],
    mut next: impl FnMut(&mut S) -> Option<Result<T>>,
    more: impl FnOnce(&mut S) -> Result<Option<Cursor>>,
) -> Result<Page<T>> {
    let mut items = Vec::with_capacity(size.min(RESERVED));
    while items.len() < size
        && let Some(item) = next(&mut scan)
    {
        items.push(item?);
    }
    items.reverse();
    if size == 0 {
        return Ok(Page { items, next: None, previous: None });
    }
    let [after, before] = cursors;
    let in_front = if items.len() == size { more(&mut scan)? } else { None };
    Ok(Page { items, next: before, previous: in_front.or(after) })
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// A page of `size` rows: the first ones, or the last ones of a scan with [`before`](Scan::before). With the
    /// cursors to the next and the previous page, which a page of 0 rows does not have.
    ///
    /// Cost: as [`rows`](Scan::rows) for this number of rows, and one more step.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor) when [`after`](Scan::after) or
    /// [`before`](Scan::before) was given the cursor of another scan; [`Error`](crate::Error) when the store can't
    /// be read.
    pub fn page(mut self, size: usize) -> Result<Page<E::Row>> {
        self.request.reads_rows();
        let question = self.request.question();
        if self.request.before.is_some() {
            let cursors = self.request.turn_back(Some(question));
            let more = |rows: &mut EntryScan<'txn, LentEntries<'txn>>| {
                Ok(rows.advance()?.then(|| Cursor::new(question, rows.entry())))
            };
            return page_back(self.cursor(), size, cursors, EntryScan::next_row, more);
        }
        let previous = self.request.after.clone();
        let mut rows = self.request.cursor(Some(question));
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(row) = rows.next_row::<E::Row>() else {
                return Ok(Page { items, next: None, previous });
            };
            items.push(row?);
        }
        if size == 0 {
            return Ok(Page { items, next: None, previous: None });
        }
        let last = Cursor::new(question, rows.entry());
        let next = rows.advance()?.then_some(last);
        Ok(Page { items, next, previous })
    }

    /// A [`page`](Scan::page) of [views](Scan::views), for rows with `#[table(view)]`. The cursors are those of
    /// `page`.
    ///
    /// Cost: as [`views`](Scan::views) for this number of rows, and one more step.
    ///
    /// # Errors
    ///
    /// As [`page`](Scan::page).
    pub fn page_views(mut self, size: usize) -> Result<Page<<E::Row as Viewed>::View<'txn>>>
    where
        E::Row: Viewed,
    {
        self.request.reads_rows();
        self.request.page(size, |scan, last| {
            scan.decode_next(
                |scan, entry| {
                    *last = entry;
                    Ok((scan.row_bytes(entry)?, scan.unescaped()))
                },
                |(bytes, kept)| row::view::<E::Row>(bytes, kept),
            )
        })
    }

    /// A [`page`](Scan::page) of [entries](Scan::entries). The cursors are those of `page`.
    ///
    /// Cost: as [`entries`](Scan::entries) for this number of entries, and one more step.
    ///
    /// # Errors
    ///
    /// As [`page`](Scan::page).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town, include = [phone])]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     phone: String,
    ///     notes: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     (0..5).try_for_each(|id| {
    ///         let (town, notes) = ("Oslo".into(), String::new());
    ///         people.insert(txn, &Person { id, town, phone: format!("555-{id}"), notes })
    ///     })
    /// })?;
    ///
    /// let txn = store.read()?;
    /// let page = people.find_by_town(&txn, "Oslo").page_entries(2)?;
    /// assert_eq!(page.items[1].phone, "555-1"); // borrowed from the snapshot
    /// let cursor = page.next.ok_or("there are three more")?;
    /// let page = people.find_by_town(&txn, "Oslo").after(&cursor).page_entries(2)?;
    /// assert_eq!(page.items[0].phone, "555-2");
    /// # Ok(())
    /// # }
    /// ```
    pub fn page_entries(mut self, size: usize) -> Result<Page<E>> {
        if matches!(E::SOURCE, Source::Facts) {
            self.request.reads_rows();
        }
        self.request.page(size, |scan, last| {
            scan.decode_next(
                |scan, entry| {
                    *last = entry;
                    scan.entry_reader::<E>(entry)
                },
                E::decode,
            )
        })
    }
}

impl<'txn> ScanRequest<'txn> {
    /// A page of items that borrow from the snapshot. `next` makes one of the next entry, and stores the entry.
    fn page<T>(
        mut self,
        size: usize,
        mut next: impl FnMut(
            &mut EntryScan<'txn, Entries<'txn>>,
            &mut RawEntry<'txn>,
        ) -> Option<Result<T>>,
    ) -> Result<Page<T>> {
        let question = self.question();
        let mut last = RawEntry::NOWHERE;
        if self.before.is_some() {
            let cursors = self.turn_back(Some(question));
            let more = |scan: &mut EntryScan<'txn, Entries<'txn>>| {
                let entry = scan.next().transpose()?;
                Ok(entry.map(|entry| Cursor::new(question, entry)))
            };
            return page_back(self.scan(None), size, cursors, |scan| next(scan, &mut last), more);
        }
        let previous = self.after.clone();
        let mut scan = self.scan(Some(question));
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(item) = next(&mut scan, &mut last) else {
                return Ok(Page { items, next: None, previous });
            };
            items.push(item?);
        }
        if size == 0 {
            return Ok(Page { items, next: None, previous: None });
        }
        let more = scan.next().transpose()?.is_some();
        let next = more.then(|| Cursor::new(question, last));
        Ok(Page { items, next, previous })
    }
}
