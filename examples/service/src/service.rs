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
        Self::on(Store::open(path)?)
    }

    /// Opens or creates the store on a PostgreSQL server, in the schema `customer_directory`, and starts the writer. Several
    /// instances of the service can use the same store.
    ///
    /// Each read and the writer use a connection, so there are as many connections as concurrent reads, and one more.
    ///
    /// # Errors
    ///
    /// If the store can't be opened, the thread can't be started, or the service is built without the Cargo feature
    /// `postgres`.
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str) -> index_table::Result<Self> {
        let connections = u32::try_from(READERS + 1).unwrap_or(u32::MAX);
        let options = Store::options().schema("customer_directory").connections(connections);
        Self::on(options.connect(url)?)
    }

    /// Fails, because the service is built without the Cargo feature `postgres`.
    ///
    /// # Errors
    ///
    /// Always.
    #[cfg(not(feature = "postgres"))]
    pub fn connect(_: &str) -> index_table::Result<Self> {
        let what = "stores on a server without the Cargo feature `postgres`";
        Err(index_table::Error::NotOffered { what })
    }

    fn on(store: Store) -> index_table::Result<Self> {
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
