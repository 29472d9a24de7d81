//! Opening an environment. One process opens it at a time, and makes sure that its lock file is complete.

mod unopened;

use self::unopened::refuse_commits;

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    thread,
    time::{Duration, Instant},
};

use heed::{EnvFlags, EnvOpenOptions, MdbError};

use super::{
    begin::read_txn,
    durable::OpenedAs,
    env::Engine,
    error::{self, damaged, failed, refused},
    gate::{Gate, Kind},
    growth::Growth,
    journal::{
        archive::known,
        evidence,
        plan::Plan,
        presence::{Access, Presence},
        shards::SharedJournal,
    },
    journalled::{Prepared, handles, prepare, readers},
    lock,
    names::{Env, FILE, LIST_COPIES, LOCK_FILE},
    opened::Files,
    pages::{self, Damage, Depth, is_checked, is_repairing},
    paths::Paths,
    process::{self, Counted, Limit},
    read_only,
    reserve::Reserve,
    size,
    turn::Writing,
};
use crate::{
    engine::{DataFile, Durability, FILE_MODE, Options, files, latest::Latest},
    locks::{Held, Mutex, RwLock, Unshared, fork, next_store, place, rank},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// The maximum number of attempts to read a snapshot from the file. An attempt fails if two commits end
/// between the start of its transaction and the read.
const TRIES: u32 = 1000;

/// The maximum time to wait for a usable lock file. A lock file stays unusable while programs without this
/// crate have it open.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    pub(crate) fn open(options: &Options, path: &Path) -> Result<Self> {
        Self::open_with(options, path, None)
    }

    /// Opens a shard. With [`Durability::Journal`], it can't be written until it joins the journal of all
    /// shards.
    pub(crate) fn open_shard(
        options: &Options,
        path: &Path,
        journal: &SharedJournal,
        shard: ShardNumber,
    ) -> Result<Self> {
        Self::open_with(options, path, Some((journal, shard)))
    }

    fn open_with(
        options: &Options,
        path: &Path,
        shared: Option<(&SharedJournal, ShardNumber)>,
    ) -> Result<Self> {
        // Each step that opens a file or a directory can meet the limit of open files.
        let opened = Self::open_directory(options, path, shared);
        opened.map_err(|error| error::with_limit(path, error))
    }

    fn open_directory(
        options: &Options,
        path: &Path,
        shared: Option<(&SharedJournal, ShardNumber)>,
    ) -> Result<Self> {
        DataFile(path).refuse_inherited()?;
        // Closing a second handle to the lock file would release the locks of this process.
        if DataFile(path).is_open() {
            return Err(already_open(path));
        }
        for name in [FILE, LOCK_FILE] {
            refuse_special(path, name)?;
        }
        DataFile(path).refuse_missing()?;
        let writes = !options.read_only && !options.follower && !options.manager;
        if writes && shared.is_none() {
            known::refuse_new(options, path)?;
        }
        let opening = Opening::begin(options, &path.join(FILE));
        let opening = opening.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !options.creates() => missing(path),
            io::ErrorKind::PermissionDenied if options.read_only => {
                Error::Io { path: path.to_owned(), source }
            }
            _ => error::not_opened(path, source),
        })?;
        let mut presence =
            Presence::take(path).map_err(|source| error::not_opened(path, source))?;
        // After a growth, the first shard is in the directory that has the archive for all shards.
        let is_home = shared.is_some_and(|(journal, _)| journal.path() == path);
        let is_writer = writes && !is_home;
        if is_writer {
            known::check(options, path)?;
        }
        let Prepared { plan, writer, was_left, without_journal } =
            prepare(options, path, &mut presence, shared)?;
        let full;
        let options = if without_journal.is_some() {
            full = options.clone().durability(Durability::Full);
            &full
        } else {
            options
        };
        // The own journal of a store has the archive.
        let has_own_journal = plan == Plan::Start && shared.is_none();
        presence.mark(if options.read_only { Access::Read } else { Access::Write });
        let alone = presence.is_alone() || !presence.is_known();
        let mut engine = Self::open_patiently(options, path, plan, alone)?;
        engine.was_left = was_left;
        engine.growth = Growth::of(options, shared.is_some());
        engine.opened_as.set_without_journal(without_journal);
        if options.refuses_shards && !options.read_only && engine.has_own_records()? {
            return Err(error::is_shard(path));
        }
        match engine.has_shards() {
            Ok(true) if !options.manager => return Err(error::is_manager(path)),
            Ok(_) | Err(Error::TooManyReaders { .. }) => {}
            Err(error) => return Err(error),
        }
        if is_writer && !has_own_journal {
            known::settle(path, None).map_err(|source| Error::io(path, source))?;
        }
        if plan == Plan::Start {
            match shared {
                None => engine.start_journal(options, writer)?,
                Some(_) => engine.is_joining = AtomicBool::new(true),
            }
        }
        presence.share().map_err(|source| error::not_opened(path, source))?;
        let writing = engine.writing.get_mut();
        writing.paths.add_open(path.join(FILE), &opening.file);
        // LMDB has opened both files by their names.
        Self::refuse_lost(writing)?;
        if let Some(files) = engine.gate.inside_mut() {
            files.presence = presence;
            files.file = files::number_of(&opening.file).ok().flatten();
        }
        Ok(engine)
    }

    /// Starts the journal of a process that has ended while readers have the store open, and closes it.
    pub(super) fn settle(options: &Options, path: &Path) -> Result<()> {
        let options = options.clone().durability(Durability::Journal);
        let engine = Self::open_patiently(&options, path, Plan::Start, false)?;
        engine.start_journal(&options, None)?;
        drop(engine);
        DataFile(path).wait_until_closed();
        Ok(())
    }

    fn open_patiently(options: &Options, path: &Path, plan: Plan, alone: bool) -> Result<Self> {
        let began = Instant::now();
        loop {
            match Self::try_open(options, path, plan, alone) {
                // The first process that opens the lock file initializes it. If this process is killed before
                // the end, waiting processes open an unusable file. After all of them have closed it, the
                // next process initializes it.
                Err(Error::LockFile { .. }) if began.elapsed() < PATIENCE => thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Opens the environment. `alone` if no other process has it open, or this is not known.
    fn try_open(options: &Options, path: &Path, plan: Plan, alone: bool) -> Result<Self> {
        let look = |made| {
            let databases = pages::look_at_head(&path.join(FILE), made);
            databases.map_err(|fault| refused(path, fault))
        };
        let mut databases = look(false)?;
        if databases.is_none() {
            // The data file may have the first pages of a new store.
            refuse_commits(path)?;
            if !options.creates() {
                return Err(missing(path));
            }
            databases = look(true)?;
        }
        let counted = Counted::new();
        let map_size = size::map_size(options, counted.others);
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        open.map_size(map_size)
            .max_dbs(handles(options.max_databases, databases.unwrap_or(0)))
            .max_readers(readers(options));
        let (flags, lock_file) = if options.read_only {
            read_only::flags(options, path, alone)?
        } else {
            let lock_file = lock::reserve(path, readers(options), alone)
                .map_err(|source| error::not_reserved(path, source))?;
            (flags(options.used_durability()), lock_file)
        };
        if !flags.contains(EnvFlags::NO_LOCK) {
            claim_id(path)?;
        }
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: the flags reduce the durability only as the caller has chosen. The flags disable locking only
        // if no process can write. LMDB requires that no other program modifies the mapped files; the
        // documentation of `Store::open` states this condition.
        let env = unsafe { Env::open(open.flags(flags), path) };
        let env = env.map_err(|error| not_opened(path, map_size, error))?;
        if options.creates()
            && databases.unwrap_or(0) == 0
            && options.used_durability() != Durability::None
        {
            sync_created(&env, path)?;
        }
        let for_checkpoints = readers(options) - options.max_readers;
        let max_readers = env.max_readers().saturating_sub(for_checkpoints).max(1);
        let reserve = Reserve::new(reserved(options), &path.join(FILE));
        let map_size = AtomicUsize::new(env.info().map_size);
        let (slots, presence) = (OnceLock::new(), Presence::none());
        let mut paths = Paths::default();
        if let Some(lock_file) = lock_file {
            paths.add(path.join(LOCK_FILE), lock_file);
        }
        let files = Files { env, reserve, slots, presence, file: None, _counted: counted };
        let engine = Self {
            path: path.to_owned(),
            forks: fork::forks(),
            read_only: AtomicBool::new(options.read_only || options.follower),
            opened_as: OpenedAs::of(options),
            max_databases: options.max_databases,
            max_readers,
            gate: Gate::new(max_readers, files),
            map_size,
            max_map_size: size::max_map_size(options),
            catalog: OnceLock::new(),
            main: OnceLock::new(),
            copies: OnceLock::new(),
            has_damaged_copies: AtomicBool::new(false),
            known: Mutex::default(),
            writing: Mutex::numbered(
                place(next_store(), 0),
                Writing { paths, ..Writing::default() },
            ),
            waiting: AtomicUsize::new(0),
            journal: Latest::new(),
            was_left: false,
            growth: Growth::Known,
            lists: RwLock::default(),
            kept: AtomicU64::new(0),
            kept_tables: Mutex::default(),
            seen: Mutex::default(),
            is_joining: AtomicBool::new(false),
        };
        // The slots of ended processes would prevent the reuse of pages. A journal that is about to start
        // still needs them: one may hold its last checkpoint.
        if plan != Plan::Start {
            engine.clear_stale_readers()?;
        }
        let tolerates = is_repairing() || options.read_only && is_checked();
        let damages = match engine.look(Depth::Roots, &mut |_, _| Ok(())) {
            // All reader slots are in use by processes that could open the file.
            Err(Error::TooManyReaders { .. }) => return Ok(engine),
            damages => damages?,
        };
        let (copies, mut damages): (Vec<_>, Vec<_>) =
            damages.into_iter().partition(|damage| damage.database == LIST_COPIES);
        for damage in copies {
            engine.note_damaged_copies(&damage.reason);
        }
        // The tools check the pages of a table before they read it, so that the others can be read.
        if tolerates {
            damages.retain(|damage| damage.database.starts_with('.'));
        }
        engine.refuse_damage(&damages)?;
        // Only after the check, because LMDB does not check the file. An error is ignored: its cause may have
        // disappeared when a table is opened.
        let _ = engine.open_known();
        Ok(engine)
    }

    /// Checks every page in use. Calls `progress` with the number of checked pages and the number of all pages.
    /// Its error ends the check.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(u64, u64) -> io::Result<()>) -> Result<()> {
        self.refuse_damage(&self.look(Depth::Everything, progress)?)
    }

    /// Checks the roots of all tables and indexes, and the small databases of all tables.
    pub(crate) fn check_roots(&self) -> Result<()> {
        self.refuse_damage(&self.look(Depth::Roots, &mut |_, _| Ok(()))?)
    }

    /// Returns the damage of the file as of the last transaction.
    fn look(
        &self,
        depth: Depth,
        progress: &mut dyn FnMut(u64, u64) -> io::Result<()>,
    ) -> Result<Vec<Damage>> {
        let file = self.path.join(FILE);
        let mut previous = None;
        for _ in 0..TRIES {
            let txn = self.begin(Kind::Reader, read_txn)?;
            let number = txn.id() as u64;
            let looked = pages::look_at_snapshot(&file, number, depth, progress);
            drop(txn);
            if let Some(looked) = looked.map_err(|fault| refused(&self.path, fault))? {
                return Ok(looked);
            }
            // The lock file has the number of the last transaction. While the pages of that transaction are
            // written, it has the previous number.
            if previous.replace(number) == Some(number) {
                return Err(unusable(
                    &self.path,
                    "its transaction number differs from the number in data.mdb",
                ));
            }
        }
        let source = io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the file is written too often to be checked",
        );
        Err(Error::Io { path: self.path.clone(), source })
    }
}

/// The turn to open a store. One process has it at a time.
///
/// LMDB has a lock for this too. It does not cover the first read of the file, and LMDB does not detect that
/// a process with the lock was killed.
struct Opening {
    unshared: Unshared,
    file: File,
    is_locked: bool,
    _lock: Held,
}

impl Opening {
    /// Waits for the turn. On a file system without file locks, only LMDB's lock applies.
    fn begin(options: &Options, file: &Path) -> io::Result<Self> {
        let mut open = File::options();
        open.read(true).write(!options.read_only).create(options.creates()).truncate(false);
        let mode = if options.creates() { options.file_mode } else { FILE_MODE };
        let file = files::open_or_create(&mut open, file, mode)?;
        let unshared = Unshared::new(&file);
        let lock = Held::wait::<rank::DataFile>(0);
        let is_locked = loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome.is_ok(),
            }
        };
        Ok(Self { unshared, file, is_locked, _lock: lock })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.is_locked && !self.unshared.is_inherited() {
            // A process that another thread is starting has the file open too, so closing it does not release the lock.
            let _ = self.file.unlock();
        }
    }
}

/// Makes sure that no other process with the id of this process has the store open.
fn claim_id(path: &Path) -> Result<()> {
    if lock::claim_id(path).map_err(|source| error::not_opened(path, source))? {
        return Ok(());
    }
    let reason = format!(
        "in another process with the process id of this one ({}), in another pid namespace, such as another container; \
         LMDB distinguishes processes by their ids, so give the two a common pid namespace, or different ids, for \
         example by an init process that starts one of them",
        std::process::id()
    );
    Err(Error::AlreadyOpen { path: path.to_owned(), reason })
}

/// Syncs the first two pages, and the directory entries of the files and of their directory, before the first
/// commit.
fn sync_created(env: &Env, path: &Path) -> Result<()> {
    env.force_sync().map_err(|error| match error {
        heed::Error::Io(source) => Error::io(path, source),
        error => failed(path, error),
    })?;
    let synced =
        files::sync_directory(path).and_then(|()| files::sync_directory(files::parent(path)));
    synced.map_err(|source| Error::io(path, source))
}

fn missing(path: &Path) -> Error {
    Error::StoreNotFound { path: path.to_owned() }
}

#[cold]
fn not_opened(path: &Path, map_size: usize, error: heed::Error) -> Error {
    let is_empty = || fs::metadata(path.join(LOCK_FILE)).is_ok_and(|file| file.len() == 0);
    match error {
        heed::Error::EnvAlreadyOpened => already_open(path),
        // The first pages of data.mdb are intact, so the invalid file is the lock file.
        heed::Error::Mdb(MdbError::Invalid) => unusable(path, "its first bytes were not written"),
        heed::Error::Mdb(MdbError::VersionMismatch) => {
            unusable(path, "another version of LMDB has written it, and has the store open")
        }
        heed::Error::Mdb(error) => damaged(path, error.to_string()),
        heed::Error::Io(source) if process::limit(&source) == Some(Limit::AddressSpace) => {
            Error::NoAddressSpace { path: path.to_owned(), map_size, source }
        }
        heed::Error::Io(source) if source.kind() == io::ErrorKind::InvalidInput && is_empty() => {
            unusable(path, "it is empty")
        }
        heed::Error::Io(source) => error::not_opened(path, source),
        error => failed(path, error),
    }
}

fn already_open(path: &Path) -> Error {
    Error::AlreadyOpen {
        path: path.to_owned(),
        reason: "in this process, but not as a `Store`; LMDB must not open a directory twice in a process"
            .to_owned(),
    }
}

fn unusable(path: &Path, reason: &'static str) -> Error {
    Error::LockFile { path: path.to_owned(), reason }
}

/// Returns an error if the file is not a regular file. LMDB would wait for the other end of a FIFO, and write
/// to the target of a link.
fn refuse_special(directory: &Path, name: &str) -> Result<()> {
    let path = directory.join(name);
    match path.symlink_metadata() {
        Ok(file) if !file.is_file() => {
            let kind = if file.is_symlink() { "a symbolic link" } else { "not a regular file" };
            let source = io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it is {kind}; the files of a store are regular files in its directory"),
            );
            Err(Error::Io { path, source })
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error::not_opened(directory, error))
        }
        _ => Ok(()),
    }
}

/// Returns the size of the reserve. Without a sync in each commit, a reserve saves no time, and a read-only
/// file does not grow.
const fn reserved(options: &Options) -> usize {
    match options.used_durability() {
        Durability::Full | Durability::Relaxed if !options.read_only => options.reserve,
        _ => 0,
    }
}

const fn flags(durability: Durability) -> EnvFlags {
    match durability {
        Durability::Full => EnvFlags::empty(),
        Durability::Relaxed => EnvFlags::NO_META_SYNC,
        Durability::Journal | Durability::None => EnvFlags::NO_SYNC,
    }
}

#[cfg(test)]
mod tests;
