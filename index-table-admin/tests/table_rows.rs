//! Rows of any store, without the types of a program.

#[path = "support/process.rs"]
mod process;
mod support;

use index_table::Store;
use process::{fails, json_lines, text_of, typed, typed_input, typed_text};
use serde_json::{Value, json};
use support::{
    EventRepository, event,
    everything::{EverythingRepository, everything},
    plain, sharded,
};

#[test]
fn rows_are_those_of_the_types() {
    for (dir, table) in [(plain(10), "customers"), (sharded(), "orders")] {
        let whole = typed_text(&["dump"], dir.path(), &[table]);
        assert_eq!(text_of(&["dump"], dir.path(), &[table]), whole);
        assert_eq!(text_of(&["rows"], dir.path(), &[table]), whole);
        assert_eq!(text_of(&["rows"], dir.path(), &[table, "primary_key"]), whole);
    }
    let dir = plain(10);
    let same = |command: &str, rest: &[&str]| {
        let rest = [&["customers"], rest].concat();
        let own = text_of(&[command], dir.path(), &rest);
        assert_eq!(own, typed_text(&[command], dir.path(), &rest));
        own
    };
    same("get", &["7"]);
    let found = same("find", &["town", "Bergen"]);
    assert_eq!(found.lines().count(), 5);
    assert_eq!(text_of(&["rows"], dir.path(), &["customers", "town", "Bergen"]), found);
    same("find", &["town", "--starting-with", "O", "--rev", "--limit", "9"]);
    same("find", &["since_id", "--range", "2024-02-03..2024-02-05"]);
    same("find", &["kind_score", "Company", "-0.5"]);
    same("find", &["town", "--count"]);
}

#[test]
fn rows_are_printed_in_parts_and_other_forms() {
    let dir = plain(3);
    let rows = |rest: &[&str]| text_of(&["rows"], dir.path(), &[&["customers"], rest].concat());
    let columns = ["--columns", "id,town,email,none"];
    assert_eq!(
        rows(&[&columns[..], &["--format", "csv"]].concat()),
        "id,town,email,none\n1,Oslo,1@example.com,\n2,Bergen,2@example.com,\n3,Oslo,3@example.com,\n"
    );
    assert_eq!(
        rows(&["town", "Bergen", "--columns", "town,id"]),
        "{\"town\":\"Bergen\",\"id\":2}\n"
    );
    let all: Value = serde_json::from_str(&rows(&["--format", "json"])).expect("JSON");
    assert_eq!(all.as_array().map(Vec::len), Some(3));
    assert_eq!(all[1]["since"], json!("2024-02-03"));
    assert_eq!(rows(&["town", "Rome", "--format", "json"]), "[]\n");
    let header = rows(&["--format", "csv", "--limit", "1"]);
    assert!(header.starts_with("id,town,since,kind,score,email\n1,Oslo,"), "{header}");
    assert_eq!(json_lines(&["rows"], dir.path(), &["customers"]).len(), 3);

    let output = process::admin()
        .args(["--json", "rows"])
        .arg(dir.path())
        .args(["customers", "town", "--limit", "2"])
        .output()
        .expect("a process");
    let note: Value = serde_json::from_slice(&output.stderr).expect("a cursor");
    let next = note["next"].as_str().expect("a cursor");
    let rest = json_lines(&["rows"], dir.path(), &["customers", "town", "--after", next]);
    assert_eq!(rest.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [json!(3)]);
}

#[test]
fn unknown_names_are_errors_with_those_that_exist() {
    let dir = plain(1);
    let error = fails(3, &["rows"], dir.path(), &["customer"]);
    assert!(error.contains("did you mean `customers`?"), "{error}");
    let error = fails(3, &["rows"], dir.path(), &["customers", "towns"]);
    assert!(error.contains("did you mean `town`?"), "{error}");
}

/// `Everything` has fields that serde writes otherwise in text: their rows have the forms of binary formats.
#[test]
fn rows_without_types_load_as_the_same_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let store = Store::open(&from).expect("a store");
    let rows = EverythingRepository::open(&store).expect("a table");
    store
        .transaction(|txn| (0..300).try_for_each(|seed| rows.put(txn, &everything(seed))))
        .expect("a commit");
    drop((rows, store));
    let lines = text_of(&["rows"], &from, &["everything"]);
    let report = typed_input(&lines, &["--json", "load"], &to, &["everything", "--create"]);
    assert_eq!(report["read"], report["written"]);
    typed_text(&["verify"], &to, &["everything"]);
    // Stored maps are in the order of their bytes.
    assert_eq!(text_of(&["rows"], &to, &["everything"]), lines);
}

#[test]
fn entries_of_an_eventual_index_without_their_rows_are_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path()).expect("a store");
        let events = EventRepository::open(&store).expect("a table");
        events.bulk_load(&store, (1..=3).map(event)).run().expect("a load");
        // No worker deletes the entry.
        store.transaction(|txn| events.delete(txn, 2)).expect("a commit");
    }
    assert_eq!(text_of(&["find"], dir.path(), &["events", "text", "--count"]), "3\n");
    for command in ["rows", "find"] {
        let rows = text_of(&[command], dir.path(), &["events", "text"]);
        assert_eq!(rows.lines().count(), 2, "{command}: {rows}");
        let rows = text_of(&[command], dir.path(), &["events", "text", "--limit", "2"]);
        assert_eq!(rows.lines().count(), 2, "{command}: {rows}");
    }
}

#[test]
fn a_misspelt_field_is_not_lost() {
    let dir = plain(2);
    let to = tempfile::tempdir().expect("a directory");
    let lines = text_of(&["rows"], dir.path(), &["customers"]);
    let (first, second) = lines.split_once('\n').expect("two lines");
    // Without its field, a row lacks `town`, which has no default.
    for (right, wrong, named) in [("email", "emial", "emial"), ("town", "Town", "town")] {
        let second = second.replace(&format!("\"{right}\""), &format!("\"{wrong}\""));
        let input = format!("{first}\n{second}");
        let place = to.path().join(wrong);
        let output = typed(&input, &["load"], &place, &["customers", "--create"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("line 2: ") && error.contains("no row was loaded"), "{error}");
        assert!(error.contains(&format!("`{named}`")), "{error}");
    }
}
