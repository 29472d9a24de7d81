//! The records for a shard that is not available, in a separate file: a journal of one segment, with the
//! state of the shard and its records.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    block::{Block, head_of},
    files::{self, SHARED, Segment, Segments},
    found::{Found, copy},
    frame::Salt,
    log::{self, Log},
    not_started::NotStarted,
};

/// Returns the name of the file of a shard.
pub(super) fn name(shard: u32) -> String {
    format!("{SHARED}.left.{shard}")
}

fn path(directory: &Path, shard: u32) -> PathBuf {
    directory.join(name(shard))
}

/// Reads the records that the journal with this identity has left for a shard.
pub(super) fn read(
    directory: &Path,
    identity: &[u8; 16],
    shard: u32,
) -> Result<Option<Found>, NotStarted> {
    let segment = Segment::open(&path(directory, shard))?;
    let block = Block::read(&segment.head()?).filter(|block| {
        block.salt.identity == *identity && block.salt.sequence == 0 && block.saved(shard).is_some()
    });
    Ok(block.map(|block| Found::of(vec![segment], block, true)).transpose()?)
}

/// Writes the state and the records of a shard, and makes them durable.
pub(super) fn write(directory: &Path, found: &Found, shard: u32) -> Result<(), NotStarted> {
    let Some(saved) = found.checkpoint.saved(shard) else { return Ok(()) };
    let path = path(directory, shard);
    remove(directory, shard)?;
    let file = files::create_one(directory, &path)?;
    let files = Arc::new(Segments::new(std::iter::once(path), vec![file])?);
    let salt = Salt { sequence: 0, ..found.checkpoint.salt };
    let record = found.checkpoint.record;
    let mut log = Log::new(Arc::clone(&files), salt, record, head_of(1))?;
    for record in found.records_after(shard, saved.number)? {
        copy(found, record, |section| section.shard == shard, &mut log)?;
    }
    log.sync()?;
    let block = Block { salt, record, link: 0, time: log::now(), shards: vec![saved.clone()] };
    log::put_block(files.first(), &block)?;
    Ok(files::sync_directory(directory)?)
}

/// Removes the file of a shard.
pub(in crate::engine::lmdb) fn remove(directory: &Path, shard: u32) -> io::Result<()> {
    match fs::remove_file(path(directory, shard)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
