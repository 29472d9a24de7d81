//! The tool with a store on a PostgreSQL server, which is in `INDEX_TABLE_POSTGRES_URL`; see `scripts/postgres`.
//! Without a server, the tests print that they are not run.
#![cfg(feature = "postgres")]

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    env,
    path::{Path, PathBuf},
    process::id,
};

use index_table::{__private::run_sql, Store, report::StoreSchema};
use index_table_admin::metrics;
use process::{
    fails, json_lines, json_of, text_of, typed, typed_fails, typed_input, typed_json, typed_text,
};
use serde_json::{Value, json};
use support::{Customer, CustomerRepository, customer};

/// A schema with customers, which is removed at the end.
struct Schema {
    url: String,
    name: String,
    store: Option<Store>,
}

impl Schema {
    fn new(test: &str, rows: u64) -> Option<Self> {
        let Ok(url) = env::var("INDEX_TABLE_POSTGRES_URL") else {
            eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
            return None;
        };
        let name = format!("index-table tool {test} {}", id());
        let store = Store::options().schema(&name).connect(&url).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        customers.bulk_load(&store, (1..=rows).map(customer)).run().expect("a load");
        Some(Self { url, name, store: Some(store) })
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("the store")
    }

    /// The argument of the tool.
    fn place(&self) -> PathBuf {
        place(&self.url, &self.name)
    }
}

fn place(url: &str, schema: &str) -> PathBuf {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}schema={}", schema.replace(' ', "%20")).into()
}

impl Drop for Schema {
    fn drop(&mut self) {
        let dropped = run_sql(self.store(), &format!("DROP SCHEMA \"{}\" CASCADE", self.name));
        assert!(std::thread::panicking() || dropped.is_ok(), "{dropped:?}");
    }
}

#[test]
fn a_server_is_compared_with_files() {
    let Some(schema) = Schema::new("diff", 30) else { return };
    let files = support::plain(30);
    let files = files.path().to_str().expect("text");
    let equal = text_of(&["diff"], &schema.place(), &[files]);
    assert_eq!(equal, "table `customers`: equal, 30 rows\n");
    let document = json_of(&["schema"], &schema.place(), &[]);
    assert_eq!(document["tables"][0]["stored"]["rows"], 30);
}

#[test]
fn the_password_of_a_server_is_not_shown() {
    let Some(schema) = Schema::new("password", 1) else { return };
    // The server of the tests trusts local connections, and ignores the password.
    let place = format!("{}&password=unseen", schema.place().display());
    for command in [&["recover"][..], &["--json", "recover"]] {
        let shown = text_of(command, place.as_ref(), &[]);
        assert!(shown.contains("password=***") && !shown.contains("unseen"), "{shown}");
    }
}

#[test]
fn declarations_are_checked_against_a_server() {
    let Some(schema) = Schema::new("check", 30) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("declared.json");
    let check = |declared: &StoreSchema| {
        let text = serde_json::to_string(declared).expect("JSON");
        std::fs::write(&file, text).expect("a file");
        let mut command = process::admin();
        command.args(["--json", "schema"]).arg(schema.place()).arg("--check").arg(&file);
        let output = command.arg("--rows").output().expect("a process");
        let changes: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), changes["tables"][0].clone())
    };
    let (code, same) = check(&index_table::schema::<Customer>());
    assert_eq!(
        (code, &same["built"], &same["refused"]),
        (Some(0), &json!([]), &json!(null)),
        "{same}"
    );
    // Its other fields are lost, and all of its indexes are retired.
    let (code, other) = check(&index_table::schema::<support::other::Customer>());
    assert_eq!((code, &other["rows"]), (Some(5), &json!(30)), "{other}");
    assert_eq!(other["retired"].as_array().map(Vec::len), Some(4), "{other}");
    // Nothing is written by a comparison.
    assert_eq!(json_of(&["tables"], &schema.place(), &[])["tables"][0]["rows"], 30);
    assert_eq!(check(&index_table::schema::<Customer>()).0, Some(0));
}

#[test]
fn commands_for_any_store_read_a_server() {
    let Some(schema) = Schema::new("any", 30) else { return };
    let place = schema.place();
    let tables = json_of(&["tables"], &place, &[]);
    assert_eq!(
        (&tables["tables"][0]["table"], &tables["tables"][0]["rows"]),
        (&"customers".into(), &30.into())
    );
    let indexes = json_of(&["indexes"], &place, &["customers"]);
    assert_eq!(indexes["indexes"][0]["entries"], 30);
    let sizes = json_of(&["sizes"], &place, &[]);
    assert!(sizes["bytes"].as_u64() > Some(8192), "{sizes}");
    let keys = json_lines(
        &["keys"],
        &place,
        &["customers", "since_id", "--from", "2024-03-01", "--limit", "1"],
    );
    assert_eq!(keys[0]["key"]["since"], "2024-03-01");
    let keys = json_lines(&["keys"], &place, &["customers", "--rev", "--limit", "2"]);
    assert_eq!(
        (&keys[0]["primary_key"]["id"], &keys[1]["primary_key"]["id"]),
        (&30.into(), &29.into())
    );
    let town = json_of(&["analyze"], &place, &[])["tables"][0]["indexes"][0].clone();
    assert_eq!(town["keys"][0]["distinct"], 2);
    for command in ["advice", "catalog", "consumers", "lag"] {
        text_of(&[command], &place, &[]);
    }
    for command in ["shards", "ranges", "moves"] {
        assert!(fails(3, &[command], &place, &[]).contains("the store has no shards"));
    }
    for (command, hint) in [("check", "amcheck"), ("readers", "pg_stat_activity")] {
        let error = fails(5, &[command], &place, &[]);
        assert!(error.contains(hint), "{error}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    let error = fails(5, &["backup"], &place, &[copy.to_str().expect("text")]);
    assert!(error.contains("the server's backups") && !copy.exists(), "{error}");
}

#[test]
fn commands_with_types_read_and_write_a_server() {
    let Some(schema) = Schema::new("types", 30) else { return };
    let place = schema.place();
    assert_eq!(typed_json(&["get"], &place, &["customers", "1"])["since"], "2024-02-02");
    let page = typed_json(&["find"], &place, &["customers", "town", "Oslo", "--limit", "2"]);
    let next = page["next"].as_str().expect("a cursor");
    let page = typed_json(
        &["find"],
        &place,
        &["customers", "town", "Oslo", "--after", next, "--limit", "1"],
    );
    assert_eq!(page["items"][0]["id"], 5);
    assert_eq!(
        typed_json(&["find"], &place, &["customers", "town", "Oslo", "--count"])["count"],
        15
    );
    typed_text(&["delete"], &place, &["customers", "1"]);
    assert!(typed_fails(3, &["get"], &place, &["customers", "1"]).contains("no row"));

    // A wrong entry is found and corrected.
    let sql = format!(
        "DELETE FROM \"{}\".\"customers.town\" WHERE p < '\\x0000000000000003'",
        schema.name
    );
    run_sql(schema.store(), &sql).expect("deleted");
    assert!(typed_fails(1, &["verify"], &place, &[]).contains("`repair` corrects them"));
    typed_text(&["repair"], &place, &[]);
    typed_text(&["verify"], &place, &[]);
    typed_text(&["build"], &place, &[]);
    typed_text(&["upgrade"], &place, &[]);
    typed_text(&["expire"], &place, &[]);
    text_of(&["drop-retired"], &place, &[]);
    let error = typed_fails(3, &["move"], &place, &["orders", "1..", "south"]);
    assert!(error.contains("a store on a server has one shard, `main`"), "{error}");
}

#[test]
fn a_dump_moves_a_store_to_a_server_and_back() {
    let Some(schema) = Schema::new("dump", 300) else { return };
    let dump = typed_text(&["dump"], &schema.place(), &["customers"]);
    assert_eq!(dump.lines().count(), 300);
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    typed_input(&dump, &["--json", "load"], &store, &["customers", "--create"]);
    assert_eq!(typed_text(&["dump"], &store, &["customers"]), dump);

    let other = format!("{} again", schema.name);
    let there = place(&schema.url, &other);
    let error = typed("", &["load"], &there, &["customers"]);
    assert_eq!(error.status.code(), Some(3), "without `--create`, no schema is created");
    assert!(String::from_utf8_lossy(&error.stderr).contains("there is no store"));
    let report = typed_input(&dump, &["--json", "load"], &there, &["customers", "--create"]);
    assert_eq!(report["written"], 300);
    assert_eq!(typed_text(&["dump"], &there, &["customers"]), dump);
    typed_text(&["verify"], &there, &["customers"]);
    run_sql(schema.store(), &format!("DROP SCHEMA \"{other}\" CASCADE")).expect("dropped");
}

#[test]
fn a_wrong_url_is_an_error_without_the_password() {
    if env::var("INDEX_TABLE_POSTGRES_URL").is_err() {
        return;
    }
    let nobody = Path::new("postgresql://app:secret@127.0.0.1:1/app");
    let error = fails(4, &["tables"], nobody, &[]);
    assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    fails(5, &["tables"], Path::new("postgresql://app@127.0.0.1:x/app"), &[]);
    let url = env::var("INDEX_TABLE_POSTGRES_URL").expect("the URL");
    let error = fails(3, &["tables"], &place(&url, "typo"), &[]);
    assert!(error.contains("there is no store at") && error.contains("typo"), "{error}");
    fails(3, &["drop-retired"], &place(&url, "typo"), &[]);
    fails(3, &["tables"], &place(&url, "typo"), &[]);
}

#[test]
fn connections_statements_and_conflicts_are_metrics() {
    let Some(schema) = Schema::new("metrics", 3) else { return };
    let options = Store::options().schema(&schema.name).connections(2);
    let store = options.retry_for(std::time::Duration::from_mins(1)).connect(&schema.url);
    let store = store.expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let value = |name: &str| -> f64 {
        let text = metrics(&store);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().expect("a number")
    };
    assert_eq!(value("index_table_server_connections_limit").to_string(), "2");
    let reads = [store.read(), store.read()].map(|read| read.expect("a read"));
    for txn in &reads {
        customers.get(txn, 1).expect("a look-up");
    }
    let usage = || store.server_usage().expect("a server");
    assert_eq!((usage().connections, usage().connections_in_use), (2, 2));
    assert_eq!((usage().waiting, usage().waits), (0, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| store.transaction(|txn| customers.put(txn, &customer(9))).expect("a put"));
        while usage().waiting == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(reads);
    });
    assert_eq!(usage().waiting, 0);
    assert_eq!(value("index_table_server_connection_waits_total").to_string(), "1");
    let waited = value("index_table_server_connection_wait_seconds_total");
    assert!((0.02..60.0).contains(&waited), "{waited}");
    assert_eq!(value("index_table_server_connections_in_use").to_string(), "0");

    let before = usage();
    customers.get(&store.read().expect("a read"), 1).expect("a look-up");
    // The look-up, and the end of the transaction.
    assert_eq!(usage().statements - before.statements, 3);
    assert_eq!((before.conflicts, before.retries, before.unknown_commits), (0, 0, 0));
    let of_other = CustomerRepository::open(schema.store()).expect("a table");
    let mut runs = 0;
    let changed = store.transaction(|txn| {
        runs += 1;
        let mut row = customers.get(txn, 1)?.unwrap_or_else(|| customer(1));
        if runs == 1 {
            std::thread::scope(|scope| {
                let put = || schema.store().transaction(|txn| of_other.delete(txn, 1));
                scope.spawn(put).join().expect("a thread")
            })?;
        }
        row.town = "changed".to_owned();
        customers.put(txn, &row).map(drop)
    });
    changed.expect("a change");
    assert_eq!(runs, 2);
    let text = metrics(&store);
    for line in [
        "index_table_server_conflicts_total 1",
        "index_table_server_retries_total 1",
        "index_table_server_unknown_commits_total 0",
        "index_table_server_table_conflicts_total{table=\"customers\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
