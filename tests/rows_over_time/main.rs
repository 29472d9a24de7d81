//! Rows over time: revisions, expiry, references, parts and aggregates.

mod aggregates;
mod cascades;
mod decimals;
mod eventual_aggregates;
mod evolution;
mod expiry;
mod leading;
mod parts;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod references;
mod revisions;
mod shards;
#[path = "../support/stores.rs"]
mod stores;

use std::ops::Deref;

use index_table::{Result, Store};

/// Returns an empty plain store of each engine: on disk, in memory, and on the server if there is one.
fn plain_engines() -> Result<Vec<Box<dyn Deref<Target = Store>>>> {
    let mut engines: Vec<Box<dyn Deref<Target = Store>>> = Vec::new();
    for store in stores::plain_stores()? {
        engines.push(Box::new(store));
    }
    #[cfg(feature = "postgres")]
    if let Some(store) = OnServer::new()? {
        engines.push(Box::new(store));
    }
    Ok(engines)
}

/// A store in a schema of the server, which is removed at the end.
#[cfg(feature = "postgres")]
struct OnServer {
    store: Store,
    _schema: postgres::Schema,
}

#[cfg(feature = "postgres")]
impl OnServer {
    fn new() -> Result<Option<Self>> {
        let Some(schema) = postgres::Schema::new() else { return Ok(None) };
        Ok(Some(Self { store: schema.open()?, _schema: schema }))
    }
}

#[cfg(feature = "postgres")]
impl Deref for OnServer {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}
