//! Output that programs read: it is complete and exact, and no data controls the terminal.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use index_table::Store;
use index_table_admin::Tables;
use process::{admin, fails, json_lines, text_of, typed, typed_fails, typed_text};
use serde_json::Value;
use support::{Customer, CustomerRepository, customer, plain};

#[test]
fn output_to_a_program_is_not_cut() {
    let dir = plain(130);
    assert_eq!(text_of(&["keys"], dir.path(), &["customers"]).lines().count(), 131);
    assert_eq!(json_lines(&["keys"], dir.path(), &["customers", "town"]).len(), 130);
    let find = ["customers", "town", "Oslo"];
    assert_eq!(text_of(&["find"], dir.path(), &find).lines().count(), 65);
    let all = process::json_of(&["find"], dir.path(), &find);
    assert_eq!((all["items"].as_array().map(Vec::len), &all["next"]), (Some(65), &Value::Null));
}

/// Returns the output of a call with a limit, and the cursor that follows.
fn part(json: bool, command: &str, dir: &Path, rest: &[&str]) -> (String, Option<String>) {
    let mut call = admin();
    call.args(json.then_some("--json")).arg(command).arg(dir).args(rest);
    let output = call.output().expect("a process");
    let (shown, error) = (output.stdout, String::from_utf8(output.stderr).expect("text"));
    assert!(output.status.success(), "{rest:?}: {error}");
    let next = if json {
        serde_json::from_str::<Value>(&error).ok().map(|it| it["next"].as_str().map(str::to_owned))
    } else {
        error.split_once("follow: `--after ").map(|(_, it)| Some(it.split('`').next()?.to_owned()))
    };
    (String::from_utf8(shown).expect("text"), next.map(|it| it.expect("a cursor")))
}

#[test]
fn keys_continue_after_a_cursor() {
    let (plain, sharded) = (plain(7), support::sharded());
    for (dir, rest) in [
        (&plain, &["customers"][..]),
        (&plain, &["customers", "town"]),
        (&plain, &["customers", "kind_score", "--rev"]),
        (&plain, &["customers", "--to", "6", "--rev"]),
        (&plain, &["customers", "email", "--from", "3@example.com"]),
        (&sharded, &["orders", "total"]),
        (&sharded, &["orders"]),
    ] {
        for json in [false, true] {
            let lines = |text: &str| {
                text.lines().skip(usize::from(!json)).map(str::to_owned).collect::<Vec<_>>()
            };
            let (whole, last) = part(json, "keys", dir.path(), rest);
            assert_eq!(last, None);
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let mut rest = [rest, &["--limit", "2"]].concat();
                rest.extend(after.iter().flat_map(|after: &String| ["--after", after]));
                let (shown, next) = part(json, "keys", dir.path(), &rest);
                all.extend(lines(&shown));
                let Some(next) = next else { break };
                after = Some(next);
            }
            let words = |lines: Vec<String>| -> Vec<Vec<String>> {
                let split = |line: &String| line.split_whitespace().map(str::to_owned).collect();
                lines.iter().map(split).collect()
            };
            assert_eq!(words(all), words(lines(&whole)), "{rest:?}, JSON {json}");
        }
    }
}

#[test]
fn malformed_cursors_are_refused() {
    let dir = plain(7);
    let (town, key) = ("0x4f736c6f00", "0x0000000000000001");
    for cursor in ["0x00", "", "0x", "0x000000000000000100", "nothing", &format!("0x.{key}")] {
        let error = typed_fails(2, &["dump"], dir.path(), &["customers", "--after", cursor]);
        assert!(error.contains(&format!("`{cursor}` is not a cursor")), "{error}");
    }
    text_of(&["dump"], dir.path(), &["customers", "--after", key]);
    let index = ["customers", "town"];
    for (command, rest) in [
        ("keys", &["customers"][..]),
        ("rows", &["customers"]),
        ("keys", &index),
        ("rows", &index),
        ("find", &index),
    ] {
        let (right, wrong) = if rest.len() == 1 {
            (format!("0x.{key}"), [format!("{key}.{key}"), "0x.0x00".to_owned()])
        } else {
            (format!("{town}.{key}"), [format!("0x4f.{key}"), format!("{town}.0x00")])
        };
        for wrong in wrong.iter().map(String::as_str).chain(["0x", ".", key]) {
            let error = fails(2, &[command], dir.path(), &[rest, &["--after", wrong]].concat());
            assert!(error.contains(&format!("`{wrong}` is not a cursor")), "{command}: {error}");
        }
        text_of(&[command], dir.path(), &[rest, &["--after", &right]].concat());
    }
}

/// The start of an escape sequence, an override of the direction, separators of lines, and others that are not seen.
const UNSEEN: &str =
    "\u{9b}\u{1b}\u{7f}\u{85}\u{61c}\u{200f}\u{202e}\u{2028}\u{2029}\u{2066}\u{feff}\u{e0041}";

fn assert_seen(command: &str, output: &std::process::Output) -> String {
    let mut all = String::new();
    for stream in [&output.stdout, &output.stderr] {
        let text = str::from_utf8(stream).expect("text");
        let unseen = text.chars().find(|it| UNSEEN.contains(*it));
        assert_eq!(unseen, None, "{command}: {text}");
        all += text;
    }
    all
}

#[test]
fn characters_that_control_the_terminal_are_escaped() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, other) = (dir.path().join("store"), plain(1));
    {
        let store = Store::open(&store).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        let own = Customer { town: format!("a{UNSEEN}b"), ..customer(1) };
        store.transaction(|txn| customers.insert(txn, &own)).expect("a commit");
    }
    let other = other.path().to_str().expect("text");
    for rest in [
        &["keys", "customers", "town"][..],
        &["rows", "customers"],
        &["rows", "customers", "--format", "json", "--columns", "town"],
        &["get", "customers", "1"],
        &["find", "customers", "primary_key"],
        &["dump", "customers"],
        &["analyze"],
        &["diff", other],
        &["rows", UNSEEN],
        &["keys", "customers", UNSEEN],
        &["find", "customers", "town", "--after", UNSEEN],
        &["get", "customers", UNSEEN],
        &["restore", &format!("{other}/{UNSEEN}/x")],
    ] {
        for json in [&[][..], &["--json"]] {
            let command = [json, &rest[..1]].concat();
            let output = typed("", &command, &store, &rest[1..]);
            let shown = assert_seen(&format!("{command:?}"), &output);
            let is_escaped = shown.contains("\\u009b") || shown.contains("\\u{9b}");
            assert!(is_escaped, "{command:?}: {shown}");
        }
    }
    // The values are the same.
    for command in ["rows", "dump"] {
        let line = text_of(&[command], &store, &["customers"]);
        let row: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(row["town"], format!("a{UNSEEN}b"));
    }
    // Also of a path, and of an argument that does not exist.
    let place = dir.path().join(UNSEEN);
    process::copy(&store, &place);
    for command in ["check", "recover", "drop-retired", "status", UNSEEN] {
        assert_seen(command, &typed("", &[command], &place, &[]));
    }
}

#[test]
fn fields_have_the_same_order_everywhere() {
    let dir = plain(1);
    let names = |text: &str| {
        let fields = ["id", "town", "since", "kind", "score", "email"];
        let mut found: Vec<_> =
            fields.iter().map(|name| (text.find(&format!("\"{name}\"")), *name)).collect();
        found.sort_unstable();
        found.into_iter().map(|(at, name)| at.map(|_| name)).collect::<Vec<_>>()
    };
    let declared = ["id", "town", "since", "kind", "score", "email"].map(Some);
    for (command, rest) in [
        ("get", &["customers", "1"][..]),
        ("dump", &["customers"]),
        ("rows", &["customers"]),
        ("find", &["customers", "town"]),
    ] {
        for json in [&[][..], &["--json"]] {
            let command = [json, &[command]].concat();
            assert_eq!(names(&text_of(&command, dir.path(), rest)), declared, "{command:?}");
            assert_eq!(names(&typed_text(&command, dir.path(), rest)), declared, "{command:?}");
        }
    }
}

#[test]
fn passwords_are_never_shown() {
    let urls = [
        "postgresql://app:secret@127.0.0.1:1/app",
        "postgresql://127.0.0.1:1/app?password=secret",
        "postgresql://app@127.0.0.1:1/app?password=a@secret",
        "postgresq://app:secret@127.0.0.1:1/app",
        "postgresql://app:sec/secret@127.0.0.1:1/app",
        "postgresql://app:a'b secret@127.0.0.1:1/app",
        "host=127.0.0.1 password=secret",
        "host=127.0.0.1 password = 'a secret'",
    ];
    let mut calls = Vec::new();
    for url in urls {
        for (command, rest) in [
            ("tables", &[][..]),
            ("recover", &[]),
            ("check", &[]),
            ("backup", &["no-copy"]),
            ("restore", &["no-copy"]),
            ("salvage", &["no-copy"]),
            ("serve", &["127.0.0.1:0"]),
            ("usage", &[]),
            ("load", &["customers", "/dev/null", "--create"]),
            // Errors of the arguments themselves.
            ("tables", &[url]),
            ("rows", &["customers", "--limit", url]),
            ("recover", &["--archive", url, "--without-archive"]),
            ("serve", &[url]),
        ] {
            // A directory with this name would be created.
            if command != "load" || url.contains("://") {
                let json = [&[][..], &["--json"]];
                calls.extend(json.map(|json| ([json, &[command]].concat(), url, rest.to_vec())));
            }
        }
    }
    // Most of them wait for a server.
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                while let Some((command, url, rest)) = calls.get(next.fetch_add(1, Relaxed)) {
                    let output = typed("", command, Path::new(url), rest);
                    assert!(!output.status.success(), "{command:?} {url} {rest:?}");
                    for stream in [output.stdout, output.stderr] {
                        let text = String::from_utf8(stream).expect("text");
                        assert!(!text.contains("secret"), "{command:?} {url} {rest:?}: {text}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_file_of_another_program_is_named_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: nothing else has the files of this test open.
        let env = unsafe { heed::EnvOpenOptions::new().max_dbs(2).open(dir.path()) };
        let env = env.expect("an environment");
        let txn = env.write_txn().expect("a transaction");
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            opener.create_database::<heed::types::Str, heed::types::Str>(txn, Some("users"))?;
            Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
        });
        created.expect("a database");
    }
    let before = fs::read(dir.path().join("data.mdb")).expect("the file");
    let rest = ["customers", "/dev/null", "--create"];
    for (command, rest) in [("tables", &[][..]), ("recover", &[]), ("status", &[]), ("load", &rest)]
    {
        let error = typed_fails(3, &[command], dir.path(), rest);
        assert!(error.contains("another program has written the LMDB file"), "{command}: {error}");
    }
    let after = fs::read(dir.path().join("data.mdb")).expect("the file");
    assert!(after == before, "the file has changed");
    // A store without tables is one.
    let dir = tempfile::tempdir().expect("a directory");
    drop(Store::open(dir.path()).expect("a store"));
    text_of(&["tables"], dir.path(), &[]);
}

#[test]
fn a_store_without_bytes_is_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("data.mdb"), "").expect("a file");
    let rest = ["customers", "/dev/null", "--create"];
    for (command, rest) in [("check", &[][..]), ("tables", &[]), ("recover", &[]), ("load", &rest)]
    {
        let error = typed_fails(1, &[command], dir.path(), rest);
        assert!(error.contains("is empty, so it has no store"), "{command}: {error}");
    }
    assert_eq!(fs::read(dir.path().join("data.mdb")).expect("the file"), b"");
}

#[test]
fn a_program_can_have_more_than_twelve_types() {
    type Four = (Customer, Customer, Customer, Customer);
    type C = Customer;
    fn is_tables<T: Tables>() {}
    is_tables::<Four>();
    is_tables::<(C, C, C, C, C, C, C, C, C, C, C, C, C)>();
    is_tables::<(
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
        C,
    )>();
}
