//! Commits, and the outcome of a commit whose connection was lost.

use std::{
    hash::{BuildHasher as _, RandomState},
    io, thread,
    time::{Duration, Instant},
};

use super::{
    batch::{Batch, Kind},
    connection::Connection,
    error,
    names::hex,
    pending::Item,
    pool::{Leased, Pool},
    session::Session,
    trip::{Broken, Last},
};
use tokio_postgres::error::SqlState;

use crate::{
    engine::{CommitFailure, Stamp},
    model::error::{Error, Result},
};

/// The time limit for determining whether a commit was applied, after its connection was lost.
const RESOLUTION: Duration = Duration::from_secs(5);

/// A row that proves a commit, for servers without the outcomes of transactions. The transaction writes the row, and it
/// is removed after the commit.
struct Token {
    bytes: [u8; 16],
    /// The bytes in SQL.
    literal: String,
    table: String,
}

impl Token {
    fn new(session: &Session<'_>) -> Option<Self> {
        if session.pool.has_outcomes() {
            return None;
        }
        // Each `RandomState` has different keys.
        let random = |number: u64| RandomState::new().hash_one(number).to_be_bytes();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(random(1).into_iter().chain(random(2))).for_each(|(to, it)| *to = it);
        let hex = hex(&bytes);
        let table = session.catalog.commits.sql.clone();
        Some(Self { bytes, literal: format!("'\\x{hex}'"), table })
    }

    fn insert(&self) -> String {
        format!("INSERT INTO {} (k, v) VALUES ({}, '')", self.table, self.literal)
    }

    /// Removes the token of a commit whose outcome is known.
    fn remove(token: Option<&Self>, leased: Option<&Leased>) {
        let connection = leased.and_then(|leased| leased.get().ok());
        if let (Some(token), Some(connection)) = (token, connection) {
            connection.send(&format!("DELETE FROM {} WHERE k = {}", token.table, token.literal));
        }
    }

    /// Returns whether the transaction with the token was committed. If this function can write the token, the
    /// transaction was not committed, and can no longer be committed.
    fn resolve(&self, pool: &Pool) -> Option<bool> {
        until_known(pool, None, |connection| match connection.simple(&self.insert()) {
            Ok(_) => Some(Some(false)),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Some(Some(true)),
            Err(_) => None,
        })
    }
}

/// Commits a transaction that has begun.
pub(super) fn commit(session: &Session<'_>, stamp: Stamp) -> Result<(), CommitFailure> {
    let pool = session.pool;
    if session.is_lost() {
        // The server has rolled back, even if it was restarted and no longer knows the transaction.
        drop(session.release());
        let lost = io::Error::new(io::ErrorKind::ConnectionAborted, "it ended before the commit");
        return Err(CommitFailure::Failed(error::unreachable(pool.server(), &lost)));
    }
    let token = Token::new(session);
    if let Some(token) = &token {
        session.pending.with(|pending| pending.items.push_back(Item::Simple(token.insert())));
    }
    pool.take_snapshots();
    let outcome = session.round_trip(Last::Simple("COMMIT"));
    let leased = session.release();
    let cause = match outcome {
        Ok(_) => {
            Token::remove(token.as_ref(), leased.as_ref());
            leased.into_iter().for_each(Leased::keep);
            return Ok(());
        }
        Err(Broken::Other(error)) => return Err(CommitFailure::Failed(error)),
        // The server has rolled back if a statement before the commit has failed.
        Err(Broken::Statement(cause) | Broken::Last(cause)) => cause,
    };
    let lost = |connection: &Connection| match &token {
        Some(token) => token.resolve(pool),
        None => resolve(pool, connection.started(), stamp),
    };
    judge(pool, leased, cause, lost)
}

/// Sends a single batch as a transaction of its own.
pub(super) fn commit_alone(session: &Session<'_>, batch: &mut Batch) -> Result<(), CommitFailure> {
    let pool = session.pool;
    let token = Token::new(session);
    if let Some(token) = &token {
        batch.push(&session.catalog.commits, Kind::New, &[&token.bytes, b""]);
    }
    let outcome = session.send_alone(batch);
    let leased = session.release();
    let cause = match outcome {
        Ok(Ok(is_applied)) => {
            Token::remove(token.as_ref(), leased.as_ref());
            leased.into_iter().for_each(Leased::keep);
            let conflict = || CommitFailure::Conflict(Error::RetriesExhausted { attempts: 1 });
            return if is_applied { Ok(()) } else { Err(conflict()) };
        }
        Ok(Err(error)) => return Err(CommitFailure::Failed(error)),
        Err(cause) => cause,
    };
    judge(pool, leased, cause, |connection| match &token {
        Some(token) => token.resolve(pool),
        None => resolve_alone(pool, connection, batch),
    })
}

/// Returns the outcome of a commit after an error. If the connection is lost, `lost` determines whether the commit was
/// applied.
fn judge(
    pool: &Pool,
    leased: Option<Leased>,
    cause: tokio_postgres::Error,
    lost: impl FnOnce(&Connection) -> Option<bool>,
) -> Result<(), CommitFailure> {
    let kind = error::kind(&cause);
    let error = error::of(pool.server(), cause);
    match kind {
        error::Kind::Conflict => {
            leased.into_iter().for_each(Leased::keep);
            Err(CommitFailure::Conflict(error))
        }
        error::Kind::Refused => {
            leased.into_iter().for_each(Leased::keep);
            Err(CommitFailure::Failed(error))
        }
        error::Kind::Ambiguous | error::Kind::Lost => {
            let connection = leased.as_ref().and_then(|leased| leased.get().ok());
            drop(leased);
            match connection.and_then(|connection| lost(&connection)) {
                Some(true) => Ok(()),
                Some(false) => Err(CommitFailure::Failed(error)),
                None => Err(CommitFailure::Unknown(error)),
            }
        }
    }
}

/// Calls `outcome` on new connections until it returns a result, up to a time limit. With `started`, returns `None` if
/// the server was restarted: a later run may have given the same number to another transaction, for example after a
/// failover to a copy.
fn until_known(
    pool: &Pool,
    started: Option<&str>,
    outcome: impl Fn(&Connection) -> Option<Option<bool>>,
) -> Option<bool> {
    let begun = Instant::now();
    loop {
        if let Ok(connection) = pool.open() {
            if started.is_some_and(|started| connection.started() != started) {
                return None;
            }
            if let Some(known) = outcome(&connection) {
                return known;
            }
        }
        if begun.elapsed() > RESOLUTION {
            return None;
        }
        // The server has not yet detected the loss of the connection.
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether the commit of a transaction was applied; `None` if this can't be determined. The server is queried
/// only if it was not restarted; it has the outcomes of its last transactions.
fn resolve(pool: &Pool, started: &str, stamp: Stamp) -> Option<bool> {
    until_known(pool, Some(started), |connection| {
        let status = connection.simple(&format!("SELECT pg_xact_status('{}')", stamp.number()));
        match status.ok().flatten().as_deref() {
            Some("committed") => Some(Some(true)),
            Some("aborted") => Some(Some(false)),
            _ => None,
        }
    })
}

/// Returns whether a batch with a new row was applied, after the session has ended; `None` if this can't be determined.
/// If the row is missing or different, the batch was not applied. If the row is equal, this can't be determined,
/// because another client may have written it.
fn resolve_alone(pool: &Pool, lost: &Connection, batch: &Batch) -> Option<bool> {
    let (table, key, row) = batch.new_fact()?;
    until_known(pool, Some(lost.started()), |connection| {
        let ended = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
        let sessions = connection.query(ended, &[&lost.backend()]).ok()?;
        if sessions.first()?.try_get::<_, i64>(0).ok()? > 0 {
            return None;
        }
        let found = connection.query(&format!("SELECT v FROM {table} WHERE k = $1"), &[&key]);
        match found.ok()?.first() {
            Some(found) if found.try_get::<_, &[u8]>(0).ok()? == row => Some(None),
            _ => Some(Some(false)),
        }
    })
}
