//! Reading the journal of all shards, recovery of a shard, and the start.

use std::{
    fs::File,
    io,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::{
    super::{
        archive::{known, outbox::Outbox},
        begun::Begun,
        block::{Block, Saved, head_of, room_of},
        changes::Operations,
        common::Open,
        files::{self, OWN, SHARED, Segments},
        frame::{Salt, Section},
        group::{Group, Strategy},
        limits::Limits,
        log::{self, Log},
        marker::{self, Journalled, Marker},
        member::Member,
        pinned::Slots,
        presence::WriterLock,
        snapshot::Snapshot,
        start::{self, Found, NotStarted, copy, data, last, marker_of},
        tail::{self, Fault, Record},
        weaken,
    },
    left,
};
use crate::{
    engine::{Destination, lmdb::names::Env},
    locks::Mutex,
};

const INCOMPLETE: &str = "its journal was closed after an error before its data file was complete; drop all handles to the \
                          store, and open it again";

/// The journal of all shards before it is started.
pub(crate) struct SharedJournal {
    directory: PathBuf,
    identity: [u8; 16],
    /// The contents, or the damage.
    found: Result<Option<Found>, String>,
    /// Whether this process writes the journal.
    is_running: bool,
    /// The reason why a shard could not be recovered. Then no shard can.
    failed: Mutex<Option<String>>,
    /// Whether its records were synced before the first of them was applied.
    synced: OnceLock<Result<(), io::ErrorKind>>,
}

/// The source of the records for a shard.
pub(super) enum Source<'j> {
    Shared(&'j Found),
    Left(Found),
}

impl Deref for Source<'_> {
    type Target = Found;

    fn deref(&self) -> &Found {
        match self {
            Self::Shared(found) => found,
            Self::Left(found) => found,
        }
    }
}

/// A shard that joins the journal.
pub(in crate::engine::lmdb) struct Joining {
    pub(in crate::engine::lmdb) shard: u32,
    pub(in crate::engine::lmdb) directory: PathBuf,
    pub(in crate::engine::lmdb) env: Env,
}

/// The reason why the journal is not started, and the directory of the error.
pub(in crate::engine::lmdb) type Failed = (PathBuf, NotStarted);

impl SharedJournal {
    /// Reads the journal in the directory of the manager with this number.
    pub(in crate::engine::lmdb) fn read(
        directory: &Path,
        identity: [u8; 16],
    ) -> Result<Self, NotStarted> {
        let files = files::existing(directory, SHARED)?;
        let known = Journalled::own(identity, 0);
        let read = match tail::newest(&files::heads(&files)?, &known) {
            Ok(newest) => match files::find_missing(directory, SHARED, &files)? {
                Some(reason) => Err(Fault::Damaged(reason)),
                None => Found::of(files, newest).map(Some),
            },
            // The markers of the data files show whether the journal is missing.
            Err(Fault::Damaged(_)) => Ok(None),
            Err(fault) => Err(fault),
        };
        let found = match read {
            Ok(found) => Ok(found),
            Err(Fault::Damaged(reason)) => Err(reason),
            Err(Fault::Io(error)) => return Err(error.into()),
        };
        Ok(Self { found, is_running: false, ..Self::running(directory, identity) })
    }

    /// Returns the journal that this process writes, for a shard that joins it. Its files are not read, because writers
    /// and checkpoints change them at the same time. The shard needs none of the records in them: since the journal
    /// was started, the shard had no commits, and its earlier records were left for it.
    pub(crate) fn running(directory: &Path, identity: [u8; 16]) -> Self {
        let directory = directory.to_owned();
        let (failed, synced) = (Mutex::default(), OnceLock::new());
        Self { directory, identity, found: Ok(None), is_running: true, failed, synced }
    }

    /// Returns the directory of the shard map manager.
    pub(in crate::engine::lmdb) fn path(&self) -> &Path {
        &self.directory
    }

    /// Whether a data file has this journal.
    pub(in crate::engine::lmdb) fn is_of(&self, known: &Journalled) -> bool {
        known.identity == self.identity
    }

    /// Returns the marker of a shard's data file. If the write of the marker was interrupted, the data file was complete.
    pub(in crate::engine::lmdb) fn marker_of(
        &self,
        shard: u32,
        directory: &Path,
    ) -> Result<Marker, NotStarted> {
        let marker = marker_of(directory);
        let has_shard =
            matches!(&self.found, Ok(Some(found)) if found.checkpoint.saved(shard).is_some());
        match marker {
            Err(NotStarted::Damaged(_)) if has_shard => Ok(Marker::Needed(Journalled {
                shard: Some(shard),
                ..Journalled::own(self.identity, 0)
            })),
            marker => marker,
        }
    }

    /// Checks that the journal has no later commit of a shard than its data file, whose last commit has this number. By its
    /// marker, the file is complete without the journal.
    pub(in crate::engine::lmdb) fn refuse_later_commits(
        &self,
        shard: u32,
        marker: &Marker,
        number: u64,
    ) -> Result<(), NotStarted> {
        let has_later = |found: &Found| {
            let epoch = found.checkpoint.salt.epoch;
            let is_last =
                matches!(marker, Marker::Clean(own) if self.is_of(own) && own.epoch >= epoch);
            if is_last {
                return Ok(false);
            }
            if found.checkpoint.saved(shard).is_none() {
                return Ok(found.checkpoint.closed(shard).is_some_and(|last| last > number));
            }
            match found.last_change(shard) {
                // This process appends to the journal.
                Err(NotStarted::Damaged(_)) => Ok(false),
                last => last.map(|last| last > number),
            }
        };
        if let Ok(Some(found)) = &self.found
            && has_later(found)?
        {
            let reason = "data.mdb lacks commits that the journal of the shards has; put the newer data.mdb back, or restore \
                          the shard with `restore_shard`";
            return Err(NotStarted::Damaged(reason.to_owned()));
        }
        // A shard that was restored while the store was open has a journal of its own.
        let is_restored = matches!(marker, Marker::Clean(own) if !self.is_of(own));
        let left = left::read(&self.directory, &self.identity, shard)?.filter(|_| !is_restored);
        if left.map_or(Ok(false), |left| has_later(&left))? {
            let name = left::name(shard);
            return Err(NotStarted::Damaged(format!(
                "data.mdb lacks commits that `{name}` in the directory of the shard map manager has; put the newer data.mdb \
                 back, or restore the shard with `restore_shard`"
            )));
        }
        Ok(())
    }

    /// Returns the source of the records for a shard with this marker.
    fn source(&self, shard: u32, known: &Journalled) -> Result<Source<'_>, NotStarted> {
        let is_recent = |found: &Found| found.checkpoint.salt.epoch >= known.epoch;
        let found = self.found.as_ref().map(Option::as_ref);
        if let Ok(Some(found)) = found
            && found.checkpoint.saved(shard).is_some()
            && is_recent(found)
        {
            return Ok(Source::Shared(found));
        }
        if let Some(left) = left::read(&self.directory, &self.identity, shard)?.filter(is_recent) {
            return Ok(Source::Left(left));
        }
        if self.is_running {
            return Err(io::Error::other(INCOMPLETE).into());
        }
        let reason = match found {
            Ok(Some(_)) => {
                let reason =
                    "the journal of the shards has no checkpoint of this shard, or an older one";
                return Err(NotStarted::Damaged(reason.to_owned()));
            }
            Ok(None) => {
                "the journal of the shards is missing or damaged, or has no records of this shard"
                    .to_owned()
            }
            Err(reason) => reason.clone(),
        };
        *self.failed.lock() = Some(reason.clone());
        Err(NotStarted::Damaged(reason))
    }

    /// Brings the data file of a shard to its last commit. No process has it open, or opens it before this function returns.
    pub(in crate::engine::lmdb) fn recover(
        &self,
        shard: u32,
        directory: &Path,
        known: Journalled,
        sizes: (usize, u32),
        prepare: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), NotStarted> {
        if let Some(own) = known.shard.filter(|own| *own != shard) {
            let reason = format!("it is shard {own} of its store, and not shard {shard}");
            return Err(NotStarted::Damaged(reason));
        }
        let source = self.source(shard, &known)?;
        self.sync()?;
        start::recover_from(&source, shard, directory, known, sizes, prepare)
    }

    /// Whether a record is in the state of one of these shards, and another one lacks it. The states are the numbers of the
    /// last transactions.
    pub(in crate::engine::lmdb) fn is_split(
        &self,
        states: &[(u32, u64)],
    ) -> Result<bool, NotStarted> {
        let Ok(Some(found)) = &self.found else { return Ok(false) };
        for record in &found.tail.records {
            let (mut is_present, mut is_missing) = (false, false);
            for place in &record.frames {
                found.source().sections(*place, &mut |section| {
                    let state = states.iter().find(|(shard, _)| *shard == section.shard);
                    // LMDB does not count a transaction without changes.
                    if let Some((_, last)) = state
                        && Operations::of(section.changes).next().is_some()
                    {
                        is_present |= section.number <= *last;
                        is_missing |= section.number > *last;
                    }
                    Ok(())
                })?;
            }
            if is_present && is_missing {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the records durable before the first shard has one of them. A process that was killed may not
    /// have synced its last record. If the power fails after one shard has been recovered, the others must
    /// find the same records.
    fn sync(&self) -> io::Result<()> {
        let Ok(Some(found)) = &self.found else { return Ok(()) };
        if weaken::is("unsynced-recovery") {
            return Ok(());
        }
        // A second sync would not fail again.
        let synced = self.synced.get_or_init(|| found.sync().map_err(|error| error.kind()));
        synced.map_err(io::Error::from)
    }

    /// Starts the journal: writes a checkpoint at the last state of each shard, in a new segment of a new
    /// epoch, and the markers. Then applies the records that shards lack. The records for `missing` shards are left for
    /// them, and so are the records for all other shards that may need them, such as a shard that was being attached when
    /// a process ended. The data files of `complete` shards don't need them.
    ///
    /// An archive gets the records of the shard map manager, as changes.
    ///
    /// This process has the lock of the store's writer.
    pub(in crate::engine::lmdb) fn start(
        &self,
        joining: Vec<Joining>,
        (missing, complete): (&[u32], &[u32]),
        limits: Limits,
        archive: Option<(Destination, Vec<u8>)>,
    ) -> Result<Vec<Member>, Failed> {
        let own = |not_started: NotStarted| (self.directory.clone(), not_started);
        let damaged = self.failed.lock().take();
        let unread = self.found.as_ref().err().filter(|_| !missing.is_empty()).cloned();
        if let Some(reason) = damaged.or(unread) {
            return Err(own(NotStarted::Damaged(reason)));
        }
        if joining.is_empty() {
            return Ok(Vec::new());
        }
        let mut joined = Vec::with_capacity(joining.len());
        for joining in joining {
            let directory = joining.directory.clone();
            joined.push(self.join(joining).map_err(|failure| (directory, failure))?);
        }
        self.begin(joined, (missing, complete), limits, archive)
    }

    /// Pins the last state of a shard, and makes it durable.
    fn join(&self, joining: Joining) -> Result<Joined<'_>, NotStarted> {
        let Joining { shard, directory, env } = joining;
        let writer = lock(&directory)?;
        // The marker is read with the lock, because the previous owner of the lock may have changed it.
        let (epoch, known) = match self.marker_of(shard, &directory)? {
            Marker::Needed(known) if self.is_of(&known) => (known.epoch, Some(known)),
            Marker::Clean(known) if self.is_of(&known) => (known.epoch, None),
            Marker::Needed(_) => return Err(NotStarted::Elsewhere),
            Marker::None | Marker::Clean(_) => (0, None),
        };
        let data = data(&directory)?;
        let pin = Snapshot::take(&env, &data)?;
        env.force_sync()?;
        let source = known.map(|known| self.source(shard, &known)).transpose()?;
        Ok(Joined { shard, directory, env, data, writer, epoch, pin, source })
    }

    fn begin(
        &self,
        joined: Vec<Joined<'_>>,
        (missing, complete): (&[u32], &[u32]),
        limits: Limits,
        archive: Option<(Destination, Vec<u8>)>,
    ) -> Result<Vec<Member>, Failed> {
        let own = |failure: NotStarted| (self.directory.clone(), failure);
        let found = self.found.as_ref().ok().and_then(Option::as_ref);
        if let Some(found) = found {
            let is_joined = |shard: u32| joined.iter().any(|joined| joined.shard == shard);
            for shard in found.checkpoint.present() {
                if !is_joined(shard) && !complete.contains(&shard) {
                    left::write(&self.directory, found, shard).map_err(own)?;
                }
            }
        }
        for shard in complete {
            left::remove(&self.directory, *shard).map_err(|error| own(error.into()))?;
        }
        let outbox = archive.map(|(destination, manager)| {
            known::settle(&self.directory, Some(&destination))?;
            Ok((self.outbox(&joined, found, manager)?, destination))
        });
        let mut archive = outbox.transpose().map_err(own)?;
        if weaken::is("tail-first") {
            apply_early(&joined).map_err(own)?;
        }
        let (log, files, block) = self.first_block(&joined, found).map_err(own)?;
        let journalled = Journalled::own(self.identity, block.salt.epoch);
        let room = block.shards.len();
        let mut shards = Vec::with_capacity(joined.len());
        for (joined, saved) in joined.into_iter().zip(block.shards) {
            let directory = joined.directory.clone();
            let (number, open) =
                joined.open(saved, journalled).map_err(|failure| (directory, failure))?;
            if !missing.contains(&number) {
                left::remove(&self.directory, number).map_err(|error| own(error.into()))?;
            }
            shards.push((number, open));
        }
        if let Some((outbox, _)) = &mut archive {
            let commit = outbox.manifest().commit;
            outbox.begin(&log, &journalled, commit).map_err(|error| own(error.into()))?;
        }
        let last = archive.as_ref().map(|(outbox, _)| outbox.manifest().commit);
        let group = Group::new(log, self.directory.clone(), Strategy::Gathered, last);
        let missing = missing.to_vec();
        let begun = Begun { group, files, journalled, limits, shards, missing, room, archive };
        begun.start().map_err(|error| own(error.into()))
    }

    /// Leaves the records for all shards, because none of them is available, and starts a segment without any shard. Otherwise,
    /// the journal would still have the records when a backup has taken the place of a shard.
    pub(in crate::engine::lmdb) fn leave_all(&self) -> Result<(), NotStarted> {
        // A damaged journal is not used again either.
        let Ok(Some(found)) = &self.found else { return Ok(()) };
        let mut present = found.checkpoint.present().peekable();
        if present.peek().is_none() {
            return Ok(());
        }
        present.try_for_each(|shard| left::write(&self.directory, found, shard))?;
        self.first_block(&[], Some(found)).map(drop)
    }

    /// Returns the segments that wait for an archive, with the records of an earlier process.
    fn outbox(
        &self,
        joined: &[Joined<'_>],
        found: Option<&Found>,
        manager: Vec<u8>,
    ) -> Result<Outbox, NotStarted> {
        let epoch = found.map_or(0, |found| found.checkpoint.salt.epoch);
        let number = found.map_or(0, |found| found.tail.next.saturating_sub(1));
        let known = Journalled::own(self.identity, epoch);
        let mut outbox = Outbox::resume(&self.directory, &known, found, number, Some(manager))?;
        if !outbox.is_new() {
            for joined in joined {
                if !self.has_all_commits(joined, found)? {
                    // It was written without this journal, or it is new.
                    outbox.new_generation(number);
                    break;
                }
            }
        }
        Ok(outbox)
    }

    /// Returns whether all commits of a shard are in the journal.
    fn has_all_commits(
        &self,
        joined: &Joined<'_>,
        found: Option<&Found>,
    ) -> Result<bool, NotStarted> {
        let shard = joined.shard;
        if joined.epoch == 0 {
            return Ok(false);
        }
        let last = |found: &Found| -> Result<Option<u64>, NotStarted> {
            let Some(saved) = found.checkpoint.saved(shard) else {
                return Ok(found.checkpoint.closed(shard));
            };
            let mut records = found.tail.records.iter().rev();
            let last = records.find(|record| record.changes(shard));
            let last = last.map(|record| found.source().number(record, shard)).transpose()?;
            Ok(Some(saved.number.max(last.unwrap_or_default())))
        };
        let mut number = found.map_or(Ok(None), last)?;
        if number.is_none()
            && let Some(left) = left::read(&self.directory, &self.identity, shard)?
        {
            number = last(&left)?;
        }
        let Some(number) = number else { return Ok(false) };
        // The last record may have changed nothing, so that LMDB has not counted it.
        let is_last = number == joined.pin.number || number == joined.pin.number + 1;
        Ok(is_last || (joined.source.is_some() && joined.pin.number <= number))
    }

    /// Starts a segment with the records that shards lack, and makes it durable.
    fn first_block(
        &self,
        joined: &[Joined<'_>],
        found: Option<&Found>,
    ) -> Result<(Log, Arc<Segments>, Block), NotStarted> {
        let files = files::create(&self.directory, SHARED)?;
        let heads = files::heads(&files::existing(&self.directory, SHARED)?)?;
        let known = Journalled::own(self.identity, 0);
        let (epoch, sequence) = last(&heads, &known);
        let epoch = joined.iter().fold(epoch, |epoch, joined| epoch.max(joined.epoch)) + 1;
        // The segment follows all segments that are still needed.
        let sequence = found.map_or(sequence, |found| found.tail.last) + 1;
        let salt = Salt { identity: self.identity, epoch, sequence };
        let record = found.map_or(1, |found| found.tail.next);
        let files = Arc::new(Segments::new(files::paths(&self.directory, SHARED), files)?);
        let room = room_of(joined.len());
        let mut log = Log::new(Arc::clone(&files), salt, record, head_of(room))?;
        copy_lacking(joined, found, &mut log)?;
        let shards = joined.iter().map(|joined| joined.pin.saved(joined.shard, &joined.data));
        let mut shards = shards.collect::<io::Result<_>>()?;
        Saved::pad(&mut shards, room);
        let block = Block { salt, record, link: 0, time: log::now(), shards };
        log::put_block(&files.of(sequence)?, &block)?;
        Ok((log, files, block))
    }
}

/// Takes the lock of the writer of a shard.
fn lock(directory: &Path) -> Result<WriterLock, NotStarted> {
    let file = files::create_one(directory, &files::path(directory, OWN, 0))?;
    WriterLock::take(file)?.ok_or(NotStarted::Elsewhere)
}

/// Opens a shard for a journal that is running, and makes its state durable. Also returns the epoch of its marker.
pub(in super::super) fn open(
    Joining { shard, directory, env }: Joining,
    identity: &[u8; 16],
    slots: Option<Arc<Slots>>,
) -> Result<(u64, Open), NotStarted> {
    let directory = &directory;
    let writer = lock(directory)?;
    let epoch = match marker_of(directory)? {
        Marker::Clean(known) if known.identity == *identity => known.epoch,
        Marker::None | Marker::Clean(_) => 0,
        Marker::Needed(_) => return Err(NotStarted::Elsewhere),
    };
    let data = data(directory)?;
    let pin = Snapshot::take(&env, &data)?;
    env.force_sync()?;
    let saved = pin.saved(shard, &data)?;
    let (number, used) = (pin.number, pin.used(&data));
    files::remove(directory, 1);
    let _ = writer.file().set_len(0);
    // A shard that has left the journal keeps its descriptor of the lock file.
    let slots = slots.unwrap_or_else(|| Arc::new(Slots::open(directory)));
    let open = Open { env, slots, _writer: writer, pin, saved, number, used, is_mapped: true };
    Ok((epoch, open))
}

/// A shard that has joined.
struct Joined<'j> {
    shard: u32,
    directory: PathBuf,
    env: Env,
    data: File,
    writer: WriterLock,
    /// The epoch of its marker.
    epoch: u64,
    pin: Snapshot,
    /// The source of the records that the shard may lack, if its writer has ended and other processes have it
    /// open.
    source: Option<Source<'j>>,
}

impl Joined<'_> {
    /// Returns the records that the shard lacks.
    fn lacks(&self) -> Result<Vec<&Record>, NotStarted> {
        let source = self.source.as_ref();
        source.map_or(Ok(Vec::new()), |source| source.records_after(self.shard, self.pin.number))
    }

    /// Makes the marker durable, and applies the records that the shard lacks.
    fn open(
        self,
        saved: super::super::block::Saved,
        journalled: Journalled,
    ) -> Result<(u32, Open), NotStarted> {
        let journalled = Journalled { shard: Some(self.shard), ..journalled };
        marker::put(&self.data, Marker::Needed(journalled))?;
        self.data.sync_data()?;
        if let Some(source) = &self.source {
            for record in self.lacks()? {
                source.source().apply(&self.env, record, self.shard, &|| Ok(false))?;
            }
        }
        let number = self.pin.number.max(self.env.read_txn()?.id() as u64);
        // This clears the pins of a process that has ended.
        self.env.clear_stale_readers()?;
        // The remaining files of the shard's own journal.
        files::remove(&self.directory, 1);
        let _ = self.writer.file().set_len(0);
        let slots = Arc::new(Slots::open(&self.directory));
        let Self { shard, env, data, writer, pin, .. } = self;
        let used = pin.used(&data);
        let open = Open { env, slots, _writer: writer, pin, saved, number, used, is_mapped: true };
        Ok((shard, open))
    }
}

/// Applies the records that shards lack before a checkpoint, in a weakened build. Repeated, as later commits would, until
/// pages are reused that the old checkpoint needs.
fn apply_early(joined: &[Joined<'_>]) -> Result<(), NotStarted> {
    for joined in joined {
        joined.env.clear_stale_readers()?;
        let Some(source) = &joined.source else { continue };
        let lacking = joined.lacks()?;
        for record in (0..30).flat_map(|_| &lacking) {
            source.source().apply(&joined.env, record, joined.shard, &|| Ok(false))?;
        }
    }
    Ok(())
}

/// Appends the records that shards lack, and makes them durable.
fn copy_lacking(
    joined: &[Joined<'_>],
    found: Option<&Found>,
    log: &mut Log,
) -> Result<(), NotStarted> {
    // For each shard, the first record whose sections it lacks.
    let mut lacking = Vec::new();
    for joined in joined {
        let lacks = joined.lacks()?;
        match &joined.source {
            Some(Source::Left(left)) => {
                for record in lacks {
                    copy(left, record, |section| section.shard == joined.shard, log)?;
                }
            }
            _ => lacking.extend(lacks.first().map(|first| (joined.shard, first.number))),
        }
    }
    let lacks = |shard: u32, record: &Record| {
        lacking.iter().any(|(own, first)| *own == shard && *first <= record.number)
    };
    for (found, record) in
        found.iter().flat_map(|found| found.tail.records.iter().map(move |it| (*found, it)))
    {
        if record.shards.iter().any(|shard| lacks(*shard, record)) {
            copy(found, record, |section: &Section<'_>| lacks(section.shard, record), log)?;
        }
    }
    Ok(log.sync()?)
}
