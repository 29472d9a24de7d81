//! The page and the metrics of a store, for a browser and for Prometheus.
//!
//! Every path accepts only `GET` requests, and only reads. The work is bounded: a page has at most [`rows::PAGE`] keys,
//! shortened, and at most [`limits::AT_ONCE`] requests read the store at a time. Each request has a read transaction of its own,
//! which ends before the response is sent. Sizes are counted at most once in [`FRESH`], and the keys of an index are
//! measured at most until a deadline.

mod cached;
mod connections;
mod distribution;
mod export;
mod frame;
mod guard;
mod index;
mod limits;
mod lists;
mod metrics;
mod overview;
mod parameters;
mod picture;
mod row;
mod rows;
mod schema;
mod shards;
mod streams;

use std::{ops::Deref, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Query, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use index_table::{
    __private::admin::{RecordedTables, UntypedEntry, UntypedTable, checked},
    Error, Store,
    report::{Catalog, FollowerLag, TableSize},
};
use maud::Markup;
use serde_json::json;
use tokio::sync::Semaphore;

use self::{
    cached::Cached,
    distribution::KeysOfIndex,
    export::Export,
    limits::{AT_ONCE, EXPORTS, Limits},
    lists::Counted,
};
use crate::{
    commands::shards::Ranges,
    failure::{Code, Failure},
    health::of_store,
    operations::Registry,
    typed::{self, Declared, Tables, Typed},
};

pub(crate) use connections::Connections;
pub(crate) use guard::{Token, is_equal, is_of_other_site};
pub use metrics::metrics;

/// The time for which counted sizes are shown.
const FRESH: Duration = Duration::from_secs(10);

/// Returns the page and the metrics of an open store, for a service to mount:
///
/// | path | contents |
/// |---|---|
/// | `/` | tables, indexes, states, bytes as bars, readers, latencies, and problems |
/// | `/table/{table}` | the primary keys of the rows, in pages |
/// | `/table/{table}/{index}` | the queries and the costs of an index, the distribution of its keys, advice, and its keys |
/// | `/schema` | the tables with their fields, indexes and references, as a picture and as tables |
/// | `/lists/{table}` | the lists of the fields of stored rows, oldest first |
/// | `/shards` | the ranges of the shard maps, the load of the shards, and moves with their progress |
/// | `/streams` | the lag of consumers of change streams, eventual indexes, the archive and followers |
/// | `/healthz` | the [`health`](crate::health()) of the store as JSON; the status is 200 or 503 |
/// | `/metrics` | usage, latencies, sizes, readers, lag and shards as Prometheus text |
///
/// It shows the tables with a repository in use, with the keys of their rows; [`router_with_rows`] and [`router_with_all_rows`] show
/// the rows too. The router only reads. It has no authentication, so put it behind the authentication of the service. Requests that a
/// browser sends for another site are refused.
///
/// Mount the router at a path with a trailing slash, such as `/admin/`, because its links are relative.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use index_table::Store;
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path())?;
/// let service: Router = Router::new().nest_service("/admin/", index_table_admin::router(&store));
/// # Ok(())
/// # }
/// ```
pub fn router(store: &Store) -> Router {
    build(Page::new(store.clone(), &[]))
}

/// Returns the same page as [`router`], with the rows of these types, whose fields are columns. A row has a view of its own,
/// `/row/{table}?key=…`, and `/export/{table}` and `/export/{table}/{index}` send all rows of a filter as JSON lines or CSV.
///
/// Rows are shown in the exact form of [`index_table::json`]. At most two exports run at a time, each with a read transaction of its own
/// for at most five minutes.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use index_table::{IndexTable, Store};
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
/// let store = Store::open(dir.path())?;
/// let notes = NoteRepository::open(&store)?;
/// let page = index_table_admin::router_with_rows::<(Note,)>(&store);
/// let service: Router = Router::new().nest_service("/admin/", page);
/// # Ok(())
/// # }
/// ```
pub fn router_with_rows<T: Tables>(store: &Store) -> Router {
    build(Page::new(store.clone(), &typed::declared::<T>()))
}

/// Returns the same page as [`router_with_rows`], with the rows of all tables that have a repository in use. They are read without
/// their types, as [`Store::table`] reads them.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use index_table::Store;
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path())?;
/// let page = index_table_admin::router_with_all_rows(&store);
/// let service: Router = Router::new().nest_service("/admin/", page);
/// # Ok(())
/// # }
/// ```
pub fn router_with_all_rows(store: &Store) -> Router {
    build(Page { has_all_rows: true, ..Page::new(store.clone(), &[]) })
}

/// Returns the page of the command `serve`, which opens the tables of the store.
pub(crate) fn serving(
    store: Store,
    declared: &[Declared],
    token: Option<Token>,
) -> Result<Router, Failure> {
    let mut page = Page { has_all_rows: true, ..Page::new(store, declared) };
    for own in declared {
        match own.open_online(&page.store) {
            Ok(table) => page.kept.push(table),
            Err(Failure { message, .. }) => page.notes.push(message),
        }
    }
    let recorded = page.store.open_recorded()?;
    let is_open = |name: &str| page.kept.iter().any(|table| table.untyped().name() == name);
    let skipped = recorded.skipped.iter().filter(|(name, _)| !is_open(name));
    let skipped = skipped.map(|(name, reason)| format!("table `{name}` can't be opened: {reason}"));
    page.notes.extend(skipped.collect::<Vec<_>>());
    page.recorded = Some(recorded);
    page.token = token;
    Ok(build(page))
}

/// Returns the page of a service with operations. Their requests have routes of their own.
pub(crate) fn with_operations(
    (store, types): (&Store, &[Declared]),
    operations: &Arc<Registry>,
    has_all_rows: bool,
) -> Router {
    let operations = Some(Arc::clone(operations));
    build(Page { has_all_rows, operations, ..Page::new(store.clone(), types) })
}

fn build(page: Page) -> Router {
    let page = Arc::new(page);
    Router::new()
        .route("/", get(overview))
        .route("/shards", get(shards))
        .route("/streams", get(streams))
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(healthz))
        .route("/style.css", get(async || asset("text/css", include_str!("style.css"))))
        .route("/live.js", get(async || asset("text/javascript", include_str!("live.js"))))
        .route("/icon.svg", get(async || asset("image/svg+xml", include_str!("icon.svg"))))
        .route("/table/{table}", get(table))
        .route("/table/{table}/{index}", get(index))
        .route("/row/{table}", get(row))
        .route("/schema", get(schema))
        .route("/lists/{table}", get(lists))
        .route("/export/{table}", get(export))
        .route("/export/{table}/{index}", get(export_index))
        .fallback(async |request: Request| {
            refusal(StatusCode::NOT_FOUND, "there is no such page", &up(request.uri().path()))
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&page), guard::check))
        .with_state(page)
}

/// The state of the router.
struct Page {
    store: Store,
    /// The tables of a store that no program has declared here, and the tables that the tool has declared. They are
    /// kept open.
    recorded: Option<RecordedTables>,
    kept: Vec<Box<dyn Typed>>,
    /// The types of the rows that are shown.
    types: Vec<Declared>,
    /// Whether the rows of other types are shown, too.
    has_all_rows: bool,
    /// The tables that can't be shown, with the reasons.
    notes: Vec<String>,
    token: Option<Token>,
    turns: Arc<Semaphore>,
    /// The turn of `/healthz`, so that slow views don't delay it.
    health: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    limits: Limits,
    sizes: Cached<Sizes>,
    ranges: Cached<Ranges>,
    keys: Cached<Option<KeysOfIndex>>,
    lists: Cached<Counted>,
    follower: Cached<Option<FollowerLag>>,
    operations: Option<Arc<Registry>>,
}

/// The sizes of the tables.
#[derive(Default)]
struct Sizes {
    tables: Vec<TableSize>,
    /// The damage of the parts that are left out.
    damage: Vec<String>,
}

impl Deref for Sizes {
    type Target = [TableSize];

    fn deref(&self) -> &[TableSize] {
        &self.tables
    }
}

impl Page {
    fn new(store: Store, types: &[Declared]) -> Self {
        Self {
            store,
            recorded: None,
            kept: Vec::new(),
            types: types.to_vec(),
            has_all_rows: false,
            notes: Vec::new(),
            token: None,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            health: Arc::new(Semaphore::new(1)),
            exports: Arc::new(Semaphore::new(EXPORTS)),
            limits: Limits::default(),
            sizes: Cached::default(),
            ranges: Cached::default(),
            keys: Cached::default(),
            lists: Cached::default(),
            follower: Cached::default(),
            operations: None,
        }
    }

    /// Returns the name of the store's directory.
    fn name(&self) -> String {
        let directory = self.store.directory();
        let name = directory.as_deref().and_then(std::path::Path::file_name);
        name.map_or_else(|| "store".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the views in the navigation, with their paths.
    fn views(&self) -> Vec<(&'static str, &'static str)> {
        let mut views = vec![("Overview", "./")];
        if self.store.has_shards() {
            views.push(("Shards", "shards"));
        }
        views.extend([("Schema", "schema"), ("Lag", "streams"), ("Metrics", "metrics")]);
        views
    }

    /// Returns the table with this name, and the catalog.
    fn table(&self, name: &str) -> Result<UntypedTable, Failure> {
        let found = self.store.untyped_tables().into_iter().find(|table| table.name() == name);
        found.ok_or_else(|| Failure::not_found(format!("there is no table `{name}`")))
    }

    fn catalog(&self) -> Result<Catalog, Failure> {
        Ok(self.store.catalog()?)
    }

    /// Returns the sizes of all tables, counted a short time ago; none of them if a shard is missing.
    fn sizes(&self) -> Result<Arc<Sizes>, Failure> {
        self.sizes.get("", FRESH, || match self.store.readable_sizes() {
            Err(Error::ShardUnavailable { .. }) => Ok(Sizes::default()),
            sizes => {
                let (tables, damage) = sizes?;
                Ok(Sizes { tables, damage: damage.iter().map(ToString::to_string).collect() })
            }
        })
    }

    /// Returns the lag of a follower; `None` for any other store.
    fn follower_lag(&self) -> Result<Arc<Option<FollowerLag>>, Failure> {
        self.follower.get("", Duration::ZERO, || Ok(self.store.follower_lag()?))
    }

    /// Whether the page shows rows of this table.
    fn shows_rows(&self, table: &UntypedTable) -> bool {
        self.has_all_rows || self.types.iter().any(|own| own.name == table.name())
    }

    /// Appends a row as JSON. Returns false if the page does not show it: it has another type.
    fn append(
        &self,
        table: &UntypedTable,
        row: &UntypedEntry<'_>,
        out: &mut String,
    ) -> Result<bool, Failure> {
        for own in self.types.iter().filter(|own| own.name == table.name()) {
            if let Some(row) = own.show(table, row)? {
                out.push_str(&row);
                return Ok(true);
            }
        }
        if self.has_all_rows {
            table.append_json(row, out)?;
        }
        Ok(self.has_all_rows)
    }
}

/// Returns the relative path from a path to the overview.
fn up(path: &str) -> String {
    "../".repeat(path.matches('/').count().saturating_sub(1))
}

/// Runs a view on the blocking pool. A view that takes too long keeps its turn until it ends.
async fn read(
    page: Arc<Page>,
    content_type: &'static str,
    up: &'static str,
    view: impl FnOnce(&Page) -> Result<String, Failure> + Send + 'static,
) -> Response {
    let turns = Arc::clone(&page.turns);
    read_in_turn(page, turns, content_type, up, view).await
}

async fn read_in_turn(
    page: Arc<Page>,
    turns: Arc<Semaphore>,
    content_type: &'static str,
    up: &'static str,
    view: impl FnOnce(&Page) -> Result<String, Failure> + Send + 'static,
) -> Response {
    let patience = page.limits.request;
    let reading = async {
        let turn = turns.acquire_owned().await;
        let page = Arc::clone(&page);
        let run = move || {
            let _turn = turn;
            // A damaged page must not end the service.
            checked(|| view(&page))
        };
        tokio::task::spawn_blocking(run).await
    };
    match tokio::time::timeout(patience, reading).await {
        Ok(Ok(Ok(body))) => {
            ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
        }
        Ok(Ok(Err(failure))) => failed(&failure, up),
        Ok(Err(_)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the view has failed", up),
        Err(_) => {
            refusal(StatusCode::SERVICE_UNAVAILABLE, "the store is too busy; try again later", up)
        }
    }
}

/// Runs a view that is HTML.
async fn show(
    page: Arc<Page>,
    up: &'static str,
    view: impl FnOnce(&Page) -> Result<Markup, Failure> + Send + 'static,
) -> Response {
    read(page, HTML, up, move |page| Ok(view(page)?.into_string())).await
}

/// Returns the page of a failure.
fn failed(failure: &Failure, up: &str) -> Response {
    let status = match failure.code {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Arguments => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Damage | Code::Other | Code::TimeLimit | Code::Interrupted => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    refusal(status, &failure.message, up)
}

const HTML: &str = "text/html; charset=utf-8";

fn refusal(status: StatusCode, message: &str, up: &str) -> Response {
    let body = frame::error(message, up).into_string();
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(HTML))], body).into_response()
}

fn asset(content_type: &'static str, body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}

async fn overview(State(page): State<Arc<Page>>) -> Response {
    show(page, "", |page| Ok(overview::view(page))).await
}

async fn shards(State(page): State<Arc<Page>>) -> Response {
    show(page, "", shards::view).await
}

async fn streams(State(page): State<Arc<Page>>) -> Response {
    show(page, "", streams::view).await
}

async fn metrics_text(State(page): State<Arc<Page>>) -> Response {
    read(page, "text/plain; version=0.0.4; charset=utf-8", "", |page| Ok(metrics::text(page))).await
}

/// Answers 200 if the store is healthy, and otherwise 503, with the reasons.
async fn healthz(State(page): State<Arc<Page>>) -> Response {
    let (done, mut is_healthy) = tokio::sync::oneshot::channel();
    let view = move |page: &Page| {
        let follower = page.follower_lag().map(|lag| lag.as_ref().clone());
        let health = of_store(&page.store, follower.map_err(Failure::reason));
        // The receiver waits for the view, unless that takes too long.
        let _ = done.send(health.is_healthy());
        serde_json::to_string(&health).map_err(|error| Failure::other(error.to_string()))
    };
    let turns = Arc::clone(&page.health);
    let mut response = read_in_turn(page, turns, "application/json", "", view).await;
    match is_healthy.try_recv() {
        Ok(true) if response.status() == StatusCode::OK => return response,
        Ok(_) if response.status() == StatusCode::OK => {}
        _ => {
            let message = "the health of the store could not be read in time";
            let busy = json!({ "reasons": [{ "kind": "busy", "message": message }] });
            let json = HeaderValue::from_static("application/json");
            response = ([(header::CONTENT_TYPE, json)], busy.to_string()).into_response();
        }
    }
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// The parameters of a view, in their order.
type Pairs = Query<Vec<(String, String)>>;

async fn table(
    State(page): State<Arc<Page>>,
    Path(table): Path<String>,
    Query(query): Pairs,
) -> Response {
    show(page, "../", move |page| index::table(page, &table, &query.into())).await
}

async fn index(
    State(page): State<Arc<Page>>,
    Path((table, index)): Path<(String, String)>,
    Query(query): Pairs,
) -> Response {
    show(page, "../../", move |page| index::index(page, &table, &index, &query.into())).await
}

async fn row(
    State(page): State<Arc<Page>>,
    Path(table): Path<String>,
    Query(query): Pairs,
) -> Response {
    show(page, "../", move |page| row::view(page, &table, &query.into())).await
}

async fn schema(State(page): State<Arc<Page>>) -> Response {
    show(page, "", schema::view).await
}

async fn lists(
    State(page): State<Arc<Page>>,
    Path(table): Path<String>,
    Query(query): Pairs,
) -> Response {
    show(page, "../", move |page| lists::view(page, &table, &query.into())).await
}

async fn export(
    State(page): State<Arc<Page>>,
    Path(table): Path<String>,
    Query(query): Pairs,
) -> Response {
    Export { table, index: None, query: query.into() }.send(page).await
}

async fn export_index(
    State(page): State<Arc<Page>>,
    Path((table, index)): Path<(String, String)>,
    Query(query): Pairs,
) -> Response {
    Export { table, index: Some(index), query: query.into() }.send(page).await
}
