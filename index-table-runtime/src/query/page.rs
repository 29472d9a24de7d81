//! Pages: some rows, views or entries of a scan, and the cursor to the next ones.

use super::{Cursor, Scan, entry_scan::EntryScan, request::ScanRequest};
use crate::{
    engine::Entries,
    model::{
        entity::{IndexEntry, Viewed},
        entry::RawEntry,
        error::Result,
        row,
        schema::Source,
    },
};

/// A page of up to so many rows gets its memory at once.
pub(super) const RESERVED: usize = 128;

/// Some rows, views or entries of a scan, and where the next ones start. From [`Scan::page`],
/// [`Scan::page_views`] and [`Scan::page_entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The rows, views or entries, in the order of the scan.
    pub items: Vec<T>,
    /// Where to continue; `None` when there are no more.
    pub next: Option<Cursor>,
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// The first `size` rows, and where the next page starts. A page of 0 rows has no next one.
    ///
    /// Cost: as [`rows`](Scan::rows) for so many rows, and a step to see whether there are more.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor) when [`after`](Scan::after) was
    /// given the cursor of another scan; [`Error`](crate::Error) when the store can't be read.
    pub fn page(mut self, size: usize) -> Result<Page<E::Row>> {
        self.request.query.rows = true;
        let question = self.request.question();
        let mut rows = self.request.cursor(Some(question));
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(row) = rows.next_row::<E::Row>() else {
                return Ok(Page { items, next: None });
            };
            items.push(row?);
        }
        if size == 0 {
            return Ok(Page { items, next: None });
        }
        let last = rows.entry().position();
        let next = rows.advance()?.then(|| Cursor::new(question, last));
        Ok(Page { items, next })
    }

    /// A [`page`](Scan::page) of [views](Scan::views), for rows with `#[table(view)]`. The cursors are those of
    /// `page`.
    ///
    /// Cost: as [`views`](Scan::views) for so many rows, and a step to see whether there are more.
    ///
    /// # Errors
    ///
    /// As [`page`](Scan::page).
    pub fn page_views(mut self, size: usize) -> Result<Page<<E::Row as Viewed>::View<'txn>>>
    where
        E::Row: Viewed,
    {
        self.request.query.rows = true;
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
    /// Cost: as [`entries`](Scan::entries) for so many entries, and a step to see whether there are more.
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
        self.request.query.rows = matches!(E::SOURCE, Source::Facts);
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
        self,
        size: usize,
        mut next: impl FnMut(
            &mut EntryScan<'txn, Entries<'txn>>,
            &mut RawEntry<'txn>,
        ) -> Option<Result<T>>,
    ) -> Result<Page<T>> {
        let question = self.question();
        let mut scan = self.scan(Some(question));
        let mut items = Vec::with_capacity(size.min(RESERVED));
        let mut last = RawEntry::NOWHERE;
        while items.len() < size {
            let Some(item) = next(&mut scan, &mut last) else {
                return Ok(Page { items, next: None });
            };
            items.push(item?);
        }
        if size == 0 {
            return Ok(Page { items, next: None });
        }
        let more = scan.next().transpose()?.is_some();
        let next = more.then(|| Cursor::new(question, last.position()));
        Ok(Page { items, next })
    }
}
