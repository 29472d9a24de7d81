//! The limits of a dump: it ends with a cursor, and the next call continues.
#![cfg(unix)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use index_table::Store;
use process::{example, typed, typed_fails, typed_text};
use support::{CustomerRepository, customer, plain, sharded};

/// Returns the exit code, the lines and the errors of a dump.
fn dump(dir: &Path, rest: &[&str]) -> (Option<i32>, String, String) {
    let output = typed("", &["dump"], dir, rest);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the cursor in an error or a note.
fn cursor(error: &str) -> Option<String> {
    let (_, cursor) = error.split_once("`--after ")?;
    Some(cursor.split('`').next().unwrap_or_default().to_owned())
}

#[test]
fn parts_of_limited_length_are_together_the_whole_dump() {
    for (dir, table) in [(plain(10), "customers"), (sharded(), "orders")] {
        let whole = typed_text(&["dump"], dir.path(), &[table]);
        for limit in ["1", "3", "5"] {
            let (mut all, mut after) = (String::new(), None);
            loop {
                let mut rest = vec![table, "--limit", limit];
                rest.extend(after.iter().flat_map(|after: &String| ["--after", after]));
                let (code, lines, note) = dump(dir.path(), &rest);
                assert_eq!(code, Some(0), "{note}");
                assert!(lines.lines().count() <= limit.parse().expect("a number"), "{lines}");
                all += &lines;
                after = cursor(&note);
                if after.is_none() {
                    assert_eq!(note, "");
                    break;
                }
            }
            assert_eq!(all, whole, "{table}, {limit}");
        }
    }
    let dir = plain(10);
    let output = typed("", &["--json", "dump"], dir.path(), &["customers", "--limit", "4"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "{\"next\":\"0x0000000000000004\"}\n");
    let error = typed_fails(2, &["dump"], dir.path(), &["customers", "--after", "four"]);
    assert!(error.contains("`four` is not a cursor"), "{error}");
}

#[test]
fn a_dump_ends_after_its_time_and_is_continued() {
    let dir = plain(5);
    let whole = typed_text(&["dump"], dir.path(), &["customers"]);
    let (mut all, mut after, mut calls) = (String::new(), None, 0);
    loop {
        let mut rest = vec!["customers", "--time-limit", "0"];
        rest.extend(after.iter().flat_map(|after: &String| ["--after", after]));
        let (code, lines, error) = dump(dir.path(), &rest);
        all += &lines;
        calls += 1;
        if code == Some(0) {
            break;
        }
        assert_eq!((code, lines.lines().count()), (Some(6), 1), "each call makes progress");
        assert!(error.contains("rows are left after the time limit"), "{error}");
        after = Some(cursor(&error).expect("a cursor"));
    }
    assert_eq!((all, calls), (whole.clone(), 5));
    let (code, lines, error) = dump(dir.path(), &["customers", "--time-limit", "600"]);
    assert_eq!((code, lines, error), (Some(0), whole, String::new()));
}

#[test]
fn with_json_the_error_of_the_time_limit_has_the_cursor_as_a_field() {
    let dir = plain(3);
    let rest = ["customers", "--time-limit", "0"];
    let error = typed_fails(6, &["--json", "dump"], dir.path(), &rest);
    let error: serde_json::Value = serde_json::from_str(&error).expect("JSON");
    assert_eq!((&error["code"], &error["next"]), (&6.into(), &"0x0000000000000001".into()));
    let rest = ["customers", "--after", error["next"].as_str().expect("text")];
    assert_eq!(typed_text(&["dump"], dir.path(), &rest).lines().count(), 2);
    // Other errors have no such field.
    let error = typed_fails(3, &["--json", "dump"], dir.path(), &["custmers"]);
    assert!(!error.contains("next"), "{error}");
}

/// Starts a dump whose output is not read yet.
fn start(dir: &Path, rest: &[&str]) -> Child {
    let mut command = Command::new(example("rows"));
    command.arg("dump").arg(dir).arg("customers").args(rest);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

fn error_of(child: &mut Child) -> String {
    let mut error = String::new();
    child.stderr.take().expect("a stream").read_to_string(&mut error).expect("text");
    error
}

/// Creates a store whose dump is longer than a pipe.
fn long() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let table = CustomerRepository::open(&store).expect("a table");
    table.bulk_load(&store, (1..=30_000).map(customer)).run().expect("a load");
    dir
}

fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("the command kill").success());
}

#[test]
fn an_interrupted_dump_ends_at_a_row_and_is_continued() {
    let dir = long();
    let mut child = start(dir.path(), &[]);
    let mut lines = BufReader::new(child.stdout.take().expect("a stream"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    interrupt(&child);
    let mut begun = String::new();
    lines.read_to_string(&mut begun).expect("text");
    let code = child.wait().expect("the end").code();
    let error = error_of(&mut child);
    assert_eq!(code, Some(130), "{error}");
    let after = cursor(&error).expect("a cursor");
    let (code, rest, _) = dump(dir.path(), &["customers", "--after", &after]);
    assert_eq!(code, Some(0));
    assert!(!rest.is_empty(), "it had ended before the signal");
    assert!(first + &begun + &rest == typed_text(&["dump"], dir.path(), &["customers"]));
}

#[test]
fn interrupted_rows_end_with_the_exit_code_of_a_dump() {
    let dir = long();
    for index in ["primary_key", "town"] {
        let mut command = Command::new(example("rows"));
        command.arg("rows").arg(dir.path()).args(["customers", index]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("a stream"));
        let mut begun = String::new();
        lines.read_line(&mut begun).expect("a line");
        interrupt(&child);
        lines.read_to_string(&mut begun).expect("text");
        let code = child.wait().expect("the end").code();
        let error = error_of(&mut child);
        assert_eq!(code, Some(130), "{error}");
        let after = cursor(&error).expect("a cursor");
        let rest = ["customers", index, "--after", &after];
        let rest = typed_text(&["rows"], dir.path(), &rest);
        assert_eq!(begun + &rest, typed_text(&["rows"], dir.path(), &["customers", index]));
    }
}

#[test]
fn a_dump_whose_output_is_not_read_ends() {
    let dir = long();
    let begun = Instant::now();
    let mut limited = start(dir.path(), &["--time-limit", "1"]);
    let mut interrupted = start(dir.path(), &[]);
    // The first line shows that the process is running. Nothing else is read.
    let output = interrupted.stdout.take().expect("a stream");
    let mut lines = BufReader::with_capacity(1, output);
    lines.read_line(&mut String::new()).expect("a line");
    for (child, code) in [(&mut limited, 6), (&mut interrupted, 130)] {
        if code == 130 {
            // The other dump took seconds, in which this dump has filled its pipe.
            interrupt(child);
        }
        let status = child.wait().expect("the end");
        let error = error_of(child);
        assert_eq!(status.code(), Some(code), "{error}");
        assert!(error.contains("the reader of the output reads nothing"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_mins(1));
}
