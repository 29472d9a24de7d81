//! The state of an index, as the catalog lists it and errors have it.

use serde::{Deserialize, Serialize};

/// The maximum number of listed duplicates.
pub(crate) const LISTED: usize = 100;

/// Rows with the same key in a unique index as another row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicates {
    /// The number of these rows.
    pub count: u64,
    /// The first hundred of these rows.
    pub first: Vec<Duplicate>,
}

/// A row with the same key in a unique index as another row. Keys are formatted as in errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Duplicate {
    /// The key in the index, with the values of hashed fields.
    pub key: String,
    /// The primary key of the first row with this key.
    pub holder: String,
    /// The primary key of the other row.
    pub row: String,
}

impl Duplicates {
    /// Adds a number of duplicates, and the description of one of them.
    pub(crate) fn add(&mut self, count: u64, duplicate: impl FnOnce() -> Duplicate) {
        self.count += count;
        if self.first.len() < LISTED {
            self.first.push(duplicate());
        }
    }

    /// Adds the duplicates in another shard.
    pub(crate) fn join(&mut self, other: Self) {
        self.count += other.count;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }
}

/// The state of an index: readable, or the reason why not. See [`Catalog`](crate::Catalog) and
/// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum IndexState {
    /// The index has the entries of all rows.
    Readable,
    /// The index is under construction. Writers maintain it, but entries of older rows are missing.
    #[non_exhaustive]
    Building {
        /// The number of rows that the build has read.
        rows: u64,
        /// The number of rows in the table at the last batch of the build.
        of: u64,
        /// The duplicates so far, if the index is unique.
        duplicates: Duplicates,
    },
    /// The index is unique, and the last build has found rows with the same key. Until a `build` of the
    /// repository finds no duplicates, the index is maintained and read like an index that isn't unique: a
    /// scan returns all rows of a key, and writes do not fail because of their keys. A look-up of one row
    /// (`get_by_…`) fails with [`Error::IndexNotReadable`](crate::Error::IndexNotReadable).
    Violated(Duplicates),
    /// The index is eventual and no longer maintained, because its queue was full
    /// ([`WhenFull::Disable`](crate::WhenFull::Disable)). The repository's `build`, or opening the table,
    /// rebuilds the index.
    Disabled,
    /// The index is no longer declared. It stays in the file, but is not maintained, until
    /// [`drop_retired`](crate::Store::drop_retired) removes it, or until it is declared again and built.
    Retired,
    /// The index is declared by this release of the program, and not maintained yet, because a client of an earlier release has
    /// the table open. It is built when the last such client has ended: by a thread of the store, by the repository's `build`, or
    /// when a client opens the table.
    Announced,
}

impl IndexState {
    /// Returns the duplicates in a unique index: those found so far by its build, or, if the index is
    /// violated, all those found by its last build.
    #[must_use]
    pub const fn duplicates(&self) -> Option<&Duplicates> {
        match self {
            Self::Building { duplicates, .. } | Self::Violated(duplicates) => Some(duplicates),
            Self::Readable | Self::Retired | Self::Disabled | Self::Announced => None,
        }
    }
}
