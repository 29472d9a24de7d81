//! Commits, and the outcome of a commit whose connection was lost. See [`token`](super::token).

use std::{
    io, thread,
    time::{Duration, Instant},
};

use super::{
    batch::Batch,
    error,
    pending::Item,
    pool::{Leased, Pool},
    session::Session,
    token::Token,
    trip::{Broken, Last},
};
use crate::{
    engine::CommitFailure,
    model::error::{Error, Result, ServerProblem},
};

/// The time between two attempts to determine the outcome of a commit.
const PAUSE: Duration = Duration::from_millis(20);

/// Commits a transaction that has begun.
pub(super) fn commit(session: &Session<'_>) -> Result<(), CommitFailure> {
    let pool = session.pool;
    if session.is_lost() {
        // The server has rolled back.
        drop(session.release());
        let lost = io::Error::new(io::ErrorKind::ConnectionAborted, "it ended before the commit");
        return Err(CommitFailure::Failed(error::unreachable(pool.server(), &lost)));
    }
    // Without a change, the outcome makes no difference, and the token would be the only change.
    let token = session.pending.with(|pending| {
        let may_change = session.has_changed.get() || !pending.items.is_empty();
        may_change.then(|| {
            let token = Token::new();
            pending.items.push_back(Item::Token(token));
            token
        })
    });
    pool.take_snapshots();
    let outcome = session.round_trip(Last::Simple("COMMIT"));
    let leased = session.release();
    match outcome {
        Ok(_) => finish(session, leased, token),
        // The commit was sent before the error was found.
        Err(Broken::Other(error)) => Err(CommitFailure::Unknown(error)),
        // Neither the commit nor a rollback was sent, so the connection can't be kept.
        Err(Broken::Unsent(cause)) => {
            drop(leased);
            Err(failed(session, cause))
        }
        // The server has rolled back if a statement before the commit has failed.
        Err(Broken::Statement(cause) | Broken::Last(cause)) => judge(session, leased, cause, token),
    }
}

/// Sends a single batch as a transaction of its own.
pub(super) fn commit_alone(session: &Session<'_>, batch: &Batch) -> Result<(), CommitFailure> {
    let token = Token::new();
    let outcome = session.send_alone(batch, token);
    let leased = session.release();
    match outcome {
        Ok(Ok(true)) => finish(session, leased, Some(token)),
        Ok(Ok(false)) => {
            leased.into_iter().for_each(Leased::keep);
            Err(CommitFailure::Conflict(Error::RetriesExhausted { attempts: 1 }))
        }
        Ok(Err(error)) => Err(CommitFailure::Failed(error)),
        Err(cause) => judge(session, leased, cause, Some(token)),
    }
}

/// Returns the outcome of a commit that the server has confirmed.
fn finish(
    session: &Session<'_>,
    leased: Option<Leased>,
    token: Option<Token>,
) -> Result<(), CommitFailure> {
    let Some(leased) = leased else { return Ok(()) };
    if let Ok(connection) = leased.get() {
        if connection.take_unreplicated() && token.is_some() {
            let reason = "the wait of the commit for a standby was canceled";
            let reason = io::Error::new(io::ErrorKind::Interrupted, reason);
            let error = error::unreachable(session.pool.server(), &reason);
            drop((connection, leased));
            return determine(session, error, token);
        }
        if let Some(kept) = session.token.take() {
            connection.keep_token(kept);
        }
    }
    leased.keep();
    Ok(())
}

/// Returns the outcome of a commit after an error.
fn judge(
    session: &Session<'_>,
    leased: Option<Leased>,
    cause: tokio_postgres::Error,
    token: Option<Token>,
) -> Result<(), CommitFailure> {
    match error::kind(&cause) {
        error::Kind::Conflict | error::Kind::Refused => {
            leased.into_iter().for_each(Leased::keep);
            Err(failed(session, cause))
        }
        error::Kind::Ambiguous | error::Kind::Lost => {
            drop(leased);
            determine(session, error::of(session.pool.server(), cause), token)
        }
    }
}

/// Returns the failure of a commit that has changed nothing.
fn failed(session: &Session<'_>, cause: tokio_postgres::Error) -> CommitFailure {
    match session.meaning(cause) {
        (error::Kind::Conflict, error) => CommitFailure::Conflict(error),
        (_, error) => CommitFailure::Failed(error),
    }
}

/// Determines the outcome of a commit whose connection was lost with this error. A transaction without a token has changed nothing.
fn determine(
    session: &Session<'_>,
    error: Error,
    token: Option<Token>,
) -> Result<(), CommitFailure> {
    match token.map_or(Some(false), |token| is_committed(session, token)) {
        Some(true) => Ok(()),
        Some(false) => Err(CommitFailure::Failed(error)),
        None => Err(CommitFailure::Unknown(error)),
    }
}

/// Returns whether a transaction was committed, from the last row of its fence.
fn known(token: Token, found: &str) -> Option<bool> {
    // A token that was removed by age looks like one that was never written.
    (found == "1" || token.is_recent()).then_some(found == "1")
}

/// Writes the fence of a token on new connections until that succeeds, up to a time limit. Returns whether the transaction with the
/// token was committed; `None` after the time limit, or if the commit was sent too long ago.
fn is_committed(session: &Session<'_>, token: Token) -> Option<bool> {
    let (pool, commits): (&Pool, _) = (session.pool, &session.catalog.commits);
    let until = Instant::now() + pool.limits().commit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let opened = pool.open_within(left);
        // Another cluster can't tell.
        if let Err(Error::Unreachable { problem: ServerProblem::Replaced, .. }) = opened {
            return None;
        }
        if let Ok(connection) = opened {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let found = connection.within(left, |it| it.simple(&token.fence(commits, left)));
            // Otherwise, the fence may be missing on the standby.
            if let Ok(Some(found)) = found
                && !connection.take_unreplicated()
            {
                return known(token, &found);
            }
        }
        thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::token::AGE, *};

    #[test]
    fn a_fence_proves_nothing_after_tokens_are_removed() {
        let (token, day) = (Token::new(), AGE);
        // One of the clocks stops while the machine is suspended.
        let old = [(day, day), (day, Duration::ZERO), (Duration::ZERO, day)];
        let old = old.iter().filter_map(|times| token.after(*times));
        for old in old {
            assert_eq!((known(old, "0"), known(old, "1")), (None, Some(true)));
        }
        assert_eq!((known(token, "0"), known(token, "1")), (Some(false), Some(true)));
    }
}
