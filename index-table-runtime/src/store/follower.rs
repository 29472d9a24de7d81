//! Followers: read-only copies of a store that apply the commits in its archive.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Store, sharded};
use crate::{
    background::{Job, Lane, Work},
    engine::{
        Durability, FILE_MODE, Options,
        files::{self, DATA_FILE},
        lmdb::{self, Archive, Following, Left, Mark, Until, position},
    },
    locks::{Mutex, Unshared, rank},
    model::error::{Error, Result},
    placement::shards::{self, WriterLock},
};

/// The name of the thread that applies commits, in an error.
const NAME: &str = "index-table-clock";

const PANICKED: &str = "applying a commit has ended with a panic; open the follower again";

/// The time between two reads of the archive.
const TICK: Duration = Duration::from_millis(200);

/// A read-only copy of a store, which applies each commit in the [archive](crate::Options::archive) of the store.
///
/// The copy is a store in a directory of its own, on any machine that can read the archive. Repositories and queries
/// work as in any read-only store; writes fail with [`Error::ReadOnly`]. A commit becomes visible about half a second
/// later than in the original. A table that is created in the original can be opened when its commit has been applied.
/// Watchers get no events.
///
/// All shards of a store are in directories `shard.{number}` of the copy. A snapshot of the follower has each commit in all of
/// its shards or in none. Moves and removals of shards take effect in the follower too. If a shard is added to the
/// original, the follower stops, with an error in its [`lag`](Follower::lag). When the follower is opened again, it copies
/// the archive.
///
/// Commits of a follower are not synced, because the archive has them. When the follower is dropped, the copy is
/// completed, and [`open`](Follower::open) continues from there. After a crash, `open` copies the archive again, and
/// [`Store::open`] fails with [`Error::DamagedFile`]. To get a writable store, [promote](Follower::promote) the
/// follower, or use [`Store::restore_archive`].
///
/// # Examples
///
/// ```
/// use index_table::{Durability, Error, Follower, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Note {
///     #[primary_key]
///     id: u32,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (shop, archive, standby) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
/// let store = Store::options().durability(Durability::Journal).archive(&archive).open(&shop)?;
/// let notes = NoteRepository::open(&store)?;
/// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
/// drop((notes, store));
///
/// let follower = Follower::open(&standby, &archive)?;
/// let notes = NoteRepository::open(follower.store())?;
/// assert_eq!(notes.all(&follower.store().read()?).count()?, 1);
/// assert!(matches!(follower.store().write(), Err(Error::ReadOnly { .. })));
///
/// // The machine of the original is lost.
/// let store = follower.promote()?;
/// store.transaction(|txn| notes.insert(txn, &Note { id: 2 }))?;
/// # Ok(())
/// # }
/// ```
pub struct Follower {
    store: Store,
    shared: Arc<Shared>,
    job: Option<Job>,
}

/// The distance between a follower and its archive; from [`Follower::lag`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FollowerLag {
    /// The number of commits of the archive that the follower has not applied. After a gap, the commits in the gap are
    /// unknown, and the number is at least 1.
    pub commits: u64,
    /// Their length in the archive, in bytes.
    pub bytes: u64,
    /// The age of the oldest of them, by the clocks of both machines; zero if there are none.
    pub time: Duration,
    /// The reason why the follower can't continue. It tries again several times a second. After a gap in the archive, or
    /// after a shard was added to the original, it has to be opened again.
    pub error: Option<String>,
}

/// The state that the job shares.
pub(super) struct Shared {
    following: Mutex<Following, rank::Follower>,
    error: Mutex<Option<String>>,
}

impl Shared {
    /// Applies all commits of the archive.
    fn advance(&self, store: &Store) -> Result<()> {
        let mut following = self.following.lock();
        let archive = following.directory().to_owned();
        following.advance(&mut |followed| match store.inner.engines.several() {
            None => store.inner.engines.on_disk()?.follow(&archive, followed, None),
            Some(shards) => {
                if shards.follow(&archive, followed)?
                    && let Some(open) = store.inner.open_followed.get()
                {
                    open(store, shards);
                }
                Ok(())
            }
        })?;
        following.refuse_gap()
    }

    fn lag(&self, store: &Store) -> Result<FollowerLag> {
        store.inner.engines.refuse_forked()?;
        let following = self.following.lock().clone();
        let error = self.error.lock().clone();
        let lag = lag_of(store, following)?;
        Ok(FollowerLag { error: lag.error.or(error), ..lag })
    }
}

/// The job that applies commits.
struct Applying {
    shared: Arc<Shared>,
    store: Store,
}

impl Work for Applying {
    fn run(&self) -> Option<Duration> {
        let outcome = self.shared.advance(&self.store);
        *self.shared.error.lock() = outcome.err().map(|error| error.to_string());
        Some(TICK)
    }

    fn panicked(&self) {
        *self.shared.error.lock() = Some(PANICKED.to_owned());
    }
}

/// Measures the records of the archive from a position on. A follower that can't continue has an error, and is at least one
/// commit behind.
fn lag_of(store: &Store, mut following: Following) -> Result<FollowerLag> {
    let archive = following.directory().to_owned();
    let mut lag = FollowerLag { commits: 0, bytes: 0, time: Duration::ZERO, error: None };
    let mut first = None;
    following.advance(&mut |followed| {
        let is_applied = match store.inner.engines.several() {
            None => Ok(followed.commit() <= store.inner.engines.on_disk()?.last_commit()),
            Some(shards) => shards.has_record(&archive, &followed.parts(&archive)?),
        };
        let is_applied = match is_applied {
            // The follower lacks a shard.
            Err(error @ Error::NotInArchive { .. }) => {
                lag.error = Some(error.to_string());
                false
            }
            is_applied => is_applied?,
        };
        if !is_applied {
            lag.commits += 1;
            lag.bytes += followed.bytes;
            first = first.or(Some(followed.time()));
        }
        Ok(())
    })?;
    match following.refuse_gap() {
        Err(error @ Error::NotInArchive { .. }) => {
            let beyond = following.beyond(&commits(store)?)?;
            lag.commits += beyond.commits;
            lag.bytes += beyond.bytes;
            first = first.or(beyond.first);
            lag.error = Some(error.to_string());
        }
        outcome => outcome?,
    }
    if let Some(first) = first {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        lag.time = now.saturating_sub(Duration::from_nanos(first));
    }
    Ok(lag)
}

impl Follower {
    /// Opens the follower in the directory `path`, or creates it from the archive, and applies all commits that the
    /// archive has. Then a background thread applies further commits. Only one process at a time can open a follower. Other
    /// processes can open its directory [read-only](crate::Options::read_only) at the same time.
    ///
    /// If the copy was not closed, or if the archive continues after a gap, the archive is copied again, to a directory
    /// `.….next` beside `path`. The earlier copy is removed when the next copy is complete and can be opened, so the disk
    /// needs room for both. After an error, the earlier copy is unchanged. Meanwhile, the empty file `.….opening` beside `path` is
    /// locked, so that no other thread or process makes the same copy. A process that is killed leaves this file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the kind `AlreadyExists` if `path` exists and is not the directory of a follower, or if the copy
    /// has been written as a store; [`Error::AlreadyOpen`], also while another thread or process makes the copy; [`Error::NotInArchive`] while the archive has no base, or no
    /// base of a shard that the original creates: open the follower again a moment later; the errors of [`RestoreArchive::run`](crate::RestoreArchive::run)
    /// and [`Store::open`].
    pub fn open(path: impl AsRef<Path>, archive: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let directory =
            std::path::absolute(archive.as_ref()).map_err(|it| Error::io(archive.as_ref(), it))?;
        let archive = Archive::open(&directory)?;
        let own = Original { path, archive: &directory };
        let mut opening = None;
        let mut is_copied = false;
        if !own.is_ready(&archive)? {
            opening = Some(own.lock()?);
            // Another opening may have made the copy before the lock was free.
            if !own.is_ready(&archive)? && !own.finish_replacing(&archive)? {
                own.replace()?;
                is_copied = true;
            }
        }
        let (store, following) = match own.open(path) {
            // The copy has no file of a shard that the original was creating, or segments were removed since.
            Err(Error::NotInArchive { .. }) if !is_copied => {
                if opening.is_none() {
                    opening = Some(own.lock()?);
                }
                own.replace()?;
                own.open(path)?
            }
            opened => opened?,
        };
        drop(opening);
        for (_, engine) in engines(&store)? {
            engine.begin_to_follow()?;
        }
        let shared = Arc::new(Shared { following: Mutex::new(following), error: Mutex::default() });
        *store.inner.follower.lock() = Arc::downgrade(&shared);
        let mut follower = Self { store, shared, job: None };
        match follower.shared.advance(&follower.store) {
            // The archive has no base after the gap yet.
            Err(error @ Error::NotInArchive { .. }) => {
                *follower.shared.error.lock() = Some(error.to_string());
            }
            outcome => outcome?,
        }
        let (shared, store) = (Arc::clone(&follower.shared), follower.store.clone());
        let job = Job::start(Arc::new(Applying { shared, store }), Lane::Followers, Some(TICK));
        follower.job = Some(job.map_err(|source| Error::Thread { name: NAME, source })?);
        Ok(follower)
    }

    /// Returns the read-only store. It remains readable after the follower is dropped, but then no longer changes.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the distance to the archive. The archive itself can be [behind](Store::archive_lag) the original. A follower
    /// that can't continue has an [`error`](FollowerLag::error), and is at least one commit behind.
    ///
    /// Cost: the commits that are not applied yet are read.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedArchive`] and [`Error::Io`] if the archive can't be read; [`Error::Forked`].
    pub fn lag(&self) -> Result<FollowerLag> {
        self.shared.lag(&self.store)
    }

    /// Applies all commits of the archive, and makes the copy a writable store. Repositories of the follower stay valid.
    /// Commits of the original that are not in the archive are lost.
    ///
    /// Stop writing to the original first. If the original is still running and can read the archive, it detects the
    /// promotion within a second. Then it archives no further commits, and its writes fail with [`Error::ReopenNeeded`],
    /// even after it was opened again with this archive.
    ///
    /// Each commit of the promoted store is synced, as with [`Durability::Full`]. It has no archive. To archive it, drop all
    /// handles, and open its directory with [`archive`](crate::Options::archive). The same archive continues with a new base.
    ///
    /// # Errors
    ///
    /// [`Error::NotInArchive`] if the follower can't continue, such as after a gap in the archive. The archive must be
    /// readable and writable: [`Error::Io`], [`Error::DamagedArchive`]. After an error, the follower can be opened again,
    /// and the original too: the record of the promotion is removed from the archive. After an error in the last step, which
    /// starts the journal of several shards, the copy can be a store already: [`Store::open`] opens it, and `open` fails.
    ///
    /// If this record can't be removed, or if the process is killed during the promotion, the original may stay refused. Then
    /// open the follower again and promote it. If `open` fails because the directory is not that of a follower, or was written
    /// as a store, it is already the promoted store. To write to the original instead, open it with another archive.
    pub fn promote(mut self) -> Result<Store> {
        self.store.inner.engines.refuse_forked()?;
        self.stop();
        // A follower that can't continue does not refuse the writes of the original.
        self.shared.advance(&self.store)?;
        let fence = self.shared.following.lock().promote()?;
        if let Err(error) = self.become_writable() {
            // After this error, the original is refused until the archive can be written.
            let _ = fence.lift();
            return Err(error);
        }
        Ok(self.store.clone())
    }

    fn become_writable(&self) -> Result<()> {
        // The original archives nothing after the last commit that is applied here.
        self.shared.advance(&self.store)?;
        // A process that is killed before the mark is removed leaves a closed follower.
        self.complete()?;
        let engines = &self.store.inner.engines;
        let directory = engines.directory();
        let Some(shards) = engines.several() else {
            let engine = engines.on_disk()?;
            // The original was growing, and no data file follows. Without this commit, the directory is no store.
            if sharded::is_growing(&self.store)? {
                let last = engine.last_commit();
                engine.become_writable()?;
                if let Err(error) = sharded::leave_store(&self.store) {
                    engine.follow_again(last);
                    return Err(error);
                }
            }
            Following::forget(&directory)?;
            return engine.become_writable();
        };
        Following::forget(&directory)?;
        shards.become_writable()
    }

    fn stop(&mut self) {
        if let Some(job) = self.job.take() {
            job.stop();
        }
    }

    /// Makes the copy complete, so that it can be opened again. Data files that this process can write are those of a store.
    fn close(&self) -> Result<()> {
        let is_store = engines(&self.store)?.iter().any(|(_, engine)| !engine.is_read_only());
        if is_store { Ok(()) } else { self.complete() }
    }

    fn complete(&self) -> Result<()> {
        let engine = &self.store.inner.engines;
        let following = self.shared.following.lock();
        // With a new shard, the archive is copied again.
        let has_all = engine.several().is_none_or(|shards| !shards.lacks_shard());
        following.record(&engine.directory(), &commits(&self.store)?, has_all)?;
        for (_, engine) in engines(&self.store)? {
            engine.end_to_follow()?;
        }
        Ok(())
    }
}

impl Store {
    /// Returns the lag of the follower whose store this is, or in whose directory another process has opened this store;
    /// `None` for any other store.
    ///
    /// An archive that can't be read is an error of the lag.
    ///
    /// Cost: for the store of another process, the records from the last base on are read.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory can't be read.
    #[doc(hidden)]
    pub fn follower_lag(&self) -> Result<Option<FollowerLag>> {
        self.inner.engines.refuse_forked()?;
        let shared = self.inner.follower.lock().upgrade();
        let lag = if let Some(shared) = shared {
            shared.lag(self)
        } else {
            let engine = &self.inner.engines;
            if engine.several().is_none() && engine.on_disk().is_err() {
                return Ok(None);
            }
            let archive = lmdb::archive_of_follower(&engine.directory())?;
            let Some(archive) = archive else { return Ok(None) };
            Archive::open(&archive)
                .and_then(|archive| begin(&archive, self, &commits(self)?))
                .and_then(|following| lag_of(self, following))
        };
        Ok(Some(lag.unwrap_or_else(|error| FollowerLag {
            commits: 0,
            bytes: 0,
            time: Duration::ZERO,
            error: Some(error.to_string()),
        })))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.store.inner.engines.refuse_forked().is_err() {
            // The job and the marker belong to the other process.
            return;
        }
        self.stop();
        // Otherwise the next opening copies the archive again.
        let _ = self.close();
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The lock of an opening that makes or replaces a copy. Its file is removed before it is unlocked.
struct Opening {
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
struct Original<'o> {
    path: &'o Path,
    archive: &'o Path,
}

impl Original<'_> {
    /// Whether there is a copy with which the follower can continue.
    fn is_ready(&self, archive: &Archive) -> Result<bool> {
        let mut mark = lmdb::mark_of_follower(self.path, archive)?;
        let io = |source| Error::io(self.path, source);
        if mark.is_none() && files::is_taken(self.path).map_err(io)? {
            // Another opening may have made the copy since the first look.
            mark = lmdb::mark_of_follower(self.path, archive)?;
            if mark.is_none() {
                return Err(exists_already(self.path, "it is not a follower"));
            }
        }
        mark.map_or(Ok(false), |mark| self.is_usable(mark))
    }

    /// Excludes other openings that make or replace the copy.
    fn lock(&self) -> Result<Opening> {
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
    fn open(&self, copy: &Path) -> Result<(Store, Following)> {
        let archive = Archive::open(self.archive)?;
        let store = open_store(copy, self.archive)?;
        let commits = commits(&store)?;
        if let Some(mark) = lmdb::mark_of_follower(copy, &archive)? {
            refuse_written(copy, mark, &commits)?;
        }
        let following = begin(&archive, &store, &commits)?;
        Ok((store, following))
    }

    /// Copies the archive to another name, and gives the copy the name of the follower when it can be opened. Until then,
    /// an earlier copy stays readable.
    fn replace(&self) -> Result<()> {
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
    fn finish_replacing(&self, archive: &Archive) -> Result<bool> {
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

/// Returns the position of a follower in its archive.
fn begin(archive: &Archive, store: &Store, commits: &BTreeMap<u32, u64>) -> Result<Following> {
    Following::begin(archive, commits, store.inner.engines.several().is_some())
}

/// Opens the copy. Only the records of the archive change it.
fn open_store(path: &Path, archive: &Path) -> Result<Store> {
    let options = Options { follower: true, ..Store::options() }.create(false);
    // The copy can be from before the store has grown.
    if !sharded::has_manager(path) {
        let store = options.durability(Durability::None).open(path)?;
        if sharded::is_growing(&store)? {
            let reason = "the original gets a second data file, and the archive has no base of its shards yet; open the follower \
                          again, which copies them";
            let (path, reason) = (archive.to_owned(), reason.to_owned());
            return Err(Error::NotInArchive { path, reason });
        }
        return Ok(store);
    }
    let store = sharded::open(&options, path)?;
    if let Some((shard, reason)) = store.unavailable_shards().into_iter().next()
        && !store.inner.engines.several().is_some_and(|shards| shards.lacks_shard())
    {
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

/// Returns the data files of a follower, with the numbers of their shards.
fn engines(store: &Store) -> Result<Vec<(u32, &lmdb::Engine)>> {
    let engine = &store.inner.engines;
    match engine.several() {
        None => Ok(vec![(0, engine.on_disk()?)]),
        Some(shards) => Ok(shards.followers().collect()),
    }
}

/// Returns the number of the last commit in each data file that the next opening of a follower opens.
fn commits(store: &Store) -> Result<BTreeMap<u32, u64>> {
    let engine = &store.inner.engines;
    match engine.several() {
        None => Ok(BTreeMap::from([(0, engine.on_disk()?.last_commit())])),
        Some(shards) => shards.follower_commits(),
    }
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
fn remove(directory: &Path) -> io::Result<()> {
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
