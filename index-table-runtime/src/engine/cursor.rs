//! Entries in the order of their database, one at a time.

use super::EntryResult;
use crate::model::{
    entry::RawEntry,
    error::{Boxed, Result},
};

/// Entries of a scan that live as long as the transaction is borrowed.
pub(crate) trait LongLived<'t>: Iterator<Item = EntryResult<'t>> {
    /// The row of the last entry, if the engine has joined it; see [`Query::rows`](super::Query::rows).
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        None
    }
}

/// Entries of a scan, each lent until the next step.
///
/// The step and the entry are two methods, so that a caller can step over entries and then borrow the last
/// one.
pub(crate) trait Cursor {
    /// Steps to the next entry; `false` at the end.
    fn advance(&mut self) -> Result<bool, Boxed>;

    /// The entry of the last step, if that was successful; otherwise, any entry.
    fn entry(&self) -> RawEntry<'_>;

    /// The row of that entry, if the engine has joined it; see [`Query::rows`](super::Query::rows).
    #[inline]
    fn row(&self) -> Option<&[u8]> {
        None
    }
}

/// Entries that a caller passes to an engine; see [`Write::append`](super::Write::append).
pub(crate) trait Ascending {
    /// The next entry.
    fn next(&mut self) -> Result<Option<RawEntry<'_>>>;
}
