//! The options of a store.

use serde::{Deserialize, Serialize};
use std::{fmt::Debug, path::PathBuf, time::Duration};

use super::{
    declared::Declarations,
    durability::{Checkpoint, Durability},
    hand_over::HandOver,
};

/// The maximum number of readers, and of tables and indexes. LMDB accepts greater numbers, and then fails
/// later or behaves incorrectly.
pub(crate) const MOST: u32 = 1 << 20;

/// See [`Options::map_size`].
pub(crate) const DEFAULT_MAP_SIZE: usize = match 1_usize.checked_shl(40) {
    Some(size) => size,
    None => 1 << 29,
};

/// See [`Options::file_mode`].
pub(crate) const FILE_MODE: u32 = 0o600;

/// See [`Options::directory_mode`].
pub(crate) const DIRECTORY_MODE: u32 = 0o700;

/// The options for opening a store. From [`Store::options`](crate::Store::options).
///
/// They can be serialized, for a program's settings. A missing option has its default.
///
/// ```
/// use index_table::{Durability, Options, Store};
///
/// let options: Options = serde_json::from_str(r#"{"durability": "Relaxed", "max_readers": 500}"#).unwrap();
/// assert_eq!(options, Store::options().durability(Durability::Relaxed).max_readers(500));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[must_use = "options do nothing until `open`"]
#[expect(clippy::struct_excessive_bools, reason = "each of them is an option of its own")]
pub struct Options {
    pub(crate) map_size: usize,
    pub(crate) max_map_size: usize,
    /// `None`: the default.
    pub(crate) durability: Option<Durability>,
    pub(crate) max_databases: u32,
    pub(crate) max_readers: u32,
    pub(crate) reserve: usize,
    pub(crate) index_queue: Limit,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) file_mode: u32,
    pub(crate) directory_mode: u32,
    pub(crate) archive: Option<PathBuf>,
    /// The function of an archive without a directory.
    #[serde(skip)]
    pub(crate) hand_over: Option<HandOver>,
    /// Whether the archive of the store is given up.
    pub(crate) without_archive: bool,
    #[serde(skip)]
    pub(crate) declared: Declarations,
    /// Whether this is the environment of a shard map manager, whose directory has the record of an archive for all shards.
    #[serde(skip)]
    pub(crate) manager: bool,
    /// Whether the store follows an archive. Then, only the commits of the archive are written to it.
    #[serde(skip)]
    pub(crate) follower: bool,
    /// Whether the directory of a shard is refused, unless the store is read-only.
    #[serde(skip)]
    pub(crate) refuses_shards: bool,
    /// Whether a store that has to be recovered is refused, so that nothing is written to it.
    #[serde(skip)]
    pub(crate) without_recovery: bool,
    /// 0 for the default.
    #[cfg(feature = "async")]
    pub(crate) async_threads: u32,
    #[cfg(feature = "postgres")]
    pub(crate) schema: String,
    #[cfg(feature = "postgres")]
    pub(crate) connections: u32,
    #[cfg(feature = "postgres")]
    pub(crate) retry_for: Duration,
    #[cfg(feature = "postgres")]
    pub(crate) connect_timeout: Duration,
    #[cfg(feature = "postgres")]
    pub(crate) response_timeout: Duration,
    #[cfg(feature = "postgres")]
    pub(crate) commit_timeout: Duration,
    #[cfg(feature = "postgres")]
    pub(crate) root_certificates: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            map_size: DEFAULT_MAP_SIZE,
            max_map_size: usize::MAX,
            durability: None,
            max_databases: 64,
            max_readers: 126,
            reserve: 1 << 20,
            index_queue: Limit { messages: 100_000, when_full: WhenFull::ApplyInLine },
            create: true,
            read_only: false,
            checkpoint: Checkpoint::default(),
            file_mode: FILE_MODE,
            directory_mode: DIRECTORY_MODE,
            archive: None,
            hand_over: None,
            without_archive: false,
            declared: Declarations::default(),
            manager: false,
            follower: false,
            refuses_shards: false,
            without_recovery: false,
            #[cfg(feature = "async")]
            async_threads: 0,
            #[cfg(feature = "postgres")]
            schema: "index_table".to_owned(),
            #[cfg(feature = "postgres")]
            connections: 16,
            #[cfg(feature = "postgres")]
            retry_for: Duration::from_secs(30),
            #[cfg(feature = "postgres")]
            connect_timeout: Duration::from_secs(5),
            #[cfg(feature = "postgres")]
            response_timeout: Duration::from_secs(30),
            #[cfg(feature = "postgres")]
            commit_timeout: Duration::from_secs(5),
            #[cfg(feature = "postgres")]
            root_certificates: None,
        }
    }
}

impl Options {
    /// Sets the size of the map, in bytes, rounded up to whole pages. Default: 1 TiB, on 32-bit machines 512
    /// MiB. The default is smaller if the process has little address space left: with `n` stores open, it is
    /// at most 1 / (`n` + 2) of the rest, but at least 64 MiB. So a process can have thousands of stores
    /// open. `usize::MAX` maps as much as the process may have, in the same way.
    /// [`max_map_size`](Options::max_map_size) limits the size.
    ///
    /// The map takes address space, but neither memory nor disk; the file grows as it is filled. If the map
    /// is full, [`Store::transaction`](crate::Store::transaction) doubles the map and runs its closure
    /// again. A transaction from [`Store::write`](crate::Store::write) fails with
    /// [`Error::MapFull`](crate::Error::MapFull). A larger file is mapped as a whole.
    pub fn map_size(mut self, bytes: usize) -> Self {
        self.map_size = bytes;
        self
    }

    /// Sets the maximum size of the map of this process, in bytes, which limits the file as well; rounded
    /// down to whole pages. Default: the address space.
    ///
    /// A larger file is mapped as a whole. A new file has two pages.
    pub fn max_map_size(mut self, bytes: usize) -> Self {
        self.max_map_size = bytes;
        self
    }

    /// Sets the guarantee for a crash of the machine. Default: [`Durability::Journal`], or [`Durability::Full`] where a
    /// journal is not possible: the directory can't be locked, or another process has the store open and may write it
    /// without a journal. [`Store::durability`](crate::Store::durability) returns the durability of an open store, and
    /// [`Store::durability_reason`](crate::Store::durability_reason) why it is not the journal.
    ///
    /// If `Journal` is named, or an [`archive`](Options::archive), opening for writing fails with
    /// [`Error::Io`](crate::Error::Io) with the kind `Unsupported` where a directory can't be locked, and with
    /// [`Error::WriterElsewhere`](crate::Error::WriterElsewhere) beside such a process.
    ///
    /// For a store with shards, `Full` fails with [`Error::NotOffered`](crate::Error::NotOffered): each commit would sync each of
    /// its shards twice. With `Relaxed` or `None`, a crash of the machine can lose a part of a transaction that changes several shards.
    /// If a disk becomes full during its commit, a part of it can also stay, and it returns
    /// [`Error::CommitUnknown`](crate::Error::CommitUnknown).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the maximum number of tables and indexes together, including tables and indexes of the file that
    /// this process doesn't use. The queue of eventual indexes counts as one more database. Default: 64. If a file has
    /// more than half of the maximum when it is opened, the maximum is raised to 1.5 times the number in the
    /// file.
    ///
    /// Every transaction clears about 50 bytes for each: with a maximum of 128, a transaction for one `get`
    /// takes 11,400 instructions instead of 8,300. More than 1,048,576 is an error of
    /// [`open`](Options::open).
    pub fn max_databases(mut self, databases: u32) -> Self {
        self.max_databases = databases;
        self
    }

    /// Sets the maximum number of concurrent read transactions of all processes. Default: 126. The first process that
    /// opens the store determines the number. Each transaction needs 64 bytes on disk, which are reserved when the
    /// store is opened. 0 and more than 1,048,576 are errors of [`open`](Options::open).
    pub fn max_readers(mut self, readers: u32) -> Self {
        self.max_readers = readers;
        self
    }

    /// Sets the maximum space that is reserved after the used pages of the file, in bytes. Default: 1 MiB.
    /// With 0, no space is reserved, and the file grows with each commit that needs more.
    ///
    /// A commit into a growing file waits longer for the disk, because the file system has to record the
    /// growth as well. If each commit needs new pages, as during a long-lived reader, it took 1.5 times as
    /// long without reserved space. So when a write transaction begins and less than a quarter of a step is
    /// left, a step of zeros is written after the end of the file. A step is at most an eighth of the used
    /// space, so that small stores stay small (below 512 KiB, nothing is reserved).
    ///
    /// The option costs this space on disk, and these bytes are written twice. A full disk, a limit on the
    /// size of files and the end of the map are not errors: the file then grows as without this option.
    /// Copies leave the space out. Nothing is reserved with [`Durability::Journal`], whose commits don't wait
    /// for the data file, without syncs ([`Durability::None`]), and on systems other than Unix.
    pub fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// Sets the maximum number of messages in the queue of a table with eventual indexes, and the policy of
    /// this process for a write with a full queue. Default: 100,000, and [`WhenFull::ApplyInLine`].
    ///
    /// With [`WhenFull::Wait`], only the first message of a transaction waits, so a queue can exceed the
    /// limit by one transaction.
    pub fn index_queue(mut self, messages: u64, when_full: WhenFull) -> Self {
        self.index_queue = Limit { messages, when_full };
        self
    }

    /// Sets the number of threads that run the closures of asynchronous calls: for reading, and the same number again for writing on a
    /// store with several data files or on a server. 0 is the default: twice the number of cores, and on a server the number of
    /// its `connections`. The threads start when they are needed, and end after ten seconds without a call. With the
    /// feature `async`.
    #[cfg(feature = "async")]
    pub fn async_threads(mut self, threads: u32) -> Self {
        self.async_threads = threads;
        self
    }

    /// Whether a missing store is created. Default: `true`. With `false`, opening a path without a store (no directory,
    /// or no `data.mdb` in it) fails with [`Error::StoreNotFound`](crate::Error::StoreNotFound), and nothing is
    /// created.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("shpo");
    /// let missing = Store::options().create(false).open(&path);
    /// assert!(matches!(missing, Err(Error::StoreNotFound { .. })));
    /// assert!(!path.exists());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store is opened read-only. Default: `false`. Such a store is never created, and the data file is not
    /// written to. Every write fails with [`Error::ReadOnly`](crate::Error::ReadOnly). A repository can be opened if
    /// its declaration matches the file, which may have more indexes. Otherwise, opening it fails with
    /// [`Error::SchemaMismatch`](crate::Error::SchemaMismatch).
    ///
    /// Other processes may write at the same time. So a reader needs a slot in the lock file, to which this process
    /// must be able to write; a missing lock file is created, unless another process has the store open. A reader
    /// without a slot might see pages that a writer reuses. So if the lock file can't be written to, the store is
    /// opened only if no process can write, on a file system that is read-only as a whole. Otherwise, opening fails
    /// with [`Error::NoReaderSlot`](crate::Error::NoReaderSlot): with read permission alone, and in a directory of a
    /// writable file system that is mounted read-only.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # NoteRepository::open(&Store::open(dir.path())?)?;
    /// let store = Store::options().read_only(true).open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// assert_eq!(notes.all(&store.read()?).count()?, 0);
    /// assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the limits at which a checkpoint of the journal is made, with [`Durability::Journal`]: the
    /// estimated bytes of pages that commits have changed (`changed`), the bytes of the journal (`journal`),
    /// and the time since the last checkpoint, whichever comes first. Other durabilities ignore it.
    ///
    /// Default: a minute, and limits that follow the size of the store. `changed` is the bytes of all pages in use, but at
    /// least 1 MiB and at most 32 MiB. `journal` is half as many bytes, but at least 256 KiB and at most 16 MiB.
    ///
    /// A transaction with more changes than `journal`, and than 1 MiB, is not in the journal: its commit syncs the data file, and
    /// makes a checkpoint. It is in the journal if the store has an archive or shards.
    ///
    /// A checkpoint is made by a background thread, which syncs the data file while others write. Until it
    /// is complete, no page of the previous checkpoint is reused. So in addition to the pages in use, the
    /// file has up to about twice the pages that are changed between two checkpoints. If a checkpoint takes
    /// so long that twice a limit is reached, or with shards four times, writers wait for it. With one data file, the
    /// transactions from a limit to twice the limit are spread over the time that the last checkpoint took. With higher limits, fewer pages are
    /// written in total, but a recovery takes longer, since it applies the records since the last checkpoint.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Store::options().durability(Durability::Journal);
    /// // Shorter recoveries, and a smaller file.
    /// let store = options.checkpoint(8 << 20, 4 << 20, Duration::from_secs(10)).open(dir.path())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(mut self, changed: u64, journal: u64, time: Duration) -> Self {
        self.checkpoint = Checkpoint { changed: Some(changed), journal: Some(journal), time };
        self
    }

    /// Sets the mode of the files of a new store, on Unix: of the data file, the lock file and the journal. Default:
    /// `0o600`, access for the owner alone. The mode is set exactly, regardless of the umask of the process. Existing
    /// files keep their modes, and the lock file and the journal always have the mode of the data file. A mode without
    /// `0o600`, or above `0o777`, is an error of [`open`](Options::open). Temporary files, which have no names, are
    /// always private.
    ///
    /// A process that reads the store needs write permission for the lock file too; see
    /// [`read_only`](Options::read_only). So a group that reads the store needs the mode `0o660`.
    ///
    /// # Examples
    ///
    /// A store for the processes of a group:
    ///
    /// ```
    /// use index_table::Store;
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("shop");
    /// let store = Store::options().directory_mode(0o2770).file_mode(0o660).open(&path)?;
    /// # #[cfg(unix)]
    /// # {
    /// use std::os::unix::fs::PermissionsExt;
    ///
    /// let mode = std::fs::metadata(path.join("data.mdb")).unwrap().permissions().mode();
    /// assert_eq!(mode & 0o777, 0o660);
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self
    }

    /// Sets the mode of the directory of a new store, and of missing parent directories, on Unix. Default: `0o700`. Like
    /// [`file_mode`](Options::file_mode), with at least `0o700`. The bits for set-group-ID (`0o2000`) and the sticky bit
    /// (`0o1000`) are valid too.
    pub fn directory_mode(mut self, mode: u32) -> Self {
        self.directory_mode = mode;
        self
    }

    /// Returns the durability of commits.
    pub(crate) const fn used_durability(&self) -> Durability {
        Durability::or_default(self.durability)
    }

    /// Whether a missing store is created.
    pub(crate) const fn creates(&self) -> bool {
        self.create && !self.read_only
    }
}

/// The policy for a write with a full queue; see [`Options::index_queue`](crate::Options::index_queue).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WhenFull {
    /// The write changes the entries itself, as with strong consistency, and leaves no message. The default. In a transaction of
    /// one shard, a write to a table with an eventual global index leaves a message even if the queue is full, because it can't
    /// change the entries in other shards.
    ApplyInLine,
    /// The write waits until the worker has made room, up to this time, and then fails with
    /// [`Error::IndexQueueFull`](crate::Error::IndexQueueFull).
    /// [`Store::transaction`](crate::Store::transaction) rolls back, waits, and runs its closure again. So
    /// does a [`GroupWriter`](crate::GroupWriter), where later closures wait too, and the time counts from
    /// the submission of each. In a transaction from [`Store::write`](crate::Store::write), which blocks the
    /// worker, the write fails at once.
    Wait(Duration),
    /// The write disables the eventual indexes of the table: they are no longer maintained, and queries on
    /// them fail, until the repository's `build` has rebuilt them. Not offered for a table with rows in several shards.
    Disable,
}

/// The limit of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) messages: u64,
    pub(crate) when_full: WhenFull,
}

/// The mode of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// Page by page.
    Whole,
    /// Without free pages.
    Compact,
}
