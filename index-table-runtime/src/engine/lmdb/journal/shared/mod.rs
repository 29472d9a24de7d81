//! One journal for all shards of a store.
//!
//! It is in the directory of the shard map manager, and each shard is an environment of its own. This is what several
//! [members](super::member) of a [journal](super) change. The modules here read and start such a journal.
//!
//! - **Records** name the shard of each of their sections. The numbers of records count the commits of all
//!   shards; the number in a section is the number of LMDB's transaction in its shard. A record may have sections
//!   of several shards, which are applied all or none, because a record is whole or absent.
//! - **Syncs** are shared ([`group`](super::group)): a thread appends its record and waits for a sync that covers it, and
//!   one of the waiting threads makes it for all of them. Between the append and LMDB's commit, a thread
//!   holds the lock of its shard, not the lock of the log. The changes of a transaction wait for its commit,
//!   in memory and in a [temporary file](super::spilled): they are [gathered](super::group::Strategy::Gathered), so
//!   that the frames of a record are next to each other.
//! - **Checkpoints** ([`checkpoint`](super::checkpoint)) have the state of each shard, pinned at its own time: a segment is
//!   begun, and then each shard that has changed since its last checkpoint is pinned between two of its
//!   commits. So each record before the segment is in the state of its shard. Later records may be in it, and
//!   recovery compares their numbers. A shard without changes keeps its state and its pin, and costs no sync.
//!   It never holds segments, and three files are enough for any number of shards.
//! - **Recovery** ([`start`]) brings each shard to its last record from its own state. A shard that other
//!   processes have open is not rewound: its missing records are copied into the new segment, as for one data
//!   file.
//! - **A shard that is not available** when the journal is started keeps what it needs ([`left`]): its state
//!   and its records are copied into a file of their own before a segment is used again. The file does not
//!   grow, because the shard has no commits until then. When the shard is available again, it is recovered
//!   from this file, and the file is removed.
//!
//! The journal has the identity of the manager. The marker of each data file records whether it needs the
//! journal, and since which epoch.

pub(in crate::engine::lmdb) mod left;
pub(in crate::engine::lmdb) mod start;
