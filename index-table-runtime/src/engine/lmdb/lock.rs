//! Reserves space for the lock file before LMDB maps it.
//!
//! LMDB only sets the length of `lock.mdb`. A page of the file gets a block on the disk when a reader first writes to
//! it through the map. If the disk is full at that moment, the process ends with SIGBUS.

#[cfg(unix)]
use std::ops::Range;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::Path,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::{os::unix::fs::FileExt as _, process};

use super::names::{FILE, LOCK_FILE};
use crate::engine::{
    MOST,
    files::{FileId, number_of},
};

/// The bytes of a reader's slot.
pub(super) const SLOT: u64 = 64;

/// The maximum length of the file, for the maximum number of readers.
const LONGEST: u64 = SLOT * (MOST as u64 + 64);

/// Creates the lock file if it is missing and no other process has the store open (`alone`), with the mode of the data
/// file, and reserves space for it. The length and the contents of an existing file don't change, because another
/// process may be using it. Returns the file's number, on systems with such numbers.
///
/// This process must not have the file open, because it would lose its locks.
///
/// # Errors
///
/// The kind `NotFound` if the file is missing while another process has the store open. With another lock file, that
/// process would not see this one.
pub(super) fn reserve(directory: &Path, readers: u32, alone: bool) -> io::Result<Option<FileId>> {
    let path = directory.join(LOCK_FILE);
    let file = match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && alone => create(directory, &path)?,
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
    os::allocate(&file, length.max(os::header() + SLOT * u64::from(readers)))?;
    number_of(&file)
}

/// Frees the reader slots that an ended process with the id of this process has left. LMDB takes them for slots of this
/// process, and so never frees them.
///
/// Returns false if such a process has the store open: it is in another pid namespace, such as another container. LMDB
/// can't distinguish two processes with the same id. This process must not have the file open.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn claim_id(directory: &Path) -> io::Result<bool> {
    let file = open(&directory.join(LOCK_FILE))?;
    let own = process::id();
    // LMDB's lock of a process with readers. With it, no other process frees or takes slots of this id. It is released
    // when the file is closed.
    match locked(&file, own.into()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        // On this file system, LMDB has no such locks either.
        Err(_) => return Ok(true),
    }
    let (mut at, length) = (header(), file.metadata()?.len());
    let mut id = [0; 4];
    while at + SLOT <= length {
        let of_id = at + size_of::<usize>() as u64;
        file.read_exact_at(&mut id, of_id)?;
        if u32::from_ne_bytes(id) == own {
            file.write_all_at(&[0; 4], of_id)?;
        }
        at += SLOT;
    }
    Ok(true)
}

/// Does nothing on systems where the form of the lock file was not tested.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(super) const fn claim_id(_: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Whether a process has LMDB's lock on the lock file. Each process that has the store open has this lock. This
/// process must not have the file open.
#[cfg(unix)]
pub(super) fn is_held(directory: &Path) -> io::Result<bool> {
    let Some(file) = existing(directory)? else { return Ok(false) };
    Ok(found(&file, libc::F_GETLK, 0..1)?.is_some())
}

/// Returns the ids of the other processes that have the store open, in the order of the ids. LMDB locks the byte with the
/// number of the process before its first read, and each process of this crate reads while it opens the store. This
/// process must not have the file open.
#[cfg(unix)]
pub(super) fn processes(directory: &Path) -> io::Result<Vec<u32>> {
    let Some(file) = existing(directory)? else { return Ok(Vec::new()) };
    processes_of(&file)
}

/// Returns the ids of the other processes that have the store with this lock file open, in the order of the ids.
#[cfg(unix)]
pub(super) fn processes_of(file: &File) -> io::Result<Vec<u32>> {
    let mut left: Vec<_> = std::iter::once(1..libc::off_t::from(i32::MAX)).collect();
    let mut ids = Vec::new();
    while let Some(range) = left.pop().filter(|range| !range.is_empty()) {
        // The system returns any lock in the range.
        if let Some(lock) = found(file, libc::F_GETLK, range.clone())? {
            let end = lock.l_start.saturating_add(lock.l_len.max(1));
            ids.extend(u32::try_from(lock.l_start));
            left.extend(
                [range.start..lock.l_start, end..range.end].into_iter().filter(|it| !it.is_empty()),
            );
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

#[cfg(unix)]
fn existing(directory: &Path) -> io::Result<Option<File>> {
    match File::open(directory.join(LOCK_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

/// Returns a lock that would prevent an exclusive lock on these bytes of the file.
#[cfg(unix)]
pub(super) fn found(
    file: &File,
    command: libc::c_int,
    bytes: Range<libc::off_t>,
) -> io::Result<Option<libc::flock>> {
    let lock = request(file, command, libc::F_WRLCK as _, bytes)?;
    Ok(Some(lock).filter(|lock| i32::from(lock.l_type) != i32::from(libc::F_UNLCK as i16)))
}

/// Requests an exclusive lock on a byte of the file.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn locked(file: &File, byte: libc::off_t) -> io::Result<()> {
    request(file, libc::F_SETLK, libc::F_WRLCK as _, byte..byte + 1).map(drop)
}

/// Requests or tests a lock of this kind. Returns the lock that the system has filled in.
#[cfg(unix)]
pub(super) fn request(
    file: &File,
    command: libc::c_int,
    kind: libc::c_short,
    bytes: Range<libc::off_t>,
) -> io::Result<libc::flock> {
    use std::os::fd::AsRawFd as _;

    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    // SAFETY: all zeros are a lock, and the call may fill it. The file is open.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        #[allow(clippy::cast_possible_truncation, reason = "it is small")]
        {
            lock.l_whence = libc::SEEK_SET as _;
        }
        lock.l_type = kind;
        (lock.l_start, lock.l_len) = (bytes.start, bytes.end - bytes.start);
        if libc::fcntl(file.as_raw_fd(), command, &raw mut lock) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(lock)
    }
}

/// Returns true, because there are no journals on this system.
#[cfg(not(unix))]
pub(super) fn is_held(_: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Returns no process, because there are no journals on this system.
#[cfg(not(unix))]
pub(super) fn processes(_: &Path) -> io::Result<Vec<u32>> {
    Ok(Vec::new())
}

/// Returns the number of the last transaction in a lock file; 0 if LMDB has not written the file. No process has the store
/// open.
pub(super) fn last_number(path: &Path) -> io::Result<u64> {
    const MAGIC: u32 = 0xBEEF_C0DE;
    const AT: usize = 8;
    let mut first = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut first)?;
    let is_known = first.first_chunk().is_some_and(|magic| u32::from_ne_bytes(*magic) == MAGIC);
    let number = first.get(AT..).and_then(|rest| rest.first_chunk()).filter(|_| is_known);
    Ok(number.map_or(0, |number| usize::from_ne_bytes(*number) as u64))
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
