//! Calls in a forked process, which has none of the threads.

use std::time::Duration;

use index_table::Error;

use crate::{
    TestResult, block_on,
    child::{ensure, fork, is_forked},
    customer, poll_once, stores,
};

#[test]
fn a_forked_process_gets_an_error_and_drops_futures() -> TestResult {
    for (store, customers, _dir) in stores()?.into_iter().take(2) {
        let mut changes = customers.changes(&store, "mailer")?;
        block_on(customers.insert_async(&store, &customer(1, 1)))?;
        block_on(store.read_async(|_| Ok(())))?;
        let mut waits = changes.wait_async(Duration::from_mins(1));
        changes.next_batch(10)?.commit(&store)?;
        ensure(poll_once(&mut waits).is_pending(), "a wait")?;
        let mut read = store.read_async(|_| Ok(()));
        let _ = poll_once(&mut read);
        let child = |futures| {
            let insert = customers.insert_async(&store, &customer(1, 2)).try_submit();
            is_forked(block_on(insert.map_err(|_| "refused")?))?;
            is_forked(block_on(customers.get_async(&store, 1, 1)))?;
            is_forked(block_on(store.read_async(|_| Ok(()))))?;
            is_forked(block_on(store.close_async()))?;
            drop(futures);
            Ok(())
        };
        fork((waits, read), child, |_| Ok(()))?;
        block_on(customers.insert_async(&store, &customer(1, 3)))?;
        assert!(!matches!(block_on(store.close_async()), Err(Error::Forked { .. })));
    }
    Ok(())
}
