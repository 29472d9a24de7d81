//! Opening an environment. One process opens it at a time, and makes sure that its lock file is complete.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize},
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
    names::{Env, FILE, LOCK_FILE},
    opened::Files,
    pages::{self, Depth},
    paths::Paths,
    process::{self, Counted, Limit},
    read_only,
    reserve::Reserve,
    size,
    turn::Writing,
};
use crate::{
    engine::{DataFile, Durability, FILE_MODE, Options, files, latest::Latest},
    locks::{Held, Mutex, Unshared, fork, next_store, place, rank},
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
        let is_writer = !options.read_only && !options.follower && !options.manager && !is_home;
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
        let files = Files { env, reserve, slots, presence, _counted: counted };
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
            known: Mutex::default(),
            writing: Mutex::numbered(
                place(next_store(), 0),
                Writing { paths, ..Writing::default() },
            ),
            waiting: AtomicUsize::new(0),
            journal: Latest::new(),
            was_left: false,
            growth: Growth::Known,
            is_joining: AtomicBool::new(false),
        };
        // The slots of ended processes would prevent the reuse of pages. A journal that is about to start
        // still needs them: one may hold its last checkpoint.
        if plan != Plan::Start {
            engine.clear_stale_readers()?;
        }
        match engine.look(Depth::Roots) {
            // All reader slots are in use by processes that could open the file.
            Err(Error::TooManyReaders { .. }) => return Ok(engine),
            outcome => outcome?,
        }
        // Only after the check, because LMDB does not check the file. An error is ignored: its cause may have
        // disappeared when a table is opened.
        let _ = engine.env().map(|env| engine.open_known(env));
        Ok(engine)
    }

    /// Checks every page in use. Calls `progress` with the number of checked pages and the number of all pages.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.look_with(Depth::Everything, progress)
    }

    fn look(&self, depth: Depth) -> Result<()> {
        self.look_with(depth, &mut |_, _| ())
    }

    /// Checks the file as of the last transaction.
    fn look_with(&self, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let file = self.path.join(FILE);
        let mut previous = None;
        for _ in 0..TRIES {
            // Dropped in this order: the transaction, then its pass.
            let (txn, _pass) = self.begin(Kind::Reader, read_txn)?;
            let number = txn.id() as u64;
            let looked = pages::look_at_snapshot(&file, number, depth, progress);
            drop(txn);
            if looked.map_err(|fault| refused(&self.path, fault))?.is_some() {
                return Ok(());
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

impl DataFile<'_> {
    /// Refuses to create a data file if other files show that the store had one with commits.
    pub(crate) fn refuse_missing(self) -> Result<()> {
        let is_lost = || has_pages(self.0).map(|has_pages| !has_pages);
        if !is_lost()? {
            return Ok(());
        }
        match refuse_commits(self.0) {
            // Another process has created the store in the meantime.
            Err(Error::DamagedFile { .. }) if !is_lost()? => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether the data file in a directory has tables, without those that only a journal has. A damaged file is an error.
    pub(crate) fn has_tables(self) -> Result<bool> {
        let databases = pages::look_at_head(&self.0.join(FILE), false);
        let databases = databases.map_err(|fault| refused(self.0, fault))?;
        Ok(databases.unwrap_or(0) > 0)
    }

    /// Whether the data file in a directory is missing, or has no table and no journal, such as the file of a killed process that
    /// was creating a store. A damaged file is not vacant.
    pub(crate) fn is_vacant(self) -> Result<bool> {
        match self.has_tables() {
            Ok(true) | Err(Error::DamagedFile { .. }) => return Ok(false),
            Ok(false) => {}
            Err(error) => return Err(error),
        }
        let has_journal = evidence::has_journal(self.0);
        Ok(!has_journal.map_err(|source| Error::opening(self.0, source))?)
    }

    /// Returns the number of the last commit in the data file of a directory that no process has open.
    pub(crate) fn last_number(self) -> Result<u64> {
        pages::last_txn(&self.0.join(FILE)).map_err(|fault| refused(self.0, fault))
    }

    /// Gives the last commit in the data file of a directory that no process has open a later number, so that the following
    /// commits have later ones too. The file must be complete without a journal.
    pub(crate) fn raise_number(self, number: u64) -> Result<()> {
        pages::raise_txn(&self.0.join(FILE), number).map_err(|fault| refused(self.0, fault))
    }
}

/// Whether a directory has a data file that is not empty.
fn has_pages(path: &Path) -> Result<bool> {
    match fs::metadata(path.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => Ok(file.map_err(|source| error::not_opened(path, source))?.len() > 0),
    }
}

/// Does the same for a data file without commits.
fn refuse_commits(path: &Path) -> Result<()> {
    let found = evidence::of_commits(path, has_pages(path)?)
        .map_err(|source| error::not_opened(path, source))?;
    let Some(found) = found else { return Ok(()) };
    Err(damaged(
        path,
        format!(
            "data.mdb is missing or has no commits, and `{found}` shows that the store had some; put data.mdb back, or, for a \
             new store, remove the other files of the directory; a shard map manager can be rebuilt with `rebuild`"
        ),
    ))
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
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use super::{super::follow::Left, *};

    #[test]
    fn each_durability_has_its_sync_flags() {
        assert_eq!(flags(Durability::Full), EnvFlags::empty());
        assert_eq!(flags(Durability::Relaxed), EnvFlags::NO_META_SYNC);
        assert_eq!(flags(Durability::None), EnvFlags::NO_SYNC);
    }

    #[test]
    fn lmdb_has_handles_for_all_databases_of_the_file_and_more() {
        assert_eq!(handles(64, 0), 66);
        assert_eq!(handles(64, 32), 66);
        assert_eq!(handles(64, 64), 98);
        assert_eq!(handles(2, 1000), 1003);
        assert_eq!(handles(64, u64::MAX), (1 << 14) + 34);
        assert_eq!(handles(u32::MAX, 3), u32::MAX);
    }

    #[test]
    fn a_file_whose_creation_was_cut_off_is_created_again() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, size) = (dir.path().join(FILE), process::page_size());
        let open = || {
            // Another durability has further files.
            let options = Options::default().durability(Durability::Full);
            let opened = Engine::open(&options, dir.path()).map(drop);
            DataFile(dir.path()).wait_until_closed();
            opened
        };
        open()?;
        let whole = fs::read(&file).expect("the file");
        assert_eq!(whole.len(), 2 * size);
        for lost in [0..size, size..2 * size, 0..2 * size, 0..0] {
            for length in [512, size, size + 512, 2 * size] {
                let mut content = whole.clone();
                content[lost.clone()].fill(0);
                content.truncate(length);
                fs::write(&file, &content).expect("the file");
                open()?;
                let made = fs::read(&file).expect("the file");
                assert!(made == whole || made == content, "{lost:?} of {length}");
            }
        }
        // A power failure during the creation leaves none of these states.
        let mut damaged = whole.clone();
        damaged[..size].fill(0);
        damaged[size + 2000] = 1;
        for content in [&damaged[..], &[0][..], &vec![0; 3 * size][..]] {
            fs::write(&file, content).expect("the file");
            let opened = open();
            assert!(matches!(opened, Err(Error::DamagedFile { .. })), "{opened:?}");
        }
        Ok(())
    }

    /// Returns a directory whose data file can't be read.
    fn with_unreadable_file() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        // A directory can be opened, and its bytes can't be read.
        fs::create_dir_all(dir.path().join(FILE).join("inside")).expect("a directory");
        dir
    }

    #[test]
    fn an_error_of_reading_a_data_file_does_not_mean_that_it_has_no_tables() {
        let dir = with_unreadable_file();
        let file = DataFile(dir.path());
        assert!(matches!(file.has_tables(), Err(Error::Io { .. })));
        assert!(matches!(file.is_vacant(), Err(Error::Io { .. })));
        let left = Left::of(dir.path());
        assert!(matches!(left, Err(Error::Io { .. })), "{left:?}");
    }

    #[cfg(unix)]
    #[test]
    fn an_error_of_looking_for_a_data_file_does_not_mean_that_it_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(FILE);
        std::os::unix::fs::symlink(&file, &file).expect("a link");
        let missing = DataFile(dir.path()).refuse_missing();
        assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    }

    #[test]
    fn one_thread_at_a_time_opens_a_store() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(FILE);
        let begin = || Opening::begin(&Options::default(), &file).expect("the turn");
        let turn = begin();
        let (started, released) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                started.wait();
                let turn = begin();
                assert!(released.load(SeqCst), "two threads have the turn");
                turn.is_locked
            });
            started.wait();
            // A thread that did not wait for the turn would have it by now.
            thread::sleep(Duration::from_millis(50));
            released.store(true, SeqCst);
            drop(turn);
            assert!(other.join().expect("no panic"));
        });
    }
}
