//! Iteration over entries in the order of their database.

use super::EntryResult;
use crate::model::{
    entry::RawEntry,
    error::{Boxed, Result},
};

/// Entries of a scan that live as long as the transaction is borrowed.
pub(crate) trait LongLived<'t>: Iterator<Item = EntryResult<'t>> {
    /// Returns the row of the last entry, if the engine has joined it; see
    /// [`Query::rows`](super::Query::rows).
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        None
    }
}

/// The entries of a scan. Each is borrowed until the next step.
///
/// The step and the entry are separate methods, so that a caller can step over entries and then borrow the
/// last one.
pub(crate) trait Cursor {
    /// Steps to the next entry. Returns false at the end.
    fn advance(&mut self) -> Result<bool, Boxed>;

    /// Returns the entry of the last step. If that step failed or reached the end, the result is arbitrary.
    fn entry(&self) -> RawEntry<'_>;

    /// Returns the row of the last entry, if the engine has joined it; see
    /// [`Query::rows`](super::Query::rows).
    #[inline]
    fn row(&self) -> Option<&[u8]> {
        None
    }
}

/// Entries that a caller passes to an engine; see [`Write::append`](super::Write::append).
pub(crate) trait Ascending {
    /// Returns the next entry.
    fn next(&mut self) -> Result<Option<RawEntry<'_>>>;
}
