//! Compares index tables on a PostgreSQL server with hand-written SQL: typed columns, B-tree indexes with `INCLUDE`, and
//! prepared statements.
//!
//! ```text
//! scripts/postgres cargo run --release -p index-table-bench --features postgres --bin postgres -- [ROWS] [ROUNDS]
//! ```
//!
//! Each round measures both, one directly after the other, in a different order each time. A ratio is the median of the
//! ratios of the rounds, of the CPU time of the client (all of its threads) and of its sessions on the server. So the server
//! must be on the same machine. Both return the same rows, which is checked.
#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

mod cpu;
mod index_tables;
mod sql;
mod writers;

use std::{env, error::Error};

use index_table_bench::median;

use cpu::Cpu;
use index_tables::IndexTables;
use sql::HandWritten;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A row of both.
#[derive(Debug, Clone, PartialEq)]
struct Values {
    id: i64,
    last_name: String,
    town: String,
    phone: String,
    email: String,
}

/// The town with many rows, the number of its rows, and the number of rows of another town.
const BIG: (&str, i64) = ("Wien", 26_000);
const SMALL: i64 = 200;

fn values(id: i64) -> Values {
    let town = if id < BIG.1 { BIG.0.to_owned() } else { format!("town {}", id / SMALL) };
    Values {
        id,
        last_name: format!("name {}", id % 20),
        town,
        phone: format!("555-{id:06}"),
        email: format!("c{id}@example.com"),
    }
}

/// An operation of a contender. It gets the number of the round, and returns the number of rows.
type Run<'a, C> = &'a dyn Fn(&C, i64) -> Outcome<usize>;

struct Operation<'a> {
    name: &'a str,
    /// The target for the ratio.
    target: f64,
    index_tables: Run<'a, IndexTables>,
    sql: Run<'a, HandWritten>,
}

/// A number that is different for each step of each round.
const fn scattered(round: i64, step: i64, rows: i64) -> i64 {
    (round * 7_919 + step * 104_729 + 13) % rows
}

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    let rows: i64 = arguments.next().map_or(Ok(100_000), |it| it.parse())?;
    let rounds: i64 = arguments.next().map_or(Ok(15), |it| it.parse())?;
    let url = env::var("INDEX_TABLE_POSTGRES_URL")
        .map_err(|_| "INDEX_TABLE_POSTGRES_URL is not set; see scripts/postgres")?;
    let sql = HandWritten::connect(&url)?;
    let index_tables = IndexTables::connect(&url)?;
    let cpu = Cpu::new(&sql)?;

    println!("{rows} rows, {rounds} rounds; CPU time of client and server, hand-written SQL = 1\n");
    println!("| operation | ratio | target | server alone |\n|---|---|---|---|");
    let of_sql = cpu.measure(true, || sql.load(0..rows).map(|()| 0))?;
    let of_tables = cpu.measure(false, || index_tables.load(0..rows).map(|()| 0))?;
    println!("| load | {:.2} | 1.00 | |", of_tables.total() / of_sql.total());
    println!("| space | {:.2} | 1.40 | |", cpu.bytes("bench")? / cpu.bytes("bench_sql")?);

    index_tables.vacuum()?;
    for operation in operations() {
        let (mut ratios, mut of_server) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let mut of_both = [None, None];
            for is_sql in [round % 2 == 0, round % 2 != 0] {
                let mut count = 0;
                let measured = cpu.measure(is_sql, || {
                    count = if is_sql {
                        (operation.sql)(&sql, round)?
                    } else {
                        (operation.index_tables)(&index_tables, round)?
                    };
                    Ok(count)
                })?;
                of_both[usize::from(is_sql)] = Some((measured, count));
            }
            let [Some((tables, found)), Some((hand_written, expected))] = of_both else { continue };
            if found != expected {
                return Err(format!("{}: {found} rows, not {expected}", operation.name).into());
            }
            // The first round prepares the statements.
            if round > 0 {
                ratios.push(tables.total() / hand_written.total());
                of_server.push(tables.server / hand_written.server);
            }
        }
        let (ratio, server) = (median(ratios.into_iter()), median(of_server.into_iter()));
        println!("| {} | {ratio:.2} | {:.2} | {server:.2} |", operation.name, operation.target);
    }
    println!("\n| writers | commits, of hand-written SQL | target |\n|---|---|---|");
    writers::compare(&url, rounds.min(5))
}

/// Returns the operations, each with its target.
fn operations() -> [Operation<'static>; 11] {
    [
        Operation {
            name: "get",
            target: 1.25,
            index_tables: &|it, round| it.gets(round, 200),
            sql: &|it, round| it.gets(round, 200),
        },
        Operation {
            name: "100 rows by `get_many`",
            target: 1.05,
            index_tables: &|it, round| it.get_many(round, 20),
            sql: &|it, round| it.get_many(round, 20),
        },
        Operation {
            name: "get by a unique index",
            target: 1.15,
            index_tables: &|it, round| it.gets_by_email(round, 200),
            sql: &|it, round| it.gets_by_email(round, 200),
        },
        Operation {
            name: "200 rows of a key",
            target: 1.9,
            index_tables: &|it, round| it.rows_of_town(&small(round), 10),
            sql: &|it, round| it.rows_of_town(&small(round), 10),
        },
        Operation {
            name: "26,000 rows of a key",
            target: 2.0,
            index_tables: &|it, _| it.rows_of_town(BIG.0, 1),
            sql: &|it, _| it.rows_of_town(BIG.0, 1),
        },
        Operation {
            name: "page of 20",
            target: 1.4,
            index_tables: &|it, _| it.pages(BIG.0, 100),
            sql: &|it, _| it.pages(BIG.0, 100),
        },
        Operation {
            name: "covered scan of 1,300 entries",
            target: 0.8,
            index_tables: &|it, _| it.phones(BIG.0, "name 7", 5),
            sql: &|it, _| it.phones(BIG.0, "name 7", 5),
        },
        Operation {
            name: "count of 26,000",
            target: 1.0,
            index_tables: &|it, _| it.count(BIG.0, 5),
            sql: &|it, _| it.count(BIG.0, 5),
        },
        Operation {
            name: "scan of everything",
            target: 0.9,
            index_tables: &|it, _| it.all(),
            sql: &|it, _| it.all(),
        },
        Operation {
            name: "insert",
            target: 1.1,
            index_tables: &|it, round| it.inserts(round, 200),
            sql: &|it, round| it.inserts(round, 200),
        },
        Operation {
            name: "change, old row unknown",
            target: 1.8,
            index_tables: &|it, round| it.changes(round, 200),
            sql: &|it, round| it.changes(round, 200),
        },
    ]
}

/// Returns a town with [`SMALL`] rows.
fn small(round: i64) -> String {
    format!("town {}", BIG.1 / SMALL + 1 + round % 100)
}

/// The first key of the rows that a round inserts.
const fn inserted(round: i64) -> i64 {
    10_000_000 + round * 10_000
}
