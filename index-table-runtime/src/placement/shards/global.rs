//! Global indexes: their shard maps, and the shards that a write of a row needs for their entries.
//!
//! An entry of a global index is in the shard of its index key, usually another shard than that of its row. So a write
//! that changes such an entry also locks the shard of the entry, and is committed in several shards.
//! [`Writer::reserve`] locks these shards before anything is written, so an operation that can't lock them leaves the
//! transaction as it was.

use std::{collections::BTreeSet, sync::Arc};

use super::{Engine, Identity, Map, OwnRanges, Tables, Writer};
use crate::model::{
    error::{Error, Result},
    maintain::{self, Change, Image, Sink},
    schema::{Source, TableSchema},
    shard::{Declared, GlobalIndex, ShardMap, ShardNumber, can_distribute, map_of},
};

impl Engine {
    /// Adds a hash map of all shards for each global index without a shard map. The map is recorded, so that it stays
    /// the same when the store gets further shards. An index for which `former` returns a former name gets a copy of its former
    /// map, which stays, like that of an index that is no longer declared: a process can end before all shards have the new name.
    pub(crate) fn add_global_maps(
        &self,
        schema: &'static TableSchema,
        global: &[usize],
        former: &dyn Fn(&str) -> Result<Option<String>>,
    ) -> Result<()> {
        for index in global.iter().filter_map(|index| schema.indexes.get(*index)) {
            self.add_missing_map(&map_of(schema.name, index.name), || {
                if let Some(was) = former(index.name)?
                    && let Some(map) = self.map_at_rest(&map_of(schema.name, &was))
                {
                    return Ok(map);
                }
                let present = self.shards.iter().filter(|shard| !shard.is_gone());
                let even = ShardMap::hashed(present.map(|shard| &**shard.name()));
                even.declare(|name| self.number(name)).map_err(Error::internal)
            })?;
        }
        Ok(())
    }

    /// Returns a shard map, unless its keys are being moved, or a detached shard has left entries.
    fn map_at_rest(&self, name: &str) -> Option<Declared> {
        let maps = self.maps.now();
        let is_at_rest = !maps.has_moves(name) && maps.hidden().maps().iter().all(|it| it != name);
        maps.get(name).filter(|_| is_at_rest).map(Map::declared)
    }

    /// Whether two shard maps give each key to the same shard.
    pub(crate) fn has_equal_maps(&self, one: &str, other: &str) -> bool {
        let maps = [one, other].map(|name| self.map_at_rest(name));
        matches!(maps, [Some(one), Some(other)] if one == other)
    }

    /// Adds a shard map that the store does not have, and records it. A reader adds the map that a writer has recorded since the
    /// reader opened the store.
    pub(super) fn add_missing_map(
        &self,
        name: &str,
        map: impl FnOnce() -> Result<Declared>,
    ) -> Result<()> {
        if self.maps.now().get(name).is_some() {
            return Ok(());
        }
        let recorded = self.manager.as_ref().filter(|_| self.is_read_only());
        let recorded = recorded.map(|manager| manager.read()).transpose()?.flatten();
        let map = match recorded.and_then(|mut records| records.maps.remove(name)) {
            Some(map) => map,
            None => map()?,
        };
        if let Some(manager) = self.manager.as_ref().filter(|_| !self.is_read_only()) {
            manager.write_map(name, map.clone())?;
            self.record_ranges(name, &map)?;
        }
        self.maps.add(name.to_owned(), map.into());
        Ok(())
    }

    /// Adds the ranges of a new shard map to the identity of each available shard. The identities of the other shards
    /// are completed when they are opened.
    fn record_ranges(&self, name: &str, map: &Declared) -> Result<()> {
        for (number, shard) in self.shards() {
            let Some(open) = shard.current() else { continue };
            Identity::change(open, &|own| {
                own.maps.retain(|own| own.map != name);
                own.maps.push(OwnRanges::of(name, map, number));
                own.maps.sort_by(|one, other| one.map.cmp(&other.map));
            })?;
        }
        Ok(())
    }

    /// Returns the locations of the entries of global indexes.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`]: a global index has no shard map, or its map has keys of another type.
    pub(super) fn global_indexes(
        &self,
        schema: &'static TableSchema,
        global: &[usize],
    ) -> Result<Vec<GlobalIndex>> {
        let maps = self.maps.now();
        let of_index = |index: &usize| {
            let declared = schema.indexes.get(*index)?;
            let name = map_of(schema.name, declared.name);
            let Some(map) = maps.get(&name) else {
                let difference = format!("the store has no shard map `{name}` of a global index");
                let way_out = "open the store once without `read_only(true)`, which adds the map";
                return Some(Err(Error::SchemaMismatch {
                    table: schema.name,
                    difference,
                    way_out,
                }));
            };
            if !can_distribute(&map.key_type, declared.key) {
                return Some(Err(Error::SchemaMismatch {
                    table: schema.name,
                    difference: format!(
                        "shard map `{name}` has keys of type `{}`, and the keys of its global index \
                         `{}` do not begin with them",
                        map.key_type, declared.name
                    ),
                    way_out: "declare a map of the first fields of the index, or a hash map",
                }));
            }
            let boundaries = Arc::clone(&map.boundaries);
            Some(Ok(GlobalIndex::new(*index, declared.key, name, &map.key_type, boundaries)))
        };
        global.iter().filter_map(of_index).collect()
    }
}

impl Tables {
    /// Returns the current shard of an entry of a global index.
    ///
    /// # Errors
    ///
    /// [`Error::NoShard`]
    pub(crate) fn shard_of_entry(&self, index: usize, key: &[u8]) -> Result<ShardNumber> {
        let routing = self.routing();
        let missing = || Error::internal("an index that is not global");
        self.shard_of_global(routing.global(index).ok_or_else(missing)?, index, key)
    }

    /// Returns the shard of an entry of a global index.
    pub(super) fn shard_of_global(
        &self,
        global: &GlobalIndex,
        index: usize,
        key: &[u8],
    ) -> Result<ShardNumber> {
        global.shard_of(key).ok_or_else(|| {
            let schema = self.routing.schema();
            let key = schema.show_key(Source::Index(index), key);
            Error::NoShard { table: schema.name, key, map: global.map().to_owned() }
        })
    }
}

/// Collects the shards of the global entries that a write changes.
struct Needed<'a> {
    engine: &'a Engine,
    tables: &'a Tables,
    shards: BTreeSet<ShardNumber>,
}

impl Sink for Needed<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        if let Change::PutEntry { index, key, primary_key, .. }
        | Change::DeleteEntry { index, key, primary_key } = change
            && let Some(global) = self.tables.routing.global(index)
        {
            if global.moves() {
                // An entry that is being moved offline is refused before the row changes.
                self.engine.note_entry(&self.tables.routing, global, key, primary_key)?;
            }
            self.shards.insert(self.tables.shard_of_global(global, index, key)?);
        }
        Ok(())
    }
}

impl Writer<'_> {
    /// Whether the table has global indexes.
    #[inline]
    pub(crate) const fn has_global(&self) -> bool {
        !self.tables.routing.global_indexes().is_empty()
    }

    /// Locks, in the order of their numbers, the shards of the rows `old` and `new`, and of the global entries that
    /// differ between these rows. `is_immediate` is false for indexes whose entries this transaction does not change.
    ///
    /// # Errors
    ///
    /// [`Error::OtherShard`]: global entries change in a transaction of one shard. [`Error::NoShard`],
    /// [`Error::ShardUnavailable`], [`Error::ShardReadOnly`]
    pub(crate) fn reserve(
        &mut self,
        old: Option<&Image>,
        new: Option<&Image>,
        is_immediate: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let (schema, tables) = (self.tables.routing.schema(), self.tables);
        let mut needed = Needed { engine: self.engine, tables, shards: BTreeSet::new() };
        for global in tables.routing.global_indexes() {
            if is_immediate(global.index()) {
                maintain::changes_of_index(schema, global.index(), old, new, &mut needed)?;
            }
        }
        let mut shards = needed.shards;
        if shards.is_empty() {
            return Ok(());
        }
        let primary_key = new.or(old).map(Image::primary_key);
        if let Some(own) = self.txn.alone() {
            // Fails even if the entry is in this shard, so that the result does not depend on the key.
            let others = tables.routing.global_indexes().iter().flat_map(GlobalIndex::shards);
            let Some(other) = shards.iter().chain(others).find(|shard| **shard != own) else {
                return Ok(());
            };
            return Err(Error::OtherShard {
                table: schema.name,
                key: primary_key.map(|key| schema.show_primary_key(key)),
                shard: self.engine.name(*other),
                own: self.engine.name(own),
            });
        }
        for row in [old, new].into_iter().flatten() {
            let primary_key = row.primary_key();
            let shard = tables.routing.shard_of(primary_key);
            shards.insert(shard.ok_or_else(|| tables.no_shard(primary_key))?);
        }
        shards.into_iter().try_for_each(|shard| self.txn.lock(tables, shard, primary_key))?;
        if self.hides()
            && let Some(new) = new
        {
            // The caller compares only visible entries.
            for global in tables.routing.global_indexes().iter().filter(|it| it.hides()) {
                for key in new.keys(global.index()) {
                    self.refuse_coming(global, key, new.primary_key())?;
                }
            }
        }
        Ok(())
    }
}
