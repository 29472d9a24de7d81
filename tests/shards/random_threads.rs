//! Random moves, splits, merges and rebalancing, beside threads that read and write. Each writer has a model of its rows.
//! The threads pause when the store is opened again, or killed, and continue in the opened store.

use std::{
    collections::BTreeMap,
    fs, mem,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{online::Random, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = tenant)]
#[index(town)]
#[index(code, unique, scope = "global")]
#[aggregate(sum = [balance])]
struct Account {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
    balance: i64,
    code: u64,
}

const TENANTS: u32 = 32;
const WRITERS: u64 = 2;

/// The number of accounts with money, which are never deleted.
const FIRST: u64 = 4;
const MONEY: i64 = 100;

#[derive(Debug, Clone)]
enum Change {
    /// Moves a range of tenants to a shard.
    Move {
        start: u32,
        length: u32,
        to: usize,
        is_offline: bool,
    },
    /// Moves slots of the global index to a shard.
    MoveEntries {
        start: u16,
        length: u16,
        to: usize,
    },
    /// Moves everything from one shard to another.
    Merge {
        from: usize,
        to: usize,
    },
    Rebalance,
    RebalanceEntries,
    Add,
    /// Merges a shard into others, and removes it.
    Remove(usize),
    /// Closes the store, and opens it again.
    Reopen,
    /// Continues with the files that a killed process would leave.
    Kill,
    /// Detaches a shard, renames its directory, and attaches it again.
    Reattach(usize),
}

impl Change {
    /// Whether the threads pause during the change.
    const fn is_pause(&self) -> bool {
        matches!(self, Self::Reopen | Self::Kill | Self::Reattach(_))
    }
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..TENANTS, 1..20_u32, 0..8_usize, prop::bool::weighted(0.2)).prop_map(
            |(start, length, to, is_offline)| Change::Move { start, length, to, is_offline }
        ),
        2 => (0..4096_u16, 1..2000_u16, 0..8_usize)
            .prop_map(|(start, length, to)| Change::MoveEntries { start, length, to }),
        1 => (0..8_usize, 0..8_usize).prop_map(|(from, to)| Change::Merge { from, to }),
        2 => Just(Change::Rebalance),
        1 => Just(Change::RebalanceEntries),
        1 => Just(Change::Add),
        1 => (0..8_usize).prop_map(Change::Remove),
        2 => Just(Change::Reopen),
        1 => Just(Change::Kill),
        1 => (0..8_usize).prop_map(Change::Reattach),
    ]
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..16u32).to("b", 16u32..);
    Store::options().shard("a", "a").shard("b", "b").map("accounts", map)
}

fn account(tenant: u32, number: u64, balance: i64) -> Account {
    let code = u64::from(tenant) * 1_000_000 + number;
    Account { tenant, number, town: format!("t{}", number % 5), balance, code }
}

/// Changes the shards or the maps.
fn run(store: &Store, change: &Change, number: usize) -> Result<()> {
    let names: Vec<String> = store.shard_ids().iter().map(|it| it.name().to_owned()).collect();
    let name = |at: usize| &names[at % names.len()];
    let onto = |map: &str, onto: &[String]| {
        store.rebalance(map).onto(onto).tolerance(5).plan()?.run().map(drop)
    };
    match change {
        Change::Move { start, length, to, is_offline } => {
            let moving = store.move_range("accounts", *start..*start + *length, name(*to));
            let moved = if *is_offline { moving.offline().run() } else { moving.run() };
            moved.map(drop)
        }
        Change::MoveEntries { start, length, to } => {
            let slots = *start..(*start + *length).min(4096);
            store.move_slots("accounts.code", slots, name(*to)).run().map(drop)
        }
        Change::Merge { from, to } => {
            let own = store.ranges("accounts")?.into_iter().filter(|it| it.shard == *name(*from));
            for range in own {
                let key = |text: Option<String>| text.and_then(|text| text.parse::<u32>().ok());
                let (start, end) = (key(range.start).unwrap_or(0), key(range.end));
                let moving = match end {
                    Some(end) => store.move_range("accounts", start..end, name(*to)),
                    None => store.move_range("accounts", start.., name(*to)),
                };
                moving.run()?;
            }
            Ok(())
        }
        Change::Rebalance => onto("accounts", &names),
        Change::RebalanceEntries => onto("accounts.code", &names),
        Change::Add if names.len() < 6 => {
            let name = format!("n{number}");
            store.add_shard(&name, &name).map(drop)
        }
        Change::Remove(shard) if names.len() > 2 => {
            let removed = name(*shard);
            let others: Vec<_> = names.iter().filter(|it| *it != removed).cloned().collect();
            onto("accounts", &others)?;
            onto("accounts.code", &others)?;
            store.remove_shard(removed)
        }
        Change::Add | Change::Remove(_) | Change::Reopen | Change::Kill | Change::Reattach(_) => {
            Ok(())
        }
    }
}

/// The rows of the writers: their texts, by primary key.
type Rows = BTreeMap<(u32, u64), String>;

/// Changes rows of its own, and moves money between the accounts of all, until `done`. `phase` is the number of pauses so
/// far.
fn write(
    (store, accounts): (&Store, &AccountRepository),
    (writer, phase): (u64, u8),
    own: &mut Rows,
    (done, commits): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    let mut random = Random::new(writer as u8 + 10 * phase);
    let mut tenant = move || u32::from(random.below(TENANTS as u16));
    let mut numbers = Random::new(100 + writer as u8 + 10 * phase);
    let mut round = 0;
    while !done.load(Relaxed) {
        round += 1;
        let (one, other) = (tenant(), tenant());
        let number = FIRST + WRITERS * u64::from(numbers.below(20)) + writer;
        let (from, to) = (u64::from(numbers.below(4)) % FIRST, u64::from(numbers.below(4)) % FIRST);
        let is_deleted = own.contains_key(&(one, number)) && numbers.below(2) == 0;
        let text = format!("w{writer} {phase} {round}");
        let written = store.transaction(|txn| {
            accounts.update(txn, one, from, |row| row.balance -= 1)?;
            accounts.update(txn, other, to, |row| row.balance += 1)?;
            if is_deleted {
                accounts.delete(txn, one, number).map(drop)
            } else {
                let row = Account { town: text.clone(), ..account(one, number, 0) };
                accounts.put(txn, &row)
            }
        });
        match written {
            // An offline move refuses commits, and changes nothing.
            Err(Error::ShardReadOnly { .. }) => thread::yield_now(),
            Ok(()) if is_deleted => drop(own.remove(&(one, number))),
            Ok(()) => drop(own.insert((one, number), text)),
            Err(error) => return Err(error),
        }
        commits.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Compares queries of one snapshot with each other, until `done`.
fn read(
    store: &Store,
    accounts: &AccountRepository,
    (done, reads): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    while !done.load(Relaxed) {
        let txn = store.read()?;
        let rows = accounts.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        assert!(
            rows.windows(2)
                .all(|two| { (two[0].tenant, two[0].number) < (two[1].tenant, two[1].number) })
        );
        let balance: i64 = rows.iter().map(|row| row.balance).sum();
        assert_eq!(balance, 0, "money is lost");
        assert_eq!(accounts.all(&txn).count()?, rows.len() as u64);
        assert_eq!(accounts.aggregate(&txn)?.count, rows.len() as u64);
        assert_eq!(accounts.by_code(&txn).rows().count(), rows.len());
        for row in rows.iter().step_by(17) {
            assert_eq!(accounts.get_by_code(&txn, row.code)?.as_ref(), Some(row));
        }
        drop(txn);
        // Each page has a snapshot of its own. The accounts with money are always there, each once.
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let txn = store.read()?;
            let scan = accounts.all(&txn);
            let page = match &cursor {
                Some(cursor) => scan.after(cursor).page(23)?,
                None => scan.page(23)?,
            };
            found.extend(page.items.iter().map(|row| (row.tenant, row.number)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(found.windows(2).all(|two| two[0] < two[1]), "a page repeats rows");
        let first = found.iter().filter(|(_, number)| *number < FIRST).count() as u64;
        assert_eq!(first, u64::from(TENANTS) * FIRST, "a page misses rows");
        reads.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Ends the threads, even if the thread that waits for them panics.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Makes changes beside threads that read and write.
fn work(
    (store, accounts): (&Store, &AccountRepository),
    changes: &[Change],
    (first, phase): (usize, u8),
    own: &mut [Rows],
) -> Result<()> {
    let done = AtomicBool::new(false);
    let (commits, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..)
            .zip(own)
            .map(|(writer, own)| {
                scope.spawn({
                    let counted = (&done, &commits);
                    move || write((store, accounts), (writer, phase), own, counted)
                })
            })
            .collect();
        let reader = scope.spawn(|| read(store, accounts, (&done, &reads)));
        let end = Ends(&done);
        let outcome = (first..).zip(changes).try_for_each(|(number, change)| {
            let (written, seen) = (commits.load(Relaxed), reads.load(Relaxed));
            run(store, change, number)?;
            // All threads work between two changes.
            while commits.load(Relaxed) < written + 2 || reads.load(Relaxed) == seen {
                if reader.is_finished() || writers.iter().any(thread::ScopedJoinHandle::is_finished)
                {
                    break;
                }
                thread::yield_now();
            }
            Ok(())
        });
        drop(end);
        for writer in writers {
            writer.join().expect("a writer has panicked")?;
        }
        reader.join().expect("the reader has panicked")?;
        outcome
    })
}

/// Compares the rows with those of the writers.
fn check(store: &Store, accounts: &AccountRepository, own: &[Rows]) -> Result<()> {
    let txn = store.read()?;
    let rows = accounts.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    let (first, written): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.number < FIRST);
    assert_eq!(first.len() as u64, u64::from(TENANTS) * FIRST);
    assert_eq!(first.iter().map(|row| row.balance).sum::<i64>(), 0);
    let written: Rows =
        written.into_iter().map(|row| ((row.tenant, row.number), row.town)).collect();
    assert_eq!(written, own.iter().flatten().map(|(key, town)| (*key, town.clone())).collect());
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(store.moves()?, []);
    Ok(())
}

/// The directories of shards that were renamed, by the names of the shards.
type Places = BTreeMap<String, String>;

/// Detaches a shard, renames its directory, and attaches it again.
fn reattach(
    store: &Store,
    (path, places): (&Path, &mut Places),
    at: usize,
    number: usize,
) -> Result<()> {
    let ids = store.shard_ids();
    let name = ids[at % ids.len()].name().to_owned();
    match store.detach_shard(&name) {
        // All entries of the global index are in this shard.
        Err(Error::ShardRefused { reason, .. }) if reason.contains("`accounts.code`") => {
            return Ok(());
        }
        detached => detached?,
    }
    let (place, next) = (places.get(&name).unwrap_or(&name), format!("attached.{number}"));
    fs::rename(path.join(place), path.join(&next)).expect("renamed");
    store.attach_shard(&name, &next)?;
    places.insert(name, next);
    Ok(())
}

/// Makes changes in a store on disk, or in memory without a path.
fn compare(mut store: Store, mut path: Option<PathBuf>, changes: &[Change]) -> Result<()> {
    let mut accounts = AccountRepository::open(&store)?;
    let all = || (0..TENANTS).flat_map(|tenant| (0..FIRST).map(move |number| (tenant, number)));
    let money = |number: u64| if number.is_multiple_of(2) { MONEY } else { -MONEY };
    store.transaction(|txn| {
        all().try_for_each(|(tenant, number)| {
            accounts.insert(txn, &account(tenant, number, money(number)))
        })
    })?;
    let mut own = vec![Rows::new(); WRITERS as usize];
    let (mut number, mut places) = (0, Places::new());
    for (phase, part) in (0_u8..).zip(changes.split_inclusive(Change::is_pause)) {
        work((&store, &accounts), part, (number, phase), &mut own)?;
        number += part.len();
        check(&store, &accounts, &own)?;
        let Some(own_path) = &mut path else { continue };
        match part.last() {
            Some(Change::Reattach(at)) if store.shard_ids().len() > 1 => {
                reattach(&store, (own_path, &mut places), *at, number)?;
            }
            Some(pause @ (Change::Reopen | Change::Kill)) => {
                if matches!(pause, Change::Kill) {
                    let next = own_path.with_file_name(format!("killed.{number}"));
                    copy(own_path, &next).expect("copied");
                    *own_path = next;
                }
                drop((mem::replace(&mut store, options().in_memory()?), accounts));
                store = Store::open(&*own_path)?;
                accounts = AccountRepository::open(&store)?;
            }
            _ => {}
        }
        check(&store, &accounts, &own)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn threads_beside_random_moves_in_memory_neither_lose_nor_repeat_rows(
        changes in prop::collection::vec(change(), 1..12),
    ) {
        compare(options().in_memory().expect("a store"), None, &changes).expect("no error");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    #[test]
    fn threads_beside_random_moves_on_disk_neither_lose_nor_repeat_rows(
        changes in prop::collection::vec(change(), 1..12),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let store = options().open(&path).expect("a store");
        compare(store, Some(path), &changes).expect("no error");
    }
}

#[test]
fn threads_continue_after_each_way_to_pause_the_store() {
    let moving = |start, to| Change::Move { start, length: 9, to, is_offline: false };
    let changes = [
        moving(3, 1),
        Change::Reopen,
        Change::Add,
        moving(12, 2),
        Change::Kill,
        moving(20, 0),
        Change::Reattach(1),
        Change::RebalanceEntries,
        Change::Reattach(1),
        Change::Rebalance,
        Change::Reattach(0),
        Change::Kill,
        Change::Merge { from: 1, to: 0 },
        Change::Remove(1),
        Change::Reopen,
        Change::RebalanceEntries,
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    compare(options().open(&path).expect("a store"), Some(path), &changes).expect("no error");
}
