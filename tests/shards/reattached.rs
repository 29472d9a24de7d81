//! Shards that are detached and attached again in one process.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
#[index(code, unique, scope = "global")]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    code: u64,
}

pub(crate) fn order(tenant: u32, number: u64) -> Order {
    let (town, code) = (format!("t{}", number % 3), u64::from(tenant) * 1_000_000 + number);
    Order { tenant, number, town, code }
}

fn opened(path: &Path) -> Result<(Store, OrderRepository)> {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("orders", map).open(path)?;
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

/// Inserts two orders of each of 40 tenants.
fn fill(store: &Store, orders: &OrderRepository) -> Result<()> {
    store.transaction(|txn| {
        (0..40).try_for_each(|tenant| {
            orders.insert(txn, &order(tenant, 0))?;
            orders.insert(txn, &order(tenant, 1))
        })
    })
}

fn check(store: &Store, orders: &OrderRepository, expected: u64) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(orders.all(&txn).count()?, expected);
    assert_eq!(orders.by_town(&txn).rows().count() as u64, expected);
    assert_eq!(orders.by_code(&txn).rows().count() as u64, expected);
    drop(txn);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_detached_shard_is_attached_again_in_the_same_process() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    for round in 1..4 {
        let before = store.read()?;
        store.detach_shard("b")?;
        check(&store, &orders, 40 + round - 1)?;
        let refused = orders.get(&store.read()?, 25, 0);
        assert!(matches!(refused, Err(Error::NoShard { .. })), "{refused:?}");
        store.transaction(|txn| orders.insert(txn, &order(7, 100 + round)))?;
        store.attach_shard("b", "b")?;
        assert_eq!(orders.all(&before).count()?, 80 + 2 * (round - 1));
        drop(before);
        check(&store, &orders, 80 + 2 * round - 1)?;
        store.transaction(|txn| {
            orders.update(txn, 8, 0, |row| row.town.push('x'))?;
            orders.insert(txn, &order(27, 100 + round))
        })?;
        check(&store, &orders, 80 + 2 * round)?;
        // A killed process leaves these files.
        let killed = dir.path().join(format!("killed.{round}"));
        copy(&path, &killed).expect("copied");
        let killed = Store::open(&killed)?;
        check(&killed, &OrderRepository::open(&killed)?, 80 + 2 * round)?;
    }
    drop((store, orders));
    let (store, orders) = opened(&path)?;
    check(&store, &orders, 86)
}

#[test]
fn a_shard_without_rows_is_attached_and_gets_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    store.move_range("orders", 20u32.., "a").run()?;
    for round in 0..2 {
        store.detach_shard("b")?;
        let place = format!("renamed.{round}");
        let before = if round == 0 { "b" } else { "renamed.0" };
        fs::rename(path.join(before), path.join(&place)).expect("renamed");
        store.attach_shard("b", &place)?;
        check(&store, &orders, 80)?;
    }
    store.move_range("orders", 20u32.., "b").run()?;
    check(&store, &orders, 80)?;
    assert_eq!(orders.shard_of(&store, 25)?.name(), "b");
    Ok(())
}

/// The directory of a detached shard, which this process has to write.
const DETACHED: &str = "INDEX_TABLE_DETACHED";

#[test]
fn a_detached_shard_that_another_process_has_written_is_attached() -> Result<()> {
    if let Some(path) = std::env::var_os(DETACHED) {
        let plain = Store::options().durability(Durability::Journal).open(path)?;
        let orders = OrderRepository::open(&plain)?;
        return plain.transaction(|txn| orders.insert(txn, &order(27, 200)));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    let before = store.read()?;
    store.detach_shard("b")?;
    let test = "reattached::a_detached_shard_that_another_process_has_written_is_attached";
    let other = Command::new(std::env::current_exe().expect("the test"))
        .args(["--exact", test])
        .env(DETACHED, path.join("b"))
        .output()
        .expect("a process");
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    // The transaction keeps the environment open, which does not belong to the journal of the other process.
    let refused = store.attach_shard("b", "b").expect_err("it was written").to_string();
    assert!(refused.contains("another process has opened its directory"), "{refused}");
    check(&store, &orders, 40)?;
    assert_eq!(orders.all(&before).count()?, 80);
    drop(before);
    store.attach_shard("b", "b")?;
    check(&store, &orders, 81)
}

/// Opens the store with one durability or the other.
fn opened_with(path: &Path, is_relaxed: bool) -> Result<(Store, OrderRepository)> {
    if !is_relaxed {
        return opened(path);
    }
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    let options = Store::options().durability(Durability::Relaxed);
    let store = options.shard("a", "a").shard("b", "b").map("orders", map).open(path)?;
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

/// Returns the number of files in a directory that this process has open.
fn open_files(directory: &Path) -> usize {
    let Ok(files) = fs::read_dir("/proc/self/fd") else { return 0 };
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(directory)).count()
}

#[test]
fn a_detached_shard_is_attached_from_another_directory_repeatedly() -> Result<()> {
    for is_relaxed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().canonicalize().expect("a path").join("shop");
        let (store, orders) = opened_with(&path, is_relaxed)?;
        fill(&store, &orders)?;
        fs::create_dir(path.join("archive")).expect("a directory");
        let places = ["b", "archive/b", "archive/2019"];
        // More often than shards can be added to an open store.
        for round in 0..70_u64 {
            let (from, to) = (places[round as usize % 3], places[(round as usize + 1) % 3]);
            store.detach_shard("b")?;
            assert_eq!(open_files(&path.join(from)), 0);
            assert!(matches!(orders.get(&store.read()?, 25, 0), Err(Error::NoShard { .. })));
            fs::rename(path.join(from), path.join(to)).expect("renamed");
            assert!(matches!(store.attach_shard("b", from), Err(Error::StoreNotFound { .. })));
            store.attach_shard("b", to)?;
            store.transaction(|txn| {
                orders.insert(txn, &order(7, 100 + round))?;
                orders.insert(txn, &order(27, 100 + round))
            })?;
            if round % 10 == 0 {
                check(&store, &orders, 82 + 2 * round)?;
            }
        }
        let killed = dir.path().join("killed");
        copy(&path, &killed).expect("copied");
        drop((store, orders));
        for path in [&path, &killed] {
            let store = Store::open(path)?;
            check(&store, &OrderRepository::open(&store)?, 80 + 140)?;
        }
    }
    Ok(())
}

#[test]
fn a_detached_shard_can_be_opened_as_a_plain_store_before_it_is_attached() -> Result<()> {
    for is_relaxed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let (store, orders) = opened_with(&path, is_relaxed)?;
        fill(&store, &orders)?;
        for round in 0..4_u64 {
            store.detach_shard("b")?;
            let place = if round % 2 == 0 { "b" } else { "archive" };
            let durability = if round < 2 { Durability::Full } else { Durability::Journal };
            let plain = Store::options().durability(durability).open(path.join(place))?;
            let own = OrderRepository::open(&plain)?;
            assert_eq!(own.all(&plain.read()?).count()?, 40 + round);
            plain.transaction(|txn| own.insert(txn, &order(27, 200 + round)))?;
            assert!(matches!(store.attach_shard("b", place), Err(Error::AlreadyOpen { .. })));
            drop((own, plain));
            let next = if round % 2 == 0 { "archive" } else { "b" };
            fs::rename(path.join(place), path.join(next)).expect("renamed");
            store.attach_shard("b", next)?;
            check(&store, &orders, 81 + round)?;
        }
    }
    Ok(())
}

#[test]
fn a_detached_shard_in_use_is_attached_from_another_directory_later() -> Result<()> {
    for is_relaxed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let (store, orders) = opened_with(&path, is_relaxed)?;
        fill(&store, &orders)?;
        let before = store.read()?;
        let mut open = orders.by_town(&before).rows();
        assert!(open.next().is_some());
        store.detach_shard("b")?;
        // The transaction still reads the shard, whose directory has another name now.
        fs::rename(path.join("b"), path.join("archive")).expect("renamed");
        let refused = reason(store.attach_shard("b", "archive"));
        assert!(refused.contains("transactions that began before it was detached"), "{refused}");
        assert!(matches!(store.attach_shard("b", "b"), Err(Error::Io { .. })));
        let plain = Store::open(path.join("archive")).expect_err("in use").to_string();
        assert!(plain.contains("transactions that began before it was detached"), "{plain}");
        check(&store, &orders, 40)?;
        assert_eq!(open.count(), 79);
        assert_eq!(orders.all(&before).count()?, 80);
        drop(before);
        store.attach_shard("b", "archive")?;
        check(&store, &orders, 80)?;
        store.transaction(|txn| orders.insert(txn, &order(27, 100)))?;
        check(&store, &orders, 81)?;
    }
    Ok(())
}

#[test]
fn a_removed_shard_can_be_deleted_and_its_directory_used_again() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().canonicalize().expect("a path").join("shop");
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    for round in 0..3 {
        store.move_range("orders", 20u32.., "a").run()?;
        store.remove_shard("b")?;
        assert_eq!(open_files(&path.join("b")), 0);
        fs::remove_dir_all(path.join("b")).expect("removed");
        store.add_shard("b", "b")?;
        store.move_range("orders", 20u32.., "b").run()?;
        check(&store, &orders, 80 + round)?;
        store.transaction(|txn| orders.insert(txn, &order(27, 100 + round)))?;
    }
    drop((store, orders));
    let store = Store::open(&path)?;
    check(&store, &OrderRepository::open(&store)?, 83)
}

#[test]
fn readers_and_writers_continue_while_a_shard_is_detached_renamed_and_attached() -> Result<()> {
    for is_relaxed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let (store, orders) = opened_with(&path, is_relaxed)?;
        fill(&store, &orders)?;
        let is_over = AtomicBool::new(false);
        let acknowledged = thread::scope(|scope| -> Result<Vec<(u32, u64)>> {
            let (store, orders, is_over) = (&store, &orders, &is_over);
            let writers: Vec<_> = [7_u32, 27]
                .map(|tenant| {
                    scope.spawn(move || -> Result<Vec<(u32, u64)>> {
                        let mut acknowledged = Vec::new();
                        for number in 1000.. {
                            if is_over.load(SeqCst) {
                                break;
                            }
                            match store
                                .transaction(|txn| orders.insert(txn, &order(tenant, number)))
                            {
                                Ok(()) => acknowledged.push((tenant, number)),
                                Err(Error::NoShard { .. }) => {}
                                Err(error) => return Err(error),
                            }
                        }
                        Ok(acknowledged)
                    })
                })
                .into();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || -> Result<()> {
                        while !is_over.load(SeqCst) {
                            let txn = store.read()?;
                            let rows = orders.all(&txn).count()?;
                            assert_eq!(orders.by_town(&txn).rows().count() as u64, rows);
                            match orders.get(&txn, 25, 0) {
                                Ok(Some(_)) => assert!(rows >= 80),
                                Err(Error::NoShard { .. }) => {}
                                other => panic!("{other:?}"),
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let mut moved = Ok(());
            for round in 0..20 {
                let (from, to) = if round % 2 == 0 { ("b", "archive") } else { ("archive", "b") };
                moved = moved.and_then(|()| store.detach_shard("b"));
                if moved.is_err() {
                    break;
                }
                fs::rename(path.join(from), path.join(to)).expect("renamed");
                let began = Instant::now();
                // A reader may still have a snapshot of the shard.
                moved = loop {
                    match store.attach_shard("b", to) {
                        Err(Error::ShardRefused { .. })
                            if began.elapsed() < Duration::from_mins(1) =>
                        {
                            thread::yield_now();
                        }
                        attached => break attached.map(drop),
                    }
                };
            }
            is_over.store(true, SeqCst);
            let mut acknowledged = Vec::new();
            for writer in writers {
                acknowledged.extend(writer.join().expect("no panic")?);
            }
            for reader in readers {
                reader.join().expect("no panic")?;
            }
            moved?;
            Ok(acknowledged)
        })?;
        check(&store, &orders, 80 + acknowledged.len() as u64)?;
        let txn = store.read()?;
        for (tenant, number) in acknowledged {
            assert!(orders.get(&txn, tenant, number)?.is_some(), "{tenant} {number}");
        }
    }
    Ok(())
}

#[test]
fn an_archive_has_the_commits_before_and_after_a_shard_was_detached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    {
        let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
        let options = Store::options().shard("a", "a").shard("b", "b").map("orders", map);
        let store = options.archive(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        fill(&store, &orders)?;
        store.detach_shard("b")?;
        store.transaction(|txn| orders.insert(txn, &order(7, 100)))?;
        store.attach_shard("b", "b")?;
        store.transaction(|txn| {
            orders.insert(txn, &order(8, 100))?;
            orders.insert(txn, &order(27, 100))
        })?;
        check(&store, &orders, 83)?;
        // The archive continues after a gap, with new bases of both shards.
        let begun = Instant::now();
        while store.archive_lag().is_none_or(|lag| !lag.has_base) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", store.archive_lag());
            thread::sleep(Duration::from_millis(10));
        }
    }
    let restored = dir.path().join("restored");
    Store::restore_archive(&archive).run(&restored)?;
    let store = Store::open(&restored)?;
    check(&store, &OrderRepository::open(&store)?, 83)
}

/// Keeps an analysis of all rows.
fn keep(store: &Store, orders: &OrderRepository) -> Result<()> {
    let analysis = orders.analyze(&store.read()?)?;
    store.transaction(|txn| orders.keep_analysis(txn, &analysis))
}

fn kept_rows(store: &Store, orders: &OrderRepository) -> Result<Option<u64>> {
    let kept = orders.kept_analysis(&store.read()?)?;
    Ok(kept.map(|kept| kept.analysis.rows))
}

#[test]
fn the_last_kept_analysis_stays_when_the_first_shard_comes_back() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let (store, orders) = opened(&path)?;
    fill(&store, &orders)?;
    keep(&store, &orders)?;
    store.backup_shard(&store.shard_ids()[0], &backup)?;
    store.detach_shard("a")?;
    keep(&store, &orders)?;
    store.attach_shard("a", "a")?;
    assert_eq!(kept_rows(&store, &orders)?, Some(40));

    // The shard was a plain store.
    store.detach_shard("a")?;
    drop((orders, store));
    let alone = Store::open(path.join("a"))?;
    let orders = OrderRepository::open(&alone)?;
    alone.transaction(|txn| orders.insert(txn, &order(1, 2)))?;
    let analysis = orders.analyze(&alone.read()?)?;
    alone.transaction(|txn| orders.keep_analysis(txn, &analysis))?;
    drop((orders, alone));
    let store = Store::open(&path)?;
    let orders = OrderRepository::open(&store)?;
    store.attach_shard("a", "a")?;
    assert_eq!(kept_rows(&store, &orders)?, Some(40));

    keep(&store, &orders)?;
    drop((orders, store));
    fs::remove_dir_all(path.join("a")).expect("removed");
    let store = Store::open(&path)?;
    let orders = OrderRepository::open(&store)?;
    let (shard, _) = store.unavailable_shards().remove(0);
    store.restore_shard(&shard, &backup)?;
    assert_eq!(kept_rows(&store, &orders)?, Some(81));
    Ok(())
}

#[test]
fn a_grown_store_keeps_its_analysis() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(1, 2)))?;
    let analysis = orders.analyze(&store.read()?)?;
    store.transaction(|txn| orders.keep_analysis(txn, &analysis))?;
    drop((orders, store));
    let store = Store::options().add_shard("b", "b").open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    assert_eq!(kept_rows(&store, &orders)?, Some(1));
    Ok(())
}
