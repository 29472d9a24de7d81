//! The limits after which a checkpoint is made.
//!
//! By default they follow the bytes of the pages in use: between two checkpoints, a small store changes as many bytes of
//! pages as it has. Free pages don't count, because the pages that a checkpoint keeps become free later, and the limits
//! would grow with their own effect.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::engine::durability::Checkpoint;

/// The bounds for changed pages, if the limit follows the size of the store.
const CHANGED: RangeInclusive<u64> = 1 << 20..=32 << 20;

/// The bounds for the journal, if the limit follows the size of the store.
const JOURNAL: RangeInclusive<u64> = 1 << 18..=16 << 20;

/// The smallest limit for the changes of a transaction that are written to the journal.
const TRANSACTION: u64 = 1 << 20;

/// The limits of a store.
pub(in crate::engine::lmdb) struct Limits {
    wanted: Checkpoint,
    /// The bytes of the pages in use, in all data files, at the last checkpoint.
    used: AtomicU64,
}

impl Limits {
    pub(in crate::engine::lmdb) const fn new(wanted: Checkpoint) -> Self {
        Self { wanted, used: AtomicU64::new(0) }
    }

    /// Follows the size of the store.
    pub(super) fn follow(&self, used: u64) {
        self.used.store(used, Relaxed);
    }

    /// Returns the limit for the estimated size of the pages that were changed since the last checkpoint, in bytes.
    pub(super) fn changed(&self) -> u64 {
        self.wanted.changed.unwrap_or_else(|| within(self.used.load(Relaxed), &CHANGED))
    }

    /// Returns the limit for the length of the segment, in bytes.
    pub(super) fn journal(&self) -> u64 {
        self.wanted.journal.unwrap_or_else(|| within(self.used.load(Relaxed) / 2, &JOURNAL))
    }

    /// Returns the limit for the changes of a transaction that are written to the journal, in bytes. A larger transaction is not
    /// journalled, and ends in a checkpoint.
    pub(super) fn transaction(&self) -> u64 {
        self.journal().max(TRANSACTION)
    }

    /// Returns the limit for the time since the last checkpoint. Without changes, no checkpoint is made.
    pub(super) const fn time(&self) -> Duration {
        self.wanted.time
    }

    /// Returns the length to which longer files of the journal are truncated.
    pub(super) fn longest(&self) -> u64 {
        self.journal().saturating_mul(2)
    }
}

fn within(value: u64, bounds: &RangeInclusive<u64>) -> u64 {
    value.clamp(*bounds.start(), *bounds.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_size_between_their_bounds() {
        let limits = Limits::new(Checkpoint::default());
        let both = |used| {
            limits.follow(used);
            (limits.changed(), limits.journal())
        };
        assert_eq!(both(0), (1 << 20, 1 << 18));
        assert_eq!(both(1 << 20), (1 << 20, 1 << 19));
        assert_eq!(both(20 << 20), (20 << 20, 10 << 20));
        assert_eq!(both(u64::MAX), (32 << 20, 16 << 20));
    }

    #[test]
    fn limits_of_the_options_are_fixed() {
        let limits =
            Limits::new(Checkpoint { changed: Some(5), journal: Some(7), ..Checkpoint::default() });
        limits.follow(20 << 20);
        assert_eq!((limits.changed(), limits.journal(), limits.longest()), (5, 7, 14));
    }
}
