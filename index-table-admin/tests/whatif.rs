//! The command `whatif`: the figures of an index that a table does not have.

#[cfg(target_os = "linux")]
#[path = "support/disk.rs"]
mod disk;
#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use index_table::{Durability, IndexTable, Store, WriteTxn};
use process::{fails, json_of, text_of};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{plain, sharded};

/// Returns the figures of an index that the store has.
fn real(store: &Path, table: &str, index: &str) -> (Value, u64) {
    let analysis = json_of(&["analyze"], store, &[table]);
    let indexes = analysis["tables"][0]["indexes"].as_array().expect("indexes").clone();
    let own = indexes.into_iter().find(|it| it["name"] == index).expect("the index");
    (own["keys"].clone(), own["bytes"].as_u64().expect("bytes"))
}

#[test]
fn an_imagined_index_has_the_figures_of_the_real_one() {
    let store = tempfile::tempdir().expect("a directory");
    {
        let opened = Store::open(store.path()).expect("a store");
        let customers = support::CustomerRepository::open(&opened).expect("a table");
        customers.bulk_load(&opened, (1..=20_000).map(support::customer)).run().expect("a load");
    }
    for (name, spelled) in [
        ("town", "customers(town)"),
        ("since_id", "customers(since, desc(id))"),
        ("kind_score", "customers(kind, score) include town"),
        ("email", "customers(email) unique"),
    ] {
        let figures = json_of(&["whatif"], store.path(), &["--index", spelled]);
        let (keys, bytes) = real(store.path(), "customers", name);
        assert_eq!(figures["index"]["entries"], 20_000, "{name}");
        assert_eq!(figures["index"]["keys"], keys, "{name}");
        let estimated = figures["index"]["bytes"].as_f64().expect("bytes");
        #[expect(clippy::cast_precision_loss, reason = "few bytes")]
        let ratio = estimated / bytes as f64;
        assert!((0.75..1.33).contains(&ratio), "{name}: {estimated} for {bytes}");
    }
}

#[test]
fn an_index_without_a_key_of_the_table_is_computed_from_the_types_of_fields() {
    let store = plain(1000);
    let text = text_of(&["whatif"], store.path(), &["--index", "customers(hash(town)) full"]);
    assert!(text.starts_with("1000 entries of 1000 rows, "), "{text}");
    assert!(text.contains("(town): 2 values"), "{text}");
    let sample = json_of(
        &["whatif"],
        store.path(),
        &["--index", "customers(score, town)", "--sample", "100"],
    );
    assert_eq!((&sample["sample"], &sample["index"]["entries"]), (&json!(100), &json!(1000)));
    let unique = json_of(&["whatif"], store.path(), &["--index", "customers(town) unique"]);
    assert_eq!(unique["rows_with_the_most_common_key"], 500);
}

#[test]
fn a_shard_key_is_measured_over_all_shards() {
    let store = sharded();
    let figures = json_of(&["whatif"], store.path(), &["--shard-key", "orders(tenant)"]);
    assert_eq!((&figures["rows"], &figures["shard_key"]["distinct"]), (&json!(6), &json!(2)));
    assert_eq!(figures["shard_key"]["most_common"][0]["entries"], 3);
}

#[test]
fn what_cannot_be_computed_is_named() {
    let store = plain(1);
    let fails = |code, index: &str| fails(code, &["whatif"], store.path(), &["--index", index]);
    assert!(fails(2, "customers").contains("it has no `(`"));
    assert!(fails(2, "customers(computed(full: u8))").contains("without the struct"));
    assert!(fails(3, "customers(twon)").contains("did you mean `town`"));
    assert!(fails(3, "customer(town)").contains("did you mean `customers`"));
    let error = fails(5, "customers(each(town))");
    assert!(error.contains("the form of `town` in keys can't be computed"), "{error}");
}

#[test]
fn past_commits_show_the_entries_that_they_would_have_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let (place, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let since = {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(&place).expect("a store");
        let customers = support::CustomerRepository::open(&store).expect("a table");
        let write = |change: &dyn Fn(&mut WriteTxn<'_>) -> index_table::Result<()>| {
            store.transaction(change).expect("a commit");
        };
        write(&|txn| (1..=10).try_for_each(|id| customers.insert(txn, &support::customer(id))));
        std::thread::sleep(Duration::from_millis(5));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let now = i128::try_from(now.as_nanos()).expect("nanoseconds");
        let since = jiff::Timestamp::from_nanosecond(now).expect("a time").to_string();
        std::thread::sleep(Duration::from_millis(5));
        write(&|txn| customers.update(txn, 1, |own| own.town = "Rome".into()).map(drop));
        write(&|txn| customers.update(txn, 3, |own| own.score = 9.0).map(drop));
        write(&|txn| {
            customers.delete(txn, 4)?;
            customers.delete(txn, 5).map(drop)
        });
        since
    };
    let archive = archive.to_str().expect("text");
    let commits = |option: &str, spelled: &str| {
        let rest = [option, spelled, "--archive", archive, "--since", &since];
        json_of(&["whatif"], &place, &rest)["commits"].clone()
    };
    assert_eq!(
        commits("--index", "customers(town)"),
        json!({ "commits": 3, "rows": 4, "entries": 4, "most": 2 })
    );
    assert_eq!(
        commits("--index", "customers(town) include score"),
        json!({ "commits": 3, "rows": 4, "entries": 5, "most": 2 })
    );
    let crossing = commits("--shard-key", "customers(town)");
    assert_eq!((&crossing["commits"], &crossing["crossing"]), (&json!(3), &json!(2)));
    let shard_key = ["--shard-key", "customers(town)", "--archive", archive, "--since", &since];
    let text = text_of(&["whatif"], &place, &shard_key);
    assert!(
        text.ends_with(
            "3 commits wrote 4 rows; 2 of them (66.7 %) wrote rows of several shard keys\n"
        ),
        "{text}"
    );
    let error =
        fails(2, &["whatif"], &place, &["--index", "customers(town)", "--archive", archive]);
    assert!(error.contains("--since"), "{error}");
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "pages")]
struct Page {
    #[primary_key]
    id: u64,
    text: String,
}

/// The keys of an index on the texts need more memory than they get, which is 32 MiB.
const PAGES: u64 = 100_000;

fn pages() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let pages = PageRepository::open(&store).expect("a table");
    let text = |id: u64| format!("{:0>400}", id * 7919 % PAGES / 2);
    pages
        .bulk_load(&store, (0..PAGES).map(|id| Page { id, text: text(id) }))
        .run()
        .expect("a load");
    dir
}

#[cfg(target_os = "linux")]
#[test]
fn keys_that_do_not_fit_in_memory_are_sorted_in_temporary_files() {
    let (store, temp) = (pages(), tempfile::tempdir().expect("a directory"));
    let run = |temp: &Path, json: bool| {
        let mut command = process::admin();
        command.env("TMPDIR", temp).args(json.then_some("--json")).arg("whatif").arg(store.path());
        command.args(["--index", "pages(text)"]).output().expect("a process")
    };
    let output = run(temp.path(), true);
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let index = &figures["index"];
    assert_eq!(
        (&index["entries"], &index["keys"][0]["distinct"]),
        (&json!(PAGES), &json!(PAGES / 2))
    );
    // A page has nine keys of 400 bytes, so 50,000 of them have five levels, and six if the pages are not full.
    let depth = index["depth"].as_u64().expect("a number");
    assert!((5..=6).contains(&depth), "{index}");
    assert!(index["bytes"].as_u64() > Some(20_000_000), "{index}");
    let left = || std::fs::read_dir(temp.path()).expect("a directory").count();
    assert_eq!(left(), 0, "the temporary files are removed");

    let Some(disk) = disk::Disk::new() else { return };
    let output = run(disk.path(), false);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains(disk.path().to_str().expect("text")), "{error}");
    assert_eq!(disk.files(), 0, "{error}");
}
