//! The states of indexes in the catalog.

use serde::{Deserialize, Serialize};

use super::catalog::IndexRecord;
use crate::model::error::{Error, Result};

/// The record of an index that is not readable. A declared index without such a record is readable.
///
/// It is separate from the table's record, which has the declaration and does not change while the table is
/// in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StateRecord {
    /// Entries of rows are missing.
    Building(Building),
    /// It is unique, and an earlier release has emptied it for these rows.
    Emptied(Duplicates),
    /// It is no longer declared, and not maintained.
    Retired(Retired),
    /// It is eventual, and its queue was full: it is not maintained.
    Disabled,
    /// It is unique, and these rows violate it. It has the entries of all rows, and several of one key.
    Violated(Duplicates),
}

/// The first byte of [`StateRecord::Violated`] in the file.
const VIOLATED: u8 = 4;

/// The progress of the build of an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Building {
    /// The primary key of the last row that the build has read.
    pub(crate) behind: Option<Vec<u8>>,
    /// The number of rows that it has read.
    pub(crate) rows: u64,
    /// The number of rows in the table at the last batch.
    pub(crate) of: u64,
    /// The duplicates that it has found.
    pub(crate) duplicates: Duplicates,
}

/// The last declaration of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Retired {
    /// The version of the rows at that time.
    pub(crate) version: u32,
    pub(crate) index: IndexRecord,
}

/// The number of listed duplicates.
pub(crate) const LISTED: usize = 100;

/// Rows whose key in a unique index another row has too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicates {
    /// Their number.
    pub count: u64,
    /// The first hundred of them.
    pub first: Vec<Duplicate>,
}

/// A row whose key in a unique index another row has too. Keys are shown as in errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicate {
    /// The key in the index, with the values of hashed fields.
    pub key: String,
    /// The primary key of the first row with it.
    pub holder: String,
    /// The primary key of the other row.
    pub row: String,
}

impl Duplicates {
    /// Adds duplicates, of which one is described.
    pub(crate) fn add(&mut self, count: u64, duplicate: impl FnOnce() -> Duplicate) {
        self.count += count;
        if self.first.len() < LISTED {
            self.first.push(duplicate());
        }
    }
}

/// Whether a record of a part of a table is about an index: names of indexes are identifiers, and versions of
/// rows are numbers.
pub(crate) fn is_index(part: &str) -> bool {
    !part.starts_with(|first: char| first.is_ascii_digit())
}

impl StateRecord {
    pub(crate) fn encode(&self, table: &'static str) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::Codec { table, reason: error.to_string() })
    }

    /// The error for opening a table whose index has a damaged state.
    #[cold]
    pub(crate) fn unreadable(table: &'static str, index: &str) -> Error {
        Error::SchemaMismatch {
            table,
            difference: format!("the state of its index `{index}` can't be read"),
            way_out: "open it with the release of index-table that wrote it, or a later one",
        }
    }

    /// `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((state, [])) => Some(state),
            _ => None,
        }
    }

    /// Whether a state is [`StateRecord::Violated`], without decoding its list.
    pub(crate) fn is_violated(bytes: &[u8]) -> bool {
        bytes.first() == Some(&VIOLATED)
    }

    /// An index that is no longer declared.
    pub(crate) fn retired(self) -> Option<Retired> {
        match self {
            Self::Retired(retired) => Some(retired),
            Self::Building(_) | Self::Emptied(_) | Self::Violated(_) | Self::Disabled => None,
        }
    }
}

/// Whether an index is readable, and if not, the reason; see [`Catalog`](crate::Catalog) and
/// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum IndexState {
    /// It has the entries of all rows.
    Readable,
    /// It is under construction: writers maintain it, and entries of older rows are missing.
    #[non_exhaustive]
    Building {
        /// The number of rows that the build has read.
        rows: u64,
        /// The number of rows in the table at its last batch.
        of: u64,
        /// The duplicates so far, if the index is unique.
        duplicates: Duplicates,
    },
    /// It is unique, and the last build has found rows with the same key. Until a `build` of the repository
    /// finds no duplicates, it is maintained and read like an index that isn't unique: a scan returns all
    /// rows of a key, writes are not refused for their keys, and a look-up of one row (`get_by_…`) fails with
    /// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
    Violated(Duplicates),
    /// It is eventual and no longer maintained, because its queue was full
    /// ([`WhenFull::Disable`](crate::WhenFull::Disable)). The repository's `build`, or opening the table,
    /// rebuilds it.
    Disabled,
    /// It is no longer declared: it is kept but not maintained, until
    /// [`drop_retired`](crate::Store::drop_retired), or until it is declared again and built.
    Retired,
}

impl IndexState {
    /// The duplicates in a unique index: those that its build has found so far, or, if it is violated, all
    /// that its last build has found.
    #[must_use]
    pub const fn duplicates(&self) -> Option<&Duplicates> {
        match self {
            Self::Building { duplicates, .. } | Self::Violated(duplicates) => Some(duplicates),
            Self::Readable | Self::Retired | Self::Disabled => None,
        }
    }

    pub(crate) fn of(state: StateRecord) -> Self {
        match state {
            StateRecord::Building(building) => Self::Building {
                rows: building.rows,
                of: building.of,
                duplicates: building.duplicates,
            },
            StateRecord::Violated(duplicates) => Self::Violated(duplicates),
            // Its build starts at the first row.
            StateRecord::Emptied(duplicates) => Self::Building { rows: 0, of: 0, duplicates },
            StateRecord::Retired(_) => Self::Retired,
            StateRecord::Disabled => Self::Disabled,
        }
    }
}
