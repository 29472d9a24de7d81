//! The use of a server by a store.

use std::time::Duration;

/// The connections, statements and conflicts of a store on a PostgreSQL server, in this process since the store was opened; from
/// [`Store::server_usage`](crate::Store::server_usage).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerUsage {
    /// The connections of the pool that are open now, idle or in use. Those for asynchronous look-ups, and those that are opened for a moment,
    /// for example to determine the outcome of a commit, are not counted.
    pub connections: u64,
    /// Those of them that a transaction uses now.
    pub connections_in_use: u64,
    /// The largest number of them: the option [`connections`](crate::Options::connections).
    pub connections_most: u64,
    /// The threads that wait for a connection now.
    pub waiting: u64,
    /// The number of waits for a connection so far, including those that are not over.
    pub waits: u64,
    /// The total time of the waits that are over.
    pub waited: Duration,
    /// The statements that were sent to the server. Several of them in one message, such as `BEGIN` with a setting, count once.
    pub statements: u64,
    /// How often a closure ran again after a conflict.
    pub retries: u64,
    /// The commits that failed with [`Error::CommitUnknown`](crate::Error::CommitUnknown).
    pub unknown_commits: u64,
    /// The transactions that failed because of a conflict. A transaction that was run again counts for each run.
    pub conflicts: u64,
    /// Those of them that had written a table, for each such table by its name. A transaction that had written several tables counts for each.
    pub conflicts_by_table: Vec<(&'static str, u64)>,
}
