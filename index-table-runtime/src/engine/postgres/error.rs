//! The errors of the client library and of the server.

use std::{error, fmt, io, iter, sync::Arc};

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::model::error::{Error, ServerProblem};

/// The meaning of an error for a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A transaction of another client has committed first.
    Conflict,
    /// The connection is lost.
    Lost,
    /// The server can't determine whether a commit was applied.
    Ambiguous,
    /// The server refused the statement.
    Refused,
}

/// Returns the meaning of an error.
pub(super) fn kind(error: &tokio_postgres::Error) -> Kind {
    let Some(code) = error.code() else { return Kind::Lost };
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    let conflicts = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // No statement depends on this error, so only a concurrent insertion causes it.
        SqlState::UNIQUE_VIOLATION,
        // Another transaction has held a lock for too long.
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    // The server ends the session: by an administrator, at a shutdown, after the crash of another session.
    let ends = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    if conflicts.contains(code) {
        Kind::Conflict
    } else if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN {
        Kind::Ambiguous
    } else if ends.contains(code)
        || code.code().starts_with("08")
        || matches!(severity, Some(Severity::Fatal | Severity::Panic))
    {
        Kind::Lost
    } else {
        Kind::Refused
    }
}

/// Returns the error for programs. `server` is the URL without the password.
pub(super) fn of(server: &str, error: tokio_postgres::Error) -> Error {
    match kind(&error) {
        Kind::Conflict => Error::RetriesExhausted { attempts: 1 },
        Kind::Lost | Kind::Ambiguous => unreachable(server, &error),
        Kind::Refused if error.code() == Some(&SqlState::DISK_FULL) => Error::DiskFull {
            path: server.into(),
            source: io::Error::new(io::ErrorKind::StorageFull, all_messages(&error)),
        },
        Kind::Refused if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            unreachable(server, &error)
        }
        Kind::Refused => Error::Engine { path: server.into(), source: Arc::new(Described(error)) },
    }
}

/// An error of the client library. Its own message does not include the message of the server.
#[derive(Debug)]
struct Described(tokio_postgres::Error);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&all_messages(&self.0))
    }
}

impl error::Error for Described {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Returns the messages of an error and of its sources.
fn all_messages(error: &dyn error::Error) -> String {
    let messages = iter::successors(Some(error), |&error| error.source());
    messages.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The error of a server that is a standby.
#[derive(Debug)]
pub(super) struct Standby(pub(super) String);

impl fmt::Display for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Standby {}

/// Returns the errors of the sources, beginning with the error itself.
fn chain<'e>(
    error: &'e (dyn error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn error::Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// Returns the error for a lost connection, or for a connection that can't be opened.
pub(super) fn unreachable(server: &str, error: &(dyn error::Error + 'static)) -> Error {
    let reason = all_messages(error);
    let is_late = chain(error).any(|it| is_late(it.downcast_ref()));
    let reason = if is_late {
        "no response within the time of `Store::options().response_timeout(…)`, or of `connect_timeout(…)` for a new connection"
            .to_owned()
    } else {
        reason
    };
    Error::Unreachable { server: server.to_owned(), problem: problem(error), reason }
}

/// Returns the error for a server that has not responded in time.
#[cfg(feature = "async")]
pub(super) fn late(server: &str) -> Error {
    unreachable(server, &tokio_postgres::Error::__private_api_timeout())
}

/// Whether the statement has waited for a lock for too long.
pub(super) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether the error is about an SQL table or its columns, which another client may have changed.
pub(super) fn is_of_table(error: &tokio_postgres::Error) -> bool {
    let codes = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        // The columns of `ON CONFLICT` are no key.
        SqlState::INVALID_COLUMN_REFERENCE,
        // A new column has no value.
        SqlState::NOT_NULL_VIOLATION,
        // The result of a prepared statement has other columns.
        SqlState::FEATURE_NOT_SUPPORTED,
        // A table was dropped while a statement began to use it.
        SqlState::INTERNAL_ERROR,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Whether the client has waited for the maximum time. The error of the library has no other sign.
fn is_late(error: Option<&tokio_postgres::Error>) -> bool {
    error.is_some_and(|it| it.to_string() == "timeout waiting for server")
}

fn problem(error: &(dyn error::Error + 'static)) -> ServerProblem {
    if chain(error).any(<dyn error::Error>::is::<Standby>) {
        return ServerProblem::NotPrimary;
    }
    let of_library = chain(error).find_map(|it| it.downcast_ref::<tokio_postgres::Error>());
    let Some(code) = of_library.and_then(tokio_postgres::Error::code) else {
        return ServerProblem::Network;
    };
    match code.code() {
        "28000" | "28P01" | "42501" => ServerProblem::NotAuthorized,
        "3D000" => ServerProblem::NoSuchDatabase,
        "53300" => ServerProblem::NoFreeConnection,
        "57P01" | "57P02" | "57P03" => ServerProblem::Restarting,
        "25006" => ServerProblem::NotPrimary,
        _ => ServerProblem::Network,
    }
}

/// Whether another attempt to connect can succeed soon, for example because the server is restarting.
pub(super) fn may_pass(error: &(dyn error::Error + 'static)) -> bool {
    use ServerProblem::{Network, NoFreeConnection, NotPrimary, Restarting};
    match problem(error) {
        Restarting | NotPrimary | NoFreeConnection => true,
        Network => chain(error).any(|it| {
            let of_library = it.downcast_ref::<tokio_postgres::Error>();
            let of_system = it.downcast_ref::<io::Error>().map(io::Error::kind);
            of_library.is_some_and(tokio_postgres::Error::is_closed)
                || of_system.is_some_and(|kind| {
                    use io::ErrorKind::{
                        ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof, WouldBlock,
                    };
                    // The last one: the queue of a server on a socket of the system is full.
                    [ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof, WouldBlock]
                        .contains(&kind)
                })
        }),
        _ => false,
    }
}
