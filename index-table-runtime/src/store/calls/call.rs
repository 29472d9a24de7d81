//! The future of an asynchronous call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    store::{QueueFull, Store, orders::Orders},
};

/// The future of an asynchronous call: one transaction. From [`Store::read_async`](crate::Store::read_async),
/// [`Store::transaction_async`](crate::Store::transaction_async) and the methods of repositories whose names end in `_async`. With the
/// feature `async`.
///
/// It owns its closure, its table and a handle of its store, so it can be spawned as a task of any executor. It does nothing before it is
/// polled. If it is dropped before its closure has begun, nothing happens. If it is dropped later, the transaction is committed or not,
/// as if it had not been dropped, and leaves nothing open.
///
/// A panic of the closure is [`Error::Panicked`] of this call.
#[must_use = "futures do nothing unless polled"]
pub struct Call<T, E = Error> {
    state: State<T, E>,
    orders: Arc<Orders>,
    aborts: bool,
    store: Store,
    target: Target,
}

/// The queue in which a call waits for a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Reads,
    /// That of reads, or none if the look-up can run in place.
    LookUps,
    Writes,
    /// The queue of this shard's group writer, or of the one for any shards.
    Group(Option<ShardNumber>),
    /// None: the call waits for a server, or for a signal.
    Nowhere,
}

type Running<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

enum State<T, E> {
    Running(Running<T, E>),
    /// The result of a call that ended when it was submitted.
    Ready(Result<T, E>),
    Ended,
}

impl<T, E> Call<T, E> {
    /// Creates a call, whose future gets the state that it shares with its closure.
    pub(super) fn new<F>(
        store: &Store,
        target: Target,
        make: impl FnOnce(Store, Arc<Orders>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let orders = Arc::new(Orders::new());
        let state = State::Running(Box::pin(make(store.clone(), Arc::clone(&orders))));
        Self { state, orders, aborts: false, store: store.clone(), target }
    }

    /// Submits the call now, and not when it is first polled, unless 1,024 calls wait for the same threads. A service should then refuse
    /// the request. A look-up of one row on a server has no such limit.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] with the call, which has done nothing unless it was polled before.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// /// Returns the status of a request.
    /// async fn post(store: &Store, notes: &NoteRepository, note: Note) -> Result<u16> {
    ///     let notes = notes.clone();
    ///     let call = store.transaction_async(move |txn| notes.insert(txn, &note));
    ///     match call.try_submit() {
    ///         Ok(submitted) => submitted.await.map(|()| 201),
    ///         Err(_) => Ok(503),
    ///     }
    /// }
    /// ```
    pub fn try_submit(mut self) -> Result<Self, QueueFull<Self>> {
        if self.store.inner.calls.is_full(&self.store, self.target) {
            return Err(QueueFull(self));
        }
        if let State::Running(future) = &mut self.state
            && let Poll::Ready(result) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.state = State::Ready(result);
        }
        Ok(self)
    }

    /// Rolls back the transaction if the future is dropped while the closure runs: the next query or write that the closure begins fails,
    /// and so does the transaction, whatever the closure returns. After the closure has ended, the transaction is committed or not. For
    /// a look-up, there is nothing to roll back. A write of a single row on a server is one operation.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{Error, IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// /// If the caller gives up, for example after a timeout, the notes stay.
    /// async fn clear(store: &Store, notes: &NoteRepository, ids: Vec<u32>) -> Result<(), Error> {
    ///     let notes = notes.clone();
    ///     let call = store.transaction_async(move |txn| {
    ///         for id in &ids {
    ///             notes.delete(txn, *id)?;
    ///         }
    ///         Ok(())
    ///     });
    ///     call.abort_on_drop().await
    /// }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub const fn abort_on_drop(mut self) -> Self {
        self.aborts = true;
        self
    }
}

/// Nothing in it is pinned but the box.
impl<T, E> Unpin for Call<T, E> {}

impl<T, E> Future for Call<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Running(future) = &mut this.state {
            let Poll::Ready(result) = future.as_mut().poll(context) else { return Poll::Pending };
            this.state = State::Ended;
            return Poll::Ready(result);
        }
        match std::mem::replace(&mut this.state, State::Ended) {
            State::Ready(result) => Poll::Ready(result),
            // As for other futures, polling again has no result.
            State::Running(_) | State::Ended => Poll::Pending,
        }
    }
}

impl<T, E> Drop for Call<T, E> {
    fn drop(&mut self) {
        if matches!(self.state, State::Running(_)) {
            self.orders.leave(self.aborts);
        }
    }
}

impl<T, E> fmt::Debug for Call<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = !matches!(self.state, State::Running(_));
        f.debug_struct("Call").field("has_ended", &has_ended).finish_non_exhaustive()
    }
}
