//! The tool with the types of its rows, as a process.

#[path = "support/process.rs"]
mod process;
mod support;

use std::path::Path;

use index_table::{__private::admin::UntypedRange, Durability, IndexTable, ShardMap, Store};
use process::{json_of, typed, typed_fails, typed_input, typed_json, typed_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{
    CustomerRepository, Reading, ReadingRepository, customer,
    everything::{EverythingRepository, everything},
    plain, sharded,
};

fn ids(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().expect("a list").iter();
    items.map(|row| row["id"].as_u64().expect("a number")).collect()
}

#[test]
fn a_row_is_found_by_its_primary_key() {
    let dir = plain(3);
    let row = typed_json(&["get"], dir.path(), &["customers", "1"]);
    assert_eq!(row["since"], "2024-02-02");
    assert_eq!((&row["kind"], &row["score"]), (&json!("Company"), &json!(-0.5)));
    let error = typed_fails(3, &["get"], dir.path(), &["customers", "4"]);
    assert!(error.contains("table `customers` has no row with the primary key 4"), "{error}");
    let dir = sharded();
    assert_eq!(typed_json(&["get"], dir.path(), &["orders", "107", "2"])["total"], -2);
    assert!(typed_fails(2, &["get"], dir.path(), &["orders", "107"]).contains("tenant, number"));
}

#[test]
fn rows_are_found_by_values_ranges_and_prefixes() {
    let dir = plain(30);
    let page = |rest: &[&str]| typed_json(&["find"], dir.path(), &[&["customers"], rest].concat());
    assert_eq!(ids(&page(&["town", "Oslo", "--limit", "3"])), [1, 3, 5]);
    assert_eq!(ids(&page(&["town", "--starting-with", "Os", "--limit", "2"])), [1, 3]);
    assert_eq!(ids(&page(&["town", "--starting-with", "Ot"])), [0_u64; 0]);
    assert_eq!(ids(&page(&["kind_score", "Company", "--range", "-1..0"])), [1]);
    assert_eq!(ids(&page(&["kind_score", "Company", "--range", "0..", "--limit", "2"])), [3, 5]);
    assert_eq!(ids(&page(&["kind_score", "Private", "--range", "..0"])), [0_u64; 0]);
    assert_eq!(ids(&page(&["since_id", "--range", "2024-02-10..2024-02-12"])), [9, 10]);
    assert_eq!(ids(&page(&["primary_key", "--range", "28..", "--rev"])), [30, 29, 28]);
    assert_eq!(ids(&page(&["email", "7@example.com"])), [7]);
    assert_eq!(page(&["town", "Oslo", "--count"])["count"], 15);
    let error =
        typed_fails(2, &["find"], dir.path(), &["customers", "town", "Oslo", "--range", "A..B"]);
    assert!(error.contains("there is no next field"), "{error}");
}

#[test]
fn a_cursor_continues_a_query_and_no_other() {
    let dir = plain(30);
    let page =
        |rest: &[&str]| typed_json(&["find"], dir.path(), &[&["customers", "town"], rest].concat());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let mut arguments = vec!["Oslo", "--limit", "4"];
        arguments.extend(after.iter().flat_map(|after: &String| ["--after", after]));
        let next = page(&arguments);
        found.extend(ids(&next));
        match next["next"].as_str() {
            Some(cursor) => after = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(found, (1..30).step_by(2).collect::<Vec<_>>());
    let cursor = after.expect("a cursor");
    for other in [
        &["customers", "town", "Bergen", "--after", &cursor][..],
        &["customers", "town", "Oslo", "--after", "zz"],
    ] {
        assert!(
            typed_fails(2, &["find"], dir.path(), other).contains("is not a cursor of this query")
        );
    }
}

#[test]
fn queries_of_a_sharded_store_are_merged() {
    let dir = sharded();
    let page = typed_json(&["find"], dir.path(), &["orders", "total"]);
    let totals: Vec<_> =
        page["items"].as_array().expect("a list").iter().map(|row| row["total"].clone()).collect();
    assert_eq!(totals, [-3, -2, -1, 1, 2, 3]);
    let page = typed_json(&["find"], dir.path(), &["orders", "code", "s2"]);
    assert_eq!(page["items"][0]["tenant"], 107);
}

#[test]
fn a_deleted_row_and_its_entries_are_removed() {
    let dir = plain(3);
    typed_text(&["delete"], dir.path(), &["customers", "2"]);
    typed_fails(3, &["delete"], dir.path(), &["customers", "2"]);
    assert_eq!(
        typed_json(&["find"], dir.path(), &["customers", "town", "Bergen", "--count"])["count"],
        0
    );
    typed_text(&["verify"], dir.path(), &[]);
}

/// Returns the primary keys and the rows of a table as bytes.
fn facts(dir: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = Store::options().read_only(true).create(false).open(dir).expect("a store");
    let tables = store.open_recorded().expect("the tables");
    let txn = store.read().expect("a transaction");
    let mut facts = Vec::new();
    let range = UntypedRange::default();
    tables.tables[0]
        .each_entry(&txn, &range, |entry| {
            facts.push((entry.primary_key.to_vec(), entry.data.to_vec()));
            Ok::<_, index_table::Error>(true)
        })
        .expect("all rows");
    facts
}

#[test]
fn dump_and_load_give_an_equal_store_with_every_type_of_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let store = Store::open(&from).expect("a store");
    let rows = EverythingRepository::open(&store).expect("a table");
    store
        .transaction(|txn| (0..300).try_for_each(|seed| rows.put(txn, &everything(seed))))
        .expect("a commit");
    drop((rows, store));
    let dump = typed_text(&["dump"], &from, &["everything"]);
    assert_eq!(dump.lines().count(), 300);
    let report = typed_input(&dump, &["--json", "load"], &to, &["everything", "--create"]);
    assert_eq!(report["written"], 300);
    assert_eq!(facts(&from), facts(&to));
    typed_text(&["verify"], &to, &["everything"]);

    // The keys of each index are shown, and the shown text finds them.
    let indexes = process::json_of(&["indexes"], &to, &[]);
    let indexes = indexes["indexes"].as_array().expect("a list");
    assert_eq!(indexes.len(), 38);
    for index in indexes {
        let name = index["index"].as_str().expect("a name");
        let shown = process::text_of(&["keys"], &to, &["everything", name, "--limit", "1"]);
        let first = shown.lines().nth(1).expect("a key");
        let cell = first.split("  ").next().expect("a value").trim();
        if name == "long" {
            continue; // a hash
        }
        let found = process::json_lines(
            &["keys"],
            &to,
            &["everything", name, "--limit", "1", "--from", cell],
        );
        let all = process::json_lines(&["keys"], &to, &["everything", name, "--limit", "1"]);
        assert_eq!(found, all, "{name} from {cell}");
    }
}

#[test]
fn a_load_with_a_wrong_line_loads_nothing_and_names_the_line() {
    let dir = plain(1);
    let rows = "{\"code\":\"1\"}\n\n{\"code\":2}\n";
    let output = typed(rows, &["load"], dir.path(), &["postal_codes"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("line 3: field `code`: invalid type: integer `2`")
            && error.contains("no row was loaded"),
        "{error}"
    );
    assert_eq!(typed_text(&["dump"], dir.path(), &["postal_codes"]), "");
}

#[test]
fn a_load_fails_skips_or_replaces_on_duplicates() {
    let dir = plain(2);
    let mut other = customer(2);
    other.town = "Rome".to_owned();
    let rows =
        [customer(3), other].map(|row| serde_json::to_string(&row).expect("JSON")).join("\n");
    let output = typed(&rows, &["load"], dir.path(), &["customers"]);
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("primary key 2; no row was loaded: `--on-duplicate skip`"), "{error}");
    assert_eq!(facts(dir.path()).len(), 2);
    let load = |policy| {
        typed_input(
            &rows,
            &["--json", "load"],
            dir.path(),
            &["customers", "--on-duplicate", policy],
        )
    };
    assert_eq!(load("skip")["skipped"], 1);
    assert_eq!(typed_json(&["get"], dir.path(), &["customers", "2"])["town"], "Bergen");
    assert_eq!(load("replace")["replaced"], 1, "an equal row stays");
    assert_eq!(typed_json(&["get"], dir.path(), &["customers", "2"])["town"], "Rome");
}

#[test]
fn a_load_that_violates_a_unique_index_names_it_and_the_way_out() {
    let dir = plain(2);
    let mut other = customer(3);
    other.email = Some("2@example.com".to_owned());
    let row = serde_json::to_string(&other).expect("JSON");
    // After an empty line and another row, it is in line 3.
    let row = format!("\n{}\n{row}", serde_json::to_string(&customer(4)).expect("JSON"));
    let violates = |policy: &str| {
        let rest = ["customers", "--on-duplicate", policy];
        let output = typed(&row, &["load"], dir.path(), &rest);
        assert_eq!(output.status.code(), Some(5));
        let error = String::from_utf8_lossy(&output.stderr);
        for part in [
            "line 3: unique index `email` of table `customers` already has the key Some(\"2@example.com\")",
            "for the row with primary key 2; no row was loaded",
            "`--on-duplicate skip` leaves out rows whose key exists",
            "`--on-duplicate replace` replaces rows with the same primary key only",
            "change the key, or delete the row with primary key 2 first",
        ] {
            assert!(error.contains(part), "{policy}: {part}: {error}");
        }
        assert_eq!(facts(dir.path()).len(), 2);
    };
    violates("fail");
    violates("replace");
    let load = |policy| {
        let rest = ["customers", "--on-duplicate", policy];
        typed_input(&row, &["--json", "load"], dir.path(), &rest)
    };
    assert_eq!(load("skip")["skipped"], 1);
    assert_eq!(typed_json(&["get"], dir.path(), &["customers", "2"])["email"], "2@example.com");
    typed_text(&["delete"], dir.path(), &["customers", "2"]);
    assert_eq!(load("replace")["written"], 2);
    typed_text(&["verify"], dir.path(), &[]);
    // The help of the option describes this, too.
    let help = typed("", &["load", "--help"], dir.path(), &[]);
    let help =
        String::from_utf8_lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("nothing is loaded, so that no row is lost"), "{help}");
}

#[test]
fn a_load_whose_lines_have_the_same_key_names_both_lines() {
    let dir = plain(1);
    let mut other = customer(5);
    other.email = customer(4).email;
    let lines = |rows: &[support::Customer]| {
        let lines = rows.iter().map(|row| serde_json::to_string(row).expect("JSON") + "\n");
        lines.collect::<String>()
    };
    let fails = |rows: &[support::Customer], policy, part: &str| {
        let rest = ["customers", "--on-duplicate", policy];
        let output = typed(&lines(rows), &["load"], dir.path(), &rest);
        assert_eq!(output.status.code(), Some(5));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(part), "{part}: {error}");
        assert_eq!(facts(dir.path()).len(), 1);
    };
    let rows = [customer(6), customer(4), customer(7), other];
    for policy in ["fail", "replace"] {
        let part = "line 4, with the key of line 2: unique index `email`";
        fails(&rows, policy, part);
    }
    let rows = [customer(6), customer(4), customer(6)];
    fails(&rows, "fail", "line 3, with the key of line 1: table `customers` already has");
    let mut long = customer(8);
    long.town = "x".repeat(600);
    fails(&[customer(6), customer(7), long, customer(9)], "fail", "error: line 3: ");
}

#[test]
fn a_load_that_fails_in_a_shard_names_the_shards_and_the_line() {
    let middle = || ("m".to_owned(), jiff::civil::date(2024, 2, 1));
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("readings", ShardMap::ranges().to("north", ..middle()).to("south", middle()..))
        .open(dir.path())
        .expect("a store");
    let readings = ReadingRepository::open(&store).expect("a table");
    let row = |place: &str, number| Reading {
        place: place.to_owned(),
        day: jiff::civil::date(2024, 2, 29),
        number,
    };
    store.transaction(|txn| readings.insert(txn, &row("b", 1))).expect("a commit");
    drop((readings, store));
    let rows = [row("z", 1), row("a", 7), row("y", 1), row("b", 1)];
    let lines: String =
        rows.iter().map(|row| serde_json::to_string(row).expect("JSON") + "\n").collect();
    let output = typed(&lines, &["load"], dir.path(), &["readings"]);
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8_lossy(&output.stderr);
    for part in [
        "line 4: table `readings` already has a row",
        "no row was loaded in north, and the rows of south were loaded",
        "run the command with `--on-duplicate skip`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let report = typed_input(
        &lines,
        &["--json", "load"],
        dir.path(),
        &["readings", "--on-duplicate", "skip"],
    );
    assert_eq!((&report["written"], &report["skipped"]), (&1.into(), &3.into()), "{report}");
}

#[test]
fn a_load_without_create_creates_no_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = typed("", &["load"], &dir.path().join("typo"), &["customers"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
}

#[test]
fn indexes_are_verified_built_and_repaired() {
    let dir = plain(5000);
    support::declare_another_index(dir.path());
    let report = typed_json(&["build"], dir.path(), &["customers"]);
    assert_eq!(report["tables"][0]["indexes"][0]["state"], "Readable", "{report}");
    let report = typed_json(&["verify"], dir.path(), &["customers"]);
    assert_eq!(report["tables"][0]["rows"], 5000);
    typed_text(&["repair"], dir.path(), &["customers"]);
    let report = typed_json(&["upgrade"], dir.path(), &["customers"]);
    assert_eq!(report["tables"][0]["upgraded"], 0);
}

#[test]
fn tables_that_no_declaration_names_are_listed() {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "forgotten")]
    struct Forgotten {
        #[primary_key]
        id: u8,
    }

    let dir = plain(3);
    let report = typed_json(&["schema"], dir.path(), &[]);
    let state = |table: &str, report: &Value| {
        let tables = report["tables"].as_array().cloned().unwrap_or_default();
        tables.into_iter().find(|it| it["table"] == table).map(|it| it["state"].clone())
    };
    assert_eq!(state("customers", &report), Some("same".into()), "{report}");
    assert_eq!(report["undeclared"], json!([]));
    assert!(typed("", &["schema", "--check"], dir.path(), &[]).status.success());

    let store = Store::open(dir.path()).expect("a store");
    drop(ForgottenRepository::open(&store).expect("a table"));
    drop(store);
    support::declare_another_index(dir.path());
    let report = typed_json(&["schema"], dir.path(), &[]);
    assert_eq!(report["undeclared"], json!(["forgotten"]));
    let text = typed_text(&["schema"], dir.path(), &[]);
    assert!(text.contains("table `forgotten`: no declaration of this program names it"), "{text}");
    let output = typed("", &["schema", "--check"], dir.path(), &[]);
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("was ="), "{error}");
}

#[test]
fn expired_rows_are_deleted_up_to_the_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    support::sessions(dir.path(), 5, 3);
    assert_eq!(typed_json(&["expire"], dir.path(), &["sessions", "--limit", "2"])["deleted"], 2);
    assert_eq!(typed_json(&["expire"], dir.path(), &["sessions"])["deleted"], 3);
    assert_eq!(typed_text(&["dump"], dir.path(), &["sessions"]).lines().count(), 3);
}

/// A row that refers to a session.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "audits")]
#[index(session)]
struct Audit {
    #[primary_key]
    id: u64,
    #[references(support::Session)]
    session: u64,
}

#[test]
fn expired_rows_that_can_not_be_deleted_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    support::sessions(dir.path(), 5, 3);
    {
        let store = Store::open(dir.path()).expect("a store");
        let _sessions = support::SessionRepository::open(&store).expect("a table");
        let audits = AuditRepository::open(&store).expect("a table");
        let audit = Audit { id: 1, session: 2 };
        store.transaction(|txn| audits.insert(txn, &audit)).expect("a commit");
    }
    for deleted in [4, 0] {
        let output = typed("", &["--json", "expire"], dir.path(), &["sessions"]);
        assert_eq!(output.status.code(), Some(5));
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&found["deleted"], &found["refused"][0]["rows"]), (&json!(deleted), &json!(1)));
        let first = found["refused"][0]["first"].as_str().expect("text");
        assert!(first.contains("`audits`"), "{first}");
    }
}

#[test]
fn the_commands_for_any_store_work_with_types_too() {
    let dir = plain(3);
    assert_eq!(typed_json(&["tables"], dir.path(), &[])["tables"][0]["rows"], 3);
    // The tables are those of the store, not those of the program.
    let error = typed_fails(3, &["get"], dir.path(), &["people", "1"]);
    assert!(error.contains("there is `customers`"), "{error}");
}

#[test]
fn boundaries_of_shards_are_typed_as_they_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = || ("M".to_owned(), jiff::civil::date(2024, 2, 1));
    {
        let store = Store::options()
            .shard("north", "north")
            .shard("south", "south")
            .map("readings", ShardMap::ranges().to("north", ..first()).to("south", first()..))
            .open(dir.path())
            .expect("a store");
        let readings = ReadingRepository::open(&store).expect("a table");
        let reading = |number: u32| Reading {
            place: ["Bergen", "Oslo", "Stavanger"][number as usize % 3].to_owned(),
            day: jiff::civil::date(2024, 2, 1 + (number % 28) as i8),
            number,
        };
        readings.bulk_load(&store, (0..90).map(reading)).run().expect("a load");
    }
    let ranges = || {
        let ranges = json_of(&["ranges"], dir.path(), &[])["ranges"].clone();
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let ranges = ranges.as_array().expect("a list").iter();
        ranges.map(|it| (text(&it["from"]), text(&it["shard"]))).collect::<Vec<_>>()
    };
    let expect = |expected: &[(&str, &str)]| {
        let found = ranges();
        let found: Vec<_> = found.iter().map(|(from, shard)| (&**from, &**shard)).collect();
        assert_eq!(found, expected);
    };
    let run = |command: &[&str]| typed_json(&command[..1], dir.path(), &command[1..]);
    expect(&[("", "north"), ("(M, 2024-02-01)", "south")]);
    run(&["split", "readings", "(Oslo, 2024-02-09)", "north"]);
    let split = [("", "north"), ("(M, 2024-02-01)", "south"), ("(Oslo, 2024-02-09)", "north")];
    expect(&split);
    // All keys of a place: the end is before the next text.
    run(&["move", "readings", "(Oslo)", "south"]);
    let moved = [("", "north"), ("(M, 2024-02-01)", "south"), (r#"("Oslo\u0000")"#, "north")];
    expect(&moved);
    // The text of a boundary, used as an argument, gives the same boundary.
    let [.., (last, _)] = moved;
    run(&["move", "readings", &format!("(Oslo, 2024-02-09)..{last}"), "north"]);
    expect(&split);
    assert_eq!(typed_text(&["dump"], dir.path(), &["readings"]).lines().count(), 90);
}

#[test]
fn an_archive_has_what_the_command_writes_while_the_service_is_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let insert = |ids: std::ops::RangeInclusive<u64>| {
        let options = Store::options().durability(Durability::Journal).archive(path("archive"));
        let store = options.open(path("store")).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        store
            .transaction(|txn| ids.clone().try_for_each(|id| customers.insert(txn, &customer(id))))
            .expect("a commit");
    };
    insert(1..=3);
    let archive = path("archive");
    let archive = ["--archive", archive.to_str().expect("text")];
    typed_text(&["delete"], &path("store"), &[&["customers", "1"], &archive[..]].concat());
    insert(4..=4);
    let copy = path("copy");
    typed_text(&["restore"], &path("archive"), &[copy.to_str().expect("text")]);
    let rows = typed_text(&["dump"], &copy, &["customers"]);
    assert_eq!(rows, typed_text(&["dump"], &path("store"), &["customers"]));
    assert_eq!(rows.lines().count(), 3);
}

#[test]
fn a_load_without_changes_repeats_no_effects() {
    let dir = tempfile::tempdir().expect("a directory");
    let lines = |ids: std::ops::Range<u64>| -> String {
        let rows = ids.map(|id| serde_json::to_string(&support::event(id)).expect("JSON") + "\n");
        rows.collect()
    };
    let lag = || {
        let store = index_table::Store::open(dir.path()).expect("a store");
        let events = support::EventRepository::open(&store).expect("a table");
        let changes = events.changes(&store, "mailer").expect("a consumer");
        changes.lag().expect("a lag").changes
    };
    let load = ["events", "--create", "--no-changes"];
    typed_input(&lines(0..5), &["--json", "load"], dir.path(), &load);
    assert_eq!(lag(), 0);
    typed_input(&lines(5..7), &["--json", "load"], dir.path(), &["events"]);
    assert_eq!(lag(), 2);
}
