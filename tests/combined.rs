//! `and` and `or` of many scans, and of combinations at any depth.

#[path = "support/stores.rs"]
mod stores;

use std::time::{Duration, Instant};

use index_table::{Combined, IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};
use stores::Tried;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = hash(id))]
#[index(group)]
#[index(parity)]
struct Item {
    #[primary_key]
    id: u32,
    group: u32,
    parity: u32,
}

/// Inserts rows in groups of equal size.
fn fill(store: &Tried, rows: u32, groups: u32) -> Result<ItemRepository> {
    let items = ItemRepository::open(store)?;
    let rows = (0..rows).map(|id| Item { id, group: id % groups, parity: id % 2 });
    if store.is_sharded {
        store.fill(rows, |txn, row| items.insert(txn, row))?;
    } else {
        items.bulk_load(store, rows).run()?;
    }
    Ok(items)
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (run(), start.elapsed())
}

fn keys(combined: Combined<'_, Item>) -> Result<Vec<u32>> {
    combined.keys().collect()
}

/// Combines scans so that the left operand of each operator is a combination.
fn to_the_left<'txn>(
    items: &'txn ItemRepository,
    txn: &'txn ReadTxn<'_>,
    depth: u32,
) -> Combined<'txn, Item> {
    (0..depth).fold(items.find_by_group(txn, 0).into(), |combined: Combined<'_, _>, level| {
        if level % 2 == 0 {
            combined.or(items.find_by_group(txn, level % 64))
        } else {
            combined.and(items.find_by_parity(txn, 0))
        }
    })
}

/// Combines scans so that the right operand of each operator is a combination.
fn to_the_right<'txn>(
    items: &'txn ItemRepository,
    txn: &'txn ReadTxn<'_>,
    depth: u32,
) -> Combined<'txn, Item> {
    (0..depth).fold(items.find_by_group(txn, 0).into(), |combined, level| {
        if level % 2 == 0 {
            items.find_by_group(txn, level % 64).or(combined)
        } else {
            items.find_by_parity(txn, 0).and(combined)
        }
    })
}

#[test]
fn the_cost_of_a_combination_does_not_depend_on_the_order_of_its_parts() -> TestResult {
    const DEPTH: u32 = 60;
    for store in stores::stores("item")? {
        let items = fill(&store, 640, 64)?;
        let txn = store.read()?;
        let even: Vec<u32> = (0..640).filter(|id| id % 2 == 0 && id % 64 < DEPTH).collect();
        assert_eq!(keys(to_the_right(&items, &txn, DEPTH))?, even);
        let before = txn.stats();
        assert_eq!(keys(to_the_left(&items, &txn, DEPTH))?, even);
        let read = txn.stats().entries - before.entries;
        // Half of the parts have half of the rows. The other parts have ten rows each.
        assert!(read <= u64::from(DEPTH) / 2 * (320 + 10) + 10, "{read}");
    }
    Ok(())
}

#[test]
fn a_deep_combination_does_not_recurse() -> TestResult {
    const DEPTH: u32 = 100_000;
    for store in stores::stores_in_memory() {
        let items = fill(&store, 6, 64)?;
        let txn = store.read()?;
        let even = [0, 2, 4];
        for build in [to_the_left, to_the_right] {
            assert_eq!(keys(build(&items, &txn, DEPTH))?, even);
            assert_eq!(build(&items, &txn, DEPTH).limit(2).rows().count(), 2);
            // A combination is dropped before it runs, and while it runs.
            drop(build(&items, &txn, DEPTH));
            let mut rows = build(&items, &txn, DEPTH).rows();
            assert_eq!(rows.next().transpose()?.map(|item| item.id), Some(0));
            drop(rows);
            let debug = format!("{:?}", build(&items, &txn, DEPTH));
            assert_eq!(debug, "Combined { table: \"item\", limit: None, .. }");
        }
    }
    Ok(())
}

#[test]
fn an_or_takes_little_longer_than_its_scans_one_by_one() -> TestResult {
    const PARTS: u32 = 10_000;
    let stores = stores::plain_stores()?;
    let store = &stores[0];
    assert!(store.is_on_disk());
    let items = fill(store, PARTS * 2, PARTS)?;
    let read = store.read()?;
    let write = store.write()?;
    for txn in [&read, &*write] {
        let (one_by_one, alone) = timed(|| {
            let counts = (0..PARTS).map(|group| items.find_by_group(txn, group).rows().count());
            counts.sum::<usize>()
        });
        let (combined, together) = timed(|| {
            let parts = (0..PARTS).map(|group| Combined::from(items.find_by_group(txn, group)));
            parts.reduce(Combined::or).map(|combined| combined.rows().count())
        });
        assert_eq!(combined, Some(one_by_one));
        // The measured factor is 2. Reading all parts for each row would take hundreds of times longer.
        assert!(together < alone * 8, "{together:?} against {alone:?}");
    }
    Ok(())
}
