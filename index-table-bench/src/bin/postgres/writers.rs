//! Many clients that change rows in SERIALIZABLE transactions.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use index_table_bench::median;

use super::{Outcome, index_tables::Client, sql::HandWritten};

/// The time for which the writers of a round run.
const TIME: Duration = Duration::from_secs(2);

/// The number of clients, the number of rows that they change, and the target for the ratio of commits.
const CASES: [(usize, i64, f64); 3] = [(8, 8_000, 0.9), (32, 32_000, 0.75), (32, 10, 2.0)];

/// Compares the numbers of commits. Each round measures both, one directly after the other.
pub(crate) fn compare(url: &str, rounds: i64) -> Outcome {
    for (clients, rows, target) in CASES {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let of_sql = commits(clients, rows, || {
                let client = HandWritten::connect(url)?;
                Ok(move |id, phone: &str| client.change(id, phone))
            })?;
            let of_tables = commits(clients, rows, || {
                let client = Client::connect(url)?;
                Ok(move |id, phone: &str| client.change(id, phone).map_err(Into::into))
            })?;
            ratios.push(of_tables / of_sql);
        }
        let ratio = median(ratios.into_iter());
        println!("| {clients} on {rows} rows | {ratio:.2} | {target:.2} |");
    }
    Ok(())
}

/// Returns the number of commits of several clients in [`TIME`]. A client changes rows of its own if there are enough rows.
#[expect(clippy::cast_precision_loss, reason = "figures for reports")]
fn commits<C: Fn(i64, &str) -> Outcome>(
    clients: usize,
    rows: i64,
    connect: impl Fn() -> Outcome<C> + Sync,
) -> Outcome<f64> {
    let (barrier, connect) = (Barrier::new(clients), &connect);
    thread::scope(|scope| {
        let run = |client: usize| {
            let barrier = &barrier;
            scope.spawn(move || -> Result<u64, String> {
                let connected = connect().map_err(|error| error.to_string());
                barrier.wait();
                let (change, begun) = (connected?, Instant::now());
                let mut count = 0;
                while begun.elapsed() < TIME {
                    let step = i64::try_from(count).unwrap_or_default();
                    let own = i64::try_from(client).unwrap_or_default() * (rows / 32).max(1);
                    let id = (own + step % (rows / 32).max(1)) % rows;
                    change(id, &format!("{client} {count}")).map_err(|error| error.to_string())?;
                    count += 1;
                }
                Ok(count)
            })
        };
        let clients: Vec<_> = (0..clients).map(run).collect();
        let mut all = 0;
        for client in clients {
            all += client.join().map_err(|_| "a client has panicked")??;
        }
        Ok(all as f64)
    })
}
