//! The journal of an open data file. The journal belongs to this file alone, or to all shards of a store.

use super::{
    checkpoint::Journal,
    recorder::Recorded,
    shared::checkpoint::{Held, Member},
};

/// A journal whose writer is this process.
pub(in crate::engine::lmdb) enum Active {
    /// The journal of this data file alone.
    Own(Journal),
    /// The journal of all shards of a store.
    Shared(Member),
}

impl Active {
    /// Returns the reason why the data file is no longer written.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        match self {
            Self::Own(journal) => journal.refused(),
            Self::Shared(member) => member.refused(),
        }
    }

    /// Waits if a checkpoint of shards is in progress and too much has changed since its start. The caller must not have the turn
    /// to write. The journal of one data file waits in [`begin`](Self::begin).
    pub(in crate::engine::lmdb) fn wait_for_room(&self) {
        if let Self::Shared(member) = self {
            member.wait_for_room();
        }
    }

    /// Whether a checkpoint is in progress, and writers will soon have to wait for it.
    pub(in crate::engine::lmdb) fn is_behind(&self) -> bool {
        match self {
            Self::Own(journal) => journal.is_behind(),
            Self::Shared(member) => member.is_behind(),
        }
    }

    /// Prepares for a write transaction. The calling thread must have the turn to write.
    pub(in crate::engine::lmdb) fn begin(&self) {
        match self {
            Self::Own(journal) => journal.begin(),
            Self::Shared(_) => {}
        }
    }

    /// Begins a checkpoint if pages were changed since the last one, because a transaction had no room. The calling thread
    /// must have the turn to write.
    pub(in crate::engine::lmdb) fn begin_freeing_pages(&self) {
        match self {
            Self::Own(journal) => journal.begin_freeing_pages(),
            Self::Shared(member) => member.begin_freeing_pages(),
        }
    }

    /// Excludes checkpoints of a shared journal. The caller holds the result from before the append of a record until
    /// LMDB has committed it, and while LMDB has no map.
    pub(in crate::engine::lmdb) fn hold(&self) -> Option<Held<'_>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(member) => member.hold(),
        }
    }

    /// Records that a commit is visible. The calling thread must have the turn to write.
    pub(in crate::engine::lmdb) fn committed(
        &self,
        held: Option<Held<'_>>,
        recorded: Recorded,
        number: u64,
    ) {
        match (self, held) {
            (Self::Own(journal), _) => journal.committed(recorded, number),
            (Self::Shared(member), Some(held)) => member.committed(held, recorded, number),
            (Self::Shared(_), None) => {}
        }
    }

    /// Stops all writes, because a sync has failed, or because LMDB and the journal differ.
    pub(in crate::engine::lmdb) fn fail(&self) {
        match self {
            Self::Own(journal) => journal.fail(),
            Self::Shared(member) => member.fail(),
        }
    }

    /// Ends the journal of the data file. If there was no failure and LMDB can still write, the data file is then
    /// complete without the journal.
    pub(in crate::engine::lmdb) fn close(self, is_writable: bool) {
        match self {
            Self::Own(journal) => journal.close(is_writable),
            Self::Shared(member) => member.close(is_writable),
        }
    }

    /// Leaks the journal, in a process that was forked from the writer of the journal.
    pub(in crate::engine::lmdb) fn forget(self) {
        match self {
            Self::Own(journal) => journal.forget(),
            Self::Shared(member) => member.forget(),
        }
    }
}
