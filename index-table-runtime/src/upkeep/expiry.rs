//! Deleting rows that have expired, in batches, and the thread that does it.
//!
//! A batch is read in a read transaction, passed to the archive if there is one, and deleted in a write transaction.
//! The write transaction reads each row again, and deletes it only if it is still expired and equals the archived row.
//! So a row that another writer changes between these transactions stays. After a crash between them, the rows of the
//! batch are archived a second time.
//!
//! A row that can't be deleted is *refused*: another row refers to it, it can't be read, or rows that are deleted with it are in
//! a shard that is not available. It stays, and the rows after it are deleted. The rows of the available shards only are read.
//! A refused row keeps its entry at the start of the range, so a [`Pass`] continues after the last row that it has read. The
//! worker reads a table from its first expired row again after [`RETRY`].

use std::{
    collections::HashMap,
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
        entry::Position,
        error::{Error, Result},
        expiry::Expiry,
        schema::Source,
    },
    query::{Bounds, Ledger, MissingShard, ScanRequest},
    store::{Inner, OpenTable, Store},
    upkeep::cascade,
    usage::trace,
    write::{
        Scratch, references,
        rows::{self, Cascading},
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

/// The time after which the worker tries again to delete the rows that were refused.
const RETRY: Duration = Duration::from_mins(1);

/// The result of [`expire_report`](crate::Table::expire_report).
#[derive(Debug)]
#[non_exhaustive]
pub struct Expired {
    /// The number of rows that were deleted. Rows that a cascade deletes with them don't count.
    pub deleted: u64,
    /// The number of rows that have expired, but could not be deleted.
    pub refused: u64,
    /// The error of the first of these rows: [`Error::Referenced`], [`Error::RepositoryNeeded`], [`Error::ShardReadOnly`] during an
    /// offline move, [`Error::ShardUnavailable`] of rows that are deleted with it, or the error of reading it.
    pub refusal: Option<Error>,
    /// The shards that are not available. Their rows were left out.
    pub missing: Vec<MissingShard>,
}

/// The place that a deletion of expired rows has reached.
#[derive(Default)]
pub(crate) struct Pass {
    /// The entry of the last row that was read.
    position: Option<Position>,
    pace: Pace,
    /// The number of next rows that get a transaction each, because one of them was refused.
    alone: usize,
}

/// Deletes up to `limit` rows that have expired at the time `now`, from the place that the pass has reached.
pub(crate) fn expire(
    store: &Store,
    table: &Arc<OpenTable>,
    now: SystemTime,
    limit: u64,
    pass: &mut Pass,
) -> Result<Expired> {
    table.check_store(store.inner.id)?;
    store.inner.engines.refuse_forked()?;
    store.inner.engines.refuse_read_only()?;
    let mut expired = Expired { deleted: 0, refused: 0, refusal: None, missing: Vec::new() };
    let Some(expiry) = table.rows.expiry else { return Ok(expired) };
    let range = expiry.expired(now);
    while expired.deleted < limit {
        let wanted = BATCH.min(limit - expired.deleted);
        let batch =
            batch(store, table, expiry, &range, (pass.position.as_ref(), wanted), &mut expired)?;
        let mut rest = batch.rows.as_slice();
        while !rest.is_empty() {
            let len = if pass.alone > 0 { 1 } else { pass.pace.rows };
            let next = rest.get(..len).unwrap_or(rest);
            pass.alone = pass.alone.saturating_sub(1);
            let done = match delete(store, table, expiry, &range, next) {
                Ok(turn) => {
                    pass.pace.adapt(turn.began.elapsed());
                    expired.deleted += turn.deleted;
                    turn.refused.into_iter().for_each(|error| expired.refuse(table, error));
                    turn.done
                }
                Err(error) if is_of_one_row(&error) => {
                    if next.len() == 1 {
                        expired.refuse(table, error);
                        1
                    } else {
                        pass.alone = next.len();
                        0
                    }
                }
                Err(error) => return Err(error),
            };
            rest = rest.get(done..).unwrap_or_default();
            if !rest.is_empty() || expired.deleted < limit {
                store.inner.let_others_write();
            }
        }
        if batch.end.is_some() {
            pass.position = batch.end;
        }
        if batch.read < wanted {
            break;
        }
    }
    Ok(expired)
}

impl Expired {
    fn refuse(&mut self, table: &OpenTable, error: Error) {
        table.shared.usage.note_refused_expiry();
        self.refused += 1;
        if self.refusal.is_none() {
            trace::refused_expiry(table.schema.name, &error);
            self.refusal = Some(error);
        }
    }
}

/// Whether a row is refused with this error, and other rows may be deleted.
const fn is_of_one_row(error: &Error) -> bool {
    matches!(
        error,
        Error::Referenced { .. }
            | Error::RepositoryNeeded { .. }
            | Error::ShardReadOnly { .. }
            | Error::ShardUnavailable { .. }
            | Error::NoShard { .. }
    )
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
    /// The errors of rows that stay.
    refused: Vec<Error>,
}

/// A row that has expired: its primary key, and its bytes if it was archived.
type Row = (Vec<u8>, Option<Vec<u8>>);

/// Rows that have expired, and were archived if there is an archive.
struct Batch {
    rows: Vec<Row>,
    /// The number of entries that were read.
    read: u64,
    /// The last of these entries.
    end: Option<Position>,
}

/// Returns the next rows that have expired, after they were archived. Rows that can't be read, or to which other rows refer, are
/// refused before they are archived.
fn batch(
    store: &Store,
    table: &Arc<OpenTable>,
    expiry: Expiry,
    range: &KeyRange,
    (after, limit): (Option<&Position>, u64),
    expired: &mut Expired,
) -> Result<Batch> {
    let archive = table.shared.archive().clone();
    let txn = store.read()?;
    let source = Source::Index(expiry.index);
    let (reader, ledger) = (
        txn.reader_of(table, source).map_err(Box::new),
        Ledger::new(&txn.session, &table.shared.usage, &table.rows.lists),
    );
    let request = ScanRequest::new(reader, table.schema, ledger, source, Bounds::of(range.clone()));
    let (entries, missing) = request.first_entries(after, limit)?;
    expired.missing = missing;
    let (read, end) = (entries.len() as u64, entries.last().cloned());
    let keys = entries.into_iter().map(|entry| entry.primary_key);
    let Some(archive) = archive else {
        return Ok(Batch { rows: keys.map(|key| (key, None)).collect(), read, end });
    };
    let (mut found, mut bytes, reader) = (Vec::new(), Vec::new(), txn.reader(table)?);
    for key in keys {
        match references::check_delete(reader, &key) {
            Err(error) if is_of_one_row(&error) => expired.refuse(table, error),
            Err(error) => return Err(error),
            // An entry without a row is left to `verify`.
            Ok(_) => {
                if let Some(row) = txn.fact(table, &key)? {
                    bytes.push(row.to_vec());
                    found.push(key);
                }
            }
        }
    }
    drop(txn);
    let mut rows: Vec<Option<Row>> =
        found.into_iter().zip(bytes.iter().cloned().map(Some)).map(Some).collect();
    if !bytes.is_empty() {
        for (at, error) in archive(&bytes)? {
            if let Some((key, _)) = rows.get_mut(at).and_then(Option::take) {
                expired.refuse(table, table.rows.corrupt(error, &key));
            }
        }
    }
    Ok(Batch { rows: rows.into_iter().flatten().collect(), read, end })
}

/// Deletes the rows of a batch that are still expired, in one transaction of limited time.
fn delete(
    store: &Store,
    table: &Arc<OpenTable>,
    expiry: Expiry,
    range: &KeyRange,
    batch: &[Row],
) -> Result<Turn> {
    store.transaction(|txn| {
        let mut turn = Turn { began: Instant::now(), done: 0, deleted: 0, refused: Vec::new() };
        for (primary_key, archived) in batch {
            if turn.done > 0 && turn.began.elapsed() > TURN {
                break;
            }
            turn.done += 1;
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(table)?;
            let found = match writer.reader().fact(primary_key) {
                // Its shard was detached meanwhile, or is not available.
                Err(Error::NoShard { .. } | Error::ShardUnavailable { .. }) => None,
                found => found?,
            };
            let Some(bytes) = found else { continue };
            if archived.as_ref().is_some_and(|archived| archived != bytes) {
                continue;
            }
            match table.rows.load_stored(old, bytes, primary_key) {
                Err(error @ (Error::Corrupt { .. } | Error::Conversion { .. })) => {
                    turn.refused.push(error);
                    continue;
                }
                loaded => loaded?,
            }
            if !old.keys(expiry.index).any(|key| range.contains(key)) {
                continue;
            }
            match rows::delete_loaded(&table.rows, &mut writer, Cascading::No, old, written) {
                // Nothing has changed.
                Err(error @ Error::Referenced { .. }) => turn.refused.push(error),
                deleted => {
                    turn.deleted += u64::from(cascade::finish(txn, table, primary_key, deleted?)?);
                }
            }
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
    /// The error of the last round, or the first error of a row that was refused.
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
    /// round, and an error in one table does not stop the others. If rows could not be deleted, this is the error of the first of
    /// them, as [`Expired::refusal`]; the worker deletes the other rows, and tries these again after a minute. A panic in the function of
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

/// The pass of a table, and the refusals in it.
struct Begun {
    at: Instant,
    pass: Pass,
    refusal: Option<Error>,
}

/// The passes of the tables, by the numbers of their openings.
type Passes = HashMap<u64, Begun>;

fn run(shared: &Shared, store: &Weak<Inner>) {
    let mut passes = Passes::new();
    while !shared.is_stopped() {
        let Some(inner) = store.upgrade() else { return };
        let error = round(&Store { inner }, shared, &mut passes);
        shared.state().error = error;
        shared.wait();
    }
}

/// Deletes a batch. If the archive or a method of a row panics, the worker must continue.
fn expire_contained(
    store: &Store,
    table: &Arc<OpenTable>,
    now: SystemTime,
    pass: &mut Pass,
) -> Result<Expired> {
    catch_unwind(AssertUnwindSafe(|| expire(store, table, now, BATCH, pass)))
        .unwrap_or_else(|panic| Err(Error::panicked(&*panic)))
}

/// Deletes the expired rows of each table. Returns the last error.
fn round(store: &Store, shared: &Shared, passes: &mut Passes) -> Option<Error> {
    let (now, mut failed) = (clock::settled(), None);
    let tables = store.inner.tables_in_use();
    passes.retain(|id, _| tables.iter().any(|table| table.opened == *id));
    for table in tables {
        if table.rows.expiry.is_none() {
            continue;
        }
        let begun = passes.entry(table.opened).or_insert_with(Begun::now);
        // Without refused rows, no entry is left before the position.
        if begun.refusal.is_none() || begun.at.elapsed() > RETRY {
            *begun = Begun::now();
        }
        while !shared.is_stopped() {
            match expire_contained(store, &table, now, &mut begun.pass) {
                Ok(expired) => {
                    shared.state().deleted += expired.deleted;
                    begun.refusal = begun.refusal.take().or(expired.refusal);
                    if expired.deleted < BATCH {
                        break;
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            store.inner.let_others_write();
        }
        failed = failed.or_else(|| begun.refusal.as_ref().map(Error::again));
    }
    failed
}

impl Begun {
    fn now() -> Self {
        Self { at: Instant::now(), pass: Pass::default(), refusal: None }
    }
}
