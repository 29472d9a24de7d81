//! The changes that consumers have not committed.

use std::{fmt, time::SystemTime};

use crate::{
    model::{
        error::Result,
        stream::{Mark, time_of},
    },
    placement::Reader,
    write::changes,
};

/// The changes that a consumer has not committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangeLag {
    /// The number of changes.
    pub changes: u64,
    /// Their bytes in the file, without overhead.
    pub bytes: u64,
    /// The time of the oldest of these changes that is kept; `None` if there are none.
    pub since: Option<SystemTime>,
}

impl fmt::Display for ChangeLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes ({} bytes)", self.changes, self.bytes)?;
        let age = self.since.and_then(|since| SystemTime::now().duration_since(since).ok());
        age.map_or(Ok(()), |age| write!(f, ", the oldest {age:.1?} old"))
    }
}

/// A consumer of a change stream, as in [`Table::change_consumers`](crate::Table::change_consumers).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeConsumer {
    /// The name.
    pub name: String,
    /// The number of the last committed change; 0 if there is none.
    pub position: u64,
    /// The time of the last commit, or of the creation of the consumer. A consumer with a lag and without a recent
    /// commit has stopped.
    pub last_commit: SystemTime,
    /// The changes that it has not committed.
    pub lag: ChangeLag,
    /// The number of changes that were removed before the consumer committed them. If it is not 0, the consumer gets
    /// [`Error::ChangesMissed`](crate::Error::ChangesMissed).
    pub missed: u64,
}

impl ChangeLag {
    /// Adds the lag in another shard.
    pub(super) fn add(&mut self, other: Self) {
        self.changes += other.changes;
        self.bytes += other.bytes;
        self.since = match (self.since, other.since) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
    }
}

/// Returns the lag of a consumer in one stream.
pub(super) fn of(reader: Reader<'_>, at: Mark) -> Result<ChangeLag> {
    let last = changes::last(reader)?;
    let next = changes::next(reader, at.number)?;
    let mut lag = ChangeLag {
        changes: last.number.saturating_sub(at.number),
        bytes: last.end.saturating_sub(at.end),
        since: next.map(|(_, change)| time_of(change.time)),
    };
    changes::each_pending(reader, |change, bytes| {
        lag.add(ChangeLag { changes: 1, bytes, since: Some(time_of(change.time)) });
    })?;
    Ok(lag)
}
