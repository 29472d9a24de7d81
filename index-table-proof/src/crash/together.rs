//! Processes that are killed while threads commit transactions of several shards. The shards have one journal.

pub(crate) mod growth;
pub(super) mod online;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use index_table::{CommitNumber, IndexTable, Options, ReadTxn, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};
use crate::sharded::{SHARDS, commit_in_rounds, compare_rounds, open as open_shards, require_all};

/// The number of threads that commit.
pub(super) const THREADS: u8 = 3;

/// The number of transactions of a thread whose parts are not deleted.
const KEPT: u32 = 20;

/// The row that a transaction inserts in a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parts", shard_by = shard)]
#[indexes((thread, number), (number, thread, shard, unique, scope = "global", name = "place"))]
struct Part {
    #[primary_key]
    shard: u8,
    #[primary_key]
    thread: u8,
    #[primary_key]
    number: u32,
    text: String,
}

/// The account of a shard. The sum of the balances is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = shard, shard_map = "parts")]
#[index(balance)]
struct Account {
    #[primary_key]
    shard: u8,
    balance: i64,
    transfers: u64,
}

pub(crate) struct Tables {
    store: Store,
    parts: PartRepository,
    accounts: AccountRepository,
}

/// Returns the shards that a transaction writes, in order, and the amount that it transfers from the first to the last.
fn plan(thread: u8, number: u32) -> (Vec<u8>, i64) {
    let mixed = (u64::from(number) << 8 | u64::from(thread)).wrapping_add(1);
    let mixed = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
    let chosen = mixed % 7 + 1;
    let mut shards: Vec<u8> = (0..SHARDS).filter(|shard| chosen >> shard & 1 == 1).collect();
    if mixed >> 8 & 1 == 1 {
        shards.reverse();
    }
    (shards, i64::from((mixed >> 9) as u8 % 50))
}

fn part(shard: u8, thread: u8, number: u32) -> Part {
    let text = "x".repeat((number % 7 * 400) as usize);
    Part { shard, thread, number, text }
}

/// Returns the path of the store in the directory of a scenario.
pub(super) fn store_path(path: &Path) -> PathBuf {
    path.join("together")
}

/// Returns true if the directory of a scenario has a store.
pub(crate) fn exists(path: &Path) -> bool {
    store_path(path).exists()
}

fn open(path: &Path) -> Result<Tables> {
    open_with(path, crate::journal())
}

/// Opens the store with these options.
pub(super) fn open_with(path: &Path, options: Options) -> Result<Tables> {
    Tables::new(open_shards(&store_path(path), options, "parts")?)
}

/// Opens the store for reading, while another process writes.
pub(super) fn open_read_only(path: &Path) -> Result<Tables> {
    Tables::new(Store::options().read_only(true).open(store_path(path))?)
}

/// Returns the number of committed transactions of a store that no process has open.
pub(super) fn count(path: &Path) -> Result<u64> {
    let tables = open(path)?;
    let counts = tables.counts(&tables.store.read()?)?;
    Ok(counts.into_iter().map(u64::from).sum())
}

impl Tables {
    pub(super) fn new(store: Store) -> Result<Self> {
        require_all(&store)?;
        let (parts, accounts) = (PartRepository::open(&store)?, AccountRepository::open(&store)?);
        Ok(Self { store, parts, accounts })
    }

    /// Returns the number of committed transactions of each thread.
    fn counts(&self, txn: &ReadTxn<'_>) -> Result<Vec<u32>> {
        let mut counts = vec![0; usize::from(THREADS)];
        for key in self.parts.all(txn).keys() {
            let (_, thread, number) = key?;
            let count = &mut counts[usize::from(thread)];
            *count = (*count).max(number + 1);
        }
        Ok(counts)
    }

    fn transfer(&self, txn: &mut WriteTxn<'_>, shard: u8, amount: i64) -> Result<()> {
        let changed = self.accounts.update(txn, shard, |account| {
            account.balance += amount;
            account.transfers += 1;
        })?;
        if changed {
            return Ok(());
        }
        self.accounts.insert(txn, &Account { shard, balance: amount, transfers: 1 })
    }

    fn write(&self, txn: &mut WriteTxn<'_>, thread: u8, number: u32) -> Result<()> {
        let (shards, amount) = plan(thread, number);
        for shard in &shards {
            self.parts.insert(txn, &part(*shard, thread, number))?;
        }
        if let (Some(first), Some(last)) = (shards.first(), shards.last()) {
            self.transfer(txn, *first, -amount)?;
            self.transfer(txn, *last, amount)?;
        }
        if let Some(old) = number.checked_sub(KEPT) {
            for shard in plan(thread, old).0 {
                self.parts.delete(txn, shard, thread, old)?;
            }
        }
        Ok(())
    }

    fn commit(&self, thread: u8, number: u32) -> Result<()> {
        self.store.transaction(|txn| self.write(txn, thread, number))?;
        say("done");
        Ok(())
    }

    /// Commits the next transaction of each thread.
    fn commit_next(&self) -> Result<()> {
        let counts = self.counts(&self.store.read()?)?;
        (0..).zip(counts).try_for_each(|(thread, count)| {
            self.store.transaction(|txn| self.write(txn, thread, count))
        })
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn commit_number(&self) -> Result<CommitNumber> {
        Ok(self.store.read()?.commit_number())
    }

    /// Commits transactions in rounds.
    pub(super) fn write_in_rounds(&self) -> Result<()> {
        let counts = self.counts(&self.store.read()?)?;
        say("open");
        commit_in_rounds(counts, |thread, number| {
            self.commit(thread, number)?;
            self.check_sum()
        })
    }

    /// Checks the rows, and returns the number of their transactions.
    pub(super) fn check(&self) -> Result<std::result::Result<u64, String>> {
        let txn = self.store.read()?;
        let counts = self.counts(&txn)?;
        if let Err(wrong) = compare_rounds(&counts) {
            return Ok(Err(wrong));
        }
        let mut expected = BTreeSet::new();
        let mut accounts = vec![(0, 0_u64); usize::from(SHARDS)];
        for (thread, count) in (0..).zip(&counts) {
            for number in 0..*count {
                let (shards, amount) = plan(thread, number);
                for (shard, amount) in shards
                    .first()
                    .zip(Some(-amount))
                    .into_iter()
                    .chain(shards.last().zip(Some(amount)))
                {
                    let account = &mut accounts[usize::from(*shard)];
                    *account = (account.0 + amount, account.1 + 1);
                }
                if number + KEPT >= *count {
                    expected.extend(shards.into_iter().map(|shard| (shard, thread, number)));
                }
            }
        }
        let rows = self.parts.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        let expected =
            expected.into_iter().map(|(shard, thread, number)| part(shard, thread, number));
        if !rows.into_iter().eq(expected) {
            return Ok(Err(format!("a part of a transaction: {counts:?}")));
        }
        let rows = self.parts.by_place(&txn).rows().collect::<Result<Vec<_>>>()?;
        if rows.len() as u64 != self.parts.all(&txn).count()? {
            return Ok(Err(format!("{} rows by the global index: {counts:?}", rows.len())));
        }
        for (shard, (balance, transfers)) in (0..SHARDS).zip(accounts) {
            let found = self.accounts.get(&txn, shard)?;
            let expected = Account { shard, balance, transfers };
            if found.clone().unwrap_or(Account { balance: 0, transfers: 0, ..expected.clone() })
                != expected
            {
                return Ok(Err(format!("{found:?} and not {expected:?} after {counts:?}")));
            }
        }
        for report in [self.parts.verify(&txn).run()?, self.accounts.verify(&txn).run()?] {
            if !report.is_clean() {
                return Ok(Err(report.to_string()));
            }
        }
        Ok(Ok(counts.into_iter().map(u64::from).sum()))
    }

    /// Checks that a snapshot has no part of a transaction.
    fn check_sum(&self) -> Result<()> {
        let txn = self.store.read()?;
        let balances = self.accounts.all(&txn).rows().map(|row| Ok(row?.balance));
        let sum: i64 = balances.sum::<Result<i64>>()?;
        if sum != 0 {
            println!("error: the sum of a snapshot is {sum}");
        }
        Ok(())
    }
}

/// Commits transactions in rounds.
pub(super) fn write(path: &Path) -> Result<()> {
    open(path)?.write_in_rounds()
}

/// Checks that the acknowledged transactions of each thread are present in all of their shards. Each killed process (there
/// may be two) may have committed one more transaction for each thread.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let tables = open(path).map_err(|error| error.to_string())?;
    let count = tables.check().map_err(|error| error.to_string())??;
    known.find(count, 2 * u64::from(THREADS))
}

/// Commits the next transaction of each thread, and checks everything again.
pub(crate) fn go_on(path: &Path) -> Result<(), Failure> {
    let continued = || {
        let tables = open_with(path, crate::journal().without_archive())?;
        tables.commit_next()?;
        drop(tables);
        open(path)?.check()
    };
    continued().map_err(|error| format!("the next commit: {error}"))?.map(drop)
}
