//! A table in one engine or in several shards.

use std::sync::Arc;

use crate::{
    engine,
    model::{reference::Referrer, schema::Source},
    placement::shards::{self, CurrentRouting},
};

/// The databases of one table.
pub(crate) enum Tables {
    /// In the engine of a store with one data file, or of a shard, which also belongs to [`shards::Tables`].
    One(Arc<engine::Tables>),
    Several(shards::Tables),
}

impl From<engine::Tables> for Tables {
    fn from(tables: engine::Tables) -> Self {
        Self::One(Arc::new(tables))
    }
}

impl Tables {
    /// Whether older snapshots can read the table: it was in the file when the store was opened, or was opened
    /// before.
    pub(crate) fn were_known(&self) -> bool {
        match self {
            Self::One(tables) => tables.were_known(),
            Self::Several(tables) => tables.were_known(),
        }
    }

    /// Returns the table in its engine; `None` if it is in several shards.
    pub(crate) const fn one(&self) -> Option<&Arc<engine::Tables>> {
        match self {
            Self::One(tables) => Some(tables),
            Self::Several(_) => None,
        }
    }

    /// Returns the table in its shards; `None` if it is in one engine.
    pub(crate) const fn several(&self) -> Option<&shards::Tables> {
        match self {
            Self::One(_) => None,
            Self::Several(tables) => Some(tables),
        }
    }

    /// Returns the current mapping of rows to shards; `None` in one engine.
    pub(crate) fn routing(&self) -> Option<CurrentRouting<'_>> {
        self.several().map(shards::Tables::routing)
    }

    /// Whether the rows can be in several shards.
    pub(crate) fn are_split(&self) -> bool {
        self.routing().is_some_and(|routing| routing.is_split())
    }

    /// Adds a reference of the table `of` to this table. The table `of` was opened last.
    pub(crate) fn link(&self, by: Referrer, of: &Self, source: Source) {
        if let (Self::One(tables), Self::One(of)) = (self, of) {
            tables.link(by, of, source);
        }
    }
}
