//! The options of a store.

use serde::{Deserialize, Serialize};
use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    declared::Declarations,
    durability::{Checkpoint, Durability},
    files::is_same,
    hand_over::{ArchiveFile, Destination, HandOver},
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
    #[cfg(feature = "postgres")]
    pub(crate) schema: String,
    #[cfg(feature = "postgres")]
    pub(crate) connections: u32,
    #[cfg(feature = "postgres")]
    pub(crate) retry_for: Duration,
    /// `None`: the setting of the server.
    #[cfg(feature = "postgres")]
    pub(crate) dialect: Option<super::postgres::Dialect>,
    #[cfg(feature = "postgres")]
    pub(crate) splits: u16,
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
            #[cfg(feature = "postgres")]
            schema: "index_table".to_owned(),
            #[cfg(feature = "postgres")]
            connections: 16,
            #[cfg(feature = "postgres")]
            retry_for: Duration::from_secs(30),
            #[cfg(feature = "postgres")]
            dialect: None,
            #[cfg(feature = "postgres")]
            splits: 1,
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

    /// Sets the directory of an archive, with [`Durability::Journal`]. Default: none. Every commit is copied to the
    /// directory within a second, and [`Store::restore_archive`](crate::Store::restore_archive) restores the store as of
    /// any commit. When the last handle to the store is dropped, the archive has all commits.
    ///
    /// A missing directory is created with the modes of the store. An archive belongs to one store. If another store,
    /// such as a restored store, is opened with the directory of an existing archive, the archive continues after a
    /// gap, with a new base. The directory can be on another disk. With an archive, a relative path is relative to the
    /// current directory.
    ///
    /// An archive has a base, which is a copy of the data file, and segments with the commits. The first base is written
    /// when the store is opened with a new archive, by a thread. Later bases follow when the segments have become as large
    /// as the last base, and at least 64 MiB. A commit does no work for the archive, because a thread reads the
    /// journal. Each byte of the journal is written two more times: to the directory `archive.pending` of the store,
    /// and to the archive.
    ///
    /// If the archive can't be written, commits continue. `archive.pending` then keeps all commits until the archive
    /// can be written again, even if the store is closed and opened in the meantime.
    /// [`Store::archive_lag`](crate::Store::archive_lag) reports the error. This also holds if the directory of the archive is
    /// empty or missing, such as the mount point of a disk that is not mounted. To begin a new archive in it, open the store
    /// once with [`without_archive`](Options::without_archive), and then with the archive again.
    ///
    /// The directory of the store records its archive. Opening the store for writing without naming an archive then fails
    /// with [`Error::ArchiveNotNamed`](crate::Error::ArchiveNotNamed), because the archive would miss commits; see
    /// [`without_archive`](Options::without_archive). To change the archive, name another one. A follower that is promoted,
    /// a restored store and a copy by [`backup_to`](crate::Store::backup_to) have no archive.
    ///
    /// No file of an archive is removed. A base, and all segments with smaller numbers than the oldest remaining base, can
    /// be removed by hand.
    ///
    /// All shards of a store and the shard map manager have one archive, because the shards have one journal, so each of them
    /// must have the journal. [`Store::restore_archive`](crate::Store::restore_archive) restores all of them as of any time or
    /// commit. Each shard has bases of its own. When a shard is added, its first base is written. When a detached shard is
    /// attached again or a lost one is [restored](crate::Store::restore_shard), or when a shard was written outside of the
    /// store, the archive continues after a gap, with new bases of all shards.
    ///
    /// If a shard is missing when the store is opened, the archive keeps the shard as it was. A gap ends when all new bases are
    /// written ([`has_base`](crate::ArchiveLag::has_base)). Until then, later commits can't be restored:
    /// [`Error::NotInArchive`](crate::Error::NotInArchive).
    ///
    /// With another durability, opening fails with [`Error::Io`](crate::Error::Io) with the kind `InvalidInput`.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, IndexTable, Store};
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
    /// # let (shop, archive, restored) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    /// let options = Store::options().durability(Durability::Journal).archive(&archive);
    /// let store = options.open(&shop)?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// drop((notes, store));
    ///
    /// Store::restore_archive(&archive).run(&restored)?;
    /// let store = Store::open(&restored)?;
    /// assert_eq!(NoteRepository::open(&store)?.all(&store.read()?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive(mut self, directory: impl AsRef<Path>) -> Self {
        self.archive = Some(directory.as_ref().to_owned());
        self.hand_over = None;
        self.without_archive = false;
        self
    }

    /// Gives up the archive of a store, so that it can be opened for writing without it. It is not needed for
    /// [`read_only`](Options::read_only), and has no effect on a store without an archive. Later openings need not repeat it.
    ///
    /// The archive ends with the last commit that it has. A file `ended` in its directory records this: restoring its last
    /// state needs [`until_end`](crate::RestoreArchive::until_end), and its followers report an error in their lag. If the
    /// directory can't be written, each later opening for writing tries again. An archive whose files a function
    /// gets has no such file. When the store is opened with this archive again, the archive continues after a gap, with a new
    /// base.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, Error, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, archive) = (dir.path().join("a"), dir.path().join("b"));
    /// drop(Store::options().durability(Durability::Journal).archive(&archive).open(&shop)?);
    ///
    /// assert!(matches!(Store::open(&shop), Err(Error::ArchiveNotNamed { .. })));
    /// Store::options().without_archive().open(&shop)?;
    /// Store::open(&shop)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_archive(mut self) -> Self {
        (self.archive, self.hand_over) = (None, None);
        self.without_archive = true;
        self
    }

    /// Sets a function that gets the files of an archive, such as for an object store. It replaces a directory set by
    /// [`archive`](Options::archive), whose documentation applies except for the following.
    ///
    /// The function gets complete segments only: at the latest 10 seconds after a commit, after 16 MiB, and when the last
    /// handle to the store is dropped. It stores the contents of the file under the name, and replaces an object with the
    /// same name. After an error, or if the process ends, it gets the file again. It is called by background threads of
    /// all stores, at most two at the same time for a store. So it must not wait for ever: with eight such functions that wait, no
    /// other archive continues. Files stay in
    /// `archive.pending` until the function has returned `Ok`. A base is written there first, so the disk of the store needs
    /// room for a copy of the data file.
    ///
    /// Each name begins with the identity of the archive, in hex, and `/`. To restore, download all objects with the same
    /// identity to a directory, with the rest of the names as paths, and call
    /// [`Store::restore_archive`](crate::Store::restore_archive) with this directory. A store whose `archive.pending` is
    /// lost, such as a restored store, has a new identity. Two open stores never use the same names.
    ///
    /// Functions are compared by identity: opening an open store again with options that have another function fails with
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen); use a clone of the options. They are not serialized.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fs;
    ///
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (bucket, path) = (dir.path().join("bucket"), dir.path().join("shop"));
    /// let options = Store::options().durability(Durability::Journal).archive_with(move |file| {
    ///     let object = bucket.join(file.name); // stands for an upload
    ///     fs::create_dir_all(object.parent().unwrap())?;
    ///     fs::copy(file.path, object).map(drop)
    /// });
    /// let store = options.open(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_with(
        mut self,
        function: impl Fn(ArchiveFile<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.hand_over = Some(HandOver(Arc::new(function)));
        self.archive = None;
        self.without_archive = false;
        self
    }

    /// Returns the durability of commits.
    pub(crate) const fn used_durability(&self) -> Durability {
        Durability::or_default(self.durability)
    }

    /// Whether the store has an archive.
    pub(crate) const fn has_archive(&self) -> bool {
        self.archive.is_some() || self.hand_over.is_some()
    }

    /// Returns the destination of the archive.
    pub(crate) fn destination(&self) -> Option<Destination> {
        let function = self.hand_over.clone().map(Destination::Function);
        function.or_else(|| self.archive.clone().map(Destination::Directory))
    }

    /// Whether a missing store is created.
    pub(crate) const fn creates(&self) -> bool {
        self.create && !self.read_only
    }

    /// Returns the options that a shard keeps, by name and as numbers.
    pub(crate) fn numbers(&self) -> [(&'static str, u64); 10] {
        let (when_full, wait) = match self.index_queue.when_full {
            WhenFull::ApplyInLine => (0, 0),
            WhenFull::Wait(wait) => (1, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            WhenFull::Disable => (2, 0),
        };
        [
            ("map_size", self.map_size as u64),
            ("max_map_size", self.max_map_size as u64),
            // A shard without a durability has the journal, as one with `Full`.
            ("durability", self.durability.unwrap_or(Durability::Full).number()),
            ("max_databases", u64::from(self.max_databases)),
            ("max_readers", u64::from(self.max_readers)),
            ("reserve", self.reserve as u64),
            ("index_queue", self.index_queue.messages),
            ("index_queue_when_full", when_full | wait << 2),
            ("file_mode", u64::from(self.file_mode)),
            ("directory_mode", u64::from(self.directory_mode)),
        ]
    }

    /// Returns the options with one of the [`numbers`](Options::numbers) changed.
    pub(crate) fn with_number(mut self, name: &str, number: u64) -> Self {
        let (size, count) = (usize::try_from(number), u32::try_from(number));
        match name {
            "map_size" => self.map_size = size.unwrap_or(usize::MAX),
            "max_map_size" => self.max_map_size = size.unwrap_or(usize::MAX),
            "durability" => {
                use Durability::{Full, Journal, None, Relaxed};
                self.durability =
                    [Full, Relaxed, None, Journal].into_iter().find(|it| it.number() == number);
            }
            "max_databases" => self.max_databases = count.unwrap_or(MOST),
            "max_readers" => self.max_readers = count.unwrap_or(MOST),
            "file_mode" => self.file_mode = count.unwrap_or(FILE_MODE),
            "directory_mode" => self.directory_mode = count.unwrap_or(DIRECTORY_MODE),
            "reserve" => self.reserve = size.unwrap_or(usize::MAX),
            "index_queue" => self.index_queue.messages = number,
            "index_queue_when_full" => {
                self.index_queue.when_full = match number & 3 {
                    1 => WhenFull::Wait(Duration::from_millis(number >> 2)),
                    2 => WhenFull::Disable,
                    _ => WhenFull::ApplyInLine,
                };
            }
            _ => {}
        }
        self
    }

    /// Refuses options that can't work.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.has_archive() && !self.read_only && self.used_durability() != Durability::Journal {
            let reason = "`archive` needs `Durability::Journal`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let numbers =
            [("max_readers", self.max_readers, 1), ("max_databases", self.max_databases, 0)];
        for (option, number, least) in numbers {
            if number < least || number > MOST {
                let reason = format!("`{option}` is {number}, and must be from {least} to {MOST}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
        let modes = [
            ("file_mode", self.file_mode, FILE_MODE, 0o777),
            ("directory_mode", self.directory_mode, DIRECTORY_MODE, 0o7777),
        ];
        for (option, mode, least, most) in modes {
            if mode & least != least || mode & !most != 0 {
                let reason = format!(
                    "`{option}` is {mode:#o}, and must have {least:#o} and nothing outside of {most:#o}"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
        Ok(())
    }

    /// Returns the first option that differs in `other`: its name, and both values.
    pub(crate) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let Self {
            map_size,
            max_map_size,
            durability,
            max_databases,
            max_readers,
            reserve,
            index_queue,
            // These options have no effect on an open store.
            create: _,
            file_mode: _,
            directory_mode: _,
            refuses_shards: _,
            read_only,
            checkpoint,
            archive,
            hand_over,
            without_archive: _,
            declared: _,
            manager: _,
            follower,
            #[cfg(feature = "postgres")]
            schema,
            #[cfg(feature = "postgres")]
            connections,
            #[cfg(feature = "postgres")]
            retry_for,
            #[cfg(feature = "postgres")]
            dialect,
            #[cfg(feature = "postgres")]
            splits,
            #[cfg(feature = "postgres")]
            root_certificates,
        } = self;
        let archive = match (archive, &other.archive) {
            (Some(own), Some(named)) if is_same(own, named) => &other.archive,
            _ => archive,
        };
        let options: [(_, &dyn Debug, &dyn Debug); _] = [
            ("map_size", map_size, &other.map_size),
            ("max_map_size", max_map_size, &other.max_map_size),
            ("durability", &Durability::or_default(*durability), &other.used_durability()),
            ("max_databases", max_databases, &other.max_databases),
            ("max_readers", max_readers, &other.max_readers),
            ("reserve", reserve, &other.reserve),
            ("index_queue", index_queue, &other.index_queue),
            ("read_only", read_only, &other.read_only),
            ("checkpoint", checkpoint, &other.checkpoint),
            ("archive", archive, &other.archive),
            ("archive_with", hand_over, &other.hand_over),
            ("follower", follower, &other.follower),
            #[cfg(feature = "postgres")]
            ("schema", schema, &other.schema),
            #[cfg(feature = "postgres")]
            ("connections", connections, &other.connections),
            #[cfg(feature = "postgres")]
            ("retry_for", retry_for, &other.retry_for),
            #[cfg(feature = "postgres")]
            ("dialect", dialect, &other.dialect),
            #[cfg(feature = "postgres")]
            ("splits", splits, &other.splits),
            #[cfg(feature = "postgres")]
            ("root_certificates", root_certificates, &other.root_certificates),
        ];
        options
            .into_iter()
            .map(|(name, own, other)| (name, format!("{own:?}"), format!("{other:?}")))
            .find(|(_, own, other)| own != other)
    }

    /// Returns an option for the modes of files that is not the default.
    #[cfg(feature = "postgres")]
    pub(crate) fn other_mode(&self) -> Option<&'static str> {
        let modes = [
            ("file_mode", self.file_mode == FILE_MODE),
            ("directory_mode", self.directory_mode == DIRECTORY_MODE),
        ];
        modes.into_iter().find(|(_, is_usual)| !is_usual).map(|(option, _)| option)
    }

    /// Returns why a server does not offer an option of files.
    #[cfg(feature = "postgres")]
    pub(crate) fn not_on_servers(option: &str) -> &'static str {
        macro_rules! reason {
            ($($option:literal),*) => {
                match option {
                    $($option => concat!("`", $option, "`, because a server has its own settings"),)*
                    _ => "an option of files, because a server has its own settings",
                }
            };
        }
        reason!(
            "map_size",
            "max_map_size",
            "durability",
            "max_databases",
            "max_readers",
            "reserve",
            "checkpoint",
            "archive",
            "archive_with",
            "file_mode",
            "directory_mode"
        )
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
