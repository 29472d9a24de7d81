//! Followers of an archive.

mod changed_shards;
mod hidden;
mod processes;
mod shards;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Follower, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
#[index(topic)]
#[index(title, strategy = "full", name = "whole")]
struct Note {
    #[primary_key]
    id: u32,
    topic: u8,
    title: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "later")]
struct Later {
    #[primary_key]
    id: u32,
}

type Rows = BTreeMap<u32, Note>;

pub(crate) struct Dirs {
    _dir: tempfile::TempDir,
    pub(crate) store: PathBuf,
    pub(crate) archive: PathBuf,
    pub(crate) standby: PathBuf,
}

pub(crate) fn dirs() -> std::io::Result<Dirs> {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (store, archive, standby) = (path("store"), path("archive"), path("standby"));
    Ok(Dirs { _dir: dir, store, archive, standby })
}

/// Returns options with an archive, and a journal that makes a checkpoint every few commits.
pub(crate) fn options(archive: &Path) -> Options {
    let options = Store::options().durability(Durability::Journal).archive(archive);
    options.checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
}

fn write(
    store: &Store,
    notes: &NoteRepository,
    rows: &mut Rows,
    steps: std::ops::Range<u32>,
) -> Result<()> {
    for step in steps {
        store.transaction(|txn| {
            for at in 0..4 {
                let id = (step * 7 + at * 3) % 100;
                let title = format!("{step}").repeat(1 + at as usize * 40);
                let note = Note { id, topic: (step % 5) as u8, title };
                notes.put(txn, &note)?;
                rows.insert(id, note);
            }
            rows.remove(&(step % 100));
            notes.delete(txn, step % 100).map(drop)
        })?;
    }
    Ok(())
}

/// Writes a store with an archive.
fn original(dirs: &Dirs, rows: &mut Rows, steps: std::ops::Range<u32>) -> Result<()> {
    original_in(&dirs.store, &dirs.archive, rows, steps)
}

fn original_in(
    path: &Path,
    archive: &Path,
    rows: &mut Rows,
    steps: std::ops::Range<u32>,
) -> Result<()> {
    let store = options(archive).open(path)?;
    let notes = NoteRepository::open(&store)?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    write(&store, &notes, rows, steps)
}

fn rows_of(store: &Store, notes: &NoteRepository) -> std::result::Result<Rows, Error> {
    let txn = store.read()?;
    let report = notes.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    notes.all(&txn).rows().map(|row| row.map(|row| (row.id, row))).collect()
}

pub(crate) fn wait(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(40), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a follower has the last commit of its original.
fn wait_for(follower: &Follower, original: &Store) -> Result<()> {
    let last = original.read()?.commit_number();
    wait(|| follower.store().read().is_ok_and(|txn| txn.commit_number() == last));
    assert_eq!(follower.lag()?.commits, 0);
    Ok(())
}

#[test]
fn a_follower_has_each_commit_of_the_original() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let notes = NoteRepository::open(&store)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = NoteRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    for round in 1..6 {
        // A snapshot does not change.
        let before = follower.store().read()?;
        let count = copies.all(&before).count()?;
        write(&store, &notes, &mut rows, round * 20..round * 20 + 20)?;
        wait_for(&follower, &store)?;
        assert!(rows_of(follower.store(), &copies)? == rows);
        assert_eq!(copies.all(&before).rows().count() as u64, count);
    }
    // A table that the original creates.
    let later = LaterRepository::open(&store)?;
    store.transaction(|txn| later.insert(txn, &Later { id: 1 }))?;
    wait_for(&follower, &store)?;
    let later = LaterRepository::open(follower.store())?;
    assert_eq!(later.all(&follower.store().read()?).count()?, 1);
    let lag = follower.lag()?;
    assert_eq!((lag.commits, lag.bytes, lag.time, lag.error), (0, 0, Duration::ZERO, None));
    Ok(())
}

#[test]
fn a_follower_is_read_only_until_it_is_promoted() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let notes = NoteRepository::open(follower.store())?;
    assert!(matches!(follower.store().write(), Err(Error::ReadOnly { .. })));
    let outcome = write(follower.store(), &notes, &mut rows.clone(), 20..21);
    assert!(matches!(outcome, Err(Error::ReadOnly { .. })), "{outcome:?}");
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");

    let store = follower.promote()?;
    write(&store, &notes, &mut rows, 20..40)?;
    assert!(rows_of(&store, &notes)? == rows);
    drop((store, notes));
    let store = Store::options().create(false).open(&dirs.standby)?;
    store.check()?;
    assert!(rows_of(&store, &NoteRepository::open(&store)?)? == rows);
    drop(store);
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    Ok(())
}

#[test]
fn the_original_is_not_written_after_a_promotion() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let first = options(&dirs.archive).open(&dirs.store)?;
    let notes = NoteRepository::open(&first)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let second = follower.promote()?;
    let later = NoteRepository::open(&second)?;
    write(&second, &later, &mut rows, 20..30)?;
    drop((second, later));

    let mut outcome = Ok(());
    wait(|| {
        outcome = write(&first, &notes, &mut Rows::new(), 30..31);
        outcome.is_err()
    });
    assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
    drop((first, notes));
    // From the first write, the writes also fail after a restart with the same archive.
    let first = options(&dirs.archive).open(&dirs.store)?;
    let outcome = first.write().map(drop);
    assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
    drop(first);

    // The promoted store continues the archive.
    let second = options(&dirs.archive).open(&dirs.standby)?;
    let notes = NoteRepository::open(&second)?;
    write(&second, &notes, &mut rows, 30..50)?;
    wait(|| second.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    drop((second, notes));
    let to = dirs.store.with_file_name("restored");
    Store::restore_archive(&dirs.archive).run(&to)?;
    let store = Store::open(&to)?;
    assert!(rows_of(&store, &NoteRepository::open(&store)?)? == rows);
    Ok(())
}

#[test]
fn a_closed_follower_continues_and_a_crashed_follower_is_copied_again() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    original(&dirs, &mut rows, 20..60)?;
    let created = fs::metadata(dirs.standby.join("data.mdb"))?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let notes = NoteRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &notes)? == rows);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(dirs.standby.join("data.mdb"))?.ino(), created.ino());
    }

    // The files that a crash would leave.
    let crashed = dirs.standby.with_file_name("crashed");
    fs::create_dir(&crashed)?;
    for name in ["data.mdb", "follower"] {
        fs::copy(dirs.standby.join(name), crashed.join(name))?;
    }
    drop((follower, notes));
    let outcome = Store::open(&crashed);
    assert!(matches!(outcome, Err(Error::DamagedFile { .. })), "{outcome:?}");
    let outcome = Store::options().read_only(true).open(&crashed);
    assert!(matches!(outcome, Err(Error::RecoveryNeeded { .. })), "{outcome:?}");
    let follower = Follower::open(&crashed, &dirs.archive)?;
    let notes = NoteRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &notes)? == rows);
    Ok(())
}

#[test]
fn a_follower_detects_a_gap_and_is_copied_again() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    {
        let store = Store::options().without_archive().open(&dirs.store)?;
        write(&store, &NoteRepository::open(&store)?, &mut rows, 20..30)?;
    }
    // The follower detects the gap before the first segment after it is complete.
    let store = options(&dirs.archive).open(&dirs.store)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, &mut rows, 30..40)?;
    wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some_and(|error| error.contains("gap"))));
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    let lag = follower.lag()?;
    assert!(lag.commits >= 10 && lag.bytes > 0 && lag.time > Duration::ZERO, "{lag:?}");
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    assert!(!dirs.archive.join("promoted").exists());
    write(&store, &notes, &mut rows, 40..41)?;
    drop((store, notes));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let notes = NoteRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &notes)? == rows);
    Ok(())
}

#[test]
fn a_promoted_follower_does_not_continue_an_interrupted_generation_of_the_original() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    {
        let store = Store::options().without_archive().open(&dirs.store)?;
        write(&store, &NoteRepository::open(&store)?, &mut rows, 20..30)?;
    }
    // The archive has a new base after the gap, but no segment that follows the base.
    let first = options(&dirs.archive).open(&dirs.store)?;
    wait(|| first.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = NoteRepository::open(follower.store())?;
    let second = follower.promote()?;
    write(&second, &copies, &mut rows, 30..40)?;
    assert!(rows_of(&second, &copies)? == rows);
    wait(|| first.archive_lag().is_some_and(|lag| lag.error.is_some()));
    drop((second, copies, first));
    // The promoted store needs a base of its own: the original's base lacks the last rows.
    original_in(&dirs.standby, &dirs.archive, &mut rows, 40..50)?;
    let to = dirs.store.with_file_name("restored");
    Store::restore_archive(&dirs.archive).run(&to)?;
    let store = Store::open(&to)?;
    assert!(rows_of(&store, &NoteRepository::open(&store)?)? == rows);
    Ok(())
}

#[test]
fn a_store_is_never_replaced_by_a_follower() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let standby = |name: &str| dirs.standby.with_file_name(name);
    let (synced, journalled) = (standby("synced"), standby("journalled"));
    let opened = [(None, &dirs.store), (Some(Durability::Full), &synced)];
    for (durability, path) in opened.into_iter().chain([(Some(Durability::Journal), &journalled)]) {
        if let Some(durability) = durability {
            // A follower that was written as a store.
            drop(Follower::open(path, &dirs.archive)?);
            let store = Store::options().durability(durability).open(path)?;
            write(&store, &NoteRepository::open(&store)?, &mut rows.clone(), 20..21)?;
        }
        let outcome = Follower::open(path, &dirs.archive);
        let is_refused = matches!(&outcome, Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists);
        assert!(is_refused, "{outcome:?}");
        assert!(Store::options().read_only(true).open(path).is_ok());
    }
    // After a gap, the archive would be copied again.
    let store = Store::options().without_archive().open(&dirs.store)?;
    write(&store, &NoteRepository::open(&store)?, &mut rows, 30..31)?;
    drop(store);
    original(&dirs, &mut rows, 31..32)?;
    for path in [&synced, &journalled] {
        let outcome = Follower::open(path, &dirs.archive);
        let is_refused = matches!(&outcome, Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists);
        assert!(is_refused, "{outcome:?}");
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "badges")]
#[index(code, unique)]
struct Badge {
    #[primary_key]
    id: u32,
    code: u32,
}

/// A follower applies the records of each commit in the order of the original.
#[test]
fn rows_of_the_original_exchange_unique_keys() -> TestResult {
    let dirs = dirs()?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let badges = BadgeRepository::open(&store)?;
    store
        .transaction(|txn| (0..4).try_for_each(|id| badges.insert(txn, &Badge { id, code: id })))?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = BadgeRepository::open(follower.store())?;
    let mut codes = [0, 1, 2, 3];
    for round in 0..12 {
        let (one, other) = (round % 4, (round * 3 + 1) % 4);
        codes.swap(one, other);
        store.transaction(|txn| {
            let id = |at: usize| u32::try_from(at).unwrap_or_default();
            badges.put(txn, &Badge { id: id(one), code: 100 })?;
            badges.put(txn, &Badge { id: id(other), code: codes[other] })?;
            badges.put(txn, &Badge { id: id(one), code: codes[one] })
        })?;
        wait_for(&follower, &store)?;
        let txn = follower.store().read()?;
        for (id, code) in (0..).zip(codes) {
            assert_eq!(copies.get_by_code(&txn, code)?, Some(Badge { id, code }));
        }
        assert!(copies.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn threads_that_open_a_new_follower_at_the_same_time_leave_one_copy() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    for round in 0..20 {
        let standby = dirs.standby.with_file_name(format!("standby.{round}"));
        let open = || Follower::open(&standby, &dirs.archive);
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for outcome in &opened {
            assert!(matches!(outcome, Ok(_) | Err(Error::AlreadyOpen { .. })), "{outcome:?}");
        }
        assert!(opened.iter().filter(|outcome| outcome.is_ok()).count() <= 1);
        drop(opened);
        let follower = open()?;
        assert_eq!(rows_of(follower.store(), &NoteRepository::open(follower.store())?)?, rows);
    }
    Ok(())
}
