//! Archives: the lag of the archive of a store, and restoring a store from an archive.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{
    Store,
    copy::{Modes, Partial, at_path},
    sharded::{first_restorable, last_bases, leave_shards, restore_shards},
};
use crate::{
    engine::{
        CommitNumber, CommittedRow,
        files::{self, DATA_FILE},
        lmdb::{self, Archive, Base, Generation, Until, WatchedRows},
    },
    model::error::{Error, Result},
    usage::Progress,
};

/// The distance between a store and its archive; from [`Store::archive_lag`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveLag {
    /// The number of commits that the archive does not have.
    pub commits: u64,
    /// The bytes of segments that the archive does not have, as of the last attempt, which is at most 250 ms old unless the archive
    /// is slow.
    pub bytes: u64,
    /// The time since the archive last had all commits; zero if it has all.
    pub time: Duration,
    /// Whether the archive has a base for the commits since the last gap. Without a base, they can't be restored yet.
    pub has_base: bool,
    /// The time since the state of its last base, by the clock of this machine; of a sharded store, the time since the oldest of the last
    /// bases of its shards. `None` without a base. A restore reads the base and all later commits.
    pub base_age: Option<Duration>,
    /// The reason why the archive can't be written. The next attempt follows within a second.
    pub error: Option<String>,
}

/// Restores a store from an archive, with options. From [`Store::restore_archive`]; it does nothing until
/// [`run`](RestoreArchive::run).
#[must_use = "a restore does nothing until `run`"]
pub struct RestoreArchive<'a> {
    archive: PathBuf,
    until: Option<Last>,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
}

/// A function that gets the directory of a restored store, before it is renamed, and the last commit of each shard.
pub(super) type Complete<'c> = &'c mut dyn FnMut(&Path, &BTreeMap<u32, u64>) -> Result<()>;

/// The last commit of a restored store.
#[derive(Debug, Clone)]
enum Last {
    Commit(CommitNumber),
    Time(SystemTime),
    End,
}

impl Last {
    /// Fails if the archive lacks commits before the requested time. `None`: now.
    fn refuse_incomplete(last: Option<&Self>, archive: &Archive, base: &Base) -> Result<()> {
        match last {
            None => archive.refuse_incomplete(base, None),
            Some(Self::Time(time)) => archive.refuse_incomplete(base, Some(nanoseconds(*time))),
            Some(Self::Commit(_) | Self::End) => Ok(()),
        }
    }

    /// `None`: the last commit.
    fn until(last: Option<&Self>) -> Until {
        match last {
            None | Some(Self::End) => Until::End,
            Some(Self::Commit(number)) => Until::Commit(number.numbers()),
            Some(Self::Time(time)) => Until::Time(nanoseconds(*time)),
        }
    }
}

impl Store {
    /// Returns the distance between this store and its [archive](crate::Options::archive), and the error if the archive
    /// can't be written. `None` without an archive, and in a process that only reads the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    /// let store = Store::options().durability(Durability::Journal).archive(archive).open(shop)?;
    /// let lag = store.archive_lag().unwrap();
    /// assert!(lag.error.is_none(), "{lag:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn archive_lag(&self) -> Option<ArchiveLag> {
        let engine = &self.inner.engines;
        engine.refuse_forked().ok()?;
        let distance = match engine.several() {
            None => engine.on_disk().ok()?.archive_distance(),
            Some(shards) => shards.engines().find_map(|shard| shard.lmdb()?.archive_distance()),
        }?;
        let (commits, bytes, time) = (distance.commits, distance.bytes, distance.time);
        let base_age = distance.base_age.filter(|_| distance.has_base);
        let (has_base, error) = (distance.has_base, distance.error);
        Some(ArchiveLag { commits, bytes, time, has_base, base_age, error })
    }

    /// Returns the archive that the directory of this store has recorded, for a process that does not write it; `None` without one, if a
    /// function gets its files, and for a store in memory or on a server. For tools.
    ///
    /// Cost: the descriptions of its bases, and the records of a segment.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the record can't be read. An archive that can't be read is an error in the result.
    #[doc(hidden)]
    pub fn recorded_archive(&self) -> Result<Option<RecordedArchive>> {
        let engines = &self.inner.engines;
        engines.refuse_forked()?;
        if engines.several().is_none() && engines.on_disk().is_err() {
            return Ok(None);
        }
        let store = engines.directory();
        let Some(path) = lmdb::known::place(&store)? else { return Ok(None) };
        let lacks_since = Archive::open(&path).and_then(|archive| {
            let bases = if archive.is_sharded_at(&Until::End)? {
                last_bases(&archive)?
            } else {
                vec![archive.base(&Until::End)?]
            };
            bases.iter().try_for_each(|base| archive.refuse_incomplete(base, None))?;
            archive.lacks_since(&store)
        });
        let time = |nanoseconds| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        Ok(Some(RecordedArchive { path, lacks_since: lacks_since.map(|since| since.map(time)) }))
    }

    /// Returns a restore from an [archive](crate::Options::archive): to its last commit, or to an earlier commit or time.
    /// The store that writes the archive may be open at the same time. The archive does not change.
    ///
    /// The archive of a store with shards restores a sharded store.
    ///
    /// The restored store has the same commit numbers. It has no journal and no archive until it is opened with these options.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, IndexTable, Store};
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
    /// # let (shop, archive, restored) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    /// let store = Store::options().durability(Durability::Journal).archive(&archive).open(&shop)?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// let before = store.read()?.commit_number();
    /// store.transaction(|txn| notes.delete(txn, 1))?;
    /// drop((notes, store));
    ///
    /// // The row was deleted by mistake.
    /// Store::restore_archive(&archive).until_commit(before).run(&restored)?;
    /// let store = Store::open(&restored)?;
    /// assert!(NoteRepository::open(&store)?.get(&store.read()?, 1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore_archive<'a>(archive: impl AsRef<Path>) -> RestoreArchive<'a> {
        RestoreArchive { archive: archive.as_ref().to_owned(), until: None, progress: None }
    }
}

impl<'a> RestoreArchive<'a> {
    /// Restores the state after the last commit at or before this time, by the clock of the machine that wrote the store.
    /// If that clock was set back, a commit counts as no earlier than the commit before it. Archives have times in
    /// nanoseconds. Commits of earlier releases have milliseconds, and count as made at the end of their millisecond.
    ///
    /// A time in a gap of the archive restores the state before the gap. If several stores have written to the archive, such as
    /// a restored store after its original, the last of them that began before this time is restored. This also holds for
    /// copies of a store that were opened with the same archive by mistake; [`until_commit`](Self::until_commit) restores
    /// the commits that only the other copy has.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(Last::Time(time));
        self
    }

    /// Restores the state after the commit with this number, as from [`ReadTxn::commit_number`](crate::ReadTxn::commit_number),
    /// also of a write transaction, or from an [`Event`](crate::Event). If the number lacks the numbers of some shards, they are
    /// restored up to the commits that are before it in the archive. For this, the records of each tried generation are read once,
    /// and those of the restored one twice.
    pub fn until_commit(mut self, commit: impl Into<CommitNumber>) -> Self {
        self.until = Some(Last::Commit(commit.into()));
        self
    }

    /// Restores the state after the last commit of the archive that can be restored. Without this, a restore to now fails if
    /// later commits are missing, because the store has been opened [without the archive](crate::Options::without_archive)
    /// since, or because the archive has a gap, and the base after the gap is not complete.
    pub fn until_end(mut self) -> Self {
        self.until = Some(Last::End);
        self
    }

    /// Calls `progress` with the number of bytes of the archive that were read. The total includes later commits, so a
    /// restore of an earlier commit ends before the total.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Restores the store in the directory `path`, which must not exist. Returns the number of its last commit. The
    /// directory is written under another name in the parent of `path`, synced, and renamed. It gets the modes of the
    /// original store. The checksums of all files that are read are verified.
    ///
    /// It copies the last base before the requested commit, and applies the commits after it, up to the requested
    /// commit.
    ///
    /// # Errors
    ///
    /// [`Error::NotInArchive`] if the archive does not have the requested commit, or has it from two copies of the store that
    /// have written to the same archive, begins later than the requested time, has no base yet or no complete base since its
    /// last gap, or [ended](crate::Options::without_archive) before the requested time; [`Error::DamagedArchive`] if a file is
    /// damaged or missing; [`Error::Io`] with the kind `NotFound` if there is no archive, with the kind `AlreadyExists` if
    /// `path` exists, and for every error of the file system; [`Error::DiskFull`].
    pub fn run(self, path: impl AsRef<Path>) -> Result<CommitNumber> {
        self.run_with(path.as_ref(), &mut |directory, _| leave_shards(directory))
    }

    /// Restores the store like [`run`](Self::run). Before the directory is renamed, calls `complete` with the directory
    /// and the number of the last commit in each shard. A store without shards has the number 0.
    pub(super) fn run_with(self, path: &Path, complete: Complete<'_>) -> Result<CommitNumber> {
        let Self { archive, until, mut progress } = self;
        let begun = Instant::now();
        let mut done = 0;
        let mut report = |bytes: u64, total: u64| {
            done += bytes;
            if let Some(progress) = &mut progress {
                progress(Progress::new("bytes", done, Some(total), begun));
            }
        };
        let archive = Archive::open(&archive)?;
        let last = Last::until(until.as_ref());
        if archive.is_sharded_at(&last)? {
            let mut check = |base: &Base| Last::refuse_incomplete(until.as_ref(), &archive, base);
            return restore_shards(&archive, &last, path, (&mut report, &mut check), complete);
        }
        if matches!(&until, Some(Last::Commit(number)) if number.single().is_none()) {
            let what = "the commits of a sharded store in the archive of a plain store";
            return Err(Error::NotOffered { what });
        }
        let base = archive.base(&last)?;
        Last::refuse_incomplete(until.as_ref(), &archive, &base)?;
        let total = archive.bytes(&base)?;
        let mut report = |bytes| report(bytes, total);
        let io = |source| Error::io(path, source);
        let partial = Partial::create(path).map_err(io)?;
        let file = files::create_file(&partial.0.join(DATA_FILE)).map_err(io)?;
        archive.copy(&base, (&file, path), &mut report)?;
        let last = archive.apply(&base, &last, &partial.0, &mut report, None);
        let last = last.map_err(|error| match &error {
            Error::Io { path: failed, .. } | Error::DiskFull { path: failed, .. }
                if failed.starts_with(&partial.0) =>
            {
                at_path(error, path)
            }
            _ => error,
        })?;
        Modes::of(&archive.base_directory(&base)).apply(&file, &partial.0).map_err(io)?;
        file.sync_all().map_err(io)?;
        drop(file);
        complete(&partial.0, &BTreeMap::from([(0, last)]))?;
        partial.finish(path).map_err(io)?;
        Ok(last.into())
    }
}

/// The archive that a store has recorded; from [`Store::recorded_archive`].
#[derive(Debug)]
pub struct RecordedArchive {
    /// Its directory.
    pub path: PathBuf,
    /// The time of the first commit that is in the store only, or the reason why the last commit can't be restored.
    pub lacks_since: Result<Option<SystemTime>>,
}

/// A part of an archive without a gap, for tools. From [`Store::archive_parts`].
#[derive(Debug)]
pub struct ArchivePart {
    /// The number of the part.
    pub generation: u64,
    /// The time of the first state that can be restored.
    pub from: SystemTime,
    /// The time of the last commit that can be restored.
    pub until: SystemTime,
    /// The number of bases.
    pub bases: u64,
    /// The number of segments.
    pub segments: u64,
    /// The bytes of the bases and segments.
    pub bytes: u64,
    /// The number of commits in the segments, or the damage; `None` if no damage is known and the files were not verified.
    pub outcome: Option<Result<u64>>,
}

impl Store {
    /// Returns the parts of an archive without a gap, in order, for tools. With `verify`, all files are read, and their checksums are
    /// compared; otherwise, the records of the last segment of each part are read.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedArchive`] if the manifest is damaged; [`Error::Io`]. The damage of a part, such as a missing segment, is in its
    /// outcome.
    #[doc(hidden)]
    pub fn archive_parts(
        archive: impl AsRef<Path>,
        verify: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<ArchivePart>> {
        let archive = Archive::open(archive.as_ref())?;
        let generations = archive.generations();
        let total = generations.iter().map(|(own, _)| own.bytes).sum();
        let (begun, mut done) = (Instant::now(), 0);
        let mut read = |bytes: u64| {
            done += bytes;
            progress(Progress::new("bytes", done, Some(total), begun));
        };
        let time = |nanoseconds| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let part = |(own, measured): (Generation, Result<()>)| {
            // The bases of shards are of different times.
            let first = match archive.times_of_shards(own.first.generation) {
                times if times.is_empty() => Ok(None),
                times => first_restorable(&archive, own.first.generation, times),
            };
            let from = first.as_ref().map_or(own.from, |first| first.unwrap_or(own.from));
            ArchivePart {
                generation: own.first.generation,
                from: time(from),
                until: time(own.until),
                bases: own.bases,
                segments: own.segments,
                bytes: own.bytes,
                outcome: match measured.and(first.map(drop)) {
                    Err(error) => Some(Err(error)),
                    Ok(()) => verify.then(|| archive.verify(&own, &mut read)),
                },
            }
        };
        Ok(generations.into_iter().map(part).collect())
    }
}

impl RestoreArchive<'_> {
    /// Calls `each` with the rows of a table that the commits since a time have written or deleted, in the order of the commits. A row
    /// that a commit writes several times is passed each time, with the row before the commit. For tools.
    ///
    /// A copy of the store is restored in the directory `path`, which must not exist, and removed at the end. Memory does not grow with
    /// the commits.
    ///
    /// # Errors
    ///
    /// Those of [`run`](RestoreArchive::run) and of `each`; [`Error::NotOffered`] for the archive of a sharded store.
    #[doc(hidden)]
    pub fn rows_since(
        self,
        path: impl AsRef<Path>,
        table: &str,
        since: SystemTime,
        each: &mut dyn FnMut(CommittedRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { archive, mut progress, .. } = self;
        let (path, begun, mut done) = (path.as_ref(), Instant::now(), 0);
        let archive = Archive::open(&archive)?;
        if archive.is_sharded_at(&Until::End)? {
            return Err(Error::NotOffered {
                what: "the commits of a sharded store's archive; each shard has its own, so a commit is known in parts",
            });
        }
        let since = nanoseconds(since);
        let base = archive.base(&Until::Time(since))?;
        let total = archive.bytes(&base)?;
        let mut report = |bytes: u64| {
            done += bytes;
            if let Some(progress) = &mut progress {
                progress(Progress::new("bytes", done, Some(total), begun));
            }
        };
        let io = |source| Error::io(path, source);
        let partial = Partial::create(path).map_err(io)?;
        let file = files::create_file(&partial.0.join(DATA_FILE)).map_err(io)?;
        archive.copy(&base, (&file, path), &mut report)?;
        let watched = WatchedRows { table, since, each };
        archive.apply(&base, &Until::End, &partial.0, &mut report, Some(watched)).map(drop)
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for RestoreArchive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RestoreArchive");
        shown.field("archive", &self.archive).field("until", &self.until).finish_non_exhaustive()
    }
}
