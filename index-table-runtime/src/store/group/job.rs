//! A closure that waits for its turn.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    contained,
    reply::{Replier, Submitted},
};
use crate::{
    model::error::{Error, Result},
    store::{
        Inner, Store, WriteTxn,
        rerun::{Attempts, Rerun},
    },
};

/// A closure in the queue. It keeps the store open.
pub(super) struct Entry {
    job: Box<dyn Job>,
    store: Arc<Inner>,
    attempts: Attempts,
}

/// A closure that has been run, or never will be, and that no longer keeps the store open.
pub(super) struct Done(Box<dyn Job>);

/// A closure of any type, with the place for what it returns.
trait Job: Send {
    /// Runs the closure, maybe once more; `false`: what it has written is to be undone.
    fn run(&mut self, txn: &mut WriteTxn<'_>) -> bool;

    /// Whether it has an error of its own to tell.
    fn has_failed(&self) -> bool;

    /// Tells what the closure has returned, or the error in its place.
    fn reply(self: Box<Self>, error: Option<Error>);
}

impl Entry {
    pub(super) fn new<T, E, F>(store: &Arc<Inner>, body: F) -> (Self, Submitted<T, E>)
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        let (replier, submitted) = Submitted::new(store);
        let job = Box::new(Closure { body, outcome: Err(Error::WriterClosed), replier });
        // It waits from now on, so that many do not wait one after the other.
        let (store, attempts) = (Arc::clone(store), Attempts::begun());
        (Self { job, store, attempts }, submitted)
    }

    pub(super) fn store(&self) -> Store {
        Store { inner: Arc::clone(&self.store) }
    }

    pub(super) fn run(&mut self, txn: &mut WriteTxn<'_>) -> bool {
        self.job.run(txn)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.job.has_failed()
    }

    /// Makes it possible that the closure is run again; `false`: it would end as before.
    pub(super) fn prepare(&mut self, rerun: Rerun) -> Result<bool> {
        self.attempts.prepare(&self.store(), rerun)
    }

    pub(super) fn done(self) -> Done {
        Done(self.job)
    }

    pub(super) fn reply(self, error: Option<Error>) {
        self.done().reply(error);
    }
}

impl Done {
    pub(super) fn reply(self, error: Option<Error>) {
        self.0.reply(error);
    }
}

struct Closure<T, E, F> {
    body: F,
    /// The outer error: it has not returned.
    outcome: Result<Result<T, E>>,
    replier: Replier<T, E>,
}

impl<T, E, F> Job for Closure<T, E, F>
where
    T: Send,
    E: From<Error> + Send,
    F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send,
{
    fn run(&mut self, txn: &mut WriteTxn<'_>) -> bool {
        let Self { body, outcome, .. } = self;
        // Nothing of what the closure was doing is used again but itself, if the map was full.
        let new = catch_unwind(AssertUnwindSafe(|| body(txn))).map_err(|panic| {
            let message = message(&*panic);
            contained(|| drop(panic));
            Error::Panicked { message }
        });
        let before = mem::replace(outcome, new);
        contained(|| drop(before));
        !self.has_failed()
    }

    fn has_failed(&self) -> bool {
        !matches!(self.outcome, Ok(Ok(_)))
    }

    fn reply(self: Box<Self>, error: Option<Error>) {
        let Self { body, outcome, replier } = *self;
        // What the closure holds is gone when its submitter goes on.
        contained(|| drop(body));
        match error {
            Some(error) => {
                contained(|| drop(outcome));
                replier.reply(Err(error));
            }
            None => replier.reply(outcome),
        }
    }
}

/// What `panic!` was given.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with something that is no text").to_owned()
}
