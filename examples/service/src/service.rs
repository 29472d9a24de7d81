//! What every request shares.

use std::path::Path;

use index_table::{ReadTxn, Store, Usage};
use tokio::task;

use crate::{
    failure::Failure,
    model::CustomerRepository,
    writer::{QUEUE, Writer},
};

/// How many threads the blocking pool should have, which is how many reads there can be at a time:
/// half of the store's reader slots ([`max_readers`](index_table::Options::max_readers)), so that
/// no read is ever refused and other processes can look into the store.
pub const READERS: usize = 64;

/// The store and what reads and writes it. Clones share it.
#[derive(Debug, Clone)]
pub struct Service {
    store: Store,
    customers: CustomerRepository,
    /// Where changes are handed in.
    pub writer: Writer,
}

impl Service {
    /// Opens the store in a directory, which is created if it is not there, and starts the writer, which
    /// is to be closed at the end.
    ///
    /// # Errors
    ///
    /// Why the store can't be opened or the thread can't be started.
    pub fn open(path: impl AsRef<Path>) -> index_table::Result<Self> {
        let store = Store::open(path)?;
        let customers = CustomerRepository::open(&store)?;
        let writer = Writer::start(&store, customers.clone(), QUEUE)?;
        Ok(Self { store, customers, writer })
    }

    /// What the customers' indexes have been used for. It reads counters, and not the store.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.customers.usage()
    }

    /// Asks a question of a snapshot of its own, on the blocking pool.
    ///
    /// What is borrowed from the snapshot can't leave it: a question about entries serializes them.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&CustomerRepository, &ReadTxn<'_>) -> index_table::Result<T>
        + Send
        + 'static,
    ) -> Result<T, Failure> {
        let Self { store, customers, .. } = self.clone();
        let answer = task::spawn_blocking(move || question(&customers, &store.read()?));
        Ok(answer.await.map_err(Failure::internal)??)
    }
}
