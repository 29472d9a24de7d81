//! What an operator watches: data files with their disks and readers, the journal, and commits.

use std::{path::PathBuf, time::Duration};

use super::Store;
use crate::{
    engine::lmdb::{self, FileState},
    model::error::{Error, Result},
    usage::{Commits, Inspection},
};

/// The name of the only shard of a store with one data file.
const MAIN: &str = "main";

/// A data file of a store; from [`Store::data_files`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataFileInfo {
    /// The name of the shard; `main` for a store with one data file.
    pub shard: String,
    /// The path of the file.
    pub path: PathBuf,
    /// Whether the file was removed, renamed or replaced since this process opened it: commits are refused then.
    pub is_replaced: bool,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The bytes of the pages that later commits use again, as far as no reader keeps them; `None` if a damaged page hides them.
    pub free: Option<u64>,
    /// The bytes of the map. It grows when it is full.
    pub map: u64,
    /// The bytes of the file up to its last page, which the map must have; `None` as for [`free`](DataFileInfo::free).
    pub mapped: Option<u64>,
    /// The size up to which the map grows; see [`Options::max_map_size`](crate::Options::max_map_size).
    pub map_limit: u64,
    /// The bytes of the disk; `None` if the system does not tell.
    pub disk: Option<u64>,
    /// The bytes of the disk that are left for this process; `None` if the system does not tell.
    pub disk_free: Option<u64>,
    /// The number of the last commit.
    pub last_commit: u64,
    /// The read transactions of other processes.
    pub readers: Vec<OtherReader>,
}

/// A read transaction of another process; see [`DataFileInfo`].
///
/// A process that writes with a journal has one too, which keeps its last checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherReader {
    /// The id of the process.
    pub process: u32,
    /// The number of commits since the snapshot. Their pages can't be used again.
    pub commits_behind: u64,
    /// The least age: the time since this process first saw it, by [`Store::data_files`].
    pub age: Duration,
}

/// The journal of a store; from [`Store::journal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalInfo {
    /// The bytes of its files.
    pub bytes: u64,
    /// The time since the last checkpoint, if there have been changes since.
    pub checkpoint_age: Option<Duration>,
    /// The reason why the store is no longer written; it has to be opened again.
    pub refused: Option<&'static str>,
}

impl Store {
    /// Returns the data files that are available, with their disks and the readers of other processes, in the order of the shards;
    /// none for a store in memory or on a server.
    ///
    /// The age of another process's reader is not in the file, so this process counts it from the first call that saw the reader: a
    /// service that calls this every minute, for its metrics, finds those that are stuck.
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
        let engines = &self.inner.engines;
        let Some(shards) = engines.several() else {
            let files = engines.each_lmdb().map(|engine| file(MAIN, engine));
            return files.collect();
        };
        let present = shards.current_shards();
        let mut files = Vec::with_capacity(present.len());
        for number in present {
            let shard = shards.shard(number)?;
            let engine = match shard.opened() {
                Ok(engine) => engine,
                Err(Error::ShardUnavailable { .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Some(engine) = engine.lmdb() {
                files.push(file(shard.name(), engine)?);
            }
        }
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
        let mut states = self.inner.engines.each_lmdb().filter_map(lmdb::Engine::journal_state);
        // All shards have the same journal; one of them may have left it.
        let first = states.next()?;
        let refused = first.refused.and_then(|reason| {
            if states.all(|state| state.refused.is_some()) { Some(reason) } else { None }
        });
        let lmdb::JournalState { bytes, checkpoint_age, .. } = first;
        Some(JournalInfo { bytes, checkpoint_age, refused })
    }

    /// Returns the commits of this process, and the failure of the last one.
    ///
    /// Writes by [`autocommit`](Store::autocommit) on a server are not counted.
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
        self.inner.outcomes.report()
    }

    /// Returns the last [`check`](Store::check), [`verify`](Store::verify), [`scrub`](Store::scrub) and
    /// [`backup`](Store::backup) of this process, with what they found. A scrub that was stopped is left out.
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
        self.inner.inspections.report()
    }
}

fn file(shard: &str, engine: &lmdb::Engine) -> Result<DataFileInfo> {
    let FileState { path, is_replaced, bytes, pages, map, map_limit, disk, last_commit, readers } =
        engine.file_state()?;
    let readers = readers.into_iter().map(|reader| OtherReader {
        process: reader.process,
        commits_behind: last_commit.saturating_sub(reader.snapshot),
        age: reader.seen,
    });
    Ok(DataFileInfo {
        shard: shard.to_owned(),
        path,
        is_replaced,
        bytes,
        free: pages.map(|(all, used)| all.saturating_sub(used)),
        map,
        mapped: pages.map(|(all, _)| all),
        map_limit,
        disk: disk.map(|(all, _)| all),
        disk_free: disk.map(|(_, left)| left),
        last_commit,
        readers: readers.collect(),
    })
}
