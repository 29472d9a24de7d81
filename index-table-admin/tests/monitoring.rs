//! What an operator watches: the metrics with their alert rules and dashboard, and the reasons of a service's health.
#![allow(clippy::float_cmp, reason = "counts in the text of metrics are exact")]

#[cfg(target_os = "linux")]
#[path = "support/disk.rs"]
mod disk;
#[path = "support/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;
mod support;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Store};
use index_table_admin::{health, metrics};
use service::Service;
use support::{
    CustomerRepository, EventRepository, OrderRepository, customer, event, plain, sharded,
};

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring").join(file)
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("index_table_")).map(str::to_owned).collect()
}

/// Returns the names of all metrics but those of a follower.
fn declared() -> BTreeSet<String> {
    let (dir, shards) = (tempfile::tempdir().expect("a directory"), sharded());
    let options = Store::options().archive(dir.path().join("archive"));
    let store = options.open(dir.path().join("shop")).expect("a store");
    let _events = EventRepository::open(&store).expect("a table");
    let with_shards = Store::open(shards.path()).expect("a store");
    let _orders = OrderRepository::open(&with_shards).expect("a table");
    let service = Service::of(&with_shards, |operations| operations);
    let (status, with_operations) = service.send("GET", "/admin/metrics", &[], "");
    assert_eq!(status, 200, "{with_operations}");
    let text = metrics(&store) + &with_operations;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Returns the metric of a name of the text format: a histogram has three names, and a follower has the metrics of an archive.
fn metric(name: &str) -> String {
    let parts = ["_bucket", "_count", "_sum"];
    let whole = parts.into_iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
    whole.replace("index_table_follower_", "index_table_archive_")
}

#[test]
fn alerts_and_the_dashboard_use_metrics_that_exist() {
    let all = declared();
    let mut used = BTreeSet::new();
    for file in ["alerts.yml", "alerts_test.yml", "dashboard.json"] {
        let text = fs::read_to_string(monitoring(file)).expect("a file");
        for name in names(&text) {
            assert!(all.contains(&metric(&name)), "{file}: {name}");
            used.insert(metric(&name));
        }
    }
    assert!(used.len() > 30, "{used:?}");
    let text = fs::read_to_string(monitoring("dashboard.json")).expect("a file");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 20));
}

#[test]
fn each_metric_is_in_the_guide() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/admin.md");
    let known = names(&fs::read_to_string(guide).expect("the guide"));
    let all = declared();
    assert!(all.len() > 50);
    for name in all {
        assert!(known.contains(&name), "{name} is not in the guide");
    }
}

/// Runs Prometheus's tool, if it is installed; CI has it.
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(monitoring("")).stdin(Stdio::piped());
    let mut tool = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(tool) => tool,
        Err(error) => {
            let is_needed = std::env::var_os("INDEX_TABLE_PROMTOOL_TESTS").is_some();
            assert!(!is_needed, "promtool can't be run: {error}");
            eprintln!("promtool is not installed, so its checks are left out");
            return;
        }
    };
    tool.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let output = tool.wait_with_output().expect("a process");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
fn promtool_accepts_rules_and_metrics() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(4))).expect("a commit");
    promtool(&["check", "rules", "alerts.yml"], "");
    promtool(&["test", "rules", "alerts_test.yml"], "");
    promtool(&["check", "metrics"], &metrics(&store));
}

/// Returns the value of a metric of a store with one data file.
fn value(store: &Store, name: &str) -> f64 {
    let text = metrics(store);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    line.unwrap_or_else(|| panic!("{name}: {text}")).1.parse().expect("a number")
}

fn kinds(store: &Store) -> Vec<&'static str> {
    health(store).reasons.iter().map(|reason| reason.kind).collect()
}

#[test]
fn files_journal_and_commits_are_measured() {
    let dir = plain(2000);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    assert_eq!(value(&store, "index_table_commits_total"), 0.0);
    store
        .transaction(|txn| (0..1500).try_for_each(|id| customers.delete(txn, id).map(drop)))
        .expect("a commit");
    store.transaction(|txn| customers.put(txn, &customer(3))).expect("a commit");
    assert_eq!(value(&store, "index_table_commits_total"), 2.0);
    let [file] = &store.data_files().expect("files")[..] else { panic!("one file") };
    let free = file.free.expect("intact pages");
    // Three quarters of the rows are gone.
    assert!(free > file.bytes / 3 && file.used.is_some_and(|used| used < free), "{file:?}");
    assert!(file.disk > file.disk_free && file.map_limit.is_none(), "{file:?}");
    assert_eq!((file.shard.as_str(), file.is_replaced, file.readers.len()), ("main", false, 0));
    assert!(value(&store, "index_table_journal_bytes") >= f64::from(3 << 18));
    let age = value(&store, "index_table_last_commit_timestamp_seconds");
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert!((0.0..600.0).contains(&(now - age)), "{age} {now}");
    assert_eq!(kinds(&store), [""; 0]);
}

#[test]
fn a_change_stream_has_a_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    let _consumer = events.changes(&store, "mailer").expect("a consumer");
    store
        .transaction(|txn| (0..500).try_for_each(|id| events.insert(txn, &event(id))))
        .expect("a commit");
    let bytes = value(&store, "index_table_change_stream_bytes{table=\"events\"}");
    assert!(bytes >= 4096.0, "{bytes}");
    drop((events, store));
    let text = process::text_of(&["sizes"], dir.path(), &[]);
    assert!(text.lines().any(|line| line.contains("events") && line.contains("changes")), "{text}");
}

#[test]
fn a_reader_of_another_process_is_found() {
    let dir = plain(20_000);
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    assert_eq!(value(&store, "index_table_other_readers{"), 0.0);
    // Nobody reads the rest of the pipe, so the process waits in its read transaction.
    let mut dump = Command::new(assert_cmd::cargo::cargo_bin!("index-table"))
        .arg("dump")
        .arg(dir.path())
        .arg("customers")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let rows = dump.stdout.as_mut().expect("a pipe");
    rows.read_exact(&mut [0]).expect("a row");
    assert!(value(&store, "index_table_other_readers{") >= 1.0);
    for id in [1, 2] {
        store.transaction(|txn| customers.delete(txn, id)).expect("a commit");
    }
    let first = value(&store, "index_table_oldest_other_reader_seconds");
    let files = store.data_files().expect("files");
    assert_eq!(files[0].readers.len(), 1, "{files:?}");
    assert_eq!(files[0].readers[0].process, dump.id());
    assert!(files[0].readers[0].commits_behind >= 2, "{files:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(value(&store, "index_table_oldest_other_reader_seconds") >= first + 0.05);
    dump.kill().expect("killed");
    dump.wait().expect("ended");
    store.clear_stale_readers().expect("cleared");
    assert_eq!(value(&store, "index_table_oldest_other_reader_seconds"), 0.0);
}

#[test]
fn a_replaced_directory_is_the_first_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, away) = (dir.path().join("shop"), dir.path().join("away"));
    let store = Store::open(&path).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(1))).expect("a commit");
    assert_eq!(kinds(&store), [""; 0]);
    fs::rename(&path, &away).expect("renamed");
    assert_eq!(kinds(&store)[0], "files");
    // Another store in its place.
    process::copy(&away, &path);
    assert_eq!(kinds(&store)[0], "files");
    let begun = Instant::now();
    // A commit within a few milliseconds of the last check is not refused.
    while store.transaction(|txn| customers.put(txn, &customer(2))).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        store.transaction(|txn| customers.put(txn, &customer(1))).ok();
    }
    assert_eq!(kinds(&store)[0], "files");
    assert!(metrics(&store).contains("index_table_data_file_replaced{shard=\"main\"} 1"));
    fs::remove_dir_all(&path).expect("removed");
    fs::rename(&away, &path).expect("renamed");
    store.transaction(|txn| customers.put(txn, &customer(4))).expect("a commit");
    assert_eq!(kinds(&store), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_reason_until_a_commit_succeeds() {
    let Some(disk) = disk::Disk::new() else { return };
    let store = Store::open(disk.path().join("shop")).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    let row = |id| support::Event { body: "x".repeat(300_000), ..event(id) };
    let failed = (0..20).find_map(|id| store.transaction(|txn| events.insert(txn, &row(id))).err());
    assert!(matches!(failed, Some(Error::DiskFull { .. })), "{failed:?}");
    let reasons = health(&store).reasons;
    assert!(reasons.iter().any(|reason| reason.kind == "disk"), "{reasons:?}");
    assert_eq!(reasons[0].kind, "commits", "{reasons:?}");
    assert!(value(&store, "index_table_commit_failures_total{kind=\"disk_full\"}") >= 1.0);
    assert_eq!(value(&store, "index_table_last_commit_failed"), 1.0);
    disk.grow();
    store.transaction(|txn| events.insert(txn, &row(99))).expect("a commit");
    assert_eq!(kinds(&store), [""; 0]);
}

#[test]
fn a_map_near_its_limit_is_a_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    // Without a journal, no checkpoint keeps free pages.
    let options = Store::options().durability(Durability::None);
    let options = options.map_size(8 << 20).max_map_size(8 << 20);
    let store = options.open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let mut rows = 0;
    while !kinds(&store).contains(&"map") {
        let mut some = rows..rows + 200;
        store
            .transaction(|txn| some.try_for_each(|id| customers.insert(txn, &customer(id))))
            .expect("a commit");
        rows += 200;
    }
    assert!(rows > 1000, "{rows}");
    // The pages of deleted rows are used again.
    for first in (0..rows / 2).step_by(20) {
        let mut some = first..first + 20;
        store
            .transaction(|txn| some.try_for_each(|id| customers.delete(txn, id).map(drop)))
            .expect("a commit");
    }
    assert_eq!(kinds(&store), [""; 0]);
}

/// The writer of a journal has a reader slot for its checkpoint. A process that only reads can't tell it from a reader.
#[test]
fn the_checkpoint_of_a_writer_is_no_reader() {
    let dir = plain(300);
    // It waits for rows.
    let mut writer = Command::new(process::example("rows"))
        .arg("load")
        .arg(dir.path())
        .arg("customers")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let has_slot = || {
        let slots = index_table::__private::admin::reader_slots(dir.path()).expect("slots");
        slots.readers.iter().any(|slot| slot.process == writer.id())
    };
    let begun = Instant::now();
    while !has_slot() {
        assert!(begun.elapsed() < Duration::from_mins(1), "no writer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = Store::open(dir.path()).map(drop);
    assert!(matches!(refused, Err(Error::WriterElsewhere { .. })), "{refused:?}");
    let store = Store::options().read_only(true).open(dir.path()).expect("a store");
    assert_eq!(store.data_files().expect("files")[0].readers, []);
    drop(store);
    assert!(has_slot());
    drop(writer.stdin.take());
    writer.wait().expect("ended");
}

#[test]
fn each_data_file_is_measured() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let names = |store: &Store| -> Vec<String> {
        let files = store.data_files().expect("files");
        assert!(files.iter().all(|file| file.bytes > 0 && file.used > Some(0)), "{files:?}");
        files.into_iter().map(|file| file.shard).collect()
    };
    assert_eq!(names(&store), ["north", "south", "(manager)"]);
    assert!(store.journal().is_some_and(|journal| journal.refused.is_none()));
    store.remove_shard("south").expect_err("it has rows");
    store.add_shard("east", "east").expect("a shard");
    assert_eq!(names(&store), ["north", "south", "east", "(manager)"]);
    store.remove_shard("east").expect("removed");
    assert_eq!(names(&store), ["north", "south", "(manager)"]);
    assert!(store.journal().is_some_and(|journal| journal.refused.is_none()));
    assert_eq!(kinds(&store), [""; 0]);
    drop(store);
    fs::remove_dir_all(dir.path().join("south")).expect("removed");
    let store = Store::open(dir.path()).expect("a store without a shard");
    assert_eq!(names(&store), ["north", "(manager)"]);
}

#[test]
fn a_store_that_grows_has_a_second_data_file() {
    let dir = plain(3);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    assert_eq!(store.data_files().expect("files").len(), 1);
    store.add_shard("east", "east").expect("a shard");
    let names: Vec<_> = store.data_files().expect("files").into_iter().map(|it| it.shard).collect();
    assert_eq!(names, ["main", "east", "(manager)"]);
    assert!(store.journal().is_some_and(|journal| journal.refused.is_none()));
}

#[test]
fn a_store_in_memory_has_no_files() {
    let store = Store::in_memory();
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(1))).expect("a commit");
    assert_eq!(store.data_files().expect("no error"), []);
    assert_eq!(store.journal(), None);
    assert_eq!(store.commits().count, 1);
    // There is nothing to copy.
    store.backup_to("copy").expect_err("no copy");
    store.check().expect("nothing to check");
    assert_eq!(kinds(&store), [""; 0]);
}

#[cfg(unix)]
#[test]
fn checks_and_backups_are_remembered() {
    let dir = plain(300);
    let store = Store::open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    store.check().expect("an intact store");
    assert!(store.verify().expect("a report").is_clean());
    assert!(store.scrub(100_000).expect("a thread").wait().expect("a report").is_clean());
    let target = tempfile::tempdir().expect("a directory");
    store.backup_to(target.path().join("copy")).expect("a copy");
    assert_eq!(kinds(&store), [""; 0]);
    for kind in ["backup", "check", "scrub", "verify"] {
        let name = format!("index_table_last_inspection_failed{{kind=\"{kind}\"}}");
        assert_eq!(value(&store, &name), 0.0, "{kind}");
    }
    // The directory exists, which is no fault of the store.
    store.backup_to(target.path().join("copy")).expect_err("no copy");
    assert_eq!(kinds(&store), [""; 0]);
    store.backup_to("/proc/index-table/copy").expect_err("no copy");
    assert_eq!(kinds(&store), ["backup"]);
    let path = dir.path().join("data.mdb");
    let mut file = fs::read(&path).expect("a file");
    assert!(process::lose_rows(&mut file) > 0);
    let pages = fs::File::options().write(true).open(&path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&pages, &file[8192..], 8192).expect("written");
    store.check().expect_err("damage");
    assert!(kinds(&store).contains(&"check"), "{:?}", health(&store));
    assert_eq!(value(&store, "index_table_last_inspection_failed{kind=\"check\"}"), 1.0);
}
