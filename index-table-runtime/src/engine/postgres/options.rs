//! The options of a store on a server.

use std::time::Duration;

use crate::engine::Options;

/// The unit of the longest time limits.
const HOUR: Duration = Duration::from_hours(1);

/// The longest wait for a lock.
const LOCK: Duration = Duration::from_secs(5);

/// The time limits of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For opening a connection.
    pub(super) connect: Duration,
    /// For the time without a byte of a response.
    pub(super) response: Duration,
    /// For determining the outcome of a commit.
    pub(super) commit: Duration,
    /// For waiting for a connection of the pool.
    pub(super) lease: Duration,
}

impl Limits {
    /// Returns the limit for each wait of the server for a lock. It is shorter than that for a response, so that the server ends the
    /// wait, with a conflict, after which the transaction runs again.
    pub(super) fn lock(&self) -> Duration {
        LOCK.min(self.response / 2)
    }
}

impl Options {
    /// Sets the schema of the store on a server, for [`connect`](Options::connect). Default: `index_table`. A missing
    /// schema is created. A name has 1 to 63 bytes.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections to the server, for [`connect`](Options::connect). Default: 16. Each
    /// transaction uses a connection until it ends. With the Cargo feature `async`, look-ups of asynchronous callers share two more. If all are in use, a new transaction waits for at most
    /// [`retry_for`](Options::retry_for), and then fails with [`Error::Unreachable`](crate::Error::Unreachable).
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the maximum time for which a closure runs again after conflicts with other clients, for
    /// [`connect`](Options::connect). Default: 30 seconds. Then the transaction fails with
    /// [`Error::RetriesExhausted`](crate::Error::RetriesExhausted).
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = time;
        self
    }

    /// Sets the time limit for opening a connection to the server, for [`connect`](Options::connect). Default: 5 seconds. At most an
    /// hour is used. The hosts of the URL, and the addresses of a host, share it. `connect_timeout` of the URL can only shorten the time for
    /// an address. The limit includes the check of the password and the start of encryption, but not the look-up of the host's name, for
    /// which the system has limits. After it, the call fails with [`Error::Unreachable`](crate::Error::Unreachable).
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit.min(HOUR);
        self
    }

    /// Sets the maximum time without a byte of a response from the server, for [`connect`](Options::connect). Default: 30 seconds. At
    /// most a day is used. After it, the connection is closed, the server is requested to end the statement, which takes at most a
    /// second, and the call fails with [`Error::Unreachable`](crate::Error::Unreachable). A commit then uses
    /// [`commit_timeout`](Options::commit_timeout). A statement that takes longer before its first row needs a longer time, for example
    /// the `count` of hundreds of millions of entries, or their removal when an index is built again. Waiting for another client that is
    /// opening a table or changing indexes has a limit of its own, an hour. Waiting for a row or table that another client has locked ends
    /// after half of this time, at most 5 seconds, with a conflict; in a transaction of several round trips that writes rows, after 20 milliseconds, and
    /// twice as long after each such conflict of the thread; without a closure, after half a second.
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit.min(24 * HOUR);
        self
    }

    /// Sets the time limit for determining the outcome of a commit whose connection was lost, for [`connect`](Options::connect).
    /// Default: 5 seconds. At most an hour is used. If the outcome is not known by then, the commit fails with
    /// [`Error::CommitUnknown`](crate::Error::CommitUnknown).
    pub fn commit_timeout(mut self, limit: Duration) -> Self {
        self.commit_timeout = limit.min(HOUR);
        self
    }

    /// Sets the file with the certificates of the authorities that may sign the certificate of the server, in the PEM
    /// format, for encrypted connections. Default: the certificates of the system.
    #[cfg(feature = "postgres-tls")]
    pub fn root_certificates(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.root_certificates = Some(path.as_ref().to_owned());
        self
    }
}
