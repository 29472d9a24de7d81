//! The parts of an open environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    durable::OpenedAs,
    gate::{Gate, Kind},
    growth::Growth,
    journal::member::Member,
    names::{Database, Env},
    opened::Files,
    slots,
    space::Seen,
    turn::Writing,
};
use crate::{
    engine::latest::Latest,
    locks::{Mutex, RwLock, fork, rank},
    model::{
        error::{Error, Result},
        lists::Registry,
    },
};

/// An open environment. Its path is canonical.
pub(crate) struct Engine {
    pub(super) path: PathBuf,
    /// The value of [`fork::forks`] when the store was opened.
    pub(super) forks: u32,
    /// Whether the options were read-only, or the store follows an archive.
    pub(super) read_only: AtomicBool,
    pub(super) opened_as: OpenedAs,
    pub(super) max_databases: u32,
    pub(super) max_readers: u32,
    /// The gate of all transactions, and of all other accesses to the map, with the open files.
    pub(super) gate: Gate<Files>,
    pub(super) map_size: AtomicUsize,
    pub(super) max_map_size: usize,
    /// The handle to the catalog, once this process has one.
    pub(super) catalog: OnceLock<Database<'static>>,
    /// The handle to the names of the databases.
    pub(super) main: OnceLock<Database<'static>>,
    /// The handle to the second copies of the records of lists, once this process has one.
    pub(super) copies: OnceLock<Database<'static>>,
    /// Whether the pages of these copies were damaged when the file was opened. Then, LMDB must not read them.
    pub(super) has_damaged_copies: AtomicBool,
    /// The databases with a handle in LMDB. New transactions can read only these.
    pub(super) known: Mutex<BTreeSet<String>>,
    /// The lock that this process's write transaction holds, so that one thread at a time waits for LMDB's lock.
    pub(super) writing: Mutex<Writing, rank::Turn>,
    /// The number of threads that wait for this lock.
    pub(super) waiting: AtomicUsize,
    /// The journal, if this process writes one: its own, or after the store has grown, that of all shards.
    pub(super) journal: Latest<Member>,
    /// Whether the process that wrote the store before has ended without closing it.
    pub(super) was_left: bool,
    /// What a reader knows of the growth of the store.
    pub(super) growth: Growth,
    /// The lists of the store's tables.
    pub(super) lists: RwLock<Option<Arc<Registry>>>,
    /// The generation of the lists that the file has.
    pub(super) kept: AtomicU64,
    /// The tables of which this process has seen the lists in the file, with the beginnings of the names of their databases.
    pub(super) kept_tables: Mutex<BTreeMap<&'static str, String>>,
    /// The read transactions of other processes.
    pub(super) seen: Mutex<Seen>,
    /// Whether this is a shard that has not joined the journal of all shards yet, and can't be written.
    pub(super) is_joining: AtomicBool,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let journal = mem::take(&mut self.journal);
        if self.is_inherited() {
            // It belongs to the parent.
            mem::forget(journal);
            if let Some(files) = self.gate.inside_mut() {
                files.env.close_inherited();
            }
            return;
        }
        slots::forget_tables(&self.path);
        // Otherwise, it has left the journal, which may have the shard again, in another environment.
        if let Some(member) = journal.get().filter(|_| !self.gate.is_retired()) {
            let mut writing = self.writing.lock();
            *writing = Writing::default();
            member.close(self.can_write());
        }
    }
}

impl Engine {
    /// Returns an error in a child process: LMDB's locks and reader slots belong to the process that opened the
    /// store.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.path.clone() });
        }
        Ok(())
    }

    /// Whether the map is being replaced. Then, a transaction waits until it begins.
    #[cfg(feature = "async")]
    pub(crate) fn is_replacing(&self) -> bool {
        self.gate.is_closed()
    }

    pub(super) fn is_inherited(&self) -> bool {
        fork::forks() != self.forks
    }

    /// Returns the number of read transactions of this process, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        self.gate.readers()
    }

    /// Whether a thread of this process waits for its turn to write, or would soon have to wait for a checkpoint.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            || self.journal.get().is_some_and(Member::is_behind)
    }

    /// Returns the size of the map in bytes.
    pub(crate) fn map_size(&self) -> usize {
        self.map_size.load(Ordering::Relaxed)
    }

    /// Returns the environment. The caller must be inside the gate.
    pub(super) fn env(&self) -> Result<&Env> {
        self.files().map(|files| &files.env)
    }

    /// Returns the open files. The caller must be inside the gate.
    #[inline]
    pub(super) fn files(&self) -> Result<&Files> {
        self.gate.inside().ok_or_else(|| self.retired())
    }

    /// Closes the environment as soon as no transaction uses it. No transaction begins after this call.
    pub(crate) fn close_when_unused(&self) {
        self.gate.retire();
    }

    /// Lets transactions begin again in an environment that is about to be closed. Returns false if it is closed.
    pub(crate) fn stay_open(&self) -> bool {
        self.gate.reopen()
    }

    /// Whether the environment is closed, or will be when its last transaction ends.
    pub(crate) fn is_leaving(&self) -> bool {
        self.gate.is_retired()
    }

    /// Whether the environment is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_gone()
    }

    /// Returns the number of bytes up to the end of the last page in use. The caller must be inside the gate.
    pub(super) fn used(&self) -> usize {
        let Ok(env) = self.env() else { return 0 };
        let pages = env.info().last_page_number + 1;
        pages * env.unnamed_database_stat().page_size as usize
    }

    /// Sets the place of the turn to write among the turns of all shards.
    pub(crate) fn set_place(&self, place: u64) {
        self.writing.set_number(place);
    }

    /// Whether LMDB can begin a write transaction. The caller has the turn to write.
    pub(super) fn can_write(&self) -> bool {
        // LMDB reads the map. A failed growth has unmapped it.
        let Ok(_pass) = self.gate.enter(Kind::Writer) else { return false };
        self.env().is_ok_and(|env| env.write_txn().is_ok())
    }

    /// Returns the directory of the files.
    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }
}
