//! Refusing a pooler that shares the sessions of the server between its clients, such as `PgBouncer` in transaction mode.
//!
//! Settings, prepared statements and advisory locks belong to a session. A pooler that gives each transaction any session would apply them to other
//! clients. Usually, it gives the same session again while there is little work, so one look at the settings proves nothing. Therefore, a
//! store looks when it is opened what becomes of a session whose connection is closed:
//!
//! | the session | the server, or the pooler |
//! |---|---|
//! | has ended | the server itself, or a pooler that closes sessions |
//! | has run `DISCARD ALL` | a pooler in session mode |
//! | has the last statement of the closed connection | a pooler that shares sessions |
//! | is that of another open connection | a pooler that shares sessions |
//! | has another statement | another client of a pooler has it: not known, so this is repeated |

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{connection::Connection, error, pool::Pool};
use crate::model::error::{Error, Result, ServerProblem};

/// The pause between two looks at a session.
const PAUSE: Duration = Duration::from_millis(2);

/// The number of sessions that are looked at if it is not known who uses them.
const ATTEMPTS: u32 = 4;

/// Returns an error if a pooler shares sessions between clients. Closes the first connection.
pub(super) fn refuse(pool: &Arc<Pool>, mut first: Connection) -> Result<()> {
    for _ in 0..ATTEMPTS {
        match is_shared(pool, first)? {
            Some(false) => return Ok(()),
            Some(true) => break,
            None => first = pool.connect(pool.limits().connect)?,
        }
    }
    Err(Error::Unreachable {
        server: pool.server().to_owned(),
        problem: ServerProblem::NotSupported,
        reason: "a pooler of connections, for example PgBouncer in transaction mode, shares the sessions of the server between clients; \
                 connect to the server itself, or let the pooler keep a session for each connection (`pool_mode = session`)"
            .to_owned(),
    })
}

/// Returns whether the session of a connection is shared with other connections; `None` if that is not known.
fn is_shared(pool: &Arc<Pool>, first: Connection) -> Result<Option<bool>> {
    let failed = |error| error::of(pool.server(), error);
    let tag = format!("index-table {:016x}", RandomState::new().hash_one(Instant::now()));
    let pid =
        first.simple(&format!("SELECT pg_backend_pid()::text /* {tag} */")).map_err(failed)?;
    let pid = pid.unwrap_or_default();
    // Without settings, which would be those of another client's session, too.
    let other = pool.connect(pool.limits().connect)?;
    let look = format!(
        "SELECT CASE WHEN pg_backend_pid() = {pid} THEN 'own' ELSE coalesce((SELECT 'has ' || query \
         FROM pg_stat_activity WHERE pid = {pid}), 'ended') END"
    );
    let look = || other.simple(&look).map_err(failed);
    if look()?.as_deref() == Some("own") {
        return Ok(Some(true));
    }
    // This ends the session, unless there is a pooler.
    drop(first);
    let until = Instant::now() + pool.limits().connect;
    loop {
        let found = look()?.unwrap_or_default();
        match found.strip_prefix("has ") {
            None => return Ok(Some(found == "own")),
            // A server can withhold statements.
            Some(last) if last.is_empty() || last.contains(&tag) => {}
            Some(last) => return Ok(last.starts_with("DISCARD").then_some(false)),
        }
        if Instant::now() >= until {
            return Ok(Some(true));
        }
        thread::sleep(PAUSE);
    }
}
