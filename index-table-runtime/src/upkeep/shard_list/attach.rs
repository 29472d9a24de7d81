//! Attaching a detached shard to an open store.

use std::{path::Path, sync::Arc};

use super::super::{
    all_shards, changes,
    copies::Copies,
    shards::{open_in, raise_orders},
};
use crate::{
    engine::{
        self, Tables,
        shards::{self, HasEngine, Locks, Shard, TableRecord},
    },
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    store::{
        OpenTable, ShardId, ShardedStore, engine_to_change, open_attached, shard_id, store_of,
    },
};

impl ShardedStore {
    /// Adds a [detached](ShardedStore::detach_shard) shard to the store again, while the store is open. `directory` is
    /// the current directory of the shard, relative to the directory of the store, or absolute.
    ///
    /// Its ranges and listed keys belong to it again. The directory was a plain store in the meantime, so each row is
    /// checked to be within these ranges. Global indexes are rebuilt with its rows. Reference tables are copied into
    /// it.
    ///
    /// Cost: all rows of the shard are read when the repository of their table is open, or is opened. For each global
    /// index, the cost of [`build`](crate::Build).
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: no detached shard of the store has this name; the directory has another store; another
    /// shard has keys of its ranges now; the directory was renamed, and transactions that began before the shard was detached
    /// still use it. [`Error::Io`]: such transactions use it, and another process has opened it since. In both cases, attach
    /// it when these transactions have ended. [`Error::ShardRefused`] as well: the repository of a reference table in the shard is
    /// not open; a row of the shard refers to a row of a reference table that was deleted in the meantime.
    /// [`Error::SchemaMismatch`]: a row is not in its ranges. Also
    /// [`Error::WriteInProgress`], and the errors of [`Store::open`](crate::Store::open) and `build`.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, ShardedStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "entries", shard_by = year)]
    /// struct Entry {
    ///     #[primary_key]
    ///     year: u16,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("log");
    /// # let store = ShardedStore::options()
    /// #     .shard("old", "old")
    /// #     .shard("new", "new")
    /// #     .map("entries", ShardMap::ranges().to("old", ..2026u16).to("new", 2026u16..))
    /// #     .open(&path)?;
    /// # let entries = EntryRepository::open(&store)?;
    /// # store.transaction(|txn| entries.insert(txn, &Entry { year: 2025, number: 1 }))?;
    /// store.detach_shard("old")?;
    /// std::fs::rename(path.join("old"), path.join("archive")).unwrap();
    /// store.attach_shard("old", "archive")?;
    /// assert!(entries.get(&store.read()?, 2025, 1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach_shard(
        &self,
        name: impl AsRef<str>,
        directory: impl AsRef<Path>,
    ) -> Result<ShardId> {
        let (inner, name) = (&self.inner, name.as_ref());
        let shards = engine_to_change(self)?;
        let opening = inner.lock_opening();
        let held = shards.hold_moves();
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard `{name}`"),
            reason: reason.to_owned(),
        };
        if shards.number(name).is_some() {
            return Err(refused("the store has it already"));
        }
        let earlier = shards.shards().filter(|(_, shard)| &**shard.name() == name).last();
        let in_use = earlier.and_then(|(_, shard)| shard.last_engine()?.lmdb());
        let in_use = in_use.filter(|engine| engine.stay_open());
        let attached = self.attach(shards, name, directory.as_ref(), in_use);
        if let (Err(_), Some(engine)) = (&attached, in_use)
            && earlier.is_some_and(|(_, shard)| shard.is_gone())
        {
            let _ = engine.leave_journal();
            engine.close_when_unused();
        }
        let (number, global) = attached?;
        drop((opening, held));
        for table in global {
            all_shards::finish(self, table.rows, &table)?;
        }
        shard_id(self, number)
    }

    /// Attaches a shard, and returns its number, and the tables whose global indexes have to be built. `in_use` is its
    /// environment, if transactions that began before the shard was detached still use it. The caller prevents the steps of
    /// moves, and that other threads open tables.
    fn attach(
        &self,
        shards: &shards::Engine,
        name: &str,
        directory: &Path,
        in_use: Option<&engine::lmdb::Engine>,
    ) -> Result<(ShardNumber, Vec<Arc<OpenTable>>)> {
        let inner = &self.inner;
        if let Some(open) = in_use {
            let place = shards.directory().join(directory);
            let place = place.canonicalize().map_err(|source| Error::io(&place, source))?;
            if place != open.directory() {
                return Err(Error::ShardRefused {
                    what: format!("shard `{name}`"),
                    reason: format!(
                        "transactions that began before it was detached still use it in `{}`; attach this directory, or \
                         attach the other one when they have ended",
                        open.directory().display()
                    ),
                });
            }
        }
        let (own, records, identity, changed) = open_attached(shards, name, directory)?;
        let number = identity.number;
        let open = Arc::clone(&own) as Arc<dyn HasEngine>;
        let shard = Shard::open(Arc::from(name), Arc::clone(&open));
        identity.write(&own.engine)?;
        let maps = shards.with_attached(number, &changed);
        let tables_in_use = inner.tables_in_use();
        refuse_closed(shards, &own.engine, &tables_in_use, name)?;
        let (mut references, mut global) = (Vec::new(), Vec::new());
        let mut streams = Vec::new();
        for table in &tables_in_use {
            let Tables::Sharded(tables) = &table.tables else { continue };
            if in_use.is_none() {
                tables.forget(number);
            }
            let Some(routing) = tables.routing_in(&maps) else { continue };
            let copies = &mut Copies::default();
            let opened = open_in(shards, number, &shard, (&routing, copies), (table.rows, false))?;
            let Some(opened) = opened else { continue };
            if routing.is_reference() {
                references.push((tables, Arc::clone(&opened)));
            } else if !routing.global_indexes().is_empty() {
                global.push(Arc::clone(table));
            }
            if table.rows.changes.is_some() {
                streams.push((tables, Arc::clone(&opened)));
            }
            raise_orders(table, &store_of(&shard)?, &opened)?;
            tables.add(number, shard.name(), opened);
        }
        for table in &global {
            let indexes = table.rows.distribution.global();
            for index in indexes {
                table.became_unreadable(*index);
            }
        }
        let all = shards.write_with(&Locks::All)?;
        for (tables, opened) in &references {
            let checked = Copies::of(shards, tables)?.check_references(&store_of(&shard)?, opened);
            checked.map_err(|error| deleted_meanwhile(name, error))?;
        }
        for (tables, opened) in &references {
            Copies::of(shards, tables)?.replace(&store_of(&shard)?, opened)?;
        }
        for (tables, opened) in &streams {
            changes::join(shards, tables, (&store_of(&shard)?, opened))?;
        }
        let manager = shards.manager().ok_or_else(Error::no_file)?;
        manager.write(&records)?;
        shards.attach_shard(&all, number, open, &changed)?;
        drop(all);
        for table in &tables_in_use {
            all_shards::align(&inner.engine, &table.tables, table.rows)?;
        }
        shards.record_shards()?;
        Ok((number, global))
    }
}

/// Checks that the reference tables in an attached shard are open, since the shard gets their current rows.
fn refuse_closed(
    shards: &shards::Engine,
    own: &engine::Engine,
    in_use: &[Arc<OpenTable>],
    name: &str,
) -> Result<()> {
    for (table, _) in own.catalog()? {
        let is_reference = shards.location_of(&table) == Some(TableRecord::Reference);
        if is_reference && in_use.iter().all(|it| it.schema.name != table) {
            return Err(Error::ShardRefused {
                what: format!("shard `{name}`"),
                reason: format!(
                    "it gets the current copy of the reference table `{table}`: open its repository first"
                ),
            });
        }
    }
    Ok(())
}

/// Returns the error for rows of the shard that refer to a row of a reference table that the store no longer has.
fn deleted_meanwhile(name: &str, error: Error) -> Error {
    let Error::Referenced { table, key, by, reference } = error else { return error };
    Error::ShardRefused {
        what: format!("shard `{name}`"),
        reason: format!(
            "rows of table `{by}` in it refer by `{reference}` to the row with primary key {key} of the reference table \
             `{table}`, which the store no longer has: insert this row again, or open the directory of the shard with \
             `Store::open` and change or delete the referring rows"
        ),
    }
}
