//! Who has the store open, and who may write its journal.
//!
//! Every process that has the store open holds a shared lock on its directory, readers too, and a process that
//! holds it exclusively is alone. LMDB's own locks don't serve: a process loses them when it closes another
//! descriptor of the file. The writer of the journal holds an exclusive lock on its first file.

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
    /// Of nobody.
    pub(in crate::engine::lmdb) fn none() -> Self {
        Self { directory: None, alone: false, forks: process::forks() }
    }

    /// For who has the turn to open the store, so that nobody else comes meanwhile.
    ///
    /// Where directories can't be locked, nobody is alone, and there is no journal.
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

    /// Whether no other process has the store open.
    pub(in crate::engine::lmdb) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether there is a lock at all.
    pub(in crate::engine::lmdb) const fn is_known(&self) -> bool {
        self.directory.is_some()
    }

    /// Lets others open the store, once the turn to open it is over.
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
        // A child that was forked has the same lock, so that closing the file is not enough, and a child must
        // not end it.
        if let Some(directory) = self.directory.as_ref().filter(|_| process::forks() == self.forks)
        {
            let _ = directory.unlock();
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// Takes the lock of the writer; `false`: another process has it.
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
