//! Processes that are killed while threads commit transactions of several shards, with one journal. The entries of a
//! global index are in other shards than their rows.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use index_table::{Error, IndexTable, ReadTxn, Result, ShardMap, ShardedStore, WriteTxn};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};

const SHARDS: u8 = 3;
const THREADS: u8 = 3;

/// How many transactions of a thread have left their parts.
const KEPT: u32 = 20;

/// What a transaction has written in a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parts", shard_by = shard)]
#[index(thread, number)]
#[index(number, thread, shard, unique, scope = "global", name = "place")]
struct Part {
    #[primary_key]
    shard: u8,
    #[primary_key]
    thread: u8,
    #[primary_key]
    number: u32,
    text: String,
}

/// Each shard has one. The sum of all is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = shard, shard_map = "parts")]
#[index(balance)]
struct Account {
    #[primary_key]
    shard: u8,
    balance: i64,
    transfers: u64,
}

struct Tables {
    store: ShardedStore,
    parts: PartRepository,
    accounts: AccountRepository,
}

/// Returns the plan of a thread's transaction: the shards that it writes to, in order, and the amount that it
/// transfers from the first to the last.
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

/// Returns the directory of the store of a scenario.
fn place(path: &Path) -> PathBuf {
    path.join("together")
}

pub(crate) fn is_there(path: &Path) -> bool {
    place(path).exists()
}

fn open(path: &Path) -> Result<Tables> {
    let map = (1..SHARDS)
        .fold(ShardMap::list().to("s0", [0_u8]), |map, shard| map.to(format!("s{shard}"), [shard]));
    let options = ShardedStore::options().options(crate::journal());
    let options = (0..SHARDS).map(|shard| format!("s{shard}")).fold(options, |options, name| {
        let directory = name.clone();
        options.shard(name, directory)
    });
    let store = options.map("parts", map).open(place(path))?;
    if let Some((shard, reason)) = store.unavailable_shards().pop() {
        return Err(Error::ShardUnavailable { shard: shard.name().to_owned(), reason });
    }
    let (parts, accounts) = (PartRepository::open(&store)?, AccountRepository::open(&store)?);
    Ok(Tables { store, parts, accounts })
}

impl Tables {
    /// Returns the number of transactions that each thread has committed.
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

    /// Returns the number of transactions that have written the rows, or a description of wrong rows.
    fn look(&self) -> Result<std::result::Result<u64, String>> {
        let txn = self.store.read()?;
        let counts = self.counts(&txn)?;
        let (least, most) = (counts.iter().min(), counts.iter().max());
        if most > least.map(|least| least + 1).as_ref() {
            return Ok(Err(format!("a round was lost: {counts:?} transactions")));
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

    /// Looks for snapshots with a part of a transaction.
    fn watch(&self) -> Result<()> {
        let txn = self.store.read()?;
        let balances = self.accounts.all(&txn).rows().map(|row| Ok(row?.balance));
        let sum: i64 = balances.sum::<Result<i64>>()?;
        if sum != 0 {
            println!("error: the sum of a snapshot is {sum}");
        }
        Ok(())
    }
}

/// Writes in rounds: in each, every thread commits a transaction, all at the same time.
pub(super) fn write(path: &Path) -> Result<()> {
    let tables = open(path)?;
    let counts = tables.counts(&tables.store.read()?)?;
    say("open");
    let first = counts.iter().copied().max().unwrap_or_default();
    for (thread, count) in (0..).zip(counts) {
        (count..first).try_for_each(|number| tables.commit(thread, number))?;
    }
    let (round, barrier) = (AtomicU32::new(first), Barrier::new(usize::from(THREADS)));
    let failure = Mutex::new(None);
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (tables, round, barrier, lock) = (&tables, &round, &barrier, &lock);
            scope.spawn(move || {
                while lock().is_none() {
                    let number = round.load(SeqCst);
                    let outcome = tables.commit(thread, number).and_then(|()| tables.watch());
                    if let Err(error) = outcome {
                        *lock() = Some(error);
                    }
                    if barrier.wait().is_leader() {
                        round.store(number + 1, SeqCst);
                    }
                    barrier.wait();
                }
            });
        }
    });
    let failure = lock().take();
    failure.map_or(Ok(()), Err)
}

/// Checks that all shards have the acknowledged transactions of each thread. Each killed process,
/// of which there may be two, may have committed one more for each thread.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let tables = open(path).map_err(|error| error.to_string())?;
    let count = tables.look().map_err(|error| error.to_string())??;
    match count.checked_sub(known.acknowledged + known.found) {
        Some(found) if found <= 2 * u64::from(THREADS) => known.found += found,
        _ => {
            let said = known.acknowledged + known.found;
            return Err(format!("{count} transactions, and {said} are known"));
        }
    }
    Ok(())
}

/// Commits once more in each thread's place, and looks at everything again.
pub(crate) fn go_on(path: &Path) -> Result<(), Failure> {
    let gone_on = || {
        let tables = open(path)?;
        let counts = tables.counts(&tables.store.read()?)?;
        for (thread, count) in (0..).zip(counts) {
            tables.store.transaction(|txn| tables.write(txn, thread, count))?;
        }
        drop(tables);
        open(path)?.look()
    };
    gone_on().map_err(|error| format!("the next commit: {error}"))?.map(drop)
}
