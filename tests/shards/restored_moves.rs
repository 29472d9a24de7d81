//! A lost shard is restored from a backup from before a move of its keys.

use std::{fs, panic, path::Path};

use index_table::{Error, IndexTable, Result, ShardMap, Store, report::MoveState};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[indexes((tenant, code, unique), (code, scope = "global", name = "all_codes"))]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    code: u32,
}

fn order(tenant: u32, number: u32) -> Order {
    Order { tenant, number, code: number * 7 }
}

/// Creates a store in which each of the tenants 1, 11 and 12 has ten orders, the last two in shard `b`.
fn create(shop: &Path) -> Result<(Store, OrderRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("orders", map);
    let store = options.open(shop)?;
    let orders = OrderRepository::open(&store)?;
    for tenant in [1, 11, 12] {
        store.transaction(|txn| {
            (0..10).try_for_each(|number| orders.insert(txn, &order(tenant, number)))
        })?;
    }
    Ok((store, orders))
}

fn keys(store: &Store) -> Result<Vec<(u32, u32)>> {
    let orders = OrderRepository::open(store)?;
    let keys = orders.all(&store.read()?).keys().collect();
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    keys
}

fn of(tenants: &[u32]) -> Vec<(u32, u32)> {
    tenants.iter().flat_map(|tenant| (0..10).map(move |number| (*tenant, number))).collect()
}

#[test]
fn a_backup_from_before_a_move_is_refused_until_its_moved_rows_are_deleted() -> Result<()> {
    for is_open in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        {
            let (store, _orders) = create(&shop)?;
            store.backup_shard(&store.shard("b")?, &backup)?;
            store.move_range("orders", 12u32.., "a").run()?;
        }
        fs::remove_dir_all(shop.join("b")).expect("removed");
        {
            let store = Store::open(&shop)?;
            let _orders = is_open.then(|| OrderRepository::open(&store)).transpose()?;
            let lost = store.shard("b")?;
            for _ in 0..2 {
                let refused = reason(store.restore_shard(&lost, &backup));
                let expected = "the row with primary key (12, 0) of table `orders` is in the backup, and belongs to shard \
                                `a` now";
                assert!(refused.contains(expected), "{refused}");
                assert_eq!(store.unavailable_shards().len(), 1);
                assert!(!shop.join("b").exists());
            }
            // The way out that the error names.
            let copied = dir.path().join("copied");
            Store::restore(&backup, &copied)?;
            {
                let plain = Store::open(&copied)?;
                let orders = OrderRepository::open(&plain)?;
                plain.transaction(|txn| {
                    (0..10).try_for_each(|number| orders.delete(txn, 12, number).map(drop))
                })?;
            }
            store.restore_shard(&lost, &copied)?;
            assert_eq!(keys(&store)?, of(&[1, 11, 12]));
        }
        assert_eq!(keys(&Store::open(&shop)?)?, of(&[1, 11, 12]));
    }
    Ok(())
}

#[test]
fn a_backup_lacks_the_rows_that_were_moved_to_its_shard_later() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let (store, _orders) = create(&shop)?;
        store.backup_shard(&store.shard("b")?, &backup)?;
        store.move_range("orders", ..10u32, "b").run()?;
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    let store = Store::open(&shop)?;
    store.restore_shard(&store.shard("b")?, &backup)?;
    assert_eq!(keys(&store)?, of(&[11, 12]));
    // The keys belong to the shard.
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(1, 3)))?;
    assert_eq!(orders.shard_of(&store, 1)?.name(), "b");
    Ok(())
}

#[test]
fn a_backup_with_a_part_of_the_rows_of_an_ended_move_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let (store, _orders) = create(&shop)?;
        let moving = store.move_range("orders", ..10u32, "b");
        let moving = moving.progress(|_| panic::resume_unwind(Box::new(())));
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| moving.run())).is_err());
        let [begun] = &*store.moves()? else { panic!("a move") };
        store.backup_to(&backup)?;
        store.resume_move(begun.id).run()?;
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    let store = Store::open(&shop)?;
    let _orders = OrderRepository::open(&store)?;
    let refused = reason(store.restore_shard(&store.shard("b")?, backup.join("shard.1")));
    assert!(refused.contains("the move has ended since"), "{refused}");
    assert!(!shop.join("b").exists());
    Ok(())
}

#[test]
fn the_directory_of_the_lost_shard_must_not_exist() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let (store, _orders) = create(&shop)?;
        store.backup_shard(&store.shard("b")?, &backup)?;
    }
    let (place, away) = (shop.join("b"), dir.path().join("away"));
    fs::rename(&place, &away).expect("renamed");
    let store = Store::open(&shop)?;
    fs::rename(&away, &place).expect("renamed");
    let refused = store.restore_shard(&store.shard("b")?, &backup);
    assert!(matches!(&refused, Err(Error::ShardRefused { .. })), "{refused:?}");
    assert!(reason(refused).contains("exists; move it away first"));
    drop(store);
    assert_eq!(keys(&Store::open(&shop)?)?, of(&[1, 11, 12]));
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "bills", shard_by = tenant)]
#[indexes((tenant, code, unique), (code, scope = "global"))]
#[aggregate(paid)]
struct Bill {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    code: u32,
    paid: bool,
}

/// When the process of a move ends: after so many reports of its progress, or after the move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reports(usize),
    Moved,
    Cancelled,
}

/// Makes a backup during the move of a tenant from `a` to `b`, after so many reports of its progress. Loses these shards after the
/// end of the process, restores them, and ends the move. Returns the reason if the backup is refused.
fn restored_during_move(lost: &[&str], reports: usize, end: End) -> Result<Option<String>> {
    let what = format!("{lost:?} from a backup at {reports}, {end:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
        let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
        let store = options.map("bills", map).open(&shop)?;
        let bills = BillRepository::open(&store)?;
        let bill = |tenant, number| Bill { tenant, number, code: number, paid: number % 3 == 0 };
        store.transaction(|txn| {
            (0..600).try_for_each(|number| bills.insert(txn, &bill(1, number)))?;
            [2, 11, 21].into_iter().try_for_each(|tenant| bills.insert(txn, &bill(tenant, 7)))
        })?;
        let mut reported = 0;
        let moving = store.move_range("bills", 1u32..=1, "b").progress(|_| {
            if reported == reports {
                store.backup_to(&backup).expect("a backup");
            }
            let is_cancelled = end == End::Cancelled && reported == reports;
            if end == End::Reports(reported) || is_cancelled {
                panic::resume_unwind(Box::new(()));
            }
            reported += 1;
        });
        let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| moving.run()));
        assert_eq!(ended.is_ok(), end == End::Moved, "{what}");
        if end == End::Cancelled {
            store.cancel_move(store.moves()?.first().expect("a move").id)?;
        }
    }
    for lost in lost {
        fs::remove_dir_all(shop.join(lost)).expect("removed");
    }
    let store = Store::open(&shop)?;
    let opened = reports.is_multiple_of(2).then(|| BillRepository::open(&store)).transpose()?;
    for lost in lost {
        let number = i32::from(*lost != "a");
        let backup = backup.join(format!("shard.{number}"));
        match store.restore_shard(&store.shard(lost)?, backup) {
            Err(Error::ShardRefused { reason, .. }) => return Ok(Some(reason)),
            restored => restored.unwrap_or_else(|error| panic!("{what}: {error}")),
        }
    }
    let bills = opened.map_or_else(|| BillRepository::open(&store), Ok)?;
    for begun in store.moves()? {
        let result = if begun.state == MoveState::Copying && reports == 0 {
            store.cancel_move(begun.id)
        } else {
            store.resume_move(begun.id).run().map(drop)
        };
        result.unwrap_or_else(|error| panic!("{what}: {begun}: {error}"));
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{what}: {report}");
    drop((store, bills));
    let store = Store::open(&shop)?;
    let bills = BillRepository::open(&store)?;
    assert!(store.moves()?.is_empty(), "{what}");
    store.move_range("bills", 1u32..=1, "a").run()?;
    assert_eq!(bills.all(&store.read()?).count()?, 603, "{what}");
    assert!(store.verify()?.is_clean(), "{what}");
    Ok(None)
}

#[test]
fn a_move_ends_after_shards_were_restored_from_a_backup_during_the_move() -> Result<()> {
    for lost in [&["a"][..], &["b"], &["a", "b"], &["b", "a"]] {
        // The copies are made, and then removed from the source.
        for reports in [0, 2, 3] {
            let mut ends = vec![End::Reports(reports), End::Moved];
            ends.extend((reports < 3).then_some(End::Reports(3)));
            ends.extend((reports < 2).then_some(End::Cancelled));
            for end in ends {
                let is_refused = match end {
                    // The backup has rows that belong to the other shard, or only a part of the rows of its keys.
                    End::Moved => reports < if lost == ["a"] { 3 } else { 2 },
                    End::Cancelled => lost == ["b"],
                    End::Reports(_) => false,
                };
                let refused = restored_during_move(lost, reports, end)?;
                let what = format!("{lost:?} from a backup at {reports}, {end:?}: {refused:?}");
                assert_eq!(refused.is_some(), is_refused, "{what}");
                assert!(refused.is_none_or(|reason| reason.contains("restore a ")), "{what}");
            }
        }
    }
    Ok(())
}
