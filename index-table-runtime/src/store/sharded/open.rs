//! Opening a sharded store: the shard map manager, then each shard, whose identity is checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{Store, claim, settle::settle};
use crate::{
    engine::{
        self, DataFile, DeclaredShard, Durability, Marked, Options, PlaceInJournal, files,
        lmdb::{self, ManagerArchive, SharedJournal},
    },
    locks::{Mutex, OfProcess, Unshared, rank},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{
        self, Identity, Manager, ManagerId, ManagerRecords, MoveRecord, Observed, Seen, Shard,
        ShardRecord, ShardState, WriterLock, encoded, options_of, place_of, recorded,
    },
    store::{Engines, Inner, Shards, shared},
};

/// The lock file of the process that writes the store.
pub(in crate::store) const LOCK: &str = "writer.lock";

/// The map size of the manager. It has a few hundred bytes for each shard and each boundary of a shard map.
const MANAGER_MAP: usize = 1 << 26;

/// The maximum time to wait for another process that recovers the shards.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a reader opens a store whose rows another process moves, and the pause in between.
const READ_ONLY_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// The open stores of this process, by the canonical paths of their directories.
pub(super) static OPEN: OfProcess<Mutex<BTreeMap<PathBuf, Weak<Inner>>, rank::ShardedStores>> =
    OfProcess::new(Mutex::default);

pub(in crate::store) fn open(options: &Options, path: &Path) -> Result<Store> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    durable(options.clone()).check().map_err(io)?;
    let mut of_shards = options.declared.shards.iter().filter_map(|shard| shard.options.as_ref());
    if of_shards.any(Options::has_archive) {
        let what = "an archive of a single shard; set the archive in the options of the store";
        return Err(Error::NotOffered { what });
    }
    if options.durability == Some(Durability::Full) {
        let what = "`Durability::Full` for shards, each of which would sync its own data file twice for each \
                    commit: with `Durability::Journal`, which is the default, a commit is on the disk as well \
                    when it returns, after one sync for all shards";
        return Err(Error::NotOffered { what });
    }
    let creates = options.creates() && options.declared.shards.iter().any(|shard| !shard.added);
    if creates {
        files::create_directories(path, options.directory_mode)
            .map_err(|source| Error::opening(path, source))?;
    }
    let path = path.canonicalize().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::StoreNotFound { path: path.to_owned() },
        _ => Error::opening(path, source),
    })?;
    DataFile(&path).refuse_inherited()?;
    let mut stores = OPEN.lock();
    if let Some(inner) = stores.get(&path).and_then(Weak::upgrade) {
        if !options.declared.is_empty() || options.read_only != inner.engines.is_read_only() {
            let reason = "in this process; clone the `Store`, or open it without options";
            return Err(Error::AlreadyOpen { path, reason: reason.to_owned() });
        }
        if options.archive.as_ref().is_some_and(|it| !lmdb::known::has_archive(&path, it)) {
            let reason = "in this process, with another archive or without an archive; drop all handles to it first";
            return Err(Error::AlreadyOpen { path, reason: reason.to_owned() });
        }
        return Ok(Store { inner });
    }
    DataFile(&path).wait_until_closed();
    stores.retain(|_, open| open.strong_count() > 0);
    let (mut tries, began) = (0..READ_ONLY_TRIES, Instant::now());
    let mut is_last = false;
    let shards = loop {
        match open_all(options, &path, creates) {
            // The manager was read before a step of a move, and a shard after it.
            Err(Error::ReopenNeeded { .. }) if tries.next().is_some() => thread::sleep(PAUSE),
            // Another process is recovering the shards.
            Err(Error::RecoveryNeeded { .. }) if began.elapsed() < PATIENCE && !is_last => {
                // It may have ended before this try.
                is_last = !is_locked(&path);
                thread::sleep(PAUSE);
            }
            opened => break opened?,
        }
    };
    let engines = Engines::Several(Box::new(shards));
    let inner = Arc::new(Inner::new(engines, options.index_queue));
    stores.insert(path, Arc::downgrade(&inner));
    Ok(Store { inner })
}

fn open_all(options: &Options, path: &Path, creates: bool) -> Result<Shards> {
    let read_only = options.read_only;
    // Opening must not create a manager.
    let exists = files::exists(&path.join("data.mdb"));
    if !creates && !exists.map_err(|source| Error::opening(path, source))? {
        return Err(Error::StoreNotFound { path: path.to_owned() });
    }
    DataFile(path).refuse_missing()?;
    let lock = (!read_only).then(|| lock(path, options.file_mode)).transpose()?;
    let observed = read_only.then(|| Observed::new(path.join(LOCK)));
    if !read_only && !options.follower {
        lmdb::known::check(options, path)?;
    }
    if DataFile(path).has_own_journal()? {
        return Err(if creates {
            plain(path)
        } else {
            Error::StoreNotFound { path: path.to_owned() }
        });
    }
    let manager =
        Options { create: creates, read_only, file_mode: options.file_mode, ..manager_options() };
    let manager = Manager::new(engine::Engine::open(&manager, path)?, lock);
    let before = manager.read()?;
    let is_new = before.is_none();
    let mut records = match before {
        Some(records) => records,
        None if !creates || read_only => {
            return Err(Error::StoreNotFound { path: path.to_owned() });
        }
        None => {
            if !manager.engine().catalog()?.is_empty() {
                return Err(plain(path));
            }
            ManagerRecords::new()
        }
    };
    let (known, version) = (records.clone(), records.own.version);
    declare(options, &mut records, is_new)?;
    if let Some(unknown) = unknown(options, &records) {
        return Err(refused(&format!("shard `{unknown}`"), "the store has no such shard"));
    }
    if records != known || is_new {
        if read_only {
            return Err(Error::ReadOnly { path: path.to_owned(), source: None });
        }
        records.own.version += 1;
        claim::put_new(path, &records, &known)?;
        manager.write(&records)?;
    }
    let changes_shards = !is_new && records.shards != known.shards;
    let declared = changes_shards.then(|| records.clone());
    match open_shards(options, path, &manager, records) {
        Ok((shards, records, found)) => {
            let ManagerRecords { maps, places, tables, .. } = records;
            let directory = Some(path.to_owned());
            let is_follower = options.follower;
            let is_read_only = read_only || is_follower;
            let engine =
                shards::Engine::new(shards, maps, places, directory, Some(manager), is_read_only);
            let engine = engine.with_tables(tables).with_moves(found.moves);
            let engine = engine.with_hidden(found.hidden);
            if is_follower {
                engine.follow_own_records()?;
            }
            let placement = match observed {
                Some(observed) => engine.with_seen((version, observed), found.seen)?,
                None => engine,
            };
            Ok(Shards::new(placement, found.stores))
        }
        Err(error) => {
            if let Some(declared) = declared {
                // A shard in a directory that can't be opened must not prevent the opening of the store.
                manager.write(&known)?;
                claim::remove_new(path, &declared, &known);
            }
            Err(error)
        }
    }
}

fn plain(path: &Path) -> Error {
    let reason =
        "it is a plain store; create a sharded store in another directory, and `adopt` this one";
    refused(&path.display().to_string(), reason)
}

/// Opens the shards and the journal of all shards, and brings the own records of the shards up to date.
fn open_shards(
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
            // A foreign shard is a mistake of the caller. A new shard has no rows yet, so its error is returned, too.
            Err(error @ (Error::ShardRefused { .. } | Error::ReopenNeeded { .. })) => {
                return Err(error);
            }
            Err(Error::RecoveryNeeded { .. })
                if matches!(recovery, Recovery::Elsewhere | Recovery::Impossible) =>
            {
                return Err(Error::RecoveryNeeded { path: path.to_owned() });
            }
            // Another process, or the original of a follower, is adding this shard, which has no rows yet.
            Err(error) if !is_writer && record.state == ShardState::New => {
                shards.push(Shard::unavailable(name, error.to_string()));
                found.seen.push(None);
            }
            Err(error) if record.state != ShardState::Open => return Err(error),
            Err(error)
                if options.declared.relocated.iter().any(|(name, _)| *name == record.name) =>
            {
                return Err(error);
            }
            Err(error) => {
                shards.push(Shard::unavailable(name, reason_of(&error)));
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
struct Found {
    /// The unfinished moves.
    moves: Vec<MoveRecord>,
    /// The global indexes with hidden entries, by the names of their shard maps.
    hidden: BTreeSet<String>,
    /// The records of each shard, in the order of their numbers.
    seen: Vec<Option<Seen>>,
    /// The stores of the available shards.
    stores: Vec<Arc<Inner>>,
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

/// Returns the options of the environment of the manager.
pub(super) fn manager_options() -> Options {
    let options = Options { manager: true, ..Options::default() };
    // Readers of the store read the manager too, so it has no journal that must be recovered.
    options.durability(Durability::Full).map_size(MANAGER_MAP).max_databases(8)
}

/// Takes the lock of the process that writes the store. Waits for a reader that recovers the shards, at most for
/// [`PATIENCE`].
///
/// # Errors
///
/// [`Error::AlreadyOpen`]: another process writes the store.
pub(super) fn lock(path: &Path, mode: u32) -> Result<WriterLock> {
    let file = path.join(LOCK);
    let io = |source| Error::Io { path: file.clone(), source };
    let mut open = File::options();
    open.read(true).write(true).create(true).truncate(false);
    let lock = files::open_or_create(&mut open, &file, mode).map_err(io)?;
    let (unshared, began) = (Unshared::new(&lock), Instant::now());
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(WriterLock::new(unshared, lock)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let writer = DataFile(path).writer();
        if writer.is_some() || began.elapsed() >= PATIENCE {
            let process = writer.map_or("another process".to_owned(), |id| format!("process {id}"));
            let reason = format!("in {process}, which writes it; open it with `read_only(true)`");
            return Err(Error::AlreadyOpen { path: path.to_owned(), reason });
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process has the lock of the process that writes the store.
fn is_locked(path: &Path) -> bool {
    File::open(path.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
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

/// Adds new shards, shard maps and places to the records, and compares the others with the records.
pub(super) fn declare(options: &Options, records: &mut ManagerRecords, is_new: bool) -> Result<()> {
    for declared in &options.declared.shards {
        if !is_removed(declared, records) {
            declare_shard(declared, options, records, is_new)?;
        }
    }
    for (name, place) in &options.declared.relocated {
        let what = format!("shard `{name}`");
        let own = records.number(name);
        let Some(own) = own.and_then(|number| records.shards.get_mut(number as usize)) else {
            return Err(refused(&what, "the store has no such shard"));
        };
        let Some(place) = place.to_str() else {
            return Err(refused(&what, "its directory is not UTF-8"));
        };
        if options.declared.only.as_ref().is_some_and(|only| !only.contains(name)) {
            return Err(refused(&what, "it is relocated, and left out by `only`"));
        }
        place.clone_into(&mut own.place);
    }
    for (name, map) in &options.declared.maps {
        let what = || format!("shard map `{name}`");
        // A map that the store has keeps its ranges, also those of shards that were removed or detached.
        let exists = records.maps.contains_key(name);
        let removed = |shard: &str| if exists { records.removed_number(shard) } else { None };
        let map = map.declare(|shard| records.number(shard).or_else(|| removed(shard)));
        let map = map.map_err(|reason| refused(&what(), &reason))?;
        match records.maps.get(name) {
            None => {
                records.maps.insert(name.clone(), map);
            }
            Some(own) if own.kind == map.kind && own.key_type == map.key_type => {}
            Some(own) => {
                let reason = format!(
                    "the store has it with keys of type `{}`, and it is declared with `{}`",
                    own.key_type, map.key_type
                );
                return Err(refused(&what(), &reason));
            }
        }
    }
    for (table, shard) in &options.declared.places {
        let what = || format!("the place of table `{table}`");
        let Some(number) = records.number(shard) else {
            return Err(refused(&what(), &format!("the store has no shard `{shard}`")));
        };
        if records.tables.get(table).is_some_and(|own| own.place() != Some(number)) {
            return Err(refused(
                &what(),
                "the table was opened before, and its rows are elsewhere",
            ));
        }
        match records.places.get(table) {
            Some(own) if *own != number => {
                return Err(refused(&what(), "the store has placed it in another shard"));
            }
            _ => {
                records.places.insert(table.clone(), number);
            }
        }
    }
    Ok(())
}

pub(super) fn declare_shard(
    declared: &DeclaredShard,
    common: &Options,
    records: &mut ManagerRecords,
    is_new: bool,
) -> Result<()> {
    let what = format!("shard `{}`", declared.name);
    let Some(place) = declared.place.to_str() else {
        return Err(refused(&what, "its directory is not UTF-8"));
    };
    let own = records.number(&declared.name);
    match own.and_then(|number| records.shards.get(number as usize)) {
        Some(_) if is_new => Err(refused(&what, "it is declared twice")),
        Some(own) if own.place != place => {
            let reason = format!(
                "the store has it in `{0}`, and it is declared in `{place}`; declare it in `{0}`, or open the store without \
                 declaring it; if its files were moved to `{place}`, use `relocate`",
                own.place
            );
            Err(refused(&what, &reason))
        }
        Some(_) => Ok(()),
        None if !is_new && !declared.added => {
            let reason = "the store was created without it; add it with `add_shard`";
            Err(refused(&what, reason))
        }
        None => {
            let options = recorded(declared.options.as_ref().unwrap_or(common));
            let state = if declared.adopted { ShardState::Adopted } else { ShardState::New };
            let (name, place) = (declared.name.clone(), place.to_owned());
            records.shards.push(ShardRecord { name, place, state, options });
            Ok(())
        }
    }
}

/// Whether this shard was removed or detached. A declaration that adds a shard in another directory adds a new shard.
fn is_removed(declared: &DeclaredShard, records: &ManagerRecords) -> bool {
    if records.number(&declared.name).is_some() {
        return false;
    }
    let number = records.removed_number(&declared.name);
    let removed = number.and_then(|number| records.shards.get(number as usize));
    removed.is_some_and(|own| !declared.added || Path::new(&own.place) == declared.place)
}

/// Returns a name in `only` that no shard has.
fn unknown<'o>(options: &'o Options, records: &ManagerRecords) -> Option<&'o String> {
    options.declared.only.iter().flatten().find(|name| records.number(name).is_none())
}

/// Opens a shard, and checks that it belongs to the store. Returns the identity of the shard if it has changed, and the
/// caller writes it.
pub(super) fn open_shard(
    options: &Options,
    records: &mut ManagerRecords,
    number: ShardNumber,
    record: &ShardRecord,
    manager: &Path,
    journal: Option<&SharedJournal>,
) -> Result<(Arc<Inner>, Option<Identity>, Option<Seen>)> {
    let files = open_files(options, records, (number, record), manager, journal)?;
    compare_shard(options, records, (number, record), manager, files)
}

/// The open files of a shard, and its own records.
pub(super) type ShardFiles = (Arc<Inner>, Option<Seen>);

/// Opens the files of a shard, and corrects the shard maps by its moves.
pub(super) fn open_files(
    options: &Options,
    records: &mut ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    manager: &Path,
    journal: Option<&SharedJournal>,
) -> Result<ShardFiles> {
    let is_follower = options.follower;
    let read_only = options.read_only || is_follower;
    let own = durable(options_of(&record.options));
    let own = if is_follower {
        Options { follower: true, ..own.durability(Durability::None) }
    } else {
        let without_archive = options.without_archive;
        Options { read_only, without_archive, ..own }
    };
    let own = Options { create: record.state == ShardState::New && !read_only, ..own };
    own.check().map_err(|source| Error::Io { path: manager.to_owned(), source })?;
    let place = place_of(manager, &record.place);
    let inner =
        shared::open_shard(&own, &place, journal.map(|journal| PlaceInJournal(journal, number)))?;
    // With another lock file, a second process could write the shards.
    if !read_only && let Some(engine) = inner.engines.lmdb() {
        engine.watch_path(manager.join(LOCK));
    }
    let seen = Seen::read(inner.engine()?)?;
    // The own records have the state of a move before the manager has it.
    let known = seen.as_ref().filter(|_| journal.is_some() || read_only);
    for own in known.map_or(Ok(Vec::new()), Seen::moves)? {
        if let Some(map) = records.maps.get_mut(&own.map) {
            map.boundaries = own.boundaries(&map.boundaries);
        }
    }
    Ok((inner, seen))
}

/// Checks that an open shard belongs to the store.
pub(super) fn compare_shard(
    options: &Options,
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    manager: &Path,
    (inner, seen): ShardFiles,
) -> Result<(Arc<Inner>, Option<Identity>, Option<Seen>)> {
    let is_follower = options.follower;
    let read_only = options.read_only || is_follower;
    let directory = inner.engines.directory();
    let what = format!("shard `{}` in `{}`", record.name, directory.display());
    let expected = |adopted| records.identity(number, &record.name, manager, &directory, adopted);
    let Some(identity) = seen.as_ref().map(|seen| seen.identity().clone()) else {
        match record.state {
            ShardState::New if !inner.engines.catalog()?.is_empty() => {
                return Err(refused(&what, "it is a plain store with tables; `adopt` it"));
            }
            ShardState::Open | ShardState::Rebuilt | ShardState::Removed => {
                return Err(unavailable(record, "its directory has another store".to_owned()));
            }
            // Its own record is among the commits that the follower has not applied.
            ShardState::New | ShardState::Adopted if is_follower => {
                return Ok((inner, None, None));
            }
            ShardState::New | ShardState::Adopted if read_only => {
                return Err(Error::ReadOnly { path: directory, source: None });
            }
            ShardState::New => return Ok((inner, Some(expected(None)), None)),
            ShardState::Adopted => return Ok((inner, Some(expected(Some(Vec::new()))), None)),
        }
    };
    if identity.manager != records.own.id {
        return Err(refused(&what, "it is a shard of another store"));
    }
    if identity.number != number {
        let reason = format!("it is shard `{}` of this store", identity.name);
        return Err(refused(&what, &reason));
    }
    // The rows of a rebuilt shard are compared with its ranges once.
    let is_rebuilt = record.state == ShardState::Rebuilt;
    let unchecked = || if is_rebuilt { Some(Vec::new()) } else { identity.adopted.clone() };
    let expected = expected(unchecked());
    let is_moved = identity.manager_directory != expected.manager_directory;
    if is_moved && identity.directory == expected.directory {
        // The manager was moved, or it is a copy. The original of a copy still exists.
        let other = Path::new(&identity.manager_directory);
        let exists = match files::exists(&other.join("data.mdb")) {
            // This user has no access to the original.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => false,
            exists => exists.map_err(|source| Error::io(other, source))?,
        };
        if exists {
            let reason = format!(
                "it belongs to the store in `{}`, of which this shard map manager is a copy",
                other.display()
            );
            return Err(refused(&what, &reason));
        }
    }
    let is_other = identity.contradicts(&expected);
    // Its files were replaced by a copy, to which rows may have been written alone.
    let is_alone = seen.as_ref().is_some_and(Seen::is_alone);
    // The shard was restored from a backup, and its global indexes may have entries of rows in a removed shard.
    let is_removed = |number| identity.removed.contains(number);
    let is_behind = !read_only && !expected.removed.iter().all(is_removed);
    if options.read_only && is_alone {
        let reason = "its files were replaced by a copy of the shard alone, so the indexes of other shards may not match it; open \
                      the store for writing, and then its tables, which checks them"
            .to_owned();
        return Err(unavailable(record, reason));
    }
    if read_only && is_other && !is_follower {
        let reason = "another process is moving rows between the shards";
        return Err(Error::ReopenNeeded { path: manager.to_owned(), reason });
    }
    // The files of the shard, or of the manager, are older than a move or a removal, or are a copy. Each table is checked when
    // it is opened.
    let is_unchecked = is_other || is_behind || is_alone;
    let adopted = if is_unchecked { Some(Vec::new()) } else { expected.adopted.clone() };
    let expected = Identity { adopted, ..expected };
    let changed = ((identity != expected || is_alone) && !read_only).then_some(expected);
    Ok((inner, changed, seen))
}

/// Returns options of a shard that name a durability: the common journal, unless they name a weaker one. A shard of an earlier
/// release can have `Durability::Full`, which is as durable as the journal.
fn durable(options: Options) -> Options {
    match options.durability {
        None | Some(Durability::Full) => options.durability(Durability::Journal),
        Some(_) => options,
    }
}

/// Returns the reason why a shard with rows can't be opened, without the advice to create a store.
fn reason_of(error: &Error) -> String {
    match error {
        Error::StoreNotFound { path } => format!(
            "there is no store at `{}`; move its directory back, or restore it from a backup",
            path.display()
        ),
        error => error.to_string(),
    }
}

fn unavailable(record: &ShardRecord, reason: String) -> Error {
    Error::ShardUnavailable { shard: record.name.clone(), reason }
}

pub(super) fn refused(what: &str, reason: &str) -> Error {
    Error::ShardRefused { what: what.to_owned(), reason: reason.to_owned() }
}
