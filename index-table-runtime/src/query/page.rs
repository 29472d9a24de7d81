//! Pages: some rows, views or entries of a scan, and the cursors to the next and the previous page.

use super::{
    Cursor, Scan,
    bounded::PageBound,
    entry_scan::{EntryScan, ReadRow},
    request::ScanRequest,
};
use crate::{
    model::{
        entity::{EntryReader, IndexEntry, Viewed},
        entry::{KeyBuffer, ShortEntry},
        error::{Error, Result},
        row::{self, Body},
        schema::Source,
    },
    placement::Entries,
};

/// The maximum number of items of a page whose memory is allocated in advance.
pub(super) const RESERVED: usize = 128;

/// Some rows, views or entries of a scan, and the cursors to the next and the previous page. From
/// [`Scan::page`], [`Scan::page_views`] and [`Scan::page_entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The rows, views or entries, in the order of the scan.
    pub items: Vec<T>,
    /// The start of the next page, for [`Scan::after`]; `None` if no row follows.
    pub next: Option<Cursor>,
    /// The end of the previous page, for [`Scan::before`]; `None` if no row precedes. For a page after a
    /// cursor, it is that cursor.
    pub previous: Option<Cursor>,
}

/// Returns a page of the last items before a gap. `next` reads items backward, and `more` returns the cursor
/// of the entry that precedes them, if there is one. `cursors` are the ends of the scan.
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
    let [after, before] = cursors;
    let preceding = if items.len() == size { more(&mut scan)? } else { None };
    Ok(Page { items, next: before, previous: preceding.or(after) })
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Returns a page of `size` rows: the first rows, or the last rows of a scan with
    /// [`before`](Scan::before). It has cursors to the next and the previous page.
    ///
    /// Cost: the cost of [`rows`](Scan::rows) for this number of rows, and of one more step. With a
    /// [`filter`](Scan::filter), also the cost of the entries between them, up to the next row that passes the test;
    /// [`examine_at_most`](Scan::examine_at_most) bounds it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor) if the cursor of [`after`](Scan::after) or
    /// [`before`](Scan::before) belongs to another scan, [`Error::EmptyPage`](crate::Error::EmptyPage) if `size` is 0, and
    /// the [errors of reading](crate::Error#common-errors).
    pub fn page(mut self, size: usize) -> Result<Page<E::Row>> {
        self.request.reads_rows();
        let is_backward = self.request.before.is_some();
        let mut items = Vec::with_capacity(size.min(RESERVED));
        let lists = self.request.ledger.lists;
        let [next, previous] =
            self.request.page_of_rows(size, &mut |_, bytes| match row::decode(lists, bytes) {
                Ok(row) => {
                    items.push(row);
                    Ok(())
                }
                Err(error) => Err(error),
            })?;
        if is_backward {
            // `Vec::reverse` would be several functions for each type of row.
            let mut forward = Vec::with_capacity(items.len());
            while let Some(row) = items.pop() {
                forward.push(row);
            }
            items = forward;
        }
        Ok(Page { items, next, previous })
    }

    /// Returns a [`page`](Scan::page) of [views](Scan::views), for rows with `#[table(view)]`. Its cursors
    /// are the same as the cursors of `page`.
    ///
    /// Cost: the cost of [`views`](Scan::views) for this number of rows, and of one more step.
    ///
    /// # Errors
    ///
    /// The errors of [`page`](Scan::page).
    pub fn page_views(mut self, size: usize) -> Result<Page<<E::Row as Viewed>::View<'txn>>>
    where
        E::Row: Viewed,
    {
        self.request.reads_rows();
        self.request.page(size, |scan, last| {
            scan.decode_next(
                |scan, entry| {
                    *last = entry;
                    Ok((scan.row_bytes(entry)?, scan.lists(), scan.unescaped()))
                },
                |(bytes, lists, unescaped)| row::view::<E::Row>(lists, bytes, unescaped),
            )
        })
    }

    /// Returns a [`page`](Scan::page) of [entries](Scan::entries). Its cursors are the same as the cursors
    /// of `page`.
    ///
    /// Cost: the cost of [`entries`](Scan::entries) for this number of entries, and of one more step.
    ///
    /// # Errors
    ///
    /// The errors of [`page`](Scan::page).
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
                    scan.entry_to_read(entry, E::SOURCE, const { Body::of::<E::Row>() })
                },
                |(entry, form, context)| EntryReader::read(entry, form, context, E::decode),
            )
        })
    }
}

impl<'txn> ScanRequest<'txn> {
    fn refuse_empty_page(&self, size: usize, bound: &PageBound) -> Result<()> {
        if size == 0 || bound.is_empty() {
            return Err(Error::EmptyPage { table: self.schema.name });
        }
        Ok(())
    }

    /// Limits the query to a page and the next entry, so that an engine that reads several entries at once reads no more.
    fn read_page(&mut self, size: usize) {
        let size = (size as u64).saturating_add(1);
        self.query.limit = Some(self.query.limit.map_or(size, |limit| limit.min(size)));
    }

    /// Reads the rows of a page, calls `push` with the bytes of each, and returns the cursors to the next and
    /// the previous page. The rows before a gap are read backward.
    pub(super) fn page_of_rows(
        mut self,
        size: usize,
        push: &mut ReadRow<'_>,
    ) -> Result<[Option<Cursor>; 2]> {
        let bound = PageBound::of(&self);
        self.refuse_empty_page(size, &bound)?;
        let query_hash = self.query_hash();
        let is_backward = self.before.is_some();
        let [after, before] = if is_backward {
            self.turn_back(Some(query_hash))
        } else {
            self.resolve(Some(query_hash));
            [self.after.take(), None]
        };
        self.read_page(size);
        let mut rows = self.cursor(Some(query_hash));
        for _ in 0..size {
            if !rows.read_row(push)? {
                let stopped = bound.cursor(query_hash);
                return Ok(if is_backward {
                    [before, stopped.or(after)]
                } else {
                    [stopped, after]
                });
            }
        }
        if is_backward {
            let preceding = rows.advance()?.then(|| Cursor::new(query_hash, rows.entry()));
            return Ok([before, preceding.or_else(|| bound.cursor(query_hash)).or(after)]);
        }
        let last = Cursor::new(query_hash, rows.entry());
        let next = if rows.advance()? { Some(last) } else { bound.cursor(query_hash) };
        Ok([next, after])
    }

    /// Returns a page of items that borrow from the snapshot. `next` reads the next entry, stores it, and
    /// converts it to an item.
    fn page<T>(
        mut self,
        size: usize,
        mut next: impl FnMut(
            &mut EntryScan<'txn, Entries<'txn>>,
            &mut ShortEntry<'txn>,
        ) -> Option<Result<T>>,
    ) -> Result<Page<T>> {
        let bound = PageBound::of(&self);
        self.refuse_empty_page(size, &bound)?;
        let query_hash = self.query_hash();
        let (mut last, mut buffer) = (ShortEntry::NOWHERE, KeyBuffer::new());
        if self.before.is_some() {
            let cursors = self.turn_back(Some(query_hash));
            self.read_page(size);
            let more = |scan: &mut EntryScan<'txn, Entries<'txn>>| {
                let entry = scan.next().transpose()?;
                Ok(entry.map(|entry| Cursor::new(query_hash, entry.in_buffer(&mut buffer))))
            };
            let scan = self.scan(None);
            let page = page_back(scan, size, cursors, |scan| next(scan, &mut last), more)?;
            let previous = bound.cursor(query_hash).or(page.previous);
            return Ok(Page { previous, ..page });
        }
        self.resolve(Some(query_hash));
        let previous = self.after.take();
        self.read_page(size);
        let mut scan = self.scan(Some(query_hash));
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(item) = next(&mut scan, &mut last) else {
                return Ok(Page { items, next: bound.cursor(query_hash), previous });
            };
            items.push(item?);
        }
        let next = match scan.next().transpose()? {
            Some(_) => Some(Cursor::new(query_hash, last.in_buffer(&mut buffer))),
            None => bound.cursor(query_hash),
        };
        Ok(Page { items, next, previous })
    }
}
