//! The submission of a closure by a task, which may have to wait for room.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use super::{GroupWriter, Handle, RowKey, Submitted, job::Entry, queue::WithoutRoom};
use crate::{
    model::error::{Error, Result},
    store::WriteTxn,
};

/// The future of a submission to a [`GroupWriter`]. From [`submit_async`](GroupWriter::submit_async).
#[must_use = "futures do nothing unless polled"]
pub struct Submission<T, E, F> {
    writer: GroupWriter,
    /// The key of a closure that is not submitted yet.
    key: Option<RowKey>,
    state: Submitting<T, E, F>,
    /// Whether a closure in the queue is removed when the future is dropped, also if it has room.
    cancels: bool,
}

enum Submitting<T, E, F> {
    /// The future has not been polled.
    New(F),
    /// The closure is submitted, and may wait for room. The value has its number in the queue.
    Submitted(u64, Submitted<T, E>),
    /// The state during a poll, and at the end.
    Nothing,
}

impl<T, E, F> Submission<T, E, F> {
    pub(super) const fn new(writer: GroupWriter, key: Option<RowKey>, body: F) -> Self {
        Self { writer, key, state: Submitting::New(body), cancels: false }
    }

    /// Returns the submission of an asynchronous call to the writer of the key.
    #[cfg(feature = "async")]
    pub(in crate::store) const fn of_call(
        writer: GroupWriter,
        key: Option<RowKey>,
        body: F,
    ) -> Self {
        Self { writer, key, state: Submitting::New(body), cancels: true }
    }
}

/// The closure is not pinned.
impl<T, E, F> Unpin for Submission<T, E, F> {}

impl<T, E, F> Future for Submission<T, E, F>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { writer, key, state, .. } = self.get_mut();
        if let Some(own) = key {
            match writer.of_key(own) {
                Ok(found) => *writer = found,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        let Handle { queue, store, .. } = &*writer.handle;
        if let Err(error) = writer.ready() {
            return Poll::Ready(Err(error.into()));
        }
        if matches!(state, Submitting::New(_)) {
            let pushed = queue.try_push(WithoutRoom::Wait, || {
                match mem::replace(state, Submitting::Nothing) {
                    Submitting::New(body) => Some(Entry::new(store, key.take(), body)),
                    _ => None,
                }
            });
            match pushed {
                Ok((number, submitted)) => *state = Submitting::Submitted(number, submitted),
                Err(_) => return Poll::Ready(Err(Error::WriterClosed.into())),
            }
        }
        let Submitting::Submitted(_, submitted) = state else { return Poll::Pending };
        let polled = Pin::new(submitted).poll(context);
        if polled.is_ready() {
            *state = Submitting::Nothing;
        }
        polled
    }
}

impl<T, E, F> Drop for Submission<T, E, F> {
    fn drop(&mut self) {
        let Handle { queue, store, .. } = &*self.writer.handle;
        if let Submitting::Submitted(number, _) = self.state
            && store.engines.refuse_forked().is_ok()
        {
            queue.leave(number, self.cancels);
        }
    }
}

impl<T, E, F> fmt::Debug for Submission<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("writer", &self.writer).finish_non_exhaustive()
    }
}
