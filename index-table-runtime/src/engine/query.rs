use crate::model::entry::Position;
use crate::model::{KeyRange, schema::Source};

/// A query of one table or index, as a plain value.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// Which database.
    pub(crate) source: Source,
    /// Which keys.
    pub(crate) bounds: KeyRange,
    /// From the last key to the first.
    pub(crate) reverse: bool,
    /// At most this many entries.
    pub(crate) limit: Option<u64>,
    /// Only what comes behind this place, in the direction of the query.
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
            reverse: false,
            limit: None,
            position: None,
            inclusive: false,
            rows: false,
        }
    }
}
