//! The thread that applies messages.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::apply;
use crate::{
    locks::{Mutex, MutexGuard, Origin},
    model::error::{Error, Result},
    store::{Inner, Store},
    usage::trace,
    write::queue::Signals,
};

/// The name of the thread.
const NAME: &str = "index-worker";

/// The interval between two checks for messages of other processes.
const POLL: Duration = Duration::from_millis(100);

/// The time to wait for more messages if no thread waits for the result. Larger batches need fewer commits, and
/// writers wait for each commit.
const GATHER: Duration = Duration::from_millis(10);

/// The pause after a failure.
const REST: Duration = Duration::from_millis(200);

/// A thread that applies the messages of a store's queues to eventual indexes, for the tables that have a
/// repository in this process. From [`Store::start_index_worker`].
///
/// One thread applies up to 1,024 messages of each queue in turn, in one transaction for each queue. In a store with shards, each
/// shard has a queue for each table.
///
/// When this handle is dropped, the thread stops after its current batch. The remaining messages stay in the
/// queue. The thread doesn't keep the store open, and ends when the store is closed. Several workers, in one
/// process or in several, can run at the same time.
#[must_use = "the worker stops when this is dropped"]
pub struct IndexWorker {
    shared: Arc<Shared>,
    store: Weak<Inner>,
    thread: Option<JoinHandle<()>>,
    /// The directory of the store, for errors.
    path: PathBuf,
    /// The process that started the thread. A forked process doesn't have the thread.
    origin: Origin,
}

struct Shared {
    stopped: AtomicBool,
    signals: Arc<Signals>,
    /// The error of the last round.
    error: Mutex<Option<Error>>,
}

impl Store {
    /// Starts a thread that applies the messages of the queues to eventual indexes, for the tables that have a
    /// repository in this process. The thread runs until the returned handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and [`Error::Thread`] if the thread can't be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town, consistency = "eventual")]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// let worker = store.start_index_worker()?;
    ///
    /// let mut txn = store.write()?;
    /// people.insert(&mut txn, &Person { id: 1, town: "Redmond".into() })?;
    /// let token = txn.commit_with_token()?;
    /// assert!(people.wait_for(&store, &token, Duration::from_secs(10))?);
    /// let txn = store.read()?;
    /// assert_eq!(people.find_by_town(&txn, "Redmond").verified().rows().count(), 1);
    /// # drop(worker);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_index_worker(&self) -> Result<IndexWorker> {
        self.inner.engines.refuse_forked()?;
        self.inner.engines.refuse_read_only()?;
        IndexWorker::start(self)
    }
}

impl IndexWorker {
    pub(crate) fn start(store: &Store) -> Result<Self> {
        let signals = Arc::clone(&store.inner.signals);
        let (stopped, error) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { stopped, signals, error });
        let weak = Arc::downgrade(&store.inner);
        let thread = {
            let (shared, weak) = (Arc::clone(&shared), Weak::clone(&weak));
            thread::Builder::new()
                .name(NAME.to_owned())
                .spawn(move || run(&shared, &weak))
                .map_err(|source| Error::Thread { name: NAME, source })?
        };
        let (path, origin) = (store.inner.engines.location(), Origin::here());
        Ok(Self { shared, store: weak, thread: Some(thread), path, origin })
    }

    /// Returns the error of the last round; `None` if it succeeded. An error in one table or shard, for example because the shard
    /// is not available, does not stop the others. After an error, the worker retries five times a second. A message that can't be applied is not an error here; it becomes a dead letter. In a forked process, which
    /// doesn't have the thread, the error is [`Error::Forked`].
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        if self.origin.is_inherited() {
            return Some(Error::Forked { path: self.path.clone() });
        }
        self.shared.error().as_ref().map(Error::again)
    }
}

impl Drop for IndexWorker {
    fn drop(&mut self) {
        if self.origin.is_inherited() {
            return;
        }
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.signals.notify();
        // If this thread has a write transaction, the worker may wait for it. Joining the worker would be a
        // deadlock.
        let waits = self.store.upgrade().is_some_and(|store| store.refuse_nested_write().is_err());
        if let Some(thread) = self.thread.take()
            && !waits
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for IndexWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexWorker").finish_non_exhaustive()
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn error(&self) -> MutexGuard<'_, Option<Error>> {
        self.error.lock()
    }
}

/// Reports a panic of the thread.
struct Panicked<'s>(&'s Signals);

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.note_failure();
            trace::stopped_worker();
        }
    }
}

fn run(shared: &Shared, store: &Weak<Inner>) {
    let _panicked = Panicked(&shared.signals);
    while !shared.is_stopped() {
        let events = shared.signals.events();
        let Some(inner) = store.upgrade() else { return };
        let (more, failed) = round(&Store { inner }, shared);
        let pause = if failed.is_some() { REST } else { POLL };
        // The following failures are repetitions of the first one.
        if let (Some(error), None) = (&failed, &*shared.error()) {
            shared.signals.note_failure();
            trace::failing_worker(error);
        }
        *shared.error() = failed;
        if more {
            thread::sleep(apply::PAUSE);
            continue;
        }
        shared.signals.wait(events, pause);
        shared.signals.gather(events, GATHER, || shared.is_stopped());
    }
}

/// Applies a batch of each queue. Returns true if messages remain in queues without an error, and the last error. An error in one
/// table or shard doesn't block the others.
fn round(store: &Store, shared: &Shared) -> (bool, Option<Error>) {
    let (mut more, mut failed) = (false, None);
    for table in store.inner.eventual_tables() {
        if shared.is_stopped() {
            break;
        }
        let (batch, error) = apply::batch_of(store, &table, u64::MAX);
        more |= batch.left > 0;
        failed = error.or(failed);
    }
    (more, failed)
}
