//! A process that is killed at any step of detaching or removing a shard.
#![cfg(unix)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::copy;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = part)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[index(email, unique, scope = "global")]
#[index(name, scope = "global")]
#[aggregate(name)]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

/// The rows of each part. Part 1 is in shard `b`, until the shard is removed.
const IDS: u32 = 30;

/// The number of states in which a process is killed.
const IMAGES: usize = 12;

fn user(part: u32, id: u32) -> User {
    User { part, id, email: format!("{part}.{id}"), name: (id % 4).to_string() }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..1u32).to("b", 1u32..2).to("c", 2u32..);
    let names = ["a", "b", "c"];
    let options = names.into_iter().fold(Store::options(), |it, name| it.shard(name, name));
    options.map("users", map).map("events", ShardMap::hashed(names))
}

struct Tables {
    users: UserRepository,
    _events: EventRepository,
}

fn opened(path: &Path) -> Result<(Store, Tables)> {
    let store = Store::open(path)?;
    let (users, events) = (UserRepository::open(&store)?, EventRepository::open(&store)?);
    Ok((store, Tables { users, _events: events }))
}

/// Creates a store. A shard that is removed has no rows, but entries of the other shards.
fn create(path: &Path, is_removed: bool) -> Result<()> {
    drop(options().open(path)?);
    let (store, tables) = opened(path)?;
    store.transaction(|txn| {
        [0, 1, 2].into_iter().try_for_each(|part| {
            (0..IDS).try_for_each(|id| tables.users.insert(txn, &user(part, id)))
        })
    })?;
    if is_removed {
        store.move_range("users", 1u32..2, "a").run()?;
    }
    Ok(())
}

fn leave(store: &Store, is_removed: bool) -> Result<()> {
    if is_removed { store.remove_shard("b") } else { store.detach_shard("b") }
}

/// Checks the rows and all indexes. Returns whether the store has shard `b`.
fn check(store: &Store, tables: &Tables, is_removed: bool) -> Result<bool> {
    assert!(store.unavailable_shards().is_empty());
    let has_b = store.shard("b").is_ok();
    let parts: &[u32] = if has_b || is_removed { &[0, 1, 2] } else { &[0, 2] };
    let txn = store.read()?;
    let rows = tables.users.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    let expected = parts.iter().flat_map(|part| (0..IDS).map(|id| user(*part, id)));
    assert!(rows.iter().cloned().eq(expected), "{} rows, {has_b}", rows.len());
    for row in &rows {
        assert_eq!(tables.users.get_by_email(&txn, &row.email)?.as_ref(), Some(row));
    }
    assert_eq!(tables.users.by_email(&txn).count()?, rows.len() as u64);
    for name in ["0", "1", "2", "3"] {
        let count = rows.iter().filter(|row| row.name == name).count() as u64;
        assert_eq!(tables.users.find_by_name(&txn, name).count()?, count);
        assert_eq!(tables.users.aggregate_by_name(&txn, name)?.count, count);
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(has_b)
}

/// Checks a state in which a process was killed, then completes the step, and takes it back. Returns whether the store still had
/// the shard.
fn check_image(path: &Path, is_removed: bool) -> Result<bool> {
    let is_plain = Store::open(path.join("b")).is_ok();
    let (store, tables) = opened(path)?;
    let had_b = check(&store, &tables, is_removed)?;
    assert!(!(is_plain && had_b), "a shard of the store was open for writing alone");
    drop((store, tables));
    let (store, tables) = opened(path)?;
    assert_eq!(check(&store, &tables, is_removed)?, had_b);
    if had_b {
        leave(&store, is_removed)?;
        assert!(!check(&store, &tables, is_removed)?);
    }
    store.attach_shard("b", "b")?;
    assert!(check(&store, &tables, is_removed)?);
    let again = store.transaction(|txn| tables.users.insert(txn, &User { id: 99, ..user(1, 1) }));
    assert!(matches!(again, Err(Error::UniqueViolation { .. })), "{again:?}");
    Ok(had_b)
}

/// Stops a process. Returns false if it has ended.
#[expect(unsafe_code, reason = "the standard library can't stop a process")]
fn stop(process: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: the process is a child that nothing else waits for.
    let waited = unsafe {
        libc::kill(process, libc::SIGSTOP);
        libc::waitpid(process, &raw mut status, libc::WUNTRACED)
    };
    assert_eq!(waited, process);
    if !libc::WIFSTOPPED(status) {
        assert_eq!(status, 0, "the process has failed");
    }
    libc::WIFSTOPPED(status)
}

#[expect(unsafe_code, reason = "the standard library can't stop a process")]
fn go_on(process: libc::pid_t) {
    // SAFETY: the process is a stopped child.
    unsafe {
        libc::kill(process, libc::SIGCONT);
    }
}

const PATH: &str = "INDEX_TABLE_LEAVING";
const IS_REMOVED: &str = "INDEX_TABLE_LEAVING_IS_REMOVED";

/// Copies the store while a process removes or detaches a shard, and checks the copies.
#[expect(clippy::zombie_processes, reason = "`stop` waits for the process")]
fn is_killed(name: &str, is_removed: bool) -> Result<()> {
    if let Some(path) = std::env::var_os(PATH) {
        let path = Path::new(&path);
        let (store, _tables) = opened(path)?;
        fs::write(path.with_extension("ready"), "").expect("a file");
        return leave(&store, std::env::var_os(IS_REMOVED).is_some());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    create(&path, is_removed)?;
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", name]).env(PATH, &path).stdout(Stdio::null());
    if is_removed {
        command.env(IS_REMOVED, "1");
    }
    let child = command.spawn().expect("a process");
    let process = libc::pid_t::try_from(child.id()).expect("a process");
    let begun = Instant::now();
    while !path.with_extension("ready").exists() {
        assert!(begun.elapsed() < Duration::from_mins(1), "the store was not opened");
        thread::sleep(Duration::from_micros(200));
    }
    let mut images = 0;
    while stop(process) {
        copy(&path, &dir.path().join(images.to_string()));
        images += 1;
        go_on(process);
        thread::sleep(Duration::from_micros(500));
    }
    copy(&path, &dir.path().join(images.to_string()));
    let mut seen = [0, 0];
    for at in 0..=IMAGES.min(images) {
        let image = dir.path().join((images * at / IMAGES.min(images).max(1)).to_string());
        let had_b = check_image(&image, is_removed);
        assert!(had_b.is_ok(), "{} of {images}: {had_b:?}", image.display());
        seen[usize::from(had_b?)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    Ok(())
}

#[test]
fn a_process_that_is_killed_while_it_detaches_a_shard_leaves_a_whole_store() -> Result<()> {
    let name =
        "leaving_killed::a_process_that_is_killed_while_it_detaches_a_shard_leaves_a_whole_store";
    is_killed(name, false)
}

#[test]
fn a_process_that_is_killed_while_it_removes_a_shard_leaves_a_whole_store() -> Result<()> {
    let name =
        "leaving_killed::a_process_that_is_killed_while_it_removes_a_shard_leaves_a_whole_store";
    is_killed(name, true)
}
