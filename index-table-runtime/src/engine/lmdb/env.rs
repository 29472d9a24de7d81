//! An open environment: its parts, and their properties.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use super::{
    gate::{Gate, Kind},
    journal::{active::Active, pinned::Slots, presence::Presence},
    names::{Database, Env},
    process::{self, Counted},
    reserve::Reserve,
    turn::Writing,
};
use crate::model::error::{Error, Result};

/// Longer than it takes to unmap a directory.
const CLOSING: Duration = Duration::from_secs(10);

/// An open environment. Its path is canonical.
pub(crate) struct Engine {
    pub(super) env: Env,
    pub(super) path: PathBuf,
    /// See [`process::forks`].
    pub(super) forks: u32,
    /// Whether it was opened read-only.
    pub(super) read_only: bool,
    pub(super) max_databases: u32,
    pub(super) max_readers: u32,
    /// Every transaction, and every other access to the map, passes it.
    pub(super) gate: Gate,
    pub(super) map_size: AtomicUsize,
    pub(super) max_map_size: usize,
    /// The handle to the catalog, once this process has one.
    pub(super) catalog: OnceLock<Database<'static>>,
    /// The databases with a handle in LMDB. New transactions know only these.
    pub(super) known: Mutex<BTreeSet<String>>,
    pub(super) reserve: Reserve,
    /// Held by this process's write transaction, so that one thread at a time waits for LMDB's lock.
    pub(super) writing: Mutex<Writing>,
    /// If this process writes one.
    pub(super) journal: OnceLock<Active>,
    /// Another process writes the journal, or may write without one.
    pub(super) is_elsewhere: bool,
    /// A shard that has not joined the journal of all shards yet, and can't be written.
    pub(super) is_joining: AtomicBool,
    /// Dropped behind the environment.
    pub(super) slots: OnceLock<Arc<Slots>>,
    /// Dropped behind the environment.
    pub(super) presence: Presence,
    pub(super) _counted: Counted,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        if self.is_inherited() {
            journal.forget();
        } else {
            *self.writing.get_mut().unwrap_or_else(PoisonError::into_inner) = Writing::default();
            // LMDB reads the map, which a failed growth has taken away.
            let is_mapped = self.gate.enter(Kind::Writer).is_ok();
            journal.close(is_mapped);
        }
    }
}

impl Engine {
    /// LMDB's locks and reader slots are the process's that opened the store.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.path.clone() });
        }
        Ok(())
    }

    pub(super) fn is_inherited(&self) -> bool {
        process::forks() != self.forks
    }

    /// The number of read transactions of this process, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        self.gate.readers()
    }

    /// The bytes in use, up to the last page. Only for a thread inside the gate.
    pub(super) fn used(&self) -> usize {
        let pages = self.env.info().last_page_number + 1;
        pages * self.env.unnamed_database_stat().page_size as usize
    }

    /// Waits for the thread that drops the last handle to the directory.
    pub(crate) fn wait_until_closed(path: &Path) {
        if let Some(closing) = heed::env_closing_event(path) {
            closing.wait_timeout(CLOSING);
        }
    }

    /// The directory of its files.
    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }
}
