//! Sharded stores in memory.

use std::sync::Arc;

use super::{Store, declared::declare};
use crate::{
    engine::{self, Options},
    model::error::Result,
    placement::shards::{self, ManagerRecords, Shard},
    store::{Engines, Inner, Shards},
};

pub(super) fn in_memory(options: &Options) -> Result<Store> {
    let mut records = ManagerRecords::new();
    declare(options, &mut records, true)?;
    let (mut shards, mut stores) = (Vec::new(), Vec::new());
    for record in &records.shards {
        let store = memory_inner();
        shards.push(Shard::open(Arc::from(&*record.name), Arc::clone(store.engine()?)));
        stores.push(store);
    }
    let has_maps = !records.maps.is_empty();
    let placement = shards::Engine::new(shards, records.maps, records.places, None, None, false);
    let placement = if has_maps { placement } else { placement.with_any_map() };
    let engines = Engines::Several(Box::new(Shards::new(placement, stores, Arc::default())));
    let inner = Arc::new(Inner::new(engines, options.index_queue));
    #[cfg(feature = "async")]
    inner.calls.set_threads(options.async_threads);
    Ok(Store { inner })
}

pub(super) fn memory_inner() -> Arc<Inner> {
    Arc::new(Inner::of_shard(engine::Engine::in_memory().into(), Options::default().index_queue))
}
