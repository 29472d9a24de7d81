//! The state that all requests share.

use std::path::Path;

use index_table::{ReadTxn, Store, Usage};
use tokio::task;

use crate::{
    failure::Failure,
    model::CustomerRepository,
    writer::{QUEUE, Writer},
};

/// The number of threads of the blocking pool, which is the maximum number of concurrent reads: half of the
/// store's reader slots ([`max_readers`](index_table::Options::max_readers)), so that no read is refused and
/// other processes can read the store.
pub const READERS: usize = 64;

/// The store, its repository and its writer. Clones share it.
#[derive(Debug, Clone)]
pub struct Service {
    store: Store,
    customers: CustomerRepository,
    /// The queue for changes.
    pub writer: Writer,
}

impl Service {
    /// Opens or creates the store in a directory, and starts the writer, which must be closed at the end.
    ///
    /// # Errors
    ///
    /// If the store can't be opened or the thread can't be started.
    pub fn open(path: impl AsRef<Path>) -> index_table::Result<Self> {
        let store = Store::open(path)?;
        let customers = CustomerRepository::open(&store)?;
        let writer = Writer::start(&store, customers.clone(), QUEUE)?;
        Ok(Self { store, customers, writer })
    }

    /// Returns the store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the usage of the customers' indexes. The numbers are counters in memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.customers.usage()
    }

    /// Runs a query on its own snapshot, on the blocking pool.
    ///
    /// Borrowed entries can't outlive the snapshot, so the query has to serialize them.
    ///
    /// # Errors
    ///
    /// The errors of the store.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&CustomerRepository, &ReadTxn<'_>) -> index_table::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let Self { store, customers, .. } = self.clone();
        let result = task::spawn_blocking(move || query(&customers, &store.read()?));
        Ok(result.await.map_err(Failure::internal)??)
    }
}
