//! Measures the costs that revisions, expiry, references, aggregates and parts add to a write, and the costs that they
//! save in a read, against the same by hand on heed and against SQLite.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin rows_over_time -- [ROUNDS [SECTION [DIRECTORY]]]
//! ```
//! The sections are `writes`, `reads`, `parts`, `expiry` and `cascade`; without one, all are measured. Commits are not
//! synced, unless the description of a section states it. Each round measures all contenders. Figures are medians of
//! the rounds; the figures of `writes`, `reads` and `parts` are the CPU time of the thread.

#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

mod by_hand;
mod expiry;
mod generated;
mod parts;
mod reads;
mod sqlite;
mod writes;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process,
};

use serde::{Deserialize, Serialize};

/// The return type of a measurement.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// The number of customers.
const CUSTOMERS: u64 = 1_000;

/// The feature that a table declares in addition to an index on the customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    Plain,
    Revision,
    Expiry,
    References,
    Aggregate,
}

impl Feature {
    const ALL: [Self; 5] =
        [Self::Plain, Self::Revision, Self::Expiry, Self::References, Self::Aggregate];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Revision => "a revision",
            Self::Expiry => "a time of expiry",
            Self::References => "a reference",
            Self::Aggregate => "an aggregate",
        }
    }
}

/// A row, in all contenders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    number: u64,
    revision: u64,
    customer: u64,
    amount: i64,
    /// Seconds since 1970.
    expires_at: u64,
    text: String,
}

impl Row {
    fn new(number: u64) -> Self {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        Self {
            number,
            revision: 0,
            customer: scattered % CUSTOMERS,
            amount: (scattered % 9_973).cast_signed(),
            expires_at: 1_700_000_000 + scattered % 31_536_000,
            text: "x".repeat(80),
        }
    }
}

/// A table of a contender.
trait Contender {
    /// Inserts the rows with these numbers, in one transaction.
    fn insert(&mut self, numbers: std::ops::Range<u64>) -> Outcome<()>;

    /// Reads each of these rows, adds 1 to its amount, and writes it, in one transaction.
    fn edit(&mut self, numbers: std::ops::Range<u64>) -> Outcome<()>;

    /// Deletes these rows, in one transaction.
    fn delete(&mut self, numbers: std::ops::Range<u64>) -> Outcome<()>;

    /// Returns the count and the sum of the amounts of a customer, by reading the rows.
    fn scan(&mut self, customer: u64) -> Outcome<(u64, i64)>;

    /// Returns the same by a look-up of the totals.
    fn look_up(&mut self, customer: u64) -> Outcome<(u64, i64)>;
}

fn open(dir: &Path, engine: &str, feature: Feature) -> Outcome<Box<dyn Contender>> {
    let dir = dir.join(format!("{engine} {}", feature.name()));
    fs::create_dir_all(&dir)?;
    match engine {
        "index-table" => generated::open(&dir, feature),
        "heed" => Ok(Box::new(by_hand::ByHand::open(&dir, feature)?)),
        _ => Ok(Box::new(sqlite::Sqlite::open(&dir, feature)?)),
    }
}

/// Returns the CPU time of this thread, in seconds. Unlike wall-clock time, it does not include waits for the disk or
/// for other processes.
fn thread_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Measures one section in a directory, in this number of rounds.
type Measure = fn(&Path, u32) -> Outcome<()>;

const ENGINES: [&str; 3] = ["index-table", "heed", "SQLite"];

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let only = arguments.next();
    let dir = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    if let Some(case) = only.as_deref().and_then(|only| only.strip_prefix(expiry::OF)) {
        // In a process of its own, which has not loaded the rows.
        return expiry::cascade_of(&dir, rounds.into(), case);
    }
    let dir = dir.join(format!("index-table-rows-over-time-{}", process::id()));
    let sections: [(&str, Measure); 5] = [
        ("writes", writes::measure),
        ("reads", reads::measure),
        ("parts", parts::measure),
        ("expiry", expiry::expiry),
        ("cascade", expiry::cascade),
    ];
    for (name, measure) in sections {
        if only.as_ref().is_some_and(|only| only != name && only != "all") {
            continue;
        }
        fs::create_dir_all(&dir)?;
        let outcome = measure(&dir, rounds);
        fs::remove_dir_all(&dir)?;
        outcome?;
        println!();
    }
    Ok(())
}
