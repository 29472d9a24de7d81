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
        let _paused = self.pause()?;
        let mut pinned = Vec::new();
        for shard in self.shards.iter() {
            let Some(open) = shard.present()? else { continue };
            let engine = open.engine();
            let pin = engine.on_disk().and_then(lmdb::Engine::pin);
            pinned.extend(shard.unless_left(engine, pin)?);
        }
        Ok(pinned)
    }
}
