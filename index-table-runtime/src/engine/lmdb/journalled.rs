//! Opening a store that has a journal, or that will get one.

mod shards;

pub(crate) use self::shards::ManagerArchive;
use self::shards::manager_changes;

use std::{io, path::Path, sync::atomic::Ordering};

use super::{
    env::Engine,
    error::{self, damaged, failed, refused},
    journal::{
        archive::worker::Distance,
        common::DATA_SYNC,
        evidence, left,
        limits::Limits,
        marked,
        marker::{Journalled, Marker},
        member::Member,
        not_started::NotStarted,
        own,
        plan::{Plan, Wanted, plan},
        presence::{self, Others, Presence},
        recovery,
        shards::{Joining, SharedJournal},
        weaken,
        write_back::write_back,
    },
    lock,
    names::FILE,
    pages,
    process::Counted,
    size,
    turn::Writing,
};
use crate::{
    engine::{DataFile, Durability, DurabilityReason, Marked, Options},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// The reason why a data file is not written whose own journal has ended.
const NOT_SHARED: &str = "its journal was ended because the store gets a second data file, and the journal of all data files could not be \
                          started";

impl Engine {
    /// Returns the distance between the store and its archive; `None` without an archive.
    pub(crate) fn archive_distance(&self) -> Option<Distance> {
        self.journal.get()?.archive_distance()
    }

    /// Whether the store writes the journal of all shards.
    pub(crate) fn has_shared_journal(&self) -> bool {
        self.shared_journal().is_some()
    }

    /// Returns the journal of all shards, if the store writes it.
    fn shared_journal(&self) -> Option<&Member> {
        self.journal.get().filter(|journal| journal.is_shared())
    }

    /// Joins the journal of all shards while it is running. `other` is a shard that has it. `is_known` if the store has had
    /// the shard before.
    pub(crate) fn join_journal(
        &self,
        shard: ShardNumber,
        other: &Self,
        is_known: bool,
    ) -> Result<()> {
        let Some(member) = other.shared_journal() else { return Ok(()) };
        if let Some(own) = self.shared_journal()
            && own.has_left()
        {
            let (directory, env) = (self.path.clone(), self.env()?.clone());
            let joined = own.rejoin(Joining { shard, directory, env, slots: None });
            return joined.map_err(|not_started| unstarted(&self.path, not_started));
        }
        if !self.is_joining.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (directory, env) = (self.path.clone(), self.env()?.clone());
        let joined = member.join(Joining { shard, directory, env, slots: None }, is_known);
        self.set_member(joined.map_err(|not_started| unstarted(&self.path, not_started))?, false);
        Ok(())
    }

    /// Whether the shard has left the journal of all shards.
    pub(crate) fn has_left_journal(&self) -> bool {
        self.shared_journal().is_some_and(Member::has_left)
    }

    /// Leaves the journal of all shards, because the shard was removed from the store. Writes are refused from now on.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]: the data file is not complete before the store has been opened again. Until then, no shard
    /// is written.
    pub(crate) fn leave_journal(&self) -> Result<()> {
        if let Some(member) = self.shared_journal()
            && !member.leave(|| (self.lock_writing(), self.can_write()))
        {
            return Err(Error::ReopenNeeded { path: self.path.clone(), reason: DATA_SYNC });
        }
        Ok(())
    }

    /// Leaves the journal of all shards, and then makes a checkpoint without the shard. So the journal has no state of the
    /// shard and no records for it, and the records that were left for it before are used again.
    ///
    /// # Errors
    ///
    /// The errors of [`leave_journal`](Self::leave_journal). The errors of the system: the journal still has the shard.
    pub(crate) fn leave_no_records(&self) -> Result<()> {
        self.leave_journal()?;
        if let Some(member) = self.shared_journal() {
            member.leave_no_records().map_err(|source| Error::io(&self.path, source))?;
        }
        Ok(())
    }

    /// Sets the journal. `may_be_direct` as in [`Member::recorder`].
    fn set_member(&self, member: Member, may_be_direct: bool) {
        self.set_member_in(&mut self.lock_writing(), member, may_be_direct);
    }

    /// Does this with the turn to write.
    fn set_member_in(&self, writing: &mut Writing, member: Member, may_be_direct: bool) {
        writing.scratch.recorder = member.recorder(may_be_direct);
        writing.paths.add_all(member.files());
        if let (Some(slots), Ok(files)) = (member.slots(), self.files()) {
            let _ = files.slots.set(slots);
        }
        self.journal.set(member);
        self.is_joining.store(false, Ordering::Release);
    }

    /// Ends the own journal, and starts the journal of all shards, of which this data file is the first and only shard. Then
    /// calls `switch`, before another write transaction begins. A data file without a journal stays without one.
    ///
    /// `manager` is the id of the shard map manager, and `records` are its records, for an archive.
    ///
    /// If the process ends between the two journals, the data file is complete.
    ///
    /// # Errors
    ///
    /// After an error, the store can't be written before it is opened again.
    pub(crate) fn share_journal(
        &self,
        manager: [u8; 16],
        options: &Options,
        records: &[(Vec<u8>, Vec<u8>)],
        switch: impl FnOnce() -> Result<()>,
    ) -> Result<Option<ManagerArchive>> {
        let journal = SharedJournal::open(&self.path, manager)?;
        // So that less is left to be done while writers wait.
        journal.create_files().map_err(|not_started| unstarted(&self.path, not_started))?;
        let synced = marked::data(&self.path).and_then(|data| {
            write_back(&data, || false)?;
            data.sync_data()
        });
        synced.map_err(|source| Error::io(&self.path, source))?;
        let mut writing = self.lock_writing();
        let mut archive = None;
        if let Some(own) = self.journal.get() {
            let slots = own.slots();
            own.close(self.can_write());
            own.refuse(NOT_SHARED);
            writing.paths.remove_all(own.files());
            let (directory, env) = (self.path.clone(), self.env()?.clone());
            let joining = vec![Joining { shard: 0, directory, env, slots }];
            let to_archive = options.destination().map(|it| (it, manager_changes(records)));
            let limits = Limits::new(options.checkpoint);
            let started = journal.start(joining, (&[], &[]), limits, to_archive);
            let mut members =
                started.map_err(|(directory, not_started)| unstarted(&directory, not_started))?;
            let member =
                members.pop().ok_or_else(|| Error::internal("a journal without members"))?;
            archive = member.archive().map(ManagerArchive);
            self.set_member_in(&mut writing, member, false);
        }
        switch()?;
        Ok(archive)
    }

    /// Starts the journal. `writer` is the process that may write the store, if it is known.
    pub(super) fn start_journal(&self, options: &Options, writer: Option<u32>) -> Result<()> {
        let started = own::start(
            self.env()?,
            &self.path,
            Limits::new(options.checkpoint),
            options.destination(),
        );
        let journal = started.map_err(|not_started| match not_started {
            NotStarted::Elsewhere => error::elsewhere(&self.path, writer, true),
            not_started => unstarted(&self.path, not_started),
        })?;
        self.set_member(journal, options.refuses_shards);
        Ok(())
    }
}

impl DataFile<'_> {
    /// Removes the commits that the journal of all shards, in this directory of their manager, has left for a lost shard. A
    /// backup has taken the place of the shard.
    pub(crate) fn forget_left(self, shard: ShardNumber) -> Result<()> {
        left::remove(self.0, shard).map_err(|source| Error::io(self.0, source))
    }

    /// Reads its marker.
    pub(crate) fn marked(self) -> Result<Marked> {
        let Self(path) = self;
        let marker = marked::marker_of(path).map_err(|not_started| unstarted(path, not_started))?;
        Ok(match marker {
            Marker::Clean(Journalled { identity, shard: Some(number), .. }) => {
                Marked::CompleteShard { manager: identity, number }
            }
            Marker::None | Marker::Clean(_) => Marked::Complete,
            Marker::Needed(Journalled { shard: None, .. }) => Marked::Own,
            Marker::Needed(Journalled { identity, shard: Some(number), .. }) => {
                Marked::Shard { manager: identity, number }
            }
        })
    }

    /// Whether it is of a plain store with a journal, which opening the store as a shard map manager would remove.
    pub(crate) fn has_own_journal(self) -> Result<bool> {
        marked::has_own_journal(self.0).map_err(|not_started| unstarted(self.0, not_started))
    }

    /// Returns the id of another process that has the store in the directory open and may write it, if it is known.
    pub(crate) fn writer(self) -> Option<u32> {
        // LMDB would lose its locks.
        if self.is_open() {
            return Some(std::process::id());
        }
        presence::writer_of(self.0)
    }
}

/// A store that LMDB can open.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    /// The process that may write the store, if it is known.
    pub(super) writer: Option<u32>,
    /// Whether a process that wrote the store has ended without closing it.
    pub(super) was_left: bool,
    /// Why a store whose options name no durability gets no journal.
    pub(super) without_journal: Option<DurabilityReason>,
}

/// Brings a store into a state in which LMDB can open it. Returns the plan for its journal.
pub(super) fn prepare(
    options: &Options,
    path: &Path,
    presence: &mut Presence,
    shared: Option<(&SharedJournal, ShardNumber)>,
) -> Result<Prepared> {
    let failed = |not_started| match (options.read_only, unstarted(path, not_started)) {
        (true, Error::ReadOnly { path, source: Some(source) }) => Error::Io { path, source },
        (_, error) => error,
    };
    let mut wanted = match options.used_durability() {
        _ if options.read_only => Wanted::Read,
        Durability::Journal => Wanted::Journal,
        Durability::Full | Durability::Relaxed | Durability::None => Wanted::Plain,
    };
    // An archive and the journal of all shards have no substitute.
    let is_optional = options.durability.is_none() && !options.has_archive() && shared.is_none();
    let (mut was_left, mut without_journal) = (false, None);
    loop {
        let marker = match shared {
            None => marked::marker_of(path),
            Some((journal, number)) => journal.marker_of(number, path),
        };
        let marker = marker.map_err(failed)?;
        if options.refuses_shards
            && wanted != Wanted::Read
            && matches!(marker, Marker::Clean(known) | Marker::Needed(known) if known.shard.is_some())
        {
            return Err(error::is_shard(path));
        }
        refuse_older(path, &marker, shared).map_err(failed)?;
        let is_complete = match marker {
            Marker::None => wanted != Wanted::Journal,
            Marker::Clean(_) => wanted == Wanted::Read,
            Marker::Needed(_) => false,
        };
        if is_complete {
            return Ok(Prepared { plan: Plan::Open, writer: None, was_left, without_journal });
        }
        if !presence.is_known() {
            if matches!(marker, Marker::Needed(_)) {
                return Err(Error::RecoveryNeeded { path: path.to_owned() });
            }
            if wanted == Wanted::Journal && is_optional {
                (wanted, without_journal) = (Wanted::Plain, Some(DurabilityReason::NoLocks));
                continue;
            }
            if wanted == Wanted::Journal {
                let reason = "a journal needs locks on directories, which there are not here";
                let source = io::Error::new(io::ErrorKind::Unsupported, reason);
                return Err(Error::Io { path: path.to_owned(), source });
            }
        }
        let others = presence.others(path).map_err(|source| error::not_opened(path, source))?;
        let is_rewound = weaken::is("rewind-beside") && wanted != Wanted::Read;
        let plan = plan(wanted, &marker, if is_rewound { Others::None } else { others });
        let writer = if let Others::Writer(id) = others { id } else { None };
        match (plan, marker) {
            (Plan::Recover, Marker::Needed(_)) if options.without_recovery => {
                return Err(Error::RecoveryNeeded { path: path.to_owned() });
            }
            (Plan::Recover, Marker::Needed(known)) => {
                let shared = shared.filter(|(journal, _)| journal.is_of(&known));
                if wanted == Wanted::Read && !known.is_here(shared.is_some()) {
                    return Err(Error::RecoveryNeeded { path: path.to_owned() });
                }
                let recovered = recover(options, path, known, shared);
                recovered.map_err(|error| {
                    if wanted == Wanted::Read { unwritable(error) } else { error }
                })?;
                was_left = true;
            }
            // A store that becomes a shard has a journal of its own, too.
            (Plan::Settle | Plan::Start, Marker::Needed(known))
                if (plan == Plan::Settle || shared.is_some())
                    && others == Others::Readers
                    && known.is_here(false)
                    && !was_left =>
            {
                Engine::settle(options, path)?;
                was_left = true;
            }
            (Plan::GiveUp, _) => {
                // Nothing is written to a damaged file.
                pages::look_at_last(&path.join(FILE)).map_err(|fault| refused(path, fault))?;
                marked::give_up(path).map_err(failed)?;
            }
            // The journal of a shard is from a process that has ended, and other processes have the shard open.
            (Plan::Start, Marker::Needed(known))
                if shared.is_some_and(|(journal, _)| !journal.is_of(&known)) =>
            {
                return Err(error::elsewhere(path, writer, true));
            }
            (Plan::Elsewhere, Marker::None) if is_optional => {
                (wanted, without_journal) = (Wanted::Plain, Some(DurabilityReason::OtherWriter));
            }
            (Plan::Settle | Plan::Elsewhere, marker) => {
                return Err(error::elsewhere(path, writer, marker != Marker::None));
            }
            (Plan::Start, Marker::Needed(_)) => {
                return Ok(Prepared { plan, writer, was_left: true, without_journal });
            }
            _ => return Ok(Prepared { plan, writer, was_left, without_journal }),
        }
    }
}

/// Returns the error of a reader that can't recover a store.
fn unwritable(error: Error) -> Error {
    match error {
        Error::Io { path, source } | Error::ReadOnly { path, source: Some(source) }
            if matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Error::RecoveryNeeded { path }
        }
        error => error,
    }
}

/// Checks that the data file does not lack commits of a journal that it does not need by its marker.
fn refuse_older(
    path: &Path,
    marker: &Marker,
    shared: Option<(&SharedJournal, ShardNumber)>,
) -> Result<(), NotStarted> {
    if matches!(marker, Marker::Needed(_)) {
        return Ok(());
    }
    // Otherwise, the check of the first pages returns the error.
    let Some(last) = marked::last_number_of(path)? else { return Ok(()) };
    evidence::refuse_later_commits(path, marker, last)?;
    match shared {
        None => Ok(()),
        Some((journal, number)) => journal.refuse_later_commits(number, marker, last),
    }
}

/// Applies the journal to a store that no process has open.
fn recover(
    options: &Options,
    path: &Path,
    known: Journalled,
    shared: Option<(&SharedJournal, ShardNumber)>,
) -> Result<()> {
    let counted = Counted::new();
    let map_size = size::map_size(options, counted.others);
    // No other process has the store open.
    let reserve = || lock::reserve(path, readers(options), true).map(drop);
    let sizes = (map_size, handles(options.max_databases, 0));
    let outcome = match shared {
        None => recovery::recover(path, known, sizes, reserve),
        Some((journal, number)) => journal.recover(number, path, known, sizes, reserve),
    };
    outcome.map_err(|not_started| unstarted(path, not_started))
}

/// Returns the error of a journal that can't be started.
#[cold]
pub(super) fn unstarted(path: &Path, not_started: NotStarted) -> Error {
    match not_started {
        NotStarted::Elsewhere => error::elsewhere(path, None, true),
        NotStarted::Io(source) => error::not_opened(path, source),
        NotStarted::Damaged(reason) => damaged(path, reason),
        NotStarted::Lmdb(error) => failed(path, error),
    }
}

/// Returns the number of reader slots. Two more than the option are for checkpoints, and another one for the bases of an
/// archive, so that they can be written when all others are taken.
pub(super) const fn readers(options: &Options) -> u32 {
    match options.used_durability() {
        Durability::Journal if !options.read_only => {
            options.max_readers.saturating_add(if options.has_archive() { 3 } else { 2 })
        }
        _ if options.follower => options.max_readers.saturating_add(2),
        _ => options.max_readers,
    }
}

/// Returns the maximum number of database handles in LMDB: for all databases in the file, for new databases, for
/// the catalog, for the sequences and for the second copies of lists.
pub(super) fn handles(max_databases: u32, databases: u64) -> u32 {
    /// The maximum for the file. Only a damaged file has more databases, and the check after opening finds
    /// it.
    const MAX_IN_FILE: u32 = 1 << 14;
    let databases = u32::try_from(databases).unwrap_or(MAX_IN_FILE).min(MAX_IN_FILE);
    max_databases.max(databases.saturating_add(max_databases / 2)).saturating_add(3)
}

#[cfg(test)]
mod tests;
