//! Closures for the rows with one shard key. Their transaction begins in the shard that has these rows when it runs.

use std::sync::Arc;

use super::{GroupWriter, QueueFull, Submission, Submitted, Turn};
use crate::{
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::Locks,
    store::{OpenTable, Store, WriteTxn, shard_id},
};

/// A shard key of a table.
pub(crate) struct RowKey {
    table: Arc<OpenTable>,
    shard_key: Box<[u8]>,
}

impl RowKey {
    pub(crate) fn new(table: &Arc<OpenTable>, shard_key: &[u8]) -> Self {
        Self { table: Arc::clone(table), shard_key: shard_key.into() }
    }

    /// Checks that the rows are in this store.
    pub(in crate::store) fn check_store(&self, store: &Store) -> Result<()> {
        self.table.check_store(store.inner.id)
    }

    /// Returns the shard that has the rows now.
    pub(in crate::store) fn shard(&self) -> Result<ShardNumber> {
        self.table.shard_of_shard_key(&self.shard_key)
    }

    /// Begins a transaction in the shard that has the rows now, or with these shards.
    pub(super) fn begin<'s>(&self, store: &'s Store, locks: &Locks) -> Result<WriteTxn<'s>> {
        if !matches!(locks, Locks::None) {
            return store.write_with(locks);
        }
        loop {
            let shard = self.shard()?;
            match store.write_from(shard) {
                // The shard was removed or detached meanwhile.
                Err(Error::ShardUnavailable { .. }) if self.shard()? != shard => {}
                begun => return begun,
            }
        }
    }
}

impl GroupWriter {
    /// Submits a closure for the rows with this key, like [`submit`](GroupWriter::submit).
    pub(crate) fn submit_for<T, E, F>(&self, key: RowKey, body: F) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        match self.of_key(&key) {
            Ok(writer) => writer.push(Some(key), body),
            Err(error) => Submitted::refused(&self.handle.store, error),
        }
    }

    /// Submits a closure for the rows with this key, like [`try_submit`](GroupWriter::try_submit).
    pub(crate) fn try_submit_for<T, E, F>(
        &self,
        key: RowKey,
        body: F,
    ) -> Result<Submitted<T, E>, QueueFull<F>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        match self.of_key(&key) {
            Ok(writer) => writer.try_push(Some(key), body),
            Err(error) => Ok(Submitted::refused(&self.handle.store, error)),
        }
    }

    /// Submits a closure for the rows with this key, like [`submit_async`](GroupWriter::submit_async).
    pub(crate) fn submit_for_async<T, E, F>(&self, key: RowKey, body: F) -> Submission<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        Submission::new(self.clone(), Some(key), body)
    }

    /// Returns the writer whose thread runs closures for this key.
    pub(super) fn of_key(&self, key: &RowKey) -> Result<Self> {
        let store = Store { inner: Arc::clone(&self.handle.store) };
        store.inner.engines.refuse_forked()?;
        key.check_store(&store)?;
        match &self.handle.turn {
            Turn::One(_) => Ok(self.clone()),
            Turn::Any(_) => self.on(&shard_id(&store, key.shard()?)?),
        }
    }
}
