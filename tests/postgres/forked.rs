//! Processes forked from a process with an open store on a server.
#![cfg(unix)]

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{
    child::{TestResult, await_child, ensure, fork, is_forked, start_child},
    postgres::Schema,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "forked_rows")]
#[index(note, consistency = "eventual")]
struct Row {
    #[primary_key]
    id: u64,
    note: String,
}

fn row(id: u64) -> Row {
    Row { id, note: format!("row {id}") }
}

/// A child refuses all inherited handles, drops them, and opens the store again. The sessions of its parent stay open.
fn with_transactions(schema: &Schema) -> TestResult {
    let store: &'static Store = Box::leak(Box::new(schema.open()?));
    let rows = RowRepository::open(store)?;
    store.transaction(|txn| rows.insert(txn, &row(1)))?;
    let worker = store.start_index_worker()?;
    // The transaction `late` has sent nothing.
    let (read, mut write, late) = (store.read()?, store.write()?, store.read()?);
    assert!(rows.get(&read, 1)?.is_some());
    // This transaction doesn't read: the server notes pages as read. The index worker reads the queue to which it adds, and the child
    // would insert into the page of its row. Then no order of the three would be right, and the commit would be a conflict.
    rows.insert(&mut write, &row(2))?;
    fork(
        (rows, worker, read, write, late),
        |(rows, worker, read, mut write, late)| {
            is_forked(store.read())?;
            is_forked(store.write())?;
            is_forked(store.transaction(|txn| rows.insert(txn, &row(9))))?;
            is_forked(RowRepository::open(store))?;
            is_forked(rows.get(&read, 1))?;
            is_forked(rows.get(&write, 2))?;
            is_forked(rows.insert(&mut write, &row(9)))?;
            is_forked(rows.insert_with(&mut write, row))?;
            is_forked(rows.all(&read).rows().collect::<Result<Vec<_>, _>>())?;
            is_forked(write.nested(|txn| rows.insert(txn, &row(9))))?;
            is_forked(write.commit())?;
            is_forked(rows.get(&late, 1))?;
            is_forked(worker.error().map_or(Ok(()), Err))?;
            ensure(store.readers().count == 0, "a child has readers")?;
            drop((rows, worker, read, late));
            #[expect(unsafe_code, reason = "the store was leaked")]
            // SAFETY: it is from `Box::leak`, and nothing borrows from it any more.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(store).cast_mut()) });
            let store = schema.open()?;
            let rows = RowRepository::open(&store)?;
            store.transaction(|txn| rows.insert(txn, &row(3)))?;
            ensure(rows.get(&store.read()?, 2)?.is_none(), "a change is visible before its commit")
        },
        |(rows, worker, read, write, late)| {
            // The session of each transaction has its state.
            assert!(rows.get(&read, 1)?.is_some());
            assert!(rows.get(&read, 3)?.is_none());
            write.commit()?;
            assert!(rows.get(&late, 2)?.is_none());
            drop((read, late));
            assert_eq!(rows.all(&store.read()?).count()?, 3);
            assert!(worker.error().is_none());
            Ok(())
        },
    )
}

/// Forks while other threads use the connections.
fn beside_threads(schema: &Schema) -> TestResult {
    let store = schema.open()?;
    let rows = RowRepository::open(&store)?;
    let held = store.read()?;
    store.transaction(|txn| rows.put(txn, &row(1)))?;
    let is_over = AtomicBool::new(false);
    let work = |number: u64| -> Result<(), Error> {
        while !is_over.load(Relaxed) {
            store.transaction(|txn| rows.put(txn, &row(number)))?;
            rows.get(&store.read()?, number)?;
        }
        Ok(())
    };
    let child = || {
        is_forked(store.read())?;
        is_forked(store.write())?;
        is_forked(rows.get(&held, 1))?;
        ensure(store.readers().count == 0, "a child has readers")?;
        let own = schema.open()?;
        let rows = RowRepository::open(&own)?;
        ensure(rows.get(&own.read()?, 1)?.is_some(), "the row is missing")
    };
    thread::scope(|scope| {
        let work = &work;
        let threads = [1, 2, 3].map(|number| scope.spawn(move || work(number)));
        let forked = (0..10).try_for_each(|_| await_child(start_child(child)));
        is_over.store(true, Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread has panicked")??;
        }
        forked
    })
}

/// The child drops an inherited store that no thread uses.
fn without_threads(schema: &Schema) -> TestResult {
    let store = schema.open()?;
    let rows = RowRepository::open(&store)?;
    store.transaction(|txn| rows.insert(txn, &row(1)))?;
    fork(
        (store, rows),
        |inherited| {
            drop(inherited);
            Ok(())
        },
        |(store, rows)| Ok(store.transaction(|txn| rows.insert(txn, &row(2)))?),
    )
}

const ROLE: &str = "INDEX_TABLE_FORK_ROLE";

#[test]
fn a_forked_process_is_refused_and_leaves_the_sessions_of_its_parent() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    match env::var(ROLE).as_deref() {
        Ok("transactions") => return with_transactions(&schema),
        Ok("no threads") => return without_threads(&schema),
        Ok(_) => return beside_threads(&schema),
        Err(_) => {}
    }
    // A process of its own has no threads of other tests.
    for role in ["transactions", "no threads", "threads"] {
        let mut other = Command::new(env::current_exe()?);
        let name = "forked::a_forked_process_is_refused_and_leaves_the_sessions_of_its_parent";
        let output = other.args(["--exact", "--nocapture", name]).env(ROLE, role).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let child = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{role}: {said}{child}");
    }
    Ok(())
}
