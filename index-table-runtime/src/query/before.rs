//! Scans that end at the gap of a cursor.
//!
//! An engine begins a query at or after a position, and ends it at the end of the bounds. So a scan before a
//! gap is read backward from the gap if the order does not matter, or if a page is reversed in memory. An
//! iterator returns rows in the order of the scan, so it is read forward, and a [`Stop`] ends it at the gap.
//!
//! | | reads | ends at |
//! |---|---|---|
//! | `after` | from the gap | the end of the bounds |
//! | `before` | from the start of the bounds, or from `after` | the gap |
//! | `before` with a limit | backward from the gap to the first row within the limit, then forward from that row | the gap |
//! | `before` as a page, a count or a deletion | backward from the gap | the start of the bounds, or `after` |

use std::rc::Rc;

use super::{
    Cursor, Scan,
    conditions::{Conditions, Stop},
    entry_scan::EntryScan,
    request::ScanRequest,
};
use crate::{
    engine::Query,
    model::{entity::IndexEntry, entry::Position, error::Result, schema::IndexSchema},
    placement::Reader,
};

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Keeps only the rows before a cursor of the same scan, such as
    /// [`Page::previous`](crate::Page::previous): the rows that [`after`](Scan::after) with the same cursor
    /// omits.
    ///
    /// The order does not change. A [`page`](Scan::page) and a [`limit`](Scan::limit) select the last rows,
    /// next to the cursor. Together with `after`, the scan returns the rows between two cursors.
    ///
    /// Cost: the same as of a page after a cursor. A limit without a page steps over its rows twice, because
    /// the scan first searches backward from the cursor for its first row.
    ///
    /// A cursor of another scan gives [`Error::InvalidCursor`](crate::Error::InvalidCursor) when the scan is
    /// run.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| (0..10).try_for_each(|id| notes.insert(txn, &Note { id })))?;
    ///
    /// let txn = store.read()?;
    /// let first = notes.all(&txn).page(3)?;
    /// let second = notes.all(&txn).after(&first.next.clone().ok_or("ten are more than three")?).page(3)?;
    /// assert_eq!(second.items, [Note { id: 3 }, Note { id: 4 }, Note { id: 5 }]);
    ///
    /// let back = second.previous.ok_or("there is a first page")?;
    /// assert_eq!(notes.all(&txn).before(&back).page(3)?, first);
    /// assert_eq!(notes.all(&txn).before(&back).limit(2).keys().collect::<Result<Vec<_>, _>>()?, [1, 2]);
    /// assert_eq!(notes.all(&txn).before(&back).count()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn before(mut self, cursor: &Cursor) -> Self {
        self.request.before = Some(cursor.clone());
        self
    }
}

impl<'txn> ScanRequest<'txn> {
    /// Sets the position and the stop of the query to the cursors. The direction does not change.
    #[cold]
    #[inline(never)]
    pub(super) fn stop_at_gap(&mut self, query_hash: Option<u64>) {
        let Ok(reader) = &self.reader else { return };
        if let Err(error) = self.try_stop_at_gap(*reader, query_hash) {
            self.reader = Err(Box::new(error));
        }
    }

    fn try_stop_at_gap(&mut self, reader: Reader<'txn>, query_hash: Option<u64>) -> Result<()> {
        let (after, Some(before)) = self.positions(query_hash)? else { return Ok(()) };
        let first = self.first_of_last(reader, after.clone(), before.clone())?;
        self.query.inclusive = first.is_some();
        self.query.position = first.or(after);
        let stop = self.stop(before, true, self.query.reverse);
        Conditions::stop(&mut self.conditions, stop);
        Ok(())
    }

    /// Returns the position of the first of the last `limit` entries before the gap; `None` if there are
    /// fewer entries or no limit.
    fn first_of_last(
        &self,
        reader: Reader<'txn>,
        after: Option<Position>,
        before: Position,
    ) -> Result<Option<Position>> {
        let Some(limit @ 1..) = self.query.limit else { return Ok(None) };
        let (query, conditions) = self.backward(after, before);
        let query = Query { rows: false, ..query };
        let (schema, ledger) = (self.schema, self.ledger);
        let mut scan = EntryScan::cursor(Ok(reader), schema, ledger, query, conditions.as_ref());
        for _ in 0..limit {
            if !scan.advance()? {
                return Ok(None);
            }
        }
        Ok(Some(scan.entry().position()))
    }

    /// Reverses the query, so that it reads from the gap `before` to the gap `after`. Returns the cursors
    /// `after` and `before`.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_back(&mut self, query_hash: Option<u64>) -> [Option<Cursor>; 2] {
        match self.positions(query_hash) {
            Ok((after, Some(before))) => {
                let (query, conditions) = self.backward(after, before);
                (self.query, self.conditions) = (query, conditions);
            }
            Err(error) if self.reader.is_ok() => self.reader = Err(Box::new(error)),
            Ok((_, None)) | Err(_) => {}
        }
        [self.after.take(), self.before.take()]
    }

    fn backward(
        &self,
        after: Option<Position>,
        before: Position,
    ) -> (Query, Option<Rc<Conditions<'txn>>>) {
        let (query, mut conditions) = (self.query.clone(), self.conditions.clone());
        let reverse = !query.reverse;
        if let Some(after) = after {
            Conditions::stop(&mut conditions, self.stop(after, false, reverse));
        }
        (Query { reverse, position: Some(before), inclusive: true, ..query }, conditions)
    }

    fn stop(&self, position: Position, inclusive: bool, reverse: bool) -> Stop {
        let index = self.schema.index(self.query.source);
        let by_key = index.is_some_and(IndexSchema::has_one_entry_per_key);
        Stop { position, by_key, inclusive, reverse }
    }

    /// Returns the positions of the cursors `after` and `before`.
    fn positions(&self, query_hash: Option<u64>) -> Result<(Option<Position>, Option<Position>)> {
        let query_hash = query_hash.unwrap_or_else(|| self.query_hash());
        let position = |cursor: &Option<Cursor>| {
            let position =
                |cursor: &Cursor| cursor.position_in(self.schema, &self.query, query_hash);
            cursor.as_ref().map(position).transpose()
        };
        Ok((position(&self.after)?, position(&self.before)?))
    }
}
