//! Why a server can't be used.

/// The reason for [`Error::Unreachable`](crate::Error::Unreachable).
///
/// ```
/// use index_table::{Error, ServerProblem, Store};
///
/// # #[cfg(feature = "postgres")] {
/// let options = Store::options().connect_timeout(std::time::Duration::from_millis(100));
/// let refused = options.connect("postgresql://app@127.0.0.1:1/app");
/// assert!(matches!(refused, Err(Error::Unreachable { problem: ServerProblem::Network, .. })));
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerProblem {
    /// The server does not accept a connection, the connection was lost, or there was no response within the time limit.
    Network,
    /// The user or the password is wrong, or the user may not use the database.
    NotAuthorized,
    /// The server has no such database.
    NoSuchDatabase,
    /// All connections of the store, or of the server, are in use.
    NoFreeConnection,
    /// The server is starting, stopping or recovering.
    Restarting,
    /// The server is a standby, which can't be written to.
    NotPrimary,
    /// Another client has been opening a table, or changing or building indexes, for an hour. These operations wait for each other.
    Locked,
    /// The server, or a pooler before it, is not supported. The reason has the product, the version or the setting.
    NotSupported,
    /// The server has another cluster or database than when the store was opened, for example a restored dump. Open the store again.
    Replaced,
}
