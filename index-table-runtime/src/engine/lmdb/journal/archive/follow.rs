//! The records of an archive that a follower has not applied.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    format::{self, Base, FOLLOWED, FOLLOWER, Head, Manifest, START},
    known::{bytes_of, path_of},
    outbox::put,
    records::{Archived, Records},
    restore::{Archive, Segment, damaged, failed},
    restore_shards::{ManagerEntries, Parts, begins_with_manager},
    target::{self, Fence},
};
use crate::{
    engine::lmdb::{journal::tail::Source as _, names::FILE},
    model::error::{Error, Result},
};

/// A record and its segment.
pub(crate) struct Followed<'f> {
    pub(in crate::engine::lmdb) file: &'f File,
    pub(in crate::engine::lmdb) head: Head,
    pub(in crate::engine::lmdb) record: Archived,
    /// The length of the record in the segment, in bytes.
    pub(crate) bytes: u64,
}

impl Followed<'_> {
    pub(crate) const fn commit(&self) -> u64 {
        self.record.commit
    }

    /// Returns the time of the commit, in nanoseconds since 1970.
    pub(crate) const fn time(&self) -> u64 {
        format::nanoseconds_of(self.record.time)
    }

    /// Returns the shards of the record, in the archive of a sharded store.
    pub(crate) fn parts(&self, archive: &Path) -> Result<Parts> {
        let parts = Parts::read(self.file, &self.head, &self.record);
        parts.map_err(|failure| failed(archive, failure, archive))
    }
}

/// The commits of an archive after a gap.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    /// At least so many commits.
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    /// The time of the first of them that is known, in nanoseconds since 1970.
    pub(crate) first: Option<u64>,
}

impl Beyond {
    fn add(&mut self, time: u64) {
        let time = format::nanoseconds_of(time);
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
    }
}

/// The base with the state of a shard before its first commit.
pub(crate) enum BaseBefore {
    Found(Base),
    /// The archive has no base of the shard yet.
    NotYet,
    /// The archive has other bases of the shard.
    None,
}

/// The position of a follower in its archive.
#[derive(Debug, Clone)]
pub(crate) struct Following {
    directory: PathBuf,
    /// The base from which the follower began.
    begun: Manifest,
    segment: u64,
    offset: u64,
    link: Option<u64>,
    /// Whether the follower has shards. A follower with one data file ends where its original has grown.
    has_shards: bool,
}

/// Returns the number that the file of a follower has: the sum of the numbers of its shards.
pub(crate) fn position(commits: &BTreeMap<u32, u64>) -> u64 {
    commits.values().fold(0, |sum, number| sum.wrapping_add(*number))
}

/// The file that marks a follower's directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Whether the follower has read this archive, and not another one.
    pub(crate) is_of_archive: bool,
    /// Whether the follower can continue in the last generation of the archive.
    pub(crate) continues: bool,
    /// The [`position`] at which the follower was closed; `None` if an earlier release has not written it.
    pub(crate) position: Option<u64>,
}

/// Reads the mark of a follower's directory; `None` if it is not the directory of a follower.
pub(crate) fn mark_of_follower(directory: &Path, archive: &Archive) -> Result<Option<Mark>> {
    let path = directory.join(FOLLOWER);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|source| Error::io(&path, source))?,
    };
    let latest = archive.bases.iter().map(|base| base.generation).max();
    Ok(Manifest::read(&bytes).map(|found| {
        let is_of_archive = found.identity == archive.manifest.identity;
        Mark {
            is_of_archive,
            continues: is_of_archive && Some(found.generation) == latest,
            position: Some(found.commit).filter(|_| (found.generation, found.commit) != (0, 0)),
        }
    }))
}

/// Returns the directory of the archive that a follower applies; `None` if the directory is not that of a follower.
pub(crate) fn archive_of_follower(directory: &Path) -> Result<Option<PathBuf>> {
    let read = |name| match fs::read(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some).map_err(|source| Error::io(&directory.join(name), source)),
    };
    if read(FOLLOWER)?.is_none() {
        return Ok(None);
    }
    Ok(read(FOLLOWED)?.map(path_of))
}

impl Following {
    /// Begins after the last bases at or before the commits with these numbers, in the last generation that has a base of
    /// each shard. A store without shards has the number 0.
    pub(crate) fn begin(
        archive: &Archive,
        commits: &BTreeMap<u32, u64>,
        has_shards: bool,
    ) -> Result<Self> {
        let generations: BTreeSet<_> = archive.bases.iter().map(|base| base.generation).collect();
        let bases: Vec<_> =
            archive.bases.iter().filter(|it| has_shards || it.shard.is_none()).copied().collect();
        let first = |generation| Self::first_base(&bases, commits, generation);
        let Some(base) = generations.into_iter().rev().find_map(first) else {
            return Err(Error::NotInArchive {
                path: archive.directory.clone(),
                reason: format!("it has no base at or before the commits {commits:?}"),
            });
        };
        let begun = Manifest {
            identity: base.identity,
            generation: base.generation,
            commit: position(commits),
            segment: base.segment,
            ..archive.manifest
        };
        let (directory, segment) = (archive.directory.clone(), base.segment);
        Ok(Self { directory, begun, segment, offset: START, link: None, has_shards })
    }

    /// Returns the first of the last bases of a generation at or before these commits.
    fn first_base(bases: &[Base], commits: &BTreeMap<u32, u64>, generation: u64) -> Option<Base> {
        let last = |(shard, commit): (&u32, &u64)| {
            let is_last = |it: &&Base| {
                it.generation == generation && it.shard() == *shard && it.commit <= *commit
            };
            bases.iter().rev().find(is_last).copied()
        };
        let bases = commits.iter().map(last).collect::<Option<Vec<_>>>()?;
        bases.into_iter().min_by_key(|base| base.segment)
    }

    /// Returns the directory of the archive.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the files that mark a follower's directory. If the follower can't continue in this generation, the next
    /// opening copies the archive again.
    pub(crate) fn record(
        &self,
        directory: &Path,
        commits: &BTreeMap<u32, u64>,
        continues: bool,
    ) -> Result<()> {
        let generation = if continues { self.begun.generation } else { 0 };
        let commit = position(commits);
        let bytes = Manifest { generation, commit, ..self.begun }.bytes();
        let files = [(FOLLOWED, bytes_of(self.directory.clone())), (FOLLOWER, bytes)];
        files.iter().try_for_each(|(name, bytes)| {
            let put = put(directory, name, bytes, &directory.join(FILE));
            put.map_err(|source| Error::io(directory, source))
        })
    }

    /// Removes the files that mark a follower's directory.
    pub(crate) fn forget(directory: &Path) -> Result<()> {
        for name in [FOLLOWER, FOLLOWED] {
            match fs::remove_file(directory.join(name)) {
                Err(error) if name == FOLLOWED && error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|source| Error::io(directory, source))?,
            }
        }
        Ok(())
    }

    /// Notifies the store that writes the archive of the promotion of a follower. [`Fence::lift`] takes it back.
    pub(crate) fn promote(&self) -> Result<Fence> {
        let promoted = target::promote(&self.directory, &self.begun);
        promoted.map_err(|source| Error::io(&self.directory, source))
    }

    /// Fails if the follower has all records that it can get from its generation, and the archive has later commits.
    ///
    /// # Errors
    ///
    /// [`Error::NotInArchive`]: the archive continues in another generation (with its manifest, a base, or the next
    /// segment), a segment was removed, or the store has been opened without the archive.
    pub(crate) fn refuse_gap(&self) -> Result<()> {
        let archive = Archive::open(&self.directory)?;
        let Manifest { identity, generation, .. } = self.begun;
        let is_other = |of: &[u8; 16], number| *of != identity || number > generation;
        let gap = "it continues after a gap; drop the follower and open it again, which copies the new base";
        if is_other(&archive.manifest.identity, archive.manifest.generation)
            || archive.bases.iter().any(|base| is_other(&base.identity, base.generation))
        {
            return Err(archive.lacks(gap.to_owned()));
        }
        let ended = archive.ended_after(&identity, generation);
        let refuse_ended = || ended.map_or(Ok(()), |time| Err(archive.ended_error(time)));
        let Some(Segment { path, file, .. }) = self.open()? else {
            // The manifest is read once more, because the segment may have been completed in the meantime.
            let last = Archive::open(&self.directory)?.manifest.segment;
            if last < self.segment || self.open()?.is_some() {
                return refuse_ended();
            }
            return Err(archive.lacks(format!(
                "segment {} is missing; put it back, or remove the directory of the follower and open it again, which copies a later base",
                self.segment
            )));
        };
        if self.growth_in(&path, &file)?.is_some() {
            let reason = "the original has several data files now; drop the follower and open it again, which adds them";
            return Err(archive.lacks(reason.to_owned()));
        }
        let records = Records::open(&file).map_err(|source| Error::io(&path, source))?;
        if records.is_some_and(|it| is_other(&it.head.identity, it.head.generation)) {
            return Err(archive.lacks(gap.to_owned()));
        }
        refuse_ended()
    }

    /// Measures what the archive has after a gap. `commits` are the last commits of the follower, by shard.
    pub(crate) fn beyond(&self, commits: &BTreeMap<u32, u64>) -> Result<Beyond> {
        let archive = Archive::open(&self.directory)?;
        let mut beyond = Beyond::default();
        let latest = archive.bases.last().map_or(0, |base| base.generation);
        let mut based = BTreeMap::new();
        for base in archive.bases.iter().filter(|base| base.generation == latest) {
            based.insert(base.shard(), base.commit);
            beyond.add(base.time);
        }
        if let Some(time) = archive.ended_after(&self.begun.identity, latest) {
            beyond.first = Some(format::nanoseconds_of(time));
        }
        let own = |shard: &u32| commits.get(shard).copied().unwrap_or_default();
        beyond.commits = based.iter().map(|(shard, last)| last.saturating_sub(own(shard))).sum();
        let (mut counted, mut beyond_growth) = (0, false);
        for segment in self.segment.. {
            let Some(Segment { path, file, .. }) = Segment::find(&self.directory, segment)? else {
                if segment > archive.manifest.segment {
                    break;
                }
                continue;
            };
            let io = |source| Error::io(&path, source);
            let Some(mut records) = Records::open(&file).map_err(io)? else { continue };
            let has_grown = beyond_growth || self.growth_in(&path, &file)?.is_some();
            beyond_growth = has_grown;
            if records.head.generation == self.begun.generation && !has_grown {
                continue;
            }
            while let Some(record) = records.next().map_err(io)? {
                counted += 1;
                beyond.add(record.time);
            }
            beyond.bytes += records.offset;
        }
        // The commits in the gap itself are unknown.
        beyond.commits = beyond.commits.max(counted).max(1);
        Ok(beyond)
    }

    /// Calls `each` with each record that follows. If it fails, the next call continues with the same record. A record
    /// can be repeated.
    pub(crate) fn advance(
        &mut self,
        each: &mut dyn FnMut(&Followed<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut is_repeated = false;
        loop {
            let Some(Segment { path, file, is_complete }) = self.open()? else { return Ok(()) };
            let io = |source| Error::io(&path, source);
            let Some(mut records) = Records::open(&file).map_err(io)? else {
                if is_complete {
                    return Err(self.damaged(&path, 0));
                }
                return Ok(());
            };
            let head = records.head;
            let Manifest { identity, generation, .. } = self.begun;
            if head.identity != identity
                || head.generation != generation
                || self.growth_in(&path, &file)?.is_some()
            {
                return Ok(());
            }
            if self.offset == START {
                if self.link.is_some_and(|link| link != head.link) {
                    let reason =
                        format!("segment {} does not follow the previous segment", self.segment);
                    return Err(damaged(&self.directory, reason));
                }
            } else {
                records.offset = self.offset;
                records.link = self.link.unwrap_or_default();
            }
            while let Some(record) = records.next().map_err(io)? {
                let bytes = records.offset - self.offset;
                each(&Followed { file: &file, head, record, bytes })?;
                (self.offset, self.link) = (records.offset, Some(records.link));
            }
            let length = file.length().map_err(io)?;
            if is_complete && self.offset == length {
                self.segment += 1;
                self.offset = START;
                is_repeated = false;
                continue;
            }
            // After a crash of its writer, a segment can have different frames for the same commits.
            if !is_repeated && length > self.offset {
                is_repeated = true;
                (self.offset, self.link) = (START, Some(head.link));
                continue;
            }
            if is_complete {
                return Err(self.damaged(&path, self.offset));
            }
            return Ok(());
        }
    }

    /// Returns the records of the shard map manager with which the original has grown, if the follower has one data file, and has all
    /// records before. The archive continues the generation of the follower with them.
    pub(crate) fn growth(&self) -> Result<Option<ManagerEntries>> {
        let Some(Segment { path, file, .. }) = self.open()? else { return Ok(None) };
        let records = Records::open(&file).map_err(|source| Error::io(&path, source))?;
        let is_own = |head: &Head| {
            (head.identity, head.generation) == (self.begun.identity, self.begun.generation)
        };
        if records.is_none_or(|records| !is_own(&records.head)) {
            return Ok(None);
        }
        self.growth_in(&path, &file)
    }

    /// Returns the records of the manager with which this segment begins, because the original has grown there, and the follower has
    /// one data file.
    fn growth_in(&self, path: &Path, file: &File) -> Result<Option<ManagerEntries>> {
        if self.has_shards || self.offset != START {
            return Ok(None);
        }
        let records = Records::open(file).map_err(|source| Error::io(path, source))?;
        let Some(mut records) = records else { return Ok(None) };
        let manager = begins_with_manager(file, &mut records);
        manager.map_err(|failure| failed(&self.directory, failure, path))
    }

    /// Returns the base with the state of a shard before its commit with this number, which is the first one that the follower gets
    /// of the shard.
    pub(crate) fn base_before(&self, archive: &Archive, shard: u32, number: u64) -> BaseBefore {
        let Manifest { identity, generation, .. } = self.begun;
        let is_own = |base: &&Base| {
            (base.identity, base.generation, base.shard()) == (identity, generation, shard)
        };
        let mut bases = archive.bases.iter().filter(is_own).copied().peekable();
        if bases.peek().is_none() {
            return BaseBefore::NotYet;
        }
        let found = bases.find(|base| base.commit.checked_add(1) == Some(number));
        found.map_or(BaseBefore::None, BaseBefore::Found)
    }

    /// Opens the current segment. Returns `None` if it does not exist yet.
    fn open(&self) -> Result<Option<Segment>> {
        Segment::find(&self.directory, self.segment)
    }

    fn damaged(&self, path: &Path, offset: u64) -> Error {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        damaged(&self.directory, format!("{name} is damaged at byte {offset}"))
    }
}
