//! Operations of a running service: moves, copies, builds and others that write, or take long, as jobs of the process that has the
//! store open.
//!
//! With a journal, no other process can write the store. So the service does the work, and the command speaks to it. A job has
//! the arguments and the result of the command: the same functions run both, and [`Output`](crate::output::Output) leads the
//! results, the notes and the progress to the job.
//!
//! | module | contents |
//! |---|---|
//! | [`work`] | the kinds with their arguments, and what they work on |
//! | [`job`] | the state of a job |
//! | [`audit`] | the audit log |
//! | [`http`] | the paths, and the checks of each request |
//!
//! A job has a thread of its own, so it doesn't end with its connection. At most one of a kind runs, so at most 15 threads
//! run. The jobs are in memory: after a crash there are none, and an interrupted move is continued by `resume-move`.

mod audit;
mod http;
mod job;
mod work;

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::Router;
use index_table::{__private::admin::checked, Store};

use self::{
    audit::Audit,
    job::State,
    work::{KINDS, Service},
};
use crate::{
    failure::Failure,
    output::Output,
    page,
    typed::{self, Tables},
};

pub(crate) use self::{job::Job, work::Work};

/// The maximum number of ended jobs that are listed.
const ENDED: usize = 100;

/// Operations of a running service: `move`, `split`, `move-table`, `add-shard`, `rebalance`, `resume-move`, `cancel-move`, `backup`,
/// `drop-retired`, `verify`, `repair`, `upgrade`, `build`, `expire` and `load`, as requests to its page and as commands
/// `index-table --url …`.
///
/// With a [journal](index_table::Durability::Journal), only the service can write its store, so it does the work. A service without
/// this value offers none.
///
/// # Requests
///
/// | request | result |
/// |---|---|
/// | `POST /operations/KIND` | starts a job with the arguments in the body, such as `{"map":"orders","keys":"..50","to":"south"}`. The status is 202, with the job |
/// | `GET /operations` | `running` and `ended`: the jobs, the last ended first, without their results |
/// | `GET /operations/ID` | a job |
/// | `POST /operations/ID/cancel` | asks a job to end |
///
/// Each request needs the header `Authorization: Bearer` with a [token](Operations::token). The token of the page, the password of a
/// browser and cookies don't suffice. A `POST` needs `Content-Type: application/json`. A request that a browser sends for another
/// site is refused.
///
/// | status | reason |
/// |---|---|
/// | 400 | the arguments are wrong |
/// | 401 | the token is missing or wrong |
/// | 403 | the request is of another site |
/// | 404 | there is no such operation or job |
/// | 408 | the body has not arrived after 20 seconds |
/// | 409 | a job of the kind runs, whose id is `job`; or the job has ended, or its work can't be cancelled |
/// | 413 | the body has more than 64 KiB |
/// | 415 | the content is not JSON |
/// | 500 | the audit log can't be written, or the system has no thread |
/// | 503 | the operations were [shut down](Operations::shut_down) |
///
/// The arguments of each kind, of which those in parentheses can be left out:
///
/// | kind | arguments |
/// |---|---|
/// | `move` | `map`, `keys`, `to` (`offline`) |
/// | `split` | `map`, `at`, `to` (`offline`) |
/// | `move-table` | `table`, `to` (`offline`) |
/// | `add-shard` | `name`, `directory` |
/// | `rebalance` | `map` (`by`: `rows` or `bytes`, `onto`: a list of shards, `tolerance` in percent) |
/// | `resume-move`, `cancel-move` | `id`, a text |
/// | `backup` | `to` (`compact`, `no_check`) |
/// | `drop-retired` | none |
/// | `verify`, `upgrade` | (`table`) |
/// | `repair` | (`table`, `delete_unreadable`) |
/// | `build` | (`table`, `refuse_earlier_releases`) |
/// | `expire` | (`table`, `limit`) |
/// | `load` | `table`, `file` (`on_duplicate`: `fail`, `skip` or `replace`, `no_changes`) |
///
/// # Jobs
///
/// A job is JSON: `id`, `kind`, `arguments`, `by` (the name of the token), `state` (`running`, `cancelling`, `done`, `failed` or
/// `cancelled`), `cancellable`, `started`, `ended`, `progress` (`unit`, `done` and `total`), `notes`, and after its end `outcome`: `code`, the
/// exit code of the command, `error`, `result` as `--json` writes it, and `text`.
///
/// A job runs in a thread of its own, also after the connection has ended. At most one job of a kind runs. The last 100 ended jobs
/// are kept, each with at most 100 notes, 64 KiB of text, and 256 KiB of result; a longer result is left out.
///
/// A cancelled job ends at its next batch, or inside a table within about a second, and its error says what was done: a `build` and an
/// `upgrade` continue after it, a `verify` begins again, and a `repair` leaves the table unchanged in which it is. The check of all pages with which
/// a `repair` and a `build` of a table begin is not cancelled. Of a `move`, `split` or `move-table`, the copies are then removed, unless the new
/// shard has the keys already: the job then goes on. A `rebalance` keeps the moves that have ended, and a `resume-move` leaves its
/// move unfinished. A `load` loads nothing, or without the types of the rows, whole batches. A `backup` removes its incomplete copy. `add-shard`,
/// `cancel-move` and `drop-retired` can't be cancelled. While a move waits for another job that the store does not run beside it, such as a `backup`, it does
/// not end. The exit code of a cancelled job is 130.
///
/// # The end of the service
///
/// When the last router and the last clone of this value are dropped, the jobs that can be cancelled are asked to end. Their threads are
/// not joined: [`shut_down`](Operations::shut_down) waits for them. A killed process leaves no damage: `moves` lists an unfinished move,
/// which `resume-move` continues, and an incomplete copy has a name that ends with `.partial`, until the
/// next `backup` to the same directory.
///
/// # The audit log
///
/// The start of each job, its cancellation and its end are events of `tracing` with the target `index_table_admin::operations`, and lines of
/// an [`audit_file`](Operations::audit_file). A process that is killed leaves the start of a job without its end. Refused requests are not
/// logged.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use index_table::{IndexTable, Store};
/// use index_table_admin::Operations;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Note {
///     #[primary_key]
///     id: u32,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let secret = || "from a file".to_owned();
/// let store = Store::open(dir.path().join("shop"))?;
/// let notes = NoteRepository::open(&store)?;
/// let operations = Operations::new(&store)
///     .token("alice", secret())
///     .types::<(Note,)>()
///     .files(dir.path().join("files"))
///     .audit_file(dir.path().join("audit.jsonl"));
/// let service: Router = Router::new().nest_service("/admin/", operations.router());
/// # drop(service);
/// // After the server has ended:
/// assert!(operations.shut_down(std::time::Duration::from_secs(10)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "operations are offered by their router"]
pub struct Operations {
    service: Service,
    tokens: Vec<(String, String)>,
    has_rows: bool,
    has_all_rows: bool,
    registry: Arc<Registry>,
    _stopper: Arc<Stopper>,
}

impl Operations {
    /// Creates the operations of a store. Create them once, and clone them: each value has jobs of its own. Without a [`token`](Operations::token), each request is refused.
    pub fn new(store: &Store) -> Self {
        let registry = Arc::new(Registry::new());
        Self {
            service: Service { store: store.clone(), types: Vec::new(), files: None },
            tokens: Vec::new(),
            has_rows: false,
            has_all_rows: false,
            _stopper: Arc::new(Stopper(Arc::clone(&registry))),
            registry,
        }
    }

    /// Accepts requests with this secret, as requests of `name`, which is in each job and in the audit log. May be called several
    /// times, so that each operator has a token.
    ///
    /// Take at least 16 random bytes, as text without spaces; those at its ends are left out. An empty secret is never accepted. Secrets are compared in a time
    /// that depends on their lengths only. The router has no encryption: put it behind a proxy with TLS, or listen on this machine.
    pub fn token(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.tokens.push((name.into(), secret.into().trim().to_owned()));
        self
    }

    /// Sets the types of the rows, which `verify`, `repair`, `upgrade`, `build` and `expire` need. The page does not show
    /// their rows, unless [`rows`](Operations::rows) is called.
    pub fn types<T: Tables>(mut self) -> Self {
        self.service.types = typed::declared::<T>();
        self
    }

    /// Shows the rows of the [types](Operations::types) on the page, as [`router_with_rows`](crate::router_with_rows) does.
    pub const fn rows(mut self) -> Self {
        self.has_rows = true;
        self
    }

    /// Shows the rows of all tables in use, as [`router_with_all_rows`](crate::router_with_all_rows) does.
    pub const fn all_rows(mut self) -> Self {
        self.has_all_rows = true;
        self
    }

    /// Sets the directory of the files that `load` reads and `backup` writes: the paths in their arguments are relative to it, without
    /// `..`, and no link leads out of it. `add-shard` also accepts an absolute directory in it. Without it, `load` and `backup` fail.
    ///
    /// The directory must exist when an operation uses it.
    pub fn files(mut self, directory: impl AsRef<Path>) -> Self {
        self.service.files = Some(directory.as_ref().to_owned());
        self
    }

    /// Appends the audit log to a file of JSON lines, with `time`, `event` (`start`, `cancel` or `end`), `by`, `job`, `kind`, `arguments`,
    /// `state` and `error`. Each line is synced. A job doesn't start if its line can't be written.
    ///
    /// A file of 16 MiB is renamed to the same name with `.1`, in place of an earlier one, so that both together have about 32 MiB.
    /// On Unix, only the user of the process can read a new file. Two processes can't share a file.
    pub fn audit_file(self, path: impl AsRef<Path>) -> Self {
        self.registry.table().audit = Audit::new(Some(path.as_ref().to_owned()));
        self
    }

    /// Returns the page and the metrics as [`router`](crate::router) does, with the operations: their requests, a list of the jobs in the
    /// overview, and the metrics `index_table_operations_running` and `index_table_operations_failed_total`.
    ///
    /// Only the operations need a token. Put the rest behind the authentication of the service, which has to let
    /// requests to `/operations` through with their header `Authorization`.
    pub fn router(&self) -> Router {
        let Self { service: Service { store, types, .. }, registry, has_all_rows, .. } = self;
        let types = if self.has_rows { types.as_slice() } else { &[] };
        let page = page::with_operations((store, types), registry, *has_all_rows);
        page.merge(http::routes(self.clone()))
    }

    /// Refuses further jobs, asks those that can be cancelled to end, and waits until all have ended, at most for `timeout`. Returns
    /// whether all have ended.
    ///
    /// A move is left unfinished, and `resume-move` continues it. Blocks the thread.
    #[must_use = "false: a job still runs"]
    pub fn shut_down(&self, timeout: Duration) -> bool {
        self.registry.shut_down(timeout)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tokens.iter().map(|(name, _)| name);
        f.debug_struct("Operations")
            .field("tokens", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Asks the jobs to end when it is dropped.
struct Stopper(Arc<Registry>);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.table().close();
    }
}

/// The jobs of a service.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The first part of each id. It differs from that of an earlier process.
    prefix: u64,
    table: Mutex<Table>,
    /// A job has ended.
    ended: Condvar,
}

#[derive(Debug)]
struct Table {
    last: u64,
    running: Vec<Arc<Job>>,
    /// The last ended jobs, oldest first.
    ended: VecDeque<Arc<Job>>,
    failed: BTreeMap<&'static str, u64>,
    audit: Audit,
    is_closed: bool,
}

impl Table {
    /// Refuses further jobs, and asks the running ones to end.
    fn close(&mut self) {
        self.is_closed = true;
        self.running.iter().for_each(|job| job.stop());
    }

    fn find(&self, id: &str) -> Option<&Arc<Job>> {
        self.running.iter().chain(&self.ended).find(|job| job.id == id)
    }
}

/// The reason why a request changes nothing.
#[derive(Debug)]
enum Refusal {
    NotFound(String),
    Arguments(String),
    /// A job of the kind runs.
    Running(Arc<Job>),
    /// The job can't be cancelled.
    NotNow(String),
    Closed,
    Failed(String),
}

impl Registry {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let prefix = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let table = Table {
            last: 0,
            running: Vec::new(),
            ended: VecDeque::new(),
            failed: BTreeMap::new(),
            audit: Audit::new(None),
            is_closed: false,
        };
        Self { prefix, table: Mutex::new(table), ended: Condvar::new() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a job in a thread of its own.
    fn start(
        self: &Arc<Self>,
        service: &Service,
        (kind, arguments): (&str, serde_json::Value),
        by: &str,
    ) -> Result<Arc<Job>, Refusal> {
        let Some(known) = KINDS.iter().find(|(name, _)| *name == kind) else {
            let names = KINDS.map(|(name, _)| format!("`{name}`")).join(", ");
            return Err(Refusal::NotFound(format!(
                "there is no operation `{kind}`; there is {names}"
            )));
        };
        let work = Work::read(kind, &arguments);
        let work = work.map_err(|failure| Refusal::Arguments(failure.message))?;
        let mut table = self.table();
        if table.is_closed {
            return Err(Refusal::Closed);
        }
        if let Some(job) = table.running.iter().find(|job| job.kind == kind) {
            return Err(Refusal::Running(Arc::clone(job)));
        }
        let id = format!("{}-{}", self.prefix, table.last + 1);
        let job = Arc::new(Job::new(id, *known, arguments, by));
        let unwritten = |error| Refusal::Failed(format!("the audit log can't be written: {error}"));
        table.audit.write("start", by, &job).map_err(unwritten)?;
        table.last += 1;
        let (registry, own, service) = (Arc::clone(self), Arc::clone(&job), service.clone());
        let run = move || {
            let out = Output::of_job(Arc::clone(&own));
            // The store is dropped here, so it can be closed when the job has ended.
            let work = move || checked(|| work.run(&out, &service));
            let outcome = catch_unwind(AssertUnwindSafe(work));
            registry.end(&own, outcome.unwrap_or_else(|panic| Err(panicked(&*panic))));
        };
        table.running.push(Arc::clone(&job));
        if let Err(error) = thread::Builder::new().name(format!("job-{kind}")).spawn(run) {
            drop(table);
            let message = format!("the system has no thread for the job: {error}");
            self.end(&job, Err(Failure::other(message.clone())));
            return Err(Refusal::Failed(message));
        }
        Ok(job)
    }

    fn end(&self, job: &Arc<Job>, outcome: Result<(), Failure>) {
        // A client that sees the end can start the next job of the kind.
        let mut table = self.table();
        job.end(outcome);
        table.running.retain(|own| !Arc::ptr_eq(own, job));
        if job.state() == State::Failed {
            *table.failed.entry(job.kind).or_default() += 1;
        }
        if table.ended.len() >= ENDED {
            table.ended.pop_front();
        }
        table.ended.push_back(Arc::clone(job));
        if let Err(error) = table.audit.write("end", &job.by, job) {
            job.note(&format!("the audit log lacks the end: {error}"));
            tracing::error!(target: "index_table_admin::operations", job = job.id, %error, "the audit log can't be written");
        }
        drop(table);
        self.ended.notify_all();
    }

    /// Asks a job to end.
    fn cancel(&self, id: &str, by: &str) -> Result<Arc<Job>, Refusal> {
        let table = self.table();
        let job = table.find(id).ok_or_else(|| no_job(id))?;
        if let state @ (State::Done | State::Failed | State::Cancelled) = job.state() {
            return Err(Refusal::NotNow(format!("job `{id}` has ended: {}", state.name())));
        }
        if !job.is_cancellable {
            let kind = job.kind;
            return Err(Refusal::NotNow(format!(
                "job `{id}` is a `{kind}`, which can't be cancelled; wait for its end"
            )));
        }
        let unwritten = |error| Refusal::Failed(format!("the audit log can't be written: {error}"));
        table.audit.write("cancel", by, job).map_err(unwritten)?;
        job.cancel();
        Ok(Arc::clone(job))
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, Refusal> {
        self.table().find(id).cloned().ok_or_else(|| no_job(id))
    }

    /// Returns the running jobs, and the ended ones, the last first.
    pub(crate) fn jobs(&self) -> (Vec<Arc<Job>>, Vec<Arc<Job>>) {
        let table = self.table();
        (table.running.clone(), table.ended.iter().rev().cloned().collect())
    }

    /// For each kind, returns how many jobs run, and how many have failed.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize, u64)> {
        let table = self.table();
        let count = |(kind, _): (&'static str, bool)| {
            let running = table.running.iter().filter(|job| job.kind == kind).count();
            (kind, running, table.failed.get(kind).copied().unwrap_or(0))
        };
        KINDS.map(count).to_vec()
    }

    fn shut_down(&self, timeout: Duration) -> bool {
        let begun = Instant::now();
        let mut table = self.table();
        table.close();
        while !table.running.is_empty() {
            let Some(left) = timeout.checked_sub(begun.elapsed()).filter(|it| !it.is_zero()) else {
                return false;
            };
            let waited = self.ended.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn no_job(id: &str) -> Refusal {
    Refusal::NotFound(format!(
        "there is no job `{id}`; a service keeps the last {ENDED} jobs until it ends"
    ))
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
    Failure::other(format!("the job has panicked: {text}"))
}
