use std::{fmt::Debug, path::Path};

use super::{Store, shared};
use crate::error::Result;

/// What survives a crash of the machine. A crash of the process loses nothing that was committed
/// in any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A commit returns when it is on disk: two syncs. The default.
    #[default]
    Full,
    /// One sync a commit: the machine's crash may lose the last commit, no more, and the store
    /// stays consistent (LMDB's `MDB_NOMETASYNC`).
    Relaxed,
    /// No sync: the machine's crash may lose the last commits, or damage the store where the
    /// file system does not keep the order of writes (LMDB's `MDB_NOSYNC`). For data that can be
    /// made again.
    None,
}

/// See [`Options::map_size`].
pub(crate) const DEFAULT_MAP_SIZE: usize = match 1_usize.checked_shl(40) {
    Some(size) => size,
    None => 1 << 29,
};

/// How to open a store; from [`Store::options`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "options do nothing until `open`"]
pub struct Options {
    pub(crate) map_size: usize,
    pub(crate) max_map_size: usize,
    pub(crate) durability: Durability,
    pub(crate) max_databases: u32,
    pub(crate) max_readers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            map_size: DEFAULT_MAP_SIZE,
            max_map_size: usize::MAX,
            durability: Durability::Full,
            max_databases: 64,
            max_readers: 126,
        }
    }
}

impl Options {
    /// How much of the file is mapped, in bytes; rounded up to whole pages. Default: 1 TiB, or as much
    /// as the process is allowed, on 32-bit machines 512 MiB.
    ///
    /// It is address space, neither memory nor disk: the file grows as it is filled. When it is full,
    /// [`Store::transaction`] maps twice as much and runs again, and a transaction from
    /// [`Store::write`] gets [`Error::MapFull`](crate::Error::MapFull). A file that is larger already
    /// is mapped as a whole.
    pub fn map_size(mut self, bytes: usize) -> Self {
        self.map_size = bytes;
        self
    }

    /// The most that this process lets the map grow to, in bytes, which limits the file as well.
    /// Default: what the address space has.
    pub fn max_map_size(mut self, bytes: usize) -> Self {
        self.max_map_size = bytes;
        self
    }

    /// What survives a crash of the machine. Default: [`Durability::Full`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The most tables and indexes together. Default: 64. Each costs every transaction
    /// some 50 bytes that are cleared: with 128, a transaction for one `get` takes 11,400
    /// instructions instead of 8,300.
    pub fn max_databases(mut self, databases: u32) -> Self {
        self.max_databases = databases;
        self
    }

    /// The most read transactions at the same time, of all processes. Default: 126. The process
    /// that opens the store first decides.
    pub fn max_readers(mut self, readers: u32) -> Self {
        self.max_readers = readers;
        self
    }

    /// Opens the store in the directory `path`, which is created if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        shared::open(self, path.as_ref()).map(|inner| Store { inner })
    }

    /// The first option in which `other` is different: its name, and both values.
    pub(super) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let Self { map_size, max_map_size, durability, max_databases, max_readers } = self;
        let options: [(_, &dyn Debug, &dyn Debug); _] = [
            ("map_size", map_size, &other.map_size),
            ("max_map_size", max_map_size, &other.max_map_size),
            ("durability", durability, &other.durability),
            ("max_databases", max_databases, &other.max_databases),
            ("max_readers", max_readers, &other.max_readers),
        ];
        options
            .into_iter()
            .map(|(name, own, other)| (name, format!("{own:?}"), format!("{other:?}")))
            .find(|(_, own, other)| own != other)
    }
}
