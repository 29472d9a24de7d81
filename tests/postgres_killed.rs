//! A server that is killed and started again, while clients write. Needs `scripts/postgres`, which sets
//! `INDEX_TABLE_POSTGRES_RESTART` to the program that kills and starts the server. Without this variable, the tests only
//! print that they are not run.

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/serial.rs"]
mod serial;

use std::{
    env,
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use index_table::{Error, IndexTable};
use serde::{Deserialize, Serialize};

/// The number of times that the server is killed.
const KILLS: u32 = 2;

/// Held by the test that restarts the server.
static RESTARTS: Mutex<()> = Mutex::new(());

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
struct Note {
    #[primary_key]
    id: u32,
}

#[test]
fn committed_transactions_survive_a_server_that_is_killed() -> Result<(), Box<dyn std::error::Error>>
{
    // Until the schema is dropped.
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn a_commit_after_a_restart_is_known_to_have_failed() -> Result<(), Box<dyn std::error::Error>> {
    // Until the schema is dropped.
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    let Ok(restart) = env::var("INDEX_TABLE_POSTGRES_RESTART") else { return Ok(()) };
    let store = schema.open()?;
    let notes = NoteRepository::open(&store)?;
    let mut txn = store.write()?;
    notes.insert(&mut txn, &Note { id: 1 })?;
    assert!(Command::new(&restart).status()?.success());
    let outcome = txn.commit();
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!(notes.get(&store.read()?, 1)?, None);
    Ok(())
}
