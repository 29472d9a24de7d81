//! The requests of operations, and the checks of each.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Extension, Path, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

use super::{Operations, Refusal, job::Job};
use crate::{
    failure::Code,
    page::{is_equal, is_of_other_site},
};

/// The maximum bytes of a body.
const BODY: usize = 64 << 10;

/// The time in which a body arrives.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the token of a request.
#[derive(Debug, Clone)]
struct By(String);

pub(super) fn routes(operations: Operations) -> Router {
    let state = Arc::new(operations);
    Router::new()
        .route("/operations", get(list))
        .route("/operations/{name}", get(one).post(start))
        .route("/operations/{name}/cancel", post(cancel))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), check))
        .with_state(state)
}

/// Refuses requests of other sites, requests without a token of operations, and content other than JSON.
async fn check(
    State(operations): State<Arc<Operations>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_json = || {
        let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let name = content.and_then(|content| content.split(';').next()).unwrap_or_default();
        name.trim().eq_ignore_ascii_case("application/json")
    };
    let mut response = if is_of_other_site(headers) {
        refused(StatusCode::FORBIDDEN, Code::Unavailable, "requests from other sites are refused")
    } else if let Some(name) = operations.owner(headers) {
        if request.method() == Method::POST && !is_json() {
            let reason = "the content must be `application/json`";
            refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Arguments, reason)
        } else {
            request.extensions_mut().insert(By(name));
            next.run(request).await
        }
    } else {
        let reason =
            "the token of operations is missing or wrong; give it as `Authorization: Bearer`";
        refused(StatusCode::UNAUTHORIZED, Code::Unavailable, reason)
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if response.status() == StatusCode::UNAUTHORIZED {
        let ask = HeaderValue::from_static("Bearer realm=\"index-table operations\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    }
    response
}

impl Operations {
    /// Returns the name of the token in a request. All tokens are compared, so that the time doesn't depend on the one.
    fn owner(&self, headers: &HeaderMap) -> Option<String> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, secret) = given?.split_once(' ')?;
        let secret = secret.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || secret.is_empty() {
            return None;
        }
        let mut found = None;
        for (name, own) in &self.tokens {
            if is_equal(own.as_bytes(), secret.as_bytes()) {
                found = Some(name.clone());
            }
        }
        found
    }
}

async fn list(State(operations): State<Arc<Operations>>) -> Response {
    blocking(move || {
        let (running, ended) = operations.registry.jobs();
        let shown =
            |jobs: Vec<Arc<Job>>| jobs.iter().map(|job| job.json(false)).collect::<Vec<_>>();
        answer(StatusCode::OK, &json!({ "running": shown(running), "ended": shown(ended) }))
    })
    .await
}

async fn one(State(operations): State<Arc<Operations>>, Path(id): Path<String>) -> Response {
    change(StatusCode::OK, move || operations.registry.find(&id)).await
}

async fn start(
    State(operations): State<Arc<Operations>>,
    Path(kind): Path<String>,
    Extension(By(by)): Extension<By>,
    body: Body,
) -> Response {
    let arguments = match arguments(body).await {
        Ok(arguments) => arguments,
        Err(response) => return response,
    };
    change(StatusCode::ACCEPTED, move || {
        operations.registry.start(&operations.service, (&kind, arguments), &by)
    })
    .await
}

async fn cancel(
    State(operations): State<Arc<Operations>>,
    Path(id): Path<String>,
    Extension(By(by)): Extension<By>,
) -> Response {
    change(StatusCode::OK, move || operations.registry.cancel(&id, &by)).await
}

/// Reads the arguments. A body without bytes has none.
async fn arguments(body: Body) -> Result<Value, Response> {
    let bytes = match tokio::time::timeout(PATIENCE, to_bytes(body, BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            let reason = format!("the body has more than {BODY} bytes, or breaks off");
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, Code::Arguments, &reason));
        }
        Err(_) => {
            let reason = "the body has not arrived in time";
            return Err(refused(StatusCode::REQUEST_TIMEOUT, Code::Unavailable, reason));
        }
    };
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let reason = format!("the body is not JSON: {error}");
        refused(StatusCode::BAD_REQUEST, Code::Arguments, &reason)
    })
}

/// Answers on the blocking pool with the job that a request has found or changed.
async fn change(
    status: StatusCode,
    change: impl FnOnce() -> Result<Arc<Job>, Refusal> + Send + 'static,
) -> Response {
    blocking(move || match change() {
        Ok(job) => answer(status, &job.json(true)),
        Err(refusal) => refusal.response(),
    })
    .await
}

/// Runs a request on the blocking pool: another one can hold the lock of the jobs while it writes the audit log.
async fn blocking(request: impl FnOnce() -> Response + Send + 'static) -> Response {
    tokio::task::spawn_blocking(request).await.unwrap_or_else(|_| {
        refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Other,
            "the request has failed; `GET /operations` lists the jobs",
        )
    })
}

impl Refusal {
    fn response(self) -> Response {
        let (status, code, reason) = match self {
            Self::NotFound(reason) => (StatusCode::NOT_FOUND, Code::NotFound, reason),
            Self::Arguments(reason) => (StatusCode::BAD_REQUEST, Code::Arguments, reason),
            Self::Running(job) => {
                let (id, kind) = (&job.id, job.kind);
                let reason = format!(
                    "job `{id}` is a `{kind}` too, and still runs; wait for it, or cancel it"
                );
                let value = json!({ "error": reason, "code": Code::Unavailable as u8, "job": id });
                return answer(StatusCode::CONFLICT, &value);
            }
            Self::NotNow(reason) => (StatusCode::CONFLICT, Code::Unavailable, reason),
            Self::Closed => {
                let reason = "the service is shutting down".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, reason)
            }
            Self::Failed(reason) => (StatusCode::INTERNAL_SERVER_ERROR, Code::Other, reason),
        };
        refused(status, code, &reason)
    }
}

fn refused(status: StatusCode, code: Code, reason: &str) -> Response {
    answer(status, &json!({ "error": reason, "code": code as u8 }))
}

fn answer(status: StatusCode, value: &Value) -> Response {
    let content = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, content)], value.to_string()).into_response()
}
