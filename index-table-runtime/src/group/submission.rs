//! A closure that has not been accepted yet, on behalf of a task.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use super::{GroupWriter, Handle, Submitted, job::Entry, queue::Refused};
use crate::{
    error::{Error, Result},
    txn::WriteTxn,
};

/// A closure on its way through a [`GroupWriter`]; from
/// [`submit_async`](GroupWriter::submit_async).
#[must_use = "futures do nothing unless polled"]
pub struct Submission<T, E, F> {
    ticket: u64,
    writer: GroupWriter,
    state: Submitting<T, E, F>,
}

enum Submitting<T, E, F> {
    /// For room.
    Waiting(F),
    Submitted(Submitted<T, E>),
    /// Only in between.
    Nothing,
}

impl<T, E, F> Submission<T, E, F> {
    pub(super) fn new(writer: GroupWriter, body: F) -> Self {
        let ticket = writer.handle.queue.ticket();
        Self { ticket, writer, state: Submitting::Waiting(body) }
    }
}

/// The closure isn't what is pinned.
impl<T, E, F> Unpin for Submission<T, E, F> {}

impl<T, E, F> Future for Submission<T, E, F>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { ticket, writer, state } = self.get_mut();
        let Handle { queue, store } = &*writer.handle;
        if let Err(error) = store.engine.refuse_forked() {
            return Poll::Ready(Err(error.into()));
        }
        if matches!(state, Submitting::Waiting(_)) {
            let pushed = queue.try_push(Some((*ticket, context.waker())), || {
                match mem::replace(state, Submitting::Nothing) {
                    Submitting::Waiting(body) => Some(Entry::new(store, body)),
                    _ => None,
                }
            });
            match pushed {
                Ok(submitted) => *state = Submitting::Submitted(submitted),
                Err(Refused::Full) => return Poll::Pending,
                Err(Refused::Closed) => return Poll::Ready(Err(Error::WriterClosed.into())),
            }
        }
        match state {
            Submitting::Submitted(submitted) => Pin::new(submitted).poll(context),
            _ => Poll::Pending,
        }
    }
}

impl<T, E, F> Drop for Submission<T, E, F> {
    fn drop(&mut self) {
        let Handle { queue, store } = &*self.writer.handle;
        if matches!(self.state, Submitting::Waiting(_)) && store.engine.refuse_forked().is_ok() {
            queue.leave(self.ticket);
        }
    }
}

impl<T, E, F> fmt::Debug for Submission<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("writer", &self.writer).finish_non_exhaustive()
    }
}
