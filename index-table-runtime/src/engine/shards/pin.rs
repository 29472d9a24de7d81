//! Pinning all shards for a copy.

use super::Engine;
use crate::{
    engine::lmdb::{self, Pinned},
    model::{error::Result, shard::ShardNumber},
};

impl Engine {
    /// Pins a snapshot of each shard, all of one instant, and returns them with the numbers of their shards. Shards that
    /// have left the store are not among them. Commits wait meanwhile.
    ///
    /// The calling thread must not have a write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable)
    pub(crate) fn pin(&self) -> Result<Vec<(ShardNumber, Pinned<'_>)>> {
        let _paused = self.pause()?;
        let mut pinned = Vec::new();
        for (number, shard) in self.shards() {
            let Some(open) = shard.present()? else { continue };
            let engine = open.engine();
            let pin = engine.on_disk().and_then(lmdb::Engine::pin);
            pinned.extend(shard.unless_left(engine, pin)?.map(|pinned| (number, pinned)));
        }
        Ok(pinned)
    }
}
