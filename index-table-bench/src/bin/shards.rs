//! Compares sharded stores with one store: durable inserts, queries of one shard and of all, opening, and what a
//! query of all shards costs by the number of shards.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin shards -- [ROUNDS [DIRECTORY]]
//! ```
//!
//! In each round, all contenders have their turn. Figures are medians of the rounds, and a factor is the median of
//! the factors of the rounds.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::Instant,
};

use index_table::{Durability, IndexTable, Options, Result, ShardMap, ShardedStore, Store};
use index_table_bench::median;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(tenant, town)]
#[index(town, include = [name])]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    town: u32,
    name: String,
    text: String,
}

const TENANTS: u32 = 256;
const TOWNS: u32 = 500;
const ROWS: u32 = 100_000;
const THREADS: u32 = 8;
/// Commits of each thread in a round.
const COMMITS: u32 = 50;
/// The numbers of shards of durable inserts.
const SHARDS: [u32; 5] = [1, 2, 4, 8, 16];

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// A store of either kind.
enum Side {
    Plain(Store),
    Sharded(ShardedStore),
}

impl Side {
    fn store(&self) -> &Store {
        match self {
            Self::Plain(store) => store,
            Self::Sharded(store) => store,
        }
    }

    fn customers(&self) -> Result<CustomerRepository> {
        match self {
            Self::Plain(store) => CustomerRepository::open(store),
            Self::Sharded(store) => CustomerRepository::open(store),
        }
    }
}

fn options(durability: Durability) -> Options {
    Store::options().map_size(1 << 32).durability(durability)
}

/// A store with so many shards, in which the tenants take turns; 0: a plain one.
fn open(path: &Path, shards: u32, durability: Durability) -> Result<Side> {
    if shards == 0 {
        return Ok(Side::Plain(options(durability).open(path)?));
    }
    let names: Vec<String> = (0..shards).map(|shard| format!("s{shard}")).collect();
    let map =
        names.iter().zip(0..).fold(ShardMap::list().to("s0", [u32::MAX]), |map, (name, own)| {
            map.to(name, (0..TENANTS).filter(move |tenant| tenant % shards == own))
        });
    let all = ShardedStore::options().options(options(durability)).map("customers", map);
    let all = names.iter().fold(all, |all, name| all.shard(name, name));
    Ok(Side::Sharded(all.open(path)?))
}

fn customer(number: u64, tenant: u32) -> Customer {
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Customer {
        tenant,
        id: scattered >> 20,
        town: (scattered >> 40) as u32 % TOWNS,
        name: format!("customer {number}"),
        text: "x".repeat(80),
    }
}

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(9), |text| text.parse())?;
    let base = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = base.join(format!("index-table-shards-{}", process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = inserts(&dir, rounds)
        .and_then(|()| queries(&dir, rounds))
        .and_then(|()| openings(&dir, rounds))
        .and_then(|()| curve(&dir, rounds));
    fs::remove_dir_all(&dir)?;
    outcome
}

/// One insert in each transaction, by eight threads with a tenant each.
fn inserts(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut sides = Vec::new();
    for shards in [0].into_iter().chain(SHARDS) {
        let side = open(&dir.join(format!("inserts {shards}")), shards, Durability::Journal)?;
        let customers = side.customers()?;
        sides.push((shards, side, customers, Vec::new()));
    }
    for round in 0..=u64::from(rounds) {
        for (_, side, customers, times) in &mut sides {
            let began = Instant::now();
            let store = side.store();
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|tenant| {
                        let customers = &*customers;
                        scope.spawn(move || {
                            let commits = u64::from(COMMITS);
                            let numbers = round * commits..(round + 1) * commits;
                            numbers.into_iter().try_for_each(|number| {
                                let row = customer(number, tenant);
                                store.transaction(|txn| customers.insert(txn, &row))
                            })
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
            })?;
            times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(COMMITS * THREADS));
        }
    }
    println!("| shards | a durable insert, 8 threads, µs | inserts beside one store |");
    println!("|--:|--:|--:|");
    let plain = sides.first().map(|it| it.3.clone()).unwrap_or_default();
    for (shards, _, _, times) in &sides {
        // The first round creates pages.
        let factors = plain.iter().zip(times).skip(1).map(|(plain, time)| plain / time);
        let name = if *shards == 0 { "one store".to_owned() } else { shards.to_string() };
        let time = median(times.iter().copied().skip(1));
        println!("| {name} | {time:.0} | {:.2} |", median(factors));
    }
    println!();
    Ok(())
}

fn fill(side: &Side) -> Result<CustomerRepository> {
    let customers = side.customers()?;
    for tenant in 0..TENANTS {
        side.store().transaction(|txn| {
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

/// Queries of one store and of four shards.
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
            for (at, (side, customers)) in sides.iter().enumerate() {
                let began = Instant::now();
                sums[at] = query(side.store(), customers)?;
                times[at].push(began.elapsed().as_secs_f64() * 1e9 / units);
            }
        }
        if sums[0] != sums[1] {
            return Err(format!("{name}: other rows").into());
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

/// Opening and closing a store whose journal is not needed.
fn openings(dir: &Path, rounds: u32) -> Outcome<()> {
    println!("| opened and closed | ms |");
    println!("|---|--:|");
    for (name, shards) in [("one store with a journal", 0), ("4 shards", 4), ("16 shards", 16)] {
        let path = dir.join(format!("openings {shards}"));
        let mut times = Vec::new();
        for _ in 0..=rounds {
            let began = Instant::now();
            let side = open(&path, shards, Durability::Journal)?;
            let customers = side.customers()?;
            drop((customers, side));
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        println!("| {name} | {:.1} |", median(times.into_iter().skip(1)));
    }
    println!();
    Ok(())
}

/// Queries of all shards, by their number.
fn curve(dir: &Path, rounds: u32) -> Outcome<()> {
    println!("| shards | `read()`, µs | rows of a town, µs | a page of 20, µs |");
    println!("|--:|--:|--:|--:|");
    for shards in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let path = dir.join(format!("curve {shards}"));
        {
            let side = open(&path, shards, Durability::None)?;
            let customers = fill(&side)?;
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..rounds * 5 {
                let began = Instant::now();
                let txn = side.store().read()?;
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
