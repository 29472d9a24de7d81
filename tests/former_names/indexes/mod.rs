//! Indexes with a new name and an equal definition: they are renamed, and no row is read.

mod excluded;
mod files;
mod kept;
mod later;
mod people;
mod shards;

use index_table::Store;

/// Returns the names of the recorded indexes of a table, with their states.
pub(crate) fn states(store: &Store, table: &str) -> index_table::Result<Vec<String>> {
    let tables = store.catalog()?.tables;
    let indexes = tables.iter().filter(|it| it.name == table).flat_map(|it| &it.indexes);
    Ok(indexes.map(|index| format!("{} {}", index.name, index.state)).collect())
}
