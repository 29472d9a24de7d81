//! Measures the time in which a store with one data file gets a second one and loses it again, and how long its writers wait.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin in_place -- [ROWS] [ROUNDS] [DIRECTORY]
//! ```
//! Each round grows a copy of the same store, in which a thread inserts single rows meanwhile. The directory must be on a disk.

use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = device)]
#[indexes((device, value), (value, unique, scope = "global"))]
struct Event {
    #[primary_key]
    device: u32,
    #[primary_key]
    id: u64,
    value: u64,
    text: String,
}

fn event(id: u64) -> Event {
    let device = (id % 10_000) as u32;
    Event { device, id, value: id.wrapping_mul(0x9E37_79B9_7F4A_7C15), text: format!("{id:064}") }
}

/// The durations of one round.
struct Round {
    added: Duration,
    removed: Duration,
    /// The longest inserts beside the two, and before them.
    beside: Duration,
    before: Duration,
}

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    let rows = arguments.next().map_or(Ok(1_000_000), |it| it.parse())?;
    let rounds = arguments.next().map_or(Ok(20), |it| it.parse::<usize>())?;
    let directory = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(directory)?;
    let template = dir.path().join("template");
    {
        let store = Store::open(&template)?;
        let events = EventRepository::open(&store)?;
        events.bulk_load(&store, (0..rows).map(event)).run()?;
    }
    let mut all = Vec::new();
    for round in 0..rounds {
        let path = dir.path().join(round.to_string());
        Store::restore(&template, &path)?;
        all.push(grow(&path, rows)?);
        fs::remove_dir_all(&path)?;
    }
    let median = |of: fn(&Round) -> Duration| {
        let mut sorted: Vec<_> = all.iter().map(of).collect();
        sorted.sort();
        (
            sorted.get(sorted.len() / 2).copied().unwrap_or_default(),
            sorted.last().copied().unwrap_or_default(),
        )
    };
    println!("{rows} rows, {rounds} rounds: median, maximum");
    println!("add_shard: {:.1?}", median(|it| it.added));
    println!("remove_shard: {:.1?}", median(|it| it.removed));
    println!("the longest insert beside them: {:.1?}", median(|it| it.beside));
    println!("the longest insert before them: {:.1?}", median(|it| it.before));
    Ok(())
}

fn grow(path: &std::path::Path, rows: u64) -> Outcome<Round> {
    let store = Store::open(path)?;
    let events = EventRepository::open(&store)?;
    let (is_over, longest) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
    let take = || std::mem::take(&mut *longest.lock().unwrap_or_else(PoisonError::into_inner));
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> index_table::Result<()> {
            for id in rows.. {
                if is_over.load(SeqCst) {
                    break;
                }
                let begun = Instant::now();
                store.transaction(|txn| events.insert(txn, &event(id)))?;
                let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
                *longest = begun.elapsed().max(*longest);
            }
            Ok(())
        });
        thread::sleep(Duration::from_millis(200));
        let before = take();
        let begun = Instant::now();
        let added = store.add_shard("east", "east").map(|_| begun.elapsed());
        let begun = Instant::now();
        let removed = store.remove_shard("east").map(|()| begun.elapsed());
        let beside = take();
        is_over.store(true, SeqCst);
        writer.join().map_err(|_| "the writer has panicked")??;
        Ok(Round { added: added?, removed: removed?, beside, before })
    })
}
