//! The layouts of the entries of an index.

use super::blocks;
use crate::model::{
    entry::LONGEST_SHORT_KEY,
    schema::{IndexSchema, Strategy, TableSchema},
};

/// Returns the layout of an index of a table by its name in the catalog.
pub(crate) fn layout(schema: &TableSchema, index: &IndexSchema) -> &'static str {
    Layout::of(schema, index).name()
}

/// The layout of the entries of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Key → primary key, data.
    Unique,
    /// Key → [short](super::short) primary key. The whole one has this length.
    ShortUnique { primary_key: usize },
    /// Key and primary key → data.
    Entries,
    /// Key, or key and the first primary key of the block → primary keys of this length, as a [block](blocks).
    Blocks { primary_key: usize },
}

/// Returns the length of the primary keys that the values of an index leave short; `None` if they are whole. The index
/// has one entry for each key, and `primary_key` is the length of the table's primary keys, if it is fixed.
pub(super) fn short_unique(index: &IndexSchema, primary_key: Option<usize>) -> Option<usize> {
    let is_reference = index.has_one_entry_per_key() && index.strategy == Strategy::Normalized;
    primary_key.filter(|len| is_reference && *len <= LONGEST_SHORT_KEY)
}

impl Layout {
    pub(super) fn of(schema: &TableSchema, index: &IndexSchema) -> Self {
        let fixed = schema.fixed_primary_key();
        match (index.has_one_entry_per_key(), index.strategy, fixed) {
            (true, ..) => match short_unique(index, fixed) {
                Some(primary_key) => Self::ShortUnique { primary_key },
                None => Self::Unique,
            },
            (false, Strategy::Normalized, Some(primary_key @ ..=blocks::LONGEST)) => {
                Self::Blocks { primary_key }
            }
            _ => Self::Entries,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::ShortUnique { .. } => "short-unique",
            Self::Entries => "entries",
            Self::Blocks { .. } => "short-blocks",
        }
    }
}
