//! The marker of a data file that LMDB has not opened.

use std::{fs::File, io, path::Path};

use super::{
    block::Block,
    files::{self, OWN, Segment},
    frame::Salt,
    marker::{self, Journalled, Marker},
    not_started::NotStarted,
    presence::FileLock,
    snapshot::last_number,
};
use crate::engine::{files as modes, lmdb::names::FILE};

/// Opens the data file for access without LMDB.
pub(in crate::engine::lmdb) fn data(directory: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(directory.join(FILE))
}

/// Returns the marker of the data file in a directory. A missing file has no marker.
pub(in crate::engine::lmdb) fn marker_of(directory: &Path) -> Result<Marker, NotStarted> {
    let file = match File::open(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marker::None),
        file => file?,
    };
    match marker::find(&file)? {
        Some(marker) => Ok(marker),
        None => interrupted_marker(directory),
    }
}

/// Returns the number of the last transaction in the data file of a directory; `None` if there is none.
pub(in crate::engine::lmdb) fn last_number_of(directory: &Path) -> Result<Option<u64>, NotStarted> {
    match File::open(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(last_number(&file?)?),
    }
}

/// Returns the marker of a data file if the write of its marker was interrupted. The data file was complete and durable
/// before this write, so it has all commits whether its journal is applied or not.
fn interrupted_marker(directory: &Path) -> Result<Marker, NotStarted> {
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    if heads.iter().any(|head| files::is_given_up(head)) {
        return Ok(Marker::None);
    }
    let blocks: Vec<_> = heads.iter().filter_map(|head| Block::read(head)).collect();
    let newest = blocks.iter().max_by_key(|block| (block.salt.epoch, block.salt.sequence));
    let newest = newest
        .map(|block| block.salt)
        .filter(|newest| blocks.iter().all(|block| block.salt.identity == newest.identity));
    let Some(Salt { identity, epoch, .. }) = newest else {
        let reason = "the record of the journal in data.mdb is damaged, and there is no journal";
        return Err(NotStarted::Damaged(reason.to_owned()));
    };
    Ok(Marker::Needed(Journalled::own(identity, epoch)))
}

/// Returns whether a directory has a plain store with a journal. A shard map manager that was opened as a plain store has a
/// journal too, beside that of all shards.
pub(in crate::engine::lmdb) fn has_own_journal(directory: &Path) -> Result<bool, NotStarted> {
    let is_marked = marker_of(directory)? != Marker::None;
    Ok(is_marked && !modes::exists(&files::path(directory, files::SHARED, 0))?)
}

/// Removes a journal that is not needed. Readers may have the store open, because they don't use the journal.
pub(in crate::engine::lmdb) fn give_up(directory: &Path) -> Result<(), NotStarted> {
    let data = data(directory)?;
    let first = Segment::open(&files::path(directory, OWN, 0))?;
    // Its writer may be closing the store.
    let _lock = match first.file().map(FileLock::take).transpose()? {
        Some(None) => return Err(NotStarted::Elsewhere),
        lock => lock.flatten(),
    };
    // Without the marker, the records would be evidence of later commits.
    files::give_up(directory)?;
    marker::put_durably(&data, Marker::None)?;
    files::remove(directory, 0);
    Ok(())
}
