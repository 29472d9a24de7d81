//! The journal of a store with several data files: reading it, the recovery of a shard, and the start.
//!
//! It is in the directory of the shard map manager, and each shard is a data file of its own. The journal has the identity of the
//! manager. The marker of each data file records whether it needs the journal, and since which epoch.
//!
//! - **Records** name the shard of each of their sections. The numbers of records count the commits of all shards; the number in
//!   a section is the number of LMDB's transaction in its shard. A record may have sections of several shards, which are
//!   applied all or none, because a record is whole or absent.
//! - **Syncs** are shared ([`group`](super::group)): a thread appends its record and waits for a sync that covers it, and one of
//!   the waiting threads makes it for all of them. Between the append and LMDB's commit, a thread holds the lock of its
//!   shard, not the lock of the log. The changes of a transaction wait for its commit, in memory and in a
//!   [temporary file](super::spilled): they are [gathered](super::group::Strategy::Gathered), so that the frames of a record are
//!   next to each other.
//! - **Checkpoints** ([`checkpoint`](super::checkpoint)) have the state of each shard, pinned at its own time: a segment is begun,
//!   and then each shard that has changed since its last checkpoint is pinned between two of its commits. So each record
//!   before the segment is in the state of its shard. Later records may be in it, and recovery compares their numbers. A
//!   shard without changes keeps its state and its pin, and costs no sync. It never holds segments, and three files are
//!   enough for any number of shards.
//! - **Recovery** brings each shard to its last record from its own state. A shard that other processes have open is not
//!   rewound: its missing records are copied into the new segment, as for one data file.
//! - **A shard that is not available** when the journal is started keeps what it needs ([`left`](super::left)): its state and its
//!   records are copied into a file of their own before a segment is used again. The file does not grow, because the shard
//!   has no commits until then. When the shard is available again, it is recovered from this file, and the file is removed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::{
    archive::{known, outbox::Outbox},
    changes::Operations,
    common::Open,
    files::{self, OWN, SHARED, Segments},
    found::{Found, Records},
    frame::Salt,
    group::Strategy,
    left,
    limits::Limits,
    marked::{data, marker_of},
    marker::{Journalled, Marker},
    member::Member,
    not_started::NotStarted,
    pinned::Slots,
    presence::WriterLock,
    recovery::recover_from,
    snapshot::Snapshot,
    start::{Failed, Joined, Start, last},
    tail::{self, Fault},
    weaken,
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

/// A shard that joins the journal.
pub(in crate::engine::lmdb) struct Joining {
    pub(in crate::engine::lmdb) shard: u32,
    pub(in crate::engine::lmdb) directory: PathBuf,
    pub(in crate::engine::lmdb) env: Env,
    /// The descriptor of the lock file of an environment that has been in a journal; `None` for a new one.
    pub(in crate::engine::lmdb) slots: Option<Arc<Slots>>,
}

impl SharedJournal {
    /// Reads the journal in the directory of the manager with this number.
    pub(in crate::engine::lmdb) fn read(
        directory: &Path,
        identity: [u8; 16],
    ) -> Result<Self, NotStarted> {
        let files = files::existing(directory, SHARED)?;
        let known = Journalled::own(identity, 0);
        let read = match tail::newest(&files::heads(&files)?, &known) {
            Ok(newest) => Found::of_all(directory, SHARED, files, newest).map(Some),
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

    /// Creates the files of a journal that does not exist yet.
    pub(in crate::engine::lmdb) fn create_files(&self) -> Result<(), NotStarted> {
        Ok(files::create(&self.directory, SHARED).map(drop)?)
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
    fn source(&self, shard: u32, known: &Journalled) -> Result<Records<'_>, NotStarted> {
        let is_recent = |found: &Found| found.checkpoint.salt.epoch >= known.epoch;
        let found = self.found.as_ref().map(Option::as_ref);
        if let Ok(Some(found)) = found
            && found.checkpoint.saved(shard).is_some()
            && is_recent(found)
        {
            return Ok(Records::Journal(found));
        }
        if let Some(left) = left::read(&self.directory, &self.identity, shard)?.filter(is_recent) {
            return Ok(Records::Left(left));
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
        recover_from(&source, shard, directory, known, sizes, prepare)
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
        let Joining { shard, directory, env, slots } = joining;
        let writer = lock(&directory)?;
        // The marker is read with the lock, because the previous owner of the lock may have changed it.
        let mut ended = None;
        let (epoch, known) = match self.marker_of(shard, &directory)? {
            Marker::Needed(known) if self.is_of(&known) => (known.epoch, Some(known)),
            Marker::Clean(known) if self.is_of(&known) => (known.epoch, None),
            Marker::Needed(_) => return Err(NotStarted::Elsewhere),
            Marker::None => (0, None),
            Marker::Clean(own) => {
                ended = Some(own).filter(|own| own.shard.is_none());
                (0, None)
            }
        };
        let data = data(&directory)?;
        let pin = Snapshot::take(&env, &data)?;
        env.force_sync()?;
        let source = known.map(|known| self.source(shard, &known)).transpose()?;
        Ok(Joined { shard, directory, env, slots, data, writer, epoch, ended, pin, source })
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
        let archive = outbox.transpose().map_err(own)?;
        let numbers: Vec<_> = joined.iter().map(|joined| joined.shard).collect();
        // The numbers of an archive ascend.
        let last = archive.as_ref().map_or(0, |(outbox, _)| outbox.manifest().commit);
        let start = self.new_segment(&joined, found, last.saturating_add(1)).map_err(own)?;
        let members = start.begin(joined, missing.to_vec(), limits, archive)?;
        for number in numbers.into_iter().filter(|number| !missing.contains(number)) {
            left::remove(&self.directory, number).map_err(|error| own(error.into()))?;
        }
        Ok(members)
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
        self.new_segment(&[], Some(found), 1)?.first_block(&[]).map(drop)
    }

    /// Returns the segments that wait for an archive, with the records of an earlier process.
    fn outbox(
        &self,
        joined: &[Joined<'_>],
        found: Option<&Found>,
        manager: Vec<u8>,
    ) -> Result<Outbox, NotStarted> {
        // The store had one data file until now.
        if let (None, [Joined { ended: Some(own), pin, .. }]) = (found, joined) {
            return Outbox::of_grown(&self.directory, own, pin.number, manager);
        }
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

    /// Returns the start of the journal, with a new segment. Without contents, its first record has the number `first`.
    fn new_segment<'s>(
        &'s self,
        joined: &[Joined<'_>],
        found: Option<&'s Found>,
        first: u64,
    ) -> Result<Start<'s>, NotStarted> {
        let files = files::create(&self.directory, SHARED)?;
        let heads = files::heads(&files::existing(&self.directory, SHARED)?)?;
        let (epoch, sequence) = last(&heads, &Journalled::own(self.identity, 0));
        let epoch = joined.iter().fold(epoch, |epoch, joined| epoch.max(joined.epoch)) + 1;
        let sequence = found.map_or(sequence, |found| found.tail.last) + 1;
        let salt = Salt { identity: self.identity, epoch, sequence };
        let files = Arc::new(Segments::new(files::paths(&self.directory, SHARED), files)?);
        let (directory, strategy) = (self.directory.as_path(), Strategy::Gathered);
        Ok(Start { directory, files, salt, found, first, strategy })
    }
}

/// Takes the lock of the writer of a shard.
fn lock(directory: &Path) -> Result<WriterLock, NotStarted> {
    let file = files::create_one(directory, &files::path(directory, OWN, 0))?;
    WriterLock::take(file)?.ok_or(NotStarted::Elsewhere)
}

/// Opens a shard for a journal that is running, and makes its state durable. Also returns the epoch of its marker.
pub(super) fn open(
    Joining { shard, directory, env, slots }: Joining,
    identity: &[u8; 16],
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
    let slots = slots.unwrap_or_else(|| Arc::new(Slots::open(directory)));
    let open = Open { env, slots, _writer: writer, pin, saved, number, used, is_mapped: true };
    Ok((epoch, open))
}
