//! Followers of sharded stores.

use std::{fmt, path::Path};

use super::ShardedStore;
use crate::{
    model::error::Result,
    store::{Follower, FollowerLag},
};

/// A read-only copy of a sharded store, which applies each commit in the [archive](crate::ShardedOptions::archive) of
/// the store. It works as a [`Follower`], except for the following.
///
/// All shards are in directories `shard.{number}` of the copy. A snapshot of the follower has each commit in all of its
/// shards or in none. Moves and removals of shards take effect in the follower too. If a shard is added to the
/// original, the follower stops, with an error in its [`lag`](ShardedFollower::lag). When the follower is opened again,
/// it copies the archive.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, ShardMap, ShardedFollower, ShardedStore};
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
/// # let (shop, archive, standby) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
/// let store = ShardedStore::options()
///     .shard("north", "north")
///     .shard("south", "south")
///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
///     .archive(&archive)
///     .open(&shop)?;
/// let orders = OrderRepository::open(&store)?;
/// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
/// drop((orders, store));
///
/// let follower = ShardedFollower::open(&standby, &archive)?;
/// let orders = OrderRepository::open(follower.store())?;
/// assert_eq!(orders.find_by_tenant(&follower.store().read()?, 107).count()?, 1);
///
/// // The machine of the original is lost.
/// let store = follower.promote()?;
/// store.transaction(|txn| orders.insert(txn, &Order { tenant: 7, number: 1 }))?;
/// # Ok(())
/// # }
/// ```
pub struct ShardedFollower {
    follower: Follower,
    store: ShardedStore,
}

impl ShardedFollower {
    /// Opens the follower in the directory `path`, or creates it from the archive, as [`Follower::open`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Follower::open`]. [`Error::NotOffered`](crate::Error::NotOffered) if the archive belongs to a
    /// store without shards.
    pub fn open(path: impl AsRef<Path>, archive: impl AsRef<Path>) -> Result<Self> {
        let follower = Follower::open_as(path.as_ref(), archive.as_ref(), true)?;
        let store = ShardedStore::of(follower.store().clone());
        Ok(Self { follower, store })
    }

    /// Returns the read-only store. After the follower is dropped, the store remains readable, but no longer changes.
    #[must_use]
    pub const fn store(&self) -> &ShardedStore {
        &self.store
    }

    /// Returns the distance to the archive, as [`Follower::lag`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Follower::lag`].
    pub fn lag(&self) -> Result<FollowerLag> {
        self.follower.lag()
    }

    /// Applies all commits of the archive, and makes the copy a writable store, as [`Follower::promote`] does. The
    /// store has a journal of all shards, and no archive.
    ///
    /// # Errors
    ///
    /// The errors of [`Follower::promote`].
    pub fn promote(self) -> Result<ShardedStore> {
        self.follower.promote()?;
        Ok(self.store)
    }
}

impl fmt::Debug for ShardedFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedFollower").field("store", &self.store).finish_non_exhaustive()
    }
}
