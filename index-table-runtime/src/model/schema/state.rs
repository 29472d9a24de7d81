//! The states of indexes, as the catalog has them.

use serde::{Deserialize, Serialize};

use super::catalog::IndexRecord;
use crate::model::error::{Error, Result};

/// What the catalog has under the name of an index that is not readable. An index that is declared
/// and has no such record is readable.
///
/// It is beside the table's record and not in it: that one says what is declared, and stays the
/// same while the table is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StateRecord {
    /// Entries of rows are missing.
    Building(Building),
    /// It is unique, and an earlier release has emptied it for these rows.
    Emptied(Duplicates),
    /// It is not declared any more, and not kept up.
    Retired(Retired),
    /// It is eventual, and its queue was full: it is not kept up.
    Disabled,
    /// It is unique, and these rows violate it. It has the entries of all rows, and several of one key.
    Violated(Duplicates),
}

/// What [`StateRecord::Violated`] begins with in the file.
const VIOLATED: u8 = 4;

/// How far the build of an index is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Building {
    /// The primary key of the last row that the build has been at.
    pub(crate) behind: Option<Vec<u8>>,
    /// How many rows it has been at.
    pub(crate) rows: u64,
    /// How many rows there were, at the last step.
    pub(crate) of: u64,
    /// What it has met.
    pub(crate) duplicates: Duplicates,
}

/// An index as it was declared last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Retired {
    /// The version of the rows at that time.
    pub(crate) version: u32,
    pub(crate) index: IndexRecord,
}

/// How many duplicates are listed.
pub(crate) const LISTED: usize = 100;

/// Rows whose key in a unique index another row has already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicates {
    /// How many there are.
    pub count: u64,
    /// The first hundred of them.
    pub first: Vec<Duplicate>,
}

/// A row whose key in a unique index another row has already. Keys are as errors show them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicate {
    /// The key in the index, with the values of hashed fields.
    pub key: String,
    /// The primary key of the row that has it.
    pub holder: String,
    /// The primary key of the other row.
    pub row: String,
}

impl Duplicates {
    /// Adds so many, of which one is described.
    pub(crate) fn add(&mut self, count: u64, duplicate: impl FnOnce() -> Duplicate) {
        self.count += count;
        if self.first.len() < LISTED {
            self.first.push(duplicate());
        }
    }
}

/// Whether a part of a table that the catalog has something for is an index: their names are those
/// of identifiers, and versions of rows are numbers.
pub(crate) fn is_index(part: &str) -> bool {
    !part.starts_with(|first: char| first.is_ascii_digit())
}

impl StateRecord {
    pub(crate) fn encode(&self, table: &'static str) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::Codec { table, reason: error.to_string() })
    }

    /// What opening a table whose index has a damaged state fails with.
    #[cold]
    pub(crate) fn unreadable(table: &'static str, index: &str) -> Error {
        Error::SchemaMismatch {
            table,
            difference: format!("the state of its index `{index}` can't be read"),
            way_out: "open it with the release of index-table that wrote it, or a later one",
        }
    }

    /// `None`: it is damaged.
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

    /// What is not declared any more.
    pub(crate) fn retired(self) -> Option<Retired> {
        match self {
            Self::Retired(retired) => Some(retired),
            Self::Building(_) | Self::Emptied(_) | Self::Violated(_) | Self::Disabled => None,
        }
    }
}

/// Whether an index can be asked, and if not, why; see [`Catalog`](crate::Catalog) and
/// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum IndexState {
    /// It has the entries of all rows.
    Readable,
    /// It is being built: writers keep it up, and rows that were there before are missing.
    #[non_exhaustive]
    Building {
        /// How many rows the build has been at.
        rows: u64,
        /// How many rows there were at its last step.
        of: u64,
        /// The rows so far whose key in a unique index another row has already.
        duplicates: Duplicates,
    },
    /// It is unique, and rows had the same keys when it was built last. Until a `build` of the repository
    /// finds no duplicates, it is maintained and read like an index that isn't unique: a scan gives all rows
    /// of a key, writes are not refused for their keys, and a look-up of one row (`get_by_…`) fails with
    /// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
    Violated(Duplicates),
    /// It is eventual and no longer maintained, because its queue was full
    /// ([`WhenFull::Disable`](crate::WhenFull::Disable)). The repository's `build`, or opening the table, builds
    /// it again.
    Disabled,
    /// It is no longer declared: it is kept but not maintained, until
    /// [`drop_retired`](crate::Store::drop_retired), or until it is declared again and built.
    Retired,
}

impl IndexState {
    /// The rows that stand in the way of a unique index: those that its build has met so far, or, if it is
    /// violated, all that its last build has found.
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
            // Its build begins with the first row.
            StateRecord::Emptied(duplicates) => Self::Building { rows: 0, of: 0, duplicates },
            StateRecord::Retired(_) => Self::Retired,
            StateRecord::Disabled => Self::Disabled,
        }
    }
}
