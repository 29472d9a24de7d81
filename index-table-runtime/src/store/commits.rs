//! The outcomes of commits: the time of the last one, counters of failures, and their report. [`Requests`] counts those that succeed.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, SystemTime},
};

use crate::{engine::CommitFailure, locks::Mutex, model::error::Error, usage::Requests};

/// The kinds of failures.
const KINDS: [&str; 8] = [
    "conflict",
    "disk_full",
    "file_replaced",
    "io",
    "map_full",
    "other",
    "reopen_needed",
    "unknown",
];

/// The kinds that are no fault of the program, of another client, or of a map that grows.
const LASTING: [&str; 5] = ["disk_full", "file_replaced", "io", "reopen_needed", "unknown"];

/// The outcomes of the commits of a store.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// The time of the last commit with rows, in nanoseconds since 1970; 0 before the first.
    last: AtomicU64,
    failures: [AtomicU64; KINDS.len()],
    /// Whether the last commit has failed.
    has_failed: AtomicBool,
    failed: Mutex<Option<FailedCommit>>,
}

/// The commits of a store in this process since it was opened; from [`Store::commits`](crate::Store::commits).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Commits {
    /// The number of transactions with changed rows that were committed.
    pub count: u64,
    /// The time of the last of them.
    pub last: Option<SystemTime>,
    /// The number of commits that failed, for each kind of failure. A transaction that was run again counts for each run. The kinds are
    /// `conflict`, `disk_full`, `file_replaced`, `io`, `map_full`, `reopen_needed`, `unknown` (the commit may have been applied) and `other`.
    pub failures: Vec<(&'static str, u64)>,
    /// The last commit, if it has failed. Failures of the kinds `conflict`, `map_full` and `other`, which leave the store as it was, don't
    /// count.
    pub failed: Option<FailedCommit>,
}

/// A commit that failed; see [`Commits`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedCommit {
    /// The kind of the failure.
    pub kind: &'static str,
    /// The text of the error.
    pub message: String,
    /// The time of the failure.
    pub time: SystemTime,
}

impl Outcomes {
    /// Notes a commit.
    #[inline]
    pub(crate) fn committed(&self) {
        if self.has_failed.load(SeqCst) {
            self.succeeded();
        }
    }

    /// Notes that a commit has changed rows.
    #[inline]
    pub(crate) fn has_rows(&self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        self.last.store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
    }

    #[cold]
    fn succeeded(&self) {
        let mut failed = self.failed.lock();
        self.has_failed.store(false, SeqCst);
        *failed = None;
    }

    /// Counts a failure.
    #[cold]
    pub(crate) fn failed(&self, failure: &CommitFailure) {
        let kind = kind_of(failure);
        if let Some(at) = KINDS.iter().position(|own| *own == kind)
            && let Some(count) = self.failures.get(at)
        {
            count.fetch_add(1, Relaxed);
        }
        if !LASTING.contains(&kind) {
            return;
        }
        let (CommitFailure::Conflict(error)
        | CommitFailure::Unknown(error)
        | CommitFailure::Failed(error)) = failure;
        let mut failed = self.failed.lock();
        self.has_failed.store(true, SeqCst);
        *failed = Some(FailedCommit { kind, message: error.to_string(), time: SystemTime::now() });
    }

    pub(crate) fn report(&self, requests: &Requests) -> Commits {
        let (_, count) = requests.get();
        let last = self.last.load(Relaxed);
        let counts = self.failures.iter().map(|count| count.load(Relaxed));
        Commits {
            count,
            last: (last != 0)
                .then(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(last)))
                .flatten(),
            failures: KINDS.into_iter().zip(counts).collect(),
            failed: self.failed.lock().clone(),
        }
    }
}

const fn kind_of(failure: &CommitFailure) -> &'static str {
    match failure {
        CommitFailure::Conflict(_) => "conflict",
        CommitFailure::Unknown(_) => "unknown",
        CommitFailure::Failed(error) => match error {
            Error::Conflict { .. } => "conflict",
            Error::DiskFull { .. } => "disk_full",
            Error::FileReplaced { .. } => "file_replaced",
            Error::Io { .. } => "io",
            Error::ReopenNeeded { .. } => "reopen_needed",
            Error::MapFull { .. } | Error::GrowthBlocked { .. } | Error::MapTooSmall { .. } => {
                "map_full"
            }
            _ => "other",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_until_the_next_commit() {
        let (outcomes, requests) = (Outcomes::default(), Requests::default());
        let report = || outcomes.report(&requests);
        let full = || Error::DiskFull {
            path: "shop".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        };
        assert_eq!((report().last, report().failed), (None, None));
        outcomes.failed(&CommitFailure::Failed(full()));
        outcomes.failed(&CommitFailure::Failed(Error::MapFull { map_size: 2 }));
        outcomes.failed(&CommitFailure::Conflict(Error::WriteInProgress));
        let found = report();
        let counts: Vec<_> = found.failures.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [&("conflict", 1), &("disk_full", 1), &("map_full", 1)]);
        assert_eq!(found.failed.map(|failed| failed.kind), Some("disk_full"));
        // A commit without rows shows that the store is written again.
        outcomes.committed();
        assert_eq!((report().count, report().last, report().failed), (0, None, None));
        outcomes.failed(&CommitFailure::Failed(Error::MapFull { map_size: 2 }));
        outcomes.failed(&CommitFailure::Failed(Error::WriteInProgress));
        assert_eq!(report().failed, None);
        outcomes.has_rows();
        requests.write();
        assert_eq!(report().count, 1);
        assert!(report().last.is_some_and(|last| last <= SystemTime::now()));
    }
}
