//! The processes that have a table open for writing, by locks in LMDB's lock file.
//!
//! | locked byte | means |
//! |---|---|
//! | 2⁶² + process × 2³¹ + hash of the table | the process has the table open |
//! | 2⁶² + process × 2³¹ + hash of the table and a part | it maintains this part |
//!
//! The number of the process is below 2³¹, and a hash is its first 31 bits. The file has no such bytes, and LMDB locks
//! only bytes below 2³¹. The system releases the locks when the process ends. They are a hint: what a client may write is decided by
//! the record of the table.

use super::env::Engine;
use crate::model::key::hash;

impl Engine {
    /// Tells other processes that this one has a table open for writing and maintains these parts, or that it no longer does. A
    /// process that can't tell is not seen.
    pub(crate) fn note_client(&self, table: &str, parts: &[u64], is_open: bool) {
        if !self.has_other_writers() {
            return;
        }
        let _ = os::set(self.directory(), table, &places(table, parts), is_open);
    }

    /// Returns for each of these parts whether another process has the table open without it.
    pub(crate) fn others_lack(&self, table: &str, parts: &[u64]) -> Vec<bool> {
        let nobody = || vec![false; parts.len()];
        if !self.has_other_writers() {
            return nobody();
        }
        os::lacking(self.directory(), &places(table, parts)).unwrap_or_else(|_| nobody())
    }

    /// Whether other processes can write the file.
    pub(crate) fn has_other_writers(&self) -> bool {
        !self.has_journal() && !self.is_read_only() && !self.is_inherited()
    }
}

/// Returns where the bytes for a table and its parts are, among those that a process can lock.
fn places(table: &str, parts: &[u64]) -> Vec<i64> {
    let of_part = |part: u64| [table.as_bytes(), &[0], &part.to_be_bytes()].concat();
    let names = [table.as_bytes().to_vec()].into_iter().chain(parts.iter().copied().map(of_part));
    let place = |name: Vec<u8>| {
        let first = hash(&name).first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
        i64::from(first >> 1)
    };
    names.map(place).collect()
}

/// Returns the byte of a process for a place.
const fn at(process: u32, place: i64) -> i64 {
    (1 << 62) + ((process as i64 & 0x7FFF_FFFF) << 31) + place
}

#[cfg(unix)]
mod os {
    use std::{io, path::Path};

    use super::{
        super::{lock, slots::with_kept},
        at,
    };

    pub(super) fn set(
        directory: &Path,
        table: &str,
        places: &[i64],
        is_open: bool,
    ) -> io::Result<()> {
        with_kept(directory, |kept| {
            // Another opening of the table can precede the end of this one.
            let times = kept.tables.entry(table.to_owned()).or_default();
            *times = if is_open { *times + 1 } else { times.saturating_sub(1) };
            if !is_open && *times > 0 {
                return Ok(());
            }
            let kind = if is_open { libc::F_RDLCK } else { libc::F_UNLCK };
            for byte in places.iter().map(|place| at(std::process::id(), *place)) {
                lock::request(&kept.file, libc::F_SETLK, kind as _, byte..byte + 1)?;
            }
            Ok(())
        })
    }

    /// The first place is that of the table.
    pub(super) fn lacking(directory: &Path, places: &[i64]) -> io::Result<Vec<bool>> {
        let Some((table, parts)) = places.split_first() else { return Ok(Vec::new()) };
        with_kept(directory, |kept| {
            let file = &kept.file;
            let is_locked = |process: u32, place: i64| {
                let byte = at(process, place);
                Ok::<_, io::Error>(lock::found(file, libc::F_GETLK, byte..byte + 1)?.is_some())
            };
            let mut lacking = vec![false; parts.len()];
            for process in lock::processes_of(file)? {
                if !is_locked(process, *table)? {
                    continue;
                }
                for (lacking, part) in lacking.iter_mut().zip(parts) {
                    *lacking |= !is_locked(process, *part)?;
                }
            }
            Ok(lacking)
        })
    }
}

/// For systems without such locks: no other process is seen.
#[cfg(not(unix))]
mod os {
    use std::{io, path::Path};

    pub(super) fn set(_: &Path, _: &str, _: &[i64], _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn lacking(_: &Path, _: &[i64]) -> io::Result<Vec<bool>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
