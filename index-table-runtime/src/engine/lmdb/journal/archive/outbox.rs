//! The segments that are not in the archive yet, in the directory `archive.pending` of the store.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    Bound,
    format::{self, MANAGER, MANIFEST_FILE, Manifest, START},
    records::Records,
};
use crate::engine::{
    files as modes,
    lmdb::{
        journal::{
            files::{self, sync_directory, write_at},
            found::Found,
            frame::{self, Body, Frame, Header, Kind, Place, Salt, Section},
            log::Log,
            marker::Journalled,
            not_started::NotStarted,
            own::identity,
            tail::{Fault, Source, file_of, load},
        },
        names::FILE,
    },
};

/// The name of the directory.
pub(in crate::engine::lmdb::journal) const PENDING: &str = "archive.pending";

/// The identity in the place of the journal's in the manifest of an outbox that the next opening does not continue.
const SUSPENDED: [u8; 16] = [0; 16];

/// The length at which a segment is complete, in bytes.
const LONGEST: u64 = 16 << 20;

/// A position in the journal, with the values by which the next frame is recognized.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    at: Place,
    link: u64,
    record: u64,
}

/// A record of the journal that is not in a segment yet.
struct Waiting {
    number: u64,
    time: u64,
    frames: Vec<Place>,
    after: Cursor,
}

/// The segments of the archive that are still in the store.
pub(in crate::engine::lmdb) struct Outbox {
    store: PathBuf,
    directory: PathBuf,
    /// The last complete segment, and the last record.
    manifest: Manifest,
    /// The segment to which records are appended, and the manifest before it. Until the segment is complete, the stored manifest
    /// has no record of it, as its head.
    growing: Option<File>,
    begun: Manifest,
    /// The end of its last complete record.
    offset: u64,
    /// The ends of complete segments that the archive does not have, with their lengths.
    pending: VecDeque<(Manifest, u64)>,
    /// The salt of the journal, with any segment.
    salt: Salt,
    /// The offset of the first frame in each segment of the journal.
    head: u64,
    cursor: Cursor,
    buffer: Vec<u8>,
    /// The bytes that were added.
    written: u64,
    /// The journal of a sharded store.
    shards: Option<Manager>,
    /// Whether the store had one data file until now, so that the next segment has to begin with the records of the manager.
    has_grown: bool,
    /// Whether the next opening of the store starts a generation.
    is_suspended: bool,
}

/// The records of the shard map manager, as changes.
#[derive(Debug, Clone, Default)]
pub(in crate::engine::lmdb::journal) struct Manager {
    pub(in crate::engine::lmdb::journal) changes: Vec<u8>,
    /// No segment has them yet.
    is_due: bool,
}

/// The data that the archive lacks.
pub(super) struct Work {
    pub(super) manifest: Manifest,
    pub(super) complete: Vec<Manifest>,
    /// The length of the segment to which records are appended; 0 if there is none.
    pub(super) growing: u64,
    /// The bytes of all segments of this process.
    pub(super) written: u64,
}

impl Outbox {
    /// Reads the segments of an earlier process, and adds the records of its journal that are missing in them. If there
    /// is no gap, the generation continues.
    pub(in crate::engine::lmdb::journal) fn resume(
        store: &Path,
        known: &Journalled,
        found: Option<&Found>,
        number: u64,
        manager: Option<Vec<u8>>,
    ) -> Result<Self, NotStarted> {
        let directory = store.join(PENDING);
        if !directory.is_dir() {
            modes::create_directory(&directory)?;
            fs::set_permissions(&directory, fs::metadata(store)?.permissions())?;
        }
        let read = fs::read(directory.join(MANIFEST_FILE));
        let manifest = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Manifest::read(&read?),
        };
        let start = Place::default();
        let is_new = manifest.is_none();
        let manifest = manifest.unwrap_or_else(|| Manifest {
            identity: identity(),
            origin: known.identity,
            epoch: 0,
            generation: 1,
            journal: known.epoch,
            segment: 0,
            commit: number,
            link: 0,
            time: 0,
            at: start,
        });
        let mut outbox = Self {
            store: store.to_owned(),
            directory,
            manifest,
            growing: None,
            begun: manifest,
            offset: START,
            pending: VecDeque::new(),
            salt: Salt { identity: known.identity, epoch: known.epoch, sequence: 0 },
            head: 0,
            cursor: Cursor { at: start, link: 0, record: 0 },
            buffer: Vec::new(),
            written: 0,
            shards: manager.map(|changes| Manager { changes, is_due: true }),
            has_grown: false,
            is_suspended: false,
        };
        if is_new {
            outbox.clear()?;
            return Ok(outbox);
        }
        outbox.load()?;
        let Manifest { origin, journal, .. } = outbox.manifest;
        let is_suspended = origin == SUSPENDED;
        let is_same = (is_suspended || origin == known.identity) && journal == known.epoch;
        if !is_same || !outbox.catch_up(found)? || is_suspended {
            outbox.new_generation(number);
        }
        Ok(outbox)
    }

    /// Continues the generation of a store that had one data file until now. Its own journal, `own`, has ended, and the number of
    /// its last commit is `number`. If the outbox lacks commits of that journal, a generation starts.
    pub(in crate::engine::lmdb::journal) fn of_grown(
        store: &Path,
        own: &Journalled,
        number: u64,
        manager: Vec<u8>,
    ) -> Result<Self, NotStarted> {
        let mut outbox = Self::resume(store, own, None, number, Some(manager))?;
        outbox.refuse_gap(number);
        outbox.has_grown = !outbox.is_new();
        Ok(outbox)
    }

    /// Starts a generation if the last record is not the last commit of the only data file. The last record may have changed
    /// nothing, so that LMDB has not counted it.
    fn refuse_gap(&mut self, number: u64) {
        let commit = self.manifest.commit;
        if commit != number && commit != number + 1 {
            self.new_generation(number);
        }
    }

    /// Finds the complete segments, and the segment to which records are appended.
    fn load(&mut self) -> io::Result<()> {
        let mut segments: Vec<u64> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            segments.extend(name.to_str().and_then(|name| format::number_of(name, "segment")));
        }
        segments.sort_unstable();
        for segment in segments {
            let path = self.directory.join(format::segment_name(segment));
            let file = File::open(&path)?;
            let is_later = segment > self.manifest.segment;
            let Some(mut records) = Records::open(&file)? else {
                fs::remove_file(&path)?;
                continue;
            };
            if is_later && records.head != self.manifest.head() {
                fs::remove_file(&path)?;
                continue;
            }
            let mut end = Manifest { segment, ..self.manifest };
            (end.identity, end.generation) = (records.head.identity, records.head.generation);
            while let Some(record) = records.next()? {
                (end.commit, end.time) = (record.commit, record.time);
                (end.journal, end.at) = (record.journal, record.at);
                end.link = records.link;
            }
            self.pending.push_back((end, file.metadata()?.len()));
            if is_later {
                self.manifest = end;
            }
        }
        let path = self.directory.join(format::part_name(self.manifest.segment + 1));
        let file = match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if let Some(mut records) = Records::open(&file)?
            && records.head == self.manifest.head()
        {
            self.begun = self.manifest;
            while let Some(record) = records.next()? {
                let end = &mut self.manifest;
                (end.commit, end.time) = (record.commit, record.time);
                (end.journal, end.at) = (record.journal, record.at);
                end.link = records.link;
            }
            self.offset = records.offset;
            file.set_len(self.offset)?;
            self.growing = Some(file);
            return Ok(());
        }
        fs::remove_file(&path)
    }

    /// Adds the records of an earlier process. Returns false if records before them are missing.
    fn catch_up(&mut self, found: Option<&Found>) -> Result<bool, NotStarted> {
        let Some(found) = found else { return Ok(true) };
        let (source, after) = (found.source(), self.manifest.at);
        self.salt = source.checkpoint.salt;
        // The commits of one data file are counted in `begin`.
        let is_empty = self.shards.is_some() && found.tail.records.is_empty();
        if is_empty && source.checkpoint.record > self.manifest.commit + 1 {
            return Ok(false);
        }
        let is_after = |frames: &[Place]| frames.last().is_some_and(|last| *last >= after);
        let missing = found.tail.records.iter().filter(|record| is_after(&record.frames));
        for (at, record) in missing.enumerate() {
            let number = match self.shards {
                Some(_) => record.number,
                None => source.number(record, 0)?,
            };
            if at == 0 && number > self.manifest.commit + 1 {
                return Ok(false);
            }
            let last = record.frames.last().copied().unwrap_or_default();
            // The exact end is unknown. A position within the last frame is before any later record.
            let at = Place { offset: last.offset + 1, ..last };
            let after = Cursor { at, link: 0, record: 0 };
            let (number, time, frames) = (record.number, record.time, record.frames.clone());
            self.write_record(source.files, &Waiting { number, time, frames, after })?;
        }
        self.sync()?;
        Ok(true)
    }

    /// Continues in the journal of this process. `number` is the number of LMDB's last transaction.
    pub(in crate::engine::lmdb::journal) fn begin(
        &mut self,
        log: &Log,
        journalled: &Journalled,
        number: u64,
    ) -> io::Result<()> {
        // The numbers of a sharded store have gaps.
        if self.shards.is_none() {
            self.refuse_gap(number);
        }
        self.complete()?;
        if self.has_grown {
            // A restore needs the records of the manager before the first record of all shards. The segment is complete before the
            // manifest names the journal of all shards, so no process continues without it.
            self.write_manager()?;
            self.complete()?;
        }
        let at = log.end();
        self.head = log.head();
        self.cursor = Cursor { at, link: log.link(), record: log.next() };
        self.salt = Salt { identity: journalled.identity, epoch: journalled.epoch, sequence: 0 };
        self.manifest.journal = journalled.epoch;
        self.manifest.origin = journalled.identity;
        self.manifest.at = at;
        self.persist()
    }

    pub(in crate::engine::lmdb::journal) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the position in the journal up to which records were added.
    pub(super) const fn at(&self) -> Place {
        self.cursor.at
    }

    pub(super) fn work(&self) -> Work {
        let growing = if self.growing.is_some() { self.offset } else { 0 };
        let complete = self.pending.iter().map(|(end, _)| *end).collect();
        Work { manifest: self.manifest, complete, growing, written: self.written }
    }

    /// Returns the bytes of all segments, as far as the archive lacks them. `part` is the part of the segment with this number that the
    /// archive has.
    pub(super) fn lacking(&self, part: Option<(u64, u64)>) -> u64 {
        let growing = self.growing.as_ref().map(|_| (self.manifest.segment + 1, self.offset));
        let complete = self.pending.iter().map(|(end, length)| (end.segment, *length));
        let all = complete.chain(growing).map(|(segment, length)| {
            let has = part.filter(|(own, _)| *own == segment).map_or(0, |(_, bytes)| bytes);
            length.saturating_sub(has)
        });
        all.sum()
    }

    /// Removes the complete segments up to this segment, which the archive has.
    pub(super) fn delivered(&mut self, segment: u64) {
        while self.pending.front().is_some_and(|(first, _)| first.segment <= segment) {
            if let Some((first, _)) = self.pending.pop_front() {
                let path = self.directory.join(format::segment_name(first.segment));
                // A remaining segment is archived once more.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Adds all committed records of the journal.
    pub(super) fn collect(&mut self, files: &[impl Source], bound: &Bound) -> Result<(), Fault> {
        let mut waiting: Vec<Waiting> = Vec::new();
        let (mut end, mut parts, mut buffer) = (self.cursor, Vec::new(), Vec::new());
        while end.at < bound.committed {
            let is_end = |last: &&Place| last.sequence == end.at.sequence;
            if bound.ends.iter().find(is_end).is_some_and(|last| last.offset <= end.at.offset) {
                end.at = Place { sequence: end.at.sequence + 1, offset: self.head };
                continue;
            }
            let place = end.at;
            let salt = Salt { sequence: place.sequence, ..self.salt };
            let file = files.get(file_of(place.sequence, files.len()));
            let is_read = file.map_or(Ok(false), |file| load(file, place.offset, &mut buffer))?;
            let frame = Frame::read(&buffer, &salt, place.offset).filter(|frame| {
                is_read && frame.header.link == end.link && frame.header.record == end.record
            });
            let Some(frame) = frame else {
                let Place { sequence, offset } = place;
                let reason = format!(
                    "the journal has changed in segment {sequence} at byte {offset}, before it was archived"
                );
                return Err(Fault::Damaged(reason));
            };
            end.at.offset = frame.end(place.offset);
            end.link = frame.link();
            match frame.header.kind {
                Kind::Part => parts.push(place),
                Kind::Commit => {
                    end.record += 1;
                    parts.push(place);
                    let (number, time) = (frame.header.record, frame.header.time);
                    let frames = std::mem::take(&mut parts);
                    if !bound.taken_back.contains(&number) {
                        waiting.push(Waiting { number, time, frames, after: end });
                    }
                }
                Kind::Direct => {
                    let reason = "the journal lacks the changes of a commit".to_owned();
                    return Err(Fault::Damaged(reason));
                }
                Kind::TakeBack => {
                    end.record += 1;
                    parts.clear();
                    let taken = frame.taken_back();
                    waiting.retain(|record| Some(record.number) != taken);
                }
            }
        }
        for record in &waiting {
            self.write_record(files, record)?;
            self.cursor = record.after;
            if self.offset >= LONGEST {
                self.complete()?;
            }
        }
        self.cursor = end;
        if self.shards.as_ref().is_some_and(|manager| manager.is_due) {
            self.write_manager()?;
        }
        Ok(())
    }

    /// Whether there are no records before a position of the journal that are not in the outbox.
    pub(super) fn has_all(&self, bound: &Bound) -> bool {
        self.cursor.at >= bound.committed
    }

    /// Returns whether nothing has been archived yet.
    pub(in crate::engine::lmdb::journal) const fn is_new(&self) -> bool {
        self.manifest.segment == 0 && self.manifest.generation == 1 && self.growing.is_none()
    }

    /// Sets the records of the shard map manager. They are added after all records up to the end of the next
    /// [`collect`](Outbox::collect).
    pub(super) fn set_manager(&mut self, changes: Vec<u8>) {
        if let Some(manager) = &mut self.shards {
            manager.is_due |= manager.changes != changes;
            manager.changes = changes;
        }
    }

    /// Returns the records of the shard map manager.
    pub(super) fn manager(&self) -> Option<Vec<u8>> {
        self.shards.as_ref().map(|manager| manager.changes.clone())
    }

    /// Adds the records of the shard map manager.
    fn write_manager(&mut self) -> io::Result<()> {
        if self.growing.is_none() {
            self.grow()?;
        }
        let Some(manager) = &mut self.shards else { return Ok(()) };
        let Manifest { commit, time, link, journal, at, segment, .. } = self.manifest;
        let salt = Salt { sequence: segment + 1, ..self.manifest.head().salt() };
        let header = Header {
            kind: Kind::Commit,
            record: commit,
            time,
            durable: at,
            checkpoint: journal,
            link,
        };
        let sections = [Section { shard: MANAGER, number: 0, changes: &manager.changes }];
        let body = Body::Sections(&sections);
        let link = frame::write(&mut self.buffer, &salt, self.offset, &header, body);
        let file = self.growing.as_ref().ok_or(io::ErrorKind::NotFound)?;
        write_at(file, self.offset, &self.buffer)?;
        self.manifest.link = link.ok_or(io::ErrorKind::FileTooLarge)?;
        self.offset += self.buffer.len() as u64;
        manager.is_due = false;
        Ok(())
    }

    /// Ends the generation, because records could not be added. The next generation continues at this position of the
    /// journal, after the commit `number`.
    pub(super) fn skip(&mut self, (at, link, record): (Place, u64, u64), number: u64) {
        if self.cursor.at < at {
            self.cursor = Cursor { at, link, record };
            self.new_generation(number);
        }
    }

    fn write_record(&mut self, files: &[impl Source], record: &Waiting) -> Result<(), Fault> {
        let time = record.time.max(self.manifest.time);
        if self.growing.is_none() {
            self.grow()?;
        }
        let (mut offset, mut link) = (self.offset, self.manifest.link);
        let mut commit = self.shards.as_ref().map(|_| record.number);
        let segment = self.manifest.segment + 1;
        let salt = self.manifest.head().salt();
        let salt = Salt { sequence: segment, ..salt };
        let (mut buffer, mut frames) = (Vec::new(), record.frames.iter().peekable());
        while let Some(place) = frames.next() {
            let kind = if frames.peek().is_none() { Kind::Commit } else { Kind::Part };
            let from = Salt { sequence: place.sequence, ..self.salt };
            let file = files.get(file_of(place.sequence, files.len()));
            let is_read = file.map_or(Ok(false), |file| load(file, place.offset, &mut buffer))?;
            let frame = Frame::read(&buffer, &from, place.offset).filter(|_| is_read);
            let sections: Option<Vec<Section<'_>>> =
                frame.and_then(|frame| frame.sections().collect());
            let first = sections.as_ref().and_then(|sections| sections.first());
            commit = commit.or_else(|| first.map(|first| first.number));
            let (Some(sections), Some(commit)) = (&sections, commit) else {
                let reason = format!("record {} of the journal has no changes", record.number);
                return Err(Fault::Damaged(reason));
            };
            let header = Header {
                kind,
                record: commit,
                time,
                durable: record.after.at,
                checkpoint: self.salt.epoch,
                link,
            };
            let body = Body::Sections(sections);
            let written = frame::write(&mut self.buffer, &salt, offset, &header, body);
            link = written.ok_or(io::ErrorKind::FileTooLarge).map_err(io::Error::from)?;
            let file = self.growing.as_ref().ok_or(io::ErrorKind::NotFound);
            write_at(file.map_err(io::Error::from)?, offset, &self.buffer)?;
            offset += self.buffer.len() as u64;
        }
        self.buffer.shrink_to(1 << 16);
        self.written += offset - self.offset;
        (self.offset, self.manifest.link) = (offset, link);
        self.manifest.time = time;
        self.manifest.journal = self.salt.epoch;
        self.manifest.at = record.after.at;
        self.manifest.commit = commit.unwrap_or(self.manifest.commit);
        Ok(())
    }

    /// Creates the next segment.
    fn grow(&mut self) -> io::Result<()> {
        let path = self.directory.join(format::part_name(self.manifest.segment + 1));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        file.set_permissions(fs::metadata(self.store.join(FILE))?.permissions())?;
        write_at(&file, 0, &self.manifest.head().bytes())?;
        sync_directory(&self.directory)?;
        self.offset = START;
        self.growing = Some(file);
        self.begun = self.manifest;
        Ok(())
    }

    /// Makes all added records durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.growing.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Completes the segment to which records are appended.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        let Some(file) = &self.growing else { return Ok(()) };
        let segment = self.manifest.segment + 1;
        let part = self.directory.join(format::part_name(segment));
        if self.offset > START {
            file.set_len(self.offset)?;
            file.sync_all()?;
            fs::rename(part, self.directory.join(format::segment_name(segment)))?;
            self.manifest.segment = segment;
            self.pending.push_back((self.manifest, self.offset));
        } else {
            fs::remove_file(part)?;
        }
        self.growing = None;
        sync_directory(&self.directory)?;
        self.persist()
    }

    /// Records that the next opening of the store starts a generation, unless one starts before.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.is_suspended = true;
        self.persist().inspect_err(|_| self.is_suspended = false)
    }

    pub(super) fn resume_generation(&mut self) {
        self.is_suspended = false;
        // If this fails, the next opening of the store starts a generation.
        let _ = self.persist();
    }

    /// Starts a new generation, with a segment that does not continue the last segment.
    pub(in crate::engine::lmdb::journal) fn new_generation(&mut self, commit: u64) {
        if self.complete().is_err() {
            self.growing = None;
        }
        if let Some(manager) = &mut self.shards {
            manager.is_due = true;
        }
        self.is_suspended = false;
        self.offset = START;
        self.manifest.generation += 1;
        self.manifest.link = 0;
        self.manifest.commit = commit;
        // If this fails, the next opening finds a gap and starts another generation.
        let _ = self.persist();
    }

    /// Starts a new generation after all records. Before this time, the state of the store is that of the generation before,
    /// although there may be no later record.
    pub(super) fn new_generation_at(&mut self, time: u64) {
        self.new_generation(self.manifest.commit);
        self.manifest.time = time.max(self.manifest.time);
        let _ = self.persist();
    }

    /// Starts a new generation, because the end of the archive differs from the state of this outbox.
    pub(super) fn move_to(
        &mut self,
        archive: Option<&Manifest>,
        epoch: u64,
        (generation, last): (u64, u64),
    ) -> io::Result<()> {
        let commit = self.manifest.commit;
        self.growing = None;
        self.pending.clear();
        self.clear()?;
        let own = &mut self.manifest;
        if let Some(archive) = archive {
            (own.identity, own.epoch) = (archive.identity, archive.epoch.max(epoch));
            own.time = own.time.max(archive.time);
        }
        own.generation = own.generation.max(generation);
        own.segment = last;
        self.new_generation(commit);
        self.persist()
    }

    /// Removes all segments.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("segment.") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn persist(&self) -> io::Result<()> {
        let mut manifest = if self.growing.is_some() { self.begun } else { self.manifest };
        if self.is_suspended {
            // The outbox does not continue the records of the journal.
            manifest.origin = SUSPENDED;
        }
        put(&self.directory, MANIFEST_FILE, &manifest.bytes(), &self.store.join(FILE))
    }
}

/// Writes a small file under a temporary name, with the mode of another file, and renames it.
pub(super) fn put(directory: &Path, name: &str, bytes: &[u8], like: &Path) -> io::Result<()> {
    let temporary = directory.join(format!(".{name}.partial"));
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&temporary)?;
    if let Ok(like) = fs::metadata(like) {
        file.set_permissions(like.permissions())?;
    }
    files::write_at(&file, 0, bytes)?;
    file.sync_all()?;
    fs::rename(temporary, directory.join(name))?;
    sync_directory(directory)
}
