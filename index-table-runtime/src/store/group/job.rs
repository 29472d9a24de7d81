//! The closures of a group writer, without their types.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    contained,
    reply::{Replier, Submitted},
    row_key::RowKey,
};
use crate::{
    model::error::{Error, Result},
    store::{
        Inner, Store, WriteTxn,
        transaction::{Attempts, Rerun},
    },
};

/// A closure in the queue. It keeps the store open.
pub(super) struct Entry {
    job: Box<dyn Job>,
    /// `None`: the closure runs in the shard of the writer, or in all shards.
    key: Option<RowKey>,
    store: Arc<Inner>,
    attempts: Attempts,
}

/// A closure that will not run again, and no longer keeps the store open.
pub(super) struct Done(Box<dyn Job>);

/// A closure of any type, with the sender of its result.
trait Job: Send {
    /// Runs the closure, which may have run before. Returns false if its writes must be undone.
    fn run(&mut self, txn: &mut WriteTxn<'_>) -> bool;

    /// Whether the closure has returned an error.
    fn has_failed(&self) -> bool;

    /// Delivers the result of the closure, or the error instead.
    fn reply(self: Box<Self>, error: Option<Error>);
}

impl Entry {
    pub(super) fn new<T, E, F>(
        store: &Arc<Inner>,
        key: Option<RowKey>,
        body: F,
    ) -> (Self, Submitted<T, E>)
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        let (replier, submitted) = Submitted::new(store);
        let job = Box::new(Closure { body, outcome: Err(Error::WriterClosed), replier });
        // The waiting time starts now, so that many closures wait at the same time and not one after another.
        let (store, attempts) = (Arc::clone(store), Attempts::begun());
        // With one shard, all closures can be in one group.
        let key = key.filter(|_| store.engines.several().is_some());
        (Self { job, key, store, attempts }, submitted)
    }

    pub(super) const fn key(&self) -> Option<&RowKey> {
        self.key.as_ref()
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

    /// Prepares another run of the closure. Returns false if it would fail in the same way.
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
    /// The result of the last run. The outer error means that the closure has not returned.
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
        // After a panic, the transaction is not reused. The closure may run again if the map was full.
        let new = catch_unwind(AssertUnwindSafe(|| body(txn))).map_err(|panic| {
            let error = Error::panicked(&*panic);
            contained(|| drop(panic));
            error
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
        // The captured values are dropped before the submitter continues.
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
