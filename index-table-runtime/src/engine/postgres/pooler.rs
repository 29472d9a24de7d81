//! Refusing a pooler that shares the sessions of the server between its clients, such as `PgBouncer` in transaction mode.
//!
//! Settings, prepared statements and advisory locks belong to a session. A pooler that gives each transaction any session would apply them to other
//! clients. Usually, it gives the same session again while there is little work, so one look at the settings proves nothing. Therefore, a
//! store looks when it is opened what becomes of a session whose connection is closed:
//!
//! | the session | the server, or the pooler |
//! |---|---|
//! | has ended | the server itself, or a pooler that closes sessions |
//! | has run `DISCARD ALL`, or another reset | a pooler in session mode |
//! | has the last statement of the closed connection | a pooler that shares sessions |
//! | is that of another open connection | a pooler that shares sessions |
//! | has another statement | another client of a pooler has it: not known, so this is repeated |
//! | can't be seen | not known |
//!
//! Only a proof refuses the store. What is not known counts as the server itself, because the settings of each session are checked as well.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{connection::Connection, pool::Pool, sql::before_settings};
use crate::model::error::{Error, Result, ServerProblem};

/// The pause between two looks at a session.
const PAUSE: Duration = Duration::from_millis(2);

/// The number of sessions that are looked at if it is not known who uses them.
const ATTEMPTS: u32 = 16;

/// The least time in which a server can end a session.
const END: Duration = Duration::from_secs(1);

/// The longest time for opening the second connection. There may be no room for it while the first one is open.
const SECOND: Duration = Duration::from_secs(1);

/// The statements by which poolers reset a session for another client.
const RESETS: [&str; 7] = ["discard", "reset", "deallocate", "abort", "rollback", "close", "set "];

/// What a look at a session finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Ended,
    /// The session of the connection that looks.
    Own,
    /// The last statement of the closed connection.
    Kept,
    Reset,
    /// Another statement.
    Other,
    /// The server withholds the statement.
    Nothing,
}

impl Seen {
    /// Returns the meaning of the result of [`look`].
    fn of(found: &str, tag: &str) -> Self {
        let Some(last) = found.strip_prefix("has ") else {
            return if found == "own" { Self::Own } else { Self::Ended };
        };
        let lower = last.trim_start().to_ascii_lowercase();
        if last.contains(tag) {
            Self::Kept
        } else if lower.is_empty() || lower.starts_with("<insufficient") {
            Self::Nothing
        } else if RESETS.iter().any(|reset| lower.starts_with(reset)) {
            Self::Reset
        } else {
            Self::Other
        }
    }
}

/// Returns an error if a pooler shares sessions between clients. Closes the first connection.
pub(super) fn refuse(pool: &Arc<Pool>, mut first: Connection) -> Result<()> {
    let until = Instant::now() + pool.limits().connect;
    for _ in 0..ATTEMPTS {
        match is_shared(pool, first) {
            Some(true) => return Err(shared(pool)),
            Some(false) => return Ok(()),
            None => {}
        }
        if Instant::now() >= until {
            break;
        }
        let Ok(next) = pool.connect(SECOND) else { break };
        first = next;
    }
    Ok(())
}

fn shared(pool: &Pool) -> Error {
    Error::Unreachable {
        server: pool.server().to_owned(),
        problem: ServerProblem::NotSupported,
        reason: "a pooler of connections, for example PgBouncer in transaction mode, shares the sessions of the server between clients; \
                 connect to the server itself, or let the pooler keep a session for each connection (`pool_mode = session`)"
            .to_owned(),
    }
}

/// Returns the query for the number of the own session, and the time of its begin, which tells it from another session with the same number.
fn identify(tag: &str) -> String {
    let query = "SELECT pid::text || ' ' || (extract(epoch FROM backend_start) * 1000000)::int8::text \
                 FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    // A server can cut off the end of long statements.
    format!("/* {tag} */ {}", before_settings(query))
}

/// Returns the query for what [`Seen::of`] takes.
fn look((pid, begun): (u64, u64)) -> String {
    before_settings(&format!(
        "SELECT coalesce((SELECT CASE WHEN pid = pg_backend_pid() THEN 'own' ELSE 'has ' || query END \
         FROM pg_stat_activity WHERE pid = {pid} \
         AND (extract(epoch FROM backend_start) * 1000000)::int8 = {begun}), 'ended')"
    ))
}

/// Returns whether the session of a connection is shared with other connections; `None` if another client may have it. An error says nothing,
/// as on a server that withholds its sessions or has no room for the second connection, and counts as a session that is not shared.
fn is_shared(pool: &Arc<Pool>, first: Connection) -> Option<bool> {
    let tag = format!("index-table {:016x}", RandomState::new().hash_one(Instant::now()));
    let Ok(Some(found)) = first.simple(&identify(&tag)) else { return Some(false) };
    let session = found.split_once(' ').map(|(pid, begun)| (pid.parse(), begun.parse()));
    let Some((Ok(pid), Ok(begun))) = session else { return Some(false) };
    // Without settings, which would be those of another client's session, too.
    let Ok(other) = pool.connect(SECOND) else { return Some(false) };
    let look = look((pid, begun));
    let look = || match other.simple(&look) {
        Ok(Some(found)) => Seen::of(&found, &tag),
        _ => Seen::Nothing,
    };
    if look() == Seen::Own {
        return Some(true);
    }
    // This ends the session, unless there is a pooler.
    drop(first);
    let until = Instant::now() + END.max(pool.limits().connect);
    loop {
        match look() {
            Seen::Own => return Some(true),
            Seen::Ended | Seen::Reset | Seen::Nothing => return Some(false),
            Seen::Other => return None,
            // A server ends a session soon.
            Seen::Kept if Instant::now() >= until => return Some(true),
            Seen::Kept => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_statement_or_session_is_a_proof() {
        let tag = "index-table 0123456789abcdef";
        let kept = format!("has {}", identify(tag));
        for (found, seen) in [
            ("ended", Seen::Ended),
            ("", Seen::Ended),
            ("own", Seen::Own),
            (kept.as_str(), Seen::Kept),
            ("has ", Seen::Nothing),
            ("has <insufficient privilege>", Seen::Nothing),
            ("has DISCARD ALL", Seen::Reset),
            ("has deallocate all; RESET ALL", Seen::Reset),
            ("has  ABORT; DISCARD ALL", Seen::Reset),
            ("has SELECT 1", Seen::Other),
        ] {
            assert_eq!(Seen::of(found, tag), seen, "{found}");
        }
        // A server keeps at least 100 bytes of a statement.
        assert!(kept.find(tag).is_some_and(|at| at + tag.len() < 100));
    }
}
