//! The contents and the load of the shards.

use std::fmt;

use serde::Serialize;

use crate::{
    model::error::{Error, Result},
    store::{ShardId, Shards, Store, shards_of},
    upkeep::analyze::share,
};

/// A shard of a store, with its contents and its load. From [`Store::shards`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The name of the shard.
    pub name: String,
    /// Whether the shard is available.
    pub state: ShardStatus,
    /// The number of rows of all tables in use, with the shard's copies of reference tables.
    pub rows: u64,
    /// The bytes of the pages of these rows and of the shard's index entries; 0 for a store in memory.
    pub bytes: u64,
    /// The number of read transactions that have read the shard and ended, since this process opened the store. In a store with
    /// one shard, the number of read transactions that have begun.
    pub reads: u64,
    /// The number of committed transactions that have changed the shard, since this process opened the store.
    pub writes: u64,
    /// Its share of the rows of all shards, from 0 to 1. All shares are 0 if the total is 0.
    pub row_share: f64,
    /// Its share of the bytes of all shards, from 0 to 1.
    pub byte_share: f64,
    /// Its share of the reads of all shards, from 0 to 1.
    pub read_share: f64,
    /// Its share of the writes of all shards, from 0 to 1.
    pub write_share: f64,
}

/// Whether a shard is available; see [`ShardInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ShardStatus {
    /// The shard is open.
    Available,
    /// The shard is not open: queries that need it fail with
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable).
    Unavailable {
        /// The reason why it is not open.
        reason: String,
    },
}

impl Store {
    /// Returns all shards, in the order in which they were declared, each with its rows, its bytes and its load.
    ///
    /// Only tables with a repository in use are counted. Each shard is read in a transaction of its own, which the next call
    /// counts among its reads.
    ///
    /// Cost: LMDB maintains the numbers, so a few pages are read for each table and shard. A server counts the rows.
    ///
    /// # Errors
    ///
    /// The errors of [`sizes_on`](Store::sizes_on). A shard that is not available causes no error, and is listed
    /// without rows.
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
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    ///
    /// for shard in store.shards()? {
    ///     println!("{shard}");
    /// }
    /// let rows: Vec<u64> = store.shards()?.iter().map(|shard| shard.rows).collect();
    /// assert_eq!(rows, [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shards(&self) -> Result<Vec<ShardInfo>> {
        let engine = shards_of(self)?;
        let info = |shard: &ShardId| {
            let info = self.shard_info(engine, shard);
            // Another thread has removed or detached the shard, which was listed before.
            let has_left = |engine: &Shards| {
                let number = self.number_of(shard);
                number.is_ok_and(|number| !engine.current_shards().contains(&number))
            };
            if engine.is_some_and(has_left) { None } else { Some(info) }
        };
        let mut shards = self.shard_ids().iter().filter_map(info).collect::<Result<Vec<_>>>()?;
        let [rows, bytes] = totals(&shards, |shard| [shard.rows, shard.bytes]);
        let [reads, writes] = totals(&shards, |shard| [shard.reads, shard.writes]);
        for shard in &mut shards {
            shard.row_share = share(shard.rows, rows);
            shard.byte_share = share(shard.bytes, bytes);
            shard.read_share = share(shard.reads, reads);
            shard.write_share = share(shard.writes, writes);
        }
        Ok(shards)
    }

    /// Returns the information about a shard, without its shares.
    fn shard_info(&self, engine: Option<&Shards>, shard: &ShardId) -> Result<ShardInfo> {
        let (state, (reads, writes)) = match engine {
            None => (ShardStatus::Available, self.inner.requests.get()),
            Some(engine) => {
                let own = engine.shard(self.number_of(shard)?)?;
                let state = match own.opened() {
                    Err(Error::ShardUnavailable { reason, .. }) => {
                        ShardStatus::Unavailable { reason }
                    }
                    Err(error) => return Err(error),
                    Ok(_) => ShardStatus::Available,
                };
                (state, own.requests())
            }
        };
        let [rows, bytes] =
            if state == ShardStatus::Available { self.rows_and_bytes_on(shard)? } else { [0, 0] };
        let name = shard.name().to_owned();
        let [row_share, byte_share, read_share, write_share] = [0.0; 4];
        Ok(ShardInfo {
            name,
            state,
            rows,
            bytes,
            reads,
            writes,
            row_share,
            byte_share,
            read_share,
            write_share,
        })
    }
}

/// Adds up two figures of all items.
pub(super) fn totals<T>(items: &[T], figures: impl Fn(&T) -> [u64; 2]) -> [u64; 2] {
    items.iter().map(figures).fold([0, 0], |[a, b], [c, d]| [a + c, b + d])
}

impl fmt::Display for ShardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available => f.write_str("available"),
            Self::Unavailable { reason } => write!(f, "not available: {reason}"),
        }
    }
}

impl fmt::Display for ShardInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, rows, bytes, reads, writes, .. } = self;
        write!(
            f,
            "shard `{name}`, {state}: {rows} rows, {bytes} bytes, {reads} reads, {writes} writes"
        )
    }
}
