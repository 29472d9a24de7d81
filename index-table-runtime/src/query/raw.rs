//! The rows of a query as bytes, for code without their type.

use super::{
    Cursor, ScanRequest,
    entry_scan::{EntryScan, KeyAndRow, ReadRow},
};
use crate::{model::error::Result, placement::LentEntries};

/// The rows of a running query. Ends after the first error.
pub(crate) struct RawRows<'txn> {
    scan: EntryScan<'txn, LentEntries<'txn>>,
}

impl RawRows<'_> {
    /// Returns the encoded primary key and the bytes of the next row.
    pub(crate) fn next(&mut self) -> Result<Option<KeyAndRow<'_>>> {
        Ok(self.scan.next_bytes()?)
    }
}

impl<'txn> ScanRequest<'txn> {
    /// Runs the query for its rows.
    pub(crate) fn raw_rows(mut self) -> RawRows<'txn> {
        self.reads_rows();
        RawRows { scan: self.cursor(None) }
    }

    /// Passes the rows of a page to `read`, the last ones first before a cursor. Returns the cursors to the next and the previous
    /// page.
    pub(crate) fn raw_page(
        mut self,
        size: usize,
        read: &mut ReadRow<'_>,
    ) -> Result<[Option<Cursor>; 2]> {
        self.reads_rows();
        self.page_of_rows(size, read)
    }

    pub(crate) const fn turn(&mut self) {
        self.query.reverse = !self.query.reverse;
    }

    pub(crate) fn limit_to(&mut self, limit: u64) {
        let limits = &mut self.query.limit;
        *limits = Some(limits.map_or(limit, |other| other.min(limit)));
    }

    /// Sets the cursors between which the rows are.
    pub(crate) fn set_gaps(&mut self, after: Option<&Cursor>, before: Option<&Cursor>) {
        self.after = after.cloned().or_else(|| self.after.take());
        self.before = before.cloned().or_else(|| self.before.take());
    }

    /// Whether the rows are read from the end, before a cursor.
    pub(crate) const fn is_backward(&self) -> bool {
        self.before.is_some()
    }
}
