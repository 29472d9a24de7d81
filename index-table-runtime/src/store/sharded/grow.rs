//! A store with one data file that gets a second one, while it is used.
//!
//! The store becomes a store with one shard, `main`, in its own directory. Its shard map manager is an environment in the directory
//! [`GROWN`] of the store. It is not in the first data file, because it is written while a thread has the turns to write all
//! shards, in an order of its own. Then the store gets further shards like any other store with shards.
//!
//! | step | after a crash, the next process finds |
//! |---|---|
//! | the manager is written in [`PARTIAL`], and renamed | a store with one data file; the next growth replaces the manager |
//! | its own journal commits the own record of `main`, with the id of the manager | a store with one shard, whose data file has a journal of its own, which is applied |
//! | `writer.lock` is created, and the tables in use are opened in the shard | the same |
//! | with the turn to write: the journal of the data file is completed and ended | the same, with a complete data file |
//! | the journal of all shards is started | a store with one shard |
//!
//! `FORMAT.md` has the bytes of each state, in "Growing".

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    super::copy::Modes,
    MAIN,
    archive::place_of as place_in_copy,
    belonging::{has_manager, read_manager},
    open::{LOCK, OPEN, lock, manager_options, refused},
    rebuild,
};
use crate::{
    engine::{
        self, DataFile, Durability, FILE_MODE, Options,
        files::{self, DATA_FILE},
    },
    model::error::{Error, Result},
    placement::shards::{
        self, FIRST, HERE, Identity, Manager, ManagerRecords, Seen, Shard, ShardRecord, ShardState,
        encoded, recorded,
    },
    store::{Engines, Inner, Shards, Store, shared},
};

/// The directory of the shard map manager of a store that has grown.
pub(super) const GROWN: &str = "shards.manager";

/// The directory in which the manager is written. A process that is killed leaves it, and the next growth removes it.
pub(super) const PARTIAL: &str = ".shards.manager.partial";

/// Returns the directory of the environment of the shard map manager: a directory of its own if the store has grown, and
/// otherwise that of the store.
pub(super) fn manager_of(path: &Path) -> Result<PathBuf> {
    let grown = path.join(GROWN);
    let exists = files::exists(&grown.join(DATA_FILE));
    let exists = exists.map_err(|source| Error::opening(path, source))?;
    Ok(if exists { grown } else { path.to_owned() })
}

/// Whether a directory has a store with one data file. The lock of a store with shards is not there.
pub(in crate::store) fn has_one_file(path: &Path) -> Result<bool> {
    let exists = files::exists(&path.join(DATA_FILE));
    let exists = exists.map_err(|source| Error::opening(path, source))?;
    Ok(exists && !has_manager(path))
}

/// A store with one data file that becomes a store with one shard.
pub(crate) struct Growing {
    /// The engines of the store from now on.
    engines: Engines,
    options: Options,
    path: PathBuf,
    main: Arc<Inner>,
}

impl Growing {
    /// Writes the shard map manager, and the own record of the first shard. The caller has the lock of opening tables.
    ///
    /// # Errors
    ///
    /// [`Error::NotOffered`]: the store has no data file, or `Durability::Full`. The errors of the system. After an error, the
    /// store has one data file for this process; a call continues where the last one has ended.
    pub(crate) fn begin(store: &Store) -> Result<Self> {
        let inner = &store.inner;
        let engine =
            inner.engines.one().ok_or_else(|| Error::internal("a store that has grown"))?;
        let Some(lmdb) = engine.lmdb() else { return Err(inner.engines.has_one_shard()) };
        if lmdb.durability().0 == Durability::Full {
            let what = "a second data file for a store with `Durability::Full`, because a commit in several data files needs the \
                        journal; open the store with `Durability::Journal`";
            return Err(Error::NotOffered { what });
        }
        let path = lmdb.directory().to_owned();
        let options = shared::options_of(&path, inner)?;
        // An earlier growth may not have been completed.
        let begun = Seen::read(engine)?.filter(|seen| !seen.is_plain());
        let records = if let Some(seen) = begun {
            known(&path, seen.identity())?
        } else {
            let records = new_records(&options);
            write(&records, &path, options.file_mode)?;
            records.identity(FIRST, MAIN, &path, &path, None).write(engine)?;
            records
        };
        // From now on, opening the directory returns this store.
        OPEN.lock().insert(path.clone(), Arc::downgrade(inner));
        let lock = lock(&path, options.file_mode)?;
        lmdb.watch_path(path.join(LOCK));
        let directory = path.join(GROWN);
        DataFile(&directory).wait_until_closed();
        let manager = engine::Engine::open(&manager_options(), &directory)?;
        let manager = Manager::new(manager, Some(lock));
        manager.set_options(&options);
        let main = Arc::new(Inner::of_grown(inner, engine, options.index_queue));
        let shard = Shard::open(Arc::from(MAIN), Arc::clone(engine));
        let ManagerRecords { maps, places, tables, .. } = records;
        let directory = Some(path.clone());
        let placement =
            shards::Engine::new(vec![shard], maps, places, directory, Some(manager), false);
        let stores = [Arc::clone(&main)];
        let shards = Shards::new(placement.with_tables(tables), stores, Arc::clone(&inner.lists));
        Ok(Self { engines: Engines::Several(Box::new(shards)), options, path, main })
    }

    /// Returns the engines of the store with one shard.
    pub(crate) const fn engines(&self) -> &Engines {
        &self.engines
    }

    /// Replaces the journal of the data file by that of all shards. Calls `switch` before another write transaction begins; then
    /// the store has shards.
    pub(crate) fn finish(self, store: &Store, switch: impl FnOnce() -> Result<()>) -> Result<()> {
        let Self { engines, options, path, main } = self;
        let missing = || Error::internal("a store that grows without a shard map manager");
        let Engines::Several(shards) = engines else { return Err(missing()) };
        let manager = shards.manager().ok_or_else(missing)?;
        let records = manager.read()?.ok_or_else(missing)?;
        let encoded = encoded(&records)?;
        let lmdb = main.engine()?.on_disk()?;
        let inner = &store.inner;
        let archive = lmdb.share_journal(records.own.id, &options, &encoded, || {
            switch()?;
            inner.engines.grow(shards);
            Ok(())
        })?;
        shared::is_shard_now(&path, &main);
        let grown = inner.engines.several().and_then(|shards| shards.manager());
        if let (Some(archive), Some(manager)) = (archive, grown) {
            manager.set_archive(archive);
        }
        Ok(())
    }
}

/// Returns the records of the manager of an earlier growth.
fn known(path: &Path, identity: &Identity) -> Result<ManagerRecords> {
    let records = read_manager(&path.join(GROWN))?;
    records.filter(|records| records.own.id == identity.manager).ok_or_else(|| {
        let reason = format!("it is shard `{}` of another store", identity.name);
        refused(&path.display().to_string(), &reason)
    })
}

/// Returns the records of the manager of a store with one data file.
fn new_records(options: &Options) -> ManagerRecords {
    let (name, place) = (MAIN.to_owned(), HERE.to_owned());
    let record = ShardRecord { name, place, state: ShardState::Open, options: recorded(options) };
    let mut records = ManagerRecords::new();
    records.shards.push(record);
    records.own.version = 1;
    records
}

/// Makes the closed copy of a follower with one data file a copy with one shard. `manager` has the records with which the original
/// has grown. Before the rename, and if the process ends before, the copy has one data file.
pub(in crate::store) fn grow_copy(path: &Path, manager: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let missing = || Error::internal("an original that has grown without a shard map manager");
    let mut records = ManagerRecords::decode(manager)?.ok_or_else(missing)?;
    for (number, record) in (0..).zip(&mut records.shards) {
        if number == FIRST {
            HERE.clone_into(&mut record.place);
        } else {
            record.place = place_in_copy(number);
            if record.state == ShardState::Open {
                record.state = ShardState::New;
            }
        }
    }
    records.own.version += 1;
    let partial = write_partial(&records, path, FILE_MODE)?;
    let data = fs::File::options().write(true).open(partial.join(DATA_FILE));
    let applied = data.and_then(|data| Modes::of(path).apply(&data, &partial));
    applied.map_err(|source| Error::io(&partial, source))?;
    put(&partial, path)
}

/// Writes the manager in its directory. An earlier one belongs to a growth that was not committed.
fn write(records: &ManagerRecords, path: &Path, file_mode: u32) -> Result<()> {
    let partial = write_partial(records, path, file_mode)?;
    put(&partial, path)
}

/// Writes the manager in a directory with another name.
fn write_partial(records: &ManagerRecords, path: &Path, file_mode: u32) -> Result<PathBuf> {
    let partial = path.join(PARTIAL);
    [&partial, &path.join(GROWN)].into_iter().try_for_each(|earlier| rebuild::remove(earlier))?;
    rebuild::write(records, &partial, file_mode)?;
    Ok(partial)
}

fn put(partial: &Path, path: &Path) -> Result<()> {
    let directory = path.join(GROWN);
    let renamed = fs::rename(partial, &directory).and_then(|()| files::sync_directory(path));
    renamed.map_err(|source| Error::io(&directory, source))
}
