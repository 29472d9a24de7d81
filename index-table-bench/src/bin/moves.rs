//! Measures moves of keys between shards, and their effect on readers and writers.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin moves -- [ROUNDS [DIRECTORY]]
//! ```
//! One tenant of a list map has all rows, which a move copies to another shard. The writers update rows of this tenant and
//! insert others, each in a durable transaction; the readers get a row and count a town, which leaves out copies.
//!
//! The program fails if a switch of an online move takes more than [`LONGEST`].

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Result, Store};
use index_table_bench::{
    median,
    sharded::{self, CustomerRepository, Outcome, TOWNS, customer},
};

/// The number of rows that a move copies.
const ROWS: u64 = 1_000_000;
const TENANT: u32 = 0;

/// The longest time in milliseconds for which a switch may hold up writers.
const LONGEST: f64 = 50.0;

fn main() -> Outcome<()> {
    sharded::run("moves", &[measure])
}

/// The times of the operations of readers or writers, in microseconds.
type Times = Mutex<Vec<f64>>;

struct Opened {
    store: Store,
    customers: CustomerRepository,
}

/// The load beside a move.
#[derive(Default)]
struct Load {
    gets: Times,
    counts: Times,
    writes: Times,
}

fn measure(dir: &Path, rounds: u32) -> Outcome<()> {
    let store = sharded::open(&dir.join("store"), 2, 1, Durability::Journal)?;
    let opened = Opened { customers: CustomerRepository::open(&store)?, store };
    let rows = (0..ROWS).map(|number| customer(number, TENANT));
    opened.customers.bulk_load(&opened.store, rows).run()?;
    let mut speeds = [const { Vec::new() }; 3];
    let (mut pauses, mut to) = (Vec::new(), "s1");
    let (mut before, mut during) = (Load::default(), Load::default());
    for _ in 0..rounds {
        for (kind, speeds) in speeds.iter_mut().enumerate() {
            let tenants = opened.store.move_keys("customers", [TENANT], to);
            to = if to == "s1" { "s0" } else { "s1" };
            let moved = match kind {
                0 => tenants.run()?,
                1 => tenants.offline().run()?,
                _ => {
                    beside(&opened, &mut before, || {
                        thread::sleep(Duration::from_secs(3));
                        Ok(())
                    })?;
                    let mut moved = None;
                    beside(&opened, &mut during, || {
                        moved = Some(tenants.run()?);
                        Ok(())
                    })?;
                    moved.ok_or("a move has no result")?
                }
            };
            let rows = f64::from(u32::try_from(moved.rows)?);
            speeds.push(rows / moved.duration.as_secs_f64());
            pauses.push(moved.pause.as_secs_f64() * 1e3);
        }
    }
    println!("| a move of {ROWS} rows with two indexes | rows a second |");
    println!("|---|--:|");
    for (name, speeds) in ["online", "offline", "online, beside load"].iter().zip(&speeds) {
        println!("| {name} | {:.0} |", median(speeds.iter().copied()));
    }
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    println!(
        "\nThe longest switch took {longest:.1} ms, the median {:.1} ms.\n",
        median(pauses.into_iter())
    );
    println!("| operation | p50 without a move, µs | p99 | p50 beside a move, µs | p99 |");
    println!("|---|--:|--:|--:|--:|");
    let pairs = [
        ("get", before.gets, during.gets),
        ("count of a town in all shards", before.counts, during.counts),
        ("update or insert, durable", before.writes, during.writes),
    ];
    for (name, before, during) in pairs {
        let [before, during] = [before, during].map(percentiles);
        println!(
            "| {name} | {:.0} | {:.0} | {:.0} | {:.0} |",
            before[0], before[1], during[0], during[1]
        );
    }
    if longest > LONGEST {
        return Err(format!("a switch took {longest:.1} ms, more than {LONGEST} ms").into());
    }
    Ok(())
}

/// Returns the median and the 99th percentile.
fn percentiles(times: Times) -> [f64; 2] {
    let mut times = times.into_inner().unwrap_or_default();
    times.sort_by(f64::total_cmp);
    [50, 99].map(|percent| times.get(times.len() * percent / 100).copied().unwrap_or_default())
}

/// Runs a reader and a writer until `body` ends.
fn beside(opened: &Opened, load: &mut Load, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    let (load, stop) = (&*load, &stop);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read(opened, load, stop));
        let writer = scope.spawn(move || write(opened, load, stop));
        let outcome = body();
        stop.store(true, Relaxed);
        for thread in [reader, writer] {
            thread.join().unwrap_or(Ok(()))?;
        }
        outcome
    })
}

fn timed<T>(times: &Times, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let value = work()?;
    if let Ok(mut times) = times.lock() {
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(value)
}

fn read(Opened { store, customers }: &Opened, load: &Load, stop: &AtomicBool) -> Result<()> {
    let mut number = 0;
    while !stop.load(Relaxed) {
        number = (number + 7919) % ROWS;
        timed(&load.gets, || {
            customers.get(&store.read()?, TENANT, customer(number, TENANT).id).map(drop)
        })?;
        timed(&load.counts, || {
            customers.find_by_town(&store.read()?, number as u32 % TOWNS).count().map(drop)
        })?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn write(Opened { store, customers }: &Opened, load: &Load, stop: &AtomicBool) -> Result<()> {
    let mut number = 0;
    while !stop.load(Relaxed) {
        number = (number + 104_729) % ROWS;
        timed(&load.writes, || {
            store.transaction(|txn| {
                let id = customer(number, TENANT).id;
                customers.update(txn, TENANT, id, |row| row.town = (row.town + 1) % TOWNS)?;
                customers.put(txn, &customer(ROWS + number, TENANT))
            })
        })?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
