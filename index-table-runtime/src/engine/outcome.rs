//! The outcomes of transactions.

use crate::model::{
    error::{Error, StoreError},
    shard::ShardNumber,
};

/// The reason to run the closure of a transaction again, in a new transaction and after
/// [`Engine::prepare`](super::Engine::prepare) has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The map was full, with this size in bytes.
    Map { map_size: usize },
    /// The same of a shard.
    ShardMap { shard: ShardNumber, map_size: usize },
    /// The transaction, of which a nested one is a part, could change no more pages. Alone, a closure may
    /// have room.
    Pages,
    /// Another client's commit was first.
    Conflict,
}

impl Retry {
    /// The reaction to an error that ends a transaction.
    pub(crate) const fn after(error: &Error) -> Option<Self> {
        match error {
            Error::MapFull { map_size } => Some(Self::Map { map_size: *map_size }),
            Error::TransactionTooLarge => Some(Self::Pages),
            _ => None,
        }
    }
}

/// The failure of a commit.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Another client's commit was first; nothing has changed, and the closure may be run again.
    #[cfg_attr(not(test), expect(dead_code, reason = "of engines with several writers"))]
    Conflict(Error),
    /// It may have been applied or not.
    Unknown(Error),
    /// Nothing has changed.
    Failed(Error),
}

impl CommitFailure {
    /// The reason to run the closure again, if there is one.
    pub(crate) const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Conflict(_) => Some(Retry::Conflict),
            Self::Failed(error) => Retry::after(error),
            Self::Unknown(_) => None,
        }
    }
}

#[diagnostic::do_not_recommend]
impl StoreError for CommitFailure {
    fn into_error(self) -> Error {
        match self {
            Self::Unknown(source) => Error::CommitUnknown { source: Box::new(source) },
            Self::Conflict(error) | Self::Failed(error) => error,
        }
    }
}
