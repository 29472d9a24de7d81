//! Asynchronous calls: transactions of tasks, on any executor.
//!
//! A [`Call`] is a future with one transaction. It owns its closure, its table and a handle of its store. It is *submitted* when
//! it is first polled, and [`Orders`](super::orders::Orders) are the state that it shares with the thread that runs its closure:
//!
//! | the future is dropped | what happens |
//! |---|---|
//! | before it is polled, or before the closure begins | nothing; its place in the queue is free |
//! | while the closure runs | the closure ends, and its transaction is committed or not, as if the future had not been dropped |
//! | the same, with [`abort_on_drop`](Call::abort_on_drop) | the next query or write of the closure fails, and its transaction is rolled back |
//! | after the closure has ended | the transaction is committed or not |
//!
//! The threads that run closures, none of which exists before the first call:
//!
//! | calls | threads |
//! |---|---|
//! | read transactions, in-place reads excepted | the [`Pool`] `reads`, [`Options::async_threads`](crate::Options::async_threads) threads |
//! | write transactions of a store with one data file, and in memory; writes of single rows | the thread of a group writer, one for each shard |
//! | write transactions of a store with several data files, and on a server | the [`Pool`] `writes`, [`Options::async_threads`](crate::Options::async_threads) threads |
//! | the checks of tasks that wait for a commit or for applied messages | the [`Pool`] `checks`, [`CHECKS`] threads |
//!
//! A pool's thread ends after [`pool::IDLE`] without a closure. A queue has no limit of its own for calls that wait, because each is
//! a future that the program holds. The limit of [`Call::try_submit`] is [`QUEUE`].
//!
//! A look-up of a few rows runs in place, in the task's thread, as long as such look-ups do not wait for a disk: see [`in_place`].

mod call;
mod group;
mod in_place;
mod pool;
mod row;
mod run;
mod timer;
mod wait;

use std::{
    future::poll_fn,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

pub use self::call::Call;
use self::{call::Target, group::Groups, in_place::Warmth, pool::Pool, timer::Timers};
pub(crate) use self::{
    row::{change_row, look_up, look_up_row, write_row},
    wait::wait_for_signals,
};
use super::{ReadTxn, Store, WriteTxn};
use crate::{
    locks::{Mutex, Origin},
    model::error::{Error, Result},
    write::watch,
};

/// The number of closures that wait for a thread, from which on [`Call::try_submit`] refuses further ones.
const QUEUE: usize = 1024;

/// The number of threads for the checks of tasks that wait.
const CHECKS: u32 = 2;

/// The state of the asynchronous calls of a store.
#[derive(Default)]
pub(crate) struct Calls {
    reads: Pool,
    writes: Pool,
    /// The checks of tasks that wait.
    checks: Pool,
    groups: Groups,
    timers: Timers,
    warmth: Warmth,
    accepted: Arc<Accepting>,
}

/// The calls that are submitted and have not ended.
struct Accepting {
    /// In a forked process, a thread that does not exist may hold the lock.
    origin: Origin,
    count: AtomicUsize,
    is_closed: AtomicBool,
    /// The tasks that wait for the end of all calls.
    waiting: Mutex<Vec<Waker>>,
}

impl Default for Accepting {
    fn default() -> Self {
        let (count, is_closed, waiting) = (0.into(), false.into(), Mutex::default());
        Self { origin: Origin::here(), count, is_closed, waiting }
    }
}

/// A submitted call, until its closure has ended.
struct Accepted(Arc<Accepting>);

impl Drop for Accepted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1
            && self.0.is_closed.load(Ordering::SeqCst)
            && !self.0.origin.is_inherited()
        {
            let waiting = mem::take(&mut *self.0.waiting.lock());
            watch::wake(waiting);
        }
    }
}

impl Calls {
    /// Sets the number of threads for reads, and for writes; 0 for the default.
    pub(crate) fn set_threads(&self, threads: u32) {
        self.reads.set_most(threads);
        self.writes.set_most(threads);
        self.checks.set_most(CHECKS);
    }

    /// Ends the threads. No call is left, since each has the store open.
    pub(super) fn end(&mut self) {
        self.groups.end();
        self.reads.end();
        self.writes.end();
        self.checks.end();
    }

    /// Whether so many closures wait for the same threads that a further one can be refused.
    fn is_full(&self, store: &Store, target: Target) -> bool {
        // In a forked process, a thread that does not exist may hold a lock. The call has the error.
        if store.inner.engines.refuse_forked().is_err() {
            return false;
        }
        let waiting = match target {
            Target::LookUps if self.reads_in_place(store) => 0,
            Target::LookUps | Target::Reads => self.reads.waiting(),
            Target::Writes => self.writes.waiting(),
            Target::Group(shard) => self.groups.waiting(shard),
            Target::Nowhere => 0,
        };
        waiting >= QUEUE
    }

    /// Returns the queue of transactions that write any rows.
    fn target_of_transactions(store: &Store) -> Target {
        let engines = &store.inner.engines;
        if engines.several().is_some() || engines.has_other_writers() {
            return Target::Writes;
        }
        Target::Group(None)
    }

    /// Accepts a call.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], [`Error::CallsClosed`].
    fn accept(&self, store: &Store) -> Result<Accepted> {
        store.inner.engines.refuse_forked()?;
        let accepted = Accepted(Arc::clone(&self.accepted));
        accepted.0.count.fetch_add(1, Ordering::SeqCst);
        if accepted.0.is_closed.load(Ordering::SeqCst) {
            return Err(Error::CallsClosed);
        }
        Ok(accepted)
    }
}

impl Store {
    /// Runs a closure with a read transaction, away from the threads of the executor. For any executor. With the feature `async`.
    ///
    /// The closure runs once, in a thread of the store, and sees one snapshot. It returns owned values. The call is submitted when the
    /// future is first polled. Waiting calls begin in the order of their submission.
    ///
    /// A future that is dropped before its closure has begun does nothing. Later, the closure runs to its end.
    ///
    /// Cost: that of [`read`](Store::read), two changes of threads, and a few allocations. The first call starts a thread, and at most
    /// [`async_threads`](crate::Options::async_threads) are started. On a PostgreSQL server, each running closure has a connection.
    ///
    /// # Errors
    ///
    /// The errors of the closure and of [`read`](Store::read); [`Error::Panicked`], [`Error::CallsClosed`], [`Error::Thread`],
    /// [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Result, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Customer {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// async fn in_redmond(store: &Store, customers: &CustomerRepository) -> Result<u64> {
    ///     let customers = customers.clone();
    ///     store.read_async(move |txn| customers.find_by_town(txn, "Redmond").count()).await
    /// }
    /// ```
    pub fn read_async<T, F>(&self, body: F) -> Call<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTxn<'_>) -> Result<T> + Send + 'static,
    {
        self.try_read_async(body)
    }

    /// Runs a closure as [`read_async`](Store::read_async) does, with an error of your own.
    ///
    /// # Errors
    ///
    /// The errors of [`read_async`](Store::read_async).
    pub fn try_read_async<T, E, F>(&self, body: F) -> Call<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnOnce(&ReadTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        Call::new(self, Target::Reads, move |store, orders| async move {
            let own = store.clone();
            let run =
                store.inner.calls.run(&store.inner.calls.reads, &store, orders, move || {
                    let txn = own.read()?;
                    body(&txn)
                })?;
            run.await
        })
    }

    /// Runs a closure in a write transaction, away from the threads of the executor. For any executor. With the feature `async`.
    ///
    /// On a store with one data file, and in memory, the closures of many tasks are committed together, with one wait for the disk: see
    /// [`GroupWriter`](crate::GroupWriter), which states what a failure of a commit means for the others. On a PostgreSQL server, and
    /// on a store with several data files, each closure has a transaction of its own, as with [`transaction`](Store::transaction).
    /// The closure runs again for the same reasons as there, so it should have no effects outside of the transaction.
    ///
    /// The call is submitted when the future is first polled. Waiting calls begin in the order of their submission.
    ///
    /// A future that is dropped before its closure has begun does nothing. Later, the transaction is committed or not, as if the future
    /// had not been dropped; with [`abort_on_drop`](Call::abort_on_drop), it is rolled back at its next query or write.
    ///
    /// Cost: that of [`transaction`](Store::transaction) or of a group writer, and a few allocations.
    ///
    /// # Errors
    ///
    /// The errors of the closure and of [`transaction`](Store::transaction); [`Error::Panicked`], [`Error::CallsClosed`],
    /// [`Error::Thread`], [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Result, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Account {
    ///     #[primary_key]
    ///     id: u32,
    ///     cents: i64,
    /// }
    ///
    /// async fn transfer(store: &Store, accounts: &AccountRepository, from: u32, to: u32) -> Result<()> {
    ///     let accounts = accounts.clone();
    ///     store
    ///         .transaction_async(move |txn| {
    ///             accounts.update(txn, from, |account| account.cents -= 100)?;
    ///             accounts.update(txn, to, |account| account.cents += 100)?;
    ///             Ok(())
    ///         })
    ///         .await
    /// }
    /// ```
    pub fn transaction_async<T, F>(&self, body: F) -> Call<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T> + Send + 'static,
    {
        self.try_transaction_async(body)
    }

    /// Runs a closure as [`transaction_async`](Store::transaction_async) does, with an error of your own.
    ///
    /// Often, the error's type has to be named: `Ok::<_, MyError>(value)`.
    ///
    /// # Errors
    ///
    /// The errors of [`transaction_async`](Store::transaction_async).
    pub fn try_transaction_async<T, E, F>(&self, body: F) -> Call<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        Call::new(self, Calls::target_of_transactions(self), move |store, orders| async move {
            let calls = &store.inner.calls;
            // The store may have grown since.
            if let Target::Group(_) = Calls::target_of_transactions(&store) {
                return calls.group(&store, None, orders, body)?.await;
            }
            let (own, mut body) = (store.clone(), body);
            let attempts = Arc::clone(&orders);
            let run = calls.run(&calls.writes, &store, orders, move || {
                own.try_transaction(|txn| {
                    let value = body(txn)?;
                    attempts.check()?;
                    Ok(value)
                })
            })?;
            run.await
        })
    }

    /// Refuses later asynchronous calls of all handles of the store, and waits until the accepted ones have ended: their writes are
    /// committed, or have failed. Other functions of the store can still be used. With the feature `async`.
    ///
    /// A second call waits too. A dropped future waits no longer, and calls stay refused. A task that waits for a commit or for applied
    /// messages gets [`Error::CallsClosed`] within 100 ms. Look-ups on a server are not waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{Result, Store};
    /// async fn shut_down(store: Store) -> Result<()> {
    ///     store.close_async().await
    /// }
    /// ```
    pub async fn close_async(&self) -> Result<()> {
        self.inner.engines.refuse_forked()?;
        let accepting = &self.inner.calls.accepted;
        accepting.is_closed.store(true, Ordering::SeqCst);
        poll_fn(|context| {
            if accepting.count.load(Ordering::SeqCst) == 0 {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            let mut waiting = accepting.waiting.lock();
            if !waiting.iter().any(|own| own.will_wake(&waker)) {
                waiting.push(waker);
            }
            drop(waiting);
            // The last call may have ended before the waker was there.
            if accepting.count.load(Ordering::SeqCst) == 0 {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        Ok(())
    }
}
