//! The layouts of the entries of an index.

use super::blocks;
use crate::model::schema::{IndexSchema, Strategy, TableSchema};

/// Returns the layout of an index of a table by its name in the catalog.
pub(crate) fn layout(schema: &TableSchema, index: &IndexSchema) -> &'static str {
    Layout::of(schema, index).name()
}

/// The layout of the entries of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Key → primary key, data.
    Unique,
    /// Key and primary key → data.
    Entries,
    /// Key, or key and the first primary key of the block → primary keys of this length.
    Blocks { primary_key: usize },
}

impl Layout {
    pub(super) fn of(schema: &TableSchema, index: &IndexSchema) -> Self {
        match (index.has_one_entry_per_key(), index.strategy, schema.fixed_primary_key()) {
            (true, ..) => Self::Unique,
            (false, Strategy::Normalized, Some(primary_key @ ..=blocks::LONGEST)) => {
                Self::Blocks { primary_key }
            }
            _ => Self::Entries,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Entries => "entries",
            Self::Blocks { .. } => "blocks",
        }
    }
}
