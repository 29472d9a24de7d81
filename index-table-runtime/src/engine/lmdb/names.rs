//! The files of a store, the databases in its data file, and their types.

use heed::types::Bytes;

pub(crate) use super::handle::Env;
pub(super) type Database<'d> = heed::Database<'d, Bytes, Bytes>;

pub(crate) use crate::engine::files::{DATA_FILE as FILE, LOCK_FILE};
use crate::model::schema::QUEUE;

pub(super) const CATALOG: &str = ".catalog";
/// The records of a shard map manager.
pub(super) const SHARDS: &str = ".shards";
/// The own records of a shard.
pub(super) const SHARD: &str = ".shard";
/// The second copies of the records of lists, by the names of their tables.
pub(super) const LIST_COPIES: &str = ".lists";
pub(super) const SEQUENCES: &str = ".sequences";

/// Returns the name of a table's queue.
pub(super) fn queue_of(table: &str) -> String {
    format!("{QUEUE}{table}")
}

/// Returns the name of an index.
pub(super) fn index_of(table: &str, index: &str) -> String {
    format!("{table}.{index}")
}

/// Returns the names of the databases that belong to a table alone.
pub(super) fn databases_of<'i>(
    table: &str,
    has_queue: bool,
    indexes: impl Iterator<Item = &'i str>,
) -> Vec<String> {
    let queue = has_queue.then(|| queue_of(table));
    let facts_and_queue = [table.to_owned()].into_iter().chain(queue);
    facts_and_queue.chain(indexes.map(|index| index_of(table, index))).collect()
}
