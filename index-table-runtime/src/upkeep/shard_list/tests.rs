//! The archive of a store after a shard has joined the journal, and a later step has failed.

use std::{
    error::Error,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    ArchiveLag, Store,
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
