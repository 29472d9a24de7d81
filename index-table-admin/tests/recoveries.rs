//! The recoveries of the guide as commands, and dry runs of commands that write.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path};

use index_table::{Durability, Follower, IndexTable, Store};
use process::{
    copy, damage_row, fails, json_of, lose_rows, text_of, typed_fails, typed_json, typed_text,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use support::{CustomerRepository, EventRepository, customer, event, plain, sharded};
use tempfile::TempDir;

/// A store of five events with a consumer, whose eventual index is not up to date.
fn events() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let events = EventRepository::open(&store).expect("a table");
    drop(events.changes(&store, "mailer").expect("a consumer"));
    store
        .transaction(|txn| (1..=5).try_for_each(|id| events.insert(txn, &event(id))))
        .expect("a commit");
    dir
}

#[test]
fn consumers_skip_changes_and_are_removed() {
    let dir = events();
    let run =
        |rest: &[&str]| text_of(&["consumer"], dir.path(), &[&["events", "mailer"], rest].concat());
    let lag = || json_of(&["consumers"], dir.path(), &[])["consumers"][0]["lag"]["changes"].clone();
    assert_eq!(run(&["--skip-all", "--dry-run"]), "would skip 5 changes of `mailer`\n");
    assert_eq!(lag(), 5);
    assert_eq!(run(&["--to-oldest"]), "consumer `mailer` skipped 0 changes\n");
    assert_eq!(run(&["--skip-to", "2"]), "consumer `mailer` skipped 2 changes\n");
    assert_eq!(lag(), 3);
    let rest = ["events", "mailer", "--skip-all"];
    assert_eq!(typed_json(&["consumer"], dir.path(), &rest)["skipped"], 3);
    assert_eq!(lag(), 0);
    let error = fails(3, &["consumer"], dir.path(), &["events", "mailr", "--skip-all"]);
    assert!(error.contains("did you mean `mailer`?"), "{error}");
    fails(2, &["consumer"], dir.path(), &["events", "mailer"]);
    fails(2, &["consumer"], dir.path(), &["events", "mailer", "--remove", "--skip-all"]);
    assert_eq!(run(&["--remove"]), "removed consumer `mailer`\n");
    assert_eq!(json_of(&["consumers"], dir.path(), &[])["consumers"], json!([]));
    fails(3, &["consumer"], dir.path(), &["events", "mailer", "--remove"]);
}

/// Events as an earlier release of the program declares them: with fewer indexes.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "events", changes)]
#[index(text, consistency = "eventual")]
struct EarlierEvent {
    #[primary_key]
    id: u64,
    kind: u8,
    text: String,
    body: String,
}

#[test]
fn consumers_and_dead_letters_leave_the_declaration_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path()).expect("a store");
        let events = EarlierEventRepository::open(&store).expect("a table");
        drop(events.changes(&store, "mailer").expect("a consumer"));
        let event = |id| EarlierEvent { id, kind: 1, text: String::new(), body: String::new() };
        let inserted =
            store.transaction(|txn| (1..=3).try_for_each(|id| events.insert(txn, &event(id))));
        inserted.expect("a commit");
    }
    damage_row(dir.path(), "events", 2);
    {
        let store = Store::open(dir.path()).expect("a store");
        let events = EarlierEventRepository::open(&store).expect("a table");
        assert_eq!(events.drain(&store, u64::MAX).expect("drained").dead_letters, 1);
    }
    let catalog = || json_of(&["catalog"], dir.path(), &[]);
    let before = catalog();
    // The program of the tool declares one more index.
    let consumer = |rest: &[&str]| typed_fails(3, &["consumer"], dir.path(), rest);
    let error = consumer(&["events", "mailr", "--remove"]);
    assert!(error.contains("did you mean `mailer`?"), "{error}");
    let error = consumer(&["evnts", "mailer", "--remove"]);
    assert!(error.contains("did you mean `events`?"), "{error}");
    let letters = json_of(&["dead-letters"], dir.path(), &["events"]);
    let number = letters["dead_letters"][0]["number"].to_string();
    let drop = |table: &str, number: &str, code: i32| {
        typed_fails(code, &["dead-letters"], dir.path(), &[table, "--drop", number])
    };
    assert!(drop("evnts", &number, 3).contains("did you mean `events`?"));
    assert!(drop("events", "999", 3).contains("no dead letter `999`"));
    typed_text(&["dead-letters"], dir.path(), &["events", "--drop", &number]);
    let rest = ["events", "mailer", "--skip-all"];
    assert_eq!(typed_json(&["consumer"], dir.path(), &rest)["skipped"], 3);
    typed_text(&["consumer"], dir.path(), &["events", "mailer", "--remove"]);
    assert_eq!(catalog(), before);
}

#[test]
fn unreadable_rows_are_deleted_on_request() {
    let dir = plain(3);
    damage_row(dir.path(), "customers", 2);
    let error = typed_fails(1, &["verify"], dir.path(), &["customers"]);
    assert!(error.contains("`repair` corrects them"), "{error}");
    let error = typed_fails(1, &["repair"], dir.path(), &["customers"]);
    assert!(error.contains("`--delete-unreadable`"), "{error}");
    typed_fails(1, &["repair"], dir.path(), &["--delete-unreadable", "--dry-run"]);
    typed_text(&["repair"], dir.path(), &["customers", "--delete-unreadable"]);
    typed_text(&["verify"], dir.path(), &["customers"]);
    assert_eq!(text_of(&["rows"], dir.path(), &["customers"]).lines().count(), 2);
    typed_fails(3, &["get"], dir.path(), &["customers", "2"]);
}

#[test]
fn dead_letters_are_listed_retried_and_dropped() {
    let dir = events();
    damage_row(dir.path(), "events", 4);
    {
        let store = Store::open(dir.path()).expect("a store");
        let events = EventRepository::open(&store).expect("a table");
        assert_eq!(events.drain(&store, u64::MAX).expect("drained").dead_letters, 1);
    }
    let letters = || {
        json_of(&["dead-letters"], dir.path(), &["events"])["dead_letters"]
            .as_array()
            .expect("a list")
            .clone()
    };
    assert_eq!((letters().len(), &letters()[0]["row"]), (1, &json!("4")));
    let text = text_of(&["dead-letters"], dir.path(), &["events"]);
    assert!(text.contains("key 4"), "{text}");
    let error = fails(2, &["dead-letters"], dir.path(), &["events", "--retry"]);
    assert!(error.contains("declares table `events`"), "{error}");
    let rest = ["events", "--retry", "--dry-run"];
    assert_eq!(fails(2, &["dead-letters"], dir.path(), &rest), error);
    let would = typed_text(&["dead-letters"], dir.path(), &rest);
    assert_eq!(would, "would apply 1 dead letters\n");
    let error = typed_fails(1, &["dead-letters"], dir.path(), &["events", "--retry"]);
    assert!(error.contains("`--drop` gives one up"), "{error}");
    let number = letters()[0]["number"].to_string();
    let rest = ["events", "--drop", &number];
    let would = text_of(&["dead-letters"], dir.path(), &[&rest[..], &["--dry-run"]].concat());
    assert_eq!(would, "would drop 1 dead letters\n");
    fails(3, &["dead-letters"], dir.path(), &["events", "--drop", "999"]);
    text_of(&["dead-letters"], dir.path(), &rest);
    assert_eq!(letters(), [] as [serde_json::Value; 0]);
    assert_eq!(json_of(&["lag"], dir.path(), &[])["lag"][0]["dead_letters"], 0);
    fails(3, &["dead-letters"], dir.path(), &rest);
}

/// A store with an archive, and the paths of both.
fn archived() -> (TempDir, String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (store, archive) = (path("store"), path("archive"));
    write(&store, &archive, 1..4);
    (dir, store, archive)
}

fn write(store: &str, archive: &str, ids: std::ops::Range<u64>) {
    let options = Store::options().durability(Durability::Journal).archive(archive);
    let store = options.open(store).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    for id in ids {
        store.transaction(|txn| customers.put(txn, &customer(id))).expect("a commit");
    }
}

#[test]
fn a_follower_is_promoted_also_a_killed_one() {
    let (dir, store, archive) = archived();
    let (standby, killed) = (dir.path().join("standby"), dir.path().join("killed"));
    let follower = Follower::open(&standby, &archive).expect("a follower");
    // As a killed process leaves it.
    copy(&standby, &killed);
    drop(follower);
    write(&store, &archive, 4..7);

    let error = fails(2, &["promote"], Path::new(&store), &[]);
    assert!(error.contains("not the directory of a follower"), "{error}");
    for command in ["tables", "check"] {
        let error = fails(4, &[command], &killed, &[]);
        assert!(error.contains("a follower whose process was killed"), "{error}");
    }
    // The copy has no journal, like a store that has lost it.
    let error = fails(1, &["recover"], &killed, &[]);
    assert!(error.contains("if the process of the follower was killed"), "{error}");
    let would = text_of(&["promote"], &standby, &["--dry-run"]);
    assert!(would.starts_with("would apply 3 commits"), "{would}");
    let would = text_of(&["promote"], &killed, &["--dry-run"]);
    assert!(would.starts_with("would copy the archive"), "{would}");
    // It would replace the copy by another store.
    let (_other, _, other) = archived();
    for follower in [&killed, &standby] {
        let before = files(follower);
        let error = fails(2, &["promote"], follower, &["--archive", &other]);
        assert!(error.contains("the follower has read"), "{error}");
        assert!(files(follower) == before);
    }
    for follower in [killed, standby] {
        let mut rest = vec![];
        if follower.ends_with("standby") {
            // The first promotion has ended it.
            rest.extend(["--archive", &archive]);
        }
        let shown = text_of(&["promote"], &follower, &rest);
        assert!(shown.contains("is a store now"), "{shown}");
        typed_text(&["delete"], &follower, &["customers", "1"]);
        assert_eq!(typed_text(&["dump"], &follower, &["customers"]).lines().count(), 5);
    }
}

#[test]
fn an_archive_shows_its_times_and_is_verified() {
    let (dir, _, archive) = archived();
    let archive = Path::new(&archive);
    let parts = json_of(&["archive"], archive, &[])["parts"].clone();
    let (from, until) = (parts[0]["from"].as_f64(), parts[0]["until"].as_f64());
    // The base can have all commits.
    assert!(from <= until && from > Some(1.7e9), "{parts}");
    assert!(parts[0]["commits"].is_null(), "{parts}");
    let verified = json_of(&["archive"], archive, &["--verify"])["parts"].clone();
    assert!(verified[0]["commits"].as_u64() >= Some(3), "{verified}");
    let text = text_of(&["archive"], archive, &["--verify"]);
    assert!(text.contains("intact") && text.contains("last commit: 20"), "{text}");
    fails(3, &["archive"], dir.path(), &[]);

    let bases = fs::read_dir(archive).expect("a directory").map(|it| it.expect("an entry").path());
    let base = bases.filter(|it| it.is_dir()).map(|it| it.join("data.mdb")).next();
    let base = base.expect("a base");
    let mut bytes = fs::read(&base).expect("the file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&base, bytes).expect("the file");
    text_of(&["archive"], archive, &[]);
    let output = process::admin().args(["archive", "--verify"]).arg(archive).output();
    let output = output.expect("a process");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the archive is damaged"), "{error}");
}

#[test]
fn a_gap_in_an_archive_is_the_damage_of_its_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    for id in 0..4 {
        let store = Store::options().archive(&archive).open(&path).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        store.transaction(|txn| customers.insert(txn, &customer(id))).expect("a commit");
    }
    let files = fs::read_dir(&archive).expect("a directory").map(|it| it.expect("an entry").path());
    let is_segment =
        |path: &std::path::PathBuf| path.is_file() && path.to_string_lossy().contains("segment.");
    let mut segments: Vec<_> = files.filter(is_segment).collect();
    segments.sort();
    assert!(segments.len() >= 3, "{segments:?}");
    fs::remove_file(&segments[1]).expect("removed");
    let output = process::admin().args(["--json", "archive"]).arg(&archive).output();
    let output = output.expect("a process");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let error = value["parts"][0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("missing"), "{value}");
}

#[test]
fn a_lost_shard_is_restored() {
    let (dir, place) = (sharded(), tempfile::tempdir().expect("a directory"));
    let backup = place.path().join("backup");
    text_of(&["backup"], dir.path(), &[backup.to_str().expect("text")]);
    let south = backup.join("shard.1");
    let rest = ["south", south.to_str().expect("text")];
    let error = typed_fails(5, &["restore-shard"], dir.path(), &rest);
    assert!(error.contains("it is available"), "{error}");
    fs::remove_dir_all(dir.path().join("south")).expect("removed");
    typed_fails(2, &["restore-shard"], dir.path(), &[&rest[..], &["--dry-run"]].concat());
    typed_fails(4, &["verify"], dir.path(), &[]);
    typed_text(&["restore-shard"], dir.path(), &rest);
    typed_text(&["verify"], dir.path(), &[]);
    assert_eq!(typed_text(&["dump"], dir.path(), &["orders"]).lines().count(), 6);
}

#[test]
fn a_lost_shard_map_manager_is_rebuilt() {
    let dir = sharded();
    let shards = ["north=north", "south=south"];
    let error = fails(5, &["rebuild-manager"], dir.path(), &shards);
    assert!(error.contains("if it is a shard map manager"), "{error}");
    fs::remove_file(dir.path().join("data.mdb")).expect("removed");
    fails(2, &["rebuild-manager"], dir.path(), &["north"]);
    let error = fails(5, &["rebuild-manager"], dir.path(), &shards[..1]);
    assert!(error.contains("is not given"), "{error}");
    fails(2, &["rebuild-manager"], dir.path(), &[&shards[..], &["--dry-run"]].concat());
    let elsewhere = tempfile::tempdir().expect("a directory");
    copy(dir.path(), elsewhere.path());
    let shown = text_of(&["rebuild-manager"], elsewhere.path(), &shards);
    assert!(shown.contains("which has 2 shards; the program checks it"), "{shown}");
    typed_text(&["rebuild-manager"], dir.path(), &shards);
    typed_text(&["verify"], dir.path(), &[]);
    assert_eq!(typed_text(&["dump"], dir.path(), &["orders"]).lines().count(), 6);
}

#[test]
fn a_backup_is_checked_before_it_gets_its_name() {
    let (dir, copies) = (plain(2000), tempfile::tempdir().expect("a directory"));
    let shards = sharded();
    let path = |name: &str| copies.path().join(name).to_str().expect("text").to_owned();
    let names = |dir: &str| {
        let entries = fs::read_dir(dir).expect("a directory");
        let mut all: Vec<_> = entries.map(|it| it.expect("an entry").file_name()).collect();
        all.sort_unstable();
        all
    };
    for (name, store) in [("one", &dir), ("several", &shards)] {
        let (checked, other) = (path(name), path(&format!("{name}-unchecked")));
        text_of(&["backup"], store.path(), &[&checked]);
        text_of(&["backup"], store.path(), &[&other, "--no-check"]);
        assert_eq!(names(&checked), names(&other), "no further files");
        assert!(!text_of(&["diff"], store.path(), &[&checked]).contains("changed"));
    }
    for number in 0..3 {
        fs::remove_file(dir.path().join(format!("journal.{number}"))).expect("a file");
    }
    let file = dir.path().join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    assert!(lose_rows(&mut bytes) > 10);
    fs::write(&file, bytes).expect("the file");
    let before = names(copies.path().to_str().expect("text"));
    let error = fails(1, &["backup"], dir.path(), &[&path("damaged")]);
    assert!(error.contains("there is no copy, and `--no-check` makes one"), "{error}");
    assert!(!error.contains("partial"), "{error}");
    assert_eq!(names(copies.path().to_str().expect("text")), before);
    text_of(&["backup"], dir.path(), &[&path("damaged"), "--no-check"]);
}

#[test]
fn the_advice_for_several_shards_is_given_once() {
    let dir = sharded();
    for shard in ["north", "south"] {
        fs::rename(dir.path().join(shard), dir.path().join(format!("{shard}-away")))
            .expect("moved");
    }
    let error = fails(4, &["check"], dir.path(), &[]);
    assert!(error.contains("shard `north`") && error.contains("shard `south`"), "{error}");
    assert_eq!(error.matches("move its directory back").count(), 1, "{error}");
}

/// Returns the bytes of the files of a store, without the reader slots.
fn files(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.file_name().is_some_and(|name| name != "lock.mdb") {
            let bytes = fs::read(&path).expect("a file");
            all.push((path, bytes));
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn dry_runs_change_nothing() {
    let (plain, shards) = (plain(5), sharded());
    let row = plain.path().with_extension("row.json");
    fs::write(&row, serde_json::to_string(&customer(77)).expect("JSON")).expect("a file");
    let row = row.to_str().expect("text");
    for (dir, command, rest, what) in [
        (&plain, "drop-retired", &[][..], "drop nothing"),
        (&plain, "build", &[], "build nothing"),
        (
            &plain,
            "build",
            &["--rebuild", "customers", "town"],
            "give up and build `customers.town`",
        ),
        (&plain, "upgrade", &[], "rewrite 0 rows"),
        (&plain, "expire", &[], "delete 0 expired rows"),
        (&shards, "move", &["orders", "..50", "south"], "move the keys ..50"),
        (&shards, "split", &["orders", "50", "south"], "split shard map `orders` at 50"),
        (&shards, "move-table", &["postal_codes", "south"], "move table `postal_codes`"),
        (&shards, "add-shard", &["east", "east"], "add shard `east`"),
    ] {
        let before = typed_text(
            &["dump"],
            dir.path(),
            &[if dir.path() == plain.path() { "customers" } else { "orders" }],
        );
        let written = files(dir.path());
        let rest = [rest, &["--dry-run"]].concat();
        let shown = typed_text(&[command], dir.path(), &rest);
        assert!(shown.starts_with(&format!("would {what}")), "{command}: {shown}");
        let value = typed_json(&[command], dir.path(), &rest);
        assert!(value["dry_run"].as_str().is_some_and(|it| it.starts_with(what)), "{value}");
        let after = typed_text(
            &["dump"],
            dir.path(),
            &[if dir.path() == plain.path() { "customers" } else { "orders" }],
        );
        assert_eq!(after, before, "{command}");
        assert!(files(dir.path()) == written, "{command}: the files have changed");
    }
    typed_text(&["repair"], plain.path(), &["--dry-run"]);
    // These can't tell what they would change.
    let (before, new) = (files(plain.path()), plain.path().with_extension("new"));
    for (dir, command, rest) in [
        (plain.path(), "load", &["customers", row][..]),
        (plain.path(), "load", &["customers", row, "--create"]),
        (&*new, "load", &["customers", row, "--create"]),
        (plain.path(), "put", &["customers", row]),
        (plain.path(), "delete", &["customers", "1"]),
        (plain.path(), "recover", &[]),
    ] {
        let error = typed_fails(2, &[command], dir, &[rest, &["--dry-run"]].concat());
        assert!(error.contains("omit `--dry-run`"), "{error}");
    }
    assert!(files(plain.path()) == before && !new.exists());
}
