//! A connection to the server, with its prepared statements.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement, types::ToSql};

use super::wait::{start, wait};

/// The parameters of a statement.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// The settings of each connection. With them, the plans use the primary keys. Without the first setting, the server
/// plans many statements again. Without the other settings, a join of many rows reads the whole fact table.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_seqscan = off; \
    SET client_min_messages = warning; SELECT pg_postmaster_start_time()::text";

type Outcome<T> = Result<T, tokio_postgres::Error>;

/// A connection.
pub(super) struct Connection {
    client: Client,
    /// The statements that are prepared, by their SQL.
    statements: Mutex<HashMap<Box<str>, Statement>>,
    /// The time when the server started. It identifies a run of the server.
    started: String,
}

impl Connection {
    /// Prepares a session.
    pub(super) fn new(client: Client) -> Outcome<Self> {
        let mut connection = Self::raw(client);
        connection.started = connection.simple(SETTINGS)?.unwrap_or_default();
        Ok(connection)
    }

    /// Returns a connection without the settings.
    pub(super) fn raw(client: Client) -> Self {
        Self { client, statements: Mutex::default(), started: String::new() }
    }

    /// Returns the time when the server started.
    pub(super) fn started(&self) -> &str {
        &self.started
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without parameters in one round trip. Returns the first column of the last row.
    pub(super) fn simple(&self, sql: &str) -> Outcome<Option<String>> {
        let messages = wait(self.client.simple_query(sql))?;
        let last = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(last)
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

    /// Returns the number of rows that a statement has changed.
    pub(super) fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Outcome<u64> {
        let statement = self.prepared(sql)?;
        wait(self.client.execute(&statement, parameters))
    }

    // A statement is prepared before it is sent. Otherwise, a later statement could overtake it.
    fn prepared(&self, sql: &str) -> Outcome<Statement> {
        let lock = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = wait(self.client.prepare(sql))?;
        lock().insert(sql.into(), statement.clone());
        Ok(statement)
    }
}
