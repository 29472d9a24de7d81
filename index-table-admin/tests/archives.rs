//! Commands that write a store with an archive: the archive has to be named or given up, and has their commits.

#[path = "support/process.rs"]
mod process;
mod support;

use std::path::{Path, PathBuf};

use index_table::{Durability, Follower, ShardMap, Store};
use process::{fails, json_of, text_of, typed, typed_fails, typed_json, typed_text};
use support::{CustomerRepository, OrderRepository, customer, order_row};
use tempfile::TempDir;

struct Dirs {
    _dir: TempDir,
    store: PathBuf,
    archive: PathBuf,
}

impl Dirs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
        Self { _dir: dir, store, archive }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.with_file_name(name)
    }

    fn archive(&self) -> &str {
        self.archive.to_str().expect("text")
    }

    /// Returns the rows of a table in the restored archive.
    fn restored(&self, name: &str, rest: &[&str], table: &str) -> String {
        let to = self.path(name);
        let to = to.to_str().expect("text");
        text_of(&["restore"], &self.archive, &[&[to], rest].concat());
        typed_text(&["dump"], to.as_ref(), &[table])
    }
}

fn plain() -> Dirs {
    let dirs = Dirs::new();
    let options = Store::options().durability(Durability::Journal).archive(&dirs.archive);
    let store = options.open(&dirs.store).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let insert =
        store.transaction(|txn| (1..=9).try_for_each(|id| customers.insert(txn, &customer(id))));
    insert.expect("a commit");
    dirs
}

fn sharded() -> Dirs {
    let dirs = Dirs::new();
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .archive(&dirs.archive)
        .open(&dirs.store)
        .expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let insert = store.transaction(|txn| {
        (1..=3).try_for_each(|number| {
            orders.insert(txn, &order_row(7, number))?;
            orders.insert(txn, &order_row(107, number))
        })
    });
    insert.expect("a commit");
    dirs
}

fn line(id: u64) -> String {
    serde_json::to_string(&customer(id)).expect("JSON")
}

/// The commands that write any store, with their arguments after the store.
const WRITING: [(&[&str], &[&str]); 7] = [
    (&["delete"], &["customers", "1"]),
    (&["repair"], &[]),
    (&["build"], &[]),
    (&["upgrade"], &[]),
    (&["expire"], &[]),
    (&["recover"], &[]),
    (&["drop-retired"], &[]),
];

#[test]
fn a_command_does_not_write_a_store_without_its_archive() {
    let dirs = plain();
    let before = std::fs::read(dirs.store.join("data.mdb")).expect("the file");
    let load = typed(&line(20), &["load"], &dirs.store, &["customers"]);
    assert_eq!(load.status.code(), Some(2), "{load:?}");
    let error = String::from_utf8_lossy(&load.stderr).into_owned();
    assert!(error.contains(&format!("--archive {}", dirs.archive())), "{error}");
    assert!(error.contains("--without-archive"), "{error}");
    for (command, rest) in WRITING {
        let error = typed_fails(2, command, &dirs.store, rest);
        assert!(error.contains("--archive") && error.contains("--without-archive"), "{error}");
    }
    fails(2, &["recover"], &dirs.store, &[]);
    let both = ["--archive", dirs.archive(), "--without-archive"];
    fails(2, &["recover"], &dirs.store, &both);
    assert_eq!(std::fs::read(dirs.store.join("data.mdb")).expect("the file"), before);
    // Commands that read need nothing.
    for command in ["tables", "check", "lag", "sizes"] {
        text_of(&[command], &dirs.store, &[]);
    }
    assert_eq!(dirs.restored("copy", &[], "customers").lines().count(), 9);
}

#[test]
fn an_archive_has_the_commits_of_commands_without_a_gap() {
    let dirs = plain();
    let follower = Follower::open(dirs.path("standby"), &dirs.archive).expect("a follower");
    let archived = ["--archive", dirs.archive()];
    let load = typed(&line(20), &["load"], &dirs.store, &[&["customers"], &archived[..]].concat());
    assert!(load.status.success(), "{load:?}");
    for (command, rest) in WRITING {
        typed_text(command, &dirs.store, &[rest, &archived].concat());
    }
    let rows = typed_text(&["dump"], &dirs.store, &["customers"]);
    assert_eq!(rows.lines().count(), 9);
    assert_eq!(dirs.restored("copy", &[], "customers"), rows);
    // The follower continues: there was no gap.
    let begun = std::time::Instant::now();
    let lag = loop {
        let lag = follower.lag().expect("a lag");
        if lag.commits == 0 || begun.elapsed() > std::time::Duration::from_secs(20) {
            break lag;
        }
    };
    assert_eq!((lag.commits, lag.error), (0, None));
    let customers = CustomerRepository::open(follower.store()).expect("a table");
    let txn = follower.store().read().expect("a transaction");
    assert!(customers.get(&txn, 20).expect("readable").is_some());
}

#[test]
fn a_command_gives_the_archive_up() {
    let dirs = plain();
    drop(Follower::open(dirs.path("standby"), &dirs.archive).expect("a follower"));
    typed_text(&["delete"], &dirs.store, &["customers", "1", "--without-archive"]);
    typed_text(&["delete"], &dirs.store, &["customers", "2"]);
    let to = dirs.path("copy");
    let error = fails(5, &["restore"], &dirs.archive, &[to.to_str().expect("text")]);
    assert!(error.contains("--until-end"), "{error}");
    assert_eq!(dirs.restored("end", &["--until-end"], "customers").lines().count(), 9);
    let lag = json_of(&["lag"], &dirs.path("standby"), &[])["follower"].clone();
    assert!(lag["error"].as_str().is_some_and(|it| it.contains("without it")), "{lag}");
    assert!(lag["commits"].as_u64().is_some_and(|it| it > 0), "{lag}");
}

#[test]
fn a_created_store_has_the_named_archive() {
    let dirs = Dirs::new();
    let rest = ["customers", "--create", "--archive", dirs.archive()];
    let load = typed(&line(1), &["load"], &dirs.store, &rest);
    assert!(load.status.success(), "{load:?}");
    typed_fails(2, &["delete"], &dirs.store, &["customers", "1"]);
    assert_eq!(dirs.restored("copy", &[], "customers").lines().count(), 1);
}

#[test]
fn commands_on_shards_need_the_archive_too() {
    let dirs = sharded();
    let follower = Follower::open(dirs.path("standby"), &dirs.archive).expect("a follower");
    let moving: [(&[&str], &[&str]); 5] = [
        (&["move"], &["orders", "..50", "south"]),
        (&["split"], &["orders", "107", "north"]),
        (&["rebalance"], &["orders"]),
        (&["resume-move"], &["1"]),
        (&["cancel-move"], &["1"]),
    ];
    for (command, rest) in moving {
        let error = typed_fails(2, command, &dirs.store, rest);
        assert!(error.contains("--archive"), "{error}");
    }
    typed_text(&["rebalance"], &dirs.store, &["orders", "--dry-run"]);
    let archived = ["--archive", dirs.archive()];
    for (command, rest) in &moving[..2] {
        typed_text(command, &dirs.store, &[rest, &archived[..]].concat());
    }
    // There is no such move.
    typed_fails(3, &["resume-move"], &dirs.store, &[&["999"], &archived[..]].concat());
    typed_json(&["delete"], &dirs.store, &[&["orders", "7", "1"], &archived[..]].concat());
    let rows = typed_text(&["dump"], &dirs.store, &["orders"]);
    assert_eq!(rows.lines().count(), 5);
    assert_eq!(dirs.restored("copy", &[], "orders"), rows);
    assert_eq!(follower.lag().expect("a lag").error, None);
    assert!(!has_ended(&dirs.archive));
    typed_text(&["delete"], &dirs.store, &["orders", "7", "2", "--without-archive"]);
    assert!(has_ended(&dirs.archive));
}

fn has_ended(archive: &Path) -> bool {
    archive.join("ended").exists()
}
