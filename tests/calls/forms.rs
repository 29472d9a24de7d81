//! Each form of a call has the result of the same call without `_async`.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use index_table::{Call, Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{Customer, TestResult, all_stores, block_on, customer, stores};

#[test]
fn calls_have_the_results_of_transactions() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        block_on(async {
            for (tenant, id) in [(7, 1), (107, 1), (107, 2)] {
                customers.insert_async(&store, &customer(tenant, id)).await?;
            }
            let again = customers.insert_async(&store, &customer(7, 1)).await;
            assert!(matches!(again, Err(Error::DuplicateKey { .. })), "{again:?}");
            let taken = Customer { email: customer(7, 1).email, ..customer(107, 3) };
            let taken = customers.insert_async(&store, &taken).await;
            assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");

            let moved = Customer { town: "Seattle".into(), ..customer(7, 1) };
            customers.put_async(&store, &moved).await?;
            assert_eq!(customers.get_async(&store, 7, 1).await?, Some(moved.clone()));
            assert_eq!(customers.get_async(&store, 7, 2).await?, None);
            let email = &customer(107, 2).email;
            assert_eq!(customers.get_by_email_async(&store, email).await?, Some(customer(107, 2)));
            assert_eq!(customers.get_by_email_async(&store, "nobody").await?, None);
            let many = customers.get_many_async(&store, [(107, 1), (9, 9), (7, 1)]).await?;
            assert_eq!(many, [Some(customer(107, 1)), None, Some(moved)]);

            let town = "Oslo".to_owned();
            let changed = move |row: &mut Customer| row.town.clone_from(&town);
            assert!(customers.update_async(&store, 107, 1, changed.clone()).await?);
            assert!(!customers.update_async(&store, 9, 9, changed).await?);
            assert!(customers.delete_async(&store, 107, 2).await?);
            assert!(!customers.delete_async(&store, 107, 2).await?);

            let own = customers.clone();
            let page = store
                .read_async(move |txn| {
                    own.find_by_town(txn, "Oslo").rows().collect::<Result<Vec<_>, _>>()
                })
                .await?;
            assert_eq!(page, [Customer { town: "Oslo".into(), ..customer(107, 1) }]);

            let own = customers.clone();
            let count = store.transaction_async(move |txn| {
                own.insert(txn, &customer(8, 1))?;
                own.insert(txn, &customer(108, 1))?;
                own.all(txn).count()
            });
            assert_eq!(count.await?, 4);
            let own = customers.clone();
            let failed: Result<(), Error> = store
                .transaction_async(move |txn| {
                    own.insert(txn, &customer(9, 1))?;
                    own.insert(txn, &customer(8, 1))
                })
                .await;
            assert!(matches!(failed, Err(Error::DuplicateKey { .. })), "{failed:?}");
            assert_eq!(customers.get_async(&store, 9, 1).await?, None);
            Ok::<_, Error>(())
        })?;
        let report = customers.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn a_panic_is_an_error_of_its_call_alone() -> TestResult {
    for (store, customers, _dir) in all_stores()? {
        let read: Result<(), Error> = block_on(store.read_async(|_| panic!("while reading")));
        assert!(
            matches!(&read, Err(Error::Panicked { message }) if message == "while reading"),
            "{read:?}"
        );
        let own = customers.clone();
        let written: Result<(), Error> = block_on(store.transaction_async(move |txn| {
            own.insert(txn, &customer(1, 1))?;
            panic!("while writing")
        }));
        assert!(matches!(written, Err(Error::Panicked { .. })), "{written:?}");
        block_on(customers.insert_async(&store, &customer(1, 2)))?;
        let changed = block_on(customers.update_async(&store, 1, 2, |_| panic!("in the change")));
        assert!(matches!(changed, Err(Error::Panicked { .. })), "{changed:?}");
        assert_eq!(
            block_on(customers.get_many_async(&store, [(1, 1), (1, 2)]))?,
            [None, Some(customer(1, 2))]
        );
    }
    Ok(())
}

#[test]
fn a_repository_of_another_store_is_refused() -> TestResult {
    // The last shards of the other store have numbers that the first one lacks.
    let others = stores()?;
    others[1].0.add_shard("east", "east")?;
    others[1].0.move_range("customers", 200u32.., "east").run()?;
    for (store, _, _dir) in stores()? {
        for (_, customers, _) in &others {
            let wrong = |result: Result<(), Error>| {
                assert!(matches!(result, Err(Error::WrongStore { .. })), "{result:?}");
            };
            wrong(block_on(customers.insert_async(&store, &customer(207, 1))));
            wrong(block_on(customers.put_async(&store, &customer(7, 1))));
            wrong(block_on(customers.update_async(&store, 207, 1, |_| ())).map(drop));
            wrong(block_on(customers.delete_async(&store, 207, 1)).map(drop));
            wrong(block_on(customers.get_async(&store, 207, 1)).map(drop));
            wrong(block_on(customers.get_many_async(&store, [(7, 1)])).map(drop));
            wrong(block_on(customers.get_by_email_async(&store, "nobody")).map(drop));
        }
    }
    Ok(())
}

#[test]
fn a_call_can_be_a_task() -> TestResult {
    fn sent<T: Send + 'static>(call: Call<T>) -> Call<T> {
        fn is_task<F: std::future::Future + Send + 'static>(future: F) -> F {
            future
        }
        is_task(call)
    }
    let (store, customers, _dir) = stores()?.remove(0);
    let inserted = sent(customers.insert_async(&store, &customer(1, 1)));
    drop(store);
    // The call keeps the store open.
    thread::spawn(|| block_on(inserted)).join().expect("no panic")?;
    Ok(())
}

#[test]
fn calls_of_many_tasks_are_committed_together() -> TestResult {
    let (store, customers, _dir) = stores()?.remove(0);
    let watcher = customers.watch(&store).start()?;
    let txn = store.write()?;
    let mut calls: Vec<_> =
        (0..100).map(|id| customers.insert_async(&store, &customer(1, id))).collect();
    for call in &mut calls {
        assert!(crate::poll_once(call).is_pending());
    }
    drop(txn);
    calls.into_iter().try_for_each(block_on)?;
    let commits: BTreeSet<_> = (0..100)
        .filter_map(|_| watcher.recv())
        .map(|event| event.commit_number().to_string())
        .collect();
    assert!(commits.len() <= 3, "{commits:?}");
    Ok(())
}

#[test]
fn tasks_of_a_runtime_use_calls() -> TestResult {
    let (store, customers, _dir) = stores()?.remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let insert = |id| customers.insert_async(&store, &customer(1, id));
        let tasks: Vec<_> = (0..50).map(|id| tokio::spawn(insert(id))).collect();
        for task in tasks {
            task.await??;
        }
        assert_eq!(customers.get_async(&store, 1, 49).await?, Some(customer(1, 49)));
        Ok(())
    })
}

#[test]
fn look_ups_that_are_ready_let_other_tasks_run() -> TestResult {
    let store = Store::in_memory();
    let customers = crate::CustomerRepository::open(&store)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let ran = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ran);
        let other = tokio::spawn(async move { own.store(true, Ordering::Relaxed) });
        let mut made = 0;
        while !ran.load(Ordering::Relaxed) {
            assert_eq!(customers.get_async(&store, 1, 1).await?, None);
            made += 1;
            assert!(made < 1000, "the other task does not run");
        }
        other.await?;
        Ok(())
    })
}

#[test]
fn waiting_calls_begin_in_order() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().async_threads(1).open(dir.path())?;
    let (held, holds) = mpsc::channel::<()>();
    let mut first = store
        .read_async(move |_| Ok::<_, Error>(holds.recv_timeout(Duration::from_mins(1)).is_ok()));
    assert!(crate::poll_once(&mut first).is_pending());
    let (starts, started) = mpsc::channel();
    let mut calls: Vec<_> = (0..20)
        .map(|number| {
            let starts = starts.clone();
            store.read_async(move |_| Ok::<_, Error>(starts.send(number).is_ok()))
        })
        .collect();
    for call in &mut calls {
        assert!(crate::poll_once(call).is_pending());
    }
    held.send(())?;
    assert!(block_on(first)?);
    for call in calls {
        assert!(block_on(call)?);
    }
    assert_eq!(started.try_iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    Ok(())
}

/// Reads back as another key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(code)]
struct Lossy {
    #[primary_key]
    id: u32,
    #[serde(with = "halved")]
    code: u32,
}

mod halved {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    pub(super) fn serialize<S: Serializer>(code: &u32, to: S) -> Result<S::Ok, S::Error> {
        (code / 2).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        u32::deserialize(from).map(|code| code * 2)
    }
}

#[test]
fn a_row_with_other_keys_when_it_is_read_back_is_refused() -> TestResult {
    let store = Store::in_memory();
    let rows = LossyRepository::open(&store)?;
    let odd = Lossy { id: 1, code: 7 };
    let expected =
        store.transaction(|txn| rows.insert(txn, &odd)).expect_err("other keys").to_string();
    let refused = block_on(rows.insert_async(&store, &odd)).expect_err("other keys").to_string();
    assert_eq!(refused, expected);
    let even = Lossy { id: 1, code: 8 };
    block_on(rows.insert_async(&store, &even))?;
    assert_eq!(block_on(rows.get_async(&store, 1))?, Some(even));
    Ok(())
}
