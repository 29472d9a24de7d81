//! The page of the store.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use index_table_service_example::{admin::with_page, routes::routes, service::Service};
use tower::ServiceExt as _;

use crate::server::Result;

async fn get(app: &Router, path: &str, token: Option<&str>) -> Result<(StatusCode, String)> {
    let request = Request::get(path);
    let request = match token {
        Some(token) => request.header("authorization", token),
        None => request,
    };
    let response = app.clone().oneshot(request.body(Body::empty())?).await?;
    let status = response.status();
    Ok((status, String::from_utf8(to_bytes(response.into_body(), 1 << 20).await?.to_vec())?))
}

#[tokio::test]
async fn the_page_of_the_store_needs_the_token() -> Result {
    let directory = tempfile::tempdir()?;
    let service = Service::open(directory.path())?;
    let app = with_page(routes(service.clone()), &service, "secret");
    for token in
        [None, Some("Bearer secreT"), Some("Bearer "), Some("secret"), Some("Bearer secret2")]
    {
        assert_eq!(get(&app, "/admin/", token).await?.0, StatusCode::UNAUTHORIZED, "{token:?}");
    }
    let (status, page) = get(&app, "/admin/", Some("Bearer secret")).await?;
    assert!(status == StatusCode::OK && page.contains("customers"), "{page}");
    let (status, text) = get(&app, "/admin/metrics", Some("Bearer secret")).await?;
    assert!(status == StatusCode::OK && text.contains("index_table_rows{table=\"customers\"} 0"));
    assert_eq!(get(&app, "/health", None).await?.0, StatusCode::OK);
    service.close().await?;
    Ok(())
}
