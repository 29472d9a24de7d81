//! The copy of a backup that takes the place of a lost shard.
//!
//! The backup is copied to the directory `.{name}.restored` beside the place of the shard, where `{name}` is the last part of
//! the place. There, everything is prepared for which the shard is not available. Then the directory is renamed to its place.
//! This is the only step that changes the store, and it is a single step. A process can end at any time:
//!
//! | step | state after the step |
//! |---|---|
//! | copies that an earlier process has left are removed | the shard is not available |
//! | the backup is copied | the same; the copy is left, and the next call removes it, or the next opening of the store for writing in which the shard is available |
//! | the store has the unfinished moves of the backup that only lost shards have recorded, in memory | the same |
//! | the copy gets the own record of the shard, in which no table is checked, and the unfinished moves | the same |
//! | its rows are compared with the shard maps | the same |
//! | its parts of all global indexes are emptied, and recorded as emptied | the same |
//! | it gets the current rows of the reference tables | the same |
//! | the tables in use are opened in it | the same |
//! | it is closed, so that it is complete without a journal | the same |
//! | its last commit gets a number that the shard has never had, which the shard map manager keeps | the same |
//! | if the journal of all shards is not running, because no shard with it is available: it leaves its records in `shards.journal.left.{number}` | the same |
//! | it is renamed | the next opening of the store has the shard |
//! | the shard joins the journal of all shards, or starts it | the same |
//! | processes that read the store have to open it again (`writer.lock`): they can have the lost files open, and have found the indexes readable | the same |
//! | the tables in use are opened in its place | the same |
//! | the global indexes of these tables are emptied in the other shards, in one transaction | the same |
//! | `shards.journal.left.{number}` is removed | the same; otherwise, the next start of the journal removes it |
//! | the shard is available in this process, and the global indexes are built | the restoration is complete |
//!
//! A global index is readable if no shard records it as emptied. So from the renaming until the index is built, it is not
//! readable in any process. Processes that have opened the store before fail with `ReopenNeeded`. The next opening of its
//! repository for writing builds it. Since no table is recorded as checked, this
//! opening also compares the rows and the consumers of change streams, and raises the numbers.
//!
//! The records in `shards.journal.left.{number}` belong to the lost directory. The copy never gets them: its marker names
//! a journal of its own, and then an epoch of the common journal that is later than that of the file. If the shard can't be
//! opened in its place, the journal makes a checkpoint without it, and the directory is renamed back and removed. So the lost
//! directory can still come back, and gets its records.

use std::{
    fs, io,
    path::{Path, PathBuf},
    slice,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::super::{
    build,
    copies::Copies,
    recorded::described,
    shards::{foreign_row, open_in},
};
use crate::{
    engine::{Conflicts, DataFile, Marked, files},
    model::{
        error::{Error, Result},
        row_vtable::TableRows,
        schema,
        shard::ShardNumber,
    },
    placement::{
        Reader, Writer,
        shards::{Manager, ManagerRecords, MoveRecord, Shard, ShardRecord, TableRecord},
    },
    store::{Member, OpenTable, Shards, Store, left_copies, name_of_copy, open_copy, transaction},
};

/// More commits than a shard has between its backup, or an earlier restoration, and its loss.
pub(super) const COMMITS: u64 = 1 << 40;

/// The copy of a backup. Its directory is removed, unless it gets into its place.
pub(super) struct ShardCopy {
    directory: PathBuf,
    place: PathBuf,
}

impl ShardCopy {
    /// Copies a backup to a directory beside the place of its shard. Removes the copies that killed processes have left there:
    /// only the process that writes the store restores a shard.
    pub(super) fn new(backup: &Path, place: &Path) -> Result<Self> {
        let io = |source| Error::io(place, source);
        let name = place.file_name().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
        let beside = name_of_copy(name);
        let parent = files::parent(place);
        files::create_directories(parent, crate::engine::DIRECTORY_MODE).map_err(io)?;
        let parent = parent.canonicalize().map_err(io)?;
        for left in left_copies(&parent, slice::from_ref(&beside)).map_err(io)? {
            fs::remove_dir_all(left).map_err(io)?;
        }
        let copy = Self { directory: parent.join(beside), place: parent.join(name) };
        Store::open_backup(backup)?.copy_of_member(&copy.directory)?;
        Ok(copy)
    }

    /// Makes the copy a shard of the store that can be opened, without the journal of all shards.
    pub(super) fn prepare(
        &self,
        store: &Store,
        shards: &Shards,
        records: &ManagerRecords,
        (number, record): (ShardNumber, &ShardRecord),
        in_use: &[Arc<OpenTable>],
    ) -> Result<()> {
        let moves: Vec<_> = shards.moves().iter().map(|moving| moving.record.clone()).collect();
        let directories = (&*shards.directory(), &*self.place, &*self.directory);
        let (inner, of_backup) = open_copy(records, (number, record), &moves, directories)?;
        let shard = Shard::open(Arc::from(&*record.name), Arc::clone(inner.engine()?));
        let member = shards.coming(&shard, &inner);
        let prepared = refuse_part_of_move(shards, (number, shard.name()), &of_backup, &moves)
            .and_then(|()| prepare_tables(store, shards, (number, &member)))
            .and_then(|()| copy_references(shards, (number, &member), in_use))
            .and_then(|()| open_tables(shards, (number, &member), in_use));
        drop((shard, inner));
        DataFile(&self.directory).wait_until_closed();
        prepared?;
        if matches!(DataFile(&self.directory).marked()?, Marked::Complete) {
            return Ok(());
        }
        let source = io::Error::other("the copy of the backup could not be closed completely");
        Err(Error::io(&self.directory, source))
    }

    /// Gives the last commit of the copy a number that the shard has never had. The manager keeps the number, for the next
    /// restoration.
    pub(super) fn raise_number(
        &self,
        manager: &Manager,
        (shard, record): (ShardNumber, &ShardRecord),
    ) -> Result<()> {
        let copy = DataFile(&self.directory);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let number = new_number(copy.last_number()?, record.restored(), now);
        copy.raise_number(number)?;
        manager.change_shard(shard, &|record| record.set_restored(number))
    }

    /// Renames the copy to the place of its shard.
    pub(super) fn take_place(&self) -> Result<()> {
        let io = |source| Error::io(&self.place, source);
        files::sync_directory(&self.directory).map_err(io)?;
        // Fails if the place exists by now, and is not an empty directory.
        fs::rename(&self.directory, &self.place).map_err(io)?;
        // A crash could undo the renaming.
        let synced = files::sync_directory(files::parent(&self.place));
        synced.inspect_err(|_| self.leave_place()).map_err(io)
    }

    /// Renames the directory back, so that it is removed. It must not be open.
    pub(super) fn leave_place(&self) {
        DataFile(&self.place).wait_until_closed();
        // The first error is returned.
        let _ = fs::rename(&self.place, &self.directory)
            .and_then(|()| files::sync_directory(files::parent(&self.place)));
    }
}

impl Drop for ShardCopy {
    fn drop(&mut self) {
        // The first error is returned. The next call, or a later opening of the store, removes the directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns a number that no commit of a shard has had, from the number of the last commit in the backup, the number that the shard
/// got when it was last restored, and the time since 1970. The lost files had the numbers of later commits.
///
/// A shard has fewer commits than microseconds, so the time is a later number than all of its numbers, also if the manager was
/// rebuilt. With a clock that was set back, the distance to the other numbers is enough.
pub(super) fn new_number(backup: u64, restored: Option<u64>, now: Duration) -> u64 {
    let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    now.max(backup.max(restored.unwrap_or_default()).saturating_add(COMMITS))
}

fn refused(shard: &str, reason: String) -> Error {
    Error::ShardRefused { what: format!("shard `{shard}`"), reason }
}

/// Refuses a backup with a part of the rows of a move that has given its keys to the shard since. If the move was cancelled,
/// the rows belong to another shard.
fn refuse_part_of_move(
    shards: &Shards,
    (number, name): (ShardNumber, &str),
    of_backup: &[MoveRecord],
    moves: &[MoveRecord],
) -> Result<()> {
    let is_unfinished = |own: &MoveRecord| moves.iter().any(|moving| moving.id == own.id);
    let has_keys = |own: &MoveRecord| {
        let boundaries = shards.boundaries(&own.map);
        boundaries.is_none_or(|boundaries| {
            boundaries.shards_within(&own.start, own.end.as_deref()).contains(&number)
        })
    };
    let mut ended = of_backup.iter().filter(|own| {
        own.copier() == number && own.to == number && !is_unfinished(own) && has_keys(own)
    });
    ended.next().map_or(Ok(()), |own| {
        let reason = format!(
            "the backup has a part of the rows that move {} has copied to the shard, and the move has ended since: restore a \
             backup from before or after the move",
            own.id
        );
        Err(refused(name, reason))
    })
}

/// Checks that the rows of all tables in a copy belong to its shard, and empties its parts of global indexes. The tables are
/// read as the catalog describes them, because their repositories may not be open.
fn prepare_tables(
    store: &Store,
    shards: &Shards,
    (number, shard): (ShardNumber, &Member<'_>),
) -> Result<()> {
    let (own, engine) = (shard.store()?, shard.engine()?);
    for (table, record) in engine.catalog()?.iter().filter(|(name, _)| !name.contains('.')) {
        let unreadable =
            |reason| refused(shard.name(), format!("its table `{table}` can't be read: {reason}"));
        let rows = &own.rows_of(described(store, table, record).map_err(unreadable)?)?;
        let global = schema::TableRecord::read(record).map_err(unreadable)?.global();
        check_rows(shards, (number, shard), rows)?;
        let mut conflicts = Conflicts::default();
        let attempt = || {
            engine
                .open_table(rows.schema, rows.parts(), false, &mut |writer| {
                    build::empty(rows, &mut Writer::One(writer), global)
                })
                .map(drop)
        };
        transaction::run(attempt, |retry| {
            transaction::prepare(&own.inner.engines, retry, &mut conflicts)
        })?;
    }
    Ok(())
}

/// Checks that the rows of a table belong to the shard.
fn check_rows(
    shards: &Shards,
    (number, shard): (ShardNumber, &Member<'_>),
    rows: &TableRows,
) -> Result<()> {
    let name = rows.schema.name;
    // If the location of its rows is not known, they are checked when the repository is opened.
    if matches!(shards.location_of(name), None | Some(TableRecord::Reference)) {
        return Ok(());
    }
    let (engine, routing) = (shard.engine()?, shards.routing(rows.schema, rows.distribution)?);
    let Some(tables) = engine.find_table(rows.schema, rows.parts())? else { return Ok(()) };
    let txn = engine.read()?;
    let reader = txn.reader(&tables).map(Reader::One);
    let reader = reader.ok_or_else(|| Error::internal("a table of another engine"))?;
    let Some((primary_key, own)) = foreign_row(shards, number, &routing, reader)? else {
        return Ok(());
    };
    let place = match own {
        Some(own) => format!("shard `{}`", shards.shard(own)?.name()),
        None => "no shard".to_owned(),
    };
    let key = rows.schema.show_primary_key(&primary_key);
    let reason = format!(
        "the row with primary key {key} of table `{name}` is in the backup, and belongs to {place} now, because its key was \
         moved since: restore a later backup, or copy the backup with `Store::restore`, delete the rows of other shards in \
         the copy, and restore the copy"
    );
    Err(refused(shard.name(), reason))
}

/// Replaces the rows of the reference tables by the current ones, which can't change while the shard is not available. Before
/// that, checks that no row of the copy refers to a row that was deleted since.
fn copy_references(
    shards: &Shards,
    (number, shard): (ShardNumber, &Member<'_>),
    in_use: &[Arc<OpenTable>],
) -> Result<()> {
    let mut references = Vec::new();
    for table in in_use {
        let Some(tables) = table.tables.several() else { continue };
        let (routing, copies) = (tables.routing(), &mut Copies::default());
        if !routing.is_reference() {
            continue;
        }
        let own = open_in(shards, number, shard, (&routing, copies), (&table.rows, false))?;
        let Some(own) = own else { continue };
        references.push((Copies::of(shards, table)?, own.table));
    }
    for (copies, own) in &references {
        let way_out = "restore a later backup, or copy the backup with `Store::restore`, change or delete the referring \
                       rows in the copy, and restore the copy";
        copies.check_references((&shard.store()?, own), (shard.name(), way_out))?;
    }
    references.iter().try_for_each(|(copies, own)| copies.replace(&shard.store()?, own))
}

/// Opens the tables in use in the copy, which builds and checks what was declared since the backup. Otherwise, an error would
/// come
/// after the copy has its place.
fn open_tables(
    shards: &Shards,
    (number, shard): (ShardNumber, &Member<'_>),
    in_use: &[Arc<OpenTable>],
) -> Result<()> {
    in_use.iter().try_for_each(|table| {
        let Some(tables) = table.tables.several() else { return Ok(()) };
        let (routing, copies) = (tables.routing(), &mut Copies::default());
        open_in(shards, number, shard, (&routing, copies), (&table.rows, false)).map(drop)
    })
}
