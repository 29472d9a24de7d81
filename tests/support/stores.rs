//! The stores that a suite runs on: a plain store of each engine, and a sharded store of each engine.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::ops::Deref;

use index_table::{Durability, Error, ReadTxn, Result, ShardMap, Store, WriteTxn};

/// An empty store.
pub(crate) struct Tried {
    store: Store,
    pub(crate) is_sharded: bool,
    /// The directory of the store, or `None` if it is in memory.
    directory: Option<tempfile::TempDir>,
}

impl Deref for Tried {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Tried {
    pub(crate) fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    /// Inserts rows in as few transactions as the store allows.
    pub(crate) fn fill<R>(
        &self,
        rows: impl Iterator<Item = R>,
        insert: impl Fn(&mut WriteTxn<'_>, &R) -> Result<()>,
    ) -> Result<()> {
        let mut left: Vec<R> = rows.collect();
        while !left.is_empty() {
            let (mut txn, mut of_other_shards) = (self.write()?, Vec::new());
            for row in left {
                match insert(&mut txn, &row) {
                    Err(Error::OtherShard { .. }) => of_other_shards.push(row),
                    outcome => outcome?,
                }
            }
            txn.commit()?;
            left = of_other_shards;
        }
        Ok(())
    }

    /// Changes and the queries between them.
    pub(crate) fn session(&self) -> Result<Session<'_>> {
        if self.is_sharded {
            Ok(Session::Each(self))
        } else {
            self.write().map(|txn| Session::One(Box::new(txn)))
        }
    }
}

/// One write transaction for all changes and queries; for a sharded store, a transaction for each of them.
pub(crate) enum Session<'s> {
    One(Box<WriteTxn<'s>>),
    Each(&'s Store),
}

impl Session<'_> {
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut WriteTxn<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::One(txn) => change(txn),
            Self::Each(store) => {
                let mut txn = store.write()?;
                let value = change(&mut txn)?;
                txn.commit()?;
                Ok(value)
            }
        }
    }

    pub(crate) fn query<T, E: From<Error>>(
        &self,
        query: impl FnOnce(&ReadTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Self::One(txn) => query(txn),
            Self::Each(store) => query(&store.read()?),
        }
    }
}

fn plain_on_disk() -> Result<Tried> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::options().map_size(1 << 28).open(directory.path())?;
    Ok(Tried { store, is_sharded: false, directory: Some(directory) })
}

fn plain_in_memory() -> Tried {
    Tried { store: Store::in_memory(), is_sharded: false, directory: None }
}

/// Three shards, and a hash map with this name.
fn sharded_on_disk(shard_map: &str) -> Result<Tried> {
    // Counts of few entries run in several threads, in all tests of the process.
    index_table::__private::count_in_parallel_from(2);
    let shards = ["a", "b", "c"];
    let directory = tempfile::tempdir().expect("a directory");
    let options = shards.iter().fold(Store::options(), |all, name| all.shard(*name, name));
    let sharded = options
        .durability(Durability::None)
        .map(shard_map, ShardMap::hashed(shards))
        .open(directory.path())?;
    Ok(Tried { store: Store::clone(&sharded), is_sharded: true, directory: Some(directory) })
}

/// Returns a plain store of each engine.
pub(crate) fn plain_stores() -> Result<[Tried; 2]> {
    Ok([plain_on_disk()?, plain_in_memory()])
}

/// Returns a plain and a sharded store in memory.
pub(crate) fn stores_in_memory() -> [Tried; 2] {
    let options = ["a", "b", "c"].iter().fold(Store::options(), |all, name| all.shard(*name, ""));
    let sharded = options.in_memory().expect("a store in memory");
    [plain_in_memory(), Tried { store: sharded, is_sharded: true, directory: None }]
}

/// Returns a plain and a sharded store of each engine, for tables that are sharded by a hash and have this shard map.
pub(crate) fn stores(shard_map: &str) -> Result<Vec<Tried>> {
    let mut stores = vec![plain_on_disk()?, sharded_on_disk(shard_map)?];
    stores.extend(stores_in_memory());
    Ok(stores)
}
