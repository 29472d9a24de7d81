//! The page of the store and its metrics, behind a token.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};

use subtle::ConstantTimeEq as _;

use crate::{failure::Failure, model::Customer, service::Service};

/// Adds the page at `/admin/`. Each request of it must have the header `Authorization: Bearer TOKEN`.
pub fn with_page(routes: Router, service: &Service, token: &str) -> Router {
    let token: Arc<str> = token.into();
    let check = middleware::from_fn(move |request: Request, next: Next| {
        let token = Arc::clone(&token);
        async move { check(&token, request, next).await }
    });
    let page = index_table_admin::router_with_rows::<(Customer,)>(service.store());
    routes.nest_service("/admin/", page.layer(check))
}

async fn check(token: &str, request: Request, next: Next) -> Response {
    if is_authorized(token, request.headers()) {
        return next.run(request).await;
    }
    Failure::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong").into_response()
}

/// Compares in a time that depends on the lengths only.
fn is_authorized(token: &str, headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
    given.strip_prefix(b"Bearer ").is_some_and(|given| given.ct_eq(token.as_bytes()).into())
}
