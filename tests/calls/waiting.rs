//! Tasks that wait for commits and applied messages.

use std::{
    future::Future as _,
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use index_table::Error;

use crate::{TestResult, all_stores, block_on, customer, stores};

const LONG: Duration = Duration::from_mins(1);

#[test]
fn a_commit_ends_the_wait_for_changes() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        let changes = customers.changes(&store, "mailer")?;
        let begun = Instant::now();
        assert!(!block_on(changes.wait_async(Duration::from_millis(20)))?);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        let waits = thread::spawn(move || block_on(changes.wait_async(LONG)));
        thread::sleep(Duration::from_millis(20));
        block_on(customers.insert_async(&store, &customer(1, 1)))?;
        assert!(waits.join().expect("no panic")?);
        assert!(begun.elapsed() < LONG);
    }
    Ok(())
}

/// A waker of a runtime that has ended.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("no runtime");
    }
}

#[test]
fn a_waker_that_panics_affects_no_commit_and_no_other_task() -> TestResult {
    for (store, customers, _dir) in stores()? {
        let mut changes = customers.changes(&store, "mailer")?;
        let mut waits: Vec<_> =
            (0..3).map(|_| changes.wait_async(Duration::from_millis(50))).collect();
        let waker = Waker::from(Arc::new(Panics));
        for _ in 0..100 {
            for wait in &mut waits {
                let _ = pin!(wait).poll(&mut Context::from_waker(&waker));
            }
            thread::sleep(Duration::from_millis(1));
        }
        drop(waits);
        let mut waits = changes.wait_async(LONG);
        for _ in 0..20 {
            let _ = pin!(&mut waits).poll(&mut Context::from_waker(&waker));
            thread::sleep(Duration::from_millis(1));
        }
        block_on(customers.insert_async(&store, &customer(1, 1)))?;
        block_on(customers.insert_async(&store, &customer(1, 2)))?;
        drop(waits);
        // The job of the timers goes on.
        assert!(block_on(changes.wait_async(LONG))?);
        changes.next_batch(10)?.commit(&store)?;
        assert!(!block_on(changes.wait_async(Duration::from_millis(20)))?);
    }
    Ok(())
}

#[test]
fn many_tasks_wait_without_a_thread_for_each() -> TestResult {
    let (store, customers, _dir) = stores()?.remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in 0..50 {
            let changes = customers.changes(&store, &format!("consumer {number}"))?;
            tasks.push(tokio::spawn(async move { changes.wait_async(LONG).await }));
        }
        tokio::task::yield_now().await;
        customers.insert_async(&store, &customer(1, 1)).await?;
        for task in tasks {
            assert!(task.await??);
        }
        Ok(())
    })
}

#[test]
fn an_applied_message_ends_the_wait_for_it() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        let own = customers.clone();
        let token = block_on(store.transaction_async(move |txn| {
            own.insert(txn, &customer(1, 1))?;
            Ok::<_, Error>(txn.token())
        }))?;
        assert!(!block_on(customers.wait_for_async(&store, &token, Duration::from_millis(20)))?);
        let (own, rows) = (store.clone(), customers.clone());
        let waits = thread::spawn(move || block_on(rows.wait_for_async(&own, &token, LONG)));
        thread::sleep(Duration::from_millis(20));
        customers.drain(&store, 10)?;
        assert!(waits.join().expect("no panic")?);
    }
    Ok(())
}
