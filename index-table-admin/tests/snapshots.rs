//! The output of each command, on a plain and on a sharded store, as text and as JSON.
//!
//! To update the snapshots after a change: `INSTA_UPDATE=always cargo test -p index-table-admin --test snapshots`.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fmt::Write as _, path::Path, process::Output};

use index_table::Store;
use process::{admin, typed};
use support::{plain, sharded};

/// Shows a command with everything that it writes. `dir` is shown as `STORE`.
fn shown(dir: &Path, command: &[&str], rest: &[&str], output: &Output) -> String {
    let mut shown = format!("$ {} STORE {}\n", command.join(" "), rest.join(" "));
    shown = shown.replace(" \n", "\n");
    for (stream, bytes) in [("", &output.stdout), ("2> ", &output.stderr)] {
        for line in String::from_utf8_lossy(bytes).lines() {
            let _ = writeln!(shown, "{stream}{}", line.trim_end());
        }
    }
    if let Some(code @ 1..) = output.status.code() {
        let _ = writeln!(shown, "exit code {code}");
    }
    let dir = dir.to_str().expect("text");
    // A sharded store has canonical paths.
    let canonical = std::fs::canonicalize(dir).expect("a path");
    shown.replace(canonical.to_str().expect("text"), "STORE").replace(dir, "STORE") + "\n"
}

#[expect(clippy::needless_pass_by_value, reason = "the calls are shorter")]
fn snapshot(name: &str, shown: String) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, shown));
}

/// Runs commands for any store, as text and as JSON.
fn any(dir: &Path, commands: &[(&[&str], &[&str])]) -> String {
    let mut all = String::new();
    for (command, rest) in commands {
        for json in [&[][..], &["--json"]] {
            let command = [json, command].concat();
            let output = admin().args(&command).arg(dir).args(*rest).output().expect("a process");
            all += &shown(dir, &command, rest, &output);
        }
    }
    all
}

/// Runs commands with types, as text and as JSON.
fn with_types(dir: &Path, commands: &[(&[&str], &[&str])]) -> String {
    let mut all = String::new();
    for (command, rest) in commands {
        for json in [&[][..], &["--json"]] {
            let command = [json, command].concat();
            all += &shown(dir, &command, rest, &typed("", &command, dir, rest));
        }
    }
    all
}

#[test]
fn commands_for_a_plain_store() {
    let dir = plain(3);
    snapshot(
        "plain",
        any(
            dir.path(),
            &[
                (&["tables"], &[]),
                (&["indexes"], &[]),
                (&["sizes"], &[]),
                (&["keys"], &["customers"]),
                (&["keys"], &["customers", "kind_score", "--rev", "--limit", "2"]),
                (&["analyze"], &[]),
                (&["advice"], &[]),
                (&["check"], &[]),
                (&["readers"], &[]),
                (&["catalog"], &[]),
                (&["drop-retired"], &[]),
                (&["recover"], &[]),
                (&["consumers"], &[]),
                (&["lag"], &[]),
                (&["moves"], &[]),
                (&["shards"], &[]),
                (&["ranges"], &[]),
            ],
        ),
    );
}

#[test]
fn commands_for_a_sharded_store() {
    let dir = sharded();
    snapshot(
        "sharded",
        any(
            dir.path(),
            &[
                (&["tables"], &[]),
                (&["indexes"], &[]),
                (&["sizes"], &[]),
                (&["keys"], &["orders", "code", "--limit", "2"]),
                (&["check"], &[]),
                (&["shards"], &[]),
                (&["ranges"], &[]),
                (&["moves"], &[]),
            ],
        ),
    );
}

#[test]
fn commands_with_types_print_the_snapshots() {
    let dir = plain(3);
    snapshot(
        "types",
        with_types(
            dir.path(),
            &[
                (&["get"], &["customers", "1"]),
                (&["find"], &["customers", "town", "Oslo", "--limit", "1"]),
                (&["find"], &["customers", "town", "Oslo", "--count"]),
                (&["dump"], &["customers"]),
                (&["verify"], &[]),
                (&["repair"], &[]),
                (&["build"], &[]),
                (&["upgrade"], &[]),
                (&["expire"], &[]),
                (&["delete"], &["customers", "1"]),
            ],
        ),
    );
}

#[test]
fn errors_say_what_to_do() {
    let dir = plain(3);
    let path = dir.path();
    let mut all = any(
        path,
        &[
            (&["keys"], &["custmers"]),
            (&["keys"], &["customers", "twon"]),
            (&["keys"], &["customers", "kind_score", "--from", "Firm"]),
            (&["keys"], &["customers", "since_id", "--from", "2024-02-30"]),
            (&["keys"], &["customers", "--from", "-1"]),
            (&["indexes"], &["orders"]),
            (&["restore"], &["STORE/copy", "--until", "2024-02-29T12:30:00Z"]),
            (&["usage"], &[]),
            (&["table"], &[]),
            (&["keys"], &[]),
        ],
    );
    all += &with_types(
        path,
        &[
            (&["get"], &["customers", "seven"]),
            (&["get"], &["customers", "7"]),
            (&["get"], &["orders", "7", "1"]),
            (&["find"], &["customers", "emial", "1@example.com"]),
            (&["find"], &["customers", "town", "--range", "Bergen"]),
            (&["find"], &["customers", "since_id", "--starting-with", "2024"]),
            (&["delete"], &["customers", "7"]),
            (&["load"], &["customers", "missing.jsonl"]),
            (&["move"], &["orders", "..50", "south"]),
        ],
    );
    std::fs::create_dir(path.join("empty")).expect("a directory");
    for wrong in ["data.mdb", "empty", "typo"] {
        let output = admin().arg("tables").arg(path.join(wrong)).output().expect("a process");
        all += &shown(path, &["tables"], &[wrong], &output);
    }
    snapshot("errors", all);
}

#[test]
fn keys_are_moved_split_and_balanced() {
    let dir = sharded();
    snapshot(
        "moves",
        with_types(
            dir.path(),
            &[
                (&["rebalance"], &["orders", "--onto", "south", "--dry-run"]),
                (&["move"], &["order", "..50", "south"]),
                (&["move"], &["orders", "..50", "souht"]),
                (&["move"], &["orders", "50..50", "south"]),
                (&["move"], &["orders", "fifty..", "south"]),
                (&["split"], &["orders", "x", "south"]),
                (&["resume-move"], &["7"]),
                (&["cancel-move"], &["7"]),
            ],
        ),
    );
    let moved = process::typed_json(&["move"], dir.path(), &["orders", "5..8", "south"]);
    assert_eq!(moved["rows"], 3);
    let moved = process::typed_json(&["split"], dir.path(), &["orders", "105", "north"]);
    assert_eq!(moved["rows"], 3);
    let ranges = || {
        let ranges = process::json_of(&["ranges"], dir.path(), &["orders"])["ranges"].clone();
        let ranges = ranges.as_array().expect("a list").iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
        ranges
            .map(|it| format!("{}.. {}", text(&it["from"]), text(&it["shard"])))
            .collect::<Vec<_>>()
    };
    assert_eq!(ranges(), [".. north", "5.. south", "8.. north", "100.. south", "105.. north"]);
    process::typed_text(&["move"], dir.path(), &["orders", "7", "north"]);
    assert_eq!(ranges(), [".. north", "5.. south", "7.. north", "100.. south", "105.. north"]);
    let balanced = process::typed_json(&["rebalance"], dir.path(), &["orders", "--onto", "south"]);
    assert_eq!(balanced["moved_rows"], 6, "{balanced}");
    let store = Store::open(dir.path()).expect("a store");
    let orders = support::OrderRepository::open(&store).expect("a table");
    let txn = store.read().expect("a transaction");
    assert_eq!(orders.all(&txn).count().expect("a count"), 6);
    assert!(orders.verify(&txn).run().expect("a report").is_clean());
}

#[test]
fn the_help_lists_all_commands() {
    let output = admin().arg("--help").env("COLUMNS", "100").output().expect("a process");
    let mut all = String::from_utf8(output.stdout).expect("text");
    let help = typed("", &["--help"], Path::new("--json"), &[]);
    let help = String::from_utf8(help.stdout).expect("text");
    all += &help[help.find("Commands:").expect("the commands")..];
    let lines: Vec<_> = all.lines().map(str::trim_end).collect();
    snapshot("help", lines.join("\n"));
}
