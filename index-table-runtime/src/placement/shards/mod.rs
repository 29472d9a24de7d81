//! Several shards, each with an engine of its own. The tables of a sharded store are the
//! tables of its shards, with the [`Routing`], which determines the shard of each row.
//!
//! The code above the seam is the same as for a single engine. A [`Reader`] runs a query in the shards that can
//! have matching entries, and merges their cursors by index key and primary key, the order of a single engine. A
//! query of one shard gets the cursor of that shard, so an entry costs the same as in a plain store. Rows are
//! looked up in the shard of their primary key. A [`Writer`] sends each change to the shard of its primary key,
//! and the entries of [`global`] indexes to the shards of their index keys.
//!
//! | module | contents |
//! |---|---|
//! | [`maps`] | the shard maps of a transaction, which change when rows move |
//! | [`moving`] | the unfinished moves of keys to other shards |
//! | [`hidden`] | entries of global indexes whose rows belong to no shard |
//! | [`lists`] | the records of the shard map manager with the lists of tables |
//! | [`load`] | samples of the requests of shard keys |
//! | [`parts`] | parts in another shard than their main rows |
//! | [`instant`] | why a read transaction sees one instant of all shards |
//! | [`writing`] | the order in which write transactions lock shards |
//! | [`count`] | counts over several shards, in several threads if they are long |
//! | [`commit`] | the steps of a commit of several shards |

mod commit;
mod count;
mod follow;
mod global;
mod grow;
mod grown;
mod hidden;
mod instant;
mod lists;
mod load;
mod locations;
mod manager;
mod maps;
mod merge;
mod moving;
mod outside;
mod own;
mod parts;
mod pin;
mod read;
mod renamed;
mod states;
mod steps;
mod tables;
#[cfg(test)]
mod tests;
mod threads;
mod txn;
mod write;
mod writing;

pub use count::count_in_parallel_from;
pub(crate) use grown::{FIRST, HERE};
use hidden::Hidden;
pub(crate) use hidden::{Coming, first_holder};
pub(crate) use load::Load;
pub(crate) use manager::{
    Identity, Manager, ManagerId, ManagerRecord, ManagerRecords, OwnRanges, ShardRecord,
    ShardState, TableRecord, WriterLock, encoded, options_of, place_of, recorded, write_alone,
    write_moves,
};
pub(crate) use maps::{CurrentRouting, Map, Maps};
use merge::Filter;
pub(crate) use merge::{Entries, LentEntries};
pub(crate) use moving::{Held, MoveId, MoveRecord, Moving, Tracked, new_id};
pub(crate) use outside::Observed;
pub(crate) use own::Seen;
pub(crate) use pin::PinnedShards;
pub(crate) use read::{Part, Reader};
pub(crate) use steps::{Author, MoveStep};
pub(crate) use tables::{OpenTables, Tables};
pub(crate) use txn::Txn;
pub(crate) use write::Writer;
pub(crate) use writing::Locks;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    ptr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::{
    engine::{self, Records, Retry, Stamp, latest::Latest, list::List},
    locks::{Mutex, RwLock, next_store, place, rank},
    model::{
        error::{Error, Result},
        reference::ReferenceSchema,
        schema::{IndexSchema, TableSchema},
        shard::{
            Boundaries, Declared, Distribution, Routing, ShardKey, ShardMap, ShardNumber,
            placed_table,
        },
    },
};
pub(crate) use grow::Changed;
use instant::Visibility;
use maps::{CurrentMaps, Routed};
use moving::Holds;
use parts::PlacedParts;

const GONE: &str = "it was removed or detached; `attach_shard` adds it to the store again";

/// A shard of an open store.
pub(crate) struct Shard {
    name: Arc<str>,
    /// Empty while the shard is not available. A shard that was detached and attached again has another engine.
    open: Latest<Arc<engine::Engine>>,
    /// The reason why the shard was not available when the store was opened.
    reason: String,
    /// Whether the shard no longer belongs to the store. Its engine stays open for the transactions that began before, and is
    /// closed when they have ended.
    is_gone: AtomicBool,
    /// The number of commits that have returned.
    commits: AtomicU64,
    /// How many read transactions have read it, and ended.
    reads: AtomicU64,
    /// How many transactions have changed it.
    writes: AtomicU64,
}

impl Shard {
    /// Returns an open shard.
    pub(crate) fn open(name: Arc<str>, engine: Arc<engine::Engine>) -> Self {
        Self { open: Latest::from(engine), ..Self::unavailable(name, String::new()) }
    }

    /// Returns a shard that is not available, with the reason.
    pub(crate) const fn unavailable(name: Arc<str>, reason: String) -> Self {
        let (commits, reads, writes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let is_gone = AtomicBool::new(false);
        Self { name, open: Latest::new(), reason, is_gone, commits, reads, writes }
    }

    /// Marks the shard with this number as available.
    pub(crate) fn restored(&self, engine: Arc<engine::Engine>) {
        if self.open.get().is_none_or(|own| !Arc::ptr_eq(own, &engine)) {
            self.open.set(engine);
        }
    }

    /// Returns the name of the shard.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the number of read transactions that have read the shard and ended, and the number of transactions that
    /// have changed it.
    pub(crate) fn requests(&self) -> (u64, u64) {
        (self.reads.load(Relaxed), self.writes.load(Relaxed))
    }

    /// Returns the engine of the shard.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    pub(crate) fn opened(&self) -> Result<&Arc<engine::Engine>> {
        self.current().ok_or_else(|| Error::ShardUnavailable {
            shard: self.name.to_string(),
            reason: if self.is_gone() { GONE.to_owned() } else { self.reason.clone() },
        })
    }

    /// Returns the engine of the shard; `None` if the shard is not available.
    fn current(&self) -> Option<&Arc<engine::Engine>> {
        self.open.get().filter(|_| !self.is_gone())
    }

    /// Returns the engine of the shard; `None` if the shard no longer belongs to the store.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    fn present(&self) -> Result<Option<&Arc<engine::Engine>>> {
        if self.is_gone() {
            return Ok(None);
        }
        match self.open.get() {
            Some(open) => Ok(Some(open)),
            None => self.opened().map(Some),
        }
    }

    /// Returns a new transaction of this engine of the shard, or `None` instead of an error if the shard was removed or
    /// detached meanwhile.
    fn unless_left<T>(&self, engine: &engine::Engine, begun: Result<T>) -> Result<Option<T>> {
        let is_current = || self.current().is_some_and(|open| ptr::eq(&raw const **open, engine));
        match begun {
            Err(_) if !is_current() => Ok(None),
            begun => begun.map(Some),
        }
    }

    /// Whether the shard no longer belongs to the store.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Acquire)
    }

    /// Returns the engine that this process has opened for the shard, which may no longer belong to the store.
    pub(crate) fn last_engine(&self) -> Option<&engine::Engine> {
        self.open.get().map(|open| &**open)
    }

    /// Sets the place of the turn to write the shard among the turns of all shards.
    fn set_place(&self, store: u64, number: ShardNumber) {
        if let Some(engine) = self.last_engine() {
            engine.set_place(place(store, number));
        }
    }

    /// Sets whether the shard no longer belongs to the store.
    pub(crate) fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Release);
    }

    pub(crate) fn engine(&self) -> Result<&engine::Engine> {
        self.opened().map(|open| &**open)
    }
}

/// An open sharded store.
pub(crate) struct Engine {
    /// The number of the store among the stores of this process.
    id: u64,
    /// All shards, in the order of their numbers.
    shards: List<Shard>,
    maps: Arc<CurrentMaps>,
    /// The shards of placed tables. Other tables without a shard key are in the first shard.
    places: RwLock<BTreeMap<String, ShardNumber>>,
    /// The locations of the rows of all tables that have ever been opened.
    tables: Mutex<BTreeMap<String, TableRecord>, rank::Locations>,
    directory: Option<PathBuf>,
    /// The shard map manager; `None` for a store in memory.
    manager: Option<Arc<Manager>>,
    /// A promotion makes a follower writable.
    read_only: AtomicBool,
    /// The original of a follower has a shard that this follower can't add.
    lacks_shard: AtomicBool,
    /// The number of shards over which tables without a shard map are distributed by a hash of their shard keys.
    any_map: usize,
    /// Locked shared by each commit of one shard, and exclusively to make these commits wait.
    gate: RwLock<(), rank::CommitGate>,
    visibility: Visibility,
    holds: Holds,
    /// Locked while a move runs.
    move_turn: Mutex<(), rank::Moving>,
    /// The requests of the shard keys, by the names of the shard maps.
    loads: Mutex<BTreeMap<String, Arc<Load>>>,
    /// The tables of the own records of the shards.
    own: OnceLock<Tables>,
    /// The tables of parts in other shards than their main rows.
    parts: PlacedParts,
    /// The own records of the shards, for a store that another process may write.
    seen: Vec<Option<(Seen, engine::Tables)>>,
    /// The version of the manager's records then.
    seen_version: Option<u64>,
    /// The commits of several shards of that process.
    observed: Option<Observed>,
}

impl Engine {
    pub(crate) fn new(
        shards: Vec<Shard>,
        maps: impl IntoIterator<Item = (String, Declared)>,
        places: BTreeMap<String, ShardNumber>,
        directory: Option<PathBuf>,
        manager: Option<Manager>,
        read_only: bool,
    ) -> Self {
        let maps = maps.into_iter().map(|(name, declared)| (name, declared.into())).collect();
        let maps = Arc::new(CurrentMaps::new(maps, present(&shards)));
        let id = next_store();
        for (number, shard) in (0..).zip(&shards) {
            shard.set_place(id, number);
        }
        if let Some(manager) = &manager {
            manager.engine().set_place(place(id, u32::MAX));
        }
        let shards = shards.into_iter().collect();
        let (gate, tables) = (RwLock::default(), Mutex::default());
        let announced = manager.as_ref().and_then(Manager::announced).cloned();
        let (visibility, any_map) = (Visibility::new(announced), 0);
        Self {
            id,
            shards,
            maps,
            places: RwLock::new(places),
            tables,
            directory,
            manager: manager.map(Arc::new),
            read_only: AtomicBool::new(read_only),
            lacks_shard: AtomicBool::new(false),
            any_map,
            gate,
            visibility,
            holds: Holds::default(),
            move_turn: Mutex::default(),
            loads: Mutex::default(),
            own: OnceLock::new(),
            parts: PlacedParts::default(),
            seen: Vec::new(),
            seen_version: None,
            observed: None,
        }
    }

    /// Distributes tables without a shard map by a hash of their shard keys.
    #[cfg(feature = "memory")]
    pub(crate) fn with_any_map(self) -> Self {
        Self { any_map: self.shards.len(), ..self }
    }

    /// Sets the locations of the tables that were opened in earlier runs.
    pub(crate) fn with_tables(self, tables: BTreeMap<String, TableRecord>) -> Self {
        self.parts.note(&tables);
        Self { tables: Mutex::new(tables), ..self }
    }

    /// Compares the location of a table's rows with the recorded location. Returns the record of a new table. `main` is
    /// the reference of a part to its main row in another shard.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`]: the table was first opened with another shard key, shard map or place.
    pub(crate) fn compare(
        &self,
        routing: &Routing,
        distribution: Distribution,
        main: Option<&ReferenceSchema>,
    ) -> Result<Option<TableRecord>> {
        let table = routing.schema().name;
        let declared = TableRecord::of(distribution).unwrap_or_else(|| {
            let shard = routing.shards().first().copied().unwrap_or_default();
            match main {
                None => TableRecord::Whole(shard),
                Some(main) => TableRecord::Part {
                    shard,
                    main: main.to.name.to_owned(),
                    repository: main.cascade.unwrap_or_default().to_owned(),
                },
            }
        });
        let known = self.tables.lock();
        match known.get(table) {
            None => Ok(Some(declared)),
            Some(known) if *known == declared => Ok(None),
            Some(known) if known.place().is_some() && routing.is_placed() => Ok(None),
            // The rows stay in their shard if `part_of` is added or removed. A table without its struct has no references.
            Some(known) if known.place().is_some() && known.place() == declared.place() => {
                Ok((!self.is_read_only()).then_some(declared))
            }
            Some(known) => Err(self.placed_otherwise(table, known, &declared)),
        }
    }

    /// Compares the recorded location of a table's rows with a distribution, without a place for all rows.
    ///
    /// # Errors
    ///
    /// As for [`compare`](Self::compare).
    pub(crate) fn compare_distribution(
        &self,
        table: &'static str,
        distribution: Distribution,
    ) -> Result<()> {
        let Some(known) = self.location_of(table) else { return Ok(()) };
        let declared = match TableRecord::of(distribution) {
            None if known.place().is_some() => return Ok(()),
            None => TableRecord::Whole(ShardNumber::default()),
            Some(declared) => declared,
        };
        if known == declared {
            return Ok(());
        }
        Err(self.placed_otherwise(table, &known, &declared))
    }

    #[cold]
    fn placed_otherwise(
        &self,
        table: &'static str,
        known: &TableRecord,
        declared: &TableRecord,
    ) -> Error {
        Error::SchemaMismatch {
            table,
            difference: format!(
                "its rows are {}, and it is declared to have them {}",
                self.shown(known),
                self.shown(declared)
            ),
            way_out: "declare the shard key, the shard map and the place that the table was first \
                      opened with",
        }
    }

    fn shown(&self, record: &TableRecord) -> String {
        match record {
            TableRecord::Whole(shard) | TableRecord::Part { shard, .. } => {
                format!("in shard `{}`", self.name(*shard))
            }
            TableRecord::ByKey { fields, hashed, map } => {
                let hash = if *hashed { "a hash of " } else { "" };
                format!("by {hash}{fields} fields and shard map `{map}`")
            }
            TableRecord::Reference => "in every shard".to_owned(),
        }
    }

    /// Stores the record of a new table.
    pub(crate) fn keep(&self, table: &str, record: TableRecord) -> Result<()> {
        // Without the lock of the locations, because a thread with the turn to write looks them up.
        if let Some(manager) = self.manager.as_ref().filter(|_| !self.is_read_only()) {
            manager.write_table(table, &record)?;
        }
        let mut known = self.tables.lock();
        known.insert(table.to_owned(), record);
        self.parts.note(&known);
        Ok(())
    }

    /// Returns the location of the rows of a table; `None` if the table was never opened.
    pub(crate) fn location_of(&self, table: &str) -> Option<TableRecord> {
        let known = self.tables.lock();
        known.get(table).cloned()
    }

    /// Sets the locations of tables that the original of a follower has opened.
    pub(super) fn follow_tables(&self, records: &ManagerRecords) {
        let mut known = self.tables.lock();
        known.clone_from(&records.tables);
        self.parts.note(&known);
    }

    /// Returns the current shard maps.
    pub(crate) fn declared_maps(&self) -> BTreeMap<String, Declared> {
        let declared = |(name, map): (&String, &Map)| (name.clone(), map.declared());
        self.maps.now().by_name.iter().map(declared).collect()
    }

    /// Returns the names of the shard maps of rows and of global indexes, in order.
    pub(crate) fn maps(&self) -> Vec<String> {
        let maps = self.maps.now();
        maps.by_name.keys().filter(|name| placed_table(name).is_none()).cloned().collect()
    }

    /// Returns the names of the tables whose rows are all in this shard.
    pub(crate) fn tables_placed_in(&self, shard: ShardNumber) -> Vec<String> {
        let known = self.tables.lock();
        let whole = known.iter().filter(|(_, record)| record.place().is_some());
        let places = self.places.read().clone();
        let all: BTreeSet<_> = whole.map(|(table, _)| table).chain(places.keys()).collect();
        let place = |table: &str| {
            let recorded = || known.get(table).and_then(TableRecord::place);
            let declared = || places.get(table).copied();
            self.moved_to(table).or_else(declared).or_else(recorded)
        };
        all.into_iter().filter(|table| place(table) == Some(shard)).cloned().collect()
    }

    /// Returns the shard of a table without a shard key, if it was ever moved, or is being moved.
    fn moved_to(&self, table: &str) -> Option<ShardNumber> {
        self.maps.now().placed(table).and_then(|(_, map)| map.boundaries.shard_of(&[]))
    }

    /// Returns the shard of the rows of a table without a shard key. A table that was never opened is new, and gets this shard.
    pub(crate) fn place_of_table(&self, table: &str) -> ShardNumber {
        self.moved_to(table).unwrap_or_else(|| self.first_place_of(table))
    }

    /// Returns the shard of the rows of a table without a shard key before its first move.
    fn first_place_of(&self, table: &str) -> ShardNumber {
        let place = self.places.read().get(table).copied();
        place.or_else(|| self.main_table_in(table)).unwrap_or_default()
    }

    /// Whether tables are placed in a shard, and no shard map has keys in it.
    pub(crate) fn has_only_placed(&self, shard: ShardNumber) -> bool {
        let maps = self.maps.now();
        let has_no_keys = |(name, map): (&String, &Map)| {
            placed_table(name).is_some() || !map.boundaries.shards().contains(&shard)
        };
        !self.tables_placed_in(shard).is_empty() && maps.by_name.iter().all(has_no_keys)
    }

    /// Returns all reference tables that have ever been opened.
    pub(crate) fn reference_tables(&self) -> Vec<String> {
        let known = self.tables.lock();
        let reference = known.iter().filter(|(_, record)| **record == TableRecord::Reference);
        reference.map(|(table, _)| table.clone()).collect()
    }

    /// Returns the shard map manager, or `None` for a store in memory.
    pub(crate) fn manager(&self) -> Option<&Manager> {
        self.manager.as_deref()
    }

    /// Returns the shard map manager for the lists of the tables.
    pub(crate) fn weak_manager(&self) -> Option<Weak<Manager>> {
        self.manager.as_ref().map(Arc::downgrade)
    }

    /// Returns all shards with their numbers, in order. Some may no longer belong to the store.
    pub(crate) fn shards(&self) -> impl Iterator<Item = (ShardNumber, &Shard)> {
        (0..).zip(self.shards.iter())
    }

    /// Returns the numbers of the shards that belong to the store.
    pub(crate) fn current_shards(&self) -> Vec<ShardNumber> {
        self.maps.now().shards().to_vec()
    }

    /// Whether threads of this process wait for their turn to write in a shard, or would soon have to wait.
    pub(crate) fn is_contended(&self) -> bool {
        self.engines().any(engine::Engine::is_contended)
    }

    /// Returns the engines of the available shards.
    pub(crate) fn engines(&self) -> impl Iterator<Item = &engine::Engine> {
        self.engines_by_number().map(|(_, engine)| engine)
    }

    /// Returns the engines of the available shards, with the numbers of the shards, in order.
    pub(crate) fn engines_by_number(&self) -> impl Iterator<Item = (ShardNumber, &engine::Engine)> {
        self.shards().filter_map(|(number, shard)| Some((number, &**shard.current()?)))
    }

    /// Returns the boundaries of a shard map; `None`: the store has no such map.
    pub(crate) fn boundaries(&self, map: &str) -> Option<Arc<Boundaries>> {
        self.maps.now().get(map).map(|map| Arc::clone(&map.boundaries))
    }

    /// Returns a shard map; `None`: the store has no such map.
    pub(crate) fn map(&self, name: &str) -> Option<Map> {
        self.maps.now().get(name).cloned()
    }

    /// Returns the requests of the shard keys of a map.
    pub(crate) fn load_of(&self, map: &str) -> Arc<Load> {
        let mut loads = self.loads.lock();
        Arc::clone(loads.entry(map.to_owned()).or_default())
    }

    /// Returns the names of the tables that have ever been opened with this shard map.
    pub(crate) fn tables_with_map(&self, name: &str) -> Vec<String> {
        if let Some(table) = placed_table(name) {
            return vec![table.to_owned()];
        }
        let known = self.tables.lock();
        let has_map =
            |record: &TableRecord| matches!(record, TableRecord::ByKey { map, .. } if map == name);
        known.iter().filter(|(_, record)| has_map(record)).map(|(table, _)| table.clone()).collect()
    }

    /// Returns the shard of a table that is not placed: the shard where its rows are, or the first shard.
    fn main_table_in(&self, table: &str) -> Option<ShardNumber> {
        let place = self.location_of(table).and_then(|record| record.place());
        place.or_else(|| self.maps.now().shards().first().copied())
    }

    /// Whether the store has placed a table in a shard.
    pub(crate) fn is_placed(&self, table: &str) -> bool {
        self.places.read().contains_key(table)
    }

    /// Returns the number of the shard with this name.
    pub(crate) fn number(&self, name: &str) -> Option<ShardNumber> {
        // Not a shard that is being attached.
        let present = self.current_shards();
        present.into_iter().find(|number| self.shard(*number).is_ok_and(|it| &*it.name == name))
    }

    pub(crate) fn shard(&self, shard: ShardNumber) -> Result<&Shard> {
        let found = self.shards.get(shard as usize);
        found.ok_or_else(|| Error::internal(format!("there is no shard of number {shard}")))
    }

    /// Returns the name of a shard for an error message.
    fn name(&self, shard: ShardNumber) -> String {
        self.shard(shard).map_or_else(|_| shard.to_string(), |shard| shard.name.to_string())
    }

    /// Returns the routing of a table.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`]: the table has no shard map, or its map has keys of another type, or the table
    /// is placed although its rows are distributed.
    pub(crate) fn routing(
        &self,
        schema: &'static TableSchema,
        distribution: Distribution,
    ) -> Result<Routing> {
        let mismatch = |difference: String, way_out| {
            Err(Error::SchemaMismatch { table: schema.name, difference, way_out })
        };
        let place = self.places.read().get(schema.name).copied();
        let key = match (distribution, place) {
            (Distribution::Whole, _) => {
                let routing = Routing::whole(schema, self.first_place_of(schema.name));
                return Ok(self.maps.now().in_routing(&routing).unwrap_or(routing));
            }
            (Distribution::Reference, None) => {
                return Ok(Routing::reference(schema, self.maps.now().shards()));
            }
            (Distribution::ByKey(key), None) => key,
            (Distribution::ByKey(_), Some(shard)) => {
                return mismatch(
                    format!("it has a shard key, and is placed in shard `{}`", self.name(shard)),
                    "place only tables without a shard key",
                );
            }
            (Distribution::Reference, Some(shard)) => {
                return mismatch(
                    format!(
                        "it has a copy in every shard, and is placed in `{}`",
                        self.name(shard)
                    ),
                    "don't place reference tables",
                );
            }
        };
        let global = self.global_indexes(schema, key.global)?;
        let maps = self.maps.now();
        let Some(map) = maps.get(key.map) else {
            let shards = self.shards.iter().take(self.any_map);
            let even = ShardMap::hashed(shards.map(|shard| &*shard.name));
            if self.any_map > 0
                && let Ok(even) = even.declare(|name| self.number(name))
            {
                let (key, boundaries) = (ShardKey { hashed: true, ..key }, even.boundaries);
                return Ok(Routing::by_key(schema, key, Arc::new(boundaries), global));
            }
            return mismatch(
                format!("the store has no shard map `{}`", key.map),
                "open the store with `Store::options().map(…)`, or name another map with \
                 `#[table(shard_map = \"…\")]`",
            );
        };
        let declared = key.type_name(schema.primary_key);
        if map.key_type != declared {
            return mismatch(
                format!(
                    "its shard key is `{declared}`, and shard map `{}` has keys of type `{}`",
                    key.map, map.key_type
                ),
                "declare a shard map for each type of shard key",
            );
        }
        let routing = Routing::by_key(schema, key, Arc::clone(&map.boundaries), global);
        Ok(maps.hidden().in_routing(routing.with_moves(|map| maps.has_moves(map))))
    }

    /// Begins a write transaction of all shards.
    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        self.write_with(&Locks::All)
    }

    /// Begins a write transaction that has locked these shards.
    pub(crate) fn write_with(&self, locks: &Locks) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        self.refuse_read_only()?;
        Txn::writing(self, locks)
    }

    /// Begins a write transaction of one shard.
    pub(crate) fn write_on(&self, shard: ShardNumber) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        self.refuse_read_only()?;
        self.refuse_absent(shard, Txn::writing_on(self, shard, false)?)
    }

    /// Returns the transaction of one shard, unless the shard does not belong to the store in its maps: it is being attached.
    fn refuse_absent<'s>(&self, shard: ShardNumber, txn: Txn<'s>) -> Result<Txn<'s>> {
        if txn.lacks(shard) {
            let (shard, reason) = (self.name(shard), GONE.to_owned());
            return Err(Error::ShardUnavailable { shard, reason });
        }
        Ok(txn)
    }

    /// Returns a read transaction without snapshots.
    pub(crate) fn without_snapshot(&self) -> Txn<'_> {
        Txn::over(self)
    }

    /// Begins a write transaction that has locked one shard, and locks further shards when it uses them.
    pub(crate) fn write_from(&self, shard: ShardNumber) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        self.refuse_read_only()?;
        self.refuse_absent(shard, Txn::writing_on(self, shard, true)?)
    }

    pub(crate) fn prepare(&self, retry: Retry) -> Result<bool> {
        match retry {
            Retry::ShardMap { shard, map_size } => {
                return self.shard(shard)?.engine()?.prepare(Retry::Map { map_size });
            }
            Retry::Shards => return Ok(true),
            Retry::Map { .. } | Retry::Disk | Retry::Pages | Retry::Conflict => {}
        }
        // The failed commit does not name the shard with the full map, whose map is not larger than this size.
        let was_full = |engine: &&engine::Engine| match retry {
            Retry::Map { map_size } => {
                engine.lmdb().is_none_or(|engine| engine.map_size() <= map_size)
            }
            _ => true,
        };
        let engines = self.shards.iter().filter_map(|shard| Some(&**shard.current()?));
        let full: Vec<_> = engines.filter(was_full).collect();
        // If there is none, another thread has enlarged the map in the meantime.
        let mut prepared = full.is_empty();
        for engine in full {
            prepared |= engine.prepare(retry)?;
        }
        Ok(prepared)
    }

    /// Returns the directory of the store.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(std::env::temp_dir)
    }

    pub(crate) fn refuse_forked(&self) -> Result<()> {
        self.manager.as_ref().map_or(Ok(()), |manager| manager.engine().refuse_forked())
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Acquire)
    }

    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly { path: self.directory(), source: None });
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn has_catalog(&self) -> bool {
        true
    }

    /// Returns the records of all available shards. For a table in several shards, returns the record of the
    /// first of them.
    pub(crate) fn catalog(&self) -> Result<Records> {
        let mut records = BTreeMap::new();
        for engine in self.engines() {
            for (name, record) in engine.catalog()? {
                records.entry(name).or_insert(record);
            }
        }
        Ok(records.into_iter().collect())
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) fn drop_indexes(
        &self,
        _: &BTreeSet<String>,
        _: &mut dyn FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>, (Error, Option<Retry>)> {
        Err((Error::NotOffered { what: "dropping indexes of a sharded store" }, None))
    }

    /// Returns the layout of an index in the shards.
    pub(crate) fn layout(&self, schema: &TableSchema, index: &IndexSchema) -> &'static str {
        let open = self.shards.iter().find_map(Shard::current);
        open.map_or("", |open| open.layout(schema, index))
    }
}

/// Returns the numbers of the shards that belong to the store.
fn present<'s>(shards: impl IntoIterator<Item = &'s Shard>) -> Arc<[ShardNumber]> {
    let shards = (0..).zip(shards).filter(|(_, shard)| !shard.is_gone());
    shards.map(|(number, _)| number).collect()
}

/// Returns the sum of the stamps of several shards.
fn sum(stamps: impl Iterator<Item = Stamp>) -> Stamp {
    Stamp::new(stamps.fold(0, |sum, stamp| sum.wrapping_add(stamp.number())))
}
