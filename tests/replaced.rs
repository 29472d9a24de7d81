//! Files of a store that are removed, renamed or replaced while it is open.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Durability, Error, IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[path = "support/privileges.rs"]
mod privileges;
use privileges::not_privileged;

type TestError = Box<dyn std::error::Error>;
type TestResult<T = ()> = Result<T, TestError>;

/// The time after which each commit to a lost file is refused.
const NOTICED: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = id)]
#[index(text)]
struct Note {
    #[primary_key]
    id: u32,
    text: String,
}

struct Notes {
    store: Store,
    notes: NoteRepository,
}

impl Notes {
    fn of(store: Store) -> index_table::Result<Self> {
        Ok(Self { notes: NoteRepository::open(&store)?, store })
    }

    fn open(durability: Durability, path: &Path) -> index_table::Result<Self> {
        Self::of(Store::options().durability(durability).open(path)?)
    }

    fn insert(&self, id: u32) -> index_table::Result<()> {
        let note = Note { id, text: format!("note {id}") };
        self.store.transaction(|txn| self.notes.insert(txn, &note))
    }

    fn count(&self) -> index_table::Result<u64> {
        let txn = self.store.read()?;
        let rows = self.notes.all(&txn).count()?;
        assert_eq!(self.notes.by_text(&txn).count()?, rows);
        Ok(rows)
    }
}

fn refused_at<T: std::fmt::Debug>(outcome: index_table::Result<T>, file: &Path) -> TestResult {
    match outcome {
        Err(Error::FileReplaced { path }) if path == file => Ok(()),
        outcome => Err(format!("{outcome:?} instead of an error for {}", file.display()).into()),
    }
}

/// A change of a file of a store.
#[derive(Debug, Clone, Copy)]
enum Change {
    Removed,
    ReplacedByCopy,
    DirectoryRenamed,
}

impl Change {
    /// Makes the change. A copy of the file stays beside the directory.
    fn make(self, file: &Path) -> std::io::Result<()> {
        let directory = file.parent().expect("the directory");
        match self {
            Self::Removed => fs::remove_file(file),
            Self::ReplacedByCopy => {
                let copy = directory.with_extension("copy");
                fs::copy(file, &copy)?;
                fs::rename(copy, file)
            }
            Self::DirectoryRenamed => fs::rename(directory, directory.with_extension("moved")),
        }
    }
}

#[test]
fn a_commit_to_a_file_that_is_no_longer_there_is_not_acknowledged() -> TestResult {
    let all = ["data.mdb", "lock.mdb", "journal.0", "journal.2"];
    for durability in [Durability::Full, Durability::Relaxed, Durability::None, Durability::Journal]
    {
        let files = if durability == Durability::Journal { &all[..] } else { &all[..2] };
        for &name in files {
            for change in [Change::Removed, Change::ReplacedByCopy, Change::DirectoryRenamed] {
                let what = format!("{durability:?} {name} {change:?}");
                let dir = tempfile::tempdir()?;
                let path = dir.path().canonicalize()?.join("store");
                let notes = Notes::open(durability, &path)?;
                notes.insert(1)?;
                let file = path.join(name);
                change.make(&file)?;
                thread::sleep(NOTICED);
                let lost = if matches!(change, Change::DirectoryRenamed) {
                    // The files are checked in this order.
                    path.join("lock.mdb")
                } else {
                    file
                };
                refused_at(notes.insert(2), &lost).map_err(|error| format!("{what}: {error}"))?;
                refused_at(notes.store.write().map(drop), &lost)?;
                assert_eq!(notes.count()?, 1, "{what}");
                // The rows are still readable, and can be copied.
                notes.store.backup_to(dir.path().join("backup"))?;
                drop(notes);
                assert_eq!(Notes::open(durability, &dir.path().join("backup"))?.count()?, 1);
            }
        }
    }
    Ok(())
}

#[test]
fn a_transaction_whose_file_is_lost_meanwhile_is_refused_and_changes_nothing() -> TestResult {
    for durability in [Durability::Full, Durability::Journal, Durability::None] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().canonicalize()?.join("store");
        let notes = Notes::open(durability, &path)?;
        notes.insert(1)?;
        let mut txn = notes.store.write()?;
        notes.notes.insert(&mut txn, &Note { id: 2, text: "late".into() })?;
        let (file, aside) = (path.join("data.mdb"), path.join("aside"));
        fs::rename(&file, &aside)?;
        thread::sleep(NOTICED);
        refused_at(txn.commit(), &file).map_err(|error| format!("{durability:?}: {error}"))?;
        fs::rename(&aside, &file)?;
        assert_eq!(notes.count()?, 1, "{durability:?}");
        drop(notes);
        assert_eq!(Notes::open(durability, &path)?.count()?, 1, "{durability:?}");
    }
    Ok(())
}

#[test]
fn commits_continue_when_the_file_is_back() -> TestResult {
    for durability in [Durability::Full, Durability::Journal] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().canonicalize()?.join("store");
        let notes = Notes::open(durability, &path)?;
        notes.insert(1)?;
        for (round, name) in (2..).zip(["data.mdb", "lock.mdb"]) {
            let (file, aside) = (path.join(name), path.join("aside"));
            fs::rename(&file, &aside)?;
            thread::sleep(NOTICED);
            refused_at(notes.insert(round), &file)?;
            fs::rename(&aside, &file)?;
            notes.insert(round)?;
        }
        drop(notes);
        assert_eq!(Notes::open(durability, &path)?.count()?, 3);
    }
    Ok(())
}

#[test]
fn a_lost_data_file_of_a_shard_stops_its_commits_and_no_others() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().canonicalize()?.join("store");
    let map = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..);
    let options = Store::options().shard("north", "north").shard("south", "south");
    let store = options.map("notes", map).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let insert = |ids: &[u32]| {
        store.transaction(|txn| {
            let note = |id: &u32| Note { id: *id, text: format!("note {id}") };
            ids.iter().try_for_each(|id| notes.insert(txn, &note(id)))
        })
    };
    insert(&[1, 101])?;
    let lost = path.join("north/data.mdb");
    let aside = path.join("aside");
    fs::rename(&lost, &aside)?;
    thread::sleep(NOTICED);
    refused_at(insert(&[2]), &lost)?;
    refused_at(insert(&[2, 102]), &lost)?;
    insert(&[103])?;
    fs::rename(&aside, &lost)?;
    insert(&[2, 102])?;

    // All shards write the common journal, under the lock of the store's writer.
    for (name, ids) in [("shards.journal.1", [3, 104]), ("writer.lock", [4, 105])] {
        let file = path.join(name);
        fs::rename(&file, &aside)?;
        thread::sleep(NOTICED);
        refused_at(insert(&ids[..1]), &file)?;
        refused_at(insert(&ids[1..]), &file)?;
        refused_at(insert(&ids), &file)?;
        fs::rename(&aside, &file)?;
        insert(&ids)?;
    }

    drop((store, notes));
    let store = Store::open(&path)?;
    let ids =
        NoteRepository::open(&store)?.all(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(ids, [1, 2, 3, 4, 101, 102, 103, 104, 105]);
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// A process that runs a test in a role, step by step.
struct Other(Child);

impl Other {
    fn start(name: &str, role: &str, path: &Path) -> TestResult<Self> {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--exact", name, "--nocapture"]);
        child.env("INDEX_TABLE_OTHER_PROCESS", path).env("INDEX_TABLE_ROLE", role);
        let mut own = Self(child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        own.wait()?;
        Ok(own)
    }

    /// Waits for the end of the step.
    fn wait(&mut self) -> TestResult {
        let lines = BufReader::new(self.0.stdout.as_mut().expect("the output")).lines();
        for line in lines {
            let line = line?;
            if line.contains("done") {
                return Ok(());
            }
            eprintln!("{line}");
        }
        Err("the other process has ended".into())
    }

    /// Runs the next step.
    fn step(&mut self) -> TestResult {
        self.0.stdin.as_mut().expect("the input").write_all(b"\n")?;
        self.wait()
    }

    fn end(mut self) -> TestResult {
        drop(self.0.stdin.take());
        assert!(self.0.wait()?.success());
        Ok(())
    }
}

/// Returns the path and the role in such a process.
fn as_other_process() -> Option<(PathBuf, String)> {
    let path = std::env::var_os("INDEX_TABLE_OTHER_PROCESS")?;
    Some((path.into(), std::env::var("INDEX_TABLE_ROLE").ok()?))
}

/// Ends a step. Returns false if there is no other.
fn done() -> TestResult<bool> {
    println!("done");
    Ok(std::io::stdin().read_line(&mut String::new())? > 0)
}

/// Inserts a row in each step.
fn write_in_steps(path: &Path) -> TestResult {
    let notes = Notes::open(Durability::Full, path)?;
    let mut ids = 1000..;
    while done()? {
        ids.next().map_or(Ok(()), |id| notes.insert(id))?;
    }
    Ok(())
}

#[test]
fn a_process_that_is_not_alone_creates_no_lock_file() -> TestResult {
    const NAME: &str = "a_process_that_is_not_alone_creates_no_lock_file";
    if let Some((path, _)) = as_other_process() {
        return write_in_steps(&path);
    }
    for (durability, read_only) in [(Durability::Full, true), (Durability::Journal, false)] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().canonicalize()?;
        drop(Notes::open(Durability::Full, &path)?);
        let mut other = Other::start(NAME, "write", &path)?;
        other.step()?;
        let (lock, aside) = (path.join("lock.mdb"), path.join("aside"));
        fs::rename(&lock, &aside)?;
        let opened = Store::options().durability(durability).read_only(read_only).open(&path);
        assert!(matches!(&opened, Err(Error::LockFile { .. })), "{opened:?}");
        assert!(!lock.exists());
        fs::rename(&aside, &lock)?;
        other.step()?;
        assert_eq!(Notes::open(Durability::Full, &path)?.count()?, 2);
        fs::remove_file(&lock)?;
        other.end()?;
        assert_eq!(Notes::open(durability, &path)?.count()?, 2);
    }
    Ok(())
}

/// A program of another kind does not have the lock on the directory.
#[test]
fn a_writer_with_another_lock_file_is_detected() -> TestResult {
    const NAME: &str = "a_writer_with_another_lock_file_is_detected";
    if let Some((path, _)) = as_other_process() {
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: the other process does not write meanwhile.
        let env = unsafe { heed::EnvOpenOptions::new().max_dbs(1).open(&path)? };
        let txn = env.write_txn()?;
        env.create_databases_and_commit(txn, |opener, txn| {
            opener.create_database::<heed::types::Str, heed::types::Str>(txn, Some("other"))?;
            Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
        })?;
        done()?;
        return Ok(());
    }
    for durability in [Durability::Full, Durability::Journal] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().canonicalize()?;
        let notes = Notes::open(durability, &path)?;
        notes.insert(1)?;
        let (lock, aside) = (path.join("lock.mdb"), path.join("aside"));
        fs::rename(&lock, &aside)?;
        Other::start(NAME, "write", &path)?.end()?;
        fs::rename(&aside, &lock)?;
        for _ in 0..3 {
            let outcome = notes.insert(2);
            assert!(matches!(&outcome, Err(Error::LockFile { .. })), "{durability:?} {outcome:?}");
        }
    }
    Ok(())
}

/// Checks that each read fails after another process has written three commits to another data file.
fn refuses_reads(notes: &Notes, other: &mut Other) -> TestResult {
    assert_eq!(notes.count()?, 1);
    for _ in 0..3 {
        other.step()?;
        for _ in 0..3 {
            let read = notes.store.read().map(drop);
            let Err(error @ Error::LockFile { .. }) = &read else {
                return Err(format!("{read:?}").into());
            };
            let message = error.to_string();
            assert!(message.contains("`data.mdb`"), "{message}");
        }
    }
    Ok(())
}

#[test]
fn readers_of_an_earlier_data_file_get_errors() -> TestResult {
    const NAME: &str = "readers_of_an_earlier_data_file_get_errors";
    if let Some((path, _)) = as_other_process() {
        return write_in_steps(&path);
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().canonicalize()?.join("store");
    Notes::open(Durability::Full, &path)?.insert(1)?;
    let notes = Notes::of(Store::options().read_only(true).open(&path)?)?;
    Change::ReplacedByCopy.make(&path.join("data.mdb"))?;
    let mut other = Other::start(NAME, "write", &path)?;
    refuses_reads(&notes, &mut other)?;
    other.end()?;
    drop(notes);
    assert_eq!(Notes::open(Durability::Full, &path)?.count()?, 4);
    Ok(())
}

/// An overlay file system, as of a container, whose lower layer has a store. It is unmounted when this is dropped.
struct Overlay(PathBuf);

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn readers_of_a_lower_layer_get_errors_after_a_writer_has_copied_the_file_up() -> TestResult {
    const NAME: &str = "readers_of_a_lower_layer_get_errors_after_a_writer_has_copied_the_file_up";
    if let Some((path, _)) = as_other_process() {
        return write_in_steps(&path);
    }
    // The layers can't be on an overlay file system.
    let dir = ["/dev/shm", "/var/tmp", "/tmp"].into_iter().find_map(|layers| {
        let dir = tempfile::tempdir_in(layers).ok()?;
        let path = |name: &str| dir.path().join(name);
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(path(name)).ok()?;
        }
        Notes::open(Durability::Full, &path("lower/store")).ok()?.insert(1).ok()?;
        let [lower, upper, work] =
            ["lower", "upper", "work"].map(|name| path(name).display().to_string());
        let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(path("merged"));
        let mounted = mount.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(dir)
    });
    let Some(dir) = dir else {
        return not_privileged("this process can't mount an overlay file system");
    };
    let merged = Overlay(dir.path().join("merged"));
    let path = merged.0.join("store");
    let notes = Notes::of(Store::options().read_only(true).open(&path)?)?;
    let mut other = Other::start(NAME, "write", &path)?;
    refuses_reads(&notes, &mut other)?;
    other.end()?;
    drop(notes);
    assert_eq!(Notes::open(Durability::Full, &path)?.count()?, 4);
    Ok(())
}
