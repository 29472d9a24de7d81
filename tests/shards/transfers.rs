//! Transfers between accounts in different shards: the sum never changes in a snapshot of all shards.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use index_table::{Durability, Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = branch)]
#[index(balance, include = [changes])]
struct Account {
    #[primary_key]
    branch: u8,
    #[primary_key]
    number: u8,
    balance: i64,
    changes: u32,
}

const BRANCHES: u8 = 5;
const ACCOUNTS: u8 = 4;
const SUM: i64 = 100 * BRANCHES as i64 * ACCOUNTS as i64;

fn options() -> index_table::Options {
    let map = (1..BRANCHES).fold(ShardMap::list().to("s0", [0_u8]), |map, branch| {
        map.to(format!("s{branch}"), [branch])
    });
    let options = Store::options().map("accounts", map);
    (0..BRANCHES)
        .fold(options, |options, branch| options.shard(format!("s{branch}"), format!("s{branch}")))
}

fn fill(store: &Store) -> Result<AccountRepository> {
    let accounts = AccountRepository::open(store)?;
    store.transaction(|txn| {
        for branch in (0..BRANCHES).rev() {
            for number in 0..ACCOUNTS {
                accounts.insert(txn, &Account { branch, number, balance: 100, changes: 0 })?;
            }
        }
        Ok(())
    })?;
    Ok(accounts)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u8) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8 % end
    }
}

/// Moves money between two accounts of any branches. Some transfers are refused.
fn transfer(store: &Store, accounts: &AccountRepository, random: &mut Random) -> Result<()> {
    let mut account = || (random.below(BRANCHES), random.below(ACCOUNTS));
    let (from, to) = (account(), account());
    let amount = i64::from(random.below(40));
    let outcome = store.transaction(|txn| {
        let mut is_covered = false;
        accounts.update(txn, from.0, from.1, |account| {
            account.balance -= amount;
            account.changes += 1;
            is_covered = account.balance >= 0;
        })?;
        let kept = txn.nested(|txn| {
            accounts.update(txn, to.0, to.1, |account| {
                account.balance += amount;
                account.changes += 1;
            })
        })?;
        assert!(kept);
        if is_covered { Ok(()) } else { Err(Error::WriteInProgress) }
    });
    match outcome {
        Err(Error::WriteInProgress) => Ok(()),
        outcome => outcome,
    }
}

/// Returns the sum of all balances, from the index, and the changes of all accounts, which must be in pairs.
fn look(store: &Store, accounts: &AccountRepository) -> Result<()> {
    let txn = store.read()?;
    let (mut sum, mut changes, mut count) = (0, 0, 0);
    for entry in accounts.by_balance(&txn).entries() {
        let entry = entry?;
        sum += entry.balance;
        changes += entry.changes;
        count += 1;
    }
    assert_eq!((sum, changes % 2, count), (SUM, 0, i32::from(BRANCHES) * i32::from(ACCOUNTS)));
    Ok(())
}

fn run(store: &Store, transfers: u32) -> Result<()> {
    let accounts = fill(store)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (1..4_u64)
            .map(|seed| {
                let accounts = &accounts;
                scope.spawn(move || {
                    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    (0..transfers).try_for_each(|_| transfer(store, accounts, &mut random))
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::SeqCst) {
                look(store, &accounts)?;
                looks += 1;
            }
            Ok::<_, Error>(looks)
        });
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        let looks: u32 = reader.join().expect("no panic")?;
        assert!(looks > 0);
        written.into_iter().try_for_each(|written| written.expect("no panic"))
    })?;
    look(store, &accounts)?;
    assert!(accounts.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn the_sum_of_accounts_never_changes_in_memory() -> Result<()> {
    run(&options().in_memory()?, 2000)
}

#[test]
fn the_sum_of_accounts_never_changes_on_disk() -> Result<()> {
    for durability in [Durability::Journal, Durability::None, Durability::Relaxed] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options().durability(durability).open(dir.path())?;
        run(&store, 300)?;
        drop(store);
        let store = Store::open(dir.path())?;
        look(&store, &AccountRepository::open(&store)?)?;
    }
    Ok(())
}
