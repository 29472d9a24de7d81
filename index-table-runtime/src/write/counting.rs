//! Counting the entries that a write changes.

use crate::{
    model::{
        error::Result,
        maintain::{Change, Sink},
    },
    usage::Tally,
};

/// A sink that counts the entries that it passes to another sink.
pub(crate) struct Counting<'a, S> {
    tally: &'a mut Tally,
    sink: &'a mut S,
}

impl<'a, S> Counting<'a, S> {
    pub(crate) const fn new(tally: &'a mut Tally, sink: &'a mut S) -> Self {
        Self { tally, sink }
    }

    pub(crate) fn sink(&self) -> &S {
        self.sink
    }

    /// Counts a change of an entry that is not passed as a [`Change`], and returns the sink.
    pub(crate) fn count_entry(&mut self, index: usize) -> &mut S {
        self.tally.entries(index, 1);
        self.sink
    }
}

impl<S: Sink> Sink for Counting<'_, S> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        if let Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. } = change {
            self.tally.entries(index, 1);
        }
        self.sink.change(change)
    }
}
