//! Stores that get a shard for each month: workers beside interrupted moves, and tables whose shards are all detached.

use std::{
    collections::BTreeSet,
    panic,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, SystemTime},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store, report::MoveState};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits", shard_by = tenant, expires = ends)]
#[index(town, consistency = "eventual")]
#[index(age, consistency = "eventual", scope = "global")]
#[allow(clippy::duplicated_attributes, reason = "two indexes are eventual")]
#[aggregate(town, consistency = "eventual")]
struct Visit {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: u8,
    age: u8,
    ends: Option<SystemTime>,
}

const fn visit(tenant: u32, id: u32) -> Visit {
    Visit { tenant, id, town: 1, age: 2, ends: None }
}

fn visits(path: &Path) -> Result<(Store, VisitRepository)> {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("visits", map).open(path)?;
    let visits = VisitRepository::open(&store)?;
    Ok((store, visits))
}

/// Ends a move by a panic of its progress function.
fn interrupt(moving: index_table::Move<'_>) {
    let moving = moving.progress(|_| panic::resume_unwind(Box::new(())));
    assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| moving.run())).is_err());
}

#[test]
fn messages_are_applied_beside_an_interrupted_offline_move() -> Result<()> {
    for is_cancelled in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, visits) = visits(&dir.path().join("shop"))?;
        // A message of a row that moves is the first in the queue.
        store.transaction(|txn| {
            (7..9).try_for_each(|tenant| visits.insert(txn, &visit(tenant, 1)))
        })?;
        interrupt(store.move_range("visits", 7u32..=7, "b").offline());
        let refused = store.transaction(|txn| visits.insert(txn, &visit(7, 2)));
        assert!(matches!(refused, Err(Error::ShardReadOnly { .. })), "{refused:?}");

        let worker = store.start_index_worker()?;
        let mut txn = store.write()?;
        visits.insert(&mut txn, &visit(8, 2))?;
        let token = txn.commit_with_token()?;
        assert!(visits.wait_for(&store, &token, Duration::from_mins(1))?, "{:?}", worker.error());
        assert!(worker.error().is_none());
        assert_eq!(visits.find_by_town(&store.read()?, 1).stale().count()?, 3);
        drop(worker);
        let [begun] = &*store.moves()? else { panic!("a move") };
        assert_eq!((begun.state, begun.offline), (MoveState::Copying, true));
        if is_cancelled {
            store.cancel_move(begun.id)?;
        } else {
            store.resume_move(begun.id).run()?;
        }
        let txn = store.read()?;
        assert_eq!(visits.find_by_town(&txn, 1).stale().count()?, 3);
        assert_eq!(visits.find_by_age(&txn, 2).stale().count()?, 3);
        assert_eq!(visits.shard_of(&store, 7)?.name(), if is_cancelled { "a" } else { "b" });
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn rows_expire_beside_those_of_an_interrupted_offline_move() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, visits) = visits(&dir.path().join("shop"))?;
    let ends = Some(SystemTime::UNIX_EPOCH);
    store.transaction(|txn| {
        (6..9).try_for_each(|tenant| visits.insert(txn, &Visit { ends, ..visit(tenant, 1) }))
    })?;
    interrupt(store.move_range("visits", 7u32..=7, "b").offline());
    let expired = visits.expire_report(&store, SystemTime::now(), u64::MAX)?;
    assert_eq!((expired.deleted, expired.refused), (2, 1));
    assert!(matches!(expired.refusal, Some(Error::ShardReadOnly { .. })), "{expired:?}");
    store.resume_move(store.moves()?.first().expect("a move").id).run()?;
    assert_eq!(visits.expire(&store, SystemTime::now(), u64::MAX)?, 1);
    visits.drain(&store, u64::MAX)?;
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn messages_are_applied_while_another_shard_is_lost() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, own) = visits(&path)?;
    drop((store, own));
    std::fs::rename(path.join("a"), dir.path().join("a")).expect("renamed");
    let store = Store::open(&path)?;
    let visits = VisitRepository::open(&store)?;
    let worker = store.start_index_worker()?;
    let mut txn = store.write()?;
    visits.insert(&mut txn, &visit(101, 1))?;
    let token = txn.commit_with_token()?;
    assert!(visits.wait_for(&store, &token, Duration::from_secs(10))?, "{:?}", worker.error());
    Ok(())
}

/// A test in which all shards of a table are detached, and the store gets a shard for the next month.
macro_rules! all_detached {
    ($($name:ident: $($attribute:meta),*;)*) => {$(
        mod $name {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "entries", shard_by = month, changes)]
            $(#[$attribute])*
            struct Entry {
                #[primary_key]
                month: i32,
                #[primary_key]
                id: u64,
                value: u8,
            }

            fn run(is_spare_first: bool, is_missing: bool) -> Result<()> {
                let dir = tempfile::tempdir().expect("a directory");
                let path = dir.path().join("log");
                let map = ShardMap::ranges().to("a", ..0i32).to("b", 0i32..);
                let mut options = Store::options();
                if is_spare_first {
                    options = options.shard("spare", "spare");
                }
                let options = options.shard("a", "a").shard("b", "b");
                let store = options.map("entries", map).open(&path)?;
                let entries = EntryRepository::open(&store)?;
                if !is_spare_first {
                    store.add_shard("spare", "spare")?;
                }
                let insert = |store: &Store, entries: &EntryRepository, month| {
                    store.transaction(|txn| {
                        (1..4).try_for_each(|id| entries.insert(txn, &Entry { month, id, value: 9 }))
                    })
                };
                insert(&store, &entries, -1)?;
                insert(&store, &entries, 1)?;
                store.detach_shard("a")?;
                store.detach_shard("b")?;
                assert_eq!(entries.all(&store.read()?).count()?, 0);
                drop((store, entries));
                if is_missing {
                    // The detached shards are on another disk.
                    std::fs::rename(path.join("a"), dir.path().join("a")).expect("renamed");
                    std::fs::rename(path.join("b"), dir.path().join("b")).expect("renamed");
                }
                let store = Store::open(&path)?;
                // Opening the store twice changes nothing.
                drop(EntryRepository::open(&store)?);
                let entries = EntryRepository::open(&store)?;
                assert_eq!(entries.all(&store.read()?).count()?, 0);
                store.move_range("entries", 5i32.., "spare").run()?;
                insert(&store, &entries, 7)?;
                let from = if is_missing { dir.path() } else { &path };
                store.attach_shard("a", from.join("a"))?;
                assert_eq!(entries.all(&store.read()?).count()?, 6);
                assert!(store.verify()?.is_clean());
                drop((store, entries));
                let store = Store::open(&path)?;
                assert_eq!(EntryRepository::open(&store)?.all(&store.read()?).count()?, 6);
                assert!(store.verify()?.is_clean());
                Ok(())
            }

            #[test]
            fn a_table_whose_shards_are_all_detached_gets_further_keys() -> Result<()> {
                for is_spare_first in [true, false] {
                    run(is_spare_first, false)?;
                    run(is_spare_first, true)?;
                }
                Ok(())
            }
        }
    )*};
}

all_detached! {
    plain:;
    global: index(value, scope = "global");
    local: index(value);
    unique: index(id, month, unique, scope = "global");
    eventual: index(value, consistency = "eventual");
    aggregate: aggregate(value);
}

#[test]
#[allow(clippy::range_plus_one, reason = "each range ends where the next one begins")]
fn the_ranges_of_two_shards_are_merged() -> Result<()> {
    let n = 40;
    let dir = tempfile::tempdir().expect("a directory");
    let mut map = ShardMap::ranges();
    for at in 0..n {
        let name = if at % 2 == 0 { "a" } else { "b" };
        map = match at {
            0 => map.to(name, ..1u32),
            at if at == n - 1 => map.to(name, at..),
            at => map.to(name, at..at + 1),
        };
    }
    let store = Store::options().shard("a", "a").shard("b", "b").map("visits", map);
    let store = store.open(dir.path().join("shop"))?;
    let visits = VisitRepository::open(&store)?;
    store.transaction(|txn| (0..n).try_for_each(|tenant| visits.insert(txn, &visit(tenant, 1))))?;
    visits.drain(&store, u64::MAX)?;
    assert_eq!(store.move_range("visits", 0u32.., "a").run()?.rows, u64::from(n / 2));
    assert_eq!(store.ranges("visits")?.len(), 1);
    assert_eq!(visits.find_by_town(&store.read()?, 1).stale().count()?, u64::from(n));
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "rates", reference)]
struct Rate {
    #[primary_key]
    id: u32,
    value: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items", shard_by = tenant, changes)]
#[index(value)]
#[index(code, unique, scope = "global")]
#[index(weight, consistency = "eventual")]
#[aggregate(value)]
struct Item {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    value: u8,
    weight: u8,
    code: u64,
}

/// Calls `step` until the work is over, and notes its errors.
fn repeat(
    (is_over, errors): (&AtomicBool, &Mutex<BTreeSet<String>>),
    name: &str,
    mut step: impl FnMut() -> Result<()>,
) {
    while !is_over.load(SeqCst) {
        if let Err(error) = step() {
            errors.lock().expect("a lock").insert(format!("{name}: {error}"));
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one thread after another")]
fn nothing_fails_while_shards_are_added_and_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("items", map);
    let store = store.open(dir.path().join("shop"))?;
    let (items, rates) = (ItemRepository::open(&store)?, RateRepository::open(&store)?);
    let (errors, is_over) = (Mutex::default(), AtomicBool::new(false));
    let workers = (store.start_index_worker()?, store.start_expiry_worker()?);
    thread::scope(|scope| -> Result<()> {
        let (store, items, rates) = (&store, &items, &rates);
        let noted = (&is_over, &errors);
        scope.spawn(move || {
            let mut n = 0;
            repeat(noted, "a put", || {
                n += 1;
                let (tenant, id) = (u32::try_from(n % 20).unwrap_or(0), n % 50);
                let (value, weight) = ((n % 3) as u8, (n % 4) as u8);
                let item = Item { tenant, id, value, weight, code: u64::from(tenant) * 50 + id };
                store.transaction(|txn| items.put(txn, &item))?;
                if n % 11 == 0 {
                    store.transaction(|txn| items.delete(txn, tenant, id))?;
                }
                store.transaction(|txn| rates.put(txn, &Rate { id: 1, value: n }))
            });
        });
        scope.spawn(move || {
            repeat(noted, "a consumer", || {
                let mut changes = items.changes(store, "plain")?;
                for _ in 0..20 {
                    changes.next_batch(20)?.commit(store)?;
                    changes.lag()?;
                }
                Ok(())
            });
        });
        for _ in 0..2 {
            scope.spawn(move || {
                repeat(noted, "a shared consumer", || {
                    let mut changes =
                        items.changes(store, "shared")?.share(Duration::from_millis(200));
                    for _ in 0..20 {
                        match changes.next_batch(20)?.commit(store) {
                            Ok(()) | Err(Error::BatchSuperseded { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    changes.leave()
                });
            });
        }
        scope.spawn(move || {
            repeat(noted, "a reader", || {
                let txn = store.read()?;
                items.all(&txn).count()?;
                items.find_by_value(&txn, 1).rows().try_for_each(|row| row.map(drop))?;
                items.get_by_code(&txn, 153)?;
                items.aggregate_by_value(&txn, 1)?;
                items.change_consumers(&txn)?;
                rates.get(&txn, 1)?;
                items.lag(&txn)?;
                items.find_by_weight(&txn, 1).stale().count().map(drop)
            });
        });
        scope.spawn(move || {
            repeat(noted, "verify", || store.verify().map(drop));
        });
        scope.spawn(move || {
            repeat(noted, "lists", || {
                store.shards()?;
                store.ranges("items")?;
                store.sizes()?;
                items.drain(store, 100).map(drop)
            });
        });
        scope.spawn(move || {
            repeat(noted, "skipping", || {
                let mut changes = items.changes(store, "skipper")?;
                changes.skip_before(&store.read()?)?;
                items.remove_change_consumer(store, "skipper")?;
                items.remove_old_changes(store, 10).map(drop)
            });
        });
        let cycle = |round: u64| {
            let name = format!("n{round}");
            store.add_shard(&name, &name)?;
            store.move_range("items", 5u32..15, &name).run()?;
            store.move_slots("items.code", 0..1000, &name).run()?;
            store.move_range("items", 5u32..10, "a").run()?;
            store.move_range("items", 10u32..15, "b").run()?;
            store.move_slots("items.code", 0..1000, "a").run()?;
            loop {
                match store.remove_shard(&name) {
                    Err(Error::ShardRefused { reason, .. })
                        if reason.contains("committed") || reason.contains("queued") => {}
                    left => break left,
                }
                thread::sleep(Duration::from_millis(5));
            }
        };
        for round in 0..12 {
            if let Err(error) = cycle(round) {
                errors.lock().expect("a lock").insert(format!("moves: {error}"));
            }
        }
        is_over.store(true, SeqCst);
        Ok(())
    })?;
    assert_eq!(*errors.lock().expect("a lock"), BTreeSet::new());
    assert!(workers.0.error().is_none() && workers.1.error().is_none());
    assert!(store.verify()?.is_clean());
    Ok(())
}
