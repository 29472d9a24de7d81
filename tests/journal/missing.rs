//! Directories of stores in which files are missing, empty, older or shorter: the table "Files that don't belong together" in
//! `docs/RELIABILITY.md`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use index_table::{Durability, Error, Follower, Store};

use crate::{
    NoteRepository, TestResult, directories, expect, killed, many_checkpoints, options, write,
};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The steps in the backup, and in the store.
const OLD: u32 = 10;
const ALL: u32 = 40;

/// The bytes of the marker in `data.mdb`, and the first bytes of a checkpoint that is given up.
const MARKER: std::ops::Range<usize> = 2048..2112;
const GIVEN_UP: &[u8] = b"itJG\0\0\0\x01";

fn files(directory: &Path) -> Files {
    directories::files(directory).expect("files")
}

/// Returns the files without their directory.
fn taken(directory: &Path) -> Files {
    let without = |(path, bytes): (PathBuf, Vec<u8>)| {
        (path.strip_prefix(directory).expect("inside").to_owned(), bytes)
    };
    files(directory).into_iter().map(without).collect()
}

fn put(directory: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, bytes).expect("written");
    }
}

/// The files of real stores.
struct Made {
    _dir: tempfile::TempDir,
    /// A store that was killed, without `lock.mdb`.
    killed: Files,
    /// The same store after it was closed.
    closed: Files,
    /// The same store after it was opened with `Durability::Full`.
    full: Files,
    /// A backup of the store, and its data file when it was closed then.
    backup: Vec<u8>,
    earlier: Vec<u8>,
    /// Other files of stores, which show that a store had commits.
    evidence: Vec<(&'static str, Files)>,
}

impl Made {
    fn new() -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name);
        let (path, archive) = (at("store"), at("archive"));
        {
            let store = options().open(&path)?;
            let notes = NoteRepository::open(&store)?;
            (0..OLD).try_for_each(|step| write(&store, &notes, step))?;
            store.backup_to(at("backup"))?;
        }
        let earlier = fs::read(path.join("data.mdb"))?;
        let left = {
            let store = many_checkpoints().open(&path)?;
            let notes = NoteRepository::open(&store)?;
            (OLD..ALL).try_for_each(|step| write(&store, &notes, step))?;
            killed(&path, &at("left"))?
        };
        let lock = fs::read(path.join("lock.mdb"))?;
        killed(&path, &at("closed"))?;
        drop(Store::options().durability(Durability::Full).open(&path)?);
        killed(&path, &at("full"))?;

        // The files of an archived store, and of a follower.
        let original = at("original");
        let store = options().archive(&archive).open(&original)?;
        NoteRepository::open(&store)?;
        drop(store);
        drop(Follower::open(at("follower"), &archive)?);
        let only = |directory: &Path, prefix: &str| -> Files {
            taken(directory).into_iter().filter(|(name, _)| name.starts_with(prefix)).collect()
        };
        let evidence = vec![
            ("lock.mdb", Files::from([("lock.mdb".into(), lock)])),
            ("archive.pending", only(&original, "archive.pending")),
            ("follower", only(&at("follower"), "follower")),
        ];
        Ok(Self {
            killed: taken(&left),
            closed: taken(&at("closed")),
            full: taken(&at("full")),
            backup: fs::read(at("backup").join("data.mdb"))?,
            earlier,
            evidence,
            _dir: dir,
        })
    }
}

/// Returns each change of the journal's files: its name, and the files.
fn journals(files: &Files) -> Vec<(String, Files)> {
    let mut all = vec![("whole".to_owned(), files.clone())];
    for at in 0..3 {
        let name = PathBuf::from(format!("journal.{at}"));
        let mut missing = files.clone();
        missing.remove(&name).expect("a journal");
        all.push((format!("without {}", name.display()), missing));
        let mut empty = files.clone();
        empty.insert(name.clone(), Vec::new());
        all.push((format!("empty {}", name.display()), empty));
    }
    all.push(("none".to_owned(), without_journal(files)));
    all
}

fn without_journal(files: &Files) -> Files {
    let is_journal = |name: &PathBuf| name.to_string_lossy().starts_with("journal.");
    files
        .iter()
        .filter(|(name, _)| !is_journal(name))
        .map(|(n, b)| (n.clone(), b.clone()))
        .collect()
}

/// Returns the files with another data file.
fn with(files: &Files, data: Option<Vec<u8>>) -> Files {
    let mut files = files.clone();
    match data {
        Some(data) => files.insert("data.mdb".into(), data),
        None => files.remove(Path::new("data.mdb")),
    };
    files
}

fn data(files: &Files) -> Vec<u8> {
    files[Path::new("data.mdb")].clone()
}

/// Returns the data file with a part of its marker replaced by the same part of another marker.
fn half_written(data: &[u8], other: &[u8], end: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    let to = MARKER.start + end;
    data[MARKER.start..to].copy_from_slice(&other[MARKER.start..to]);
    data
}

/// Returns the files with checkpoints that are given up.
fn given_up(files: &Files) -> Files {
    let mut files = files.clone();
    for (name, bytes) in &mut files {
        if name.to_string_lossy().starts_with("journal.") {
            bytes[..8].copy_from_slice(GIVEN_UP);
        }
    }
    files
}

/// Checks that opening the directory with any options is refused, and writes nothing.
fn refused(what: &str, contents: &Files) -> TestResult {
    let dir = tempfile::tempdir()?;
    put(dir.path(), contents);
    let before = files(dir.path());
    let full = Store::options().durability(Durability::Full);
    for options in [options(), options().create(false), full.clone(), full.read_only(true)] {
        match options.open(dir.path()) {
            Err(Error::DamagedFile { .. }) => {}
            // Only a writer recovers a store.
            Err(Error::RecoveryNeeded { .. }) if options.clone().read_only(true) == options => {}
            outcome => panic!("{what}: {outcome:?}"),
        }
        let mut after = files(dir.path());
        if contents.contains_key(Path::new("data.mdb")) && !data(contents).is_empty() {
            // LMDB opens a data file before its pages are checked.
            after.remove(&dir.path().join("lock.mdb"));
        }
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before), "{what}");
        assert!(after == before, "{what}: a file was changed");
    }
    Ok(())
}

/// Checks that a store is opened with the rows of this number of steps, also after it was written and closed.
fn opened(what: &str, contents: &Files, steps: u32) -> TestResult {
    for durability in [Durability::Journal, Durability::Full] {
        let dir = tempfile::tempdir()?;
        put(dir.path(), contents);
        for steps in [steps, steps + 1] {
            let store = options().durability(durability).open(dir.path());
            let store = store.map_err(|error| format!("{what}: {error}"))?;
            expect(&store, steps)?;
            let notes = NoteRepository::open(&store)?;
            write(&store, &notes, steps)?;
        }
    }
    Ok(())
}

#[test]
fn a_missing_empty_or_unfinished_data_file_is_not_replaced_beside_commits() -> TestResult {
    let made = Made::new()?;
    // The last one has the length of the first pages, which were not written.
    for lost in [None, Some(Vec::new()), Some(vec![0; 8192])] {
        let is_unfinished = lost.as_ref().is_some_and(|data| !data.is_empty());
        for from in [&made.killed, &made.closed] {
            for (journal, contents) in journals(&with(from, lost.clone())) {
                if journal != "none" {
                    refused(&journal, &contents)?;
                }
            }
        }
        let nothing = with(&Files::new(), lost.clone());
        opened("no evidence", &nothing, 0)?;
        for (name, files) in &made.evidence {
            let mut contents = nothing.clone();
            contents.extend(files.clone());
            if is_unfinished && *name == "lock.mdb" {
                opened(name, &contents, 0)?;
            } else {
                refused(name, &contents)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_error_of_a_missing_data_file_names_both_ways_out() -> TestResult {
    let made = Made::new()?;
    let dir = tempfile::tempdir()?;
    put(dir.path(), &with(&made.killed, None));
    let error = options().open(dir.path()).expect_err("refused").to_string();
    assert!(error.contains("journal.") && error.contains("put data.mdb back"), "{error}");
    assert!(error.contains("remove the other files"), "{error}");
    fs::write(dir.path().join("data.mdb"), data(&made.killed))?;
    expect(&options().open(dir.path())?, ALL)?;
    for entry in fs::read_dir(dir.path())? {
        fs::remove_file(entry?.path())?;
    }
    expect(&options().open(dir.path())?, 0)
}

#[test]
fn a_killed_first_opener_leaves_no_evidence() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let mut contents = taken(&path);
    drop(store);
    opened("opened", &contents, 0)?;
    contents.insert("data.mdb".into(), Vec::new());
    opened("with an empty data.mdb", &contents, 0)?;
    contents.remove(Path::new("data.mdb"));
    opened("without data.mdb", &contents, 0)
}

#[test]
fn a_needed_journal_must_be_whole() -> TestResult {
    let made = Made::new()?;
    for (journal, contents) in journals(&made.killed) {
        if journal == "whole" {
            opened(&journal, &contents, ALL)
        } else {
            refused(&journal, &contents)
        }?;
    }
    for (journal, contents) in journals(&made.closed) {
        opened(&format!("closed, {journal}"), &contents, ALL)?;
    }
    opened("without a journal", &made.full, ALL)
}

#[test]
fn an_older_data_file_is_refused_beside_later_commits() -> TestResult {
    let made = Made::new()?;
    for older in [&made.backup, &made.earlier] {
        for from in [&made.killed, &made.closed] {
            refused("older", &with(from, Some(older.clone())))?;
        }
        let alone = Files::from([("data.mdb".into(), older.clone())]);
        opened("older, alone", &alone, OLD)?;
    }
    Ok(())
}

#[test]
fn an_interrupted_change_to_full_is_continued() -> TestResult {
    let made = Made::new()?;
    let full = data(&made.full);
    assert!(full[MARKER].iter().all(|byte| *byte == 0));
    let mut marked = given_up(&made.closed);
    opened("files marked", &marked, ALL)?;
    for end in [1, 8, 20, 63] {
        let torn = half_written(&data(&made.closed), &full, end);
        marked.insert("data.mdb".into(), torn);
        opened("marker half written", &marked, ALL)?;
    }
    marked.insert("data.mdb".into(), full.clone());
    opened("marker cleared", &marked, ALL)?;
    for (journal, contents) in journals(&marked) {
        opened(&format!("given up, {journal}"), &contents, ALL)?;
    }
    // Earlier releases did not mark the files.
    opened("not marked", &with(&made.closed, Some(full)), ALL)
}

#[test]
fn a_half_written_marker_loses_nothing() -> TestResult {
    let made = Made::new()?;
    let none = vec![0; MARKER.end];
    for end in [1, 8, 9, 16, 17, 33, 50, 63] {
        // While the store is closed or recovered, and while it is opened.
        let closing = half_written(&data(&made.killed), &data(&made.closed), end);
        let opening = half_written(&data(&made.closed), &data(&made.killed), end);
        let first = half_written(&data(&made.killed), &none, end);
        for torn in [closing, first] {
            for (journal, contents) in journals(&with(&made.killed, Some(torn))) {
                let what = format!("{end} bytes, {journal}");
                if journal == "whole" {
                    opened(&what, &contents, ALL)
                } else {
                    refused(&what, &contents)
                }?;
            }
        }
        opened("opening", &with(&made.closed, Some(opening)), ALL)?;
    }
    Ok(())
}

#[test]
fn a_truncated_data_file_is_refused() -> TestResult {
    let made = Made::new()?;
    for from in [&made.killed, &made.closed, &made.full] {
        let whole = data(from);
        let pages = whole.len() / 4096;
        for length in [1, 2, pages / 3, pages / 2].map(|pages| pages * 4096) {
            refused("truncated", &with(from, Some(whole[..length].to_vec())))?;
            refused("truncated", &with(from, Some(whole[..length - 700].to_vec())))?;
        }
    }
    Ok(())
}
