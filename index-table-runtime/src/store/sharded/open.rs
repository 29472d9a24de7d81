//! Opening a store with shards: the lock of its writer, and the shard map manager.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    Store, claim,
    declared::{declare, unknown},
    grow::manager_of,
    leftovers,
    shard::durable,
    shards::open_shards,
};
use crate::{
    engine::{self, DataFile, Durability, Options, files, lmdb},
    locks::{Mutex, OfProcess, Unshared, rank},
    model::error::{Error, Result},
    placement::shards::{self, Manager, ManagerRecords, Observed, WriterLock},
    store::{Engines, Inner, Shards},
};

/// The lock file of the process that writes the store.
pub(in crate::store) const LOCK: &str = files::WRITER_LOCK;

/// The map size of the manager. It has a few hundred bytes for each shard and each boundary of a shard map.
const MANAGER_MAP: usize = 1 << 26;

/// The maximum time to wait for another process that recovers the shards.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a reader opens a store whose rows another process moves, and the pause in between.
const READ_ONLY_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// The open stores of this process, by the canonical paths of their directories.
pub(super) static OPEN: OfProcess<Mutex<BTreeMap<PathBuf, Weak<Inner>>, rank::ShardedStores>> =
    OfProcess::new(Mutex::default);

pub(in crate::store) fn open(options: &Options, path: &Path) -> Result<Store> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    durable(options.clone()).check().map_err(io)?;
    let mut of_shards = options.declared.shards.iter().filter_map(|shard| shard.options.as_ref());
    if of_shards.any(Options::has_archive) {
        let what = "an archive of a single shard; set the archive in the options of the store";
        return Err(Error::NotOffered { what });
    }
    if options.durability == Some(Durability::Full) {
        let what = "`Durability::Full` for shards, each of which would sync its own data file twice for each \
                    commit: with `Durability::Journal`, which is the default, a commit is on the disk as well \
                    when it returns, after one sync for all shards";
        return Err(Error::NotOffered { what });
    }
    let creates = options.creates() && options.declared.shards.iter().any(|shard| !shard.added);
    if creates {
        files::create_directories(path, options.directory_mode)
            .map_err(|source| Error::opening(path, source))?;
    }
    let path = path.canonicalize().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::StoreNotFound { path: path.to_owned() },
        _ => Error::opening(path, source),
    })?;
    DataFile(&path).refuse_inherited()?;
    let mut stores = OPEN.lock();
    if let Some(inner) = stores.get(&path).and_then(Weak::upgrade) {
        if !options.declared.is_empty() || options.read_only != inner.engines.is_read_only() {
            let reason = "in this process; clone the `Store`, or open it without options";
            return Err(Error::AlreadyOpen { path, reason: reason.to_owned() });
        }
        if options.archive.as_ref().is_some_and(|it| !lmdb::known::has_archive(&path, it)) {
            let reason = "in this process, with another archive or without an archive; drop all handles to it first";
            return Err(Error::AlreadyOpen { path, reason: reason.to_owned() });
        }
        return Ok(Store { inner });
    }
    DataFile(&path).wait_until_closed();
    DataFile(&manager_of(&path)?).wait_until_closed();
    stores.retain(|_, open| open.strong_count() > 0);
    let (mut tries, began) = (0..READ_ONLY_TRIES, Instant::now());
    let mut is_last = false;
    let shards = loop {
        match open_all(options, &path, creates) {
            // The manager was read before a step of a move, and a shard after it.
            Err(Error::ReopenNeeded { .. }) if tries.next().is_some() => thread::sleep(PAUSE),
            // Another process is recovering the shards.
            Err(Error::RecoveryNeeded { .. }) if began.elapsed() < PATIENCE && !is_last => {
                // It may have ended before this try.
                is_last = !is_locked(&path);
                thread::sleep(PAUSE);
            }
            opened => break opened?,
        }
    };
    let engines = Engines::Several(Box::new(shards));
    let inner = Arc::new(Inner::new(engines, options.index_queue));
    #[cfg(feature = "async")]
    inner.calls.set_threads(options.async_threads);
    stores.insert(path, Arc::downgrade(&inner));
    Ok(Store { inner })
}

fn open_all(options: &Options, path: &Path, creates: bool) -> Result<Shards> {
    let read_only = options.read_only;
    // Opening must not create a manager.
    let exists = files::exists(&path.join("data.mdb"));
    if !creates && !exists.map_err(|source| Error::opening(path, source))? {
        return Err(Error::StoreNotFound { path: path.to_owned() });
    }
    DataFile(path).refuse_missing()?;
    if !read_only && !options.follower {
        lmdb::known::refuse_new(options, path)?;
    }
    let lock = (!read_only).then(|| lock(path, options.file_mode)).transpose()?;
    let observed = read_only.then(|| Observed::new(path.join(LOCK)));
    if !read_only && !options.follower {
        lmdb::known::check(options, path)?;
    }
    let directory = manager_of(path)?;
    // The first data file of a store that has grown can still have its own journal.
    if directory == path && DataFile(path).has_own_journal()? {
        return Err(if creates {
            plain(path)
        } else {
            Error::StoreNotFound { path: path.to_owned() }
        });
    }
    let manager =
        Options { create: creates, read_only, file_mode: options.file_mode, ..manager_options() };
    let manager = Manager::new(engine::Engine::open(&manager, &directory)?, lock);
    let before = manager.read()?;
    let is_new = before.is_none();
    let mut records = match before {
        Some(records) => records,
        None if !creates || read_only => {
            return Err(Error::StoreNotFound { path: path.to_owned() });
        }
        None => {
            if !manager.engine().catalog()?.is_empty() {
                return Err(plain(path));
            }
            ManagerRecords::new()
        }
    };
    let (known, version) = (records.clone(), records.own.version);
    declare(options, &mut records, is_new)?;
    if let Some(unknown) = unknown(options, &records) {
        return Err(refused(&format!("shard `{unknown}`"), "the store has no such shard"));
    }
    if records != known || is_new {
        if read_only {
            return Err(Error::ReadOnly { path: path.to_owned(), source: None });
        }
        records.own.version += 1;
        claim::put_new(path, &records, &known)?;
        manager.write(&records)?;
    }
    let changes_shards = !is_new && records.shards != known.shards;
    let declared = changes_shards.then(|| records.clone());
    match open_shards(options, path, &manager, records) {
        Ok((mut shards, records, found)) => {
            if options.follower {
                leave_out_added(&mut shards, records.clone(), path);
            } else if !read_only {
                leftovers::remove(path, &records, &shards);
            }
            let ManagerRecords { maps, places, tables, .. } = records;
            let directory = Some(path.to_owned());
            let is_follower = options.follower;
            let is_read_only = read_only || is_follower;
            let engine =
                shards::Engine::new(shards, maps, places, directory, Some(manager), is_read_only);
            let engine = engine.with_tables(tables).with_moves(found.moves);
            let engine = engine.with_hidden(found.hidden);
            if is_follower {
                engine.follow_own_records()?;
            }
            let placement = match observed {
                Some(observed) => engine.with_seen((version, observed), found.seen)?,
                None => engine,
            };
            Ok(Shards::new(placement, found.stores, Arc::default()))
        }
        Err(error) => {
            if let Some(declared) = declared {
                // A shard in a directory that can't be opened must not prevent the opening of the store.
                manager.write(&known)?;
                claim::remove_new(path, &declared, &known);
            }
            Err(error)
        }
    }
}

/// Leaves out the last shards of a follower that its original was adding, and that are not here yet. They have no keys. The follower
/// adds them with their first commits.
fn leave_out_added(shards: &mut Vec<shards::Shard>, mut records: ManagerRecords, path: &Path) {
    records.remove_unused(|number, record| {
        let is_here = files::exists(&shards::place_of(path, &record.place).join(files::DATA_FILE));
        let opened = shards.get(number as usize).map(shards::Shard::opened);
        opened.is_some_and(|opened| opened.is_err()) && is_here.is_ok_and(|is_here| !is_here)
    });
    shards.truncate(records.shards.len());
}

fn plain(path: &Path) -> Error {
    let reason = "it has one data file, the shard `main`; open it without `shard`, and add further shards with `add_shard`";
    refused(&path.display().to_string(), reason)
}

/// Returns the options of the environment of the manager.
pub(super) fn manager_options() -> Options {
    let options = Options { manager: true, ..Options::default() };
    // Readers of the store read the manager too, so it has no journal that must be recovered.
    options.durability(Durability::Full).map_size(MANAGER_MAP).max_databases(8)
}

/// Takes the lock of the process that writes the store. Waits for a reader that recovers the shards, at most for
/// [`PATIENCE`].
///
/// # Errors
///
/// [`Error::AlreadyOpen`]: another process writes the store.
pub(super) fn lock(path: &Path, mode: u32) -> Result<WriterLock> {
    let file = path.join(LOCK);
    let io = |source| Error::Io { path: file.clone(), source };
    let mut open = File::options();
    open.read(true).write(true).create(true).truncate(false);
    let lock = files::open_or_create(&mut open, &file, mode).map_err(io)?;
    let (unshared, began) = (Unshared::new(&lock), Instant::now());
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(WriterLock::new(unshared, lock)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let writer = DataFile(path).writer();
        if writer.is_some() || began.elapsed() >= PATIENCE {
            let process = writer.map_or("another process".to_owned(), |id| format!("process {id}"));
            let reason = format!("in {process}, which writes it; open it with `read_only(true)`");
            return Err(Error::AlreadyOpen { path: path.to_owned(), reason });
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process has the lock of the process that writes the store.
fn is_locked(path: &Path) -> bool {
    File::open(path.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

pub(super) fn refused(what: &str, reason: &str) -> Error {
    Error::ShardRefused { what: what.to_owned(), reason: reason.to_owned() }
}
