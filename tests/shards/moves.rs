//! Moves of keys between shards, beside readers and writers.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use index_table::{
    Durability, Error, IndexTable, Options, Result, ShardMap, Store,
    report::{MoveState, Moved},
};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = tenant)]
#[index(town)]
#[index(tenant, balance, consistency = "eventual")]
#[index(code, unique, scope = "global")]
#[aggregate(town, sum = [balance])]
#[aggregate(sum = [balance])]
#[aggregate(tenant, sum = [balance], consistency = "eventual")]
pub(crate) struct Account {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    pub(crate) balance: i64,
    pub(crate) code: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "entries", shard_by = tenant, shard_map = "accounts")]
struct Entry {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
#[index(kind)]
struct Event {
    #[primary_key]
    id: u64,
    kind: u8,
}

/// The tenants, and the accounts of each.
const TENANTS: u32 = 40;
const ACCOUNTS: u64 = 25;

pub(crate) fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("accounts", map)
        .map("events", ShardMap::hashed(["a", "b"]))
}

pub(crate) fn account(tenant: u32, number: u64) -> Account {
    let code = u64::from(tenant) * 1000 + number;
    Account { tenant, number, town: format!("t{}", number % 5), balance: 100, code }
}

pub(crate) struct Tables {
    pub(crate) accounts: AccountRepository,
    entries: EntryRepository,
}

impl Tables {
    pub(crate) fn open(store: &Store) -> Result<Self> {
        let (accounts, entries) = (AccountRepository::open(store)?, EntryRepository::open(store)?);
        Ok(Self { accounts, entries })
    }

    /// Adds all accounts, and an entry for each tenant.
    pub(crate) fn fill(&self, store: &Store) -> Result<()> {
        for tenant in 0..TENANTS {
            store.transaction(|txn| {
                for number in 0..ACCOUNTS {
                    self.accounts.insert(txn, &account(tenant, number))?;
                }
                self.entries
                    .insert_with(txn, tenant, |number| Entry {
                        tenant,
                        number,
                        text: "first".into(),
                    })
                    .map(drop)
            })?;
        }
        Ok(())
    }

    /// Checks in one snapshot that each account is there once, by every way, and that no money is lost.
    fn check(&self, store: &Store) -> Result<()> {
        let txn = store.read()?;
        let expected = u64::from(TENANTS) * ACCOUNTS;
        let rows = self.accounts.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(rows.len() as u64, expected);
        assert!(rows.is_sorted_by_key(|row| (row.tenant, row.number)));
        assert_eq!(self.accounts.all(&txn).count()?, expected);
        let sum: i64 = rows.iter().map(|row| row.balance).sum();
        assert_eq!(sum, 100 * i64::from(TENANTS) * 25);
        let mut of_towns = 0;
        for town in ["t0", "t1", "t2", "t3", "t4"] {
            let count = self.accounts.find_by_town(&txn, town).count()?;
            assert_eq!(count, self.accounts.find_by_town(&txn, town).rows().count() as u64);
            let totals = self.accounts.aggregate_by_town(&txn, town)?;
            assert_eq!(totals.count, count);
            of_towns += totals.sum_balance;
        }
        assert_eq!(of_towns, i128::from(sum));
        assert_eq!(self.accounts.aggregate(&txn)?.sum_balance, i128::from(sum));
        for tenant in [0, 19, 20, 39] {
            let own = self.accounts.find_by_tenant(&txn, tenant).count()?;
            assert_eq!(own, ACCOUNTS, "of tenant {tenant}");
            let code = u64::from(tenant) * 1000;
            assert_eq!(self.accounts.get_by_code(&txn, code)?.map(|row| row.tenant), Some(tenant));
        }
        let report = self.accounts.verify(&txn).run()?;
        assert!(report.is_clean(), "{report:?}");
        assert!(self.entries.verify(&txn).run()?.is_clean());
        Ok(())
    }

    /// Moves money between two accounts of any tenants.
    fn transfer(&self, store: &Store, random: &mut u64) -> Result<()> {
        let mut below = |limit: u64| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*random >> 33) % limit
        };
        let mut any = || (below(u64::from(TENANTS)) as u32, below(ACCOUNTS));
        let (from, to, amount) = (any(), any(), i64::from(below(50) as u32));
        store.transaction(|txn| {
            self.accounts.update(txn, from.0, from.1, |row| row.balance -= amount)?;
            self.accounts.update(txn, to.0, to.1, |row| row.balance += amount)?;
            self.entries.insert_with(txn, from.0, |number| Entry {
                tenant: from.0,
                number,
                text: format!("{amount}"),
            })?;
            Ok(())
        })
    }
}

/// Runs writers and readers until `body` ends, and checks the store.
fn beside(store: &Store, tables: &Tables, body: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let (stop, written, read) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        for seed in 1..=2 {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                let mut random = seed;
                while !stop.load(Relaxed) {
                    tables.transfer(store, &mut random).expect("a transfer");
                    written.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                tables.check(store).expect("a check");
                read.fetch_add(1, Relaxed);
            }
        });
        let outcome = body();
        stop.store(true, Relaxed);
        outcome
    });
    outcome?;
    tables.check(store)?;
    Ok((written.into_inner(), read.into_inner()))
}

#[test]
fn readers_and_writers_continue_beside_moves_and_see_each_row_once() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().open(dir.path().join("store"))?, options().in_memory()?] {
        let tables = Tables::open(&store)?;
        let _worker = store.start_index_worker()?;
        tables.fill(&store)?;
        let before = store.read()?;
        let (written, read) = beside(&store, &tables, || {
            for _ in 0..3 {
                for (range, to) in [(10u32..30, "c"), (0..25, "b"), (5..35, "a")] {
                    let moved = store.move_range("accounts", range, to).run()?;
                    assert!(moved.rows > 0, "{moved}");
                }
            }
            Ok(())
        })?;
        assert!(written > 0 && read > 0);
        let rows = tables.accounts.all(&before).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(rows.len(), 1000, "a snapshot from before all moves");
        assert!(rows.iter().all(|row| row.balance == 100));
        drop(before);
        // The numbers of `insert_with` continue where the rows are.
        let txn = store.read()?;
        let entries = tables.entries.all(&txn).count()?;
        assert_eq!(entries, u64::from(TENANTS) + written);
        assert_eq!(store.moves()?, []);
        assert_eq!(tables.accounts.shard_of(&store, 34)?.name(), "a");
    }
    let store = Store::open(dir.path().join("store"))?;
    Tables::open(&store)?.check(&store)?;
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn eventual_entries_are_right_after_moves() -> Result<()> {
    let store = options().in_memory()?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let mut random = 5;
    for round in 0..20 {
        for _ in 0..20 {
            tables.transfer(&store, &mut random)?;
        }
        // The queue has messages about the rows that move.
        store.move_range("accounts", 10u32..30, ["c", "a", "b"][round % 3]).run()?;
    }
    tables.accounts.drain(&store, u64::MAX)?;
    let txn = store.read()?;
    for row in tables.accounts.all(&txn).rows() {
        let Account { tenant, number, balance, .. } = row?;
        let found = tables.accounts.find_by_tenant_balance(&txn, tenant, balance).stale();
        let mut numbers = found.rows().map(|row| row.map(|row| row.number));
        assert!(numbers.any(|found| found.is_ok_and(|found| found == number)));
    }
    let entries = tables.accounts.find_by_tenant(&txn, 15).count()?;
    assert_eq!(entries, ACCOUNTS);
    let report = tables.accounts.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

#[test]
fn keys_that_move_offline_are_read_only() -> Result<()> {
    let store = options().in_memory()?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let mut refused = 0;
    let balance = |tenant: u32| {
        store.transaction(|txn| {
            tables.accounts.update(txn, tenant, 3, |row| row.balance += 1).map(drop)
        })
    };
    store
        .move_range("accounts", 10u32..20, "c")
        .offline()
        .progress(|at| {
            if at.unit != "rows" {
                balance(12).expect("the keys are switched");
                return;
            }
            refused += 1;
            let error = balance(12).expect_err("the key is being moved");
            assert!(matches!(error, Error::ShardReadOnly { .. }));
            let text = error.to_string();
            assert!(text.contains("(12, 3)") && text.contains("`a` to shard `c`"), "{text}");
            let inserted = store.transaction(|txn| tables.accounts.insert(txn, &account(11, 99)));
            assert!(matches!(inserted, Err(Error::ShardReadOnly { .. })));
            let kept = store.transaction(|txn| {
                // The row would get a key that is being moved. Nothing is half changed.
                let changed = tables.accounts.update(txn, 5, 3, |row| {
                    (row.tenant, row.number) = (12, 99);
                });
                assert!(matches!(changed, Err(Error::ShardReadOnly { .. })));
                tables.accounts.get(txn, 5, 3)
            });
            assert_eq!(kept.expect("a transaction"), Some(account(5, 3)));
            let txn = store.read().expect("a transaction");
            let own = tables.accounts.find_by_tenant(&txn, 12).count();
            assert_eq!(own.expect("a count"), ACCOUNTS, "reads continue");
            balance(7).expect("other keys can be written");
            balance(7).expect("other keys can be written");
        })
        .run()?;
    assert!(refused > 0);
    balance(12)
}

#[test]
fn slots_and_keys_of_a_list_move() -> Result<()> {
    let store =
        options().map("list", ShardMap::list().to("a", ["x"]).otherwise("b")).in_memory()?;
    let events = EventRepository::open(&store)?;
    for id in 0..3000 {
        store.transaction(|txn| events.insert(txn, &Event { id, kind: (id % 7) as u8 }))?;
    }
    for (slots, to) in [(0..1024, "c"), (512..4096, "a"), (0..2000, "b"), (0..4096, "c")] {
        let moved = store.move_slots("events", slots, to).run()?;
        assert!(moved.rows > 0);
        let txn = store.read()?;
        assert_eq!(events.all(&txn).count()?, 3000);
        assert_eq!(events.find_by_kind(&txn, 3).rows().count(), 428 + 1);
        assert!(events.verify(&txn).run()?.is_clean());
        assert_eq!(events.get(&txn, 77)?, Some(Event { id: 77, kind: 0 }));
    }
    let txn = store.read()?;
    assert_eq!(events.all(&txn).count()?, 3000);
    assert_eq!(txn.stats().shards, 1, "all slots are in one shard");
    Ok(())
}

/// Returns copies of the store's directory at each report of progress of a move.
fn interrupted(dir: &tempfile::TempDir) -> Result<Vec<std::path::PathBuf>> {
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let mut copies = Vec::new();
    let moved = store.move_range("accounts", 10u32..30, "c").progress(|_| {
        let to = dir.path().join(format!("copy{}", copies.len()));
        copy(&path, &to).expect("copied");
        copies.push(to);
    });
    moved.run()?;
    assert!(copies.len() > 2);
    Ok(copies)
}

#[test]
fn an_interrupted_move_is_continued_or_cancelled() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for (at, path) in interrupted(&dir)?.into_iter().enumerate() {
        let store = Store::open(&path)?;
        assert_eq!(store.moves()?.len(), 1);
        let tables = Tables::open(&store)?;
        let begun = store.moves()?.remove(0);
        tables.check(&store)?;
        let first: u32 = begun.start.expect("a first key").parse().expect("a number");
        let to = if begun.from == "b" { "a" } else { "b" };
        let other = store.move_range("accounts", first..=first, to).run();
        assert!(reason(other).contains(&format!("move {}", begun.id)));
        // The rows can be written before the move ends.
        store.transaction(|txn| {
            tables.accounts.update(txn, 12, 0, |row| row.balance -= 7)?;
            tables.accounts.update(txn, 22, 0, |row| row.balance += 7).map(drop)
        })?;
        tables.check(&store)?;
        let shown = store.moves()?.remove(0).to_string();
        assert!(shown.contains("`accounts` from `a` to `c`") || shown.contains("from `b` to `c`"));
        let is_switched = begun.state == MoveState::CleaningUp;
        if is_switched {
            assert!(reason(store.cancel_move(begun.id)).contains("resume"));
        }
        if is_switched || at % 2 == 0 {
            let moved = store.resume_move(begun.id).run()?;
            assert!(is_switched || moved.rows > 0);
        } else {
            store.cancel_move(begun.id)?;
        }
        assert_eq!(store.moves()?, []);
        tables.check(&store)?;
        store.move_range("accounts", 0u32.., "b").run()?;
        tables.check(&store)?;
        drop((store, tables));
        let store = Store::open(&path)?;
        let tables = Tables::open(&store)?;
        tables.check(&store)?;
        let txn = store.read()?;
        assert_eq!(tables.accounts.all(&txn).count()?, 1000);
        assert_eq!(txn.stats().shards, 1);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_shard_that_is_older_than_a_move_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    drop((store, tables));
    copy(&path.join("a"), &dir.path().join("old")).expect("copied");
    let store = Store::open(&path)?;
    let tables = Tables::open(&store)?;
    store.move_range("accounts", 10u32..20, "c").run()?;
    drop((store, tables));

    // The old files of `a` have the rows that `c` has now.
    std::fs::rename(path.join("a"), dir.path().join("new")).expect("moved");
    copy(&dir.path().join("old"), &path.join("a")).expect("copied");
    // The shard is not opened, so no row is found twice.
    let store = Store::open(&path)?;
    let unavailable: Vec<_> =
        store.unavailable_shards().iter().map(|(shard, _)| shard.to_string()).collect();
    assert_eq!(unavailable, ["a"], "{:?}", store.unavailable_shards());
    drop(store);

    std::fs::remove_dir_all(path.join("a")).expect("removed");
    std::fs::rename(dir.path().join("new"), path.join("a")).expect("moved");
    let store = Store::open(&path)?;
    Tables::open(&store)?.check(&store)
}

#[test]
fn a_move_that_is_not_possible_changes_nothing() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path().join("store"))?;
    let accounts = AccountRepository::open(&store)?;
    let entries = EntryRepository::open(&store)?;
    drop(entries);
    let refused = |outcome: Result<Moved>, part: &str| {
        let text = reason(outcome);
        assert!(text.contains(part), "{text}");
    };
    refused(store.move_range("accounts", 1u32..2, "b").run(), "table `entries`");
    let _entries = EntryRepository::open(&store)?;
    refused(store.move_range("accounts", 1u32..2, "z").run(), "no shard `z`");
    refused(store.move_range("accounts", 1u64..2, "b").run(), "not `u64`");
    refused(store.move_range("accounts", 2u32..2, "b").run(), "no keys");
    refused(store.move_range("unknown", 1u32..2, "b").run(), "no such map");
    refused(store.move_range("events", 1u64..2, "b").run(), "move_slots");
    refused(store.resume_move(7).run(), "no such move");
    refused(store.move_slots("accounts.unknown", .., "b").run(), "no such map");
    let txn = store.write()?;
    let inside = store.move_range("accounts", 1u32..2, "b").run();
    assert!(matches!(inside, Err(Error::WriteInProgress)));
    drop(txn);
    assert_eq!(store.moves()?, []);
    assert_eq!(accounts.shard_of(&store, 1)?.name(), "a");
    let relaxed = options().durability(Durability::Relaxed).open(dir.path().join("relaxed"))?;
    let _tables = Tables::open(&relaxed)?;
    let relaxed = relaxed.move_range("accounts", 1u32..2, "b").run();
    assert!(matches!(relaxed, Err(Error::NotOffered { .. })));
    Ok(())
}

#[test]
fn bulk_loads_beside_moves_lose_no_row() -> Result<()> {
    let store = options().in_memory()?;
    let tables = Tables::open(&store)?;
    let events = EventRepository::open(&store)?;
    tables.fill(&store)?;
    let (loads, moves) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let begun = Instant::now();
            // The loads follow each other until moves have ended beside them.
            while loads.load(Relaxed) < 30 || moves.load(Relaxed) < 3 {
                assert!(begun.elapsed() < Duration::from_mins(2), "a move does not end");
                let part = loads.fetch_add(1, Relaxed);
                let rows = (0..100).map(move |id| Event { id: part * 100 + id, kind: 1 });
                events.bulk_load(&store, rows).run().expect("a load");
            }
        });
        while !loading.is_finished() {
            let to = ["a", "b", "c"][moves.load(Relaxed) as usize % 3];
            store.move_slots("events", 500..3000, to).run().expect("a move");
            moves.fetch_add(1, Relaxed);
        }
    });
    let (txn, rows) = (store.read()?, loads.into_inner() * 100);
    assert_eq!(events.all(&txn).count()?, rows);
    assert_eq!(events.find_by_kind(&txn, 1).rows().count() as u64, rows);
    assert!(events.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn pages_on_both_sides_of_a_switch_miss_and_repeat_no_row() -> Result<()> {
    for is_offline in [false, true] {
        let store = options().in_memory()?;
        let tables = Tables::open(&store)?;
        tables.fill(&store)?;
        for size in [20, 150, 400] {
            let whole = |store: &Store| -> Result<Vec<_>> {
                tables.accounts.by_town(&store.read()?).keys().collect()
            };
            let expected = whole(&store)?;
            let (mut found, mut cursor): (Vec<_>, Option<index_table::Cursor>) = Default::default();
            // A page in each step of the moves: each begins where the last page ended.
            let mut next_page = || {
                let txn = store.read().expect("a transaction");
                let scan = tables.accounts.by_town(&txn);
                let page = match &cursor {
                    Some(cursor) => scan.after(cursor).page(size),
                    None => scan.page(size),
                };
                let page = page.expect("a page");
                found.extend(page.items.iter().map(|row| (row.tenant, row.number)));
                cursor = page.next;
                cursor.is_some()
            };
            let mut is_more = true;
            for round in 0.. {
                if !is_more {
                    break;
                }
                let to = ["c", "b", "a"][round % 3];
                let step = |_| is_more = is_more && next_page();
                let moved = store.move_range("accounts", 5u32..35, to).progress(step);
                if is_offline {
                    moved.offline().run()?
                } else {
                    moved.run()?
                };
            }
            assert_eq!(found, expected, "pages of {size}");
        }
    }
    Ok(())
}

#[test]
fn a_table_that_is_created_during_a_move_moves_too() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path())?;
    let accounts = AccountRepository::open(&store)?;
    for tenant in 0..TENANTS {
        store.transaction(|txn| accounts.insert(txn, &account(tenant, 1)))?;
    }
    let entry = |tenant, number| Entry { tenant, number, text: "first".to_owned() };
    let mut entries = None;
    let moved = store
        .move_range("accounts", ..20u32, "c")
        .progress(|_| {
            if entries.is_some() {
                return;
            }
            let created = EntryRepository::open(&store).expect("a repository");
            let inserted = store
                .transaction(|txn| (0..40).try_for_each(|it| created.insert(txn, &entry(it, 1))));
            inserted.expect("inserted");
            entries = Some(created);
        })
        .run()?;
    assert_eq!(moved.rows, 40);
    let entries = entries.expect("the table was created");
    let check = |store: &Store, entries: &EntryRepository| -> Result<()> {
        let txn = store.read()?;
        for tenant in 0..40 {
            assert_eq!(entries.get(&txn, tenant, 1)?, Some(entry(tenant, 1)));
            assert_eq!(entries.find_by_tenant(&txn, tenant).count()?, 1);
        }
        drop(txn);
        assert!(store.verify()?.is_clean());
        Ok(())
    };
    check(&store, &entries)?;
    drop((accounts, entries, store));
    let store = Store::open(dir.path())?;
    assert!(store.moves()?.is_empty());
    let _accounts = AccountRepository::open(&store)?;
    check(&store, &EntryRepository::open(&store)?)
}
