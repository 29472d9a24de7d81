//! The guarantees for a crash of the machine, and the limits for checkpoints of a journal.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The guarantee for a crash of the machine. With every variant, a crash of the process loses no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Durability {
    /// A commit returns when it is on disk, after two syncs. The default.
    #[default]
    Full,
    /// One sync for each commit: a crash of the machine can lose only the last commit, and the store stays
    /// consistent (LMDB's `MDB_NOMETASYNC`).
    Relaxed,
    /// A commit returns when its changes are on disk, in a journal next to the data file: one sync. A crash
    /// of the machine loses no commit, as with `Full`.
    ///
    /// Use it if single commits have to be fast. It costs disk space, at most about 50 MiB for the journal, a thread that makes
    /// [checkpoints](crate::Options::checkpoint), and a recovery when the store is opened after a crash: the journal is
    /// applied to the data file. One process at a time writes such a store. Others can open it with
    /// [`read_only`](crate::Options::read_only); a second process that opens it for writing gets
    /// [`Error::WriterElsewhere`](crate::Error::WriterElsewhere). Opening it with another durability applies the journal and
    /// removes it. Unix only: elsewhere, opening fails with [`Error::Io`](crate::Error::Io).
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
    Journal,
    /// No sync: a crash of the machine can lose the last commits, or damage the store if the file system does
    /// not keep the order of writes (LMDB's `MDB_NOSYNC`). For data that can be reproduced.
    None,
}

impl Durability {
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
