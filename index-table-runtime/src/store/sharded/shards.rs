//! Opening the shards of a store, with the journal that they share.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{
    claim,
    open::lock,
    settle::settle,
    shard::{compare_shard, durable, open_files, reason_of},
};
use crate::{
    engine::{
        self, DataFile, Marked, Options, PlaceInJournal,
        lmdb::{self, ManagerArchive, SharedJournal},
    },
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{
        Manager, ManagerId, ManagerRecords, MoveRecord, Seen, Shard, ShardRecord, ShardState,
        WriterLock, encoded, options_of, place_of,
    },
    store::{Inner, shared},
};

/// Opens the shards and the journal of all shards, and brings the own records of the shards up to date.
pub(super) fn open_shards(
    options: &Options,
    path: &Path,
    manager: &Manager,
    mut records: ManagerRecords,
) -> Result<(Vec<Shard>, ManagerRecords, Found)> {
    let read_only = options.read_only;
    let mut found = Found::default();
    let is_writer = !read_only && !options.follower;
    let journal = is_writer.then(|| SharedJournal::open(path, records.own.id)).transpose()?;
    // Until all shards are open, no other process writes them.
    let recovery =
        if read_only { Recovery::begin(options, path, &records) } else { Recovery::Unneeded };
    let own = journal.as_ref().or_else(|| recovery.journal());
    let closed = if read_only { closed_journal(path, &records)? } else { None };
    let mut files = Vec::new();
    for (number, record) in (0..).zip(records.shards.clone()) {
        let open = || {
            let files = open_files(options, &mut records, (number, &record), path, own)?;
            if let Some(journal) = &closed {
                journal.refuse_older(&place_of(path, &record.place), number)?;
            }
            Ok(files)
        };
        files.push(is_wanted(options, &record).then(open));
    }
    let is_settled = !options.follower && settle(options, &mut records, &mut files, path, own)?;
    let (mut shards, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for ((number, record), files) in (0..).zip(records.shards.clone()).zip(files) {
        let name: Arc<str> = Arc::from(record.name.as_str());
        if record.is_removed() {
            if let Some(journal) = &journal
                && is_complete(journal, records.own.id, (number, &record), path)
            {
                removed.push(number);
            }
            let shard = Shard::unavailable(name, String::new());
            shard.set_gone(true);
            shards.push(shard);
            found.seen.push(None);
            continue;
        }
        let Some(files) = files else {
            let reason = "it was left out by `only` when the store was opened".to_owned();
            shards.push(Shard::unavailable(name, reason));
            found.seen.push(None);
            continue;
        };
        let opened = files
            .and_then(|files| compare_shard(options, &records, (number, &record), path, files));
        match opened {
            Ok((inner, identity, seen)) => {
                changed.extend(identity.map(|identity| (Arc::clone(&inner), identity)));
                shards.push(Shard::open(name, found.add(inner, seen)?));
            }
            Err(error) => {
                let is_elsewhere = matches!(recovery, Recovery::Elsewhere | Recovery::Impossible);
                let reason = left_out(error, options, &record, path, is_elsewhere)?;
                shards.push(Shard::unavailable(name, reason));
                found.seen.push(None);
            }
        }
    }
    if let Some(journal) = recovery.journal() {
        refuse_split(journal, &shards, path)?;
    }
    if is_writer && !options.has_archive() {
        lmdb::known::settle(path, None).map_err(|source| Error::io(path, source))?;
    }
    if let Some(journal) = &journal {
        manager.set_options(options);
        // The start applies records in one shard after another. After an error, the next writer starts the journal.
        let announced = manager.announced();
        announced.inspect(|announced| announced.begin());
        let archive = start_journal(journal, (&shards, &removed), options, &records)?;
        announced.inspect(|announced| announced.end());
        if let Some(archive) = archive {
            manager.set_archive(archive);
        }
    }
    for (inner, identity) in changed {
        identity.write(inner.engine()?)?;
    }
    let complete = with_own_records(&shards, &found, is_writer);
    let opened =
        |(record, complete): (&ShardRecord, &bool)| record.state != ShardState::Open && *complete;
    if !read_only && (is_settled || records.shards.iter().zip(&complete).any(opened)) {
        mark_open(path, &mut records, &complete);
        manager.write(&records)?;
    }
    Ok((shards, records, found))
}

/// Returns the reason why a shard is not available, from the error of opening it; the error if the store can't be opened without
/// it.
///
/// `is_elsewhere` if another process recovers the shards, or if this process can't.
fn left_out(
    error: Error,
    options: &Options,
    record: &ShardRecord,
    path: &Path,
    is_elsewhere: bool,
) -> Result<String> {
    let is_writer = !options.read_only && !options.follower;
    let is_relocated = options.declared.relocated.iter().any(|(name, _)| *name == record.name);
    match error {
        // A foreign shard is a mistake of the caller.
        Error::ShardRefused { .. } | Error::ReopenNeeded { .. } => Err(error),
        Error::RecoveryNeeded { .. } if is_elsewhere => {
            Err(Error::RecoveryNeeded { path: path.to_owned() })
        }
        // Another process, or the original of a follower, is adding this shard, which has no rows yet.
        error if !is_writer && record.state == ShardState::New => Ok(error.to_string()),
        // A new shard has no rows yet, so its error is returned, too.
        error if record.state != ShardState::Open || is_relocated => Err(error),
        error => Ok(reason_of(&error)),
    }
}

/// Reads the journal of all shards for a reader, if the file of a shard does not need it. The file can be an older copy, which a
/// writer would refuse. A reader without permission for the journal can't compare them: it can read a closed store without the journal.
fn closed_journal(path: &Path, records: &ManagerRecords) -> Result<Option<SharedJournal>> {
    let is_complete = |record: &ShardRecord| {
        let marked = DataFile(&place_of(path, &record.place)).marked();
        !record.is_removed()
            // After an error, the shard is not available, or its next read succeeds.
            && !matches!(marked, Ok(Marked::Own | Marked::Shard { .. }))
    };
    if !records.shards.iter().any(is_complete) {
        return Ok(None);
    }
    match SharedJournal::open(path, records.own.id) {
        // A reader may have no access to the journal.
        Err(Error::Io { source, .. } | Error::ReadOnly { source: Some(source), .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Ok(None)
        }
        journal => journal.map(Some),
    }
}

/// Returns for each shard whether it is open, and has its own record. In a follower, the record of a new shard can be among the
/// commits that follow.
fn with_own_records(shards: &[Shard], found: &Found, is_writer: bool) -> Vec<bool> {
    let shards = shards.iter().zip(&found.seen);
    shards.map(|(shard, seen)| shard.opened().is_ok() && (is_writer || seen.is_some())).collect()
}

/// Records the shards that are open, and have their own records.
fn mark_open(path: &Path, records: &mut ManagerRecords, complete: &[bool]) {
    for (record, is_complete) in records.shards.iter_mut().zip(complete) {
        if *is_complete {
            if record.state == ShardState::New {
                claim::remove(path, record);
            }
            record.state = ShardState::Open;
        }
    }
    records.own.version += 1;
}

/// Whether a shard is opened.
fn is_wanted(options: &Options, record: &ShardRecord) -> bool {
    let only = options.declared.only.as_ref();
    !record.is_removed() && only.is_none_or(|only| only.contains(&record.name))
}

/// Fails in a reader if a commit of a killed process is in some shards only: shards that other processes read are not
/// recovered.
fn refuse_split(journal: &SharedJournal, shards: &[Shard], path: &Path) -> Result<()> {
    let open = || {
        let opened = (0..).zip(shards).filter_map(|(at, it)| Some((at, it.opened().ok()?)));
        opened.filter_map(|(number, shard)| Some((number, shard.lmdb()?)))
    };
    let mut needs_it = false;
    for (_, engine) in open() {
        let marked = DataFile(engine.directory()).marked()?;
        needs_it |= matches!(marked, Marked::Shard { .. });
    }
    if needs_it && journal.is_in_some_only(open())? {
        let reason = "the last commit of a process that was killed is in some of its shards only, because other processes \
                      read the others; open it for writing, or end these processes";
        return Err(Error::ReopenNeeded { path: path.to_owned(), reason });
    }
    Ok(())
}

/// The own records of the shards.
#[derive(Default)]
pub(super) struct Found {
    /// The unfinished moves.
    pub(super) moves: Vec<MoveRecord>,
    /// The global indexes with hidden entries, by the names of their shard maps.
    pub(super) hidden: BTreeSet<String>,
    /// The records of each shard, in the order of their numbers.
    pub(super) seen: Vec<Option<Seen>>,
    /// The stores of the available shards.
    pub(super) stores: Vec<Arc<Inner>>,
}

impl Found {
    /// Adds an available shard, and returns its engine.
    fn add(&mut self, store: Arc<Inner>, seen: Option<Seen>) -> Result<Arc<engine::Engine>> {
        for record in seen.as_ref().map_or(Ok(Vec::new()), Seen::moves)? {
            if self.moves.iter().all(|own| own.id != record.id) {
                self.moves.push(record);
            }
        }
        self.hidden.extend(seen.iter().flat_map(|seen| seen.hidden().iter().cloned()));
        self.seen.push(seen);
        let engine = Arc::clone(store.engine()?);
        self.stores.push(store);
        Ok(engine)
    }
}

/// Whether the recorded directory of a removed shard has this shard, and is complete without the journal. Makes it complete
/// if a process ended while it removed the shard.
fn is_complete(
    journal: &SharedJournal,
    manager: ManagerId,
    (number, record): (ShardNumber, &ShardRecord),
    path: &Path,
) -> bool {
    let (place, shard) = (place_of(path, &record.place), (manager, number));
    let needs_it = |marked| matches!(marked, Ok(Marked::Shard { manager, number }) if (manager, number) == shard);
    if needs_it(DataFile(&place).marked()) {
        let own = Options { create: false, ..durable(options_of(&record.options)) };
        // After an error, the journal keeps the records of the shard.
        drop(shared::open_shard(&own, &place, Some(PlaceInJournal(journal, number))));
    }
    let marked = DataFile(&place).marked();
    matches!(marked, Ok(Marked::CompleteShard { manager, number }) if (manager, number) == shard)
}

/// Starts the journal of all shards.
fn start_journal(
    journal: &SharedJournal,
    (shards, complete): (&[Shard], &[ShardNumber]),
    options: &Options,
    records: &ManagerRecords,
) -> Result<Option<ManagerArchive>> {
    let numbered = || (0..).zip(shards);
    let open =
        numbered().filter_map(|(number, shard)| Some((number, shard.opened().ok()?.lmdb()?)));
    let is_missing = |shard: &Shard| shard.opened().is_err() && !shard.is_gone();
    let missing = numbered().filter(|(_, shard)| is_missing(shard));
    let missing: Vec<ShardNumber> = missing.map(|(number, _)| number).collect();
    journal.begin_with(open, (&missing, complete), options, &encoded(records)?)
}

/// The journal of all shards, for a reader that recovers shards whose writer has ended without closing the store.
enum Recovery {
    /// All shards can be opened.
    Unneeded,
    Begun {
        journal: Box<SharedJournal>,
        _lock: WriterLock,
    },
    /// Another process has the lock. It has recovered the shards, or is recovering them.
    Elsewhere,
    /// This process may not write the store.
    Impossible,
}

impl Recovery {
    fn begin(options: &Options, path: &Path, records: &ManagerRecords) -> Self {
        let needs_it = |(number, record): (ShardNumber, &ShardRecord)| {
            let marked = DataFile(&place_of(path, &record.place)).marked();
            let shard = (records.own.id, number);
            matches!(marked, Ok(Marked::Shard { manager, number }) if (manager, number) == shard)
        };
        if !(0..).zip(&records.shards).any(|(at, own)| !own.is_removed() && needs_it((at, own))) {
            return Self::Unneeded;
        }
        let lock = match lock(path, options.file_mode) {
            Ok(lock) => lock,
            Err(Error::AlreadyOpen { .. }) => return Self::Elsewhere,
            Err(_) => return Self::Impossible,
        };
        match SharedJournal::open(path, records.own.id) {
            Ok(journal) => Self::Begun { journal: Box::new(journal), _lock: lock },
            Err(_) => Self::Impossible,
        }
    }

    const fn journal(&self) -> Option<&SharedJournal> {
        if let Self::Begun { journal, .. } = self { Some(journal) } else { None }
    }
}
