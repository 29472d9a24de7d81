//! Compares transactions across several shards with transactions of one shard.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin shard_transactions -- [ROUNDS [DIRECTORY]]
//! ```
//! Each round measures all contenders. Figures are medians of the rounds, and a factor is the median of the
//! factors of the rounds.

use std::{path::Path, time::Instant};

use index_table::{Durability, Result, Store};
use index_table_bench::{
    median,
    sharded::{self, CustomerRepository, Outcome, THREADS, customer},
};

const SHARDS: u32 = 4;
/// The number of commits of each thread in a round.
const COMMITS: u32 = 200;

struct Opened {
    store: Store,
    customers: CustomerRepository,
    /// The number of the next row.
    next: u64,
}

fn open(path: &Path) -> Result<Opened> {
    let store = sharded::open(path, SHARDS, THREADS, Durability::Journal)?;
    let customers = CustomerRepository::open(&store)?;
    Ok(Opened { store, customers, next: 0 })
}

impl Opened {
    /// Inserts a row for each of these tenants in one transaction.
    fn insert(&self, number: u64, tenants: &[u32]) -> Result<()> {
        let rows: Vec<_> = tenants.iter().map(|tenant| customer(number, *tenant)).collect();
        self.store
            .transaction(|txn| rows.iter().try_for_each(|row| self.customers.insert(txn, row)))
    }
}

fn main() -> Outcome<()> {
    sharded::run("shard-transactions", &[alone, together])
}

/// The kinds of transactions of one thread, with the tenants of the inserted rows.
const ALONE: [(&str, &[u32]); 5] = [
    ("a row", &[0]),
    ("two rows in one shard", &[0, 4]),
    ("two rows in two shards", &[0, 1]),
    ("two rows in two shards, the later one first", &[1, 0]),
    ("four rows in four shards", &[0, 1, 2, 3]),
];

/// Measures transactions of one thread.
fn alone(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut opened = open(&dir.join("alone"))?;
    let mut times: [Vec<f64>; ALONE.len()] = Default::default();
    for _ in 0..=rounds {
        for ((_, tenants), times) in ALONE.iter().zip(&mut times) {
            let began = Instant::now();
            for number in opened.next..opened.next + u64::from(COMMITS) {
                opened.insert(number, tenants)?;
            }
            times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(COMMITS));
            opened.next += u64::from(COMMITS);
        }
    }
    println!("| a durable transaction, one thread | µs | compared with a row in one shard |");
    println!("|---|--:|--:|");
    for ((name, _), all) in ALONE.iter().zip(&times) {
        // The first round, which adds pages, is not counted.
        let factor = median(times[0].iter().zip(all).skip(1).map(|(one, time)| time / one));
        let time = median(all.iter().copied().skip(1));
        println!("| {name} | {time:.0} | {factor:.2} |");
    }
    println!();
    Ok(())
}

/// The numbers of transactions out of ten that are across two shards.
const SHARES: [u64; 4] = [0, 1, 5, 10];

/// Measures transactions of eight threads, some of them across two shards.
fn together(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut sides = Vec::new();
    for share in SHARES {
        sides.push((share, open(&dir.join(format!("together {share}")))?, Vec::new()));
    }
    for _ in 0..=rounds {
        for (share, opened, times) in &mut sides {
            let began = Instant::now();
            let (share, contender) = (*share, &*opened);
            sharded::in_threads(|tenant| {
                let numbers = contender.next..contender.next + u64::from(COMMITS / 4);
                numbers.into_iter().try_for_each(|number| {
                    let other = (tenant + 1 + number as u32 % 3) % THREADS;
                    let both = [tenant, other];
                    let is_of_two = number % 10 < share;
                    // The numbers of different threads differ.
                    let number = number * u64::from(THREADS) + u64::from(tenant);
                    contender.insert(number, if is_of_two { &both } else { &both[..1] })
                })
            })?;
            let commits = COMMITS / 4;
            opened.next += u64::from(commits);
            times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(commits * THREADS));
        }
    }
    println!(
        "| transactions across two shards, 8 threads | µs a transaction | compared with none |"
    );
    println!("|--:|--:|--:|");
    let none = sides.first().map(|side| side.2.clone()).unwrap_or_default();
    for (share, _, times) in &sides {
        let factor = median(none.iter().zip(times).skip(1).map(|(none, time)| time / none));
        let time = median(times.iter().copied().skip(1));
        println!("| {} % | {time:.0} | {factor:.2} |", share * 10);
    }
    Ok(())
}
