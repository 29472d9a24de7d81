//! A server that is killed and started again, while clients write. Needs `scripts/postgres`, which sets
//! `INDEX_TABLE_POSTGRES_RESTART` to the program that kills and starts the server. Without this variable, the test only
//! prints that it is not run.

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/serial.rs"]
mod serial;

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// The number of times that the server is killed.
const KILLS: u32 = 2;

#[test]
fn committed_transactions_survive_a_server_that_is_killed() -> Result<(), Box<dyn std::error::Error>>
{
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    let Ok(restart) = env::var("INDEX_TABLE_POSTGRES_RESTART") else {
        eprintln!("not run: INDEX_TABLE_POSTGRES_RESTART is not set");
        return Ok(());
    };
    let direct = schema.open()?;
    serial::prepare(&direct)?;
    let stores = [schema.open()?, schema.open()?];
    let kills = AtomicU32::new(0);
    let outcomes = thread::scope(|scope| {
        let kills = &kills;
        scope.spawn(move || {
            for _ in 0..KILLS {
                thread::sleep(Duration::from_millis(300));
                let restarted = Command::new(&restart).status().expect("the program");
                assert!(restarted.success());
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Some transactions must follow the last kill.
        let last = AtomicU64::new(0);
        let goes_on = |_, outcomes: &serial::Outcomes| {
            if kills.load(Ordering::Relaxed) < KILLS {
                return true;
            }
            let committed = outcomes.committed.load(Ordering::Relaxed);
            let set =
                last.compare_exchange(0, committed + 80, Ordering::Relaxed, Ordering::Relaxed);
            committed < set.map_or_else(|last| last, |_| committed + 80)
        };
        serial::run(&stores, 8, goes_on, &direct)
    })?;
    assert!(outcomes.committed.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    assert!(outcomes.failed.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    Ok(())
}
