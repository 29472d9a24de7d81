//! What an operator watches: data files with their disks and readers, the journal, and commits.

use std::{path::PathBuf, time::Duration};

use super::{Commits, Store, engines::Current, sharded::MAIN};
use crate::{
    engine::{Engine, FileState, JournalState, ServerUsage},
    model::error::Result,
    usage::Inspection,
};

/// The name that the data file of the shard map manager has here. A shard can't have it.
const MANAGER: &str = "(manager)";

/// A data file of a store; from [`Store::data_files`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataFileInfo {
    /// The name of the shard; `main` for a store with one data file, and `(manager)` for the file of the shard map manager.
    pub shard: String,
    /// The path of the file.
    pub path: PathBuf,
    /// Whether the file was removed, renamed or replaced since this process opened it: commits are refused then. Then, `used`, `free` and
    /// the readers are not known.
    pub is_replaced: bool,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The bytes of the pages in use; `None` if a damaged page hides them.
    pub used: Option<u64>,
    /// The bytes of the other pages, which later commits use again, as far as no reader keeps them; `None` as for
    /// [`used`](DataFileInfo::used).
    pub free: Option<u64>,
    /// The bytes of the map. It grows when it is full.
    pub map: u64,
    /// The size up to which the map grows; see [`Options::max_map_size`](crate::Options::max_map_size). `None` without this option, and in
    /// a process that only reads.
    pub map_limit: Option<u64>,
    /// The bytes of the disk; `None` if the system does not tell, or the disk is read-only.
    pub disk: Option<u64>,
    /// The bytes of the disk that are left for this process; `None` as for [`disk`](DataFileInfo::disk).
    pub disk_free: Option<u64>,
    /// The number of the last commit.
    pub last_commit: u64,
    /// The read transactions of other processes. In a process that only reads a store with a journal there are none, because the writer's
    /// checkpoint looks like one.
    pub readers: Vec<OtherReader>,
}

/// A read transaction of another process; see [`DataFileInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherReader {
    /// The id of the process.
    pub process: u32,
    /// The number of commits since the snapshot. Their pages can't be used again.
    pub commits_behind: u64,
    /// The time since [`Store::data_files`] of this process first saw it with later commits.
    pub age: Duration,
}

/// The journal of a store; from [`Store::journal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalInfo {
    /// The bytes of its files.
    pub bytes: u64,
    /// The time since the last checkpoint began, if there have been changes since. A store with one data file makes the next checkpoint in a
    /// later commit, so the age also grows while there are no commits.
    pub checkpoint_age: Option<Duration>,
    /// The estimated bytes of the pages in all data files that have changed since the last checkpoint began: the next one syncs them.
    pub changed_bytes: u64,
    /// The reason why the store is no longer written; it has to be opened again.
    pub refused: Option<&'static str>,
}

impl Store {
    /// Returns the data files that are available, with their disks and the readers of other processes, in the order of the shards;
    /// none for a store in memory or on a server.
    ///
    /// The age of another process's reader is not in the file, so this process counts it from the first call that saw the reader with later
    /// commits: a service that calls this every minute, for its metrics, finds those that are stuck.
    ///
    /// Cost: a few system calls for each file, one or two pages of the names of its databases, and its reader slots.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = index_table::Store::open(dir.path())?;
    /// for file in store.data_files()? {
    ///     println!("{}: {} bytes, {:?} of them free", file.shard, file.bytes, file.free);
    ///     assert!(!file.is_replaced && file.readers.is_empty());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn data_files(&self) -> Result<Vec<DataFileInfo>> {
        self.inner.engines.refuse_forked()?;
        let shards = match self.inner.engines.current() {
            Current::One(engine) => {
                return file(MAIN, engine).into_iter().collect();
            }
            Current::Several(shards) => shards,
        };
        let present = shards.current_shards();
        let mut files = Vec::with_capacity(present.len());
        for number in present {
            let shard = shards.shard(number)?;
            let Ok(engine) = shard.opened() else { continue };
            match file(shard.name(), engine) {
                Some(Ok(file)) => files.push(file),
                // It has left meanwhile.
                Some(Err(_)) if shard.opened().is_err() => {}
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        let manager = shards.manager().and_then(|manager| file(MANAGER, manager.engine()));
        files.extend(manager.transpose()?);
        Ok(files)
    }

    /// Returns the state of the journal; `None` if this process writes none.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = index_table::Store::open(dir.path())?;
    /// let journal = store.journal().expect("the default durability is the journal");
    /// assert_eq!(journal.refused, None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn journal(&self) -> Option<JournalInfo> {
        let engines = &self.inner.engines;
        engines.refuse_forked().ok()?;
        let find =
            |refused| engines.each().find(|engine| engine.is_journal_refused() == Some(refused));
        // All shards have the same journal; one of them may have left it.
        let engine = find(false).or_else(|| find(true))?;
        let JournalState { bytes, checkpoint_age, changed, refused } = engine.journal_state()?;
        Some(JournalInfo { bytes, checkpoint_age, changed_bytes: changed, refused })
    }

    /// Returns the commits of this process, and the failure of the last one.
    ///
    /// Writes by [`autocommit`](Store::autocommit) on a server are not counted. In a forked process, all counts are 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32 }
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// let commits = store.commits();
    /// assert_eq!((commits.count, commits.failed), (1, None));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn commits(&self) -> Commits {
        if self.inner.engines.refuse_forked().is_err() {
            return Commits::default();
        }
        self.inner.outcomes.report(&self.inner.requests)
    }

    /// Returns the connections, statements and conflicts of a store on a PostgreSQL server; `None` for another store. In a forked process, all
    /// counts are 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = index_table::Store::open(dir.path())?;
    /// if let Some(usage) = store.server_usage() {
    ///     println!("{} of {} connections", usage.connections_in_use, usage.connections_most);
    ///     println!("{} conflicts, {} unknown commits", usage.conflicts, usage.unknown_commits);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn server_usage(&self) -> Option<ServerUsage> {
        self.inner.engines.one()?.server_usage()
    }

    /// Returns the last [`check`](Store::check), [`verify`](Store::verify), [`scrub`](Store::scrub) and
    /// [`backup`](Store::backup) of this process, with what they found. A run that was refused, for example because the target of a backup
    /// exists, is left out, and so is a scrub that was stopped. None in a forked process.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = index_table::Store::open(dir.path())?;
    /// store.check()?;
    /// let last = store.inspections();
    /// assert_eq!((last[0].kind, &last[0].problem), ("check", &None));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn inspections(&self) -> Vec<Inspection> {
        if self.inner.engines.refuse_forked().is_err() {
            return Vec::new();
        }
        self.inner.inspections.report()
    }
}

/// Returns the data file of an engine; `None` if it has none.
fn file(shard: &str, engine: &Engine) -> Option<Result<DataFileInfo>> {
    let info = |state: FileState| {
        let last_commit = state.last_commit;
        let readers = state.readers.into_iter().map(|reader| OtherReader {
            process: reader.process,
            commits_behind: last_commit.saturating_sub(reader.snapshot),
            age: reader.seen,
        });
        let (used, free) = state.pages.unzip();
        let (disk, disk_free) = state.disk.unzip();
        DataFileInfo {
            shard: shard.to_owned(),
            path: state.path,
            is_replaced: state.is_replaced,
            bytes: state.bytes,
            used,
            free,
            map: state.map,
            map_limit: state.map_limit,
            disk,
            disk_free,
            last_commit,
            readers: readers.collect(),
        }
    };
    Some(engine.file_state()?.map(info))
}
