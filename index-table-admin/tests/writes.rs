//! Writing rows of any store, without the types of a program.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path};

use index_table::{IndexTable, ShardMap, Store};
use process::{admin, copy, fails, text_of, typed_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{EventRepository, event, plain, sharded};

/// An order without totals, which need the struct.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "orders", repository = Orders, shard_by = tenant)]
#[index(total)]
#[index(code, unique, scope = "global")]
struct PlainOrder {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    total: i64,
    code: String,
}

/// Creates a store with two shards.
fn orders() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("north", ..100_u32).to("south", 100_u32..);
    let options = Store::options().shard("north", "north").shard("south", "south");
    let store = options.map("orders", map).open(dir.path()).expect("a store");
    let orders = Orders::open(&store).expect("a table");
    let order = |tenant: u32, number: u64, total: i64| {
        let code = if tenant < 100 { format!("n{number}") } else { format!("s{number}") };
        PlainOrder { tenant, number, total, code }
    };
    let written = store.transaction(|txn| {
        (1..=3_u32).try_for_each(|number| {
            orders.insert(txn, &order(7, number.into(), number.into()))?;
            orders.insert(txn, &order(107, number.into(), -i64::from(number)))
        })
    });
    written.expect("a commit");
    dir
}

fn verify_orders(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    let orders = Orders::open(&store).expect("a table");
    let report = orders.verify(&store.read().expect("a transaction")).run().expect("a report");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Creates a store with events, numbered from 1.
fn events(rows: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    events.bulk_load(&store, (1..=rows).map(event)).run().expect("a load");
    dir
}

/// Runs a command with this input, and returns its exit code, its output and its error.
fn with_input(input: &str, command: &[&str], dir: &Path, rest: &[&str]) -> (i32, String, String) {
    let output =
        admin().args(command).arg(dir).args(rest).write_stdin(input).output().expect("a process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn verify(dir: &Path) {
    typed_text(&["verify"], dir, &[]);
}

#[test]
fn a_row_is_corrected_in_all_stores() {
    let dir = orders();
    let order =
        |total: i64| json!({ "tenant": 7, "number": 2, "total": total, "code": "n2" }).to_string();
    let row = text_of(&["get"], dir.path(), &["orders", "7", "2"]);
    let own: Value = serde_json::from_str(&row).expect("JSON");
    assert_eq!(own, serde_json::from_str::<Value>(&order(2)).expect("JSON"));
    let put = |row: &str, rest: &[&str]| {
        with_input(row, &["put"], dir.path(), &[&["orders"], rest].concat())
    };
    assert_eq!(put(&order(9), &[]), (0, "written 1 row\n".into(), String::new()));
    let file = dir.path().join("row.json");
    fs::write(&file, order(-9)).expect("a file");
    assert_eq!(put("", &[file.to_str().expect("text")]).0, 0);
    verify_orders(dir.path());
    assert_eq!(text_of(&["find"], dir.path(), &["orders", "total", "--", "-9"]).lines().count(), 1);
    assert_eq!(text_of(&["find"], dir.path(), &["orders", "total", "9", "--count"]), "0\n");

    let (code, _, error) = put(&order(9), &["--new"]);
    assert!(code == 5 && error.contains("already has a row with primary key (7, 2)"), "{error}");
    let (code, _, error) = put(r#"{"tenant": 7}"#, &[]);
    assert_eq!((code, error.as_str()), (2, "error: table `orders`: it lacks the field `number`\n"));
    let (code, _, error) = put("{", &[]);
    assert!(code == 2 && error.contains("the standard input is not one row as JSON"), "{error}");
    assert_eq!(text_of(&["delete"], dir.path(), &["orders", "7", "2"]), "deleted 1 row\n");
    let error = fails(3, &["delete"], dir.path(), &["orders", "7", "2"]);
    assert!(error.contains("table `orders` has no row with the primary key 7, 2"), "{error}");
    let error = fails(3, &["delete"], dir.path(), &["order", "7", "2"]);
    assert!(error.contains("did you mean `orders`?"), "{error}");
    verify_orders(dir.path());
}

#[test]
fn a_table_that_needs_its_struct_is_refused_with_the_index() {
    let dir = plain(3);
    let row = text_of(&["get"], dir.path(), &["customers", "2"]);
    let (code, _, error) = with_input(&row, &["put"], dir.path(), &["customers"]);
    assert_eq!(code, 5);
    assert!(error.contains("of index `since_id` has the type"), "{error}");
    assert_eq!(error.matches("write it with the program that declares it").count(), 1, "{error}");
    // Totals and the copies in shards need the struct, too.
    let of_shards = sharded();
    for (table, key, reason) in [
        ("orders", &["7", "2"][..], "has totals that can't be compared with rows"),
        ("postal_codes", &["0150"], "each shard has a copy of its rows"),
    ] {
        let row = text_of(&["get"], of_shards.path(), &[&[table], key].concat());
        let (code, _, error) = with_input(&row, &["put"], of_shards.path(), &[table]);
        assert!(code == 5 && error.contains(reason), "{error}");
    }
    for (command, rest) in [("delete", &["customers", "2"][..]), ("load", &["customers"][..])] {
        let (code, _, error) = with_input(&row.replace('\n', ""), &[command], dir.path(), rest);
        assert!(code == 5 && error.contains("of index `since_id` has the type"), "{error}");
    }
    // With the types, the same row is written.
    let written = process::typed_input(&row, &["--json", "put"], dir.path(), &["customers"]);
    assert_eq!(written, json!({ "written": 1 }));
    verify(dir.path());
}

#[test]
fn rows_and_dump_are_loaded_as_the_same_rows() {
    for (dir, table, command) in [(orders(), "orders", "rows"), (events(3000), "events", "dump")] {
        let lines = text_of(&[command], dir.path(), &[table]);
        let first: Vec<&str> = lines.lines().take(2).collect();
        for line in first {
            let row: Value = serde_json::from_str(line).expect("JSON");
            let key: Vec<_> = match table {
                "orders" => vec![row["tenant"].to_string(), row["number"].to_string()],
                _ => vec![row["id"].to_string()],
            };
            let key: Vec<_> = [table].into_iter().chain(key.iter().map(String::as_str)).collect();
            text_of(&["delete"], dir.path(), &key);
        }
        let loaded = with_input(&lines, &["load"], dir.path(), &[table, "--on-duplicate", "skip"]);
        let rows = lines.lines().count();
        let report = format!("{rows} rows read, 2 written, {} skipped, 0 replaced\n", rows - 2);
        assert_eq!((loaded.0, loaded.1), (0, report), "{}", loaded.2);
        assert_eq!(text_of(&[command], dir.path(), &[table]), lines);
        if table == "orders" {
            verify_orders(dir.path());
        } else {
            verify(dir.path());
        }
        let replaced =
            with_input(&lines, &["load"], dir.path(), &[table, "--on-duplicate", "replace"]);
        let report = format!("{rows} rows read, {rows} written, 0 skipped, {rows} replaced\n");
        assert_eq!((replaced.0, replaced.1), (0, report), "{}", replaced.2);
        assert_eq!(text_of(&[command], dir.path(), &[table]), lines);
        if table == "orders" { verify_orders(dir.path()) } else { verify(dir.path()) }
    }
}

#[test]
fn a_load_ends_with_whole_batches_and_the_last_line() {
    let dir = events(1);
    let line = |id: u64, rest: &str| {
        format!("{{\"id\":{id},\"kind\":1,\"text\":\"x\",\"body\":\"\"{rest}}}\n")
    };
    let mut lines: String = (2..=1100).map(|id| line(id, "")).collect();
    lines += "\n";
    lines += &line(1101, ",\"bdoy\":1");
    let (code, _, error) = with_input(&lines, &["load"], dir.path(), &["events"]);
    assert_eq!(code, 2, "{error}");
    assert_eq!(
        error,
        "error: line 1101: table `events`: it has the unknown field `bdoy`; the rows up to line 1024 were loaded: continue with \
         `--on-duplicate skip`, or with the lines after it\n"
    );
    assert_eq!(text_of(&["rows"], dir.path(), &["events"]).lines().count(), 1025);
    let (code, _, error) = with_input(&lines, &["load"], dir.path(), &["events"]);
    assert!(code == 5 && error.starts_with("error: line 1: "), "{error}");
    assert!(
        error.contains("`--on-duplicate skip` keeps the first row")
            && error.ends_with("no row was loaded\n"),
        "{error}"
    );
    let (code, _, error) = with_input("{\n", &["load"], dir.path(), &["events"]);
    assert!(code == 2 && error.starts_with("error: line 1: "), "{error}");
    for option in ["--create", "--no-changes"] {
        let (code, _, error) = with_input("", &["load", option], dir.path(), &["events"]);
        assert!(code == 2 && error.contains("needs the type of the rows"), "{error}");
    }
    verify(dir.path());
    let other = tempfile::tempdir().expect("a directory");
    copy(dir.path(), &other.path().join("copy"));
    let (code, shown, _) =
        with_input(&line(5000, ""), &["--json", "load"], &other.path().join("copy"), &["events"]);
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((code, &report["written"]), (0, &json!(1)));
    // More empty lines than a batch has bytes are not the end.
    let lines = "\n".repeat(5 << 20) + &line(5001, "");
    let (code, shown, error) =
        with_input(&lines, &["--json", "load"], &other.path().join("copy"), &["events"]);
    let report: Value = serde_json::from_str(&shown).unwrap_or_default();
    assert_eq!((code, &report["written"]), (0, &json!(1)), "{error}");
}
