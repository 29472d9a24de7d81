//! The command `diff`: the differences between the rows of two stores.

#[cfg(target_os = "linux")]
#[path = "support/disk.rs"]
mod disk;
#[path = "support/process.rs"]
mod process;
mod support;

use std::path::Path;

use index_table::{Durability, IndexTable, Store};
use process::{admin, copy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{Customer, CustomerRepository, customer, plain, sharded};

/// Runs `diff`. Returns its exit code, and its lines.
fn diff(first: &Path, second: &Path, rest: &[&str]) -> (i32, Vec<String>) {
    let output = admin().arg("diff").arg(first).arg(second).args(rest).output().expect("a process");
    let text = String::from_utf8(output.stdout).expect("text");
    let code = output.status.code().expect("a code");
    assert!(code < 2, "{}", String::from_utf8_lossy(&output.stderr));
    (code, text.lines().map(str::to_owned).collect())
}

fn json_lines(first: &Path, second: &Path, rest: &[&str]) -> Vec<Value> {
    let (_, lines) = diff(first, second, &[&["--json"], rest].concat());
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn change(
    dir: &Path,
    change: impl Fn(&CustomerRepository, &mut index_table::WriteTxn<'_>) -> index_table::Result<()>,
) {
    let store = Store::open(dir).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| change(&customers, txn)).expect("a commit");
}

#[test]
fn one_changed_row_of_many_is_found() {
    let (first, second) = (plain(5000), tempfile::tempdir().expect("a directory"));
    let second = second.path().join("copy");
    copy(first.path(), &second);
    let (code, lines) = diff(first.path(), &second, &[]);
    assert_eq!((code, lines), (0, vec!["table `customers`: equal, 5000 rows".to_owned()]));
    change(&second, |customers, txn| {
        customers.put(
            txn,
            &Customer { town: "Lund".to_owned(), score: f64::INFINITY, ..customer(4321) },
        )?;
        Ok(())
    });
    let changed = json_lines(first.path(), &second, &[]);
    assert_eq!(
        changed,
        [
            json!({
                "table": "customers",
                "primary_key": { "id": 4321 },
                "changed": {
                    "score": { "first": 1.5, "second": { "$float": "inf" } },
                    "town": { "first": "Oslo", "second": "Lund" },
                },
            }),
            json!({
                "table": "customers", "rows": [5000, 5000], "only_in_first": 0, "only_in_second": 0, "changed": 1,
            }),
        ]
    );
    change(&second, |customers, txn| {
        customers.delete(txn, 7)?;
        customers.put(txn, &customer(9000))?;
        Ok(())
    });
    let (code, lines) = diff(first.path(), &second, &["customers"]);
    assert_eq!(code, 1);
    assert_eq!(lines[0], r#"- customers {"id":7}"#);
    assert!(lines[1].starts_with(r#"~ customers {"id":4321}: score 1.5 becomes"#), "{lines:?}");
    assert_eq!(lines[2], r#"+ customers {"id":9000}"#);
    assert!(lines[3].contains("1 only in the first store, 1 only in the second, 1 changed"));
    // The output is limited, and the counts are not.
    assert_eq!(diff(first.path(), &second, &["--limit", "0"]).1, lines[3..]);
}

#[test]
fn tables_and_rows_of_shards_are_compared() {
    let (first, second) = (sharded(), sharded());
    assert_eq!(diff(first.path(), second.path(), &[]).0, 0);
    let plain = plain(1);
    let (code, lines) = diff(first.path(), plain.path(), &[]);
    assert_eq!(code, 1);
    assert_eq!(lines[0], "table `customers`: only in the second store");
    assert!(lines.contains(&"table `orders`: only in the first store".to_owned()), "{lines:?}");
}

/// Two releases whose rows have other lists.
mod releases {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = BeforeRepository)]
    pub(crate) struct Before {
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) name: String,
        pub(crate) people: u8,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = AfterRepository)]
    pub(crate) struct After {
        pub(crate) people: u32,
        pub(crate) note: Option<String>,
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) name: String,
    }

    /// The same bytes as [`Before`], with other names.
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = OtherRepository)]
    pub(crate) struct Other {
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) title: String,
        pub(crate) people: u8,
    }
}

#[test]
fn equal_stores_of_different_lists_are_equal_and_equal_bytes_of_different_lists_are_not() {
    use releases::{After, AfterRepository, Before, BeforeRepository, Other, OtherRepository};

    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let name = |id: u64| format!("town {id}");
    {
        let store = Store::open(place("before")).expect("a store");
        let towns = BeforeRepository::open(&store).expect("a table");
        let rows = (0..100).map(|id| Before { id, name: name(id), people: 7 });
        towns.bulk_load(&store, rows).run().expect("a load");
        let store = Store::open(place("after")).expect("a store");
        let towns = AfterRepository::open(&store).expect("a table");
        let rows = (0..100).map(|id| After { id, name: name(id), people: 7, note: None });
        towns.bulk_load(&store, rows).run().expect("a load");
        let store = Store::open(place("other")).expect("a store");
        let towns = OtherRepository::open(&store).expect("a table");
        let rows = (0..100).map(|id| Other { id, title: name(id), people: 7 });
        towns.bulk_load(&store, rows).run().expect("a load");
    }
    let (code, lines) = diff(&place("before"), &place("after"), &[]);
    assert_eq!((code, lines), (0, vec!["table `towns`: equal, 100 rows".to_owned()]));
    let lines = json_lines(&place("before"), &place("other"), &["--limit", "1"]);
    assert_eq!(
        lines[0]["changed"],
        json!({ "name": { "first": "town 0" }, "title": { "second": "town 0" } })
    );
    assert_eq!(lines[1]["changed"], 100);
}

#[cfg(unix)]
#[test]
fn a_comparison_that_a_signal_ends_leaves_no_restored_archive() {
    use std::{
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
    };

    let dir = tempfile::tempdir().expect("a directory");
    let (archive, other) = (dir.path().join("archive"), plain(0));
    {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(dir.path().join("store")).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        customers.bulk_load(&store, (1..=30_000).map(customer)).run().expect("a load");
    }
    let temp = dir.path().join("temp");
    std::fs::create_dir(&temp).expect("a directory");
    let files = || std::fs::read_dir(&temp).expect("a directory").count();
    let ended_by = |signal: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("index-table"));
        command.arg("diff").arg(&archive).arg(other.path()).args(["--limit", "30000", "--temp"]);
        command.arg(&temp).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        // The rest is longer than a pipe, so the process waits for its reader.
        let mut lines = BufReader::with_capacity(1, child.stdout.take().expect("a stream"));
        lines.read_line(&mut String::new()).expect("a line");
        // The copy, and the file of its lock.
        assert_eq!(files(), 2);
        // Another comparison leaves the copy of a process that runs.
        assert_eq!(diff(&archive, &archive, &["--temp", temp.to_str().expect("text")]).0, 0);
        assert_eq!(files(), 2);
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.expect("the command kill").success());
        child.wait().expect("the end").code()
    };
    for signal in ["-INT", "-TERM"] {
        assert_eq!((ended_by(signal), files()), (Some(130), 0), "{signal}");
    }
    // A process can't remove anything when it is killed. The next comparison does.
    assert_eq!((ended_by("-KILL"), files()), (None, 2));
    assert_eq!(diff(&archive, &archive, &["--temp", temp.to_str().expect("text")]).0, 0);
    assert_eq!(files(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn an_archive_that_does_not_fit_on_the_disk_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = dir.path().join("archive");
    {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(dir.path().join("store")).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        customers.bulk_load(&store, (1..=30_000).map(customer)).run().expect("a load");
    }
    let Some(disk) = disk::Disk::new() else { return };
    let mut command = admin();
    command.arg("diff").arg(&archive).arg(&archive).arg("--temp").arg(disk.path());
    let output = command.output().expect("a process");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains("full") || error.contains("No space"), "{error}");
    assert_eq!(disk.files(), 0, "{error}");
}

/// Releases with another version of the rows.
mod versions {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "parts", repository = FirstRepository)]
    pub(crate) struct First {
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) name: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "parts", version = 2, previous = First, repository = SecondRepository)]
    pub(crate) struct Second {
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) name: String,
        pub(crate) pages: u32,
    }

    impl From<First> for Second {
        fn from(old: First) -> Self {
            Self { id: old.id, name: old.name, pages: 1 }
        }
    }
}

/// A row of an older version is compared as it is stored, because only the program has the conversion.
#[test]
fn rows_of_an_older_version_are_compared_as_they_are_stored() {
    use versions::{First, FirstRepository, Second, SecondRepository};

    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let load = |place: &Path| {
        let store = Store::open(place).expect("a store");
        let parts = FirstRepository::open(&store).expect("a table");
        let rows = (0..100).map(|id| First { id, name: format!("part {id}") });
        parts.bulk_load(&store, rows).run().expect("a load");
    };
    load(&place("old"));
    copy(&place("old"), &place("new"));
    {
        let store = Store::open(place("new")).expect("a store");
        let parts = SecondRepository::open(&store).expect("a table");
        let row = Second { id: 7, name: "part 7".to_owned(), pages: 1 };
        store.transaction(|txn| parts.put(txn, &row)).expect("a commit");
    }
    let lines = json_lines(&place("old"), &place("new"), &[]);
    assert_eq!(lines.len(), 2, "one row was written by the later version: {lines:?}");
    assert_eq!(lines[0]["primary_key"], json!({ "id": 7 }));
    let changed = json!({ "(version)": { "first": 1, "second": 2 }, "pages": { "second": 1 } });
    assert_eq!(lines[0]["changed"], changed);
    assert_eq!(lines[1]["changed"], 1);
    // Two stores with rows of the older version are equal under another version of the table.
    copy(&place("new"), &place("same"));
    assert_eq!(diff(&place("new"), &place("same"), &[]).0, 0);
}

#[test]
fn a_store_is_compared_with_a_moment_of_an_archive() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
    {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(&store).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        for id in 1..=3 {
            store.transaction(|txn| customers.insert(txn, &customer(id))).expect("a commit");
        }
    }
    let temp = dir.path().join("temp");
    std::fs::create_dir(&temp).expect("a directory");
    let rest = ["--temp", temp.to_str().expect("text")];
    assert_eq!(diff(&archive, &store, &rest).0, 0);
    assert_eq!(diff(&archive, &archive, &rest).0, 0);
    let earlier =
        |commit: &str| diff(&archive, &store, &[&rest[..], &["--until-commit", commit]].concat());
    let rows = |lines: &[String]| lines.iter().filter(|line| line.starts_with('+')).count();
    // The first commit declares the table, and each further one has a row.
    let counts = ["1", "2", "3", "4"].map(|commit| rows(&earlier(commit).1));
    assert_eq!(counts, [3, 2, 1, 0]);
    // The restored copies are removed.
    assert_eq!(std::fs::read_dir(&temp).expect("a directory").count(), 0);
    let output = admin().arg("diff").arg(&store).arg(&store).args(["--until-commit", "1"]).output();
    assert_eq!(output.expect("a process").status.code(), Some(2));
}
