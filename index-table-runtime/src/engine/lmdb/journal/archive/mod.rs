//! The archive of a journal: bases and segments in another directory, from which any commit can be restored.
//!
//! | module | contents |
//! |---|---|
//! | `format` | manifests, heads of segments, records of bases: functions over bytes |
//! | `records` | the complete records of a segment |
//! | `outbox` | the segments that are not archived yet, in the directory of the store |
//! | `target` | the directory of the archive |
//! | `handed` | a function that receives the files of the archive |
//! | `to` | the destination: a directory or a function |
//! | `base` | a copy of the data file at a pinned state |
//! | `bases` | the bases of the shards of a store |
//! | `worker` | the thread that moves segments from the journal to the outbox, and from there to the archive |
//! | `contents` | the parts of an archive, and whether its files are intact |
//! | `restore` | a data file as of any archived commit |
//! | `watched` | the rows that the commits of a restore change |
//! | `restore_shards` | the data files of all shards as of any archived commit |
//! | `follow` | the records that a follower has not applied |
//! | `outside` | the commits that the archive lacks, as another process sees them |
//! | `known` | the record of the archive in the directory of the store |
//!
//! Each committed record of the journal is copied to a segment of the outbox. A checkpoint becomes durable only after
//! this copy, so no file of the journal is reused before. The commit itself does no work for the archive. If a record
//! is taken back, its notice comes before the next commit, so no segment contains the record.

mod base;
pub(super) mod bases;
pub(in crate::engine::lmdb) mod contents;
pub(crate) mod follow;
pub(crate) mod format;
mod handed;
pub(crate) mod known;
pub(super) mod outbox;
mod outside;
pub(crate) mod records;
pub(in crate::engine::lmdb) mod restore;
pub(in crate::engine::lmdb) mod restore_shards;
pub(in crate::engine::lmdb) mod target;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bases;
mod to;
pub(crate) mod watched;
pub(in crate::engine::lmdb) mod worker;

use super::frame::Place;

/// The committed part of a journal.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// The end of the last committed record.
    pub(super) committed: Place,
    /// The ends of earlier segments.
    pub(super) ends: Vec<Place>,
    /// Records before this position whose notice may be after it.
    pub(super) taken_back: Vec<u64>,
}
