//! Removing shards from an open store, without rows or with them.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{all_shards, hidden, numbers::Numbered, shards::open_target},
    plan::{Affected, Leaving, Plan, check, moves_entries_out},
};
use crate::{
    engine,
    model::{
        error::{Error, Result},
        schema::TableRecord,
        shard::{ShardNumber, Span},
    },
    placement::shards::{self, Changed, MoveRecord, TableRecord as Location},
    store::{OpenTable, Shards, Store, engine_to_change, transaction},
};

impl Store {
    /// Removes a shard that has no rows, while the store is open. To move its rows away first, use
    /// [`move_range`](Store::move_range), [`move_slots`](Store::move_slots) or
    /// [`move_keys`](Store::move_keys).
    ///
    /// If shard maps still assign keys to it, these keys go to other shards of the map: to the shard of a neighbouring
    /// range, or in a hash map evenly to all other shards. A global index that is in no other shard goes to the first other shard of
    /// the store. Entries of global indexes in the shard are moved to the other shards, while reads and writes continue. The copies of reference tables in the shard are no longer used.
    ///
    /// The directory does not change. It is a plain store with copies of reference tables only, and can be deleted. This
    /// process closes its files when the transactions that began before have ended.
    ///
    /// The numbers that `insert_with` has assigned in the shard are copied to the shards that get its keys.
    ///
    /// Cost: one commit in all shards, with a record for each shard key with numbers. For each global index with entries in
    /// the shard, the cost of moving them. An index that is not readable is emptied, and built again as by
    /// [`build`](crate::Build).
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: there is no such shard, or it is the only shard; it has rows, queued messages or
    /// dead letters of an eventual index, or changes that a consumer of a change stream has not committed; a table is placed in it; a table that it has had, or a
    /// table that may have entries in it, is not open; a move from or to it is unfinished; no other shard of a map can have its keys.
    /// [`Error::ShardUnavailable`]: a shard is not available. Also [`Error::WriteInProgress`] if this thread has a write
    /// transaction, and the errors of `build`, after which the shard is removed. [`Error::ReopenNeeded`] if the files of the
    /// shard could not be synced: the shard is removed, and its directory is complete after the store has been opened again.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
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
    /// let store = Store::options()
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
    /// [`attach_shard`](Store::attach_shard) adds it again.
    ///
    /// This process closes the files of the shard when the transactions that began before have ended. Until then, it can't
    /// open the directory as a plain store.
    ///
    /// Its ranges of range maps, and its keys of lists, belong to no shard: queries and writes that need them fail with
    /// [`Error::NoShard`], and other queries no longer return these rows. Its slots of hash maps go to other shards;
    /// the tables of these maps must have no rows in the shard. The directory keeps a copy of each reference table.
    ///
    /// Global indexes stay readable and unique. Their entries in the shard are moved to other shards first. The entries of the
    /// detached rows disappear in the same instant as the rows. After that, they are removed in batches, and their unique keys
    /// are free. If the process ends meanwhile, the store is whole: entries that have not been moved yet are moved by the next
    /// call, and entries that have not been removed yet are removed when the repository is opened.
    ///
    /// Queued messages of eventual indexes and changes leave with their rows. `drain`, `expire`, `build`, `upgrade` and the
    /// workers continue without the shard. If the queue has messages of rows that have moved to other shards, call `drain` first.
    ///
    /// An index that is not readable is emptied in the commit that detaches the shard, and then built again as by
    /// [`build`](crate::Build).
    ///
    /// Cost: one commit in all shards. For each global index, the cost of moving its entries in the shard, a scan of its entries,
    /// and the removal of the detached rows' entries, in transactions of up to 2,048 entries. Meanwhile, a query of a range reads
    /// past these entries. Memory does not grow with the entries.
    ///
    /// # Errors
    ///
    /// The errors of [`remove_shard`](Store::remove_shard), except that rows in range maps and lists are
    /// allowed, unless they can have parts in another shard, and that the queued messages of these rows are allowed.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, ShardMap, Store};
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
    /// let store = Store::options()
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
        let turn = || {
            let running = || refused("a move is running; wait until it has ended".to_owned());
            shards.move_turn().ok_or_else(running)
        };
        if shards.number(name).is_some_and(|number| shards.is_first_file(number)) {
            let reason = "it is the first data file of the store, in the directory of the store; move its keys to other shards, \
                          and keep it";
            return Err(refused(reason.to_owned()));
        }
        drop(turn()?);
        // What can be refused is refused before entries are moved.
        let opening = inner.lock_opening();
        let (number, plan) = self.plan(shards, (name, leaving), true, &refused)?;
        drop(opening);
        check(&shards.read()?, shards, number, &plan, &refused)?;
        self.move_entries_away(shards, number, &plan)?;
        let _turn = turn()?;
        let opening = inner.lock_opening();
        let held = shards.hold_moves();
        let (number, plan) = self.plan(shards, (name, leaving), false, &refused)?;
        self.open_in_new_owners(shards, &plan)?;
        let mut emptied = Vec::new();
        let mut body = |txn: &mut shards::Txn<'_>| {
            check(txn, shards, number, &plan, &refused)?;
            emptied.clear();
            for own in &plan.numbered {
                own.hand_over(txn, number, &plan.changed)?;
            }
            let mut hides = BTreeSet::new();
            for affected in &plan.affected {
                hides.extend(affected.leave(txn, number, &mut emptied, &refused)?);
            }
            Ok(hides)
        };
        let attempt = || shards.remove_shard(number, &plan.changed, &mut body);
        transaction::run(attempt, |retry| shards.prepare(retry))?;
        let mut left = Ok(());
        if let Some(engine) = shards.shard(number)?.last_engine().and_then(engine::Engine::lmdb) {
            left = engine.leave_journal();
            engine.close_when_unused();
        }
        drop((opening, held));
        left?;
        for Affected { table, .. } in &plan.affected {
            hidden::remove(self, shards, table)?;
        }
        for table in &emptied {
            all_shards::finish(self, &table.rows, table)?;
        }
        Ok(())
    }

    /// Returns the number of a shard that can be removed, and the maps and tables that its removal affects. If `is_first`, moves of
    /// entries out of the shard may be unfinished. The caller has the lock of opening tables.
    fn plan(
        &self,
        shards: &Shards,
        (name, leaving): (&str, Leaving),
        is_first: bool,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<(ShardNumber, Plan)> {
        let number =
            shards.number(name).ok_or_else(|| refused("the store has no such shard".to_owned()))?;
        if self.shard_ids().len() < 2 {
            return Err(refused("it is the only shard".to_owned()));
        }
        if let Some((other, reason)) = self.unavailable_shards().first() {
            let (shard, reason) = (other.name().to_owned(), reason.clone());
            return Err(Error::ShardUnavailable { shard, reason });
        }
        let has_it = |moving: &MoveRecord| {
            let is_continued = is_first && moves_entries_out(moving, number);
            [moving.from, moving.to].contains(&number) && !is_continued
        };
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
        let affected = self.affected(shards, &changed, refused)?;
        let streams = self.streams_in(shards, number, refused)?;
        let numbered = self.numbered_in(shards, number, refused)?;
        Ok((number, Plan { changed, affected, streams, numbered }))
    }

    /// Moves the entries of readable global indexes in a shard to other shards. If the process ends meanwhile, the next call
    /// continues.
    fn move_entries_away(&self, shards: &Shards, number: ShardNumber, plan: &Plan) -> Result<()> {
        for moving in shards.moves().iter().filter(|it| moves_entries_out(&it.record, number)) {
            self.resume_move(moving.record.id).run()?;
        }
        for Changed { map, boundaries, keeps_rows } in &plan.changed {
            let Some(now) = shards.map(map).filter(|_| !*keeps_rows && map.contains('.')) else {
                continue;
            };
            if !plan.has_readable(&shards.read()?, map)? {
                continue;
            }
            for (start, end) in now.boundaries.of_shard(number) {
                for (first, last, owner) in boundaries.segments() {
                    let Some(owner) = owner else { continue };
                    let start = first.max(start.as_slice()).to_vec();
                    let end = match (last, end.as_deref()) {
                        (Some(last), Some(end)) => Some(last.min(end)),
                        (last, end) => last.or(end),
                    };
                    if end.is_some_and(|end| end <= start.as_slice()) {
                        continue;
                    }
                    let span = Span { start, end: end.map(<[u8]>::to_vec) };
                    let to = shards.shard(owner)?.name();
                    let moved = self.new_move(map, now.key_type.clone(), vec![Some(span)], to);
                    if let Err(error) = moved.of_entries().run() {
                        self.cancel_entry_moves(shards, number);
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens the tables whose global indexes go to shards that have nothing of these tables. The caller has the lock of opening
    /// tables.
    fn open_in_new_owners(&self, shards: &Shards, plan: &Plan) -> Result<()> {
        for Changed { map, boundaries, .. } in plan.changed.iter().filter(|it| it.map.contains('.'))
        {
            let of_map = |it: &&Affected| {
                map.split_once('.').is_some_and(|(table, _)| it.table.schema.name == table)
            };
            for Affected { table, .. } in plan.affected.iter().filter(of_map) {
                let Some(tables) = table.tables.several() else { continue };
                for owner in boundaries.shards() {
                    if tables.in_shard(owner).is_none() {
                        open_target(self, shards, table, tables, owner)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Cancels the moves of entries out of a shard after one of them has failed.
    fn cancel_entry_moves(&self, shards: &Shards, number: ShardNumber) {
        for moving in shards.moves() {
            if moves_entries_out(&moving.record, number) && !moving.record.is_switched {
                // Otherwise, the next removal of the shard resumes it.
                let _ = self.cancel_move(moving.record.id);
            }
        }
    }

    /// Returns the tables with a change stream or a queue in a shard.
    fn streams_in(
        &self,
        shards: &Shards,
        number: ShardNumber,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Arc<OpenTable>>> {
        let has_messages = |it: &TableRecord| it.has_changes() || it.has_eventual();
        let mut streams = Vec::new();
        for (name, record) in shards.shard(number)?.engine()?.catalog()? {
            if name.contains('.') {
                continue;
            }
            let unreadable =
                |why: String| refused(format!("the record of table `{name}` can't be read: {why}"));
            if !has_messages(&TableRecord::read(&record).map_err(unreadable)?) {
                continue;
            }
            let table = self.inner.table(&name);
            let table = table.ok_or_else(|| {
                refused(format!(
                    "open the repository of table `{name}` first, which has a change stream or an eventual index"
                ))
            })?;
            let is_in_shard = |tables: &shards::Tables| tables.in_shard(number).is_some();
            if table.tables.several().is_some_and(is_in_shard) {
                streams.push(table);
            }
        }
        Ok(streams)
    }

    /// Returns the tables whose numbers of `insert_with` a shard may have.
    fn numbered_in(
        &self,
        shards: &Shards,
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
        shards: &Shards,
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
