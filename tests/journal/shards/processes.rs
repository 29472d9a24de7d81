//! Several processes with a sharded store: one writes, others read, and writers are killed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, Store};

use super::{
    NoteRepository, SHARDS, TestResult, expect, expect_of, killed, many_checkpoints, options, write,
};

pub(crate) const CHILD: &str = "INDEX_TABLE_SHARD_JOURNAL_CHILD";
pub(crate) const READER: &str = "INDEX_TABLE_SHARD_JOURNAL_READER";
const KILLED: &str = "INDEX_TABLE_SHARD_JOURNAL_KILLED";

pub(crate) fn say(word: &str) -> std::io::Result<()> {
    println!("\n{word}");
    std::io::stdout().flush()
}

/// Writes some steps in the child process, and waits until it is killed.
#[test]
fn a_child_process_writes_and_waits() -> TestResult {
    let Ok(path) = std::env::var(CHILD) else { return Ok(()) };
    let store = options().open(path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..10 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
        }
    }
    say("ready")?;
    thread::sleep(Duration::from_mins(5));
    Ok(())
}

/// Reads the store in a child process until it is killed.
#[test]
fn a_child_process_reads_and_waits() -> TestResult {
    let Ok(path) = std::env::var(READER) else { return Ok(()) };
    let store = options().read_only(true).open(path)?;
    say("ready")?;
    thread::sleep(Duration::from_mins(5));
    drop(store);
    Ok(())
}

/// Writes to each shard from its own thread, and prints the number of each committed step.
#[test]
fn a_child_process_writes_until_it_is_killed() -> TestResult {
    let Ok(path) = std::env::var(KILLED) else { return Ok(()) };
    let store = many_checkpoints().open(path)?;
    let notes = NoteRepository::open(&store)?;
    let first_steps = (0..SHARDS).map(|tenant| steps_of(&store, &notes, tenant));
    let first_steps = first_steps.collect::<Result<Vec<u32>, Error>>()?;
    say("ready")?;
    thread::scope(|scope| {
        for (tenant, first_steps) in (0..).zip(first_steps) {
            let (store, notes) = (&store, &notes);
            scope.spawn(move || {
                for step in first_steps.. {
                    write(store, notes, tenant, step).expect("a commit");
                    say(&format!("{tenant} {step}")).expect("output");
                }
            });
        }
    });
    Ok(())
}

/// Returns the number of steps of a tenant.
fn steps_of(store: &Store, notes: &NoteRepository, tenant: u8) -> Result<u32, Error> {
    let txn = store.read()?;
    let codes = notes.find_by_tenant(&txn, tenant).rows();
    let codes = codes.map(|row| row.map(|row| (row.code & 0xF_FFFF) as u32));
    Ok(codes.collect::<Result<Vec<_>, _>>()?.into_iter().max().map_or(0, |last| last + 1))
}

pub(crate) fn start(
    test: &str,
    variable: &str,
    path: &Path,
) -> Result<(Child, impl Iterator<Item = String> + use<>), Box<dyn std::error::Error>> {
    ready(spawn(&format!("shards::processes::{test}"), variable, path)?)
}

pub(crate) fn spawn(test: &str, variable: &str, path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(variable, path)
        .stdout(Stdio::piped())
        .spawn()
}

/// Waits until the process has opened the store.
pub(crate) fn ready(
    mut child: Child,
) -> Result<(Child, impl Iterator<Item = String> + use<>), Box<dyn std::error::Error>> {
    let out = child.stdout.take().ok_or("no output")?;
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "ready"), "the child has ended");
    Ok((child, lines))
}

pub(crate) fn end(mut child: Child) -> std::io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

#[test]
fn a_second_process_reads_and_does_not_write() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (child, _out) = start("a_child_process_writes_and_waits", CHILD, dir.path())?;
    let outcome = options().open(dir.path());
    let names_it = |reason: &str| reason.contains(&format!("process {},", child.id()));
    let is_refused = matches!(&outcome, Err(Error::AlreadyOpen { reason, .. }) if names_it(reason));
    assert!(is_refused, "{outcome:?}");
    {
        let store = options().read_only(true).open(dir.path())?;
        expect(&store, &[10; 3])?;
        assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
        let shard = store.shard("s1")?;
        assert!(matches!(store.transaction_on(&shard, |_| Ok(())), Err(Error::ReadOnly { .. })));
    }
    // Opened as a plain store, a shard can be read but not written.
    {
        let outcome = Store::open(dir.path().join("s1"));
        assert!(matches!(outcome, Err(Error::ShardRefused { .. })), "{outcome:?}");
        let store = Store::options().read_only(true).open(dir.path().join("s1"))?;
        let notes = NoteRepository::open(&store)?;
        expect_of(&notes, &store.read()?, 1, 10)?;
    }
    end(child)?;
    // A shard alone does not have its journal.
    let outcome = Store::options().read_only(true).open(dir.path().join("s1"));
    assert!(matches!(outcome, Err(Error::RecoveryNeeded { .. })), "{outcome:?}");
    // No process has the store open, and its data files are incomplete.
    for was_recovered in [true, false] {
        let store = options().read_only(true).open(dir.path())?;
        assert_eq!(store.was_recovered(), was_recovered);
        expect(&store, &[10; 3])?;
        assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
    }
    expect(&options().open(dir.path())?, &[10; 3])
}

#[test]
fn several_readers_recover_a_store_at_once() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (child, _out) = start("a_child_process_writes_and_waits", CHILD, dir.path())?;
    end(child)?;
    let reader = || spawn("shards::processes::a_child_process_reads_and_waits", READER, dir.path());
    let readers = [reader()?, reader()?, reader()?, reader()?];
    // A writer waits for the recovery.
    expect(&options().open(dir.path())?, &[10; 3])?;
    for reader in readers {
        let (reader, _lines) = ready(reader)?;
        end(reader)?;
    }
    expect(&options().open(dir.path())?, &[10; 3])
}

#[test]
fn a_writer_is_replaced_while_another_process_reads() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (first, _out) = start("a_child_process_writes_and_waits", CHILD, &path)?;
    let (reader, _lines) = start("a_child_process_reads_and_waits", READER, &path)?;
    end(first)?;
    // No segment is reused, since the reader has the shards open.
    let store = options().open(&path)?;
    expect(&store, &[10; 3])?;
    let notes = NoteRepository::open(&store)?;
    for step in 10..30 {
        write(&store, &notes, 1, step)?;
    }
    let left = killed(&path, &dir.path().join("left"))?;
    expect(&options().open(&left)?, &[10, 30, 10])?;
    drop((store, notes));
    end(reader)?;
    expect(&options().open(&path)?, &[10, 30, 10])
}

#[test]
fn no_commit_is_lost_when_a_process_is_killed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut done = [0_u32; SHARDS as usize];
    for round in 0..12_u64 {
        let (child, mut lines) =
            start("a_child_process_writes_until_it_is_killed", KILLED, dir.path())?;
        let count = (round * 37 % 90 + 1) as usize;
        let mut note = |line: String| {
            let Some((tenant, step)) = line.split_once(' ') else { return };
            let (Ok(tenant), Ok(step)) = (tenant.parse::<usize>(), step.parse::<u32>()) else {
                return;
            };
            if let Some(done) = done.get_mut(tenant) {
                *done = step + 1;
            }
        };
        lines.by_ref().filter(|line| line.contains(' ')).take(count).for_each(&mut note);
        end(child)?;
        lines.for_each(&mut note);
        let store: Store = options().open(dir.path())?;
        let notes = NoteRepository::open(&store)?;
        let mut steps = Vec::new();
        for (tenant, done) in (0..).zip(done) {
            let found = steps_of(&store, &notes, tenant)?;
            // One step more than the printed ones may have been committed.
            assert!(
                found == done || found == done + 1,
                "tenant {tenant}: {found}, {done} were acknowledged"
            );
            steps.push(found);
        }
        expect(&store, &steps)?;
        done.copy_from_slice(&steps);
    }
    Ok(())
}
