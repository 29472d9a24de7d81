//! Backups of all shards at one instant, and restoring them.

use std::{
    cell::Cell,
    fs,
    io::ErrorKind,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use index_table::{Durability, Error, Result, Store};

use crate::tables::{Kind, by_value::OrderRepository, options, order};

fn keys(store: &Store) -> Result<Vec<(u8, u16)>> {
    let orders = OrderRepository::open(store)?;
    orders.all(&store.read()?).keys().collect()
}

fn files(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("entries");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_stopped_backup_of_shards_leaves_no_files() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let store = options(Kind::List, 4).open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    for number in 1..400 {
        store.transaction(|txn| orders.insert(txn, &order((number % 40) as u8, number)))?;
    }
    for is_compact in [false, true] {
        let mut stops = 0;
        loop {
            let calls = Cell::new(0);
            let copy = store.backup(&backup).checked();
            let copy = copy.stop_when(|| calls.replace(calls.get() + 1) == stops);
            let copy = if is_compact { copy.compact() } else { copy };
            let Err(error) = copy.run() else { break };
            assert!(
                matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::Interrupted),
                "{error:?}"
            );
            assert_eq!(files(dir.path()), ["shop"]);
            stops += 1;
        }
        // In each shard.
        assert!(stops >= 4, "{stops}");
        assert_eq!(files(&backup), ["data.mdb", "shard.0", "shard.1", "shard.2", "shard.3"]);
        for shard in ["shard.0", "shard.3"] {
            assert_eq!(files(&backup.join(shard)), ["data.mdb"]);
        }
        assert_eq!(keys(&Store::open(&backup)?)?, keys(&store)?);
        fs::remove_dir_all(&backup).expect("removed");
    }
    Ok(())
}

#[test]
fn a_backup_can_be_opened_as_a_sharded_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup, restored) =
        (dir.path().join("shop"), dir.path().join("backup"), dir.path().join("restored"));
    let store = options(Kind::List, 4).open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(0, 1)))?;
    for number in 2..200 {
        store.transaction(|txn| orders.insert(txn, &order((number % 40) as u8, number)))?;
    }
    let expected = keys(&store)?;
    let (mut last, mut total) = (0, None);
    store
        .backup(&backup)
        .progress(|at| {
            assert!(at.done >= last);
            (last, total) = (at.done, at.total);
        })
        .run()?;
    assert!(last > 0 && total.is_some_and(|total| last <= total), "{last} of {total:?}");
    assert_eq!(files(&backup), ["data.mdb", "shard.0", "shard.1", "shard.2", "shard.3"]);
    assert_eq!(files(&backup.join("shard.3")), ["data.mdb"]);

    // Later rows are not in the backup.
    store.transaction(|txn| orders.insert(txn, &order(1, 999)))?;
    let data = ["data.mdb", "shard.0/data.mdb", "shard.3/data.mdb"].map(|file| backup.join(file));
    let bytes = || data.clone().map(|file| fs::read(file).expect("a data file"));
    let before = bytes();
    Store::restore(&backup, &restored)?;
    assert!(bytes() == before, "the backup has changed");
    drop((store, orders));
    fs::remove_dir_all(&shop).expect("removed");
    for path in [&backup, &restored] {
        let store = Store::open(path)?;
        assert_eq!(keys(&store)?, expected);
        let orders = OrderRepository::open(&store)?;
        assert!(orders.verify(&store.read()?).run()?.is_clean());
        store.transaction(|txn| orders.insert(txn, &order(2, 1000)))?;
        assert!(keys(&store)?.contains(&(2, 1000)));
        for shard in ["shard.0", "shard.1", "shard.2", "shard.3"] {
            assert!(path.join(shard).join("data.mdb").exists());
        }
    }
    Ok(())
}

#[test]
fn a_compact_backup_has_the_same_rows_in_less_space() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, compact) = (dir.path().join("whole"), dir.path().join("compact"));
    let store = options(Kind::Ranges, 2).open(dir.path().join("shop"))?;
    let orders = OrderRepository::open(&store)?;
    for part in 0..4 {
        store.transaction(|txn| {
            (0..2000).try_for_each(|number| orders.insert(txn, &order(0, part * 2000 + number)))
        })?;
    }
    store.transaction(|txn| {
        (0..7900).try_for_each(|number| orders.delete(txn, 0, number).map(drop))
    })?;
    store.backup_to(&whole)?;
    store.compact_to(&compact)?;
    assert_eq!(files(&compact), ["data.mdb", "shard.0", "shard.1"]);
    let size = |path: &Path| fs::metadata(path.join("shard.0/data.mdb")).map_or(0, |it| it.len());
    assert!(size(&compact) * 2 < size(&whole), "{} {}", size(&compact), size(&whole));
    let expected = keys(&store)?;
    assert_eq!(expected.len(), 100);
    assert_eq!(keys(&Store::open(&whole)?)?, expected);
    assert_eq!(keys(&Store::open(&compact)?)?, expected);
    Ok(())
}

/// Each writer inserts a row into one shard and then a row into the other. A backup may have the first row without the
/// second row, but not the second row without the first.
#[test]
fn a_backup_is_of_one_instant() -> Result<()> {
    for durability in [Durability::Journal, Durability::Relaxed] {
        let dir = tempfile::tempdir().expect("a directory");
        let store =
            options(Kind::Ranges, 2).durability(durability).open(dir.path().join("shop"))?;
        let orders = OrderRepository::open(&store)?;
        let stop = AtomicBool::new(false);
        let write = || {
            for number in 0..u16::MAX {
                if stop.load(Relaxed) {
                    break;
                }
                store.transaction(|txn| orders.insert(txn, &order(0, number)))?;
                store.transaction(|txn| orders.insert(txn, &order(16, number)))?;
            }
            Ok::<_, Error>(())
        };
        let copy = || {
            for at in 0..8 {
                store.backup_to(dir.path().join(format!("backup {at}")))?;
            }
            Ok::<_, Error>(())
        };
        thread::scope(|scope| {
            let writer = scope.spawn(write);
            let outcome = copy();
            stop.store(true, Relaxed);
            writer.join().expect("no panic")?;
            outcome
        })?;
        let mut last = 0;
        for at in 0..8 {
            let backup = Store::open(dir.path().join(format!("backup {at}")))?;
            let orders = OrderRepository::open(&backup)?;
            let txn = backup.read()?;
            assert!(orders.verify(&txn).run()?.is_clean());
            let of = |tenant| orders.find_by_tenant(&txn, tenant).count();
            let (first, second) = (of(0)?, of(16)?);
            assert!(first == second || first == second + 1, "{first} and {second}");
            assert!(first >= last);
            last = first;
        }
        assert!(last > 0);
    }
    Ok(())
}

#[test]
fn one_shard_is_restored_from_a_backup_of_all() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let store = options(Kind::Ranges, 2).open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        for tenant in [0, 16] {
            store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
        }
        store.backup_to(&backup)?;
        store.transaction(|txn| orders.insert(txn, &order(0, 2)))?;
    }
    fs::remove_dir_all(shop.join("s1")).expect("removed");
    let store = Store::open(&shop)?;
    let lost = store.shard("s1")?;
    assert!(matches!(
        store.restore_shard(&lost, backup.join("shard.0")),
        Err(Error::ShardRefused { .. })
    ));
    store.restore_shard(&lost, backup.join("shard.1"))?;
    assert_eq!(keys(&store)?, [(0, 1), (0, 2), (16, 1)]);
    Ok(())
}

#[test]
fn a_backup_that_fails_leaves_no_files() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let store = options(Kind::Ranges, 2).open(&shop)?;
    OrderRepository::open(&store)?;
    fs::create_dir(&backup).expect("a directory");
    let refused = store.backup_to(&backup);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    let txn = store.write_on(&store.shard("s0")?)?;
    let refused = store.backup_to(dir.path().join("other"));
    assert!(matches!(refused, Err(Error::WriteInProgress)), "{refused:?}");
    drop(txn);
    drop(store);
    fs::remove_dir_all(shop.join("s1")).expect("removed");
    let store = Store::open(&shop)?;
    let refused = store.backup_to(dir.path().join("other"));
    assert!(matches!(refused, Err(Error::ShardUnavailable { .. })), "{refused:?}");
    assert_eq!(files(dir.path()), ["backup", "shop"]);
    assert!(files(&backup).is_empty());
    Ok(())
}

#[test]
fn a_compact_copy_of_a_damaged_shard_is_an_error_that_names_the_shard() -> Result<()> {
    const PAGE: usize = 4096;
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, copy) = (dir.path().join("shop"), dir.path().join("copy"));
    let store = options(Kind::List, 2).open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| {
        (0..2000).try_for_each(|number| orders.insert(txn, &order((number % 40) as u8, number)))
    })?;
    let shard = shop.join(&store.shards()?[1].name);
    drop((store, orders));
    let file = shard.join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    // A leaf with many nodes, which opening the shard does not read.
    let lower = |page: &[u8]| u16::from_le_bytes([page[12], page[13]]);
    let leaves = bytes.chunks_mut(PAGE).skip(2);
    let mut leaves = leaves.filter(|page| page[10] & 0x02 != 0 && lower(page) > 16 + 2 * 20);
    leaves.nth(4).expect("a leaf")[16..].fill(0);
    fs::write(&file, bytes).expect("the file");

    let store = Store::open(&shop)?;
    let refused = store.compact_to(&copy).map(drop);
    let Err(Error::DamagedFile { path, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(path, shard);
    assert_eq!(files(dir.path()), ["shop"]);
    Ok(())
}
