//! Restoring a lost shard from its backup, while the store is open.

use std::{path::Path, sync::Arc};

use super::{
    super::{
        all_shards, changes,
        copies::Copies,
        shards::{open_in, raise_orders},
    },
    copy::ShardCopy,
};
use crate::{
    engine::{DataFile, files},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{ManagerRecords, MoveRecord, Seen, Shard, Tables, place_of},
    store::{
        Member, OpenTable, ShardId, Shards, Store, engine_to_change, leave_records, open_restored,
    },
};

impl Store {
    /// Restores a shard that is not available from its backup, while the store is open. Existing repositories and new
    /// transactions can then use the shard.
    ///
    /// `backup` is a copy of the shard made by [`Store::backup_to`]. Commits to this shard after the backup are lost, and so are
    /// the rows that were moved to the shard after the backup. A backup with rows that were moved away since is refused. The
    /// numbers that `insert_with` has assigned since are lost with them and are assigned again, except those that another
    /// shard keeps.
    /// The directory of the shard must not exist, so move a damaged directory away first.
    ///
    /// The commits after the restoration have numbers that no commit of the store has had. Lost commits have earlier numbers, so a
    /// commit number from before the restoration can be less than that of a snapshot without this commit.
    ///
    /// The reference tables are copied from another shard, so their repositories must be open.
    ///
    /// The shard is prepared in the directory `.{name}.restored` beside its own directory, whose last part is `{name}`, and is
    /// then renamed. If the process ends before that, nothing has changed. The prepared directory is removed by the next call, and
    /// by the next opening of the store for writing in which the shard is available. If the process ends afterwards, the next opening of the store has the shard, and the global indexes of all tables are built when
    /// their repositories are opened.
    ///
    /// The entries of global indexes no longer match the restored rows, so the global indexes of open repositories are emptied
    /// and built before this method returns, in one transaction for each table. Others are built when their repository is opened.
    /// Meanwhile, queries of these indexes, and writes that add a key to a unique index among them, fail with
    /// [`Error::IndexNotReadable`]. If another shard is not available, this lasts until it is restored, or the store is opened
    /// with all shards. In other processes, stores that were opened before for reading fail with [`Error::ReopenNeeded`].
    ///
    /// A backup with a row that belongs to another shard since a move is refused. Use a later backup, or copy the backup with
    /// [`Store::restore`], delete these rows in the copy, which is a plain store, and restore the copy. If their table has a
    /// change stream, its consumers receive the deletions. If the directory of a shard was replaced by such a backup without
    /// this method, opening the repository fails with [`Error::SchemaMismatch`].
    ///
    /// A backup from during a move has the move. If the move is still unfinished, or both of its shards were lost before it ended,
    /// it is unfinished in the restored shard too: [resume](Store::resume_move) or [cancel](Store::cancel_move) it when both
    /// shards are available. If it has ended since, a backup in which its keys have no or only some of their rows is refused.
    ///
    /// Rows of the restored shard can refer to rows that were deleted since. `verify` lists them
    /// ([`Orphan`](crate::FindingKind::Orphan)), and `repair` does not change them: delete them, or insert the rows to which they
    /// refer.
    ///
    /// Cost: the cost of [`Store::restore`]. In addition, the rows of all tables in the backup are scanned, each table in use is
    /// opened in the shard and its rows are scanned twice more, and each reference table is written. For a table with global indexes, the rows of all shards are read, and all
    /// entries are written; other write transactions wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: the shard is available; its directory exists; `backup` is not a backup of this shard; the
    /// repository of a reference table is not open; a row of the backup refers to a row of a reference table that was deleted
    /// since, or belongs to another shard since a move (the error names the row); the backup has a part of the rows of a move
    /// that has given its keys to the shard since. Then the shard is not restored, its directory does not exist, and the other shards have not changed. If
    /// the lost directory comes back, it still gets the commits that the journal has for it. The same holds for the errors of opening
    /// the repositories in the backup: for example, [`Error::UniqueViolation`] if its rows violate a unique index that was declared
    /// since.
    /// [`Error::IndexNotReadable`]: the shard is restored, and two rows have a key of a unique global index, since the restored
    /// rows are older. Change or delete one of them, and then call the `build` of the repository. If the repository is closed,
    /// opening it later returns [`Error::UniqueViolation`]; `open_online` opens it for this change.
    /// [`Error::NotOffered`]: the store is in memory or has one shard. Also the errors of [`Store::restore`],
    /// [`Store::open`] and of opening the repositories.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "customers", shard_by = tenant)]
    /// struct Customer {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     id: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    /// # let store = Store::options()
    /// #     .shard("north", "north")
    /// #     .shard("south", "south")
    /// #     .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    /// #     .open(&path)?;
    /// # let customers = CustomerRepository::open(&store)?;
    /// # store.transaction(|txn| customers.insert(txn, &Customer { tenant: 107, id: 1 }))?;
    /// # drop((store, customers));
    /// # Store::options().read_only(true).open(path.join("south"))?.backup_to(&backup)?;
    /// # std::fs::remove_dir_all(path.join("south")).unwrap();
    /// let store = Store::open(&path)?;
    /// let customers = CustomerRepository::open(&store)?;
    /// let (lost, _) = store.unavailable_shards().remove(0);
    /// store.restore_shard(&lost, &backup)?;
    /// assert!(store.unavailable_shards().is_empty());
    /// assert_eq!(customers.find_by_tenant(&store.read()?, 107).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore_shard(&self, shard: &ShardId, backup: impl AsRef<Path>) -> Result<()> {
        let (inner, number, backup) = (&self.inner, self.number_of(shard)?, backup.as_ref());
        let shards = engine_to_change(self)?;
        let opening = inner.lock_opening();
        let lost = shards.shard(number)?;
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard `{shard}`"),
            reason: reason.to_owned(),
        };
        let manager = shards.manager().ok_or_else(Error::no_file)?;
        if lost.opened().is_ok() {
            return Err(refused("it is available"));
        }
        if shards.is_first_file(number) {
            let reason = "it is the first data file of the store, in the directory of the store; close the store, move its \
                          directory away, and restore the store with `Store::restore`";
            return Err(refused(reason));
        }
        let records = manager.read()?;
        let missing = || Error::internal("a shard without a record");
        let records = records.ok_or_else(missing)?;
        let record = records.shards.get(number as usize).ok_or_else(missing)?;
        let Some(of_backup) = moves_of_backup(backup, &records, number)? else {
            return Err(refused("the backup is not one of this shard"));
        };
        let in_use = inner.tables_in_use();
        let is_closed = |name: &String| in_use.iter().all(|table| table.schema.name != name);
        if let Some(closed) = shards.reference_tables().into_iter().find(is_closed) {
            return Err(refused(&format!(
                "it gets the current copy of the reference table `{closed}`: open its repository first"
            )));
        }
        let place = place_of(&shards.directory(), &record.place);
        if files::is_taken(&place).map_err(|source| Error::io(&place, source))? {
            return Err(refused(&format!(
                "`{}` exists; move it away first, or open the store again if it has the shard",
                place.display()
            )));
        }
        let copy = ShardCopy::new(backup, &place)?;
        // An error removes them again.
        let unknown = UnknownMoves::add(shards, number, of_backup);
        copy.prepare(self, shards, &records, (number, record), &in_use)?;
        copy.raise_number(manager, (number, record))?;
        leave_records(shards, &records)?;
        copy.take_place()?;
        let records = manager.read()?.ok_or_else(missing)?;
        let records = ManagerRecords { maps: shards.declared_maps(), ..records };
        let store = open_restored(shards, &records, (number, record))
            .inspect_err(|_| copy.leave_place())?;
        let restored = store.engine()?;
        // Other processes may have the lost files open, or don't expect that indexes become unreadable.
        shards.announce_replaced();
        let indexes = in_use.iter().flat_map(|table| {
            table.rows.distribution.global().iter().map(|index| table.will_be_emptied(*index))
        });
        let emptied: Vec<_> = indexes.collect();
        // The tables are added before the shard, so that a transaction with the shard also has its tables.
        let shard = Shard::open(Arc::clone(lost.name()), Arc::clone(restored));
        let shard = shards.coming(&shard, &store);
        let opened = in_use
            .iter()
            .try_for_each(|table| open_in_restored(shards, (number, &shard), table))
            // From now on, no key of a unique index among them is accepted, also by writers in other shards.
            .and_then(|()| all_shards::empty_all(shards, &in_use))
            .and_then(|()| {
                shards.keep_store(&store);
                shards.restore_shard(number, Arc::clone(restored))
            });
        if let (Err(_), Some(engine)) = (&opened, restored.lmdb()) {
            let left = engine.leave_no_records();
            engine.close_when_unused();
            for table in &in_use {
                if let Some(tables) = table.tables.several() {
                    tables.forget(number);
                }
            }
            // Otherwise, the next opening of the store has the restored shard.
            if left.is_ok() && engine.is_closed() {
                copy.leave_place();
            }
        }
        opened?;
        unknown.keep();
        // If this fails, the next start of the journal removes them.
        let _ = DataFile(&shards.directory()).forget_left(number);
        for table in &in_use {
            let Some(tables) = table.tables.several() else { continue };
            if tables.routing().is_reference() {
                all_shards::align(&inner.engines, &table.tables, &table.rows, Some(table))?;
            }
        }
        for table in &in_use {
            match all_shards::build_global(&inner.engines, &table.tables, &table.rows) {
                // A build that other transactions can use records the duplicates.
                Err(Error::UniqueViolation { .. }) => {
                    all_shards::align(&inner.engines, &table.tables, &table.rows, Some(table))?;
                }
                built => drop(built?),
            }
        }
        drop((emptied, opening));
        // With another missing shard, the indexes stay emptied.
        let is_complete =
            |table: &&Arc<OpenTable>| table.tables.several().is_some_and(Tables::are_complete);
        in_use
            .iter()
            .filter(is_complete)
            .try_for_each(|table| all_shards::finish(self, &table.rows, table))
    }
}

/// Opens a table in a shard that was restored, and that no transaction uses yet.
fn open_in_restored(
    shards: &Shards,
    (number, shard): (ShardNumber, &Member<'_>),
    table: &OpenTable,
) -> Result<()> {
    let Some(tables) = table.tables.several() else { return Ok(()) };
    let (routing, copies) = (tables.routing(), &mut Copies::default());
    let opened = open_in(shards, number, shard, (&routing, copies), (&table.rows, false))?;
    let Some(opened) = opened else { return Ok(()) };
    let in_other = |other| table.in_shard(other);
    opened.complete(shards, &routing, (number, shard), &in_other)?;
    let own = &opened.table;
    if table.rows.changes.is_some() {
        changes::join(shards, table, (&shard.store()?, own))?;
    }
    raise_orders(table, &shard.store()?, own)?;
    tables.add_restored(number, shard.name(), table.keep(own)?);
    Ok(())
}

/// Returns the unfinished moves in a copy of the shard with this number; `None` if the directory contains no such copy.
fn moves_of_backup(
    path: &Path,
    records: &ManagerRecords,
    number: ShardNumber,
) -> Result<Option<Vec<MoveRecord>>> {
    let seen = Seen::read(Store::open_backup(path)?.inner.engine()?)?;
    let is_of_shard = |seen: &Seen| {
        let own = seen.identity();
        own.manager == records.own.id && own.number == number
    };
    seen.filter(is_of_shard).map(|seen| seen.moves()).transpose()
}

/// The unfinished moves of a backup that no available shard has recorded, because both of their shards were lost. The store has
/// them again while the first of these shards is restored. The other shard gets them when it is restored.
struct UnknownMoves<'s> {
    shards: &'s Shards,
    /// Each with the shard that had the keys.
    moves: Vec<(MoveRecord, ShardNumber)>,
}

impl<'s> UnknownMoves<'s> {
    fn add(shards: &'s Shards, number: ShardNumber, of_backup: Vec<MoveRecord>) -> Self {
        let mut moves = Vec::new();
        for record in of_backup {
            let other = if record.from == number { record.to } else { record.from };
            let is_lost =
                shards.shard(other).is_ok_and(|other| other.opened().is_err() && !other.is_gone());
            let Some(boundaries) = shards.boundaries(&record.map).filter(|_| is_lost) else {
                continue;
            };
            let is_owner = |shard: &ShardNumber| {
                boundaries.are_all_in(&record.start, record.end.as_deref(), *shard)
            };
            // Otherwise, the keys have moved since. The manager gets the map after the copies in the source were removed.
            let owners = [Some(record.from), record.is_switched.then_some(record.to)];
            let Some(owner) = owners.into_iter().flatten().find(is_owner) else { continue };
            if shards.moving(record.id).is_none() {
                moves.push((record, owner));
            }
        }
        for (record, _) in &moves {
            shards.add_move(record);
        }
        Self { shards, moves }
    }

    fn keep(mut self) {
        self.moves.clear();
    }
}

impl Drop for UnknownMoves<'_> {
    fn drop(&mut self) {
        for (record, owner) in &self.moves {
            self.shards.forget_move(record, *owner);
        }
    }
}
