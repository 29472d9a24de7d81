//! Waiting for messages, and for those who apply them.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    later::WhenFull,
    message::Position,
    token::{IndexToken, is_applied},
};
use crate::{
    error::Result,
    store::{OpenTable, Store},
};

/// How often it is looked whether another process has written or applied messages.
const POLL: Duration = Duration::from_millis(20);

/// What happens to the queues of a store in this process.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often messages have been written or applied.
    events: u64,
    /// Somebody waits for messages to be applied.
    hurry: bool,
}

impl Signals {
    /// Messages have been written or applied, or a worker is to stop.
    pub(crate) fn notify(&self) {
        self.state().events += 1;
        self.changed.notify_all();
    }

    pub(super) fn events(&self) -> u64 {
        self.state().events
    }

    /// No worker waits for more messages to gather.
    pub(super) fn hurry(&self) {
        self.state().hurry = true;
        self.changed.notify_all();
    }

    /// Waits until something has happened since, or the time is over.
    pub(super) fn wait(&self, since: u64, time: Duration) {
        self.wait_while(time, |state| state.events == since && !state.hurry);
    }

    /// Waits for more to happen, if something has happened since and nobody waits for it.
    pub(super) fn gather(&self, since: u64, time: Duration, stopped: impl Fn() -> bool) {
        self.wait_while(time, |state| state.events != since && !state.hurry && !stopped());
        self.state().hurry = false;
    }

    /// As [`wait`](Signals::wait), for who is in a hurry.
    fn wait_for_event(&self, since: u64, time: Duration) {
        self.wait_while(time, |state| state.events == since);
    }

    fn wait_while(&self, time: Duration, goes_on: impl Fn(&State) -> bool) {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| goes_on(state));
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the messages of a transaction have been applied to this table's indexes; `false`:
/// the time is over.
pub(crate) fn wait_for(
    store: &Store,
    table: &OpenTable,
    token: &IndexToken,
    timeout: Duration,
) -> Result<bool> {
    let Some(number) = token.of(table.schema.name) else { return Ok(true) };
    until(store, timeout, || {
        let txn = store.read()?;
        is_applied(table.schema, txn.reader(table)?, number)
    })
}

/// How long a closure has waited for the workers to make room.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
}

impl Waiting {
    /// Waits until there is room in the queue of a table; `false`: for no longer.
    pub(crate) fn wait_for_room(&mut self, store: &Store, table: &str) -> Result<bool> {
        let used = store.inner.eventual_tables();
        let Some(table) = used.into_iter().find(|used| used.schema.name == table) else {
            return Ok(false);
        };
        let WhenFull::Wait(most) = table.limit.when_full else { return Ok(false) };
        let since = *self.since.get_or_insert_with(Instant::now);
        until(store, most.saturating_sub(since.elapsed()), || {
            let txn = store.read()?;
            let reader = txn.reader(&table)?;
            let left = Position::read(table.schema, reader)?.left(reader)?;
            Ok(left < table.limit.messages)
        })
    }
}

fn until(store: &Store, timeout: Duration, done: impl Fn() -> Result<bool>) -> Result<bool> {
    let signals = &store.inner.signals;
    let begun = Instant::now();
    loop {
        let events = signals.events();
        if done()? {
            return Ok(true);
        }
        // The worker needs the turn to write that this thread has.
        store.inner.refuse_nested_write()?;
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        signals.hurry();
        signals.wait_for_event(events, left.min(POLL));
    }
}
