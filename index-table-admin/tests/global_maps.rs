//! Moves and splits of the shard map of a global index.

#[path = "support/process.rs"]
mod process;
mod support;

use std::path::Path;

use index_table::{ShardMap, Store};
use process::{json_lines, json_of, typed_fails, typed_json, typed_text};
use serde_json::Value;
use support::{OrderRepository, order_row};
use tempfile::TempDir;

const MAP: &str = "orders.code";

/// Creates a store whose global index `code` has ranges of its own.
fn with_a_map_of_codes() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .map(MAP, ShardMap::ranges().to("north", .."5").to("south", "5"..))
        .open(dir.path())
        .expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    // The codes begin with the digits of the tenants.
    let rows = (0..200).map(|number| order_row(number as u32, number));
    orders.bulk_load(&store, rows).run().expect("a load");
    dir
}

/// Returns the starts of the ranges with their shards and entries.
fn ranges(dir: &Path) -> Vec<(String, String, u64)> {
    let ranges = json_of(&["ranges"], dir, &[MAP])["ranges"].clone();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let ranges = ranges.as_array().expect("a list").iter();
    ranges
        .map(|it| (text(&it["from"]), text(&it["shard"]), it["rows"].as_u64().expect("a number")))
        .collect()
}

fn expect(dir: &Path, expected: &[(&str, &str)]) {
    let found = ranges(dir);
    let own: Vec<_> = found.iter().map(|(from, shard, _)| (&**from, &**shard)).collect();
    assert_eq!(own, expected);
    assert_eq!(found.iter().map(|(.., rows)| rows).sum::<u64>(), 200, "{found:?}");
    assert_eq!(json_lines(&["keys"], dir, &["orders", "code", "--limit", "1000"]).len(), 200);
    for tenant in [0, 57, 150, 199] {
        let page = typed_json(&["find"], dir, &["orders", "code", &format!("{tenant}/{tenant}")]);
        assert_eq!(page["items"][0]["tenant"], tenant);
    }
    typed_text(&["verify"], dir, &["orders"]);
}

#[test]
fn the_map_of_a_global_index_is_moved_split_and_balanced() {
    let dir = with_a_map_of_codes();
    let path = dir.path();
    let run = |command: &[&str]| typed_json(&command[..1], path, &command[1..]);
    expect(path, &[("", "north"), ("5", "south")]);
    let moved = run(&["move", MAP, "7..8", "north"]);
    assert_eq!(moved["rows"], 11, "7, and 70 to 79: {moved}");
    expect(path, &[("", "north"), ("5", "south"), ("7", "north"), ("8", "south")]);
    run(&["split", MAP, "15", "south"]);
    expect(path, &[("", "north"), ("15", "south"), ("7", "north"), ("8", "south")]);
    // The rows stay where they are.
    let rows = json_of(&["ranges"], path, &["orders"])["ranges"].clone();
    assert_eq!((&rows[0]["rows"], &rows[1]["rows"]), (&100.into(), &100.into()), "{rows}");

    let plan = run(&["rebalance", MAP, "--onto", "north", "--dry-run"]);
    assert!(plan["moves"].as_array().is_some_and(|moves| !moves.is_empty()), "{plan}");
    run(&["rebalance", MAP, "--onto", "north"]);
    expect(path, &[("", "north")]);

    let error = typed_fails(3, &["move"], path, &["orders.cod", "7..8", "north"]);
    assert!(error.contains("did you mean `orders.code`?"), "{error}");
    let error = typed_fails(2, &["move"], path, &[MAP, "8..7", "north"]);
    assert!(error.contains("the range `8..7` has no keys"), "{error}");
}
