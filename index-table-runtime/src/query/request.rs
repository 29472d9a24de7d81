//! A [`Scan`](super::Scan) without the type of its entries, so that its code is compiled once.

use std::{rc::Rc, sync::Arc};

use super::{
    Bounds, Cursor, MissingShard,
    conditions::{Conditions, Existence, Hashed, Stop},
    cursor,
    entry_scan::EntryScan,
    list::Ranges,
    matches,
    total::{self, GroupTotals},
};
use crate::{
    engine::{Count, Query, Read},
    model::{
        entry::{Position, RawEntry},
        error::{Error, Result},
        row_vtable::TableRows,
        schema::{Source, TableSchema},
    },
    placement::{Entries, LentEntries, Reader},
    query::meter::Ledger,
};

/// A query that has not run yet.
pub(crate) struct ScanRequest<'txn> {
    /// The error is boxed, because requests are moved more often than they fail.
    pub(super) reader: Result<Reader<'txn>, Box<Error>>,
    pub(super) schema: &'static TableSchema,
    pub(crate) ledger: Ledger<'txn>,
    pub(super) query: Query,
    /// The conditions; `None` if there are none but the bounds.
    pub(super) conditions: Option<Rc<Conditions<'txn>>>,
    /// The start; `None` for the start of the bounds.
    pub(super) after: Option<Cursor>,
    /// The end; `None` for the end of the bounds.
    pub(super) before: Option<Cursor>,
    /// The functions of the table, if its aggregates can be read in the snapshot.
    totals: Option<&'txn TableRows>,
}

/// A scan that another thread could use; no type implements this trait.
#[diagnostic::on_unimplemented(
    message = "a scan stays in the thread of its transaction: begin both inside, and drop them before `.await`",
    label = "a scan, and its rows, stay in their thread",
    note = "collect the rows into a `Vec`, which can be sent to another thread and held over `.await`"
)]
pub trait Transferable {}

#[expect(unsafe_code, reason = "no request meets the condition")]
// SAFETY: no type meets the condition. Without this impl, there would be an error for each private field that is not
// `Send`.
unsafe impl<'txn> Send for ScanRequest<'txn> where ScanRequest<'txn>: Transferable {}

#[expect(unsafe_code, reason = "no request meets the condition")]
// SAFETY: no type meets the condition, as above.
unsafe impl<'txn> Sync for ScanRequest<'txn> where ScanRequest<'txn>: Transferable {}

impl<'txn> ScanRequest<'txn> {
    pub(crate) fn new(
        reader: Result<Reader<'txn>, Box<Error>>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        source: Source,
        bounds: Bounds,
    ) -> Self {
        let (query, hashed) = bounds.into_query(source);
        let conditions = Conditions::of(hashed);
        let (after, before, totals) = (None, None, None);
        Self { reader, schema, ledger, query, conditions, after, before, totals }
    }

    /// Allows the request to count by the aggregates of the table.
    pub(crate) const fn use_totals(&mut self, rows: &'txn TableRows) {
        self.totals = Some(rows);
    }

    /// Returns the bytes of the first row.
    pub(crate) fn first_row(mut self) -> Result<Option<&'txn [u8]>> {
        self.query.limit = Some(1);
        self.reads_rows();
        self.scan(None).next_bytes(Ok).transpose()
    }

    /// Returns the encoded primary key of the first entry.
    pub(crate) fn first_key(mut self) -> Result<Option<Vec<u8>>> {
        self.query.limit = Some(1);
        let mut entries = self.cursor(None);
        Ok(entries.advance()?.then(|| entries.entry().primary_key.to_vec()))
    }

    /// Returns the first entries after a position, of the available shards, and the missing shards.
    pub(crate) fn first_entries(
        mut self,
        after: Option<&Position>,
        limit: u64,
    ) -> Result<(Vec<Position>, Vec<MissingShard>)> {
        let missing = MissingShard::all(self.leave_out_missing());
        self.query.limit = Some(limit);
        self.query.position = after.cloned();
        let (mut cursor, mut entries) = (self.cursor(None), Vec::new());
        while cursor.advance()? {
            let RawEntry { key, primary_key, .. } = cursor.entry();
            entries.push(Position { key: key.to_vec(), primary_key: primary_key.to_vec() });
        }
        Ok((entries, missing))
    }

    /// Returns a hash of the query, which identifies it in cursors.
    pub(super) fn query_hash(&self) -> u64 {
        cursor::query_hash(self.schema, &self.query)
    }

    /// Runs the query for entries that live as long as the transaction. `query_hash` is its
    /// [hash](ScanRequest::query_hash), if it has been computed.
    pub(super) fn scan(mut self, query_hash: Option<u64>) -> EntryScan<'txn, Entries<'txn>> {
        self.resolve(query_hash);
        let Self { reader, schema, ledger, query, conditions, .. } = self;
        EntryScan::scan(reader.map_err(|error| *error), schema, ledger, query, conditions.as_ref())
    }

    /// Runs the query for entries that are lent until the next step. `query_hash` is its
    /// [hash](ScanRequest::query_hash), if it has been computed.
    pub(super) fn cursor(mut self, query_hash: Option<u64>) -> EntryScan<'txn, LentEntries<'txn>> {
        self.resolve(query_hash);
        let Self { reader, schema, ledger, query, conditions, .. } = self;
        EntryScan::cursor(
            reader.map_err(|error| *error),
            schema,
            ledger,
            query,
            conditions.as_ref(),
        )
    }

    pub(crate) fn count(mut self) -> Result<u64> {
        if self.after.is_some() || self.before.is_some() {
            self.resolve_in_any_order();
        }
        if self.query.list.is_some() {
            return self.count_list();
        }
        let (reader, source) = (self.reader.map_err(|error| *error)?, self.query.source);
        if self.query.limit == Some(0) {
            return Ok(0);
        }
        if self.conditions.is_some() {
            let mut meter = self.ledger.meter(source, None);
            return matches::count(
                reader,
                self.schema,
                &mut meter,
                self.query,
                self.conditions.as_ref(),
            );
        }
        if let Some(rows) = self.totals
            && let Some((aggregate, group)) = total::group_of(rows, &self.query)
        {
            let GroupTotals { totals, seeks, .. } =
                total::of_group(reader, rows, aggregate, group)?;
            let count = Count { found: totals.count(), seeks, steps: 1 };
            self.ledger.count(source, count);
            return Ok(count.found);
        }
        let count = reader.count(&self.query)?;
        self.ledger.count(source, count);
        Ok(count.found)
    }

    /// Prepares the query for reading the rows of its entries.
    #[inline]
    pub(super) fn reads_rows(&mut self) {
        self.query.rows = true;
        if matches!(self.query.source, Source::Index(index) if self.schema.is_eventual(index)) {
            self.leaves_out_dangling();
        }
    }

    #[cold]
    fn leaves_out_dangling(&mut self) {
        let existence = self.conditions.as_ref().map_or(Existence::Unknown, |it| it.existence);
        if matches!(existence, Existence::Unknown) {
            Conditions::require(&mut self.conditions, Existence::Exists);
        }
    }

    /// Returns the query without its transaction, the values of hashed fields, and the stop.
    pub(super) fn detach(mut self) -> (Result<Query>, Option<Arc<Hashed>>, Option<Stop>) {
        self.resolve_in_any_order();
        if matches!(self.query.source, Source::Index(index) if self.schema.is_eventual(index)) {
            self.fail("its index is eventual; delete the rows of `verified()` one by one");
        }
        self.reject_tests("its `filter` borrows from the transaction; delete the rows one by one");
        let Conditions { hashed, stop, .. } =
            self.conditions.map_or_else(Conditions::default, |conditions| (*conditions).clone());
        (self.reader.map(|_| self.query).map_err(|error| *error), hashed, stop)
    }

    /// Makes a scan with filters fail, with this reason.
    pub(super) fn reject_tests(&mut self, reason: &'static str) {
        if self.conditions.as_ref().is_some_and(|conditions| !conditions.tests.is_empty()) {
            self.fail(reason);
        }
    }

    fn fail(&mut self, reason: &'static str) {
        if self.reader.is_ok() {
            let (table, index) = (self.schema.name, self.schema.index_name(self.query.source));
            self.reader = Err(Box::new(Error::NotCombinable { table, index, reason }));
        }
    }

    /// Counts the entries of a query with a list, range by range.
    #[cold]
    #[inline(never)]
    fn count_list(mut self) -> Result<u64> {
        let reader = self.reader.map_err(|error| *error)?;
        let mut left = self.query.limit.unwrap_or(u64::MAX);
        let mut position = self.query.position.clone();
        let mut meter = self.ledger.meter(self.query.source, None);
        let (limit, conditions) = (left, self.conditions.take());
        for query in Ranges::of(self.query) {
            if left == 0 {
                break;
            }
            let limit = query.limit.map(|_| left);
            let query = Query { limit, position: position.take(), ..query };
            let found =
                matches::count(reader, self.schema, &mut meter, query, conditions.as_ref())?;
            left = left.saturating_sub(found);
        }
        Ok(limit - left)
    }

    /// Sets the ends of the query to the cursors. This may reverse the query.
    fn resolve_in_any_order(&mut self) {
        if self.before.is_some() {
            self.turn_back(None);
        } else {
            self.resolve(None);
        }
    }

    /// Sets the position of the query to the cursor.
    pub(super) fn resolve(&mut self, query_hash: Option<u64>) {
        if self.before.is_some() {
            return self.stop_at_gap(query_hash);
        }
        let Some(cursor) = &self.after else { return };
        let query_hash = query_hash.unwrap_or_else(|| self.query_hash());
        match cursor.position_in(self.schema, &self.query, query_hash) {
            Ok(position) => self.query.position = Some(position),
            Err(error) if self.reader.is_ok() => self.reader = Err(Box::new(error)),
            Err(_) => {}
        }
    }
}
