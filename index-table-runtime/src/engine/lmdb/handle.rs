//! Handles to an open environment.
//!
//! All handles share one reference of heed, so that a forked process can close the environment although handles exist that it
//! can't drop: they are on the stacks of threads that it does not have. heed is never called without a handle that was opened
//! here, and its static lock is only taken in a [`Whole`] section.

use std::{
    cell::UnsafeCell,
    fs, io,
    mem::{ManuallyDrop, transmute},
    ops::Deref,
    path::{Path, PathBuf},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst},
    },
    time::Duration,
};

use heed::{EnvOpenOptions, RoTxn, WithoutTls};

use crate::{
    engine::{
        DataFile,
        files::{DATA_FILE, FileId, id},
    },
    locks::fork::{self, Chain, Whole},
    model::error::{Error, Result},
};

/// The maximum time to wait for an environment to close. Unmapping a file takes less.
const CLOSING: Duration = Duration::from_secs(10);

const CUT: &str =
    "this process was forked while a thread opened or closed a store, and can open no stores";

/// A handle to an open environment, which is closed when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Env(Arc<Opened>);

struct Opened {
    env: UnsafeCell<ManuallyDrop<heed::Env<WithoutTls>>>,
    /// Whether the environment is closed.
    is_closed: AtomicBool,
    place: &'static Place,
}

#[expect(unsafe_code, reason = "the environment is dropped before its handles")]
// SAFETY: `heed::Env` may be sent and shared. It is dropped with a unique reference, or as `Env::close_inherited` says.
unsafe impl Sync for Opened {}

impl Deref for Env {
    type Target = heed::Env<WithoutTls>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        #[expect(unsafe_code, reason = "the environment is dropped before its handles")]
        // SAFETY: it is not closed, see `Env::close_inherited`.
        unsafe {
            &*self.0.env.get()
        }
    }
}

impl Env {
    /// Opens the environment in a directory.
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    pub(super) unsafe fn open(
        options: &EnvOpenOptions<WithoutTls>,
        directory: &Path,
    ) -> heed::Result<Self> {
        if fork::is_cut() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, CUT).into());
        }
        let _whole = Whole::begin();
        // SAFETY: the caller meets the conditions of this function.
        let env = unsafe { options.open(directory) }?;
        let place = Place::take(env.path());
        let env = UnsafeCell::new(ManuallyDrop::new(env));
        Ok(Self(Arc::new(Opened { env, is_closed: AtomicBool::new(false), place })))
    }

    /// Whether this process has inherited the environment in a fork.
    pub(super) fn is_inherited(&self) -> bool {
        self.0.place.forks != fork::forks()
    }

    /// Begins a read transaction that keeps its state while the environment is open.
    pub(super) fn pin(&self) -> heed::Result<Pin> {
        let txn = self.read_txn()?;
        #[expect(unsafe_code, reason = "the transaction would borrow from its own struct")]
        // SAFETY: the transaction borrows from the environment, whose place in memory does not change. The struct has a
        // handle, and drops the transaction first.
        let txn = unsafe { transmute::<RoTxn<'_, WithoutTls>, RoTxn<'static, WithoutTls>>(txn) };
        Ok(Pin { txn: ManuallyDrop::new(txn), env: self.clone() })
    }

    /// Closes the environment in a forked process, although there are other handles. LMDB changes nothing in the files then.
    ///
    /// The caller is the owner of the inherited store, and is about to drop it. The other handles belong to threads that this
    /// process doesn't have, or are never used again.
    pub(super) fn close_inherited(&self) {
        if self.is_inherited() {
            self.0.close();
        }
    }

    /// Closes the environment. No other handle may exist.
    pub(super) fn close(self) {
        let path = self.path().to_owned();
        drop(self);
        DataFile(&path).wait_until_closed();
    }
}

impl Opened {
    fn close(&self) {
        let _whole = Whole::begin();
        // Otherwise it stays open in this process, which can't use heed.
        if !fork::is_cut() && !self.is_closed.swap(true, SeqCst) {
            #[expect(unsafe_code, reason = "the environment is dropped before its handles")]
            // SAFETY: this is done once, and the callers ensure that it is not used any more.
            unsafe {
                ManuallyDrop::drop(&mut *self.env.get());
            }
            self.place.free();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.close();
    }
}

/// A read transaction. LMDB does not reuse the pages of its state until it is dropped.
pub(crate) struct Pin {
    txn: ManuallyDrop<RoTxn<'static, WithoutTls>>,
    env: Env,
}

impl Pin {
    pub(super) fn number(&self) -> u64 {
        self.txn.id() as u64
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Ending it in a forked process would end it in the parent too, because the reader slot is in shared memory.
        if !self.env.is_inherited() {
            #[expect(unsafe_code, reason = "the transaction is leaked in a forked process")]
            // SAFETY: it is dropped once, before the handle.
            unsafe {
                ManuallyDrop::drop(&mut self.txn);
            }
        }
    }
}

/// The open environments of this process and of its parents.
static OPEN: Chain<Place> = Chain::new();

/// The place of an environment in the list of open environments.
struct Place {
    /// The process of the place; see [`fork::forks`].
    forks: u32,
    /// Null if no environment has the place.
    directory: AtomicPtr<Directory>,
}

struct Directory {
    path: PathBuf,
    /// The number of the data file, on systems with such numbers.
    file: Option<FileId>,
}

impl Place {
    fn take(path: &Path) -> &'static Self {
        let directory = Directory { path: path.to_owned(), file: file_id(path) };
        let (directory, forks) = (Box::into_raw(Box::new(directory)), fork::forks());
        let free = ptr::null_mut();
        let take = |place: &&Self| {
            let take = || place.directory.compare_exchange(free, directory, SeqCst, SeqCst);
            place.forks == forks && take().is_ok()
        };
        let new = || OPEN.add(Self { forks, directory: AtomicPtr::new(directory) });
        OPEN.iter().find(take).unwrap_or_else(new)
    }

    #[expect(unsafe_code, reason = "a list that is read without a lock")]
    fn free(&self) {
        let directory = self.directory.swap(ptr::null_mut(), SeqCst);
        // Another thread of a forked process may read the path of an inherited environment.
        if self.forks == fork::forks() && !directory.is_null() {
            // SAFETY: it is from `Box::into_raw`, no place has it any more, and nothing reads it in its own process.
            drop(unsafe { Box::from_raw(directory) });
        }
    }
}

fn file_id(path: &Path) -> Option<FileId> {
    id(&fs::metadata(path.join(DATA_FILE)).ok()?).ok()
}

impl DataFile<'_> {
    /// Refuses the directory of an environment that this process has inherited in a fork and not closed, without a lock.
    /// Refuses each directory if heed can't be used in this process. The path is canonical.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]
    #[expect(unsafe_code, reason = "a list that is read without a lock")]
    pub(crate) fn refuse_inherited(self) -> Result<()> {
        fork::watch();
        let Self(path) = self;
        let file = file_id(path);
        let is_open = |place: &Place| {
            let is_inherited = place.forks != fork::forks();
            let directory =
                if is_inherited { place.directory.load(SeqCst) } else { ptr::null_mut() };
            // SAFETY: the value was whole at the fork, and a forked process does not free it.
            let directory = unsafe { directory.as_ref() };
            directory
                .is_some_and(|own| own.path == path || (own.file.is_some() && own.file == file))
        };
        if fork::is_cut() || OPEN.iter().any(is_open) {
            return Err(Error::Forked { path: path.to_owned() });
        }
        Ok(())
    }

    /// Whether this process has it open.
    pub(crate) fn is_open(self) -> bool {
        closing(self.0).is_some()
    }

    /// Waits for the thread that drops the last handle to it.
    pub(crate) fn wait_until_closed(self) {
        if let Some(closing) = closing(self.0)
            && self.refuse_inherited().is_ok()
        {
            closing.wait_timeout(CLOSING);
        }
    }
}

fn closing(path: &Path) -> Option<heed::EnvClosingEvent> {
    if fork::is_cut() {
        return None;
    }
    let _whole = Whole::begin();
    heed::env_closing_event(path)
}
