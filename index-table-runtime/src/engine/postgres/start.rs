//! The start of a transaction on its connection.
//!
//! `BEGIN` is sent together with the first statement, which takes the snapshot. A snapshot must not contain commits of
//! this store after the start of the transaction. So before each commit, all read transactions of this store without a
//! snapshot take one.

use std::sync::Arc;

use super::connection::{Connection, Outcome};
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

    /// Begins the transaction and takes its snapshot, unless that has happened. If another thread is starting the
    /// transaction, this function doesn't wait: the first query of that thread may be waiting for the transaction that
    /// is about to commit.
    pub(super) fn take_snapshot(&self, begin: &str) {
        let Some(mut state) = self.0.try_lock() else { return };
        let Some(connection) = state.connection.clone().filter(|_| !state.has_begun) else {
            return;
        };
        state.has_begun = true;
        let outcome: Outcome<_> = connection.simple(&format!("{begin}; SELECT 1"));
        state.failure = outcome.err();
    }

    /// Ends the use of the connection.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        (state.connection, state.has_begun) = (None, true);
    }
}
