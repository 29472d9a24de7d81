//! The journal of an open data file: its own, or that of all shards.

use super::{
    checkpoint::Journal,
    recorder::Recorded,
    shared::checkpoint::{Held, Member},
};

/// A journal that this process writes.
pub(in crate::engine::lmdb) enum Active {
    Own(Journal),
    Shared(Member),
}

impl Active {
    /// Why the data file is not written any more.
    pub(in crate::engine::lmdb) fn refused(&self) -> Option<&'static str> {
        match self {
            Self::Own(journal) => journal.refused(),
            Self::Shared(member) => member.refused(),
        }
    }

    /// Waits, without the turn to write, while a checkpoint is being made that is far behind.
    pub(in crate::engine::lmdb) fn wait_for_room(&self) {
        match self {
            Self::Own(journal) => journal.wait_for_room(),
            Self::Shared(member) => member.wait_for_room(),
        }
    }

    /// For a write transaction that begins.
    pub(in crate::engine::lmdb) fn begin(&self) {
        match self {
            Self::Own(journal) => journal.begin(),
            Self::Shared(_) => {}
        }
    }

    /// Keeps checkpoints of the journal of all shards away, from before a record is appended until LMDB has
    /// committed it, and while LMDB has no map.
    pub(in crate::engine::lmdb) fn hold(&self) -> Option<Held<'_>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(member) => member.hold(),
        }
    }

    /// A commit is visible. For the thread with the turn to write.
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

    /// A sync has failed, or LMDB and the journal differ: nothing is written any more.
    pub(in crate::engine::lmdb) fn fail(&self) {
        match self {
            Self::Own(journal) => journal.fail(),
            Self::Shared(member) => member.fail(),
        }
    }

    /// Ends the journal of the data file, which is complete then if all is well and the environment still has its map.
    pub(in crate::engine::lmdb) fn close(self, is_mapped: bool) {
        match self {
            Self::Own(journal) => journal.close(is_mapped),
            Self::Shared(member) => member.close(is_mapped),
        }
    }

    /// Leaves everything as it is: this process was forked from the one that has the journal.
    pub(in crate::engine::lmdb) fn forget(self) {
        match self {
            Self::Own(journal) => journal.forget(),
            Self::Shared(member) => member.forget(),
        }
    }
}
