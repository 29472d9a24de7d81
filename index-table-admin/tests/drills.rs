//! The drills: each kind of damage is made in turn, and the guide's chapter on damage is followed literally. Its table must have the
//! message of `check`, and its commands run as they stand there.
#![cfg(unix)]

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
use support::{CustomerRepository, customer};
use tempfile::TempDir;

const PAGE: usize = 4096;

/// The rows in the backup. The archive has one more.
const ROWS: u64 = 2000;

/// Rows with a value on pages of its own.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "pictures")]
struct Picture {
    #[primary_key]
    id: u64,
    bytes: String,
}

/// The chapter of the guide.
struct Guide(String);

impl Guide {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/damage.md");
        Self(fs::read_to_string(path).expect("the guide"))
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
    fn new(durability: Durability) -> Self {
        let place = Self { root: tempfile::tempdir().expect("a directory"), guide: Guide::read() };
        for parent in ["data", "backups", "backup"] {
            fs::create_dir(place.path(parent)).expect("a directory");
        }
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

    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "`{line}`: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the command that the guide checks a store with. Returns the exit code and the message.
    fn check(&self) -> (Option<i32>, String) {
        let output = self.run(&self.guide.commands("In an emergency")[0]);
        let message = String::from_utf8(output.stderr).expect("text");
        (output.status.code(), message.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Checks the store, which must be damaged, and returns what the guide says of the message.
    fn advice(&self) -> String {
        let (code, message) = self.check();
        assert!(code != Some(0), "{message}");
        let advice = self.guide.advice(&message);
        assert!(!advice.is_empty(), "the guide doesn't have: {message}");
        advice.join("; ")
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
    fn damage_page(&self, is_of_kind: fn(&[u8]) -> bool, message: &str) {
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

const BRANCH: u8 = 0x01;
const OVERFLOW: u8 = 0x04;

#[test]
fn damaged_rows_are_restored_or_salvaged() {
    let kinds: [(&str, fn(&[u8]) -> bool); 3] = [
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
    let error = place.run(command);
    let message = String::from_utf8_lossy(&error.stderr).into_owned();
    let advice = place.guide.advice(&message.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(advice.iter().any(|advice| advice.contains("`--archive`")), "{message} {advice:?}");
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
    let cases: [(&str, fn(&Path), &str); 3] = [
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
    for file in &journal {
        fs::rename(file, place.path("lost")).expect("renamed");
        let (code, message) = place.check();
        if code != Some(0) {
            let advice = place.guide.advice(&message).join("; ");
            assert!(advice.contains("put missing files back"), "{file:?} {message}: {advice}");
        }
        fs::rename(place.path("lost"), file).expect("renamed");
    }
    assert_eq!(place.check().0, Some(0));
    assert!(pictures(&place) >= before);
}
