//! Locks that show which processes have the store open, and which process writes its journal.
//!
//! Each process that has the store open, readers included, holds a shared lock on the directory. A process with an
//! exclusive lock is alone. LMDB's own locks are not enough: a process loses them when it closes another descriptor of the
//! file. The writer of the journal holds an exclusive lock on the first file of the journal.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
};

use crate::locks::Unshared;

/// The lock on the directory.
pub(in crate::engine::lmdb) struct Presence {
    /// `None` if the file system can't lock directories.
    directory: Option<(Unshared, File)>,
    alone: bool,
}

impl Presence {
    /// Returns a presence without a lock.
    pub(in crate::engine::lmdb) fn none() -> Self {
        Self { directory: None, alone: false }
    }

    /// Takes the lock, exclusively if possible. The caller has the turn to open the store, so no other process can open it
    /// at the same time.
    ///
    /// If the file system cannot lock directories, no process is alone, and there is no journal.
    pub(in crate::engine::lmdb) fn take(directory: &Path) -> io::Result<Self> {
        if !cfg!(unix) {
            return Ok(Self::none());
        }
        let directory = File::open(directory)?;
        let unshared = Unshared::new(&directory);
        loop {
            return match directory.try_lock() {
                Ok(()) => Ok(Self { directory: Some((unshared, directory)), alone: true }),
                Err(TryLockError::WouldBlock) => {
                    let mut presence =
                        Self { directory: Some((unshared, directory)), alone: false };
                    presence.share()?;
                    Ok(presence)
                }
                Err(TryLockError::Error(error)) if is_interrupted(&error) => continue,
                Err(TryLockError::Error(_)) => Ok(Self::none()),
            };
        }
    }

    /// Returns true if no other process has the store open.
    pub(in crate::engine::lmdb) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns true if there is a lock.
    pub(in crate::engine::lmdb) const fn is_known(&self) -> bool {
        self.directory.is_some()
    }

    /// Shares the lock, so that other processes can open the store.
    pub(in crate::engine::lmdb) fn share(&mut self) -> io::Result<()> {
        self.alone = false;
        let Some((_, directory)) = &self.directory else { return Ok(()) };
        loop {
            match directory.lock_shared() {
                Err(error) if is_interrupted(&error) => {}
                outcome => return outcome,
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some((unshared, directory)) = &self.directory
            && !unshared.is_inherited()
        {
            // A process that another thread is starting has the directory open too, so closing it does not release the lock.
            let _ = directory.unlock();
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// Takes the lock of the writer. Returns `None` if another process has it. The result must be dropped before the file is closed.
pub(super) fn lock_writer(first: &File) -> io::Result<Option<Unshared>> {
    let unshared = Unshared::new(first);
    loop {
        return match first.try_lock() {
            Ok(()) => Ok(Some(unshared)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) if is_interrupted(&error) => continue,
            Err(TryLockError::Error(error)) => Err(error),
        };
    }
}
