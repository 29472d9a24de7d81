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

use std::{borrow::Cow, sync::Arc};

use super::{
    Boundaries, HASHED, ShardNumber,
    key::{len_of, show_slot, slot, type_name},
    routing::{Shards, Span},
};
use crate::model::{KeyRange, key::show_leading, schema::KeyField};

/// The locations of the entries of one global index.
#[derive(Debug, Clone)]
pub(crate) struct GlobalIndex {
    /// The position of the index.
    pub(super) index: usize,
    key: &'static [KeyField],
    /// The name of the shard map.
    map: String,
    hashed: bool,
    /// The number of leading fields in the keys of the shard map.
    fields: usize,
    boundaries: Arc<Boundaries>,
    /// The shards that can have entries, sorted and without duplicates.
    pub(super) shards: Vec<ShardNumber>,
    /// Whether entries are being moved, so that a shard can have entries of another shard.
    pub(super) moves: bool,
    /// Whether there can be entries of rows that belong to no shard.
    pub(super) hides: bool,
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
        let has_type =
            |fields: &usize| key.get(..*fields).map(type_name).as_deref() == Some(key_type);
        let fields = (1..=key.len()).find(has_type).unwrap_or(key.len());
        let hashed = key_type == HASHED;
        Self { index, key, map, hashed, fields, boundaries, shards, moves: false, hides: false }
    }

    /// Returns the index with other boundaries of its shard map.
    pub(super) fn with(&self, boundaries: Arc<Boundaries>) -> Self {
        let shards = boundaries.shards();
        Self { map: self.map.clone(), boundaries, shards, ..*self }
    }

    /// Whether entries are being moved.
    pub(crate) const fn moves(&self) -> bool {
        self.moves
    }

    /// Whether there can be entries of rows that belong to no shard, which queries leave out.
    #[inline]
    pub(crate) const fn hides(&self) -> bool {
        self.hides
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

    /// Whether a hash of the index key determines the shard.
    pub(crate) const fn is_hashed(&self) -> bool {
        self.hashed
    }

    /// Returns the key in the boundaries of the shard map for an index key: its first fields, or its slot.
    pub(crate) fn map_key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if self.hashed {
            return Cow::Owned(slot(key).to_vec());
        }
        let len = len_of(self.map_fields().iter().map(|field| &field.shape), key);
        len.and_then(|len| key.get(..len)).unwrap_or(key).into()
    }

    /// Returns the fields in the keys of the shard map.
    pub(crate) fn map_fields(&self) -> &'static [KeyField] {
        self.key.get(..self.fields).unwrap_or(self.key)
    }

    /// Returns the position, in the shard map, of the segment that contains an index key.
    pub(crate) fn segment_of(&self, key: &[u8]) -> Option<usize> {
        if self.hashed {
            self.boundaries.segment_of(&slot(key))
        } else {
            self.boundaries.segment_of(key)
        }
    }

    /// Returns a boundary of the shard map as text: the values of the first fields of the index, or the number of a slot.
    pub(super) fn show_boundary(&self, boundary: &[u8]) -> String {
        if self.hashed {
            return show_slot(boundary);
        }
        show_leading(self.map_fields().iter().map(|field| &field.shape), boundary)
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
