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

use crate::engine::lmdb::process;

/// The lock on the directory.
pub(in crate::engine::lmdb) struct Presence {
    directory: Option<File>,
    alone: bool,
    /// See [`process::forks`].
    forks: u32,
}

impl Presence {
    /// Returns a presence without a lock.
    pub(in crate::engine::lmdb) fn none() -> Self {
        Self { directory: None, alone: false, forks: process::forks() }
    }

    /// Takes the lock, exclusively if possible. The caller has the turn to open the store, so no other process can open it
    /// at the same time.
    ///
    /// If the file system cannot lock directories, no process is alone, and there is no journal.
    pub(in crate::engine::lmdb) fn take(directory: &Path) -> io::Result<Self> {
        let forks = process::forks();
        if !cfg!(unix) {
            return Ok(Self { directory: None, alone: false, forks });
        }
        let directory = File::open(directory)?;
        loop {
            return match directory.try_lock() {
                Ok(()) => Ok(Self { directory: Some(directory), alone: true, forks }),
                Err(TryLockError::WouldBlock) => {
                    let mut presence = Self { directory: Some(directory), alone: false, forks };
                    presence.share()?;
                    Ok(presence)
                }
                Err(TryLockError::Error(error)) if is_interrupted(&error) => continue,
                Err(TryLockError::Error(_)) => Ok(Self { directory: None, alone: false, forks }),
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
        let Some(directory) = &self.directory else { return Ok(()) };
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
        // A forked process has the same lock: closing the file does not release it, and the forked process must
        // not release it.
        if let Some(directory) = self.directory.as_ref().filter(|_| process::forks() == self.forks)
        {
            let _ = directory.unlock();
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// Takes the lock of the writer. Returns false if another process has it.
pub(super) fn lock_writer(first: &File) -> io::Result<bool> {
    loop {
        return match first.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) if is_interrupted(&error) => continue,
            Err(TryLockError::Error(error)) => Err(error),
        };
    }
}
