//! The file in the directory of a new shard that states that the directory belongs to a store.
//!
//! The shard map manager has a new shard before the data file of the shard has its own record. If the process ends in between,
//! the next opening of the store completes the shard. Until then, a plain store in this directory would get rows, and the
//! store would refuse them. So the directory gets this file before the manager has the shard. The file is removed when the
//! shard has its own record, which [refuses](super::belonging) a plain store too.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::Path,
};

use super::open::refused;
use crate::{
    engine::{DataFile, Marked, files},
    model::error::{Error, Result},
    placement::shards::{ManagerRecords, ShardRecord, ShardState, options_of, place_of},
};

/// The name of the file, which has the directory of the shard map manager.
const NAME: &str = "shard.new";

/// Claims the directories of the shards that `known` lacks, before the manager in a directory has them.
pub(super) fn put_new(
    manager: &Path,
    records: &ManagerRecords,
    known: &ManagerRecords,
) -> Result<()> {
    let put = of_new(records, known).try_for_each(|record| put(manager, record));
    put.inspect_err(|_| remove_new(manager, records, known))
}

/// Removes the files again, after the manager was set back to `known`.
pub(super) fn remove_new(manager: &Path, records: &ManagerRecords, known: &ManagerRecords) {
    of_new(records, known).for_each(|record| remove(manager, record));
}

fn of_new<'r>(
    records: &'r ManagerRecords,
    known: &ManagerRecords,
) -> impl Iterator<Item = &'r ShardRecord> {
    let added = records.shards.iter().skip(known.shards.len());
    added.filter(|record| record.state == ShardState::New)
}

fn put(manager: &Path, record: &ShardRecord) -> Result<()> {
    let place = place_of(manager, &record.place);
    let options = options_of(&record.options);
    files::create_directories(&place, options.directory_mode)
        .map_err(|source| Error::opening(&place, source))?;
    // Otherwise, adding the shard is refused, or the directory has the record of the shard.
    if DataFile(&place).has_tables()? || !matches!(DataFile(&place).marked()?, Marked::Complete) {
        return Ok(());
    }
    let io = |source| Error::io(&place, source);
    // A killed process may have left it.
    let mut open = File::options();
    open.write(true).create(true).truncate(true);
    let mut file =
        files::open_or_create(&mut open, &place.join(NAME), options.file_mode).map_err(io)?;
    file.write_all(manager.as_os_str().as_encoded_bytes()).map_err(io)?;
    files::sync_directory(&place).map_err(io)
}

/// Removes the file, because the shard has its own record. If the file is there again after a power failure, it has no effect.
pub(super) fn remove(manager: &Path, record: &ShardRecord) {
    let _ = fs::remove_file(place_of(manager, &record.place).join(NAME));
}

/// Fails if the directory belongs to a store to which it was being added as a shard, or if that can't be read.
pub(in crate::store) fn refuse_new_shard(path: &Path) -> Result<()> {
    let manager = match fs::read(path.join(NAME)) {
        Ok(manager) => manager,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(source) => return Err(Error::opening(path, source)),
    };
    if DataFile(path).has_tables()? {
        return Ok(());
    }
    let reason = format!(
        "a process that was adding it as a shard to the sharded store in `{}` is running or was killed; open that store, which \
         completes the shard; if it has no such shard, add the shard again, or remove the file `{NAME}` from this directory",
        String::from_utf8_lossy(&manager)
    );
    Err(refused(&format!("`{}`", path.display()), &reason))
}
