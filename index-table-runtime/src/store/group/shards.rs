//! Group writers of a sharded store: one for each shard, and one for closures that can use any shards.

use std::collections::BTreeMap;

use super::{GroupWriter, Submitted, Turn, queue::Queue};
use crate::{
    locks::{Mutex, rank},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    store::{ShardId, Store, WriteTxn},
};

/// The group writers of single shards, by the numbers of the shards: a new shard can have the name of a removed one.
#[derive(Default)]
pub(super) struct Writers {
    started: Mutex<BTreeMap<ShardNumber, GroupWriter>, rank::GroupWriters>,
    /// Whether the thread for closures that can use any shards is started.
    is_started: Mutex<bool, rank::GroupStart>,
}

impl Writers {
    /// Starts the thread for closures that can use any shards, unless it is running.
    pub(super) fn start(&self, start: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut is_started = self.is_started.lock();
        if !*is_started {
            start()?;
            *is_started = true;
        }
        Ok(())
    }

    /// Whether the thread for closures that can use any shards has been started.
    pub(super) fn is_started(&self) -> bool {
        *self.is_started.lock()
    }

    /// Finishes the closures of all shards.
    pub(super) fn close(&self) {
        let started = self.started.lock().clone();
        for writer in started.values() {
            writer.handle.queue.close();
        }
        for writer in started.values() {
            writer.handle.queue.wait_for_the_end();
        }
    }
}

impl GroupWriter {
    /// Submits a closure for one shard, as [`submit`](GroupWriter::submit) does. The closures of a shard are committed in groups by a thread of this
    /// shard, concurrently with the closures of other shards.
    ///
    /// # Errors
    ///
    /// Errors of the result: the errors of [`submit`](GroupWriter::submit) and of
    /// [`Store::transaction_on`](crate::Store::transaction_on), such as [`Error::OtherShard`] and
    /// [`Error::ShardUnavailable`]; the errors of [`on`](GroupWriter::on).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("north", "north")
    ///     .shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// let writer = store.writer()?;
    /// let mut submitted = Vec::new();
    /// for (tenant, number) in [(7, 1), (107, 1), (107, 2)] {
    ///     let (shard, orders) = (orders.shard_of(&store, tenant)?, orders.clone());
    ///     let order = Order { tenant, number };
    ///     submitted.push(writer.submit_on(&shard, move |txn| orders.insert(txn, &order)));
    /// }
    /// submitted.into_iter().try_for_each(|submitted| submitted.wait())?;
    /// assert_eq!(orders.all(&store.read()?).count()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit_on<T, E, F>(&self, shard: &ShardId, body: F) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        match self.on(shard) {
            Ok(writer) => writer.submit(body),
            Err(error) => Submitted::refused(&self.handle.store, error),
        }
    }

    /// Returns the group writer of one shard, with all methods of a group writer. Its closures are in the same groups as the closures of
    /// [`submit_on`](GroupWriter::submit_on).
    ///
    /// Cost: the first call for a shard starts a thread.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: the shard belongs to another store, or this is the group writer of another shard.
    /// [`Error::WriterClosed`], [`Error::Forked`] and [`Error::Thread`].
    pub fn on(&self, shard: &ShardId) -> Result<Self> {
        let store = Store { inner: self.handle.store.clone() };
        store.inner.engines.refuse_forked()?;
        let number = store.number_of(shard)?;
        let writers = match &self.handle.turn {
            Turn::Any(writers) => writers,
            Turn::One(None) => return Ok(self.clone()),
            Turn::One(Some(own)) if own == shard => return Ok(self.clone()),
            Turn::One(Some(own)) => {
                return Err(Error::ShardRefused {
                    what: format!("shard `{shard}`"),
                    reason: format!("this is the group writer of shard `{own}`"),
                });
            }
        };
        let mut started = writers.started.lock();
        if self.handle.queue.is_closed() {
            return Err(Error::WriterClosed);
        }
        if let Some(writer) = started.get(&number) {
            return Ok(writer.clone());
        }
        let limits = &self.handle.queue;
        let queue = Queue::new(limits.capacity(), limits.most());
        let writer = Self::started(&store, queue, Some(shard.clone()))?;
        started.insert(number, writer.clone());
        Ok(writer)
    }
}
