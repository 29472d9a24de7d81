//! Removing shards from an open store, without rows or with them.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::super::{all_shards, build, changes, numbers::Numbered, opening};
use crate::{
    engine::{
        self, Query, Read as _, Tables,
        shards::{self, Changed, MoveRecord, TableRecord as Location},
    },
    model::{
        KeyRange,
        error::{Error, Result},
        schema::{Source, TableRecord},
        shard::ShardNumber,
    },
    store::{OpenTable, ShardedStore, engine_to_change, rerun},
    write::queue::QueueState,
};

impl ShardedStore {
    /// Removes a shard that has no rows, while the store is open. To move its rows away first, use
    /// [`move_range`](ShardedStore::move_range), [`move_slots`](ShardedStore::move_slots) or
    /// [`move_keys`](ShardedStore::move_keys).
    ///
    /// If shard maps still assign keys to it, these keys go to other shards of the map: to the shard of a neighbouring
    /// range, or in a hash map evenly to all other shards. A global index with entries in the shard is rebuilt, and
    /// can't be queried during the rebuild, unless its keys in the shard were moved away before. The copies of reference tables in the shard are no longer used.
    ///
    /// The directory does not change. It is a plain store with copies of reference tables only, and can be deleted. This
    /// process closes its files when the transactions that began before have ended.
    ///
    /// Cost: one commit in all shards. For each global index with entries in the shard, the cost of
    /// [`build`](crate::Build), with up to all rows of the table.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: there is no such shard, or it is the only shard; it has rows, queued messages or
    /// dead letters of an eventual index, or changes that a consumer of a change stream has not committed; a table is placed in it; a table that may
    /// have rows or entries in it is not open; a move from or to it is unfinished; no other shard of a map can have its keys.
    /// [`Error::ShardUnavailable`]: a shard is not available. Also [`Error::WriteInProgress`] if this thread has a write
    /// transaction, and the errors of `build`, after which the shard is removed. [`Error::ReopenNeeded`] if the files of the
    /// shard could not be synced: the shard is removed, and its directory is complete after the store has been opened again.
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
        self.leave(name.as_ref(), Leaving::Removed)
    }

    /// Removes a shard with its rows, while the store is open. Its directory is then a plain store, which
    /// [`Store::open`](crate::Store::open) opens with the same structs, and which can be renamed and moved to another disk.
    /// [`attach_shard`](ShardedStore::attach_shard) adds it again.
    ///
    /// This process closes the files of the shard when the transactions that began before have ended. Until then, it can't
    /// open the directory as a plain store.
    ///
    /// Its ranges of range maps, and its keys of lists, belong to no shard: queries and writes that need them fail with
    /// [`Error::NoShard`], and other queries no longer return these rows. Its slots of hash maps go to other shards;
    /// the tables of these maps must have no rows in the shard. Each global index of a table with rows in the shard is
    /// rebuilt without these rows, and can't be queried during the rebuild. The directory keeps a copy of each
    /// reference table.
    ///
    /// Cost: one commit in all shards. For each global index, the cost of [`build`](crate::Build) with all other rows.
    ///
    /// # Errors
    ///
    /// The errors of [`remove_shard`](ShardedStore::remove_shard), except that rows in range maps and lists are
    /// allowed, unless they can have parts in another shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, ShardMap, ShardedStore, Store};
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
    /// let store = ShardedStore::options()
    ///     .shard("old", "old")
    ///     .shard("new", "new")
    ///     .map("entries", ShardMap::ranges().to("old", ..2026u16).to("new", 2026u16..))
    ///     .open(&path)?;
    /// let entries = EntryRepository::open(&store)?;
    /// store.transaction(|txn| entries.insert(txn, &Entry { year: 2025, number: 1 }))?;
    ///
    /// store.detach_shard("old")?;
    /// assert_eq!(entries.all(&store.read()?).count()?, 0);
    /// assert!(matches!(entries.get(&store.read()?, 2025, 1), Err(Error::NoShard { .. })));
    ///
    /// let old = Store::open(path.join("old"))?;
    /// assert_eq!(EntryRepository::open(&old)?.all(&old.read()?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn detach_shard(&self, name: impl AsRef<str>) -> Result<()> {
        self.leave(name.as_ref(), Leaving::Detached)
    }

    fn leave(&self, name: &str, leaving: Leaving) -> Result<()> {
        let inner = &self.inner;
        let shards = engine_to_change(self)?;
        let refused = |reason: String| Error::ShardRefused {
            what: format!("the {leaving} of shard `{name}`"),
            reason,
        };
        let Some(_turn) = shards.move_turn() else {
            return Err(refused("a move is running; wait until it has ended".to_owned()));
        };
        let opening = inner.lock_opening();
        let held = shards.hold_moves();
        let number =
            shards.number(name).ok_or_else(|| refused("the store has no such shard".to_owned()))?;
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
            return Err(refused(format!("it has the unfinished move {id}; resume or cancel it")));
        }
        if let Some(table) = shards.tables_placed_in(number).first() {
            return Err(refused(format!("table `{table}` is placed in it")));
        }
        let changed = shards
            .maps_without(number, leaving == Leaving::Detached)
            .map_err(|map| refused(format!("shard map `{map}` has no other shard for its keys")))?;
        shards.refuse_without_location(&[number], || format!("the {leaving} of shard `{name}`"))?;
        let affected = self.affected(shards, &changed, &refused)?;
        let streams = self.streams_in(shards, number, &refused)?;
        let numbered = self.numbered_in(shards, number, &refused)?;
        let mut body = |txn: &mut shards::Txn<'_>| {
            for table in &streams {
                let keeps_rows =
                    affected.iter().any(|it| it.keeps_rows && Arc::ptr_eq(&it.table, table));
                refuse_unread(txn, table, number, keeps_rows, &refused)?;
            }
            for own in &numbered {
                own.hand_over(txn, number, &changed)?;
            }
            for Affected { table, global, keeps_rows } in &affected {
                let Tables::Sharded(tables) = &table.tables else { continue };
                let has_parts = shards.has_placed_parts(table.schema.name);
                if tables.in_shard(number).is_some() && (!keeps_rows || has_parts) {
                    let part = txn.reader(tables).of_shard(number)?;
                    let first =
                        Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
                    let name = table.schema.name;
                    if part.count(&first)?.found > 0 {
                        let parts = if has_parts { ", with parts in other shards" } else { "" };
                        let reason = format!("it has rows of table `{name}`{parts}; move them");
                        return Err(refused(reason));
                    }
                }
                if !global.is_empty() {
                    let missing = || Error::internal("a write transaction without a writer");
                    let writer = txn.writer(tables).ok_or_else(missing)?;
                    let mut writer = engine::Writer::Sharded(writer);
                    let count = opening::count(&writer)?;
                    let global: Vec<_> = global.iter().copied().collect();
                    build::declare(table.rows, &mut writer, &global, count)?;
                }
            }
            Ok(())
        };
        let readable: Vec<_> = affected.iter().flat_map(Affected::readable).collect();
        for (table, index) in &readable {
            table.became_unreadable(*index);
        }
        let attempt = || shards.remove_shard(number, &changed, &mut body);
        let removed = rerun::run(attempt, |retry| shards.prepare(retry));
        if removed.is_err() {
            for (table, index) in &readable {
                table.became_readable(*index);
            }
        }
        removed?;
        let mut left = Ok(());
        if let Some(engine) = shards.shard(number)?.last_engine().and_then(engine::Engine::lmdb) {
            left = engine.leave_journal();
            engine.close_when_unused();
        }
        drop((opening, held));
        left?;
        for Affected { table, .. } in affected.iter().filter(|it| !it.global.is_empty()) {
            all_shards::finish(self, table.rows, table)?;
        }
        Ok(())
    }

    /// Returns the tables with a change stream or a queue in a shard.
    fn streams_in(
        &self,
        shards: &shards::Engine,
        number: ShardNumber,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Arc<OpenTable>>> {
        let mut streams = Vec::new();
        for (name, record) in shards.shard(number)?.engine()?.catalog()? {
            let has_messages = |it: TableRecord| it.has_changes() || it.has_eventual();
            if name.contains('.') || !TableRecord::read(&record).is_ok_and(has_messages) {
                continue;
            }
            let table = self.inner.table(&name);
            let table = table.ok_or_else(|| {
                refused(format!(
                    "open the repository of table `{name}` first, which has a change stream or an eventual index"
                ))
            })?;
            let is_in_shard = |tables: &shards::Tables| tables.in_shard(number).is_some();
            if matches!(&table.tables, Tables::Sharded(tables) if is_in_shard(tables)) {
                streams.push(table);
            }
        }
        Ok(streams)
    }

    /// Returns the tables whose numbers of `insert_with` a shard may have.
    fn numbered_in(
        &self,
        shards: &shards::Engine,
        number: ShardNumber,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Numbered>> {
        let mut numbered = Vec::new();
        for (name, _) in shards.shard(number)?.engine()?.catalog()? {
            if !matches!(shards.location_of(&name), Some(Location::ByKey { .. })) {
                continue;
            }
            let table = self.inner.table(&name);
            let table = table
                .ok_or_else(|| refused(format!("open the repository of table `{name}` first")))?;
            numbered.extend(Numbered::of(self, shards, &table, number)?);
        }
        Ok(numbered)
    }

    /// Returns the tables that may have rows or entries in a shard whose keys change.
    fn affected(
        &self,
        shards: &shards::Engine,
        changed: &[Changed],
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Affected>> {
        let in_use = self.inner.tables_in_use();
        let mut affected: Vec<Affected> = Vec::new();
        for Changed { map, keeps_rows, .. } in changed {
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
                let of_map = |at: &usize| {
                    let declared = table.schema.indexes.get(*at);
                    index.is_some_and(|index| declared.is_some_and(|own| own.name == index))
                };
                // Entries of a global index refer to the detached rows.
                let all = table.rows.distribution.global().iter().copied();
                let global = all.filter(|at| *keeps_rows || of_map(at));
                let known = affected.iter_mut().find(|it| Arc::ptr_eq(&it.table, table));
                if let Some(known) = known {
                    known.keeps_rows |= keeps_rows;
                    known.global.extend(global);
                } else {
                    let (table, global) = (Arc::clone(table), global.collect());
                    affected.push(Affected { table, global, keeps_rows: *keeps_rows });
                }
            }
        }
        Ok(affected)
    }
}

/// Refuses to remove a shard with messages of eventual indexes, unless it keeps the rows, or with changes that a consumer has
/// not committed.
fn refuse_unread(
    txn: &shards::Txn<'_>,
    table: &OpenTable,
    number: ShardNumber,
    keeps_rows: bool,
    refused: &dyn Fn(String) -> Error,
) -> Result<()> {
    let Tables::Sharded(tables) = &table.tables else { return Ok(()) };
    let (part, name) = (txn.reader(tables).of_shard(number)?, table.schema.name);
    if !keeps_rows && table.schema.has_eventual() {
        let queue = QueueState::read(table.schema, part)?;
        if queue.left(part)? > 0 {
            return Err(refused(format!(
                "it has queued messages of an eventual index of table `{name}`; start the index worker"
            )));
        }
        if queue.dead_letters > 0 {
            return Err(refused(format!(
                "it has dead letters of table `{name}`; apply them with `retry_dead_letters`"
            )));
        }
    }
    if table.rows.changes.is_some()
        && let Some(consumer) = changes::lagging(part)?
    {
        return Err(refused(format!(
            "consumer `{consumer}` of the change stream of table `{name}` has not committed all changes in it; \
             commit them, or remove the consumer"
        )));
    }
    Ok(())
}

/// A table that may have rows or entries in a shard that is removed.
struct Affected {
    table: Arc<OpenTable>,
    /// The global indexes that may have entries in it, or entries that refer to its rows.
    global: BTreeSet<usize>,
    /// Whether the rows in the shard are detached with it.
    keeps_rows: bool,
}

impl Affected {
    /// Returns the global indexes that are readable now.
    fn readable(&self) -> impl Iterator<Item = (&OpenTable, usize)> {
        let readable = self.global.iter().filter(|index| self.table.is_readable_now(**index));
        readable.map(|index| (&*self.table, *index))
    }
}

/// The way in which a shard is removed from the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It has no rows.
    Removed,
    /// It keeps its rows.
    Detached,
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "removal",
            Self::Detached => "detaching",
        })
    }
}
