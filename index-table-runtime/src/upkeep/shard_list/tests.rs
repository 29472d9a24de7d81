//! The steps of adding and restoring a shard, one by one, and the archive after one of them has failed.

use std::{
    error::Error,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::copy::{COMMITS, new_number};
use crate::{
    ArchiveLag, CommitNumber, RestoreArchive, Store,
    engine::{self, DataFile, Durability, Options, Query, Read as _, files},
    model::{
        KeyRange,
        maintain::{Change, Sink as _},
        schema::{KeyField, Parts, Source, TableSchema},
    },
    placement::shards::Shard,
    store::{engine_to_change, open_added, open_restored},
};

type TestResult = Result<(), Box<dyn Error>>;

/// Waits until the lag has a property.
fn wait_for(store: &Store, is_reached: impl Fn(&ArchiveLag) -> bool) {
    let begun = Instant::now();
    loop {
        let lag = store.archive_lag().expect("an archive");
        if is_reached(&lag) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{lag:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_base(store: &Store) {
    wait_for(store, |lag| lag.has_base && lag.error.is_none());
}

/// Returns the number of bases of a shard.
fn bases_of(archive: &Path, shard: u32) -> std::io::Result<usize> {
    let mut bases = 0;
    for entry in fs::read_dir(archive)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        bases += usize::from(name.starts_with("base.") && name.ends_with(&format!(".{shard}")));
    }
    Ok(bases)
}

fn has_its_own_base(is_opened_again: bool) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (archive, away) = (path("archive"), path("away"));
    let open = || Store::options().shard("a", "a").archive(&archive).open(path("store"));
    let mut store = open()?;
    let added = open_added(engine_to_change(&store)?, "b", "b".as_ref())?;
    wait_for_base(&store);
    drop(added);
    assert_eq!(bases_of(&archive, 1)?, 1);
    if is_opened_again {
        drop(store);
        fs::rename(&archive, &away)?;
        store = open()?;
    } else {
        fs::rename(&archive, &away)?;
    }
    let is_away = |lag: &ArchiveLag| lag.error.is_some();
    wait_for(&store, is_away);
    store.add_shard("b", "b")?;
    // A later round releases the first state of the shard.
    thread::sleep(Duration::from_millis(600));
    fs::rename(&away, &archive)?;
    wait_for_base(&store);
    assert_eq!(bases_of(&archive, 1)?, 2);
    Ok(())
}

#[test]
fn a_shard_has_its_own_base_after_another_was_not_added() -> TestResult {
    has_its_own_base(false)
}

#[test]
fn a_shard_has_its_own_base_if_the_archive_was_not_read_before() -> TestResult {
    has_its_own_base(true)
}

#[test]
fn the_archive_is_not_complete_after_a_restored_shard_is_lost_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let archive = path("archive");
    let options = Store::options().shard("a", "a").shard("b", "b").archive(&archive);
    let store = options.open(path("store"))?;
    store.backup_to(path("backup"))?;
    wait_for_base(&store);
    drop(store);
    let place = path("store").join("b");
    fs::rename(&place, path("lost"))?;
    let store = Store::options().archive(&archive).open(path("store"))?;
    wait_for_base(&store);
    Store::open_backup(&path("backup").join("shard.1"))?.copy_of_member(&place)?;
    {
        let shards = engine_to_change(&store)?;
        let records = shards.manager().and_then(|it| it.read().ok()?).ok_or("no records")?;
        let restored = open_restored(shards, &records, (1, &records.shards[1]))?;
        wait_for_base(&store);
        restored.engines.lmdb().ok_or("no files")?.leave_no_records()?;
    }
    wait_for(&store, |lag| {
        let error = lag.error.as_deref().unwrap_or_default();
        !lag.has_base && error == "shard number 1 is not available, and has no base"
    });
    let bases = bases_of(&archive, 1)?;
    // The lost directory comes back.
    drop(store);
    fs::remove_dir_all(&place)?;
    fs::rename(path("lost"), &place)?;
    let store = Store::options().archive(&archive).open(path("store"))?;
    wait_for_base(&store);
    assert_eq!(bases_of(&archive, 1)?, bases + 1);
    Ok(())
}

#[test]
fn the_store_has_no_shard_that_was_not_added() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = Store::options().shard("a", "a").open(&path)?;
    drop(open_added(engine_to_change(&store)?, "b", "b".as_ref())?);
    store.add_shard("c", "c")?;
    let names = |store: &Store| -> Vec<_> {
        store.shard_ids().iter().map(|shard| shard.name().to_owned()).collect()
    };
    assert_eq!(names(&store), ["a", "c"]);
    drop(store);
    let store = Store::open(&path)?;
    assert_eq!(names(&store), ["a", "c"]);
    // Its directory is still that of the shard with this number.
    let refused = store.add_shard("b", "b");
    assert!(matches!(&refused, Err(crate::Error::ShardRefused { .. })), "{refused:?}");
    fs::remove_dir_all(path.join("b"))?;
    store.add_shard("b", "b")?;
    assert_eq!(names(&store), ["a", "c", "b"]);
    Ok(())
}

#[test]
fn a_restored_shard_gets_a_number_that_it_has_never_had() {
    let micros = Duration::from_micros;
    // The time is later than all numbers.
    assert_eq!(new_number(7, None, micros(1 << 50)), 1 << 50);
    assert_eq!(new_number(7, Some(1 << 49), micros(1 << 50)), 1 << 50);
    // A clock that was set back.
    assert_eq!(new_number(7, None, micros(0)), 7 + COMMITS);
    assert_eq!(new_number(7, Some(1 << 50), micros(1 << 49)), (1 << 50) + COMMITS);
    // A backup from after an earlier restoration, and a manager that was rebuilt since.
    assert_eq!(new_number(1 << 50, None, micros(0)), (1 << 50) + COMMITS);
}

#[test]
fn the_claim_of_an_added_shard_is_removed_before_the_manager_has_it_as_open() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = Store::options().shard("a", "a").open(&path)?;
    let shards = engine_to_change(&store)?;
    let manager = shards.manager().ok_or("no manager")?;
    let exists = |path: &Path| files::exists(path).expect("no error");
    let mut seen = 0;
    for name in ["b", "c", "d", "e", "f"] {
        let place = path.join(name);
        let (file, claim) = (place.join("data.mdb"), place.join("shard.new"));
        let was_claimed = thread::scope(|scope| {
            // Prevents that the manager is written again, after it has been written with the claimed shard.
            let watcher = scope.spawn(|| {
                let begun = Instant::now();
                let is_in_time = || begun.elapsed() < Duration::from_secs(30);
                while !exists(&file) {
                    assert!(is_in_time(), "the shard has no data file");
                    std::hint::spin_loop();
                }
                let _turn = manager.engine().write().expect("a turn");
                let was_claimed = exists(&claim);
                while exists(&claim) {
                    assert!(is_in_time(), "the claim is removed after the manager was written");
                    thread::sleep(Duration::from_millis(1));
                }
                was_claimed
            });
            let added = open_added(shards, name, name.as_ref()).map(drop);
            (added, watcher.join())
        });
        was_claimed.0?;
        seen += u32::from(was_claimed.1.expect("the order"));
    }
    assert!(seen > 0, "the manager was always written before this test could prevent it");
    Ok(())
}

static ROWS: TableSchema = TableSchema::of_records("rows", &[KeyField::new::<u8>("id")]);

/// Writes a row into a shard, in one commit.
fn put(engine: &engine::Engine, id: u8) -> crate::Result<()> {
    let mut write = |mut writer: engine::Writer<'_, '_>| {
        writer.change(Change::PutFact { primary_key: &[id], row: &[id] })
    };
    let written = engine.open_table(&ROWS, Parts::default(), false, &mut write);
    written.map(drop).map_err(|(error, _)| error)
}

/// Returns the ids of the rows in each shard, or those in `lost` for a shard that is not available.
fn rows(store: &Store, lost: &[u8]) -> crate::Result<Vec<Vec<u8>>> {
    let ids = |(_, shard): (_, &Shard)| {
        let Ok(engine) = shard.engine() else { return Ok(lost.to_vec()) };
        let Some(tables) = engine.find_table(&ROWS, Parts::default())? else { return Ok(vec![]) };
        let txn = engine.read()?;
        let reader = txn.reader(&tables).expect("a reader of the same engine");
        let rows = reader.scan(Query::new(Source::Facts, KeyRange::ALL))?;
        rows.map(|row| Ok(row?.primary_key.to_vec()[0])).collect()
    };
    engine_to_change(store)?.shards().map(ids).collect()
}

/// A state of a store: its commit number, a time before the next commit, and the rows in each shard.
struct State {
    commit: CommitNumber,
    time: SystemTime,
    rows: Vec<Vec<u8>>,
}

/// Commits rows with these ids in the available shards, and adds the state after each commit.
fn commit(
    store: &Store,
    ids: std::ops::Range<u8>,
    lost: &[u8],
    states: &mut Vec<State>,
) -> crate::Result<()> {
    let shards = engine_to_change(store)?;
    for id in ids {
        for (number, shard) in shards.shards() {
            let Ok(engine) = shard.engine() else { continue };
            put(engine, id)?;
            shards.count(number);
            let commit = store.read()?.commit_number();
            thread::sleep(Duration::from_millis(2));
            states.push(State { commit, time: SystemTime::now(), rows: rows(store, lost)? });
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Restores an archive, and returns the rows; `None` if it does not have the requested state.
fn restored(restore: RestoreArchive<'_>) -> Result<Option<Vec<Vec<u8>>>, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let to = dir.path().join("restored");
    match restore.run(&to) {
        Err(crate::Error::NotInArchive { .. }) => Ok(None),
        restored => {
            restored?;
            Ok(Some(rows(&Store::options().without_archive().open(&to)?, &[])?))
        }
    }
}

/// What becomes of a shard after it could not be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    TheLostDirectoryComesBack,
    ItIsRestored,
}

fn has_each_state(then: Then) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (archive, place) = (path("archive"), path("store").join("b"));
    let backup = path("backup").join("shard.1");
    let (mut before, mut between, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let options = Store::options().shard("a", "a").shard("b", "b").archive(&archive);
    let store = options.open(path("store"))?;
    commit(&store, 0..3, &[], &mut before)?;
    store.backup_to(path("backup"))?;
    commit(&store, 3..6, &[], &mut before)?;
    wait_for_base(&store);
    drop(store);
    fs::rename(&place, path("lost"))?;
    let open = || Store::options().archive(&archive).open(path("store"));
    let store = open()?;
    wait_for_base(&store);
    let lost = [0, 1, 2, 3, 4, 5];
    commit(&store, 6..8, &lost, &mut before)?;
    Store::open_backup(&backup)?.copy_of_member(&place)?;
    DataFile(&place).raise_number(DataFile(&place).last_number()? + COMMITS)?;
    {
        let shards = engine_to_change(&store)?;
        let records = shards.manager().and_then(|it| it.read().ok()?).ok_or("no records")?;
        let restored = open_restored(shards, &records, (1, &records.shards[1]))?;
        // Indexes are emptied in it.
        put(restored.engine()?, 100)?;
        wait_for_base(&store);
        restored.engines.lmdb().ok_or("no files")?.leave_no_records()?;
    }
    fs::remove_dir_all(&place)?;
    commit(&store, 8..10, &lost, &mut between)?;
    let store = if then == Then::TheLostDirectoryComesBack {
        drop(store);
        fs::rename(path("lost"), &place)?;
        open()?
    } else {
        store.restore_shard(&store.shard("b")?, &backup)?;
        store
    };
    wait_for_base(&store);
    commit(&store, 10..13, &[], &mut after)?;
    wait_for_base(&store);
    wait_for(&store, |lag| lag.commits == 0);
    drop(store);
    for (states, is_complete) in [(&before, true), (&between, false), (&after, true)] {
        for (at, State { commit, time, rows }) in states.iter().enumerate() {
            // The store has this commit, and the rows of the backup, when the shard has been restored.
            let begins = then == Then::ItIsRestored && !is_complete && at + 1 == states.len();
            let restore = || Store::restore_archive(&archive);
            let found =
                [(restore().until_commit(commit.clone()), begins), (restore().until(*time), false)];
            for (found, begins) in found {
                match restored(found)? {
                    None => assert!(!is_complete, "{then:?}: no state of commit {commit}"),
                    Some(found) if begins => assert_eq!(found, [rows[0].clone(), vec![0, 1, 2]]),
                    Some(found) => assert_eq!(&found, rows, "{then:?}, commit {commit}"),
                }
            }
        }
    }
    let expected = &after.last().ok_or("no commit")?.rows;
    assert_eq!(restored(Store::restore_archive(&archive))?.as_ref(), Some(expected));
    Ok(())
}

#[test]
fn the_base_of_a_shard_that_was_not_restored_changes_no_other_state() -> TestResult {
    has_each_state(Then::TheLostDirectoryComesBack)?;
    has_each_state(Then::ItIsRestored)
}

#[test]
fn a_file_with_a_raised_number_has_the_same_state_and_later_numbers() -> TestResult {
    let dir = tempfile::tempdir()?;
    let file = DataFile(dir.path());
    let mut rows = 0;
    // Commits a row, and checks all pages.
    let mut commit = || -> crate::Result<u64> {
        let options = Options::default().durability(Durability::Full);
        let engine = engine::Engine::open(&options, dir.path())?;
        put(&engine, rows)?;
        rows += 1;
        engine.lmdb().expect("files").check(&mut |_, _| Ok(()))?;
        let tables = engine.find_table(&ROWS, Parts::default())?.expect("the table");
        let txn = engine.read()?;
        let reader = txn.reader(&tables).expect("a reader of the same engine");
        let found = reader.count(&Query::new(Source::Facts, KeyRange::ALL))?.found;
        assert_eq!(found, u64::from(rows));
        drop(txn);
        drop(engine);
        file.wait_until_closed();
        file.last_number()
    };
    for _ in 0..5 {
        commit()?;
    }
    for raised in [100, 101, 1 << 40, (1 << 50) + 1, 1, u64::MAX] {
        let before = file.last_number()?;
        file.raise_number(raised)?;
        let after = if raised == u64::MAX { before } else { before.max(raised) };
        assert_eq!(file.last_number()?, after);
        for number in 1..4 {
            assert_eq!(commit()?, after + number);
        }
    }
    Ok(())
}
