//! The stores that this process has open. LMDB must not map a directory twice in a process, so all handles to
//! a directory share one environment.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    ptr,
    sync::{Arc, Weak},
};

use super::{Inner, Options};
use crate::{
    engine::{
        DataFile, Durability, Engine, PlaceInJournal,
        files::{self, FileId},
    },
    locks::{Mutex, OfProcess, rank},
    model::error::{Error, Result},
};

/// The open stores, by the canonical path of the directory.
static OPEN: OfProcess<Mutex<BTreeMap<PathBuf, Open>, rank::Stores>> =
    OfProcess::new(Mutex::default);

/// An open store, or a store that a thread is closing.
struct Open {
    inner: Weak<Inner>,
    options: Options,
    file: Option<FileId>,
    /// Whether a sharded store has opened it.
    is_shard: bool,
}

/// Opens the store in the directory `path`, or returns the store that this process has open there.
pub(super) fn open(options: &Options, path: &Path) -> Result<Arc<Inner>> {
    open_with(options, path, None, false)
}

/// Opens a shard, usually with the journal of all shards. A shard that this process has open as a plain store has its
/// own journal.
pub(super) fn open_shard(
    options: &Options,
    path: &Path,
    journal: Option<PlaceInJournal<'_>>,
) -> Result<Arc<Inner>> {
    open_with(options, path, journal, true)
}

/// Returns the options with which an open store was opened.
pub(super) fn options_of(path: &Path, inner: &Arc<Inner>) -> Result<Options> {
    let stores = OPEN.lock();
    let is_own = |open: &&Open| ptr::eq(open.inner.as_ptr(), Arc::as_ptr(inner));
    let open = stores.get(path).filter(is_own);
    open.map(|open| open.options.clone()).ok_or_else(|| Error::internal("a store that is not open"))
}

/// Notes that an open store is a shard of a store that has grown, with another handle.
pub(super) fn is_shard_now(path: &Path, shard: &Arc<Inner>) {
    if let Some(open) = OPEN.lock().get_mut(path) {
        (open.inner, open.is_shard) = (Arc::downgrade(shard), true);
    }
}

/// Calls `read` with the store in a directory, which is not written.
pub(super) fn read_apart<T>(path: &Path, read: impl FnOnce(&Engine) -> Result<T>) -> Result<T> {
    DataFile(path).refuse_inherited()?;
    let stores = OPEN.lock();
    let open = stores.get(path).and_then(Open::in_use);
    let outcome = if let Some(inner) = &open {
        inner.engine().and_then(|engine| read(engine))
    } else {
        DataFile(path).wait_until_closed();
        let engine = Engine::open(&Options::default().read_only(true), path)?;
        let outcome = read(&engine);
        drop(engine);
        DataFile(path).wait_until_closed();
        outcome
    };
    drop(stores);
    // If it is the last handle, closing the store takes the lock.
    drop(open);
    outcome
}

fn open_with(
    options: &Options,
    path: &Path,
    journal: Option<PlaceInJournal<'_>>,
    is_shard: bool,
) -> Result<Arc<Inner>> {
    let io = |source| Error::opening(path, source);
    if options.creates() {
        files::create_directories(path, options.directory_mode).map_err(io)?;
    }
    let path = path.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if !options.creates() => {
            Error::StoreNotFound { path: path.to_owned() }
        }
        _ => io(source),
    })?;
    DataFile(&path).refuse_inherited()?;
    let mut stores = OPEN.lock();
    if let Some(open) = stores.get(&path) {
        if let Some(inner) = open.in_use() {
            refuse_leaving(&inner, &path)?;
            // A detached shard is still open, and is attached again.
            let is_back = inner.engines.one().is_some_and(|engine| engine.has_left_journal());
            let is_joining =
                journal.is_some() && options.used_durability() == Durability::Journal && !is_back;
            let own = if open.is_shard && !is_shard {
                Some("as a shard of a sharded store; use the `Store`, or detach the shard")
            } else if is_joining {
                Some("and not as a shard; drop all handles to it first")
            } else {
                None
            };
            let difference = open.difference(&inner, options, &path);
            return match difference.or_else(|| own.map(ToOwned::to_owned)) {
                Some(reason) => {
                    let reason = format!("in this process, {reason}");
                    Err(Error::AlreadyOpen { path, reason })
                }
                None => Ok(inner),
            };
        }
        // The last handle was dropped, and its thread may still be closing the store.
        DataFile(&path).wait_until_closed();
    }
    refuse_alias(&stores, &path)?;
    forget_closed(&mut stores);
    let engine = match journal {
        None => Engine::open(options, &path)?,
        Some(PlaceInJournal(journal, shard)) => {
            Engine::open_shard(options, &path, (journal, shard))?
        }
    };
    let state = if is_shard { Inner::of_shard } else { Inner::new };
    let inner = Arc::new(state(engine.into(), options.index_queue));
    #[cfg(feature = "async")]
    inner.calls.set_threads(options.async_threads);
    let file = file_id(&path).ok();
    let open = Open { inner: Arc::downgrade(&inner), options: options.clone(), file, is_shard };
    stores.insert(path, open);
    Ok(inner)
}

/// Removes the stores to which there is no handle.
///
/// It does not upgrade weak references: the last handle could be dropped in the meantime, and its thread would return
/// before the files are closed.
fn forget_closed(stores: &mut BTreeMap<PathBuf, Open>) {
    // While a thread closes a store, a thread that opens it again must wait.
    stores.retain(|path, open| open.inner.strong_count() > 0 || DataFile(path).is_open());
}

/// Refuses a directory whose data file belongs to an open store: it was renamed, linked or mounted elsewhere.
fn refuse_alias(stores: &BTreeMap<PathBuf, Open>, path: &Path) -> Result<()> {
    let Ok(file) = file_id(path) else { return Ok(()) };
    for (other, open) in stores.iter().filter(|(_, open)| open.file == Some(file)) {
        if let Some(inner) = open.in_use() {
            refuse_leaving(&inner, path)?;
            let reason = format!(
                "in this process, as `{}`; clone the `Store`, or drop it first",
                other.display()
            );
            return Err(Error::AlreadyOpen { path: path.to_owned(), reason });
        }
        DataFile(other).wait_until_closed();
    }
    Ok(())
}

/// Refuses the directory of a detached shard while transactions use it.
fn refuse_leaving(inner: &Inner, path: &Path) -> Result<()> {
    if inner.engines.one().is_some_and(|engine| engine.is_leaving()) {
        let reason = "in this process: it was a shard of a sharded store, and transactions that began before it was \
                      detached or removed still use it; end them first";
        return Err(Error::AlreadyOpen { path: path.to_owned(), reason: reason.to_owned() });
    }
    Ok(())
}

impl Open {
    /// Returns the store, unless its files are closed.
    fn in_use(&self) -> Option<Arc<Inner>> {
        let is_closed =
            |inner: &Arc<Inner>| inner.engines.one().is_some_and(|engine| engine.is_closed());
        self.inner.upgrade().filter(|inner| !is_closed(inner))
    }

    /// Returns the reason why the store can't be shared.
    fn difference(&self, inner: &Inner, options: &Options, path: &Path) -> Option<String> {
        if file_id(path).ok() != self.file {
            return Some(
                "and its files were replaced or removed since; drop all handles to it first"
                    .to_owned(),
            );
        }
        let (own, options) = self.with_durability(inner, options);
        own.difference(&options).map(|(option, open, requested)| {
            format!(
                "with `{option}` {open} and not {requested}; open it with the same options, or clone \
                 the `Store`"
            )
        })
    }

    /// Returns the options of this store and others, both with a durability. Options that name none accept the journal and
    /// `Durability::Full`.
    fn with_durability(&self, inner: &Inner, options: &Options) -> (Options, Options) {
        let (mut own, mut options) = (self.options.clone(), options.clone());
        if !own.read_only && !own.follower {
            let used = || inner.engines.lmdb().map(|engine| engine.durability().0);
            own.durability = own.durability.or_else(used);
            if matches!(own.durability, Some(Durability::Full | Durability::Journal)) {
                options.durability = options.durability.or(own.durability);
            }
        }
        (own, options)
    }
}

/// Returns the device and the inode of the data file in a directory.
fn file_id(path: &Path) -> io::Result<FileId> {
    files::id(&fs::metadata(path.join(files::DATA_FILE))?)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::Duration,
    };

    use super::{OPEN, forget_closed};
    use crate::{Store, engine::DataFile};

    #[test]
    fn the_files_are_closed_after_the_last_drop_while_other_stores_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (path, is_over) = (dir.path().canonicalize().unwrap(), AtomicBool::new(false));
        let mut open = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                // Each opening of another store makes this call.
                while !is_over.load(Relaxed) {
                    forget_closed(&mut OPEN.lock());
                }
            });
            for _ in 0..200 {
                let store = Store::open(&path).unwrap();
                // Gives the other thread time to take the lock.
                thread::sleep(Duration::from_micros(50));
                drop(store);
                open += usize::from(DataFile(&path).is_open());
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!(open, 0);
    }
}
