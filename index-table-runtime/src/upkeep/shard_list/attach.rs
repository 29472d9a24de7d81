//! Attaching a detached shard to an open store.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{
    super::{
        all_shards, build, changes,
        copies::Copies,
        hidden,
        recorded::described,
        shards::{open_in, raise_orders, refuse_foreign},
    },
    entries::ComingTable,
};
use crate::{
    engine::{self, Query, Read as _, ReadRecords as _, Retry, WriteRecords as _},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::{ANALYSIS, Source},
        shard::ShardNumber,
    },
    placement::{
        self,
        shards::{self, Changed, Coming, Maps, Shard, TableRecord as Location},
    },
    store::{
        Inner, Member, OpenTable, ShardId, Shards, Store, engine_to_change, open_attached,
        shard_id, transaction,
    },
};

/// The way out if rows of the shard refer to a deleted row of a reference table.
const DELETED: &str = "insert this row again, or open the directory of the shard with `Store::open` and change or delete the \
                       referring rows";

impl Store {
    /// Adds a [detached](Store::detach_shard) shard to the store again, while the store is open. `directory` is
    /// the current directory of the shard, relative to the directory of the store, or absolute.
    ///
    /// Its ranges and listed keys belong to it again. The directory was a plain store in the meantime, so each row is
    /// checked to be within these ranges. Reference tables are copied into it.
    ///
    /// Global indexes stay readable and unique. The unique keys of the rows are compared with the indexes first. Then the
    /// entries
    /// are added in batches, and appear in the same instant as the rows. From the first batch on, unique keys of the rows are
    /// taken: writing another row with such a key fails with [`Error::UniqueViolation`]. If the process ends meanwhile, the
    /// shard
    /// is still detached, and the entries that were added are removed when the repository is opened.
    ///
    /// A shard that was removed with [`remove_shard`](Store::remove_shard) can be attached too. It has no keys, so its
    /// directory
    /// must have no rows.
    ///
    /// The directory can also have an older copy of the shard. Numbers that `insert_with` has assigned before the shard was
    /// detached are not assigned again.
    ///
    /// Cost: all rows of the shard are read, again when the repository of their table is opened later, and twice more if the
    /// table
    /// has global indexes. Their entries are added in transactions of up to 1,024 rows. Opening tables waits meanwhile.
    /// An index that is not readable is built again, as by [`build`](crate::Build).
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: no detached shard of the store has this name; the directory has another store; another
    /// shard has keys of its ranges now; a row of the store has a unique key of one of its rows (the error names both); a
    /// move is
    /// running; a global index was built, emptied or repaired meanwhile (attach it again); a table with entries of an earlier
    /// shard is not open; the directory was renamed, and transactions that began before the shard was detached
    /// still use it. [`Error::Io`]: such transactions use it, and another process has opened it since. In both cases, attach
    /// it when these transactions have ended. [`Error::ShardRefused`] as well: the repository of a reference table in the
    /// shard, or
    /// of a table with global indexes and rows in the shard, is not open; a row of the shard refers to a row of a reference
    /// table that was deleted in the meantime.
    /// [`Error::SchemaMismatch`]: a row is not in its ranges. Also
    /// [`Error::WriteInProgress`], and the errors of [`Store::open`](crate::Store::open) and `build`.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
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
    /// # let store = Store::options()
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
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard `{name}`"),
            reason: reason.to_owned(),
        };
        let Some(_turn) = shards.move_turn() else {
            return Err(refused("a move is running; wait until it has ended"));
        };
        // Otherwise, entries of its rows that are still hidden would be shown with it.
        hidden::remove_all(self, shards)?;
        let opening = inner.lock_opening();
        let held = shards.hold_moves();
        if shards.number(name).is_some() {
            return Err(refused("the store has it already"));
        }
        let earlier = shards.shards().filter(|(_, shard)| &**shard.name() == name).last();
        let in_use = earlier.and_then(|(_, shard)| shard.last_engine()?.lmdb());
        let in_use = in_use.filter(|engine| engine.stay_open());
        let attached = self.attach(shards, name, directory.as_ref(), in_use);
        // An environment that this call has opened is in the list of shards too if the commit has failed.
        let left = earlier.filter(|(_, shard)| attached.is_err() && shard.is_gone());
        let left = left.and_then(|(_, shard)| shard.last_engine()?.lmdb());
        if let Some(engine) = left.filter(|engine| !engine.is_closed()) {
            let _ = engine.leave_journal();
            engine.close_when_unused();
        }
        if attached.is_err() {
            // The shard is no longer being attached.
            let hidden = shards.hidden();
            let unhide = || shards.hide(&hidden, None);
            let unhidden = hidden.is_empty()
                || transaction::run(unhide, |retry| shards.prepare(retry)).is_ok();
            drop((opening, held));
            if unhidden {
                // If this fails too, the entries stay hidden until the next call, or until the repository is opened.
                let _ = hidden::remove_all(self, shards);
            }
        } else {
            drop((opening, held));
        }
        let (number, unreadable) = attached?;
        for table in unreadable {
            all_shards::finish(self, &table.rows, &table)?;
        }
        shard_id(self, number)
    }

    /// Attaches a shard, and returns its number, and the tables whose global indexes have to be built. `in_use` is its
    /// environment, if transactions that began before the shard was detached still use it. The caller has the turn to move,
    /// and prevents that other threads open tables.
    fn attach(
        &self,
        shards: &Shards,
        name: &str,
        directory: &Path,
        in_use: Option<&engine::lmdb::Engine>,
    ) -> Result<(ShardNumber, Vec<Arc<OpenTable>>)> {
        let inner = &self.inner;
        if let Some(open) = in_use {
            refuse_other_directory(shards, name, directory, open)?;
        }
        let (own, records, identity, changed) = open_attached(shards, name, directory)?;
        let number = identity.number;
        let engine = own.engine()?;
        let shard = Shard::open(Arc::from(name), Arc::clone(engine));
        let shard = shards.coming(&shard, &own);
        identity.write(engine)?;
        let maps = shards.with_attached(number, &changed);
        let tables_in_use = inner.tables_in_use();
        check_closed(self, shards, (number, &own, name), &maps, &tables_in_use)?;
        let (mut in_shard, mut coming, mut checked) = (Vec::new(), Vec::new(), Vec::new());
        for table in &tables_in_use {
            let Some(tables) = table.tables.several() else { continue };
            if in_use.is_none() {
                tables.forget(number);
            }
            let Some(routing) = tables.routing_in(&maps) else { continue };
            let copies = &mut Copies::default();
            let rows = (&table.rows, false);
            let opened = open_in(shards, number, &shard, (&routing, copies), rows)?;
            // A table that is still open in an environment in use has no rows there, and a move opens it no more.
            if opened.is_some() || tables.in_shard(number).is_some() {
                checked.push(table.schema.name.to_owned());
            }
            let Some(opened) = opened else { continue };
            let in_other = |other| table.in_shard(other);
            opened.complete_unchecked(shards, &routing, (number, &shard), &in_other)?;
            let opened = opened.table;
            if !routing.is_reference() {
                let own = (shard.store()?, Arc::clone(&opened));
                coming.extend(ComingTable::of(shards, table, name, own)?);
            }
            // The copy in another shard is its source.
            let copies = routing.is_reference().then(|| Copies::of(shards, table)).transpose()?;
            in_shard.push(TableInShard { table, tables, copies, opened });
        }
        for TableInShard { copies, opened, .. } in &in_shard {
            let store = shard.store()?;
            if let Some(copies) = copies {
                copies.check_references((&store, opened), (name, DELETED))?;
            }
        }
        coming.iter().try_for_each(ComingTable::check)?;
        let added = add_entries(shards, &changed, &coming)?;
        for TableInShard { table, tables, opened, .. } in &in_shard {
            raise_orders(table, &shard.store()?, opened)?;
            tables.add(number, shard.name(), table.keep(opened)?);
        }
        let mut body = |txn: &mut shards::Txn<'_>| {
            let mut is_changed = added.is_lost();
            for table in &coming {
                is_changed |= !table.is_current(txn)?;
            }
            if is_changed {
                return Err(Error::ShardRefused {
                    what: format!("shard `{name}`"),
                    reason:
                        "a global index was built, emptied or repaired meanwhile; attach it again"
                            .to_owned(),
                });
            }
            let of_shard = (number, &shard);
            in_shard.iter().try_for_each(|table| table.write(txn, shards, of_shard, name))?;
            shards.write_checked(txn, number, checked.clone())?;
            coming.iter().try_for_each(|table| table.restart_builds(txn))
        };
        let emptied = coming
            .iter()
            .flat_map(|it| it.unreadable.iter().map(|index| it.table.will_be_emptied(*index)));
        let emptied: Vec<_> = emptied.collect();
        shards.keep_store(&own);
        let attempt = || shards.attach_shard((number, engine), &records, &changed, &mut body);
        transaction::run(attempt, |retry| prepare(shards, (number, engine), retry))?;
        drop(emptied);
        for table in &tables_in_use {
            all_shards::align(&inner.engines, &table.tables, &table.rows, Some(table))?;
        }
        shards.record_shards()?;
        let unreadable = coming.iter().filter(|it| !it.unreadable.is_empty());
        Ok((number, unreadable.map(|it| Arc::clone(&it.table)).collect()))
    }
}

/// A table in use that is open in the shard.
struct TableInShard<'a> {
    table: &'a OpenTable,
    tables: &'a shards::Tables,
    /// The rows of a reference table.
    copies: Option<Copies>,
    opened: Arc<OpenTable>,
}

impl TableInShard<'_> {
    /// Writes in the shard what it gets from the other shards.
    fn write(
        &self,
        txn: &mut shards::Txn<'_>,
        shards: &Shards,
        (number, shard): (ShardNumber, &Member<'_>),
        name: &str,
    ) -> Result<()> {
        let Self { table, tables, copies, opened } = self;
        let global = table.rows.distribution.global();
        let has_stream = table.rows.changes.is_some();
        let analysis = placement::Reader::Several(txn.reader(tables)).record(ANALYSIS)?;
        let analysis = analysis.map(<[u8]>::to_vec);
        if copies.is_none() && global.is_empty() && !has_stream && analysis.is_none() {
            return Ok(());
        }
        let own = (&shard.store()?, &**opened);
        let missing = || Error::internal("a write transaction without a writer");
        let mut writer = txn.writer(tables).ok_or_else(missing)?;
        writer.beside(number, &mut |writer| {
            if let Some(copies) = copies {
                copies.check_references((own.0, opened), (name, DELETED))?;
                copies.replace_in(opened, writer)?;
            }
            if has_stream {
                changes::join_in(shards, table, own, writer)?;
            }
            if let Some(analysis) = &analysis {
                writer.put_record(ANALYSIS, analysis)?;
            }
            // It has no keys of these indexes. So far, it was a plain store with them.
            build::leave_to_others(&table.rows, writer, global)
        })
    }
}

/// Checks that the directory is that of the environment that earlier transactions still use.
fn refuse_other_directory(
    shards: &Shards,
    name: &str,
    directory: &Path,
    open: &engine::lmdb::Engine,
) -> Result<()> {
    let place = shards.directory().join(directory);
    let place = place.canonicalize().map_err(|source| Error::io(&place, source))?;
    if place == open.directory() {
        return Ok(());
    }
    Err(Error::ShardRefused {
        what: format!("shard `{name}`"),
        reason: format!(
            "transactions that began before it was detached still use it in `{}`; attach this directory, or attach the \
             other one when they have ended",
            open.directory().display()
        ),
    })
}

/// Prepares the store, and the shard that is being attached, which does not belong to the store yet.
fn prepare(
    shards: &Shards,
    (number, own): (ShardNumber, &engine::Engine),
    retry: Retry,
) -> Result<bool> {
    match retry {
        Retry::ShardMap { shard, map_size } if shard == number => {
            own.prepare(Retry::Map { map_size })
        }
        Retry::Map { map_size } if own.lmdb().is_some_and(|own| own.map_size() <= map_size) => {
            Ok(shards.prepare(retry)? | own.prepare(retry)?)
        }
        retry => shards.prepare(retry),
    }
}

/// Adds the entries of the rows of a shard to the global indexes, in which they are hidden.
fn add_entries(
    shards: &Shards,
    changed: &[Changed],
    coming: &[ComingTable<'_>],
) -> Result<Arc<Coming>> {
    let mut maps = BTreeSet::new();
    for table in coming {
        maps.extend(table.maps()?);
    }
    let boundaries = changed.iter().map(|it| (it.map.clone(), it.boundaries.clone()));
    let added = Arc::new(Coming::new(boundaries));
    if maps.is_empty() {
        return Ok(added);
    }
    let attempt = || shards.hide(&maps, Some(&added));
    transaction::run(attempt, |retry| shards.prepare(retry))?;
    coming.iter().try_for_each(ComingTable::add)?;
    Ok(added)
}

/// Checks the tables of an attached shard that are not open. A reference table must be open, because the shard gets its current
/// rows, and a table with global indexes if it has rows, because they get entries. Otherwise, the indexes would stay readable
/// without
/// these entries, and a key that is taken would be found too late. The rows of other tables are compared with the shard maps.
fn check_closed(
    store: &Store,
    shards: &Shards,
    (number, shard, name): (ShardNumber, &Inner, &str),
    maps: &Maps,
    in_use: &[Arc<OpenTable>],
) -> Result<()> {
    let refused =
        |reason: String| Err(Error::ShardRefused { what: format!("shard `{name}`"), reason });
    let engine = shard.engine()?;
    for (table, record) in engine.catalog()?.iter().filter(|(name, _)| !name.contains('.')) {
        if in_use.iter().any(|open| open.schema.name == table) {
            continue;
        }
        let location = shards.location_of(table);
        if location == Some(Location::Reference) {
            return refused(format!(
                "it gets the current copy of the reference table `{table}`: open its repository first"
            ));
        }
        let of_table = |map: &String| map.split_once('.').is_some_and(|(own, _)| own == table);
        let is_global = shards.maps().iter().any(of_table);
        // Without a location, its repository has not been opened since the shard map manager was rebuilt, or never.
        let has_shards = matches!(location, Some(Location::ByKey { .. }));
        if !is_global && !has_shards {
            continue;
        }
        let rows = match described(store, table, record) {
            Ok(rows) => rows,
            Err(reason) => return refused(format!("its table `{table}` can't be read: {reason}")),
        };
        let Some(tables) = engine.find_table(rows.schema, rows.parts())? else { continue };
        let txn = engine.read()?;
        let missing = || Error::internal("a table of another engine");
        let reader = txn.reader(&tables).map(placement::Reader::One).ok_or_else(missing)?;
        let first = Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
        if reader.count(&first)?.found == 0 {
            continue;
        }
        if is_global {
            return refused(format!(
                "its rows of table `{table}` get entries in global indexes: open the repository of the table first"
            ));
        }
        let routing = maps.in_routing(&shards.routing(rows.schema, rows.distribution)?);
        let Some(routing) = routing else { continue };
        refuse_foreign(shards, (number, name), &routing, reader)?;
    }
    Ok(())
}
