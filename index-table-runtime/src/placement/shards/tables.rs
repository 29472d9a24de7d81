//! A table in its shards.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use super::{Engine, Load, maps::CurrentMaps};
use crate::{
    engine::{self, Query, latest::Latest, list::List},
    locks::RwLock,
    model::{
        error::{Error, Result},
        shard::{Routing, ShardNumber},
    },
};

/// The databases of one table in all shards that have it, with the routing of one [generation](Maps) of shard maps.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(super) routing: Routing,
    pub(super) generation: u64,
    /// The shards that belong to the store in this generation.
    pub(super) present: Arc<[ShardNumber]>,
    pub(super) shared: Arc<SharedTables>,
}

/// The state that the generations of a table share.
pub(super) struct SharedTables {
    /// The shards, in the order of their numbers.
    shards: List<OfShard>,
    pub(super) maps: Arc<CurrentMaps>,
    /// The table in the latest generation that a transaction has used, unless it was opened in that generation.
    pub(super) latest: RwLock<Option<Arc<Tables>>>,
    /// The requests of the shard keys; `None` if the table has none.
    load: Option<Arc<Load>>,
    /// For a table of parts in another shard than their main rows: the table of the main rows.
    pub(super) main: OnceLock<Tables>,
}

/// The databases of a table in one shard.
#[derive(Clone)]
pub(crate) struct OpenTables {
    pub(crate) tables: Arc<engine::Tables>,
    /// The record in the catalog of the shard.
    pub(crate) record: Arc<[u8]>,
}

/// A table in one shard.
struct OfShard {
    /// The name of the shard.
    name: Arc<str>,
    /// The databases; `None` while the table is not open in the shard. A shard that was attached again has others.
    open: Latest<Option<OpenTables>>,
    /// The first generation of shard maps whose transactions can read these databases; 0 if they were opened with the table.
    since: AtomicU64,
}

impl OfShard {
    fn new(name: &Arc<str>, open: Option<OpenTables>) -> Self {
        Self { name: Arc::clone(name), open: Latest::from(open), since: AtomicU64::new(0) }
    }

    #[inline]
    fn open(&self) -> Option<&OpenTables> {
        self.open.get()?.as_ref()
    }
}

impl Tables {
    /// Creates the tables from the databases in each shard, with `None` for a shard that is not open. The shard maps may
    /// have changed since `routing` was made: a move has switched in another thread, or a follower has applied a move.
    pub(crate) fn new(routing: Routing, engine: &Engine, shards: Vec<Option<OpenTables>>) -> Self {
        let of_shard = |(shard, open): (&super::Shard, _)| OfShard::new(&shard.name, open);
        let shards = engine.shards.iter().zip(shards).map(of_shard).collect();
        let (maps, latest) = (Arc::clone(&engine.maps), RwLock::default());
        let now = maps.now();
        let has_key = routing.is_split() && !routing.is_placed();
        let load = has_key.then(|| engine.load_of(routing.map()));
        let main = OnceLock::new();
        let shared = Arc::new(SharedTables { shards, maps, latest, load, main });
        let present = now.shards().into();
        let tables = Self { routing, generation: now.generation(), present, shared };
        // Otherwise, transactions of this generation would use an earlier routing.
        match tables.routing_in(&now) {
            Some(routing) => Self { routing, ..tables },
            None => tables,
        }
    }

    /// Counts a request of a row.
    #[inline]
    pub(super) fn count_row(&self, is_write: bool, primary_key: &[u8]) {
        if let Some(load) = &self.shared.load {
            load.count(is_write, || self.routing.shard_key_in(primary_key));
        }
    }

    /// Counts a query, if it gives the shard key.
    pub(super) fn count_query(&self, query: &Query) {
        if let Some(load) = &self.shared.load
            && query.list.is_none()
        {
            load.count(false, || self.routing.shard_key_of(query.source, &query.bounds));
        }
    }

    /// Returns the number and the name of the current shard of a row.
    pub(crate) fn shard_of(&self, primary_key: &[u8]) -> Option<(ShardNumber, Arc<str>)> {
        let shard = self.routing().shard_of(primary_key)?;
        Some((shard, Arc::clone(&self.shared.shards.get(shard as usize)?.name)))
    }

    /// Adds the databases in a shard that was added to the store, or to which rows move. The caller has the lock of opening
    /// tables.
    pub(crate) fn add(&self, shard: ShardNumber, name: &Arc<str>, tables: OpenTables) {
        // Snapshots of this generation may be older than the databases.
        self.add_since(self.shared.maps.generation() + 1, (shard, name), tables);
    }

    /// Adds the databases in a shard that was restored. Older snapshots don't have the shard, so reading it fails. The caller
    /// has the lock of opening tables.
    pub(crate) fn add_restored(&self, shard: ShardNumber, name: &Arc<str>, tables: OpenTables) {
        self.add_since(0, (shard, name), tables);
    }

    fn add_since(
        &self,
        generation: u64,
        (shard, name): (ShardNumber, &Arc<str>),
        tables: OpenTables,
    ) {
        let shards = &self.shared.shards;
        while shards.len() <= shard as usize {
            shards.push(OfShard::new(name, None));
        }
        if let Some(own) = shards.get(shard as usize) {
            own.since.store(generation, Release);
            let is_same = |open: &OpenTables| Arc::ptr_eq(&open.tables, &tables.tables);
            if !own.open().is_some_and(is_same) {
                own.open.set(Some(tables));
            }
        }
    }

    /// Forgets the databases in a shard whose files were closed. The caller has the lock of opening tables.
    pub(crate) fn forget(&self, shard: ShardNumber) {
        if let Some(own) = self.shared.shards.get(shard as usize).filter(|own| own.open().is_some())
        {
            own.open.set(None);
        }
    }

    /// Adds the name of a shard that was added to the store. The caller has the lock of opening tables.
    pub(crate) fn add_name(&self, shard: ShardNumber, name: &Arc<str>) {
        if self.shared.shards.len() == shard as usize {
            self.shared.shards.push(OfShard::new(name, None));
        }
    }

    /// Returns the databases in a shard, or `None` if the table is not open there.
    #[inline]
    pub(crate) fn in_shard(&self, shard: ShardNumber) -> Option<&OpenTables> {
        self.shared.shards.get(shard as usize)?.open()
    }

    /// Returns the shards that can have changes in the stream of the table: its own, and those from which all rows were
    /// moved away, as long as they belong to the store.
    pub(super) fn with_changes(&self) -> Vec<ShardNumber> {
        let own = self.routing.all_shards();
        let all = self.present.iter().copied();
        all.filter(|shard| own.contains(shard) || self.can_read(*shard)).collect()
    }

    /// Returns the shards that can have a queue of the table: its own, and those from which all rows were moved away, as long
    /// as they belong to the store.
    pub(crate) fn with_queues(&self) -> Vec<ShardNumber> {
        let routing = &self.routing;
        if !routing.schema().has_eventual() {
            return routing.shards().to_vec();
        }
        // Those of this generation: a snapshot from before a shard was detached still has its queue.
        let all = self.present.iter().copied();
        all.filter(|shard| routing.shards().contains(shard) || self.can_read(*shard)).collect()
    }

    /// Returns the shards that can have a queue of the table in a transaction that begins now.
    pub(crate) fn with_queues_now(&self) -> Vec<ShardNumber> {
        match self.in_generation(&self.shared.maps.now()) {
            Some(now) => now.with_queues(),
            None => self.with_queues(),
        }
    }

    /// Whether the table is open in a shard, for the transactions of this generation.
    fn can_read(&self, shard: ShardNumber) -> bool {
        let own = self.shared.shards.get(shard as usize).filter(|own| own.open().is_some());
        own.is_some_and(|own| own.since.load(Acquire) <= self.generation)
    }

    pub(crate) fn were_known(&self) -> bool {
        let mut open = self.shared.shards.iter().filter_map(OfShard::open);
        open.all(|open| open.tables.were_known())
    }

    /// Whether the databases of all shards were opened.
    pub(crate) fn are_complete(&self) -> bool {
        let is_open = |shard: &ShardNumber| self.in_shard(*shard).is_some();
        self.routing().all_shards().iter().all(is_open)
    }

    #[inline]
    pub(super) fn opened(&self, engine: &Engine, shard: ShardNumber) -> Result<&OpenTables> {
        match self.in_shard(shard) {
            Some(tables) => Ok(tables),
            None => Err(self.not_open(engine, shard)),
        }
    }

    #[cold]
    fn not_open(&self, engine: &Engine, shard: ShardNumber) -> Error {
        Error::ShardUnavailable {
            shard: engine.name(shard),
            reason: format!(
                "table `{}` was opened without it; open the repository again",
                self.routing.schema().name
            ),
        }
    }

    pub(crate) fn of(&self, engine: &Engine, shard: ShardNumber) -> Result<&engine::Tables> {
        self.opened(engine, shard).map(|open| &*open.tables)
    }

    #[cold]
    pub(crate) fn no_shard(&self, primary_key: &[u8]) -> Error {
        let schema = self.routing.schema();
        let key = schema.show_primary_key(primary_key);
        Error::NoShard { table: schema.name, key, map: self.routing.map().to_owned() }
    }
}
