//! Global indexes: the shard of an entry depends on its index key, and not on its row.
//!
//! All entries with the same index key are in one shard. So the uniqueness of a key can be checked in a single shard.
//! The bytes of an index key determine the shard in one of two ways:
//!
//! - *A hash map*, the default: the hash of the whole index key determines the slot. A query with all fields of the
//!   index reads one shard. Every other query reads all shards.
//! - *A map of ranges or a list* over the leading fields of the index. The encodings of fields are self-delimiting, so
//!   an index key can be compared with the boundaries directly. A query reads the shards whose segments overlap its
//!   bounds.

use std::sync::Arc;

use super::{
    Boundaries, HASHED, ShardNumber,
    key::{len_of, slot, type_name},
    routing::{Shards, Span},
};
use crate::model::{KeyRange, schema::KeyField};

/// The locations of the entries of one global index.
#[derive(Debug, Clone)]
pub(crate) struct GlobalIndex {
    /// The position of the index.
    pub(super) index: usize,
    key: &'static [KeyField],
    /// The name of the shard map.
    map: String,
    hashed: bool,
    boundaries: Arc<Boundaries>,
    /// The shards that can have entries, sorted and without duplicates.
    pub(super) shards: Vec<ShardNumber>,
}

/// Returns the name of the shard map of a global index.
pub(crate) fn map_of(table: &str, index: &str) -> String {
    format!("{table}.{index}")
}

/// Whether a shard map with keys of this type distributes the entries of an index: it is a hash map, or its keys are
/// the leading fields of the index.
pub(crate) fn can_distribute(key_type: &str, key: &'static [KeyField]) -> bool {
    key_type == HASHED
        || (1..=key.len())
            .filter_map(|fields| key.get(..fields))
            .any(|it| type_name(it) == key_type)
}

impl GlobalIndex {
    /// Creates the locations of the entries of the index at this position, whose keys have the fields `key`.
    pub(crate) fn new(
        index: usize,
        key: &'static [KeyField],
        map: String,
        key_type: &str,
        boundaries: Arc<Boundaries>,
    ) -> Self {
        let shards = boundaries.shards();
        Self { index, key, map, hashed: key_type == HASHED, boundaries, shards }
    }

    /// Returns the index with other boundaries of its shard map.
    pub(super) fn with(&self, boundaries: Arc<Boundaries>) -> Self {
        let shards = boundaries.shards();
        Self { map: self.map.clone(), boundaries, shards, ..*self }
    }

    /// Returns the position of the index.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the shard map.
    pub(crate) fn map(&self) -> &str {
        &self.map
    }

    /// Returns the shards that can have entries, sorted and without duplicates.
    pub(crate) fn shards(&self) -> &[ShardNumber] {
        &self.shards
    }

    /// Returns the shard of the entries with this index key; `None` if no shard has it.
    pub(crate) fn shard_of(&self, key: &[u8]) -> Option<ShardNumber> {
        if self.hashed {
            self.boundaries.shard_of(&slot(key))
        } else {
            self.boundaries.shard_of(key)
        }
    }

    /// Returns the shards that can have entries within `bounds`, sorted and without duplicates. There may be none.
    pub(super) fn shards_of(&self, bounds: &KeyRange) -> Shards<'_> {
        let span = Span::of(bounds);
        let whole_key = || {
            let common = span.start.get(..span.common)?;
            common.get(..len_of(self.key.iter().map(|field| &field.shape), common)?)
        };
        match whole_key() {
            Some(key) => match self.shard_of(key) {
                Some(shard) => Shards::One([shard]),
                None => Shards::Some(Vec::new()),
            },
            None if self.hashed => Shards::All(&self.shards),
            None => Shards::Some(self.boundaries.shards_within(span.start, span.end.as_deref())),
        }
    }
}
