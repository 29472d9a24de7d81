//! The command `index-table` as a process, on plain and sharded stores.

use std::io::BufRead as _;

#[path = "support/process.rs"]
mod process;
mod support;

use index_table::{Durability, IndexTable, ShardMap, Store};
use process::{admin, fails, json_lines, json_of, text_of};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{Customer, customer, plain, sharded};

#[test]
fn tables_lists_rows_and_indexes_without_the_structs() {
    let dir = plain(3);
    let shown = text_of(&["tables"], dir.path(), &[]);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("table"), "{shown}");
    assert!(lines[1].starts_with("customers        1  id: u64"), "{shown}");
    let value = json_of(&["tables"], dir.path(), &[]);
    let table = &value["tables"][0];
    assert_eq!(
        (&table["table"], &table["rows"], &table["indexes"]),
        (&json!("customers"), &json!(3), &json!(4))
    );
    assert!(table["bytes"].as_u64() > Some(0));
}

#[test]
fn indexes_lists_keys_states_and_entries() {
    let dir = plain(3);
    let value = json_of(&["indexes"], dir.path(), &["customers"]);
    let names: Vec<_> =
        value["indexes"].as_array().expect("a list").iter().map(|it| it["index"].clone()).collect();
    assert_eq!(names, ["town", "since_id", "kind_score", "email"]);
    assert_eq!(value["indexes"][0]["entries"], 3);
    assert_eq!(value["indexes"][0]["state"], "Readable");
    assert!(fails(3, &["indexes"], dir.path(), &["orders"]).contains("there is `customers`"));
}

#[test]
fn analyze_shows_the_distribution_of_each_key() {
    let dir = plain(30);
    let value = json_of(&["analyze"], dir.path(), &["customers"]);
    let town = &value["tables"][0]["indexes"][0];
    assert_eq!((&town["name"], &town["entries"]), (&json!("town"), &json!(30)));
    let key = &town["keys"][0];
    assert_eq!((&key["distinct"], &key["rows"]["max"]), (&json!(2), &json!(15)));
    assert_eq!(key["most_common"][0]["share"], 0.5);
    let shown = text_of(&["analyze"], dir.path(), &[]);
    assert!(shown.starts_with("table `customers`: 30 rows"), "{shown}");
    // The shown values are read by the other commands.
    let day = &value["tables"][0]["indexes"][1]["keys"][0]["most_common"][0]["value"];
    assert_eq!(day, "2024-02-02");
    let rest = ["customers", "since_id", "--from", "2024-02-02", "--limit", "1"];
    let keys = json_lines(&["keys"], dir.path(), &rest);
    assert_eq!(keys[0]["key"]["since"], *day);
    assert!(fails(3, &["analyze"], dir.path(), &["orders"]).contains("there is `customers`"));
    // All pages of a small index are read.
    let options = ["customers", "--sample", "16"];
    assert_eq!(json_of(&["analyze"], dir.path(), &options), value);
    let dir = plain(20_000);
    let sampled = json_of(&["analyze"], dir.path(), &options)["tables"][0].clone();
    assert!(sampled["sample"].as_u64().is_some_and(|entries| entries < 40_000), "{sampled}");
    assert_eq!(sampled["indexes"][0]["keys"][0]["distinct"], 2);
    let shown = text_of(&["analyze"], dir.path(), &options);
    assert!(shown.starts_with("table `customers`: 20000 rows"), "{shown}");
    assert!(shown.lines().next().is_some_and(|line| line.contains("; estimated from")), "{shown}");
    let advice = text_of(&["advice"], dir.path(), &options);
    assert!(advice.contains("(estimated from"), "{advice}");
}

#[test]
fn advice_names_the_attribute_to_write() {
    let dir = plain(30);
    assert_eq!(json_of(&["advice"], dir.path(), &[])["advice"], json!([]));
    let dir = plain(1200);
    let advice = json_of(&["advice"], dir.path(), &["customers"])["advice"].clone();
    assert_eq!(advice[0]["index"], "town");
    assert_eq!(advice[0]["kind"], "NotDiscriminating");
    let shown = text_of(&["advice"], dir.path(), &[]);
    assert!(shown.contains("#[index(town, strategy = \"full\")]"), "{shown}");
}

#[test]
fn keys_are_decoded_by_their_types_and_bounded() {
    let dir = plain(30);
    let keys =
        json_lines(&["keys"], dir.path(), &["customers", "town", "--from", "Oslo", "--limit", "2"]);
    let first = json!({"key": {"town": "Oslo"}, "primary_key": {"id": 1}});
    assert_eq!(keys, [first, json!({"key": {"town": "Oslo"}, "primary_key": {"id": 3}})]);
    let rows =
        json_lines(&["keys"], dir.path(), &["customers", "--from", "5", "--to", "8", "--rev"]);
    let ids: Vec<_> = rows.iter().map(|row| row["primary_key"]["id"].clone()).collect();
    assert_eq!(ids, [7, 6, 5]);
    let days = json_lines(
        &["keys"],
        dir.path(),
        &["customers", "since_id", "--from", "2024-03-01", "--limit", "1"],
    );
    assert_eq!(days[0]["key"]["since"], "2024-03-01");
    let kinds = json_lines(
        &["keys"],
        dir.path(),
        &["customers", "kind_score", "--from", "Company", "--limit", "1"],
    );
    assert_eq!(kinds[0]["key"], json!({"kind": "Company", "score": -0.5}));
    let shown = text_of(
        &["keys"],
        dir.path(),
        &["customers", "kind_score", "--from", "Company", "-0.5", "--limit", "1"],
    );
    assert_eq!(shown.lines().nth(1), Some("Company  -0.5   1"));
}

#[test]
fn wrong_values_name_the_field_and_the_expected_form() {
    let dir = plain(1);
    let error = fails(2, &["keys"], dir.path(), &["customers", "since_id", "--from", "yesterday"]);
    assert!(
        error.contains("field `since`: `yesterday` is not a date such as `2024-02-29`"),
        "{error}"
    );
    let error = fails(2, &["keys"], dir.path(), &["customers", "kind_score", "--from", "Firm"]);
    assert!(error.contains("one of `Private`, `Company`"), "{error}");
    let error = fails(2, &["keys"], dir.path(), &["customers", "--from", "1", "2"]);
    assert!(error.contains("the key has the fields id"), "{error}");
    let error = fails(3, &["keys"], dir.path(), &["customers", "city"]);
    assert!(error.contains("there is no index `city`; there is `town`, `since_id`"), "{error}");
}

#[test]
fn a_misspelt_path_is_an_error_and_creates_nothing() {
    let dir = plain(1);
    let wrong = dir.path().join("typo");
    for command in [&["tables"][..], &["check"], &["drop-retired"], &["readers"], &["shards"]] {
        let error = fails(3, command, &wrong, &[]);
        assert!(error.contains("there is no directory"), "{error}");
    }
    std::fs::create_dir(&wrong).expect("a directory");
    assert!(fails(3, &["drop-retired"], &wrong, &[]).contains("there is no store"));
    assert!(fails(3, &["restore"], &wrong, &["/nowhere"]).contains("there is no store"));
    assert_eq!(std::fs::read_dir(&wrong).expect("a directory").count(), 0);
}

#[test]
fn errors_are_json_with_the_exit_code() {
    let dir = plain(1);
    let error = fails(3, &["--json", "tables"], &dir.path().join("typo"), &[]);
    let error: Value = serde_json::from_str(&error).expect("JSON");
    assert_eq!(error["code"], 3);
}

#[test]
fn commands_work_during_a_write_transaction() {
    let dir = plain(3);
    let store = index_table::Store::open(dir.path()).expect("the store");
    let customers = support::CustomerRepository::open(&store).expect("the table");
    let mut txn = store.write().expect("a transaction");
    customers.insert(&mut txn, &customer(100)).expect("inserted");
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"], 3);
    txn.commit().expect("a commit");
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"], 4);

    let old = store.read().expect("a transaction");
    customers.get(&old, 1).expect("a row");
    store.transaction(|txn| customers.delete(txn, 100)).expect("a commit");
    let readers = json_of(&["readers"], dir.path(), &[]);
    let readers = readers["readers"].as_array().expect("a list");
    let own = readers.iter().filter(|it| it["process"] == std::process::id());
    let behind: Vec<_> = own.map(|it| it["commits_behind"].clone()).collect();
    // The journal keeps the state before both commits, for its last checkpoint.
    assert_eq!(behind, [2, 1], "{readers:?}");
}

#[test]
fn a_backup_is_restored_and_compacted() {
    let dir = plain(30);
    let path = |name| {
        dir.path().parent().expect("a parent").join(format!("{name}-{}", std::process::id()))
    };
    let (copy, again, small) = (path("copy"), path("again"), path("small"));
    text_of(&["backup"], dir.path(), &[copy.to_str().expect("text")]);
    text_of(&["restore"], &copy, &[again.to_str().expect("text")]);
    text_of(&["compact"], dir.path(), &[small.to_str().expect("text")]);
    for place in [&copy, &again, &small] {
        assert_eq!(json_of(&["sizes"], place, &[])["tables"][0]["rows"], 30);
        text_of(&["check"], place, &[]);
        // A copy is never written over.
        fails(5, &["backup"], dir.path(), &[place.to_str().expect("text")]);
        std::fs::remove_dir_all(place).expect("removed");
    }
}

#[test]
fn a_state_of_an_archive_is_restored() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (shop, archive) = (path("shop"), path("archive"));
    let before = {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(&shop).expect("a store");
        let customers = support::CustomerRepository::open(&store).expect("a table");
        store.transaction(|txn| customers.insert(txn, &customer(1))).expect("a commit");
        let before = store.read().expect("a transaction").commit_number();
        store.transaction(|txn| customers.delete(txn, 1)).expect("a commit");
        before.to_string()
    };
    let restore = |to: &str, rest: &[&str]| {
        let to = path(to);
        let to = to.to_str().expect("text");
        let restored = json_of(&["restore"], &archive, &[&[to], rest].concat());
        assert!(restored["last_commit"].as_str().is_some(), "{restored}");
        json_of(&["tables"], to.as_ref(), &[])["tables"][0]["rows"].clone()
    };
    assert_eq!(restore("last", &[]), 0);
    assert_eq!(restore("earlier", &["--until-commit", &before]), 1);
    assert_eq!(restore("now", &["--until", "2999-01-01T00:00:00Z"]), 0);
    let to = path("other");
    let to = to.to_str().expect("text");
    for (code, option, value) in [
        (5, "--until", "1999-01-01T00:00:00Z"),
        (5, "--until-commit", "999999"),
        (2, "--until", "yesterday"),
        (2, "--until-commit", "last"),
    ] {
        let error = fails(code, &["restore"], &archive, &[to, option, value]);
        assert!(code == 5 || error.contains(value), "{error}");
    }
    assert!(!path("other").exists());
}

/// A page that is served until this value is dropped.
struct Page {
    server: std::process::Child,
    url: String,
}

impl Page {
    fn of(dir: &std::path::Path, token: &str) -> Self {
        let program = assert_cmd::cargo::cargo_bin!("index-table");
        let mut server = std::process::Command::new(program)
            .arg("serve")
            .arg(dir)
            .args(["127.0.0.1:0", "--token", token])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        let out = server.stdout.take().expect("a stream");
        std::io::BufReader::new(out).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").expect("the address").to_owned();
        Self { server, url }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn usage_is_read_from_the_page_of_a_service() {
    let dir = plain(3);
    let page = Page::of(dir.path(), "secret");
    let usage = |rest: &[&str]| json_of(&["usage"], page.url.as_ref(), rest);
    let shown = usage(&["--token", "secret"]);
    assert_eq!(
        (&shown["tables"][0]["table"], &shown["tables"][0]["gets"]),
        (&json!("customers"), &json!(0))
    );
    assert_eq!(shown["tables"][0]["indexes"].as_array().map(Vec::len), Some(4), "{shown}");
    let text = text_of(&["usage"], format!("{}metrics", page.url).as_ref(), &["--token", "secret"]);
    assert!(text.starts_with("table      gets  scans"), "{text}");
    let error = fails(4, &["usage"], page.url.as_ref(), &["--token", "wrong"]);
    assert!(error.contains("needs the secret of the page"), "{error}");
    let error = fails(3, &["usage"], format!("{}admin", page.url).as_ref(), &["--token", "secret"]);
    assert!(error.contains("there is no page at"), "{error}");
    drop(page);
    assert!(fails(4, &["usage"], "http://127.0.0.1:1/".as_ref(), &[]).contains("can't be reached"));
    assert!(fails(2, &["usage"], "https://localhost/".as_ref(), &[]).contains("encrypted"));
}

#[test]
fn damage_has_an_exit_code_of_its_own() {
    let dir = plain(2000);
    let file = dir.path().join("data.mdb");
    let mut bytes = std::fs::read(&file).expect("the file");
    let len = bytes.len();
    bytes[len / 2..len - 4096].fill(0xa5);
    std::fs::write(&file, bytes).expect("the file");
    let error = fails(1, &["check"], dir.path(), &[]);
    assert!(error.contains("restore the directory from a copy"), "{error}");
}

#[test]
fn retired_indexes_are_listed_and_dropped() {
    let dir = plain(3);
    support::open_without_indexes(dir.path());
    let value = json_of(&["indexes"], dir.path(), &[]);
    assert_eq!(value["indexes"][0]["state"], "Retired");
    let dropped = json_of(&["drop-retired"], dir.path(), &[]);
    assert_eq!(dropped["dropped"].as_array().map(Vec::len), Some(4), "{dropped}");
    assert_eq!(json_of(&["indexes"], dir.path(), &[])["indexes"], json!([]));
    assert_eq!(json_of(&["drop-retired"], dir.path(), &[])["dropped"], json!([]));
}

#[test]
fn estimates_are_marked_and_exact_counts_all_entries() {
    let dir = support::visits();
    let all = support::VISITS.to_string();
    for command in ["sizes", "indexes"] {
        let text = text_of(&[command], dir.path(), &[]);
        assert_eq!(text.matches('≈').count(), 1, "{text}");
        let text = text_of(&[command], dir.path(), &["--exact"]);
        assert!(!text.contains('≈') && text.contains(&all), "{text}");
    }
    let tables = text_of(&["tables"], dir.path(), &[]);
    assert!(!tables.contains('≈') && tables.contains(&all), "{tables}");
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows_exact"], true);

    let of_sizes = |rest: &[&str]| {
        let table = json_of(&["sizes"], dir.path(), rest)["tables"][0].clone();
        assert_eq!((&table["rows"], &table["rows_exact"]), (&json!(support::VISITS), &json!(true)));
        table["indexes"][0].clone()
    };
    let of_indexes = |rest: &[&str]| json_of(&["indexes"], dir.path(), rest)["indexes"][0].clone();
    for index in [of_sizes(&[]), of_indexes(&[])] {
        let entries = index["entries"].as_u64().expect("a number");
        assert_eq!(index["entries_exact"], false, "{index}");
        assert!((support::VISITS / 3 * 2..support::VISITS / 2 * 3).contains(&entries), "{index}");
    }
    for index in [of_sizes(&["--exact"]), of_indexes(&["--exact"])] {
        let exact = (&json!(support::VISITS), &json!(true));
        assert_eq!((&index["entries"], &index["entries_exact"]), exact);
    }
    // A saved schema can be compared with a later one.
    let schema = json_of(&["schema"], dir.path(), &[]);
    assert_eq!(schema["tables"][0]["stored"]["indexes"][0]["entries"], support::VISITS);
}

#[test]
fn a_sharded_store_is_shown_as_a_whole() {
    let dir = sharded();
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"], 6);
    let shards = json_of(&["shards"], dir.path(), &[]);
    let rows: Vec<_> =
        shards["shards"].as_array().expect("a list").iter().map(|it| it["rows"].clone()).collect();
    assert_eq!(rows, [4, 4], "with a copy of the reference table: {shards}");
    let sizes = json_of(&["sizes"], dir.path(), &[]);
    let orders =
        sizes["tables"].as_array().expect("a list").iter().find(|it| it["table"] == "orders");
    let aggregate = &orders.expect("a table")["aggregates"][0];
    assert_eq!(aggregate["name"], "aggregate_by_tenant");
    let of_index = json_of(&["indexes"], dir.path(), &["orders"]);
    let listed = of_index["indexes"].as_array().expect("a list");
    let listed = listed.iter().find(|it| it["index"] == "aggregate_by_tenant").expect("listed");
    assert!(aggregate["groups"].as_u64() > Some(1), "{sizes}");
    assert_eq!((&listed["entries"], &listed["bytes"]), (&aggregate["groups"], &aggregate["bytes"]));
    let ranges = json_of(&["ranges"], dir.path(), &["orders"]);
    assert_eq!(ranges["ranges"][1]["from"], "100");
    assert_eq!(ranges["ranges"][1]["rows"], 3);
    let keys = json_lines(&["keys"], dir.path(), &["orders", "total"]);
    let totals: Vec<_> = keys.iter().map(|key| key["key"]["total"].clone()).collect();
    assert_eq!(totals, [-3, -2, -1, 1, 2, 3], "merged in the order of the index");
    let global = json_lines(&["keys"], dir.path(), &["orders", "code"]);
    assert_eq!(global.len(), 6);
    assert!(fails(3, &["ranges"], dir.path(), &["invoices"]).contains("there is `orders`"));
    text_of(&["check"], dir.path(), &[]);
    let copy = dir.path().join("../").join(format!("shards-{}", std::process::id()));
    text_of(&["backup"], dir.path(), &[copy.to_str().expect("text")]);
    assert_eq!(json_of(&["shards"], &copy, &[])["shards"][0]["rows"], 4);
    std::fs::remove_dir_all(copy).expect("removed");
}

#[test]
fn a_missing_shard_is_named_and_the_others_are_shown() {
    let dir = sharded();
    std::fs::rename(dir.path().join("south"), dir.path().join("elsewhere")).expect("renamed");
    let shards = json_of(&["shards"], dir.path(), &[]);
    assert_eq!(shards["shards"][0]["rows"], 4);
    assert_eq!(shards["shards"][1]["available"], false);
    assert!(
        json_of(&["tables"], dir.path(), &[])["tables"].as_array().is_some_and(|it| it.len() == 2)
    );
    assert!(fails(4, &["check"], dir.path(), &[]).contains("shard `south` is not available"));
}

#[test]
fn a_plain_store_has_no_shards() {
    let dir = plain(1);
    assert!(fails(3, &["shards"], dir.path(), &[]).contains("the store has no shards"));
}

#[test]
fn a_closed_output_is_no_error() {
    let dir = plain(2000);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("index-table"))
        .args(["--json", "keys"])
        .arg(dir.path())
        .args(["customers", "--limit", "2000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    drop(child.stdout.take());
    assert!(child.wait().expect("the end").success());
}

#[test]
fn no_arguments_are_a_usage_error_that_lists_the_commands() {
    let output = admin().output().expect("a process");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("drop-retired"));
}

#[test]
fn a_table_fits_the_terminal() {
    let dir = plain(1);
    let output =
        admin().env("COLUMNS", "60").arg("indexes").arg(dir.path()).output().expect("a process");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    for column in ["email: option<text>", "partial (town)", "unique", "readable"] {
        assert!(shown.contains(column), "{column}: {shown}");
    }
    assert!(!shown.contains('…'), "{shown}");
    // The struct is only used to create the store.
    let _ = std::mem::size_of::<Customer>();
}

#[test]
fn an_index_under_construction_is_shown_with_its_state() {
    let dir = plain(5000);
    support::declare_another_index(dir.path());
    let value = json_of(&["indexes"], dir.path(), &[]);
    let state = |name: &str| {
        let indexes = value["indexes"].as_array().expect("a list");
        indexes.iter().find(|it| it["index"] == name).expect("the index")["state"].clone()
    };
    assert_eq!(state("score")["Building"]["of"], 5000, "{value}");
    assert_eq!(state("town"), "Readable");
    let error = fails(4, &["keys"], dir.path(), &["customers", "score"]);
    assert!(error.contains("under construction"), "{error}");
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "mails", changes, shard_by = tenant)]
#[index(subject, consistency = "eventual")]
struct Mail {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    subject: String,
}

/// Writes three rows of which a consumer has committed one.
fn with_a_consumer(store: &Store) {
    let mails = MailRepository::open(store).expect("a table");
    let mail = |tenant| Mail { tenant, id: 1, subject: "hello".to_owned() };
    store
        .transaction(|txn| [1, 2, 103].into_iter().try_for_each(|it| mails.insert(txn, &mail(it))))
        .expect("a commit");
    let mut changes = mails.changes(store, "sender").expect("a consumer");
    changes.next_batch(1).and_then(|batch| batch.commit(store)).expect("a commit");
}

#[test]
fn consumers_and_queues_are_listed_with_their_lags() {
    let dir = tempfile::tempdir().expect("a directory");
    let one = dir.path().join("plain");
    with_a_consumer(&Store::open(&one).expect("a store"));
    let several = dir.path().join("sharded");
    {
        let map = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..);
        let options = Store::options().shard("north", "north").shard("south", "south");
        with_a_consumer(&options.map("mails", map).open(&several).expect("a store"));
    }
    for place in [&one, &several] {
        let consumers = json_of(&["consumers"], place, &[]);
        let [consumer] = consumers["consumers"].as_array().expect("a list").as_slice() else {
            panic!("one consumer: {consumers}")
        };
        assert_eq!(consumer["table"], "mails");
        assert_eq!(consumer["consumer"], "sender");
        assert_eq!((&consumer["position"], &consumer["lag"]["changes"]), (&1.into(), &2.into()));
        let lag = json_of(&["lag"], place, &[]);
        assert_eq!(lag["lag"][0]["reader"], "index worker");
        assert_eq!(lag["lag"][0]["behind"], 3);
        assert_eq!(lag["lag"][1]["reader"], "consumer sender");
        assert_eq!(lag["lag"][1]["behind"], 2);
        let text = text_of(&["consumers"], place, &[]);
        assert!(
            text.lines().nth(1).is_some_and(|line| line.starts_with("mails  sender")),
            "{text}"
        );
    }
    let without = plain(1);
    assert_eq!(json_of(&["consumers"], without.path(), &[])["consumers"], json!([]));
    let moves = json_of(&["moves"], &several, &[]);
    assert_eq!(moves["moves"], json!([]));
    assert!(fails(3, &["moves"], &one, &[]).contains("the store has no shards"));
}

#[test]
fn a_move_that_was_interrupted_is_listed() {
    let (dir, copies) = (sharded(), tempfile::tempdir().expect("a directory"));
    let mut count = 0;
    {
        let store = Store::open(dir.path()).expect("a store");
        let _orders = support::OrderRepository::open(&store).expect("a table");
        let moving = store.move_range("orders", ..50u32, "south").progress(|_| {
            process::copy(dir.path(), &copies.path().join(count.to_string()));
            count += 1;
        });
        assert_eq!(moving.run().expect("a move").rows, 3);
    }
    let listed = (0..count).map(|copy| {
        let copy = copies.path().join(copy.to_string());
        // As after a crash, the next writer replays the journal.
        drop(Store::open(&copy).expect("a store"));
        json_of(&["moves"], &copy, &[])["moves"][0].clone()
    });
    let listed: Vec<_> = listed.filter(|moving| !moving.is_null()).collect();
    let moving = listed.first().expect("a copy in the middle of the move");
    assert_eq!((&moving["map"], &moving["source"]), (&json!("orders"), &json!("north")));
    assert_eq!((&moving["target"], &moving["end"]), (&json!("south"), &json!("50")));
    assert_eq!(json_of(&["moves"], dir.path(), &[])["moves"], json!([]));
}

#[test]
fn a_store_with_one_data_file_grows_and_its_tables_move() {
    let dir = plain(30);
    let text = |command: &str, rest: &[&str]| process::typed_text(&[command], dir.path(), rest);
    assert!(text("move-table", &["customers", "main"]).starts_with("0 rows"));
    let fails = |command: &str, rest: &[&str]| {
        let output = process::typed("", &[command], dir.path(), rest);
        assert_eq!(output.status.code(), Some(3), "{command} {rest:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fails("move-table", &["customers", "billing"]).contains("`add-shard`"));
    assert!(fails("move", &["orders", "..7", "billing"]).contains("`add-shard`"));

    let added = text("add-shard", &["billing", "billing"]);
    assert!(added.contains("added shard `billing`"), "{added}");
    assert!(text("move-table", &["customers", "billing"]).starts_with("30 rows"));
    assert!(text("move-table", &["customers", "billing"]).starts_with("0 rows"));
    assert!(fails("move-table", &["custommers", "billing"]).contains("`customers`"));
    assert!(fails("move-table", &["customers", "biling"]).contains("`billing`"));
    let value = json_of(&["shards"], dir.path(), &[]);
    let rows = |at: usize| (&value["shards"][at]["shard"], &value["shards"][at]["rows"]);
    assert_eq!(rows(0), (&json!("main"), &json!(0)), "{value}");
    assert_eq!(rows(1), (&json!("billing"), &json!(30)), "{value}");
    assert!(text("get", &["customers", "7"]).contains("7@example.com"));
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"], 30);
}
