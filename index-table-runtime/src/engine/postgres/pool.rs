//! The pool of connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio_postgres::Config;

use super::{
    connection::{Connection, Outcome, Unprepared, column},
    counters::Counters,
    dial,
    ends::Ends,
    error,
    options::Limits,
    sql,
    start::{self, Start},
    target::Target,
    texts::Texts,
    tls::Tls,
};
use crate::{
    engine::ServerUsage,
    locks::{Condvar, Mutex, MutexGuard, Origin, rank::ServerPool},
    model::error::{Error, Result, ServerProblem},
};

/// The oldest version of PostgreSQL that has all used functions.
const OLDEST: u32 = 13;

/// The first and the longest pause between two attempts to connect to a server that is restarting.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The longest pause between two attempts to take the lock of a schema, and the maximum waiting time.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
const LOCK_LIMIT: Duration = Duration::from_hours(1);

/// The maximum number of statements that are prepared when a connection is opened.
const MOST_KNOWN: usize = 512;

/// The connections of a store.
pub(super) struct Pool {
    state: Mutex<State, ServerPool>,
    pub(super) ends: Ends,
    pub(super) texts: Texts,
    returned: Condvar,
    /// The read transactions of this store, each with the time when it began.
    readers: Mutex<BTreeMap<u64, (Instant, Arc<Start>)>>,
    /// The statements that new connections prepare.
    known: Mutex<BTreeSet<Box<str>>>,
    /// The statements that new connections prepare for `EXECUTE`.
    named: Mutex<BTreeSet<Box<str>>>,
    config: Config,
    target: Target,
    tls: Tls,
    /// The server, without the password, for errors.
    server: String,
    most: usize,
    limits: Limits,
    /// Whether the store is written to, so that a standby is of no use.
    needs_primary: bool,
    /// The [`Connection::identity`] of the first session.
    identity: OnceLock<String>,
    pub(super) counters: Counters,
    /// The process that has opened the store. A forked process shares its connections, and must not use them.
    origin: Origin,
}

#[derive(Default)]
struct State {
    idle: Vec<Arc<Connection>>,
    /// The number of connections, idle or in use.
    open: usize,
}

impl Pool {
    /// Returns a pool without connections.
    pub(super) fn new(
        (config, target): (Config, Target),
        server: String,
        most: usize,
        limits: Limits,
        tls: Tls,
        needs_primary: bool,
    ) -> Self {
        Self {
            state: Mutex::default(),
            ends: Ends::default(),
            texts: Texts::default(),
            returned: Condvar::new(),
            readers: Mutex::default(),
            known: Mutex::default(),
            named: Mutex::default(),
            config,
            target,
            tls,
            server,
            most: most.max(1),
            limits,
            needs_primary,
            identity: OnceLock::new(),
            counters: Counters::default(),
            origin: Origin::here(),
        }
    }

    /// Returns the maximum waiting time for a connection of the pool.
    pub(super) const fn patience(&self) -> Duration {
        self.limits.lease
    }

    /// Returns the time limits.
    pub(super) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Adds a statement that new connections prepare.
    pub(super) fn know(&self, sql: &str) {
        let mut known = self.known();
        if known.len() < MOST_KNOWN && !known.contains(sql) {
            known.insert(sql.into());
        }
    }

    /// Adds a statement that new connections prepare for `EXECUTE`.
    pub(super) fn know_named(&self, sql: &str) {
        self.named().insert(sql.into());
    }

    fn named(&self) -> MutexGuard<'_, BTreeSet<Box<str>>> {
        self.named.lock()
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<Box<str>>> {
        self.known.lock()
    }

    /// Whether this process has inherited the store in a fork. Then it must neither wait for a lock nor use a connection.
    pub(super) fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    /// Returns an error if this process has inherited the store in a fork.
    pub(super) fn refuse_forked(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.server().into() });
        }
        Ok(())
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, Arc<Start>)>> {
        self.readers.lock()
    }

    /// Counts a read transaction until the result is dropped.
    pub(super) fn count_reader(self: &Arc<Self>, start: &Arc<Start>) -> Counted {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.readers().insert(number, (Instant::now(), Arc::clone(start)));
        Counted { pool: Arc::clone(self), number }
    }

    /// Takes the snapshots of all read transactions that have none yet. This precedes each commit of this store.
    pub(super) fn take_snapshots(&self) {
        let starts: Vec<_> = self.readers().values().map(|(_, start)| Arc::clone(start)).collect();
        start::take_snapshots(&starts, sql::BEGIN_READ, self.limits.response);
    }

    /// Returns the number of read transactions, and the age of the oldest.
    pub(super) fn ages(&self) -> (usize, Option<Duration>) {
        if self.is_inherited() {
            return (0, None);
        }
        let readers = self.readers();
        (readers.len(), readers.values().map(|(begun, _)| begun).min().map(Instant::elapsed))
    }

    /// Returns the use of the server.
    pub(super) fn usage(&self) -> ServerUsage {
        if self.is_inherited() {
            return ServerUsage::default();
        }
        let (open, idle) = {
            let state = self.state();
            (state.open, state.idle.len())
        };
        self.counters.report([open, open.saturating_sub(idle), self.most])
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns a connection for a thread that already uses a connection; `None` if all are in use.
    pub(super) fn take_another(self: &Arc<Self>) -> Result<Option<Leased>> {
        self.take_within(Duration::ZERO)
    }

    /// Returns an idle connection, opens one, or waits until one is returned.
    pub(super) fn take(self: &Arc<Self>) -> Result<Leased> {
        self.take_within(self.limits.lease)?.ok_or_else(|| {
            let reason = format!(
                "all {} connections of this store are in use; drop transactions sooner, or raise \
                 `Store::options().connections(…)`",
                self.most
            );
            let problem = ServerProblem::NoFreeConnection;
            Error::Unreachable { server: self.server.clone(), problem, reason }
        })
    }

    /// Takes an advisory lock for the session of `first`, or for that of a connection that it [takes](Self::take). Takes another
    /// connection if that one was lost while it was idle. The lock is released when the connection is kept or closed.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] with [`ServerProblem::Locked`] after [`LOCK_LIMIT`]. The connection is closed.
    pub(super) fn take_locked(
        self: &Arc<Self>,
        mut first: Option<Leased>,
        name: &str,
    ) -> Result<Leased> {
        loop {
            let mut leased = first.take().map_or_else(|| self.take(), Ok)?;
            match leased.lock(name) {
                Ok(()) => return Ok(leased),
                // Another session has the lock, so another connection does not get it either.
                Err(Error::Unreachable { problem, .. })
                    if problem != ServerProblem::Locked && leased.is_replaceable() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns an idle connection, opens one, or waits for at most this time; `None` after that time.
    fn take_within(self: &Arc<Self>, patience: Duration) -> Result<Option<Leased>> {
        let begun = Instant::now();
        let (mut state, mut wait) = (self.state(), None);
        let leased = |connection, is_new| Leased {
            pool: Arc::clone(self),
            connection,
            locked: None,
            is_new,
            counts: true,
        };
        loop {
            while let Some(connection) = state.idle.pop() {
                if !connection.is_closed() {
                    return Ok(Some(leased(Some(connection), false)));
                }
                state.open -= 1;
            }
            if state.open < self.most {
                state.open += 1;
                break;
            }
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return Ok(None) };
            if !patience.is_zero() {
                wait.get_or_insert_with(|| self.counters.begin_wait());
            }
            state = self.returned.wait_timeout(state, left);
        }
        drop((state, wait));
        let mut leased = leased(None, true);
        let known: Vec<_> = self.known().iter().cloned().collect();
        let named: Vec<_> = self.named().iter().cloned().collect();
        // If this fails, dropping `leased` makes room for another connection.
        leased.connection = Some(Arc::new(self.session(self.limits.connect, &known, &named)?));
        Ok(Some(leased))
    }

    /// Returns an error if the server is another product than PostgreSQL, or older than [`OLDEST`]. Opens a connection, and returns it.
    pub(super) fn refuse_other_servers(&self) -> Result<Connection> {
        let sql = "SELECT current_setting('server_version_num') || ' ' || version()";
        let connection = self.connect(self.limits.connect)?;
        let version = connection.simple(&sql::before_settings(sql));
        let version = version.map_err(|error| error::unreachable(&self.server, &error))?;
        match refused(&version.unwrap_or_default()) {
            None => Ok(connection),
            Some(reason) => Err(Error::Unreachable {
                server: self.server.clone(),
                problem: ServerProblem::NotSupported,
                reason,
            }),
        }
    }

    /// Opens a connection outside of the pool, without prepared statements.
    pub(super) fn open(&self) -> Result<Connection> {
        self.open_within(self.limits.connect)
    }

    /// Opens a connection outside of the pool, without prepared statements, within a time limit.
    pub(super) fn open_within(&self, limit: Duration) -> Result<Connection> {
        self.session(limit, &[], &[])
    }

    /// Opens a connection, and prepares these statements.
    fn session(
        &self,
        limit: Duration,
        known: &[Box<str>],
        named: &[Box<str>],
    ) -> Result<Connection> {
        let limits = (self.limits.response, self.limits.lock());
        let prepared = self.connect(limit)?.prepare(known, named, limits, self.needs_primary);
        let connection = prepared.map_err(|unprepared| match unprepared {
            // If the server refuses to open a session for any reason, it counts as unreachable.
            Unprepared::Failed(error) => error::unreachable(&self.server, &error),
            Unprepared::Standby => {
                let standby = error::Standby("the server is a standby".to_owned());
                error::unreachable(&self.server, &standby)
            }
            Unprepared::Setting { name, found, wanted } => Error::Unreachable {
                server: self.server.clone(),
                problem: ServerProblem::NotSupported,
                reason: format!(
                    "the setting `{name}` of a session is `{found}` and can't be set to `{wanted}`; \
                     connect to the server itself, and not to a pooler of connections"
                ),
            },
        })?;
        self.refuse_replaced(&connection)?;
        Ok(connection)
    }

    /// Returns an error if the server has another cluster or database than before. The numbers of transactions, the tokens of commits, and what
    /// this process knows of the catalog are those of the first one. A standby has the cluster of its primary.
    fn refuse_replaced(&self, connection: &Connection) -> Result<()> {
        let Some(found) = connection.identity() else { return Ok(()) };
        if self.identity.get_or_init(|| found.to_owned()) == found {
            return Ok(());
        }
        Err(Error::Unreachable {
            server: self.server.clone(),
            problem: ServerProblem::Replaced,
            reason: "the server has another cluster or database than when the store was opened, for example a restored dump; \
                     open the store again"
                .to_owned(),
        })
    }

    /// Opens a connection without the settings.
    pub(super) fn connect(&self, limit: Duration) -> Result<Connection> {
        let until = Instant::now() + limit.min(self.limits.connect);
        let (mut pause, mut earlier) = (PAUSES.0, None);
        loop {
            let limits =
                Limits { connect: until.saturating_duration_since(Instant::now()), ..self.limits };
            let connected =
                dial::connect(&self.config, &self.tls, limits, (self.target, self.needs_primary));
            let error = match connected {
                Ok(connection) => return Ok(connection.counted(&self.counters.statements)),
                Err(error) => error,
            };
            let found = error::unreachable(&self.server, &*error);
            if !error::may_pass(&*error) || Instant::now() + pause >= until {
                // The last attempt may have had no time for a response, which tells less than those before.
                let tells_less =
                    matches!(found, Error::Unreachable { problem: ServerProblem::Network, .. });
                return Err(earlier.filter(|_| tells_less).unwrap_or(found));
            }
            earlier = Some(found);
            thread::sleep(pause);
            pause = PAUSES.1.min(pause * 2);
        }
    }
}

/// A read transaction that is counted.
pub(super) struct Counted {
    pool: Arc<Pool>,
    number: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.pool.is_inherited() {
            self.pool.readers().remove(&self.number);
        }
    }
}

/// A connection in use. It returns to the pool if it is [kept](Leased::keep), and is closed otherwise.
pub(super) struct Leased {
    pool: Arc<Pool>,
    connection: Option<Arc<Connection>>,
    /// The name of the lock of the session.
    locked: Option<String>,
    is_new: bool,
    /// Whether the connection is closed when this is dropped, so that it no longer counts.
    counts: bool,
}

impl Leased {
    /// Whether another connection can succeed after this one was lost: it may have been lost while it was idle. After a connection
    /// without a response, the time is over. Another connection would not have the lock of the session.
    pub(super) fn is_replaceable(&self) -> bool {
        let is_late = self.connection.as_ref().is_some_and(|connection| connection.is_late());
        !self.is_new && !is_late && self.locked.is_none()
    }

    /// Whether the session has an advisory lock.
    pub(super) const fn is_locked(&self) -> bool {
        self.locked.is_some()
    }

    /// Takes an advisory lock of the session, until the connection is kept or closed. Waits while another session has it, because
    /// that session may be changing tables for longer than any response takes.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] with [`ServerProblem::Locked`] after [`LOCK_LIMIT`].
    fn lock(&mut self, name: &str) -> Result<()> {
        let (connection, begun, mut pause) = (self.get()?, Instant::now(), PAUSES.0);
        loop {
            let locked = connection.query(sql::LOCK, &[&name]);
            let rows = locked.map_err(|error| error::of(&self.pool.server, error))?;
            if rows.first().map_or(Ok(false), |row| column(row, 0))? {
                self.locked = Some(name.to_owned());
                return Ok(());
            }
            if begun.elapsed() >= LOCK_LIMIT {
                return Err(Error::Unreachable {
                    server: self.pool.server.clone(),
                    problem: ServerProblem::Locked,
                    reason: "another client has been opening a table, or changing or building indexes, for an hour; its \
                             session has an advisory lock in `pg_locks`"
                        .to_owned(),
                });
            }
            thread::sleep(pause);
            pause = LOCK_PAUSE.min(pause * 2);
        }
    }

    pub(super) fn get(&self) -> Result<Arc<Connection>> {
        let missing = || Error::internal("a connection is in use twice");
        self.connection.as_ref().map(Arc::clone).ok_or_else(missing)
    }

    /// Returns the connection to the pool. It must have no transaction.
    pub(super) fn keep(mut self) {
        let locked = self.locked.take();
        let is_unlocked = |connection: &Connection| match &locked {
            Some(name) => connection.query(sql::UNLOCK, &[name]).is_ok(),
            None => true,
        };
        let can_stay =
            |connection: &mut Arc<Connection>| !connection.is_closed() && is_unlocked(connection);
        if let Some(connection) = self.connection.take_if(can_stay) {
            // The connection still counts towards the limit of the pool.
            self.counts = false;
            self.pool.state().idle.push(connection);
            self.pool.returned.notify_one();
        }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.connection = None;
        if self.counts && !self.pool.is_inherited() {
            self.pool.state().open -= 1;
            self.pool.returned.notify_one();
        }
    }
}

/// Uses an idle connection, or a new connection if all connections of the pool are in use.
pub(super) fn elsewhere<T>(
    pool: &Arc<Pool>,
    work: impl Fn(&Arc<Connection>) -> Outcome<T>,
) -> Result<T> {
    pool.refuse_forked()?;
    let failed = |error| error::of(pool.server(), error);
    while let Some(leased) = pool.take_another()? {
        match work(&leased.get()?).map_err(failed) {
            // The connection was lost while it was idle.
            Err(Error::Unreachable { .. }) if leased.is_replaceable() => {}
            Err(error) => return Err(error),
            Ok(done) => {
                leased.keep();
                return Ok(done);
            }
        }
    }
    work(&Arc::new(pool.open()?)).map_err(failed)
}

/// Returns why a server with this version, a number and the text of `version()`, is not used.
pub(super) fn refused(version: &str) -> Option<String> {
    let (number, text) = version.split_once(' ').unwrap_or((version, ""));
    if let Some(other) = ["CockroachDB", "-YB-"].into_iter().find(|name| text.contains(name)) {
        let name = if other == "-YB-" { "YugabyteDB" } else { other };
        return Some(format!("the server is {name}, and only PostgreSQL is supported"));
    }
    let major = number.parse::<u32>().map_or(0, |number| number / 10_000);
    let is_old = major < OLDEST;
    is_old.then(|| {
        format!("the server has version {text:?}, and {OLDEST} is the oldest that is supported")
    })
}
