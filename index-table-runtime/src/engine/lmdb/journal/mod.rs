//! The journal: commits that are durable with one sync.
//!
//! | module | contents |
//! |---|---|
//! | `changes` | the changes of a transaction, as bytes |
//! | `frame` | a record of the journal, or a part of one, with its checksum |
//! | `block` | a checkpoint: the state of the data file from which records are applied |
//! | `marker` | the marker in the data file, which describes its journal |
//! | `tail` | which records count, and whether the journal is damaged |
//! | `shared` | one journal for all shards of a store |
//! | `archive` | bases and records in another directory |
//!
//! All but the last two are pure: functions over bytes, tested alone and fuzzed. `docs/FORMAT.md` fixes the bytes, and
//! `docs/ARCHITECTURE.md` has the order of each step and the argument that no crash loses a commit.

pub(in crate::engine::lmdb) mod active;
pub(crate) mod archive;
pub(crate) mod block;
pub(crate) mod changes;
pub(in crate::engine::lmdb) mod checkpoint;
pub(in crate::engine::lmdb) mod evidence;
mod files;
pub(crate) mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod group;
pub(in crate::engine::lmdb) mod limits;
pub(in crate::engine::lmdb) mod log;
pub(crate) mod marker;
mod pace;
pub(in crate::engine::lmdb) mod pinned;
pub(in crate::engine::lmdb) mod plan;
pub(in crate::engine::lmdb) mod presence;
mod read;
pub(in crate::engine::lmdb) mod recorder;
pub(in crate::engine::lmdb) mod replay;
pub(in crate::engine::lmdb) mod shared;
pub(in crate::engine::lmdb) mod snapshot;
mod spilled;
pub(in crate::engine::lmdb) mod start;
pub(crate) mod tail;
#[cfg(test)]
mod tests_lmdb;
#[cfg(test)]
mod tests_tail;
pub(in crate::engine::lmdb) mod weaken;
mod write_back;
#[cfg(any(test, feature = "fuzzing"))]
mod written;
