//! Commits of several shards, as processes see them that only read.
//!
//! Such a commit becomes visible in one shard after another. The file `writer.lock` of the shard map manager counts these
//! commits in two numbers: how many have begun to become visible, and how many have ended. The writer changes the numbers. A reader takes its snapshots when the numbers are equal, and takes them again if the first number has changed
//! meanwhile. So it sees a commit in all of its shards or in none.
//!
//! If the writer is killed between the two, the numbers stay different until the next writer has opened the store, which
//! completes the commit by the journal. Until then, readers that have the store open can't take snapshots. If no shard
//! needs the journal, there is nothing to complete.
//!
//! A third number counts how often a shard was replaced: by its backup, or by files that come from elsewhere. The global indexes
//! are then emptied and built again, and a reader may still have the lost files open. So a reader that has opened the store
//! before has to open it again.
//!
//! The numbers are not synced. After a power failure, the next process is alone, and recovers all shards.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Engine, WriterLock};
use crate::{
    locks::Mutex,
    model::error::{Error, Result},
};

/// The maximum time to wait for a commit that becomes visible.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time after which a reader looks whether the writer has ended.
const SOON: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_micros(200);

/// The offset of the number of commits that have begun to become visible.
const BEGUN: u64 = 0;
/// The offset of the number of commits that have ended.
const ENDED: u64 = 8;
/// The offset of the number of times that a shard was replaced.
const REPLACED: u64 = 16;

/// The numbers in the process that writes the store.
pub(crate) struct Announced {
    lock: WriterLock,
    numbers: Mutex<(u64, u64)>,
}

impl Announced {
    pub(super) fn new(lock: WriterLock) -> Self {
        // The process before may have ended in between. An earlier release has written no numbers.
        let number = |offset| os::read(lock.file(), offset).unwrap_or_default();
        let last = number(BEGUN).max(number(ENDED));
        Self { lock, numbers: Mutex::new((last, last)) }
    }

    /// Announces that a commit is about to become visible in its first shard.
    pub(crate) fn begin(&self) {
        let (begun, _) = &mut *self.numbers.lock();
        *begun += 1;
        // The bytes are in the system's cache, so a write does not fail.
        let _ = os::write(self.lock.file(), BEGUN, *begun);
    }

    /// Announces that a commit is visible in all of its shards.
    pub(crate) fn end(&self) {
        let (_, ended) = &mut *self.numbers.lock();
        *ended += 1;
        let _ = os::write(self.lock.file(), ENDED, *ended);
    }

    /// Announces that a shard was replaced.
    fn replaced(&self) {
        let _numbers = self.numbers.lock();
        let number = os::read(self.lock.file(), REPLACED).unwrap_or_default();
        let _ = os::write(self.lock.file(), REPLACED, number + 1);
    }
}

/// The numbers in a process that reads the store while another process may write it.
pub(crate) struct Observed {
    /// The lock file of the writer.
    path: PathBuf,
    file: OnceLock<File>,
    /// A number of commits that have begun, the last of which can't become visible in more shards.
    settled: AtomicU64,
    /// The number of times that a shard was replaced before this process opened the store.
    replaced: u64,
}

impl Observed {
    /// Reads the numbers. Called before the shards are opened.
    pub(crate) fn new(lock: PathBuf) -> Self {
        let settled = AtomicU64::new(u64::MAX);
        let mut observed = Self { path: lock, file: OnceLock::new(), settled, replaced: 0 };
        observed.replaced = observed.replaced_now().unwrap_or_default();
        observed
    }

    fn replaced_now(&self) -> io::Result<u64> {
        self.file().map_or(Ok(0), |file| os::read(file, REPLACED))
    }

    /// Returns the lock file. If it does not exist, no process has written the store; if it can't be read, no numbers are
    /// compared.
    fn file(&self) -> Option<&File> {
        if self.file.get().is_none() {
            let _ = self.file.set(File::open(&self.path).ok()?);
        }
        self.file.get()
    }

    fn numbers(&self) -> io::Result<(u64, u64)> {
        let Some(file) = self.file() else { return Ok((0, 0)) };
        // The number that follows the other is read first.
        let ended = os::read(file, ENDED)?;
        Ok((os::read(file, BEGUN)?, ended))
    }

    /// Whether no process writes the store.
    fn has_no_writer(&self) -> bool {
        let Some(file) = self.file() else { return false };
        let is_free = file.try_lock_shared().is_ok();
        if is_free {
            let _ = file.unlock();
        }
        is_free
    }
}

impl Engine {
    /// Takes snapshots of all shards. If another process may write the store, repeats `take` until no commit has become
    /// visible meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]: the writer has ended while a commit became visible.
    pub(super) fn between_commits<T>(&self, take: impl Fn() -> Result<T>) -> Result<T> {
        let Some(observed) = &self.observed else { return take() };
        let since = Instant::now();
        loop {
            let number = self.settled_number(observed, since)?;
            let taken = take()?;
            let (begun, _) = observed.numbers().map_err(|source| self.unread(source))?;
            if begun == number {
                return Ok(taken);
            }
            drop(taken);
            if since.elapsed() >= PATIENCE {
                return Err(self.unread(io::ErrorKind::ResourceBusy.into()));
            }
        }
    }

    /// Announces to readers that a shard was replaced, before a commit that shows it.
    pub(crate) fn announce_replaced(&self) {
        if let Some(announced) = self.manager().and_then(super::Manager::announced) {
            announced.replaced();
        }
    }

    /// Fails in a reader if another process has replaced a shard since this process opened the store. Called after a snapshot was
    /// taken.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]
    pub(super) fn check_replaced(&self) -> Result<()> {
        let Some(observed) = &self.observed else { return Ok(()) };
        let now = observed.replaced_now().map_err(|source| self.unread(source))?;
        if now == observed.replaced {
            return Ok(());
        }
        let reason = "another process has restored one of its shards";
        Err(Error::ReopenNeeded { path: self.directory(), reason })
    }

    /// Waits until no commit is becoming visible. Returns the number of commits that have begun.
    fn settled_number(&self, observed: &Observed, since: Instant) -> Result<u64> {
        loop {
            let (begun, ended) = observed.numbers().map_err(|source| self.unread(source))?;
            if begun == ended || observed.settled.load(Relaxed) == begun {
                return Ok(begun);
            }
            let elapsed = since.elapsed();
            // The numbers are read again, because the writer may have changed them before it has ended.
            if elapsed >= SOON
                && observed.has_no_writer()
                && observed.numbers().is_ok_and(|numbers| numbers == (begun, ended))
            {
                if self.needs_journal() {
                    let reason = "a process was killed while a commit became visible in its shards; open it for \
                                  writing, which completes the commit";
                    return Err(Error::ReopenNeeded { path: self.directory(), reason });
                }
                observed.settled.store(begun, Relaxed);
            } else if elapsed >= PATIENCE {
                return Err(self.unread(io::ErrorKind::ResourceBusy.into()));
            } else {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Whether the data file of a shard may lack commits of the journal.
    fn needs_journal(&self) -> bool {
        self.engines().any(crate::engine::Engine::needs_journal)
    }

    #[cold]
    fn unread(&self, source: io::Error) -> Error {
        Error::Io { path: self.directory(), source }
    }
}

#[cfg(unix)]
mod os {
    use std::{fs::File, io, os::unix::fs::FileExt as _};

    /// Returns the number at an offset; 0 after the end of the file.
    pub(super) fn read(file: &File, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match file.read_exact_at(&mut bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read.map(|()| u64::from_le_bytes(bytes)),
        }
    }

    pub(super) fn write(file: &File, offset: u64, number: u64) -> io::Result<()> {
        file.write_all_at(&number.to_le_bytes(), offset)
    }
}

/// Other systems prevent reads of a file that another process has locked.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
mod os {
    use std::{fs::File, io};

    pub(super) fn read(_: &File, _: u64) -> io::Result<u64> {
        Ok(0)
    }

    pub(super) fn write(_: &File, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::locks::Unshared;

    #[test]
    fn the_numbers_have_the_documented_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("writer.lock");
        let observed = Observed::new(path.clone());
        assert_eq!(observed.numbers().expect("numbers"), (0, 0));
        for ends in [true, false] {
            let mut open = File::options();
            let file = open.read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.expect("a file");
            let announced = Announced::new(WriterLock::new(Unshared::new(&file), file));
            // The second process continues after the numbers of the first.
            for _ in if ends { 0..257 } else { 257..258 } {
                announced.begin();
                if ends {
                    announced.end();
                }
            }
        }
        assert_eq!(observed.numbers().expect("numbers"), (258, 257));
        let documented = |length: usize| {
            let bytes = std::fs::read(&path).expect("the file");
            assert_eq!(bytes.len(), length);
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
            let format = include_str!("../../../../docs/FORMAT.md");
            assert!(format.contains(&format!("`{hex}`")), "{hex}");
        };
        documented(16);
        let mut open = File::options();
        let file = open.read(true).write(true).open(&path).expect("a file");
        let announced = Announced::new(WriterLock::new(Unshared::new(&file), file));
        (0..3).for_each(|_| announced.replaced());
        assert_eq!((observed.replaced, observed.replaced_now().expect("a number")), (0, 3));
        assert_eq!(Observed::new(path.clone()).replaced, 3);
        documented(24);
    }
}
