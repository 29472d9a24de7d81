//! Receiving events.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, TryRecvError},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_core::Stream;

use super::event::{Change, Event};
use crate::locks::Origin;
use crate::store::OpenTable;
use crate::write::watch::{Buffer, Subscriber};

/// Receives the committed changes of a table, in the order of the commits; the changes of one commit are in
/// the order of their writes. In a store with shards, commits of the same shard are in their order, and
/// each change names its [shard](Change::shard). From [`Watch::start`](crate::Watch::start).
///
/// Threads use [`recv`](Watcher::recv), [`recv_timeout`](Watcher::recv_timeout), [`try_recv`](Watcher::try_recv) and
/// iterators (`for event in &watcher`). For tasks of any runtime, a watcher is a [`Stream`]. All of them end when the
/// store is closed and every event was received. A watcher does not keep the store open, but like a repository it
/// keeps the table in use. Dropping the watcher ends the subscription.
///
/// A watcher receives no changes of other processes, and no changes of transactions that were rolled back. An
/// [upgrade](crate::Upgrade) and an index build change no rows, and cause no events. A [repair](crate::Repair)
/// with changes causes [`Event::Lagged`]. In a forked process, the watcher has ended.
///
/// Several threads may share a watcher. Each event is received by one of them.
///
/// A thread with a write transaction should not wait for events, since no other thread can commit until it ends.
pub struct Watcher<R> {
    subscriber: Arc<Subscriber>,
    table: Arc<OpenTable>,
    /// The process of the watcher. In a forked process, a thread that does not exist may hold a lock.
    origin: Origin,
    row: PhantomData<fn() -> R>,
}

impl<R> Watcher<R> {
    pub(super) fn new(subscriber: Arc<Subscriber>, table: &Arc<OpenTable>) -> Self {
        Self { subscriber, table: Arc::clone(table), origin: Origin::here(), row: PhantomData }
    }

    /// Waits for the next event; `None` if the store is closed.
    #[must_use = "it is not received again"]
    pub fn recv(&self) -> Option<Event<R>> {
        self.wait(None).ok()
    }

    /// Waits for the next event, up to a timeout.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`]; [`RecvTimeoutError::Disconnected`] if the store is closed.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event<R>, RecvTimeoutError> {
        self.wait(Instant::now().checked_add(timeout))
    }

    /// Returns the next event if the buffer has one.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`]; [`TryRecvError::Disconnected`] if the store is closed.
    pub fn try_recv(&self) -> Result<Event<R>, TryRecvError> {
        match self.wait(Some(Instant::now())) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(TryRecvError::Empty),
            Err(RecvTimeoutError::Disconnected) => Err(TryRecvError::Disconnected),
        }
    }

    /// Polls for the next event; `None` if the store is closed. The task is woken when there is an event.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<R>>> {
        if self.is_inherited() {
            return Poll::Ready(None);
        }
        let mut buffer = self.subscriber.buffer();
        if let Some(next) = next(&self.table, &mut buffer) {
            return Poll::Ready(Some(next));
        }
        if buffer.closed {
            return Poll::Ready(None);
        }
        let before = buffer.waker.replace(context.waker().clone());
        drop(buffer);
        drop(before);
        Poll::Pending
    }

    /// Returns an iterator that waits for each event, until the store is closed.
    #[must_use = "iterators are lazy"]
    pub fn iter(&self) -> Events<&Self> {
        Events(self)
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<Event<R>, RecvTimeoutError> {
        if self.is_inherited() {
            return Err(RecvTimeoutError::Disconnected);
        }
        let mut buffer = self.subscriber.buffer();
        loop {
            if let Some(next) = next(&self.table, &mut buffer) {
                return Ok(next);
            }
            if buffer.closed {
                return Err(RecvTimeoutError::Disconnected);
            }
            let filled = &self.subscriber.filled;
            buffer = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => filled.wait(buffer),
                Some(left) if left.is_zero() => return Err(RecvTimeoutError::Timeout),
                Some(left) => filled.wait_timeout(buffer, left),
            };
        }
    }

    fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }
}

fn next<R>(table: &OpenTable, buffer: &mut Buffer) -> Option<Event<R>> {
    if let Some(lagged) = buffer.lagged.take() {
        return Some(Event::Lagged(lagged));
    }
    let (commit, noted) = buffer.changes.pop_front()?;
    buffer.bytes -= noted.bytes();
    Some(Event::Change(Change::new(table, commit, noted)))
}

impl<R> Stream for Watcher<R> {
    type Item = Event<R>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<R>>> {
        self.get_mut().poll_recv(context)
    }
}

impl<R> Drop for Watcher<R> {
    fn drop(&mut self) {
        if !self.is_inherited() {
            self.table.shared.watchers.unsubscribe(self.subscriber.id);
        }
    }
}

impl<R> fmt::Debug for Watcher<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("table", &self.table.schema.name).finish_non_exhaustive()
    }
}

/// An iterator over the events of a [`Watcher`]. From [`Watcher::iter`] and `into_iter`. `W` is the watcher or a
/// reference to it.
#[derive(Debug)]
pub struct Events<W>(W);

impl<R> Iterator for Events<&Watcher<R>> {
    type Item = Event<R>;

    fn next(&mut self) -> Option<Event<R>> {
        self.0.recv()
    }
}

impl<R> Iterator for Events<Watcher<R>> {
    type Item = Event<R>;

    fn next(&mut self) -> Option<Event<R>> {
        self.0.recv()
    }
}

impl<'w, R> IntoIterator for &'w Watcher<R> {
    type Item = Event<R>;
    type IntoIter = Events<&'w Watcher<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<R> IntoIterator for Watcher<R> {
    type Item = Event<R>;
    type IntoIter = Events<Self>;

    fn into_iter(self) -> Self::IntoIter {
        Events(self)
    }
}
