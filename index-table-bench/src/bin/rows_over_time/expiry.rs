//! The expiry and the cascade of a million rows, and the waiting of another writer.
//!
//! The program fails if another writer waits longer than [`LONGEST`] for an expiry whose commits are not synced. This is the time
//! for which the expiry holds the lock, so it does not depend on the disk.

use std::{
    env, fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use index_table::{Durability, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::Outcome;

const ROWS: u64 = 1_000_000;

/// The longest that another writer may wait for an expiry, in milliseconds, without the time of syncs.
const LONGEST: f64 = 50.0;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "sessions", expires = ends)]
#[index(user)]
struct Session {
    #[primary_key]
    id: u64,
    user: u64,
    ends: SystemTime,
    text: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
struct Visit {
    #[primary_key]
    id: u64,
    text: String,
}

fn session(id: u64) -> Session {
    let scattered = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let ends = UNIX_EPOCH + Duration::from_secs(scattered % 31_536_000);
    Session { id: scattered, user: scattered % 1_000, ends, text: "x".repeat(80) }
}

/// The times of a transaction of the other writer, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Wait {
    total: f64,
    /// Until the closure began: the transaction waited for the expiry.
    turn: f64,
}

/// The times of the other writer, in ascending order.
struct Waits(Vec<Wait>);

impl Waits {
    /// Returns the time that this number of 1,000 transactions did not exceed.
    fn at(&self, thousandths: usize) -> f64 {
        let at = self.0.len() * thousandths / 1_000;
        self.0.get(at).or(self.0.last()).copied().unwrap_or_default().total
    }

    /// Returns the longest wait for the expiry, and the longest time of the writer's own work with its commit.
    fn longest_parts(&self) -> (f64, f64) {
        let longest = |part: fn(&Wait) -> f64| self.0.iter().map(part).fold(0.0, f64::max);
        (longest(|wait| wait.turn), longest(|wait| wait.total - wait.turn))
    }
}

/// Inserts a row each millisecond until `work` returns, and returns the times of these transactions in milliseconds.
fn beside<T>(store: &Store, first: u64, work: impl FnOnce() -> Result<T>) -> Outcome<(T, Waits)> {
    let visits = VisitRepository::open(store)?;
    let is_done = AtomicBool::new(false);
    let (done, waits) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut waits = Vec::new();
            for id in first.. {
                if is_done.load(Relaxed) {
                    break;
                }
                let visit = Visit { id, text: "x".repeat(80) };
                let (began, mut turn) = (Instant::now(), Duration::ZERO);
                store.transaction(|txn| {
                    turn = began.elapsed();
                    visits.put(txn, &visit)
                })?;
                let [total, turn] = [began.elapsed(), turn].map(|it| it.as_secs_f64() * 1e3);
                waits.push(Wait { total, turn });
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, index_table::Error>(waits)
        });
        let done = work();
        is_done.store(true, Relaxed);
        (done, writer.join())
    });
    let mut waits = waits.map_err(|_| "the writer has panicked")??;
    waits.sort_by(|a, b| a.total.total_cmp(&b.total));
    Ok((done?, Waits(waits)))
}

pub(crate) fn expiry(dir: &Path, _: u32) -> Outcome<()> {
    println!(
        "| expiry of {ROWS} rows | rows a second | another writer: p50 | p99 | p99.9 | longest | longest wait for its \
         turn | longest own commit |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, durability) in [
        ("commits without a sync", Durability::None),
        ("`Durability::Journal`", Durability::Journal),
        ("`Durability::Full`", Durability::Full),
    ] {
        let is_synced = durability != Durability::None;
        let store =
            Store::options().map_size(8 << 30).durability(durability).open(dir.join(name))?;
        let sessions = SessionRepository::open(&store)?;
        let show = |name: &str, rate: &str, waits: &Waits| {
            let [p50, p99, p999] = [500, 990, 999].map(|thousandths| waits.at(thousandths));
            let (longest, (turn, own)) = (waits.at(1_000), waits.longest_parts());
            println!(
                "| {name} | {rate} | {p50:.2} ms | {p99:.2} ms | {p999:.2} ms | {longest:.1} ms | {turn:.1} ms | \
                 {own:.1} ms |"
            );
        };
        let pause = || {
            thread::sleep(Duration::from_secs(10));
            Ok(())
        };
        sessions.bulk_load(&store, (0..ROWS).map(session)).run()?;
        let ((), alone) = beside(&store, 0, pause)?;
        show(&format!("{name}, without an expiry"), "", &alone);
        let began = Instant::now();
        let (deleted, waits) =
            beside(&store, 1 << 40, || sessions.expire(&store, SystemTime::now(), ROWS))?;
        assert_eq!(deleted, ROWS);
        let rate = deleted as f64 / began.elapsed().as_secs_f64();
        show(name, &format!("{rate:.0}"), &waits);
        let (longest, _) = waits.longest_parts();
        if longest > LONGEST && !is_synced {
            let reason =
                format!("another writer has waited {longest:.1} ms, longer than {LONGEST} ms");
            return Err(reason.into());
        }
        drop((sessions, store));
        fs::remove_dir_all(dir.join(name))?;
    }
    Ok(())
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "orders")]
#[index(customer)]
struct Order {
    #[primary_key]
    id: u64,
    #[references(Customer, on_delete = "cascade")]
    customer: u64,
    text: String,
}

/// Returns the memory of this process without the pages of files, in MiB.
fn memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or_default() / 1024.0
}

/// Runs `work`, and returns the maximum memory of the process during this time.
fn with_peak<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = memory();
            while !is_done.load(Relaxed) {
                most = f64::max(most, memory());
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let done = work();
        is_done.store(true, Relaxed);
        let most = most.join().unwrap_or_default();
        done.map(|_| most)
    })
}

/// The orders that a cascade deletes, and the durability of the store.
struct Case {
    name: &'static str,
    /// Whether each second order is of another customer, and stays.
    alternates: bool,
    durability: Durability,
}

const CASES: [Case; 3] = [
    Case { name: "all orders", alternates: false, durability: Durability::None },
    Case { name: "each second order", alternates: true, durability: Durability::None },
    Case { name: "the same, with the journal", alternates: true, durability: Durability::Journal },
];

pub(crate) fn cascade(dir: &Path, _: u32) -> Outcome<()> {
    println!(
        "| a cascade in one transaction | rows | time | rows a second | memory before | during it, at most | file |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for (at, case) in CASES.iter().enumerate() {
        for rows in [10_000, 100_000, ROWS] {
            let own = dir.join(format!("{at} {rows}"));
            let store =
                Store::options().map_size(8 << 30).durability(case.durability).open(&own)?;
            let customers = CustomerRepository::open(&store)?;
            let orders = OrderRepository::open(&store)?;
            store.transaction(|txn| {
                (7..9).try_for_each(|id| customers.insert(txn, &Customer { id }))
            })?;
            let step = 1 + u64::from(case.alternates);
            let order = |id: u64| Order { id, customer: 7 + id % step, text: "x".repeat(80) };
            orders.bulk_load(&store, (0..rows * step).map(order)).run()?;
            drop((customers, orders, store));
            let mut child = Command::new(env::current_exe()?);
            let of = format!("{OF}{at}");
            let child = child.arg(rows.to_string()).arg(of).arg(&own).status()?;
            if !child.success() {
                return Err(format!("the process of the cascade ended with {child}").into());
            }
            fs::remove_dir_all(&own)?;
        }
    }
    Ok(())
}

/// The section of a process that measures a case. The position of the case follows.
pub(crate) const OF: &str = "cascade-of-";

/// Deletes a customer with this number of orders.
pub(crate) fn cascade_of(dir: &Path, rows: u64, case: &str) -> Outcome<()> {
    let case = CASES.get(case.parse::<usize>()?).ok_or("there is no such case")?;
    let store = Store::options().map_size(8 << 30).durability(case.durability).open(dir)?;
    let customers = CustomerRepository::open(&store)?;
    let orders = OrderRepository::open(&store)?;
    let (before, began) = (memory(), Instant::now());
    let most = with_peak(|| store.transaction(|txn| customers.delete(txn, 7)))?;
    let seconds = began.elapsed().as_secs_f64();
    let left = if case.alternates { rows } else { 0 };
    assert_eq!(orders.all(&store.read()?).count()?, left);
    let rate = rows as f64 / seconds;
    let file = fs::metadata(dir.join("data.mdb"))?.len() as f64 / f64::from(1 << 20);
    println!(
        "| {} | {rows} | {seconds:.2} s | {rate:.0} | {before:.1} MiB | {most:.1} MiB | {file:.0} MiB |",
        case.name
    );
    Ok(())
}
