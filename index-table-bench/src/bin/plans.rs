//! Measures plans of rebalancing from samples and from all rows, and moves of the entries of a global index.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin plans -- [ROUNDS [DIRECTORY]]
//! ```

#![allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]

use std::{path::Path, time::Instant};

use index_table::{Durability, IndexTable, Result, ShardMap};
use index_table_bench::{
    median,
    sharded::{self, Outcome, options},
};
use serde::{Deserialize, Serialize};

/// The numbers of rows of the first measurement.
const ROWS: [u64; 3] = [100_000, 1_000_000, 4_000_000];

/// The number of rows whose entries are moved.
const MOVED: u64 = 1_000_000;

/// The ranges, shards and rows of the second measurement.
const RANGES: u32 = 1000;
const SHARDS: u32 = 64;
const SPREAD: u64 = 1_000_000;

const TENANTS: u32 = 10_000;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    text: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct User {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    email: String,
}

fn main() -> Outcome<()> {
    sharded::run("plans", &[plans, ranges, global])
}

/// Returns a tenant of a row: the first tenants have more rows than the last tenants.
fn tenant(number: u64) -> u32 {
    let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let (one, other) = (random as u32 % TENANTS, (random >> 10) as u32 % TENANTS);
    one.min(other)
}

/// Returns the rows in the order of their keys.
fn orders(count: u64) -> Vec<Order> {
    let order = |number| Order { tenant: tenant(number), number, text: "x".repeat(60) };
    let mut orders: Vec<_> = (0..count).map(order).collect();
    orders.sort_by_key(|order| (order.tenant, order.number));
    orders
}

/// Returns the median time of `work` in milliseconds.
fn time(rounds: u32, mut work: impl FnMut() -> Result<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times.into_iter()))
}

fn plans(dir: &Path, rounds: u32) -> Outcome<()> {
    println!(
        "| rows in two of four shards | a plan from samples | sampled rows | a plan from all rows | error of the loads |"
    );
    println!("|--:|--:|--:|--:|--:|");
    for count in ROWS {
        let map = ShardMap::ranges().to("s0", ..2000u32).to("s1", 2000u32..);
        let store = (0..4)
            .map(|number| format!("s{number}"))
            .fold(options(Durability::Journal), |all, name| all.shard(&name, &name))
            .map("orders", map)
            .open(dir.join(format!("plans.{count}")))?;
        let repository = OrderRepository::open(&store)?;
        let rows = orders(count);
        let mut of_tenants = vec![0_u64; TENANTS as usize];
        for row in &rows {
            of_tenants[row.tenant as usize] += 1;
        }
        repository.bulk_load(&store, rows).run()?;
        let sampled = time(rounds, || store.rebalance("orders").plan().map(drop))?;
        let exact = time(rounds, || store.rebalance("orders").exact().plan().map(drop))?;
        let plan = store.rebalance("orders").plan()?;
        // The loads after the moves of the plan, and the loads that the plan expects.
        let mut loads: Vec<i64> =
            plan.shards().iter().map(|shard| shard.before.cast_signed()).collect();
        let at = |name: &str| plan.shards().iter().position(|shard| shard.shard == name);
        for planned in plan.moves() {
            let key = |text: &Option<String>| text.as_ref().map(|it| it.parse::<usize>());
            let start = key(&planned.start).transpose()?.unwrap_or(0);
            let end = key(&planned.end).transpose()?.unwrap_or(of_tenants.len());
            let moved = of_tenants[start..end].iter().sum::<u64>().cast_signed();
            let (from, to) = (at(&planned.from).ok_or("no")?, at(&planned.to).ok_or("no")?);
            loads[from] -= moved;
            loads[to] += moved;
        }
        let errors = plan.shards().iter().zip(&loads);
        let error = errors.map(|(shard, load)| shard.after.cast_signed().abs_diff(*load)).max();
        let error = error.unwrap_or_default() as f64 * 400.0 / count as f64;
        let read = plan.sampled_rows().map_or_else(|| "all".to_owned(), |rows| rows.to_string());
        println!("| {count} | {sampled:.1} ms | {read} | {exact:.1} ms | {error:.2} % |");
    }
    println!();
    Ok(())
}

fn ranges(dir: &Path, rounds: u32) -> Outcome<()> {
    let width = TENANTS / RANGES;
    let mut map = ShardMap::ranges();
    for range in 0..RANGES {
        // The first shards have more ranges.
        let shard = format!("s{}", (range * range) % SHARDS);
        let (start, end) = (range * width, (range + 1) * width);
        map = if range + 1 < RANGES { map.to(shard, start..end) } else { map.to(shard, start..) };
    }
    let store = (0..SHARDS)
        .map(|number| format!("s{number}"))
        .fold(options(Durability::Journal).map_size(1 << 27), |all, name| all.shard(&name, &name))
        .map("orders", map)
        .open(dir.join("ranges"))?;
    let repository = OrderRepository::open(&store)?;
    repository.bulk_load(&store, orders(SPREAD)).run()?;
    let sampled = time(rounds, || store.rebalance("orders").plan().map(drop))?;
    let exact = time(rounds, || store.rebalance("orders").exact().plan().map(drop))?;
    let plan = store.rebalance("orders").plan()?;
    println!(
        "A plan for {RANGES} ranges and {SPREAD} rows on {SHARDS} shards takes {sampled:.0} ms from {} sampled rows, and \
         {exact:.0} ms from all rows; it has {} moves.\n",
        plan.sampled_rows().unwrap_or_default(),
        plan.moves().len()
    );
    if sampled > 1000.0 {
        return Err("a plan took more than a second".into());
    }
    Ok(())
}

fn global(dir: &Path, rounds: u32) -> Outcome<()> {
    let store = options(Durability::Journal)
        .shard("s0", "s0")
        .shard("s1", "s1")
        .map("users", ShardMap::list().to("s0", [0u32]).otherwise("s0"))
        .map("users.email", ShardMap::hashed(["s0"]))
        .open(dir.join("global"))?;
    let users = UserRepository::open(&store)?;
    let user = |number: u64| User {
        tenant: 0,
        number,
        email: format!("{:x}@example.com", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
    };
    users.bulk_load(&store, (0..MOVED).map(user)).run()?;
    let (mut speeds, mut pauses) = ([const { Vec::new() }; 2], Vec::new());
    for round in 0..2 * rounds {
        let to = if round % 2 == 0 { "s1" } else { "s0" };
        let moving = store.move_slots("users.email", .., to);
        let is_offline = round / 2 % 2 == 1;
        let moved = if is_offline { moving.offline().run()? } else { moving.run()? };
        speeds[usize::from(is_offline)].push(moved.rows as f64 / moved.duration.as_secs_f64());
        pauses.push(moved.pause.as_secs_f64() * 1e3);
    }
    println!("| a move of {MOVED} entries of a unique global index | entries a second |");
    println!("|---|--:|");
    for (name, speeds) in ["online", "offline"].iter().zip(speeds) {
        if !speeds.is_empty() {
            println!("| {name} | {:.0} |", median(speeds.into_iter()));
        }
    }
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    println!("\nThe longest switch took {longest:.1} ms.");
    Ok(())
}
