//! Errors of the store, and results that differ from the model.

use std::fmt;

use index_table::Error;

#[derive(Debug)]
pub(crate) enum Failure {
    Store(Error),
    /// What differs from the model.
    Wrong(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Wrong(format!("a file of the test: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => {
                let text = format!("{error:?}");
                let variant = text.split(|at: char| !at.is_alphanumeric()).next();
                write!(f, "{}: {error}", variant.unwrap_or_default())
            }
            Self::Wrong(what) => write!(f, "{what}"),
        }
    }
}

/// Returns an error that names what differs.
pub(crate) fn wrong<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Failure::Wrong(what.into()))
}

/// Returns an error unless the two are equal.
pub(crate) fn same<T: PartialEq + fmt::Debug>(
    what: impl FnOnce() -> String,
    found: &T,
    expected: &T,
) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(700).collect::<String>();
    wrong(format!("{}: found {}, expected {}", what(), short(found), short(expected)))
}

impl Failure {
    /// Adds the part of the step that failed, unless the keys of an unfinished offline move can't be written.
    pub(crate) fn within(self, part: &str) -> Self {
        match self {
            Self::Store(Error::ShardReadOnly { .. }) => self,
            failure => Self::Wrong(format!("{part}: {failure}")),
        }
    }

    /// Returns whether an index is not readable. [`App`](crate::app::App) has the times at which this is expected.
    pub(crate) const fn is_unreadable(&self) -> bool {
        matches!(self, Self::Store(Error::IndexNotReadable { .. }))
    }

    /// Returns whether a thread beside the steps may meet this error, and goes on.
    pub(crate) const fn is_expected(&self) -> bool {
        let Self::Store(error) = self else { return false };
        matches!(
            error,
            Error::NoShard { .. }
                | Error::ShardUnavailable { .. }
                | Error::ShardReadOnly { .. }
                | Error::ReopenNeeded { .. }
                | Error::SnapshotTooOld { .. }
                // A reader of a slow machine.
                | Error::GrowthBlocked { .. }
        )
    }

    /// Returns whether a step was refused, and nothing was changed.
    pub(crate) const fn is_refusal(&self) -> bool {
        let Self::Store(error) = self else { return false };
        self.is_expected()
            || matches!(
                error,
                Error::ShardRefused { .. }
                    | Error::NotOffered { .. }
                    | Error::NotInArchive { .. }
                    | Error::WriteInProgress
            )
    }
}
