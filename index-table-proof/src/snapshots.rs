//! Readers and concurrent writers, in two processes.
//!
//! Writers move amounts between two tables, and roll some of their transactions back. The total of both tables is the same
//! in each snapshot, by every kind of query.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::random::Random;

type Failure = String;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(branch)]
#[index(branch, owner, include = [amount])]
#[index(owner, strategy = "full")]
#[index(number, unique, include = [amount])]
struct Account {
    #[primary_key]
    id: u32,
    branch: u8,
    owner: String,
    number: u64,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(amount)]
struct Deposit {
    #[primary_key]
    id: u32,
    amount: i64,
}

const ACCOUNTS: u32 = 120;
const BRANCHES: u8 = 4;
const EACH: i64 = 1000;
const TOTAL: i64 = ACCOUNTS as i64 * EACH;

/// The number of ways to compute the total.
const WAYS: u64 = 8;

struct Bank {
    store: Store,
    accounts: AccountRepository,
    deposits: DepositRepository,
}

/// The reason why a transaction is rolled back: an error, or `None` on purpose.
struct GivenUp(Option<index_table::Error>);

impl From<index_table::Error> for GivenUp {
    fn from(error: index_table::Error) -> Self {
        Self(Some(error))
    }
}

impl Bank {
    fn open(path: &str) -> Result<Self> {
        // Too small, so that the map grows during the test.
        let options = Store::options().map_size(1 << 17).durability(Durability::None);
        let store = options.open(path)?;
        let (accounts, deposits) =
            (AccountRepository::open(&store)?, DepositRepository::open(&store)?);
        let bank = Self { store, accounts, deposits };
        bank.store.transaction(|txn| {
            if bank.accounts.all(txn).exists()? {
                return Ok(());
            }
            (0..ACCOUNTS).try_for_each(|id| {
                let (branch, owner) = ((id % 4) as u8, format!("owner {}", id % 7));
                let number = u64::from(id);
                bank.accounts.insert(txn, &Account { id, branch, owner, number, amount: EACH })
            })
        })?;
        Ok(bank)
    }

    /// Moves an amount between an account and the deposits, in either direction. The account also moves to another
    /// place in its indexes.
    fn transfer(&self, random: &mut Random) -> Result<()> {
        let gives_up = random.below(5) == 0;
        let moves: Vec<_> = (0..=random.below(6))
            .map(|_| (random.below(ACCOUNTS.into()) as u32, random.below(90).cast_signed()))
            .collect();
        let branch = random.below(BRANCHES.into()) as u8;
        let number = random.draw();
        let done = self.store.try_transaction(|txn| -> Result<(), GivenUp> {
            for (step, (id, amount)) in moves.iter().enumerate() {
                self.accounts.update(txn, *id, |account| {
                    account.amount -= amount;
                    account.branch = branch;
                    account.number = number.wrapping_add(step as u64) << 8 | u64::from(*id);
                    account.owner = format!("owner {}", (number >> 40) % 7);
                })?;
                let kept = self.deposits.get(txn, *id)?.map_or(0, |deposit| deposit.amount);
                if kept > 500 {
                    self.deposits.delete(txn, *id)?;
                    self.accounts.update(txn, *id, |account| account.amount += kept + amount)?;
                } else {
                    self.deposits.put(txn, &Deposit { id: *id, amount: kept + amount })?;
                }
            }
            if gives_up { Err(GivenUp(None)) } else { Ok(()) }
        });
        match done {
            Err(GivenUp(Some(error))) => Err(error),
            Err(GivenUp(None)) | Ok(()) => Ok(()),
        }
    }

    /// Computes the total in a snapshot, in one of several ways. Returns a description of a wrong total.
    fn look(&self, way: u64) -> Result<Option<String>> {
        let txn = self.store.read()?;
        let deposits = self.deposits.all(&txn).rows().map(|row| row.map(|row| row.amount));
        let deposits: i64 = deposits.sum::<Result<i64>>()?;
        let entries = self.deposits.by_amount(&txn).entries();
        let indexed: i64 =
            entries.map(|entry| entry.map(|entry| entry.amount)).sum::<Result<i64>>()?;
        let accounts = &self.accounts;
        let (name, amount) = match way % WAYS {
            0 => (
                "all",
                accounts
                    .all(&txn)
                    .rows()
                    .map(|row| row.map(|row| row.amount))
                    .sum::<Result<i64>>()?,
            ),
            1 => {
                let in_branch = |branch| {
                    let rows = accounts.find_by_branch(&txn, branch).rows();
                    rows.map(|row| row.map(|row| row.amount)).sum::<Result<i64>>()
                };
                ("rows by branch", (0..BRANCHES).map(in_branch).sum::<Result<i64>>()?)
            }
            2 => {
                let in_branch = |branch| {
                    let entries =
                        accounts.find_by_branch_owner_starting_with(&txn, branch, "o").entries();
                    entries.map(|entry| entry.map(|entry| entry.amount)).sum::<Result<i64>>()
                };
                ("entries by branch and owner", (0..BRANCHES).map(in_branch).sum::<Result<i64>>()?)
            }
            3 => {
                let rows = accounts.by_owner(&txn).rev().rows();
                ("rows by owner", rows.map(|row| row.map(|row| row.amount)).sum::<Result<i64>>()?)
            }
            4 => {
                let mut sum = 0;
                let mut page = accounts.by_branch(&txn).page(7)?;
                loop {
                    sum += page.items.iter().map(|row| row.amount).sum::<i64>();
                    let Some(next) = page.next else { break ("pages by branch", sum) };
                    page = accounts.by_branch(&txn).after(&next).page(7)?;
                }
            }
            5 => {
                let gotten = (0..ACCOUNTS).map(|id| accounts.get(&txn, id));
                let amounts = gotten.map(|row| row.map(|row| row.map_or(0, |row| row.amount)));
                ("gets", amounts.sum::<Result<i64>>()?)
            }
            6 => {
                let numbers = accounts.by_number(&txn).entries();
                let by_number = |number| {
                    let row = accounts.get_by_number(&txn, number)?;
                    Ok(row.map_or(0, |row| row.amount))
                };
                let amounts = numbers.map(|entry| entry.and_then(|entry| by_number(entry.number)));
                ("gets by number", amounts.sum::<Result<i64>>()?)
            }
            _ => {
                let report = accounts.verify(&txn).run()?;
                if !report.is_clean() || accounts.by_branch(&txn).count()? != u64::from(ACCOUNTS) {
                    return Ok(Some(report.to_string()));
                }
                return Ok(None);
            }
        };
        if amount + deposits == TOTAL && indexed == deposits {
            return Ok(None);
        }
        Ok(Some(format!("{name}: {amount} and {deposits}, or {indexed}, are not {TOTAL}")))
    }

    /// Writes in two threads, and reads in three.
    fn work(&self, time: Duration, seed: u64) -> Result<(u64, u64), Failure> {
        let (over, until) = (AtomicBool::new(false), Instant::now() + time);
        let (commits, looks) = (AtomicU64::new(0), AtomicU64::new(0));
        let goes_on = || !over.load(Relaxed) && Instant::now() < until;
        let run = |work: &dyn Fn() -> Result<(), Failure>| {
            let outcome = work();
            over.fetch_or(outcome.is_err(), Relaxed);
            outcome
        };
        let write = |seed| {
            let mut random = Random(seed);
            while goes_on() {
                self.transfer(&mut random).map_err(|error| error.to_string())?;
                commits.fetch_add(1, Relaxed);
            }
            Ok(())
        };
        let read = |seed| {
            for way in (seed..).take_while(|_| goes_on()) {
                match self.look(way) {
                    Ok(None) => looks.fetch_add(1, Relaxed),
                    Ok(Some(wrong)) => return Err(wrong),
                    Err(error) => return Err(error.to_string()),
                };
            }
            Ok(())
        };
        thread::scope(|scope| {
            let (run, write, read) = (&run, &write, &read);
            let mut threads = Vec::new();
            for thread in 0..2 {
                threads.push(scope.spawn(move || run(&|| write(seed + thread))));
            }
            for thread in 0..3 {
                threads.push(scope.spawn(move || run(&|| read(seed + thread))));
            }
            let ended = threads.into_iter().map(|it| it.join().map_err(|_| "a panic".to_owned()));
            ended.collect::<Vec<_>>().into_iter().try_for_each(|outcome| outcome?)
        })?;
        let (commits, looks) = (commits.load(Relaxed), looks.load(Relaxed));
        // Each thread computes the total in all ways, in turn.
        if commits == 0 || looks < 3 * WAYS {
            return Err(format!("only {commits} transactions and {looks} snapshots"));
        }
        Ok((commits, looks))
    }
}

/// Runs two processes for a number of seconds.
pub(crate) fn run(seconds: u64) -> Result<(), Failure> {
    let dir = crate::scratch().map_err(|error| error.to_string())?;
    let path = dir.path().to_string_lossy();
    let bank = Bank::open(&path).map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut other = Command::new(program)
        .args(["snapshots-child", &path, &seconds.to_string()])
        .spawn()
        .map_err(|error| error.to_string())?;
    let outcome = bank.work(Duration::from_secs(seconds), 1);
    let other = other.wait().map_err(|error| error.to_string())?;
    let (commits, looks) = outcome?;
    if !other.success() {
        return Err("the other process has read a wrong total, or has failed".to_owned());
    }
    bank.store.check().map_err(|error| error.to_string())?;
    println!("snapshots: {commits} transactions and {looks} whole snapshots in the first process");
    Ok(())
}

/// The work of the second process.
pub(crate) fn child(path: &str, seconds: &str) -> Result<(), Failure> {
    let seconds = seconds.parse().map_err(|_| "no number".to_owned())?;
    let bank = Bank::open(path).map_err(|error| error.to_string())?;
    let (commits, looks) = bank.work(Duration::from_secs(seconds), 99)?;
    println!("snapshots: {commits} transactions and {looks} whole snapshots in the second process");
    Ok(())
}
