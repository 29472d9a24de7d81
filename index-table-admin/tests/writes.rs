//! Writing rows of any store, without the types of a program.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path};

use index_table::Store;
use process::{admin, copy, fails, text_of, typed_text};
use serde_json::{Value, json};
use support::{EventRepository, event, plain, sharded};

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
    let dir = sharded();
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
    verify(dir.path());
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
    verify(dir.path());
}

#[test]
fn a_table_that_needs_its_struct_is_refused_with_the_index() {
    let dir = plain(3);
    let row = text_of(&["get"], dir.path(), &["customers", "2"]);
    let (code, _, error) = with_input(&row, &["put"], dir.path(), &["customers"]);
    assert_eq!(code, 5);
    assert!(error.contains("of index `since_id` has the type"), "{error}");
    assert!(
        error.contains("the command of a program with your types writes all tables"),
        "{error}"
    );
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
    for (dir, table, command) in [(sharded(), "orders", "rows"), (events(3000), "events", "dump")] {
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
        verify(dir.path());
        let replaced =
            with_input(&lines, &["load"], dir.path(), &[table, "--on-duplicate", "replace"]);
        let report = format!("{rows} rows read, {rows} written, 0 skipped, {rows} replaced\n");
        assert_eq!((replaced.0, replaced.1), (0, report), "{}", replaced.2);
        assert_eq!(text_of(&[command], dir.path(), &[table]), lines);
        verify(dir.path());
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
}
