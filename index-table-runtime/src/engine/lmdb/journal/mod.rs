//! The journal: commits that are durable with one sync.
//!
//! A journal has one or more members, each of which is a data file. A store with one data file is the only member of its
//! journal.
//!
//! | module | contents |
//! |---|---|
//! | `changes` | the changes of a transaction, as bytes |
//! | `frame` | a record of the journal, or a part of one, with its checksum |
//! | `block` | a checkpoint: the state of the data file from which records are applied |
//! | `marker` | the marker in the data file, which describes its journal |
//! | `tail` | which records count, and whether the journal is damaged |
//! | `group` | the log, and its syncs; the strategies of one member and of several |
//! | `member` | what a transaction of a data file does in its journal |
//! | `common` | the state that the members share |
//! | `checkpoint` | the steps of a checkpoint |
//! | `closing` | members that join a journal, are closed, or leave it and come back |
//! | `marked`, `found`, `recovery` | the marker, the records and the recovery of a data file that is not open |
//! | `start` | the start with one or several members |
//! | `own`, `shards` | the journal of one data file; the journal of several |
//! | `left` | the records of a shard that is not available |
//! | `archived` | the archive of a running journal |
//! | `archive` | bases and records in another directory |
//!
//! The first five are pure: functions over bytes, tested alone and fuzzed. `docs/FORMAT.md` fixes the bytes, and
//! `docs/internals/journal.md` has the order of each step and the argument that no crash loses a commit.

pub(crate) mod archive;
pub(in crate::engine::lmdb) mod archived;
mod begun;
pub(crate) mod block;
pub(crate) mod changes;
pub(in crate::engine::lmdb) mod checkpoint;
mod closing;
pub(in crate::engine::lmdb) mod common;
pub(in crate::engine::lmdb) mod evidence;
mod files;
mod found;
pub(crate) mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod group;
pub(in crate::engine::lmdb) mod left;
pub(in crate::engine::lmdb) mod limits;
pub(in crate::engine::lmdb) mod log;
pub(in crate::engine::lmdb) mod marked;
pub(crate) mod marker;
pub(in crate::engine::lmdb) mod member;
pub(in crate::engine::lmdb) mod not_started;
pub(in crate::engine::lmdb) mod own;
mod pace;
pub(in crate::engine::lmdb) mod pinned;
pub(in crate::engine::lmdb) mod plan;
pub(in crate::engine::lmdb) mod presence;
mod read;
pub(in crate::engine::lmdb) mod recorder;
pub(in crate::engine::lmdb) mod recovery;
pub(in crate::engine::lmdb) mod replay;
pub(in crate::engine::lmdb) mod shards;
pub(in crate::engine::lmdb) mod snapshot;
mod spilled;
pub(in crate::engine::lmdb) mod start;
pub(crate) mod tail;
#[cfg(test)]
mod tests_lmdb;
#[cfg(test)]
mod tests_tail;
pub(in crate::engine::lmdb) mod weaken;
pub(super) mod write_back;
#[cfg(any(test, feature = "fuzzing"))]
mod written;
