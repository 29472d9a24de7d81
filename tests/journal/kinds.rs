//! The options and the files of a store of each kind, with rows of several tenants.

use std::{
    fs,
    path::{Path, PathBuf},
};

use index_table::{Options, Result, Store};

pub(crate) use crate::shards::{NoteRepository, SHARDS, expect, note, write};
use crate::{Kind, shards};

/// Returns options with a journal that makes a checkpoint only when the store is closed.
pub(crate) fn options(kind: Kind) -> Options {
    kind.of(crate::options(), shards::options())
}

/// Returns options with a journal that makes a checkpoint every few commits.
pub(crate) fn many_checkpoints(kind: Kind) -> Options {
    kind.of(crate::many_checkpoints(), shards::many_checkpoints())
}

pub(crate) fn open(options: &Options, path: &Path) -> Result<(Store, NoteRepository)> {
    let store = options.open(path)?;
    let notes = NoteRepository::open(&store)?;
    Ok((store, notes))
}

/// Creates a store and its table, and opens it again: the journal is empty, and all data files are complete.
pub(crate) fn created(kind: Kind, path: &Path) -> Result<(Store, NoteRepository)> {
    drop(open(&options(kind), path)?);
    open(&options(kind), path)
}

/// Runs a step in a transaction of each tenant.
pub(crate) fn write_each(store: &Store, notes: &NoteRepository, step: u32) -> Result<()> {
    (0..SHARDS).try_for_each(|tenant| write(store, notes, tenant, step))
}

/// Returns the data files with rows.
pub(crate) fn data_files(kind: Kind, store: &Path) -> Vec<PathBuf> {
    let of_shards = (0..SHARDS).map(|shard| shards::data_of(store, shard)).collect();
    kind.of(vec![store.join("data.mdb")], of_shards)
}

/// Returns the files of the journal.
pub(crate) fn journal(kind: Kind, store: &Path) -> [PathBuf; 3] {
    [0, 1, 2].map(|at| store.join(format!("{}.{at}", kind.of("journal", "shards.journal"))))
}

/// Returns the number of the segment in a file of the journal.
pub(crate) fn segment(file: &Path) -> std::io::Result<u64> {
    let word = fs::read(file)?.get(48..56).and_then(|word| word.try_into().ok());
    Ok(word.map_or(0, u64::from_le_bytes))
}
