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
use index_table::{ShardedStore, Store};
use support::{CustomerRepository, OrderRepository, customer, plain, sharded};
use tower::ServiceExt as _;

/// Returns the status and the body of a response.
async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = router.clone().oneshot(request).await.expect("a response");
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body of less than 1 MiB");
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
    for part in
        ["<a href=\"table/customers\">customers</a>", "kind_score", "readable", "<svg class=bar"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let (status, style) = get(&router, "/style.css").await;
    assert!(status == StatusCode::OK && style.contains("prefers-color-scheme"));
    assert!(!page.contains("http://") && !page.contains("https://"), "no outside assets: {page}");
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
    let (mut path, mut rows, mut pages) = ("town?prefix=Os".to_owned(), 0, 0);
    loop {
        let (_, page) = get(&router, &format!("/table/customers/{path}")).await;
        assert!(!page.contains("Bergen"));
        rows += page.matches("<td>Oslo</td>").count();
        pages += 1;
        match page.split("rel=next href=\"").nth(1).and_then(|rest| rest.split('"').next()) {
            Some(next) => path = next.replace("&amp;", "&"),
            None => break,
        }
    }
    assert_eq!((rows, pages), (65, 2));
    let (_, page) = get(&router, "/table/customers/since_id?prefix=2024-02-03").await;
    assert_eq!(page.matches("<td>2024-02-03</td>").count(), 1);
    for wrong in ["since_id?prefix=x", "town?after=zz", "town?prefix=A&after=0x5a00.0x01"] {
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
        "customers/town?prefix=%3Cscript%3E",
        "customers/town?after=%3Cscript%3E",
    ] {
        let (_, page) = get(&router, &format!("/table/{path}")).await;
        assert!(!page.contains("<script"), "{path}: {page}");
    }
    let (_, page) = get(&router, "/table/customers/town").await;
    assert!(page.contains("&lt;script&gt;"), "{page}");
}

#[tokio::test]
async fn metrics_count_queries_and_writes() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(4))).expect("a commit");
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
    let store = ShardedStore::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (_, page) = get(&router, "/").await;
    assert!(page.contains("<td>north</td><td>available</td>"), "{page}");
    let (_, text) = get(&router, "/metrics").await;
    assert!(text.contains("index_table_shard_rows{shard=\"south\"} 3"), "{text}");
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
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("index-table"))
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
    assert!(server.get("/", "").contains(">customers</a></td><td class=n>3</td>"));
    assert!(server.get("/table/customers/town?prefix=Oslo", "").contains("<td>Oslo</td>"));
    assert!(server.get("/metrics", "").contains("index_table_rows{table=\"customers\"} 3"));
    assert!(server.get("/", "Host: evil.example\r\n").starts_with("HTTP/1.1 403"));
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
        ("/admin/table/customers/town", "<td>Oslo</td>"),
        ("/health", "well"),
    ] {
        let (status, page) = get(&service, path).await;
        assert!(status == StatusCode::OK && page.contains(part), "{path}: {status} {page}");
    }
}

#[tokio::test]
async fn a_missing_shard_is_shown_and_the_page_goes_on() {
    let dir = sharded();
    std::fs::rename(dir.path().join("south"), dir.path().join("elsewhere")).expect("renamed");
    let store = ShardedStore::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (status, page) = get(&router, "/").await;
    assert!(status == StatusCode::OK && page.contains("<td>south</td><td>not available"), "{page}");
    let (status, text) = get(&router, "/metrics").await;
    assert!(
        status == StatusCode::OK && text.contains("index_table_shard_available{shard=\"south\"} 0"),
        "{text}"
    );
}
