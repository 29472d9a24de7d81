//! Ctrl-C during long work: the next call continues or starts again, and no row is lost.
#![cfg(unix)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Store};
use process::{example, json_of, typed_json, typed_text};
use support::{Customer, Order, OrderRepository, customer, sharded};
use tempfile::TempDir;

/// Starts the tool with types.
fn start(command: &str, dir: &Path, rest: &[&str]) -> Child {
    let mut process = Command::new(example("rows"));
    process.arg(command).arg(dir).args(rest);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.spawn().expect("a process")
}

/// Waits until the condition holds, or the process ends. Returns whether it holds.
fn wait_for(child: &mut Child, mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if child.try_wait().expect("the process").is_some() {
            return false;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "nothing happens");
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Sends the signal of Ctrl-C. Returns the exit code and the errors of the process.
fn interrupt(child: Child) -> (Option<i32>, String) {
    end(child, "-INT")
}

/// Sends a signal. Returns the exit code and the errors of the process.
fn end(mut child: Child, signal: &str) -> (Option<i32>, String) {
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(kill.expect("the command kill").success());
    let status = child.wait().expect("the end");
    let mut error = String::new();
    child.stderr.take().expect("a stream").read_to_string(&mut error).expect("text");
    (status.code(), error)
}

fn customers(rows: u64) -> String {
    (1..=rows).fold(String::new(), |mut lines, id| {
        let row = serde_json::to_string::<Customer>(&customer(id)).expect("JSON");
        let _ = writeln!(lines, "{row}");
        lines
    })
}

/// Creates a store of customers without the tool's index `score`, which is to be built.
fn with_rows(dir: &Path, rows: u64) {
    let store = Store::open(dir).expect("a store");
    let table = support::CustomerRepository::open(&store).expect("a table");
    table.bulk_load(&store, (1..=rows).map(customer)).run().expect("a load");
}

#[test]
fn an_interrupted_load_has_loaded_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    with_rows(dir.path(), 3);
    let mut child = start("load", dir.path(), &["customers", "--on-duplicate", "skip"]);
    // The process waits for more lines.
    let mut input = child.stdin.take().expect("a stream");
    input.write_all(customers(2000).as_bytes()).expect("written");
    thread::sleep(Duration::from_millis(200));
    let (code, error) = interrupt(child);
    assert_eq!(code, Some(130), "{error}");
    assert!(
        error.contains("interrupted; all rows were loaded, or none; run the command again"),
        "{error}"
    );
    drop(input);
    assert_eq!(json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"], 3);
    typed_text(&["verify"], dir.path(), &[]);

    let lines = dir.path().join("rows.jsonl");
    fs::write(&lines, customers(2000)).expect("a file");
    let rest = ["customers", lines.to_str().expect("text"), "--on-duplicate", "skip"];
    let loaded = typed_json(&["load"], dir.path(), &rest);
    assert_eq!((&loaded["written"], &loaded["skipped"]), (&1997.into(), &3.into()));
}

#[test]
fn an_interrupted_copy_leaves_no_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, copies) = (dir.path().join("store"), dir.path().join("copies"));
    with_rows(&store, 100_000);
    fs::create_dir(&copies).expect("a directory");
    let copy = copies.join("copy");
    let to = copy.to_str().expect("text");
    let files = || fs::read_dir(&copies).expect("a directory").count();
    let mut interrupted = 0;
    for command in ["backup", "compact", "restore"] {
        for round in 0..20 {
            let mut child = start(command, &store, &[to]);
            if !wait_for(&mut child, || files() > 0) {
                continue;
            }
            let signal = if round % 2 == 0 { "-INT" } else { "-TERM" };
            let (code, error) = end(child, signal);
            match code {
                // The copy had ended before the signal.
                Some(0) => {
                    assert_eq!(json_of(&["tables"], &copy, &[])["tables"][0]["rows"], 100_000);
                }
                Some(130) if copy.exists() => {}
                Some(130) => {
                    interrupted += 1;
                    assert_eq!(files(), 0, "{command}: {error}");
                    assert!(error.contains("interrupted; there is no copy"), "{error}");
                }
                other => panic!("{command}: {other:?} {error}"),
            }
            if copy.exists() {
                fs::remove_dir_all(&copy).expect("removed");
            }
        }
    }
    assert!(interrupted > 0, "each copy had ended before the signal");
    typed_text(&["backup"], &store, &[to]);
    assert_eq!(json_of(&["tables"], &copy, &[])["tables"][0]["rows"], 100_000);
}

#[test]
fn a_backup_removes_what_a_killed_backup_has_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, copies) = (dir.path().join("store"), dir.path().join("copies"));
    with_rows(&store, 100_000);
    fs::create_dir(&copies).expect("a directory");
    let copy = copies.join("copy");
    let to = copy.to_str().expect("text");
    let files = || fs::read_dir(&copies).expect("a directory").count();
    let mut killed = 0;
    for _ in 0..20 {
        let mut child = start("backup", &store, &[to]);
        if wait_for(&mut child, || files() > 0) {
            end(child, "-KILL");
        }
        if copy.exists() {
            fs::remove_dir_all(&copy).expect("removed");
        } else {
            killed += 1;
        }
    }
    assert!(killed > 0 && files() > 0, "each copy had ended before the signal");
    // Each run has removed what the last one has left.
    assert_eq!(files(), 1);
    typed_text(&["backup"], &store, &[to]);
    assert_eq!(files(), 1);
    assert_eq!(json_of(&["tables"], &copy, &[])["tables"][0]["rows"], 100_000);
}

#[test]
fn an_interrupted_build_continues() {
    let dir = tempfile::tempdir().expect("a directory");
    with_rows(dir.path(), 150_000);
    support::open_without_indexes(dir.path());
    text(&["drop-retired"], dir.path());
    support::declare_another_index(dir.path());
    let states = || {
        let indexes = json_of(&["indexes"], dir.path(), &[])["indexes"].clone();
        let indexes = indexes.as_array().expect("a list").clone();
        indexes.iter().map(|index| index["state"].to_string()).collect::<Vec<_>>()
    };
    let mut interrupted = 0;
    for delay in [50, 100, 150, 200] {
        let child = start("build", dir.path(), &["customers"]);
        thread::sleep(Duration::from_millis(delay));
        let (code, error) = interrupt(child);
        match code {
            Some(130) => assert!(error.contains("the same command continues"), "{error}"),
            // Before the process handles the signal, the signal ends it.
            None => {}
            other => assert_eq!(other, Some(0), "{error}"),
        }
        interrupted += u32::from(code == Some(130));
    }
    assert!(interrupted > 0, "the build had ended before the signal");
    typed_text(&["build"], dir.path(), &["customers"]);
    // The program does not declare the index that was declared before.
    let is_done = |state: &String| state == "\"Readable\"" || state == "\"Retired\"";
    assert!(states().iter().all(is_done), "{:?}", states());
    let verified = typed_json(&["verify"], dir.path(), &["customers"]);
    assert_eq!(verified["tables"][0]["rows"], 150_000);
}

#[test]
fn an_interrupted_expiry_continues() {
    let dir = tempfile::tempdir().expect("a directory");
    support::sessions(dir.path(), 20_000, 3);
    let rows =
        || json_of(&["tables"], dir.path(), &[])["tables"][0]["rows"].as_u64().expect("a number");
    let mut child = start("expire", dir.path(), &["sessions"]);
    assert!(wait_for(&mut child, || rows() < 20_003), "it had ended before the signal");
    let (code, error) = interrupt(child);
    assert_eq!(code, Some(130), "{error}");
    let left = rows();
    assert!(left > 3, "{left}");
    assert_eq!(typed_json(&["expire"], dir.path(), &["sessions"])["deleted"], left - 3);
    assert_eq!(rows(), 3);
    typed_text(&["verify"], dir.path(), &["sessions"]);
}

/// Creates a sharded store with further orders in `north`.
fn sharded_orders(rows: u32) -> TempDir {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let order = |number: u32| Order {
        tenant: 50 + number % 40,
        number: number.into(),
        total: 1,
        code: format!("many{number}"),
    };
    orders.bulk_load(&store, (0..rows).map(order)).run().expect("a load");
    dir
}

/// Returns the number of unfinished moves.
fn moves(dir: &Path) -> usize {
    json_of(&["moves"], dir, &[])["moves"].as_array().expect("a list").len()
}

/// Interrupts a command in the middle of a move.
fn interrupt_in_a_move(command: &str, dir: &Path, rest: &[&str]) {
    let mut child = start(command, dir, rest);
    assert!(wait_for(&mut child, || moves(dir) > 0), "it had ended before the signal");
    let (code, error) = interrupt(child);
    assert_eq!(code, Some(130), "{error}");
    assert!(error.contains("the same command continues the move"), "{error}");
    // The shards can be read again when the commits in their journal are applied.
    text(&["recover"], dir);
    assert_eq!(moves(dir), 1);
}

#[test]
fn an_interrupted_move_is_continued_by_the_same_command() {
    const ROWS: u32 = 20_000;
    let dir = sharded_orders(ROWS);
    let rest = ["orders", "50..100", "south"];
    interrupt_in_a_move("move", dir.path(), &rest);

    // A query sees each row once in the meantime.
    let count =
        || typed_json(&["find"], dir.path(), &["orders", "total", "--count"])["count"].clone();
    assert_eq!(count(), ROWS + 6);
    let report = typed_json(&["move"], dir.path(), &rest);
    assert!(report["rows"].as_u64().is_some_and(|rows| rows <= u64::from(ROWS)), "{report}");
    assert_eq!((moves(dir.path()), count()), (0, (ROWS + 6).into()));
    let ranges = json_of(&["ranges"], dir.path(), &["orders"]);
    assert_eq!(ranges["ranges"][1]["shard"], "south", "{ranges}");
    typed_text(&["verify"], dir.path(), &["orders"]);
}

#[test]
fn an_interrupted_split_is_continued_by_the_same_command() {
    const ROWS: u32 = 20_000;
    let dir = sharded_orders(ROWS);
    let rest = ["orders", "70", "south"];
    interrupt_in_a_move("split", dir.path(), &rest);
    typed_text(&["split"], dir.path(), &rest);
    assert_eq!(moves(dir.path()), 0);
    let ranges = json_of(&["ranges"], dir.path(), &["orders"])["ranges"].clone();
    assert_eq!((&ranges[1]["from"], &ranges[1]["shard"]), (&"70".into(), &"south".into()));
    assert_eq!((&ranges[0]["rows"], &ranges[1]["rows"]), (&10_003.into(), &10_003.into()));
    typed_text(&["verify"], dir.path(), &["orders"]);
}

/// Starts a command several times, and interrupts it after different times. Returns the number of interruptions.
fn interrupt_often(message: &str, start: impl Fn() -> Child) -> u32 {
    let mut interrupted = 0;
    for delay in [50, 100, 150, 200, 400, 800] {
        let child = start();
        thread::sleep(Duration::from_millis(delay));
        let (code, error) = interrupt(child);
        match code {
            Some(130) => assert!(error.contains(message), "{error}"),
            // Before the process handles the signal, the signal ends it.
            None => {}
            other => assert_eq!(other, Some(0), "{error}"),
        }
        interrupted += u32::from(code == Some(130));
    }
    interrupted
}

#[test]
fn an_interrupted_repair_has_changed_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    with_rows(dir.path(), 150_000);
    let tables = || json_of(&["tables"], dir.path(), &[]);
    let before = tables();
    let repair = || start("repair", dir.path(), &["customers"]);
    let interrupted = interrupt_often("the table is unchanged; run the command again", repair);
    assert!(interrupted > 0, "the repair had ended before the signal");
    assert_eq!(tables(), before);
    let report = typed_json(&["repair"], dir.path(), &["customers"]);
    assert_eq!(
        (&report["tables"][0]["rows"], &report["tables"][0]["left"]),
        (&150_000.into(), &0.into())
    );
}

#[test]
fn an_interrupted_upgrade_continues() {
    const ROWS: u64 = 30_000;
    let dir = tempfile::tempdir().expect("a directory");
    support::older_documents(dir.path(), ROWS, 1000);
    let upgrade = || start("upgrade", dir.path(), &["documents"]);
    let interrupted = interrupt_often("the same command continues", upgrade);
    assert!(interrupted > 0, "the upgrade had ended before the signal");
    let report = typed_json(&["upgrade"], dir.path(), &["documents"]);
    // Less is left than at first; nothing is left if the last of the calls had ended before the signal.
    let upgraded = report["tables"][0]["upgraded"].as_u64().expect("a number");
    assert!(upgraded < ROWS, "it began again: {report}");
    let report = typed_json(&["upgrade"], dir.path(), &["documents"]);
    assert_eq!(report["tables"][0]["upgraded"], 0);
    assert_eq!(typed_json(&["get"], dir.path(), &["documents", "7"])["pages"], 1);
}

#[test]
fn an_interrupted_rebalance_is_continued_by_the_same_command() {
    const ROWS: u32 = 20_000;
    let dir = sharded_orders(ROWS);
    let rest = ["orders", "--onto", "south"];
    interrupt_in_a_move("rebalance", dir.path(), &rest);
    typed_text(&["rebalance"], dir.path(), &rest);
    assert_eq!(moves(dir.path()), 0);
    let shards = json_of(&["shards"], dir.path(), &[]);
    // The reference table has a row in each shard.
    assert_eq!(shards["shards"][0]["rows"], 1, "{shards}");
    assert_eq!(shards["shards"][1]["rows"], ROWS + 7, "{shards}");
    typed_text(&["verify"], dir.path(), &["orders"]);
}

#[test]
fn an_interrupted_restore_of_an_archive_leaves_no_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (archive, copies) = (path("archive"), path("copies"));
    {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(path("store")).expect("a store");
        let table = support::CustomerRepository::open(&store).expect("a table");
        table.bulk_load(&store, (1..=100_000).map(customer)).run().expect("a load");
    }
    fs::create_dir(&copies).expect("a directory");
    let copy = copies.join("copy");
    let to = copy.to_str().expect("text");
    let files = || fs::read_dir(&copies).expect("a directory").count();
    let mut interrupted = 0;
    for _ in 0..20 {
        let mut child = start("restore", &archive, &[to]);
        let is_running = wait_for(&mut child, || files() > 0);
        let (code, error) = interrupt(child);
        if code == Some(130) && !copy.exists() {
            interrupted += 1;
            assert!(error.contains("interrupted; there is no copy"), "{error}");
            assert_eq!(files(), 0, "{error}");
            break;
        }
        assert!(!is_running || matches!(code, Some(0 | 130)), "{code:?} {error}");
        fs::remove_dir_all(&copy).expect("removed");
    }
    assert!(interrupted > 0, "each restore had ended before the signal");
    typed_text(&["restore"], &archive, &[to]);
    assert_eq!(json_of(&["tables"], &copy, &[])["tables"][0]["rows"], 100_000);
}

fn text(command: &[&str], dir: &Path) {
    process::text_of(command, dir, &[]);
}
