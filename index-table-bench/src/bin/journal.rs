//! Compares durable commits with a journal with commits without a journal, SQLite, hand-written LMDB and
//! fjall, and measures the space of a journal and the time of a recovery.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin journal -- [ROWS] [COMMITS] [ROUNDS] [DIRECTORY]
//! ```
//! The rows are the same as in the other benchmarks, with three indexes. Each round measures all contenders, in a
//! different order each time. Ratios are medians of the ratios within a round. The directory must be on a
//! disk.
#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use index_table::{Durability, Options, Store};
use index_table_bench::{
    median,
    run::SEED,
    workload::{Customer, CustomerRepository, Workload},
    writers::{self, Results},
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const MIB: f64 = (1 << 20) as f64;

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, commits, rounds) = (argument(200_000)?, argument(100)?, argument(15)?);
    let directory = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory)?;
    let path = directory.path();
    print("One thread", &writers::run_with(&writers::JOURNAL, (1, rows), commits, rounds, path)?);
    let together = writers::run_with(&writers::GROUPS, (64, rows), commits * 20, rounds, path)?;
    print("64 threads", &together);
    checkpoints(rows, commits * 60, &path.join("checkpoints"))?;
    space(rows, commits * 60, path)?;
    recovery(rows, commits * 60, &path.join("recovery"))
}

fn print(title: &str, results: &Results) {
    let Results { rows, commits, rounds, figures, .. } = results;
    println!("\n{title}: {rows} rows before, {rounds} rounds of {commits} commits\n");
    println!("| | rows in a second | time as a ratio to the first | p50 | p99 |");
    println!("|---|--:|--:|--:|--:|");
    for figure in figures {
        let (p50, p99) = (figure.p50 / 1000.0, figure.p99 / 1000.0);
        let (rate, ratio) = (figure.per_second, figure.ratio);
        println!("| {} | {rate:.0} | {ratio:.2} | {p50:.0} µs | {p99:.0} µs |", figure.name);
    }
}

fn options(durability: Durability) -> Options {
    Store::options().durability(durability).max_databases(4)
}

/// Returns a store with `rows` rows, and `more` further rows to insert.
fn filled(
    path: &Path,
    options: &Options,
    rows: usize,
    more: usize,
) -> Outcome<(Store, CustomerRepository, Vec<Customer>)> {
    let mut workload = Workload::new(SEED, rows);
    let store = options.open(path)?;
    let customers = CustomerRepository::open(&store)?;
    customers.bulk_load(&store, workload.rows()).run()?;
    Ok((store, customers, workload.more(more)))
}

/// Inserts each row in its own transaction. Returns the times in microseconds, in ascending order.
fn insert(store: &Store, customers: &CustomerRepository, rows: &[Customer]) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(rows.len());
    for row in rows {
        let before = Instant::now();
        store.transaction(|txn| customers.insert(txn, row))?;
        times.push(before.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

/// Returns the number of segments that the journal has started.
fn segments(path: &Path) -> Outcome<u64> {
    let mut newest = 0;
    for at in 0..3 {
        let head = fs::read(path.join(format!("journal.{at}")))?;
        let number = head.get(48..56).and_then(|bytes| bytes.try_into().ok());
        newest = newest.max(number.map_or(0, u64::from_le_bytes));
    }
    Ok(newest)
}

fn checkpoints(rows: usize, commits: usize, path: &Path) -> Outcome {
    println!("\nCommits while checkpoints are made: {rows} rows before, {commits} commits\n");
    println!("| changed pages in a checkpoint | checkpoints | p50 | p99 | p99 / p50 | longest |");
    println!("|---|--:|--:|--:|--:|--:|");
    for mib in [8, 32, 128] {
        let limits = (mib << 20, 16 << 20, Duration::from_mins(1));
        let options = options(Durability::Journal).checkpoint(limits.0, limits.1, limits.2);
        let (store, customers, more) = filled(path, &options, rows, commits)?;
        let segments_before = segments(path)?;
        let times = insert(&store, &customers, &more)?;
        let made = segments(path)? - segments_before;
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        let (p50, p99, longest) = (at(50), at(99), at(100));
        println!(
            "| {mib} MiB | {made} | {p50:.0} µs | {p99:.0} µs | {:.1} | {:.1} ms |",
            p99 / p50,
            longest / 1000.0
        );
        drop((store, customers));
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

fn space(rows: usize, commits: usize, path: &Path) -> Outcome {
    println!("\nSpace: {rows} rows before, {commits} commits of one row\n");
    println!("| | `data.mdb` before | `data.mdb` | journal |");
    println!("|---|--:|--:|--:|");
    let journal = |mib: u64| {
        options(Durability::Journal).checkpoint(mib << 20, mib << 19, Duration::from_mins(1))
    };
    let full = options(Durability::Full).reserve(0);
    let ways = [
        ("`Full`", full),
        ("`Journal`, 8 MiB", journal(8)),
        ("`Journal`, 32 MiB, the default", journal(32)),
        ("`Journal`, 128 MiB", journal(128)),
    ];
    for (name, options) in ways {
        let directory = path.join("space");
        let (store, customers, more) = filled(&directory, &options, rows, commits)?;
        let data = || fs::metadata(directory.join("data.mdb")).map(|file| file.len() as f64 / MIB);
        let before = data()?;
        insert(&store, &customers, &more)?;
        let files = (0..3).map(|at| fs::metadata(directory.join(format!("journal.{at}"))));
        let bytes: u64 = files.filter_map(Result::ok).map(|file| file.len()).sum();
        let journal = bytes as f64 / MIB;
        println!("| {name} | {before:.0} MiB | {:.0} MiB | {journal:.0} MiB |", data()?);
        drop((store, customers));
        fs::remove_dir_all(directory)?;
    }
    Ok(())
}

fn recovery(rows: usize, commits: usize, path: &Path) -> Outcome {
    println!("\nRecovery: {rows} rows before\n");
    println!("| commits | journal | bytes for a commit | opening the store | for each MiB |");
    println!("|--:|--:|--:|--:|--:|");
    for part in [1, 2, 4] {
        let never = Duration::from_hours(24);
        let options = options(Durability::Journal).checkpoint(u64::MAX, u64::MAX, never);
        let (store, customers, _) = filled(path, &options, rows, 1)?;
        drop((store, customers));
        let store = options.open(path)?;
        let customers = CustomerRepository::open(&store)?;
        let mut workload = Workload::new(SEED, rows);
        let commits = commits * part / 4;
        insert(&store, &customers, &workload.more(commits))?;
        // All records are in the segment that was started when the store was opened.
        let mut bytes = 0;
        for at in 0..3 {
            let segment = fs::read(path.join(format!("journal.{at}")))?;
            let number = segment.get(48..56).and_then(|bytes| bytes.try_into().ok());
            if number.map_or(0, u64::from_le_bytes) == segments(path)? {
                let last = segment.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                bytes = last.saturating_sub(4096);
            }
        }
        let mut seconds = Vec::new();
        for _ in 0..3 {
            let killed = path.with_extension("killed");
            fs::create_dir_all(&killed)?;
            for file in ["data.mdb", "journal.0", "journal.1", "journal.2"] {
                fs::copy(path.join(file), killed.join(file))?;
            }
            let before = Instant::now();
            drop(options.open(&killed)?);
            seconds.push(before.elapsed().as_secs_f64());
            fs::remove_dir_all(&killed)?;
        }
        let (seconds, mib) = (median(seconds.into_iter()), bytes as f64 / MIB);
        println!(
            "| {commits} | {mib:.1} MiB | {:.0} | {:.0} ms | {:.0} ms |",
            bytes as f64 / commits as f64,
            seconds * 1000.0,
            seconds * 1000.0 / mib
        );
        drop((store, customers));
        fs::remove_dir_all(path)?;
    }
    Ok(())
}
