//! Operations of a running service: who may start them, one job of a kind, cancellation, the audit log, and the command.

#[path = "support/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;
mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use axum::Router;
use index_table::Store;
use index_table_admin::Operations;
use serde_json::{Value, json};
use service::{PATH, SECRET, Service, bearer, request, send, wait};
use support::{
    Customer, CustomerRepository, Order, OrderRepository, PostalCode, PostalCodeRepository,
    customer, order_row, plain, sharded,
};
use tempfile::TempDir;

/// A store with two shards and open tables.
struct Shop {
    dir: TempDir,
    store: Store,
    orders: OrderRepository,
    _codes: PostalCodeRepository,
}

impl Shop {
    fn new() -> Self {
        Self::in_dir(sharded())
    }

    fn in_dir(dir: TempDir) -> Self {
        let store = Store::open(dir.path()).expect("a store");
        let orders = OrderRepository::open(&store).expect("a table");
        let codes = PostalCodeRepository::open(&store).expect("a table");
        Self { dir, store, orders, _codes: codes }
    }

    fn service(&self) -> Service {
        fs::create_dir_all(self.files()).expect("a directory");
        Service::of(&self.store, |own| own.types::<(Order, PostalCode)>().files(self.files()))
    }

    fn files(&self) -> std::path::PathBuf {
        self.dir.path().with_extension("files")
    }

    /// Returns the shard of the orders of tenant 7.
    fn place(&self) -> String {
        self.orders.shard_of(&self.store, 7).expect("a shard").name().to_owned()
    }

    /// Runs `work` while the shards are locked, so that a move waits.
    fn while_locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut txn = self.store.write().expect("a transaction");
        for tenant in [7, 107] {
            self.orders.insert(&mut txn, &order_row(tenant, 99)).expect("inserted");
        }
        let done = work();
        drop(txn);
        done
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.files()));
    }
}

fn to_south() -> Value {
    json!({ "map": "orders", "keys": "..50", "to": "south" })
}

#[test]
fn each_guard_refuses() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, |own| own);
    let json = ("Content-Type", "application/json");
    let verify = &format!("{PATH}/verify");
    for (expected, method, path, headers, body) in [
        (401, "GET", PATH, vec![], ""),
        (401, "GET", PATH, vec![bearer("wrong")], ""),
        (401, "GET", PATH, vec![bearer("")], ""),
        (
            401,
            "GET",
            PATH,
            vec![("Authorization", "Basic YTp0aGUtc2VjcmV0LW9mLW9wZXJhdGlvbnM=")],
            "",
        ),
        (401, "GET", PATH, vec![("Cookie", "token=the-secret-of-operations")], ""),
        (401, "POST", verify, vec![("Cookie", "session=1"), json], "{}"),
        (415, "POST", verify, vec![bearer(SECRET)], "{}"),
        (415, "POST", verify, vec![bearer(SECRET), ("Content-Type", "text/plain")], "{}"),
        (403, "POST", verify, vec![bearer(SECRET), json, ("Sec-Fetch-Site", "cross-site")], "{}"),
        (403, "POST", verify, vec![bearer(SECRET), json, ("Sec-Fetch-Site", "same-site")], "{}"),
        (403, "POST", verify, vec![bearer(SECRET), json, ("Origin", "http://evil.example")], "{}"),
        (403, "POST", verify, vec![bearer(SECRET), json, ("Origin", "null")], "{}"),
        (400, "POST", verify, vec![bearer(SECRET), json], "{"),
        (400, "POST", verify, vec![bearer(SECRET), json], "{\"unknown\":1}"),
        (404, "POST", &format!("{PATH}/drop"), vec![bearer(SECRET), json], "{}"),
        (404, "GET", &format!("{PATH}/7"), vec![bearer(SECRET)], ""),
        (405, "POST", PATH, vec![bearer(SECRET), json], "{}"),
        (405, "POST", "/admin/", vec![bearer(SECRET), json], "{}"),
    ] {
        let (status, answer) = service.send(method, path, &headers, body);
        assert_eq!(status, expected, "{method} {path} {headers:?}: {answer}");
        assert!(!answer.contains(SECRET), "{answer}");
    }
    let long = format!("{{\"table\":\"{}\"}}", "x".repeat(70 << 10));
    let (status, answer) = service.send("POST", verify, &[bearer(SECRET), json], &long);
    assert_eq!(status, 413, "{answer}");
    assert_eq!(service.get("")["ended"], json!([]), "nothing was started");
    // The content may have a character set, and a page of the same site may send it.
    let content = ("Content-Type", "application/json; charset=utf-8");
    let same = ("Sec-Fetch-Site", "same-origin");
    let (status, answer) =
        service.send("POST", verify, &[bearer("another-one"), content, same], "");
    assert_eq!(status, 202, "{answer}");
    assert!(answer.contains("\"by\":\"bob\""), "{answer}");
}

#[test]
fn the_metrics_are_in_the_guide() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, |own| own);
    let (_, metrics) = service.send("GET", "/admin/metrics", &[], "");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/admin.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let own: Vec<_> = types.filter(|name| name.contains("_operations_")).collect();
    assert_eq!(own.len(), 2);
    for name in own.iter().filter_map(|line| line.split(' ').next()) {
        assert!(guide.contains(name), "{name}");
    }
}

#[test]
fn a_router_without_operations_offers_none() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, |_| Operations::new(&store));
    for secret in ["", SECRET] {
        let (status, _) = service.send("GET", PATH, &[bearer(secret)], "");
        assert_eq!(status, 401, "no token is accepted unless one was given");
    }
    drop(service);
    let router = Router::new().nest_service("/admin/", index_table_admin::router(&store));
    let service = Service::serving(router, None);
    for (expected, method) in [(404, "GET"), (405, "POST")] {
        let headers = [bearer(SECRET), ("Content-Type", "application/json")];
        let (status, _) = service.send(method, &format!("{PATH}/verify"), &headers, "{}");
        assert_eq!(status, expected);
    }
    let error = service.command_fails(3, &["verify"]);
    assert!(error.contains("offers no operations"), "{error}");
}

#[test]
fn a_job_survives_its_connection_and_is_the_only_one_of_its_kind() {
    let shop = Shop::new();
    let service = shop.service();
    let id = shop.while_locked(|| {
        let headers = [bearer(SECRET), ("Content-Type", "application/json")];
        let path = format!("{PATH}/move");
        let body = to_south().to_string();
        let connection = request(service.address, "POST", &path, &headers, &body);
        wait(|| service.get("")["running"].as_array()?.first().cloned());
        // The response is not read.
        drop(connection);
        let running = wait(|| service.get("")["running"].as_array()?.first().cloned());
        let id = running["id"].as_str().expect("text").to_owned();
        assert_eq!((&running["kind"], &running["state"]), (&json!("move"), &json!("running")));
        let (status, refused) = service.post("/move", &to_south());
        assert_eq!((status, &refused["job"]), (409, &json!(id)), "{refused}");
        let (_, page) = service.send("GET", "/admin/", &[], "");
        assert!(page.contains(&id), "the overview lists the job");
        let (_, metrics) = service.send("GET", "/admin/metrics", &[], "");
        assert!(metrics.contains("index_table_operations_running{kind=\"move\"} 1"), "{metrics}");
        id
    });
    let job = service.ended(&id);
    assert_eq!((&job["state"], &job["outcome"]["result"]["rows"]), (&json!("done"), &json!(3)));
    assert_eq!(job["arguments"], to_south());
    assert_eq!(shop.place(), "south");
}

#[test]
fn a_cancelled_move_leaves_the_keys_where_they_were() {
    let shop = Shop::new();
    let service = shop.service();
    let id = shop.while_locked(|| {
        let id = service.start("move", &to_south());
        let (status, job) = service.post(&format!("/{id}/cancel"), &json!({}));
        assert_eq!((status, &job["state"]), (200, &json!("cancelling")), "{job}");
        id
    });
    let job = service.ended(&id);
    assert_eq!(job["state"], "cancelled", "{job}");
    assert_eq!(shop.place(), "north");
    assert_eq!(shop.store.moves().expect("moves"), []);
    let (status, refused) = service.post(&format!("/{id}/cancel"), &json!({}));
    assert_eq!(status, 409, "{refused}");
    assert_eq!(service.run("move", &to_south())["state"], "done");
}

#[test]
fn shutting_down_leaves_a_move_that_resume_ends() {
    let shop = Shop::new();
    let service = shop.service();
    let operations = service.operations.clone().expect("operations");
    let id = shop.while_locked(|| {
        let id = service.start("move", &to_south());
        assert!(!operations.shut_down(Duration::from_millis(10)), "the job waits for the lock");
        id
    });
    assert!(operations.shut_down(Duration::from_mins(1)));
    let job = service.ended(&id);
    assert_eq!(job["state"], "cancelled", "{job}");
    let (status, _) = service.post("/move", &to_south());
    assert_eq!(status, 503);
    let left = shop.store.moves().expect("moves");
    assert_eq!(left.len(), 1);
    let error = job["outcome"]["error"].as_str().expect("an error");
    assert!(error.contains(&left[0].id.to_string()) && error.contains("resume-move"), "{error}");
    drop((service, operations));
    let service = shop.service();
    let resumed = service.run("resume-move", &json!({ "id": left[0].id.to_string() }));
    assert_eq!(resumed["state"], "done", "{resumed}");
    assert_eq!(shop.place(), "south");
}

#[test]
fn a_dropped_service_asks_its_jobs_to_end() {
    let shop = Shop::new();
    shop.while_locked(|| {
        let service = shop.service();
        service.start("move", &to_south());
        drop(service);
    });
    // The thread of the job ends by itself.
    wait(|| (shop.store.moves().expect("moves").len() == 1).then_some(()));
    assert_eq!(shop.place(), "north");
    let id = shop.store.moves().expect("moves")[0].id;
    let service = shop.service();
    let cancelled = wait(|| {
        Some(service.run("cancel-move", &json!({ "id": id.to_string() })))
            .filter(|job| job["state"] == "done")
    });
    assert_eq!(cancelled["outcome"]["result"]["cancelled"], id.to_string());
    assert_eq!((shop.store.moves().expect("moves").len(), shop.place().as_str()), (0, "north"));
}

#[test]
fn shards_are_added_filled_and_copied() {
    let shop = Shop::new();
    let service = shop.service();
    let done = |kind: &str, arguments: Value| {
        let job = service.run(kind, &arguments);
        assert_eq!(job["state"], "done", "{job}");
        job["outcome"]["result"].clone()
    };
    done("add-shard", json!({ "name": "west", "directory": "west" }));
    assert_eq!(done("split", json!({ "map": "orders", "at": "100", "to": "west" }))["rows"], 3);
    assert_eq!(done("rebalance", json!({ "map": "orders", "onto": ["north"] }))["moved_rows"], 3);
    assert_eq!(done("verify", json!({}))["tables"].as_array().map(Vec::len), Some(2));
    done("upgrade", json!({ "table": "orders" }));
    done("build", json!({}));
    done("repair", json!({ "table": "orders" }));
    done("expire", json!({}));
    assert_eq!(done("drop-retired", json!({}))["dropped"], json!([]));
    done("backup", json!({ "to": "copy" }));
    let copy = Store::options().create(false).open(shop.files().join("copy")).expect("a copy");
    assert_eq!(copy.shard_ids().len(), 3);
    for (kind, arguments, expected) in [
        ("backup", json!({ "to": "../copy" }), "within the directory"),
        (
            "add-shard",
            json!({ "name": "east", "directory": "/elsewhere" }),
            "directory for the files",
        ),
        ("move", json!({ "map": "orders", "keys": "..5", "to": "nowhere" }), "no shard `nowhere`"),
        ("cancel-move", json!({ "id": "7" }), "no unfinished move `7`"),
    ] {
        let job = service.run(kind, &arguments);
        let error = job["outcome"]["error"].as_str().unwrap_or_default();
        assert_eq!(job["state"], "failed", "{job}");
        assert!(error.contains(expected), "{error}");
    }
    let (_, metrics) = service.send("GET", "/admin/metrics", &[], "");
    assert!(
        metrics.contains("index_table_operations_failed_total{kind=\"backup\"} 1"),
        "{metrics}"
    );
}

#[test]
fn a_table_moves_to_another_shard() {
    let dir = plain(5);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let service = Service::of(&store, |own| own);
    let added = service.run("add-shard", &json!({ "name": "side", "directory": "side" }));
    assert_eq!(added["state"], "done", "{added}");
    let moved = service.run("move-table", &json!({ "table": "customers", "to": "side" }));
    assert_eq!(moved["outcome"]["result"]["rows"], 5, "{moved}");
    assert_eq!(customers.all(&store.read().expect("a snapshot")).count().expect("rows"), 5);
}

#[test]
fn rows_are_loaded_with_and_without_types() {
    let dir = plain(1);
    let store = Store::open(dir.path().join("")).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let files = tempfile::tempdir().expect("a directory");
    let row = |id| serde_json::to_string(&customer(id)).expect("JSON");
    fs::write(files.path().join("two"), format!("{}\n{}\n", row(2), row(3))).expect("a file");
    fs::write(files.path().join("three"), format!("{}\n{}\n", row(3), row(4))).expect("a file");
    let count = || customers.all(&store.read().expect("a snapshot")).count().expect("rows");
    let arguments = |file: &str| json!({ "table": "customers", "file": file });
    {
        let service = Service::of(&store, |own| own.types::<(Customer,)>().files(files.path()));
        let loaded = service.run("load", &arguments("two"));
        assert_eq!(loaded["outcome"]["result"]["written"], 2, "{loaded}");
        let refused = service.run("load", &arguments("three"));
        assert_eq!((&refused["state"], count()), (&json!("failed"), 3), "{refused}");
    }
    let service = Service::of(&store, |own| own.files(files.path()));
    let mut skip = arguments("three");
    skip["on_duplicate"] = json!("skip");
    let loaded = service.run("load", &skip);
    assert_eq!(loaded["outcome"]["result"]["skipped"], 1, "{loaded}");
    assert_eq!(count(), 4);
    let verified = service.run("verify", &json!({}));
    let error = verified["outcome"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("Operations::types"), "{verified}");
    drop(service);
    let service = Service::of(&store, |own| own);
    let error = service.run("load", &skip)["outcome"]["error"].to_string();
    assert!(error.contains("Operations::files"), "{error}");
}

#[test]
fn the_page_has_the_rows_of_types_on_request_only() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    for (has_rows, status) in [(false, 404), (true, 200)] {
        let service = Service::of(&store, |own| {
            let own = own.types::<(Customer,)>();
            if has_rows { own.rows() } else { own }
        });
        let export = service.send("GET", "/admin/export/customers?form=jsonl", &[], "");
        assert_eq!(export.0, status, "{export:?}");
        assert_eq!(export.1.contains("1@example.com"), has_rows, "{export:?}");
    }
}

#[test]
fn a_cancelled_load_loads_nothing() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let files = tempfile::tempdir().expect("a directory");
    let row = |id| serde_json::to_string(&customer(id)).expect("JSON") + "\n";
    fs::write(files.path().join("rows"), (2..150_000).map(row).collect::<String>())
        .expect("a file");
    let service = Service::of(&store, |own| own.types::<(Customer,)>().files(files.path()));
    let id = service.start("load", &json!({ "table": "customers", "file": "rows" }));
    // While it reads rows.
    wait(|| Some(service.get(&format!("/{id}"))).filter(|job| !job["progress"].is_null()));
    assert_eq!(service.post(&format!("/{id}/cancel"), &json!({})).0, 200);
    let job = service.ended(&id);
    assert_eq!(
        (&job["state"], &job["outcome"]["code"]),
        (&json!("cancelled"), &json!(130)),
        "{job}"
    );
    assert_eq!(customers.all(&store.read().expect("a snapshot")).count().expect("rows"), 1);
}

/// Cancels a job in the middle of a table, and returns its error. It has ended within two seconds.
fn cancelled(service: &Service, kind: &str, arguments: &Value) -> String {
    let id = service.start(kind, arguments);
    wait(|| Some(service.get(&format!("/{id}"))).filter(|job| !job["progress"].is_null()));
    let begun = Instant::now();
    let (status, job) = service.post(&format!("/{id}/cancel"), &json!({}));
    assert_eq!(status, 200, "{job}");
    let job = service.ended(&id);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}: {job}", begun.elapsed());
    assert_eq!(
        (&job["state"], &job["outcome"]["code"]),
        (&json!("cancelled"), &json!(130)),
        "{job}"
    );
    job["outcome"]["error"].as_str().expect("an error").to_owned()
}

#[test]
fn work_on_a_table_is_cancelled_in_the_middle() {
    const ROWS: u64 = 150_000;
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    customers.bulk_load(&store, (2..=ROWS).map(customer)).run().expect("loaded");
    let service = Service::of(&store, Operations::types::<(Customer,)>);
    let error = cancelled(&service, "verify", &json!({}));
    let rows = |error: &str| -> u64 {
        let done = error.strip_prefix("cancelled: table `customers`: ").expect("the work");
        done.split(' ').next().and_then(|rows| rows.parse().ok()).expect("a number")
    };
    assert!(error.ends_with("the next verification begins again"), "{error}");
    assert!(rows(&error) < ROWS, "{error}");
    let error = cancelled(&service, "repair", &json!({}));
    assert!(error.contains("table `customers` and later ones are unchanged"), "{error}");
    for kind in ["verify", "repair"] {
        let job = service.run(kind, &json!({}));
        assert_eq!(job["outcome"]["result"]["tables"][0]["rows"], ROWS, "{job}");
        assert_eq!(job["outcome"]["result"]["tables"][0]["left"], 0, "{job}");
    }
}

#[test]
fn a_cancelled_build_is_continued() {
    const ROWS: u64 = 60_000;
    let dir = plain(1);
    {
        let store = Store::open(dir.path()).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        // Several batches.
        let long = |id| Customer { town: "x".repeat(400), ..customer(id) };
        customers.bulk_load(&store, (2..=ROWS).map(long)).run().expect("loaded");
    }
    support::open_without_indexes(dir.path());
    process::text_of(&["drop-retired"], dir.path(), &[]);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, Operations::types::<(Customer,)>);
    let error = cancelled(&service, "build", &json!({}));
    assert!(error.ends_with("batches; the same operation continues"), "{error}");
    let job = service.run("build", &json!({}));
    assert_eq!(job["state"], "done", "{job}");
    let rows = job["outcome"]["result"]["tables"][0]["rows"].as_u64().expect("a number");
    assert!((1..ROWS).contains(&rows), "{job}");
    let verified = service.run("verify", &json!({}));
    assert_eq!(verified["outcome"]["result"]["tables"][0]["left"], 0, "{verified}");
    assert!(verified["outcome"]["result"]["tables"][0]["entries"].as_u64() >= Some(ROWS));
}

#[test]
fn a_cancelled_upgrade_is_continued() {
    const ROWS: u64 = 60_000;
    let dir = tempfile::tempdir().expect("a directory");
    support::older_documents(dir.path(), ROWS, 1000);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, Operations::types::<(support::Document,)>);
    let error = cancelled(&service, "upgrade", &json!({}));
    assert!(error.contains("rows upgraded") && error.ends_with("operation continues"), "{error}");
    let upgraded = |job: &Value| job["outcome"]["result"]["tables"][0]["upgraded"].as_u64();
    let job = service.run("upgrade", &json!({}));
    assert!(upgraded(&job).is_some_and(|rows| (1..ROWS).contains(&rows)), "{job}");
    assert_eq!(upgraded(&service.run("upgrade", &json!({}))), Some(0));
}

#[test]
fn a_cancelled_backup_leaves_no_files() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    customers.bulk_load(&store, (2..100_000).map(customer)).run().expect("loaded");
    let files = tempfile::tempdir().expect("a directory");
    let service = Service::of(&store, |own| own.files(files.path()));
    let count = || fs::read_dir(files.path()).expect("a directory").count();
    for is_compact in [false, true] {
        let arguments = json!({ "to": "copy", "compact": is_compact });
        wait(|| {
            let id = service.start("backup", &arguments);
            wait(|| Some(service.get(&format!("/{id}"))).filter(|job| !job["progress"].is_null()));
            service.post(&format!("/{id}/cancel"), &json!({}));
            let job = service.ended(&id);
            if job["state"] == "done" {
                // It had ended before.
                fs::remove_dir_all(files.path().join("copy")).expect("removed");
                return None;
            }
            assert_eq!(
                (&job["state"], &job["outcome"]["code"]),
                (&json!("cancelled"), &json!(130))
            );
            let error = job["outcome"]["error"].to_string();
            assert!(error.contains("there is no copy"), "{job}");
            assert_eq!(count(), 0);
            Some(())
        });
        let job = service.run("backup", &arguments);
        assert_eq!(job["state"], "done", "{job}");
        fs::remove_dir_all(files.path().join("copy")).expect("removed");
    }
}

#[cfg(unix)]
#[test]
fn only_files_are_loaded() {
    let dir = plain(1);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let files = tempfile::tempdir().expect("a directory");
    let pipe = files.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("a process").success());
    let service = Service::of(&store, |own| own.types::<(Customer,)>().files(files.path()));
    let id = service.start("load", &json!({ "table": "customers", "file": "pipe" }));
    let job = service.ended(&id);
    assert_eq!(job["outcome"]["error"], "`pipe` is not a file", "{job}");
}

#[test]
fn the_audit_log_has_who_what_and_the_outcome() {
    let (dir, shop) = (tempfile::tempdir().expect("a directory"), Shop::new());
    let path = dir.path().join("audit.jsonl");
    let service = Service::of(&shop.store, |own| own.audit_file(&path));
    let id = shop.while_locked(|| {
        let id = service.start("move", &to_south());
        let headers = [bearer("another-one"), ("Content-Type", "application/json")];
        let (status, _) = service.send("POST", &format!("{PATH}/{id}/cancel"), &headers, "{}");
        assert_eq!(status, 200);
        id
    });
    service.ended(&id);
    let read = || -> Vec<Value> {
        let text = fs::read_to_string(&path).expect("the log");
        assert!(!text.contains(SECRET) && !text.contains("another-one"), "{text}");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let lines = wait(|| Some(read()).filter(|lines| lines.len() == 3));
    for (line, (event, by, state)) in lines.iter().zip([
        ("start", "alice", "running"),
        ("cancel", "bob", "running"),
        ("end", "alice", "cancelled"),
    ]) {
        assert_eq!(
            (&line["event"], &line["by"], &line["state"], &line["job"], &line["arguments"]),
            (&json!(event), &json!(by), &json!(state), &json!(id), &to_south()),
        );
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }
    assert!(lines[2]["error"].is_string(), "{lines:?}");
    // A job without its line does not start.
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("created");
    let (status, refused) = service.post("/move", &to_south());
    assert_eq!(status, 500, "{refused}");
    assert_eq!(service.get("")["running"], json!([]));
}

#[test]
fn the_command_speaks_to_the_service() {
    let shop = Shop::new();
    let service = shop.service();
    let local = process::typed_fails(4, &["move"], shop.dir.path(), &["orders", "..50", "south"]);
    assert!(local.contains("another process writes"), "{local}");
    let moved = service.command_text(&["move", "orders", "..50", "south"]);
    assert!(moved.starts_with("3 rows (") && moved.contains("moved in"), "{moved}");
    assert_eq!(shop.place(), "south");
    let moved = service.command_text(&["--json", "move", "orders", "..50", "north"]);
    let moved: Value = serde_json::from_str(&moved).expect("JSON");
    assert_eq!((&moved["rows"], moved["pause_seconds"].is_number()), (&json!(3), true));
    let verified = service.command_text(&["verify", "orders"]);
    assert!(verified.contains("orders"), "{verified}");

    let error = service.command_fails(3, &["move", "orders", "..50", "nowhere"]);
    assert!(error.contains("no shard `nowhere`"), "{error}");
    let error = service.command_fails(2, &["backup", "../copy"]);
    assert!(error.contains("within the directory"), "{error}");
    let error = service.command_fails(3, &["job", "7"]);
    assert!(error.contains("there is no job `7`"), "{error}");
    let error = service.command_fails(2, &["job", "../x"]);
    assert!(error.contains("is not the id of a job"), "{error}");

    let jobs = service.command_text(&["jobs"]);
    assert!(jobs.contains("move") && jobs.contains("failed") && jobs.contains("alice"), "{jobs}");
    let jobs: Value =
        serde_json::from_str(&service.command_text(&["--json", "jobs"])).expect("JSON");
    let last = jobs["ended"][0]["id"].as_str().expect("a job").to_owned();
    let shown = service.command_text(&["job", &last]);
    assert!(shown.contains("backup, failed") && shown.contains("error: "), "{shown}");
    let error = process::fails(2, &["status"], service.url().as_ref(), &[]);
    assert!(error.contains(&format!("--url {} COMMAND", service.url())), "{error}");
    let status = service.command_text(&["status"]);
    assert!(status.starts_with("healthy\n") && status.contains(&last), "{status}");

    shop.while_locked(|| {
        let id = service.start("move", &to_south());
        let error = service.command_fails(4, &["move", "orders", "..50", "south"]);
        assert!(error.contains(&format!("job `{id}` is a `move` too")), "{error}");
        service.command_text(&["cancel-job", &id]);
        assert_eq!(service.get(&format!("/{id}"))["state"], "cancelling");
    });
}

#[test]
fn the_command_needs_the_token_of_operations() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let service = Service::of(&store, |own| own);
    let call = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = process::admin();
        command.env_remove("INDEX_TABLE_OPERATIONS_TOKEN").envs(variables.iter().copied());
        let output = command.args(["--url", &service.url()]).args(arguments).output();
        let output = output.expect("a process");
        let error = String::from_utf8(output.stderr).expect("text");
        (output.status.code().expect("a code"), error)
    };
    let (code, error) = call(&[], &["jobs"]);
    assert!(code == 2 && error.contains("--token-file"), "{error}");
    let (code, error) = call(&[("INDEX_TABLE_TOKEN", SECRET)], &["jobs"]);
    assert!(code == 2 && error.contains("INDEX_TABLE_OPERATIONS_TOKEN"), "{error}");
    let (code, error) = call(&[("INDEX_TABLE_OPERATIONS_TOKEN", "wrong")], &["jobs"]);
    assert!(code == 4 && error.contains("missing or wrong"), "{error}");
    let file = dir.path().join("token");
    fs::write(&file, format!("{SECRET}\n")).expect("a file");
    let (code, error) = call(&[], &["--token-file", file.to_str().expect("text"), "jobs"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let (code, error) = call(&[], &["--token-file", "missing", "jobs"]);
    assert!(code == 2 && error.contains("`missing` has no token"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_command_leaves_its_job() {
    let shop = Shop::new();
    let service = shop.service();
    let id = shop.while_locked(|| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("index-table"));
        command.args(["--url", &service.url(), "move", "orders", "..50", "south"]);
        command.env("INDEX_TABLE_OPERATIONS_TOKEN", SECRET).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let id = wait(|| service.get("")["running"][0]["id"].as_str().map(str::to_owned));
        // The handler is installed after the response with the id.
        let error = wait(|| {
            let process = interrupted(&child);
            thread::sleep(Duration::from_millis(50));
            assert!(process, "the signal was sent");
            let ended = child.try_wait().expect("the process").is_some();
            ended.then(|| {
                let mut error = String::new();
                let mut stream = child.stderr.take().expect("a pipe");
                stream.read_to_string(&mut error).expect("text");
                error
            })
        });
        // A signal before the handler was installed ends the process without a message.
        assert!(error.is_empty() || error.contains(&format!("cancel-job {id}")), "{error}");
        id
    });
    assert_eq!(service.ended(&id)["state"], "done");
}

#[cfg(unix)]
fn interrupted(child: &Child) -> bool {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    status.is_ok_and(|status| status.success())
}

/// The variable with a store's directory, for a service in a process of its own.
const PROCESS: &str = "INDEX_TABLE_TEST_SERVICE";

/// A service in a process of its own, whose moves stop in the middle. Without the variable, it is no test.
#[test]
fn service_process() {
    let Some(dir) = std::env::var_os(PROCESS) else { return };
    let store = Store::open(Path::new(&dir)).expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let _codes = PostalCodeRepository::open(&store).expect("a table");
    let service = Service::of(&store, |own| own);
    println!("\nlistening on {}", service.address);
    wait(|| (!store.moves().expect("moves").is_empty()).then_some(()));
    let mut txn = store.write().expect("a transaction");
    orders.insert(&mut txn, &order_row(107, 99)).expect("inserted");
    // The move waits for the lock of its target.
    thread::sleep(Duration::from_mins(5));
}

#[test]
fn a_killed_service_leaves_a_move_that_resume_ends() {
    let dir = sharded();
    {
        let store = Store::open(dir.path()).expect("a store");
        let orders = OrderRepository::open(&store).expect("a table");
        let more = (1000..9000).map(|number| order_row(7, number));
        orders.bulk_load(&store, more).run().expect("a load");
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "service_process", "--nocapture"])
        .env(PROCESS, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let address = lines.find_map(|line| {
        line.expect("text").strip_prefix("listening on ").map(|it| it.parse().expect("an address"))
    });
    let headers = [bearer(SECRET), ("Content-Type", "application/json")];
    let address: SocketAddr = address.expect("an address");
    let path = format!("{PATH}/move");
    let (status, job) = send(address, "POST", &path, &headers, &to_south().to_string());
    assert_eq!(status, 202, "{job}");
    // The move is marked, and the transaction of the process locks its target.
    let moves = || process::json_of(&["moves"], dir.path(), &[])["moves"].clone();
    wait(|| moves().as_array().is_some_and(|all| !all.is_empty()).then_some(()));
    child.kill().expect("killed");
    child.wait().expect("ended");

    let shop = Shop::in_dir(dir);
    let left = shop.store.moves().expect("moves");
    assert_eq!((left.len(), shop.place().as_str()), (1, "north"));
    let service = shop.service();
    let resumed = service.command_text(&["resume-move", &left[0].id.to_string()]);
    assert!(resumed.contains("moved in"), "{resumed}");
    assert_eq!((shop.store.moves().expect("moves").len(), shop.place().as_str()), (0, "south"));
    let all = shop.orders.all(&shop.store.read().expect("a snapshot")).count().expect("rows");
    assert_eq!(all, 8006);
}

#[test]
fn a_service_that_stalls_is_unreachable_after_ten_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    // Connections are accepted by the system, and nobody answers.
    let begun = std::time::Instant::now();
    let mut command = process::admin();
    command.env("INDEX_TABLE_OPERATIONS_TOKEN", SECRET);
    let url = format!("http://{address}/admin/");
    let output = command.args(["--url", &url, "jobs"]).output().expect("a process");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("it has not answered in time"), "{error}");
    assert!((9..20).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(listener);
}
