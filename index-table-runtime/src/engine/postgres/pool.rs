//! The thread for I/O, and the pool of connections.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tokio_postgres::{Client, Config, NoTls};

use super::{connection::Connection, error, wait::wait};
use crate::model::error::{Error, Result};

/// The time after which connecting to a server fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of a store.
pub(super) struct Pool {
    // Before the thread, so that the connections are closed while it runs.
    state: Mutex<State>,
    returned: Condvar,
    /// The times when the read transactions of this store began.
    readers: Mutex<BTreeMap<u64, Instant>>,
    config: Config,
    /// The server, without the password, for errors.
    server: String,
    most: usize,
    patience: Duration,
    io: IoThread,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// The number of connections, idle or in use.
    open: usize,
}

impl Pool {
    /// Starts the thread. `patience` is the maximum waiting time for a connection.
    pub(super) fn new(
        mut config: Config,
        server: String,
        most: usize,
        patience: Duration,
    ) -> Result<Self> {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let thread = |source| Error::Thread { name: "the I/O of PostgreSQL", source };
        let io = IoThread::start().map_err(thread)?;
        let (state, returned, readers) = (Mutex::default(), Condvar::new(), Mutex::default());
        Ok(Self { state, returned, readers, config, server, most: most.max(1), patience, io })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a read transaction until the result is dropped.
    pub(super) fn count_reader(&self) -> Counted<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.readers().insert(number, Instant::now());
        Counted { pool: self, number }
    }

    /// Returns the number of read transactions, and the age of the oldest.
    pub(super) fn ages(&self) -> (usize, Option<Duration>) {
        let readers = self.readers();
        (readers.len(), readers.values().min().map(Instant::elapsed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection for a thread that uses another one; `None` if all are in use.
    pub(super) fn take_another(&self) -> Result<Option<Leased<'_>>> {
        self.take_within(Duration::ZERO)
    }

    /// Returns an idle connection, opens one, or waits until one is returned.
    pub(super) fn take(&self) -> Result<Leased<'_>> {
        self.take_within(self.patience)?.ok_or_else(|| {
            let reason = format!(
                "all {} connections of this store are in use; drop transactions sooner, or raise \
                 `Store::options().connections(…)`",
                self.most
            );
            Error::Unreachable { server: self.server.clone(), reason }
        })
    }

    /// Returns an idle connection, opens one, or waits for at most this time; `None` after that time.
    fn take_within(&self, patience: Duration) -> Result<Option<Leased<'_>>> {
        let begun = Instant::now();
        let mut state = self.state();
        loop {
            while let Some(connection) = state.idle.pop() {
                if !connection.is_closed() {
                    return Ok(Some(Leased {
                        pool: self,
                        connection: Some(connection),
                        is_locked: false,
                        is_new: false,
                    }));
                }
                state.open -= 1;
            }
            if state.open < self.most {
                state.open += 1;
                break;
            }
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return Ok(None) };
            state =
                self.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        let mut leased = Leased { pool: self, connection: None, is_locked: false, is_new: true };
        // If this fails, dropping `leased` makes room for another connection.
        leased.connection = Some(self.open()?);
        Ok(Some(leased))
    }

    /// Returns the version of the server as text, on a connection of its own.
    pub(super) fn version(&self) -> Result<String> {
        let version = Connection::raw(self.connect()?).simple("SELECT version()");
        let version = version.map_err(|error| error::unreachable(&self.server, &error))?;
        Ok(version.unwrap_or_default())
    }

    /// Opens a connection outside of the pool.
    pub(super) fn open(&self) -> Result<Connection> {
        // If the server refuses to open a session for any reason, it counts as unreachable.
        Connection::new(self.connect()?).map_err(|error| error::unreachable(&self.server, &error))
    }

    fn connect(&self) -> Result<Client> {
        let (config, handle) = (self.config.clone(), self.io.handle.clone());
        let connecting = self.io.handle.spawn(async move {
            let (client, connection) = config.connect(NoTls).await?;
            handle.spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        });
        let connected =
            wait(connecting).map_err(|ended| error::unreachable(&self.server, &ended))?;
        connected.map_err(|error| error::unreachable(&self.server, &error))
    }
}

/// A read transaction that is counted.
pub(super) struct Counted<'p> {
    pool: &'p Pool,
    number: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.pool.readers().remove(&self.number);
    }
}

/// A connection in use. It returns to the pool if it is [kept](Leased::keep), and is closed otherwise.
pub(super) struct Leased<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    /// Whether the session has an advisory lock.
    is_locked: bool,
    is_new: bool,
}

impl Leased<'_> {
    /// Whether the connection is new. An older connection may have been lost while it was idle.
    pub(super) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Takes an advisory lock of the session, until the connection is kept or closed.
    pub(super) fn lock(&mut self, name: &str) -> Result<()> {
        self.is_locked = true;
        let sql = "SELECT pg_advisory_lock(hashtextextended($1::text, 0))::text";
        let locked = self.get()?.query(sql, &[&name]);
        locked.map(drop).map_err(|error| error::of(&self.pool.server, error))
    }

    pub(super) fn get(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| Error::internal("a connection is in use twice"))
    }

    /// Returns the connection to the pool. It must have no transaction.
    pub(super) fn keep(mut self) {
        let unlock = "SELECT pg_advisory_unlock_all()::text";
        let can_stay = |connection: &mut Connection| {
            !connection.is_closed() && (!self.is_locked || connection.simple(unlock).is_ok())
        };
        if let Some(connection) = self.connection.take_if(can_stay) {
            self.pool.state().idle.push(connection);
            self.pool.returned.notify_one();
            // The connection still counts towards the limit of the pool.
            std::mem::forget(self);
        }
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.connection = None;
        self.pool.state().open -= 1;
        self.pool.returned.notify_one();
    }
}

/// A thread with the runtime of the connections.
struct IoThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread =
            thread::Builder::new().name("index-table-postgres".to_owned()).spawn(move || {
                runtime.block_on(async {
                    let _ = stopped.await;
                    // The tasks of closed connections end here.
                    for _ in 0..16 {
                        tokio::task::yield_now().await;
                    }
                });
            })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has no further effect.
            let _ = thread.join();
        }
    }
}
