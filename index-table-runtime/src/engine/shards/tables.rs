//! A table in its shards.

use std::sync::{Arc, OnceLock, RwLock};

use super::{Engine, HasTables, maps::CurrentMaps};
use crate::{
    engine,
    model::{
        error::{Error, Result},
        shard::{Routing, ShardNumber},
    },
};

/// The databases of one table in all shards that have it, with the routing of one [generation](Maps) of shard maps.
pub(crate) struct Tables {
    pub(super) routing: Routing,
    pub(super) generation: u64,
    pub(super) shared: Arc<SharedTables>,
}

/// What the generations of a table have in common.
pub(super) struct SharedTables {
    /// The databases in each shard, in the order of shard numbers.
    shards: Box<[OnceLock<Arc<dyn HasTables>>]>,
    /// The names of the shards.
    names: Box<[Arc<str>]>,
    pub(super) maps: Arc<CurrentMaps>,
    /// The table in the latest generation that a transaction has used, unless it was opened in that generation.
    pub(super) latest: RwLock<Option<Arc<Tables>>>,
}

impl Tables {
    /// Creates the tables from the databases in each shard, with `None` for a shard that is not open. The routing is that of
    /// the current shard maps.
    pub(crate) fn new(
        routing: Routing,
        engine: &Engine,
        shards: Vec<Option<Arc<dyn HasTables>>>,
    ) -> Self {
        let once = |tables: Option<_>| tables.map_or_else(OnceLock::new, OnceLock::from);
        let shards = shards.into_iter().map(once).collect();
        let names = engine.shards.iter().map(|shard| Arc::clone(&shard.name)).collect();
        let (maps, latest) = (Arc::clone(&engine.maps), RwLock::default());
        let generation = maps.generation();
        Self { routing, generation, shared: Arc::new(SharedTables { shards, names, maps, latest }) }
    }

    /// Returns the number and the name of the current shard of a row.
    pub(crate) fn shard_of(&self, primary_key: &[u8]) -> Option<(ShardNumber, Arc<str>)> {
        let shard = self.routing().shard_of(primary_key)?;
        Some((shard, Arc::clone(self.shared.names.get(shard as usize)?)))
    }

    /// Adds the databases in a shard that has become available.
    pub(crate) fn add(&self, shard: ShardNumber, tables: Arc<dyn HasTables>) {
        if let Some(own) = self.shared.shards.get(shard as usize) {
            let _ = own.set(tables);
        }
    }

    /// Returns the handle that keeps the table open in a shard, or `None` if it is not open there.
    pub(crate) fn in_shard(&self, shard: ShardNumber) -> Option<&Arc<dyn HasTables>> {
        self.shared.shards.get(shard as usize)?.get()
    }

    pub(crate) fn were_known(&self) -> bool {
        let open = self.shared.shards.iter().filter_map(OnceLock::get);
        open.map(|tables| tables.tables()).all(engine::Tables::were_known)
    }

    /// Whether the databases of all shards were opened.
    pub(crate) fn are_complete(&self) -> bool {
        let is_open = |shard: &ShardNumber| {
            self.shared.shards.get(*shard as usize).is_some_and(|tables| tables.get().is_some())
        };
        self.routing().all_shards().iter().all(is_open)
    }

    pub(super) fn opened(&self, engine: &Engine, shard: ShardNumber) -> Result<&dyn HasTables> {
        let found = self.shared.shards.get(shard as usize).and_then(OnceLock::get);
        found.map(|tables| &**tables).ok_or_else(|| Error::ShardUnavailable {
            shard: engine.name(shard),
            reason: format!(
                "table `{}` was opened without it; open the repository again",
                self.routing.schema().name
            ),
        })
    }

    pub(crate) fn of(&self, engine: &Engine, shard: ShardNumber) -> Result<&engine::Tables> {
        self.opened(engine, shard).map(HasTables::tables)
    }

    #[cold]
    pub(crate) fn no_shard(&self, primary_key: &[u8]) -> Error {
        let schema = self.routing.schema();
        let key = schema.show_primary_key(primary_key);
        Error::NoShard { table: schema.name, key, map: self.routing.map().to_owned() }
    }
}
