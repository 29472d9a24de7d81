//! Each state in which a store needs an operator: `status` names it first, and its exit code is 1.
#![cfg(target_os = "linux")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;
mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use index_table::{Durability, Error, Follower, IndexTable, Store};
use process::{copy, fails, text_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::{Service, wait};
use support::{
    CustomerRepository, Event, EventRepository, OrderRepository, customer, event, plain, sharded,
};
use tempfile::TempDir;

/// The kinds of the reasons that a command's output has.
fn kinds(output: &std::process::Output) -> Vec<String> {
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let reasons = status["reasons"].as_array().expect("a list");
    let kinds: Vec<_> =
        reasons.iter().map(|it| it["kind"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(output.status.code(), Some(i32::from(!kinds.is_empty())), "{output:?}");
    assert_eq!(status["healthy"], kinds.is_empty());
    kinds
}

/// Returns the first reason that `status STORE` has.
fn first(dir: &Path) -> String {
    let output = process::admin().args(["--json", "status"]).arg(dir).output();
    kinds(&output.expect("a process")).first().cloned().unwrap_or_default()
}

/// Returns the first reason that `--url … status` has.
fn first_of_service(store: &Store) -> String {
    let service = Service::of(store, |operations| operations);
    kinds(&service.command(&["--json", "status"])).first().cloned().unwrap_or_default()
}

/// A library that sets the clock back by two hours; and all clocks ahead, as soon as there is a file.
struct Past(TempDir);

impl Past {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("past.c");
        let text = r#"
            #include <stdlib.h>
            #include <time.h>
            #include <unistd.h>
            #include <sys/syscall.h>
            int clock_gettime(clockid_t clock, struct timespec *now) {
                int failed = syscall(SYS_clock_gettime, clock, now);
                const char *later = getenv("LATER");
                if (failed) return failed;
                if (!later && clock == CLOCK_REALTIME) now->tv_sec -= 7200;
                if (later && !access(later, F_OK)) now->tv_sec += 7200;
                return 0;
            }
        "#;
        fs::write(&source, text).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(dir.path().join("past.so")).arg(source);
        assert!(compiler.status().expect("the compiler that Rust links with").success());
        Self(dir)
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("past.so")
    }

    /// Loads rows into a store, two hours ago.
    fn load(&self, store: &Path, table: &str, rows: &[String], options: &[&str]) {
        self.run("load", store, table, rows, options);
    }

    /// Writes an event two hours ago. A load has no messages for eventual indexes.
    fn put(&self, store: &Path, id: u64) {
        let row = serde_json::to_string(&event(id)).expect("JSON");
        self.run("put", store, "events", &[row], &[]);
    }

    fn run(&self, name: &str, store: &Path, table: &str, rows: &[String], options: &[&str]) {
        let mut load = Command::new(process::example("rows"));
        load.env("LD_PRELOAD", self.library());
        load.arg(name).arg(store).arg(table).args(options);
        let mut load = load.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
        let mut input = load.stdin.take().expect("a pipe");
        input.write_all(rows.join("\n").as_bytes()).expect("written");
        drop(input);
        assert!(load.wait().expect("ended").success());
    }
}

fn customers(ids: std::ops::Range<u64>) -> Vec<String> {
    ids.map(|id| serde_json::to_string(&customer(id)).expect("JSON")).collect()
}

/// Creates a store with an event, whose message is applied, and perhaps a consumer.
fn with_event(dir: &Path, has_consumer: bool) {
    let store = Store::open(dir).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    if has_consumer {
        drop(events.changes(&store, "mailer").expect("a consumer"));
    }
    store.transaction(|txn| events.insert(txn, &event(9))).expect("a commit");
    assert_eq!(events.drain(&store, u64::MAX).expect("drained").applied, 1);
}

/// The paths of a store, its archive and its follower.
struct Paths {
    dir: TempDir,
}

impl Paths {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> (Store, CustomerRepository) {
        let options = Store::options().durability(Durability::Journal);
        let store = options.archive(self.of("archive")).open(self.of("store")).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        (store, customers)
    }

    fn write(&self, ids: std::ops::Range<u64>) {
        let (store, customers) = self.open();
        let put = |id| store.transaction(|txn| customers.put(txn, &customer(id)));
        ids.into_iter().for_each(|id| put(id).expect("a commit"));
    }

    fn load(&self, past: &Past, ids: std::ops::Range<u64>, options: &[&str]) {
        let archive = self.of("archive");
        let named = ["--archive", archive.to_str().expect("text")];
        past.load(&self.of("store"), "customers", &customers(ids), &[options, &named].concat());
    }
}

#[test]
fn commits_fail_for_a_full_disk() {
    let Some(disk) = disk::Disk::new() else { return };
    let path = disk.path().join("shop");
    let store = Store::open(&path).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    let row = |id| Event { body: "x".repeat(300_000), ..event(id) };
    let failed = (0..20).find_map(|id| store.transaction(|txn| events.insert(txn, &row(id))).err());
    assert!(matches!(failed, Some(Error::DiskFull { .. })), "{failed:?}");
    assert_eq!(first_of_service(&store), "commits");
    // Another process knows the disk only.
    assert_eq!(first(&path), "disk");
}

#[test]
fn the_archive_has_stopped() {
    let paths = Paths::new();
    let (store, customers) = paths.open();
    store.transaction(|txn| customers.put(txn, &customer(1))).expect("a commit");
    wait(|| store.archive_lag().filter(|lag| lag.has_base && lag.commits == 0));
    let age = store.archive_lag().and_then(|lag| lag.base_age).expect("a base");
    assert!(age < Duration::from_mins(10), "{age:?}");
    fs::rename(paths.of("archive"), paths.of("away")).expect("renamed");
    store.transaction(|txn| customers.put(txn, &customer(2))).expect("a commit");
    let lag = wait(|| store.archive_lag().filter(|lag| lag.error.is_some() && lag.bytes > 0));
    assert!(lag.bytes < 4096, "only the last commit is lacking: {lag:?}");
    // Later attempts end earlier, and the commits pile up.
    store.transaction(|txn| customers.put(txn, &customer(3))).expect("a commit");
    wait(|| store.archive_lag().filter(|later| later.bytes > lag.bytes && later.error.is_some()));
    assert_eq!(first_of_service(&store), "archive");
    assert_eq!(first(&paths.of("store")), "archive");
    fs::rename(paths.of("away"), paths.of("archive")).expect("renamed");
    wait(|| store.archive_lag().filter(|lag| lag.error.is_none() && lag.bytes == 0));
    assert_eq!(first_of_service(&store), "");
    assert_eq!(first(&paths.of("store")), "");
}

#[test]
fn the_archive_has_no_base() {
    let paths = Paths::new();
    paths.write(1..4);
    assert_eq!(first(&paths.of("store")), "");
    for entry in fs::read_dir(paths.of("archive")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            fs::remove_dir_all(path).expect("removed");
        }
    }
    assert_eq!(first(&paths.of("store")), "archive_base");
}

#[test]
fn the_archive_is_an_hour_behind() {
    let (paths, past) = (Paths::new(), Past::new());
    paths.load(&past, 1..4, &["--create"]);
    assert_eq!(first(&paths.of("store")), "");
    // Its disk is not mounted.
    fs::rename(paths.of("archive"), paths.of("away")).expect("renamed");
    paths.load(&past, 4..7, &[]);
    assert_eq!(first(&paths.of("store")), "archive");
    fs::rename(paths.of("away"), paths.of("archive")).expect("renamed");
    assert_eq!(first(&paths.of("store")), "behind");
    let output = text_of(&["archive"], &paths.of("archive"), &[]);
    assert!(output.contains("last commit: "), "{output}");
    // The next writer copies the commits.
    paths.write(9..10);
    assert_eq!(first(&paths.of("store")), "");
}

#[test]
fn a_follower_has_stopped_or_is_an_hour_behind() {
    let (paths, past) = (Paths::new(), Past::new());
    paths.load(&past, 1..4, &["--create"]);
    let standby = paths.of("standby");
    drop(Follower::open(&standby, paths.of("archive")).expect("a follower"));
    assert_eq!(first(&standby), "");
    paths.load(&past, 4..7, &[]);
    assert_eq!(first(&standby), "behind");
    fs::rename(paths.of("archive"), paths.of("away")).expect("renamed");
    assert_eq!(first(&standby), "follower");
}

#[test]
fn a_move_is_unfinished() {
    let (dir, copies) = (sharded(), tempfile::tempdir().expect("a directory"));
    let killed = copies.path().join("killed");
    let store = Store::open(dir.path()).expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let moving = store.move_range("orders", ..50u32, "south").progress(|_| {
        if !killed.exists() {
            copy(dir.path(), &killed);
        }
    });
    moving.run().expect("a move");
    drop((orders, store));
    assert_eq!(first(dir.path()), "");
    assert_eq!(first(&killed), "move");
}

#[test]
fn a_shard_is_missing() {
    let dir = sharded();
    assert_eq!(first(dir.path()), "");
    let south = dir.path().join("south");
    fs::rename(&south, dir.path().join("away")).expect("renamed");
    assert_eq!(first(dir.path()), "shard");
    let store = Store::open(dir.path()).expect("a store");
    assert_eq!(first_of_service(&store), "shard");
}

#[test]
fn a_check_has_found_a_damaged_page() {
    let dir = plain(300);
    let path = dir.path().join("data.mdb");
    let mut file = fs::read(&path).expect("a file");
    assert!(process::lose_rows(&mut file) > 0);
    let store = Store::open(dir.path()).expect("a store");
    assert_eq!(first_of_service(&store), "");
    let pages = fs::File::options().write(true).open(&path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&pages, &file[8192..], 8192).expect("written");
    store.check().expect_err("damage");
    assert_eq!(first_of_service(&store), "check");
}

#[test]
fn a_queue_and_a_consumer_are_an_hour_behind() {
    let (dir, past) = (tempfile::tempdir().expect("a directory"), Past::new());
    with_event(dir.path(), true);
    text_of(&["consumer"], dir.path(), &["events", "mailer", "--skip-all"]);
    assert_eq!(first(dir.path()), "");
    past.put(dir.path(), 1);
    past.put(dir.path(), 2);
    assert_eq!(first(dir.path()), "queue");
    {
        let store = Store::open(dir.path()).expect("a store");
        let events = EventRepository::open(&store).expect("a table");
        assert_eq!(events.drain(&store, u64::MAX).expect("drained").applied, 2);
    }
    assert_eq!(first(dir.path()), "consumer");
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "notes", changes(bytes = 1000))]
struct Note {
    #[primary_key]
    id: u64,
    text: String,
}

#[test]
fn a_consumer_was_over_its_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let notes = NoteRepository::open(&store).expect("a table");
    let _mailer = notes.changes(&store, "mailer").expect("a consumer");
    let note = |id| Note { id, text: "x".repeat(200) };
    for id in 0..100 {
        store.transaction(|txn| notes.insert(txn, &note(id))).expect("a commit");
    }
    assert_eq!(first_of_service(&store), "missed_changes");
    assert_eq!(first(dir.path()), "missed_changes");
}

#[test]
fn a_message_is_a_dead_letter() {
    let (dir, past) = (tempfile::tempdir().expect("a directory"), Past::new());
    with_event(dir.path(), false);
    past.put(dir.path(), 2);
    process::damage_row(dir.path(), "events", 2);
    let store = Store::open(dir.path()).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    assert_eq!(events.drain(&store, u64::MAX).expect("drained").dead_letters, 1);
    let lag = events.lag(&store.read().expect("a snapshot")).expect("a lag");
    assert!(lag.oldest_dead_letter >= Duration::from_hours(2), "{lag:?}");
    let metrics = index_table_admin::metrics(&store);
    let name = "index_table_oldest_dead_letter_seconds{table=\"events\"} 72";
    assert!(metrics.contains(name), "{metrics}");
    assert_eq!(first(dir.path()), "dead_letters");
    assert_eq!(first_of_service(&store), "dead_letters");
    let error = fails_with_output(dir.path());
    assert!(error.contains("the first of 120 minutes ago"), "{error}");
}

fn fails_with_output(dir: &Path) -> String {
    let output = process::admin().arg("status").arg(dir).output().expect("a process");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_map_is_nearly_full() {
    let dir = tempfile::tempdir().expect("a directory");
    // Without a journal, no checkpoint keeps free pages.
    let options = Store::options().durability(Durability::None);
    let store = options.map_size(4 << 20).max_map_size(4 << 20).open(dir.path());
    let store = store.expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    let row = |id| Event { body: "x".repeat(50_000), ..event(id) };
    let mut ids = 0..1000;
    while index_table_admin::health(&store).is_healthy() {
        let id = ids.next().expect("a small map");
        store.transaction(|txn| events.insert(txn, &row(id))).expect("a commit");
    }
    assert_eq!(first_of_service(&store), "map");
}

#[test]
fn the_directory_was_replaced() {
    let paths = Paths::new();
    let store = Store::open(paths.of("shop")).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(1))).expect("a commit");
    assert_eq!(first_of_service(&store), "");
    fs::rename(paths.of("shop"), paths.of("away")).expect("renamed");
    copy(&paths.of("away"), &paths.of("shop"));
    assert_eq!(first_of_service(&store), "files");
}

#[test]
fn a_reader_is_older_than_an_hour() {
    let (dir, past) = (tempfile::tempdir().expect("a directory"), Past::new());
    // Other processes that write it can't know its readers with a journal.
    let store = Store::options().durability(Durability::Full).open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let rows = |txn: &mut index_table::WriteTxn<'_>| {
        (1..20_000).try_for_each(|id| customers.insert(txn, &customer(id)))
    };
    store.transaction(rows).expect("a commit");
    let later = past.0.path().join("later");
    let command = || Command::new(assert_cmd::cargo::cargo_bin!("index-table"));
    let mut serve = command();
    serve.env("LD_PRELOAD", past.library()).env("LATER", &later);
    serve.arg("serve").arg(dir.path()).arg("127.0.0.1:0").stdout(Stdio::piped());
    let mut serve = serve.spawn().expect("a process");
    let mut line = String::new();
    let output = serve.stdout.as_mut().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.trim().trim_start_matches("listening on http://").trim_end_matches('/');
    let address = address.parse().expect("an address");
    let health =
        || service::send(address, "GET", "/healthz", &[("Accept", "application/json")], "");
    // Nobody reads the rest of the pipe, so the process waits in its read transaction.
    let mut dump = command();
    dump.arg("dump").arg(dir.path()).arg("customers").stdout(Stdio::piped());
    let mut dump = dump.spawn().expect("a process");
    dump.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a row");
    for id in [1, 2] {
        store.transaction(|txn| customers.delete(txn, id)).expect("a commit");
    }
    assert_eq!(health().0, 200);
    fs::write(&later, "").expect("written");
    let (status, body) = health();
    assert_eq!(status, 503, "{body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["reasons"][0]["kind"], "reader", "{body}");
    let message = body["reasons"][0]["message"].as_str().expect("text");
    assert!(message.contains(&format!("process {}", dump.id())), "{message}");
    for mut process in [dump, serve] {
        process.kill().expect("killed");
        process.wait().expect("ended");
    }
}

#[test]
fn healthy_stores_have_no_reason() {
    let (plain, sharded) = (plain(3), sharded());
    let full = tempfile::tempdir().expect("a directory");
    let store = Store::options().durability(Durability::Full).open(full.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.insert(txn, &customer(1))).expect("a commit");
    let paths = Paths::new();
    paths.write(1..4);
    drop(Follower::open(paths.of("standby"), paths.of("archive")).expect("a follower"));
    for dir in [plain.path(), sharded.path(), full.path(), &paths.of("store"), &paths.of("standby")]
    {
        assert_eq!(first(dir), "", "{}", dir.display());
    }
    let (store, _customers) = paths.open();
    assert_eq!(first_of_service(&store), "");
    assert_eq!(first(&paths.of("store")), "");
    fails(3, &["status"], &paths.of("none"), &[]);
}
