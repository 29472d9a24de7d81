//! Opening the directories of shards that are added, attached or restored while the store is open.

use std::{iter, path::Path, sync::Arc};

#[cfg(feature = "memory")]
use super::memory::memory_inner;
use super::{
    archive::place_of as place_in_copy,
    claim,
    declared::declare_shard,
    open::refused,
    rebuild::nameless,
    shard::{open_files, open_shard},
};
use crate::{
    engine::{
        DeclaredShard, Durability, Options,
        lmdb::{self, SharedJournal},
    },
    model::{
        error::{Error, Result},
        shard::{MapKind, ShardNumber},
    },
    placement::shards::{
        Changed, Identity, ManagerRecords, MoveRecord, OwnRanges, Seen, Shard, ShardRecord,
        ShardState, encoded, options_of, write_moves,
    },
    store::{Inner, Shards, shared},
};

/// Opens the directory of a shard that is added while the store is open, and records it. The shard has the options of the
/// first shard, and the journal of all shards.
///
/// If it can't be opened, the store stays without it.
pub(crate) fn open_added<'e>(
    engine: &'e Shards,
    name: &str,
    directory: &Path,
) -> Result<AddedShard<'e>> {
    let Some(manager) = engine.manager() else {
        #[cfg(feature = "memory")]
        return Ok(AddedShard { inner: Some(memory_inner()), recorded: None });
        #[cfg(not(feature = "memory"))]
        return Err(Error::no_file());
    };
    let missing = || Error::internal("a sharded store without records");
    let known = manager.read()?.ok_or_else(missing)?;
    let mut records = ManagerRecords { maps: engine.declared_maps(), ..known.clone() };
    let first = known.shards.first().ok_or_else(missing)?;
    let (name, place) = (name.to_owned(), directory.to_owned());
    let options = Some(options_of(&first.options));
    let declared = DeclaredShard { name, place, options, added: true };
    declare_shard(&declared, &Options::default(), &mut records, false)?;
    records.own.version += 1;
    let path = engine.directory();
    claim::put_new(&path, &records, &known)?;
    let mut added = AddedShard { inner: None, recorded: Some((engine, known, records.clone())) };
    manager.write(&records)?;
    added.inner = Some(open_and_join(engine, &mut records)?);
    // The shard has its own record. After the manager has it as open, no opening of the store would remove the file.
    if let Some(record) = records.shards.last() {
        claim::remove(&path, record);
    }
    manager.write(&records)?;
    Ok(added)
}

/// A shard that is being added. Without [`keep`](Self::keep), the records of the manager become those without the shard.
pub(crate) struct AddedShard<'e> {
    inner: Option<Arc<Inner>>,
    /// The records without the shard and those with it, if the store has a manager.
    recorded: Option<(&'e Shards, ManagerRecords, ManagerRecords)>,
}

impl AddedShard<'_> {
    pub(crate) fn open(&self) -> Result<Arc<Inner>> {
        self.inner.clone().ok_or_else(Error::no_file)
    }

    /// The store has the shard.
    pub(crate) fn keep(mut self) {
        self.recorded = None;
    }
}

impl Drop for AddedShard<'_> {
    fn drop(&mut self) {
        drop(self.inner.take());
        let Some((engine, known, records)) = self.recorded.take() else { return };
        let Some(manager) = engine.manager() else { return };
        let known = ManagerRecords { maps: engine.declared_maps(), ..known };
        // If this fails, the next opening of the store has the shard.
        if manager.write(&known).is_ok() {
            claim::remove_new(&engine.directory(), &records, &known);
        }
    }
}

/// Opens a shard in the directory of a follower, which has the first base of the shard. Returns the name of the shard, too.
pub(crate) fn open_followed(
    engine: &Shards,
    number: ShardNumber,
) -> Result<(Arc<str>, Arc<Inner>)> {
    let missing = || Error::internal("a follower without records");
    let manager = engine.manager().ok_or_else(Error::no_file)?;
    let mut records = manager.read()?.ok_or_else(missing)?;
    // A shard that the original could not add is not listed.
    let record = records.shards.get(number as usize).cloned().unwrap_or_else(|| ShardRecord {
        name: nameless(number),
        place: place_in_copy(number),
        state: ShardState::New,
        options: Vec::new(),
    });
    let options = Options { follower: true, ..Options::default() };
    let path = engine.directory();
    let (inner, _) = open_files(&options, &mut records, (number, &record), &path, None)?;
    Ok((Arc::from(record.name), inner))
}

/// Opens the directory of a shard that was detached, and adds it to the journal. Returns the records of the manager with the
/// shard, which the caller writes, with the new identity of the shard and its ranges.
pub(crate) fn open_attached(
    engine: &Shards,
    name: &str,
    directory: &Path,
) -> Result<(Arc<Inner>, ManagerRecords, Identity, Vec<Changed>)> {
    let what = format!("shard `{name}`");
    let missing = || Error::internal("a sharded store without records");
    let Some(place) = directory.to_str() else {
        return Err(refused(&what, "its directory is not UTF-8"));
    };
    let manager = engine.manager().ok_or_else(Error::no_file)?;
    let mut records = manager.read()?.ok_or_else(missing)?;
    records.maps = engine.declared_maps();
    let path = engine.directory();
    let is_own = |record: &ShardRecord| record.is_removed() && record.name == name;
    let number = records.shards.iter().rposition(is_own);
    let Some(number) = number.and_then(|at| ShardNumber::try_from(at).ok()) else {
        let all = (0..).zip(&records.shards).filter(|(_, record)| record.is_removed());
        let nameless = all.filter(|(number, record)| record.name == nameless(*number));
        let names: Vec<_> = nameless.map(|(_, record)| format!("`{}`", record.name)).collect();
        let mut reason = "the store has not had such a shard, or it is not detached".to_owned();
        if !names.is_empty() {
            reason = format!(
                "{reason}; the names of detached shards that were not given when the shard map manager was rebuilt are {}",
                names.join(", ")
            );
        }
        return Err(refused(&what, &reason));
    };
    let record = records.shards.get_mut(number as usize).ok_or_else(missing)?;
    // The rows are compared with the ranges.
    let earlier = std::mem::replace(&mut record.place, place.to_owned());
    record.state = ShardState::Rebuilt;
    let record = record.clone();
    let member = member(engine);
    let journal = member.map(|_| SharedJournal::running(&path, records.own.id));
    let options = Options::default();
    let (inner, identity, seen) =
        open_shard(&options, &mut records, number, &record, &path, journal.as_ref())?;
    let before = seen.as_ref().map(Seen::identity).cloned().ok_or_else(missing)?;
    let mut changed: Vec<Changed> = Vec::new();
    // A detached shard keeps its ranges and listed keys only. If a process ended before the commit that detaches it,
    // its record has other keys.
    let is_kept = |own: &OwnRanges| own.kind != MapKind::Hashed && !own.map.contains('.');
    for own in before.maps.into_iter().filter(is_kept) {
        let Some(map) = records.maps.get_mut(&own.map) else { continue };
        for (start, end) in &own.ranges {
            if !map.boundaries.shards_within(start, end.as_deref()).is_empty() {
                let reason =
                    format!("another shard has keys of its range of shard map `{}`", own.map);
                return Err(refused(&what, &reason));
            }
            map.boundaries.assign(start, end.as_deref(), Some(number));
        }
        if !own.ranges.is_empty() {
            let (map, boundaries) = (own.map, map.boundaries.clone());
            changed.push(Changed { map, boundaries, keeps_rows: true });
        }
    }
    if let (Some(own), Some(member)) = (inner.engines.lmdb(), member) {
        if earlier != place {
            // If the process ends before the shard is attached, opening the store completes its files in this place.
            let mut known = manager.read()?.ok_or_else(missing)?;
            if let Some(record) = known.shards.get_mut(number as usize) {
                place.clone_into(&mut record.place);
            }
            manager.write(&known)?;
        }
        own.join_journal(number, member, true)?;
    }
    if let Some(record) = records.shards.get_mut(number as usize) {
        record.state = ShardState::Open;
    }
    records.own.version += 1;
    let checked = identity.and_then(|identity| identity.checked).or_else(|| Some(Vec::new()));
    let directory = inner.engines.directory();
    let mut identity = records.identity(number, name, &path, &directory, checked);
    // The commit that attaches the shard replaces this list.
    identity.removed.push(number);
    Ok((inner, records, identity, changed))
}

/// Opens the last shard of the records, and adds it to the journal.
fn open_and_join(engine: &Shards, records: &mut ManagerRecords) -> Result<Arc<Inner>> {
    let path = engine.directory();
    let record = records.shards.last().cloned().ok_or_else(|| Error::internal("no shards"))?;
    let number = ShardNumber::try_from(records.shards.len() - 1).unwrap_or(ShardNumber::MAX);
    let member = member(engine);
    let journal = member.map(|_| SharedJournal::running(&path, records.own.id));
    let options = Options::default();
    let opened = open_shard(&options, records, number, &record, &path, journal.as_ref());
    let (inner, identity, _) = opened?;
    if let (Some(own), Some(member)) = (inner.engines.lmdb(), member) {
        own.join_journal(number, member, false)?;
    }
    if let Some(identity) = identity {
        identity.write(inner.engine()?)?;
    }
    if let Some(record) = records.shards.last_mut() {
        record.state = ShardState::Open;
    }
    records.own.version += 1;
    Ok(inner)
}

/// Opens the copy of a backup beside the place of its shard, without the journal of all shards, and makes the own record of
/// the backup that of the shard. `records` has the current shard maps, and `moves` are the unfinished moves. Returns the moves
/// in the record of the backup, too.
pub(crate) fn open_copy(
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    moves: &[MoveRecord],
    (manager, place, copy): (&Path, &Path, &Path),
) -> Result<(Arc<Inner>, Vec<MoveRecord>)> {
    let own = options_of(&record.options);
    // A journal that is not that of all shards shows that the file lacks no commits of the other one.
    let durability = match own.used_durability() {
        Durability::Full | Durability::Journal => Durability::Journal,
        Durability::Relaxed | Durability::None => Durability::Full,
    };
    let own = Options { create: false, ..own.durability(durability) };
    let inner = shared::open_shard(&own, copy, None)?;
    let of_backup = Seen::read(inner.engine()?)?.map_or(Ok(Vec::new()), |seen| seen.moves())?;
    // The rows are those of the backup, so each table is checked when it is opened.
    let identity = records.identity(number, &record.name, manager, place, Some(Vec::new()));
    identity.write(inner.engine()?)?;
    let of_shard = |moving: &&MoveRecord| [moving.from, moving.to].contains(&number);
    write_moves(inner.engine()?, &moves.iter().filter(of_shard).collect::<Vec<_>>())?;
    Ok((inner, of_backup))
}

/// Returns a shard that writes the journal of all shards; `None` if the journal is not running.
fn member(engine: &Shards) -> Option<&lmdb::Engine> {
    engine.engines().find_map(|engine| engine.lmdb().filter(|own| own.has_shared_journal()))
}

/// Prepares the journal of all shards for a shard from a backup. If no shard with this journal is available, the journal is not
/// running, and still has the records of all shards.
pub(crate) fn leave_records(engine: &Shards, records: &ManagerRecords) -> Result<()> {
    if member(engine).is_some() {
        return Ok(());
    }
    SharedJournal::leave_records(&engine.directory(), records.own.id)
}

/// Opens a shard whose files were restored while the store is open, and adds it to the journal of all shards, which is started if
/// it is not running. `records` has the current shard maps.
pub(crate) fn open_restored(
    engine: &Shards,
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
) -> Result<Arc<Inner>> {
    let options = Options::default();
    let directory = engine.directory();
    let member = member(engine);
    let journal = match member {
        Some(_) => SharedJournal::running(&directory, records.own.id),
        None => SharedJournal::open(&directory, records.own.id)?,
    };
    let mut of_shard = records.clone();
    let opened = open_shard(&options, &mut of_shard, number, record, &directory, Some(&journal));
    // The own record was written before.
    let (inner, ..) = opened?;
    match (inner.engines.lmdb(), member) {
        (Some(own), Some(member)) => own.join_journal(number, member, true)?,
        (Some(own), None) => start_journal(engine, &journal, (number, own), records)?,
        (None, _) => {}
    }
    Ok(inner)
}

/// Starts the journal of all shards with a restored shard. The records that were left for its lost directory stay until the shard
/// is available.
fn start_journal(
    engine: &Shards,
    journal: &SharedJournal,
    restored: (ShardNumber, &lmdb::Engine),
    records: &ManagerRecords,
) -> Result<()> {
    let manager = engine.manager().ok_or_else(Error::no_file)?;
    let is_missing =
        |(_, shard): &(ShardNumber, &Shard)| shard.opened().is_err() && !shard.is_gone();
    let missing: Vec<_> = engine.shards().filter(is_missing).map(|(number, _)| number).collect();
    let (shards, options) = (iter::once(restored), manager.options());
    let archive = journal.begin_with(shards, (&missing, &[]), &options, &encoded(records)?)?;
    if let Some(archive) = archive {
        manager.set_archive(archive);
    }
    Ok(())
}
