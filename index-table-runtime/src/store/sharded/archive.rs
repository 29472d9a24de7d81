//! Restoring a sharded store from an archive.

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    super::copy::{Modes, Partial, at_path},
    copy::close,
    open::manager_options,
};
use crate::{
    engine::{
        CommitNumber, Engine as AnyEngine, Stamp,
        files::{self, DATA_FILE},
        lmdb::{Archive, Base, Until},
    },
    model::error::{Error, Result},
    placement::shards::{Manager, ManagerRecords, ShardRecord, ShardState},
    store::archive::Complete,
};

/// A function that can refuse a base before it is copied.
type Check<'c> = &'c mut dyn FnMut(&Base) -> Result<()>;

/// Restores a sharded store in the directory `path`. Calls `report` with the bytes that were read, and their total, and
/// before that `check` with a base.
pub(in crate::store) fn restore_shards(
    archive: &Archive,
    until: &Until,
    path: &Path,
    (report, check): (&mut dyn FnMut(u64, u64), Check<'_>),
    complete: Complete<'_>,
) -> Result<CommitNumber> {
    let io = |source| Error::io(path, source);
    let bases = archive.shard_bases(until, &needed)?;
    bases.iter().try_for_each(check)?;
    let total = archive.bytes_of_shards(&bases)?;
    let mut report = |bytes| report(bytes, total);
    let partial = Partial::create(path).map_err(io)?;
    let mut directories = Vec::with_capacity(bases.len());
    for base in &bases {
        let directory = partial.0.join(place_of(base.shard()));
        files::create_directory(&directory).map_err(io)?;
        let file = files::create_file(&directory.join(DATA_FILE)).map_err(io)?;
        archive.copy(base, (&file, path), &mut report)?;
        directories.push(directory);
    }
    let restored = archive.apply_to_shards(&bases, until, &directories, &mut report);
    let restored = restored.map_err(|error| match &error {
        Error::Io { path: failed, .. } | Error::DiskFull { path: failed, .. }
            if failed.starts_with(&partial.0) =>
        {
            at_path(error, path)
        }
        _ => error,
    })?;
    let lacks =
        |reason: String| Error::NotInArchive { path: archive.directory().to_owned(), reason };
    let records = ManagerRecords::decode(&restored.manager)?;
    let mut records = records.ok_or_else(|| lacks("it has no shard map manager".to_owned()))?;
    // No record refers to these shards, and they have no data files.
    records.remove_unused(|number, _| !restored.numbers.contains_key(&number));
    let mut numbers = BTreeMap::new();
    let mut stamps = vec![Stamp::default(); records.shards.len()];
    for number in needed(&restored.manager)? {
        if !restored.numbers.contains_key(&number) {
            return Err(lacks(format!(
                "it has no complete base of shard number {number}; restore a state before this shard was added, with `until` or \
                 `until_commit`"
            )));
        }
    }
    for (base, directory) in bases.iter().zip(&directories) {
        let record = records.shards.get_mut(base.shard() as usize);
        // Opening the store decides whether an unconfirmed shard was removed.
        let is_needed = |record: &&mut ShardRecord| !record.is_removed() || record.is_unconfirmed();
        let Some(record) = record.filter(is_needed) else {
            fs::remove_dir_all(directory).map_err(io)?;
            continue;
        };
        record.place = place_of(base.shard());
        let number = restored.numbers.get(&base.shard()).copied().unwrap_or_default();
        numbers.insert(base.shard(), number);
        if let Some(stamp) = stamps.get_mut(base.shard() as usize) {
            *stamp = Stamp::new(number);
        }
        let file = fs::File::options().write(true).open(directory.join(DATA_FILE)).map_err(io)?;
        Modes::of(&archive.base_directory(base)).apply(&file, directory).map_err(io)?;
        file.sync_all().map_err(io)?;
        files::sync_directory(directory).map_err(io)?;
    }
    records.own.version += 1;
    let manager = Manager::new(AnyEngine::open(&manager_options(), &partial.0)?, None);
    manager
        .write(&records)
        .and_then(|()| manager.copy_lists(&restored.manager))
        .map_err(|error| at_path(error, path))?;
    close(manager, &partial.0)?;
    let file = fs::File::options().write(true).open(partial.0.join(DATA_FILE)).map_err(io)?;
    Modes::of_archive(archive.directory()).apply(&file, &partial.0).map_err(io)?;
    file.sync_all().map_err(io)?;
    complete(&partial.0, &numbers)?;
    partial.finish(path).map_err(io)?;
    Ok(CommitNumber::of_shards(stamps))
}

/// Returns the first of these times to which all shards can be restored from one generation; `None` if there is none. A store can be
/// restored to no time before that of a base.
pub(in crate::store) fn first_restorable(
    archive: &Archive,
    generation: u64,
    mut times: Vec<u64>,
) -> Result<Option<u64>> {
    times.sort_unstable();
    for time in times {
        match archive.shard_bases(&Until::Time(time), &needed) {
            Ok(bases) if bases.iter().all(|base| base.generation == generation) => {
                return Ok(Some(time));
            }
            Ok(_) | Err(Error::NotInArchive { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the bases from which the last state of all shards is restored.
pub(in crate::store) fn last_bases(archive: &Archive) -> Result<Vec<Base>> {
    archive.shard_bases(&Until::End, &needed)
}

/// Returns the place of a shard in a restored store or a follower.
pub(in crate::store) fn place_of(shard: u32) -> String {
    format!("shard.{shard}")
}

/// Returns the shards that have rows.
fn needed(records: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<u32>> {
    let Some(records) = ManagerRecords::decode(records)? else { return Ok(Vec::new()) };
    let shards = (0..).zip(&records.shards);
    let needed = shards.filter(|(_, shard)| {
        !matches!(shard.state, ShardState::Removed | ShardState::New | ShardState::Adopted)
    });
    Ok(needed.map(|(number, _)| number).collect())
}
