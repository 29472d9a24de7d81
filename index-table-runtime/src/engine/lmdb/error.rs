//! Conversion of LMDB's errors to this crate's.

use std::{
    error, fs, io,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use heed::MdbError;

use super::{
    env::Engine,
    names::FILE,
    pages::Fault,
    process::{self, Limit},
};
pub(super) use crate::engine::outcome::LEFT;
use crate::{
    engine::{Retry, files, outcome::RETIRED},
    model::error::Error,
};

/// The reason why a transaction of this process can't begin.
const ANOTHER_FILE: &str = "its transaction number is not the one of the open `data.mdb`: one of the two was \
                            replaced, restored or copied up from a lower layer of an overlay file system, or a program \
                            with another lock file writes the store";

impl Engine {
    pub(super) fn too_many_readers(&self) -> Error {
        Error::TooManyReaders { max_readers: self.max_readers, oldest: self.readers().1 }
    }

    /// Converts an error of heed.
    #[cold]
    pub(super) fn error(&self, error: heed::Error) -> Error {
        match error {
            heed::Error::Mdb(MdbError::MapFull) => {
                let map_size = self.map_size.load(Ordering::Relaxed);
                Error::MapFull { map_size }
            }
            heed::Error::Mdb(MdbError::TxnFull) => Error::TransactionTooLarge,
            heed::Error::Mdb(MdbError::MapResized) => {
                Error::MapTooSmall { map_size: self.map_size.load(Ordering::Relaxed) }
            }
            heed::Error::Mdb(
                error @ (MdbError::Corrupted
                | MdbError::PageNotFound
                // A tree of intact pages is not so deep.
                | MdbError::CursorFull
                | MdbError::Invalid
                | MdbError::VersionMismatch),
            ) => damaged(&self.path, error.to_string()),
            heed::Error::Mdb(MdbError::Panic) => self
                .reopen_needed("a commit could not be completed, and earlier commits are intact"),
            heed::Error::Mdb(MdbError::DbsFull) => {
                Error::TooManyDatabases { max_databases: self.max_databases }
            }
            heed::Error::Mdb(MdbError::ReadersFull) => self.too_many_readers(),
            // LMDB caches the names of databases while it is open, and does not check that they still exist.
            heed::Error::Mdb(MdbError::BadDbi) => self
                .reopen_needed("another process has dropped an index that this process has opened"),
            heed::Error::Mdb(MdbError::BadTxn) => {
                Error::TransactionFailed { reason: "an earlier write in it has failed".to_owned() }
            }
            heed::Error::Io(source) if source.kind() == io::ErrorKind::StaleNetworkFileHandle => {
                Error::LockFile { path: self.path.clone(), reason: ANOTHER_FILE }
            }
            heed::Error::Io(source) => written(&self.path, source),
            error => failed(&self.path, error),
        }
    }

    /// Converts the error of a write, and records in `retry` whether the closure can run again.
    #[cold]
    pub(super) fn write_error(&self, retry: &mut Option<Retry>, error: heed::Error) -> Error {
        let error = self.error(error);
        *retry = Retry::after(&error).or(*retry);
        error
    }

    /// Returns the error of a transaction that opens or drops databases, with the reason to run it again.
    pub(super) fn ended(&self, failure: Failure, retry: Option<Retry>) -> (Error, Option<Retry>) {
        let error = match failure {
            Failure::Heed(error) => self.error(error),
            Failure::Other(error) => error,
        };
        let retry = Retry::after(&error).or(retry);
        (error, retry)
    }

    /// Returns the error of a transaction that begins after the environment was closed.
    #[cold]
    pub(super) fn retired(&self) -> Error {
        self.reopen_needed(RETIRED)
    }

    pub(super) fn reopen_needed(&self, reason: &'static str) -> Error {
        Error::ReopenNeeded { path: self.path.clone(), reason }
    }
}

/// Returns an error that this crate has no variant for, with LMDB's description.
#[cold]
pub(super) fn failed(path: &Path, error: heed::Error) -> Error {
    let source: Arc<dyn error::Error + Send + Sync> = match error {
        heed::Error::Mdb(error) => Arc::new(error),
        heed::Error::Encoding(error) | heed::Error::Decoding(error) => Arc::from(error),
        // The `source` of heed's type is empty.
        error => Arc::new(error),
    };
    Error::Engine { path: path.to_owned(), source }
}

/// An error of a closure that heed runs: an error of heed, or an error of this crate that passes through heed.
pub(super) enum Failure {
    Heed(heed::Error),
    Other(Error),
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Self {
        Self::Heed(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

pub(super) fn damaged(path: &Path, reason: String) -> Error {
    Error::DamagedFile { path: path.to_owned(), reason }
}

/// Returns the error of a file that LMDB must not open.
pub(super) fn refused(path: &Path, fault: Fault) -> Error {
    match fault {
        Fault::Io(source) => not_opened(path, source),
        Fault::Damaged(reason) => damaged(path, reason),
    }
}

/// Replaces an error whose cause is the limit of open files by an error that names the limit.
pub(super) fn with_limit(path: &Path, error: Error) -> Error {
    match error {
        Error::Io { source, .. } if matches!(process::limit(&source), Some(Limit::Files(_))) => {
            not_opened(path, source)
        }
        error => error,
    }
}

/// Returns the error of the directory of a shard, before it is known whether the shard belongs to a store.
pub(super) fn is_shard(path: &Path) -> Error {
    Error::ShardRefused {
        what: format!("`{}`", path.display()),
        reason: "it is a shard of a sharded store".to_owned(),
    }
}

/// Returns the error of the directory of a sharded store, which has the shard map manager and no rows.
pub(super) fn is_manager(path: &Path) -> Error {
    Error::ShardRefused {
        what: format!("`{}`", path.display()),
        reason: "it is a sharded store; open it with `Store::open`".to_owned(),
    }
}

/// Returns the error of a store that another process may write.
#[cold]
pub(super) fn elsewhere(path: &Path, process: Option<u32>, has_journal: bool) -> Error {
    Error::WriterElsewhere { path: path.to_owned(), process, has_journal }
}

/// Returns the error of a lock file that can't be opened or created.
pub(super) fn not_reserved(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::LockFile {
            path: path.to_owned(),
            reason: "it was removed while other processes have the store open",
        },
        _ => not_opened(path, source),
    }
}

/// Returns the error of a write to the data file in a directory. LMDB reports an incomplete write as EIO, and its usual cause is a
/// full disk.
pub(super) fn written(directory: &Path, source: io::Error) -> Error {
    let no_room = if process::is_eio(&source) { lack_of_room(directory) } else { None };
    Error::io(directory, no_room.unwrap_or(source))
}

fn lack_of_room(directory: &Path) -> Option<io::Error> {
    let length = fs::metadata(directory.join(FILE)).ok()?.len();
    // Writing more than the limit may end the process.
    if process::file_limit().saturating_sub(length) < files::SAMPLE as u64 {
        return Some(io::ErrorKind::FileTooLarge.into());
    }
    files::lack_of_room(directory)
}

/// Returns the error of a file of the store that can't be opened.
pub(super) fn not_opened(path: &Path, source: io::Error) -> Error {
    match process::limit(&source) {
        Some(Limit::Files(limit)) => {
            Error::TooManyOpenFiles { path: path.to_owned(), limit, source }
        }
        _ => Error::opening(path, source),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::{engine::Options, model::error::Result};

    #[test]
    fn errors_of_lmdb_keep_their_kind_and_source() -> Result<()> {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(&Options::default().map_size(1 << 20), directory.path())?;
        let error = |error: MdbError| engine.error(error.into());

        assert!(matches!(error(MdbError::MapFull), Error::MapFull { .. }));
        assert!(matches!(error(MdbError::TxnFull), Error::TransactionTooLarge));
        assert!(matches!(error(MdbError::BadTxn), Error::TransactionFailed { .. }));
        for reopen in [MdbError::Panic, MdbError::BadDbi] {
            let error = error(reopen);
            assert!(matches!(error, Error::ReopenNeeded { .. }));
            assert!(!error.to_string().contains("LMDB"), "{error}");
        }

        let unknown = error(MdbError::BadValSize);
        assert!(matches!(&unknown, Error::Engine { path, .. } if path == directory.path()));
        let source = unknown.source().expect("a source").to_string();
        assert_eq!(source, MdbError::BadValSize.to_string());
        assert!(unknown.to_string().ends_with(&source), "{unknown}");

        let inner = heed::Error::Decoding(Box::new(io::Error::other("an odd byte")));
        let source = engine.error(inner);
        assert_eq!(source.source().map(ToString::to_string).as_deref(), Some("an odd byte"));
        Ok(())
    }
}
