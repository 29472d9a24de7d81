//! Futures that are dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use index_table::{Error, Store};

use crate::{TestResult, all_stores, block_on, customer, poll_once, stores, support::await_true};

#[test]
fn before_it_is_polled_a_call_does_nothing() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        drop(customers.insert_async(&store, &customer(1, 1)));
        let ran = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ran);
        drop(store.read_async(move |_| {
            own.store(true, SeqCst);
            Ok::<_, Error>(())
        }));
        block_on(customers.insert_async(&store, &customer(1, 2)))?;
        block_on(store.read_async(|_| Ok::<_, Error>(())))?;
        assert!(!ran.load(SeqCst));
        assert_eq!(customers.all(&store.read()?).count()?, 1);
    }
    Ok(())
}

#[test]
fn before_its_closure_begins_a_call_does_nothing() -> TestResult {
    for (store, customers, _dir) in stores()? {
        let txn = store.write()?;
        let mut calls: Vec<_> =
            (0..50).map(|id| customers.insert_async(&store, &customer(1, id))).collect();
        let own = customers.clone();
        let mut last = store.transaction_async(move |txn| own.insert(txn, &customer(1, 1000)));
        for call in &mut calls {
            assert!(poll_once(call).is_pending());
        }
        assert!(poll_once(&mut last).is_pending());
        // The thread may have taken the first call, and wait for the turn to write.
        let kept = calls.split_off(25);
        drop(calls);
        drop(txn);
        kept.into_iter().try_for_each(block_on)?;
        block_on(last)?;
        let found: Vec<_> = customers.all(&store.read()?).keys().collect::<Result<_, _>>()?;
        let ids: Vec<_> = found.into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids, (25..50).chain([1000]).collect::<Vec<_>>());
    }
    Ok(())
}

/// Runs a transaction whose future is dropped between two operations. Returns whether the second operation succeeded.
fn drop_between(
    store: &Store,
    customers: &crate::CustomerRepository,
    aborts: bool,
) -> Result<bool, Error> {
    let ((starts, started), (goes_on, continues), (ended, end)) =
        (mpsc::channel(), mpsc::channel::<()>(), mpsc::channel());
    let own = customers.clone();
    let call = store.transaction_async(move |txn| {
        own.insert(txn, &customer(1, 1))?;
        let _ = starts.send(());
        let _ = continues.recv_timeout(Duration::from_mins(1));
        let second = own.insert(txn, &customer(1, 2));
        let _ = ended.send(second.is_ok());
        // The closure ignores its error.
        Ok::<_, Error>(())
    });
    let mut call = if aborts { call.abort_on_drop() } else { call };
    assert!(poll_once(&mut call).is_pending());
    let wait = Duration::from_mins(1);
    started.recv_timeout(wait).expect("the closure has begun");
    drop(call);
    goes_on.send(()).expect("the closure waits");
    let second = end.recv_timeout(wait).expect("the closure has ended");
    // Another write follows its commit.
    block_on(customers.insert_async(store, &customer(1, 3)))?;
    Ok(second)
}

#[test]
fn a_closure_that_has_begun_ends() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        assert!(drop_between(&store, &customers, false)?);
        await_true(|| {
            let txn = store.read().expect("a transaction");
            customers.all(&txn).count().expect("a count") == 3
        });
    }
    Ok(())
}

#[test]
fn with_abort_on_drop_the_next_operation_fails_and_nothing_is_committed() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        assert!(!drop_between(&store, &customers, true)?);
        // Other calls are not affected.
        let keys: Vec<_> = customers.all(&store.read()?).keys().collect::<Result<_, _>>()?;
        assert_eq!(keys, [(1, 3)]);
    }
    Ok(())
}

#[test]
fn a_dropped_reader_leaves_no_transaction() -> TestResult {
    let (store, customers, _dir) = stores()?.remove(0);
    let own = customers.clone();
    let (starts, started) = mpsc::channel();
    let mut call = store
        .read_async(move |txn| {
            let _ = starts.send(());
            loop {
                // It ends because of the error alone.
                own.get(txn, 1, 1)?;
            }
            #[expect(unreachable_code, reason = "names the type")]
            Ok::<(), Error>(())
        })
        .abort_on_drop();
    assert!(poll_once(&mut call).is_pending());
    started.recv_timeout(Duration::from_mins(1))?;
    drop(call);
    await_true(|| store.readers().count == 0);
    Ok(())
}
