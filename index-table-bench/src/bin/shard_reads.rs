//! Compares long reads of four shards in one thread with the same reads in several threads.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin shard_reads -- [ROUNDS [DIRECTORY]]
//! ```
//! Each round measures all contenders. Figures are medians of the rounds, and a factor is the median of the factors of
//! the rounds.

use std::{
    collections::VecDeque,
    path::Path,
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use index_table::{
    __private::count_in_parallel_from, Durability, IndexTable, ReadTxn, Result, ShardMap, Store,
};
use index_table_bench::{
    median,
    sharded::{self, Customer, CustomerRepository, Outcome, TOWNS, customer, options},
};
use serde::{Deserialize, Serialize};

const SHARDS: [&str; 4] = ["s0", "s1", "s2", "s3"];
const TENANTS: u32 = 256;
/// The rows of the scans.
const ROWS: u32 = 400_000;
/// The rows of a batch, and the batches that wait, of a scan that reads ahead.
const AHEAD: (usize, usize) = (256, 4);

/// A reading, whose class decides which count it is part of.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "readings", shard_by = hash(id))]
#[index(class)]
#[index(kind, include = [value])]
struct Reading {
    #[primary_key]
    id: u64,
    /// The field of an index that packs the entries of each value.
    class: u32,
    /// The field of an index with the same number of values that does not pack entries.
    kind: u32,
    value: u32,
}

/// The numbers of entries of the classes.
const CLASSES: [u32; 7] = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

fn main() -> Outcome<()> {
    sharded::run("shard-reads", &[counts, scans])
}

fn readings() -> impl Iterator<Item = Reading> {
    let classes =
        CLASSES.into_iter().zip(0..).flat_map(|(rows, class)| (0..rows).map(move |_| class));
    (0..).zip(classes).map(|(id, class)| Reading { id, class, kind: class, value: 1 })
}

type Count = fn(&ReadingRepository, &ReadTxn<'_>, u32) -> Result<u64>;

/// Measures counts across four shards.
fn counts(dir: &Path, rounds: u32) -> Outcome<()> {
    let one = options(Durability::None).open(dir.join("one"))?;
    let four = SHARDS.iter().fold(options(Durability::None), |all, name| all.shard(*name, name));
    let four = four.map("readings", ShardMap::hashed(SHARDS)).open(dir.join("four"))?;
    let of_one = ReadingRepository::open(&one)?;
    let of_four = ReadingRepository::open(&four)?;
    of_one.bulk_load(&one, readings()).run()?;
    of_four.bulk_load(&four, readings()).run()?;
    let as_built = count_in_parallel_from(u64::MAX);
    let (one, four) = (one.read()?, four.read()?);
    let layouts: [(&str, Count); 2] = [
        ("packed", |readings, txn, class| readings.find_by_class(txn, class).count()),
        ("not packed", |readings, txn, class| readings.find_by_kind(txn, class).count()),
    ];
    // The least number of steps in a shard before threads start.
    let sides: [(&ReadingRepository, &ReadTxn<'_>, u64); 4] = [
        (&of_one, &one, u64::MAX),
        (&of_four, &four, u64::MAX),
        (&of_four, &four, 1),
        (&of_four, &four, as_built),
    ];
    println!(
        "| layout | entries | one store, µs | four shards, one thread | threads at once | threads \
         after {as_built} steps | factor at once | factor |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (layout, count) in layouts {
        for (entries, class) in CLASSES.into_iter().zip(0..) {
            let runs = (300_000 / entries).clamp(1, 100);
            let mut times: [Vec<f64>; 4] = Default::default();
            for round in 0..=rounds {
                for ((readings, txn, steps), times) in sides.into_iter().zip(&mut times) {
                    count_in_parallel_from(steps);
                    let began = Instant::now();
                    for _ in 0..runs {
                        if count(readings, txn, class)? != u64::from(entries) {
                            return Err("a wrong count".into());
                        }
                    }
                    // The first round is not counted.
                    if round > 0 {
                        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(runs));
                    }
                }
            }
            let [_, alone, at_once, built] = &times;
            let factor = |other: &[f64]| median(alone.iter().zip(other).map(|(a, b)| a / b));
            let factors = [factor(at_once), factor(built)];
            let [one, alone, at_once, built] = times.map(|times| median(times.into_iter()));
            println!(
                "| {layout} | {entries} | {one:.1} | {alone:.1} | {at_once:.1} | {built:.1} | {:.2} | {:.2} |",
                factors[0], factors[1]
            );
        }
    }
    count_in_parallel_from(as_built);
    println!();
    Ok(())
}

/// An entry that does not borrow from its transaction.
type Entry = (u32, u32, u64, String);

/// A contender of the scans, which returns a checksum.
type Side<'a> = (&'static str, Box<dyn Fn() -> Result<usize> + 'a>);

/// The batches of a thread that reads a shard ahead, merged by the caller.
struct Ahead<T> {
    received: Receiver<Vec<T>>,
    batch: VecDeque<T>,
}

impl<T> Ahead<T> {
    fn first(&mut self) -> Option<&T> {
        if self.batch.is_empty() {
            self.batch = self.received.recv().unwrap_or_default().into();
        }
        self.batch.front()
    }
}

/// Reads each store ahead in a thread, and merges the results in the order of their keys.
fn merged<T: Send>(
    stores: &[(Store, CustomerRepository)],
    read: impl Fn(&CustomerRepository, &ReadTxn<'_>, &mut dyn FnMut(T)) -> Result<()> + Sync,
    key: impl Fn(&T) -> (u32, u32, u64),
    length: impl Fn(&T) -> usize,
) -> Result<usize> {
    thread::scope(|scope| {
        let (mut ahead, mut threads) = (Vec::new(), Vec::new());
        for (store, customers) in stores {
            let (sender, received) = mpsc::sync_channel(AHEAD.1);
            let read = &read;
            threads.push(scope.spawn(move || -> Result<()> {
                let mut batch = Vec::with_capacity(AHEAD.0);
                read(customers, &store.read()?, &mut |item| {
                    batch.push(item);
                    if batch.len() == AHEAD.0 {
                        let full = std::mem::replace(&mut batch, Vec::with_capacity(AHEAD.0));
                        drop(sender.send(full));
                    }
                })?;
                drop(sender.send(batch));
                Ok(())
            }));
            ahead.push(Ahead { received, batch: VecDeque::new() });
        }
        let mut sum = 0;
        loop {
            let heads = ahead.iter_mut().enumerate();
            let first = heads.filter_map(|(at, it)| Some((key(it.first()?), at))).min();
            let Some((_, at)) = first else { break };
            sum += ahead[at].batch.pop_front().as_ref().map_or(0, &length);
        }
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))?;
        Ok(sum)
    })
}

/// Sums up the results of `work` for all items, in a thread for each item.
fn in_threads<T: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Result<usize> + Sync,
) -> Result<usize> {
    thread::scope(|scope| {
        let work = &work;
        let spawn = |item| scope.spawn(move || work(item));
        let threads: Vec<_> = items.into_iter().map(spawn).collect();
        threads.into_iter().try_fold(0, |sum, thread| Ok(sum + thread.join().unwrap_or(Ok(0))?))
    })
}

fn rows(customers: &CustomerRepository, txn: &ReadTxn<'_>) -> Result<usize> {
    customers.by_town(txn).rows().try_fold(0, |sum, row| Ok(sum + row?.name.len()))
}

fn entries(customers: &CustomerRepository, txn: &ReadTxn<'_>) -> Result<usize> {
    customers.by_town(txn).entries().try_fold(0, |sum, entry| Ok(sum + entry?.name.len()))
}

fn fill(store: &Store, tenants: impl Iterator<Item = u32>) -> Result<CustomerRepository> {
    let customers = CustomerRepository::open(store)?;
    for tenant in tenants {
        store.transaction(|txn| {
            let mut numbers = (u64::from(tenant)..ROWS.into()).step_by(TENANTS as usize);
            numbers.try_for_each(|number| customers.insert(txn, &customer(number, tenant)))
        })?;
    }
    Ok(customers)
}

/// Measures scans across four shards: merged in one thread, by a prototype that reads each shard ahead in a thread, and
/// without an order. The prototype reads four plain stores with the rows of the shards.
fn scans(dir: &Path, rounds: u32) -> Outcome<()> {
    let sharded = sharded::open(&dir.join("scans"), 4, TENANTS, Durability::None)?;
    let customers = fill(&sharded, 0..TENANTS)?;
    let mut stores = Vec::new();
    for (name, shard) in SHARDS.iter().zip(0..) {
        let store = options(Durability::None).open(dir.join(format!("scans {name}")))?;
        let own = fill(&store, (0..TENANTS).filter(|tenant| tenant % 4 == shard))?;
        stores.push((store, own));
    }
    let (sharded, customers, stores) = (&sharded, &customers, &stores);
    let halves = [0..TOWNS / 2, TOWNS / 2..TOWNS];
    let of_rows: Vec<Side<'_>> = vec![
        ("rows, merged in one thread", Box::new(|| rows(customers, &sharded.read()?))),
        (
            "rows, read ahead in four threads and merged",
            Box::new(|| {
                let read = |customers: &CustomerRepository,
                            txn: &ReadTxn<'_>,
                            each: &mut dyn FnMut(Customer)| {
                    customers.by_town(txn).rows().try_for_each(|row| {
                        each(row?);
                        Ok(())
                    })
                };
                let key = |row: &Customer| (row.town, row.tenant, row.id);
                merged(stores, read, key, |row| row.name.len())
            }),
        ),
        (
            "rows, each shard in a thread, without an order",
            Box::new(|| in_threads(stores, |(store, own)| rows(own, &store.read()?))),
        ),
        (
            "rows, half of the towns in each of two threads",
            Box::new(|| {
                in_threads(halves.clone(), |towns| {
                    let txn = sharded.read()?;
                    let mut rows = customers.find_by_town_range(&txn, towns).rows();
                    rows.try_fold(0, |sum, row| Ok(sum + row?.name.len()))
                })
            }),
        ),
    ];
    let of_entries: Vec<Side<'_>> = vec![
        ("entries, merged in one thread", Box::new(|| entries(customers, &sharded.read()?))),
        (
            "entries, read ahead in four threads and merged",
            Box::new(|| {
                let read = |customers: &CustomerRepository,
                            txn: &ReadTxn<'_>,
                            each: &mut dyn FnMut(Entry)| {
                    customers.by_town(txn).entries().try_for_each(|entry| {
                        let entry = entry?;
                        each((entry.town, entry.tenant, entry.id, entry.name.to_owned()));
                        Ok(())
                    })
                };
                let key = |entry: &Entry| (entry.0, entry.1, entry.2);
                merged(stores, read, key, |entry| entry.3.len())
            }),
        ),
        (
            "entries, each shard in a thread, without an order",
            Box::new(|| in_threads(stores, |(store, own)| entries(own, &store.read()?))),
        ),
        (
            "entries, half of the towns in each of two threads",
            Box::new(|| {
                in_threads(halves.clone(), |towns| {
                    let txn = sharded.read()?;
                    let mut entries = customers.find_by_town_range(&txn, towns).entries();
                    entries.try_fold(0, |sum, entry| Ok(sum + entry?.name.len()))
                })
            }),
        ),
    ];
    println!("| scan of {ROWS} rows, four shards | ns a row | factor |");
    println!("|---|--:|--:|");
    for sides in [of_rows, of_entries] {
        let mut times = vec![Vec::new(); sides.len()];
        let mut sums = vec![0; sides.len()];
        for round in 0..=rounds {
            for (at, (_, read)) in sides.iter().enumerate() {
                let began = Instant::now();
                sums[at] = read()?;
                if round > 0 {
                    times[at].push(began.elapsed().as_secs_f64() * 1e9 / f64::from(ROWS));
                }
            }
        }
        if sums.iter().any(|sum| *sum != sums[0]) {
            return Err("the results differ".into());
        }
        for ((name, _), own) in sides.iter().zip(&times) {
            let factor = median(times[0].iter().zip(own).map(|(merged, own)| merged / own));
            println!("| {name} | {:.0} | {factor:.2} |", median(own.iter().copied()));
        }
    }
    Ok(())
}
