//! Writers beside a checkpoint that does not end.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{common::Common, pace::PATIENCE},
    pages,
};
use crate::{
    background::Work as _,
    engine::{Durability, Engine, Options, Tables},
    model::{
        error::Result,
        maintain::{Change, Sink as _},
        schema::{KeyField, Parts, TableSchema},
    },
};

const KEY: &[KeyField] = &[KeyField::new::<u8>("id")];

static TABLE: TableSchema = TableSchema::of_records("rows", KEY);

/// The limit for changed pages.
const CHANGED: u64 = 1 << 16;

fn journal(engine: &Engine) -> &Common {
    let member = engine.lmdb().and_then(|engine| engine.journal.get());
    &member.expect("a journal").common
}

fn write(engine: &Engine, tables: &Tables, id: u8) -> Result<()> {
    let mut txn = engine.write()?;
    let mut writer = txn.writer(tables).expect("a write transaction");
    writer.change(Change::PutFact { primary_key: &[id], row: &[id] })?;
    txn.commit(|| ()).map_err(Into::into)
}

fn wait_until(is_true: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_true() && begun.elapsed() < Duration::from_mins(1) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn transactions_that_wait_for_their_turn_wait_for_the_checkpoint_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().map_size(1 << 24).durability(Durability::Journal);
    let options = options.checkpoint(CHANGED, u64::MAX, Duration::from_hours(1));
    let engine = Engine::open(&options, directory.path()).expect("a store");
    let opened = engine.open_table(&TABLE, Parts::default(), false, &mut |_| Ok(()));
    let tables = opened.map_err(|(error, _)| error).expect("a table");
    let shared = journal(&engine);
    wait_until(|| !shared.lock().is_working);
    // From here on, the test makes the checkpoints.
    shared.job.get().expect("a job").stop();
    let mut ids = 0..;
    loop {
        write(&engine, &tables, ids.next().expect("an id")).expect("a commit");
        if shared.lock().is_working {
            break;
        }
    }
    let (committed, threads) = (AtomicU64::new(0), 64);
    let (before, failed) = thread::scope(|scope| {
        let txn = engine.write();
        let (engine, tables, committed) = (&engine, &tables, &committed);
        let threads: Vec<_> = (100..100 + threads)
            .map(|id| {
                scope.spawn(move || {
                    let written = write(engine, tables, id);
                    committed.fetch_add(1, SeqCst);
                    written
                })
            })
            .collect();
        let waiting = |engine: &Engine| engine.lmdb().map_or(0, |it| it.waiting.load(SeqCst));
        wait_until(|| waiting(engine) == threads.len());
        drop(txn);
        wait_until(|| shared.is_waited_for.load(SeqCst));
        thread::sleep(Duration::from_millis(100));
        let before = committed.load(SeqCst);
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            shared.run();
            thread::sleep(Duration::from_millis(1));
        }
        // The last commit may have begun one more, and closing the store waits for it.
        shared.run();
        let outcomes = threads.into_iter().map(|thread| thread.join().expect("a thread"));
        (before, outcomes.filter(Result::is_err).count())
    });
    let page_size =
        shared.shards.get(0).and_then(|shard| Some(shard.lock().as_ref()?.saved.page_size));
    let page_size = u64::from(page_size.expect("a member"));
    assert_eq!((committed.load(SeqCst), failed), (threads.into(), 0));
    let most = (CHANGED * PATIENCE).div_ceil(pages(1) * page_size);
    assert_eq!(before, most, "commits beside the checkpoint");
}
