//! A table in one engine or in several shards.

use std::sync::{Arc, OnceLock};

use crate::{
    engine,
    model::{reference::Referrer, schema::Source},
    placement::shards::{self, CurrentRouting},
};

/// The databases of one table.
pub(crate) enum Tables {
    /// In the engine of a store with one data file, or of a shard, which also belongs to [`shards::Tables`]. If the store has
    /// grown since, `grown` has the same databases and those in other shards.
    One {
        tables: Arc<engine::Tables>,
        grown: OnceLock<shards::Tables>,
    },
    Several(shards::Tables),
}

impl From<engine::Tables> for Tables {
    fn from(tables: engine::Tables) -> Self {
        Self::One { tables: Arc::new(tables), grown: OnceLock::new() }
    }
}

impl Tables {
    /// Adds the databases in the shards, because the store has grown.
    pub(crate) fn grow(&self, tables: shards::Tables) {
        if let Self::One { grown, .. } = self {
            let _ = grown.set(tables);
        }
    }

    /// Whether older snapshots can read the table: it was in the file when the store was opened, or was opened
    /// before.
    pub(crate) fn were_known(&self) -> bool {
        match self {
            Self::One { tables, .. } => tables.were_known(),
            Self::Several(tables) => tables.were_known(),
        }
    }

    /// Returns the table in its only engine, or in the only engine that the store had before it has grown; `None` if it was opened
    /// in several shards.
    #[inline]
    pub(crate) const fn one(&self) -> Option<&Arc<engine::Tables>> {
        match self {
            Self::One { tables, .. } => Some(tables),
            Self::Several(_) => None,
        }
    }

    /// Returns the table in its shards; `None` if it is in one engine.
    #[inline]
    pub(crate) fn several(&self) -> Option<&shards::Tables> {
        match self {
            Self::One { grown, .. } => grown.get(),
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
        if let (Some(tables), Some(of)) = (self.one(), of.one()) {
            tables.link(by, of, source);
        }
    }
}
