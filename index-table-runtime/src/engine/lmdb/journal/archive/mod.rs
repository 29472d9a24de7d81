//! The archive of a journal: bases and segments in another directory, from which any moment can be restored.
//!
//! | in | is |
//! |---|---|
//! | `format` | manifests, heads of segments, records of bases: functions over bytes |
//! | `records` | the complete records of a segment |
//! | `outbox` | the segments that are not archived yet, in the directory of the store |
//! | `target` | the directory of the archive |
//! | `handed` | a function that gets the files of the archive |
//! | `to` | one of these two |
//! | `base` | a copy of the data file at a pinned state |
//! | `worker` | the thread that moves segments from the journal to the outbox, and from there to the archive |
//! | `restore` | a data file as of any archived commit |
//! | `follow` | the records that a follower has not applied |
//!
//! Each committed record of the journal is copied to a segment of the outbox. A checkpoint becomes durable only after
//! that copy, so that no file of the journal is reused before. The commit itself does nothing for the archive. A record
//! that was taken back is followed by its notice before the next commit, so it never gets into a segment.

mod base;
pub(crate) mod follow;
pub(crate) mod format;
mod handed;
pub(super) mod outbox;
pub(crate) mod records;
pub(in crate::engine::lmdb) mod restore;
pub(in crate::engine::lmdb) mod target;
#[cfg(test)]
mod tests;
mod to;
pub(in crate::engine::lmdb) mod worker;

use super::frame::Place;

/// The committed part of a journal.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// The end of the last committed record.
    pub(super) committed: Place,
    /// The ends of earlier segments.
    pub(super) ends: Vec<Place>,
}
