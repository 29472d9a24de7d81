//! A data file as of any archived commit.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use heed::{EnvFlags, EnvOpenOptions, MdbError};

use super::{
    format::{self, Base, Head, MANIFEST_FILE, Manifest, nanoseconds_of},
    records::{Archived, Records, sections},
    restore_shards::{ManagerEntries, Parts, begins_with_manager},
    target::{bases, ended},
    watched::WatchedRows,
};
use crate::{
    engine::lmdb::{
        error::written,
        journal::{
            frame::Place,
            recovery::grow,
            replay::{self, Drops, Failure},
            tail::{Fault, Source as _},
        },
        names::{Env, FILE, LOCK_FILE},
        pages::Meta,
    },
    model::error::{Error, Result},
};

/// The number of databases that the records can create.
const DATABASES: u64 = 1 << 12;

/// The last commit of a restored store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Until {
    /// The last commit of the archive.
    End,
    /// The commit with this number in each shard; in a store with one data file, this is one number. A shard that was not
    /// available, or that the commit did not change, has 0: the commits of other shards determine its last commit
    /// ([`Archive::completed`]). Shards that were added later are missing.
    Commit(Vec<u64>),
    /// The last commit at or before this time, in nanoseconds since 1970.
    Time(u64),
}

impl Until {
    /// Returns the requested number of a shard; 0 if it has none.
    pub(super) fn number_of(&self, shard: u32) -> u64 {
        let Self::Commit(numbers) = self else { return 0 };
        numbers.get(shard as usize).copied().unwrap_or_default()
    }

    pub(super) fn includes(&self, shard: u32, number: u64, time: u64) -> bool {
        match self {
            Self::End => true,
            Self::Time(last) => nanoseconds_of(time) <= *last,
            Self::Commit(numbers) => {
                numbers.get(shard as usize).is_some_and(|last| *last == 0 || number <= *last)
            }
        }
    }

    /// Whether a commit of a store with one data file is included.
    fn includes_commit(&self, commit: u64, time: u64) -> bool {
        self.number().map_or_else(|| self.includes(0, commit, time), |last| commit <= last)
    }

    /// Returns the number of the last commit in a store with one data file; `None` if no number was given.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Commit(numbers) => numbers.first().copied(),
            Self::End | Self::Time(_) => None,
        }
    }
}

/// An archive, for reading.
pub(crate) struct Archive {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) bases: Vec<Base>,
    /// The last end of the archive.
    ended: Option<Manifest>,
}

/// A record of a segment.
pub(super) struct Walked<'w> {
    pub(super) path: &'w Path,
    pub(super) file: &'w File,
    pub(super) head: Head,
    pub(super) record: Archived,
}

/// Whether a walk continues with the next record.
pub(super) enum Step {
    Next,
    End,
}

/// Where the generation of a store with one data file continues with the records of a store with shards.
pub(super) struct Growth {
    /// The first segment with records of all shards.
    pub(super) segment: u64,
    /// The records of their manager at that time.
    pub(super) manager: ManagerEntries,
}

/// The segments that follow a base.
pub(super) struct Chain {
    pub(super) segments: Vec<u64>,
    bytes: u64,
}

/// An open segment.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Whether no record is added to it.
    pub(super) is_complete: bool,
}

impl Segment {
    /// Opens a segment. Returns `None` if it does not exist.
    pub(super) fn find(directory: &Path, segment: u64) -> Result<Option<Self>> {
        // A segment that is completed in the meantime gets another name.
        for name in [format::segment_name, format::part_name, format::segment_name] {
            let path = directory.join(name(segment));
            let is_complete = path.extension().is_none_or(|it| it != "part");
            match File::open(&path) {
                Ok(file) => return Ok(Some(Self { path, file, is_complete })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::io(&path, source)),
            }
        }
        Ok(None)
    }
}

impl Archive {
    /// Reads the contents of an archive.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(MANIFEST_FILE);
        let bytes = fs::read(&path).map_err(|source| Error::io(&path, source))?;
        let Some(manifest) = Manifest::read(&bytes) else {
            return Err(damaged(directory, "its manifest is damaged"));
        };
        let mut bases = bases(directory).map_err(|source| Error::io(directory, source))?;
        bases.sort_by_key(|base| (base.generation, base.commit));
        let ended = ended(directory).map_err(|source| Error::io(directory, source))?;
        Ok(Self { directory: directory.to_owned(), manifest, bases, ended })
    }

    /// Returns the time at which the store was first written without the archive after a generation.
    pub(super) fn ended_after(&self, identity: &[u8; 16], generation: u64) -> Option<u64> {
        let is_end = |it: &Manifest| it.identity == *identity && it.generation >= generation;
        self.ended.filter(is_end).map(|ended| ended.time)
    }

    /// Fails if the archive lacks commits after the generation of a base, up to a time in nanoseconds since 1970; `None` means
    /// now: the store was written without the archive, or a later generation has no complete base yet. `base` is the last base
    /// that can be restored.
    pub(crate) fn refuse_incomplete(&self, base: &Base, until: Option<u64>) -> Result<()> {
        let is_after = |time: u64| until.is_none_or(|until| until > nanoseconds_of(time));
        if let Some(time) = self.ended_after(&base.identity, base.generation)
            && is_after(time)
        {
            return Err(self.ended_error(time));
        }
        let later = self.bases.iter().filter(|it| it.generation > base.generation);
        let is_later = self.manifest.generation > base.generation || later.clone().count() > 0;
        if is_later && is_after(self.manifest.time) && later.clone().all(|it| is_after(it.time)) {
            return Err(self.no_base_after_gap());
        }
        let Some(until) = until.filter(|_| is_later) else { return Ok(()) };
        // Another generation has been chosen, so no base is before these commits.
        let is_before = &mut |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            if nanoseconds_of(record.time) > until {
                return Ok(Some(false));
            }
            if base.shard.is_none() {
                return Ok(Some(true));
            }
            let parts = Parts::read(file, head, record);
            let parts = parts.map_err(|failure| failed(&self.directory, failure, path))?;
            // The records of the shard map manager are no commit.
            Ok((!parts.shards.is_empty()).then_some(true))
        };
        self.refuse_later(base, &|_| true, is_before)
    }

    fn no_base_after_gap(&self) -> Error {
        self.lacks(
            "it has a gap, and its base after the gap is not complete, or later than the requested commit or time; try again when \
             `archive_lag` of the store reports a base, or restore the last commit before the gap with `until_end` \
             (`--until-end`)"
                .to_owned(),
        )
    }

    /// Fails if `is_lacking` returns true for a record of a later generation than that of a base. It returns `None` to continue.
    /// Only segments that `is_read` accepts are read.
    pub(super) fn refuse_later(
        &self,
        base: &Base,
        is_read: &dyn Fn(&Head) -> bool,
        is_lacking: &mut dyn FnMut(&Walked<'_>) -> Result<Option<bool>>,
    ) -> Result<()> {
        for segment in self.chain(base)?.segments {
            let Segment { path, file, .. } = self.segment(segment)?;
            let io = |source| Error::io(&path, source);
            let Some(mut records) = Records::open(&file).map_err(io)? else { continue };
            let head = records.head;
            let is_later = head.identity == base.identity && head.generation > base.generation;
            if !is_later || !is_read(&head) {
                continue;
            }
            while let Some(record) = records.next().map_err(io)? {
                match is_lacking(&Walked { path: &path, file: &file, head, record })? {
                    Some(true) => return Err(self.no_base_after_gap()),
                    Some(false) => return Ok(()),
                    None => {}
                }
            }
        }
        Ok(())
    }

    pub(super) fn ended_error(&self, time: u64) -> Error {
        let time = utc(time);
        self.lacks(format!(
            "it ended at {time}, when its store was opened without it, and later commits are missing; restore its \
             last commit with `until_end` (`--until-end`), or open the store with this archive again"
        ))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the bases from the time in which the store had one data file.
    fn of_one_file(&self) -> impl DoubleEndedIterator<Item = &Base> {
        self.bases.iter().filter(|base| base.shard.is_none())
    }

    /// Whether the store had several data files at the last commit of a restored store. A store can grow.
    pub(crate) fn is_sharded_at(&self, until: &Until) -> Result<bool> {
        match until {
            Until::End => {
                let Some(last) = self.bases.last() else { return Ok(false) };
                Ok(last.shard.is_some() || self.growth(last)?.is_some())
            }
            Until::Time(_) => {
                let is_before = |base: &&Base| until.includes(0, base.commit, base.time);
                let last = self.bases.iter().rev().find(is_before).or(self.bases.first());
                let Some(last) = last else { return Ok(false) };
                let is_own = |base: &&Base| base.generation == last.generation;
                let own: Vec<_> = self.of_one_file().filter(is_own).collect();
                let base = own.iter().rev().copied().find(is_before).or(own.first().copied());
                base.map_or(Ok(true), |base| self.has_grown_at(base, until))
            }
            Until::Commit(numbers) => {
                let [number] = numbers[..] else { return self.is_sharded_at(&Until::End) };
                Ok(self.is_sharded_at(&Until::End)? && self.base_of_commit(number)?.is_none())
            }
        }
    }

    /// Returns the growth of the store in the generation of a base; `None` if it has not grown since this base, or had several data
    /// files before. The start of each segment after the base is read.
    pub(super) fn growth(&self, base: &Base) -> Result<Option<Growth>> {
        if base.shard.is_some() {
            return Ok(None);
        }
        for segment in self.chain(base)?.segments {
            let Segment { path, file, .. } = self.segment(segment)?;
            let io = |source| Error::io(&path, source);
            let Some(mut records) = Records::open(&file).map_err(io)? else { continue };
            let head = records.head;
            if head.generation != base.generation || head.identity != base.identity {
                break;
            }
            let manager = begins_with_manager(&file, &mut records);
            let manager = manager.map_err(|failure| self.failed(failure, &path))?;
            if let Some(manager) = manager {
                return Ok(Some(Growth { segment: head.segment, manager }));
            }
        }
        Ok(None)
    }

    /// Whether a commit after the growth of the store, in the generation of a base, is included.
    fn has_grown_at(&self, base: &Base, until: &Until) -> Result<bool> {
        let Some(growth) = self.growth(base)? else { return Ok(false) };
        let mut has_grown = false;
        let mut step = |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            if head.segment < growth.segment {
                return Ok(Step::Next);
            }
            let parts = Parts::read(file, head, record);
            let parts = parts.map_err(|failure| self.failed(failure, path))?;
            let Some((shard, number)) = parts.shards.first() else { return Ok(Step::Next) };
            has_grown = until.includes(*shard, *number, record.time);
            Ok(Step::End)
        };
        self.walk(base, &mut step, &mut |_| ())?;
        Ok(has_grown)
    }

    /// Returns the last base that does not follow the last commit of the restored store.
    ///
    /// # Errors
    ///
    /// [`Error::NotInArchive`], also if two copies of the store have written different commits with the requested number.
    pub(crate) fn base(&self, until: &Until) -> Result<Base> {
        if let Some(number) = until.number()
            && let Some(base) = self.base_of_commit(number)?
        {
            return Ok(base);
        }
        let is_before = |base: &&Base| until.includes_commit(base.commit, base.time);
        if let Some(base) = self.of_one_file().rev().find(is_before) {
            return Ok(*base);
        }
        Err(self.lacks(match self.of_one_file().next() {
            None => "it has no base yet; the store writes a base after it has been opened with the archive"
                .to_owned(),
            Some(first) => {
                format!("it begins with commit {}, at {}", first.commit, utc(first.time))
            }
        }))
    }

    /// Returns the last base before a commit, in the last generation that has the commit.
    fn base_of_commit(&self, number: u64) -> Result<Option<Base>> {
        // In the order of generations, the last base first.
        let mut last: Vec<Base> = Vec::new();
        for base in self.of_one_file().rev().filter(|base| base.commit <= number) {
            if last.last().is_none_or(|newer| newer.generation != base.generation) {
                last.push(*base);
            }
        }
        let mut newest: Option<Base> = None;
        for base in last {
            let has_it = base.commit == number || self.last_commit(&base)? >= number;
            match newest {
                None if has_it => newest = Some(base),
                Some(newest) if has_it && self.begins_before(&newest, number) => {
                    return Err(self.two_histories(&format!("commit {number}"), &base, &newest));
                }
                _ => {}
            }
        }
        Ok(newest)
    }

    /// Whether the generation of a base begins before the commit with this number. A generation continues after all commits
    /// of the generations before, unless a copy of the store has written it.
    fn begins_before(&self, base: &Base, number: u64) -> bool {
        let first = self.bases.iter().find(|it| it.generation == base.generation);
        first.is_some_and(|first| first.commit < number)
    }

    /// Returns the error of a commit that two generations have.
    pub(super) fn two_histories(&self, what: &str, older: &Base, newer: &Base) -> Error {
        let first = self.bases.iter().filter(|base| base.generation == newer.generation);
        let segment = first.map(|base| base.segment).min().unwrap_or_default();
        self.lacks(format!(
            "two copies of the store have written {what}: it is in generation {} and, differently, in generation {}, which \
             begins with segment {segment}; copy the archive without the bases and segments of one of them, and restore the \
             copy",
            older.generation, newer.generation
        ))
    }

    /// Returns the last commit of the generation of a base with one data file.
    fn last_commit(&self, base: &Base) -> Result<u64> {
        let mut last = base.commit;
        let end = self.growth(base)?.map_or(u64::MAX, |growth| growth.segment);
        for segment in self.chain(base)?.segments.into_iter().rev() {
            let Segment { path, file, .. } = self.segment(segment)?;
            let io = |source| Error::io(&path, source);
            let Some(mut records) = Records::open(&file).map_err(io)? else { continue };
            if records.head.generation != base.generation || records.head.segment >= end {
                continue;
            }
            last = last.max(records.head.commit);
            while let Some(record) = records.next().map_err(io)? {
                last = last.max(record.commit);
            }
            break;
        }
        Ok(last)
    }

    /// Returns the directory of a base.
    pub(crate) fn base_directory(&self, base: &Base) -> PathBuf {
        self.directory.join(base.name())
    }

    /// Returns the number of bytes that a restore reads at most.
    pub(crate) fn bytes(&self, base: &Base) -> Result<u64> {
        Ok(base.length + self.chain(base)?.bytes)
    }

    pub(super) fn lacks(&self, reason: String) -> Error {
        Error::NotInArchive { path: self.directory.clone(), reason }
    }

    /// Returns the segments from a base to the end of its generation.
    pub(super) fn chain(&self, base: &Base) -> Result<Chain> {
        let mut chain = Chain { segments: Vec::new(), bytes: 0 };
        for segment in base.segment.. {
            let Some(Segment { path, file, is_complete }) =
                Segment::find(&self.directory, segment)?
            else {
                if segment <= self.manifest.segment {
                    return Err(self.missing(segment));
                }
                break;
            };
            chain.segments.push(segment);
            chain.bytes += file.metadata().map_err(|source| Error::io(&path, source))?.len();
            // Another store may have continued after an incomplete segment.
            if !is_complete {
                break;
            }
        }
        Ok(chain)
    }

    /// Opens a segment of a chain.
    pub(super) fn segment(&self, segment: u64) -> Result<Segment> {
        Segment::find(&self.directory, segment)?.ok_or_else(|| self.missing(segment))
    }

    fn missing(&self, segment: u64) -> Error {
        damaged(&self.directory, format!("segment {segment} is missing"))
    }

    /// Copies the data file of a base into the empty file `to` with this path, and checks the base. Calls `copied` with the number
    /// of bytes of each piece.
    pub(crate) fn copy(
        &self,
        base: &Base,
        (mut to, target): (&File, &Path),
        copied: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.read_base(base, &mut |piece| {
            to.write_all(piece).map_err(|source| Error::io(target, source))?;
            copied(piece.len() as u64);
            Ok(())
        })
    }

    /// Applies the records after a base to its copy, which no process has open. Returns the number of the last commit. The commits are
    /// `watched` before they are applied.
    pub(crate) fn apply(
        &self,
        base: &Base,
        until: &Until,
        to: &Path,
        applied: &mut dyn FnMut(u64),
        mut watched: Option<WatchedRows<'_>>,
    ) -> Result<u64> {
        let end = self.growth(base)?.map_or(u64::MAX, |growth| growth.segment);
        let env = open(to, base).map_err(|error| self.failed(error, to))?;
        let mut last = base.commit;
        let mut step = |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            if head.segment >= end || !until.includes_commit(record.commit, record.time) {
                return Ok(Step::End);
            }
            if record.commit > base.commit {
                if let Some(watched) = &mut watched {
                    watched.see(&self.directory, &env, walked)?;
                }
                let outcome = apply_one(&env, file, head, record);
                outcome.map_err(|failure| not_applied(&self.directory, failure, path, to))?;
                last = record.commit;
            }
            Ok(Step::Next)
        };
        let outcome = self.walk(base, &mut step, applied);
        let closed = closed(env, to, &self.directory, outcome.is_ok());
        outcome.and(closed)?;
        self.check_end(until.number(), last)?;
        Ok(last)
    }

    /// Calls `step` with each record of the generation of a base, from the first segment of the base. Calls `read` with
    /// the bytes of each record.
    pub(super) fn walk(
        &self,
        base: &Base,
        step: &mut dyn FnMut(&Walked<'_>) -> Result<Step>,
        read: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut end: Option<(Head, u64)> = None;
        for segment in self.chain(base)?.segments {
            let Segment { path, file, is_complete } = self.segment(segment)?;
            let io = |source| Error::io(&path, source);
            let length = file.length().map_err(io)?;
            let Some(mut records) = Records::open(&file).map_err(io)? else {
                // The process that creates a segment can be killed before its first bytes are written.
                if is_complete {
                    return Err(self.damaged_in(&path, 0));
                }
                break;
            };
            let head = records.head;
            if head.generation != base.generation || head.identity != base.identity {
                break;
            }
            if end.is_some_and(|(next, link)| next.segment != head.segment || link != head.link) {
                let reason =
                    format!("segment {} does not follow the previous segment", head.segment);
                return Err(damaged(&self.directory, reason));
            }
            let mut before = 0;
            while let Some(record) = records.next().map_err(io)? {
                let walked = Walked { path: &path, file: &file, head, record };
                if matches!(step(&walked)?, Step::End) {
                    return Ok(());
                }
                read(records.offset - before);
                before = records.offset;
            }
            if is_complete && records.offset != length {
                return Err(self.damaged_in(&path, records.offset));
            }
            end = Some((Head { segment: head.segment + 1, ..head }, records.link));
        }
        Ok(())
    }

    /// Checks that the archive has the last commit of the restored store.
    fn check_end(&self, number: Option<u64>, last: u64) -> Result<()> {
        match number {
            Some(number) if last < number => {
                let later = self.bases.iter().map(|base| base.commit).find(|it| *it > number);
                Err(self.lacks(later.map_or_else(
                    || format!("its last commit is {last}, and commit {number} was requested"),
                    |later| format!("it has no commits between {last} and {later}"),
                )))
            }
            _ => Ok(()),
        }
    }

    fn damaged_in(&self, path: &Path, offset: u64) -> Error {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        damaged(&self.directory, format!("{name} is damaged at byte {offset}"))
    }

    pub(super) fn failed(&self, failure: Failure, path: &Path) -> Error {
        failed(&self.directory, failure, path)
    }
}

/// Returns the error of a record of the segment `path` that could not be applied to the data file in the directory `to`.
pub(super) fn not_applied(archive: &Path, failure: Failure, path: &Path, to: &Path) -> Error {
    let path = if matches!(failure, Failure::Lmdb(_)) { to } else { path };
    failed(archive, failure, path)
}

/// Returns the error of a record in a file, or of writing to the data file in a directory.
pub(in crate::engine::lmdb) fn failed(archive: &Path, failure: Failure, path: &Path) -> Error {
    match failure {
        Failure::Fault(Fault::Damaged(reason)) => damaged(archive, reason),
        Failure::Fault(Fault::Io(source)) => Error::io(path, source),
        Failure::Lmdb(heed::Error::Io(source)) => written(path, source),
        Failure::Lmdb(error) => damaged(archive, error.to_string()),
    }
}

/// Returns a time as the command's `--until` reads it, in milliseconds: `2024-02-29T12:30:00.250Z`.
pub(super) fn utc(time: u64) -> String {
    let milliseconds = nanoseconds_of(time) / 1_000_000;
    let (days, rest) = (milliseconds / 86_400_000, milliseconds % 86_400_000);
    // Of years that begin in March, so that a leap day is the last day. 1970-01-01 is day 719,468 of the year 0, and 400 years have
    // 146,097 days. The algorithm is that of Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (seconds, milliseconds) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

pub(super) fn damaged(directory: &Path, reason: impl Into<String>) -> Error {
    Error::DamagedArchive { path: directory.to_owned(), reason: reason.into() }
}

/// Closes the data file of a restored store. If all records were applied, it is synced first.
pub(super) fn closed(env: Env, directory: &Path, archive: &Path, is_complete: bool) -> Result<()> {
    let synced = if is_complete { env.force_sync() } else { Ok(()) };
    env.close();
    synced.map_err(|error| failed(archive, error.into(), directory))?;
    let removed = fs::remove_file(directory.join(LOCK_FILE));
    removed.map_err(|source| Error::io(directory, source))
}

/// Opens the copy of a base.
pub(super) fn open(directory: &Path, base: &Base) -> std::result::Result<Env, Failure> {
    let mut first = [0; 512];
    let file = File::open(directory.join(FILE)).map_err(Fault::Io)?;
    file.read_at(0, &mut first).map_err(Fault::Io)?;
    let meta =
        Meta::read(&first).map_err(|_| Fault::Damaged("the base is not a data file".to_owned()))?;
    let mut other = [0; 512];
    file.read_at(meta.page_size(), &mut other).map_err(Fault::Io)?;
    let other = Meta::read(&other).map_or(0, |other| other.names.entries);
    let databases = meta.names.entries.max(other).min(1 << 14) + DATABASES;
    let map_size = base.length.saturating_mul(2).max(1 << 26);
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(usize::try_from(map_size).unwrap_or(usize::MAX));
    open.max_dbs(u32::try_from(databases).unwrap_or(u32::MAX));
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the directory was created for this restore, and no other process uses it. The file is synced after the
    // last record.
    let env = unsafe { Env::open(open.flags(EnvFlags::NO_SYNC), directory) };
    Ok(env?)
}

/// Applies a record. Enlarges the map if it is full.
fn apply_one(
    env: &Env,
    file: &File,
    head: &Head,
    record: &Archived,
) -> std::result::Result<(), Failure> {
    loop {
        let each: replay::Each<'_> = &|apply| {
            for offset in &record.frames {
                let place = Place { sequence: head.segment, offset: *offset };
                sections(file, head, *offset, &mut |section| apply(section, place))?;
            }
            Ok(())
        };
        match replay::apply_sections(env, record.commit, Drops::Remove, each) {
            Err(Failure::Lmdb(heed::Error::Mdb(MdbError::MapFull))) if grow(env)? => {}
            outcome => return outcome,
        }
    }
}
