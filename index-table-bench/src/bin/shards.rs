//! Compares sharded stores with one store: durable inserts, queries of one shard and of all shards, the time
//! to open, and the cost of a query of all shards by the number of shards.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin shards -- [ROUNDS [DIRECTORY]]
//! ```
//! Each round measures all contenders. Figures are medians of the rounds, and a factor is the median of the
//! factors of the rounds.

use std::{fs, path::Path, time::Instant};

use index_table::{Durability, Result, Store};
use index_table_bench::{
    median,
    sharded::{self, CustomerRepository, Outcome, THREADS, TOWNS, customer, options},
};

const TENANTS: u32 = 256;
const ROWS: u32 = 100_000;
/// The number of commits of each thread in a round.
const COMMITS: u32 = 50;
/// The numbers of shards for durable inserts.
const SHARDS: [u32; 5] = [1, 2, 4, 8, 16];

/// Opens a store with this number of shards; 0: a plain store.
fn open(path: &Path, shards: u32, durability: Durability) -> Result<Store> {
    if shards == 0 {
        return options(durability).open(path);
    }
    sharded::open(path, shards, TENANTS, durability)
}

fn main() -> Outcome<()> {
    sharded::run("shards", &[inserts, queries, openings, curve])
}

/// Measures transactions with one insert, by eight threads with a tenant each.
fn inserts(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut sides = Vec::new();
    for shards in [0].into_iter().chain(SHARDS) {
        let store = open(&dir.join(format!("inserts {shards}")), shards, Durability::Journal)?;
        let customers = CustomerRepository::open(&store)?;
        sides.push((shards, store, customers, Vec::new()));
    }
    for round in 0..=u64::from(rounds) {
        for (_, store, customers, times) in &mut sides {
            let began = Instant::now();
            sharded::in_threads(|tenant| {
                let commits = u64::from(COMMITS);
                (round * commits..(round + 1) * commits).try_for_each(|number| {
                    let row = customer(number, tenant);
                    store.transaction(|txn| customers.insert(txn, &row))
                })
            })?;
            times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(COMMITS * THREADS));
        }
    }
    println!("| shards | a durable insert, 8 threads, µs | inserts compared with one store |");
    println!("|--:|--:|--:|");
    let plain = sides.first().map(|it| it.3.clone()).unwrap_or_default();
    for (shards, _, _, times) in &sides {
        // The first round, which adds pages, is not counted.
        let factors = plain.iter().zip(times).skip(1).map(|(plain, time)| plain / time);
        let name = if *shards == 0 { "one store".to_owned() } else { shards.to_string() };
        let time = median(times.iter().copied().skip(1));
        println!("| {name} | {time:.0} | {:.2} |", median(factors));
    }
    println!();
    Ok(())
}

fn fill(store: &Store) -> Result<CustomerRepository> {
    let customers = CustomerRepository::open(store)?;
    for tenant in 0..TENANTS {
        store.transaction(|txn| {
            let numbers = (u64::from(tenant)..ROWS.into()).step_by(TENANTS as usize);
            numbers
                .into_iter()
                .try_for_each(|number| customers.insert(txn, &customer(number, tenant)))
        })?;
    }
    Ok(customers)
}

type Query = (&'static str, f64, fn(&Store, &CustomerRepository) -> Result<u64>);

const QUERIES: [Query; 4] = [
    ("rows of a tenant in a town, one shard", 1000.0, |store, customers| {
        let txn = store.read()?;
        (0..1000).try_fold(0, |sum, at| {
            let mut rows = customers.find_by_tenant_town(&txn, at % TENANTS, at % TOWNS).rows();
            rows.try_fold(sum, |sum, row| Ok(sum + row?.name.len() as u64))
        })
    }),
    ("all entries of an index, merged, an entry", 100_000.0, |store, customers| {
        let txn = store.read()?;
        let mut entries = customers.by_town(&txn).entries();
        entries.try_fold(0, |sum, entry| Ok(sum + entry?.name.len() as u64))
    }),
    ("all rows by an index, merged, a row", 100_000.0, |store, customers| {
        let txn = store.read()?;
        let mut rows = customers.by_town(&txn).rows();
        rows.try_fold(0, |sum, row| Ok(sum + row?.name.len() as u64))
    }),
    ("a page of 20, merged", 1000.0, |store, customers| {
        let txn = store.read()?;
        (0..1000).try_fold(0, |sum, at| {
            let page = customers.find_by_town(&txn, at % TOWNS).page(20)?;
            Ok(sum + page.items.iter().map(|row| row.name.len() as u64).sum::<u64>())
        })
    }),
];

/// Measures queries of one store and of four shards.
fn queries(dir: &Path, rounds: u32) -> Outcome<()> {
    let plain = open(&dir.join("queries"), 0, Durability::None)?;
    let sharded = open(&dir.join("queries 4"), 4, Durability::None)?;
    let sides = [(&plain, fill(&plain)?), (&sharded, fill(&sharded)?)];
    println!("| query | one store, ns | four shards, ns | factor |");
    println!("|---|--:|--:|--:|");
    for (name, units, query) in QUERIES {
        let mut times = [Vec::new(), Vec::new()];
        let mut sums = [0; 2];
        for _ in 0..=rounds {
            for (at, (store, customers)) in sides.iter().enumerate() {
                let began = Instant::now();
                sums[at] = query(store, customers)?;
                times[at].push(began.elapsed().as_secs_f64() * 1e9 / units);
            }
        }
        if sums[0] != sums[1] {
            return Err(format!("{name}: the results differ").into());
        }
        let [one, four] = times;
        let factors = one.iter().zip(&four).skip(1).map(|(one, four)| four / one);
        let factor = median(factors);
        let (one, four) = (median(one.into_iter().skip(1)), median(four.into_iter().skip(1)));
        println!("| {name} | {one:.0} | {four:.0} | {factor:.2} |");
    }
    println!();
    Ok(())
}

/// Measures opening and closing a store that needs no recovery.
fn openings(dir: &Path, rounds: u32) -> Outcome<()> {
    println!("| opened and closed | ms |");
    println!("|---|--:|");
    for (name, shards) in [("one store with a journal", 0), ("4 shards", 4), ("16 shards", 16)] {
        let path = dir.join(format!("openings {shards}"));
        let mut times = Vec::new();
        for _ in 0..=rounds {
            let began = Instant::now();
            let store = open(&path, shards, Durability::Journal)?;
            let customers = CustomerRepository::open(&store)?;
            drop((customers, store));
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        println!("| {name} | {:.1} |", median(times.into_iter().skip(1)));
    }
    println!();
    Ok(())
}

/// Measures queries of all shards, by the number of shards.
fn curve(dir: &Path, rounds: u32) -> Outcome<()> {
    println!("| shards | `read()`, µs | rows of a town, µs | a page of 20, µs |");
    println!("|--:|--:|--:|--:|");
    for shards in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let path = dir.join(format!("curve {shards}"));
        {
            let store = open(&path, shards, Durability::None)?;
            let customers = fill(&store)?;
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..rounds * 5 {
                let began = Instant::now();
                let txn = store.read()?;
                times[0].push(began.elapsed().as_secs_f64() * 1e6);
                let began = Instant::now();
                let rows = customers.find_by_town(&txn, round % TOWNS).rows().count();
                times[1].push(began.elapsed().as_secs_f64() * 1e6);
                let began = Instant::now();
                let page = customers.find_by_town(&txn, round % TOWNS).page(20)?;
                times[2].push(began.elapsed().as_secs_f64() * 1e6);
                if rows == 0 || page.items.is_empty() {
                    return Err("a town without rows".into());
                }
            }
            let [read, rows, page] = times.map(|times| median(times.into_iter()));
            println!("| {shards} | {read:.1} | {rows:.0} | {page:.0} |");
        }
        fs::remove_dir_all(path)?;
    }
    Ok(())
}
