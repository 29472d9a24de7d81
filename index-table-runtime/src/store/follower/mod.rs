//! Followers: read-only copies of a store that apply the commits in its archive.

mod added;
mod original;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Store, sharded};
use crate::{
    background::{Job, Lane, Work},
    engine::lmdb::{self, Archive, Following, ManagerEntries},
    locks::{Mutex, rank},
    model::error::{Error, Result},
};
use original::Original;

/// The name of the thread that applies commits, in an error.
const NAME: &str = "index-table-clock";

const PANICKED: &str = "applying a commit has ended with a panic; open the follower again";

const ADDED: &str =
    "a shard was added to the original, and this store was opened before; open it again";

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
/// its shards or in none. Moves and removals of shards take effect in the follower too. A shard that is
/// [added](Store::add_shard) to the original is added to the follower with its first commit, when the archive has the first base of
/// the shard.
///
/// If the original has one data file and grows, the follower stops, with an error in its [`lag`](Follower::lag), and its transactions
/// fail with [`Error::ReopenNeeded`]. When it is opened again, it adds the shard map manager and the shards. It keeps its data file, as
/// the shard `main`.
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
    /// The reason why the follower can't continue. It tries again several times a second. After a gap in the archive, after
    /// the original with one data file has grown, or if the archive was not written when a shard was added, the follower has to be
    /// opened again. The error says so.
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
        let begun = following.clone();
        following.advance(&mut |followed| match store.inner.engines.several() {
            None => store.inner.engines.on_disk()?.follow(&archive, followed, None),
            Some(shards) => {
                let parts = followed.parts(&archive)?;
                while let Some(missing) = shards.missing(&parts) {
                    added::add_shard(store, shards, &begun, missing)?;
                }
                if shards.follow(&archive, followed, &parts)?
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
        // The follower adds a shard that it lacks, or has an error.
        let lag = lag_of(store, following, None)?;
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
/// commit behind. `lacking` is the error for a shard that is not here.
fn lag_of(store: &Store, mut following: Following, lacking: Option<&str>) -> Result<FollowerLag> {
    let archive = following.directory().to_owned();
    let mut lag = FollowerLag { commits: 0, bytes: 0, time: Duration::ZERO, error: None };
    let mut first = None;
    following.advance(&mut |followed| {
        let is_applied = match store.inner.engines.several() {
            None => followed.commit() <= store.inner.engines.on_disk()?.last_commit(),
            Some(shards) => shards.has_record(&followed.parts(&archive)?).unwrap_or_else(|| {
                lag.error = lacking.map(ToOwned::to_owned);
                false
            }),
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
    /// A closed copy is kept, also after the original has grown and after shards were added to it.
    ///
    /// If the copy was not closed, or if the archive continues after a gap, the archive is copied again, to a directory
    /// `.….next` beside `path`. The earlier copy is removed when the next copy is complete and can be opened, so the disk
    /// needs room for both. After an error, the earlier copy is unchanged. Meanwhile, the empty file `.….opening` beside `path` is
    /// locked, so that no other thread or process makes the same copy. A process that is killed leaves this file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the kind `AlreadyExists` if `path` exists and is not the directory of a follower, or that of a follower
    /// of another archive, whose commits this archive may lack, or if the copy has been written as a store; [`Error::AlreadyOpen`], also while another thread or process makes the copy; [`Error::NotInArchive`] while the archive has no base, or no
    /// base of a shard that the original creates, or lacks the shard map manager of an original that is growing: open the follower
    /// again a moment later; the errors of [`RestoreArchive::run`](crate::RestoreArchive::run)
    /// and [`Store::open`].
    pub fn open(path: impl AsRef<Path>, archive: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let directory =
            std::path::absolute(archive.as_ref()).map_err(|it| Error::io(archive.as_ref(), it))?;
        let archive = Archive::open(&directory)?;
        let own = Original::new(path, &directory);
        let mut opening = None;
        let mut is_copied = false;
        let copy = |is_copied: &mut bool| -> Result<()> {
            if !own.grow()? {
                own.replace()?;
                *is_copied = true;
            }
            Ok(())
        };
        if !own.is_ready(&archive)? {
            opening = Some(own.lock()?);
            // Another opening may have made the copy before the lock was free.
            if !own.is_ready(&archive)? && !own.finish_replacing(&archive)? {
                copy(&mut is_copied)?;
            }
        }
        let (store, following) = match own.open(path) {
            // The original has grown meanwhile. Or the copy has no file of a shard that the original was creating, or segments
            // were removed since.
            Err(Error::NotInArchive { .. }) if !is_copied => {
                if opening.is_none() {
                    opening = Some(own.lock()?);
                }
                copy(&mut is_copied)?;
                own.open(path)?
            }
            opened => opened?,
        };
        drop(opening);
        let mut follower = Self::begin(store, following)?;
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

    /// Returns a follower that applies nothing by itself yet.
    fn begin(store: Store, following: Following) -> Result<Self> {
        for (_, engine) in engines(&store)? {
            engine.begin_to_follow()?;
        }
        let shared = Arc::new(Shared { following: Mutex::new(following), error: Mutex::default() });
        *store.inner.follower.lock() = Arc::downgrade(&shared);
        Ok(Self { store, shared, job: None })
    }

    /// Applies the commits before the growth of the original, and closes the follower, which has one data file. Returns the records of
    /// the shard map manager with which the original has grown; `None` if the follower does not get all of these commits.
    fn advance_to_growth(self) -> Result<Option<ManagerEntries>> {
        match self.shared.advance(&self.store) {
            Ok(()) | Err(Error::NotInArchive { .. }) => {}
            Err(error) => return Err(error),
        }
        let growth = self.shared.following.lock().growth()?;
        self.complete()?;
        Ok(growth)
    }

    /// Returns the read-only store. It remains readable after the follower is dropped, but then no longer changes.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the archive that the follower in a directory has recorded; `None` if the directory is not that of a follower.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]
    #[doc(hidden)]
    pub fn archive_of(path: impl AsRef<Path>) -> Result<Option<PathBuf>> {
        lmdb::archive_of_follower(path.as_ref())
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
    /// Each commit of the promoted store is synced, as with [`Durability::Full`](crate::Durability::Full). It has no archive. To archive it, drop all
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
        // With a shard that can't be added, the archive is copied again.
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
                .and_then(|following| lag_of(self, following, Some(ADDED)))
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

/// Returns the position of a follower in its archive.
fn begin(archive: &Archive, store: &Store, commits: &BTreeMap<u32, u64>) -> Result<Following> {
    Following::begin(archive, commits, store.inner.engines.several().is_some())
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
