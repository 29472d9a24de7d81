//! Adding shards to an open store, and removing them.

use std::{path::Path, sync::Arc};

use super::{
    all_shards, build,
    copies::Copies,
    opening::{self, InShard},
};
use crate::{
    engine::{
        self, Query, Read as _, Space, Tables,
        shards::{self, Locks, MoveRecord, Shard},
    },
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::Boundaries,
    },
    store::{
        OpenTable, ShardId, ShardedStore, engine_of, open_added, rerun, shard_id, store_of,
    },
};

impl ShardedStore {
    /// Adds a shard in a directory of its own, while the store is open. The path is relative to the directory of the store,
    /// or absolute. The new shard has the options of the first shard.
    ///
    /// No shard map has keys in the new shard yet: move keys to it with [`move_range`](ShardedStore::move_range),
    /// [`move_slots`](ShardedStore::move_slots) or [`move_keys`](ShardedStore::move_keys). It gets a copy of each reference
    /// table. To add a shard when the store is opened, use [`ShardedOptions::add_shard`](crate::ShardedOptions::add_shard).
    ///
    /// Other processes that have the store open for reading don't see the new shard until they open it again. After 64
    /// shards were added, the store has to be opened again before the next one.
    ///
    /// Cost: the cost of creating a store, and one checkpoint of the journal. Write transactions of all shards wait while
    /// the reference tables are copied.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: a shard has this name, or the directory has a store. [`Error::WriteInProgress`] if this
    /// thread has a write transaction; the errors of [`Store::open`](crate::Store::open). The store is left without the
    /// shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, ShardedStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = ShardedStore::options()
    ///     .shard("north", "north")
    ///     .map("orders", ShardMap::ranges().to("north", ..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    ///
    /// store.add_shard("south", "south")?;
    /// store.move_range("orders", 100u32.., "south").run()?;
    /// assert_eq!(orders.shard_of(&store, 107)?.name(), "south");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_shard(
        &self,
        name: impl AsRef<str>,
        directory: impl AsRef<Path>,
    ) -> Result<ShardId> {
        let (inner, name) = (&self.inner, name.as_ref());
        let shards = engine_of(self)?;
        shards.refuse_forked()?;
        shards.refuse_read_only()?;
        inner.refuse_nested_write()?;
        let _opening = inner.lock_opening();
        let _held = shards.hold_moves();
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard `{name}`"),
            reason: reason.to_owned(),
        };
        if shards.number(name).is_some() {
            return Err(refused("the store has it already"));
        }
        let number = shards.next_number();
        let shard = Shard::open(Arc::from(name), open_added(shards, name, directory.as_ref())?);
        let own = store_of(&shard)?;
        let in_use = inner.tables_in_use();
        let mut references = Vec::new();
        for table in &in_use {
            let Tables::Sharded(tables) = &table.tables else { continue };
            if tables.routing().is_reference() {
                let opened = opening::open_with(&own, table.rows, InShard::default())?;
                references.push((table, tables, opened));
            } else {
                tables.add_name(number, shard.name());
            }
        }
        let all = shards.write_with(&Locks::All)?;
        for (_, tables, opened) in &references {
            Copies::of(shards, tables)?.replace(&own, opened)?;
        }
        for (_, tables, opened) in &references {
            tables.add(number, shard.name(), Arc::clone(opened) as _);
        }
        shards.add_shard(&all, shard)?;
        drop(all);
        for (table, ..) in references {
            all_shards::align(&inner.engine, &table.tables, table.rows)?;
        }
        shards.record_count()?;
        shard_id(self, number)
    }

    /// Removes a shard that has no rows, while the store is open. To move its rows away first, use
    /// [`move_range`](ShardedStore::move_range), [`move_slots`](ShardedStore::move_slots) or
    /// [`move_keys`](ShardedStore::move_keys).
    ///
    /// Keys that shard maps still give to it go to other shards of the map: to the shard of a neighbouring range, or in a
    /// hash map evenly to all others. A global index with entries in the shard is built again, and can't be queried
    /// meanwhile. The copies of reference tables in the shard are no longer used.
    ///
    /// The directory stays as it is. It is a plain store, which has only copies and no rows, and can be deleted when this
    /// process has closed the sharded store.
    ///
    /// Cost: one commit in all shards. For each global index with entries in the shard, the cost of
    /// [`build`](crate::Build), with up to all rows of the table.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: there is no such shard, or no other one; it has rows, or queued messages of an eventual
    /// index; a table is placed in it; a table that may have rows or entries in it is not open; a move has begun with it;
    /// no other shard of a map can have its keys. [`Error::ShardUnavailable`]: a shard is not available. Also
    /// [`Error::WriteInProgress`] if this thread has a write transaction, and the errors of `build`, after which the shard
    /// is removed.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, ShardedStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = ShardedStore::options()
    ///     .shard("north", "north")
    ///     .shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 7, number: 1 }))?;
    ///
    /// assert!(store.remove_shard("north").is_err()); // it has a row
    /// store.move_range("orders", ..100u32, "south").run()?;
    /// store.remove_shard("north")?;
    /// assert_eq!(orders.shard_of(&store, 7)?.name(), "south");
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_shard(&self, name: impl AsRef<str>) -> Result<()> {
        let (inner, name) = (&self.inner, name.as_ref());
        let shards = engine_of(self)?;
        shards.refuse_forked()?;
        shards.refuse_read_only()?;
        inner.refuse_nested_write()?;
        let refused = |reason: String| Error::ShardRefused {
            what: format!("the removal of shard `{name}`"),
            reason,
        };
        let Some(_turn) = shards.move_turn() else {
            return Err(refused("a move runs".to_owned()));
        };
        let opening = inner.lock_opening();
        let held = shards.hold_moves();
        let number = shards
            .number(name)
            .ok_or_else(|| refused("the store has no such shard".to_owned()))?;
        if self.shard_ids().len() < 2 {
            return Err(refused("it is the only shard".to_owned()));
        }
        if let Some((other, reason)) = self.unavailable_shards().first() {
            let (shard, reason) = (other.name().to_owned(), reason.clone());
            return Err(Error::ShardUnavailable { shard, reason });
        }
        let has_it = |moving: &MoveRecord| [moving.from, moving.to].contains(&number);
        if let Some(moving) = shards.moves().iter().find(|moving| has_it(&moving.record)) {
            let id = moving.record.id;
            return Err(refused(format!("move {id} has begun with it; resume or cancel it")));
        }
        if let Some(table) = shards.tables_placed_in(number).first() {
            return Err(refused(format!("it is the place of table `{table}`")));
        }
        let changed = shards.maps_without(number).map_err(|map| {
            refused(format!("shard map `{map}` has no other shard for its keys"))
        })?;
        let affected = self.affected(shards, &changed, &refused)?;
        let mut body = |txn: &mut shards::Txn<'_>| {
            for Affected { table, global } in &affected {
                let Tables::Sharded(tables) = &table.tables else { continue };
                if tables.in_shard(number).is_some() {
                    let part = txn.reader(tables).of_shard(number)?;
                    let first =
                        Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
                    let name = table.schema.name;
                    if part.count(&first)?.found > 0 {
                        return Err(refused(format!("it has rows of table `{name}`: move them")));
                    }
                    if part.at_or_above(Space::Queue, &[0])?.is_some() {
                        return Err(refused(format!(
                            "it has queued messages of an eventual index of table `{name}`: start the index worker"
                        )));
                    }
                }
                if !global.is_empty() {
                    let missing = || Error::internal("a write transaction without a writer");
                    let writer = txn.writer(tables).ok_or_else(missing)?;
                    let mut writer = engine::Writer::Sharded(writer);
                    let count = opening::count(&writer)?;
                    build::declare(table.rows, &mut writer, global, count)?;
                }
            }
            Ok(())
        };
        for Affected { table, global, .. } in &affected {
            global.iter().for_each(|index| table.became_unreadable(*index));
        }
        let attempt = || shards.remove_shard(number, &changed, &mut body);
        rerun::run(attempt, |retry| shards.prepare(retry))?;
        if let Ok(engine) = shards.shard(number).and_then(Shard::engine)
            && let Some(engine) = engine.lmdb()
        {
            engine.leave_journal();
        }
        drop((opening, held));
        for Affected { table, .. } in affected.iter().filter(|it| !it.global.is_empty()) {
            all_shards::finish(self, table.rows, table)?;
        }
        Ok(())
    }

    /// Returns the tables that may have rows or entries in a shard whose keys change.
    fn affected(
        &self,
        shards: &shards::Engine,
        changed: &[(String, Boundaries)],
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Affected>> {
        let in_use = self.inner.tables_in_use();
        let mut affected: Vec<Affected> = Vec::new();
        for (map, _) in changed {
            let (names, index) = match map.split_once('.') {
                Some((table, index)) => (vec![table.to_owned()], Some(index)),
                None => (shards.tables_with_map(map), None),
            };
            for name in names {
                let table = in_use.iter().find(|table| table.schema.name == name);
                let Some(table) = table else {
                    if shards.location_of(&name).is_none() {
                        continue;
                    }
                    return Err(refused(format!("open the repository of table `{name}` first")));
                };
                let global = index.and_then(|index| {
                    table.schema.indexes.iter().position(|declared| declared.name == index)
                });
                match affected.iter_mut().find(|it| Arc::ptr_eq(&it.table, table)) {
                    Some(known) => known.global.extend(global),
                    None => {
                        let (table, global) = (Arc::clone(table), global.into_iter().collect());
                        affected.push(Affected { table, global });
                    }
                }
            }
        }
        Ok(affected)
    }
}

/// A table that may have rows or entries in a shard that is removed.
struct Affected {
    table: Arc<OpenTable>,
    /// The global indexes that may have entries in it.
    global: Vec<usize>,
}
