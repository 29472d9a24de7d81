//! Recovery, and the start of the journal of a store that this process will write.

use std::{
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    path::Path,
    sync::Arc,
};

use heed::{EnvFlags, EnvOpenOptions};

use super::{
    archive::{known, outbox::Outbox},
    begun::Begun,
    block::{Block, HEAD, Saved},
    changes::Operations,
    common::Open,
    files::{self, OWN, Segment, Segments},
    frame::{Kind, Place, Salt, Section},
    group::{Group, Strategy},
    limits::Limits,
    log::{self, Log},
    marker::{self, Journalled, Marker},
    member::Member,
    pinned::Slots,
    presence::{FileLock, WriterLock},
    replay::{Failure, Source},
    snapshot::{Refused, Snapshot, last_number},
    tail::{self, Fault, Record, Tail},
    weaken,
};
use crate::engine::{
    Destination, files as modes,
    lmdb::{
        names::{Env, FILE},
        pages,
    },
};
use crate::locks::Unshared;

/// The reason why a journal is not started, or a store not recovered.
pub(in crate::engine::lmdb) enum NotStarted {
    /// Another process writes the store.
    Elsewhere,
    Lmdb(heed::Error),
    Io(io::Error),
    /// The damage.
    Damaged(String),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<heed::Error> for NotStarted {
    fn from(error: heed::Error) -> Self {
        match error {
            heed::Error::Io(error) => Self::Io(error),
            error => Self::Lmdb(error),
        }
    }
}

impl From<Fault> for NotStarted {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(error) => Self::Io(error),
            Fault::Damaged(reason) => Self::Damaged(reason),
        }
    }
}

impl From<pages::Fault> for NotStarted {
    fn from(fault: pages::Fault) -> Self {
        match fault {
            pages::Fault::Io(error) => Self::Io(error),
            pages::Fault::Damaged(reason) => Self::Damaged(reason),
        }
    }
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lmdb(error) => error.into(),
            Failure::Fault(fault) => fault.into(),
        }
    }
}

impl From<Refused> for NotStarted {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Lmdb(error) => error.into(),
            Refused::Io(error) => error.into(),
            Refused::Changed(reason) => Self::Damaged(reason.to_owned()),
        }
    }
}

/// Opens the data file for access without LMDB.
pub(super) fn data(directory: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(directory.join(FILE))
}

/// Returns the marker of the data file in a directory. A missing file has no marker.
pub(in crate::engine::lmdb) fn marker_of(directory: &Path) -> Result<Marker, NotStarted> {
    let file = match File::open(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marker::None),
        file => file?,
    };
    match marker::find(&file)? {
        Some(marker) => Ok(marker),
        None => interrupted_marker(directory),
    }
}

/// Returns the number of the last transaction in the data file of a directory; `None` if there is none.
pub(in crate::engine::lmdb) fn last_number_of(directory: &Path) -> Result<Option<u64>, NotStarted> {
    match File::open(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(last_number(&file?)?),
    }
}

/// Returns the marker of a data file if the write of its marker was interrupted. The data file was complete and durable
/// before this write, so it has all commits whether its journal is applied or not.
fn interrupted_marker(directory: &Path) -> Result<Marker, NotStarted> {
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    if heads.iter().any(|head| files::is_given_up(head)) {
        return Ok(Marker::None);
    }
    let blocks: Vec<_> = heads.iter().filter_map(|head| Block::read(head)).collect();
    let newest = blocks.iter().max_by_key(|block| (block.salt.epoch, block.salt.sequence));
    let newest = newest
        .map(|block| block.salt)
        .filter(|newest| blocks.iter().all(|block| block.salt.identity == newest.identity));
    let Some(Salt { identity, epoch, .. }) = newest else {
        let reason = "the record of the journal in data.mdb is damaged, and there is no journal";
        return Err(NotStarted::Damaged(reason.to_owned()));
    };
    Ok(Marker::Needed(Journalled::own(identity, epoch)))
}

/// Returns whether a directory has a plain store with a journal. A shard map manager that was opened as a plain store has a
/// journal too, beside that of all shards.
pub(in crate::engine::lmdb) fn has_own_journal(directory: &Path) -> Result<bool, NotStarted> {
    let is_marked = marker_of(directory)? != Marker::None;
    Ok(is_marked && !modes::exists(&files::path(directory, files::SHARED, 0))?)
}

/// Removes a journal that is not needed. Readers may have the store open, because they don't use the journal.
pub(in crate::engine::lmdb) fn give_up(directory: &Path) -> Result<(), NotStarted> {
    let data = data(directory)?;
    let first = Segment::open(&files::path(directory, OWN, 0))?;
    // Its writer may be closing the store.
    let _lock = match first.file().map(FileLock::take).transpose()? {
        Some(None) => return Err(NotStarted::Elsewhere),
        lock => lock.flatten(),
    };
    // Without the marker, the records would be evidence of later commits.
    files::give_up(directory)?;
    marker::put(&data, Marker::None)?;
    data.sync_data()?;
    files::remove(directory, 0);
    Ok(())
}

/// Returns a random number, for which no file of the operating system is needed.
pub(super) fn identity() -> [u8; 16] {
    let word = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut identity = [0; 16];
    identity.iter_mut().zip(word().into_iter().chain(word())).for_each(|(to, from)| *to = from);
    identity
}

/// The contents of a journal.
pub(super) struct Found {
    files: Vec<Segment>,
    pub(super) checkpoint: Block,
    pub(super) tail: Tail,
    /// Whether the first records may be in the state of the checkpoint.
    overlaps: bool,
}

impl Found {
    /// Reads the journal of one data file.
    pub(super) fn read(directory: &Path, known: &Journalled) -> Result<Self, NotStarted> {
        let files = files::existing(directory, OWN)?;
        let checkpoint = tail::newest(&files::heads(&files)?, known)?;
        if let Some(reason) = files::find_missing(directory, OWN, &files)? {
            return Err(NotStarted::Damaged(reason));
        }
        Ok(Self { overlaps: false, ..Self::of(files, checkpoint)? })
    }

    /// Reads the records after a checkpoint.
    pub(super) fn of(files: Vec<Segment>, checkpoint: Block) -> Result<Self, Fault> {
        let tail = tail::read(&files, &checkpoint)?;
        Ok(Self { files, checkpoint, tail, overlaps: true })
    }

    /// Makes all records durable, because a killed process may not have synced its last records.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.files.iter().try_for_each(Segment::sync)
    }

    /// Returns the reason to refuse a data file with later commits than the journal.
    fn ends_early(&self, last: u64, number: u64) -> String {
        let Place { sequence, offset } = self.tail.end;
        format!(
            "the journal ends in segment {sequence} at byte {offset} with LMDB's transaction {last}, and data.mdb has \
             transaction {number}: a file of the journal was replaced or damaged"
        )
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { files: &self.files, checkpoint: &self.checkpoint }
    }

    fn saved(&self, shard: u32) -> Result<&Saved, NotStarted> {
        self.checkpoint.saved(shard).ok_or_else(|| {
            NotStarted::Damaged("the journal has no checkpoint of this store".to_owned())
        })
    }

    /// Returns the number of the last commit of a shard; 0 if the journal does not have the shard.
    pub(super) fn last(&self, shard: u32) -> Result<u64, NotStarted> {
        let Some(saved) = self.checkpoint.saved(shard) else { return Ok(0) };
        let last = self.tail.records.iter().rev().find(|record| record.changes(shard));
        let last = last.map(|record| self.source().number(record, shard)).transpose()?;
        Ok(saved.number.max(last.unwrap_or_default()))
    }

    /// Returns the number of the last commit of a shard that is certainly in LMDB, which does not count a record without changes.
    /// A key is deleted in a record only if it was there.
    pub(super) fn last_change(&self, shard: u32) -> Result<u64, NotStarted> {
        let mut number = self.checkpoint.saved(shard).map_or(0, |saved| saved.number);
        for place in self.tail.records.iter().flat_map(|record| &record.frames) {
            self.source().sections(*place, &mut |section| {
                if section.shard == shard && Operations::of(section.changes).next().is_some() {
                    number = number.max(section.number);
                }
                Ok(())
            })?;
        }
        Ok(number)
    }

    /// Returns the records of a shard after its state with this number.
    pub(super) fn records_after(
        &self,
        shard: u32,
        number: u64,
    ) -> Result<Vec<&Record>, NotStarted> {
        let mut records = Vec::new();
        for record in self.tail.records.iter().filter(|record| record.changes(shard)) {
            if !records.is_empty() || self.source().number(record, shard)? > number {
                records.push(record);
            }
        }
        Ok(records)
    }
}

/// Brings the data file to the last commit. No process has the store open, or opens it before this function returns.
/// The data file is complete afterwards. An interrupted recovery is repeated from the same checkpoint, whose
/// pages are unchanged because a reader pins them before the first write.
pub(in crate::engine::lmdb) fn recover(
    directory: &Path,
    known: Journalled,
    (map_size, databases): (usize, u32),
    prepare: impl FnOnce() -> io::Result<()>,
) -> Result<(), NotStarted> {
    let found = Found::read(directory, &known)?;
    // If the power fails during the recovery, data.mdb must not have a record that the journal lacks.
    found.sync()?;
    recover_from(&found, 0, directory, known, (map_size, databases), prepare)
}

/// Does the same for one shard, with a journal that has been read.
pub(super) fn recover_from(
    found: &Found,
    shard: u32,
    directory: &Path,
    known: Journalled,
    (map_size, databases): (usize, u32),
    prepare: impl FnOnce() -> io::Result<()>,
) -> Result<(), NotStarted> {
    let (data, saved) = (data(directory)?, found.saved(shard)?);
    if !saved.is_of(&data)? {
        let reason = "data.mdb is not the file that its journal was written for";
        return Err(NotStarted::Damaged(reason.to_owned()));
    }
    saved.check_length(&directory.join(FILE))?;
    // A record is durable before LMDB commits it.
    let (last, number) = (found.last(shard)?, last_number(&data)?);
    let direct = found.tail.direct;
    let last = direct.map_or(last, |direct| last.max(direct.number));
    if number.is_some_and(|number| number > last) && !weaken::any() {
        return Err(NotStarted::Damaged(found.ends_early(last, number.unwrap_or_default())));
    }
    let created = found.source().creates(&found.tail.records, shard)?;
    // Nothing is written to the data file if the lock file can't be.
    prepare()?;
    let epoch = found.checkpoint.salt.epoch;
    let clean = Marker::Clean(Journalled { epoch, ..known });
    if direct.is_some_and(|it| !it.is_taken_back && Some(it.number) == number) {
        // LMDB has synced the data file before it wrote this number.
        marker::put(&data, clean)?;
        return Ok(data.sync_data()?);
    }
    saved.restore(&data)?;
    let named = saved.databases().saturating_add(created);
    let databases = databases.saturating_add(u32::try_from(named).unwrap_or(u32::MAX));
    let noted = usize::try_from(saved.map_size).unwrap_or_default();
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_size.max(noted)).max_dbs(databases);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process has the store open, and none opens it before this process is done. Without syncs
    // the file can be rebuilt from the last checkpoint and the journal, until it is synced below.
    let env = unsafe { Env::open(open.flags(EnvFlags::NO_SYNC), directory) }?;
    let applied = apply_all(&env, &data, found, shard);
    if applied.is_ok() {
        env.force_sync()?;
        marker::put(&data, clean)?;
        data.sync_data()?;
    }
    // The reader is dropped after that.
    drop(applied?);
    env.close();
    Ok(())
}

/// Applies all records. Returns the reader that pins the checkpoint.
fn apply_all(env: &Env, data: &File, found: &Found, shard: u32) -> Result<Snapshot, NotStarted> {
    let (snapshot, saved) = (Snapshot::take(env, data)?, found.saved(shard)?);
    if snapshot.number != saved.number && !weaken::any() {
        let reason = format!(
            "LMDB has opened transaction {}, and the checkpoint is of {}",
            snapshot.number, saved.number
        );
        return Err(NotStarted::Damaged(reason));
    }
    let larger = || grow(env);
    // Without an overlap, a record that is in the state already has another number than the next record.
    let number = if found.overlaps { saved.number } else { 0 };
    for record in found.records_after(shard, number)? {
        found.source().apply(env, record, shard, &larger)?;
    }
    Ok(snapshot)
}

/// Doubles the size of the map.
pub(super) fn grow(env: &Env) -> Result<bool, Failure> {
    let Some(larger) = env.info().map_size.checked_mul(2) else { return Ok(false) };
    #[expect(unsafe_code, reason = "transactions that are active would lose their map")]
    // SAFETY: only the pin is active, and nothing is read through it.
    unsafe {
        env.resize(larger)?;
    }
    Ok(true)
}

/// Starts the journal, if no other process writes it: writes a checkpoint at LMDB's last state, in a new
/// segment of a new epoch, and the marker. Then applies the records that LMDB lacks.
pub(in crate::engine::lmdb) fn start(
    env: &Env,
    directory: &Path,
    limits: Limits,
    archive: Option<Destination>,
) -> Result<Member, NotStarted> {
    let files = files::create(directory, OWN)?;
    let first = files.first().ok_or(NotStarted::Elsewhere)?;
    // The files are closed before the lock is released.
    let locked = first.try_clone()?;
    let unshared = Unshared::new(first);
    let lock = FileLock::take(&locked)?.ok_or(NotStarted::Elsewhere)?;
    let journal = start_locked((env, directory), (files, unshared), limits, archive)?;
    lock.keep();
    Ok(journal)
}

/// Does this with the lock of the writer, which is released after an error.
fn start_locked(
    (env, directory): (&Env, &Path),
    (files, unshared): (Vec<File>, Unshared),
    limits: Limits,
    archive: Option<Destination>,
) -> Result<Member, NotStarted> {
    // The marker is read with the lock, because the previous owner of the lock may have changed it.
    let marker = marker_of(directory)?;
    let data = data(directory)?;
    let pin = Snapshot::take(env, &data)?;
    env.force_sync()?;

    let (known, left) = match marker {
        Marker::None => (Journalled::own(identity(), 0), None),
        // Without files, the data file uses the journal of all shards of a store.
        Marker::Clean(known) if !is_there(directory, &known)? => {
            (Journalled::own(identity(), 0), None)
        }
        Marker::Clean(known) => (known, None),
        Marker::Needed(known) => (known, Some(Found::read(directory, &known)?)),
    };
    known::settle(directory, archive.as_ref())?;
    let outbox = archive.as_ref().map(|_| outbox_of(directory, &known, left.as_ref(), pin.number));
    let mut outbox = outbox.transpose()?;
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    let (epoch, mut sequence) = last(&heads, &known);
    let next = left.as_ref().map_or(1, |found| found.tail.next);
    // The segment follows all segments that are still needed.
    sequence = left.as_ref().map_or(sequence, |found| found.tail.last) + 1;
    let journalled = Journalled { epoch: epoch + 1, shard: None, ..known };
    files::forget_others(&files, &journalled.identity)?;
    let salt = Salt { identity: journalled.identity, epoch: journalled.epoch, sequence };

    let files = Arc::new(Segments::new(files::paths(directory, OWN), files)?);
    // The lock of the writer is on the first file of the journal.
    let writer = WriterLock::of(unshared, Arc::clone(files.first()));
    let missing = match &left {
        Some(found) => found.records_after(0, pin.number)?,
        None => Vec::new(),
    };
    if weaken::is("tail-first")
        && let Some(found) = &left
    {
        env.clear_stale_readers()?;
        // Records are applied repeatedly, like later commits, until pages of the old checkpoint are reused.
        for record in (0..30).flat_map(|_| &missing) {
            found.source().apply(env, record, 0, &|| Ok(false))?;
        }
    }
    let first = missing.first().map_or(next, |record| record.number);
    let mut log = Log::new(Arc::clone(&files), salt, first, HEAD)?;
    if let Some(found) = &left {
        for record in &missing {
            copy(found, record, |_| true, &mut log)?;
        }
        log.sync()?;
    }
    let saved = pin.saved(0, &data)?;
    let mut block = Block { salt, record: first, link: 0, time: log::now(), shards: vec![saved] };
    log::put_block(&files.of(sequence)?, &block)?;
    marker::put(&data, Marker::Needed(journalled))?;
    data.sync_data()?;

    let mut number = pin.number;
    if let Some(found) = &left {
        for record in missing {
            found.source().apply(env, record, 0, &|| Ok(false))?;
        }
        number = number.max(env.read_txn()?.id() as u64);
        // This clears the pin of a process that has ended.
        env.clear_stale_readers()?;
    }
    if let Some(outbox) = &mut outbox {
        outbox.begin(&log, &journalled, number)?;
    }
    let last = outbox.as_ref().map(|_| number);
    let group = Group::new(log, directory.to_owned(), Strategy::Streamed, last);
    let (slots, used) = (Arc::new(Slots::open(directory)), pin.used(&data));
    let (env, saved) = (env.clone(), block.shards.remove(0));
    let open = Open { env, slots, _writer: writer, pin, saved, number, used, is_mapped: true };
    let (shards, missing, room) = (vec![(0, open)], Vec::new(), 1);
    let archive = outbox.zip(archive);
    let begun = Begun { group, files, journalled, limits, shards, missing, room, archive };
    begun.start()?.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
}

/// Returns the segments that wait for an archive, with the records of an earlier process.
fn outbox_of(
    directory: &Path,
    known: &Journalled,
    left: Option<&Found>,
    number: u64,
) -> Result<Outbox, NotStarted> {
    // A recovery has applied the records. If they can't be read, the outbox finds the gap by the number.
    let read = if left.is_none() { Found::read(directory, known).ok() } else { None };
    Outbox::resume(directory, known, left.or(read.as_ref()), number, None)
}

/// Whether there is a journal with this identity in a directory.
fn is_there(directory: &Path, known: &Journalled) -> io::Result<bool> {
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    let mut blocks = heads.iter().filter_map(|head| Block::read(head));
    Ok(blocks.any(|block| block.salt.identity == known.identity))
}

/// Returns the last epoch and the last segment of a journal. `heads` are the first blocks of its files.
pub(super) fn last(heads: &[Vec<u8>], known: &Journalled) -> (u64, u64) {
    let blocks = heads.iter().filter_map(|head| Block::read(head));
    let own = blocks.filter(|block| block.salt.identity == known.identity);
    own.fold((known.epoch, 0), |(epoch, sequence), block| {
        (epoch.max(block.salt.epoch), sequence.max(block.salt.sequence))
    })
}

/// Appends a record to another log, with the selected sections.
pub(super) fn copy(
    found: &Found,
    record: &Record,
    mut is_kept: impl FnMut(&Section<'_>) -> bool,
    log: &mut Log,
) -> Result<(), NotStarted> {
    let count = record.frames.len();
    for (at, place) in record.frames.iter().enumerate() {
        let kind = if at + 1 == count { Kind::Commit } else { Kind::Part };
        let mut outcome = Ok(());
        let mut append = |sections: &[Section<'_>]| {
            let kept: Vec<_> = sections.iter().filter(|it| is_kept(it)).copied().collect();
            if !kept.is_empty() || kind == Kind::Commit {
                outcome = log.append(kind, &kept, record.time);
            }
        };
        found.source().frame(*place, &mut append)?;
        outcome?;
    }
    Ok(())
}
