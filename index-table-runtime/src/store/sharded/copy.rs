//! Copies of sharded stores.
//!
//! A copy is a directory with the shard map manager, and with a subdirectory for each shard. The copied manager has the
//! new directories of the shards. Everything else is as in the original. The identities of the manager and the shards
//! don't change, so a single shard can be restored from a copy.

use std::{fs::File, path::Path, time::Instant};

use super::{
    super::{
        copy::{Modes, Partial, at_path},
        making::Making,
    },
    ShardId, Store,
    open::{manager_options, refused},
    shards_of,
};
use crate::{
    engine::{
        CopyKind, DataFile, Engine as AnyEngine, Options,
        files::{self, DATA_FILE, LOCK_FILE},
        lmdb::Pinned,
    },
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{Manager, PinnedShards, ShardState},
    store::Shards,
    usage::Progress,
};

/// Copies all shards at one instant.
pub(in crate::store) fn copy_shards(
    shards: &Shards,
    path: &Path,
    making: &mut Making<'_>,
) -> Result<()> {
    let io = |source| Error::io(path, source);
    let manager = shards.manager().ok_or_else(Error::no_file)?;
    // The manager and the shards have the same moves.
    let _held = shards.hold_moves();
    let PinnedShards { shards: pinned, maps } = shards.pin()?;
    let mut records = manager.read()?.ok_or_else(|| Error::internal("a manager has no records"))?;
    // The manager may be ahead of the pinned commits, or behind them: shards are added, removed, detached and attached
    // meanwhile.
    for (name, map) in &mut records.maps {
        if let Some(pinned) = maps.get(name) {
            *map = pinned.declared();
        }
    }
    for (number, record) in (0..).zip(&mut records.shards) {
        let is_pinned = maps.shards().contains(&number);
        record.state = match record.state {
            _ if !is_pinned => ShardState::Removed,
            ShardState::Removed => ShardState::Open,
            state => state,
        };
        record.confirm();
        // No file of the original is a file of the copy.
        record.place = format!("shard.{number}");
    }
    let partial = Partial::create(path).map_err(io)?;
    let mut copying = Copying::new(&pinned, making);
    // Shards that have left the store keep their records, and so the others their numbers.
    for (number, shard) in &pinned {
        let record = records.shards.get(*number as usize);
        let record = record.ok_or_else(|| Error::internal("a shard without a record"))?;
        let directory = partial.0.join(&record.place);
        let modes = Modes::of(shard.directory());
        files::create_directory(&directory).map_err(io)?;
        let file = match copying.making.kind {
            CopyKind::Whole => copying.copy(shard, &directory),
            CopyKind::Compact => copying.compact(shard, &directory, &partial.0),
        };
        let file = file.and_then(|file| {
            copying.making.check(&directory, shard.directory())?;
            Ok(file)
        });
        let file = file.map_err(|error| at_path(error, path))?;
        modes.apply(&file, &directory).map_err(io)?;
        file.sync_all().map_err(io)?;
        files::sync_directory(&directory).map_err(io)?;
    }
    drop(pinned);
    let modes = Modes::of(&shards.directory());
    let file = files::create_file(&partial.0.join(DATA_FILE)).map_err(io)?;
    let copied = manager.engine().on_disk()?.pin().and_then(|it| it.copy(&file, &mut |_| Ok(())));
    copied.map_err(|error| at_path(error, path))?;
    records.own.version += 1;
    let own = Manager::new(AnyEngine::open(&manager_options(), &partial.0)?, None);
    own.write(&records)?;
    if making.checks {
        making.check_source(own.engine())?;
        own.check_lists()?;
    }
    close(own, &partial.0)?;
    modes.apply(&file, &partial.0).map_err(io)?;
    file.sync_all().map_err(io)?;
    partial.finish(path).map_err(io)
}

/// Closes an engine in a copy, and removes its lock file.
pub(in crate::store) fn close<T>(engine: T, directory: &Path) -> Result<()> {
    drop(engine);
    DataFile(directory).wait_until_closed();
    let file = directory.join(LOCK_FILE);
    std::fs::remove_file(&file).map_err(|source| Error::io(&file, source))
}

/// A copy with its progress.
struct Copying<'p, 'm> {
    making: &'p mut Making<'m>,
    start: Instant,
    copied: u64,
    total: u64,
}

impl<'p, 'm> Copying<'p, 'm> {
    fn new(pinned: &[(ShardNumber, Pinned<'_>)], making: &'p mut Making<'m>) -> Self {
        let total = pinned.iter().map(|(_, shard)| shard.length()).sum();
        Self { making, start: Instant::now(), copied: 0, total }
    }

    /// Copies a shard to a directory, with its free pages.
    fn copy(&mut self, shard: &Pinned<'_>, directory: &Path) -> Result<File> {
        let path = directory.join(DATA_FILE);
        let file = files::create_file(&path).map_err(|source| Error::io(&path, source))?;
        shard.copy(&file, &mut |bytes| {
            self.copied += bytes;
            self.making.at(Progress::new("bytes", self.copied, Some(self.total), self.start))
        })?;
        Ok(file)
    }

    /// Copies a shard to a directory, without its free pages. First makes a copy with free pages, because LMDB can only
    /// compact the latest snapshot of a store, which may be newer than the pinned one.
    fn compact(&mut self, shard: &Pinned<'_>, directory: &Path, partial: &Path) -> Result<File> {
        let whole = partial.join("whole");
        files::create_directory(&whole).map_err(|source| Error::io(&whole, source))?;
        drop(self.copy(shard, &whole)?);
        let engine = AnyEngine::open(&Options::default().create(false).read_only(true), &whole)?;
        let path = directory.join(DATA_FILE);
        let file = files::create_file(&path).map_err(|source| Error::io(&path, source))?;
        let own = engine.on_disk()?;
        let checked = self.making.check_source(&engine);
        let at = Progress::new("bytes", self.copied, Some(self.total), self.start);
        let copied = checked.and_then(|()| own.compact(&file, &mut |_| self.making.at(at)));
        copied.map_err(|error| match error {
            // The damage is in the file of the shard. The copy is removed.
            Error::DamagedFile { reason, .. } => {
                Error::DamagedFile { path: shard.directory().to_owned(), reason }
            }
            error => error,
        })?;
        close(engine, &whole)?;
        std::fs::remove_dir_all(&whole).map_err(|source| Error::io(&whole, source))?;
        Ok(file)
    }
}

impl Store {
    /// Copies the last snapshot of one shard to the directory `path`, which must not exist, while others write. The copy is a
    /// plain store, from which [`restore_shard`](Store::restore_shard) restores the shard.
    ///
    /// The copy has the shard's rows and the entries of global indexes in it, but no rows or entries of other shards. So
    /// transactions across several shards may be complete in the other shards only.
    /// [`backup_to`](crate::Store::backup_to) copies all shards at one instant.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: an unfinished move has the shard as its source or target.
    /// [`Error::ShardUnavailable`]. The errors of [`backup_to`](crate::Store::backup_to).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "customers", shard_by = tenant)]
    /// struct Customer {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     id: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    /// # let store = Store::options()
    /// #     .shard("north", "north")
    /// #     .shard("south", "south")
    /// #     .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    /// #     .open(&path)?;
    /// # let customers = CustomerRepository::open(&store)?;
    /// # store.transaction(|txn| customers.insert(txn, &Customer { tenant: 107, id: 1 }))?;
    /// let south = store.shard("south")?;
    /// store.backup_shard(&south, &backup)?;
    /// # drop((store, customers));
    /// # std::fs::remove_dir_all(path.join("south")).unwrap();
    ///
    /// // The disk of the shard is lost.
    /// let store = Store::open(&path)?;
    /// let customers = CustomerRepository::open(&store)?;
    /// store.restore_shard(&store.shard("south")?, &backup)?;
    /// assert_eq!(customers.find_by_tenant(&store.read()?, 107).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup_shard(&self, shard: &ShardId, path: impl AsRef<Path>) -> Result<()> {
        let number = self.number_of(shard)?;
        let Some(shards) = shards_of(self)? else { return self.backup_to(path) };
        // The copy would wait for this thread's write transaction.
        self.inner.refuse_nested_write()?;
        let _held = shards.hold_moves();
        let moves = shards.moves();
        let mut records = moves.iter().map(|moving| &moving.record);
        if let Some(moving) = records.find(|it| [it.from, it.to].contains(&number)) {
            let id = moving.id;
            let reason = format!("it has the unfinished move {id}; resume or cancel it");
            return Err(refused(&format!("the backup of shard `{shard}`"), &reason));
        }
        shards.member(number)?.store()?.backup_to(path)
    }
}
