//! Pinning all shards for a copy.

use super::Engine;
use crate::{
    engine::lmdb::{self, Pinned},
    model::error::Result,
};

impl Engine {
    /// Pins a snapshot of each shard, all of one instant. Commits wait meanwhile.
    ///
    /// The calling thread must not have a write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable)
    pub(crate) fn pin(&self) -> Result<Vec<Pinned<'_>>> {
        let shards = self.shards.iter().filter(|shard| !shard.is_gone());
        let engines = shards.map(|shard| shard.engine()?.on_disk());
        let engines = engines.collect::<Result<Vec<_>>>()?;
        let _paused = self.pause()?;
        engines.into_iter().map(lmdb::Engine::pin).collect()
    }
}
