//! The start of a transaction on its connection.
//!
//! `BEGIN` is sent together with the first statement, which takes the snapshot. A snapshot must not contain commits of
//! this store after the start of the transaction. So before each commit, all read transactions of this store without a
//! snapshot take one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::connection::Connection;
use crate::locks::{Mutex, MutexGuard, rank::ServerStart};

/// The start of a transaction.
#[derive(Default)]
pub(super) struct Start(Mutex<State, ServerStart>);

#[derive(Default)]
pub(super) struct State {
    /// The connection of a transaction that is open.
    pub(super) connection: Option<Arc<Connection>>,
    /// Whether `BEGIN` was sent.
    pub(super) has_begun: bool,
    /// The failure of a start in another thread.
    pub(super) failure: Option<tokio_postgres::Error>,
}

impl Start {
    /// Locks the state. The thread that starts the transaction keeps the lock until the snapshot is taken.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Ends the use of the connection.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        (state.connection, state.has_begun) = (None, true);
    }
}

/// Begins transactions and takes their snapshots, all within one time limit. A transaction without a response by then has failed.
///
/// Transactions that have begun are left out, and so are those that another thread is starting: the first query of that thread
/// may be waiting for the transaction that is about to commit.
pub(super) fn take_snapshots(starts: &[Arc<Start>], begin: &str, limit: Duration) {
    let (until, sql) = (Instant::now() + limit, format!("{begin}; SELECT 1"));
    let unbegun = starts.iter().filter_map(|start| {
        let mut state = start.0.try_lock()?;
        let connection = state.connection.clone().filter(|_| !state.has_begun)?;
        state.has_begun = true;
        Some((state, connection))
    });
    let mut unbegun: Vec<_> = unbegun.collect();
    let sent = unbegun.iter().map(|(_, connection)| connection.send_simple(&sql));
    let sent: Vec<_> = sent.collect();
    for (_, connection) in &unbegun {
        // If another thread uses the connection, waiting for the response sends it.
        let _ = connection.send_queued();
    }
    let outcomes = sent.into_iter().zip(&unbegun).map(|(sent, (_, connection))| {
        let left = until.saturating_duration_since(Instant::now());
        connection.within(left, |_| sent.wait())
    });
    let outcomes: Vec<_> = outcomes.collect();
    for ((state, _), outcome) in unbegun.iter_mut().zip(outcomes) {
        state.failure = outcome.err();
    }
}
