//! Groups that fill the map.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use index_table::{Durability, Error, GroupWriter, IndexTable, Store, Submitted};
use serde::{Deserialize, Serialize};

use crate::{Item, ItemRepository, TestResult, check, hold, insert, item};

const SMALL: usize = 1 << 18;

#[derive(Serialize, Deserialize, IndexTable)]
struct Wide {
    #[primary_key]
    id: u64,
    text: String,
}

fn large(id: u64, bytes: usize) -> Item {
    Item { bytes: vec![id as u8; bytes], ..item(id) }
}

fn submit_large(
    writer: &GroupWriter,
    items: &ItemRepository,
    ids: std::ops::Range<u64>,
    bytes: usize,
) -> Vec<Submitted<(), Error>> {
    ids.map(|id| insert(writer, items, large_or_plain(id, bytes))).collect()
}

/// Returns an item with this number of bytes, or with fewer if they exceed the limit of a key.
fn large_or_plain(id: u64, bytes: usize) -> Item {
    large(id, bytes.min(150))
}

#[test]
fn closures_succeed_when_the_map_has_to_grow() -> TestResult {
    for most in [1, 3, 64, 1000] {
        let dir = tempfile::tempdir()?;
        let store = Store::options().map_size(SMALL).open(dir.path())?;
        let items = ItemRepository::open(&store)?;
        let writer = store.writer()?.most(most);
        let txn = hold(&store)?;
        let submitted = submit_large(&writer, &items, 0..1000, 150);
        drop(txn);
        for submitted in submitted {
            submitted.wait()?;
        }
        let length = std::fs::metadata(dir.path().join("data.mdb"))?.len();
        assert!(length > SMALL as u64, "the map has not grown: {length}");
        check(&store, &items, 0..1000)?;
    }
    Ok(())
}

/// A large closure that enlarges the map many times, between small closures.
#[test]
fn the_closure_that_filled_the_map_runs_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(SMALL).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let runs = Arc::new(AtomicU32::new(0));
    let txn = hold(&store)?;
    let mut submitted = submit_large(&writer, &items, 0..50, 10);
    submitted.push({
        let (items, runs) = (items.clone(), Arc::clone(&runs));
        writer.submit(move |txn| {
            runs.fetch_add(1, Ordering::Relaxed);
            // The closure can ignore the error.
            (1000..6000).for_each(|id| drop(items.insert(txn, &large(id, 150))));
            Ok(())
        })
    });
    submitted.extend(submit_large(&writer, &items, 50..100, 10));
    drop(txn);
    for (place, submitted) in submitted.into_iter().enumerate() {
        submitted.wait().map_err(|error| format!("{place}: {error}"))?;
    }
    assert!((3..12).contains(&runs.load(Ordering::Relaxed)), "{runs:?}");
    check(&store, &items, (0..100).chain(1000..6000))
}

#[test]
fn only_closures_that_do_not_fit_fail_at_the_limit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(SMALL).max_map_size(SMALL * 2).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let txn = hold(&store)?;
    let first = submit_large(&writer, &items, 0..20, 10);
    let too_large: Vec<Submitted<(), Error>> = [true, false]
        .map(|notices| {
            let items = items.clone();
            writer.submit(move |txn| {
                for id in 1000..9000 {
                    let inserted = items.insert(txn, &large(id, 150));
                    if notices {
                        inserted?;
                    }
                }
                Ok(())
            })
        })
        .into();
    let last = submit_large(&writer, &items, 20..40, 10);
    drop(txn);
    first.into_iter().chain(last).try_for_each(Submitted::wait)?;
    for too_large in too_large {
        let outcome = too_large.wait();
        assert!(
            matches!(outcome, Err(Error::MapFull { map_size }) if map_size == SMALL * 2),
            "{outcome:?}"
        );
    }
    check(&store, &items, 0..40)?;

    // As many closures as fit succeed, in any grouping. The others fail.
    let txn = hold(&store)?;
    let submitted = submit_large(&writer, &items, 100..1100, 150);
    drop(txn);
    let mut ids: Vec<u64> = (0..40).collect();
    for (id, submitted) in (100..).zip(submitted) {
        match submitted.wait() {
            Ok(()) => ids.push(id),
            Err(Error::MapFull { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    assert!((100..1000).contains(&ids.len()), "{}", ids.len());
    check(&store, &items, ids)
}

#[test]
fn a_blocking_reader_is_reported_to_closures_that_need_room() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(SMALL).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let reader = store.read()?;
    let txn = hold(&store)?;
    let small = insert(&writer, &items, item(1));
    let large_one = {
        let items = items.clone();
        writer.submit(move |txn| (1000..3000).try_for_each(|id| items.insert(txn, &large(id, 150))))
    };
    let after = insert(&writer, &items, item(2));
    drop(txn);
    let began = std::time::Instant::now();
    small.wait()?;
    assert!(began.elapsed() < Duration::from_secs(1), "the closure waited for space");
    let blocked = large_one.wait();
    assert!(matches!(blocked, Err(Error::GrowthBlocked { readers: 1, .. })), "{blocked:?}");
    after.wait()?;
    drop(reader);
    check(&store, &items, [1, 2])
}

/// An LMDB transaction can change about 131,000 pages. Closures that change more pages together are committed
/// in several transactions.
#[test]
fn a_group_with_too_many_pages_is_split() -> TestResult {
    const CLOSURES: u64 = 320;
    const ROWS: u64 = 500;

    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 31).durability(Durability::None);
    let store = options.open(dir.path())?;
    let wide = WideRepository::open(&store)?;
    let writer = store.writer()?.most(1000);
    let txn = hold(&store)?;
    let submitted: Vec<_> = (0..CLOSURES)
        .map(|part| {
            let wide = wide.clone();
            writer.submit(move |txn| {
                let rows = (part * ROWS..).take(ROWS as usize);
                // A page has room for one of these rows.
                rows.map(|id| Wide { id, text: "x".repeat(2000) })
                    .try_for_each(|row| wide.insert(txn, &row))?;
                Ok::<_, Error>(txn.commit_number())
            })
        })
        .collect();
    drop(txn);
    let mut commits = submitted.into_iter().map(Submitted::wait).collect::<Result<Vec<_>, _>>()?;
    commits.dedup();
    assert!(commits.len() > 1, "all closures are in one commit");
    assert_eq!(wide.all(&store.read()?).count()?, CLOSURES * ROWS);
    Ok(())
}
