//! Measures `Scan::views` against `Scan::rows`: the cost of copying the strings of a row.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin views -- [ROWS] [ROUNDS]
//! ```
//! The rows have five strings of about 20 bytes and a photo of 100 bytes. There are 1,000 towns. The rows of
//! each town are read through a normalized index, and all rows are read from the fact table. The whole file
//! is in memory. Figures are nanoseconds for a row, as medians of the rounds. Each round measures both
//! methods, and compares their results by a sum.

use std::{env, error::Error, fs, path::Path, process, time::Instant};

use index_table::{Durability, IndexTable, Result, Scan, Store};
use index_table_bench::median;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: u32,
    first_name: String,
    last_name: String,
    street: String,
    phone: String,
    email: Option<String>,
    photo: Vec<u8>,
}

const TOWNS: u32 = 1000;

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, rounds) = (argument(200_000)?, argument(9)?);
    let dir = env::temp_dir().join(format!("index-table-views-{}", process::id()));
    let outcome = measure(&dir, rows, rounds);
    fs::remove_dir_all(&dir)?;
    outcome
}

fn measure(dir: &Path, rows: usize, rounds: usize) -> Outcome<()> {
    let store = Store::options().durability(Durability::None).open(dir)?;
    let customers = CustomerRepository::open(&store)?;
    store
        .transaction(|txn| (0..rows as u64).try_for_each(|id| customers.put(txn, &customer(id))))?;
    let txn = store.read()?;
    let in_towns = || (0..TOWNS).map(|town| customers.find_by_town(&txn, town));
    println!("| {rows} rows | `rows()`, ns | `views()`, ns | factor |");
    println!("|---|---|---|---|");
    report(
        "the fact table",
        rounds,
        || rows_of(customers.all(&txn).rows()),
        || views_of(customers.all(&txn).views()),
    )?;
    report(
        "by town, normalized",
        rounds,
        || rows_of(in_towns().flat_map(Scan::rows)),
        || views_of(in_towns().flat_map(Scan::views)),
    )
}

fn customer(id: u64) -> Customer {
    Customer {
        id,
        town: (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 % TOWNS,
        first_name: format!("first name {id}"),
        last_name: format!("last name {id}"),
        street: format!("a street with number {id}"),
        phone: format!("+49 89 {id:012}"),
        email: Some(format!("{id}@customers.example.com")),
        photo: vec![id as u8; 100],
    }
}

fn report(
    what: &str,
    rounds: usize,
    rows: impl Fn() -> Result<Sum>,
    views: impl Fn() -> Result<Sum>,
) -> Outcome<()> {
    let (mut by_row, mut by_view) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (time, owned) = timed(&rows)?;
        by_row.push(time / f64::from(owned.rows));
        let (time, borrowed) = timed(&views)?;
        by_view.push(time / f64::from(borrowed.rows));
        if owned != borrowed {
            return Err("the two methods return different rows".into());
        }
    }
    let (by_row, by_view) = (median(by_row.into_iter()), median(by_view.into_iter()));
    println!("| {what} | {by_row:.0} | {by_view:.0} | {:.1} |", by_row / by_view);
    Ok(())
}

/// The number of rows, and a sum that depends on each of their fields.
#[derive(Default, PartialEq)]
struct Sum {
    rows: u32,
    sum: u64,
}

macro_rules! sum {
    ($read:expr) => {
        $read.try_fold(Sum::default(), |Sum { rows, sum }, row| {
            let row = row?;
            let email = row.email.as_ref().map_or(0, |email| email.len());
            let length = row.first_name.len() + row.last_name.len() + row.street.len();
            let length = length + row.phone.len() + email + row.photo.len();
            Ok(Sum { rows: rows + 1, sum: sum.wrapping_add(row.id ^ length as u64) })
        })
    };
}

fn rows_of(mut rows: impl Iterator<Item = Result<Customer>>) -> Result<Sum> {
    sum!(rows)
}

fn views_of<'txn>(mut views: impl Iterator<Item = Result<CustomerView<'txn>>>) -> Result<Sum> {
    sum!(views)
}

/// Returns the time in nanoseconds, and the sum of the values.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e9, result))
}
