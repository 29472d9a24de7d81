//! The state of a server's transaction, and its round trips.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    collections::VecDeque,
    mem,
    sync::Arc,
};

use tokio_postgres::types::ToSql;

use super::{
    batch::{Batch, Kind as ChangeKind, Mode, Statement},
    catalog::{Catalog, Record},
    connection::{Connection, Outcome, Parameters, Response, Sent, column},
    dialect::Dialect,
    error::{self, Kind},
    names::Relation,
    numbers::{Blocks, Explicit},
    pool::{Counted, Leased, Pool},
    slot::Slot,
    start::{Start, State},
    stripes::{self, Group, Striped},
    tables::Tables,
};
use crate::model::{
    error::{Error, Result},
    numbering::Numbering,
    schema::{TableRecord, TableSchema},
};

/// The maximum waiting time for the writers of a table, in milliseconds.
const LOCK_TIMEOUT: u32 = 5000;

/// The parts of an open store that its transactions use.
#[derive(Clone, Copy)]
pub(super) struct Server<'s> {
    pub(super) pool: &'s Arc<Pool>,
    pub(super) catalog: &'s Catalog,
    /// The numbers that `insert_with` assigns.
    pub(super) blocks: &'s Blocks,
}

/// The state of a server's transaction, which nested transactions share.
pub(super) struct Session<'s> {
    pub(super) pool: &'s Arc<Pool>,
    pub(super) catalog: &'s Catalog,
    pub(super) blocks: &'s Blocks,
    pub(super) writes: bool,
    /// Whether the catalog exists.
    has_catalog: bool,
    /// Counts a read transaction until it ends.
    counted: OnceCell<Counted>,
    /// Other threads may take the snapshot of a read transaction.
    start: Arc<Start>,
    leased: Slot<Option<Leased>>,
    /// The failure that ends the transaction with all nested transactions.
    failure: OnceCell<Failure>,
    /// The number of changes of the catalog by this transaction, and of their rollbacks.
    own_changes: Cell<u64>,
    /// The number of changes that this transaction has added to change streams.
    streamed: Cell<u64>,
    /// The tables in which this transaction has inserted rows with keys that are not from a block of numbers.
    explicit: Slot<Vec<&'static str>>,
    /// The table in SQL whose other writers wait until the end of this transaction.
    exclusive: OnceCell<String>,
    /// The groups whose stripes are merged after the commit.
    merged: Slot<Vec<Group>>,
    /// The number of calls of [`Txn::numbered`](super::Txn::numbered), in all nested transactions.
    numbered: Cell<u64>,
    numbers: OnceCell<Numbers>,
    /// The cached records that this transaction used before the numbers were known.
    assumed: Slot<Option<Assumed>>,
    /// The keys of the records that were used since the last statement.
    used: Slot<Vec<Vec<u8>>>,
    /// The items that are sent with the next statement.
    pub(super) pending: Slot<Pending>,
}

/// The numbers of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The number of the write transaction, or the number before which all transactions of a snapshot have ended.
    pub(super) number: u64,
    /// The counter of the catalog in the snapshot; `None` before the catalog exists.
    pub(super) changes: Option<u64>,
}

/// The used cached records, and the counter of the catalog for which they are valid.
struct Assumed {
    changes: u64,
    records: Vec<(&'static TableSchema, Vec<u8>, Arc<Record>)>,
}

/// The first error of a transaction.
pub(super) struct Failure {
    pub(super) is_conflict: bool,
    pub(super) error: Error,
}

/// The maximum number of items that are sent with the next statement.
const MOST_PENDING: usize = 64;

/// The items that are sent with the next statement.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) items: VecDeque<Item>,
    /// Whether new keys are assumed to be free until the result is read.
    pub(super) is_deferring: bool,
    /// Whether a new key was taken.
    pub(super) is_taken: bool,
    /// The number of items before the operation with new rows; `None` without such an operation, or after its rows were
    /// sent.
    pub(super) operation: Option<usize>,
    /// Whether the transaction is one operation, which runs again if a new key is taken.
    pub(super) is_single: bool,
}

impl Pending {
    /// Whether there are new rows.
    fn has_new(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Batch(batch) if batch.has_new()))
    }

    /// Whether the operation is undone, because a new key was taken.
    pub(super) const fn is_undone(&self) -> bool {
        self.is_deferring && self.is_taken
    }

    /// Whether the items have to be sent before another batch begins.
    pub(super) fn is_full(&self) -> bool {
        let depends = self.is_deferring && !self.is_single;
        depends && self.has_new() || self.items.len() >= MOST_PENDING
    }

    /// Adds a change to the last batch. Returns false if it doesn't fit. The columns are those of [`Batch::push`].
    pub(super) fn extend(
        &mut self,
        relation: &Relation,
        kind: ChangeKind,
        columns: &[&[u8]],
    ) -> bool {
        match self.items.back_mut() {
            Some(Item::Batch(last)) => last.push(relation, kind, columns),
            _ => false,
        }
    }

    /// Begins a batch with a change.
    pub(super) fn begin(&mut self, relation: &Relation, kind: ChangeKind, columns: &[&[u8]]) {
        let mut batch = Batch::default();
        batch.push(relation, kind, columns);
        self.items.push_back(Item::Batch(batch));
    }

    /// Begins an operation whose new rows are sent with its other changes. Returns false if the server can't do that.
    pub(super) fn defer(&mut self, dialect: Dialect) -> bool {
        if !dialect.has_writing_ctes() && !self.is_single {
            return false;
        }
        (self.is_deferring, self.is_taken) = (true, false);
        self.operation = Some(self.items.len());
        // Changes of other operations must not depend on the new rows of this operation.
        if !matches!(self.items.back(), Some(Item::Batch(batch)) if batch.is_empty()) {
            self.items.push_back(Item::Batch(Batch::default()));
        }
        true
    }

    /// Ends the operation, whose changes were sent. Returns whether a new key was taken.
    pub(super) fn settle(&mut self) -> bool {
        (self.is_deferring, self.operation) = (false, None);
        mem::take(&mut self.is_taken)
    }

    /// Removes the changes of the operation. Returns false if they were sent.
    pub(super) fn abandon(&mut self) -> bool {
        if !mem::take(&mut self.is_deferring) {
            return true;
        }
        self.is_taken = false;
        let Some(operation) = self.operation.take() else { return false };
        self.items.truncate(operation);
        true
    }

    /// Removes the items after the start of a nested transaction. Returns whether the server has not received its
    /// savepoint.
    pub(super) fn roll_back_to(&mut self, savepoint: &str) -> bool {
        (self.is_deferring, self.is_taken, self.operation) = (false, false, None);
        let unsent = self
            .items
            .iter()
            .position(|item| matches!(item, Item::Simple(sql) if sql == savepoint));
        self.items.truncate(unsent.unwrap_or(0));
        unsent.is_some()
    }

    /// Returns the changes of a transaction that has sent nothing.
    pub(super) fn unsent(&mut self, dialect: Dialect) -> Unsent {
        self.items.retain(Item::is_needed);
        match self.items.pop_front() {
            None => Unsent::Nothing,
            Some(Item::Batch(batch)) if self.items.is_empty() && batch.is_single(dialect) => {
                Unsent::Single(batch)
            }
            Some(first) => {
                self.items.push_front(first);
                Unsent::Several
            }
        }
    }
}

/// The changes of a transaction that has sent nothing.
pub(super) enum Unsent {
    Nothing,
    /// A batch that can be a transaction of its own.
    Single(Batch),
    Several,
}

pub(super) enum Item {
    Batch(Batch),
    /// A statement without parameters.
    Simple(String),
}

impl Item {
    fn is_needed(&self) -> bool {
        !matches!(self, Self::Batch(batch) if batch.is_empty())
    }
}

/// The last statement of a round trip.
#[derive(Clone, Copy)]
pub(super) enum Last<'p> {
    Query(&'p str, Parameters<'p>),
    Execute(&'p str, Parameters<'p>),
    Simple(&'p str),
    /// No statement: only the pending items and the query for the numbers are sent.
    Numbers,
}

/// The failure of a round trip.
pub(super) enum Broken {
    /// The error of a statement.
    Statement(tokio_postgres::Error),
    /// The error of the last statement, after all others have succeeded.
    Last(tokio_postgres::Error),
    Other(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl<'s> Session<'s> {
    /// Returns the session of a transaction that has not begun. Without a connection, it takes one for its first
    /// statement.
    pub(super) fn new(
        Server { pool, catalog, blocks }: Server<'s>,
        leased: Option<Leased>,
        writes: bool,
        has_catalog: bool,
    ) -> Result<Self> {
        let session = Self {
            pool,
            catalog,
            blocks,
            writes,
            has_catalog,
            counted: OnceCell::new(),
            start: Arc::default(),
            leased: Slot::default(),
            failure: OnceCell::new(),
            own_changes: Cell::new(0),
            streamed: Cell::new(0),
            explicit: Slot::default(),
            exclusive: OnceCell::new(),
            merged: Slot::default(),
            numbered: Cell::new(0),
            numbers: OnceCell::new(),
            assumed: Slot::default(),
            used: Slot::default(),
            pending: Slot::default(),
        };
        if let Some(leased) = leased {
            session.use_connection(leased)?;
        }
        Ok(session)
    }

    fn use_connection(&self, leased: Leased) -> Result<Arc<Connection>> {
        let connection = leased.get()?;
        self.start.lock().connection = Some(Arc::clone(&connection));
        if !self.writes {
            self.counted.get_or_init(|| self.pool.count_reader(&self.start));
        }
        self.leased.set(Some(leased));
        Ok(connection)
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        match self.leased.with(|leased| leased.as_ref().map(Leased::get)) {
            Some(connection) => connection,
            None => self.use_connection(self.pool.take()?),
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.start.lock().has_begun
    }

    /// Returns the numbers, if they are known.
    pub(super) fn known_numbers(&self) -> Option<Numbers> {
        self.numbers.get().copied()
    }

    /// Makes the next round trip read the numbers.
    pub(super) fn need_numbers(&self) {
        let changes = self.catalog.changes_known();
        self.assumed.with(|assumed| {
            assumed.get_or_insert(Assumed { changes, records: Vec::new() });
        });
    }

    /// Returns the failure of the transaction.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Lets the transaction fail, unless it has failed.
    pub(super) fn fail(&self, is_conflict: bool, error: &Error) {
        self.failure.get_or_init(|| Failure { is_conflict, error: error.again() });
    }

    /// Lets other writers of an SQL table wait until the end of the transaction, which has not begun.
    pub(super) fn exclude_writers(&self, table: &Relation) {
        self.exclusive.get_or_init(|| table.sql.clone());
    }

    /// Returns the number of changes of the catalog by this transaction, and of their rollbacks.
    pub(super) const fn own_changes(&self) -> u64 {
        self.own_changes.get()
    }

    /// Notes a change of the catalog by this transaction, or a rollback of changes.
    pub(super) fn note_own_change(&self) {
        self.own_changes.update(|changes| changes + 1);
    }

    /// Returns the number of earlier changes that this transaction has added to change streams.
    pub(super) fn count_streamed(&self) -> u64 {
        self.streamed.replace(self.streamed.get() + 1)
    }

    /// Returns the number of earlier calls of this function, also in nested transactions that were rolled back.
    pub(super) fn count_numbered(&self) -> u64 {
        self.numbered.replace(self.numbered.get() + 1)
    }

    /// Adds the key of a catalog record that the transaction uses. With the next statement, the record becomes trusted.
    pub(super) fn lend(&self, key: &[u8]) {
        self.used.with(|used| used.push(key.to_vec()));
    }

    /// Returns the connection of a transaction that has begun.
    pub(super) fn begun_connection(&self) -> Result<Arc<Connection>> {
        self.connection()
    }

    /// Returns a cached record before the counter of the snapshot is known. It is checked with the next statement.
    pub(super) fn assume(&self, schema: &'static TableSchema, key: &[u8]) -> Option<Arc<Record>> {
        if !self.has_catalog || self.known_numbers().is_some() {
            return None;
        }
        let changes = self.assumed.with(|assumed| assumed.as_ref().map(|assumed| assumed.changes));
        let changes = changes.unwrap_or_else(|| self.catalog.changes_known());
        let record = self.catalog.trusted(changes, key)?;
        // A cached state may be older than the completion of an index, so a reader reads the current state.
        let is_state = key.last() != Some(&0);
        if !self.writes && is_state && record.is_some() {
            return None;
        }
        self.assumed.with(|assumed| {
            let assumed = assumed.get_or_insert(Assumed { changes, records: Vec::new() });
            assumed.records.push((schema, key.to_vec(), Arc::clone(&record)));
        });
        Some(record)
    }

    /// Returns the statements that begin the transaction. A lock precedes the snapshot, so that the snapshot has the commits of
    /// the writers that had the lock before.
    fn begin_sql(&self) -> Cow<'static, str> {
        let begin = self.pool.dialect().begin(self.writes);
        self.exclusive.get().map_or(begin.into(), |table| {
            format!(
                "{begin}; SET LOCAL lock_timeout = {LOCK_TIMEOUT}; \
                 LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE; SET LOCAL lock_timeout = 0"
            )
            .into()
        })
    }

    /// Returns the statement for the numbers.
    fn numbers_sql(&self) -> String {
        let dialect = self.pool.dialect();
        if self.has_catalog {
            return self.catalog.numbers(dialect, self.writes);
        }
        format!("SELECT {}", dialect.number(self.writes))
    }

    /// Sends the pending items and the last statement in one round trip, and waits for all results.
    pub(super) fn round_trip(&self, last: Last<'_>) -> Result<Response, Broken> {
        let pending: Vec<Item> = self.pending.with(|pending| {
            pending.operation = None;
            pending.items.drain(..).filter(Item::is_needed).collect()
        });
        loop {
            let connection = self.connection()?;
            match self.attempt(&connection, &pending, last) {
                // The connection was lost while it was idle.
                Err(Attempt::LostBefore(error)) => {
                    let is_new =
                        |leased: &mut Option<Leased>| leased.as_ref().is_none_or(Leased::is_new);
                    if self.leased.with(is_new) {
                        return Err(Broken::Statement(error));
                    }
                    drop(self.leased.take());
                }
                Err(Attempt::Broken(broken)) => return Err(broken),
                Ok(response) => return Ok(response),
            }
        }
    }

    /// Prepares a statement. From now on, new connections prepare it when they are opened.
    fn prepared(&self, connection: &Connection, sql: &str) -> Outcome<tokio_postgres::Statement> {
        if !connection.has(sql) {
            self.pool.know(sql);
        }
        connection.prepared(sql)
    }

    /// Prepares the pending items.
    fn steps<'p>(
        &self,
        connection: &Connection,
        pending: &'p [Item],
        begins: bool,
    ) -> Outcome<Vec<Step<'p>>> {
        let dialect = self.pool.dialect();
        let is_single = self.pending.with(|pending| pending.is_single);
        let is_confirmed = !begins || !dialect.has_guard();
        let mode = if is_confirmed { Mode::Confirmed } else { Mode::Begun };
        let mut steps = Vec::new();
        for item in pending {
            match item {
                Item::Simple(sql) => steps.push(Step::Simple(sql)),
                Item::Batch(batch) => {
                    for statement in batch.statements(dialect, mode, is_single, "") {
                        let prepared = self.prepared(connection, &statement.sql)?;
                        steps.push(Step::Change(statement, prepared, batch));
                    }
                }
            }
        }
        Ok(steps)
    }

    fn attempt(
        &self,
        connection: &Connection,
        pending: &[Item],
        last: Last<'_>,
    ) -> Result<Response, Attempt> {
        let broken = |error| Attempt::Broken(Broken::Statement(error));
        let mut start = self.start.lock();
        if let Some(failure) = start.failure.take() {
            return Err(broken(failure));
        }
        let begins = !start.has_begun;
        let before = |error: tokio_postgres::Error| {
            if begins && error::kind(&error) == Kind::Lost {
                return Attempt::LostBefore(error);
            }
            broken(error)
        };
        let dialect = self.pool.dialect();
        let needs_numbers = self.known_numbers().is_none()
            && (self.writes && begins
                || matches!(last, Last::Numbers)
                || self.assumed.with(|assumed| assumed.is_some()));
        // All statements are prepared before the first is sent. Otherwise, a statement could overtake another that is
        // still being prepared.
        let mut numbers_sql = needs_numbers
            .then(|| connection.execute_named(&self.numbers_sql()))
            .transpose()
            .map_err(before)?;
        let steps = self.steps(connection, pending, begins).map_err(before)?;
        let last_statement = match last {
            Last::Query(sql, _) | Last::Execute(sql, _) => {
                Some(self.prepared(connection, sql).map_err(before)?)
            }
            Last::Simple(_) | Last::Numbers => None,
        };
        let parameters: Vec<_> = steps.iter().map(Step::parameters).collect();

        let mut begin_sql = self.begin_sql();
        if begins && let Some(numbers) = numbers_sql.take() {
            begin_sql = format!("{begin_sql}; {numbers}").into();
        }
        let mut begin = begins.then(|| connection.send_simple(&begin_sql));
        start.has_begun = true;
        // After another error than a loss, for example of a lock, there is a transaction to roll back.
        let not_begun = |start: &mut State, error| {
            start.has_begun = error::kind(&error) != Kind::Lost;
            before(error)
        };
        let mut numbers = None;
        if !dialect.has_guard()
            && !steps.is_empty()
            && let Some(begin) = begin.take()
        {
            match begin.wait() {
                Ok(response) => numbers = Some(response),
                Err(error) => return Err(not_begun(&mut start, error)),
            }
        }
        let numbers_sent = numbers_sql.as_ref().map(|sql| connection.send_simple(sql));
        let sent = steps.iter().zip(&parameters).map(|(step, parameters)| match step {
            Step::Simple(sql) => connection.send_simple(sql),
            Step::Change(_, prepared, _) => connection.send_query(prepared, parameters),
        });
        let sent: Vec<_> = sent.collect();
        let last = match (last, &last_statement) {
            (Last::Query(_, parameters), Some(it)) => Some(connection.send_query(it, parameters)),
            (Last::Execute(_, parameters), Some(it)) => {
                Some(connection.send_execute(it, parameters))
            }
            (Last::Simple(sql), _) => Some(connection.send_simple(sql)),
            _ => None,
        };

        if let Some(begin) = begin {
            // Before this response, nothing of this transaction was received.
            match begin.wait() {
                Ok(response) => numbers = Some(response),
                Err(error) => return Err(not_begun(&mut start, error)),
            }
        }
        if let Some(sent) = numbers_sent {
            numbers = Some(sent.wait().map_err(broken)?);
        }
        drop(start);
        if needs_numbers {
            self.receive_numbers(numbers)?;
        }
        for (future, step) in sent.into_iter().zip(&steps) {
            let response = future.wait().map_err(broken)?;
            if let Step::Change(statement, _, batch) = step {
                self.check(statement, batch, response)?;
            }
        }
        // The connection receives no later response before this response, which can be long.
        let response = last.map(Sent::wait).transpose();
        let response = response.map_err(|error| Attempt::Broken(Broken::Last(error)))?;
        if needs_numbers {
            self.check_assumed(connection)?;
        }
        for key in self.used.take() {
            self.catalog.trust(&key);
        }
        Ok(response.unwrap_or(Response::Text(None)))
    }

    fn receive_numbers(&self, response: Option<Response>) -> Result<()> {
        let missing = || Error::internal("a transaction of PostgreSQL without a number");
        let Some(Response::Text(Some(text))) = response else { return Err(missing()) };
        let mut numbers = text.split(' ');
        let number = numbers.next().and_then(|it| it.parse().ok()).ok_or_else(missing)?;
        let changes = numbers.next().and_then(|it| it.parse().ok());
        // The numbers are received once.
        let _ = self.numbers.set(Numbers { number, changes });
        Ok(())
    }

    /// Checks the result of a batch.
    fn check(&self, statement: &Statement, batch: &Batch, response: Response) -> Result<()> {
        let Response::Rows(rows) = response else { return Ok(()) };
        if statement.new == 0 && !statement.is_guarded {
            return Ok(());
        }
        let missing = || Error::internal("a change of PostgreSQL without a result");
        let row = rows.first().ok_or_else(missing)?;
        if statement.is_guarded && !column::<bool>(row, 1)? {
            return Err(Error::internal("a change outside of its transaction"));
        }
        let written: i64 = column(row, 0)?;
        if written < statement.new {
            self.pending.with(|pending| {
                pending.is_taken = true;
                if written > 0 {
                    let undo = batch.undo(usize::try_from(written).unwrap_or(usize::MAX));
                    pending.items.push_back(Item::Batch(undo));
                }
            });
        }
        Ok(())
    }

    /// Compares the used cached records with the records of the snapshot.
    fn check_assumed(&self, connection: &Connection) -> Result<(), Broken> {
        let Some(assumed) = self.assumed.take() else { return Ok(()) };
        let changes = self.known_numbers().and_then(|numbers| numbers.changes);
        if changes == Some(assumed.changes) || assumed.records.is_empty() {
            return Ok(());
        }
        let keys: Vec<&[u8]> = assumed.records.iter().map(|(_, key, _)| key.as_slice()).collect();
        let sql = format!("SELECT k, v FROM {} WHERE k = ANY($1)", self.catalog.relation.sql);
        let rows = connection.query(&sql, &[&keys]).map_err(Broken::Statement)?;
        let mut found = std::collections::HashMap::new();
        for row in &rows {
            found.insert(column::<&[u8]>(row, 0)?, column::<&[u8]>(row, 1)?);
        }
        for (schema, key, record) in &assumed.records {
            let now = found.get(key.as_slice()).copied();
            if let Some(changes) = changes {
                self.catalog.insert(changes, key, &Arc::new(now.map(Box::from)));
            }
            if now == record.as_deref() {
                continue;
            }
            if self.writes {
                let error = Error::RetriesExhausted { attempts: 1 };
                self.fail(true, &error);
                return Err(error.into());
            }
            if !still_fits(schema, key, record.as_deref(), now) {
                return Err(Error::SnapshotTooOld { table: schema.name }.into());
            }
        }
        Ok(())
    }

    /// Sends a single batch as a transaction of its own. Returns whether the batch was applied. If not, nothing has
    /// changed, and the transaction may run again.
    pub(super) fn send_alone(&self, batch: &Batch) -> Outcome<Result<bool>> {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let changes = self.assumed.with(|assumed| assumed.as_ref().map(|assumed| assumed.changes));
        let mode = Mode::Alone { changes };
        let current = self.catalog.changes();
        let statements = batch.statements(self.pool.dialect(), mode, true, &current);
        let Some(statement) = statements.first() else { return Ok(Ok(true)) };
        let prepared = self.prepared(&connection, &statement.sql)?;
        let parameters = statement.parameters();
        self.pool.take_snapshots();
        let Response::Rows(rows) = connection.send_query(&prepared, &parameters).wait()? else {
            return Ok(Ok(false));
        };
        let applied = rows.first().map_or(Ok(false), |row| column(row, 1));
        if matches!(applied, Ok(true)) {
            drop(self.assumed.take());
        }
        Ok(applied)
    }

    /// Notes a new row, or a row with a new key, or `None` for many rows.
    pub(super) fn note_new(&self, tables: &Tables, primary_key: Option<&[u8]>) {
        if self.pool.is_inherited() {
            return;
        }
        if primary_key.is_some_and(|key| self.blocks.note(tables, key) == Explicit::Settled) {
            return;
        }
        self.explicit.with(|explicit| {
            if !explicit.contains(&tables.schema.name) {
                explicit.push(tables.schema.name);
            }
        });
    }

    /// Returns the next number of `insert_with`; `None` if the transaction has rows that blocks of numbers don't cover.
    pub(super) fn next_number(
        &self,
        tables: &Tables,
        numbering: &Numbering<'_>,
    ) -> Result<Option<u128>> {
        self.pool.refuse_forked()?;
        if self.explicit.with(|explicit| explicit.contains(&tables.schema.name)) {
            return Ok(None);
        }
        self.blocks.next(self.pool, tables, numbering).map(Some)
    }

    /// Lets the stripes of a group be merged after the commit.
    pub(super) fn merge_later(&self, striped: &Striped, group: &[u8]) {
        let is_same = |(other, same): &Group| {
            other.relation.name == striped.relation.name && same.as_slice() == group
        };
        self.merged.with(|merged| {
            if !merged.iter().any(is_same) {
                merged.push((striped.clone(), group.to_vec()));
            }
        });
    }

    /// Ends the blocks of numbers that the committed rows of this transaction concern, and merges stripes.
    pub(super) fn after_commit(&self) {
        for table in self.explicit.take() {
            self.blocks.end(table);
        }
        let merged = self.merged.take();
        if !merged.is_empty() {
            stripes::merge(self.pool, &merged);
        }
    }

    /// Whether the connection has ended.
    pub(super) fn is_lost(&self) -> bool {
        let connection =
            self.leased.with(|leased| leased.as_ref().and_then(|leased| leased.get().ok()));
        connection.is_none_or(|connection| connection.is_closed())
    }

    /// Ends the use of the connection, and returns it.
    pub(super) fn release(&self) -> Option<Leased> {
        let assumed = self.assumed.take();
        // Cached records may be obsolete if the transaction has changed the catalog, or if no statement has checked
        // them.
        if !self.has_no_own_changes() || assumed.is_some_and(|it| !it.records.is_empty()) {
            self.catalog.forget();
        }
        self.start.end();
        self.leased.take()
    }

    /// Whether this transaction has not changed the catalog.
    pub(super) fn has_no_own_changes(&self) -> bool {
        self.own_changes() == 0
    }
}

/// A statement of a round trip before the last round trip.
enum Step<'p> {
    Simple(&'p str),
    /// A prepared statement of a batch.
    Change(Statement, tokio_postgres::Statement, &'p Batch),
}

impl Step<'_> {
    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        match self {
            Self::Simple(_) => Vec::new(),
            Self::Change(statement, ..) => statement.parameters(),
        }
    }
}

enum Attempt {
    /// The connection was lost before anything was received.
    LostBefore(tokio_postgres::Error),
    Broken(Broken),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        Self::Broken(Broken::Other(error))
    }
}

impl From<Broken> for Attempt {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Whether a reader may have used the record `before` in a snapshot with the record `now`. Both must be records of the
/// table, with the same declarations of all indexes.
fn still_fits(
    schema: &'static TableSchema,
    key: &[u8],
    before: Option<&[u8]>,
    now: Option<&[u8]>,
) -> bool {
    let (Some(before), Some(now), Some(0)) = (before, now, key.last()) else { return false };
    let [before, now] = [before, now].map(|record| TableRecord::decode(schema.name, record));
    let (Ok(before), Ok(now)) = (before, now) else { return false };
    schema.positions().all(|index| now.has_index_of(&before, index))
}
