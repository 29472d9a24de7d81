//! Measures rows without their type, `store.table(name)`, against rows of the struct.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin untyped -- [ROWS] [ROUNDS]
//! ```
//! The rows have five strings of about 20 bytes, a number that may be absent and a list. There are 1,000 towns. The whole file is in
//! memory. Figures are thousands of rows a second, as medians of the rounds. Each round measures both forms, and compares
//! their results.

#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

use std::{env, error::Error, fs, path::Path, process, time::Instant};

use index_table::{
    Durability, IndexTable, Store,
    json::{self, JsonRows},
};
use index_table_bench::median;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: u32,
    first_name: String,
    last_name: String,
    street: String,
    phone: String,
    email: String,
    score: Option<f64>,
    tags: Vec<String>,
}

const TOWNS: u32 = 1000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, rounds) = (argument(200_000)?, argument(9)?);
    let dir = env::temp_dir().join(format!("index-table-untyped-{}", process::id()));
    let outcome = measure(&dir, rows, rounds);
    fs::remove_dir_all(&dir)?;
    outcome
}

fn customer(id: u64) -> Customer {
    Customer {
        id,
        town: (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 % TOWNS,
        first_name: format!("first name {id}"),
        last_name: format!("last name {id}"),
        street: format!("a street with number {id}"),
        phone: format!("+49 89 {id:012}"),
        email: format!("{id}@customers.example.com"),
        score: (!id.is_multiple_of(3)).then_some(f64::from(id as u32) / 8.0),
        tags: vec!["new".to_owned(), format!("tag {}", id % 10)],
    }
}

fn measure(dir: &Path, rows: usize, rounds: usize) -> Outcome<()> {
    let store = Store::options().durability(Durability::None).open(dir)?;
    let customers = CustomerRepository::open(&store)?;
    customers.bulk_load(&store, (0..rows as u64).map(customer)).run()?;
    let (table, txn) = (store.table("customers")?, store.read()?);
    let index = table.index("town")?;
    println!("| {rows} rows | struct, thousand rows/s | without, thousand rows/s | factor |");
    println!("|---|---|---|---|");
    report(
        "`dump`: a line of JSON for each row",
        (rows, rounds),
        || lines(customers.all(&txn).rows()),
        || lines_without(table.rows(&txn)),
    )?;
    report(
        "`rows` by an index: the same",
        (rows, rounds),
        || lines(customers.by_town(&txn).rows()),
        || lines_without(index.rows(&txn)),
    )?;
    report(
        "`rows()`: a `serde_json::Value` for each row",
        (rows, rounds),
        || {
            let mut fields = 0;
            for row in customers.all(&txn).rows() {
                fields += number_of(&serde_json::to_value(row?)?);
            }
            Ok(fields)
        },
        || {
            let mut fields = 0;
            for row in table.rows(&txn) {
                fields += number_of(&row?.1);
            }
            Ok(fields)
        },
    )
}

fn lines(rows: impl Iterator<Item = index_table::Result<Customer>>) -> Outcome<usize> {
    let (mut line, mut bytes) = (String::new(), 0);
    for row in rows {
        line.clear();
        json::append(&row?, &mut line)?;
        bytes += line.len();
    }
    Ok(bytes)
}

fn lines_without(mut rows: JsonRows<'_>) -> Outcome<usize> {
    let (mut line, mut bytes) = (String::new(), 0);
    while let Some(row) = rows.next_row()? {
        line.clear();
        row.append_to(&mut line)?;
        bytes += line.len();
    }
    Ok(bytes)
}

fn number_of(row: &Value) -> usize {
    row.as_object().map_or(0, serde_json::Map::len)
}

fn report(
    name: &str,
    (rows, rounds): (usize, usize),
    typed: impl Fn() -> Outcome<usize>,
    untyped: impl Fn() -> Outcome<usize>,
) -> Outcome<()> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        let result = typed()?;
        with.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        if untyped()? != result {
            return Err("the results differ".into());
        }
        without.push(begun.elapsed().as_secs_f64());
    }
    let [with, without] =
        [with, without].map(|times| rows as f64 / median(times.into_iter()) / 1000.0);
    println!("| {name} | {with:.0} | {without:.0} | {:.2} |", without / with);
    Ok(())
}
