//! A connection to the server, with its prepared statements.

use std::{
    collections::HashMap,
    future::poll_fn,
    io::Cursor,
    mem,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_sink::Sink as _;
use tokio_postgres::{
    Client, Row, SimpleQueryMessage, Statement,
    types::{FromSql, ToSql, Type},
};

pub(super) use super::driver::Outcome;
use super::{
    driver::Driver,
    sql::{IDENTITY, before_settings, lock_timeout, noticing, settings},
    token::Kept,
};
use crate::{
    locks::{
        Mutex, MutexGuard,
        rank::{ServerDriver, ServerStatements},
    },
    model::error::{Error, Result},
};

/// The parameters of a statement.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// The result of a statement.
#[derive(Debug)]
pub(super) enum Response {
    Rows(Vec<Row>),
    /// The number of changed rows.
    Count(u64),
    /// The first column of the last row, of statements without parameters.
    Text(Option<String>),
}

/// The time for which a statement that a new connection prepares waits for the locks of its tables.
const WAIT: Duration = Duration::from_millis(1);

/// Returns a column of a row.
pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| {
        Error::internal(format!("column {column} of a result of PostgreSQL: {error}"))
    })
}

/// Polls the future once, which queues its request.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A statement that is sent, together with the statements before and after it, as soon as a thread waits for a result of
/// the connection. The results are waited for in the order of sending.
pub(super) struct Sent<'c> {
    connection: &'c Connection,
    future: Pin<Box<dyn Future<Output = Outcome<Response>> + Send + 'c>>,
    ready: Option<Outcome<Response>>,
}

impl<'c> Sent<'c> {
    /// Queues the statement of this future, which must be prepared.
    fn new(
        connection: &'c Connection,
        future: impl Future<Output = Outcome<Response>> + Send + 'c,
    ) -> Self {
        let mut future: Pin<Box<dyn Future<Output = _> + Send + 'c>> = Box::pin(future);
        let ready = poll_once(future.as_mut());
        Self { connection, future, ready }
    }

    pub(super) fn wait(self) -> Outcome<Response> {
        match self.ready {
            Some(ready) => ready,
            None => self.connection.wait(self.future),
        }
    }
}

/// Returns the name of a statement for `EXECUTE`, and the statement that prepares it. `kind` and `number` are different for
/// each statement of a session.
fn naming(kind: &str, number: usize, sql: &str) -> (String, String) {
    let name = format!("index_table_{kind}_{number}");
    let prepare = format!("PREPARE {name} AS {sql}");
    (name, prepare)
}

/// A connection.
pub(super) struct Connection {
    // Before the driver, which then ends the session.
    client: Client,
    driver: Mutex<Driver, ServerDriver>,
    /// Whether [`send_queued`](Self::send_queued) will be called.
    is_queued: AtomicBool,
    /// The statements that are prepared, by their SQL.
    statements: Mutex<HashMap<Box<str>, Statement>>,
    /// The names of the statements for `EXECUTE`, by their SQL. Such a statement can be sent together with others.
    named: Mutex<HashMap<Box<str>, String>, ServerStatements>,
    /// The token of the last commit.
    token: Mutex<Option<Kept>>,
    /// The cluster and the database, if the server tells them.
    identity: Option<String>,
    /// The number of statements of the store.
    sent: Arc<AtomicU64>,
}

/// The reason why a session can't be used.
#[derive(Debug)]
pub(super) enum Unprepared {
    Failed(tokio_postgres::Error),
    Standby,
    /// A setting was not applied, for example by a pooler of connections.
    Setting {
        name: &'static str,
        found: String,
        wanted: &'static str,
    },
}

impl Connection {
    /// Prepares a session: applies and checks its settings, and prepares the known statements. A statement is left out if
    /// its table was dropped, or if another session has locked the table.
    pub(super) fn prepare(
        self,
        known: &[Box<str>],
        named: &[Box<str>],
        (response, lock): (Duration, Duration),
        needs_primary: bool,
    ) -> Result<Self, Unprepared> {
        let settings = settings(needs_primary);
        let assignments = settings.iter().map(|(name, value)| format!("SET {name} = '{value}'; "));
        let shown = settings.iter().map(|(name, _)| format!("current_setting('{name}')"));
        let shown = shown.collect::<Vec<_>>().join(" || ',' || ");
        let sql = before_settings(&format!(
            "{}{}; SELECT {shown} || ',' || pg_is_in_recovery()::text",
            assignments.collect::<Vec<_>>().concat(),
            lock_timeout(WAIT)
        ));
        let (noticing, last) = (noticing(), lock_timeout(lock));
        let (sent, identity) = (self.send_simple(&sql), self.send_simple(IDENTITY));
        for sql in &noticing {
            drop(self.send_simple(sql));
        }
        let naming =
            named.iter().enumerate().map(|(number, sql)| (naming("known", number, sql), sql));
        let naming: Vec<_> = naming.collect();
        let naming_sent: Vec<_> =
            naming.iter().map(|((_, prepare), _)| self.send_simple(prepare)).collect();
        let mut preparing: Vec<_> =
            known.iter().map(|sql| (sql, Box::pin(self.client.prepare(sql)), None)).collect();
        for (_, future, ready) in &mut preparing {
            *ready = poll_once(future.as_mut());
        }
        let last = self.send_simple(&last);
        let found = match sent.wait().map_err(Unprepared::Failed)? {
            Response::Text(Some(found)) => found,
            _ => String::new(),
        };
        let mut found = found.split(',');
        for (name, wanted) in settings {
            let found = found.next().unwrap_or_default();
            if found != wanted {
                return Err(Unprepared::Setting { name, found: found.to_owned(), wanted });
            }
        }
        if needs_primary && found.next() == Some("true") {
            return Err(Unprepared::Standby);
        }
        // A server can withhold it.
        let identity = match identity.wait() {
            Ok(Response::Text(found)) => found,
            _ => None,
        };
        let mut prepared_names = HashMap::new();
        for (sent, ((name, _), sql)) in naming_sent.into_iter().zip(&naming) {
            if sent.wait().is_ok() {
                prepared_names.insert((*sql).clone(), name.clone());
            }
        }
        for (sql, future, ready) in preparing {
            if let Ok(statement) = ready.unwrap_or_else(|| self.wait(future)) {
                self.statements().insert(sql.clone(), statement);
            }
        }
        // A connection that was lost in the meantime has no response.
        last.wait().map_err(Unprepared::Failed)?;
        *self.named() = prepared_names;
        self.driver().limit = response;
        Ok(Self { identity, ..self })
    }

    /// Returns the cluster and the database, if the server tells them.
    pub(super) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Returns a connection without the settings.
    pub(super) fn raw(client: Client, driver: Driver) -> Self {
        let (statements, named) = (Mutex::default(), Mutex::default());
        let (driver, is_queued, token) = (Mutex::new(driver), false.into(), Mutex::default());
        let (identity, sent) = (None, Arc::default());
        Self { client, driver, is_queued, statements, named, token, identity, sent }
    }

    /// Returns the connection, which adds the number of its statements from now on.
    pub(super) fn counted(self, sent: &Arc<AtomicU64>) -> Self {
        Self { sent: Arc::clone(sent), ..self }
    }

    fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock()
    }

    /// Blocks the thread until a future of this connection is ready. Without a response for the time limit, the connection ends.
    fn wait<T>(&self, future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.driver().wait(pin!(future))
    }

    /// Calls a function with another time limit for responses.
    pub(super) fn within<T>(&self, limit: Duration, call: impl FnOnce(&Self) -> T) -> T {
        let before = mem::replace(&mut self.driver().limit, limit);
        let result = call(self);
        self.driver().limit = before;
        result
    }

    /// Returns the token of the last commit.
    pub(super) fn token(&self) -> Option<Kept> {
        self.token.lock().clone()
    }

    pub(super) fn keep_token(&self, token: Kept) {
        *self.token.lock() = Some(token);
    }

    /// Whether the connection has ended because there was no response.
    pub(super) fn is_late(&self) -> bool {
        self.driver().is_late
    }

    /// Whether the wait of a commit for a standby was canceled since the last call of this function.
    pub(super) fn take_unreplicated(&self) -> bool {
        mem::take(&mut self.driver().is_unreplicated)
    }

    /// Whether the connection has ended. For an idle connection, this reads the received bytes.
    pub(super) fn is_closed(&self) -> bool {
        !self.driver().check()
    }

    /// Sends statements without parameters.
    pub(super) fn send_simple<'c>(&'c self, sql: &'c str) -> Sent<'c> {
        self.count();
        Sent::new(self, async move {
            let messages = self.client.simple_query(sql).await?;
            let last = messages.iter().rev().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            Ok(Response::Text(last))
        })
    }

    pub(super) fn send_query<'c>(
        &'c self,
        statement: &'c Statement,
        parameters: Parameters<'c>,
    ) -> Sent<'c> {
        self.count();
        Sent::new(self, async move {
            self.client.query(statement, parameters).await.map(Response::Rows)
        })
    }

    /// Sends a statement with its text, which is not prepared, and the types of its parameters. Unlike a statement that is being
    /// prepared, no later statement overtakes it.
    pub(super) fn send_unprepared<'c>(
        &'c self,
        sql: &'c str,
        parameters: Parameters<'c>,
        types: Vec<Type>,
    ) -> Sent<'c> {
        self.count();
        Sent::new(self, async move {
            let pairs: Vec<_> = parameters.iter().copied().zip(types).collect();
            self.client.query_typed(sql, &pairs).await.map(Response::Rows)
        })
    }

    pub(super) fn send_execute<'c>(
        &'c self,
        statement: &'c Statement,
        parameters: Parameters<'c>,
    ) -> Sent<'c> {
        self.count();
        Sent::new(self, async move {
            self.client.execute(statement, parameters).await.map(Response::Count)
        })
    }

    /// Runs statements without parameters in one round trip. Returns the first column of the last row.
    pub(super) fn simple(&self, sql: &str) -> Outcome<Option<String>> {
        self.send_simple(sql).wait().map(|response| match response {
            Response::Text(text) => text,
            _ => None,
        })
    }

    /// Queues the end of a transaction without changes, which is sent together with the next statement. Returns true if
    /// [`send_queued`](Self::send_queued) must be called later.
    pub(super) fn rollback_later(&self) -> bool {
        self.count();
        let _ = poll_once(pin!(self.client.simple_query("ROLLBACK")));
        !self.is_queued.swap(true, Ordering::AcqRel)
    }

    /// Sends the queued messages. Returns false if another thread uses the connection, which may send nothing: it must be called
    /// again.
    pub(super) fn send_queued(&self) -> bool {
        let Some(mut driver) = self.driver.try_lock() else { return false };
        // Before it is sent: later messages need another call.
        self.is_queued.store(false, Ordering::Release);
        driver.turn();
        true
    }

    /// Sends a statement without waiting for its result. The server runs it before all later statements of this
    /// connection.
    pub(super) fn send(&self, sql: &str) {
        self.count();
        let _ = poll_once(pin!(self.client.simple_query(sql)));
        self.driver().turn();
    }

    /// Returns the rows of a query.
    pub(super) fn query(&self, sql: &str, parameters: Parameters<'_>) -> Outcome<Vec<Row>> {
        let statement = self.prepared(sql)?;
        self.count();
        self.wait(self.client.query(&statement, parameters))
    }

    /// Loads rows from binary data, which `next` returns in pieces. Returns the number of rows.
    pub(super) fn copy(
        &self,
        sql: &str,
        next: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) -> Outcome<u64> {
        let statement = self.prepared(sql)?;
        self.count();
        let mut sink = pin!(self.wait(self.client.copy_in::<_, Cursor<Vec<u8>>>(&statement))?);
        while let Some(piece) = next() {
            self.wait(poll_fn(|context| sink.as_mut().poll_ready(context)))?;
            sink.as_mut().start_send(Cursor::new(piece))?;
        }
        self.wait(sink.finish())
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<Box<str>, Statement>> {
        self.statements.lock()
    }

    fn named(&self) -> MutexGuard<'_, HashMap<Box<str>, String>> {
        self.named.lock()
    }

    /// Returns the statement that runs a query without parameters, which is prepared with a name.
    pub(super) fn execute_named(&self, sql: &str) -> Outcome<String> {
        let mut names = self.named();
        if let Some(name) = names.get(sql) {
            return Ok(format!("EXECUTE {name}"));
        }
        let (name, prepare) = naming("later", names.len(), sql);
        self.simple(&prepare)?;
        names.insert(sql.into(), name.clone());
        Ok(format!("EXECUTE {name}"))
    }

    /// Returns a future that prepares a statement. The first poll queues the request.
    #[cfg(feature = "async")]
    pub(super) fn preparing(
        self: &Arc<Self>,
        sql: Arc<str>,
    ) -> impl Future<Output = Outcome<Statement>> + Send + use<> {
        let own = Arc::clone(self);
        async move { own.client.prepare(&sql).await }
    }

    /// Returns a future of the rows for a key. The first poll queues the request.
    #[cfg(feature = "async")]
    pub(super) fn querying(
        self: &Arc<Self>,
        statement: Statement,
        key: Arc<[u8]>,
    ) -> impl Future<Output = Outcome<Vec<Row>>> + Send + use<> {
        self.count();
        let own = Arc::clone(self);
        async move { own.client.query(&statement, &[&&*key]).await }
    }

    /// Whether a statement is prepared.
    pub(super) fn has(&self, sql: &str) -> bool {
        self.statements().contains_key(sql)
    }

    /// Prepares a statement. A statement that is not prepared when it is sent waits for a round trip, and later statements
    /// overtake it.
    pub(super) fn prepared(&self, sql: &str) -> Outcome<Statement> {
        if let Some(statement) = self.statements().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wait(self.client.prepare(sql))?;
        self.statements().insert(sql.into(), statement.clone());
        Ok(statement)
    }
}
