//! Transactions.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio_postgres::Row;

use super::{
    arena::Arena,
    catalog::{Catalog, Record},
    connection::{Connection, Parameters},
    error::{self, Kind},
    pool::{Counted, Leased, Pool},
    read::{Reader, column},
    tables::Tables,
    write::Writer,
};
use crate::{
    engine::{CommitFailure, Retry, Stamp},
    model::{
        error::{Error, Result},
        stream::Place,
    },
};

/// Begins a transaction that reads one snapshot. The second statement takes the snapshot. All transactions with
/// smaller numbers have ended.
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text";

/// Begins a transaction that writes, and gives it its number.
const BEGIN_WRITE: &str =
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; SELECT pg_current_xact_id()::text";

/// The statement that ends a transaction without changes.
const ROLLBACK: &str = "ROLLBACK";

/// The time limit for determining whether a commit was applied, after its connection was lost.
const RESOLUTION: Duration = Duration::from_secs(5);

/// The state of a server's transaction, which nested transactions share.
struct Session<'s> {
    pool: &'s Pool,
    /// For a read transaction.
    _counted: Option<Counted<'s>>,
    leased: Option<Leased<'s>>,
    /// The failure that ends the transaction with all nested transactions.
    failure: Mutex<Option<Failure>>,
    /// The number of changes of the catalog by this transaction, and of their rollbacks.
    own_changes: AtomicU64,
    /// The number of changes that this transaction has added to change streams.
    streamed: AtomicU64,
    /// The number of calls of [`Txn::numbered`], in all nested transactions.
    numbered: AtomicU64,
    catalog: &'s Catalog,
    /// The counter of the catalog in the snapshot; `None` before the catalog exists.
    changes: Option<u64>,
}

/// The first error of a transaction.
struct Failure {
    is_conflict: bool,
    error: Error,
}

/// The session of a transaction, or of its outermost transaction.
enum Held<'s> {
    Own(Box<Session<'s>>),
    Outer(&'s Session<'s>),
}

/// A transaction.
pub(crate) struct Txn<'s> {
    held: Held<'s>,
    /// The results that the transaction lends.
    arena: Arena<Vec<Row>>,
    /// The records of the catalog that the transaction lends.
    records: Arena<Arc<Record>>,
    /// The numbers of these records by key, with [`Session::own_changes`] at that time.
    read: Mutex<HashMap<Vec<u8>, (usize, u64)>>,
    /// The failure of this nested transaction.
    failure: Mutex<Option<Error>>,
    stamp: Stamp,
    writes: bool,
    /// The number of outer transactions.
    depth: u32,
    /// [`Session::own_changes`] at the start of this transaction.
    changes_before: u64,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'s> Txn<'s> {
    /// Begins a transaction. `has_catalog`: the catalog exists.
    pub(super) fn begin(
        (pool, catalog): (&'s Pool, &'s Catalog),
        leased: Leased<'s>,
        writes: bool,
        has_catalog: bool,
    ) -> Result<Self> {
        let mut begin = if writes { BEGIN_WRITE } else { BEGIN_READ }.to_owned();
        if has_catalog {
            begin = format!("{begin} || ' ' || {}", catalog.changes());
        }
        let text = leased.get()?.simple(&begin).map_err(|error| error::of(pool.server(), error))?;
        let text = text.unwrap_or_default();
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        let missing = || Error::internal("a transaction of PostgreSQL without a number");
        let number: u64 = numbers.next().flatten().ok_or_else(missing)?;
        let changes = numbers.next().flatten();
        let stamp = Stamp::new(if writes { number } else { number.saturating_sub(1) });
        let session = Session {
            pool,
            _counted: (!writes).then(|| pool.count_reader()),
            leased: Some(leased),
            failure: Mutex::default(),
            own_changes: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            numbered: AtomicU64::new(0),
            catalog,
            changes,
        };
        Ok(Self::new(Held::Own(Box::new(session)), stamp, writes, 0))
    }

    fn new(held: Held<'s>, stamp: Stamp, writes: bool, depth: u32) -> Self {
        let (arena, records, read, failure) = Default::default();
        let mut txn = Self {
            held,
            arena,
            records,
            read,
            failure,
            stamp,
            writes,
            depth,
            changes_before: 0,
            has_ended: false,
        };
        txn.changes_before = txn.session().own_changes.load(Ordering::Relaxed);
        txn
    }

    fn session(&self) -> &Session<'_> {
        match &self.held {
            Held::Own(session) => session,
            Held::Outer(session) => session,
        }
    }

    fn connection(&self) -> Result<&Connection> {
        let ended = || Error::internal("a transaction of PostgreSQL has ended");
        self.session().leased.as_ref().ok_or_else(ended)?.get()
    }

    /// Returns a reader of a table.
    pub(crate) const fn reader<'t>(&'t self, tables: &'t Tables) -> Reader<'t> {
        Reader { txn: self, tables }
    }

    /// Returns a writer of a table; `None` for a read transaction.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t>> {
        self.writes.then_some(Writer { txn: self, tables })
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        if !self.writes {
            return None;
        }
        let depth = self.depth + 1;
        if let Err(error) = self.simple(&format!("SAVEPOINT s{depth}")) {
            return Some(Err(error));
        }
        let session = match &self.held {
            Held::Own(session) => &**session,
            Held::Outer(session) => *session,
        };
        Some(Ok(Txn::new(Held::Outer(session), self.stamp, true, depth)))
    }

    /// Returns the stamp of the snapshot; for a write transaction, the stamp of its commit.
    pub(crate) const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns the place of the next change that this transaction adds to a change stream.
    pub(super) fn place_of_change(&self) -> Place {
        let position = self.session().streamed.fetch_add(1, Ordering::Relaxed);
        Place { transaction: self.stamp.number(), position }
    }

    /// Returns the number of the transaction, and the number of earlier calls, including the calls of nested transactions
    /// that were rolled back.
    pub(super) fn numbered(&self) -> (u64, u64) {
        (self.stamp.number(), self.session().numbered.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the pool of the connections.
    pub(super) fn pool(&self) -> &Pool {
        self.session().pool
    }

    /// Returns the reason to run the closure again.
    pub(crate) fn retry(&self) -> Option<Retry> {
        let failure = lock(&self.session().failure);
        failure.as_ref().is_some_and(|it| it.is_conflict).then_some(Retry::Conflict)
    }

    /// Fails if a statement has failed.
    fn refuse_failed(&self) -> Result<()> {
        if let Some(failure) = &*lock(&self.session().failure) {
            return Err(failed(&failure.error));
        }
        lock(&self.failure).as_ref().map_or(Ok(()), |error| Err(failed(error)))
    }

    /// Records the failure of a statement, after which the server refuses all statements.
    #[cold]
    fn fail(&self, cause: tokio_postgres::Error) -> Error {
        let (session, kind) = (self.session(), error::kind(&cause));
        let error = error::of(session.pool.server(), cause);
        if self.depth == 0 || kind != Kind::Refused {
            let failure = Failure { is_conflict: kind == Kind::Conflict, error: error.again() };
            lock(&session.failure).get_or_insert(failure);
        } else {
            lock(&self.failure).get_or_insert(error.again());
        }
        error
    }

    /// Returns the rows of a query.
    pub(super) fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>> {
        self.refuse_failed()?;
        self.connection()?.query(sql, parameters).map_err(|error| self.fail(error))
    }

    /// Returns the rows of a query, which live as long as the transaction.
    pub(super) fn lent(&self, sql: &str, parameters: Parameters<'_>) -> Result<&[Row]> {
        let rows = self.query(sql, parameters)?;
        self.keep(rows)
    }

    /// Keeps rows until the end of the transaction.
    pub(super) fn keep(&self, rows: Vec<Row>) -> Result<&[Row]> {
        Ok(self.arena.keep(rows).ok_or_else(too_many)?.1)
    }

    /// Returns the record of the catalog with this key. It is read from the server if no transaction with the same
    /// catalog has read it, or if this transaction has changed the catalog.
    pub(super) fn record(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.refuse_failed()?;
        let session = self.session();
        let own_changes = session.own_changes.load(Ordering::Relaxed);
        let read = lock(&self.read).get(key).copied().filter(|(_, at)| *at == own_changes);
        if let Some(record) = read.and_then(|(number, _)| self.records.get(number)) {
            return Ok(record.as_deref());
        }
        let changes = session.changes.filter(|_| own_changes == 0);
        let mut record = changes.and_then(|changes| session.catalog.get(changes, key));
        if record.is_none() {
            let sql = format!("SELECT v FROM {} WHERE k = $1", session.catalog.relation.sql);
            let rows = self.query(&sql, &[&key])?;
            let bytes = rows.first().map(|row| column::<&[u8]>(row, 0)).transpose()?;
            let found = Arc::new(bytes.map(Box::from));
            if let Some(changes) = changes {
                session.catalog.insert(changes, key, &found);
            }
            record = Some(found);
        }
        let record = record.ok_or_else(|| Error::internal("a record of the catalog is missing"))?;
        let (number, record) = self.records.keep(record).ok_or_else(too_many)?;
        lock(&self.read).insert(key.to_vec(), (number, own_changes));
        Ok(record.as_deref())
    }

    /// Increments the counter of the catalog. Every transaction that changes the catalog does this.
    pub(super) fn catalog_changed(&self) -> Result<()> {
        self.session().own_changes.fetch_add(1, Ordering::Relaxed);
        self.execute(&self.session().catalog.change(), &[]).map(drop)
    }

    /// Returns the number of rows that a statement has changed.
    pub(super) fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64> {
        self.refuse_failed()?;
        self.connection()?.execute(sql, parameters).map_err(|error| self.fail(error))
    }

    /// Runs statements without parameters.
    pub(super) fn simple(&self, sql: &str) -> Result<Option<String>> {
        self.refuse_failed()?;
        self.connection()?.simple(sql).map_err(|error| self.fail(error))
    }

    /// Commits, and calls `committed`. Other transactions of this process may begin before that.
    pub(crate) fn commit(mut self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        let retry = self.retry();
        self.refuse_failed().map_err(|error| match retry {
            Some(_) => CommitFailure::Conflict(error),
            None => CommitFailure::Failed(error),
        })?;
        if self.depth > 0 {
            self.simple(&format!("RELEASE SAVEPOINT s{}", self.depth))
                .map_err(CommitFailure::Failed)?;
            self.has_ended = true;
            return Ok(());
        }
        if !self.writes {
            return Ok(());
        }
        let Held::Own(session) = &mut self.held else { return Ok(()) };
        let Some(leased) = session.leased.take() else { return Ok(()) };
        self.has_ended = true;
        let pool = session.pool;
        let connection = leased.get().map_err(CommitFailure::Failed)?;
        let Err(cause) = connection.simple("COMMIT") else {
            leased.keep();
            committed();
            return Ok(());
        };
        let kind = error::kind(&cause);
        let error = error::of(pool.server(), cause);
        match kind {
            Kind::Conflict => {
                leased.keep();
                Err(CommitFailure::Conflict(error))
            }
            Kind::Refused => Err(CommitFailure::Failed(error)),
            Kind::Ambiguous => Err(CommitFailure::Unknown(error)),
            Kind::Lost => {
                let started = connection.started().to_owned();
                drop(leased);
                match resolve(pool, &started, self.stamp) {
                    Some(true) => {
                        committed();
                        Ok(())
                    }
                    Some(false) => Err(CommitFailure::Failed(error)),
                    None => Err(CommitFailure::Unknown(error)),
                }
            }
        }
    }
}

#[cold]
fn too_many() -> Error {
    Error::internal("too many results of a transaction")
}

/// Returns the error for calls after a failure.
fn failed(error: &Error) -> Error {
    match error {
        // The closure runs again, whatever its result.
        Error::RetriesExhausted { .. } => error.again(),
        error => Error::TransactionFailed { reason: error.to_string() },
    }
}

/// Returns whether the commit of a transaction was applied; `None` if this can't be determined. The same run of the
/// server has the outcomes of its last transactions. A later run may use the number for another transaction, for
/// example after a failover to a copy.
fn resolve(pool: &Pool, started: &str, stamp: Stamp) -> Option<bool> {
    let begun = Instant::now();
    loop {
        if let Ok(connection) = pool.open() {
            if connection.started() != started {
                return None;
            }
            let status = connection.simple(&format!("SELECT pg_xact_status('{}')", stamp.number()));
            match status.ok().flatten().as_deref() {
                Some("committed") => return Some(true),
                Some("aborted") => return Some(false),
                _ => {}
            }
        }
        if begun.elapsed() > RESOLUTION {
            return None;
        }
        // The server has not yet detected the loss of the connection.
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if self.depth > 0 {
            let own_changes = &self.session().own_changes;
            if own_changes.load(Ordering::Relaxed) != self.changes_before {
                own_changes.fetch_add(1, Ordering::Relaxed);
            }
            if lock(&self.session().failure).is_some() {
                return;
            }
            let depth = self.depth;
            // The server accepts these statements after a failed statement.
            *lock(&self.failure) = None;
            let sql = format!("ROLLBACK TO SAVEPOINT s{depth}; RELEASE SAVEPOINT s{depth}");
            if let Ok(connection) = self.connection()
                && let Err(cause) = connection.simple(&sql)
            {
                // Without the rollback, the outer transaction must not be committed.
                let is_conflict = error::kind(&cause) == Kind::Conflict;
                let error = error::of(self.session().pool.server(), cause);
                lock(&self.session().failure).get_or_insert(Failure { is_conflict, error });
            }
            return;
        }
        if let Held::Own(session) = &mut self.held
            && let Some(leased) = session.leased.take()
        {
            if let Ok(connection) = leased.get() {
                connection.send(ROLLBACK);
            }
            leased.keep();
        }
    }
}
