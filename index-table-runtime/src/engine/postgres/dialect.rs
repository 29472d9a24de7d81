//! The statements that differ between servers with the PostgreSQL protocol.
//!
//! [`PostgreSql`](Dialect::PostgreSql) is tested on a server. The statements of the other dialects follow the
//! documentation of the servers. These statements are tested as text only.

use serde::{Deserialize, Serialize};

use super::names::{Form, Relation, hex, quoted};

/// A server with the PostgreSQL protocol, for [`Options::dialect`](crate::Options::dialect).
///
/// The statements for YugabyteDB and CockroachDB follow the documentation of these servers. They are tested as text,
/// but the tests of this library have not run on such servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL, from version 13, and services that run it.
    PostgreSql,
    /// YugabyteDB, from version 2.20. Not run here.
    YugabyteDb,
    /// CockroachDB, from version 23.1. Not run here.
    CockroachDb,
}

impl Dialect {
    /// Returns the dialect of a server by its `version()`.
    pub(super) fn of_version(version: &str) -> Self {
        if version.contains("CockroachDB") {
            Self::CockroachDb
        } else if version.contains("-YB-") {
            Self::YugabyteDb
        } else {
            Self::PostgreSql
        }
    }

    /// Whether `LOCK TABLE` lets the writers of a table wait.
    pub(super) const fn has_table_locks(self) -> bool {
        matches!(self, Self::PostgreSql)
    }

    /// Whether one statement can change several tables. CockroachDB refuses most statements with several changes of one
    /// table, and its plans for common table expressions with changes are limited. It gets one statement for each
    /// table, all in one round trip.
    pub(super) const fn has_writing_ctes(self) -> bool {
        !matches!(self, Self::CockroachDb)
    }

    /// Whether the guard of [`is_in_transaction`](Self::is_in_transaction) works. Without it, changes wait until the
    /// begin of the transaction is confirmed.
    pub(super) const fn has_guard(self) -> bool {
        !matches!(self, Self::CockroachDb)
    }

    /// Whether the server has the outcomes of its last transactions by number.
    pub(super) const fn has_outcomes(self) -> bool {
        matches!(self, Self::PostgreSql)
    }

    /// Whether the server measures tables.
    pub(super) const fn has_sizes(self) -> bool {
        !matches!(self, Self::CockroachDb)
    }

    /// Returns the settings of each session, with their values. They are checked after they are set.
    ///
    /// On PostgreSQL, the plans use the primary keys. Without the first setting, the server plans many statements
    /// again. Without the next four, a join of many rows reads the whole fact table.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::PostgreSql => &[
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("enable_bitmapscan", "off"),
                ("enable_seqscan", "off"),
                ("default_transaction_isolation", "serializable"),
                ("default_transaction_read_only", "off"),
                ("default_transaction_deferrable", "off"),
                ("standard_conforming_strings", "on"),
                ("client_min_messages", "warning"),
            ],
            Self::YugabyteDb => &[
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("yb_bnl_batch_size", "1024"),
                ("default_transaction_isolation", "serializable"),
                ("default_transaction_read_only", "off"),
                ("default_transaction_deferrable", "off"),
                ("yb_read_from_followers", "off"),
                ("standard_conforming_strings", "on"),
                ("client_min_messages", "warning"),
            ],
            Self::CockroachDb => &[
                ("default_transaction_isolation", "serializable"),
                ("default_transaction_read_only", "off"),
                ("default_transaction_use_follower_reads", "off"),
                ("standard_conforming_strings", "on"),
                ("client_min_messages", "warning"),
            ],
        }
    }

    /// Returns the statement that begins a transaction.
    ///
    /// A write transaction is `DEFERRABLE`, which has no effect except that
    /// [`is_in_transaction`](Self::is_in_transaction) can be evaluated.
    pub(super) const fn begin(self, writes: bool) -> &'static str {
        match (self, writes) {
            (Self::PostgreSql | Self::YugabyteDb, true) => {
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE DEFERRABLE"
            }
            (Self::PostgreSql | Self::YugabyteDb, false) => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            }
            // All reads of a transaction have one timestamp.
            (Self::CockroachDb, true) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
            (Self::CockroachDb, false) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        }
    }

    /// Returns a condition that holds in a write transaction of this library.
    pub(super) const fn is_in_transaction(self) -> &'static str {
        match self {
            Self::PostgreSql | Self::YugabyteDb => {
                "current_setting('transaction_deferrable') = 'on'"
            }
            Self::CockroachDb => "false",
        }
    }

    /// Returns an expression for the number of a write transaction. For a read transaction, all transactions with
    /// smaller numbers have ended in its snapshot.
    pub(super) const fn number(self, writes: bool) -> &'static str {
        match (self, writes) {
            (Self::PostgreSql, true) => "pg_current_xact_id()::text",
            (Self::PostgreSql, false) => "pg_snapshot_xmin(pg_current_snapshot())::text",
            // Microseconds. The clocks of a cluster differ by less than the configured limit.
            (Self::YugabyteDb, _) => {
                "(extract(epoch from transaction_timestamp()) * 1000000)::int8::text"
            }
            (Self::CockroachDb, _) => "(cluster_logical_timestamp() / 1000)::int8::text",
        }
    }

    /// Returns the statement that creates a table. `splits` are the keys at which the table is split into tablets or
    /// ranges.
    pub(super) fn create(self, relation: &Relation, splits: &[Vec<u8>]) -> String {
        let Relation { sql: table, form, .. } = relation;
        let columns = form.columns().split(", ").map(|column| format!("{column} bytea NOT NULL"));
        let (columns, keys) = (columns.collect::<Vec<_>>().join(", "), form.keys());
        let order = if self == Self::YugabyteDb { " ASC" } else { "" };
        let key = keys.iter().map(|key| format!("{key}{order}")).collect::<Vec<_>>().join(", ");
        let missing = if self == Self::PostgreSql { "" } else { "IF NOT EXISTS " };
        let points = splits.iter().map(|key| match keys.len() {
            1 => format!("('\\x{}')", hex(key)),
            _ => format!("('\\x{}', '')", hex(key)),
        });
        let points = points.collect::<Vec<_>>().join(", ");
        let create = format!("CREATE TABLE {missing}{table} ({columns}, PRIMARY KEY ({key}))");
        match self {
            Self::YugabyteDb if !splits.is_empty() => {
                format!("{create} SPLIT AT VALUES ({points});")
            }
            Self::CockroachDb if !splits.is_empty() => {
                format!("{create}; ALTER TABLE {table} SPLIT AT VALUES {points};")
            }
            _ => format!("{create};"),
        }
    }

    /// Returns the statements that remove the entries of an index and change the columns of its SQL table to those of
    /// `relation`; `None` if the table has to be created again. Transactions with an older snapshot keep the entries. From a
    /// new table, they would read none.
    pub(super) fn change(self, relation: &Relation, primary_key: &str) -> Option<String> {
        let (table, primary_key) = (&relation.sql, quoted(primary_key));
        let change = match (self, relation.form) {
            (Self::YugabyteDb | Self::CockroachDb, _) | (_, Form::Pairs) => return None,
            (Self::PostgreSql, Form::Unique) => format!(
                "ADD COLUMN s bytea NOT NULL DEFAULT '', ADD PRIMARY KEY (k, s); \
                 ALTER TABLE {table} ALTER COLUMN s DROP DEFAULT"
            ),
            (Self::PostgreSql, Form::Entries) => "DROP COLUMN s, ADD PRIMARY KEY (k, p)".to_owned(),
        };
        Some(format!(
            "DELETE FROM {table}; ALTER TABLE {table} DROP CONSTRAINT {primary_key}, {change};"
        ))
    }

    /// Returns the queries that lock the schema, and unlock it. Without such a lock, concurrent changes of the tables conflict and
    /// run again.
    pub(super) const fn lock(self) -> Option<[&'static str; 2]> {
        match self {
            Self::PostgreSql => Some([
                "SELECT pg_advisory_lock(hashtextextended($1::text, 0))::text",
                "SELECT pg_advisory_unlock(hashtextextended($1::text, 0))::text",
            ]),
            Self::YugabyteDb | Self::CockroachDb => None,
        }
    }

    /// Returns the statement that loads rows of a table from binary data.
    pub(super) fn copy(self, relation: &Relation) -> String {
        let columns = relation.form.columns();
        let table = &relation.sql;
        match self {
            Self::PostgreSql => {
                format!("COPY {table} ({columns}) FROM STDIN WITH (FORMAT binary)")
            }
            // Otherwise, the server commits after every 20,000 rows.
            Self::YugabyteDb => format!(
                "COPY {table} ({columns}) FROM STDIN WITH (FORMAT binary, ROWS_PER_TRANSACTION 0)"
            ),
            Self::CockroachDb => format!("COPY {table} ({columns}) FROM STDIN WITH BINARY"),
        }
    }

    /// Returns the keys that split a table into this number of parts, evenly by their first byte.
    pub(super) fn splits(parts: u16) -> Vec<Vec<u8>> {
        let parts = u32::from(parts.clamp(1, 256));
        let first = (1..parts).map(|part| part * 256 / parts);
        first.filter_map(|byte| u8::try_from(byte).ok()).map(|byte| vec![byte]).collect()
    }
}
