//! Deleting rows that have expired, in batches, and the thread that does it.
//!
//! A batch is read in a read transaction, passed to the archive if there is one, and deleted in a write transaction.
//! The write transaction reads each row again, and deletes it only if it is still expired and equals the archived row.
//! So a row that another writer changes between these transactions stays. After a crash between them, the rows of the
//! batch are archived a second time.

use std::{
    error, fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    background::clock,
    engine::Read as _,
    locks::{Condvar, Mutex, MutexGuard, Origin},
    model::{
        KeyRange,
        error::{Error, Result},
        expiry::Expiry,
        schema::Source,
    },
    query::{Bounds, Ledger, ScanRequest},
    store::{Inner, OpenTable, Store},
    upkeep::cascade,
    write::{
        Scratch,
        rows::{self, Cascading, Deleted},
    },
};

/// The name of the thread.
const NAME: &str = "expiry-worker";

/// The maximum number of rows in a batch.
const BATCH: u64 = 256;

/// The time after which a transaction deletes no further rows, so that other writers don't wait long. If a transaction takes
/// longer with its commit, the next transaction deletes fewer rows.
const TURN: Duration = Duration::from_millis(10);

/// The minimum number of rows in a transaction.
const FEWEST: usize = 8;

/// The time between two rounds of the worker.
const POLL: Duration = Duration::from_secs(1);

/// Deletes up to `limit` rows that have expired at the time `now`. Returns their number.
pub(crate) fn expire(
    store: &Store,
    table: &Arc<OpenTable>,
    now: SystemTime,
    limit: u64,
) -> Result<u64> {
    table.check_store(store.inner.id)?;
    store.inner.engines.refuse_forked()?;
    store.inner.engines.refuse_read_only()?;
    let Some(expiry) = table.rows.expiry else { return Ok(0) };
    let (range, mut deleted, mut pace) = (expiry.expired(now), 0, Pace::default());
    while deleted < limit {
        let batch = batch(store, table, expiry, &range, BATCH.min(limit - deleted))?;
        let (mut rest, before) = (batch.as_slice(), deleted);
        while !rest.is_empty() {
            let next = rest.get(..pace.rows).unwrap_or(rest);
            let Turn { began, done, deleted: gone } = delete(store, table, expiry, &range, next)?;
            pace.adapt(began.elapsed());
            deleted += gone;
            rest = rest.get(done..).unwrap_or_default();
            if !rest.is_empty() || deleted < limit {
                store.inner.let_others_write();
            }
        }
        // If all rows of a batch have been changed since they were read, the caller decides whether to continue.
        if (batch.len() as u64) < BATCH || deleted == before {
            break;
        }
    }
    Ok(deleted)
}

/// The number of rows that a transaction deletes. It depends on the time of the last transaction.
struct Pace {
    rows: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rows: BATCH as usize / 4 }
    }
}

impl Pace {
    fn adapt(&mut self, time: Duration) {
        self.rows = if time > TURN { self.rows / 2 } else { self.rows * 2 };
        self.rows = self.rows.clamp(FEWEST, BATCH as usize);
    }
}

/// A transaction that deletes rows.
struct Turn {
    /// The time at which it began to read the rows.
    began: Instant,
    /// The number of rows that were read.
    done: usize,
    deleted: u64,
}

/// A row that has expired: its primary key, and its bytes if it was archived.
type Expired = (Vec<u8>, Option<Vec<u8>>);

/// Returns the next rows that have expired, after they were archived.
fn batch(
    store: &Store,
    table: &Arc<OpenTable>,
    expiry: Expiry,
    range: &KeyRange,
    limit: u64,
) -> Result<Vec<Expired>> {
    let archive = table.shared.archive().clone();
    let txn = store.read()?;
    let source = Source::Index(expiry.index);
    let (reader, ledger) = (
        txn.reader_of(table, source).map_err(Box::new),
        Ledger::new(&txn.session, &table.shared.usage, &table.rows.lists),
    );
    let request = ScanRequest::new(reader, table.schema, ledger, source, Bounds::of(range.clone()));
    let expired = request.first_keys(limit)?;
    let Some(archive) = archive else {
        return Ok(expired.into_iter().map(|key| (key, None)).collect());
    };
    let (mut keys, mut bytes) = (Vec::new(), Vec::new());
    for key in expired {
        // An entry without a row is left to `verify`.
        if let Some(row) = txn.fact(table, &key)? {
            bytes.push(row.to_vec());
            keys.push(key);
        }
    }
    drop(txn);
    if !bytes.is_empty() {
        archive(&bytes)?;
    }
    Ok(keys.into_iter().zip(bytes.into_iter().map(Some)).collect())
}

/// Deletes the rows of a batch that are still expired, in one transaction of limited time.
fn delete(
    store: &Store,
    table: &Arc<OpenTable>,
    expiry: Expiry,
    range: &KeyRange,
    batch: &[Expired],
) -> Result<Turn> {
    store.transaction(|txn| {
        let mut turn = Turn { began: Instant::now(), done: 0, deleted: 0 };
        for (primary_key, archived) in batch {
            if turn.done > 0 && turn.began.elapsed() > TURN {
                break;
            }
            turn.done += 1;
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(table)?;
            let found = match writer.reader().fact(primary_key) {
                // Its shard was detached meanwhile.
                Err(Error::NoShard { .. }) => None,
                found => found?,
            };
            let Some(bytes) = found else { continue };
            if archived.as_ref().is_some_and(|archived| archived != bytes) {
                continue;
            }
            table.rows.load_stored(old, bytes, primary_key)?;
            if !old.keys(expiry.index).any(|key| range.contains(key)) {
                continue;
            }
            let row = rows::delete_loaded(&table.rows, &mut writer, Cascading::No, old, written)?;
            if row == Deleted::NeedsCascade {
                cascade::delete_in(txn, table, primary_key)?;
            }
            turn.deleted += 1;
        }
        Ok(turn)
    })
}

/// Returns the error of an archive.
pub(crate) fn failed(
    table: &'static str,
    source: impl Into<Box<dyn error::Error + Send + Sync>>,
) -> Error {
    Error::Archive { table, source: Arc::from(source.into()) }
}

/// A thread that deletes expired rows of all tables with a repository in this process. From
/// [`Store::start_expiry_worker`].
///
/// When this handle is dropped, the thread stops after its current batch. The thread doesn't keep the store open,
/// and ends when the store is closed. Several workers, in one process or in several, can run at the same time.
#[must_use = "the worker stops when this is dropped"]
pub struct ExpiryWorker {
    shared: Arc<Shared>,
    store: Weak<Inner>,
    thread: Option<JoinHandle<()>>,
    /// The directory of the store, for errors.
    path: PathBuf,
    /// The process that started the thread. A forked process doesn't have the thread.
    origin: Origin,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    deleted: u64,
    /// The error of the last round.
    error: Option<Error>,
}

impl Store {
    /// Starts a thread that deletes expired rows, of all tables with `#[table(expires = …)]` that have a repository in
    /// this process. The thread looks for expired rows once a second, and runs until the returned handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], [`Error::ReadOnly`], and [`Error::Thread`] if the thread can't be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(expires = ends)]
    /// struct Session {
    ///     #[primary_key]
    ///     id: u64,
    ///     ends: SystemTime,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let sessions = SessionRepository::open(&store)?;
    /// let ends = SystemTime::now() + Duration::from_millis(10);
    /// store.transaction(|txn| sessions.insert(txn, &Session { id: 1, ends }))?;
    ///
    /// let worker = store.start_expiry_worker()?;
    /// while sessions.all(&store.read()?).exists()? {
    ///     std::thread::sleep(Duration::from_millis(5));
    /// }
    /// assert!(worker.error().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_expiry_worker(&self) -> Result<ExpiryWorker> {
        self.inner.engines.refuse_forked()?;
        self.inner.engines.refuse_read_only()?;
        clock::observe();
        let (shared, store) = (Arc::<Shared>::default(), Arc::downgrade(&self.inner));
        let thread = {
            let (shared, store) = (Arc::clone(&shared), Weak::clone(&store));
            thread::Builder::new()
                .name(NAME.to_owned())
                .spawn(move || run(&shared, &store))
                .map_err(|source| Error::Thread { name: NAME, source })?
        };
        let (path, origin) = (self.inner.engines.location(), Origin::here());
        Ok(ExpiryWorker { shared, store, thread: Some(thread), path, origin })
    }
}

impl ExpiryWorker {
    /// Returns the error of the last round; `None` if it succeeded. After an error, the worker tries again in the next
    /// round, and an error in one table does not stop the others. A panic in the function of
    /// [`archive_expired`](crate::Table::archive_expired) or in a method of a row is [`Error::Panicked`]. In a forked process,
    /// which doesn't have the thread, the error is [`Error::Forked`].
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        if self.origin.is_inherited() {
            return Some(Error::Forked { path: self.path.clone() });
        }
        self.shared.state().error.as_ref().map(Error::again)
    }

    /// Returns the number of rows that this worker has deleted. In a forked process, it is zero.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        if self.origin.is_inherited() { 0 } else { self.shared.state().deleted }
    }
}

impl Drop for ExpiryWorker {
    fn drop(&mut self) {
        if self.origin.is_inherited() {
            return;
        }
        self.shared.state().is_stopped = true;
        self.shared.stopped.notify_all();
        // If this thread has a write transaction, the worker may wait for it, and joining the worker would deadlock.
        let waits = self.store.upgrade().is_some_and(|store| store.refuse_nested_write().is_err());
        if let Some(thread) = self.thread.take()
            && !waits
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ExpiryWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryWorker").field("deleted", &self.deleted()).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Waits for the next round, or until the worker is stopped.
    fn wait(&self) {
        let state = self.state();
        drop(self.stopped.wait_timeout_while(state, POLL, |state| !state.is_stopped));
    }
}

fn run(shared: &Shared, store: &Weak<Inner>) {
    while !shared.is_stopped() {
        let Some(inner) = store.upgrade() else { return };
        let error = round(&Store { inner }, shared);
        shared.state().error = error;
        shared.wait();
    }
}

/// Deletes a batch. If the archive or a method of a row panics, the worker must continue.
fn expire_contained(store: &Store, table: &Arc<OpenTable>, now: SystemTime) -> Result<u64> {
    catch_unwind(AssertUnwindSafe(|| expire(store, table, now, BATCH)))
        .unwrap_or_else(|panic| Err(Error::panicked(&*panic)))
}

/// Deletes the expired rows of each table. Returns the last error.
fn round(store: &Store, shared: &Shared) -> Option<Error> {
    let (now, mut failed) = (clock::settled(), None);
    for table in store.inner.tables_in_use() {
        if table.rows.expiry.is_none() {
            continue;
        }
        while !shared.is_stopped() {
            match expire_contained(store, &table, now) {
                Ok(0) => break,
                Ok(deleted) => shared.state().deleted += deleted,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            store.inner.let_others_write();
        }
    }
    failed
}
