//! Starting the journal of a store that this process is going to write, and recovery.

use std::{
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    path::Path,
    sync::Arc,
};

use heed::{EnvFlags, EnvOpenOptions};

use super::{
    block::{Block, Saved},
    checkpoint::{Begun, Journal, Limits},
    files::{self, Segment},
    frame::{Kind, Salt, Section},
    log::{self, Log},
    marker::{self, Journalled, Marker},
    pinned::Slots,
    presence::lock_writer,
    replay::{Failure, Source},
    snapshot::{Refused, Snapshot},
    tail::{self, Fault, Record, Tail},
};
use crate::engine::lmdb::names::{Env, FILE};

/// Why a journal is not started, or a store not recovered.
pub(in crate::engine::lmdb) enum NotStarted {
    /// Another process writes the store.
    Elsewhere,
    Lmdb(heed::Error),
    Io(io::Error),
    /// What is wrong.
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

/// Opens the data file, for all but LMDB's own access.
fn data(directory: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(directory.join(FILE))
}

/// The marker of the data file in a directory. A file that is not there has none.
pub(in crate::engine::lmdb) fn marker_of(directory: &Path) -> Result<Marker, NotStarted> {
    let file = match File::open(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marker::None),
        file => file?,
    };
    let marker = marker::find(&file)?;
    marker.ok_or_else(|| {
        NotStarted::Damaged("what data.mdb says about its journal is damaged".to_owned())
    })
}

/// Gives up a journal that is not needed.
pub(in crate::engine::lmdb) fn give_up(directory: &Path) -> Result<(), NotStarted> {
    let data = data(directory)?;
    marker::put(&data, Marker::None)?;
    data.sync_data()?;
    files::remove(directory);
    Ok(())
}

/// A random number, for which no file of the operating system is needed.
fn identity() -> [u8; 16] {
    let word = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut identity = [0; 16];
    identity.iter_mut().zip(word().into_iter().chain(word())).for_each(|(to, from)| *to = from);
    identity
}

/// What is in a journal.
struct Found {
    files: Vec<Segment>,
    checkpoint: Block,
    saved: Saved,
    tail: Tail,
}

impl Found {
    fn read(directory: &Path, known: &Journalled) -> Result<Self, NotStarted> {
        let files = files::existing(directory)?;
        let checkpoint = tail::newest(&files::heads(&files)?, known)?;
        let tail = tail::read(&files, &checkpoint)?;
        let saved = checkpoint.saved(0).cloned();
        let saved = saved.ok_or_else(|| {
            NotStarted::Damaged("the journal has no checkpoint of this store".to_owned())
        })?;
        Ok(Self { files, checkpoint, saved, tail })
    }

    fn source(&self) -> Source<'_> {
        Source { files: &self.files, checkpoint: &self.checkpoint }
    }
}

/// Brings the data file to the last commit. Nobody has the store open, and nobody opens it meanwhile.
///
/// The data file is complete afterwards. A recovery that is cut off is made again from the same checkpoint: its
/// pages stay as they are, because a reader pins them before anything is written.
pub(in crate::engine::lmdb) fn recover(
    directory: &Path,
    known: Journalled,
    (map_size, databases): (usize, u32),
    prepare: impl FnOnce() -> io::Result<()>,
) -> Result<(), NotStarted> {
    let found = Found::read(directory, &known)?;
    let data = data(directory)?;
    if !found.saved.is_of(&data)? {
        let reason = "data.mdb is not the file that its journal was written for";
        return Err(NotStarted::Damaged(reason.to_owned()));
    }
    let created = found.source().creates(&found.tail.records)?;
    found.saved.restore(&data)?;
    prepare()?;
    let named = found.saved.databases().saturating_add(created);
    let databases = databases.saturating_add(u32::try_from(named).unwrap_or(u32::MAX));
    let noted = usize::try_from(found.saved.map_size).unwrap_or_default();
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_size.max(noted)).max_dbs(databases);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process has the store open, and none opens it before this one is done. Without syncs
    // the file is what the last checkpoint and the journal say, until it is synced below.
    let env = unsafe { open.flags(EnvFlags::NO_SYNC).open(directory) }?;
    let applied = apply_all(&env, &data, &found);
    if applied.is_ok() {
        env.force_sync()?;
        let epoch = found.checkpoint.salt.epoch;
        marker::put(&data, Marker::Clean(Journalled { epoch, ..known }))?;
        data.sync_data()?;
    }
    // The reader is dropped after that.
    drop(applied?);
    env.prepare_for_closing().wait();
    Ok(())
}

/// Applies all records; the reader that pins the checkpoint.
fn apply_all(env: &Env, data: &File, found: &Found) -> Result<Snapshot, NotStarted> {
    let snapshot = Snapshot::take(env, data)?;
    if snapshot.number != found.saved.number {
        let reason = format!(
            "LMDB has opened transaction {}, and the checkpoint is of {}",
            snapshot.number, found.saved.number
        );
        return Err(NotStarted::Damaged(reason));
    }
    let larger = || grow(env);
    for record in &found.tail.records {
        found.source().apply(env, record, &larger)?;
    }
    Ok(snapshot)
}

/// Maps twice as much.
fn grow(env: &Env) -> Result<bool, Failure> {
    let Some(larger) = env.info().map_size.checked_mul(2) else { return Ok(false) };
    #[expect(unsafe_code, reason = "transactions that are active would lose their map")]
    // SAFETY: only the pin is active, which is never read by.
    unsafe {
        env.resize(larger)?;
    }
    Ok(true)
}

/// Starts the journal, if no other process writes it: a checkpoint at LMDB's last state, in a new segment of
/// a new epoch, and the marker; then the records that LMDB lacks are applied.
pub(in crate::engine::lmdb) fn start(
    env: &Env,
    directory: &Path,
    limits: Limits,
) -> Result<Journal, NotStarted> {
    let files = files::create(directory)?;
    if !files.first().map_or(Ok(false), lock_writer)? {
        return Err(NotStarted::Elsewhere);
    }
    // Not before: the process that had the lock may have changed it.
    let marker = marker_of(directory)?;
    let data = data(directory)?;
    let pin = Snapshot::take(env, &data)?;
    env.force_sync()?;

    let (known, left) = match marker {
        Marker::None => (Journalled { identity: identity(), epoch: 0 }, None),
        Marker::Clean(known) => (known, None),
        Marker::Needed(known) => (known, Some(Found::read(directory, &known)?)),
    };
    let heads = files::heads(&files::existing(directory)?)?;
    let blocks = heads.iter().filter_map(|head| Block::read(head));
    let blocks = blocks.filter(|block| block.salt.identity == known.identity);
    let [mut epoch, mut sequence] = [known.epoch, 0];
    for block in blocks {
        epoch = epoch.max(block.salt.epoch);
        sequence = sequence.max(block.salt.sequence);
    }
    let next = left.as_ref().map_or(1, |found| found.tail.next);
    // Behind all that is needed still.
    sequence = left.as_ref().map_or(sequence, |found| found.tail.last) + 1;
    let journalled = Journalled { epoch: epoch + 1, ..known };
    let salt = Salt { identity: journalled.identity, epoch: journalled.epoch, sequence };

    let files = Arc::new(files);
    let missing = match &left {
        Some(found) => behind(found, pin.number)?,
        None => &[],
    };
    let first = missing.first().map_or(next, |record| record.number);
    let mut log = Log::new(Arc::clone(&files), salt, first)?;
    if let Some(found) = &left {
        copy(found, missing, &mut log)?;
    }
    let saved = pin.saved(&data)?;
    let page_size = saved.page_size.into();
    let block = Block { salt, record: first, link: 0, time: log::now(), shards: vec![saved] };
    log::put_block(&files, &block)?;
    marker::put(&data, Marker::Needed(journalled))?;
    data.sync_data()?;

    let mut number = pin.number;
    if let Some(found) = &left {
        for record in missing {
            found.source().apply(env, record, &|| Ok(false))?;
        }
        number = number.max(env.read_txn()?.id() as u64);
        // The pin of the process that has died among them.
        env.clear_stale_readers()?;
    }
    let env = env.clone();
    let slots = Arc::new(Slots::open(directory));
    let begun = Begun { env, data, files, log, journalled, pin, number, page_size, slots };
    Ok(Journal::begin_with(begun, limits)?)
}

/// The records that are not in LMDB's state with this number.
fn behind(found: &Found, number: u64) -> Result<&[Record], NotStarted> {
    let records = &found.tail.records;
    let source = found.source();
    let mut first = records.len();
    while let Some(before) = first.checked_sub(1)
        && let Some(record) = records.get(before)
        && source.number(record)? > number
    {
        first = before;
    }
    Ok(records.get(first..).unwrap_or_default())
}

/// Writes records into the new segment, and makes them durable.
fn copy(found: &Found, records: &[Record], log: &mut Log) -> Result<(), NotStarted> {
    for record in records {
        let count = record.frames.len();
        for (at, place) in record.frames.iter().enumerate() {
            let kind = if at + 1 == count { Kind::Commit } else { Kind::Part };
            let mut outcome = Ok(());
            found.source().sections(*place, &mut |section: Section<'_>| {
                outcome = log.append(kind, section, record.time);
                Ok(())
            })?;
            outcome?;
        }
    }
    log.sync()?;
    Ok(())
}
