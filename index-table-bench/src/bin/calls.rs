//! Compares asynchronous calls with the same transactions in `spawn_blocking`, by many tasks of a runtime.
//!
//! ```text
//! cargo run --release -p index-table-bench --features async --bin calls -- [ROWS] [TASKS] [CALLS] [ROUNDS] [DIRECTORY]
//! scripts/postgres cargo run --release -p index-table-bench --features async,postgres --bin calls -- 10000 1000 10 5
//! ```
//!
//! The rows are those of the other benchmarks. In each round, all contenders run one after the other, each with `TASKS` tasks that
//! make `CALLS` calls. Ratios are medians of the ratios within a round. With `INDEX_TABLE_POSTGRES_URL`, the same is measured on that
//! server. The last lines print the memory that 10,000 waiting tasks take, and how late a timer is beside look-ups in a file that
//! was dropped from the page cache.
#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

use std::{
    env,
    error::Error,
    fs,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use index_table::Store;
use index_table_bench::{
    median,
    run::SEED,
    workload::{Customer, CustomerRepository, Workload},
};
use tokio::{runtime::Runtime, task::spawn_blocking};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One call of a task, with its number.
type Calling = Arc<
    dyn Fn(usize) -> Pin<Box<dyn Future<Output = index_table::Result<()>> + Send>> + Send + Sync,
>;

struct Contender {
    name: &'static str,
    call: Calling,
}

fn contender<F>(name: &'static str, call: impl Fn(usize) -> F + Send + Sync + 'static) -> Contender
where
    F: Future<Output = index_table::Result<()>> + Send + 'static,
{
    Contender { name, call: Arc::new(move |number| Box::pin(call(number))) }
}

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, tasks, calls, rounds) =
        (argument(100_000)?, argument(1000)?, argument(20)?, argument(9)?);
    let directory = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory)?;
    let path = directory.path().join("store");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let workload = Workload::new(SEED, rows);
    let store = Store::open(&path)?;
    let customers = CustomerRepository::open(&store)?;
    customers.bulk_load(&store, workload.rows()).run()?;
    // First, because later tasks would use memory that earlier ones have freed.
    memory(&runtime, &store, &customers)?;
    measure("A store in a directory", &runtime, &store, &customers, (rows, tasks, calls, rounds))?;
    delay(&path, store, customers, rows)?;
    #[cfg(feature = "postgres")]
    if let Ok(url) = env::var("INDEX_TABLE_POSTGRES_URL") {
        let store = Store::options().schema("calls").connections(64).connect(&url)?;
        let customers = CustomerRepository::open(&store)?;
        customers.bulk_load(&store, workload.rows()).run()?;
        measure("A PostgreSQL server", &runtime, &store, &customers, (rows, tasks, calls, rounds))?;
    }
    Ok(())
}

fn measure(
    title: &str,
    runtime: &Runtime,
    store: &Store,
    customers: &CustomerRepository,
    (rows, tasks, calls, rounds): (usize, usize, usize, usize),
) -> Outcome {
    let all: Arc<Vec<Customer>> = Arc::new(Workload::new(SEED, rows).rows().to_vec());
    let own = || (store.clone(), customers.clone(), Arc::clone(&all));
    let key = |all: &[Customer], number: usize| all[number.wrapping_mul(7919) % all.len()].id;
    let [blocking, asynchronous, transactions, group, puts] = [own(), own(), own(), own(), own()];
    let writer = store.writer()?;
    let gets = [
        contender("`get` in `spawn_blocking`", move |number| {
            let (store, customers, id) =
                (blocking.0.clone(), blocking.1.clone(), key(&blocking.2, number));
            async move {
                let get = move || customers.get(&store.read()?, id);
                spawn_blocking(get).await.expect("no panic").map(drop)
            }
        }),
        contender("`get_async`", move |number| {
            let call = asynchronous.1.get_async(&asynchronous.0, key(&asynchronous.2, number));
            async move { call.await.map(drop) }
        }),
    ];
    run(&format!("{title}: look-ups"), runtime, &gets, (tasks, calls, rounds))?;
    // A change of one field, so that each call writes.
    let changed = |all: &[Customer], number: usize| {
        let mut row = all[number.wrapping_mul(7919) % all.len()].clone();
        row.phone = format!("555-{number}");
        row
    };
    let puts = [
        contender("`put` in a transaction in `spawn_blocking`", move |number| {
            let (store, customers, row) =
                (transactions.0.clone(), transactions.1.clone(), changed(&transactions.2, number));
            async move {
                let put = move || store.transaction(|txn| customers.put(txn, &row));
                spawn_blocking(put).await.expect("no panic")
            }
        }),
        contender("`put` in a group writer", move |number| {
            let (customers, row) = (group.1.clone(), changed(&group.2, number));
            writer.submit_async(move |txn| customers.put(txn, &row))
        }),
        contender("`put_async`", move |number| {
            puts.1.put_async(&puts.0, &changed(&puts.2, number))
        }),
    ];
    run(&format!("{title}: durable writes"), runtime, &puts, (tasks, calls, rounds))
}

fn run(
    title: &str,
    runtime: &Runtime,
    contenders: &[Contender],
    (tasks, calls, rounds): (usize, usize, usize),
) -> Outcome {
    let mut figures: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); contenders.len()];
    for round in 0..=rounds {
        for (contender, (rates, late)) in contenders.iter().zip(&mut figures) {
            let begun = Instant::now();
            let mut times = runtime.block_on(async {
                let tasks: Vec<_> = (0..tasks)
                    .map(|task| {
                        let call = Arc::clone(&contender.call);
                        tokio::spawn(async move {
                            let mut times = Vec::with_capacity(calls);
                            for number in 0..calls {
                                let begun = Instant::now();
                                call(round * 1_000_003 + task * calls + number).await?;
                                times.push(begun.elapsed().as_secs_f64());
                            }
                            Ok::<_, index_table::Error>(times)
                        })
                    })
                    .collect();
                let mut times = Vec::new();
                for task in tasks {
                    times.extend(task.await??);
                }
                Outcome::Ok(times)
            })?;
            times.sort_by(f64::total_cmp);
            // The first round fills caches.
            if round > 0 {
                rates.push(times.len() as f64 / begun.elapsed().as_secs_f64());
                late.push(times[times.len() * 99 / 100] * 1e3);
            }
        }
    }
    println!("\n{title}: {rounds} rounds of {tasks} tasks with {calls} calls\n");
    println!("| | calls in a second | as a ratio to the first | p99 |\n|---|--:|--:|--:|");
    let first = figures[0].0.clone();
    for (contender, (rates, late)) in contenders.iter().zip(figures) {
        let ratios: Vec<_> = rates.iter().zip(&first).map(|(own, first)| own / first).collect();
        let (ratio, rate) = (median(ratios.into_iter()), median(rates.iter().copied()));
        println!(
            "| {} | {rate:.0} | {ratio:.2} | {:.1} ms |",
            contender.name,
            median(late.into_iter())
        );
    }
    Ok(())
}

/// Returns the resident bytes of this process.
fn resident() -> Outcome<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

/// Prints the memory of tasks that wait for a writer.
fn memory(runtime: &Runtime, store: &Store, customers: &CustomerRepository) -> Outcome {
    const TASKS: usize = 10_000;
    let row = Workload::new(SEED, 1).rows()[0].clone();
    let before = resident()?;
    let tasks: Vec<_> = {
        let txn = store.write()?;
        let insert = |_| runtime.spawn(customers.put_async(store, &row));
        let tasks = (0..TASKS).map(insert).collect();
        std::thread::sleep(Duration::from_secs(1));
        println!(
            "\n{TASKS} waiting `put_async`: {:.0} bytes for each",
            (resident()? - before) / TASKS as f64
        );
        drop(txn);
        tasks
    };
    runtime.block_on(async {
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

/// Looks up random rows in a file that is not in the page cache, and prints by how much a timer of 1 ms is late meanwhile.
fn delay(path: &Path, store: Store, customers: CustomerRepository, rows: usize) -> Outcome {
    drop((store, customers));
    let data = fs::File::open(path.join("data.mdb"))?;
    data.sync_all()?;
    rustix::fs::fadvise(&data, 0, None, rustix::fs::Advice::DontNeed)?;
    let store = Store::open(path)?;
    let customers = CustomerRepository::open(&store)?;
    let ids: Vec<_> = Workload::new(SEED, rows).rows().iter().map(|row| row.id).collect();
    // One thread, so that each look-up that waits delays the timer.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let ended = Arc::new(AtomicBool::new(false));
    let late = runtime.block_on(async {
        let looked_up = Arc::clone(&ended);
        let timer = tokio::spawn(async move {
            let mut late = Duration::ZERO;
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !looked_up.load(Ordering::Relaxed) {
                let begun = Instant::now();
                ticks.tick().await;
                late = late.max(begun.elapsed().saturating_sub(Duration::from_millis(1)));
            }
            late
        });
        for number in 0..10_000_usize {
            customers.get_async(&store, ids[number.wrapping_mul(7919) % ids.len()]).await?;
        }
        ended.store(true, Ordering::Relaxed);
        Outcome::Ok(timer.await?)
    })?;
    println!(
        "\n10,000 look-ups of a cold file: a timer of 1 ms was at most {:.1} ms late",
        late.as_secs_f64() * 1e3
    );
    Ok(())
}
