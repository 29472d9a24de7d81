//! The parts of a table with databases of their own, in addition to its indexes and its queue.

use super::AggregateSchema;
use crate::model::{reference::ReferenceSchema, stream::STREAM};

/// The aggregates of a table, whether it has a change stream, and its references.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    pub(crate) aggregates: &'static [AggregateSchema],
    pub(crate) has_changes: bool,
    /// The references to rows of other tables. They have no database of their own.
    pub(crate) references: &'static [ReferenceSchema],
}

impl Parts {
    /// Returns the names of the parts in the catalog.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let aggregates = self.aggregates.iter().map(|aggregate| aggregate.name);
        aggregates.chain(self.has_changes.then_some(STREAM))
    }
}
