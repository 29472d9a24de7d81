//! The reasons why a journal is not started, or a store not recovered.

use std::io;

use super::{replay::Failure, snapshot::Refused, tail::Fault};
use crate::engine::lmdb::pages;

/// The reason why a journal is not started, or a store not recovered.
pub(in crate::engine::lmdb) enum NotStarted {
    /// Another process writes the store.
    Elsewhere,
    Lmdb(heed::Error),
    Io(io::Error),
    /// The damage.
    Damaged(String),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<heed::Error> for NotStarted {
    fn from(error: heed::Error) -> Self {
        match error {
            heed::Error::Io(error) => Self::Io(error),
            error => Self::Lmdb(error),
        }
    }
}

impl From<Fault> for NotStarted {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(error) => Self::Io(error),
            Fault::Damaged(reason) => Self::Damaged(reason),
        }
    }
}

impl From<pages::Fault> for NotStarted {
    fn from(fault: pages::Fault) -> Self {
        match fault {
            pages::Fault::Io(error) => Self::Io(error),
            pages::Fault::Damaged(reason) => Self::Damaged(reason),
        }
    }
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lmdb(error) => error.into(),
            Failure::Fault(fault) => fault.into(),
        }
    }
}

impl From<Refused> for NotStarted {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Lmdb(error) => error.into(),
            Refused::Io(error) => error.into(),
            Refused::Changed(reason) => Self::Damaged(reason.to_owned()),
        }
    }
}
