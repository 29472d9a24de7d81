//! Pinning all shards for a copy.

use std::sync::Arc;

use super::{Engine, Maps};
use crate::{
    engine::lmdb::{self, Pinned},
    model::{error::Result, shard::ShardNumber},
};

/// A pinned snapshot of each shard.
pub(crate) struct PinnedShards<'e> {
    pub(crate) shards: Vec<(ShardNumber, Pinned<'e>)>,
    /// The shard maps of the snapshots.
    pub(crate) maps: Arc<Maps>,
}

impl Engine {
    /// Pins a snapshot of each shard, all of one instant, with the shard maps of this instant. Commits wait meanwhile.
    ///
    /// The calling thread must not have a write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable)
    pub(crate) fn pin(&self) -> Result<PinnedShards<'_>> {
        self.between_commits(|| self.pin_all())
    }

    fn pin_all(&self) -> Result<PinnedShards<'_>> {
        let _paused = self.pause()?;
        // A commit makes its maps current while it becomes visible.
        let maps = self.maps.now();
        let mut pinned = Vec::new();
        for &number in maps.shards() {
            // A shard that leaves is marked after its commit.
            let shard = self.shard(number)?;
            let engine = match shard.last_engine() {
                Some(engine) => engine,
                None => shard.engine()?,
            };
            pinned.push((number, engine.on_disk().and_then(lmdb::Engine::pin)?));
        }
        Ok(PinnedShards { shards: pinned, maps })
    }
}
