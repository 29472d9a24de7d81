//! Moves of the entries of global indexes, by the shard maps of these indexes.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use index_table::{
    Error, IndexTable, Options, Progress, Result, ShardMap, Store, report::MoveState,
};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = tenant)]
#[index(email, unique, scope = "global")]
#[index(town, age, include = [name], scope = "global")]
#[index(age, scope = "global", consistency = "eventual")]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have an option in common")]
struct User {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: u64,
    town: String,
    age: u8,
    name: String,
}

const TENANTS: u32 = 30;
const USERS: u64 = 20;
const ALL: u64 = TENANTS as u64 * USERS;

fn options() -> Options {
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("users", ShardMap::ranges().to("a", ..15u32).to("b", 15u32..))
        .map("users.town_age", ShardMap::ranges().to("a", .."t2").to("b", "t2"..))
        .map("users.email", ShardMap::hashed(["a", "b"]))
        .map("users.age", ShardMap::hashed(["a"]))
}

fn user(tenant: u32, id: u64) -> User {
    let email = u64::from(tenant) * 1000 + id;
    let (town, name) = (format!("t{}", id % 5), format!("n{email}"));
    User { tenant, id, email, town, age: (id % 7) as u8, name }
}

fn filled(store: &Store) -> Result<UserRepository> {
    let users = UserRepository::open(store)?;
    for tenant in 0..TENANTS {
        store.transaction(|txn| {
            (0..USERS).try_for_each(|id| users.insert(txn, &user(tenant, id)))
        })?;
    }
    Ok(users)
}

/// Checks in one snapshot that the global indexes have each row once.
fn check(store: &Store, users: &UserRepository) -> Result<()> {
    let txn = store.read()?;
    let rows = users.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(rows.len() as u64, ALL);
    assert_eq!(users.by_email(&txn).count()?, ALL);
    let emails = users.by_email(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert!(emails.windows(2).all(|pair| pair[0].email < pair[1].email));
    for row in rows.iter().step_by(37) {
        assert_eq!(users.get_by_email(&txn, row.email)?.as_ref(), Some(row));
    }
    let mut of_towns = 0;
    for town in 0..5 {
        let town = format!("t{town}");
        let count = users.find_by_town(&txn, &town).count()?;
        let mut entries = users.find_by_town(&txn, &town).entries();
        assert!(entries.all(|entry| entry.is_ok_and(|it| it.name.starts_with('n'))));
        assert_eq!(users.find_by_town(&txn, &town).rows().count() as u64, count);
        of_towns += count;
    }
    assert_eq!(of_towns, ALL);
    let report = users.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn entries_move_beside_readers_and_writers() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().open(dir.path().join("store"))?, options().in_memory()?] {
        let users = filled(&store)?;
        let _worker = store.start_index_worker()?;
        let before = store.read()?;
        let (stop, written, read) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let write = || {
            for number in 0.. {
                if stop.load(Relaxed) {
                    break;
                }
                let (tenant, id) = (number as u32 * 7 % TENANTS, number * 11 % USERS);
                let swap = |txn: &mut index_table::WriteTxn<'_>| {
                    // The row gets a new number, town and age, and keeps its email.
                    let old = users.remove(txn, tenant, id)?.expect("a row");
                    let town = format!("t{}", number % 5);
                    let email = if number % 3 == 0 { old.email ^ (1 << 40) } else { old.email };
                    users.insert(txn, &User { town, email, age: (number % 9) as u8, ..old })
                };
                store.transaction(swap).expect("a write");
                written.fetch_add(1, Relaxed);
            }
        };
        let look = || {
            while !stop.load(Relaxed) {
                check(&store, &users).expect("a check");
                read.fetch_add(1, Relaxed);
            }
        };
        let outcome = thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(look);
            let moves = || -> Result<()> {
                for to in ["c", "a", "b"] {
                    assert!(store.move_slots("users.email", 1000..3000, to).run()?.rows > 0);
                    let moved = store.move_range("users.town_age", "t1".."t4", to).run()?;
                    assert!(moved.rows > 0 && moved.bytes > 0, "{moved}");
                    store.move_slots("users.age", .., to).run()?;
                    store.move_range("users", 10u32..20, to).run()?;
                }
                Ok(())
            };
            let outcome = moves();
            stop.store(true, Relaxed);
            outcome
        });
        outcome?;
        assert!(written.into_inner() > 0 && read.into_inner() > 0);
        // This snapshot is older than all moves.
        assert_eq!(users.by_email(&before).count()?, ALL);
        assert_eq!(users.get_by_email(&before, 3)?, Some(user(0, 3)));
        drop(before);
        users.drain(&store, u64::MAX)?;
        check(&store, &users)?;
        let txn = store.read()?;
        let of_ages: Vec<_> =
            (0..9).map(|age| users.find_by_age(&txn, age).stale().rows().count() as u64).collect();
        assert_eq!(of_ages.iter().sum::<u64>(), ALL);
        assert_eq!(store.moves()?, []);
        let towns: Vec<_> = store.ranges("users.town_age")?;
        assert_eq!(towns.iter().map(|range| range.rows).sum::<u64>(), ALL);
        assert_eq!((towns[1].start.as_deref(), towns[1].shard.as_str()), (Some("\"t1\""), "b"));
    }
    let store = Store::open(dir.path().join("store"))?;
    check(&store, &UserRepository::open(&store)?)?;
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn an_interrupted_move_of_entries_is_continued_or_cancelled() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let mut copies = Vec::new();
    {
        let store = options().open(&path)?;
        let users = filled(&store)?;
        users.drain(&store, u64::MAX)?;
        for (map, to) in [("users.email", "c"), ("users.age", "b")] {
            let mut interrupt = |_: Progress| {
                let to = dir.path().join(format!("copy{}", copies.len()));
                copy(&path, &to).expect("copied");
                copies.push(to);
            };
            store.move_slots(map, .., to).progress(&mut interrupt).run()?;
        }
    }
    assert!(copies.len() >= 6, "{}", copies.len());
    for (at, path) in copies.into_iter().enumerate() {
        let store = Store::open(&path)?;
        let users = UserRepository::open(&store)?;
        check(&store, &users)?;
        let begun = store.moves()?.remove(0);
        let shown = begun.to_string();
        assert!(shown.contains("entries (") && shown.contains(".."), "{shown}");
        assert_eq!(begun.start.as_deref(), Some(if begun.from == "a" { "0" } else { "2048" }));
        store.transaction(|txn| {
            users.update(txn, 3, 3, |row| (row.email, row.age) = (77, 8))?;
            users.delete(txn, 4, 4)?;
            users.insert(txn, &User { email: 78, ..user(4, 4) })
        })?;
        check(&store, &users)?;
        if at % 2 == 0 || begun.state == MoveState::CleaningUp {
            store.resume_move(begun.id).run()?;
        } else {
            store.cancel_move(begun.id)?;
        }
        assert_eq!(store.moves()?, []);
        users.drain(&store, u64::MAX)?;
        check(&store, &users)?;
        drop((store, users));
        let store = Store::open(&path)?;
        let users = UserRepository::open(&store)?;
        check(&store, &users)?;
        store.move_slots("users.email", .., "a").run()?;
        check(&store, &users)?;
        assert_eq!(store.ranges("users.email")?.len(), 1);
    }
    Ok(())
}

#[test]
fn entries_that_move_offline_are_read_only() -> Result<()> {
    let store = options().in_memory()?;
    let users = filled(&store)?;
    users.drain(&store, u64::MAX)?;
    let mut refused = 0;
    let moved = store.move_range("users.town_age", .."t2", "c").offline().progress(|at| {
        if at.unit != "entries" {
            return;
        }
        assert!(at.bytes.is_some_and(|bytes| bytes > at.done), "{at}");
        refused += 1;
        store
            .transaction(|txn| {
                let update = users.update(txn, 3, 1, |row| row.town = "x".to_owned());
                let error = update.expect_err("an entry that is being moved");
                assert!(matches!(error, Error::ShardReadOnly { .. }), "{error}");
                assert!(error.to_string().contains("(3, 1)"), "{error}");
                assert!(users.insert(txn, &user(3, 1000)).is_err());
                assert_eq!(users.get(txn, 3, 1)?, Some(user(3, 1)), "nothing is half changed");
                // Other entries of the row, and other rows, can change.
                users.update(txn, 3, 1, |row| row.email = 9_000_000)?;
                users.update(txn, 3, 2, |row| row.town = "t3".to_owned())?;
                users.update(txn, 3, 1, |row| row.email = 3001)?;
                users.update(txn, 3, 2, |row| row.town = "t2".to_owned()).map(drop)
            })
            .expect("a transaction");
    });
    moved.run()?;
    assert!(refused > 0);
    // An eventual index is written by its worker, so its entries can change during the move.
    let moved = store.move_slots("users.age", .., "c").offline().progress(|at| {
        if at.unit == "entries" {
            let update =
                |txn: &mut index_table::WriteTxn<'_>| users.update(txn, 5, 5, |row| row.age = 200);
            store.transaction(update).expect("a write");
            users.drain(&store, u64::MAX).expect("a worker");
        }
    });
    moved.run()?;
    assert_eq!(users.find_by_age(&store.read()?, 200).stale().count()?, 1);
    check(&store, &users)
}

#[test]
fn entries_are_rebalanced_and_a_shard_without_entries_is_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path().join("store"))?;
    let users = filled(&store)?;
    users.drain(&store, u64::MAX)?;
    let plan = store.rebalance("users.town_age").plan()?;
    assert!(plan.to_string().contains("\"t"), "{plan}");
    plan.run()?;
    let rows: Vec<_> = store.ranges("users.town_age")?.iter().map(|range| range.rows).collect();
    assert!(rows.iter().all(|rows| *rows <= 240), "{rows:?}");
    check(&store, &users)?;
    for map in ["users.email", "users.age"] {
        store.rebalance(map).plan()?.run()?;
        let mut of_shards = std::collections::BTreeMap::new();
        for range in store.ranges(map)? {
            *of_shards.entry(range.shard).or_insert(0) += range.rows;
        }
        // The eventual index has seven keys.
        let most = if map == "users.age" { 260 } else { 230 };
        assert!(of_shards.values().all(|rows| *rows <= most), "{map}: {of_shards:?}");
    }
    // Entries that have moved away need no rebuild.
    for map in ["users.email", "users.age", "users.town_age", "users"] {
        let plan = store.rebalance(map).onto(["a", "c"]).plan()?;
        plan.run()?;
    }
    store.remove_shard("b")?;
    check(&store, &users)?;
    let error = reason(store.move_range("users.email", 1u64..2, "a").run());
    assert!(error.contains("move_slots"), "{error}");
    let error = reason(store.move_range("users.town_age", 1u64..2, "a").run());
    assert!(error.contains("not `u64`"), "{error}");
    drop((store, users));
    let store = Store::open(dir.path().join("store"))?;
    let error = reason(store.move_slots("users.email", .., "a").run());
    assert!(error.contains("open it first"), "{error}");
    check(&store, &UserRepository::open(&store)?)
}

#[test]
fn messages_in_a_shard_without_rows_are_applied() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let users = filled(&store)?;
    users.drain(&store, u64::MAX)?;
    let age = |store: &Store, users: &UserRepository, age: u8| {
        store.transaction(|txn| users.update(txn, 3, 3, |row| row.age = age).map(drop))
    };
    let count = |store: &Store, users: &UserRepository, age: u8| {
        users.find_by_age(&store.read()?, age).stale().count()
    };
    age(&store, &users, 100)?;
    store.move_range("users", ..15u32, "c").run()?;
    assert_eq!(users.lag(&store.read()?)?.messages, 1);
    check(&store, &users)?;
    users.drain(&store, u64::MAX)?;
    assert_eq!(count(&store, &users, 100)?, 1);

    age(&store, &users, 101)?;
    store.move_range("users", ..15u32, "b").run()?;
    drop((store, users));
    let store = Store::open(&path)?;
    let users = UserRepository::open(&store)?;
    assert_eq!(users.lag(&store.read()?)?.messages, 1);
    assert!(reason(store.remove_shard("c")).contains("start the index worker"));
    users.drain(&store, u64::MAX)?;
    assert_eq!((count(&store, &users, 100)?, count(&store, &users, 101)?), (0, 1));
    store.remove_shard("c")?;
    check(&store, &users)
}
