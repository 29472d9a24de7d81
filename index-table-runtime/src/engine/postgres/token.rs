//! The tokens of commits: rows that prove whether a commit was applied.
//!
//! A token is a row of the SQL table `.commits` with 16 random bytes. Each write transaction inserts one before its `COMMIT`, in the
//! same round trip, and deletes the token of its connection's previous commit. So the table has a row for each open connection, and
//! for each one that was closed within the last [`AGE`].
//!
//! If the connection is lost during the commit, the client writes the same token itself, as a *fence*, on another connection:
//!
//! | state of the commit | the fence |
//! |---|---|
//! | the server has not received the token, or has rolled back | is inserted: the commit has failed. If the token arrives later, it is a duplicate, and its transaction fails |
//! | the transaction is running, or its commit waits for a standby | waits for the transaction, up to the time limit |
//! | committed | finds the token, and writes it again. The commit that follows is later in the WAL, so once it has succeeded, the first commit is as durable as the settings of the server promise, on its standbys too |
//! | lost in a crash of the server, before it was durable | is inserted: the commit has failed |
//! | committed so long ago that its token was removed by age | is inserted: the outcome is unknown. So it is after half of [`AGE`] |
//!
//! A client that crashes leaves its token, or its fence, until it is removed by age. A fence that was written before the client lost
//! its connection again is found by the next attempt, which returns the same result.
//!
//! The statements cause no conflicts between connections, although the transactions are SERIALIZABLE: the previous token is found by
//! its place (`ctid`), because a search of the primary key would note a page of its index as read, into which other transactions insert.
//! Fences and the removal by age are READ COMMITTED.

use std::{
    hash::{BuildHasher as _, RandomState},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

use tokio_postgres::types::{ToSql, Type};

use super::names::{Relation, hex};

/// The age after which tokens are removed. Much longer than the time limit for determining the outcome of a commit.
pub(super) const AGE: Duration = Duration::from_hours(24);

/// The maximum number of tokens that one statement removes, so that it takes less than a second.
const MOST: u32 = 100_000;

/// The value of a token, and the first byte of the value of a fence. The time of the server follows.
const COMMIT: &str = "01";
const FENCE: &str = "00";

/// The token of a commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    bytes: [u8; 16],
    /// The time before the commit was sent, by both clocks: one of them may stop while the machine is suspended, and the other one may be set.
    since: (Instant, SystemTime),
}

/// The token of the last commit of a connection.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    token: Token,
    /// The place of the row.
    place: String,
}

impl Kept {
    pub(super) fn new(token: Token, place: &str) -> Self {
        Self { token, place: place.to_owned() }
    }
}

/// The parameters of the statement that inserts a token.
pub(super) struct Insertion {
    token: Vec<u8>,
    /// The place of the previous token, and its bytes.
    place: Option<String>,
    previous: Option<Vec<u8>>,
}

impl Insertion {
    /// The types of the parameters.
    pub(super) const TYPES: [Type; 3] = [Type::BYTEA, Type::TEXT, Type::BYTEA];

    pub(super) fn new(token: Token, previous: Option<&Kept>) -> Self {
        let previous = previous.filter(|kept| kept.token.is_recent());
        Self {
            token: token.bytes.to_vec(),
            place: previous.map(|kept| kept.place.clone()),
            previous: previous.map(|kept| kept.token.bytes.to_vec()),
        }
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 3] {
        [&self.token, &self.place, &self.previous]
    }
}

impl Token {
    /// Returns a new token.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A forked process has the keys of its parent.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = (process::id(), now.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed));
        let random = |half: u8| RandomState::new().hash_one((half, seed)).to_be_bytes();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(random(0).into_iter().chain(random(1))).for_each(|(to, it)| *to = it);
        Self::with(bytes)
    }

    pub(super) fn with(bytes: [u8; 16]) -> Self {
        Self { bytes, since: (Instant::now(), SystemTime::now()) }
    }

    /// Returns the token as it is after both clocks have advanced by these times.
    #[cfg(test)]
    pub(super) fn after(mut self, times: (Duration, Duration)) -> Option<Self> {
        let (instant, system) = self.since;
        self.since = (instant.checked_sub(times.0)?, system.checked_sub(times.1)?);
        Some(self)
    }

    /// Whether the token can't have been removed by age. Otherwise, a fence that was inserted proves nothing.
    pub(super) fn is_recent(&self) -> bool {
        let (instant, system) = self.since;
        let recent = |age| age < AGE / 2;
        recent(instant.elapsed()) && system.elapsed().is_ok_and(recent)
    }

    /// Returns the statements that write the fence. Their last row is `1` if the transaction with the token was committed.
    /// Otherwise, it was not committed, and can no longer be committed.
    pub(super) fn fence(self, commits: &Relation, limit: Duration) -> String {
        let (table, token) = (&commits.sql, hex(&self.bytes));
        let limit = limit.as_millis().max(1);
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {limit}; SET LOCAL statement_timeout = {limit}; \
             INSERT INTO {table} AS c (k, v) VALUES ('\\x{token}', {}) \
             ON CONFLICT (k) DO UPDATE SET v = c.v RETURNING get_byte(v, 0)::text; COMMIT",
            value(FENCE)
        )
    }
}

/// Returns the expression for the value of a row.
fn value(kind: &str) -> String {
    format!(
        "'\\x{kind}'::bytea || int8send((extract(epoch FROM clock_timestamp()) * 1000000)::int8)"
    )
}

/// Returns the parts of a statement that insert a token and delete the previous one. `first` is the number of the first of the
/// [parameters](Insertion::parameters). The parts depend on the common table expression `gate`.
pub(super) fn parts(commits: &Relation, first: usize, gate: Option<&str>) -> [String; 2] {
    let (table, place, previous) = (&commits.sql, first + 1, first + 2);
    let [from, and] = match gate {
        Some(gate) => [format!(" FROM {gate}"), format!(" AND EXISTS (SELECT 1 FROM {gate})")],
        None => [String::new(), String::new()],
    };
    [
        format!(
            "INSERT INTO {table} (k, v) SELECT ${first}::bytea, {}{from} RETURNING ctid::text AS place",
            value(COMMIT)
        ),
        // The expression prevents the use of the primary key.
        format!(
            "DELETE FROM {table} WHERE ctid = ${place}::text::tid AND k || ''::bytea = ${previous}::bytea{and}"
        ),
    ]
}

/// Returns the statement that inserts a token in a transaction, and deletes the previous one.
pub(super) fn insert(commits: &Relation) -> String {
    let [insert, delete] = parts(commits, 1, None);
    format!("WITH d AS ({delete}) {insert}")
}

/// Returns the statements that remove the tokens of closed connections. A fence stays while a transaction is running that was running
/// when it was written.
pub(super) fn remove_old(commits: &Relation) -> String {
    let (table, age) = (&commits.sql, AGE.as_secs());
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1000; SET LOCAL enable_seqscan = on; \
         DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} \
         WHERE substr(v, 2) < int8send(((extract(epoch FROM clock_timestamp()) - {age}) * 1000000)::int8) \
         AND age(xmin) > age(xid(pg_snapshot_xmin(pg_current_snapshot()))) LIMIT {MOST})); COMMIT"
    )
}
