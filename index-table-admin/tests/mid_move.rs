//! Commands on a sharded store in the middle of a move: each row is shown once, and the move can be finished or undone.

#[path = "support/process.rs"]
mod process;
mod support;

use std::path::Path;

use index_table::Store;
use process::{copy, json_lines, json_of, text_of, typed_fails, typed_json, typed_text};
use support::sharded;
use tempfile::TempDir;

/// Copies of a store after each step of a move of all three orders in `north` to `south`.
fn steps() -> (TempDir, usize) {
    let (dir, copies) = (sharded(), tempfile::tempdir().expect("a directory"));
    let store = Store::open(dir.path()).expect("a store");
    let _orders = support::OrderRepository::open(&store).expect("a table");
    let mut count = 0;
    let moving = store.move_range("orders", ..50u32, "south").progress(|_| {
        copy(dir.path(), &copies.path().join(count.to_string()));
        count += 1;
    });
    assert_eq!(moving.run().expect("a move").rows, 3);
    for copy in 0..count {
        // As after a crash, the next writer replays the journal.
        drop(Store::open(copies.path().join(copy.to_string())).expect("a store"));
    }
    (copies, count)
}

/// Returns the unfinished move, and whether the target has the keys.
fn unfinished(dir: &Path) -> Option<(String, bool)> {
    let moves = json_of(&["moves"], dir, &[])["moves"].clone();
    let own = moves.as_array().expect("a list").first()?;
    Some((
        own["move"].as_str().expect("exact in all programs").to_owned(),
        own["state"] == "cleaning up",
    ))
}

/// Checks that each order is shown once.
fn check_rows(dir: &Path) {
    let numbers = |rows: Vec<serde_json::Value>| -> Vec<(u64, u64)> {
        let key = |row: &serde_json::Value, name: &str| {
            row["primary_key"][name].as_u64().expect("a number")
        };
        rows.iter().map(|row| (key(row, "tenant"), key(row, "number"))).collect()
    };
    let all = [(7, 1), (7, 2), (7, 3), (107, 1), (107, 2), (107, 3)];
    assert_eq!(numbers(json_lines(&["keys"], dir, &["orders"])), all);
    let mut by_code = numbers(json_lines(&["keys"], dir, &["orders", "code"]));
    by_code.sort_unstable();
    assert_eq!(by_code, all);
    let totals = json_lines(&["keys"], dir, &["orders", "total"]);
    let totals: Vec<_> = totals.iter().map(|key| key["key"]["total"].as_i64()).collect();
    assert_eq!(totals, [-3, -2, -1, 1, 2, 3].map(Some));
    assert_eq!(typed_text(&["dump"], dir, &["orders"]).lines().count(), 6);
    assert_eq!(typed_json(&["get"], dir, &["orders", "7", "2"])["total"], 2);
    typed_text(&["verify"], dir, &[]);
    check_sizes(dir);
}

/// Checks that sizes and metrics count each order and each entry once.
fn check_sizes(dir: &Path) {
    for rest in [&[][..], &["--exact"]] {
        let found = |command: &str| {
            let tables = json_of(&[command], dir, rest)["tables"].clone();
            let tables = tables.as_array().expect("a list").clone();
            tables.into_iter().find(|it| it["table"] == "orders").expect("a table")
        };
        assert_eq!(found("tables")["rows"], 6);
        let sizes = found("sizes");
        assert_eq!(sizes["rows"], 6);
        for index in sizes["indexes"].as_array().expect("a list") {
            assert_eq!(index["entries"], 6, "{sizes}");
        }
    }
    let store = Store::options().read_only(true).open(dir).expect("a store");
    let _orders = support::OrderRepository::open(&store).expect("a table");
    let metrics = index_table_admin::metrics(&store);
    assert!(metrics.contains("index_table_rows{table=\"orders\"} 6\n"), "{metrics}");
    for index in ["total", "code"] {
        let entries =
            format!("index_table_index_entries{{table=\"orders\",index=\"{index}\"}} 6\n");
        assert!(metrics.contains(&entries), "{metrics}");
    }
}

#[test]
fn commands_show_each_row_once_and_the_move_can_be_ended() {
    let (copies, count) = steps();
    let (mut copying, mut cleaning) = (0, 0);
    for step in 0..count {
        let dir = copies.path().join(step.to_string());
        for command in [
            "tables",
            "indexes",
            "sizes",
            "analyze",
            "advice",
            "check",
            "readers",
            "catalog",
            "consumers",
            "lag",
            "shards",
            "ranges",
        ] {
            text_of(&[command], &dir, &[]);
        }
        check_rows(&dir);
        let backup = copies.path().join(format!("backup-{step}"));
        text_of(&["backup"], &dir, &[backup.to_str().expect("text")]);
        check_rows(&backup);

        let Some((id, is_switched)) = unfinished(&dir) else { continue };
        let other = typed_fails(3, &["resume-move"], &dir, &["7"]);
        assert!(
            other.contains("there is no unfinished move `7`") && other.contains(&id),
            "{other}"
        );
        if is_switched {
            cleaning += 1;
            let error = typed_fails(5, &["cancel-move"], &dir, &[&id]);
            assert!(error.contains("shard `south` has the keys of move"), "{error}");
            typed_text(&["resume-move"], &dir, &[&id]);
        } else {
            copying += 1;
            typed_text(&["cancel-move"], &dir, &[&id]);
            assert_eq!(json_of(&["shards"], &dir, &[])["shards"][0]["rows"], 4);
            assert!(unfinished(&backup).is_some(), "a copy has the unfinished move too");
            typed_text(&["move"], &backup, &["orders", "..50", "south"]);
            assert_eq!(json_of(&["shards"], &backup, &[])["shards"][0]["rows"], 1);
            check_rows(&backup);
            assert_eq!(unfinished(&backup), None);
        }
        assert_eq!(unfinished(&dir), None);
        check_rows(&dir);
    }
    assert!(copying > 0 && cleaning > 0, "{copying} copies before the switch, {cleaning} after it");
}

#[test]
fn a_move_stops_before_the_switch_and_not_after_it() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let orders = support::OrderRepository::open(&store).expect("a table");
    let place = || orders.shard_of(&store, 7).expect("a shard").name().to_owned();
    let stopped = store.move_range("orders", ..50u32, "south").stop_when(&|| true).run();
    let error = stopped.expect_err("stopped").to_string();
    assert!(error.contains("it was asked to stop; resume or cancel it"), "{error}");
    let left = store.moves().expect("moves");
    assert_eq!((left.len(), place().as_str()), (1, "north"));
    let is_switched = std::cell::Cell::new(false);
    let resumed = store
        .resume_move(left[0].id)
        .progress(|at| is_switched.set(at.unit == "copies removed"))
        .stop_when(&|| is_switched.get())
        .run();
    resumed.expect("a move that is switched ends");
    assert!(is_switched.get());
    assert_eq!((store.moves().expect("moves").len(), place().as_str()), (0, "south"));
}
