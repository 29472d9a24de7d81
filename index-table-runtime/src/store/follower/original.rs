//! The copy in the directory of a follower: making it from the archive, replacing it, and opening it.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{Follower, begin, commits};
use crate::{
    engine::{
        Durability, FILE_MODE, Options,
        files::{self, DATA_FILE},
        lmdb::{self, Archive, Following, Left, Mark, Until, position},
    },
    locks::Unshared,
    model::error::{Error, Result},
    placement::shards::{self, WriterLock},
    store::{Store, sharded},
};

/// The lock of an opening that makes or replaces a copy. Its file is removed before it is unlocked.
pub(super) struct Opening {
    path: PathBuf,
    _lock: WriterLock,
}

impl Drop for Opening {
    fn drop(&mut self) {
        // The next opening that makes a copy removes a remaining file.
        let _ = fs::remove_file(&self.path);
    }
}

/// The directory of a follower, and the archive of its original.
pub(super) struct Original<'o> {
    path: &'o Path,
    archive: &'o Path,
}

impl<'o> Original<'o> {
    pub(super) const fn new(path: &'o Path, archive: &'o Path) -> Self {
        Self { path, archive }
    }

    /// Whether there is a copy with which the follower can continue.
    pub(super) fn is_ready(&self, archive: &Archive) -> Result<bool> {
        let mut mark = lmdb::mark_of_follower(self.path, archive)?;
        let io = |source| Error::io(self.path, source);
        if mark.is_none() && files::is_taken(self.path).map_err(io)? {
            // Another opening may have made the copy since the first look.
            mark = lmdb::mark_of_follower(self.path, archive)?;
            if mark.is_none() {
                return Err(exists_already(self.path, "it is not a follower"));
            }
        }
        match mark {
            None => Ok(false),
            // The copy can have commits that this archive does not have, such as one that was begun again under the same path.
            Some(mark) if !mark.is_of_archive => Err(exists_already(
                self.path,
                "it is the follower of another archive, whose commits this archive may lack",
            )),
            Some(mark) => self.is_usable(mark),
        }
    }

    /// Excludes other openings that make or replace the copy.
    pub(super) fn lock(&self) -> Result<Opening> {
        let path = beside(self.path, ".opening").map_err(|source| Error::io(self.path, source))?;
        let io = |source| Error::io(&path, source);
        fs::create_dir_all(files::parent(self.path)).map_err(io)?;
        let mut open = File::options();
        open.write(true).create(true).truncate(false);
        let file = files::open_or_create(&mut open, &path, FILE_MODE).map_err(io)?;
        let unshared = Unshared::new(&file);
        let is_locked = match file.try_lock() {
            // The file of an opening that has ended meanwhile is removed.
            Ok(()) => files::is_at(&file, &path),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(source)) => return Err(io(source)),
        };
        let lock = WriterLock::new(unshared, file);
        if is_locked {
            return Ok(Opening { path, _lock: lock });
        }
        let reason = "another thread or process is copying the archive to it; open it again later";
        Err(Error::AlreadyOpen { path: self.path.to_owned(), reason: reason.to_owned() })
    }

    /// Returns whether the follower can continue with the copy in its directory. Otherwise, the copy is replaced.
    fn is_usable(&self, mark: Mark) -> Result<bool> {
        match left(self.path)? {
            None => {
                let reason = "in this or another process; drop that follower first".to_owned();
                Err(Error::AlreadyOpen { path: self.path.to_owned(), reason })
            }
            Some(Left::Written) => Err(written(self.path)),
            Some(Left::Interrupted) => Ok(false),
            Some(Left::Complete) if mark.continues && !self.has_grown(self.path)? => Ok(true),
            Some(Left::Complete) => match open_store(self.path, self.archive) {
                Err(Error::NotInArchive { .. }) => Ok(false),
                opened => refuse_written(self.path, mark, &commits(&opened?)?).map(|()| false),
            },
        }
    }

    /// Whether a copy is from before the original had several data files.
    fn has_grown(&self, copy: &Path) -> Result<bool> {
        if sharded::has_manager(copy) {
            return Ok(false);
        }
        Archive::open(self.archive)?.is_sharded_at(&Until::End)
    }

    /// Opens a copy, and finds its position in the archive.
    pub(super) fn open(&self, copy: &Path) -> Result<(Store, Following)> {
        let archive = Archive::open(self.archive)?;
        let store = open_store(copy, self.archive)?;
        let commits = commits(&store)?;
        if let Some(mark) = lmdb::mark_of_follower(copy, &archive)? {
            refuse_written(copy, mark, &commits)?;
        }
        let following = begin(&archive, &store, &commits)?;
        Ok((store, following))
    }

    /// Makes an earlier copy with one data file one with shards, if the original has grown since. Returns false if the archive has to
    /// be copied.
    ///
    /// | step | after a crash, the next opening |
    /// |---|---|
    /// | the commits before the growth are applied | copies the archive |
    /// | the follower is closed | repeats the growth |
    /// | the shard map manager is written, and renamed | repeats the growth; after the rename, continues |
    ///
    /// The position of the copy stays the same.
    pub(super) fn grow(&self) -> Result<bool> {
        let archive = Archive::open(self.archive)?;
        let mark = lmdb::mark_of_follower(self.path, &archive)?.filter(|mark| mark.continues);
        let Some(mark) = mark else { return Ok(false) };
        if left(self.path)? != Some(Left::Complete) || !self.has_grown(self.path)? {
            return Ok(false);
        }
        let store = open_one(self.path)?;
        let commits = commits(&store)?;
        refuse_written(self.path, mark, &commits)?;
        let following = match begin(&archive, &store, &commits) {
            Err(Error::NotInArchive { .. }) => return Ok(false),
            following => following?,
        };
        let Some(manager) = Follower::begin(store, following)?.advance_to_growth()? else {
            return Ok(false);
        };
        sharded::grow_copy(self.path, &manager)?;
        Ok(true)
    }

    /// Copies the archive to another name, and gives the copy the name of the follower when it can be opened. Until then,
    /// an earlier copy stays readable.
    pub(super) fn replace(&self) -> Result<()> {
        let io = |source| Error::io(self.path, source);
        let next = beside(self.path, ".next").map_err(io)?;
        remove(&next).map_err(io)?;
        let mut complete = |partial: &Path, commits: &BTreeMap<u32, u64>| {
            let archive = Archive::open(self.archive)?;
            let has_shards = sharded::has_manager(partial);
            Following::begin(&archive, commits, has_shards)?.record(partial, commits, true)
        };
        let restored = Store::restore_archive(self.archive).run_with(&next, &mut complete);
        let checked = restored.and_then(|_| self.open(&next).map(drop));
        let placed = checked.and_then(|()| place(&next, self.path).map_err(io));
        if placed.is_err() {
            // The next opening removes what is left.
            let _ = remove(&next);
        }
        placed
    }

    /// Finishes the work of a process that was killed in [`replace`](Self::replace) when the earlier copy was renamed.
    /// Returns whether there is a copy now.
    pub(super) fn finish_replacing(&self, archive: &Archive) -> Result<bool> {
        let io = |source| Error::io(self.path, source);
        let next = beside(self.path, ".next").map_err(io)?;
        let is_complete = lmdb::mark_of_follower(&next, archive)?.is_some_and(|it| it.continues);
        if !is_complete || self.has_grown(&next)? {
            return Ok(false);
        }
        place(&next, self.path).map_err(io)?;
        Ok(true)
    }
}

fn options() -> Options {
    Options { follower: true, ..Store::options() }.create(false)
}

/// Opens a copy with one data file.
fn open_one(path: &Path) -> Result<Store> {
    options().durability(Durability::None).open(path)
}

/// Opens the copy. Only the records of the archive change it.
fn open_store(path: &Path, archive: &Path) -> Result<Store> {
    // The copy can be from before the store has grown.
    if !sharded::has_manager(path) {
        let store = open_one(path)?;
        if sharded::is_growing(&store)? {
            let reason = "the original gets a second data file, and the archive does not have its shard map manager yet; open the \
                          follower again, which adds it";
            let (path, reason) = (archive.to_owned(), reason.to_owned());
            return Err(Error::NotInArchive { path, reason });
        }
        return Ok(store);
    }
    let store = sharded::open(&options(), path)?;
    if let Some((shard, reason)) = store.unavailable_shards().into_iter().next() {
        let shard = shard.name().to_owned();
        let manager = store.inner.engines.several().and_then(|shards| shards.manager());
        let records = manager.map_or(Ok(None), shards::Manager::read)?;
        let is_new = records.is_some_and(|records| {
            let own = records.shards.iter().find(|own| own.name == shard);
            own.is_some_and(|own| own.state == shards::ShardState::New)
        });
        if is_new {
            return Err(Error::NotInArchive {
                path: archive.to_owned(),
                reason: format!(
                    "it has no base of shard `{shard}`, which the original was creating; open the follower again, which copies the \
                     shard"
                ),
            });
        }
        return Err(Error::ShardUnavailable { shard, reason });
    }
    Ok(store)
}

/// Returns the state of the data files of a follower; `None` if a process has them open.
fn left(path: &Path) -> Result<Option<Left>> {
    let Some(mut left) = Left::of(path)? else { return Ok(None) };
    let io = |source| Error::io(path, source);
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let is_shard = entry.file_name().to_string_lossy().starts_with("shard.");
        if is_shard && files::exists(&entry.path().join(DATA_FILE)).map_err(io)? {
            let Some(shard) = Left::of(&entry.path())? else { return Ok(None) };
            left = left.max(shard);
        }
    }
    Ok(Some(left))
}

/// Refuses a copy that has commits of its own.
fn refuse_written(path: &Path, mark: Mark, commits: &BTreeMap<u32, u64>) -> Result<()> {
    match mark.position {
        Some(closed) if closed != position(commits) => Err(written(path)),
        _ => Ok(()),
    }
}

fn written(path: &Path) -> Error {
    exists_already(path, "it has been written as a store")
}

/// Returns the name of another directory beside the copy: `.{name}{suffix}`.
fn beside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(suffix);
    Ok(path.with_file_name(name))
}

/// Removes a directory, which may be missing.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives a copy the name `path`. A process that is killed meanwhile leaves the earlier copy as `.….discarded`.
///
/// The path has a follower, or nothing.
fn place(copy: &Path, path: &Path) -> io::Result<()> {
    let discarded = beside(path, ".discarded")?;
    remove(&discarded)?;
    match fs::rename(path, &discarded) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    if let Err(error) = fs::rename(copy, path) {
        let _ = fs::rename(&discarded, path);
        return Err(error);
    }
    // Otherwise, after a power failure, the old name could be that of a directory without some of its files.
    files::sync_directory(files::parent(path))?;
    remove(&discarded)
}

fn exists_already(path: &Path, reason: &str) -> Error {
    let reason = format!("{reason}; choose another directory");
    let source = io::Error::new(io::ErrorKind::AlreadyExists, reason);
    Error::Io { path: path.to_owned(), source }
}
