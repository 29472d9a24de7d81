use std::sync::Arc;

use crate::model::entry::Position;
use crate::model::{KeyRange, schema::Source};

/// A query of one table or index, as a plain value.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// The database.
    pub(crate) source: Source,
    /// The keys.
    pub(crate) bounds: KeyRange,
    /// A list for the bytes behind `bounds`, which is then a prefix. A caller runs such a query range by
    /// range; an engine never gets one.
    pub(crate) list: Option<Arc<KeyList>>,
    /// From the last key to the first.
    pub(crate) reverse: bool,
    /// At most this many entries.
    pub(crate) limit: Option<u64>,
    /// Only the entries behind this place, in the direction of the query.
    pub(crate) position: Option<Position>,
    /// With a position: the entry at the place itself as well, if there is one.
    pub(crate) inclusive: bool,
    /// The caller reads the row of each entry of an index: an engine that can join fetches the rows as well. See
    /// [the laws](super#borrowing-and-rows).
    pub(crate) rows: bool,
}

impl Query {
    /// Everything within the bounds, forward.
    pub(crate) const fn new(source: Source, bounds: KeyRange) -> Self {
        Self {
            source,
            bounds,
            list: None,
            reverse: false,
            limit: None,
            position: None,
            inclusive: false,
            rows: false,
        }
    }
}

/// Encoded values in ascending order, each once. None is a prefix of another one.
#[derive(Debug, Default)]
pub(crate) struct KeyList(Vec<Box<[u8]>>);

impl KeyList {
    /// The list of these values.
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

    /// The position of the value that these bytes start with.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.0.partition_point(|value| **value <= *bytes).checked_sub(1)?;
        self.get(at).filter(|value| bytes.starts_with(value)).map(|_| at)
    }
}
