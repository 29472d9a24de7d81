//! Corrections of the system's clock.
//!
//! The clock of this process is the clock of the system and an offset, which the tests change: `clock_gettime` of this program
//! replaces the function of the C library, which the standard library calls.
#![cfg(target_os = "linux")]

use std::{
    process::Command,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use index_table::{ChangeWorker, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

/// The seconds by which the clock is ahead.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// The seconds for which the machine has slept.
static SLEPT: AtomicI64 = AtomicI64::new(0);

/// Tests that change the clock run one after another.
static TURN: Mutex<()> = Mutex::new(());

#[expect(unsafe_code, reason = "it replaces the function of the C library")]
// SAFETY: it has the signature and the result of the function that it replaces.
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    // SAFETY: the caller passes a place for the time, and the kernel writes it.
    let outcome = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if outcome == 0 && clock == libc::CLOCK_REALTIME {
        // SAFETY: the kernel has written the time.
        unsafe { (*time).tv_sec += OFFSET.load(SeqCst) };
    }
    if outcome == 0 && [libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME].contains(&clock) {
        // SAFETY: the same.
        unsafe { (*time).tv_sec += SLEPT.load(SeqCst) };
    }
    outcome as libc::c_int
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Moves the clock.
fn correct(seconds: i64) {
    OFFSET.fetch_add(seconds, SeqCst);
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", changes(keep = "2d"), expires = ends)]
struct Note {
    #[primary_key]
    id: u32,
    ends: Option<SystemTime>,
}

fn put(store: &Store, notes: &NoteRepository, ids: std::ops::Range<u32>) -> Result<()> {
    store.transaction(|txn| ids.clone().try_for_each(|id| notes.put(txn, &Note { id, ends: None })))
}

fn changes(store: &Store, notes: &NoteRepository) -> Result<u64> {
    notes.changes(store, "counter")?.lag().map(|lag| lag.changes)
}

#[test]
fn the_clock_of_the_test_can_be_corrected() {
    let _turn = turn();
    let (before, instant) = (SystemTime::now(), Instant::now());
    correct(DAY);
    assert!(before.elapsed().is_ok_and(|it| it.as_secs() >= 86_400));
    assert!(instant.elapsed().as_secs() < 3600);
    correct(-DAY);
}

#[test]
fn a_correction_forward_removes_no_recent_changes() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    assert_eq!(changes(&store, &notes)?, 0);
    put(&store, &notes, 0..100)?;
    correct(8 * DAY);
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 0);
    // The writers remove old changes, too.
    put(&store, &notes, 100..300)?;
    assert_eq!(changes(&store, &notes)?, 300);
    correct(8 * DAY);
    put(&store, &notes, 300..500)?;
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 0);
    assert_eq!(changes(&store, &notes)?, 500);

    // Back and forth.
    correct(-9 * DAY);
    put(&store, &notes, 500..700)?;
    correct(9 * DAY);
    put(&store, &notes, 700..900)?;
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 0);
    assert_eq!(changes(&store, &notes)?, 900);
    Ok(())
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "brief", changes(keep = "1s"))]
struct Brief {
    #[primary_key]
    id: u32,
}

#[test]
fn changes_of_a_clock_that_was_ahead_are_removed_after_their_time() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let rows = BriefRepository::open(&store)?;
    let write = |ids: std::ops::Range<u32>| {
        store.transaction(|txn| ids.clone().try_for_each(|id| rows.insert(txn, &Brief { id })))
    };
    correct(100 * DAY);
    write(0..50)?;
    correct(-100 * DAY);
    write(50..60)?;
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(rows.remove_old_changes(&store, u64::MAX)?, 60);
    Ok(())
}

/// The directory and the first row for [`write_in_another_process`], and the offset of its clock.
const VARIABLES: [&str; 3] = ["CLOCKS_DIRECTORY", "CLOCKS_FIRST", "CLOCKS_OFFSET"];

#[test]
#[ignore = "another test runs it in a process of its own"]
fn write_in_another_process() -> Result<()> {
    let [Ok(directory), Ok(first), Ok(offset)] = VARIABLES.map(std::env::var) else {
        return Ok(());
    };
    let (first, offset): (u32, i64) =
        (first.parse().expect("a number"), offset.parse().expect("a number"));
    OFFSET.store(offset, SeqCst);
    let store = Store::open(directory)?;
    let notes = NoteRepository::open(&store)?;
    put(&store, &notes, first..first + 200)?;
    notes.remove_old_changes(&store, u64::MAX).map(drop)
}

#[test]
fn a_correction_between_two_processes_removes_no_recent_changes() -> Result<()> {
    for offsets in [[0, 8 * DAY], [-1_000 * DAY, 0]] {
        let directory = tempfile::tempdir().expect("a directory");
        for (first, offset) in [0, 200].into_iter().zip(offsets) {
            let program = std::env::current_exe().expect("this program");
            let mut process = Command::new(program);
            process.args(["--exact", "write_in_another_process", "--ignored"]);
            let values = [
                directory.path().to_string_lossy().into_owned(),
                first.to_string(),
                offset.to_string(),
            ];
            let output = process.envs(VARIABLES.into_iter().zip(values)).output();
            let output = output.expect("a process");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        let store = Store::open(directory.path())?;
        let notes = NoteRepository::open(&store)?;
        assert_eq!(changes(&store, &notes)?, 400, "{offsets:?}");
    }
    Ok(())
}

fn worker(store: &Store, notes: &NoteRepository, lease: Duration) -> Result<ChangeWorker<Note>> {
    Ok(notes.changes(store, "mailer")?.share(lease))
}

#[test]
fn a_lease_ends_after_its_length_even_if_the_clock_goes_back() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    put(&store, &notes, 0..100)?;
    let lease = Duration::from_secs(2);
    assert_eq!(worker(&store, &notes, lease)?.next_batch(1000)?.len(), 100);
    correct(-HOUR);
    let begun = Instant::now();
    let mut alone = notes.changes(&store, "mailer")?;
    let batch = loop {
        match alone.next_batch(1000) {
            Err(Error::ConsumerShared { .. }) if begun.elapsed() < Duration::from_mins(1) => {
                thread::sleep(Duration::from_millis(50));
            }
            batch => break batch?,
        }
    };
    assert!(begun.elapsed() >= lease);
    assert_eq!(batch.len(), 100);
    batch.commit(&store)?;
    correct(HOUR);
    Ok(())
}

#[test]
fn a_lease_does_not_end_because_the_clock_goes_forward() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    put(&store, &notes, 0..100)?;
    let lease = Duration::from_mins(10);
    let (mut one, mut two) = (worker(&store, &notes, lease)?, worker(&store, &notes, lease)?);
    let batch = one.next_batch(1000)?;
    assert!(two.next_batch(1000)?.is_empty());
    correct(HOUR);
    assert!(two.next_batch(1000)?.is_empty(), "the other worker has its lease");
    batch.commit(&store)?;
    correct(-HOUR);
    Ok(())
}

#[test]
fn the_expiry_worker_does_not_follow_a_correction_at_once() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    let insert = |id, ends: SystemTime| {
        store.transaction(|txn| notes.insert(txn, &Note { id, ends: Some(ends) }))
    };
    let wait_until_deleted = |id| -> Result<()> {
        let begun = Instant::now();
        while notes.get(&store.read()?, id)?.is_some() {
            assert!(begun.elapsed() < Duration::from_mins(1), "row {id} is still there");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    // The corrections of other tests don't matter to these times.
    let past = SystemTime::UNIX_EPOCH;
    insert(1, past)?;
    insert(2, SystemTime::now() + Duration::from_hours(1))?;
    let worker = store.start_expiry_worker()?;
    wait_until_deleted(1)?;
    correct(DAY);
    // The worker has made a round since the correction.
    insert(3, past)?;
    wait_until_deleted(3)?;
    insert(4, past)?;
    wait_until_deleted(4)?;
    assert!(notes.get(&store.read()?, 2)?.is_some(), "it was deleted by a wrong clock");
    correct(-DAY);
    drop(worker);
    assert!(notes.get(&store.read()?, 2)?.is_some());
    Ok(())
}

#[test]
fn the_expiry_worker_follows_the_clock_after_the_machine_has_slept() -> Result<()> {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    let insert = |id, ends: SystemTime| {
        store.transaction(|txn| notes.insert(txn, &Note { id, ends: Some(ends) }))
    };
    // Corrections in other tests are forgotten, because a jump backwards is followed at once.
    correct(-100 * DAY);
    insert(1, SystemTime::now() + Duration::from_hours(1))?;
    insert(2, SystemTime::now() + Duration::from_hours(5))?;
    let _worker = store.start_expiry_worker()?;
    SLEPT.fetch_add(2 * HOUR, SeqCst);
    let begun = Instant::now();
    while notes.get(&store.read()?, 1)?.is_some() {
        assert!(begun.elapsed() < Duration::from_mins(1), "the row is still there");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(notes.get(&store.read()?, 2)?.is_some());
    correct(100 * DAY);
    Ok(())
}
