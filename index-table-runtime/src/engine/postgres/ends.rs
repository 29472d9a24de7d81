//! The ends of read transactions.
//!
//! The end of a read transaction is sent together with the next transaction on its connection, because a message of its
//! own would cost the server as much as a look-up. If no transaction follows soon, a thread sends it, so that the server
//! doesn't keep the snapshot.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use super::connection::Connection;
use crate::locks::{Condvar, Mutex, MutexGuard};

/// The time after which an end is sent. The server keeps a snapshot for at most about this time after its transaction.
const AFTER: Duration = Duration::from_millis(5);

/// Sends the ends of read transactions.
#[derive(Default)]
pub(super) struct Ends {
    shared: Arc<Shared>,
    started: OnceLock<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The connections with an end that may not have been sent.
    unsent: Vec<Arc<Connection>>,
    /// Whether there is a thread that sends.
    is_running: bool,
    /// Whether the store is closed.
    is_closed: bool,
}

impl Ends {
    /// Ends the read transaction on a connection.
    pub(super) fn end(&self, connection: &Arc<Connection>) {
        self.started.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("index-table-postgres".to_owned());
            self.shared.state().is_running = thread.spawn(move || shared.run()).is_ok();
        });
        if connection.rollback_later() {
            let mut state = self.shared.state();
            if !state.is_running {
                drop(state);
                // Without a thread, a connection that another thread uses sends it later.
                let _ = connection.send_queued();
                return;
            }
            state.unsent.push(Arc::clone(connection));
            if state.unsent.len() == 1 {
                self.shared.changed.notify_one();
            }
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for _ in 0..1000 {
            // In a forked process, the lock may be held by a thread that does not exist.
            let Some(mut state) = self.shared.state.try_lock() else {
                thread::yield_now();
                continue;
            };
            state.is_closed = true;
            // The sessions end with their connections.
            state.unsent.clear();
            self.shared.changed.notify_one();
            return;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn run(&self) {
        loop {
            let is_idle = |state: &mut State| state.unsent.is_empty() && !state.is_closed;
            let is_closed = self.changed.wait_while(self.state(), is_idle).is_closed;
            if is_closed {
                return;
            }
            thread::sleep(AFTER);
            let mut unsent = std::mem::take(&mut self.state().unsent);
            unsent.retain(|connection| !connection.send_queued());
            self.state().unsent.append(&mut unsent);
        }
    }
}
