//! The operations with hand-written SQL.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::Write as _,
    future::{Future, poll_fn},
    io::Cursor,
    ops::Range,
    pin::pin,
};

use futures_sink::Sink as _;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Statement, types::ToSql};

use super::{Outcome, Values, inserted, scattered, values};

type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

const CREATE: &str = "DROP SCHEMA IF EXISTS bench_sql CASCADE; CREATE SCHEMA bench_sql; \
    CREATE TABLE bench_sql.customers (id int8 PRIMARY KEY, last_name text NOT NULL, town text NOT NULL, \
    phone text NOT NULL, email text NOT NULL)";

const INDEXES: &str = "CREATE INDEX ON bench_sql.customers (town); \
    CREATE INDEX ON bench_sql.customers (town, last_name) INCLUDE (phone); \
    CREATE UNIQUE INDEX ON bench_sql.customers (email); VACUUM ANALYZE bench_sql.customers";

const ALL: &str = "id, last_name, town, phone, email";

/// A connection with prepared statements.
pub(crate) struct HandWritten {
    runtime: Runtime,
    client: Client,
    url: String,
    statements: RefCell<HashMap<String, Statement>>,
}

impl HandWritten {
    pub(crate) fn connect(url: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client, url: url.to_owned(), statements: HashMap::new().into() })
    }

    /// Opens another connection to the same server.
    pub(crate) fn another(&self) -> Outcome<Self> {
        Self::connect(&self.url)
    }

    fn wait<T>(
        &self,
        result: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Outcome<T> {
        Ok(self.runtime.block_on(result)?)
    }

    fn prepared(&self, sql: &str) -> Outcome<Statement> {
        if let Some(statement) = self.statements.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wait(self.client.prepare(sql))?;
        self.statements.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn rows(&self, sql: &str, parameters: Parameters<'_>) -> Outcome<Vec<Values>> {
        let statement = self.prepared(sql)?;
        let rows = self.wait(self.client.query(&statement, parameters))?;
        let row = |row: &tokio_postgres::Row| {
            Ok(Values {
                id: row.try_get(0)?,
                last_name: row.try_get(1)?,
                town: row.try_get(2)?,
                phone: row.try_get(3)?,
                email: row.try_get(4)?,
            })
        };
        rows.iter().map(row).collect::<Result<_, tokio_postgres::Error>>().map_err(Into::into)
    }

    fn number(&self, sql: &str, parameters: Parameters<'_>) -> Outcome<i64> {
        let statement = self.prepared(sql)?;
        let rows = self.wait(self.client.query(&statement, parameters))?;
        Ok(rows.first().ok_or("no row")?.try_get(0)?)
    }

    fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Outcome {
        let statement = self.prepared(sql)?;
        self.wait(self.client.execute(&statement, parameters)).map(drop)
    }

    pub(crate) fn backend(&self) -> Outcome<i32> {
        Ok(self.number("SELECT pg_backend_pid()::int8", &[])?.try_into()?)
    }

    /// Returns the processes of all sessions.
    pub(crate) fn backends(&self) -> Outcome<Vec<i32>> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'";
        let statement = self.prepared(sql)?;
        let rows = self.wait(self.client.query(&statement, &[]))?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Returns the number of bytes of all tables of a schema.
    #[expect(clippy::cast_precision_loss, reason = "figures for reports")]
    pub(crate) fn bytes(&self, schema: &str) -> Outcome<f64> {
        let sql = "SELECT sum(pg_total_relation_size(c.oid))::int8 FROM pg_class c \
                   JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
        Ok(self.number(sql, &[&schema])? as f64)
    }

    /// Loads sorted rows by `COPY`, and then creates the indexes.
    pub(crate) fn load(&self, ids: Range<i64>) -> Outcome {
        self.wait(self.client.batch_execute(CREATE))?;
        let sql = format!("COPY bench_sql.customers ({ALL}) FROM STDIN");
        let mut text = String::new();
        for id in ids {
            let Values { id, last_name, town, phone, email } = values(id);
            let _ = writeln!(text, "{id}\t{last_name}\t{town}\t{phone}\t{email}");
        }
        self.wait(async {
            let sink = self.client.copy_in::<_, Cursor<String>>(&sql).await?;
            let mut sink = pin!(sink);
            poll_fn(|context| sink.as_mut().poll_ready(context)).await?;
            sink.as_mut().start_send(Cursor::new(text))?;
            sink.finish().await
        })?;
        for sql in INDEXES.split("; ") {
            self.wait(self.client.batch_execute(sql))?;
        }
        Ok(())
    }

    pub(crate) fn gets(&self, round: i64, count: i64) -> Outcome<usize> {
        let sql = format!("SELECT {ALL} FROM bench_sql.customers WHERE id = $1");
        let found = (0..count).map(|step| {
            let id = scattered(round, step, super::BIG.1);
            self.rows(&sql, &[&id]).map(|rows| rows.len())
        });
        found.sum()
    }

    pub(crate) fn get_many(&self, round: i64, count: i64) -> Outcome<usize> {
        let sql = format!("SELECT {ALL} FROM bench_sql.customers WHERE id = ANY($1)");
        let found = (0..count).map(|step| {
            let ids: Vec<i64> =
                (0..100).map(|at| scattered(round + step, at, super::BIG.1)).collect();
            self.rows(&sql, &[&ids]).map(|rows| rows.len())
        });
        found.sum()
    }

    pub(crate) fn gets_by_email(&self, round: i64, count: i64) -> Outcome<usize> {
        let sql = format!("SELECT {ALL} FROM bench_sql.customers WHERE email = $1");
        let found = (0..count).map(|step| {
            let email = values(scattered(round, step, super::BIG.1)).email;
            self.rows(&sql, &[&email]).map(|rows| rows.len())
        });
        found.sum()
    }

    pub(crate) fn rows_of_town(&self, town: &str, count: i64) -> Outcome<usize> {
        let sql = format!("SELECT {ALL} FROM bench_sql.customers WHERE town = $1 ORDER BY id");
        let bytes = (0..count).map(|_| {
            let rows = self.rows(&sql, &[&town])?;
            Ok(rows.iter().map(|row| row.phone.len()).sum::<usize>())
        });
        bytes.sum()
    }

    pub(crate) fn pages(&self, town: &str, count: i64) -> Outcome<usize> {
        let sql =
            format!("SELECT {ALL} FROM bench_sql.customers WHERE town = $1 ORDER BY town LIMIT 20");
        (0..count).map(|_| self.rows(&sql, &[&town]).map(|rows| rows.len())).sum()
    }

    pub(crate) fn phones(&self, town: &str, name: &str, count: i64) -> Outcome<usize> {
        let sql = "SELECT phone FROM bench_sql.customers WHERE town = $1 AND last_name = $2";
        let statement = self.prepared(sql)?;
        let mut bytes = 0;
        for _ in 0..count {
            for row in self.wait(self.client.query(&statement, &[&town, &name]))? {
                bytes += row.try_get::<_, String>(0)?.len();
            }
        }
        Ok(bytes)
    }

    pub(crate) fn count(&self, town: &str, count: i64) -> Outcome<usize> {
        let sql = "SELECT count(*) FROM bench_sql.customers WHERE town = $1";
        (0..count).map(|_| Ok(usize::try_from(self.number(sql, &[&town])?)?)).sum()
    }

    pub(crate) fn all(&self) -> Outcome<usize> {
        let sql = format!("SELECT {ALL} FROM bench_sql.customers ORDER BY id");
        Ok(self.rows(&sql, &[])?.iter().map(|row| row.phone.len()).sum())
    }

    pub(crate) fn inserts(&self, round: i64, count: i64) -> Outcome<usize> {
        let sql = format!("INSERT INTO bench_sql.customers ({ALL}) VALUES ($1, $2, $3, $4, $5)");
        for step in 0..count {
            let Values { id, last_name, town, phone, email } = values(inserted(round) + step);
            self.execute(&sql, &[&id, &last_name, &town, &phone, &email])?;
        }
        Ok(usize::try_from(count)?)
    }

    pub(crate) fn changes(&self, round: i64, count: i64) -> Outcome<usize> {
        let sql = "UPDATE bench_sql.customers SET last_name = $2, town = $3, phone = $4, email = $5 \
                   WHERE id = $1";
        for step in 0..count {
            let Values { id, last_name, town, phone, email } = values(inserted(round) + step);
            let town = format!("{town} {round}");
            self.execute(sql, &[&id, &last_name, &town, &phone, &email])?;
        }
        Ok(usize::try_from(count)?)
    }

    /// Changes the phone of a row in a SERIALIZABLE transaction, which runs again after a conflict.
    pub(crate) fn change(&self, id: i64, phone: &str) -> Outcome {
        let read = self.prepared("SELECT phone FROM bench_sql.customers WHERE id = $1")?;
        let write = self.prepared("UPDATE bench_sql.customers SET phone = $2 WHERE id = $1")?;
        loop {
            let attempt = async {
                self.client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await?;
                self.client.query(&read, &[&id]).await?;
                self.client.execute(&write, &[&id, &phone]).await?;
                self.client.batch_execute("COMMIT").await
            };
            match self.runtime.block_on(attempt) {
                Ok(()) => return Ok(()),
                Err(error) if error.code().is_some_and(|code| code.code() == "40001") => {
                    self.wait(self.client.batch_execute("ROLLBACK"))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
