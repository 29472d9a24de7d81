//! The clients that have tables open for writing: a row of the SQL table `.clients` for each of a client's tables.
//!
//! | column | contents |
//! |---|---|
//! | `k` | the name of the table ‖ `00` ‖ a random number of the client below 2³¹ (4 bytes, big-endian) |
//! | `v` | the hash of each part that it maintains (8 bytes) |
//!
//! A client has a shared advisory lock in the session of one of its connections, so the server knows when its process has ended. The
//! two numbers of the lock are the first 31 bits of a hash of the schema, and the number of the client. When the connection was
//! closed, another one gets the lock within [`PERIOD`]. The rows of clients without a lock don't count, and are removed when another
//! client opens the table.
//!
//! All this is a hint: what a client may write is decided by the record of the table. The statements are transactions of their own,
//! READ COMMITTED, on another connection than those of transactions.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    Engine,
    connection::Connection,
    names::{CLIENTS, COMMITS, Form, Relation, hex},
    pool::{Pool, elsewhere},
    token,
};
use crate::{
    background::{Job, Lane, Work},
    locks::{
        Mutex,
        rank::{Rollout, ServerClients},
    },
    model::{error::Result, key::hash},
};

/// The time after which a client looks whether the connection with its lock was closed.
const PERIOD: Duration = Duration::from_secs(10);

/// The time within which the server notices that a connection was closed.
const CLOSING: Duration = Duration::from_secs(1);

/// The time after which a client that lacks a part is looked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// The time after which the tokens of closed connections are removed again.
const REMOVAL: Duration = Duration::from_hours(1);

/// The number of the client in a row of the SQL table.
const NUMBER: &str = "('x' || encode(substr(k, length(k) - 3), 'hex'))::bit(32)::int8::oid";

/// The tables that this client has open for writing.
pub(super) struct Clients {
    shared: Arc<Shared>,
    job: Mutex<Option<Job>, Rollout>,
}

struct Shared {
    pool: Arc<Pool>,
    relation: Relation,
    /// The hash of the schema, and the number of the client.
    lock: [i32; 2],
    tables: Mutex<BTreeMap<String, Open>>,
    /// The connection with the lock.
    holder: Mutex<Weak<Connection>>,
    /// Held while the rows are written, so that an earlier state does not replace a later one.
    writing: Mutex<(), ServerClients>,
    /// The tokens of commits, and the time when old ones were removed.
    commits: Relation,
    removed: Mutex<Instant>,
}

/// A table of this client.
#[derive(Debug, Clone)]
struct Open {
    /// The number of times that it is open. At 0, its row is removed.
    times: usize,
    parts: Vec<u64>,
}

/// Renews the rows and the lock while the store is open, if they have to be, and removes old tokens.
struct Renewing(Weak<Shared>);

impl Work for Renewing {
    fn run(&self) -> Option<Duration> {
        let shared = self.0.upgrade()?;
        if shared.is_outdated() {
            // After an error, the server may be reachable the next time.
            let _ = shared.renew();
        }
        shared.remove_tokens();
        let is_idle = shared.tables.lock().is_empty();
        (!is_idle).then_some(PERIOD)
    }

    fn panicked(&self) {}
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The job of an inherited store runs in the parent, and may have the lock.
        if self.shared.pool.is_inherited() {
            return;
        }
        // It may wait for a server that does not answer.
        if let Some(job) = self.job.lock().take() {
            job.detach();
        }
    }
}

impl Clients {
    pub(super) fn new(pool: &Arc<Pool>, schema: &str) -> Self {
        let shared = Shared {
            pool: Arc::clone(pool),
            relation: Relation::new(schema, CLIENTS, Form::Pairs),
            lock: [first_bits(&hash(schema.as_bytes())), first_bits(&random().to_be_bytes())],
            tables: Mutex::default(),
            holder: Mutex::default(),
            writing: Mutex::default(),
            commits: Relation::new(schema, COMMITS, Form::Pairs),
            removed: Mutex::new(Instant::now()),
        };
        Self { shared: Arc::new(shared), job: Mutex::default() }
    }

    /// Returns the SQL table.
    pub(super) fn relation(&self) -> &Relation {
        &self.shared.relation
    }

    /// Looks after the rows from now on, and soon if a table is no longer open.
    fn watch(&self, is_open: bool) {
        let mut job = self.job.lock();
        if job.is_none() {
            let work = Arc::new(Renewing(Arc::downgrade(&self.shared)));
            // Without a thread, the client is not seen any more when the connection was lost.
            *job = Job::start(work, Lane::Servers, Some(PERIOD)).ok();
        }
        if let Some(job) = job.as_ref().filter(|_| !is_open) {
            job.wake();
        }
    }
}

impl Shared {
    /// Whether the connection with the lock was closed, or a table is no longer open.
    fn is_outdated(&self) -> bool {
        !self.has_lock() || self.tables.lock().values().any(|open| open.times == 0)
    }

    fn has_lock(&self) -> bool {
        let holder = self.holder.lock().upgrade();
        holder.is_some_and(|connection| !connection.is_closed())
    }

    /// Takes the lock unless this client has it, writes the rows of the open tables, and removes those of the others.
    fn renew(&self) -> Result<()> {
        let _writing = self.writing.lock();
        let tables = self.tables.lock().clone();
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        for (table, Open { times, parts }) in &tables {
            let key = self.key(table);
            if *times == 0 {
                gone.push(key);
                continue;
            }
            let parts: Vec<u8> = parts.iter().flat_map(|part| part.to_be_bytes()).collect();
            rows.push(format!("({key}, '\\x{}'::bytea)", hex(&parts)));
        }
        let (clients, [class, number]) = (self.clients(), self.lock);
        let has_lock = self.has_lock();
        let mut statements = vec![
            "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET LOCAL lock_timeout = 1000".to_owned(),
        ];
        if !has_lock {
            statements.push(format!("SELECT pg_try_advisory_lock_shared({class}, {number})"));
        }
        if !rows.is_empty() {
            let rows = rows.join(", ");
            statements.push(format!(
                "INSERT INTO {clients} (k, v) VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
            ));
        }
        if !gone.is_empty() {
            statements.push(format!("DELETE FROM {clients} WHERE k IN ({})", gone.join(", ")));
        }
        statements.push("COMMIT".to_owned());
        let sql = statements.join("; ");
        let holder = elsewhere(&self.pool, |connection| {
            connection.simple(&sql).map(|_| Arc::downgrade(connection))
        })?;
        if !has_lock {
            *self.holder.lock() = holder;
        }
        let was_closed = |table: &String| tables.get(table).is_some_and(|it| it.times == 0);
        self.tables.lock().retain(|table, open| open.times > 0 || !was_closed(table));
        Ok(())
    }

    /// Removes old tokens, unless that was done within [`REMOVAL`].
    fn remove_tokens(&self) {
        let is_due = {
            let mut removed = self.removed.lock();
            let is_due = removed.elapsed() >= REMOVAL;
            if is_due {
                *removed = Instant::now();
            }
            is_due
        };
        if is_due {
            // Tokens that stay for longer do no harm.
            let _ = elsewhere(&self.pool, |it| it.simple(&token::remove_old(&self.commits)));
        }
    }

    fn clients(&self) -> &str {
        &self.relation.sql
    }

    /// Returns the key of the row for a table.
    fn key(&self, table: &str) -> String {
        let [_, number] = self.lock.map(i32::to_be_bytes);
        format!("'\\x{}00{}'::bytea", hex(table.as_bytes()), hex(&number))
    }

    /// Returns the condition for the rows of a table.
    fn is_of(table: &str) -> String {
        let table = hex(table.as_bytes());
        format!("k >= '\\x{table}00'::bytea AND k < '\\x{table}01'::bytea")
    }

    /// Removes the rows of ended clients for a table.
    fn forget_ended(&self, table: &str) -> Result<()> {
        let (clients, rows, is_locked) = (self.clients(), Self::is_of(table), self.is_locked());
        let sql = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1000; \
             DELETE FROM {clients} WHERE {rows} AND NOT {is_locked}; COMMIT"
        );
        elsewhere(&self.pool, |connection| connection.simple(&sql)).map(drop)
    }

    /// Returns the condition that the client of a row has its lock.
    fn is_locked(&self) -> String {
        let [class, _] = self.lock;
        format!(
            "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = {class} AND objid = {NUMBER} \
             AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
        )
    }

    /// Returns the parts that each other client with the table maintains.
    fn others(&self, table: &str) -> Result<Vec<Vec<u64>>> {
        let (clients, rows, own) = (self.clients(), Self::is_of(table), self.key(table));
        let sql = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; \
             SELECT string_agg(encode(v, 'hex'), ',') FROM {clients} WHERE {rows} AND k <> {own} AND {}; COMMIT",
            self.is_locked()
        );
        let Some(all) = elsewhere(&self.pool, |connection| connection.simple(&sql))? else {
            return Ok(Vec::new());
        };
        let part = |digits: &[u8]| {
            let digits = str::from_utf8(digits).unwrap_or_default();
            u64::from_str_radix(digits, 16).unwrap_or_default()
        };
        Ok(all.split(',').map(|parts| parts.as_bytes().chunks(16).map(part).collect()).collect())
    }
}

/// Returns the first 31 bits.
fn first_bits(bytes: &[u8]) -> i32 {
    let first = bytes.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    i32::try_from(first >> 1).unwrap_or_default()
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl Engine {
    /// Tells other clients that this one has a table open for writing and maintains these parts, or that it no longer does.
    ///
    /// # Errors
    ///
    /// Those of the server, if the table is opened.
    pub(crate) fn note_client(&self, table: &str, parts: &[u64], is_open: bool) -> Result<()> {
        if self.is_read_only || self.refuse_forked().is_err() {
            return Ok(());
        }
        {
            let mut tables = self.clients.shared.tables.lock();
            let open = tables
                .entry(table.to_owned())
                .or_insert_with(|| Open { times: 0, parts: parts.to_vec() });
            // Another opening of the table can precede the end of this one.
            if is_open {
                (open.times, open.parts) = (open.times + 1, parts.to_vec());
            } else {
                open.times = open.times.saturating_sub(1);
            }
        }
        let shared = &self.clients.shared;
        let renewed = if is_open { shared.renew() } else { Ok(()) };
        self.clients.watch(is_open);
        renewed?;
        if is_open { shared.forget_ended(table) } else { Ok(()) }
    }

    /// Returns for each of these parts whether another client has the table open without it. Waits up to a second for the end of
    /// such clients.
    pub(crate) fn others_lack(&self, table: &str, parts: &[u64]) -> Result<Vec<bool>> {
        let begun = Instant::now();
        loop {
            let others = self.clients.shared.others(table)?;
            let is_lacking = |part| others.iter().any(|other| !other.contains(part));
            let lacking: Vec<_> = parts.iter().map(is_lacking).collect();
            if !lacking.contains(&true) || begun.elapsed() > CLOSING {
                return Ok(lacking);
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::on_a_server, *};

    #[test]
    fn old_tokens_are_removed_while_a_store_is_open() {
        on_a_server(|engine| {
            let (shared, table) = (&engine.clients.shared, &engine.catalog.commits.sql);
            let old = "int8send(((extract(epoch FROM clock_timestamp()) - 90000) * 1000000)::int8)";
            engine
                .run(&format!("INSERT INTO {table} VALUES ('\\x07', '\\x01'::bytea || {old})"))?;
            let count = format!("SELECT count(*)::text FROM {table} WHERE k = '\\x07'");
            shared.remove_tokens();
            assert_eq!(engine.run(&count)?.as_deref(), Some("1"));
            // Transactions of other tests can be older than the row.
            let begun = Instant::now();
            while engine.run(&count)?.as_deref() != Some("0") {
                assert!(begun.elapsed() < Duration::from_secs(30), "it stays");
                *shared.removed.lock() = begun.checked_sub(REMOVAL).expect("a time");
                shared.remove_tokens();
                thread::sleep(PAUSE);
            }
            let options = "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE oid";
            let options = engine.run(&format!("{options} = '{table}'::regclass"))?;
            let wanted = "autovacuum_vacuum_scale_factor=0 autovacuum_vacuum_threshold=10000 \
                          vacuum_truncate=false";
            assert_eq!(options.as_deref(), Some(wanted));
            Ok(())
        });
    }
}
