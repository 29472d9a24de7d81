//! The errors of the client library and of the server.

use std::{error, fmt, iter, sync::Arc};

use tokio_postgres::error::SqlState;

use crate::model::error::Error;

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
    } else if ends.contains(code) || code.code().starts_with("08") {
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

/// Returns the error for a lost connection.
pub(super) fn unreachable(server: &str, error: &dyn error::Error) -> Error {
    Error::Unreachable { server: server.to_owned(), reason: all_messages(error) }
}
