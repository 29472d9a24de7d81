//! Many futures that are dropped at random moments.

use std::thread;

use index_table::Error;

use crate::{TestResult, all_stores, block_on, customer, poll_once, support::await_true};

/// A generator of numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn dropped_calls_leave_nothing_and_are_whole_or_nothing() -> TestResult {
    for (store, customers, place) in all_stores()? {
        // Each is a few round trips to a server.
        let rounds = if place.1.is_some() { 60 } else { 800 };
        let threads: Vec<_> = (0..4)
            .map(|thread: u64| {
                let (store, customers) = (store.clone(), customers.clone());
                thread::spawn(move || {
                    let (mut random, mut kept) = (Random(thread), Vec::new());
                    for number in 0..rounds {
                        let (tenant, id) =
                            (if number % 2 == 0 { 7 } else { 107 }, thread * 10_000 + number * 2);
                        let own = customers.clone();
                        // Both rows, or none.
                        let call = store.transaction_async(move |txn| {
                            own.insert(txn, &customer(tenant, id))?;
                            own.insert(txn, &customer(tenant, id + 1))
                        });
                        let mut call =
                            if random.below(2) == 0 { call.abort_on_drop() } else { call };
                        let mut polls = random.below(4);
                        if polls == 3 {
                            block_on(call)?;
                            kept.push((tenant, id));
                            continue;
                        }
                        while polls > 0 && poll_once(&mut call).is_pending() {
                            polls -= 1;
                            (0..random.below(3)).for_each(|_| thread::yield_now());
                        }
                        let own = customers.clone();
                        let mut read =
                            store.read_async(move |txn| own.get(txn, tenant, id)).abort_on_drop();
                        let _ = poll_once(&mut read);
                        let _ = poll_once(&mut customers.get_async(&store, tenant, id));
                    }
                    Ok::<_, Error>(kept)
                })
            })
            .collect();
        let mut kept = Vec::new();
        for thread in threads {
            kept.extend(thread.join().expect("no panic")?);
        }
        block_on(store.close_async())?;
        await_true(|| store.readers().count == 0);
        let txn = store.read()?;
        for (tenant, id) in kept {
            assert!(customers.get(&txn, tenant, id)?.is_some());
        }
        let keys: Vec<_> = customers.all(&txn).keys().collect::<Result<_, _>>()?;
        for pair in keys.chunks(2) {
            assert!(
                matches!(pair, [(a, first), (b, second)] if a == b && first + 1 == *second),
                "{pair:?}"
            );
        }
        assert!(customers.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
