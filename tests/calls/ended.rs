//! The end of a store with calls, and its limits.

use std::{sync::mpsc, thread, time::Duration};

use index_table::{Error, Store};

use crate::{TestResult, all_stores, block_on, customer, poll_once, stores};

#[test]
fn closing_waits_for_accepted_writes_and_refuses_later_ones() -> TestResult {
    for (store, customers, _dir) in stores()? {
        let txn = store.write()?;
        let mut calls: Vec<_> =
            (0..10).map(|id| customers.insert_async(&store, &customer(1, id))).collect();
        for call in &mut calls {
            assert!(poll_once(call).is_pending());
        }
        let (closed, closing) = mpsc::channel();
        let (own, rows) = (store.clone(), customers.clone());
        let thread = thread::spawn(move || {
            let result = block_on(own.close_async());
            let _ = closed.send(());
            result.and_then(|()| rows.all(&own.read()?).count())
        });
        assert!(closing.recv_timeout(Duration::from_millis(50)).is_err(), "closed too early");
        drop(txn);
        assert_eq!(thread.join().expect("no panic")?, 10);
        calls.into_iter().try_for_each(block_on)?;
        let refused = block_on(customers.insert_async(&store, &customer(1, 100)));
        assert!(matches!(refused, Err(Error::CallsClosed)), "{refused:?}");
        let refused = block_on(customers.get_async(&store, 1, 1));
        assert!(matches!(refused, Err(Error::CallsClosed)), "{refused:?}");
        // Everything else goes on.
        store.transaction(|txn| customers.insert(txn, &customer(1, 100)))?;
        block_on(store.close_async())?;
    }
    Ok(())
}

#[test]
fn closing_does_not_wait_for_look_ups_that_nobody_polls() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        block_on(customers.insert_async(&store, &customer(1, 1)))?;
        let get = customers.get_async(&store, 1, 1).try_submit().map_err(|_| "refused")?;
        let read = store.read_async(|_| Ok(7)).try_submit().map_err(|_| "refused")?;
        block_on(store.close_async())?;
        assert_eq!(block_on(get)?, Some(customer(1, 1)));
        assert_eq!(block_on(read)?, 7);
    }
    Ok(())
}

#[test]
fn a_full_queue_refuses_and_others_wait() -> TestResult {
    for (store, customers, _dir) in stores()? {
        let txn = store.write()?;
        let (mut accepted, mut refused) = (Vec::new(), 0);
        for id in 0..3000 {
            let own = customers.clone();
            match store.transaction_async(move |txn| own.insert(txn, &customer(1, id))).try_submit()
            {
                Ok(call) => accepted.push(call),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0 && accepted.len() >= 1024, "{} accepted", accepted.len());
        let mut waiting: Vec<_> =
            (3000..3010).map(|id| customers.insert_async(&store, &customer(1, id))).collect();
        for call in &mut waiting {
            assert!(poll_once(call).is_pending());
        }
        let count = (accepted.len() + waiting.len()) as u64;
        drop(txn);
        accepted.into_iter().try_for_each(block_on)?;
        waiting.into_iter().try_for_each(block_on)?;
        assert_eq!(customers.all(&store.read()?).count()?, count);
    }
    Ok(())
}

#[test]
fn the_last_call_closes_the_store() -> TestResult {
    let (store, customers, dir) = stores()?.remove(0);
    let txn = store.write()?;
    let mut call = customers.insert_async(&store, &customer(1, 1));
    assert!(poll_once(&mut call).is_pending());
    drop(txn);
    drop((store, customers));
    block_on(call)?;
    let path = dir.as_ref().expect("a directory").path().join("one");
    let store = Store::open(path)?;
    assert!(!store.was_recovered());
    assert_eq!(crate::CustomerRepository::open(&store)?.all(&store.read()?).count()?, 1);
    Ok(())
}

#[test]
fn calls_continue_while_the_store_grows() -> TestResult {
    let (store, customers, _dir) = stores()?.remove(0);
    let (own, rows) = (store.clone(), customers.clone());
    let writer = thread::spawn(move || {
        for id in 0..400 {
            block_on(rows.insert_async(&own, &customer(if id % 2 == 0 { 7 } else { 107 }, id)))?;
        }
        Ok::<_, Error>(())
    });
    store.add_shard("south", "south")?;
    store.move_range("customers", 100u32.., "south").run()?;
    writer.join().expect("no panic")?;
    assert_eq!(customers.all(&store.read()?).count()?, 400);
    assert!(customers.verify(&store.read()?).run()?.is_clean());
    Ok(())
}
