use std::path::{Path, PathBuf};

use super::ShardedStore;
use crate::{
    engine::{Durability, Options},
    model::{error::Result, shard::ShardMap},
};

/// How to create or open a sharded store; from [`ShardedStore::options`].
///
/// Shards, shard maps and places are kept by the store: they are given when it is created, and
/// [`ShardedStore::open`] needs none of them later. Where they are given again, they have to be those of the store,
/// or maps and places that it does not have yet.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until `open`"]
pub struct ShardedOptions {
    pub(super) shards: Vec<Declared>,
    pub(super) maps: Vec<(String, ShardMap)>,
    pub(super) places: Vec<(String, String)>,
    pub(super) only: Option<Vec<String>>,
    pub(super) options: Options,
    /// [`Durability::Full`] was given.
    pub(super) is_full: bool,
}

/// A shard as it is declared.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) place: PathBuf,
    /// `None`: those of the store.
    pub(super) options: Option<Options>,
    pub(super) adopted: bool,
}

impl ShardedOptions {
    /// Adds a shard in a directory of its own: relative to the directory of the store, or absolute, such as
    /// on another disk. The first shard has the tables without a shard key, unless they are
    /// [placed](ShardedOptions::place).
    pub fn shard(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let (name, place) = (name.into(), directory.as_ref().to_owned());
        self.shards.push(Declared { name, place, options: None, adopted: false });
        self
    }

    /// Makes an existing store the first shard, without copying it. Repositories of its tables check once
    /// that every row belongs to this shard.
    pub fn adopt(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let (name, place) = (name.into(), directory.as_ref().to_owned());
        self.shards.insert(0, Declared { name, place, options: None, adopted: true });
        self
    }

    /// Sets the options of the shard that was added last; before the first shard, those of all shards that have none of
    /// their own. The modes of the latter ([`Options::file_mode`]) are also those of the shard map manager and of the journal
    /// of all shards.
    pub fn options(mut self, options: Options) -> Self {
        match self.shards.last_mut() {
            Some(shard) => shard.options = Some(options),
            None => self.options = options,
        }
        self
    }

    /// Sets the guarantee for a crash of the machine, in shards without their own
    /// [`options`](ShardedOptions::options). Default: [`Durability::Journal`], with one journal for all
    /// shards in the directory of the store: commits of different shards share the sync that makes them
    /// durable. [`Durability::Relaxed`] is the other choice. [`Durability::Full`] is refused by
    /// [`open`](ShardedOptions::open), because the journal is as durable with fewer syncs; in the
    /// [`options`](ShardedOptions::options) of a shard it is the journal.
    ///
    /// A shard that is not available when the store is opened loses nothing: what the journal has for it is
    /// kept in a file of its own, as long as it was then, until the shard is back.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.is_full = durability == Durability::Full;
        self.options = self.options.durability(durability);
        self
    }

    /// Adds a shard map. A table has the map with its name, unless it is declared with `shard_map`.
    pub fn map(mut self, name: impl Into<String>, map: impl Into<ShardMap>) -> Self {
        self.maps.push((name.into(), map.into()));
        self
    }

    /// Puts a table without a shard key into a shard. Default: the first shard.
    pub fn place(mut self, table: impl Into<String>, shard: impl Into<String>) -> Self {
        self.places.push((table.into(), shard.into()));
        self
    }

    /// Opens these shards alone. Queries that need other shards fail with
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable).
    pub fn only<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.only = Some(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Whether a store is created where there is none. Default: `true`, if shards are given.
    pub fn create(mut self, create: bool) -> Self {
        self.options = self.options.create(create);
        self
    }

    /// Whether the store is opened for reading alone. Default: `false`. Another process may write it
    /// meanwhile; each shard is consistent by itself then.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options = self.options.read_only(read_only);
        self
    }

    /// Opens the sharded store in the directory `path`, or creates it. The directory has the shard map
    /// manager.
    ///
    /// # Errors
    ///
    /// As [`ShardedStore::open`]; [`Error::ShardRefused`](crate::Error::ShardRefused) when shards, maps or
    /// places are not those of the store, or can't be as they are declared.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<ShardedStore> {
        super::open::open(self, path.as_ref())
    }

    /// Returns a sharded store in memory with these shards, maps and places, for tests. Directories and
    /// options have no effect.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`](crate::Error::ShardRefused) when they can't be as they are declared.
    #[cfg(feature = "memory")]
    pub fn in_memory(&self) -> Result<ShardedStore> {
        super::open::in_memory(self)
    }
}
