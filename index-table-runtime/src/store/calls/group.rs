//! The group writers of a store's own, for the asynchronous writes of its tasks.

use std::{collections::BTreeMap, sync::Arc};

use super::Calls;
use crate::{
    locks::{Mutex, rank},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    store::{
        GroupWriter, RowKey, Store, Submission, WriteTxn,
        group::Queue,
        orders::{Orders, run_for},
    },
};

/// The queues of the group writers, by their shards; `None` for closures of any shard. Each has a thread, which does not keep the store
/// open.
#[derive(Default)]
pub(super) struct Groups(Mutex<BTreeMap<Option<ShardNumber>, Arc<Queue>>, rank::GroupWriters>);

impl Groups {
    /// Returns the number of closures that wait for the thread of a shard.
    pub(super) fn waiting(&self, shard: Option<ShardNumber>) -> usize {
        self.0.lock().get(&shard).map_or(0, |queue| queue.len())
    }

    /// Ends the threads, after the submitted closures.
    pub(super) fn end(&mut self) {
        self.0.get_mut().values().for_each(|queue| queue.close());
    }

    /// Returns the writer of a shard, with its thread.
    fn writer(&self, store: &Store, shard: Option<ShardNumber>) -> Result<GroupWriter> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(&shard).filter(|queue| !queue.is_closed()) {
            return Ok(GroupWriter::of_queue(store, queue));
        }
        let queue = GroupWriter::start_queue(store, shard)?;
        queues.insert(shard, Arc::clone(&queue));
        Ok(GroupWriter::of_queue(store, &queue))
    }
}

impl Calls {
    /// Submits a closure to the group writer of the rows with this key, or of all rows.
    pub(super) fn group<T, E, F>(
        &self,
        store: &Store,
        key: Option<RowKey>,
        orders: Arc<Orders>,
        mut body: F,
    ) -> Result<impl Future<Output = Result<T, E>> + Send + use<T, E, F>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        let accepted = self.accept(store)?;
        key.as_ref().map_or(Ok(()), |key| key.check_store(store))?;
        let key = key.filter(|_| store.inner.engines.several().is_some());
        let shard = key.as_ref().map(RowKey::shard).transpose()?;
        let writer = self.groups.writer(store, shard)?;
        let body = move |txn: &mut WriteTxn<'_>| {
            // Dropped with the closure, after the commit.
            let _accepted = &accepted;
            if !orders.begin() {
                return Err(Error::CallDropped.into());
            }
            let value = run_for(&orders, || body(txn))?;
            orders.check()?;
            Ok(value)
        };
        Ok(Submission::of_call(writer, key, body))
    }
}
