//! The tool in a terminal, which is the command `script` of Linux: widths, colours and progress bars.
#![cfg(target_os = "linux")]

#[path = "support/process.rs"]
mod process;
mod support;

use std::{path::Path, process::Command};

use process::example;
use support::{CustomerRepository, customer};

/// Runs the tool in a terminal. Returns all that it writes; `None` without the command `script`.
fn in_terminal(environment: &[(&str, &str)], arguments: &[&str]) -> Option<String> {
    let program = example("rows");
    let line: Vec<_> = [program.to_str().expect("text")]
        .iter()
        .chain(arguments)
        .map(|word| format!("'{word}'"))
        .collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    script.env_remove("NO_COLOR").env("TERM", "xterm").env("COLUMNS", "200");
    let Ok(output) = script.envs(environment.iter().copied()).output() else {
        eprintln!("not run: there is no command `script`");
        return None;
    };
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{arguments:?}: {shown}");
    Some(shown)
}

/// Checks the lines, and the lines of a bar, which replace each other. A path or a cursor may be longer.
fn assert_fits(shown: &str, columns: usize) {
    for line in shown.split(['\n', '\r']) {
        let mut parts = line.split("\u{1b}[");
        let first = parts.next().unwrap_or_default().to_owned();
        let visible = parts.fold(first, |visible, part| {
            let end = part.find(|it: char| it.is_ascii_alphabetic()).expect("the end of a code");
            visible + &part[end + 1..]
        });
        let visible = visible.trim();
        let fits = visible.chars().count() <= columns || !visible.contains(' ');
        assert!(fits, "{columns}: {visible}\n{shown}");
    }
}

/// Runs the tool without colours in a terminal with this number of columns.
fn in_terminal_of(columns: usize, arguments: &[&str]) -> Option<String> {
    let shown = outcome_in_terminal_of(columns, arguments)?;
    Some(shown.unwrap_or_else(|shown| panic!("{arguments:?}: {shown}")))
}

/// Returns an error if the tool fails.
fn outcome_in_terminal_of(columns: usize, arguments: &[&str]) -> Option<Result<String, String>> {
    let program = example("rows");
    let line = [&[program.to_str().expect("text")], arguments].concat().join(" ");
    let line = format!("stty rows 24 cols {columns}; NO_COLOR=1 {line}");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let Ok(output) = script.env("TERM", "xterm").env_remove("COLUMNS").output() else {
        eprintln!("not run: there is no command `script`");
        return None;
    };
    let shown = String::from_utf8(output.stdout).expect("text");
    Some(if output.status.success() { Ok(shown) } else { Err(shown) })
}

fn store(dir: &Path, rows: u64) {
    let store = index_table::Store::open(dir).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    customers.bulk_load(&store, (1..=rows).map(customer)).run().expect("a load");
}

#[test]
fn headings_have_colours_that_can_be_switched_off() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), 3);
    let path = dir.path().to_str().expect("text");
    let Some(shown) = in_terminal(&[], &["tables", path]) else { return };
    assert!(shown.contains("\u{1b}[1mtable"), "{shown:?}");
    for (environment, arguments) in [
        (&[("NO_COLOR", "1")][..], &["tables", path][..]),
        (&[], &["--color", "never", "tables", path]),
        (&[], &["tables", path, "--color", "never"]),
        (&[], &["--json", "tables", path]),
    ] {
        let shown = in_terminal(environment, arguments).expect("a terminal");
        assert!(!shown.contains('\u{1b}'), "{arguments:?}: {shown:?}");
    }
}

#[test]
fn tables_fit_the_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), 3);
    let shards = support::sharded();
    let (plain, sharded) =
        (dir.path().to_str().expect("text"), shards.path().to_str().expect("text"));
    let tables: [(&[&str], &str); 12] = [
        (&["tables", plain], "readable"),
        (&["indexes", plain], "readable"),
        (&["sizes", plain], "kind_sco"),
        (&["keys", plain, "customers", "kind_score"], "Company"),
        (&["keys", plain, "customers"], "id"),
        (&["analyze", plain], "Private"),
        (&["readers", plain], "process"),
        (&["consumers", plain], "table"),
        (&["lag", plain], "table"),
        (&["shards", sharded], "south"),
        (&["ranges", sharded], "south"),
        (&["find", plain, "customers", "town", "Bergen", "--count"], "1"),
    ];
    for columns in [40, 80] {
        for (arguments, part) in tables {
            let Some(shown) = in_terminal_of(columns, arguments) else { return };
            assert!(shown.contains(part), "{arguments:?}: {shown}");
            assert_fits(&shown, columns);
        }
        let shown = in_terminal_of(columns, &["catalog", plain]).expect("a terminal");
        assert!(shown.contains("kind_score") && shown.contains("readable"), "{shown}");
        assert_fits(&shown, columns);
    }
    let environment = [("COLUMNS", "72"), ("NO_COLOR", "1")];
    let shown = in_terminal(&environment, &["keys", plain, "customers", "kind_score"]);
    assert!(shown.expect("a terminal").lines().all(|line| line.trim_end().chars().count() <= 72));
}

#[test]
fn prose_rows_and_errors_fit_the_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), 3);
    let path = dir.path().to_str().expect("text");
    for columns in [36, 40, 60, 80] {
        for (arguments, part) in [
            (&["check", path][..], "are intact"),
            (&["find", path, "customers", "town", "Oslo", "--limit", "1"], "rows follow:"),
            (&["get", path, "customers", "1"], "\"email\": \"1@example.com\""),
            (&["verify", path], "3 rows"),
            (&["drop-retired", path], "no index"),
        ] {
            let Some(shown) = in_terminal_of(columns, arguments) else { return };
            assert!(shown.replace("\r\n  ", " ").contains(part), "{arguments:?}: {shown}");
            assert_fits(&shown, columns);
        }
        let error = outcome_in_terminal_of(columns, &["keys", path, "customers", "twon"]);
        let error = error.expect("a terminal").expect_err("a failure");
        assert!(error.replace("\r\n  ", " ").contains("did you mean `town`?"), "{error}");
        assert_fits(&error, columns);
    }
    // A wide row has a line for each field only in a terminal.
    let find = ["find", path, "customers", "town", "Oslo"];
    let shown = in_terminal_of(80, &find).expect("a terminal");
    assert!(shown.contains("  \"kind\": \"Company\",\r\n"), "{shown}");
    let output = Command::new(example("rows")).args(find).env("COLUMNS", "40").output();
    let lines = String::from_utf8(output.expect("a process").stdout).expect("text");
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn a_terminal_gets_a_part_of_many_rows_and_no_control_characters() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), 130);
    let path = dir.path().to_str().expect("text");
    for (arguments, lines, what) in [
        (&["keys", path, "customers"][..], 101, "keys"),
        (&["find", path, "customers", "town"], 20, "rows"),
    ] {
        let Some(shown) = in_terminal_of(200, arguments) else { return };
        let note = format!("more {what} follow: `--after 0x");
        assert!(shown.contains(&note), "{shown}");
        let lines_of_rows = shown.split("note:").next().unwrap_or_default().lines().count();
        assert_eq!(lines_of_rows, lines, "{shown}");
    }
    {
        let store = index_table::Store::open(dir.path()).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        let own = support::Customer { town: "a\u{9b}b".to_owned(), ..customer(1000) };
        store.transaction(|txn| customers.insert(txn, &own)).expect("a commit");
    }
    let csv = ["rows", path, "customers", "primary_key", "1000", "--format", "csv"];
    let shown = in_terminal_of(200, &csv).expect("a terminal");
    assert!(shown.contains("a\\u{9b}b"), "{shown}");
    let output = Command::new(example("rows")).args(csv).output().expect("a process");
    let exact = String::from_utf8(output.stdout).expect("text");
    assert!(exact.contains("a\u{9b}b"), "a file has the value itself: {exact}");
}

#[test]
fn long_work_shows_its_rate_and_the_remaining_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (store_path, copy, lines) = (path("store"), path("copy"), path("rows.jsonl"));
    store(Path::new(&store_path), 30_000);
    let dump = format!("dump {store_path} customers > {lines}");
    let program = example("rows");
    let status = Command::new("sh").arg("-c").arg(format!("{} {dump}", program.display())).status();
    assert!(status.expect("a process").success());
    support::open_without_indexes(Path::new(&store_path));
    support::declare_another_index(Path::new(&store_path));
    let sessions = path("sessions");
    support::sessions(Path::new(&sessions), 10_000, 3);
    let long: [&[&str]; 8] = [
        &["expire", &sessions],
        &["backup", &store_path, &copy],
        &["build", &store_path, "customers"],
        &["check", &store_path],
        &["verify", &store_path, "customers"],
        &["repair", &store_path, "customers"],
        &["analyze", &store_path],
        &["load", &store_path, "customers", &lines, "--on-duplicate", "replace"],
    ];
    for arguments in long {
        let Some(shown) = in_terminal(&[], arguments) else { return };
        assert_fits(&shown, 200);
        assert!(shown.contains("/s"), "{arguments:?} shows no rate: {shown:?}");
        assert!(shown.contains(" left"), "{arguments:?} shows no remaining time: {shown:?}");
        if arguments[0] == "load" {
            // Reading comes first, with the bytes of the file.
            assert!(shown.contains("iB of "), "{shown:?}");
        }
        // Without a terminal, there is none.
        if arguments[0] == "check" || arguments[0] == "analyze" {
            let output = Command::new(&program).args(arguments).output().expect("a process");
            assert!(output.stderr.is_empty(), "{arguments:?}");
        }
    }
}
