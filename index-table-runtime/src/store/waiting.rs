//! Waiting until messages are applied, until a queue has room, or for a commit.

#[cfg(feature = "async")]
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "async")]
use super::{Call, wait_for_signals};

use crate::{
    engine::WhenFull,
    model::{error::Result, shard::ShardNumber},
    store::{OpenTable, Store},
    write::queue::{IndexToken, QueueState, Signals, is_applied, queues_of, reader_if_present},
};

/// The interval for checking whether another process has written or applied messages.
const POLL: Duration = Duration::from_millis(20);

/// The same interval, for other clients of a server.
const SERVER_POLL: Duration = Duration::from_millis(100);

/// Waits until the messages of a transaction have been applied to this table's indexes. Returns false after the
/// timeout.
pub(crate) fn wait_for(
    store: &Store,
    table: &OpenTable,
    token: &IndexToken,
    timeout: Duration,
) -> Result<bool> {
    store.inner.engines.refuse_forked()?;
    let queues = last_messages(table, token);
    if queues.is_empty() {
        return Ok(true);
    }
    applied(store, timeout, || are_applied(store, table, &queues))
}

/// Waits as [`wait_for`] does, without a thread that waits.
#[cfg(feature = "async")]
pub(crate) fn wait_for_async(
    store: &Store,
    table: &Arc<OpenTable>,
    token: &IndexToken,
    timeout: Duration,
) -> Call<bool> {
    let queues = last_messages(table, token);
    let (own, table) = (Arc::downgrade(&store.inner), Arc::clone(table));
    wait_for_signals(
        store,
        |store| &store.signals,
        true,
        timeout,
        move || {
            // The call has the store open.
            let Some(inner) = own.upgrade() else { return Ok(true) };
            are_applied(&Store { inner }, &table, &queues)
        },
    )
}

/// Returns the last message of a transaction in each queue of a table.
fn last_messages(table: &OpenTable, token: &IndexToken) -> Vec<(Option<ShardNumber>, u64)> {
    let last = |shard| Some((shard, token.of(table.schema.name, shard)?));
    queues_of(&table.tables).into_iter().filter_map(last).collect()
}

/// Whether these messages are applied.
fn are_applied(
    store: &Store,
    table: &OpenTable,
    queues: &[(Option<ShardNumber>, u64)],
) -> Result<bool> {
    let txn = store.read()?;
    let reader = txn.reader(table)?;
    for (shard, number) in queues {
        // A shard that has left has taken its rows and entries with it.
        let Some(reader) = reader_if_present(reader, *shard)? else { continue };
        if reader.is_concurrent() {
            // The messages of this thread's own transaction are missing here because they are not committed.
            store.inner.refuse_nested_write()?;
        }
        if !is_applied(table.schema, reader, *number)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until `done` returns true, which depends on committed rows. Returns false after the timeout.
pub(crate) fn wait_for_commit(
    store: &Store,
    timeout: Duration,
    done: impl Fn() -> Result<bool>,
) -> Result<bool> {
    store.inner.engines.refuse_forked()?;
    let commits = &store.inner.commits_seen;
    let poll = if store.inner.engines.has_other_writers() { SERVER_POLL } else { POLL };
    commits.awaited(|| until(store, (commits, poll), timeout, || (), done))
}

/// The start of a closure's wait for room in a queue.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
}

impl Waiting {
    /// Starts the wait. The waiting time of earlier closures counts too.
    pub(crate) fn begun() -> Self {
        Self { since: Some(Instant::now()) }
    }

    /// Waits until there is room in the queues of a table. Returns false after the timeout.
    pub(crate) fn wait_for_room(&mut self, store: &Store, table: &str) -> Result<bool> {
        let used = store.inner.eventual_tables();
        let Some(table) = used.into_iter().find(|used| used.schema.name == table) else {
            return Ok(false);
        };
        let WhenFull::Wait(most) = table.limit.when_full else { return Ok(false) };
        let since = *self.since.get_or_insert_with(Instant::now);
        applied(store, most.saturating_sub(since.elapsed()), || {
            let txn = store.read()?;
            let reader = txn.reader(&table)?;
            for shard in queues_of(&table.tables) {
                let Some(reader) = reader_if_present(reader, shard)? else { continue };
                let left = QueueState::read(table.schema, reader)?.left(reader)?;
                if left >= table.limit.messages {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

/// Waits until `done` returns true, which depends on applied messages. The workers don't wait for more of them.
fn applied(store: &Store, timeout: Duration, done: impl Fn() -> Result<bool>) -> Result<bool> {
    let signals = &*store.inner.signals;
    until(store, (signals, POLL), timeout, || signals.hurry(), done)
}

/// Calls `done` after each signal and each poll interval, until it returns true. Returns false after the timeout. `wait` is called
/// before each wait.
fn until(
    store: &Store,
    (signals, poll): (&Signals, Duration),
    timeout: Duration,
    wait: impl Fn(),
    done: impl Fn() -> Result<bool>,
) -> Result<bool> {
    let begun = Instant::now();
    loop {
        let events = signals.events();
        if done()? {
            return Ok(true);
        }
        // While this thread has the turn to write, no other thread and no worker could commit.
        store.inner.refuse_nested_write()?;
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        wait();
        signals.wait_for_event(events, left.min(poll));
    }
}
