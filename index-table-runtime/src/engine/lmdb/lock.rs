//! Reserves space for the lock file before LMDB maps it.
//!
//! LMDB only sets the length of `lock.mdb`. A page of the file gets a block on the disk when a reader first writes to
//! it through the map. If the disk is full at that moment, the process ends with SIGBUS.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
};

use super::names::{FILE, LOCK_FILE};
use crate::engine::MOST;

/// The bytes of a reader's slot.
pub(super) const SLOT: u64 = 64;

/// The maximum length of the file, for the maximum number of readers.
const LONGEST: u64 = SLOT * (MOST as u64 + 64);

/// Creates the lock file if it is missing, with the mode of the data file, and reserves space for it.
/// The length and the contents of an existing file don't change, because another process may be using it.
///
/// This process must not have the file open, because it would lose its locks.
pub(super) fn reserve(directory: &Path, readers: u32) -> io::Result<()> {
    let path = directory.join(LOCK_FILE);
    let file = match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(directory, &path)?,
        outcome => outcome?,
    };
    let length = file.metadata()?.len();
    if length > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{LOCK_FILE} has {length} bytes; remove it while no process has the store open"
            ),
        ));
    }
    os::allocate(&file, length.max(os::header() + SLOT * u64::from(readers)))
}

/// Whether a process has LMDB's lock on the lock file. Each process that has the store open has this lock. This
/// process must not have the file open.
#[cfg(unix)]
pub(super) fn is_held(directory: &Path) -> io::Result<bool> {
    use std::os::fd::AsRawFd as _;

    let file = match open(&directory.join(LOCK_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    // SAFETY: all zeros are a lock, and the call fills it. The file is open.
    let lock = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        #[allow(clippy::cast_possible_truncation, reason = "they are small")]
        {
            lock.l_type = libc::F_WRLCK as _;
            lock.l_whence = libc::SEEK_SET as _;
        }
        lock.l_len = 1;
        if libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) != 0 {
            return Err(io::Error::last_os_error());
        }
        lock
    };
    Ok(i32::from(lock.l_type) != i32::from(libc::F_UNLCK as i16))
}

/// Returns false, because there are no journals on this system.
#[cfg(not(unix))]
pub(super) fn is_held(_: &Path) -> io::Result<bool> {
    Ok(true)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn create(directory: &Path, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = match options.open(path) {
        // Another process has created the file since the check.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return open(path),
        outcome => outcome?,
    };
    // All users of the data need the lock file too.
    if let Ok(data) = fs::metadata(directory.join(FILE)) {
        file.set_permissions(data.permissions())?;
    }
    Ok(file)
}

pub(super) use os::header;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod os {
    use std::{
        fs::File,
        io,
        os::{fd::AsRawFd, unix::fs::MetadataExt},
    };

    use super::SLOT;

    /// Returns the number of bytes before the slots: some numbers and a mutex, and a second mutex.
    pub(in crate::engine::lmdb) const fn header() -> u64 {
        let mutex = size_of::<libc::pthread_mutex_t>() as u64;
        let first = 16 + size_of::<usize>() as u64 + mutex;
        first.next_multiple_of(SLOT) + mutex.next_multiple_of(SLOT)
    }

    /// Allocates blocks for the first bytes of the file, even beyond its end. A file system that can't do
    /// this is not an error.
    pub(super) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
        // In units of 512 bytes.
        if file.metadata()?.blocks() * 512 >= bytes {
            return Ok(());
        }
        let bytes = bytes.try_into().map_err(|_| io::ErrorKind::FileTooLarge)?;
        loop {
            let (file, mode) = (file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE);
            #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
            // SAFETY: the file is open, and no memory is passed.
            let done = unsafe { libc::fallocate(file, mode, 0, bytes) } == 0;
            let error = if done { return Ok(()) } else { io::Error::last_os_error() };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::Unsupported => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

/// For systems where it was not tested.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod os {
    pub(in crate::engine::lmdb) const fn header() -> u64 {
        0
    }

    #[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
    pub(super) fn allocate(_: &std::fs::File, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}
