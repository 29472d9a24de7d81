//! The guarantees for a crash of the machine, and the limits for checkpoints of a journal.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// The guarantee for a crash of the machine. With every variant, a crash of the process loses no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Durability {
    /// A commit returns when it is on disk, after two syncs. Several processes can write the store.
    Full,
    /// One sync for each commit: a crash of the machine can lose only the last commit, and the store stays
    /// consistent (LMDB's `MDB_NOMETASYNC`).
    Relaxed,
    /// A commit returns when its changes are on disk, in a journal next to the data file: one sync. A crash
    /// of the machine loses no commit, as with `Full`. The default where directories can be locked.
    ///
    /// It costs disk space, at most about 50 MiB for the journal, two threads that make the
    /// [checkpoints](crate::Options::checkpoint) of all stores, and a recovery when the store is opened after a crash: the journal is
    /// applied to the data file. One process at a time writes such a store. Others can open it with
    /// [`read_only`](crate::Options::read_only); a second process that opens it for writing gets
    /// [`Error::WriterElsewhere`](crate::Error::WriterElsewhere). Opening it with another durability applies the journal and
    /// removes it. Unix only: elsewhere, `Full` is the default, and opening with `Journal` fails with
    /// [`Error::Io`](crate::Error::Io).
    ///
    /// After a failed sync, the commit fails with [`Error::CommitUnknown`](crate::Error::CommitUnknown), and writes
    /// fail with [`Error::ReopenNeeded`](crate::Error::ReopenNeeded) until the store is opened again. A
    /// damaged journal is [`Error::DamagedFile`](crate::Error::DamagedFile), with the position.
    ///
    /// ```
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options().durability(Durability::Journal).open(dir.path())?;
    /// # Ok(())
    /// # }
    /// ```
    #[default]
    Journal,
    /// No sync: a crash of the machine can lose the last commits, or damage the store if the file system does
    /// not keep the order of writes (LMDB's `MDB_NOSYNC`). For data that can be reproduced.
    None,
}

impl Durability {
    /// Returns the durability of options that may name none, where a journal is possible.
    pub(crate) const fn or_default(chosen: Option<Self>) -> Self {
        match chosen {
            Some(chosen) => chosen,
            None => Self::Journal,
        }
    }

    /// Returns the number of the durability in the record of a shard. It is part of the format.
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Full => 0,
            Self::Relaxed => 1,
            Self::None => 2,
            Self::Journal => 3,
        }
    }
}

/// The reason why commits of a store don't go to a journal; from
/// [`Store::durability_reason`](crate::Store::durability_reason). `Display` has it as a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurabilityReason {
    /// The options name another durability.
    Chosen,
    /// The options name no durability, and the directory can't be locked, which a journal needs. So the default is
    /// [`Durability::Full`].
    NoLocks,
    /// The options name no durability, and another process had the store open that may write it without a journal. So the
    /// default was [`Durability::Full`].
    OtherWriter,
    /// The store is read-only, and its data file has no journal. The processes that write it choose their durability.
    ReadOnly,
    /// The store is a follower, which copies the archive again after a crash of the machine.
    Follower,
    /// The store was a follower, and syncs each commit since its promotion.
    Promoted,
    /// The store is in memory.
    Memory,
    /// The store is on a server, whose settings apply.
    Server,
}

impl fmt::Display for DurabilityReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "the options name this durability",
            Self::NoLocks => "a journal needs locks on directories, which there are not here",
            Self::OtherWriter => {
                "when the store was opened, another process had it open that may write it without a journal"
            }
            Self::ReadOnly => {
                "the store is read-only and has no journal, so the durability is that of the processes that write it"
            }
            Self::Follower => "a follower copies the archive again after a crash of the machine",
            Self::Promoted => {
                "a promoted follower syncs each commit; for a journal, open it again with `Durability::Journal`"
            }
            Self::Memory => "the store is in memory",
            Self::Server => "the settings of the server apply",
        })
    }
}

/// The limits at which a checkpoint of a journal is made; see
/// [`Options::checkpoint`](crate::Options::checkpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Checkpoint {
    /// `None`: the limit follows the size of the store.
    pub(crate) changed: Option<u64>,
    /// `None`: the limit follows the size of the store.
    pub(crate) journal: Option<u64>,
    pub(crate) time: Duration,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { changed: None, journal: None, time: Duration::from_mins(1) }
    }
}
