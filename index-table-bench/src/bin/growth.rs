//! A simulation of a store that grows from 1 to 64 shards, with three shard keys and two ways to add shards.
//!
//! ```text
//! cargo run --release -p index-table-bench --features memory --bin growth -- [SHARDS [FILE.svg]]
//! ```
//! The shards are in memory. The plans are those of the runtime, and all their moves are run.
//!
//! 100 tenants get rows; their sizes follow Zipf's law. If the shards are 80 % full on average, shards are added. If a shard is
//! 80 % full, the map is rebalanced by rows, online. A shard can hold [`CAPACITY`] rows; the ratios don't depend on it.

#![allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::{self, Write as _},
    fs,
};

use index_table::{IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// The number of rows of a full shard.
const CAPACITY: u64 = 1000;

/// The part of a shard that is used when the map is rebalanced, in percent.
const FULL: u64 = 80;

const TENANTS: usize = 100;

/// The number of rows in a transaction.
const BATCH: u64 = 100;

macro_rules! row {
    ($module:ident, $name:literal, $($shard_by:tt)*) => {
        mod $module {
            use super::{Deserialize, IndexTable, Serialize};

            /// A row with the fields of a shared primary key.
            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = $name, shard_by = $($shard_by)*)]
            pub(super) struct Row {
                #[primary_key]
                pub(super) tenant: u32,
                #[primary_key]
                pub(super) customer: u32,
                #[primary_key]
                pub(super) number: u64,
            }
        }
    };
}

row!(by_tenant, "by_tenant", tenant);
row!(by_customer, "by_customer", [tenant, customer]);
row!(by_hash, "by_hash", hash(tenant, customer));

/// The state of the store after some rows.
struct Sample {
    rows: u64,
    shards: usize,
    /// The rows moved so far, for each row that is stored.
    moved: f64,
    /// The load of the fullest shard, divided by the average.
    imbalance: f64,
}

/// The result for a shard key.
struct Growth {
    name: String,
    samples: Vec<Sample>,
    /// The number of moves.
    steps: usize,
    /// The share of the samples in which a shard is more than full.
    overfull: f64,
}

/// Inserts a row of a tenant and a customer.
type Insert<'a> = Box<dyn Fn(&mut index_table::WriteTxn<'_>, u32, u32, u64) -> Result<()> + 'a>;

/// Returns random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    /// Returns a tenant; the probability of tenant `n` is proportional to `1 / (n + 1)`.
    fn tenant(&mut self) -> u32 {
        let weight = |tenant: usize| 1_000_000 / (tenant as u64 + 1);
        let mut at = self.below((0..TENANTS).map(weight).sum());
        for tenant in 0..TENANTS {
            if at < weight(tenant) {
                // Neighbouring numbers have different sizes.
                return (tenant * 37 % TENANTS) as u32;
            }
            at -= weight(tenant);
        }
        0
    }
}

fn grow(kind: &str, most: usize, doubles: bool) -> Result<Growth> {
    let map: ShardMap = match kind {
        "tenant" => ShardMap::ranges().to("0", 0u32..).into(),
        "tenant, customer" => ShardMap::ranges().to("0", (0u32, 0u32)..).into(),
        _ => ShardMap::hashed(["0"]),
    };
    let table = match kind {
        "tenant" => "by_tenant",
        "tenant, customer" => "by_customer",
        _ => "by_hash",
    };
    let store = Store::options().shard("0", "0").map(table, map).in_memory()?;
    let insert: Insert<'_> = match kind {
        "tenant" => {
            let rows = by_tenant::RowRepository::open(&store)?;
            Box::new(move |txn, tenant, customer, number| {
                rows.insert(txn, &by_tenant::Row { tenant, customer, number })
            })
        }
        "tenant, customer" => {
            let rows = by_customer::RowRepository::open(&store)?;
            Box::new(move |txn, tenant, customer, number| {
                rows.insert(txn, &by_customer::Row { tenant, customer, number })
            })
        }
        _ => {
            let rows = by_hash::RowRepository::open(&store)?;
            Box::new(move |txn, tenant, customer, number| {
                rows.insert(txn, &by_hash::Row { tenant, customer, number })
            })
        }
    };
    let (mut random, mut rows, mut moved, mut steps) = (Random(7), 0, 0, 0);
    let (mut samples, mut planned, mut overfull) = (Vec::new(), 0, 0);
    while rows < most as u64 * CAPACITY * FULL / 100 {
        store.transaction(|txn| {
            (rows..rows + BATCH).try_for_each(|number| {
                insert(txn, random.tenant(), random.below(1000) as u32, number)
            })
        })?;
        rows += BATCH;
        let mut count = store.shard_ids().len();
        let added = count < most && rows * 100 >= count as u64 * CAPACITY * FULL;
        if added {
            for number in count..most.min(if doubles { 2 * count } else { count + 1 }) {
                let name = number.to_string();
                store.add_shard(&name, &name)?;
            }
            count = store.shard_ids().len();
        }
        let loads =
            || -> Result<Vec<u64>> { Ok(store.shards()?.iter().map(|shard| shard.rows).collect()) };
        let fullest = loads()?.into_iter().max().unwrap_or_default();
        // If a plan did not help, the next plan is made after a further 5 % of the rows.
        let is_full = fullest * 100 >= CAPACITY * FULL && rows >= planned + planned / 20;
        if added || is_full {
            let plan = store.rebalance(table).by_rows().plan()?;
            steps += plan.moves().len();
            moved += plan.run()?.rows;
            planned = rows;
        }
        let fullest = loads()?.into_iter().max().unwrap_or_default();
        overfull += usize::from(fullest > CAPACITY);
        let imbalance = fullest as f64 * count as f64 / rows as f64;
        let moved = moved as f64 / rows as f64;
        samples.push(Sample { rows, shards: count, moved, imbalance });
    }
    let how = if doubles { "doubled" } else { "one at a time" };
    let overfull = overfull as f64 / samples.len() as f64;
    Ok(Growth { name: format!("{kind}, {how}"), samples, steps, overfull })
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, samples, steps, overfull } = self;
        let mut at: BTreeMap<usize, &Sample> = BTreeMap::new();
        for sample in samples {
            at.insert(sample.shards, sample);
        }
        let of = |shards: usize, figure: fn(&Sample) -> f64| {
            at.get(&shards).map_or_else(|| "–".to_owned(), |it| format!("{:.2}", figure(it)))
        };
        let last = at.keys().last().copied().unwrap_or_default();
        let (moved, imbalance) = (|it: &Sample| it.moved, |it: &Sample| it.imbalance);
        write!(
            f,
            "| {name} | {} | {} | {} | {} | {steps} | {:.0} % |",
            of(8, moved),
            of(last, moved),
            of(8, imbalance),
            of(last, imbalance),
            overfull * 100.0
        )
    }
}

/// Draws a figure of all samples over the number of rows.
fn panel(
    out: &mut String,
    all: &[Growth],
    top: f64,
    title: &str,
    figure: fn(&Sample) -> f64,
) -> fmt::Result {
    let values = || all.iter().flat_map(|growth| growth.samples.iter());
    let most = values().map(figure).fold(1.0, f64::max).min(16.0);
    let last = values().map(|sample| sample.rows).max().unwrap_or(1) as f64;
    writeln!(out, "<text x=\"60\" y=\"{}\" font-weight=\"bold\">{title}</text>", top - 8.0)?;
    for step in 0..=4 {
        let (value, y) = (most * f64::from(step) / 4.0, top + 200.0 - 50.0 * f64::from(step));
        writeln!(out, "<line x1=\"60\" y1=\"{y}\" x2=\"760\" y2=\"{y}\" stroke=\"#ddd\"/>")?;
        writeln!(out, "<text x=\"54\" y=\"{}\" text-anchor=\"end\">{value:.2}</text>", y + 4.0)?;
    }
    for (growth, color) in all.iter().zip(COLORS) {
        let dash = if growth.name.ends_with("doubled") { " stroke-dasharray=\"5 3\"" } else { "" };
        write!(
            out,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"{dash} points=\""
        )?;
        for sample in growth.samples.iter().step_by(growth.samples.len().div_ceil(350)) {
            let x = 60.0 + 700.0 * sample.rows as f64 / last;
            let y = top + 200.0 - 200.0 * figure(sample).min(most) / most;
            write!(out, "{x:.1},{y:.1} ")?;
        }
        writeln!(out, "\"/>")?;
    }
    Ok(())
}

const COLORS: [&str; 6] = ["#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#999999"];

fn plot(all: &[Growth]) -> std::result::Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 640\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"780\" height=\"640\" fill=\"#fff\"/>"
    )?;
    for (at, (growth, color)) in all.iter().zip(COLORS).enumerate() {
        let (x, y) = (60.0 + 240.0 * (at / 2) as f64, 20.0 + 16.0 * (at % 2) as f64);
        let name = &growth.name;
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"{color}\">— {name}</text>")?;
    }
    panel(&mut out, all, 80.0, "rows moved for each stored row", |sample| sample.moved)?;
    panel(&mut out, all, 340.0, "fullest shard / average", |sample| sample.imbalance)?;
    writeln!(out, "<text x=\"410\" y=\"570\" text-anchor=\"middle\">rows stored →</text>\n</svg>")?;
    Ok(out)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let most = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let mut all = Vec::new();
    println!(
        "| shard key, and how shards are added | moved, 8 shards | moved, {most} | imbalance, 8 | imbalance, {most} | \
         moves | time with an overfull shard |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for kind in ["tenant", "tenant, customer", "hash of tenant, customer"] {
        for doubles in [false, true] {
            let growth = grow(kind, most, doubles)?;
            println!("{growth}");
            all.push(growth);
        }
    }
    if let Some(file) = arguments.next() {
        fs::write(file, plot(&all)?)?;
    }
    Ok(())
}
