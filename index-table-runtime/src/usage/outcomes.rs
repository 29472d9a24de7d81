//! The outcomes of commits: counters that are always enabled, and their report.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, SystemTime},
};

use crate::{engine::CommitFailure, locks::Mutex, model::error::Error};

/// The kinds of failures.
const KINDS: [&str; 7] =
    ["conflict", "disk_full", "file_replaced", "io", "map_full", "other", "unknown"];

/// The outcomes of the commits of a store.
#[derive(Default)]
pub(crate) struct Outcomes {
    commits: AtomicU64,
    /// The time of the last commit, in nanoseconds since 1970; 0 before the first.
    last: AtomicU64,
    failures: [AtomicU64; KINDS.len()],
    /// Whether the last commit has failed.
    has_failed: AtomicBool,
    failed: Mutex<Option<FailedCommit>>,
}

/// The commits of a store in this process since it was opened; from [`Store::commits`](crate::Store::commits).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commits {
    /// The number of transactions with changed rows that were committed.
    pub count: u64,
    /// The time of the last of them.
    pub last: Option<SystemTime>,
    /// The number of commits that failed, for each kind of failure; kinds without a failure are left out. A transaction that
    /// was run again counts for each run. The kinds are `conflict`, `disk_full`, `file_replaced`, `io`, `map_full`, `unknown` (the commit
    /// may have been applied) and `other`.
    pub failures: Vec<(&'static str, u64)>,
    /// The last commit, if it has failed.
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
    /// Counts a commit.
    #[inline]
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Relaxed);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        self.last.store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
        if self.has_failed.load(SeqCst) {
            self.succeeded();
        }
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
        // Others commit.
        if kind == "conflict" {
            return;
        }
        let (CommitFailure::Conflict(error)
        | CommitFailure::Unknown(error)
        | CommitFailure::Failed(error)) = failure;
        let mut failed = self.failed.lock();
        self.has_failed.store(true, SeqCst);
        *failed = Some(FailedCommit { kind, message: error.to_string(), time: SystemTime::now() });
    }

    pub(crate) fn report(&self) -> Commits {
        let last = self.last.load(Relaxed);
        let counts = self.failures.iter().map(|count| count.load(Relaxed));
        Commits {
            count: self.commits.load(Relaxed),
            last: (last != 0)
                .then(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(last)))
                .flatten(),
            failures: KINDS.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect(),
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
        let outcomes = Outcomes::default();
        assert_eq!(outcomes.report().last, None);
        outcomes.failed(&CommitFailure::Failed(Error::MapFull { map_size: 1 }));
        outcomes.failed(&CommitFailure::Failed(Error::MapFull { map_size: 2 }));
        outcomes.failed(&CommitFailure::Conflict(Error::TransactionFailed));
        let report = outcomes.report();
        assert_eq!(report.failures, [("conflict", 1), ("map_full", 2)]);
        let failed = report.failed.expect("the last commit has failed");
        assert_eq!((failed.kind, failed.message.contains('2')), ("map_full", true));
        outcomes.committed();
        let report = outcomes.report();
        assert_eq!((report.count, report.failed), (1, None));
        assert!(report.last.is_some_and(|last| last <= SystemTime::now()));
    }
}
