//! The archive of a store whose shards are added, moved, removed, missing, restored or written elsewhere.

use std::{fs, path::Path};

use index_table::{CommitNumber, Durability, Error, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    Archived, Kind, Random, Rows, TestResult, change, fresh, last_commit, open, rows_of,
    wait_for_archive,
};
pub(crate) use crate::{OrderRepository, order, rows_in};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
    rows: u64,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
struct NoteOfShard {
    #[primary_key]
    id: u32,
}

/// Returns options of a store with three shards and an archive.
pub(crate) fn options(archive: &Path) -> Options {
    crate::without_archive(Kind::Several).archive(archive)
}

/// Returns a store with three shards and an archive, which is not created yet.
fn archived() -> std::io::Result<Archived> {
    Archived::new(Kind::Several)
}

#[test]
fn moved_rows_and_added_and_removed_shards_are_archived() -> TestResult {
    let (it, mut random, mut rows) = (archived()?, Random(33), Rows::new());
    let mut then: Vec<(CommitNumber, Rows, usize)> = Vec::new();
    let (store, orders) = it.open()?;
    let towns = TownRepository::open(&store)?;
    wait_for_archive(&store);
    let mut write = |rows: &mut Rows, count: usize| -> Result<()> {
        for _ in 0..10 {
            change(&store, &orders, rows, &mut random)?;
            let town = Town { name: "Redmond".to_owned(), rows: rows.len() as u64 };
            store.transaction(|txn| towns.put(txn, &town))?;
            then.push((last_commit(&store)?, rows.clone(), count));
        }
        Ok(())
    };
    write(&mut rows, 3)?;
    store.add_shard("d", "d")?;
    write(&mut rows, 4)?;
    store.move_range("orders", 5u32..15, "d").run()?;
    write(&mut rows, 4)?;
    store.move_range("orders", 20u32.., "a").run()?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&mut rows, 4)?;
    store.move_range("orders", 15u32..20, "a").run()?;
    wait_for_archive(&store);
    write(&mut rows, 4)?;
    store.remove_shard("c")?;
    write(&mut rows, 3)?;
    wait_for_archive(&store);
    drop((store, orders, towns));
    // The store is opened again, for one more commit.
    let (store, orders) = open(&Store::options().archive(&it.archive), &it.store)?;
    let towns = TownRepository::open(&store)?;
    change(&store, &orders, &mut rows, &mut Random(34))?;
    let town = Town { name: "Redmond".to_owned(), rows: rows.len() as u64 };
    store.transaction(|txn| towns.put(txn, &town))?;
    then.push((last_commit(&store)?, rows.clone(), 3));
    drop((store, orders, towns));

    assert!(it.restored_rows()? == rows);
    for (commit, rows, count) in then.into_iter().step_by(2) {
        let to = fresh(&it.path(""), "restored");
        let outcome = it.restore().until_commit(commit.clone()).run(&to);
        assert!(outcome.is_ok(), "commit {commit}: {outcome:?}");
        assert!(rows_of(&to)? == rows, "after commit {commit}");
        let store = Store::open(&to)?;
        assert_eq!(store.shard_ids().len(), count, "after commit {commit}");
        let towns = TownRepository::open(&store)?;
        let town = towns.get(&store.read()?, "Redmond")?;
        assert_eq!(town.map(|town| town.rows), Some(rows.len() as u64));
    }
    Ok(())
}

#[test]
fn a_missing_shard_stays_in_the_archive() -> TestResult {
    let (it, mut random, mut rows) = (archived()?, Random(37), Rows::new());
    let write =
        |tenants: std::ops::Range<u32>, rows: &mut Rows, random: &mut Random, only: &[&str]| {
            let options = Store::options().only(only.iter().copied()).archive(&it.archive);
            let (store, orders) = open(&options, &it.store)?;
            for step in 0..30 {
                let (tenant, version) =
                    (tenants.start + step % tenants.len() as u32, random.below(999));
                let row = order(tenant, step % 7, version);
                let shard = orders.shard_of(&store, tenant)?;
                // Without the global index, which needs all shards.
                let written = store.transaction_on(&shard, |txn| orders.put(txn, &row));
                if written.is_ok() {
                    rows.insert((row.tenant, row.id), row);
                }
            }
            let error = store.archive_lag().and_then(|lag| lag.error);
            Ok::<_, Error>(error)
        };
    drop(it.options().open(&it.store)?);
    {
        let (store, orders) = it.open()?;
        wait_for_archive(&store);
        for _ in 0..30 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
    }
    assert_eq!(write(0..20, &mut rows, &mut random, &["a", "b"])?, None);
    assert_eq!(write(20..30, &mut rows, &mut random, &["c"])?, None);
    write(0..30, &mut rows, &mut random, &["a", "b", "c"])?;
    assert!(it.restored_rows()? == rows);
    Ok(())
}

#[test]
fn a_restored_shard_is_archived() -> TestResult {
    let (it, mut random, mut rows) = (archived()?, Random(39), Rows::new());
    let (backup, existing) = (it.path("backup"), Store::options().archive(&it.archive));
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    for _ in 0..20 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    store.backup_to(&backup)?;
    drop((store, orders));
    fs::remove_dir_all(it.store.join("b"))?;
    let store = existing.open(&it.store)?;
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
    // The store stays open, and is opened again in the second round.
    let mut store = Some(store);
    for _ in 0..2 {
        let store = store.take().map_or_else(|| existing.open(&it.store), Ok)?;
        let orders = OrderRepository::open(&store)?;
        for _ in 0..20 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
        wait_for_archive(&store);
        drop((store, orders));
        assert!(it.restored_rows()? == rows);
    }
    Ok(())
}

#[test]
fn all_shards_have_the_journal_if_there_is_an_archive() -> TestResult {
    let it = archived()?;
    let relaxed = Store::options().durability(Durability::Relaxed);
    let archived = Store::options().durability(Durability::Journal).archive(&it.archive);
    let all = Store::options().shard("a", "a").shard("b", "b");
    for own in [relaxed, archived] {
        let options = all.clone().shard_with("c", "c", own);
        let outcome = options.archive(&it.archive).open(&it.store);
        assert!(matches!(outcome, Err(Error::NotOffered { .. })), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn a_new_shard_has_a_base_when_the_store_is_closed_at_once() -> TestResult {
    let it = archived()?;
    let mut rows = Rows::new();
    {
        let (store, orders) = it.open()?;
        store.transaction(|txn| (0..5).try_for_each(|id| orders.insert(txn, &order(15, id, 0))))?;
        wait_for_archive(&store);
        store.add_shard("d", "d")?;
        assert!(!store.archive_lag().ok_or("an archive")?.has_base);
        store.move_range("orders", 15u32..=15, "d").run()?;
        store.transaction(|txn| (5..9).try_for_each(|id| orders.insert(txn, &order(15, id, 0))))?;
    }
    rows.extend((0..9).map(|id| ((15, id), order(15, id, 0))));
    assert!(it.restored_rows()? == rows);
    Ok(())
}

#[test]
fn a_shard_that_was_written_elsewhere_gets_a_new_base() -> TestResult {
    let (it, mut random, mut rows) = (archived()?, Random(36), Rows::new());
    let mut write = |rows: &mut Rows| -> Result<CommitNumber> {
        let (store, orders) = it.open()?;
        for _ in 0..10 {
            change(&store, &orders, rows, &mut random)?;
        }
        wait_for_archive(&store);
        last_commit(&store)
    };
    let first = write(&mut rows)?;
    let rows_then = rows.clone();
    // A copy of the shard is written, and replaces it.
    let (shard, aside) = (it.store.join("a"), it.path("aside"));
    Store::restore(&shard, &aside)?;
    fs::remove_dir_all(&shard)?;
    {
        let alone = Store::open(&aside)?;
        let other = NoteOfShardRepository::open(&alone)?;
        alone.transaction(|txn| other.insert(txn, &NoteOfShard { id: 1 }))?;
    }
    fs::rename(&aside, &shard)?;
    let last = write(&mut rows)?;
    it.has(&first, &rows_then)?;
    assert!(it.restored(it.restore())? == (last, rows));
    Ok(())
}
