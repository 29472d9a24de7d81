//! The page and the metrics, of a service and of the command `serve`.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use index_table::{IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};
use support::{Customer, CustomerRepository, Order, OrderRepository, customer, plain, sharded};
use tower::ServiceExt as _;

/// Returns the status and the body of a response.
async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = router.clone().oneshot(request).await.expect("a response");
    let status = response.status();
    let body = to_bytes(response.into_body(), 2 << 20).await.expect("a body of less than 2 MiB");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

#[tokio::test]
async fn the_overview_has_tables_indexes_and_states() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (status, page) = get(&router, "/").await;
    assert_eq!(status, StatusCode::OK);
    for part in [
        "<a href=\"table/customers\">customers</a>",
        "kind_score",
        "readable",
        "<svg class=\"bar\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let (status, style) = get(&router, "/style.css").await;
    assert!(status == StatusCode::OK && style.contains("light-dark("));
    assert!(!page.contains("http://") && !page.contains("https://"), "no outside assets: {page}");
}

#[tokio::test]
async fn estimates_are_marked() {
    let dir = support::visits();
    let store = Store::open(dir.path()).expect("a store");
    let _visits = support::VisitRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (_, page) = get(&router, "/").await;
    assert!(page.contains("<strong>40,000</strong> rows"), "rows are exact: {page}");
    assert_eq!(page.matches('≈').count(), 1, "{page}");
    let (_, page) = get(&router, "/table/visits/place").await;
    assert!(page.contains('≈'), "{page}");
    let (_, metrics) = get(&router, "/metrics").await;
    assert!(metrics.contains("index_table_rows{table=\"visits\"} 40000\n"), "{metrics}");
    let entries = "index_table_index_entries{table=\"visits\",index=\"place\"} ";
    let entries = metrics.lines().find_map(|line| line.strip_prefix(entries));
    let entries: u64 = entries.and_then(|it| it.parse().ok()).expect("a number");
    assert!((27_000..60_000).contains(&entries), "{entries}");
    assert!(metrics.contains("HELP index_table_index_entries Entries of an index; an estimate"));
}

#[tokio::test]
async fn each_link_of_the_overview_leads_to_a_view() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (_, page) = get(&router, "/").await;
    let links: Vec<_> =
        page.split("href=\"table/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 5, "{page}");
    for link in links {
        let (status, view) = get(&router, &format!("/table/{link}")).await;
        assert_eq!(status, StatusCode::OK, "{link}: {view}");
        assert!(view.contains("<caption>Keys</caption>"), "{link}");
    }
}

#[tokio::test]
async fn keys_have_pages_and_are_found_by_the_start_of_a_text() {
    let dir = plain(130);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (mut path, mut rows, mut pages) = ("town?v0=Os".to_owned(), 0, 0);
    loop {
        let (_, page) = get(&router, &format!("/table/customers/{path}")).await;
        assert!(!page.contains("Bergen"));
        rows += page.matches("<td class=\"c\">Oslo</td>").count();
        pages += 1;
        match page.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next()) {
            Some(next) => path = next.trim_end_matches("#rows").replace("&amp;", "&"),
            None => break,
        }
    }
    assert_eq!((rows, pages), (65, 2));
    let (_, page) = get(&router, "/table/customers/since_id?v0=2024-02-03").await;
    assert_eq!(page.matches("<td class=\"c\">2024-02-03</td>").count(), 1);
    for wrong in ["since_id?v0=x", "since_id?v1=1", "town?after=zz", "town?v0=A&after=0x5a00.0x01"]
    {
        let (status, _) = get(&router, &format!("/table/customers/{wrong}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn keys_with_markup_are_shown_as_text() {
    const MARKUP: &str = "<script>alert(1)</script>\"'&";
    let dir = plain(0);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let mut row = customer(1);
    (row.town, row.email) = (MARKUP.to_owned(), Some(MARKUP.to_owned()));
    store.transaction(|txn| customers.insert(txn, &row)).expect("a commit");
    let router = index_table_admin::router(&store);
    for path in [
        "customers/town",
        "customers/email",
        "customers/kind_score",
        "%3Cscript%3E",
        "customers/%3Cscript%3E",
        "customers/town?v0=%3Cscript%3E",
        "customers/town?after=%3Cscript%3E",
    ] {
        let (_, page) = get(&router, &format!("/table/{path}")).await;
        assert!(!page.contains("<script"), "{path}: {page}");
    }
    let (_, page) = get(&router, "/table/customers/town").await;
    assert!(page.contains("&lt;script&gt;"), "{page}");
}

#[tokio::test]
async fn rows_with_markup_are_shown_as_text() {
    const MARKUP: &str = "</a><script>alert(1)</script>\"'&\u{202e}";
    let dir = plain(0);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let mut row = customer(1);
    (row.town, row.email) = (MARKUP.to_owned(), Some(MARKUP.to_owned()));
    store.transaction(|txn| customers.insert(txn, &row)).expect("a commit");
    let router = index_table_admin::router_with_rows::<(Customer,)>(&store);
    for path in ["table/customers", "table/customers/town", "row/customers?key=0x0000000000000001"]
    {
        let (status, page) = get(&router, &format!("/{path}")).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
        assert!(!page.contains("<script>alert") && !page.contains('\u{202e}'), "{path}: {page}");
        assert!(page.contains("&lt;/a&gt;&lt;script&gt;"), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_row_has_a_view_with_all_of_its_fields() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router_with_rows::<(Customer, Order)>(&store);
    let (_, list) = get(&router, "/table/customers/town?v0=Bergen").await;
    let link = list.split("href=\"../../row/").nth(1).and_then(|rest| rest.split('"').next());
    let (status, page) = get(&router, &format!("/row/{}", link.expect("a row"))).await;
    assert_eq!(status, StatusCode::OK);
    for part in ["&quot;id&quot;: 2,", "&quot;town&quot;: &quot;Bergen&quot;", "2024-02-03"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for (path, status) in [
        ("customers?key=0x0000000000000009", StatusCode::NOT_FOUND),
        ("customers?key=0x00", StatusCode::BAD_REQUEST),
        ("customers?key=..%2Fdata.mdb", StatusCode::BAD_REQUEST),
        ("customers", StatusCode::BAD_REQUEST),
        ("orders?key=0x00", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(&router, &format!("/row/{path}")).await.0, status, "{path}");
    }
    // Another type with the name of the table is not the type of its rows.
    let router = index_table_admin::router_with_rows::<(support::other::Customer,)>(&store);
    let (_, list) = get(&router, "/table/customers/town").await;
    assert!(list.contains("<caption>Keys</caption>"), "{list}");
}

#[tokio::test]
async fn a_page_of_long_rows_is_short() {
    const LENGTHS: [usize; 4] = [100, 1000, 100_000, 5_000_000];
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let events = support::EventRepository::open(&store).expect("a table");
    let write = |txn: &mut index_table::WriteTxn<'_>| {
        (0..60).try_for_each(|id| {
            let mut event = support::event(id);
            event.body = "\u{1}".repeat(LENGTHS[id as usize % 4]);
            events.insert(txn, &event)
        })
    };
    store.transaction(write).expect("a commit");
    let router = index_table_admin::router_with_rows::<(support::Event,)>(&store);
    let (_, page) = get(&router, "/table/events").await;
    assert!(page.len() < 100_000, "{}", page.len());
    assert_eq!(page.matches("<a class=\"row\"").count(), 50);
    assert!(page.contains("a row of 97.7 KiB") && page.contains("rel=\"next\""));
    let (_, page) = get(&router, "/row/events?key=0x0000000000000002").await;
    assert!(page.contains("u0001"), "a row of 100,000 bytes has a view");
    let (_, page) = get(&router, "/row/events?key=0x0000000000000003").await;
    assert!(page.len() < 10_000 && page.contains("too long for this page"), "{}", page.len());
}

#[tokio::test]
async fn an_index_has_the_distribution_of_its_keys() {
    let dir = plain(130);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let txn = store.read().expect("a transaction");
    assert_eq!(customers.find_by_town(&txn, "Oslo").rows().count(), 65);
    drop(txn);
    let router = index_table_admin::router(&store);
    for (index, unit, ends) in [
        ("town", "each column is a value", ["Bergen", "Oslo"]),
        ("kind_score", "each column is a value", ["Private", "Company"]),
        (
            "since_id",
            "each column is an equal part of the range of values",
            ["2024-02-02", "2024-06-10"],
        ),
        ("email", "each column has the texts with the same first characters", ["1", "9"]),
    ] {
        let (_, page) = get(&router, &format!("/table/customers/{index}")).await;
        assert!(page.contains(unit), "{index}: {page}");
        let steps = page.split("<caption>Entries</caption>").nth(1).expect("the steps");
        let steps = steps.split("</table>").next().expect("a table");
        let counts = steps.split("<td class=\"n\">").skip(1).filter_map(|it| it.split('<').next());
        let all: u64 = counts.map(|count| count.parse::<u64>().expect("a number")).sum();
        assert_eq!(all, 130, "{index}: {steps}");
        let picture = page.split("<svg class=\"histogram\"").nth(1).expect("a picture");
        assert!(
            ends.iter().all(|end| picture.contains(&format!(">{end}</text>"))),
            "{index}: {picture}"
        );
    }
    let (_, page) = get(&router, "/table/customers/town").await;
    assert!(page.contains("65.0 a query"), "the rows that a query reads: {page}");
}

#[test]
fn an_analysis_ends_when_its_time_is_over() {
    let dir = plain(3000);
    let store = Store::options().read_only(true).open(dir.path()).expect("a store");
    let tables = store.open_recorded().expect("tables").tables;
    let txn = store.read().expect("a transaction");
    let mut calls = 0;
    let found = tables[0].analyze_index(&txn, "town", &mut || {
        calls += 1;
        calls == 2
    });
    assert!(found.expect("no error").is_none() && calls == 2);
    let (keys, _) =
        tables[0].analyze_index(&txn, "town", &mut || false).expect("no error").expect("keys");
    assert_eq!((keys.entries, keys.keys[0].distinct), (3000, 2));
    assert!(tables[0].analyze_index(&txn, "nothing", &mut || false).expect("no error").is_none());
}

#[tokio::test]
async fn metrics_have_latencies_and_lags() {
    let shop = tempfile::tempdir().expect("a directory");
    let archive = shop.path().join("archive");
    let options = Store::options().durability(index_table::Durability::Journal).archive(&archive);
    let store = options.open(shop.path().join("shop")).expect("a store");
    let events = support::EventRepository::open(&store).expect("a table");
    let _consumer = events.changes(&store, "mail\"er").expect("a consumer");
    for id in 0..32 {
        store.transaction(|txn| events.insert(txn, &support::event(id))).expect("a commit");
    }
    let txn = store.read().expect("a transaction");
    assert_eq!(events.all(&txn).count().expect("a count"), 32);
    assert_eq!(events.find_by_kind(&txn, 1).rows().count(), 16);
    drop(txn);
    let (_, text) = get(&index_table_admin::router(&store), "/metrics").await;
    for line in [
        "index_table_consumer_lag_changes{table=\"events\",consumer=\"mail\\\"er\"} 32",
        "index_table_consumer_missed_changes{table=\"events\",consumer=\"mail\\\"er\"} 0",
        "# TYPE index_table_commit_duration_seconds histogram",
        "index_table_commit_duration_seconds_bucket{le=\"+Inf\"} 2",
        "index_table_commit_duration_seconds_count 2",
        "index_table_query_duration_seconds_count{table=\"events\",index=\"kind\"} 1",
        "index_table_archive_stopped 0",
        "index_table_lag_messages{table=\"events\"} 32",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    assert!(text.contains("index_table_archive_lag_commits "), "{text}");
    let buckets =
        text.lines().filter(|line| line.starts_with("index_table_commit_duration_seconds_bucket"));
    let counts: Vec<u64> =
        buckets.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(counts.is_sorted() && counts.len() == 25, "{counts:?}");
}

#[tokio::test]
async fn metrics_count_queries_and_writes() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(4))).expect("a commit");
    let mut dropped = store.write().expect("a transaction");
    customers.insert(&mut dropped, &customer(5)).expect("a row");
    drop(dropped);
    let txn = store.read().expect("a transaction");
    assert_eq!(customers.find_by_town(&txn, "Oslo").rows().count(), 2);
    let (status, text) = get(&index_table_admin::router(&store), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    for line in [
        "index_table_rows{table=\"customers\"} 4",
        "index_table_index_entries{table=\"customers\",index=\"town\"} 4",
        "index_table_index_queries_total{table=\"customers\",index=\"town\"} 1",
        "index_table_index_rows_read_total{table=\"customers\",index=\"town\"} 2",
        "index_table_writes_total{table=\"customers\",kind=\"insert\"} 1",
        "index_table_index_readable{table=\"customers\",index=\"email\"} 1",
        "index_table_uncommitted_transactions_total{table=\"customers\"} 1",
        "index_table_index_worker_failures_total 0",
        "# TYPE index_table_readers gauge",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    // Each line is a comment, or a name with labels and a number.
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let number = line.rsplit_once(' ').map(|(_, number)| number.parse::<f64>().is_ok());
        assert_eq!(number, Some(true), "{line}");
    }
}

#[tokio::test]
async fn shards_are_shown_with_their_load() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (_, page) = get(&router, "/shards").await;
    assert!(page.contains("north</td>") && page.contains("available</span>"), "{page}");
    let (_, text) = get(&router, "/metrics").await;
    assert!(text.contains("index_table_shard_rows{shard=\"south\"} 3"), "{text}");
}

#[tokio::test]
async fn a_store_that_grows_gets_a_view_of_its_shards() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (status, _) = get(&router, "/shards").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    store.add_shard("billing", "billing").expect("a shard");
    // The panic leaves the move unfinished.
    let moving = store.move_table("customers", "billing").progress(|_| panic!("stopped"));
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| moving.run()));
    assert!(stopped.is_err());
    let (_, page) = get(&router, "/shards").await;
    assert!(page.contains("all rows of <code>customers</code>"), "{page}");
    let unfinished = store.moves().expect("a list").remove(0);
    store.resume_move(unfinished.id).run().expect("a move");
    let (_, page) = get(&router, "/shards").await;
    for shard in ["main</td>", "billing</td>"] {
        assert!(page.contains(shard), "{page}");
    }
    assert!(!page.contains("Unfinished moves"), "{page}");
    let (_, text) = get(&router, "/metrics").await;
    assert!(text.contains("index_table_shard_rows{shard=\"billing\"} 3"), "{text}");
}

#[tokio::test]
async fn other_sites_methods_and_paths_are_refused() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let send = async |request: Request<Body>| {
        let response = router.clone().oneshot(request).await.expect("a response");
        assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        response.status()
    };
    let request = || Request::get("/").header(header::HOST, "shop.example");
    let foreign = request().header(header::ORIGIN, "http://evil.example").body(Body::empty());
    assert_eq!(send(foreign.expect("a request")).await, StatusCode::FORBIDDEN);
    let site = request().header("sec-fetch-site", "cross-site").body(Body::empty());
    assert_eq!(send(site.expect("a request")).await, StatusCode::FORBIDDEN);
    let from_site = |request: axum::http::request::Builder, mode, to| {
        let request = request.header(header::HOST, "shop.example");
        let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", mode);
        request.header("sec-fetch-dest", to).body(Body::empty()).expect("a request")
    };
    for path in ["/", "/table/customers", "/schema"] {
        let link = from_site(Request::get(path), "navigate", "document");
        assert_eq!(send(link).await, StatusCode::OK, "a link to {path}");
    }
    for (mode, to) in [("navigate", "iframe"), ("no-cors", "image"), ("cors", "empty")] {
        let other = from_site(Request::get("/"), mode, to);
        assert_eq!(send(other).await, StatusCode::FORBIDDEN, "{mode} to {to}");
    }
    let form = from_site(Request::post("/"), "navigate", "document");
    assert_eq!(send(form).await, StatusCode::METHOD_NOT_ALLOWED, "a form");
    let post = Request::post("/").body(Body::empty());
    assert_eq!(send(post.expect("a request")).await, StatusCode::METHOD_NOT_ALLOWED);
    for path in
        ["/table/customers/..%2F..%2Fdata.mdb", "/data.mdb", "/table/nothing", "/..%2Fdata.mdb"]
    {
        let (status, page) = get(&router, path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {page}");
    }
}

/// A server that is killed at the end.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dir: &std::path::Path, arguments: &[&str]) -> Self {
        Self::run(assert_cmd::cargo::cargo_bin!("index-table"), dir, arguments)
    }

    /// Starts the tool with types.
    fn of_types(dir: &std::path::Path, arguments: &[&str]) -> Self {
        let own = assert_cmd::cargo::cargo_bin!("index-table");
        let program = own.parent().expect("a directory").join("examples").join("rows");
        Self::run(&program, dir, arguments)
    }

    fn run(program: &std::path::Path, dir: &std::path::Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .arg("serve")
            .arg(dir)
            .args(arguments)
            .env_remove("INDEX_TABLE_TOKEN")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        let output = child.stdout.take().expect("the output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://").expect("an address");
        let address = address.trim_end_matches('/').to_owned();
        Self { child, address }
    }

    fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let host = if headers.contains("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        write!(stream, "GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n")
            .expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_command_serves_a_store_without_its_structs() {
    let dir = plain(3);
    let server = Server::start(dir.path(), &["127.0.0.1:0"]);
    assert!(server.get("/", "").contains("<strong>3</strong> rows"));
    assert!(server.get("/table/customers/town?v0=Oslo", "").contains("<td class=\"c\">Oslo</td>"));
    assert!(server.get("/metrics", "").contains("index_table_rows{table=\"customers\"} 3"));
    assert!(server.get("/", "Host: evil.example\r\n").starts_with("HTTP/1.1 403"));
}

#[test]
fn the_command_shows_the_readers_of_all_processes() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let server = Server::start(dir.path(), &["127.0.0.1:0"]);
    let readers = || {
        let page = server.get("/", "");
        let own = format!("<tr><td class=\"n\">{}</td>", std::process::id());
        let row = page
            .split(&own)
            .nth(1)
            .map(|rest| rest.split("</tr>").next().unwrap_or_default().to_owned());
        row.map(|row| {
            row.split("<td class=\"n\">")
                .skip(1)
                .filter_map(|it| Some(it.split('<').next()?.to_owned()))
                .collect::<Vec<_>>()
        })
    };
    let txn = store.read().expect("a transaction");
    let customers = CustomerRepository::open(&store).expect("a table");
    // The other one keeps the last checkpoint of the journal.
    assert_eq!(readers(), Some(vec!["2".to_owned(), "0".to_owned()]));
    store.transaction(|txn| customers.insert(txn, &customer(9))).expect("a commit");
    assert_eq!(readers(), Some(vec!["2".to_owned(), "1".to_owned()]));
    drop(txn);
    assert_ne!(readers(), Some(vec!["2".to_owned(), "1".to_owned()]));
    // The server has read the lock file while the store was open, and the store is still locked.
    store.transaction(|txn| customers.insert(txn, &customer(10))).expect("a commit");
    assert!(server.get("/", "").contains("<strong>"), "the server still reads");
}

#[test]
fn a_program_with_types_serves_rows() {
    let dir = plain(3);
    let server = Server::of_types(dir.path(), &["127.0.0.1:0"]);
    let page = server.get("/table/customers/town?v0=Bergen", "");
    assert!(page.contains("<td class=\"c\">2@example.com</td>"), "{page}");
    support::open_without_indexes(dir.path());
    let server = Server::of_types(dir.path(), &["127.0.0.1:0"]);
    let page = server.get("/", "");
    assert!(page.contains("Needs attention") && page.contains("customers"), "{page}");
    let page = server.get("/table/customers", "");
    assert!(page.contains("retired") && page.contains("2@example.com"), "{page}");
}

#[test]
fn a_server_with_a_token_refuses_requests_without_it() {
    let dir = plain(3);
    let server = Server::start(dir.path(), &["0.0.0.0:0", "--token", "secret"]);
    assert!(server.get("/", "").starts_with("HTTP/1.1 401"));
    assert!(server.get("/metrics", "Authorization: Bearer secreT\r\n").starts_with("HTTP/1.1 401"));
    assert!(server.get("/", "Authorization: Bearer secret\r\n").starts_with("HTTP/1.1 200"));
    assert!(server.get("/", "Authorization: Basic eDpzZWNyZXQ=\r\n").starts_with("HTTP/1.1 200"));
}

#[test]
fn an_address_for_other_machines_needs_a_token() {
    let dir = plain(1);
    let error = process::fails(2, &["serve"], dir.path(), &["0.0.0.0:0"]);
    assert!(error.contains("--token"), "{error}");
    assert!(process::fails(2, &["serve"], dir.path(), &["nowhere"]).contains("is not an address"));
}

#[tokio::test]
async fn a_service_mounts_the_page_under_a_path() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let own = Router::new().route("/health", axum::routing::get(async || "well"));
    let service = own.nest_service("/admin/", index_table_admin::router(&store));
    for (path, part) in [
        ("/admin/", "Overview"),
        ("/admin/metrics", "index_table_rows"),
        ("/admin/style.css", "color-scheme"),
        ("/admin/live.js", "data-live"),
        ("/admin/icon.svg", "<svg"),
        ("/admin/table/customers/town", "<td class=\"c\">Oslo</td>"),
        ("/health", "well"),
    ] {
        let (status, page) = get(&service, path).await;
        assert!(status == StatusCode::OK && page.contains(part), "{path}: {status} {page}");
    }
}

#[tokio::test]
async fn a_missing_shard_is_shown_and_the_page_works() {
    let dir = sharded();
    std::fs::rename(dir.path().join("south"), dir.path().join("elsewhere")).expect("renamed");
    let store = Store::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (status, page) = get(&router, "/").await;
    assert!(
        status == StatusCode::OK && page.contains("<code>south</code> is not available"),
        "{page}"
    );
    let (status, text) = get(&router, "/metrics").await;
    assert!(
        status == StatusCode::OK && text.contains("index_table_shard_available{shard=\"south\"} 0"),
        "{text}"
    );
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "mails", changes, shard_by = tenant)]
#[index(subject, consistency = "eventual")]
struct Mail {
    #[primary_key]
    tenant: u32,
    subject: String,
}

#[tokio::test]
async fn a_missing_shard_of_a_table_with_changes_is_shown_and_the_page_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        Store::options()
            .shard("north", "north")
            .shard("south", "south")
            .map("mails", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
            .open(dir.path())
            .expect("a store")
    };
    {
        let store = open();
        let mails = MailRepository::open(&store).expect("a table");
        let mail = |tenant| Mail { tenant, subject: "hello".to_owned() };
        store
            .transaction(|txn| [1, 101].into_iter().try_for_each(|it| mails.insert(txn, &mail(it))))
            .expect("a commit");
        let mut changes = mails.changes(&store, "sender").expect("a consumer");
        changes.next_batch(1).and_then(|batch| batch.commit(&store)).expect("a commit");
    }
    std::fs::rename(dir.path().join("south"), dir.path().join("elsewhere")).expect("renamed");
    let store = open();
    let _mails = MailRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    for (path, part) in [
        ("/", "<code>south</code> is not available"),
        ("/streams", "Lag"),
        ("/shards", "not available"),
        ("/shards", "<code>100</code>"),
        ("/metrics", "index_table_shard_available{shard=\"south\"} 0"),
        ("/table/mails", "shard `south` is not available"),
    ] {
        let (status, page) = get(&router, path).await;
        let is_readable = status == StatusCode::OK || path == "/table/mails";
        assert!(is_readable && page.contains(part), "{path}: {status} {page}");
    }
}
