//! The limits of requests.

use std::time::Duration;

/// The maximum number of requests that read the store at a time.
pub(super) const AT_ONCE: usize = 4;

/// The maximum number of exports that run at a time.
pub(super) const EXPORTS: usize = 2;

/// The time limits of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For reading a page of rows. The page then ends with the last row that was read.
    pub(super) rows: Duration,
    /// The time after which a request fails without a result.
    pub(super) request: Duration,
    /// The time after which an export fails.
    pub(super) export: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: Duration::from_secs(5),
            request: Duration::from_secs(20),
            export: Duration::from_mins(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{
        Router,
        body::{Body, to_bytes},
        http::{Request, StatusCode},
    };
    use index_table::{IndexTable, Store};
    use serde::{Deserialize, Serialize};
    use tower::ServiceExt as _;

    use super::*;
    use crate::page::{Page, build, typed};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes")]
    struct Note {
        #[primary_key]
        id: u32,
    }

    fn store() -> (tempfile::TempDir, Store, NoteRepository) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("a store");
        let notes = NoteRepository::open(&store).expect("a table");
        store
            .transaction(|txn| (1..=100).try_for_each(|id| notes.insert(txn, &Note { id })))
            .expect("a commit");
        (dir, store, notes)
    }

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("a response");
        let status = response.status();
        let body = to_bytes(response.into_body(), 2 << 20).await.expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_page_of_rows_ends_after_its_time_and_the_next_page_continues() {
        let (_dir, store, _notes) = store();
        let mut page = Page::new(store, &typed::declared::<(Note,)>());
        page.limits.rows = Duration::ZERO;
        let router = build(page);
        let (mut path, mut found) = ("/table/notes".to_owned(), Vec::new());
        for _ in 0..3 {
            let (status, body) = get(&router, &path).await;
            assert_eq!(status, StatusCode::OK, "{body}");
            let rows = body.matches("row/notes?key=").count();
            assert_eq!(rows, 1, "{body}");
            let (_, link) = body.split_once("rel=\"next\" href=\"").expect("a next page");
            let link = link.split(['#', '"']).next().expect("a path");
            path = format!("/table/{link}");
            found.push(link.to_owned());
        }
        found.dedup();
        assert_eq!(found.len(), 3, "each page leads on");
    }

    #[tokio::test]
    async fn an_export_that_takes_too_long_is_not_taken_for_complete() {
        let (_dir, store, _notes) = store();
        let mut page = Page::new(store, &typed::declared::<(Note,)>());
        page.limits.export = Duration::ZERO;
        let exports = Arc::clone(&page.exports);
        let router = build(page);
        let request = Request::get("/export/notes?form=csv").body(Body::empty());
        let response = router.oneshot(request.expect("a request")).await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        to_bytes(response.into_body(), 2 << 20).await.expect_err("the response fails");
        assert_eq!(
            exports.acquire_many(EXPORTS as u32).await.expect("turns").num_permits(),
            EXPORTS
        );
    }

    #[tokio::test]
    async fn a_request_without_a_turn_fails_after_its_time() {
        let (_dir, store, _notes) = store();
        let mut page = Page::new(store, &[]);
        page.limits.request = Duration::from_millis(20);
        let turns = Arc::clone(&page.turns);
        let router = build(page);
        let taken = turns.acquire_many(AT_ONCE as u32).await.expect("all turns");
        let (status, body) = get(&router, "/").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("the store is too busy; try again later"), "{body}");
        drop(taken);
    }

    #[tokio::test]
    async fn the_health_has_a_turn_of_its_own_and_is_always_json() {
        let (_dir, store, _notes) = store();
        let mut page = Page::new(store, &[]);
        page.limits.request = Duration::from_millis(500);
        let (turns, health) = (Arc::clone(&page.turns), Arc::clone(&page.health));
        let router = build(page);
        let _taken = turns.acquire_many(AT_ONCE as u32).await.expect("all turns");
        let healthy = (StatusCode::OK, r#"{"reasons":[]}"#.to_owned());
        assert_eq!(get(&router, "/healthz").await, healthy);
        let _own = health.acquire().await.expect("the turn");
        let (status, body) = get(&router, "/healthz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.starts_with(r#"{"reasons":[{"kind":"busy""#), "{body}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_requests_at_once_take_turns() {
        let (_dir, store, _notes) = store();
        let mut page = Page::new(store, &[]);
        page.limits.request = Duration::from_mins(5);
        let turns = Arc::clone(&page.turns);
        let router = build(page);
        let requests: Vec<_> = (0..1000)
            .map(|_| {
                let router = router.clone();
                tokio::spawn(async move { get(&router, "/table/notes").await.0 })
            })
            .collect();
        for request in requests {
            assert_eq!(request.await.expect("a response"), StatusCode::OK);
        }
        assert_eq!(turns.available_permits(), AT_ONCE);
    }
}
