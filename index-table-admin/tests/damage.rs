//! Commands on damaged stores: an error with an exit code.
#![cfg(unix)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use index_table::{Error, Store};
use process::{admin, copy, example, lose_rows, typed};
use serde_json::Value;
use support::{OrderRepository, customer, order_row, plain, sharded};

/// The page size of the stores.
const PAGE: usize = 4096;

/// A directory that does not exist.
const COPY: &str = "COPY";

const ANY: [&[&str]; 15] = [
    &["backup", COPY],
    &["compact", COPY],
    &["advice"],
    &["tables"],
    &["indexes"],
    &["sizes"],
    &["keys", "customers"],
    &["keys", "customers", "town"],
    &["analyze"],
    &["check"],
    &["readers"],
    &["catalog"],
    &["consumers"],
    &["lag"],
    &["drop-retired"],
];

const TYPED: [&[&str]; 9] = [
    &["build"],
    &["upgrade"],
    &["load", "customers", "--on-duplicate", "skip"],
    &["get", "customers", "1000"],
    &["find", "customers", "town", "Oslo", "--limit", "3000"],
    &["dump", "customers"],
    &["verify", "customers"],
    &["repair", "customers"],
    &["delete", "customers", "1001"],
];

/// The results of all commands on a damaged store.
#[derive(Debug, Default)]
struct Results {
    /// The number of commands that report damage.
    reports: usize,
    /// Whether each command succeeded.
    are_all_done: bool,
}

/// Runs all commands. None may end by a signal or a panic.
fn run_all(dir: &Path, what: &str) -> Results {
    let mut results = Results { are_all_done: true, ..Results::default() };
    let mut note = |command: &[&str], output: std::process::Output| {
        let error = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| code < 6),
            "{what}: {command:?}: {:?} {error}",
            output.status
        );
        assert!(!error.contains("panicked"), "{what}: {command:?}: {error}");
        // A row may not exist.
        results.are_all_done &= matches!(code, Some(0 | 3));
        if code == Some(1) {
            assert!(!error.is_empty(), "{what}: {command:?}");
            results.reports += 1;
        }
        if error.contains("the process ended") {
            // All others check the pages before LMDB reads them.
            let is_unchecked = ["load", "delete", "upgrade", "drop-retired", "backup", "compact"];
            assert!(is_unchecked.contains(&command[0]), "{what}: {command:?}: {error}");
            let file = dir.join("data.mdb");
            assert!(error.contains(&format!("`{}`", file.display())), "{what}: {error}");
            assert_eq!(code, Some(1), "{what}: {command:?}: {error}");
        }
    };
    let to = dir.with_extension("copy");
    let lines = [1, 5000].map(|id| serde_json::to_string(&customer(id)).expect("JSON")).join("\n");
    for command in ANY {
        let rest = command[1..].iter();
        let rest = rest.map(|word| if *word == COPY { to.as_os_str() } else { word.as_ref() });
        let output = admin().arg(command[0]).arg(dir).args(rest).output();
        note(command, output.expect("a process"));
        if to.exists() {
            fs::remove_dir_all(&to).expect("removed");
        }
    }
    for command in TYPED {
        note(command, typed(&lines, &command[..1], dir, &command[1..]));
    }
    results
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn a_damaged_file_is_an_error_of_each_command_that_reads_the_damage() {
    let intact = plain(2000);
    let length = fs::metadata(intact.path().join("data.mdb")).expect("the file").len() as usize;
    let copies = tempfile::tempdir().expect("a directory");
    let damages: [(&str, Damage); 5] = [
        ("an overwritten head", |bytes| bytes[..8192].fill(0xa5)),
        ("a file that was cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("an overwritten half", |bytes| {
            let length = bytes.len();
            bytes[length / 2..].fill(0xa5);
        }),
        ("pages of zeros", |bytes| assert!(lose_rows(bytes) > 10)),
        ("another file", |bytes| *bytes = b"not a store\n".repeat(2000)),
    ];
    for (at, (what, damage)) in damages.into_iter().enumerate() {
        let dir = copies.path().join(at.to_string());
        copy(intact.path(), &dir);
        let file = dir.join("data.mdb");
        let mut bytes = fs::read(&file).expect("the file");
        assert_eq!(bytes.len(), length);
        damage(&mut bytes);
        fs::write(&file, bytes).expect("the file");
        if what == "an overwritten head" {
            // The journal has the first pages of its last checkpoint.
            let check = admin().arg("check").arg(&dir).output().expect("a process");
            assert!(check.status.success(), "{what}: {check:?}");
            continue;
        }
        assert!(run_all(&dir, what).reports > 0, "{what}: no command reports it");
        let check = admin().arg("check").arg(&dir).output().expect("a process");
        assert_eq!(check.status.code(), Some(1), "{what}");
    }
}

#[test]
fn a_damaged_shard_is_named() {
    let dir = sharded();
    let file = dir.path().join("south").join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    bytes[..8192].fill(0xa5);
    fs::write(&file, bytes).expect("the file");
    for command in [&["tables"][..], &["shards"], &["keys", "orders"], &["check"], &["moves"]] {
        let output = admin().arg(command[0]).arg(dir.path()).args(&command[1..]).output();
        let output = output.expect("a process");
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains("south"), "{command:?}: {all}");
        assert!(output.status.code().is_some_and(|code| code < 6), "{command:?}: {all}");
    }
}

#[test]
fn a_page_of_zeros_is_an_error_that_names_the_file_or_has_no_effect() {
    let intact = plain(300);
    let bytes = fs::read(intact.path().join("data.mdb")).expect("the file");
    let copies = tempfile::tempdir().expect("a directory");
    let mut used = 0;
    for page in 0..bytes.len() / PAGE {
        let dir = copies.path().join(page.to_string());
        fs::create_dir(&dir).expect("a directory");
        let mut bytes = bytes.clone();
        bytes[page * PAGE..][..PAGE].fill(0);
        fs::write(dir.join("data.mdb"), bytes).expect("the file");
        let check = admin().arg("check").arg(&dir).output().expect("a process");
        let error = String::from_utf8_lossy(&check.stderr);
        let results = run_all(&dir, &format!("page {page}"));
        if check.status.code() == Some(0) {
            assert!(results.are_all_done, "page {page} is in use, and `check` finds nothing");
            continue;
        }
        assert!(!error.contains("the process ended"), "page {page}: {error}");
        used += 1;
    }
    assert!(used > 10, "{used}");
}

/// Overwrites the second leaf with rows, to which only a scan comes.
fn lose_some_rows(dir: &Path) {
    let file = dir.join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    let mut leaves = bytes.chunks_mut(PAGE).filter(|page| process::has_rows(page));
    leaves.nth(1).expect("a leaf").fill(0);
    fs::write(file, bytes).expect("the file");
}

#[test]
fn with_json_the_error_of_a_damaged_page_is_an_object() {
    let dir = plain(2000);
    lose_some_rows(dir.path());
    let output = typed("", &["--json", "dump"], dir.path(), &["customers"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    // A build with debug assertions has a line of LMDB before it.
    let error: Value = serde_json::from_str(error.lines().last().expect("a line")).expect("JSON");
    let message = error["error"].as_str().expect("text");
    assert_eq!(error["code"], 1);
    assert!(message.starts_with("table `customers`, facts, page "), "{message}");
    assert!(message.contains("`index-table salvage STORE TO`"), "{message}");
    // Rows before the damage are whole lines, except the last.
    let rows = String::from_utf8(output.stdout).expect("text");
    let whole = rows.rsplit_once('\n').map_or("", |(whole, _)| whole);
    assert!(whole.lines().all(|row| serde_json::from_str::<Value>(row).is_ok()), "{rows}");
}

#[test]
fn a_served_page_survives_a_damaged_page_and_shows_the_error() {
    let dir = plain(2000);
    lose_some_rows(dir.path());
    let mut serve = Command::new(example("rows"));
    serve.arg("serve").arg(dir.path()).arg("127.0.0.1:0").env_remove("INDEX_TABLE_TOKEN");
    let mut server =
        serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    let mut line = String::new();
    let output = server.stdout.take().expect("a stream");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on http://").expect("an address");
    let address = address.trim_end_matches('/');
    let mut shown = 0;
    for after in (0..2000).step_by(25) {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let path = format!("/table/customers?after=0x.0x{after:016x}");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let mut response = String::new();
        stream.write_all(request.as_bytes()).expect("a request");
        stream.read_to_string(&mut response).expect("a response");
        assert!(!response.contains("not a link"), "{response}");
        shown += usize::from(response.contains("salvage STORE TO"));
    }
    let end = server.try_wait().expect("the process");
    let _ = server.kill();
    assert!(end.is_none() && shown > 0, "{end:?}, {shown} pages show the damage");
}

/// Starts a dump of a store whose output is not read, cuts the file, and reads on. Returns the exit code and the error.
fn cut_during_a_dump(dir: &Path, table: &str, file: &Path) -> (Option<i32>, String) {
    let mut dump = Command::new(example("rows"));
    let dump = dump.arg("dump").arg(dir).arg(table);
    let mut child = dump.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    let mut output = child.stdout.take().expect("a stream");
    output.read_exact(&mut [0; 1]).expect("a row");
    let file = fs::OpenOptions::new().write(true).open(file).expect("the file");
    file.set_len(8 * PAGE as u64).expect("cut");
    let _ = output.read_to_end(&mut Vec::new());
    let output = child.wait_with_output().expect("the end");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_named() {
    let dir = plain(20_000);
    let file = dir.path().join("data.mdb");
    let (code, error) = cut_during_a_dump(dir.path(), "customers", &file);
    assert_eq!(code, Some(1), "{error}");
    // The page was checked before the cut, or after it.
    let is_signal = error.contains(&format!("`{}` can't be used", file.display()));
    assert!(is_signal || error.contains("table `customers`, facts, page "), "{error}");
}

/// Returns a sharded store with many rows in the shard `south`.
fn sharded_with_many_rows() -> tempfile::TempDir {
    let dir = sharded();
    {
        // A process that another test starts has the lock for a moment.
        let store = loop {
            match Store::open(dir.path()) {
                Err(Error::AlreadyOpen { .. }) => thread::yield_now(),
                store => break store.expect("a store"),
            }
        };
        let orders = OrderRepository::open(&store).expect("a table");
        let rows = (10..20_000).map(|number| order_row(107, number));
        orders.bulk_load(&store, rows).run().expect("a load");
    }
    dir
}

#[test]
#[cfg(target_os = "linux")]
fn the_file_of_a_shard_that_is_cut_while_it_is_read_is_named() {
    let dir = sharded_with_many_rows();
    let file = dir.path().join("south").join("data.mdb");
    let (code, error) = cut_during_a_dump(dir.path(), "orders", &file);
    assert_eq!(code, Some(1), "{error}");
    let is_signal = error.contains(&format!("`{}` can't be used", file.display()))
        && error.contains(&format!("run `check {}`", dir.path().display()));
    assert!(is_signal || error.contains("table `orders`, facts, page "), "{error}");
}

#[test]
fn a_damaged_page_of_a_shard_is_named_with_its_table() {
    let dir = sharded_with_many_rows();
    let shard = dir.path().join("south");
    let file = shard.join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    let leaves = bytes.chunks_mut(PAGE).filter(|page| process::is_leaf_with(page, &["107/"]));
    leaves.for_each(|leaf| leaf.fill(0));
    fs::write(&file, bytes).expect("the file");
    let output = typed("", &["dump"], dir.path(), &["orders"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("table `orders`, facts, page "), "{error}");
}

#[test]
fn a_signal_of_another_process_ends_the_tool() {
    let dir = plain(3);
    let mut serve = Command::new(example("rows"));
    let serve = serve.arg("serve").arg(dir.path()).arg("127.0.0.1:0").stderr(Stdio::piped());
    let mut child = serve.stdout(Stdio::piped()).spawn().expect("a process");
    BufReader::new(child.stdout.take().expect("a stream"))
        .read_line(&mut String::new())
        .expect("a line");
    let kill = Command::new("kill").args(["-ABRT", &child.id().to_string()]).status();
    assert!(kill.expect("the command kill").success());
    let output = child.wait_with_output().expect("the end");
    assert_eq!(output.status.code(), None, "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
