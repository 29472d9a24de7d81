//! Opening a store that exists: a plain or a sharded one.

use std::path::Path;

use index_table::{
    __private::admin::{RecordedTables, UntypedTable},
    Error, ShardedStore, Store,
};

use crate::failure::Failure;

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// `None` for a plain store.
    pub(crate) sharded: Option<ShardedStore>,
}

impl Opened {
    /// Opens a store for reading.
    pub(crate) fn to_read(path: &Path) -> Result<Self, Failure> {
        Self::open(path, true)
    }

    /// Opens a store for writing.
    pub(crate) fn to_write(path: &Path) -> Result<Self, Failure> {
        Self::open(path, false)
    }

    fn open(path: &Path, read_only: bool) -> Result<Self, Failure> {
        if !path.is_dir() {
            return Err(Failure::not_found(format!(
                "there is no directory `{}`; give the directory of a store",
                path.display()
            )));
        }
        if !path.join("data.mdb").exists() {
            return Err(Error::StoreNotFound { path: path.to_owned() }.into());
        }
        match ShardedStore::options().create(false).read_only(read_only).open(path) {
            Ok(sharded) => Ok(Self { store: Store::clone(&sharded), sharded: Some(sharded) }),
            // The directory has no shard map manager.
            Err(Error::StoreNotFound { .. }) => {
                let store = Store::options().create(false).read_only(read_only).open(path)?;
                Ok(Self { store, sharded: None })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the sharded store.
    pub(crate) fn shards(&self) -> Result<&ShardedStore, Failure> {
        self.sharded.as_ref().ok_or_else(|| {
            Failure::not_found("the store has no shards; `sizes` and `tables` show its contents")
        })
    }

    /// Returns the shards that are not available, each with the reason.
    pub(crate) fn missing_shards(&self) -> Vec<String> {
        let missing = self.sharded.iter().flat_map(ShardedStore::unavailable_shards);
        missing
            .map(|(shard, reason)| format!("shard `{shard}` is not available: {reason}"))
            .collect()
    }
}

/// Returns the table with this name.
pub(crate) fn table<'t>(
    tables: &'t RecordedTables,
    name: &str,
) -> Result<&'t UntypedTable, Failure> {
    if let Some(table) = tables.tables.iter().find(|table| table.name() == name) {
        return Ok(table);
    }
    if let Some((_, reason)) = tables.skipped.iter().find(|(skipped, _)| skipped == name) {
        return Err(Failure::not_found(format!("table `{name}` can't be opened: {reason}")));
    }
    let names = tables.tables.iter().map(UntypedTable::name);
    Err(unknown("table", name, names))
}

/// Returns the error for a name that does not exist.
pub(crate) fn unknown<'n>(what: &str, name: &str, names: impl Iterator<Item = &'n str>) -> Failure {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let known = match names.as_slice() {
        [] => "there is none".to_owned(),
        names => format!("there is {}", names.join(", ")),
    };
    Failure::not_found(format!("there is no {what} `{name}`; {known}"))
}
