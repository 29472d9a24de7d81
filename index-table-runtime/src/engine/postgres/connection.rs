//! A connection to the server, with its prepared statements.

use std::{
    collections::HashMap,
    future::poll_fn,
    io::Cursor,
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_sink::Sink as _;
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement, types::ToSql};

use super::{
    dialect::Dialect,
    wait::{poll_once, start, wait},
};

/// The parameters of a statement.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

pub(super) type Outcome<T> = Result<T, tokio_postgres::Error>;

/// The result of a statement.
#[derive(Debug)]
pub(super) enum Response {
    Rows(Vec<Row>),
    /// The number of changed rows.
    Count(u64),
    /// The first column of the last row, of statements without parameters.
    Text(Option<String>),
}

/// A statement that has been sent. The results are waited for in the order of sending.
pub(super) struct Sent<'c> {
    future: Pin<Box<dyn Future<Output = Outcome<Response>> + Send + 'c>>,
    ready: Option<Outcome<Response>>,
}

impl<'c> Sent<'c> {
    /// Sends the statement of this future, which must be prepared.
    fn new(future: impl Future<Output = Outcome<Response>> + Send + 'c) -> Self {
        let mut future: Pin<Box<dyn Future<Output = _> + Send + 'c>> = Box::pin(future);
        let ready = poll_once(future.as_mut());
        Self { future, ready }
    }

    pub(super) fn wait(self) -> Outcome<Response> {
        match self.ready {
            Some(ready) => ready,
            None => wait(self.future),
        }
    }
}

/// A connection.
pub(super) struct Connection {
    client: Client,
    /// The statements that are prepared, by their SQL.
    statements: Mutex<HashMap<Box<str>, Statement>>,
    /// The time when the server started. It identifies a run of the server.
    started: String,
    /// The number of the session's process.
    backend: i32,
}

/// The reason why a session can't be used.
#[derive(Debug)]
pub(super) enum Unprepared {
    Failed(tokio_postgres::Error),
    /// A setting was not applied, for example by a pooler of connections.
    Setting {
        name: &'static str,
        found: String,
        wanted: &'static str,
    },
}

impl Connection {
    /// Prepares a session: applies and checks its settings, and prepares the known statements.
    pub(super) fn new(
        client: Client,
        dialect: Dialect,
        known: &[Box<str>],
    ) -> Result<Self, Unprepared> {
        let mut connection = Self::raw(client);
        let settings = dialect.settings();
        let assignments = settings.iter().map(|(name, value)| format!("SET {name} = '{value}'; "));
        let shown = settings.iter().map(|(name, _)| format!("current_setting('{name}')"));
        let shown = shown.collect::<Vec<_>>().join(" || ' ' || ");
        let started = if dialect.has_outcomes() {
            "extract(epoch from pg_postmaster_start_time())::text"
        } else {
            "'-'"
        };
        let sql = format!(
            "{}SELECT {shown} || ' ' || {started} || ' ' || pg_backend_pid()::text",
            assignments.collect::<Vec<_>>().concat()
        );
        let sent = connection.send_simple(&sql);
        let mut preparing: Vec<_> =
            known.iter().map(|sql| (sql, Box::pin(connection.client.prepare(sql)), None)).collect();
        for (_, future, ready) in &mut preparing {
            *ready = poll_once(future.as_mut());
        }
        let found = match sent.wait().map_err(Unprepared::Failed)? {
            Response::Text(Some(found)) => found,
            _ => String::new(),
        };
        let mut found = found.split(' ');
        for (name, wanted) in settings {
            let found = found.next().unwrap_or_default();
            if found != *wanted {
                return Err(Unprepared::Setting { name, found: found.to_owned(), wanted });
            }
        }
        for (sql, future, ready) in preparing {
            // A statement of a table that was dropped can't be prepared.
            if let Ok(statement) = ready.unwrap_or_else(|| wait(future)) {
                connection.statements().insert(sql.clone(), statement);
            }
        }
        found.next().unwrap_or_default().clone_into(&mut connection.started);
        connection.backend = found.next().and_then(|it| it.parse().ok()).unwrap_or_default();
        Ok(connection)
    }

    /// Returns a connection without the settings.
    pub(super) fn raw(client: Client) -> Self {
        Self { client, statements: Mutex::default(), started: String::new(), backend: 0 }
    }

    /// Returns the time when the server started.
    pub(super) fn started(&self) -> &str {
        &self.started
    }

    /// Returns the number of the session's process.
    pub(super) const fn backend(&self) -> i32 {
        self.backend
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends statements without parameters.
    pub(super) fn send_simple<'c>(&'c self, sql: &'c str) -> Sent<'c> {
        Sent::new(async move {
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
        Sent::new(async move { self.client.query(statement, parameters).await.map(Response::Rows) })
    }

    pub(super) fn send_execute<'c>(
        &'c self,
        statement: &'c Statement,
        parameters: Parameters<'c>,
    ) -> Sent<'c> {
        Sent::new(
            async move { self.client.execute(statement, parameters).await.map(Response::Count) },
        )
    }

    /// Runs statements without parameters in one round trip. Returns the first column of the last row.
    pub(super) fn simple(&self, sql: &str) -> Outcome<Option<String>> {
        self.send_simple(sql).wait().map(|response| match response {
            Response::Text(text) => text,
            _ => None,
        })
    }

    /// Sends a statement without waiting for its result. The server runs it before all later statements of this
    /// connection.
    pub(super) fn send(&self, sql: &str) {
        start(self.client.simple_query(sql));
    }

    /// Returns the rows of a query.
    pub(super) fn query(&self, sql: &str, parameters: Parameters<'_>) -> Outcome<Vec<Row>> {
        let statement = self.prepared(sql)?;
        wait(self.client.query(&statement, parameters))
    }

    /// Loads rows from binary data, which `next` returns in pieces. Returns the number of rows.
    pub(super) fn copy(
        &self,
        sql: &str,
        next: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) -> Outcome<u64> {
        let statement = self.prepared(sql)?;
        let mut sink = pin!(wait(self.client.copy_in::<_, Cursor<Vec<u8>>>(&statement))?);
        while let Some(piece) = next() {
            wait(poll_fn(|context| sink.as_mut().poll_ready(context)))?;
            sink.as_mut().start_send(Cursor::new(piece))?;
        }
        wait(sink.finish())
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<Box<str>, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
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
        let statement = wait(self.client.prepare(sql))?;
        self.statements().insert(sql.into(), statement.clone());
        Ok(statement)
    }
}
