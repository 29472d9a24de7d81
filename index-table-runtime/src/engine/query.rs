use std::sync::Arc;

use crate::model::entry::Position;
use crate::model::{KeyRange, schema::Source};

/// A query of one table or index, as a plain value.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Query {
    /// The database.
    pub(crate) source: Source,
    /// The keys.
    pub(crate) bounds: KeyRange,
    /// A list of values for the bytes after `bounds`, which is then a prefix. A caller runs such a query range by
    /// range; an engine never gets a list.
    pub(crate) list: Option<Arc<KeyList>>,
    /// Whether the entries are in descending order.
    pub(crate) reverse: bool,
    /// The maximum number of entries.
    pub(crate) limit: Option<u64>,
    /// The maximum number of entries that the caller reads, so that an engine that reads several at once reads no more.
    pub(crate) at_most: Option<u64>,
    /// The query selects the entries after this position, in its direction.
    pub(crate) position: Option<Position>,
    /// Whether an entry at the position is selected too.
    pub(crate) inclusive: bool,
    /// Whether the caller reads the row of each entry of an index. Then, an engine that can join fetches the rows as
    /// well. See [the laws](super#borrowing-and-rows).
    pub(crate) rows: bool,
    /// Without the shards that are not available, instead of an error.
    pub(crate) available: bool,
}

impl Query {
    /// Returns a query of all entries within the bounds, in ascending order.
    pub(crate) const fn new(source: Source, bounds: KeyRange) -> Self {
        Self {
            source,
            bounds,
            list: None,
            reverse: false,
            limit: None,
            at_most: None,
            position: None,
            inclusive: false,
            rows: false,
            available: false,
        }
    }
}

/// Distinct encoded values in ascending order. No value is a prefix of another value.
#[derive(Debug, Default)]
pub(crate) struct KeyList(Vec<Box<[u8]>>);

impl KeyList {
    /// Returns the list of these values.
    pub(crate) fn of(mut values: Vec<Box<[u8]>>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self(values)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).map(|value| &**value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|value| &**value)
    }

    /// Returns the position of the value with which these bytes start.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.0.partition_point(|value| **value <= *bytes).checked_sub(1)?;
        self.get(at).filter(|value| bytes.starts_with(value)).map(|_| at)
    }
}

/// Entries of a sample with the same key, or one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled<'s> {
    pub(crate) key: &'s [u8],
    /// The primary key; empty for several entries.
    pub(crate) primary_key: &'s [u8],
    /// The number of the leaf in the sample.
    pub(crate) leaf: usize,
    /// The estimated number of leaves that this leaf represents.
    pub(crate) leaves: f64,
    /// The number of entries that were read.
    pub(crate) read: u64,
    /// The estimated number of entries of the database that it represents.
    pub(crate) entries: f64,
    /// The estimated bytes of these entries.
    pub(crate) bytes: f64,
}
