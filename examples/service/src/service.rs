//! The state that all requests share.

use std::path::Path;

use index_table::{ReadTxn, Store, Usage};

use crate::{
    commands::{self, Command, Outcome},
    failure::Failure,
    model::CustomerRepository,
};

/// The maximum number of concurrent reads: half of the store's reader slots ([`max_readers`](index_table::Options::max_readers)), so
/// that no read is refused and other processes can read the store.
const READERS: u32 = 64;

/// The store and its repository. Clones share it.
#[derive(Debug, Clone)]
pub struct Service {
    store: Store,
    customers: CustomerRepository,
}

impl Service {
    /// Opens or creates the store in a directory.
    ///
    /// # Errors
    ///
    /// If the store can't be opened.
    pub fn open(path: impl AsRef<Path>) -> index_table::Result<Self> {
        Self::on(Store::options().async_threads(READERS).open(path)?)
    }

    /// Opens or creates the store on a PostgreSQL server, in the schema `customer_directory`. Several instances of the service can use
    /// the same store. Each read and each command that runs use a connection.
    ///
    /// # Errors
    ///
    /// If the store can't be opened, or the service is built without the Cargo feature `postgres`.
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str) -> index_table::Result<Self> {
        let options = Store::options().schema("customer_directory").connections(READERS);
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
        Ok(Self { store, customers })
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

    /// Runs a query on its own snapshot, away from the threads of the runtime.
    ///
    /// Borrowed entries can't outlive the snapshot, so the query has to serialize them.
    ///
    /// # Errors
    ///
    /// 503 if too many queries wait; the errors of the store.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&CustomerRepository, &ReadTxn<'_>) -> index_table::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let customers = self.customers.clone();
        let submitted = self.store.read_async(move |txn| query(&customers, txn)).try_submit();
        let waiting = |_| Failure::unavailable("too many customers are being looked up");
        Ok(submitted.map_err(waiting)?.await?)
    }

    /// Executes a command, and waits until it is committed.
    ///
    /// # Errors
    ///
    /// 503 if too many commands wait, or the error of the command or of its commit.
    pub async fn write(&self, command: Command) -> Result<Outcome, Failure> {
        commands::submit(&self.store, &self.customers, command)?.await
    }

    /// Returns the customers.
    #[must_use]
    pub const fn customers(&self) -> &CustomerRepository {
        &self.customers
    }

    /// Refuses further requests, and finishes the accepted ones.
    ///
    /// # Errors
    ///
    /// If this process has inherited the store in a fork.
    pub async fn close(&self) -> index_table::Result<()> {
        self.store.close_async().await
    }
}
