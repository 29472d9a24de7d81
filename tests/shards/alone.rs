//! The directory of a shard as a plain store: it can be read, and can be written only if it belongs to no store.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Follower, Options, Result, Store};

use crate::tables::{Kind, by_value::OrderRepository, options, order};

const DURABILITIES: [Durability; 2] = [Durability::Journal, Durability::Relaxed];

/// Creates a store with the shards `s0` and `s1` and a row in each, and closes it.
fn create(path: &Path, durability: Durability) -> Result<()> {
    let store = options(Kind::Ranges, 2).durability(durability).open(path)?;
    let orders = OrderRepository::open(&store)?;
    for tenant in [0, 16] {
        store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
    }
    Ok(())
}

/// Inserts a row of tenant 16 into a plain store.
fn write(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(16, 2)))
}

/// Inserts another row of tenant 16 into a plain store.
fn write_again(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(16, 3)))
}

/// Returns the contents of all files but the lock file, with the contents of the directories below.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        if entry.path().is_dir() {
            let below = self::files(&entry.path()).into_iter();
            files.extend(below.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else if name != "lock.mdb" {
            files.insert(name, fs::read(entry.path()).expect("a file"));
        }
    }
    files
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let to = to.join(name);
        fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        fs::write(to, bytes).expect("a file");
    }
}

/// Checks that the directory is refused with each durability, and that nothing was written.
fn is_refused(shard: &Path, what: &str) {
    for durability in [Durability::Full, Durability::Journal, Durability::Relaxed] {
        is_refused_with(&Store::options().durability(durability), shard, what);
    }
}

/// Checks that the directory is refused with these options, and that nothing was written.
fn is_refused_with(options: &Options, shard: &Path, what: &str) {
    let before = files(shard);
    let opened = options.open(shard);
    let Err(error @ Error::ShardRefused { .. }) = &opened else {
        panic!("{what}: {opened:?}");
    };
    let message = error.to_string();
    assert!(message.contains("sharded store"), "{what}: {message}");
    assert!(files(shard) == before, "{what}: the directory was written");
}

fn is_open_as_shard(shard: &Path) {
    let opened = Store::open(shard);
    assert!(matches!(&opened, Err(Error::AlreadyOpen { .. })), "{opened:?}");
}

fn rows(path: &Path) -> Result<u64> {
    let store = Store::open(path)?;
    let rows = OrderRepository::open(&store)?.all(&store.read()?).count()?;
    assert!(store.unavailable_shards().is_empty() && store.verify()?.is_clean());
    Ok(rows)
}

#[test]
fn a_shard_of_a_store_can_be_read_alone_and_not_written() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, moved) = (dir.path().join("shop"), dir.path().join("moved"));
        create(&path, durability)?;
        is_refused(&path.join("s1"), "a closed store");
        {
            let alone = Store::options().read_only(true).open(path.join("s1"))?;
            let orders = OrderRepository::open(&alone)?;
            assert_eq!(orders.all(&alone.read()?).count()?, 1);
        }
        {
            let store = Store::open(&path)?;
            is_open_as_shard(&path.join("s1"));
            drop(store);
        }
        {
            let _store = Store::options().only(["s0"]).open(&path)?;
            is_refused(&path.join("s1"), "a store that is open without the shard");
        }
        assert_eq!(rows(&path)?, 2);
        // The record of the shard has the earlier directories.
        fs::rename(&path, &moved).expect("the directory");
        is_refused(&moved.join("s1"), "a store in another directory");
        assert_eq!(rows(&moved)?, 2);
        fs::remove_file(moved.join("data.mdb")).expect("the shard map manager");
        is_refused(&moved.join("s1"), "a store without a manager");
    }
    Ok(())
}

#[test]
fn the_directory_of_a_store_opens_all_of_its_shards() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        create(&path, durability)?;
        assert_eq!(rows(&path)?, 2);
        Store::open(&path)?.backup_to(&backup)?;
        // No process has written the copy.
        assert!(!backup.join("writer.lock").exists());
        {
            let reader = || Store::options().read_only(true).open(&backup);
            let readers = [reader()?, reader()?];
            assert_eq!(readers[0].shard("s0")?, readers[1].shard("s0")?);
            let writer = Store::open(&backup);
            assert!(matches!(&writer, Err(Error::AlreadyOpen { .. })), "{writer:?}");
        }
        assert_eq!(rows(&backup)?, 2);
    }
    Ok(())
}

#[test]
fn a_refused_opening_keeps_the_archive_of_a_sharded_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    drop(options(Kind::Ranges, 2).archive(&archive).open(&path)?);
    let before = files(&path);
    let refused = Store::options().durability(Durability::Full).without_archive().open(&path);
    assert!(matches!(refused, Err(Error::NotOffered { .. })), "{refused:?}");
    assert!(files(&path) == before, "the directory was written");
    let opened = Store::open(&path);
    assert!(matches!(&opened, Err(Error::ArchiveNotNamed { .. })), "{opened:?}");
    drop(Store::options().archive(&archive).open(&path)?);
    Ok(())
}

#[test]
fn a_shard_of_a_killed_process_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, left) = (dir.path().join("shop"), dir.path().join("left"));
    create(&path, Durability::Journal)?;
    let store = Store::open(&path)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(16, 2)))?;
    copy(&path, &left);
    is_refused(&left.join("s1"), "a killed process");
    assert_eq!(rows(&left)?, 3);
    Ok(())
}

/// Checks that the directory of a shard is refused, and that it can be read and copied. Then the copy can be written.
fn belongs(shard: &Path, what: &str) -> Result<()> {
    is_refused(shard, what);
    {
        let alone = Store::options().read_only(true).open(shard)?;
        assert_eq!(OrderRepository::open(&alone)?.all(&alone.read()?).count()?, 1, "{what}");
    }
    let copy = shard.with_file_name("copy");
    Store::restore(shard, &copy)?;
    write(&copy)?;
    let alone = Store::open(&copy)?;
    assert_eq!(OrderRepository::open(&alone)?.all(&alone.read()?).count()?, 2, "{what}");
    drop(alone);
    fs::remove_dir_all(copy).expect("the copy");
    Ok(())
}

#[test]
fn a_shard_in_a_copy_of_the_whole_store_is_not_written_alone() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, copied) = (dir.path().join("shop"), dir.path().join("copied"));
        let (backup, restored) = (dir.path().join("backup"), dir.path().join("restored"));
        create(&path, durability)?;
        Store::open(&path)?.backup_to(&backup)?;
        Store::restore(&backup, &restored)?;
        copy(&path, &copied);
        belongs(&backup.join("shard.1"), "a backup")?;
        belongs(&restored.join("shard.1"), "a restored store")?;
        belongs(&copied.join("s1"), "copied files")?;
        // A shard that the original has detached since still belongs to the copies.
        {
            let store = Store::open(&path)?;
            let _orders = OrderRepository::open(&store)?;
            store.detach_shard("s1")?;
        }
        write(&path.join("s1"))?;
        belongs(&backup.join("shard.1"), "a backup before the detachment")?;
        belongs(&restored.join("shard.1"), "a restored store before the detachment")?;
        fs::remove_dir_all(&path).expect("the store");
        belongs(&backup.join("shard.1"), "a backup without the original")?;
        for whole in [backup, restored] {
            assert_eq!(rows(&whole)?, 2);
        }
    }
    Ok(())
}

#[test]
fn a_shard_of_a_follower_is_not_written_alone() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    let (follower, restored) = (dir.path().join("follower"), dir.path().join("restored"));
    {
        let store = options(Kind::Ranges, 2).archive(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        for tenant in [0, 16] {
            store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
        }
        let begun = Instant::now();
        while !store.archive_lag().expect("an archive").has_base {
            assert!(begun.elapsed() < Duration::from_mins(1), "the archive gets no base");
            thread::sleep(Duration::from_millis(5));
        }
    }
    Store::restore_archive(&archive).run(&restored)?;
    belongs(&restored.join("shard.1"), "a store that was restored from an archive")?;
    assert_eq!(rows(&restored)?, 2);
    drop(Follower::open(&follower, &archive)?);
    belongs(&follower.join("shard.1"), "a closed follower")?;
    drop(Follower::open(&follower, &archive)?.promote()?);
    belongs(&follower.join("shard.1"), "a promoted store")?;
    assert_eq!(rows(&follower)?, 2);
    Ok(())
}

#[test]
fn a_shard_that_was_moved_to_another_disk_is_not_written_alone() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, disk) = (dir.path().join("shop"), dir.path().join("disk"));
        create(&path, durability)?;
        fs::rename(path.join("s1"), &disk).expect("the directory");
        belongs(&disk, "a shard that is not relocated yet")?;
        drop(Store::options().relocate("s1", &disk).open(&path)?);
        belongs(&disk, "a relocated shard")?;
        assert_eq!(rows(&path)?, 2);
    }
    Ok(())
}

#[test]
fn a_copy_of_a_shard_in_another_directory_is_written() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        create(&path, durability)?;
        Store::options().read_only(true).open(path.join("s1"))?.backup_to(&backup)?;
        write(&backup)?;
        {
            let _store = Store::open(&path)?;
            let again = Store::open(&backup)?;
            assert_eq!(OrderRepository::open(&again)?.all(&again.read()?).count()?, 2);
        }
        // In the place of the shard, it belongs to the store, which checks its rows.
        fs::remove_dir_all(path.join("s1")).expect("the shard");
        copy(&backup, &path.join("s1"));
        assert_eq!(rows(&path)?, 3);
        is_refused(&path.join("s1"), "a shard that a copy has replaced");
    }
    Ok(())
}

#[test]
fn the_rows_of_a_copy_that_replaces_a_shard_are_checked() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, copied) = (dir.path().join("shop"), dir.path().join("copied"));
        create(&path, durability)?;
        Store::restore(path.join("s1"), &copied)?;
        {
            let store = Store::open(&copied)?;
            let orders = OrderRepository::open(&store)?;
            // Its key is in the range of the other shard.
            store.transaction(|txn| orders.insert(txn, &order(0, 7)))?;
        }
        fs::remove_dir_all(path.join("s1")).expect("the shard");
        copy(&copied, &path.join("s1"));
        let store = Store::open(&path)?;
        let outcome = OrderRepository::open(&store);
        assert!(matches!(&outcome, Err(Error::SchemaMismatch { .. })), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn a_shard_is_restored_from_a_copy_of_its_backup() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    create(&path, Durability::Journal)?;
    Store::open(&path)?.backup_to(&backup)?;
    let (one, copied) = (backup.join("shard.1"), dir.path().join("copied"));
    Store::restore(&one, &copied)?;
    write(&copied)?;
    for (from, expected) in [(&one, 2), (&copied, 3)] {
        fs::remove_dir_all(path.join("s1")).expect("the shard");
        {
            let store = Store::open(&path)?;
            let _orders = OrderRepository::open(&store)?;
            store.restore_shard(&store.shard("s1")?, from)?;
        }
        is_refused(&path.join("s1"), "a restored shard");
        assert_eq!(rows(&path)?, expected);
    }
    Ok(())
}

#[test]
fn a_detached_shard_is_written_wherever_it_is() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        create(&path, durability)?;
        let (shard, earlier) = (path.join("s1"), dir.path().join("earlier"));
        copy(&shard, &earlier);
        let store = Store::open(&path)?;
        let orders = OrderRepository::open(&store)?;
        store.detach_shard("s1")?;
        write(&shard)?;

        // A shard that an older release has detached does not record it, and the manager does.
        let aside = dir.path().join("aside");
        for attaches in [true, false] {
            fs::rename(&shard, &aside).expect("the directory");
            copy(&earlier, &shard);
            write(&shard)?;
            fs::remove_dir_all(&shard).expect("the copy");
            fs::rename(&aside, &shard).expect("the directory");
            if attaches {
                store.attach_shard("s1", "s1")?;
                is_open_as_shard(&shard);
                store.detach_shard("s1")?;
            }
        }
        drop((orders, store));
        // The store is gone, and its shard stays.
        fs::remove_file(path.join("data.mdb")).expect("the shard map manager");
        let alone = Store::open(&shard)?;
        assert_eq!(OrderRepository::open(&alone)?.all(&alone.read()?).count()?, 2);
    }
    Ok(())
}

/// Ends a change of the store as a process that is killed after it has written the shard map manager, before the commit in
/// the shards.
fn end_before_the_commit(path: &Path, change: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
    let before = path.with_extension("before");
    copy(path, &before);
    {
        let store = Store::open(path)?;
        let _orders = OrderRepository::open(&store)?;
        change(&store)?;
    }
    fs::copy(path.join("data.mdb"), before.join("data.mdb")).expect("the shard map manager");
    fs::remove_dir_all(path).expect("the store");
    fs::rename(before, path).expect("the directory");
    Ok(())
}

#[test]
fn a_shard_whose_removal_was_not_committed_is_not_written_alone() -> Result<()> {
    for durability in DURABILITIES {
        for is_detached in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let (path, away) = (dir.path().join("shop"), dir.path().join("away"));
            create(&path, durability)?;
            if !is_detached {
                let store = Store::open(&path)?;
                let orders = OrderRepository::open(&store)?;
                store.transaction(|txn| orders.delete(txn, 16, 1).map(drop))?;
            }
            end_before_the_commit(&path, |store| {
                if is_detached { store.detach_shard("s1") } else { store.remove_shard("s1") }
            })?;
            let shard = path.join("s1");
            is_refused(&shard, "an uncommitted removal");
            // Without the other shard, nothing shows whether the removal was committed.
            fs::rename(path.join("s0"), &away).expect("the directory");
            is_refused(&shard, "an uncommitted removal, without the other shard");
            fs::rename(&away, path.join("s0")).expect("the directory");
            assert_eq!(rows(&path)?, if is_detached { 2 } else { 1 });
            is_refused(&shard, "a shard that the store has again");
        }
    }
    Ok(())
}

#[test]
fn a_shard_whose_attachment_was_not_committed_is_written() -> Result<()> {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        create(&path, durability)?;
        {
            let store = Store::open(&path)?;
            let _orders = OrderRepository::open(&store)?;
            store.detach_shard("s1")?;
        }
        end_before_the_commit(&path, |store| store.attach_shard("s1", "s1").map(drop))?;
        write(&path.join("s1"))?;
        assert_eq!(rows(&path)?, 1);
        write_again(&path.join("s1"))?;
        let store = Store::open(&path)?;
        let orders = OrderRepository::open(&store)?;
        store.attach_shard("s1", "s1")?;
        assert_eq!(orders.all(&store.read()?).count()?, 4);
    }
    Ok(())
}
