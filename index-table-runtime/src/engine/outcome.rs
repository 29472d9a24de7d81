//! The outcomes of transactions.

use crate::model::{
    error::{Error, Sealed, StoreError},
    shard::ShardNumber,
};

/// The reason to run the closure of a transaction again, in a new transaction and after
/// [`Engine::prepare`](super::Engine::prepare) has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The map was full, with this size in bytes.
    Map { map_size: usize },
    /// The map of a shard was full, with this size in bytes.
    ShardMap { shard: ShardNumber, map_size: usize },
    /// The disk was full. The next checkpoint of the journal can make pages free.
    Disk,
    /// The outermost transaction could change no more pages. In a transaction with fewer closures, there may
    /// be room.
    Pages,
    /// The commit conflicted with an earlier commit of another client.
    Conflict,
    /// The closure needed a shard that has to be locked before a shard that it had used already.
    Shards,
}

impl Retry {
    /// Whether there was no room. Another failure for the same reason shows that no room can be made.
    pub(crate) const fn lacks_room(self) -> bool {
        matches!(self, Self::Map { .. } | Self::ShardMap { .. } | Self::Disk)
    }

    /// Returns the reason to run again after an error that ends a transaction.
    pub(crate) const fn after(error: &Error) -> Option<Self> {
        match error {
            Error::MapFull { map_size } => Some(Self::Map { map_size: *map_size }),
            Error::TransactionTooLarge => Some(Self::Pages),
            Error::DiskFull { .. } => Some(Self::Disk),
            _ => None,
        }
    }
}

/// The failure of a commit.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Another client's commit was first; nothing has changed, and the closure may be run again.
    Conflict(Error),
    /// It is unknown whether the commit was applied.
    Unknown(Error),
    /// The commit failed, and nothing has changed.
    Failed(Error),
}

impl CommitFailure {
    /// Returns the reason to run the closure again; `None` if there is none.
    pub(crate) const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Conflict(_) => Some(Retry::Conflict),
            Self::Failed(error) => Retry::after(error),
            Self::Unknown(_) => None,
        }
    }
}

/// The failure of a commit of several shards that was durable.
pub(crate) struct NotVisible {
    pub(crate) failure: CommitFailure,
    /// Whether the commit is visible in some of its shards only, until the store is opened again.
    pub(crate) is_split: bool,
}

impl NotVisible {
    /// Returns a failure after which nothing has changed.
    pub(crate) const fn failed(error: Error) -> Self {
        Self { failure: CommitFailure::Failed(error), is_split: false }
    }
}

impl Sealed for CommitFailure {}

#[diagnostic::do_not_recommend]
impl StoreError for CommitFailure {
    fn into_error(self) -> Error {
        match self {
            Self::Unknown(source) => Error::CommitUnknown { source: Box::new(source) },
            Self::Conflict(error) | Self::Failed(error) => error,
        }
    }
}

/// The reason why a removed or detached shard is not written.
pub(crate) const LEFT: &str =
    "this directory was removed from a sharded store, which this process still has open";

/// The reason why no transaction begins in it.
pub(crate) const RETIRED: &str = "its shard was removed or detached from the store";

/// Whether this is the error of work in a shard that was removed or detached. The shard may have come back since.
pub(crate) fn is_of_left_shard(error: &Error) -> bool {
    matches!(error, Error::ReopenNeeded { reason, .. } if [LEFT, RETIRED].contains(reason))
}
