//! Combinations between the gaps of cursors, and their pages.

use std::{ops::Bound, rc::Rc};

use super::{
    Combined, CombinedRows, CombinedViews,
    primary_key::PrimaryKey,
    run::{Extent, Run},
};
use crate::{
    model::{
        entity::{Entity, Viewed},
        error::{Error, Result},
    },
    query::{
        Cursor, Page,
        page::{RESERVED, page_back},
    },
};

impl<'txn, R: Entity> Combined<'txn, R> {
    /// Keeps only the rows after a cursor of the same combination, such as [`Page::next`].
    ///
    /// Cost: scans in the order of the primary key seek to the cursor. Other scans are read and sorted again
    /// for each page.
    ///
    /// Any other cursor gives [`Error::InvalidCursor`](crate::Error::InvalidCursor) when the combination is
    /// run.
    pub fn after(mut self, cursor: &Cursor) -> Self {
        self.after = Some(cursor.clone());
        self
    }

    /// Keeps only the rows before a cursor of the same combination, such as [`Page::previous`]. A
    /// [`page`](Combined::page) and a [`limit`](Combined::limit) select the last rows. See
    /// [`Scan::before`](crate::Scan::before).
    pub fn before(mut self, cursor: &Cursor) -> Self {
        self.before = Some(cursor.clone());
        self
    }

    /// Returns a page of `size` rows: the first rows, or the last rows before a cursor. It has cursors to the
    /// next and the previous page, except for a page of 0 rows.
    ///
    /// Cost: the cost of [`rows`](Combined::rows) for this number of rows, and of one more primary key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`](crate::Error::InvalidCursor); otherwise as [`count`](Combined::count).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// #[index(age)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     age: u8,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     (0..100).try_for_each(|id| {
    ///         people.insert(txn, &Person { id: id.into(), town: "Oslo".into(), age: 99 - id })
    ///     })
    /// })?;
    ///
    /// let txn = store.read()?;
    /// let adults = || people.find_by_town(&txn, "Oslo").and(people.find_by_age_range(&txn, 18..));
    /// let page = adults().rev().page(2)?; // in the order of the primary key, from the last one
    /// assert_eq!(page.items.iter().map(|row| row.id).collect::<Vec<_>>(), [81, 80]);
    /// let cursor = page.next.clone().ok_or("there are more")?;
    /// let second = adults().rev().after(&cursor).page(2)?;
    /// assert_eq!(second.items.iter().map(|row| row.id).collect::<Vec<_>>(), [79, 78]);
    /// let reversed = second.previous.ok_or("the first page")?;
    /// assert_eq!(adults().rev().before(&reversed).page(2)?, page);
    /// # Ok(())
    /// # }
    /// ```
    pub fn page(self, size: usize) -> Result<Page<R>> {
        self.page_of(size, CombinedRows::<R>::new, |rows| &mut rows.run)
    }

    /// Returns a [`page`](Combined::page) of [views](Combined::views), for rows with `#[table(view)]`. Its
    /// cursors are the same as those of `page`.
    ///
    /// # Errors
    ///
    /// The errors of [`page`](Combined::page).
    pub fn page_views(self, size: usize) -> Result<Page<R::View<'txn>>>
    where
        R: Viewed,
    {
        self.page_of(size, CombinedViews::<R>::new, |views| &mut views.run)
    }

    fn page_of<I, T>(
        self,
        size: usize,
        items_of: impl FnOnce(Run<'txn>) -> I,
        run_of: impl Fn(&mut I) -> &mut Run<'txn>,
    ) -> Result<Page<T>>
    where
        I: Iterator<Item = Result<T>>,
    {
        if size == 0 {
            return Err(Error::EmptyPage { table: R::TABLE.name });
        }
        let query_hash = self.plan.query_hash(R::TABLE, self.reverse);
        let cursors = [self.after.clone(), self.before.clone()];
        let more = |items: &mut I| {
            let run = run_of(items);
            Ok(if run.next()?.is_some() { run.cursor(query_hash) } else { None })
        };
        if self.before.is_some() {
            return page_back(items_of(self.run_back()), size, cursors, I::next, more);
        }
        let [previous, _] = cursors;
        let mut run = items_of(self.run());
        let mut items = Vec::with_capacity(size.min(RESERVED));
        while items.len() < size {
            let Some(item) = run.next() else { return Ok(Page { items, next: None, previous }) };
            items.push(item?);
        }
        let last = run_of(&mut run).cursor(query_hash);
        let next = more(&mut run)?.and(last);
        Ok(Page { items, next, previous })
    }

    /// Runs the combination in its order.
    pub(super) fn run(self) -> Run<'txn> {
        let extent = self.extent().and_then(|extent| self.begin_at_last(extent));
        self.run_in(extent)
    }

    /// Runs the combination in the reverse of its order, from the gap of the cursor `before`.
    pub(super) fn run_back(self) -> Run<'txn> {
        let extent = self.extent().map(reversed);
        self.run_in(extent)
    }

    /// Runs the combination in the cheapest order, for results that do not depend on the order.
    pub(super) fn run_in_any_order(self) -> Run<'txn> {
        if self.before.is_some() { self.run_back() } else { self.run() }
    }

    fn run_in(self, extent: Result<Extent<'txn>>) -> Run<'txn> {
        let Self { reader, ledger, plan, .. } = self;
        let (reader, extent) = match extent {
            Ok(extent) => (reader, extent),
            Err(error) => (reader.and(Err(error)), Extent::ALL),
        };
        Run::new(reader, R::TABLE, ledger, plan, extent)
    }

    /// Returns the extent from the start or the cursor `after` to the end or the cursor `before`.
    fn extent(&self) -> Result<Extent<'txn>> {
        let query_hash = (self.after.is_some() || self.before.is_some())
            .then(|| self.plan.query_hash(R::TABLE, self.reverse));
        let primary_key = |cursor: &Option<Cursor>| -> Result<Option<PrimaryKey<'txn>>> {
            let Some((cursor, query_hash)) = cursor.as_ref().zip(query_hash) else {
                return Ok(None);
            };
            let primary_key = cursor.primary_key_in(R::TABLE, query_hash)?;
            Ok(Some(PrimaryKey::Sorted(Rc::from(primary_key))))
        };
        Ok(Extent {
            reverse: self.reverse,
            limit: self.limit,
            from: primary_key(&self.after)?.map_or(Bound::Unbounded, Bound::Excluded),
            to: primary_key(&self.before)?.map_or(Bound::Unbounded, Bound::Included),
            tests: self.tests.clone(),
        })
    }

    /// Moves the start to the first row within the limit, because a limit selects the last rows before a
    /// cursor.
    fn begin_at_last(&self, extent: Extent<'txn>) -> Result<Extent<'txn>> {
        let (Bound::Included(_), Some(limit @ 1..)) = (&extent.to, extent.limit) else {
            return Ok(extent);
        };
        let Ok(reader) = &self.reader else { return Ok(extent) };
        let reversed = reversed(extent.clone());
        let mut run = Run::new(Ok(*reader), R::TABLE, self.ledger, self.plan.clone(), reversed);
        let mut first = None;
        for _ in 0..limit {
            match run.next()? {
                Some(key) => first = Some(key),
                None => return Ok(extent),
            }
        }
        Ok(Extent { from: first.map_or(extent.from, Bound::Included), ..extent })
    }
}

/// Reverses an extent.
fn reversed(extent: Extent<'_>) -> Extent<'_> {
    Extent { reverse: !extent.reverse, from: extent.to, to: extent.from, ..extent }
}
