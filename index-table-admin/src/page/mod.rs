//! The page and the metrics of a store, for a browser and for Prometheus.
//!
//! Every path accepts only `GET` requests, and only reads. The work is bounded: a page has at most [`PAGE`] keys, and
//! at most [`AT_ONCE`] requests read the store at a time. Each request has a read transaction of its own, which ends
//! before the response is sent. Sizes are counted at most once in [`FRESH`].

mod guard;
mod html;
mod metrics;
mod views;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use index_table::{
    __private::admin::{RecordedTables, UntypedTable},
    Error, Store,
    report::TableSize,
};
use tokio::sync::Semaphore;

use crate::failure::{Code, Failure};

pub(crate) use guard::Token;

/// The maximum number of keys in a page.
const PAGE: u64 = 50;

/// The maximum number of requests that read the store at a time.
const AT_ONCE: usize = 4;

/// The time for which counted sizes are shown.
const FRESH: Duration = Duration::from_secs(10);

/// The time after which a request fails without a result.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the page and the metrics of an open store, for a service to mount:
///
/// | path | contents |
/// |---|---|
/// | `/` | tables, indexes, states, bytes as bars, readers, shards with their load |
/// | `/table/{table}` | the primary keys of the rows, in pages; `?prefix=` finds the keys that begin with a text |
/// | `/table/{table}/{index}` | the queries and the costs of an index, advice, and its keys |
/// | `/metrics` | usage, sizes, readers, lag and shards as Prometheus text |
///
/// It shows the tables with a repository in use. The router only reads. It has no authentication, so put it behind the
/// authentication of the service. Requests that a browser sends for another site are refused.
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
    build(Page::new(store.clone(), None, None))
}

/// Returns the page of the command `serve`.
pub(crate) fn serving(store: Store, tables: RecordedTables, token: Option<Token>) -> Router {
    build(Page::new(store, Some(tables), token))
}

fn build(page: Page) -> Router {
    let page = Arc::new(page);
    Router::new()
        .route("/", get(overview))
        .route("/metrics", get(metrics))
        .route("/style.css", get(style))
        .route("/table/{table}", get(keys))
        .route("/table/{table}/{index}", get(index_keys))
        .fallback(async || refusal(StatusCode::NOT_FOUND, "there is no such page"))
        .layer(middleware::from_fn_with_state(Arc::clone(&page), guard::check))
        .with_state(page)
}

/// The state of the router.
struct Page {
    store: Store,
    /// The tables of a store that no program has declared here.
    recorded: Option<RecordedTables>,
    token: Option<Token>,
    turns: Semaphore,
    sizes: Mutex<Option<(Instant, Arc<Vec<TableSize>>)>>,
}

impl Page {
    fn new(store: Store, recorded: Option<RecordedTables>, token: Option<Token>) -> Self {
        let (turns, sizes) = (Semaphore::new(AT_ONCE), Mutex::default());
        Self { store, recorded, token, turns, sizes }
    }

    fn tables(&self) -> Vec<UntypedTable> {
        match &self.recorded {
            Some(recorded) => recorded.tables.clone(),
            None => self.store.untyped_tables(),
        }
    }

    fn table(&self, name: &str) -> Result<UntypedTable, Failure> {
        let found = self.tables().into_iter().find(|table| table.name() == name);
        found.ok_or_else(|| Failure::not_found(format!("there is no table `{name}`")))
    }

    /// Returns the sizes of all tables, counted a short time ago; none of them if a shard is missing.
    fn sizes(&self) -> Result<Arc<Vec<TableSize>>, Failure> {
        // Requests that arrive during the count wait for its result.
        let mut counted = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        match &*counted {
            Some((at, sizes)) if at.elapsed() < FRESH => Ok(Arc::clone(sizes)),
            _ => {
                let sizes = match self.store.sizes() {
                    Err(Error::ShardUnavailable { .. }) => Vec::new(),
                    sizes => sizes?,
                };
                let sizes = Arc::new(sizes);
                *counted = Some((Instant::now(), Arc::clone(&sizes)));
                Ok(sizes)
            }
        }
    }
}

/// Runs a view on the blocking pool.
async fn read(
    page: Arc<Page>,
    content_type: &'static str,
    view: impl FnOnce(&Page) -> Result<String, Failure> + Send + 'static,
) -> Response {
    let reading = async {
        let _turn = page.turns.acquire().await;
        let page = Arc::clone(&page);
        tokio::task::spawn_blocking(move || view(&page)).await
    };
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(Ok(body))) => {
            ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
        }
        Ok(Ok(Err(failure))) => {
            let status = match failure.code {
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::Arguments => StatusCode::BAD_REQUEST,
                Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                Code::Damage | Code::Other => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refusal(status, &failure.message)
        }
        Ok(Err(_)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the view has failed"),
        Err(_) => {
            refusal(StatusCode::SERVICE_UNAVAILABLE, "the store is too busy; try again later")
        }
    }
}

const HTML: &str = "text/html; charset=utf-8";

fn refusal(status: StatusCode, message: &str) -> Response {
    let body = html::page("Error", "", &format!("<p class=error>{}</p>", html::escape(message)));
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(HTML))], body).into_response()
}

async fn overview(State(page): State<Arc<Page>>) -> Response {
    read(page, HTML, views::overview).await
}

async fn metrics(State(page): State<Arc<Page>>) -> Response {
    read(page, "text/plain; version=0.0.4; charset=utf-8", metrics::text).await
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/css"))], html::STYLE).into_response()
}

async fn keys(
    State(page): State<Arc<Page>>,
    Path(table): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    read(page, HTML, move |page| views::keys(page, &table, None, &query)).await
}

async fn index_keys(
    State(page): State<Arc<Page>>,
    Path((table, index)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    read(page, HTML, move |page| views::keys(page, &table, Some(&index), &query)).await
}
