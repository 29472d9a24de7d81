//! Reserves space after the used pages, so that commits write into a file that does not grow.
//!
//! A sync of a file that has grown has to write the file system's records too, which takes longer than
//! writing the pages. Only written zeros avoid this: if a file is only extended, or its space is only
//! allocated, these records change when the pages are written.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The minimum step, about the size of a commit of one row.
const LEAST: u64 = 1 << 16;

pub(super) struct Reserve {
    /// The maximum step; 0 to reserve nothing.
    step: u64,
    /// LMDB's file. It stays open, because its path may refer to another file later.
    file: Option<File>,
    /// The file has enough space while the used part ends before this offset. The offset may be too low,
    /// since other processes reserve space too.
    enough: AtomicU64,
}

impl Reserve {
    /// Returns the reserve of the file that LMDB has just opened. If it can't be opened again, no space is
    /// reserved.
    pub(super) fn new(step: usize, file: &Path) -> Self {
        let open = || OpenOptions::new().write(true).open(file).ok();
        let file = if step > 0 { open() } else { None };
        let step = if file.is_some() { step as u64 } else { 0 };
        Self { step, file, enough: AtomicU64::new(0) }
    }

    /// Returns the size of a step; 0 to reserve nothing.
    fn step_after(&self, used: u64) -> u64 {
        let step = self.step.min(used / 8);
        if step < LEAST { 0 } else { step }
    }

    /// Extends the file, up to the map's size, if it has not enough space left. The caller holds LMDB's lock
    /// for writers. `used` returns the bytes in use.
    pub(super) fn ahead(&self, used: impl FnOnce() -> usize, map_size: &AtomicUsize) {
        if self.step > 0 {
            let used = used() as u64;
            if used >= self.enough.load(Ordering::Relaxed) {
                self.reserve_after(used, map_size.load(Ordering::Relaxed) as u64);
            }
        }
    }

    #[cold]
    fn reserve_after(&self, used: u64, map_size: u64) {
        let step = self.step_after(used);
        let Some(file) = self.file.as_ref().filter(|_| step > 0) else { return };
        let end = (used + step).min(map_size);
        // If the file can't be extended, the next attempt is delayed by a step.
        let end = os::lengthen(file, step / 4, used, end).unwrap_or(used + step);
        self.enough.store(end.saturating_sub(step / 4), Ordering::Relaxed);
    }
}

#[cfg(unix)]
mod os {
    use std::{fs::File, io, os::unix::fs::FileExt};

    use crate::engine::lmdb::process;

    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

    /// Writes zeros after the end of the file, up to `end`, if there are fewer than `least` bytes after
    /// `used`. Returns the end of the file.
    pub(super) fn lengthen(file: &File, least: u64, used: u64, end: u64) -> io::Result<u64> {
        let length = file.metadata()?.len();
        if length >= end || length >= used + least {
            return Ok(length);
        }
        if end > process::file_limit() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut at = length;
        while at < end {
            let zeros = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS.len());
            if let Err(error) = file.write_all_at(ZEROS.get(..zeros).unwrap_or_default(), at) {
                // Removes the written part, which no transaction uses yet.
                file.set_len(length)?;
                return Err(error);
            }
            at += zeros as u64;
        }
        Ok(end)
    }
}

/// For systems where it was not tested.
#[cfg(not(unix))]
mod os {
    pub(super) fn lengthen(_: &std::fs::File, _: u64, _: u64, end: u64) -> std::io::Result<u64> {
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_part_of_the_used_space() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reserve = Reserve::new(1 << 20, file.path());
        assert_eq!(reserve.step_after(0), 0);
        assert_eq!(reserve.step_after(8 * LEAST - 1), 0);
        assert_eq!(reserve.step_after(8 * LEAST), LEAST);
        assert_eq!(reserve.step_after(4 << 20), 1 << 19);
        assert_eq!(reserve.step_after(1 << 40), 1 << 20);
        assert_eq!(Reserve::new(0, file.path()).step_after(1 << 40), 0);
        assert_eq!(Reserve::new(1 << 20, Path::new("/nowhere/at/all")).step_after(1 << 40), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_lengthened_when_there_is_too_little() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, [7; 1000]).unwrap();
        let lengthen = |used, end| os::lengthen(file.as_file(), 100, used, end).unwrap();
        assert_eq!(lengthen(900, 200_000), 1000, "there is enough");
        assert_eq!(lengthen(901, 950), 1000, "that would be shorter");
        assert_eq!(lengthen(901, 200_000), 200_000);
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), 200_000);
        assert!(bytes.iter().take(1000).all(|byte| *byte == 7));
        assert!(bytes.iter().skip(1000).all(|byte| *byte == 0));
        let unwritable = File::open(&file).unwrap();
        assert!(os::lengthen(&unwritable, 100_000, 200_000, 300_000).is_err());
    }
}
