//! Copies of a store: a directory that appears completely or not at all.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File, Permissions},
    io, mem,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use super::{
    Store,
    making::Making,
    sharded::{copy_shards, mark_copy},
};
use crate::engine::{
    CopyKind, DIRECTORY_MODE, Engine,
    files::{self, DATA_FILE, MANIFEST_FILE},
};
use crate::model::error::{Error, Result};
use crate::usage::Progress;

/// Copies a store to a directory, with options. From [`Store::backup`]; it does nothing until [`run`](Backup::run).
#[must_use = "a backup does nothing until `run`"]
pub struct Backup<'a> {
    store: &'a Store,
    path: PathBuf,
    kind: CopyKind,
    checks: bool,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    stop: Option<Box<dyn Fn() -> bool + 'a>>,
}

impl<'a> Backup<'a> {
    /// Leaves out the free pages, as [`compact_to`](Store::compact_to) does.
    pub const fn compact(mut self) -> Self {
        self.kind = CopyKind::Compact;
        self
    }

    /// Checks each page of the copy, as [`Store::check`] does, before the copy gets its name. There is no copy of a damaged store.
    /// A [`compact`](Backup::compact) copy is always made from checked pages.
    ///
    /// Cost: the file of the store is read once, from its first page to its last. The copy is read while its pages are in the
    /// system's cache. If it is larger than the free memory, the rest is read from its disk, page by page.
    pub const fn checked(mut self) -> Self {
        self.checks = true;
        self
    }

    /// Calls `progress` after each MiB and at the end, with the number of bytes so far. The total is the size of the
    /// store, so a copy without free pages ends with fewer bytes. A [`checked`](Backup::checked) or
    /// [`compact`](Backup::compact) copy also reports pages, after each 1,024.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Calls `stop` when it calls [`progress`](Backup::progress). If it returns true, [`run`](Backup::run) removes what it
    /// has written, and fails with [`Error::Io`] with the kind `Interrupted`.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, Store};
    /// use std::io::ErrorKind;
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("shop"))?;
    /// let backup = dir.path().join("backup");
    /// let outcome = store.backup(&backup).checked().stop_when(|| true).run();
    /// assert!(matches!(outcome, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::Interrupted));
    /// assert!(!backup.exists());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'a) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    /// Copies the store.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::backup_to`]; with [`compact`](Backup::compact), of [`Store::compact_to`]; with
    /// [`checked`](Backup::checked), of [`Store::check`]; with [`stop_when`](Backup::stop_when), [`Error::Io`] with the kind
    /// `Interrupted`.
    pub fn run(self) -> Result<()> {
        let Self { store, path, kind, checks, mut progress, stop } = self;
        let mut report = |at| {
            if let Some(progress) = &mut progress {
                progress(at);
            }
        };
        let stop = || stop.as_ref().is_some_and(|stop| stop());
        store.copy(&path, &mut Making { kind, checks, progress: &mut report, stop: &stop })
    }
}

impl fmt::Debug for Backup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Copies one snapshot of the store to the directory `path`, which must not exist. Other threads and processes
    /// may write during the copy. Free pages are copied too; [`compact_to`](Store::compact_to) leaves them out and is
    /// slower.
    ///
    /// The copy is a store: it can be opened in place, or [restored](Store::restore) to another directory.
    /// Its directory and its `data.mdb` have the same modes as in the store. While it is incomplete,
    /// only the owner has access, and missing parent directories are created with mode `0700`.
    ///
    /// A copy of a store with shards has all shards at one instant, each in a directory
    /// `shard.{number}` in `path`, wherever the shards of the original are. It is a sharded store. All shards must be
    /// available.
    ///
    /// The copy is a read transaction: until it ends, pages that writers free are not reused. Its begin waits at most a
    /// minute for commits of other processes, which are being synced. The directory is written under another name in the
    /// parent of `path`, synced, and renamed. A copy that fails leaves no files. A copy whose process is killed leaves a
    /// directory `.….partial`, which the next copy to `path` removes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the kind `AlreadyExists` if `path` exists, and for every error of the file system;
    /// [`Error::DiskFull`]; [`Error::WriteInProgress`] if this thread has a write transaction;
    /// [`Error::NotOffered`] for a store in memory or on a server; [`Error::ShardUnavailable`]; the errors of [`read`](Store::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    ///     text: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    /// let store = Store::open(&shop)?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1, text: "kept".into() }))?;
    /// store.backup_to(&backup)?;
    ///
    /// // The disk is lost. A new disk replaces it.
    /// drop(store);
    /// std::fs::remove_dir_all(&shop).unwrap();
    /// Store::restore(&backup, &shop)?;
    /// let store = Store::open(&shop)?;
    /// let notes = NoteRepository::open(&store)?;
    /// assert!(notes.get(&store.read()?, 1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<()> {
        self.copy(path.as_ref(), &mut Making::unseen(CopyKind::Whole, &mut |_| ()))
    }

    /// Returns a copy with options: like [`backup_to`](Store::backup_to), checked, with progress, or without free pages.
    ///
    /// # Examples
    ///
    /// A backup and a restore, both with progress:
    ///
    /// ```
    /// # use index_table::Store;
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    /// # let store = Store::open(&shop)?;
    /// store.backup(&backup).compact().progress(|at| println!("{at}")).run()?;
    /// # drop(store);
    /// # std::fs::remove_dir_all(&shop).unwrap();
    /// Store::options().create(false).open(&backup)?.backup(&shop).progress(|at| println!("{at}")).run()?;
    /// let store = Store::open(&shop)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, path: impl AsRef<Path>) -> Backup<'_> {
        let (path, kind) = (path.as_ref().to_owned(), CopyKind::Whole);
        Backup { store: self, path, kind, checks: false, progress: None, stop: None }
    }

    /// Copies the store like [`backup_to`](Store::backup_to), without the free pages. LMDB's file never shrinks, so use
    /// this method to get a smaller file. It does not wait for writers. It reads each page twice, because it
    /// [checks](Store::check) them first: LMDB must not compact a damaged page.
    ///
    /// # Errors
    ///
    /// The errors of [`backup_to`](Store::backup_to) and [`check`](Store::check).
    pub fn compact_to(&self, path: impl AsRef<Path>) -> Result<()> {
        self.copy(path.as_ref(), &mut Making::unseen(CopyKind::Compact, &mut |_| ()))
    }

    /// Copies the store in the directory `backup` to the directory `path`, which must not exist. `backup` is usually
    /// the result of [`backup_to`](Store::backup_to) or [`compact_to`](Store::compact_to).
    ///
    /// Any store can be restored in this way, even while it is in use, since one snapshot is copied. Like
    /// [`backup_to`](Store::backup_to), a restore writes `path` completely or not at all. `path` gets the modes of
    /// the backup. `backup` does not change, except that LMDB creates its lock file there, and that a store that was not closed
    /// is recovered. For progress, open `backup` with [`read_only`](crate::Options::read_only) and use its
    /// [`backup`](Store::backup).
    ///
    /// `backup` can be the directory of a shard. The copy is a plain store, which can be written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the kind `NotFound` if there is no store at `backup`, and the errors of
    /// [`open`](Store::open) and [`backup_to`](Store::backup_to).
    pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        // Opening a missing backup would create an empty store.
        let file = backup.as_ref().join("data.mdb");
        if let Err(source) = fs::metadata(&file) {
            return Err(Error::Io { path: file, source });
        }
        let (backup, path) = (backup.as_ref(), path.as_ref());
        match Self::open_backup(backup) {
            Ok(store) if store.unavailable_shards().is_empty() => store.backup_to(path),
            // Shards whose process was killed have to be recovered first.
            Ok(store) => {
                drop(store);
                Self::options().create(false).open(backup)?.backup_to(path)
            }
            Err(error @ (Error::RecoveryNeeded { .. } | Error::ReopenNeeded { .. })) => {
                let recovered = Self::options().create(false).open(backup);
                recovered.map_err(|_| error)?.backup_to(path)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a store that is only read: also one on a read-only file system, and a shard in a backup of a sharded store. A store
    /// that this process has open is shared.
    pub(crate) fn open_backup(path: &Path) -> Result<Self> {
        let options = Self::options().create(false);
        match options.clone().read_only(true).open(path) {
            Err(Error::AlreadyOpen { .. }) => options.open(path),
            opened => opened,
        }
    }

    /// Copies a shard to a directory in which it belongs to its store.
    pub(crate) fn copy_of_member(&self, path: &Path) -> Result<()> {
        self.copy_one(path, &mut Making::unseen(CopyKind::Whole, &mut |_| ()), false)
    }

    fn copy(&self, path: &Path, making: &mut Making<'_>) -> Result<()> {
        // The copy would wait for this thread's write transaction.
        self.inner.refuse_nested_write()?;
        let outcome = self.copy_files(path, making);
        if making.kind == CopyKind::Whole {
            self.inner.inspections.note("backup", &outcome, |()| None);
        }
        outcome
    }

    fn copy_files(&self, path: &Path, making: &mut Making<'_>) -> Result<()> {
        if let Some(shards) = self.inner.engines.several() {
            return copy_shards(shards, path, making);
        }
        let copied = self.copy_one(path, making, true);
        match self.inner.engines.several() {
            // The store has grown meanwhile.
            Some(shards) if copied.is_err() => copy_shards(shards, path, making),
            _ => copied,
        }
    }

    /// Copies a data file. `is_alone` if a copy of a shard belongs to no store.
    fn copy_one(&self, path: &Path, making: &mut Making<'_>, is_alone: bool) -> Result<()> {
        self.inner.engines.on_disk()?;
        let io = |source| Error::io(path, source);
        let directory = self.inner.engines.directory();
        let modes = Modes::of(&directory);
        let partial = Partial::create(path).map_err(io)?;
        let file = files::create_file(&partial.0.join(DATA_FILE)).map_err(io)?;
        let filled = self.inner.engine().and_then(|engine| fill(engine, &file, making));
        let filled = filled.and_then(|()| mark_copy(self.inner.engine()?, &partial.0, is_alone));
        filled
            .and_then(|()| making.check(&partial.0, &directory))
            .map_err(|error| at_path(error, path))?;
        modes.apply(&file, &partial.0).map_err(io)?;
        file.sync_all().map_err(io)?;
        drop(file);
        partial.finish(path).map_err(io)
    }
}

/// Copies a data file into an empty file.
fn fill(any: &Engine, file: &File, making: &mut Making<'_>) -> Result<()> {
    let engine = any.on_disk()?;
    let (begun, mut done) = (Instant::now(), 0);
    let total = match making.kind {
        CopyKind::Whole => {
            let pinned = engine.pin()?;
            let total = pinned.length();
            pinned.copy(file, &mut |bytes| {
                done += bytes;
                making.at(Progress::new("bytes", done, Some(total), begun))
            })?;
            total
        }
        CopyKind::Compact => {
            let total = engine.size()?;
            making.check_source(any)?;
            engine.compact(file, &mut |bytes| {
                done += bytes;
                making.at(Progress::new("bytes", done, Some(total), begun))
            })?;
            total
        }
    };
    let copied = file.metadata().map_or(done, |file| file.len());
    let last = Progress::new("bytes", copied, Some(total), begun);
    making.at(last).map_err(|source| Error::io(engine.directory(), source))
}

/// A directory that is removed unless it is finished.
pub(super) struct Partial(pub(super) PathBuf, Option<File>);

/// The file in an incomplete copy that its process has locked. No complete copy has it.
const COPYING: &str = "copying.lock";

impl Partial {
    /// Creates a directory in the parent of `path`, so that it can be renamed to `path`.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if files::is_taken(path)? {
            return Err(already_exists());
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut partial = OsString::from(".");
        partial.push(name);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        partial.push(format!(".{}-{number}.partial", process::id()));
        files::create_directories(files::parent(path), DIRECTORY_MODE)?;
        remove_left(path);
        let partial = path.with_file_name(partial);
        files::create_directory(&partial)?;
        let lock = locked(&partial);
        Ok(Self(partial, lock))
    }

    pub(super) fn finish(mut self, path: &Path) -> io::Result<()> {
        if self.1.take().is_some() {
            fs::remove_file(self.0.join(COPYING))?;
        }
        files::sync_directory(&self.0)?;
        // Fails if `path` now exists and is not an empty directory.
        fs::rename(&self.0, path)?;
        // If the new name can't be synced, a crash can undo the rename, so the copy is removed.
        path.clone_into(&mut self.0);
        files::sync_directory(files::parent(path))?;
        mem::forget(self);
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The first error is returned.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Locks a directory while it is written. `None` if it is locked.
fn locked(directory: &Path) -> Option<File> {
    let file = files::create_file(&directory.join(COPYING));
    let file = file.or_else(|_| File::options().write(true).open(directory.join(COPYING))).ok()?;
    file.try_lock().is_ok().then_some(file)
}

/// Removes the incomplete copies to `path` that killed processes have left: they are not locked.
fn remove_left(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let start = format!(".{}.", name.to_string_lossy());
    let is_left = |name: &str| {
        let numbers = name.strip_prefix(&start).and_then(|rest| rest.strip_suffix(".partial"));
        numbers.and_then(|numbers| numbers.split_once('-')).is_some_and(|(process, number)| {
            let is_number = |text: &str| text.parse::<u64>().is_ok();
            is_number(process) && is_number(number)
        })
    };
    for entry in fs::read_dir(files::parent(path)).into_iter().flatten().flatten() {
        if is_left(&entry.file_name().to_string_lossy())
            && let Some(_lock) = locked(&entry.path())
        {
            // A directory that can't be removed takes room, and is otherwise harmless.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The modes of a store's directory and data file; `None` if the store is no longer at its path. Then, the copy
/// stays private to its owner.
pub(super) struct Modes(Option<[Permissions; 2]>);

impl Modes {
    pub(super) fn of(directory: &Path) -> Self {
        let mode = |path: &Path| fs::metadata(path).map(|entry| entry.permissions()).ok();
        Self(mode(directory).zip(mode(&directory.join(DATA_FILE))).map(Into::into))
    }

    /// Returns the modes of the store whose archive is in a directory.
    pub(super) fn of_archive(directory: &Path) -> Self {
        let mode = |path: &Path| fs::metadata(path).map(|entry| entry.permissions()).ok();
        Self(mode(directory).zip(mode(&directory.join(MANIFEST_FILE))).map(Into::into))
    }

    /// Sets these modes for a complete copy.
    pub(super) fn apply(self, file: &File, copy: &Path) -> io::Result<()> {
        let Some([directory, data]) = self.0 else { return Ok(()) };
        file.set_permissions(data)?;
        fs::set_permissions(copy, directory)
    }
}

/// Returns an error of the file system with the path of the copy.
pub(super) fn at_path(error: Error, path: &Path) -> Error {
    match error {
        Error::Io { source, .. } | Error::DiskFull { source, .. } => Error::io(path, source),
        error => error,
    }
}

fn already_exists() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the path exists; choose a path that does not exist",
    )
}
