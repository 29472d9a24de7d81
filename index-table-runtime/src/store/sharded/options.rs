use std::{
    io,
    path::{Path, PathBuf},
};

use super::ShardedStore;
use crate::{
    engine::{ArchiveFile, Durability, Options},
    model::{error::Result, shard::ShardMap},
};

/// The options to create or open a sharded store; from [`ShardedStore::options`].
///
/// Shards, shard maps and places are given when the store is created. The store records them, so
/// [`ShardedStore::open`] needs none of them. If they are given again, they must equal the recorded values. New maps
/// and places can be added.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until `open`"]
pub struct ShardedOptions {
    pub(super) shards: Vec<Declared>,
    /// The new places of shards.
    pub(super) relocated: Vec<(String, PathBuf)>,
    pub(super) maps: Vec<(String, ShardMap)>,
    pub(super) places: Vec<(String, String)>,
    pub(super) only: Option<Vec<String>>,
    pub(super) options: Options,
    /// Whether [`Durability::Full`] was given.
    pub(super) is_full: bool,
}

/// A declared shard.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) place: PathBuf,
    /// The options of this shard, or `None` for those of the store.
    pub(super) options: Option<Options>,
    pub(super) adopted: bool,
    /// The store may have been created without it.
    pub(super) added: bool,
}

impl ShardedOptions {
    /// Adds a shard in a directory of its own. The path is relative to the directory of the store, or absolute, for
    /// example on another disk. Tables without a shard key are in the first shard, unless they are
    /// [placed](ShardedOptions::place) in another shard.
    ///
    /// If the shard has been [removed](ShardedStore::remove_shard) or [detached](ShardedStore::detach_shard), this has
    /// no effect, so that a program can keep its declaration. Its ranges in [`map`](ShardedOptions::map) then have no
    /// effect either.
    ///
    /// If the store has the shard in another directory, because it was [attached](ShardedStore::attach_shard) or
    /// [relocated](ShardedOptions::relocate) there, opening the store fails with [`Error::ShardRefused`](crate::Error::ShardRefused), which names both
    /// directories. Declare the current directory, or don't declare the shard: the store records its shards.
    pub fn shard(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let (name, place) = (name.into(), directory.as_ref().to_owned());
        self.shards.push(Declared { name, place, options: None, adopted: false, added: false });
        self
    }

    /// Adds a shard to a store that may have been created without it, as its last shard. If the store has the shard
    /// already, or has removed or detached it in this directory, this has no effect.
    ///
    /// To add a shard while the store is in use, see [`ShardedStore::add_shard`].
    ///
    /// No existing shard map has keys in the new shard. New shard maps and places can name it, and it gets a copy of each
    /// reference table when the repository of the table is opened. If the store can't be opened with the new shard, it is
    /// left without it.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, ShardedStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("shop");
    /// let north = ShardedStore::options().shard("north", "north");
    /// drop(north.open(&path)?);
    ///
    /// let store = ShardedStore::options()
    ///     .add_shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(&path)?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    /// assert_eq!(orders.shard_of(&store, 107)?.name(), "south");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_shard(self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let mut own = self.shard(name, directory);
        if let Some(shard) = own.shards.last_mut() {
            shard.added = true;
        }
        own
    }

    /// Changes the directory of a shard, for example because its disk was replaced. Move the files while the store is
    /// closed, and open the store once with the new directory, which is then recorded. If the new directory does not
    /// have this shard, opening fails, and the store keeps the old directory. After that, a program that declares the
    /// shard has to declare the new directory.
    pub fn relocate(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        self.relocated.push((name.into(), directory.as_ref().to_owned()));
        self
    }

    /// Makes an existing plain store the first shard, without copying it. When the repository of a table is first
    /// opened, it checks that every row belongs to this shard.
    pub fn adopt(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let (name, place) = (name.into(), directory.as_ref().to_owned());
        self.shards.insert(0, Declared { name, place, options: None, adopted: true, added: false });
        self
    }

    /// Sets the options of the last added shard. Before the first shard, sets the options of the store: they apply to
    /// all shards without options of their own, and their [`Options::file_mode`] and `directory_mode` also apply to the
    /// shard map manager and the common journal.
    pub fn options(mut self, options: Options) -> Self {
        match self.shards.last_mut() {
            Some(shard) => shard.options = Some(options),
            None => self.options = options,
        }
        self
    }

    /// Sets the guarantee for a crash of the machine, in shards without their own
    /// [`options`](ShardedOptions::options).
    ///
    /// The default is [`Durability::Journal`], with a common journal in the directory of the store. Commits of
    /// different shards share the sync that makes them durable. [`Durability::Relaxed`] is the alternative. With
    /// [`Durability::Full`], [`open`](ShardedOptions::open) fails, because the journal is as durable with fewer syncs.
    /// In the [`options`](ShardedOptions::options) of a single shard, `Full` means the journal.
    ///
    /// A shard that is not available when the store is opened loses no commits. Its part of the journal is kept in a
    /// separate file until the shard is available again.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.is_full = durability == Durability::Full;
        self.options = self.options.durability(durability);
        self
    }

    /// Sets the directory of an archive of all shards and of the shard map manager. Default: none. All shards have one
    /// archive, because they have one journal, so each of them must have the journal. [`ShardedStore::restore_archive`]
    /// restores all of them as of any time or commit. Otherwise, the archive works like
    /// [`Options::archive`](crate::Options::archive).
    ///
    /// Each shard has bases of its own. When a shard is added, its first base is written. When a detached shard is
    /// attached again or a lost one is [restored](ShardedStore::restore_shard), or when a shard was written outside of
    /// the store, the archive continues after a gap, with new bases of all shards. A relative path is relative to the current directory.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, ShardedStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, archive, restored) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    /// let store = ShardedStore::options()
    ///     .shard("north", "north")
    ///     .shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .archive(&archive)
    ///     .open(&shop)?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    /// drop((orders, store));
    ///
    /// ShardedStore::restore_archive(&archive).run(&restored)?;
    /// let store = ShardedStore::open(&restored)?;
    /// assert_eq!(OrderRepository::open(&store)?.all(&store.read()?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive(mut self, directory: impl AsRef<Path>) -> Self {
        self.options = self.options.archive(directory);
        self
    }

    /// Gives up the archive of a store, like [`Options::without_archive`](crate::Options::without_archive). The archive of
    /// a plain store that is [adopted](ShardedOptions::adopt) is given up too.
    pub fn without_archive(mut self) -> Self {
        self.options = self.options.without_archive();
        self
    }

    /// Sets a function that gets the files of an archive, like [`archive_with`](crate::Options::archive_with).
    pub fn archive_with(
        mut self,
        function: impl Fn(ArchiveFile<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.options = self.options.archive_with(function);
        self
    }

    /// Adds a shard map. A table uses the map with its own name, unless its declaration has `shard_map`.
    pub fn map(mut self, name: impl Into<String>, map: impl Into<ShardMap>) -> Self {
        self.maps.push((name.into(), map.into()));
        self
    }

    /// Places a table without a shard key in a shard. The default is the first shard.
    ///
    /// A table of parts (`#[table(part_of = …)]`) can be placed in another shard than the main rows. Then, a transaction that
    /// writes a part, or deletes a main row, locks both shards.
    pub fn place(mut self, table: impl Into<String>, shard: impl Into<String>) -> Self {
        self.places.push((table.into(), shard.into()));
        self
    }

    /// Opens only these shards. Queries that need other shards fail with
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable).
    pub fn only<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.only = Some(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether a missing store is created. Default: `true`. Without shards, no store is created.
    pub fn create(mut self, create: bool) -> Self {
        self.options = self.options.create(create);
        self
    }

    /// Sets whether the store is opened only for reading. Default: `false`. If another process writes to the store,
    /// a snapshot of each shard is consistent, but snapshots of different shards may be from different instants.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options = self.options.read_only(read_only);
        self
    }

    /// Opens the sharded store in the directory `path`, or creates it. The directory has the shard map
    /// manager.
    ///
    /// # Errors
    ///
    /// The errors of [`ShardedStore::open`]. [`Error::ShardRefused`](crate::Error::ShardRefused): shards, maps or
    /// places are invalid, or differ from those of the store.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<ShardedStore> {
        super::open::open(self, path.as_ref())
    }

    /// Returns a sharded store in memory with these shards, maps and places, for tests. Directories and options are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`](crate::Error::ShardRefused): shards, maps or places are invalid.
    #[cfg(feature = "memory")]
    pub fn in_memory(&self) -> Result<ShardedStore> {
        super::memory::in_memory(self)
    }
}
