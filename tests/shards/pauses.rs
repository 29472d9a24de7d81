//! The time for which writers wait for the switch of a move.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use index_table::{IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits", shard_by = tenant)]
#[index(page)]
struct Visit {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    page: u32,
}

const ROWS: u64 = 50_000;

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(50);

fn visit(number: u64) -> Visit {
    Visit { tenant: 7, number, page: (number * 7919 % 1000) as u32 }
}

#[test]
fn writers_of_50_000_moved_rows_wait_at_most_50_ms_for_the_switch() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options()
        .shard("a", "a")
        .shard("b", "b")
        .map("visits", ShardMap::list().to("a", [7u32]).otherwise("a"))
        .open(dir.path().join("store"))?;
    let visits = VisitRepository::open(&store)?;
    visits.bulk_load(&store, (0..ROWS).map(visit)).run()?;
    let done = AtomicBool::new(false);
    let mut pauses = thread::scope(|scope| -> Result<Vec<Duration>> {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut number = 0;
            while !done.load(Relaxed) {
                number = (number + 7919) % ROWS;
                store.transaction(|txn| {
                    visits.update(txn, 7, number, |visit| visit.page += 1)?;
                    visits.put(txn, &visit(ROWS + number))
                })?;
                thread::sleep(Duration::from_millis(1));
            }
            Ok(number)
        });
        let switches = ["b", "a", "b"].into_iter().map(|to| {
            let moved = store.move_keys("visits", [7u32], to).run()?;
            assert!(moved.rows >= ROWS, "{moved}");
            Ok(moved.pause)
        });
        let pauses = switches.collect();
        done.store(true, Relaxed);
        assert!(writer.join().expect("the writer")? > 0);
        pauses
    })?;
    // Another program can take the processor during one of the switches.
    pauses.sort_unstable();
    assert!(pauses[1] <= LONGEST, "the switches took {pauses:?}");
    assert!(store.verify()?.is_clean());
    Ok(())
}
