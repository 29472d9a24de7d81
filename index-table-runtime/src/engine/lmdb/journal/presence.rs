//! Locks that show which processes have the store open, which of them may write, and which writes its journal.
//!
//! | lock | on | held by |
//! |---|---|---|
//! | the turn | `data.mdb`, exclusive | a process that opens the store, until it has opened it |
//! | the presence | the directory, exclusive or shared | each process that has the store open; exclusive only if it is alone and has the turn |
//! | the mark of a reader | a byte of the directory, shared | a process that opened the store read-only |
//! | the mark of a writer | another byte of the directory, shared | every other process that opened the store |
//! | LMDB's byte of a process | `lock.mdb`, exclusive | each process that has read the store, and so each process with the presence |
//! | the journal | `journal.0`, exclusive | the process that writes the journal, until it has closed the store |
//! | the store with shards | `writer.lock`, exclusive | the process that writes the shards, or a reader that recovers them |
//!
//! The system releases all of them when the process ends. LMDB's locks alone are not enough: a process loses them when it
//! closes another descriptor of the file, and they don't cover the time before LMDB has opened the file. The presence alone
//! is not enough either, because it does not distinguish readers from processes that write without a journal.
//!
//! # Who may write
//!
//! The bytes of the marks have the number of the process in their offsets (`docs/FORMAT.md`, "Locks"). A process with LMDB's
//! byte counts as a reader if it has the mark of a reader and not that of a writer. All others may write: an earlier release,
//! which has no mark; a program without this crate; a process on a system without such locks. So an unknown process is never
//! taken for a reader. A forked process inherits marks but not LMDB's byte, so it does not count, and it can't write. If it
//! still has the mark of its ended parent, and another process gets the parent's number, that process has its own mark of a
//! writer too.
//!
//! # Each pair of processes
//!
//! The marker of the data file is "none", "clean" or "needed". A process that writes without a journal has the store open
//! only with "none": it gives the journal up first, and no journal starts while it has the store open. A process that writes
//! the journal has the store open with "needed". So the marker and the locks together show what the others do:
//!
//! | opened by, beside | nobody | readers only | a process that may write without a journal | the writer of the journal |
//! |---|---|---|---|---|
//! | a reader | recovers if "needed" | opens: without a power failure, LMDB's last state has all acknowledged commits | opens | opens |
//! | a writer without a journal | recovers if "needed"; gives the journal up | starts and closes the journal if "needed"; gives it up | opens | is refused |
//! | a writer with a journal | recovers if "needed"; starts the journal | starts the journal | is refused | is refused |
//!
//! Only a process that is alone rewinds the data file to a checkpoint, in a recovery. Nothing is rewound beside others: the
//! start of a journal makes LMDB's last state the checkpoint, and then applies the records after it.
//!
//! # After a kill or a power failure
//!
//! | at | the next process finds |
//! |---|---|
//! | the recovery | "needed", and the same checkpoint and records; or "clean" |
//! | giving up | "clean", and a journal of which some checkpoints are given up, which is not applied; or "none", and files that are ignored |
//! | the start | the marker of before, since the segment of the new checkpoint follows all others; or "needed" with the new checkpoint |
//! | the close | "needed", and the last checkpoint and its records; or "clean" |
//!
//! Each state is one that a process that is alone, or beside readers, can open in the table above.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use super::weaken;
use crate::{engine::lmdb::lock, locks::Unshared};

/// The pauses before a process without a mark is looked at again.
const LOOKS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

/// The access of this process to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Access {
    Read,
    Write,
}

/// The other processes that have the store open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Others {
    /// There are none.
    None,
    /// None of them writes.
    Readers,
    /// One of them may write: the process with this id, if it is known.
    Writer(Option<u32>),
}

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

    /// Marks this process for others, as a reader or as a writer. Where there are no such locks, it has no mark, and counts
    /// as a writer.
    pub(in crate::engine::lmdb) fn mark(&self, access: Access) {
        if let Some((_, directory)) = &self.directory {
            marks::set(directory, access, std::process::id());
        }
    }

    /// Returns the other processes that have the store open. The caller has the turn to open the store, and LMDB has not
    /// opened the lock file in this process.
    pub(in crate::engine::lmdb) fn others(&mut self, path: &Path) -> io::Result<Others> {
        let Some((_, directory)) = &self.directory else { return Ok(Others::Writer(None)) };
        let others = lock::processes(path)?;
        if !others.is_empty() {
            let writer = writer_among(path, directory, others)?;
            return Ok(writer.map_or(Others::Readers, |id| Others::Writer(Some(id))));
        }
        // A program without this crate may have the store open, and may write without a read.
        if lock::is_held(path)? {
            return Ok(Others::Writer(None));
        }
        // Another process may have had the lock without opening the store, to see whether a process has it open.
        self.alone = self.alone || directory.try_lock().is_ok();
        if !self.alone {
            // A forked process has the lock of its parent.
            self.share()?;
        }
        Ok(if self.alone { Others::None } else { Others::Readers })
    }
}

/// Returns the id of a process that may write the store in a directory. This process does not have it open.
pub(in crate::engine::lmdb) fn writer_of(path: &Path) -> Option<u32> {
    let directory = File::open(path).ok()?;
    writer_among(path, &directory, lock::processes(path).ok()?).ok()?
}

/// Returns the first of these processes that may write. A process that ends, or closes the store, loses LMDB's lock and its mark
/// one after the other, in any order. So a process without a mark is looked at again.
fn writer_among(path: &Path, directory: &File, mut others: Vec<u32>) -> io::Result<Option<u32>> {
    let is_reader = |id| weaken::is("without-marks") || marks::is_reader(directory, id);
    others.retain(|id| !is_reader(*id));
    for pause in LOOKS {
        if others.is_empty() {
            break;
        }
        thread::sleep(pause);
        let open = lock::processes(path)?;
        others.retain(|id| open.contains(id) && !is_reader(*id));
    }
    Ok(others.first().copied())
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some((unshared, directory)) = &self.directory
            && !unshared.is_inherited()
        {
            // A process that another thread is starting has the directory open too, so closing it does not release the lock.
            marks::remove(directory);
            let _ = directory.unlock();
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// The lock of a writer, with its file.
pub(super) struct WriterLock {
    /// Dropped before the file is closed.
    _unshared: Unshared,
    file: Arc<File>,
}

impl WriterLock {
    /// Takes the lock. Returns `None` if another process has it.
    pub(super) fn take(file: File) -> io::Result<Option<Self>> {
        Ok(lock_writer(&file)?.map(|unshared| Self::of(unshared, Arc::new(file))))
    }

    /// Returns the lock that was taken on this file.
    pub(super) const fn of(unshared: Unshared, file: Arc<File>) -> Self {
        Self { _unshared: unshared, file }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // A process that another thread is starting has the file open too, so closing it does not release the lock.
        let _ = self.file.unlock();
    }
}

/// The lock of a writer until its journal has started, or is given up.
pub(super) struct FileLock<'f> {
    /// Dropped before the file is closed.
    _unshared: Unshared,
    file: &'f File,
    is_kept: bool,
}

impl<'f> FileLock<'f> {
    /// Takes the lock. Returns `None` if another process has it.
    pub(super) fn take(file: &'f File) -> io::Result<Option<Self>> {
        Ok(lock_writer(file)?.map(|unshared| Self { _unshared: unshared, file, is_kept: false }))
    }

    /// Leaves the file locked. Another descriptor of it stays open.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // A process that another thread is starting has the file open too, so closing it does not release the lock.
            let _ = self.file.unlock();
        }
    }
}

/// Takes the lock of the journal. Returns `None` if another process has it. The result must be dropped before the file is closed.
pub(super) fn lock_writer(first: &File) -> io::Result<Option<Unshared>> {
    let unshared = Unshared::new(first);
    loop {
        return match first.try_lock() {
            Ok(()) => Ok(Some(unshared)),
            Err(TryLockError::WouldBlock) if weaken::is("without-lock") => Ok(Some(unshared)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) if is_interrupted(&error) => continue,
            Err(TryLockError::Error(error)) => Err(error),
        };
    }
}

/// The marks of processes. They are locks of the open file and not of the process, so closing another descriptor of the
/// directory does not release them.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod marks {
    use std::{fs::File, ops::Range};

    use super::{Access, lock};

    /// The offset of the mark of process 0.
    const fn first(access: Access) -> libc::off_t {
        match access {
            Access::Read => 1 << 28,
            Access::Write => 1 << 29,
        }
    }

    /// Returns the byte of the mark; `None` if the number of the process is too large for it.
    fn byte(access: Access, process: u32) -> Option<Range<libc::off_t>> {
        let process = libc::off_t::from(i32::try_from(process).ok().filter(|it| *it < 1 << 28)?);
        let at = first(access) + process;
        Some(at..at + 1)
    }

    pub(super) fn set(directory: &File, access: Access, process: u32) {
        if let Some(byte) = byte(access, process) {
            let _ = lock::request(directory, libc::F_OFD_SETLK, libc::F_RDLCK as _, byte);
        }
    }

    pub(super) fn remove(directory: &File) {
        let all = first(Access::Read)..first(Access::Write) << 1;
        let _ = lock::request(directory, libc::F_OFD_SETLK, libc::F_UNLCK as _, all);
    }

    /// Whether another process has the mark of a reader only.
    pub(super) fn is_reader(directory: &File, process: u32) -> bool {
        let has = |access| {
            let byte = byte(access, process)?;
            let found = lock::found(directory, libc::F_OFD_GETLK, byte).ok()?;
            Some(found.is_some())
        };
        has(Access::Read) == Some(true) && has(Access::Write) == Some(false)
    }
}

/// There are no marks on systems where they were not tested.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod marks {
    use std::fs::File;

    use super::Access;

    pub(super) const fn set(_: &File, _: Access, _: u32) {}

    pub(super) const fn remove(_: &File) {}

    pub(super) const fn is_reader(_: &File, _: u32) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    use crate::engine::{Options, lmdb::Engine};

    #[test]
    fn the_lock_of_a_writer_ends_while_a_started_process_has_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.0");
        let mut options = File::options();
        let open = options.read(true).write(true).create(true).truncate(false);
        let file = open.open(&path).expect("a file");
        let inherited = file.try_clone().expect("a descriptor");
        let lock = WriterLock::take(file).expect("a lock");
        let other = open.open(&path).expect("a file");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        other.try_lock().expect("the lock");
        drop(inherited);
    }

    #[test]
    fn a_journal_that_is_not_started_leaves_no_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.0");
        let mut options = File::options();
        let open = options.read(true).write(true).create(true).truncate(false);
        for is_started in [false, true] {
            let file = open.open(&path).expect("a file");
            let inherited = file.try_clone().expect("a descriptor");
            let lock = FileLock::take(&file).expect("a lock").expect("the lock");
            if is_started {
                lock.keep();
            } else {
                drop(lock);
            }
            drop(file);
            let other = open.open(&path).expect("a file");
            assert_eq!(other.try_lock().is_ok(), !is_started);
            drop(inherited);
        }
    }

    const CHILD: &str = "INDEX_TABLE_PRESENCE";

    /// Opens and closes the store in a child process until it is killed.
    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn a_child_process_opens_and_closes() {
        let Some(path) = std::env::var_os(CHILD).map(std::path::PathBuf::from) else { return };
        println!("begun");
        loop {
            let options = Options { read_only: true, ..Options::default() };
            let opened = Engine::open(&options, &path);
            opened.map(drop).expect("a reader");
        }
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn a_reader_that_closes_the_store_is_not_taken_for_a_writer() {
        use std::{
            io::{BufRead as _, BufReader},
            process::{Command, Stdio},
            time::Instant,
        };

        let dir = tempfile::tempdir().expect("a directory");
        Engine::open(&Options::default(), dir.path()).map(drop).expect("a store");
        let test = "engine::lmdb::journal::presence::tests::a_child_process_opens_and_closes";
        let mut reader = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(reader.stdout.take().expect("its output"));
        assert!(output.lines().any(|line| line.is_ok_and(|line| line.ends_with("begun"))));
        let (began, mut writer) = (Instant::now(), None);
        while began.elapsed() < Duration::from_secs(2) && writer.is_none() {
            writer = writer_of(dir.path());
        }
        reader.kill().and_then(|()| reader.wait()).expect("the end of the process");
        assert_eq!(writer, None);
    }
}
