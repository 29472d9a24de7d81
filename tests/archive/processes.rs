//! A process with an archive is killed.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{CommitNumber, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change, fresh, last_commit, options, rows_of,
    wait_for_archive,
};

const CHILD: &str = "INDEX_TABLE_ARCHIVE_CHILD";

/// Writes in the child process until it is killed, and prints the number of each commit.
#[test]
fn a_child_process_commits_until_it_is_killed() -> TestResult {
    let Ok(dir) = std::env::var(CHILD) else { return Ok(()) };
    let store = options(&Path::new(&dir).join("archive")).open(Path::new(&dir).join("store"))?;
    let notes = NoteRepository::open(&store)?;
    let seed = fs::read_to_string(Path::new(&dir).join("seed"))?.parse()?;
    let (mut random, mut rows) = (Random(seed), Rows::new());
    wait_for_archive(&store);
    let mut out = std::io::stdout();
    writeln!(out)?;
    loop {
        change(&store, &notes, &mut rows, &mut random)?;
        writeln!(out, "commit {}", last_commit(&store)?)?;
        out.flush()?;
    }
}

/// Runs the child until it has acknowledged this number of commits. Returns the number of its first and last commit.
fn run(dir: &Path, seed: u64, commits: usize) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    fs::write(dir.join("seed"), seed.to_string())?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "processes::a_child_process_commits_until_it_is_killed", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("no output")?;
    let mut numbers = Vec::new();
    for line in BufReader::new(out).lines() {
        if let Some(number) = line?.strip_prefix("commit ") {
            numbers.push(number.parse::<u64>()?);
        }
        if numbers.len() == commits {
            child.kill()?;
        }
    }
    child.wait()?;
    let first = *numbers.first().ok_or("the child has not committed")?;
    Ok((first, *numbers.last().ok_or("the child has not committed")?))
}

/// Returns the rows after this number of commits of a child.
fn model(before: &Rows, seed: u64, commits: u64) -> Result<Rows, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(index_table::Durability::None).open(dir.path())?;
    let notes = NoteRepository::open(&store)?;
    let (mut random, mut rows) = (Random(seed), before.clone());
    for _ in 0..commits {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    Ok(rows)
}

#[test]
fn a_killed_process_leaves_an_archive_without_a_gap() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let mut rows = Rows::new();
    let mut moments: Vec<(u64, Rows)> = Vec::new();
    for (seed, commits) in [(1, 5), (2, 120), (3, 40), (4, 200)] {
        let (first, acknowledged) = run(dir.path(), seed, commits)?;
        // Before the store is opened again, the archive has a prefix of the commits.
        let to = fresh(dir.path(), "restored");
        let last = Store::restore_archive(&archive).run(&to)?;
        let last: u64 = last.to_string().parse()?;
        let expected = model(&rows, seed, (last + 1).saturating_sub(first))?;
        let found = rows_of(&to)?;
        assert!(
            found == expected,
            "up to commit {last}, from {first}: {} rows, not {}",
            found.len(),
            expected.len()
        );

        // Opening the store archives the rest.
        let store = options(&archive).open(&path)?;
        let last: u64 = last_commit(&store)?.to_string().parse()?;
        assert!(last >= acknowledged, "{last} < {acknowledged}");
        wait_for_archive(&store);
        drop(store);
        for commit in [first, u64::midpoint(first, last), last] {
            moments.push((commit, model(&rows, seed, commit + 1 - first)?));
        }
        rows = moments.last().map(|(_, rows)| rows.clone()).unwrap_or_default();
    }
    for (commit, rows) in moments {
        let to = fresh(dir.path(), "restored");
        let restored = Store::restore_archive(&archive).until_commit(commit).run(&to)?;
        assert_eq!(restored, CommitNumber::from(commit));
        assert!(rows_of(&to)? == rows, "after commit {commit}");
    }
    let bases = fs::read_dir(&archive)?.filter_map(Result::ok);
    let bases = bases.filter(|it| it.file_name().to_string_lossy().starts_with("base."));
    assert_eq!(bases.count(), 1, "a gap has been closed by a base");
    Ok(())
}

#[test]
fn the_archive_gets_the_commits_that_a_reader_has_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (first, acknowledged) = run(dir.path(), 5, 150)?;
    let reader = Store::options().read_only(true).open(&path)?;
    assert!(reader.was_recovered());
    let last = last_commit(&reader)?;
    assert!(CommitNumber::from(acknowledged) <= last);
    drop(reader);
    let store = options(&archive).open(&path)?;
    assert!(!store.was_recovered());
    wait_for_archive(&store);
    drop(store);
    let to = fresh(dir.path(), "restored");
    assert_eq!(Store::restore_archive(&archive).run(&to)?, last);
    for commit in (first..=acknowledged).rev().step_by(7) {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(CommitNumber::from(commit)).run(&to)?;
        assert!(rows_of(&to)? == model(&Rows::new(), 5, commit - first + 1)?, "commit {commit}");
    }
    Ok(())
}
