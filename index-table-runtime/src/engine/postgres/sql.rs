//! The statements for transactions, settings and tables.

use std::time::Duration;

use super::names::{COMMITS, Form, Relation, quoted};

/// The settings of each session, with their values. They are checked after they are set.
///
/// The plans use the primary keys. Without the first setting, the server plans many statements again. Without the next four, a
/// join of many rows reads the whole fact table.
pub(super) const SETTINGS: [(&str, &str); 11] = [
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
    // The client has limits of its own.
    ("statement_timeout", "0"),
];

/// Returns the settings of each session of a store that is open for writing, or read-only. A standby has no serializable transactions.
pub(super) fn settings(writes: bool) -> [(&'static str, &'static str); 11] {
    SETTINGS.map(|(name, value)| match name {
        "default_transaction_isolation" if !writes => (name, "repeatable read"),
        _ => (name, value),
    })
}

/// The settings by which the server finds out that a client has gone, while it runs a statement and while it waits for the next one.
/// They are not checked, because not all versions and systems have them. `tcp_user_timeout` would end a client that reads a long scan slowly.
pub(super) const NOTICING: [(&str, &str); 4] = [
    ("client_connection_check_interval", "5s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
];

/// Returns the number of the cluster from its creation, and that of the database. Both stay after a failover to a standby, and are others after
/// a dump was restored elsewhere. It may fail.
pub(super) const IDENTITY: &str = "SELECT c.system_identifier || ' ' || d.oid::text \
     FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()";

/// Returns a query for a session without the [`SETTINGS`]. Servers and users can have a default
/// isolation level that a standby does not offer.
pub(super) fn before_settings(query: &str) -> String {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED; {query}; COMMIT")
}

/// Returns the statements that apply the settings of [`NOTICING`] that the server has. Each may fail.
pub(super) fn noticing() -> [String; 4] {
    NOTICING.map(|(name, value)| {
        format!(
            "SELECT set_config('{name}', '{value}', false) WHERE current_setting('{name}', true) IS NOT NULL"
        )
    })
}

/// Lets each statement of a session be a read transaction of its own, with its own snapshot. If it were serializable, the server would note
/// what it reads, and could refuse it. After [`SETTINGS`].
#[cfg(feature = "async")]
pub(super) const ALONE: &str =
    "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = on";

/// Begins a read transaction.
pub(super) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Begins a read transaction and takes a snapshot that is a state between two transactions, in an order of all serializable ones.
/// Waits for the write transactions that are running.
pub(super) const BEGIN_SERIALIZABLE_READ: &str =
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1";

/// Begins a write transaction. It is `DEFERRABLE`, which has no effect except that [`IS_IN_TRANSACTION`] can be evaluated.
pub(super) const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE DEFERRABLE";

/// A condition that holds in a write transaction of this library.
pub(super) const IS_IN_TRANSACTION: &str = "current_setting('transaction_deferrable') = 'on'";

/// Takes an advisory lock of the session, unless another session has it.
pub(super) const LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))";

/// Releases the lock.
pub(super) const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1::text, 0))::text";

/// Returns the statement that limits the time for which each later statement of a session waits for a lock.
pub(super) fn lock_timeout(limit: Duration) -> String {
    // 0 is no limit.
    format!("SET lock_timeout = {}", limit.as_millis().max(1))
}

/// Returns the statement that limits the time for which each later statement of a transaction waits for a lock.
pub(super) fn local_lock_timeout(limit: Duration) -> String {
    format!("SET LOCAL lock_timeout = {}", limit.as_millis().max(1))
}

/// Returns the statement that begins a transaction.
pub(super) const fn begin(writes: bool) -> &'static str {
    if writes { BEGIN_WRITE } else { BEGIN_READ }
}

/// Returns an expression for the number of a write transaction. For a read transaction, all transactions with smaller
/// numbers have ended in its snapshot.
pub(super) const fn number(writes: bool) -> &'static str {
    if writes {
        "pg_current_xact_id()::text"
    } else {
        "pg_snapshot_xmin(pg_current_snapshot())::text"
    }
}

/// The storage parameters of the tokens. Each commit leaves a dead row, so the server cleans the table after a number of rows, and not
/// after a share of those that it has. It does not give back pages at the end, for which it would lock the table.
const OF_COMMITS: &str = " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, vacuum_truncate = false)";

/// The storage parameters of the other tables. Each change of a key leaves a dead row in an index, so the server does not wait until a fifth of
/// the rows is dead.
const OF_TABLES: &str = " WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false)";

/// Returns the statement that creates a table.
pub(super) fn create(relation: &Relation) -> String {
    let columns =
        relation.form.columns().split(", ").map(|column| format!("{column} bytea NOT NULL"));
    let (columns, keys) = (columns.collect::<Vec<_>>().join(", "), relation.form.keys().join(", "));
    let storage = if relation.name == COMMITS { OF_COMMITS } else { OF_TABLES };
    format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({keys})){storage};", relation.sql)
}

/// Returns the query for the statements that grant the rights on the tables `from` on another table too.
pub(super) fn grants(relation: &Relation, from: &[&Relation]) -> String {
    let literal = |relation: &Relation| format!("'{}'", relation.sql.replace('\'', "''"));
    let from: Vec<_> = from.iter().map(|from| format!("{}::regclass", literal(from))).collect();
    format!(
        "SELECT string_agg(format('GRANT %s ON %s TO %s', a.privilege_type, {}, \
         CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END), '; ') \
         FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid IN ({}) AND a.grantee <> c.relowner",
        literal(relation),
        from.join(", ")
    )
}

/// Returns the statements that create these tables.
pub(super) fn create_all(relations: &[&Relation]) -> String {
    relations.iter().map(|relation| create(relation)).collect()
}

/// Returns the statements that remove the entries of an index and change the columns of its SQL table to those of
/// `relation`; `None` if the table has to be created again. Transactions with an older snapshot keep the entries. From a
/// new table, they would read none.
pub(super) fn change(relation: &Relation, primary_key: &str) -> Option<String> {
    let (table, primary_key) = (&relation.sql, quoted(primary_key));
    let change = match relation.form {
        Form::Pairs => return None,
        Form::Unique => format!(
            "ADD COLUMN s bytea NOT NULL DEFAULT '', ADD PRIMARY KEY (k, s); \
             ALTER TABLE {table} ALTER COLUMN s DROP DEFAULT"
        ),
        Form::Entries => "DROP COLUMN s, ADD PRIMARY KEY (k, p)".to_owned(),
    };
    Some(format!(
        "DELETE FROM {table}; ALTER TABLE {table} DROP CONSTRAINT {primary_key}, {change};"
    ))
}

/// Returns the statement that loads rows of a table from binary data.
pub(super) fn copy(relation: &Relation) -> String {
    format!("COPY {} ({}) FROM STDIN WITH (FORMAT binary)", relation.sql, relation.form.columns())
}
