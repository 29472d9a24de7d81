//! The round trips of a transaction.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use tokio_postgres::types::ToSql;

use super::{
    batch::{Batch, Mode, Statement},
    connection::{Connection, Outcome, Parameters, Response, Sent, column},
    error::{self, Kind},
    patience,
    pending::Item,
    pool::Leased,
    session::{Numbers, Session},
    sql,
    start::State,
    token::{self, Insertion, Kept, Token},
};
use crate::model::{
    error::{Error, Result},
    index_state::IndexState,
    lists::LISTS,
    schema::{StateRecord, TableRecord, TableSchema},
};

/// The last statement of a round trip.
#[derive(Clone, Copy)]
pub(super) enum Last<'p> {
    Query(&'p str, Parameters<'p>),
    Execute(&'p str, Parameters<'p>),
    Simple(&'p str),
    /// No statement: only the pending items and the query for the numbers are sent.
    Numbers,
}

impl Last<'_> {
    /// Whether the statement may change something. Unlike `WITH`, a `SELECT` can't contain a change.
    fn may_change(&self) -> bool {
        match self {
            Self::Query(sql, _) => !sql.starts_with("SELECT "),
            Self::Execute(..) | Self::Simple(_) => true,
            Self::Numbers => false,
        }
    }
}

/// The failure of a round trip.
pub(super) enum Broken {
    /// A statement can't be prepared. Nothing of the round trip was sent.
    Unsent(tokio_postgres::Error),
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

impl Session<'_> {
    /// Returns the statements that begin the transaction. A lock precedes the snapshot, so that the snapshot has the commits of
    /// the writers that had the lock before.
    fn begin_sql(&self) -> Cow<'static, str> {
        let begin = sql::begin(self.writes);
        if let Some(table) = self.exclusive.get() {
            return format!("{begin}; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE").into();
        }
        // A transaction that changes SQL tables, or builds indexes, waits for the writers. They don't wait for it for long.
        let is_locked =
            |leased: &mut Option<Leased>| leased.as_ref().is_some_and(Leased::is_locked);
        if !self.writes || self.leased.with(is_locked) {
            return begin.into();
        }
        let longest = self.pool.limits().lock();
        let limit = if self.has_one_attempt.get() {
            patience::ONE.min(longest)
        } else {
            patience::limit(longest)
        };
        format!("{begin}; {}", sql::local_lock_timeout(limit)).into()
    }

    /// Returns the statement for the numbers.
    fn numbers_sql(&self) -> String {
        if self.has_catalog {
            return self.catalog.numbers(self.writes);
        }
        format!("SELECT {}", sql::number(self.writes))
    }

    /// Returns the connection. The first call takes it from the pool.
    ///
    /// Only the functions of this file send statements of a transaction. Each notes that the transaction may change something, so no
    /// change is committed without a token.
    fn connection(&self) -> Result<Arc<Connection>> {
        match self.leased.with(|leased| leased.as_ref().map(Leased::get)) {
            Some(connection) => connection,
            None => self.use_connection(self.pool.take()?),
        }
    }

    /// Loads rows from binary data. Returns their number.
    pub(super) fn copy(
        &self,
        sql: &str,
        next: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) -> Result<u64, Broken> {
        self.has_changed.set(true);
        // The transaction has begun.
        self.round_trip(Last::Numbers)?;
        self.connection()?.copy(sql, next).map_err(Broken::Statement)
    }

    /// Sends the pending items and the last statement in one round trip, and waits for all results.
    pub(super) fn round_trip(&self, last: Last<'_>) -> Result<Response, Broken> {
        let pending: Vec<Item> = self.pending.with(|pending| {
            pending.operation = None;
            pending.items.drain(..).filter(Item::is_needed).collect()
        });
        if last.may_change() || !pending.is_empty() {
            self.has_changed.set(true);
        }
        loop {
            let connection = self.connection()?;
            match self.attempt(&connection, &pending, last) {
                // The connection was lost while it was idle.
                Err(Attempt::LostBefore(error)) => {
                    let is_replaceable = |leased: &mut Option<Leased>| {
                        leased.as_ref().is_some_and(Leased::is_replaceable)
                    };
                    if !self.leased.with(is_replaceable) {
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

    /// Prepares the statement of a batch, unless it is sent with its text.
    fn prepared_change(
        &self,
        connection: &Connection,
        sql: &str,
    ) -> Outcome<Option<tokio_postgres::Statement>> {
        self.pool.texts.is_prepared(sql).then(|| self.prepared(connection, sql)).transpose()
    }

    /// Prepares the pending items.
    fn steps<'p>(
        &self,
        connection: &Connection,
        pending: &'p [Item],
        begins: bool,
    ) -> Outcome<Vec<Step<'p>>> {
        let is_single = self.pending.with(|pending| pending.is_single);
        let mode = if begins { Mode::Begun } else { Mode::Confirmed };
        let mut steps = Vec::new();
        for item in pending {
            match item {
                Item::Simple(sql) => steps.push(Step::Simple(sql)),
                Item::Batch(batch) => {
                    let statement = batch.statement(mode, is_single, "");
                    let prepared = self.prepared_change(connection, &statement.sql)?;
                    steps.push(Step::Change(statement, prepared, batch));
                }
                Item::Token(token) => {
                    let sql = token::insert(&self.catalog.commits);
                    let prepared = self.prepared(connection, &sql)?;
                    let insertion = Insertion::new(*token, connection.token().as_ref());
                    steps.push(Step::Token(*token, prepared, insertion));
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
        let unsent = |error| Attempt::Broken(Broken::Unsent(error));
        let mut start = self.start.lock();
        if let Some(failure) = start.failure.take() {
            return Err(broken(failure));
        }
        let begins = !start.has_begun;
        let lost_or = |other: &dyn Fn(tokio_postgres::Error) -> Attempt, error| {
            let is_lost = begins && error::kind(&error) == Kind::Lost;
            if is_lost { Attempt::LostBefore(error) } else { other(error) }
        };
        let before = |error| lost_or(&unsent, error);
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
        let begin = begins.then(|| connection.send_simple(&begin_sql));
        start.has_begun = true;
        // After another error than a loss, for example of a lock, there is a transaction to roll back.
        let not_begun = |start: &mut State, error| {
            start.has_begun = error::kind(&error) != Kind::Lost;
            lost_or(&broken, error)
        };
        let mut numbers = None;
        let numbers_sent = numbers_sql.as_ref().map(|sql| connection.send_simple(sql));
        let sent = steps.iter().zip(&parameters).map(|(step, parameters)| match step {
            Step::Simple(sql) => connection.send_simple(sql),
            Step::Change(_, Some(prepared), _) | Step::Token(_, prepared, _) => {
                connection.send_query(prepared, parameters)
            }
            Step::Change(statement, None, _) => {
                connection.send_unprepared(&statement.sql, parameters, statement.types())
            }
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
            match step {
                Step::Simple(_) => {}
                Step::Change(statement, _, batch) => self.check(statement, batch, response)?,
                Step::Token(token, ..) => self.note_token(*token, &response, 0),
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

    /// Notes the token that the transaction has inserted, with its place in a column of the response. A token without a place stays
    /// until it is removed by age.
    fn note_token(&self, token: Token, response: &Response, at: usize) {
        let Response::Rows(rows) = response else { return };
        let place = rows.first().and_then(|row| column::<&str>(row, at).ok());
        self.token.set(place.map(|place| Kept::new(token, place)));
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
            drop(self.reads.take());
            return Ok(());
        }
        let reads = self.reads.take();
        let states = reads.parts.iter().filter_map(|part| Some((*part, state_key(*part)?)));
        let states: Vec<_> = states.collect();
        let keys = assumed.records.iter().map(|(_, key, _)| key.as_slice());
        let keys: Vec<&[u8]> = keys.chain(states.iter().map(|(_, key)| key.as_slice())).collect();
        let sql = format!("SELECT k, v FROM {} WHERE k = ANY($1)", self.catalog.relation.sql);
        let rows = connection.query(&sql, &[&keys]).map_err(Broken::Statement)?;
        let mut found = HashMap::new();
        for row in &rows {
            found.insert(column::<&[u8]>(row, 0)?, column::<&[u8]>(row, 1)?);
        }
        let (mut is_replaced, mut unfit) = (false, Ok(()));
        for (schema, key, record) in &assumed.records {
            let now = found.get(key.as_slice()).copied();
            if let Some(changes) = changes {
                self.catalog.insert(changes, key, &Arc::new(now.map(Box::from)));
            }
            // Rows of the lists that the transaction knows stay readable.
            if now == record.as_deref() || key.ends_with(LISTS.as_bytes()) {
                continue;
            }
            if self.writes {
                let error = Error::RetriesExhausted { attempts: 1 };
                self.fail(true, &error);
                return Err(error.into());
            }
            is_replaced = true;
            let own = reads.parts.iter().filter(|(of, _)| of.name == schema.name);
            let own: Vec<usize> = own.map(|(_, part)| *part).collect();
            // The transaction goes on with the records of its snapshot.
            self.note_own_change();
            let state = |part: usize| {
                let state = state_key((schema, part)).and_then(|key| found.get(key.as_slice()));
                match StateRecord::decode(state?) {
                    Some(StateRecord::Announced(_)) => Some(IndexState::Announced),
                    _ => None,
                }
            };
            let reads = (own.as_slice(), reads.others);
            let fits = still_fits((*schema, key), record.as_deref(), now, reads, state);
            unfit = unfit.and(fits);
        }
        // All records of the snapshot are in the cache now, for the next transaction.
        unfit?;
        for ((schema, part), key) in states.iter().filter(|_| is_replaced) {
            let Some(state) = found.get(key.as_slice()) else { continue };
            let (table, index) = (schema.name, schema.name_at(*part).unwrap_or_default());
            let state = StateRecord::decode(state)
                .ok_or_else(|| StateRecord::unreadable(table, index))?
                .into();
            return Err(Error::IndexNotReadable { table, index, state }.into());
        }
        Ok(())
    }

    /// Sends a single batch as a transaction of its own. Returns whether the batch was applied. If not, nothing has
    /// changed, and the transaction may run again.
    pub(super) fn send_alone(&self, batch: &Batch, token: Token) -> Outcome<Result<bool>> {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let changes = self.assumed.with(|assumed| assumed.as_ref().map(|assumed| assumed.changes));
        let current = self.catalog.changes();
        if batch.is_empty() {
            return Ok(Ok(true));
        }
        let commits = &self.catalog.commits;
        let statement = batch.statement(Mode::Alone { changes, commits }, true, &current);
        let prepared = self.prepared_change(&connection, &statement.sql)?;
        let insertion = Insertion::new(token, connection.token().as_ref());
        let mut parameters = statement.parameters();
        parameters.extend(insertion.parameters());
        let mut types = statement.types();
        types.extend(Insertion::TYPES);
        self.pool.take_snapshots();
        let sent = match &prepared {
            Some(prepared) => connection.send_query(prepared, &parameters),
            None => connection.send_unprepared(&statement.sql, &parameters, types),
        };
        let response = sent.wait()?;
        let Response::Rows(rows) = &response else { return Ok(Ok(false)) };
        let applied = rows.first().map_or(Ok(false), |row| column(row, 1));
        if !matches!(applied, Ok(true)) {
            return Ok(applied);
        }
        drop(self.assumed.take());
        self.note_token(token, &response, 2);
        Ok(Ok(true))
    }
}

/// A statement of a round trip before the last round trip.
enum Step<'p> {
    Simple(&'p str),
    /// A statement of a batch, which may be prepared.
    Change(Statement, Option<tokio_postgres::Statement>, &'p Batch),
    Token(Token, tokio_postgres::Statement, Insertion),
}

impl Step<'_> {
    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        match self {
            Self::Simple(_) => Vec::new(),
            Self::Change(statement, ..) => statement.parameters(),
            Self::Token(_, _, insertion) => insertion.parameters().to_vec(),
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

/// Returns the key of the state of an index or aggregate in the catalog.
fn state_key((schema, part): (&'static TableSchema, usize)) -> Option<Vec<u8>> {
    let name = schema.name_at(part)?;
    Some([schema.name.as_bytes(), &[0], name.as_bytes()].concat())
}

/// Checks that a reader may have used the record `before` of a key of the catalog in a snapshot with the record `now`: the table has
/// the same rows, and the indexes and aggregates at the positions `parts`, which it has read, are the same.
///
/// # Errors
///
/// [`Error::IndexNotReadable`] for one of them that the snapshot lacks, which is retired if it has no other `state`. [`Error::SnapshotTooOld`] if it is
/// unknown what the reader would have done: it has read `others`, or a record of the catalog.
fn still_fits(
    (schema, key): (&'static TableSchema, &[u8]),
    before: Option<&[u8]>,
    now: Option<&[u8]>,
    (parts, others): (&[usize], bool),
    state: impl Fn(usize) -> Option<IndexState>,
) -> Result<()> {
    let too_old = || Err(Error::SnapshotTooOld { table: schema.name });
    let (Some(before), Some(now), Some(0)) = (before, now, key.last()) else { return too_old() };
    let [before, now] = [before, now].map(|record| TableRecord::decode(schema.name, record));
    let (Ok(before), Ok(now)) = (before, now) else { return too_old() };
    let is_same = |at: usize| now.has_index_of(&before, at);
    let are_same =
        || before.indexes.len() == now.indexes.len() && (0..before.indexes.len()).all(is_same);
    if !now.is_of_rows_of(&before) || others && !are_same() {
        return too_old();
    }
    for part in parts {
        let (table, index) = (schema.name, schema.name_at(*part).unwrap_or_default());
        let Some(at) = before.indexes.iter().position(|own| own.name == index) else {
            return too_old();
        };
        if !is_same(at) {
            let state = state(*part).unwrap_or(IndexState::Retired);
            return Err(Error::IndexNotReadable { table, index, state });
        }
    }
    Ok(())
}
