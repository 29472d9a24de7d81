//! The files of a store, the databases in its data file, and their types.

use heed::types::Bytes;

pub(super) type Env = heed::Env<heed::WithoutTls>;
pub(super) type Database<'d> = heed::Database<'d, Bytes, Bytes>;

pub(super) const FILE: &str = "data.mdb";
pub(super) const LOCK_FILE: &str = "lock.mdb";

pub(super) const CATALOG: &str = ".catalog";
pub(super) const SEQUENCES: &str = ".sequences";

/// The name of a table's queue.
pub(super) fn queue_of(table: &str) -> String {
    format!(".queue.{table}")
}

/// The name of an index.
pub(super) fn index_of(table: &str, index: &str) -> String {
    format!("{table}.{index}")
}

/// The names of a table's own databases.
pub(super) fn databases_of<'i>(
    table: &str,
    has_queue: bool,
    indexes: impl Iterator<Item = &'i str>,
) -> Vec<String> {
    let queue = has_queue.then(|| queue_of(table));
    let own = [table.to_owned()].into_iter().chain(queue);
    own.chain(indexes.map(|index| index_of(table, index))).collect()
}
