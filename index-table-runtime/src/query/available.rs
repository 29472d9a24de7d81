//! Scans of the available shards.

use std::{collections::BTreeMap, fmt};

use super::{Scan, list::Ranges, request::ScanRequest};
use crate::model::{entity::IndexEntry, error::Error};

/// A scan of the available shards only; from [`Scan::available`].
#[must_use = "a scan does nothing until its rows, views, entries, keys or count are read"]
pub struct Available<'txn, E> {
    /// The scan, without the missing shards.
    pub scan: Scan<'txn, E>,
    /// The shards that the query needs but that are not available. If this is empty, the result is complete.
    pub missing: Vec<MissingShard>,
}

/// A shard that a scan has left out, in [`Available::missing`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingShard {
    /// The name of the shard.
    pub name: String,
    /// The reason why it is not available.
    pub reason: String,
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Limits the scan to the available shards of a store with shards, and returns it with the
    /// missing shards. A shard is not available if it could not be opened, or was left out by
    /// [`only`](crate::Options::only). Without this method, a scan that needs such a shard fails with
    /// [`Error::ShardUnavailable`]. In a plain store, the scan does not change.
    ///
    /// Only shards that the query needs can be missing, so a query of one available shard is complete. An entry of a
    /// global index can refer to a row in any shard of the table. Entries whose rows are in missing shards are left
    /// out, and all missing shards of the table are listed.
    ///
    /// The cursor of a page stays valid when a missing shard becomes available. The next page does not include rows of
    /// that shard before the cursor.
    ///
    /// Cost: reads the list of shards in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "customers", shard_by = tenant)]
    /// #[index(town)]
    /// struct Customer {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     id: u64,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("shop");
    /// # let store = Store::options()
    /// #     .shard("north", "north")
    /// #     .shard("south", "south")
    /// #     .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    /// #     .open(&path)?;
    /// # let customers = CustomerRepository::open(&store)?;
    /// # for tenant in [7, 107] {
    /// #     let row = Customer { tenant, id: 1, town: "Redmond".into() };
    /// #     store.transaction(|txn| customers.insert(txn, &row))?;
    /// # }
    /// # drop((store, customers));
    /// let store = Store::options().only(["north"]).open(&path)?;
    /// let customers = CustomerRepository::open(&store)?;
    /// let txn = store.read()?;
    /// assert!(customers.find_by_town(&txn, "Redmond").count().is_err());
    /// let found = customers.find_by_town(&txn, "Redmond").available();
    /// assert_eq!(found.missing[0].name, "south");
    /// assert_eq!(found.scan.count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn available(mut self) -> Available<'txn, E> {
        let missing = MissingShard::all(self.request.leave_out_missing());
        Available { missing, scan: self }
    }
}

impl MissingShard {
    /// Returns the shards of these errors.
    pub(super) fn all(missing: BTreeMap<u32, Error>) -> Vec<Self> {
        let of = |error| match error {
            Error::ShardUnavailable { shard, reason } => Some(Self { name: shard, reason }),
            _ => None,
        };
        missing.into_values().filter_map(of).collect()
    }
}

impl ScanRequest<'_> {
    /// Limits the scan to the available shards. Returns the missing shards.
    pub(super) fn leave_out_missing(&mut self) -> BTreeMap<u32, Error> {
        self.query.available = true;
        let mut missing = BTreeMap::new();
        let Ok(reader) = &self.reader else { return missing };
        if self.query.list.is_none() {
            reader.missing_shards(&self.query, &mut missing);
        } else {
            for query in Ranges::of(self.query.clone()) {
                reader.missing_shards(&query, &mut missing);
            }
        }
        missing
    }
}

impl<'txn, E: IndexEntry<'txn>> fmt::Debug for Available<'txn, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scan, missing } = self;
        f.debug_struct("Available").field("scan", scan).field("missing", missing).finish()
    }
}
