//! The page's rows of any table: columns, filters, exports, the schema and the lists of rows.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, Response, StatusCode, header},
};
use index_table::{Error, IndexTable, Store};
use process::text_of;
use serde::{Deserialize, Serialize};
use support::{
    CustomerRepository, EventRepository, OrderRepository, customer, event, plain, sharded,
};
use tower::ServiceExt as _;

async fn respond(router: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    router.clone().oneshot(request).await.expect("a response")
}

/// Returns the status and the body of a response.
async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let response = respond(router, path).await;
    let status = response.status();
    let body = to_bytes(response.into_body(), 64 << 20).await.expect("a body");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

/// Returns the cells of the rows of a page.
fn cells(page: &str) -> Vec<Vec<String>> {
    let rows = page.split("id=\"rows\"").nth(1).expect("rows");
    let body = rows.split("<tbody>").nth(1).and_then(|it| it.split("</tbody>").next());
    let cell = |cell: &str| {
        let (_, text) = cell.split_once('>').expect("a cell");
        let mut text = text.split("</td>").next().unwrap_or_default().to_owned();
        while let (Some(from), Some(to)) = (text.find('<'), text.find('>')) {
            text.replace_range(from..=to, "");
        }
        text
    };
    let rows = body.into_iter().flat_map(|body| body.split("<tr>").skip(1));
    rows.map(|row| row.split("<td").skip(1).map(cell).collect()).collect()
}

fn columns(page: &str) -> Vec<String> {
    let rows = page.split("id=\"rows\"").nth(1).expect("rows");
    let head = rows.split("<thead>").nth(1).and_then(|it| it.split("</thead>").next());
    let names = head.into_iter().flat_map(|head| head.split("<th").skip(1));
    let name =
        |it: &str| it.split_once('>').and_then(|(_, it)| it.split('<').next().map(str::to_owned));
    names.filter_map(name).collect()
}

/// Follows the links to the next pages. Returns the first cells.
async fn all(router: &Router, path: &str) -> Vec<String> {
    let (base, _) = path.rsplit_once('/').expect("a path");
    let (mut path, mut found) = (path.to_owned(), Vec::new());
    loop {
        let (status, page) = get(router, &path).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        found.extend(cells(&page).into_iter().map(|row| row[0].clone()));
        match page.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next()) {
            Some(next) => {
                path = format!("{base}/{}", next.trim_end_matches("#rows").replace("&amp;", "&"));
            }
            None => return found,
        }
    }
}

/// Checks the rows of 120 customers, which have no types here.
async fn check_customers(store: &Store) {
    let router = index_table_admin::router_with_all_rows(store);
    let (_, page) = get(&router, "/table/customers").await;
    assert_eq!(columns(&page), ["id", "town", "since", "kind", "score", "email"]);
    let rows = cells(&page);
    assert_eq!(rows.len(), 50);
    assert_eq!(rows[1], ["2", "Bergen", "2024-02-03", "Private", "1.5", "2@example.com"]);
    assert_eq!(all(&router, "/table/customers").await.len(), 120);
    assert_eq!(all(&router, "/table/customers?from=11&to=21&order=desc").await[..2], ["20", "19"]);

    let path = "/table/customers/since_id?from=2024-03-01&to=2024-03-04";
    let (_, page) = get(&router, path).await;
    assert_eq!(columns(&page), ["since", "id", "id", "town", "kind", "score", "email"]);
    let found: Vec<_> = cells(&page).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(found, ["2024-03-01", "2024-03-02", "2024-03-03"]);
    assert_eq!(all(&router, "/table/customers/town?v0=Os").await.len(), 60);
    assert_eq!(all(&router, "/table/customers/town?from=C").await, ["Oslo"; 60]);
    let path = "/table/customers/kind_score?v0=Company&from=-1.0&to=0.5";
    let (_, page) = get(&router, path).await;
    assert_eq!(cells(&page)[0][..3], ["Company", "-0.5", "1"]);

    let (_, page) = get(&router, "/table/customers?c=town&c=email&c=none").await;
    assert_eq!(columns(&page), ["id", "town", "email", "none"]);
    assert_eq!(cells(&page)[0], ["1", "Oslo", "1@example.com", ""]);
    assert!(page.contains("value=\"email\" checked") && page.contains("value=\"kind\">"), "{page}");

    let (_, lines) = get(&router, "/export/customers?form=jsonl").await;
    assert_eq!(lines.lines().count(), 120);
    let first: serde_json::Value =
        serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first, serde_json::to_value(customer(1)).expect("JSON"));
    let (_, csv) = get(&router, "/export/customers/town?form=csv&v0=Os&c=id&c=town").await;
    assert!(csv.starts_with("id,town\n1,Oslo\n3,Oslo\n") && csv.lines().count() == 61, "{csv}");
    let (_, csv) = get(&router, "/export/customers?form=csv&from=500").await;
    assert_eq!(csv, "id,town,since,kind,score,email\n");
    for (path, status) in [
        ("customers", StatusCode::BAD_REQUEST),
        ("customers?form=xml", StatusCode::BAD_REQUEST),
        ("customers?form=csv&from=x", StatusCode::BAD_REQUEST),
        ("customer?form=csv", StatusCode::NOT_FOUND),
        ("customers/towns?form=csv", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(&router, &format!("/export/{path}")).await.0, status, "{path}");
    }

    let (_, page) = get(&router, "/lists/customers").await;
    assert!(page.contains("<code>option&lt;text&gt;</code>"), "{page}");
    assert!(page.contains("<td class=\"n\">120</td>"), "the rows of the list: {page}");
    let (_, page) = get(&router, "/row/customers?key=0x0000000000000002").await;
    assert!(page.contains("&quot;town&quot;: &quot;Bergen&quot;"), "{page}");
    assert!(page.contains("<caption>Fields of list 0</caption>"), "{page}");
    let (_, page) = get(&router, "/schema").await;
    assert!(page.contains("<svg class=\"schema\" role=\"img\" aria-label=\"1 tables"), "{page}");
    assert!(page.contains("<caption>Fields of customers</caption>"), "{page}");
}

fn load(store: &Store) -> CustomerRepository {
    let customers = CustomerRepository::open(store).expect("a table");
    customers.bulk_load(store, (1..=120).map(customer)).run().expect("a load");
    customers
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_file_are_columns_with_filters() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let _customers = load(&store);
    check_customers(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_in_memory_are_columns_with_filters() {
    let store = Store::in_memory();
    let _customers = load(&store);
    check_customers(&store).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_server_are_columns_with_filters() {
    let Ok(url) = std::env::var("INDEX_TABLE_POSTGRES_URL") else {
        eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
        return;
    };
    let name = format!("index_table_page_{}", std::process::id());
    let store = Store::options().schema(&name).connect(&url).expect("a store");
    let customers = load(&store);
    check_customers(&store).await;
    drop(customers);
    let drop = format!("DROP SCHEMA \"{name}\" CASCADE");
    index_table::__private::run_sql(&store, &drop).expect("dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_all_shards_are_in_one_order() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let router = index_table_admin::router_with_all_rows(&store);
    let (_, page) = get(&router, "/table/orders").await;
    assert_eq!(columns(&page), ["tenant", "number", "total", "code"]);
    let rows = cells(&page);
    assert_eq!((rows.len(), &rows[5][..]), (6, &["107", "3", "-3", "s3"].map(str::to_owned)[..]));
    let (_, page) = get(&router, "/table/orders/total?from=-2&to=3").await;
    let totals: Vec<_> = cells(&page).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(totals, ["-2", "-1", "1", "2"]);
    let (_, lines) = get(&router, "/export/orders?form=jsonl").await;
    assert_eq!(lines, text_of(&["dump"], dir.path(), &["orders"]));
    let (_, page) = get(&router, "/lists/orders").await;
    assert!(page.contains("<td class=\"n\">6</td>"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_the_rows_of_the_command() {
    let dir = plain(300);
    let (_, csv, lines) = {
        let store = Store::open(dir.path()).expect("a store");
        let _customers = CustomerRepository::open(&store).expect("a table");
        let router = index_table_admin::router_with_all_rows(&store);
        let response = respond(&router, "/export/customers?form=csv").await;
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_DISPOSITION], "attachment; filename=\"customers.csv\"");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let (status, csv) = get(&router, "/export/customers?form=csv").await;
        let (_, lines) = get(&router, "/export/customers/town?form=jsonl&order=desc&v0=Oslo").await;
        (status, csv, lines)
    };
    assert_eq!(csv, text_of(&["rows"], dir.path(), &["customers", "--format", "csv"]));
    assert_eq!(lines, text_of(&["rows"], dir.path(), &["customers", "town", "Oslo", "--rev"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_not_rows() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router(&store);
    let (_, page) = get(&router, "/table/customers").await;
    assert!(!page.contains("example.com") && !page.contains("/export/"), "{page}");
    assert_eq!(get(&router, "/export/customers?form=csv").await.0, StatusCode::NOT_FOUND);
    let (_, page) = get(&router, "/row/customers?key=0x0000000000000002").await;
    assert!(!page.contains("example.com") && page.contains("Fields of list 0"), "{page}");
    // A type with the same table name, and other fields, does not show the rows.
    let router = index_table_admin::router_with_rows::<(support::other::Customer,)>(&store);
    let status = respond(&router, "/export/customers?form=jsonl").await;
    assert!(to_bytes(status.into_body(), 1 << 20).await.is_err(), "no rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_ends_when_the_client_goes_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    let long = |id| support::Event { body: "x".repeat(10_000), ..event(id) };
    events.bulk_load(&store, (1..=2000).map(long)).run().expect("a load");
    let router = index_table_admin::router_with_all_rows(&store);
    let path = "/export/events?form=jsonl";
    // Two exports wait for their clients, with a bounded part of the rows, and hold their snapshots.
    let (first, second) = (respond(&router, path).await, respond(&router, path).await);
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let (status, page) = get(&router, path).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.contains("other exports are running"), "{page}");
    let (status, _) = get(&router, "/table/events").await;
    assert_eq!(status, StatusCode::OK, "exports have turns of their own");
    let all = to_bytes(first.into_body(), 64 << 20).await.expect("a whole export");
    assert_eq!(String::from_utf8(all.to_vec()).expect("text").lines().count(), 2000);
    drop(second);
    for _ in 0..500 {
        if store.readers().count == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.readers().count, 0, "the export without a client has ended");
    assert_eq!(respond(&router, path).await.status(), StatusCode::OK);
}

/// Gives a row a list that does not exist.
fn damage(dir: &Path) {
    for number in 0..3 {
        // The journal would repair the page.
        let _ = fs::remove_file(dir.join(format!("journal.{number}")));
    }
    let file = dir.join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    // The list, the key, the length and the text.
    let row = b"\0\x07\x04Oslo";
    let places: Vec<_> =
        (0..bytes.len() - row.len()).filter(|at| bytes[*at..].starts_with(row)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at] = 0x7f;
    }
    fs::write(file, bytes).expect("the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_is_shown_in_its_place() {
    let dir = plain(9);
    damage(dir.path());
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    for router in [
        index_table_admin::router_with_all_rows(&store),
        index_table_admin::router_with_rows::<(support::Customer,)>(&store),
    ] {
        for path in ["/table/customers", "/table/customers/since_id"] {
            let (status, page) = get(&router, path).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            let rows = cells(&page);
            assert_eq!(rows.len(), 9, "{page}");
            let damaged = rows[6].last().expect("an error");
            assert!(damaged.contains("customers") && damaged.contains("list"), "{damaged}");
            assert!(page.contains("colspan="), "{page}");
            assert_eq!(rows[7].last().map(String::as_str), Some("8@example.com"));
        }
        let (status, page) = get(&router, "/row/customers?key=0x0000000000000007").await;
        assert!(status == StatusCode::OK && page.contains("role=\"alert\""), "{page}");
        let (_, lines) = get(&router, "/export/customers?form=jsonl").await;
        let line = lines.lines().nth(6).expect("a line");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["$damaged"]["key"], "{\"id\":7}");
        assert_eq!(lines.lines().count(), 9);
        let (_, csv) = get(&router, "/export/customers?form=csv").await;
        let line = csv.lines().nth(7).expect("a line");
        assert!(
            line.starts_with("\"damaged row {\"\"id\"\":7}: ") && line.ends_with(",,,,,"),
            "{line}"
        );
        let (_, page) = get(&router, "/lists/customers").await;
        assert!(page.contains("1 rows have no list that can be read"), "{page}");
    }
}

mod releases {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = BeforeRepository)]
    pub(crate) struct Before {
        #[primary_key]
        pub(crate) id: u64,
        #[serde(rename = "<b>\"&\u{202e}")]
        pub(crate) name: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = AfterRepository)]
    pub(crate) struct After {
        #[primary_key]
        pub(crate) id: u64,
        #[serde(rename = "<b>\"&\u{202e}")]
        pub(crate) name: String,
        #[serde(default)]
        pub(crate) note: Option<String>,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_two_releases_and_names_with_markup_are_shown() {
    use releases::{After, AfterRepository, Before, BeforeRepository};

    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path()).expect("a store");
        let old = BeforeRepository::open(&store).expect("a table");
        let row = |id| Before { id, name: "<u>".to_owned() };
        store
            .transaction(|txn| (1..=3).try_for_each(|id| old.insert(txn, &row(id))))
            .expect("a commit");
    }
    let store = Store::open(dir.path()).expect("a store");
    let new = AfterRepository::open(&store).expect("a table");
    let row = After { id: 9, name: "<u>".to_owned(), note: Some("<script>".to_owned()) };
    store.transaction(|txn| new.insert(txn, &row)).expect("a commit");
    let router = index_table_admin::router_with_all_rows(&store);
    let table = "towns";
    let (_, page) = get(&router, &format!("/lists/{table}")).await;
    assert!(page.contains("adds note") && page.contains("<a href=\"#list1\">1</a>"), "{page}");
    for counted in ["<td class=\"n\">3</td>", "<td class=\"n\">1</td>"] {
        assert!(page.contains(counted), "{counted}: {page}");
    }
    let (_, page) = get(&router, &format!("/table/{table}")).await;
    assert_eq!(columns(&page).len(), 3, "{page}");
    assert_eq!(cells(&page)[3][2], "&lt;script&gt;");
    for path in [
        "schema".to_owned(),
        format!("table/{table}"),
        format!("lists/{table}"),
        format!("row/{table}?key=0x0000000000000009"),
        format!("table/{table}?c=%3Cscript%3E&from=1"),
        format!("export/{table}?form=%3Cscript%3E"),
    ] {
        let (_, page) = get(&router, &format!("/{path}")).await;
        // The value of a hidden part of the form is the name as it is.
        let page = page.replace("value=\"&lt;b&gt;&quot;&amp;\u{202e}\"", "");
        for markup in ["<script>", "<u>", "<i>", "<b>", "\u{202e}"] {
            assert!(!page.contains(markup), "{path} has {markup}: {page}");
        }
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
#[index(customer)]
struct Visit {
    #[primary_key]
    number: u64,
    #[references(support::Customer)]
    customer: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_the_schema_has_references() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let _visits = VisitRepository::open(&store).expect("a table");
    let (_, page) = get(&index_table_admin::router(&store), "/schema").await;
    for part in [
        "2 tables with 1 references",
        "visits refers to customers by customer",
        "FK customer",
        "<li><code>customer</code> refers to <code>customers</code></li>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn pages_of_rows_without_their_type_stop_at_a_damaged_row_with_its_key() {
    let dir = plain(9);
    damage(dir.path());
    let store = Store::open(dir.path()).expect("a store");
    let (table, txn) =
        (store.table("customers").expect("a table"), store.read().expect("a transaction"));
    let first = table.rows(&txn).page(6).expect("rows before the damaged one");
    let next = first.next.expect("a cursor");
    assert_eq!(first.items.len(), 6);
    for size in [1, 3] {
        let error = table.rows(&txn).after(&next).page(size).expect_err("a damaged row");
        let Error::Corrupt { table, index: None, key, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*table, key.as_str()), ("customers", "7"), "{error}");
    }
    let last = table.rows(&txn).rev().page(2).expect("rows after the damaged one");
    assert_eq!(last.items.len(), 2);
    table.rows(&txn).rev().after(&last.next.expect("a cursor")).page(1).expect_err("the row 7");
    // An iterator has the rows before it, and ends.
    let rows: Vec<_> = table.rows(&txn).collect();
    assert!(rows.len() == 7 && rows[6].is_err() && rows[..6].iter().all(Result::is_ok));
}
