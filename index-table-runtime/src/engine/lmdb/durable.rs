//! The durability of an open data file, and why it is not the journal.

use super::{
    env::Engine,
    journal::{
        marked,
        marker::{Journalled, LIVE, Marker},
    },
};
use crate::engine::{CommitFailure, Durability, DurabilityReason, Options};

/// The options with which a data file was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenedAs {
    chosen: Option<Durability>,
    /// Why a journal was not possible.
    without_journal: Option<DurabilityReason>,
    is_follower: bool,
}

impl OpenedAs {
    pub(super) const fn of(options: &Options) -> Self {
        let (chosen, is_follower) = (options.durability, options.follower);
        Self { chosen, without_journal: None, is_follower }
    }

    /// Sets the reason why a journal was not possible.
    pub(super) const fn set_without_journal(&mut self, reason: Option<DurabilityReason>) {
        self.without_journal = reason;
    }
}

impl Engine {
    /// Returns the durability of commits, and the reason if it is not the journal. For a read-only data file, its marker shows
    /// whether it has a journal.
    pub(crate) fn durability(&self) -> (Durability, Option<DurabilityReason>) {
        use DurabilityReason::{Chosen, Follower, Promoted, ReadOnly};

        if self.has_journal() {
            return (Durability::Journal, None);
        }
        let OpenedAs { chosen, without_journal, is_follower } = self.opened_as;
        let used = Durability::or_default(chosen);
        match (self.is_read_only(), is_follower) {
            (true, true) => (Durability::None, Some(Follower)),
            (false, true) => (Durability::Full, Some(Promoted)),
            (true, false) => match marked::marker_of(&self.path) {
                Ok(Marker::Needed(Journalled { identity: LIVE, .. })) => {
                    (Durability::None, Some(Follower))
                }
                Ok(Marker::Needed(_) | Marker::Clean(_)) => (Durability::Journal, None),
                // No process writes a journal.
                Ok(Marker::None) | Err(_) if used == Durability::Journal => {
                    (Durability::Full, Some(ReadOnly))
                }
                Ok(Marker::None) | Err(_) => (used, Some(ReadOnly)),
            },
            (false, false) => {
                let reason = without_journal.unwrap_or(Chosen);
                // A shard that has not joined the journal of all shards can't be written.
                (used, (used != Durability::Journal).then_some(reason))
            }
        }
    }

    /// With `Durability::Full`, makes the state of LMDB's last commit durable, where LMDB leaves it in the disk's cache.
    ///
    /// LMDB syncs the pages of a commit, and then writes its meta page through a descriptor with `O_DSYNC`. On Apple's systems, this
    /// does not empty the disk's cache. `F_FULLFSYNC` does, with which LMDB syncs the pages, and here the whole file.
    #[inline]
    pub(super) fn sync_state(&self) -> Result<(), CommitFailure> {
        if !cfg!(target_vendor = "apple") || self.durability().0 != Durability::Full {
            return Ok(());
        }
        let synced = self.env().and_then(|env| env.force_sync().map_err(|error| self.error(error)));
        synced.map_err(CommitFailure::Unknown)
    }
}
