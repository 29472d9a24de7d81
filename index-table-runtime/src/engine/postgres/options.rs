//! The options of a store on a server.

use std::time::Duration;

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
}
