//! The options of a store on a server.

use std::time::Duration;

use super::dialect::Dialect;
use crate::engine::Options;

impl Options {
    /// Sets the schema of the store on a server, for [`connect`](Options::connect). Default: `index_table`. A missing
    /// schema is created. A name has 1 to 63 bytes.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections to the server, for [`connect`](Options::connect). Default: 16. Each
    /// transaction uses a connection until it ends. If all are in use, a new transaction waits for at most
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

    /// Sets the file with the certificates of the authorities that may sign the certificate of the server, in the PEM
    /// format, for encrypted connections. Default: the certificates of the system.
    #[cfg(feature = "postgres-tls")]
    pub fn root_certificates(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.root_certificates = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the kind of server, for [`connect`](Options::connect). Default: the kind according to the `version()` of the
    /// server.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Sets the number of parts into which each new table and index is split on YugabyteDB and CockroachDB, for
    /// [`connect`](Options::connect): from 1 to 256, evenly by the first byte of the encoded key. Default: 1. A server
    /// splits a growing table by itself, but until then one machine gets all writes. The keys of integers begin with their
    /// greatest byte, so small numbers are all in one part.
    ///
    /// On PostgreSQL, another value than 1 is an error.
    pub fn splits(mut self, parts: u16) -> Self {
        self.splits = parts;
        self
    }
}
