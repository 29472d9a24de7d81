//! The states of indexes in the catalog.

use serde::{Deserialize, Serialize};

use super::catalog::IndexRecord;
use crate::model::{
    error::{Error, Result},
    index_state::{Duplicates, IndexState},
    reference::MARK,
};

/// The record of an index that is not readable. A declared index without such a record is readable.
///
/// The state is not part of the table's record, because the record has the declaration and does not change
/// while the table is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StateRecord {
    /// The index lacks the entries of some rows.
    Building(Building),
    /// The index is unique, and an earlier release has emptied it because of these duplicates.
    Emptied(Duplicates),
    /// The index is no longer declared, and not maintained.
    Retired(KeptDeclaration),
    /// The index is eventual, and not maintained because its queue was full.
    Disabled,
    /// The index is unique, and these rows violate it. It has the entries of all rows, so some keys have
    /// several entries.
    Violated(Duplicates),
    /// The index is declared by clients of a later release, and not yet maintained, because clients of earlier releases write the
    /// table. Its entries, if any, are of another declaration.
    Announced(KeptDeclaration),
}

/// The first byte of [`StateRecord::Violated`] in the file.
const VIOLATED: u8 = 4;

/// The progress of the build of an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Building {
    /// The primary key of the last row that the build has read.
    pub(crate) last_read: Option<Vec<u8>>,
    /// The number of rows that the build has read.
    pub(crate) rows: u64,
    /// The number of rows in the table at the last batch.
    pub(crate) total: u64,
    /// The duplicates that the build has found.
    pub(crate) duplicates: Duplicates,
}

/// The declaration of an index that is not in the table's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptDeclaration {
    /// The version of the rows of the declaration.
    pub(crate) version: u32,
    pub(crate) index: IndexRecord,
}

/// The part of a table with its kept analysis. It begins with [`MARK`], and is no reference.
pub(crate) const ANALYSIS: &str = "@analysis";

/// The part of a renamed table with the names of its databases. A release without support for it reads a reference that it can't
/// decode, and does not open the table.
pub(crate) const DATABASES: &str = "@.databases";

/// Whether a record of a part of a table has names of databases. With a dot and the name of an index after [`DATABASES`], it has the
/// name of the database of a renamed index.
pub(crate) fn names_databases(part: &str) -> bool {
    part.strip_prefix(DATABASES).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether the record of a part of a table concerns an index. Names of indexes are identifiers, versions of rows are
/// numbers, and references to the table begin with [`MARK`].
pub(crate) fn is_index(part: &str) -> bool {
    !part.starts_with(|first: char| first.is_ascii_digit() || first == MARK)
}

impl StateRecord {
    pub(crate) fn encode(&self, table: &'static str) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::Codec { table, reason: error.to_string() })
    }

    /// Returns the error for opening a table with a damaged state of an index.
    #[cold]
    pub(crate) fn unreadable(table: &'static str, index: &str) -> Error {
        Error::SchemaMismatch {
            table,
            difference: format!("the state of its index `{index}` can't be read"),
            way_out: "open it with the release of index-table that wrote it, or a later one",
        }
    }

    /// Decodes a state. Returns `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((state, [])) => Some(state),
            _ => None,
        }
    }

    /// Merges this state of an index in a shard with its state in other shards. The index is under construction if it is
    /// in one of them, and violated if it has the entries of all rows.
    pub(crate) fn merged(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        match (self, other) {
            (Self::Building(mut building), Self::Building(other)) => {
                building.rows += other.rows;
                building.total += other.total;
                building.duplicates.join(other.duplicates);
                // The shards have positions of their own.
                building.last_read = None;
                Self::Building(building)
            }
            (Self::Building(mut building), Self::Violated(duplicates))
            | (Self::Violated(duplicates), Self::Building(mut building)) => {
                building.duplicates.join(duplicates);
                Self::Building(building)
            }
            (Self::Violated(mut duplicates), Self::Violated(others)) => {
                duplicates.join(others);
                Self::Violated(duplicates)
            }
            (Self::Violated(_), other) => other,
            (own, _) => own,
        }
    }

    /// Whether a state is [`StateRecord::Violated`], without decoding its list.
    pub(crate) fn is_violated(bytes: &[u8]) -> bool {
        bytes.first() == Some(&VIOLATED)
    }

    /// Returns the declaration of an index that is not in the table's record.
    pub(crate) fn kept(self) -> Option<KeptDeclaration> {
        match self {
            Self::Retired(kept) | Self::Announced(kept) => Some(kept),
            Self::Building(_) | Self::Emptied(_) | Self::Violated(_) | Self::Disabled => None,
        }
    }
}

impl From<StateRecord> for IndexState {
    fn from(state: StateRecord) -> Self {
        match state {
            StateRecord::Building(building) => Self::Building {
                rows: building.rows,
                of: building.total,
                duplicates: building.duplicates,
            },
            StateRecord::Violated(duplicates) => Self::Violated(duplicates),
            // The build starts at the first row.
            StateRecord::Emptied(duplicates) => Self::Building { rows: 0, of: 0, duplicates },
            StateRecord::Retired(_) => Self::Retired,
            StateRecord::Disabled => Self::Disabled,
            StateRecord::Announced(_) => Self::Announced,
        }
    }
}
