//! Properties of the process that the operating system defines, and the open engines of this process.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) use os::{
    file_limit, has_address_space, is_eio, is_read_only, limit, page_size, space, write_back,
};

/// The space of a disk, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    /// For users without privileges.
    pub(super) available: u64,
    /// For all users.
    pub(super) free: u64,
    /// The bytes of the disk; `None` if the system does not tell, or the disk is read-only.
    pub(super) total: Option<u64>,
}

/// A limit of the process that a call has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// There is not enough address space.
    AddressSpace,
    /// The limit of open files.
    Files(u64),
}

/// An engine that this process has open.
pub(super) struct Counted {
    /// The number of engines before it.
    pub(super) others: usize,
}

static OPEN: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    pub(super) fn new() -> Self {
        Self { others: OPEN.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
mod os {
    #[cfg(target_os = "linux")]
    use std::fs;
    use std::{
        ffi::CString,
        fs::File,
        io,
        mem::MaybeUninit,
        os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _},
        path::Path,
        ptr,
    };

    use super::{Limit, Space};

    /// Whether a map of this size is possible.
    pub(in crate::engine::lmdb) fn has_address_space(bytes: usize) -> bool {
        let (protection, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping without access, at an address of the system's choice, which no other code
        // uses and which is unmapped with the same bounds.
        unsafe {
            let at = libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0);
            at != libc::MAP_FAILED && libc::munmap(at, bytes) == 0
        }
    }

    /// Returns the size of a memory page, in bytes.
    pub(in crate::engine::lmdb) fn page_size() -> usize {
        // SAFETY: the call only returns a number.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
    }

    pub(in crate::engine::lmdb) fn is_eio(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EIO)
    }

    /// Returns the maximum length of a file of this process. A write beyond it may end the process by a signal.
    pub(in crate::engine::lmdb) fn file_limit() -> u64 {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is this function's own.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
        #[allow(clippy::useless_conversion, reason = "it is narrower on some systems")]
        if known { limit.rlim_cur.into() } else { u64::MAX }
    }

    /// Whether no process can write to the file system of this file: it is read-only as a whole, and not only
    /// in the mount of this process.
    #[cfg(target_os = "linux")]
    pub(in crate::engine::lmdb) fn is_read_only(file: &File) -> io::Result<bool> {
        let read =
            |path: &str| Ok::<_, io::Error>(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        let of_file = read(&format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let mount = of_file.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let mounts = read("/proc/self/mountinfo")?;
        let mount = mounts.lines().find(|line| line.split(' ').next() == mount);
        // The type, the source and the options of the file system follow a dash.
        let options = mount.and_then(|mount| mount.split_once(" - ")?.1.split(' ').nth(2));
        Ok(options.is_some_and(|options| options.split(',').any(|option| option == "ro")))
    }

    /// Whether no process can write to the file system of this file.
    #[cfg(not(target_os = "linux"))]
    pub(in crate::engine::lmdb) fn is_read_only(file: &File) -> io::Result<bool> {
        let mut found = MaybeUninit::uninit();
        // SAFETY: the file is open, and the call fills the struct unless it fails.
        let found = unsafe {
            if libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            found.assume_init()
        };
        Ok(found.f_flag & libc::ST_RDONLY != 0)
    }

    /// Returns the space of the disk of a directory; `None` if it is not known.
    pub(in crate::engine::lmdb) fn space(directory: &Path) -> Option<Space> {
        let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero, and the call fills the struct unless it fails.
        let found = unsafe {
            if libc::statvfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
                return None;
            }
            found.assume_init()
        };
        #[allow(clippy::useless_conversion, reason = "the numbers are narrower on some systems")]
        let [block, available, free, total] = [
            u64::from(found.f_frsize),
            u64::from(found.f_bavail),
            u64::from(found.f_bfree),
            u64::from(found.f_blocks),
        ];
        let bytes = |blocks: u64| blocks.saturating_mul(block);
        let is_known = total > 0 && found.f_flag & libc::ST_RDONLY == 0;
        let total = is_known.then(|| bytes(total));
        Some(Space { available: bytes(available), free: bytes(free), total })
    }

    /// Writes the changed pages of a part of a file to the disk and waits for them. This is no sync: the disk may keep
    /// the data in its own memory. Returns false if the system does not offer it.
    #[cfg(target_os = "linux")]
    pub(in crate::engine::lmdb) fn write_back(
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> io::Result<bool> {
        let (Ok(offset), Ok(bytes)) = (offset.try_into(), bytes.try_into()) else {
            return Ok(false);
        };
        let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: the file is open for the length of the call, which changes no memory.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::EOPNOTSUPP) => Ok(false),
            _ => Err(error),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(in crate::engine::lmdb) fn write_back(_: &File, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns the limit of this process that caused this error of a call.
    pub(in crate::engine::lmdb) fn limit(error: &io::Error) -> Option<Limit> {
        match error.raw_os_error()? {
            libc::ENOMEM => Some(Limit::AddressSpace),
            libc::EMFILE => {
                let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: the limit is this function's own.
                unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
                #[allow(clippy::useless_conversion, reason = "it is narrower on some systems")]
                Some(Limit::Files(limit.rlim_cur.into()))
            }
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn reservations_beyond_the_address_space_fail() {
            assert!(has_address_space(1 << 16));
            assert!(!has_address_space(usize::MAX & !0xFFFF));
        }
    }
}

/// For systems without fork.
#[cfg(not(unix))]
mod os {
    pub(in crate::engine::lmdb) const fn has_address_space(_: usize) -> bool {
        true
    }

    pub(in crate::engine::lmdb) fn is_read_only(_: &std::fs::File) -> std::io::Result<bool> {
        Ok(false)
    }

    pub(in crate::engine::lmdb) const fn limit(_: &std::io::Error) -> Option<super::Limit> {
        None
    }

    /// Returns a multiple of the page size of every such system.
    pub(in crate::engine::lmdb) const fn page_size() -> usize {
        1 << 16
    }

    pub(in crate::engine::lmdb) const fn is_eio(_: &std::io::Error) -> bool {
        false
    }

    pub(in crate::engine::lmdb) const fn file_limit() -> u64 {
        u64::MAX
    }

    pub(in crate::engine::lmdb) const fn space(_: &std::path::Path) -> Option<super::Space> {
        None
    }

    pub(in crate::engine::lmdb) fn write_back(
        _: &std::fs::File,
        _: u64,
        _: u64,
    ) -> std::io::Result<bool> {
        Ok(false)
    }
}
