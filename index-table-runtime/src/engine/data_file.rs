//! What a store needs beyond tables and transactions: its data files, open or not, and their pages and readers. The engines
//! without data files have the defaults of these functions.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Engine, Read as _, Reader,
    lmdb::{self, SharedJournal},
};
use crate::model::{KeyRange, error::Result, schema::Source, shard::ShardNumber};

/// The data file in a directory, which may be open, closed or missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataFile<'p>(pub(crate) &'p Path);

/// The journal that a data file needs, by the marker in the file.
pub(crate) enum Marked {
    /// The file is complete without a journal.
    Complete,
    /// The file is complete, and was last written with the journal of all shards, as the shard with this number.
    CompleteShard { manager: [u8; 16], number: ShardNumber },
    /// The file needs its own journal.
    Own,
    /// The file needs the journal of all shards. The shard has this number in it.
    Shard { manager: [u8; 16], number: ShardNumber },
}

/// A place in the journal of all shards: the journal, and the number of a shard.
#[derive(Clone, Copy)]
pub(crate) struct PlaceInJournal<'j>(pub(crate) &'j SharedJournal, pub(crate) ShardNumber);

/// A data file as a reader sees it.
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    /// Whether its name leads to another file, or to none.
    pub(crate) is_replaced: bool,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The bytes of the pages in use, and of free pages; `None` if a damaged page hides them.
    pub(crate) pages: Option<(u64, u64)>,
    pub(crate) map: u64,
    /// `None` if this process does not write, or only the address space limits the map.
    pub(crate) map_limit: Option<u64>,
    /// The bytes of the disk, and those that are left.
    pub(crate) disk: Option<(u64, u64)>,
    pub(crate) last_commit: u64,
    pub(crate) readers: Vec<SeenReader>,
}

/// A read transaction of another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenReader {
    pub(crate) process: u32,
    pub(crate) snapshot: u64,
    /// The time since this process first saw it with later commits.
    pub(crate) seen: Duration,
}

/// A journal as an operator sees it.
pub(crate) struct JournalState {
    /// The bytes of its files.
    pub(crate) bytes: u64,
    /// The time since the last checkpoint, if there have been changes since.
    pub(crate) checkpoint_age: Option<Duration>,
    /// The estimated bytes of the pages that have changed since the last checkpoint began.
    pub(crate) changed: u64,
    /// The reason why nothing is written any more.
    pub(crate) refused: Option<&'static str>,
}

/// The reader slots of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderSlots {
    /// The number of the last commit.
    pub last_commit: u64,
    /// The slots in use.
    pub readers: Vec<ReaderSlot>,
}

/// A reader slot in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderSlot {
    /// The id of the process.
    pub process: u32,
    /// The number of the last commit in the snapshot; `None` between two transactions.
    pub snapshot: Option<u64>,
}

/// Returns the reader slots of the store in a directory.
///
/// # Errors
///
/// The kind `ResourceBusy` if this process has the store open: closing the file again would release its locks. The
/// kind `Unsupported` on systems whose lock files have another form. Other errors of the file system.
pub fn reader_slots(directory: &Path) -> io::Result<ReaderSlots> {
    DataFile(directory).reader_slots()
}

/// A physical part of an index, with one entry or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'t> {
    /// The LMDB key, which is the position of the piece in the order of the pieces.
    pub(crate) at: &'t [u8],
    /// The damage; `None` if the piece is intact.
    pub(crate) fault: Option<PieceFault>,
}

/// A violation of the rules of the engine's layout by a [`Piece`], independent of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceFault {
    /// The violated rule.
    pub(crate) reason: &'static str,
    /// The length of the index key in [`Piece::at`], if all pieces of that key have to be rewritten; `None` if it is
    /// enough to remove the piece.
    pub(crate) key: Option<usize>,
}

/// The pieces of an index, in their order.
pub(crate) type Pieces<'t> = Box<dyn Iterator<Item = Result<Piece<'t>>> + 't>;

impl Engine {
    /// Whether a process that wrote the store has ended without closing it.
    pub(crate) fn was_recovered(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::was_recovered)
    }

    /// Returns the number of read transactions of this process, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        #[cfg(feature = "postgres")]
        if let Some(engine) = self.postgres() {
            return engine.readers();
        }
        self.lmdb().map_or((0, None), lmdb::Engine::readers)
    }

    /// Clears the reader slots of processes that have ended, and returns the number of these slots.
    pub(crate) fn clear_stale_readers(&self) -> Result<usize> {
        self.lmdb().map_or(Ok(0), lmdb::Engine::clear_stale_readers)
    }

    /// Returns the reader slots of all processes; `None` without a data file.
    pub(crate) fn reader_slots(&self) -> Option<io::Result<ReaderSlots>> {
        Some(lmdb::slots_of_open(self.lmdb()?.directory()))
    }

    /// Returns the state of the data file; `None` without one.
    pub(crate) fn file_state(&self) -> Option<Result<FileState>> {
        self.lmdb().map(lmdb::Engine::file_state)
    }

    /// Returns the state of the journal; `None` if this process writes none.
    pub(crate) fn journal_state(&self) -> Option<JournalState> {
        self.lmdb()?.journal_state()
    }

    /// Returns whether the journal is refused; `None` if this process writes none.
    pub(crate) fn is_journal_refused(&self) -> Option<bool> {
        self.lmdb()?.is_journal_refused()
    }

    /// Whether its data file was closed before its handles were dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::is_closed)
    }

    /// Whether it is a removed or detached shard that transactions still use.
    pub(crate) fn is_leaving(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::is_leaving)
    }

    /// Whether its data file may lack commits that a journal has.
    pub(crate) fn needs_journal(&self) -> bool {
        self.lmdb().is_some_and(|engine| {
            let marked = DataFile(engine.directory()).marked();
            !matches!(marked, Ok(Marked::Complete | Marked::CompleteShard { .. }))
        })
    }

    /// Whether it is a shard that has left the journal of all shards.
    pub(crate) fn has_left_journal(&self) -> bool {
        self.lmdb().is_some_and(lmdb::Engine::has_left_journal)
    }
}

impl<'t> Reader<'t> {
    /// Returns the number of leaf pages of a database; `None` if the engine takes no samples.
    pub(crate) fn leaves_of(self, source: Source) -> Result<Option<u64>> {
        self.lmdb().map(|reader| reader.leaves_of(source)).transpose()
    }

    /// Whether entries of an index are packed, so that the engine does not maintain their number.
    pub(crate) fn is_packed(self, source: Source) -> Result<bool> {
        self.lmdb().map_or(Ok(false), |reader| reader.is_packed(source))
    }

    /// Estimates the share of a database's entries in a range of keys, from 0 to 1. Returns `None` if it can't be estimated
    /// at the moment.
    pub(crate) fn share_of(self, source: Source, range: &KeyRange) -> Result<Option<f64>> {
        self.lmdb().map_or(Ok(None), |reader| reader.share_of(source, range))
    }

    /// Returns the number of pieces of an index; 0 if the engine stores none.
    pub(crate) fn piece_count(self, index: usize) -> Result<u64> {
        let stored = self.lmdb().map(|reader| reader.stored(Source::Index(index)));
        Ok(stored.transpose()?.flatten().unwrap_or(0))
    }

    /// Returns the pieces of an index after a position; `None` if the engine stores none.
    pub(crate) fn pieces(self, index: usize, after: Option<&[u8]>) -> Result<Option<Pieces<'t>>> {
        let Some(reader) = self.lmdb() else { return Ok(None) };
        Ok(Some(Box::new(reader.pieces(index, after)?)))
    }
}

/// Calls `read`. The read transactions that this thread begins meanwhile check each page of a data file before LMDB reads it, for
/// the tools that must survive a damaged file. A page is then read twice, the first time by a system call.
pub fn checked<T>(read: impl FnOnce() -> T) -> T {
    lmdb::checked(read)
}

/// Whether this thread is in [`checked`].
pub(crate) fn is_checked() -> bool {
    lmdb::is_checked()
}

/// Calls `open`. A store that this thread opens for writing meanwhile may have a table or an index with a damaged root. This is for the
/// tools that repair it: they check the pages before LMDB writes to them.
pub fn repairing<T>(open: impl FnOnce() -> T) -> T {
    lmdb::repairing(open)
}
