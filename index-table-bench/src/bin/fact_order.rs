//! Measures `Scan::rows_in_fact_order` against `Scan::rows`: when it is worth it to look rows up
//! in the order of the fact table.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin fact_order -- [ROWS] [ROUNDS]
//! ```
//!
//! The rows have random primary keys and a payload of 160 bytes, so that the fact table outgrows
//! the processor's caches, and a score in a normalized index that has nothing to do with the
//! primary key. Asked is for ranges of scores. All of the file is in memory. Figures are
//! nanoseconds for a row, medians of the rounds, in each of which both ways have their turn; what
//! they yield is compared by a sum.

use std::{env, error::Error, fs, process, time::Instant};

use index_table::{Durability, IndexTable, Result, Store};
use index_table_bench::median;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(score)]
struct Entry {
    #[primary_key]
    id: u64,
    score: u32,
    payload: String,
}

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, rounds) = (argument(500_000)?, argument(7)?);
    let dir = env::temp_dir().join(format!("index-table-fact-order-{}", process::id()));
    let outcome = measure(&dir, rows, rounds);
    fs::remove_dir_all(&dir)?;
    outcome
}

fn measure(dir: &std::path::Path, rows: usize, rounds: usize) -> Outcome<()> {
    let store = Store::options().durability(Durability::None).open(dir)?;
    let entries = EntryRepository::open(&store)?;
    store.transaction(|txn| {
        (0..rows as u64).try_for_each(|number| {
            let id = mixed(number);
            let payload = format!("{id:0160}");
            entries.put(txn, &Entry { id, score: (mixed(!number) >> 32) as u32, payload })
        })
    })?;
    println!("| rows of {rows} | `rows()`, ns | `rows_in_fact_order()`, ns | factor |");
    println!("|---|---|---|---|");
    let txn = store.read()?;
    for share in [1000, 100, 10, 2, 1] {
        let scan = || entries.find_by_score_range(&txn, ..=u32::MAX / share);
        let (mut by_key, mut by_fact) = (Vec::new(), Vec::new());
        let mut found = 0;
        for _ in 0..rounds {
            let (time, a) = timed(|| sum(scan().rows()))?;
            by_key.push(time);
            let (time, b) = timed(|| sum(scan().rows_in_fact_order()))?;
            by_fact.push(time);
            if a != b {
                return Err("the two ways yield different rows".into());
            }
            found = a.0;
        }
        let for_a_row = |times: Vec<f64>| median(times.into_iter()) / f64::from(found);
        let (by_key, by_fact) = (for_a_row(by_key), for_a_row(by_fact));
        println!("| {found} | {by_key:.0} | {by_fact:.0} | {:.2} |", by_key / by_fact);
    }
    Ok(())
}

/// How many rows, and something that depends on each of them but not on their order.
fn sum(mut rows: impl Iterator<Item = Result<Entry>>) -> Result<(u32, u64)> {
    rows.try_fold((0, 0), |(count, sum), row| {
        let row = row?;
        Ok((count + 1, row.id.wrapping_add(sum).wrapping_add(row.payload.len() as u64)))
    })
}

/// Nanoseconds, and what came out.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e9, result))
}

/// splitmix64 of a number: different for each, in no order.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
