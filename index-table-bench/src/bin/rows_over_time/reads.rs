//! The savings of an aggregate.

use std::{hint::black_box, path::Path};

use index_table_bench::median;

use crate::{CUSTOMERS, ENGINES, Feature, Outcome, open, thread_time};

const ROWS: u64 = 1_000_000;
const BATCH: u64 = 10_000;

pub(crate) fn measure(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut contenders = Vec::new();
    for engine in ENGINES {
        let mut contender = open(dir, engine, Feature::Aggregate)?;
        for from in (0..ROWS).step_by(BATCH as usize) {
            contender.insert(from..from + BATCH)?;
        }
        contenders.push((engine, contender, Vec::new(), Vec::new()));
    }
    for round in 0..u64::from(rounds) {
        for (_, contender, scans, look_ups) in &mut contenders {
            let began = thread_time();
            for customer in 0..10 {
                black_box(contender.scan((round * 10 + customer) % CUSTOMERS)?);
            }
            scans.push((thread_time() - began) * 1e6 / 10.0);
            let began = thread_time();
            for customer in 0..CUSTOMERS {
                black_box(contender.look_up(customer)?);
            }
            look_ups.push((thread_time() - began) * 1e6 / CUSTOMERS as f64);
            let customer = round % CUSTOMERS;
            assert_eq!(contender.scan(customer)?, contender.look_up(customer)?);
        }
    }
    println!(
        "| count and sum of one of {CUSTOMERS} groups of {} rows | of its rows | of its totals |",
        ROWS / CUSTOMERS
    );
    println!("|---|--:|--:|");
    for (engine, _, scans, look_ups) in contenders {
        let [scan, look_up] = [scans, look_ups].map(|times| median(times.into_iter()));
        println!("| {engine} | {scan:.0} µs | {look_up:.2} µs |");
    }
    Ok(())
}
