//! Compares global indexes with local indexes: inserts and look-ups, by the number of shards.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin global_indexes -- [ROUNDS [DIRECTORY]]
//! ```
//! Each round measures all contenders. Figures are medians of the rounds.

#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

use std::{path::Path, time::Instant};

use index_table::{Durability, Result, Store};
use index_table_bench::{
    median,
    sharded::{self, Outcome},
};

/// The numbers of shards.
const SHARDS: [u32; 4] = [1, 2, 4, 16];
/// The number of tenants.
const TENANTS: u32 = 64;
/// The number of rows that the look-ups find.
const ROWS: u64 = 20_000;
/// The number of commits in a round.
const COMMITS: u64 = 200;
/// The number of look-ups in a round.
const LOOK_UPS: u64 = 5_000;

/// Declares the same table with the given indexes.
macro_rules! accounts {
    ($module:ident, $($index:tt)*) => {
        mod $module {
            use index_table::IndexTable;
            use serde::{Deserialize, Serialize};

            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = "accounts", shard_by = tenant, shard_map = "customers")]
            $($index)*
            pub(crate) struct Account {
                #[primary_key]
                pub(crate) tenant: u32,
                #[primary_key]
                pub(crate) id: u64,
                pub(crate) email: String,
                pub(crate) text: String,
            }

            pub(crate) fn account(number: u64) -> Account {
                let id = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let (tenant, email) = ((id >> 32) as u32 % super::TENANTS, super::email(number));
                Account { tenant, id, email, text: "x".repeat(80) }
            }
        }
    };
}

accounts!(without,);
accounts!(local, #[index(email)]);
accounts!(global, #[index(email, unique, scope = "global")]);

fn email(number: u64) -> String {
    format!("{:x}@example.com", number.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

fn main() -> Outcome<()> {
    sharded::run("global-indexes", &[inserts, look_ups])
}

fn open(dir: &Path, name: &str, shards: u32, durability: Durability) -> Result<Store> {
    sharded::open(&dir.join(format!("{name} {shards}")), shards, TENANTS, durability)
}

/// Calls `insert` for each commit of a round, and returns the time of a commit.
fn time(next: u64, count: u64, mut each: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    (next..next + count).try_for_each(&mut each)?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// Measures durable inserts of one row.
fn inserts(dir: &Path, rounds: u32) -> Outcome<()> {
    println!(
        "| a durable insert of a row, one thread | no index | a local index | a global index |"
    );
    println!("|---|--:|--:|--:|");
    for shards in SHARDS {
        let stores =
            ["without", "local", "global"].map(|name| open(dir, name, shards, Durability::Journal));
        let [without_store, local_store, global_store] = stores;
        let stores = (without_store?, local_store?, global_store?);
        let without = without::AccountRepository::open(&stores.0)?;
        let local = local::AccountRepository::open(&stores.1)?;
        let global = global::AccountRepository::open(&stores.2)?;
        let mut times: [Vec<f64>; 3] = Default::default();
        for round in 0..=u64::from(rounds) {
            let next = round * COMMITS;
            times[0].push(time(next, COMMITS, |number| {
                let row = without::account(number);
                stores.0.transaction(|txn| without.insert(txn, &row))
            })?);
            times[1].push(time(next, COMMITS, |number| {
                let row = local::account(number);
                stores.1.transaction(|txn| local.insert(txn, &row))
            })?);
            times[2].push(time(next, COMMITS, |number| {
                let row = global::account(number);
                stores.2.transaction(|txn| global.insert(txn, &row))
            })?);
        }
        // The first round, which adds pages, is not counted.
        let [without, local, global] = times.map(|all| median(all.into_iter().skip(1)));
        println!(
            "| {shards} shards | {without:.0} µs | {local:.0} µs, {:.2} | {global:.0} µs, {:.2} |",
            local / without,
            global / without
        );
    }
    println!();
    Ok(())
}

/// Measures look-ups of one row by its email, each in a transaction of its own and in one transaction.
fn look_ups(dir: &Path, rounds: u32) -> Outcome<()> {
    println!(
        "| a look-up by the key of an index | local | global | with `read()`: local | global |"
    );
    println!("|---|--:|--:|--:|--:|");
    for shards in SHARDS {
        let local_store = open(dir, "local rows", shards, Durability::Relaxed)?;
        let global_store = open(dir, "global rows", shards, Durability::Relaxed)?;
        let local = local::AccountRepository::open(&local_store)?;
        let global = global::AccountRepository::open(&global_store)?;
        local.bulk_load(&local_store, (0..ROWS).map(local::account)).run()?;
        global.bulk_load(&global_store, (0..ROWS).map(global::account)).run()?;
        let mut times: [Vec<f64>; 4] = Default::default();
        for round in 0..u64::from(rounds) {
            let next = round * LOOK_UPS;
            let (one, other) = (local_store.read()?, global_store.read()?);
            let number = |number: u64| email(number * 7 % ROWS);
            times[0].push(time(next, LOOK_UPS, |at| {
                assert!(local.find_by_email(&one, &number(at)).first()?.is_some());
                Ok(())
            })?);
            times[1].push(time(next, LOOK_UPS, |at| {
                assert!(global.get_by_email(&other, &number(at))?.is_some());
                Ok(())
            })?);
            drop((one, other));
            times[2].push(time(next, LOOK_UPS, |at| {
                let txn = local_store.read()?;
                assert!(local.find_by_email(&txn, &number(at)).first()?.is_some());
                Ok(())
            })?);
            times[3].push(time(next, LOOK_UPS, |at| {
                let txn = global_store.read()?;
                assert!(global.get_by_email(&txn, &number(at))?.is_some());
                Ok(())
            })?);
        }
        let [local, global, local_alone, global_alone] = times.map(|all| median(all.into_iter()));
        println!(
            "| {shards} shards | {local:.1} µs | {global:.1} µs | {local_alone:.1} µs | {global_alone:.1} µs |"
        );
    }
    Ok(())
}
