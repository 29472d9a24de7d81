//! Locks of files that a forked process does not keep.
//!
//! A lock of `File::lock` belongs to the open file, which a forked process shares. As long as any process has it open, the
//! file stays locked, although the process that locked it has ended. So at a fork, the descriptors of such files are replaced
//! in the child, before it does anything else.

use std::fs::File;

use super::fork;
#[cfg(unix)]
use super::fork::Chain;

#[cfg(unix)]
type Slot = std::sync::atomic::AtomicI32;

/// The descriptors of the locked files of this process, and [`FREE`] places. There are as many places as files were locked at
/// the same time.
#[cfg(unix)]
static LOCKED: Chain<Slot> = Chain::new();

#[cfg(unix)]
const FREE: i32 = -1;

/// A mark on a file that this process locks. It has to exist before the file is locked, and must be dropped before the file is
/// closed.
#[derive(Debug)]
pub(crate) struct Unshared {
    #[cfg(unix)]
    slot: &'static Slot,
    /// See [`fork::forks`].
    forks: u32,
}

impl Unshared {
    pub(crate) fn new(file: &File) -> Self {
        fork::watch();
        #[cfg(not(unix))]
        let _ = file;
        Self {
            #[cfg(unix)]
            slot: slot(std::os::fd::AsRawFd::as_raw_fd(file)),
            forks: fork::forks(),
        }
    }

    /// Whether this process was forked since. It has another file in the place of the locked one.
    pub(crate) fn is_inherited(&self) -> bool {
        self.forks != fork::forks()
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        #[cfg(unix)]
        if !self.is_inherited() {
            self.slot.store(FREE, std::sync::atomic::Ordering::SeqCst);
        }
    }
}

#[cfg(unix)]
fn slot(descriptor: i32) -> &'static Slot {
    use std::sync::atomic::Ordering::SeqCst;

    let is_taken = |slot: &&Slot| slot.compare_exchange(FREE, descriptor, SeqCst, SeqCst).is_ok();
    LOCKED.iter().find(is_taken).unwrap_or_else(|| LOCKED.add(Slot::new(descriptor)))
}

/// Replaces the locked files of the parent. Their descriptors stay valid, and lead to a file without meaning.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
pub(super) fn release_inherited() {
    use std::sync::atomic::Ordering::SeqCst;

    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let mut other = None;
    for slot in LOCKED.iter() {
        let descriptor = slot.swap(FREE, SeqCst);
        if descriptor == FREE {
            continue;
        }
        // SAFETY: these functions are allowed in the child of a process with threads, and the paths end with a zero byte. The
        // descriptor belongs to a file of this crate, which in this process only closes it. If no file can be opened, the
        // lock stays until this process ends.
        unsafe {
            let opened = *other.get_or_insert_with(|| {
                let null = libc::open(c"/dev/null".as_ptr(), flags);
                if null >= 0 { null } else { libc::open(c"/".as_ptr(), flags) }
            });
            if opened >= 0 && libc::dup2(opened, descriptor) >= 0 {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
    if let Some(opened) = other.filter(|opened| *opened >= 0) {
        // SAFETY: it was opened above, and nothing else has it.
        unsafe { libc::close(opened) };
    }
}
