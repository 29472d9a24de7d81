//! Running closures in the threads of a pool.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    Calls,
    pool::{Place, Pool},
};
use crate::{
    model::error::{Error, Result},
    store::{
        Store, Submitted,
        group::contained,
        orders::{Orders, run_for},
    },
};

/// The wait for a closure that a pool runs. If it is dropped before the closure has begun, the closure does not run.
pub(super) struct Run<T, E> {
    submitted: Submitted<T, E>,
    _place: Place,
}

impl<T, E: From<Error>> Future for Run<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().submitted).poll(context)
    }
}

/// Runs the closure of a call. A panic is an error.
pub(super) fn run_once<T>(orders: &Arc<Orders>, run: impl FnOnce() -> T) -> Result<T> {
    if !orders.begin() {
        contained(|| drop(run));
        return Err(Error::CallDropped);
    }
    catch_unwind(AssertUnwindSafe(|| run_for(orders, run))).map_err(|panic| {
        let error = Error::panicked(&*panic);
        contained(|| drop(panic));
        error
    })
}

impl Calls {
    /// Submits the closure of a call to one of the pools.
    pub(super) fn run<T, E>(
        &self,
        pool: &Pool,
        store: &Store,
        orders: Arc<Orders>,
        run: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<Run<T, E>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let accepted = self.accept(store)?;
        let (replier, submitted) = Submitted::new(&store.inner);
        let job = move || {
            let outcome = run_once(&orders, run);
            drop(accepted);
            replier.reply(outcome);
        };
        let place = pool.push(Box::new(job)).map_err(|(error, job)| {
            contained(|| drop(job));
            error
        })?;
        Ok(Run { submitted, _place: place })
    }
}
