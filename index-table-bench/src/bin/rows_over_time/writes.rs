//! The cost of a write.

use std::path::Path;

use index_table_bench::median;

use crate::{Contender, ENGINES, Feature, Outcome, open, thread_time};

/// The number of rows before the first round.
const ROWS: u64 = 20_000;
/// The number of rows in a transaction.
const BATCH: u64 = 1_000;

/// The times of a contender: of inserts, edits and deletes.
type Times = [Vec<f64>; 3];

/// One kind of write, of a range of rows.
type Write = fn(&mut dyn Contender, std::ops::Range<u64>) -> Outcome<()>;

pub(crate) fn measure(dir: &Path, rounds: u32) -> Outcome<()> {
    let mut contenders = Vec::new();
    for engine in ENGINES {
        for feature in Feature::ALL {
            let mut contender = open(dir, engine, feature)?;
            for from in (0..ROWS).step_by(BATCH as usize) {
                contender.insert(from..from + BATCH)?;
            }
            contenders.push((engine, feature, contender, Times::default()));
        }
    }
    for round in 0..=u64::from(rounds) {
        for (.., contender, times) in &mut contenders {
            let next = ROWS + round * BATCH;
            let writes: [(Write, u64); 3] = [
                (|contender, rows| contender.insert(rows), next),
                (|contender, rows| contender.edit(rows), next - ROWS / 2),
                (|contender, rows| contender.delete(rows), next - ROWS),
            ];
            for ((write, from), times) in writes.into_iter().zip(times) {
                let began = thread_time();
                write(contender.as_mut(), from..from + BATCH)?;
                // The first round, which adds pages, is not counted.
                if round > 0 {
                    times.push((thread_time() - began) * 1e6 / BATCH as f64);
                }
            }
        }
    }
    let time = |engine: &str, feature: Feature, operation: usize| {
        let found = contenders.iter().find(|it| it.0 == engine && it.1 == feature);
        found.map_or(0.0, |(.., times)| median(times[operation].iter().copied()))
    };
    for (operation, name) in ["insert", "edit", "delete"].into_iter().enumerate() {
        println!("| {name} | index-table | by hand on heed | SQLite |");
        println!("|---|--:|--:|--:|");
        for feature in Feature::ALL {
            let cells = ENGINES.map(|engine| {
                let (own, plain) =
                    [feature, Feature::Plain].map(|it| time(engine, it, operation)).into();
                if feature == Feature::Plain {
                    format!("{own:.2} µs")
                } else {
                    format!("{own:.2} µs, {:+.2}", own - plain)
                }
            });
            println!("| {} | {} |", feature.name(), cells.join(" | "));
        }
        println!();
    }
    Ok(())
}
