//! Transactions.

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use tokio_postgres::Row;

use super::{
    arena::Arena,
    batch::Kind as ChangeKind,
    catalog::Record,
    connection::{Parameters, Response, column},
    error::Kind,
    names::Relation,
    outcome,
    pending::{Item, Pending, Unsent},
    pool::{Leased, Pool},
    session::{Server, Session},
    slot::Slot,
    tables::Tables,
    trip::{Broken, Last},
};
use crate::{
    engine::{CommitFailure, Retry, Stamp},
    model::{
        error::{Error, Result},
        schema::TableSchema,
        stream::Place,
    },
};

/// The statement that ends a transaction without changes.
const ROLLBACK: &str = "ROLLBACK";

/// The session of a transaction, or of its outermost transaction.
enum Held<'s> {
    Own(Box<Session<'s>>),
    Outer(&'s Session<'s>),
}

/// The numbers of records in the arena by key, each with the own changes of the catalog at that time.
type Records = HashMap<Vec<u8>, (usize, u64)>;

/// A transaction.
pub(crate) struct Txn<'s> {
    held: Held<'s>,
    /// The results that the transaction lends.
    arena: Arena<Vec<Row>>,
    /// The records of the catalog that the transaction lends.
    records: Arena<Arc<Record>>,
    read: Slot<Records>,
    /// The failure of this nested transaction.
    failure: OnceCell<Error>,
    /// The number of outer transactions.
    depth: u32,
    /// The changes of the catalog at the start of this transaction.
    changes_before: u64,
    has_ended: bool,
}

impl<'s> Txn<'s> {
    /// Returns a transaction, which begins with its first statement. `has_catalog`: the catalog exists. Without a
    /// connection, it takes one for its first statement.
    pub(super) fn new(
        server: Server<'s>,
        leased: Option<Leased>,
        writes: bool,
        has_catalog: bool,
    ) -> Result<Self> {
        let session = Session::new(server, leased, writes, has_catalog)?;
        Ok(Self::with(Held::Own(Box::new(session)), 0))
    }

    fn with(held: Held<'s>, depth: u32) -> Self {
        let (arena, records, read, failure) = Default::default();
        let (changes_before, has_ended) = (0, false);
        let mut txn =
            Self { held, arena, records, read, failure, depth, changes_before, has_ended };
        txn.changes_before = txn.session().own_changes();
        txn
    }

    pub(super) fn session(&self) -> &Session<'_> {
        match &self.held {
            Held::Own(session) => session,
            Held::Outer(session) => session,
        }
    }

    /// Lets the transaction assume that new keys are free. If a key is taken, it fails with a conflict.
    pub(crate) fn assume_new(&mut self) {
        self.session().pending.with(|pending| pending.is_single = true);
    }

    /// Notes that no closure runs again after a conflict of this transaction.
    pub(crate) fn has_one_attempt(&self) {
        self.session().has_one_attempt.set(true);
    }

    /// Lets other writers of the table wait until the end of this transaction, which has not begun, instead of conflicting
    /// with it.
    pub(crate) fn exclude_writers(&self, tables: &Tables) {
        self.session().exclude_writers(&tables.facts);
    }

    /// Lets other builds of indexes of the table wait until the end of this transaction, which has not begun.
    pub(crate) fn exclude_builders(&self, tables: &Tables) -> Result<()> {
        self.session().exclude_builders(&tables.facts)
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        if !self.session().writes {
            return None;
        }
        let depth = self.depth + 1;
        if let Err(error) = self.savepoint(depth) {
            return Some(Err(error));
        }
        let session = match &self.held {
            Held::Own(session) => &**session,
            Held::Outer(session) => *session,
        };
        Some(Ok(Txn::with(Held::Outer(session), depth)))
    }

    /// Sets a savepoint with the next statement. Changes of the outer transaction are sent at once, so that their errors
    /// are not those of the nested transaction.
    fn savepoint(&self, depth: u32) -> Result<()> {
        self.refuse_failed()?;
        let sql = savepoint(depth);
        let pending = &self.session().pending;
        if pending.with(|pending| pending.items.is_empty()) {
            pending.with(|pending| pending.items.push_back(Item::Simple(sql)));
            return Ok(());
        }
        self.perform(Last::Simple(&sql)).map(drop)
    }

    /// Returns the stamp of the snapshot; for a write transaction, the stamp of its commit.
    pub(crate) fn stamp(&self) -> Stamp {
        if self.session().known_numbers().is_none() && self.refuse_failed().is_ok() {
            // The error of the transaction is returned by its next operation.
            let _ = self.perform(Last::Numbers);
        }
        self.known_stamp()
    }

    /// Returns the stamp if it is known.
    pub(crate) fn known_stamp(&self) -> Stamp {
        let session = self.session();
        let number = session.known_numbers().map(|numbers| numbers.number).unwrap_or_default();
        Stamp::new(if session.writes { number } else { number.saturating_sub(1) })
    }

    /// Returns the place of the next change that this transaction adds to a change stream.
    pub(super) fn place_of_change(&self) -> Place {
        let transaction = self.stamp().number();
        let position = self.session().count_streamed();
        Place { transaction, position }
    }

    /// Returns the number of the transaction, and a random number plus the number of earlier calls, including the calls of nested transactions
    /// that were rolled back.
    pub(super) fn numbered(&self) -> (u64, u64) {
        (self.stamp().number(), self.session().count_numbered())
    }

    /// Ends the blocks of numbers of a table, because one of their numbers is taken. The transaction runs again.
    #[cold]
    pub(super) fn number_is_taken(&self, table: &'static str) -> Error {
        self.session().blocks.end(table);
        let error = Error::RetriesExhausted { attempts: 1 };
        self.session().fail(true, &error);
        error
    }

    /// Returns the pool of the connections.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.session().pool
    }

    /// Returns the reason to run the closure again.
    pub(crate) fn retry(&self) -> Option<Retry> {
        if self.pool().is_inherited() {
            return None;
        }
        let failure = self.session().failure();
        failure.is_some_and(|failure| failure.is_conflict).then_some(Retry::Conflict)
    }

    /// Fails if a statement has failed.
    fn refuse_failed(&self) -> Result<()> {
        self.pool().refuse_forked()?;
        let failure = self.session().failure().map(|failure| &failure.error);
        failure.or_else(|| self.failure.get()).map_or(Ok(()), |error| Err(failed(error)))
    }

    /// Records the failure of a statement, after which the server refuses all statements.
    #[cold]
    fn fail(&self, cause: tokio_postgres::Error) -> Error {
        let session = self.session();
        let (kind, error) = session.meaning(cause);
        if self.depth == 0 || kind != Kind::Refused {
            session.fail(kind == Kind::Conflict, &error);
        } else {
            self.failure.get_or_init(|| error.again());
        }
        error
    }

    /// Sends the pending items and a statement in one round trip.
    fn perform(&self, last: Last<'_>) -> Result<Response> {
        self.refuse_failed()?;
        self.session().round_trip(last).map_err(|broken| self.break_off(broken))
    }

    /// Records the failure of a round trip.
    #[cold]
    fn break_off(&self, broken: Broken) -> Error {
        match broken {
            Broken::Unsent(cause) | Broken::Statement(cause) | Broken::Last(cause) => {
                self.fail(cause)
            }
            Broken::Other(error) => {
                self.session().fail(false, &error);
                error
            }
        }
    }

    /// Sends the pending items.
    pub(super) fn send_pending(&self) -> Result<()> {
        self.pool().refuse_forked()?;
        if self.session().pending.with(|pending| pending.items.is_empty()) {
            return self.refuse_failed();
        }
        self.perform(Last::Numbers).map(drop)
    }

    /// Adds a change to those that are sent with the next statement. The columns are those of [`Batch::push`].
    pub(super) fn change(
        &self,
        relation: &Relation,
        kind: ChangeKind,
        columns: &[&[u8]],
    ) -> Result<()> {
        self.refuse_failed()?;
        let pending = &self.session().pending;
        let fits = pending.with(|it| it.is_undone() || it.extend(relation, kind, columns));
        if fits {
            return Ok(());
        }
        if pending.with(|pending| pending.is_full()) {
            self.send_pending()?;
        }
        pending.with(|pending| {
            if !pending.is_undone() {
                pending.begin(relation, kind, columns);
            }
        });
        Ok(())
    }

    /// Lets the new rows of an operation be sent with its other changes, until [`settle_new`](Self::settle_new) or
    /// [`abandon_new`](Self::abandon_new).
    pub(super) fn defer_new(&self) {
        self.session().pending.with(Pending::defer);
    }

    pub(super) fn is_deferring(&self) -> bool {
        self.session().pending.with(|pending| pending.is_deferring)
    }

    /// Sends the new rows of the operation with its other changes. Returns false if a key is taken, and nothing has
    /// changed.
    pub(super) fn settle_new(&self) -> Result<bool> {
        self.pool().refuse_forked()?;
        let pending = &self.session().pending;
        let is_single = pending.with(|pending| pending.is_single);
        let sent = if is_single { Ok(()) } else { self.send_pending() };
        let is_taken = pending.with(Pending::settle);
        sent.map(|()| !is_taken)
    }

    /// Removes the changes of an operation that has failed.
    pub(super) fn abandon_new(&self) {
        if !self.session().pending.with(Pending::abandon) {
            let reason = "an operation has failed".to_owned();
            self.session().fail(false, &Error::TransactionFailed { reason });
        }
    }

    /// Returns the rows of a query.
    pub(super) fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>> {
        match self.perform(Last::Query(sql, parameters))? {
            Response::Rows(rows) => Ok(rows),
            _ => Err(Error::internal("a query without rows")),
        }
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

    /// Keeps bytes until the end of the transaction.
    pub(super) fn lend(&self, bytes: Vec<u8>) -> Result<&[u8]> {
        let (_, kept) = self.records.keep(Arc::new(Some(bytes.into()))).ok_or_else(too_many)?;
        kept.as_deref().ok_or_else(too_many)
    }

    /// Returns the record of the catalog with this key. It is read from the server if no transaction with the same
    /// catalog has read it, or if this transaction has changed the catalog.
    pub(super) fn record(&self, schema: &'static TableSchema, key: &[u8]) -> Result<Option<&[u8]>> {
        self.refuse_failed()?;
        let session = self.session();
        let own_changes = session.own_changes();
        let read = self.read.with(|read| read.get(key).copied());
        let read = read.filter(|(_, at)| *at == own_changes);
        if let Some(record) = read.and_then(|(number, _)| self.records.get(number)) {
            return Ok(record.as_deref());
        }
        let mut record = None;
        if session.has_no_own_changes() {
            record = match session.known_numbers() {
                Some(numbers) => {
                    numbers.changes.and_then(|changes| session.catalog.get(changes, key))
                }
                None => session.assume(schema, key),
            };
        }
        if record.is_none() {
            session.need_numbers();
            session.note_read(schema, None);
            let sql = format!("SELECT v FROM {} WHERE k = $1", session.catalog.relation.sql);
            let rows = self.query(&sql, &[&key])?;
            let bytes = rows.first().map(|row| column::<&[u8]>(row, 0)).transpose()?;
            let found = Arc::new(bytes.map(Box::from));
            let changes = session.known_numbers().and_then(|numbers| numbers.changes);
            if let Some(changes) = changes
                && own_changes == 0
            {
                session.catalog.insert(changes, key, &found);
            }
            record = Some(found);
        }
        session.lend(key);
        let record = record.ok_or_else(|| Error::internal("a record of the catalog is missing"))?;
        let (number, record) = self.records.keep(record).ok_or_else(too_many)?;
        self.read.with(|read| read.insert(key.to_vec(), (number, own_changes)));
        Ok(record.as_deref())
    }

    /// Increments the counter of the catalog. Every transaction that changes the catalog does this.
    pub(super) fn catalog_changed(&self) -> Result<()> {
        self.session().note_own_change();
        self.simple(&self.session().catalog.change()).map(drop)
    }

    /// Returns the number of rows that a statement has changed.
    pub(super) fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64> {
        match self.perform(Last::Execute(sql, parameters))? {
            Response::Count(count) => Ok(count),
            _ => Err(Error::internal("a change without a count")),
        }
    }

    /// Runs statements without parameters.
    pub(super) fn simple(&self, sql: &str) -> Result<Option<String>> {
        match self.perform(Last::Simple(sql))? {
            Response::Text(text) => Ok(text),
            _ => Ok(None),
        }
    }

    /// Loads rows from binary data. Returns their number.
    pub(super) fn copy(&self, sql: &str, next: &mut dyn FnMut() -> Option<Vec<u8>>) -> Result<u64> {
        self.refuse_failed()?;
        self.session().copy(sql, next).map_err(|broken| self.break_off(broken))
    }

    /// Lets the transaction fail because of an error of its caller, after a part of an operation was sent.
    #[cold]
    pub(super) fn spoil(&self, error: Error) -> Error {
        self.session().fail(false, &error);
        error
    }

    /// Commits, and calls `committed`. Other transactions of this process may begin before that.
    pub(crate) fn commit(mut self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        let failed = |txn: &Self, error| match txn.retry() {
            Some(_) => CommitFailure::Conflict(error),
            None => CommitFailure::Failed(error),
        };
        self.refuse_failed().map_err(|error| failed(&self, error))?;
        if self.depth > 0 {
            return self.release_savepoint().map_err(CommitFailure::Failed);
        }
        let Held::Own(session) = &self.held else { return Ok(()) };
        if !session.writes {
            return Ok(());
        }
        let has_begun = session.has_begun();
        if !has_begun {
            match session.pending.with(Pending::unsent) {
                Unsent::Nothing => {
                    self.has_ended = true;
                    session.release().into_iter().for_each(Leased::keep);
                    committed();
                    return Ok(());
                }
                Unsent::Single(batch) => {
                    self.has_ended = true;
                    outcome::commit_alone(session, &batch)
                        .inspect_err(|failure| session.count_failure(failure))?;
                    session.after_commit();
                    committed();
                    return Ok(());
                }
                // Until the begin is confirmed, a lost connection is replaced, so the commit is not sent before.
                Unsent::Several => {
                    self.perform(Last::Numbers).map_err(|error| failed(&self, error))?;
                }
            }
        }
        self.has_ended = true;
        let Held::Own(session) = &self.held else { return Ok(()) };
        outcome::commit(session).inspect_err(|failure| session.count_failure(failure))?;
        session.after_commit();
        committed();
        Ok(())
    }

    fn release_savepoint(&mut self) -> Result<()> {
        let savepoint = savepoint(self.depth);
        let is_unsent = |item: &mut Item| matches!(item, Item::Simple(last) if *last == savepoint);
        // Otherwise, the nested transaction has sent nothing.
        let unsent = self.session().pending.with(|pending| pending.items.pop_back_if(is_unsent));
        if unsent.is_none() {
            self.perform(Last::Simple(&format!("RELEASE SAVEPOINT s{}", self.depth)))?;
        }
        self.has_ended = true;
        Ok(())
    }

    fn drop_nested(&self) {
        let (session, depth) = (self.session(), self.depth);
        if session.own_changes() != self.changes_before {
            session.note_own_change();
        }
        let is_unsent = session.pending.with(|pending| pending.roll_back_to(&savepoint(depth)));
        if is_unsent || session.failure().is_some() {
            return;
        }
        // The server accepts these statements after a failed statement.
        let sql = format!("ROLLBACK TO SAVEPOINT s{depth}; RELEASE SAVEPOINT s{depth}");
        // Without the rollback, the outer transaction must not be committed.
        match session.round_trip(Last::Simple(&sql)) {
            Ok(_) => {}
            Err(Broken::Other(error)) => session.fail(false, &error),
            Err(Broken::Unsent(cause) | Broken::Statement(cause) | Broken::Last(cause)) => {
                let (kind, error) = session.meaning(cause);
                session.fail(kind == Kind::Conflict, &error);
            }
        }
    }
}

fn savepoint(depth: u32) -> String {
    format!("SAVEPOINT s{depth}")
}

#[cold]
fn too_many() -> Error {
    Error::internal("too many results of a transaction")
}

const _: () = {
    const fn is_send<T: Send>() {}
    // Another thread may continue a read transaction, which is not nested.
    is_send::<(Session<'_>, Arena<Vec<Row>>, Arena<Arc<Record>>, Slot<Records>)>();
};

/// Returns the error for calls after a failure.
fn failed(error: &Error) -> Error {
    match error {
        // The closure runs again, with any result.
        Error::RetriesExhausted { .. } => error.again(),
        error => Error::TransactionFailed { reason: error.to_string() },
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        // The transaction of an inherited store belongs to the parent.
        if self.has_ended || self.pool().is_inherited() {
            return;
        }
        if self.depth > 0 {
            self.drop_nested();
            return;
        }
        let has_begun = self.session().has_begun();
        if let Some(leased) = self.session().release() {
            if has_begun && let Ok(connection) = leased.get() {
                // Only a write transaction has locks that others wait for.
                if self.session().writes {
                    connection.send(ROLLBACK);
                } else {
                    self.pool().ends.end(&connection);
                }
            }
            leased.keep();
        }
    }
}
