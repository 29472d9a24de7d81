//! The current shard maps, and the maps of a transaction.
//!
//! Moving rows changes a shard map while transactions run. Each change makes a new [generation](Maps::generation) of all
//! maps, and a transaction uses one generation:
//!
//! - A read transaction takes the maps together with its snapshots. A generation becomes current in the commit that moves
//!   the rows, between the two counters of [`Visibility`](super::instant::Visibility). So the snapshots have the rows of
//!   the same generation.
//! - A write transaction takes the maps after it has locked its shards. A move locks both of its shards, so the maps of
//!   locked shards stay the same. If a transaction locks a further shard and the generation has changed meanwhile, its
//!   closure runs again.
//!
//! A table has the [`Routing`] of the generation in which it was opened. Transactions of another generation use a
//! [`Tables`] with the other routing, and with the same databases.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use super::{Changed, Hidden, MoveId, MoveRecord, Moving, OwnRanges, Tables};
use crate::{
    locks::RwLock,
    model::shard::{Boundaries, Declared, MapKind, Routing, ShardNumber, placed_table},
};

/// All shard maps at one moment.
#[derive(Clone, Default)]
pub(crate) struct Maps {
    generation: u64,
    pub(super) by_name: BTreeMap<String, Map>,
    /// The unfinished moves.
    moves: Vec<Arc<Moving>>,
    /// The numbers of the shards that belong to the store, in order.
    shards: Arc<[ShardNumber]>,
    /// The [hidden entries](super::hidden).
    hidden: Arc<Hidden>,
}

/// A shard map.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) kind: MapKind,
    pub(crate) key_type: String,
    pub(crate) boundaries: Arc<Boundaries>,
}

impl From<Declared> for Map {
    fn from(Declared { kind, key_type, boundaries }: Declared) -> Self {
        Self { kind, key_type, boundaries: Arc::new(boundaries) }
    }
}

impl Map {
    /// Returns the boundaries with the keys of a shard in other shards of the map; `None` if there is no other shard.
    pub(super) fn without(&self, shard: ShardNumber) -> Option<Boundaries> {
        match self.kind {
            MapKind::Hashed => self.boundaries.without_slots_of(shard),
            MapKind::Ranges | MapKind::List => self.boundaries.without(shard),
        }
    }

    /// Returns a shard's part of the map.
    pub(super) fn own_ranges(&self, name: &str, shard: ShardNumber) -> OwnRanges {
        let (kind, key_type) = (self.kind, self.key_type.clone());
        let ranges = self.boundaries.of_shard(shard);
        OwnRanges { map: name.to_owned(), kind, key_type, ranges }
    }

    /// Returns the stored form of the map.
    pub(crate) fn declared(&self) -> Declared {
        let (kind, key_type) = (self.kind, self.key_type.clone());
        Declared { kind, key_type, boundaries: Boundaries::clone(&self.boundaries) }
    }
}

impl Maps {
    /// Returns the next generation, with this move in the place of its earlier state.
    pub(crate) fn with(&self, moving: Arc<Moving>) -> Self {
        let mut next = self.without(moving.record.id);
        next.add_placed(&moving.record.map);
        if let Some(map) = next.by_name.get_mut(&moving.record.map)
            && let Some(boundaries) = moving.record.boundaries(&map.boundaries)
        {
            map.boundaries = Arc::new(boundaries);
        }
        next.moves.push(moving);
        next
    }

    /// Returns the next generation, without this move.
    pub(crate) fn without(&self, id: MoveId) -> Self {
        let mut next = self.clone();
        next.generation += 1;
        next.moves.retain(|own| own.record.id != id);
        next
    }

    /// Returns the next generation, with these shards.
    pub(crate) fn with_shards(&self, shards: Arc<[ShardNumber]>) -> Self {
        Self { generation: self.generation + 1, shards, ..self.clone() }
    }

    /// Returns the next generation, with other boundaries of some maps.
    pub(crate) fn with_boundaries(&self, changed: &[Changed]) -> Self {
        let mut next = self.clone();
        next.generation += 1;
        for Changed { map, boundaries, .. } in changed {
            if let Some(map) = next.by_name.get_mut(map) {
                map.boundaries = Arc::new(boundaries.clone());
            }
        }
        next
    }

    /// Returns the next generation, with these hidden entries.
    pub(super) fn with_hidden(&self, hidden: Hidden) -> Self {
        Self { generation: self.generation + 1, hidden: Arc::new(hidden), ..self.clone() }
    }

    /// Returns a routing with these maps; `None` if the table has no shard map.
    pub(crate) fn in_routing(&self, routing: &Routing) -> Option<Routing> {
        if !routing.is_split() {
            let (name, map) = self.placed(routing.schema().name)?;
            let routing = routing.with_placed_map(name, Arc::clone(&map.boundaries))?;
            return Some(routing.with_moves(|map| self.has_moves(map)));
        }
        let boundaries = |name: &str| Some(Arc::clone(&self.get(name)?.boundaries));
        let routing = routing.with_maps(boundaries, |map| self.has_moves(map))?;
        Some(self.hidden.in_routing(routing))
    }

    /// Returns the hidden entries.
    pub(crate) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Returns the next generation, with a range of a map assigned to a shard.
    pub(super) fn with_assigned(
        &self,
        map: &str,
        (start, end): (&[u8], Option<&[u8]>),
        shard: ShardNumber,
    ) -> Self {
        let mut next = self.clone();
        next.generation += 1;
        if let Some(map) = next.by_name.get_mut(map) {
            Arc::make_mut(&mut map.boundaries).assign(start, end, Some(shard));
        }
        next
    }

    /// Returns the next generation, with these boundaries, moves, shards and hidden entries.
    pub(super) fn replaced(
        &self,
        changed: Vec<(String, Boundaries)>,
        moves: Vec<MoveRecord>,
        shards: Arc<[ShardNumber]>,
        hidden: BTreeSet<String>,
    ) -> Self {
        let hidden = Arc::new(Hidden::of(hidden));
        let mut next = Self { shards, moves: Vec::new(), hidden, ..self.clone() };
        next.generation += 1;
        for (name, boundaries) in changed {
            next.add_placed(&name);
            if let Some(map) = next.by_name.get_mut(&name) {
                map.boundaries = Arc::new(boundaries);
            }
        }
        for record in moves {
            let own = self.moves.iter().find(|own| own.record == record);
            if next.moves.iter().all(|other| other.record.id != record.id) {
                let moving = own.cloned().unwrap_or_else(|| Arc::new(Moving::new(record)));
                next.moves.push(moving);
            }
        }
        next
    }

    /// Adds the map of a table without a shard key, if this is its name.
    fn add_placed(&mut self, map: &str) {
        if placed_table(map).is_some() && !self.by_name.contains_key(map) {
            self.by_name.insert(map.to_owned(), Declared::placed().into());
        }
    }

    /// Returns the map of a table without a shard key, with its name; `None`: the table was never moved.
    pub(super) fn placed(&self, table: &str) -> Option<(&str, &Map)> {
        self.placed_maps().find(|(own, ..)| *own == table).map(|(_, name, map)| (name, map))
    }

    /// Returns the maps of tables without a shard key, with these tables and with their names.
    pub(super) fn placed_maps(&self) -> impl Iterator<Item = (&str, &str, &Map)> {
        self.by_name.iter().filter_map(|(name, map)| Some((placed_table(name)?, &**name, map)))
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the numbers of the shards that belong to the store, in order.
    pub(crate) fn shards(&self) -> &[ShardNumber] {
        &self.shards
    }

    /// Returns the unfinished moves.
    pub(crate) fn moves(&self) -> &[Arc<Moving>] {
        &self.moves
    }

    /// Whether these maps, of another generation, give each shard the same ranges. Most steps of a move don't change them.
    pub(super) fn have_same_ranges(&self, other: &Self) -> bool {
        let is_same = |((name, map), (other_name, other)): ((&String, &Map), (&String, &Map))| {
            name == other_name && Arc::ptr_eq(&map.boundaries, &other.boundaries)
        };
        self.shards == other.shards
            && self.by_name.len() == other.by_name.len()
            && self.by_name.iter().zip(&other.by_name).all(is_same)
    }

    /// Whether keys of this map are being moved.
    pub(super) fn has_moves(&self, map: &str) -> bool {
        self.moves.iter().any(|moving| moving.record.map == map)
    }

    /// Returns the map with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Map> {
        self.by_name.get(name)
    }
}

/// The current maps of an open store.
#[derive(Default)]
pub(super) struct CurrentMaps {
    /// The generation of `now`, which most transactions only compare.
    generation: AtomicU64,
    now: RwLock<Arc<Maps>>,
    /// The last maps of generation 0, for transactions that began with them.
    first: OnceLock<Arc<Maps>>,
    /// The number of commits that are about to make other maps current.
    changing: AtomicU64,
}

/// A guard: a commit changes the maps.
pub(super) struct Changing<'m>(&'m CurrentMaps);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.fetch_sub(1, SeqCst);
    }
}

/// The maps of a transaction. Before the first move in this process, a transaction has only the number of the generation.
#[derive(Clone)]
pub(super) struct MapsAt {
    pub(super) generation: u64,
    maps: Option<Arc<Maps>>,
}

impl MapsAt {
    /// Whether a shard does not belong to the store in these maps.
    pub(super) fn lacks(&self, shard: ShardNumber) -> bool {
        self.maps.as_ref().is_some_and(|maps| !maps.shards().contains(&shard))
    }
}

impl CurrentMaps {
    pub(super) fn new(by_name: BTreeMap<String, Map>, shards: Arc<[ShardNumber]>) -> Self {
        let now = RwLock::new(Arc::new(Maps { by_name, shards, ..Maps::default() }));
        Self { now, ..Self::default() }
    }

    /// Returns the current maps.
    pub(super) fn now(&self) -> Arc<Maps> {
        Arc::clone(&self.now.read())
    }

    /// Returns the number of the current generation.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// Returns the maps for a transaction that begins.
    pub(super) fn capture(&self) -> MapsAt {
        if self.generation() == 0 {
            return MapsAt { generation: 0, maps: None };
        }
        let maps = self.now();
        MapsAt { generation: maps.generation, maps: Some(maps) }
    }

    /// Whether these maps match a snapshot of one shard that was taken after them. They do if no commit is changing the
    /// maps.
    pub(super) fn are_still(&self, at: &MapsAt) -> bool {
        // In this order: a commit that is no longer counted has installed its maps.
        self.changing.load(SeqCst) == 0 && self.generation() == at.generation
    }

    /// Counts a commit that changes the maps. Called before it becomes visible in any shard.
    pub(super) fn begin_change(&self) -> Changing<'_> {
        self.changing.fetch_add(1, SeqCst);
        Changing(self)
    }

    /// Makes a generation current.
    pub(super) fn install(&self, maps: Arc<Maps>) {
        let mut now = self.now.write();
        if now.generation == 0 {
            let _ = self.first.set(Arc::clone(&now));
        }
        self.generation.store(maps.generation, SeqCst);
        *now = maps;
    }

    /// Adds a new map. No table uses it yet, so the generation stays the same.
    pub(super) fn add(&self, name: String, map: Map) {
        let mut now = self.now.write();
        Arc::make_mut(&mut *now).by_name.insert(name, map);
    }

    /// Gives maps other names. No table in use has them, so the generation stays the same.
    pub(super) fn rename(&self, new_name: &dyn Fn(&str) -> Option<String>) {
        let mut now = self.now.write();
        let maps = &mut Arc::make_mut(&mut *now).by_name;
        for (name, new) in
            maps.keys().filter_map(|it| Some((it.clone(), new_name(it)?))).collect::<Vec<_>>()
        {
            if let Some(map) = maps.remove(&name) {
                maps.insert(new, map);
            }
        }
    }

    /// Returns the maps of a transaction; `None` for the maps of an empty store.
    fn of(&self, at: &MapsAt) -> Option<Arc<Maps>> {
        at.maps.clone().or_else(|| self.first.get().cloned())
    }
}

/// The tables of a transaction whose routing differs from the routing when they were opened.
pub(super) struct Routed {
    at: MapsAt,
    first: OnceCell<Box<Node>>,
}

/// A table in the list of [`Routed`].
struct Node {
    tables: Arc<Tables>,
    next: OnceCell<Box<Node>>,
}

impl Routed {
    pub(super) const fn new(at: MapsAt) -> Self {
        Self { at, first: OnceCell::new() }
    }

    /// Returns the maps of the transaction.
    pub(super) const fn at(&self) -> &MapsAt {
        &self.at
    }

    /// Returns a table with the routing of the transaction.
    #[inline]
    pub(super) fn of<'t>(&'t self, tables: &'t Tables) -> &'t Tables {
        if tables.generation == self.at.generation { tables } else { self.other(tables) }
    }

    #[cold]
    fn other<'t>(&'t self, tables: &'t Tables) -> &'t Tables {
        let mut place = &self.first;
        while let Some(node) = place.get() {
            if Arc::ptr_eq(&node.tables.shared, &tables.shared) {
                return &node.tables;
            }
            place = &node.next;
        }
        let Some(maps) = tables.shared.maps.of(&self.at) else { return tables };
        let Some(routed) = tables.in_generation(&maps) else { return tables };
        let node = || Box::new(Node { tables: routed, next: OnceCell::new() });
        &place.get_or_init(node).tables
    }
}

/// The routing of a table in the current generation.
pub(crate) enum CurrentRouting<'t> {
    Own(&'t Routing),
    Later(Arc<Tables>),
}

impl Deref for CurrentRouting<'_> {
    type Target = Routing;

    fn deref(&self) -> &Routing {
        match self {
            Self::Own(routing) => routing,
            Self::Later(tables) => &tables.routing,
        }
    }
}

impl Tables {
    /// Returns the table with the routing of these maps; `None` if it has no shard map, and the shards of the store are the same. A
    /// table without a shard map can have databases in other shards: the target of a cancelled move, with a consumer or a queue.
    pub(super) fn in_generation(&self, maps: &Maps) -> Option<Arc<Self>> {
        let latest = self.shared.latest.read().clone();
        if let Some(latest) = latest.filter(|latest| latest.generation == maps.generation) {
            return Some(latest);
        }
        let routing = match self.routing_in(maps) {
            Some(routing) => routing,
            None if self.present == maps.shards => return None,
            None => self.routing.clone(),
        };
        let shared = Arc::clone(&self.shared);
        let (generation, present) = (maps.generation, Arc::clone(&maps.shards));
        let tables = Arc::new(Self { routing, generation, present, shared });
        let mut latest = self.shared.latest.write();
        if latest.as_ref().is_none_or(|latest| latest.generation < maps.generation) {
            *latest = Some(Arc::clone(&tables));
        }
        drop(latest);
        Some(tables)
    }

    /// Returns the routing of these maps; `None` if the table has no shard map.
    pub(crate) fn routing_in(&self, maps: &Maps) -> Option<Routing> {
        if self.routing.is_reference() {
            return Some(Routing::reference(self.routing.schema(), maps.shards()));
        }
        maps.in_routing(&self.routing)
    }

    /// Returns the current routing, for work that is not in a transaction. In a transaction, use the routing of its reader
    /// or writer.
    pub(crate) fn routing(&self) -> CurrentRouting<'_> {
        let maps = &self.shared.maps;
        if self.generation == maps.generation() {
            return CurrentRouting::Own(&self.routing);
        }
        match self.in_generation(&maps.now()) {
            Some(tables) => CurrentRouting::Later(tables),
            None => CurrentRouting::Own(&self.routing),
        }
    }
}
