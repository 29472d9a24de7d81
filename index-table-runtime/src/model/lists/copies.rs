//! The two copies of the record of a table's lists in a data file.
//!
//! No row can be read without its list, so the record stands twice, in pages of two databases. One of them is enough. Both are
//! written in one transaction, so a crash can't make them differ. They differ if one was damaged, if the disk has lost a write, or
//! if an earlier release wrote the file with one copy. The catalog of rows only grows, so the copy that extends the other one has the
//! lists of all rows. If neither does, it is unknown which of them the rows have.

use std::fmt;

use index_table_rows::Catalog;

use super::record::decode;
use crate::model::{
    error::{Error, LISTS_KEY},
    key::kept_text,
};

/// The fault of the copy that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyFault {
    copy: &'static str,
    reason: &'static str,
}

impl fmt::Display for CopyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy, reason } = self;
        write!(f, "the {copy} copy of their record {reason}, and the other copy is intact")
    }
}

impl CopyFault {
    /// Whether the copy is intact, and the other one has more lists.
    pub(crate) fn is_earlier(&self) -> bool {
        self.reason == EARLIER
    }

    fn error(&self, table: &'static str) -> Error {
        corrupt(
            table,
            format!(
                "{self}; the rows can be read, and opening the table for writing writes that copy again"
            ),
        )
    }
}

/// No copy can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusable(&'static str);

impl Unusable {
    /// The copies that this process has read or written are no longer there.
    pub(crate) const GONE: Self = Self("both copies of their record are missing");
    pub(super) const DAMAGED: Self = Self("no copy of their record is intact");
    pub(super) const CONTRADICTING: Self =
        Self("the two copies of their record contradict each other");

    #[cold]
    pub(crate) fn error(self, table: &'static str) -> Error {
        let Self(reason) = self;
        corrupt(
            table,
            format!("{reason}; restore the directory from a copy, because its rows can't be read"),
        )
    }
}

fn corrupt(table: &'static str, reason: String) -> Error {
    Error::Corrupt { table, index: None, key: LISTS_KEY.to_owned(), reason }
}

/// The copy that is used.
#[derive(Debug, PartialEq)]
pub(crate) struct Found<'r> {
    pub(crate) catalog: Catalog,
    /// Its bytes.
    pub(crate) record: &'r [u8],
    /// The fault of the other copy.
    pub(crate) fault: Option<CopyFault>,
}

/// Chooses one of the copies. `None` if the file has no lists of the table.
///
/// # Errors
///
/// [`Unusable`] if no copy is intact, or if they contradict each other.
pub(crate) fn choose<'r>(
    first: Option<&'r [u8]>,
    second: Option<&'r [u8]>,
) -> Result<Option<Found<'r>>, Unusable> {
    let (used, fault) = match (read(first), read(second)) {
        _ if first.is_none() && second.is_none() => return Ok(None),
        (Ok(used), Ok((_, other))) if used.1 == other => (used, None),
        (Ok(used), Ok((other, _))) if used.0.extends(&other) => (used, Some((SECOND, EARLIER))),
        (Ok((other, _)), Ok(used)) if used.0.extends(&other) => (used, Some((FIRST, EARLIER))),
        (Ok(_), Ok(_)) => return Err(Unusable::CONTRADICTING),
        (Ok(used), Err(reason)) => (used, Some((SECOND, reason))),
        (Err(reason), Ok(used)) => (used, Some((FIRST, reason))),
        (Err(_), Err(_)) => return Err(Unusable::DAMAGED),
    };
    let (catalog, record) = used;
    let fault = fault.map(|(copy, reason)| CopyFault { copy, reason });
    Ok(Some(Found { catalog, record, fault }))
}

/// Checks the copies in a data file.
///
/// # Errors
///
/// [`Error::Corrupt`] with the fault of a copy, or of both.
pub(crate) fn check(table: &str, first: Option<&[u8]>, second: Option<&[u8]>) -> Result<(), Error> {
    match choose(first, second) {
        Ok(None | Some(Found { fault: None, .. })) => Ok(()),
        Ok(Some(Found { fault: Some(fault), .. })) => Err(fault.error(kept_text(table))),
        Err(unusable) => Err(unusable.error(kept_text(table))),
    }
}

/// The copy in the catalog.
const FIRST: &str = "first";
/// The copy in the database of second copies.
const SECOND: &str = "second";

const MISSING: &str = "is missing";
const DAMAGED: &str = "is damaged";
const EARLIER: &str = "lacks lists";

fn read(record: Option<&[u8]>) -> Result<(Catalog, &[u8]), &'static str> {
    let record = record.ok_or(MISSING)?;
    Ok((decode(record).ok_or(DAMAGED)?, record))
}
