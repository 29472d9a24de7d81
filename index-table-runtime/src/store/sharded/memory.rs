//! Sharded stores in memory.

use std::sync::Arc;

use super::{Store, open::declare};
use crate::{
    engine::{
        self, Options,
        shards::{Engine, ManagerRecords, Shard},
    },
    model::error::Result,
    store::Inner,
};

pub(super) fn in_memory(options: &Options) -> Result<Store> {
    let mut records = ManagerRecords::new();
    declare(options, &mut records, true)?;
    let shards = records.shards.iter().map(|record| memory_shard(&record.name)).collect();
    let has_maps = !records.maps.is_empty();
    let engine = Engine::new(shards, records.maps, records.places, None, None, false);
    let engine = if has_maps { engine } else { engine.with_any_map() };
    Ok(sharded(engine, options))
}

fn memory_shard(name: &str) -> Shard {
    Shard::open(Arc::from(name), memory_inner())
}

pub(super) fn memory_inner() -> Arc<Inner> {
    Arc::new(Inner::new(engine::Engine::in_memory(), Options::default().index_queue))
}

fn sharded(engine: Engine, options: &Options) -> Store {
    let engine = engine::Engine::Sharded(Box::new(engine));
    let inner = Arc::new(Inner::new(engine, options.index_queue));
    Store { inner }
}
