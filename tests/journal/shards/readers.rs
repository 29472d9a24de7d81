//! Readers beside the process that writes a sharded store, and after it was killed.

use std::{
    fs::{self, File},
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Options, Store};

use super::{
    NoteRepository, SHARDS, TestResult, create, expect, many_checkpoints, note, options,
    processes::{CHILD, READER, end, ready, say, spawn, start},
    with, write,
};

const TOGETHER: &str = "INDEX_TABLE_SHARD_JOURNAL_TOGETHER";
const WITHOUT: &str = "INDEX_TABLE_SHARD_JOURNAL_WITHOUT";

/// Writes a row of each tenant in each transaction, until it is killed.
#[test]
fn a_child_process_writes_all_shards() -> TestResult {
    let Ok(path) = std::env::var(TOGETHER) else { return Ok(()) };
    let store = many_checkpoints().open(path)?;
    let notes = NoteRepository::open(&store)?;
    let first = last(&store, &notes)?[0];
    for version in first + 1.. {
        store.transaction(|txn| {
            (0..SHARDS).try_for_each(|tenant| notes.put(txn, &note(tenant, 0, version)))
        })?;
        if version == first + 1 {
            say("ready")?;
        }
    }
    Ok(())
}

/// Returns the version of the row of each tenant in one snapshot.
fn last(store: &Store, notes: &NoteRepository) -> Result<[u32; SHARDS as usize], Error> {
    let txn = store.read()?;
    let mut last = [0; SHARDS as usize];
    for (tenant, last) in (0..).zip(&mut last) {
        let row = notes.get(&txn, tenant, 0)?;
        *last = row.map_or(0, |row| (row.code & 0xF_FFFF) as u32);
    }
    Ok(last)
}

#[test]
fn a_reader_in_another_process_sees_whole_transactions() -> TestResult {
    // Syncs would make commits rare.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    create(dir.path())?;
    let mut seen = 0;
    for _ in 0..3 {
        let child =
            spawn("shards::readers::a_child_process_writes_all_shards", TOGETHER, dir.path())?;
        let (child, _lines) = ready(child)?;
        let store = options().read_only(true).open(dir.path())?;
        let notes = NoteRepository::open(&store)?;
        let (begun, mut before) = (Instant::now(), [0; SHARDS as usize]);
        while begun.elapsed() < Duration::from_millis(400) {
            let last = last(&store, &notes)?;
            assert!(last.iter().all(|version| *version == last[0]), "a part of one: {last:?}");
            assert!(last[0] >= before[0], "{last:?} after {before:?}");
            seen += u64::from(last != before);
            before = last;
        }
        end(child)?;
        match last(&store, &notes) {
            Ok(last) => assert!(last.iter().all(|version| *version == last[0]), "{last:?}"),
            // It was killed while a transaction became visible.
            Err(error) => assert!(matches!(error, Error::ReopenNeeded { .. }), "{error}"),
        }
    }
    assert!(seen > 3, "no transaction became visible");
    Ok(())
}

/// Leaves the store as if the writer had been killed after a commit became visible in the first of its shards.
fn split(path: &Path) -> TestResult {
    let path = path.join("writer.lock");
    let mut numbers = fs::read(&path)?;
    assert_eq!(numbers.len(), 16);
    assert_eq!(numbers[..8], numbers[8..]);
    numbers[0] = numbers[0].wrapping_add(1);
    // The file is not replaced, because a reader has it open.
    std::io::Write::write_all(&mut File::options().write(true).open(&path)?, &numbers)?;
    Ok(())
}

#[test]
fn a_reader_waits_for_the_next_writer_after_a_kill_within_a_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (child, _lines) = start("a_child_process_writes_and_waits", CHILD, dir.path())?;
    let store = options().read_only(true).open(dir.path())?;
    expect(&store, &[10; 3])?;
    end(child)?;
    expect(&store, &[10; 3])?;
    split(dir.path())?;
    let outcome = store.read().map(drop);
    let Err(error @ Error::ReopenNeeded { .. }) = outcome else {
        return Err(format!("{outcome:?}").into());
    };
    assert!(error.to_string().contains("for writing"), "{error}");
    assert!(store.backup_to(dir.path().join("backup")).is_err());
    // The next writer completes the commit, and so the reader continues.
    let (child, _lines) = start("a_child_process_writes_and_waits", CHILD, dir.path())?;
    expect(&store, &[10; 3])?;
    end(child).map_err(Into::into).and_then(|()| expect(&store, &[10; 3]))
}

#[test]
fn a_commit_without_a_journal_to_complete_it_is_read() -> TestResult {
    let dir = tempfile::tempdir()?;
    create(dir.path())?;
    split(dir.path())?;
    let store = options().read_only(true).open(dir.path())?;
    expect(&store, &[0; 3])?;
    Ok(())
}

fn without(durability: Durability, mixed: bool) -> Options {
    if !mixed {
        return with(Store::options().durability(durability));
    }
    let own = Store::options().durability(durability);
    let options = super::journal().shard("s0", "s0");
    let options = options.shard_with("s1", "s1", own).shard_with("s2", "s2", super::journal());
    let map = index_table::ShardMap::list().to("s0", [u8::MAX, 0]).to("s1", [1_u8]);
    let map = map.to("s2", [2_u8]);
    options.map("notes", map)
}

/// Writes a store with shards without a journal, and waits until it is killed.
#[test]
fn a_child_process_writes_without_a_journal() -> TestResult {
    let Ok(given) = std::env::var(WITHOUT) else { return Ok(()) };
    let (kind, path) = given.split_once(':').ok_or("no path")?;
    let (durability, mixed) = match kind {
        "relaxed" => (Durability::Relaxed, false),
        "none" => (Durability::None, false),
        _ => (Durability::Relaxed, true),
    };
    let store = without(durability, mixed).open(path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..5 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
        }
    }
    say("ready")?;
    thread::sleep(Duration::from_mins(5));
    Ok(())
}

fn writer(kind: &str, path: &Path) -> Result<Child, Box<dyn std::error::Error>> {
    let given = format!("{kind}:");
    let given = given + &path.display().to_string();
    let child = spawn(
        "shards::readers::a_child_process_writes_without_a_journal",
        WITHOUT,
        Path::new(&given),
    )?;
    ready(child).map(|(child, _)| child)
}

#[test]
fn shards_without_a_journal_are_opened_beside_readers_after_a_kill() -> TestResult {
    for kind in ["relaxed", "none", "mixed"] {
        let dir = tempfile::tempdir()?;
        let child = writer(kind, dir.path())?;
        let (reader, _lines) = start("a_child_process_reads_and_waits", READER, dir.path())?;
        end(child)?;
        let to_read = Store::options().read_only(true).open(dir.path())?;
        expect(&to_read, &[5; 3])?;
        drop(to_read);
        let store = Store::open(dir.path())?;
        expect(&store, &[5; 3])?;
        let notes = NoteRepository::open(&store)?;
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, 5)?;
        }
        expect(&store, &[6; 3])?;
        drop((store, notes));
        end(reader)?;
        expect(&Store::options().read_only(true).open(dir.path())?, &[6; 3])?;
    }
    Ok(())
}

/// Runs as another user, after the process that wrote the store was killed.
#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_may_not_recover_shards_names_the_command_that_does() -> TestResult {
    use std::os::unix::fs::PermissionsExt as _;

    const NAME: &str =
        "shards::readers::a_reader_that_may_not_recover_shards_names_the_command_that_does";
    const OTHER: &str = "INDEX_TABLE_SHARD_JOURNAL_OTHER_USER";

    if let Ok(path) = std::env::var(OTHER) {
        let begun = Instant::now();
        let result = options().read_only(true).open(&path);
        let command = format!("`index-table recover {path}`");
        let is_named = matches!(&result, Err(error @ Error::RecoveryNeeded { .. })
            if error.to_string().contains(&command));
        assert!(is_named, "{result:?}");
        assert!(begun.elapsed() < Duration::from_secs(9), "no process recovers the store");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (path, left) = (dir.path().join("open"), dir.path().canonicalize()?.join("left"));
    create(&path)?;
    let store = options().open(&path)?;
    write(&store, &NoteRepository::open(&store)?, 1, 0)?;
    super::killed(&path, &left)?;
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    for directory in ["", "s0", "s1", "s2"] {
        let directory = left.join(directory);
        fs::write(directory.join("lock.mdb"), "")?;
        allow(&directory, 0o755)?;
        for entry in fs::read_dir(&directory)? {
            let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if entry.is_file() {
                allow(&entry, if name == "lock.mdb" { 0o666 } else { 0o444 })?;
            }
        }
    }
    allow(dir.path(), 0o755)?;
    match crate::nobody::as_nobody(NAME).env(OTHER, &left).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        Err(error) => {
            let reason = format!("no process of another user starts: {error}");
            return crate::privileges::not_privileged(&reason);
        }
    }
    let recovered = options().read_only(true).open(&left)?;
    assert!(recovered.was_recovered());
    let notes = NoteRepository::open(&recovered)?;
    super::expect_of(&notes, &recovered.read()?, 1, 1)
}
