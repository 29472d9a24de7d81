//! Compares transactions of several shards with transactions of one shard.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin shard_transactions -- [ROUNDS [DIRECTORY]]
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

use index_table::{Durability, IndexTable, Result, ShardMap, ShardedStore, Store};
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

const SHARDS: u32 = 4;
const THREADS: u32 = 8;
/// Commits of each thread in a round.
const COMMITS: u32 = 200;

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

struct Opened {
    store: ShardedStore,
    customers: CustomerRepository,
    /// The number of the next row.
    next: u64,
}

fn open(path: &Path) -> Result<Opened> {
    let names: Vec<String> = (0..SHARDS).map(|shard| format!("s{shard}")).collect();
    let map =
        names.iter().zip(0..).fold(ShardMap::list().to("s0", [u32::MAX]), |map, (name, own)| {
            map.to(name, (0..THREADS).filter(move |tenant| tenant % SHARDS == own))
        });
    let options = Store::options().map_size(1 << 32).durability(Durability::Journal);
    let all = ShardedStore::options().options(options).map("customers", map);
    let store = names.iter().fold(all, |all, name| all.shard(name, name)).open(path)?;
    let customers = CustomerRepository::open(&store)?;
    Ok(Opened { store, customers, next: 0 })
}

fn customer(number: u64, tenant: u32) -> Customer {
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Customer {
        tenant,
        id: scattered >> 20,
        town: (scattered >> 40) as u32 % 500,
        name: format!("customer {number}"),
        text: "x".repeat(80),
    }
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
    let mut arguments = env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(9), |text| text.parse())?;
    let base = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = base.join(format!("index-table-shard-transactions-{}", process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = alone(&dir, rounds).and_then(|()| together(&dir, rounds));
    fs::remove_dir_all(&dir)?;
    outcome
}

/// The tenants whose rows a transaction of one thread inserts.
const ALONE: [(&str, &[u32]); 5] = [
    ("a row", &[0]),
    ("two rows in one shard", &[0, 4]),
    ("two rows in two shards", &[0, 1]),
    ("two rows in two shards, the later one first", &[1, 0]),
    ("four rows in four shards", &[0, 1, 2, 3]),
];

/// Transactions of one thread.
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
    println!("| a durable transaction, one thread | µs | beside a row in one shard |");
    println!("|---|--:|--:|");
    for ((name, _), own) in ALONE.iter().zip(&times) {
        // The first round creates pages.
        let factor = median(times[0].iter().zip(own).skip(1).map(|(one, own)| own / one));
        let time = median(own.iter().copied().skip(1));
        println!("| {name} | {time:.0} | {factor:.2} |");
    }
    println!();
    Ok(())
}

/// How many of ten transactions are of two shards.
const SHARES: [u64; 4] = [0, 1, 5, 10];

/// Transactions of eight threads, some of which are of two shards.
fn together(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut sides = Vec::new();
    for share in SHARES {
        sides.push((share, open(&dir.join(format!("together {share}")))?, Vec::new()));
    }
    for _ in 0..=rounds {
        for (share, opened, times) in &mut sides {
            let began = Instant::now();
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|tenant| {
                        let (opened, share) = (&*opened, *share);
                        scope.spawn(move || {
                            let numbers = opened.next..opened.next + u64::from(COMMITS / 4);
                            numbers.into_iter().try_for_each(|number| {
                                let other = (tenant + 1 + number as u32 % 3) % THREADS;
                                let both = [tenant, other];
                                let is_of_two = number % 10 < share;
                                // Rows of a thread have numbers of its own.
                                let number = number * u64::from(THREADS) + u64::from(tenant);
                                opened.insert(number, if is_of_two { &both } else { &both[..1] })
                            })
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
            })?;
            let commits = COMMITS / 4;
            opened.next += u64::from(commits);
            times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(commits * THREADS));
        }
    }
    println!("| transactions of two shards, 8 threads | µs a transaction | beside none |");
    println!("|--:|--:|--:|");
    let none = sides.first().map(|side| side.2.clone()).unwrap_or_default();
    for (share, _, times) in &sides {
        let factor = median(none.iter().zip(times).skip(1).map(|(none, own)| own / none));
        let time = median(times.iter().copied().skip(1));
        println!("| {} % | {time:.0} | {factor:.2} |", share * 10);
    }
    Ok(())
}
