//! The drills: each kind of damage is made in turn, and the guide's chapter on damage is followed literally. Its table must have the
//! message of `check`, and its commands run as they stand there.
#![cfg(unix)]

#[cfg(target_os = "linux")]
#[path = "support/disk.rs"]
mod disk;
#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use index_table::{Durability, IndexTable, Store};
use process::{example, has_rows, is_leaf_with};
use serde::{Deserialize, Serialize};
use support::{CustomerRepository, customer, sharded};
use tempfile::TempDir;

const PAGE: usize = 4096;

/// The rows in the backup. The archive has one more.
const ROWS: u64 = 2000;

/// Whether a page of LMDB is of a kind.
type IsOfKind = fn(&[u8]) -> bool;

/// Damages a file.
type Damage = fn(&Path);

/// Rows with a value on pages of its own.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "pictures")]
struct Picture {
    #[primary_key]
    id: u64,
    bytes: String,
}

/// A chapter of the guide.
struct Guide(String);

impl Guide {
    fn read(chapter: &str) -> Self {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide");
        Self(fs::read_to_string(guide.join(chapter)).expect("the guide"))
    }

    /// Returns the lines of the shell blocks of a section.
    fn commands(&self, section: &str) -> Vec<String> {
        let heading = format!("## {section}\n");
        let after = self.0.split_once(&heading).unwrap_or_else(|| panic!("no section {section}")).1;
        let text = after.split("\n## ").next().unwrap_or(after);
        let mut lines = Vec::new();
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().expect("an end");
            lines.extend(block.trim().lines().map(|line| {
                let code = line.split('#').next().unwrap_or(line);
                code.trim().to_owned()
            }));
        }
        assert!(!lines.is_empty(), "no command in the section {section}");
        lines
    }

    /// Returns what to do about a message: the last column of the rows of the table whose words it has.
    fn advice(&self, message: &str) -> Vec<String> {
        let rows = self.0.lines().filter(|line| line.starts_with("| ") && line.contains('"'));
        let found = rows.filter_map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [words, .., advice] = &cells[..] else { return None };
            // The words are in quotes. An ellipsis stands for others.
            let mut quoted = words.split('"').skip(1).step_by(2);
            let has = |quoted: &str| quoted.split('…').all(|part| message.contains(part.trim()));
            quoted.any(has).then(|| (*advice).to_owned())
        });
        found.collect()
    }
}

/// The directory in which the commands of the guide run: a store with a backup and an archive.
struct Place {
    root: TempDir,
    guide: Guide,
}

impl Place {
    fn empty() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for parent in ["data", "backups", "backup"] {
            fs::create_dir(root.path().join(parent)).expect("a directory");
        }
        Self { root, guide: Guide::read("damage.md") }
    }

    fn new(durability: Durability) -> Self {
        let place = Self::empty();
        let mut options = Store::options().durability(durability);
        if durability == Durability::Journal {
            options = options.archive(place.path("backup/shop"));
        }
        let store = options.open(place.shop()).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        let pictures = PictureRepository::open(&store).expect("a table");
        store
            .transaction(|txn| {
                (1..=ROWS).try_for_each(|id| customers.insert(txn, &customer(id)))?;
                (1..=20).try_for_each(|id| {
                    pictures.insert(txn, &Picture { id, bytes: "picture".repeat(2000) })
                })
            })
            .expect("a commit");
        store.backup_to(place.path("backups/shop")).expect("a backup");
        store.transaction(|txn| customers.insert(txn, &customer(ROWS + 1))).expect("a commit");
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn shop(&self) -> PathBuf {
        self.path("data/shop")
    }

    fn file(&self) -> PathBuf {
        self.path("data/shop/data.mdb")
    }

    /// Runs a command of the guide. The machine of the guide has its archive in another file system.
    fn run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let program = match words.next() {
            Some("index-table") => assert_cmd::cargo::cargo_bin!("index-table").to_owned(),
            Some("admin") => example("rows"),
            Some("cp") => "cp".into(),
            other => panic!("{other:?} in `{line}`"),
        };
        let words = words.map(|word| match word.strip_prefix('/') {
            Some(path) => self.path(path).into_os_string(),
            None => word.into(),
        });
        Command::new(program).args(words).current_dir(&self.root).output().expect("a process")
    }

    /// Runs a command that fails, and returns what the guide says of its message.
    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(!output.status.success(), "`{line}`: {output:?}");
        let message = one_line(&output.stderr);
        let advice = self.guide.advice(&message);
        assert!(!advice.is_empty(), "the guide doesn't have: {message}");
        advice.join("; ")
    }

    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "`{line}`: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the command that the guide checks a store with. Returns the exit code and the message.
    fn check(&self) -> (Option<i32>, String) {
        let output = self.run(&self.guide.commands("In an emergency")[0]);
        (output.status.code(), one_line(&output.stderr))
    }

    /// Checks the store, which must be damaged, and returns what the guide says of the message.
    fn advice(&self) -> String {
        self.fails(&self.guide.commands("In an emergency")[0])
    }

    /// Returns the number of customers in a directory, and removes it.
    fn rows_of(&self, directory: &str) -> u64 {
        let rows = self.succeeds(&format!("index-table rows {directory} customers"));
        fs::remove_dir_all(self.path(directory)).expect("removed");
        rows.lines().count() as u64
    }

    /// Follows the steps of an emergency: a copy of the directory, the backup, and the archive.
    fn restore(&self) {
        let steps = self.guide.commands("In an emergency");
        let [_, restore, check, last, until] = &steps[..] else { panic!("{steps:?}") };
        self.succeeds(restore);
        self.succeeds(check);
        assert_eq!(self.rows_of("data/restored"), ROWS);
        if self.path("backup/shop").exists() {
            self.succeeds(last);
            self.succeeds(check);
            assert_eq!(self.rows_of("data/restored"), ROWS + 1);
            // The time of the guide is not in this archive.
            let (command, _) = until.split_once(" --until").expect("a time");
            let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis();
            let now = jiff::Timestamp::from_millisecond(now as i64).expect("a time");
            self.succeeds(&format!("{command} --until {now}"));
            assert_eq!(self.rows_of("data/restored"), ROWS + 1);
        }
    }

    /// Follows the section on a store without a backup. Returns the exit code, and the number of customers.
    fn salvage(&self) -> (Option<i32>, u64) {
        let copy = self.guide.0.split('`').find(|code| code.starts_with("cp -a ")).expect("a copy");
        self.succeeds(copy);
        let steps = self.guide.commands("Without a backup");
        let [salvage, check] = &steps[..] else { panic!("{steps:?}") };
        let output = self.run(salvage);
        self.succeeds(check);
        fs::remove_dir_all(self.path("damaged-shop")).expect("removed");
        (output.status.code(), self.rows_of("data/restored"))
    }

    /// Overwrites the first page of a kind whose damage has this message.
    fn damage_page(&self, is_of_kind: IsOfKind, message: &str) {
        let (intact, mut seen) = (fs::read(self.file()).expect("the file"), Vec::new());
        for (at, _) in intact.chunks(PAGE).enumerate().filter(|(_, page)| is_of_kind(page)) {
            let mut bytes = intact.clone();
            bytes[at * PAGE..][..PAGE].fill(0);
            fs::write(self.file(), bytes).expect("the file");
            let (_, found) = self.check();
            if found.contains(message) {
                return;
            }
            seen.push(found);
        }
        panic!("no damaged page has the message `{message}`: {seen:?}");
    }
}

/// Returns a message without its line breaks, whose places depend on the width of the terminal.
fn one_line(message: &[u8]) -> String {
    let message = String::from_utf8_lossy(message);
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

const BRANCH: u8 = 0x01;
const OVERFLOW: u8 = 0x04;

#[test]
fn damaged_rows_are_restored_or_salvaged() {
    let kinds: [(&str, IsOfKind); 3] = [
        ("database `customers`, page", has_rows),
        ("database `customers`, page", |page| page[10] == BRANCH),
        ("database `pictures`, page", |page| page[10] == OVERFLOW),
    ];
    for (at, (message, is_of_kind)) in kinds.into_iter().enumerate() {
        let place = Place::new(Durability::Journal);
        place.damage_page(is_of_kind, message);
        let advice = place.advice();
        assert!(advice.contains("(step 4)") && advice.contains("[salvage]"), "{advice}");
        let (code, rows) = place.salvage();
        // A branch has no rows, and a picture is no customer.
        assert_eq!(
            (code == Some(1), rows < ROWS),
            (at != 1, at == 0),
            "{message}: {code:?} {rows}"
        );
        place.restore();
    }
}

#[test]
fn a_damaged_index_is_built_again() {
    let place = Place::new(Durability::Journal);
    let is_of_town = |page: &[u8]| is_leaf_with(page, &["Oslo"]) && !has_rows(page);
    place.damage_page(is_of_town, "database `customers.town`, page");
    let advice = place.advice();
    assert!(advice.contains("[below](#a-damaged-index)") && !advice.contains("backup"), "{advice}");
    let commands = place.guide.commands("A damaged index");
    let [command] = &commands[..] else { panic!("{commands:?}") };
    // The store has an archive, which the command of another store does not name.
    let archive = place.path("backup/shop");
    let advice = place.fails(command);
    assert!(advice.contains("`--archive`"), "{advice}");
    let typed = command.replacen("index-table", "admin", 1);
    place.succeeds(&format!("{typed} --archive {}", archive.display()));
    assert_eq!(place.check().0, Some(0));
    place.succeeds("admin verify data/shop");
    assert_eq!(place.rows_of("data/shop"), ROWS + 1);
}

#[test]
fn damaged_first_pages_are_restored() {
    let damage = |place: &Place| {
        let mut bytes = fs::read(place.file()).expect("the file");
        bytes[..2 * PAGE].fill(0xa5);
        fs::write(place.file(), bytes).expect("the file");
    };
    let place = Place::new(Durability::Full);
    damage(&place);
    let advice = place.advice();
    assert!(advice.contains("restore a backup (step 4"), "{advice}");
    place.restore();
    // The journal has the first pages of its last checkpoint.
    let place = Place::new(Durability::Journal);
    damage(&place);
    assert_eq!(place.check().0, Some(0));
    assert_eq!(place.rows_of("data/shop"), ROWS + 1);
}

#[test]
fn a_cut_or_missing_data_file_is_put_back_or_restored() {
    let cases: [(&str, Damage, &str); 3] = [
        ("cut", |file| cut(file, 2), "(step 4"),
        ("empty", |file| cut(file, u64::MAX), "put `data.mdb` back"),
        (
            "missing",
            |file| fs::remove_file(file).expect("removed"),
            "put the right `data.mdb` back",
        ),
    ];
    for (what, damage, expected) in cases {
        let place = Place::new(Durability::Journal);
        let intact = fs::read(place.file()).expect("the file");
        damage(&place.file());
        let advice = place.advice();
        assert!(advice.contains(expected), "{what}: {advice}");
        place.restore();
        fs::write(place.file(), intact).expect("the file");
        assert_eq!(place.check().0, Some(0), "{what}");
        assert_eq!(place.rows_of("data/shop"), ROWS + 1, "{what}");
    }
}

fn cut(file: &Path, part: u64) {
    let file = fs::OpenOptions::new().write(true).open(file).expect("the file");
    let length = file.metadata().expect("the file").len();
    file.set_len(length / part).expect("cut");
}

/// Starts a command that loads pictures without types, in batches, and waits until some are committed. Its input stays open.
fn start_load(place: &Place, count: u64) -> Child {
    use std::io::Write as _;
    let mut load = Command::new(assert_cmd::cargo::cargo_bin!("index-table"));
    load.args(["load", "data/shop", "pictures", "--archive", "backup/shop"]);
    load.current_dir(&place.root).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut load = load.stdout(Stdio::null()).spawn().expect("a process");
    let input = load.stdin.as_mut().expect("a pipe");
    for id in 100..100 + count {
        writeln!(input, "{{\"id\":{id},\"bytes\":\"\"}}").expect("written");
    }
    input.flush().expect("written");
    let begun = std::time::Instant::now();
    while pictures(place) < count - 1024 {
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "no rows are committed");
        assert!(load.try_wait().expect("the process").is_none(), "the load has ended");
    }
    load
}

/// Returns the number of pictures, while another process writes.
fn pictures(place: &Place) -> u64 {
    place.succeeds("index-table rows data/shop pictures").lines().count() as u64
}

#[test]
fn a_killed_process_loses_no_commit() {
    let place = Place::new(Durability::Journal);
    let mut load = start_load(&place, 3000);
    let before = pictures(&place);
    load.kill().expect("killed");
    load.wait().expect("ended");
    let (code, message) = place.check();
    assert_eq!(code, Some(0), "{message}");
    assert!(pictures(&place) >= before);
    // The journal is needed after a kill.
    let place = Place::new(Durability::Journal);
    let mut load = start_load(&place, 3000);
    load.kill().expect("killed");
    load.wait().expect("ended");
    let files = fs::read_dir(place.shop()).expect("a directory");
    let names = files.map(|file| file.expect("a file").path());
    let journal: Vec<_> = names.filter(|path| path.to_string_lossy().contains("journal")).collect();
    assert!(!journal.is_empty());
    let mut lost = 0;
    for file in &journal {
        fs::rename(file, place.path("lost")).expect("renamed");
        let (code, message) = place.check();
        if code != Some(0) {
            lost += 1;
            let advice = place.guide.advice(&message).join("; ");
            assert!(advice.contains("put missing files back"), "{file:?} {message}: {advice}");
        }
        fs::rename(place.path("lost"), file).expect("renamed");
    }
    assert!(lost > 0, "no file of the journal is needed");
    assert_eq!(place.check().0, Some(0));
    assert!(pictures(&place) >= before);
}

#[test]
fn a_lost_segment_of_the_archive_is_found() {
    let place = Place::new(Durability::Journal);
    let segments = fs::read_dir(place.path("backup/shop")).expect("a directory");
    let names = segments.map(|file| file.expect("a file").path());
    let mut segments: Vec<_> =
        names.filter(|path| path.to_string_lossy().contains("segment")).collect();
    segments.sort();
    fs::rename(&segments[0], place.path("lost")).expect("renamed");
    for line in ["index-table archive /backup/shop --verify", "index-table archive /backup/shop"] {
        let advice = place.fails(line);
        assert!(advice.contains("another copy of the archive"), "{advice}");
    }
    let [_, _, _, restore, _] = &place.guide.commands("In an emergency")[..] else { panic!() };
    assert!(place.fails(restore).contains("restore an earlier commit"));
    assert!(!place.path("data/restored").exists());
    // The store itself is intact, and begins another archive.
    assert_eq!(place.check().0, Some(0));
    place.succeeds("admin delete data/shop customers 1 --archive /backup/other");
    place.succeeds("index-table restore /backup/other data/restored");
    assert_eq!(place.rows_of("data/restored"), ROWS);
}

#[test]
fn a_wrong_backup_in_the_place_of_the_store_is_found() {
    // Only the data file, beside the newer files of the store.
    let place = Place::new(Durability::Journal);
    let newer = fs::read(place.file()).expect("the file");
    fs::copy(place.path("backups/shop/data.mdb"), place.file()).expect("copied");
    let advice = place.advice();
    assert!(advice.contains("put the right `data.mdb` back"), "{advice}");
    fs::write(place.file(), newer).expect("the file");
    assert_eq!(place.check().0, Some(0));
    // The whole directory, of a store that never had this archive: its commits continue the archive after a gap.
    fs::rename(place.shop(), place.path("data/newer")).expect("renamed");
    place.succeeds("cp -a backups/shop data/shop");
    place.succeeds("admin delete data/shop customers 1 --archive /backup/shop");
    let parts = place.succeeds("index-table --json archive /backup/shop");
    let parts: serde_json::Value = serde_json::from_str(&parts).expect("JSON");
    assert_eq!(parts["parts"].as_array().map(Vec::len), Some(2), "{parts}");
    // The last commit before the mistake is still there.
    let until = parts["parts"][0]["until"].as_f64().expect("seconds");
    let until = jiff::Timestamp::from_millisecond((until * 1000.0) as i64 + 1).expect("a time");
    place.succeeds(&format!("index-table restore /backup/shop data/restored --until {until}"));
    assert_eq!(place.rows_of("data/restored"), ROWS + 1);
    // The disk of the store is not mounted.
    fs::remove_dir_all(place.shop()).expect("removed");
    fs::write(place.path("lines"), "").expect("a file");
    let advice =
        place.fails("admin load data/shop customers lines --create --archive /backup/shop");
    assert!(advice.contains("mount the disk of the store"), "{advice}");
    assert_eq!(fs::read_dir(place.shop()).map_or(0, Iterator::count), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_full_disk_the_work_goes_on() {
    let Some(disk) = disk::Disk::new() else { return };
    let place = Place::empty();
    std::os::unix::fs::symlink(disk.path().join("shop"), place.shop()).expect("a link");
    {
        let store = Store::open(disk.path().join("shop")).expect("a store");
        let pictures = PictureRepository::open(&store).expect("a table");
        let picture = Picture { id: 1, bytes: String::new() };
        store.transaction(|txn| pictures.insert(txn, &picture)).expect("a commit");
    }
    let line = |id: u64| format!("{{\"id\":{id},\"bytes\":\"{}\"}}\n", "x".repeat(300_000));
    fs::write(place.path("lines"), (2..14).map(line).collect::<String>()).expect("a file");
    let load = "index-table load data/shop pictures lines --on-duplicate replace";
    let advice = place.fails(load);
    assert!(advice.contains("free disk space"), "{advice}");
    assert_eq!(place.check().0, Some(0));
    disk.grow();
    place.succeeds(load);
    assert_eq!(place.check().0, Some(0));
    assert_eq!(pictures(&place), 13);
}

#[test]
fn a_copy_of_files_that_are_written_is_intact_or_refused() {
    use std::io::Write as _;
    let place = Place::new(Durability::Journal);
    let mut load = start_load(&place, 3000);
    let mut input = load.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 10_000..200_000_u64 {
                if writeln!(input, "{{\"id\":{id},\"bytes\":\"{id}\"}}").is_err() {
                    return;
                }
            }
        });
        for _ in 0..6 {
            place.run("cp -r data/shop data/copy");
            let checked = place.run("index-table check data/copy");
            if !checked.status.success() {
                let message = one_line(&checked.stderr);
                assert!(
                    !place.guide.advice(&message).is_empty(),
                    "the guide doesn't have: {message}"
                );
            }
            fs::remove_dir_all(place.path("data/copy")).expect("removed");
        }
        load.kill().expect("killed");
        load.wait().expect("ended");
    });
    assert!(place.guide.0.contains("`cp -r` copies its files at different moments"));
}

#[test]
fn a_lost_directory_of_a_shard_is_restored() {
    let place = Place::empty();
    process::copy(sharded().path(), &place.shop());
    place.succeeds("index-table backup data/shop backups/shop");
    fs::remove_dir_all(place.path("data/shop/south")).expect("removed");
    let advice = place.advice();
    assert!(advice.contains("`restore-shard`"), "{advice}");
    let commands = Guide::read("sharding.md").commands("Backups and lost shards");
    let [command] = &commands[..] else { panic!("{commands:?}") };
    place.succeeds(command);
    assert_eq!(place.check().0, Some(0));
    place.succeeds("admin verify data/shop");
    assert_eq!(place.succeeds("index-table rows data/shop orders").lines().count(), 6);
}
