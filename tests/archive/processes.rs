//! A process with an archive is killed.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use index_table::{CommitNumber, Store};

use crate::{
    Archived, Checked, Kind, Random, Rows, TestResult, apply, change, changes, last_commit,
    on_each_kind, open, rows_in, wait_for_archive, without_archive,
};

on_each_kind! {
    a_child_process_commits_until_it_is_killed,
    a_killed_process_leaves_an_archive_without_a_gap,
    the_archive_gets_the_commits_that_a_reader_has_recovered,
}

const CHILD: &str = "INDEX_TABLE_ARCHIVE_CHILD";

/// Writes in the child process until it is killed, and prints the number of each commit.
fn a_child_process_commits_until_it_is_killed(kind: Kind) -> TestResult {
    let Ok(dir) = std::env::var(CHILD) else { return Ok(()) };
    let dir = Path::new(&dir);
    let options = without_archive(kind).archive(dir.join("archive"));
    let (store, orders) = open(&options, &dir.join("store"))?;
    let seed = fs::read_to_string(dir.join("seed"))?.parse()?;
    let (mut random, mut rows) = (Random(seed), Rows::new());
    wait_for_archive(&store);
    let mut out = std::io::stdout();
    writeln!(out)?;
    loop {
        change(&store, &orders, &mut rows, &mut random)?;
        writeln!(out, "commit {}", serde_json::to_string(&last_commit(&store)?)?)?;
        out.flush()?;
    }
}

/// Runs the child until it has acknowledged this number of commits. Returns all acknowledged commits.
fn run(it: &Archived, seed: u64, commits: usize) -> Checked<Vec<CommitNumber>> {
    fs::write(it.path("seed"), seed.to_string())?;
    let module = it.kind.of("one_file", "several");
    let test = format!("processes::{module}::a_child_process_commits_until_it_is_killed");
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", &test, "--nocapture"])
        .env(CHILD, it.path(""))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut numbers = Vec::new();
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        if let Some(number) = line?.strip_prefix("commit ") {
            numbers.push(serde_json::from_str(number)?);
        }
        if numbers.len() == commits {
            child.kill()?;
        }
    }
    child.wait()?;
    assert!(numbers.len() >= commits, "the child has ended");
    Ok(numbers)
}

/// The rows after each commit of a child, which has acknowledged this number of commits and may have made one more.
fn states(before: &Rows, seed: u64, acknowledged: usize) -> Vec<Rows> {
    let (mut random, mut rows) = (Random(seed), before.clone());
    let mut next = || {
        apply(&mut rows, changes(&mut random));
        rows.clone()
    };
    std::iter::once(before.clone()).chain((0..=acknowledged).map(|_| next())).collect()
}

fn a_killed_process_leaves_an_archive_without_a_gap(kind: Kind) -> TestResult {
    let (it, mut rows) = (Archived::new(kind)?, Rows::new());
    let mut moments: Vec<(CommitNumber, Rows)> = Vec::new();
    let bases = || -> std::io::Result<Vec<_>> {
        let names = fs::read_dir(&it.archive)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<std::io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| name.to_string_lossy().starts_with("base.")).collect())
    };
    for (seed, commits) in [(1, 5), (2, 80), (3, 40), (4, 120)] {
        let acknowledged = run(&it, seed, commits)?;
        let states = states(&rows, seed, acknowledged.len());
        // Before the store is opened again, the archive has a prefix of the commits.
        let (last, found) = it.restored(it.restore())?;
        assert!(states.contains(&found), "{} rows after commit {last}", found.len());

        // Opening the store archives the rest.
        let store = it.options().open(&it.store)?;
        rows = rows_in(&store)?;
        assert!(states[acknowledged.len()..].contains(&rows));
        wait_for_archive(&store);
        moments.push((last_commit(&store)?, rows.clone()));
        drop(store);
        for at in [0, acknowledged.len() / 2, acknowledged.len() - 1] {
            moments.push((acknowledged[at].clone(), states[at + 1].clone()));
        }
        assert_eq!(bases()?.len(), kind.of(1, 3), "a gap has been closed by a base");
    }
    moments.iter().try_for_each(|(commit, rows)| it.has(commit, rows))
}

fn the_archive_gets_the_commits_that_a_reader_has_recovered(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let acknowledged = run(&it, 5, 100)?;
    let states = states(&Rows::new(), 5, acknowledged.len());
    let reader = Store::options().read_only(true).open(&it.store)?;
    assert!(reader.was_recovered());
    let (last, rows) = (last_commit(&reader)?, rows_in(&reader)?);
    assert!(states[acknowledged.len()..].contains(&rows));
    drop(reader);
    let store = it.options().open(&it.store)?;
    assert!(!store.was_recovered());
    wait_for_archive(&store);
    assert!(rows_in(&store)? == rows);
    drop(store);
    assert!(it.restored(it.restore())? == (last, rows));
    let mut commits = acknowledged.iter().zip(&states[1..]).rev().step_by(11);
    commits.try_for_each(|(commit, rows)| it.has(commit, rows))
}
