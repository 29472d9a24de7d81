//! Sharded stores in memory.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ShardedOptions, ShardedStore, Store,
    open::{declare, refused},
};
use crate::{
    engine::{
        self, Options,
        shards::{Engine, ManagerRecords, Shard},
    },
    model::error::Result,
    store::Inner,
};

pub(super) fn in_memory(options: &ShardedOptions) -> Result<ShardedStore> {
    let mut records = ManagerRecords::new();
    declare(options, &mut records, true)?;
    if records.shards.is_empty() {
        return Err(refused("the store", "it has no shards"));
    }
    let shards = records.shards.iter().map(|record| memory_shard(&record.name)).collect();
    let engine = Engine::new(shards, records.maps, records.places, None, None, false);
    Ok(sharded(engine, &options.options))
}

pub(super) fn in_memory_with_any_map() -> ShardedStore {
    let shards = ["a", "b", "c"].map(memory_shard).into();
    let engine = Engine::new(shards, [], BTreeMap::new(), None, None, false).with_any_map();
    sharded(engine, &Options::default())
}

fn memory_shard(name: &str) -> Shard {
    Shard::open(Arc::from(name), memory_inner())
}

pub(super) fn memory_inner() -> Arc<Inner> {
    Arc::new(Inner::new(engine::Engine::in_memory(), Options::default().index_queue))
}

fn sharded(engine: Engine, options: &Options) -> ShardedStore {
    let engine = engine::Engine::Sharded(Box::new(engine));
    let inner = Arc::new(Inner::new(engine, options.index_queue));
    ShardedStore { store: Store { inner } }
}
