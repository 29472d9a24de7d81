//! Entries in the order of their database, one at a time.

use super::EntryResult;
use crate::model::{entry::RawEntry, error::Result};

/// Entries of a scan that live as long as the transaction is borrowed.
pub(crate) trait LongLived<'t>: Iterator<Item = EntryResult<'t>> {
    /// The row of the last entry, where the engine has joined it; see [`Query::rows`](super::Query::rows).
    #[inline]
    fn row(&self) -> Option<&'t [u8]> {
        None
    }
}

/// Entries of a scan, each lent until the next step.
pub(crate) trait Cursor {
    /// The next entry.
    fn advance(&mut self) -> Option<EntryResult<'_>>;
}

/// Entries that a caller hands to an engine; see [`Write::append`](super::Write::append).
pub(crate) trait Ascending {
    /// The next entry.
    fn next(&mut self) -> Result<Option<RawEntry<'_>>>;
}
