//! Several workers that share the keys of a consumer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use index_table::{ChangeBatch, ChangeWorker, Error, Result, Store};
use proptest::prelude::*;

use crate::{Invoice, InvoiceRepository, all_stores, invoice};

const LONG: Duration = Duration::from_hours(1);

fn fill(store: &Store, invoices: &InvoiceRepository, amount: i64) -> Result<()> {
    store.transaction(|txn| {
        (0..100).try_for_each(|number| invoices.put(txn, &invoice(number, amount)))
    })
}

fn worker(
    store: &Store,
    invoices: &InvoiceRepository,
    lease: Duration,
) -> Result<ChangeWorker<Invoice>> {
    Ok(invoices.changes(store, "mailer")?.share(lease))
}

fn keys(batch: &ChangeBatch<Invoice>) -> BTreeSet<u32> {
    batch.iter().map(|change| change.key).collect()
}

#[test]
fn workers_share_the_keys_and_a_key_has_one_worker_at_a_time() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 1)?;
        let mut one = worker(&store, &invoices, LONG)?;
        let all = one.next_batch(1000)?;
        assert_eq!(all.len(), 100, "the only worker has all keys");
        let mut two = worker(&store, &invoices, LONG)?;
        assert!(two.next_batch(1000)?.is_empty(), "the first worker still has a batch");
        all.commit(&store)?;
        fill(&store, &invoices, 2)?;
        fill(&store, &invoices, 3)?;
        let (first, second) = (one.next_batch(1000)?, two.next_batch(1000)?);
        assert_eq!(first.len() + second.len(), 200);
        assert!(keys(&first).is_disjoint(&keys(&second)));
        assert!(keys(&first).len() > 20 && keys(&second).len() > 20);
        let numbers = |batch: &ChangeBatch<_>| batch.iter().map(|it| it.number).collect::<Vec<_>>();
        assert!(numbers(&first).is_sorted() && numbers(&second).is_sorted());
        second.commit(&store)?;
        assert!(one.consumer().lag()?.changes > 0, "the first worker has not committed");
        first.commit(&store)?;
        assert!(one.next_batch(9)?.is_empty() && two.next_batch(9)?.is_empty());
        assert_eq!(one.consumer().lag()?.changes, 0);

        two.leave()?;
        fill(&store, &invoices, 4)?;
        assert_eq!(one.next_batch(1000)?.len(), 100, "the keys were handed on");
    }
    Ok(())
}

#[test]
fn the_keys_of_an_ended_worker_go_to_other_workers_after_its_lease() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 1)?;
        let mut dead = worker(&store, &invoices, Duration::ZERO)?;
        let lost = dead.next_batch(60)?;
        assert_eq!(lost.len(), 60);
        let mut next = worker(&store, &invoices, LONG)?;
        let all = next.next_batch(1000)?;
        assert_eq!(all.len(), 100);
        for _ in 0..2 {
            let superseded = lost.commit(&store).expect_err("handed on");
            assert!(matches!(superseded, Error::BatchSuperseded { .. }), "{superseded:?}");
            all.commit(&store).or_else(|error| match error {
                Error::BatchSuperseded { .. } => Ok(()),
                error => Err(error),
            })?;
        }
        assert!(next.next_batch(9)?.is_empty());
    }
    Ok(())
}

#[test]
fn a_shared_consumer_is_used_by_its_workers_only() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        fill(&store, &invoices, 1)?;
        let mut alone = invoices.changes(&store, "mailer")?;
        let before = alone.next_batch(7)?;
        let mut shared = worker(&store, &invoices, LONG)?;
        let batch = shared.next_batch(30)?;
        for refused in [alone.next_batch(9).map(drop), before.commit(&store)] {
            let refused = refused.expect_err("shared");
            assert!(
                matches!(&refused, Error::ConsumerShared { table: "invoices", consumer } if consumer == "mailer"),
                "{refused:?}"
            );
        }
        batch.commit(&store)?;
        shared.leave()?;
        // The committed changes do not come again.
        assert!(matches!(before.commit(&store), Err(Error::BatchSuperseded { .. })));
        let rest = alone.next_batch(1000)?;
        assert!(rest.iter().map(|change| change.key).eq(30..100));
        rest.commit(&store)?;
        assert_eq!(alone.lag()?.changes, 0);
        assert!(invoices.remove_change_consumer(&store, "mailer")?);
        assert_eq!(invoices.changes(&store, "mailer")?.next_batch(1000)?.len(), 100);
    }
    Ok(())
}

#[test]
fn a_consumer_skips_the_changes_that_its_workers_have_committed() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let [mut idle, mut busy] =
            [worker(&store, &invoices, LONG)?, worker(&store, &invoices, LONG)?];
        for _ in 0..2 {
            assert!(idle.next_batch(1)?.is_empty() && busy.next_batch(1)?.is_empty());
        }
        let mut number = 0;
        let batch = loop {
            // Until a row has a key of the second worker.
            store.transaction(|txn| invoices.insert(txn, &invoice(number, 1)))?;
            let batch = busy.next_batch(1)?;
            if !batch.is_empty() {
                break batch;
            }
            idle.next_batch(1)?.commit(&store)?;
            number += 1;
        };
        batch.commit(&store)?;
        idle.leave()?;
        busy.leave()?;
        let mut alone = invoices.changes(&store, "mailer")?;
        assert_eq!(alone.lag()?.changes, 1, "the keys of the idle worker are behind");
        let mut batches = 0;
        while alone.lag()?.changes > 0 {
            let batch = alone.next_batch(10)?;
            assert!(batch.is_empty());
            batch.commit(&store)?;
            batches += 1;
            assert!(batches < 10, "no end");
        }
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<u32>),
    /// A worker takes a batch of up to this number of changes; its former batch is dropped.
    Take(usize, usize),
    Commit(usize),
    /// A worker is replaced by another worker, with or without a lease.
    Replace(usize, bool, bool),
    /// The consumer without workers takes and commits a batch, if it may.
    Alone(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..3_usize;
    prop_oneof![
        3 => prop::collection::vec(0..40_u32, 1..30).prop_map(Step::Write),
        6 => (who(), 1..20_usize).prop_map(|(who, limit)| Step::Take(who, limit)),
        5 => who().prop_map(Step::Commit),
        1 => (who(), any::<bool>(), any::<bool>()).prop_map(|(who, leave, lease)| Step::Replace(who, leave, lease)),
        1 => (1..20_usize).prop_map(Step::Alone),
        1 => Just(Step::Reopen),
    ]
}

/// The committed changes: the last number of each key, and their count.
#[derive(Default)]
struct Committed {
    last: BTreeMap<u32, u64>,
    count: u64,
}

impl Committed {
    fn add(&mut self, batch: &ChangeBatch<Invoice>) {
        for change in batch {
            let last = self.last.insert(change.key, change.number);
            assert!(last.is_none_or(|last| last < change.number), "key {}", change.key);
            self.count += 1;
        }
    }
}

fn run(steps: &[Step]) -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Store::options().map_size(1 << 26).open(directory.path());
    let mut store = open()?;
    let mut invoices = InvoiceRepository::open(&store)?;
    let lease = |long| if long { LONG } else { Duration::ZERO };
    let mut leases = [true, true, false];
    let join = |store: &Store, invoices: &InvoiceRepository, leases: [bool; 3]| {
        let workers = leases.map(|long| worker(store, invoices, lease(long)));
        workers.into_iter().map(|it| it.map(Some)).collect::<Result<Vec<_>>>()
    };
    let mut workers = join(&store, &invoices, leases)?;
    let mut batches: Vec<Option<ChangeBatch<Invoice>>> = vec![None, None, None];
    let (mut written, mut committed) = (0, Committed::default());
    for step in steps {
        match step {
            Step::Write(numbers) => {
                store.transaction(|txn| {
                    for number in numbers {
                        let amount = invoices.get(txn, *number)?.map_or(0, |row| row.amount);
                        invoices.put(txn, &invoice(*number, amount + 1))?;
                    }
                    Ok(())
                })?;
                written += numbers.len() as u64;
            }
            Step::Take(who, limit) => {
                let worker = workers[*who].as_mut().expect("a worker");
                batches[*who] = Some(worker.next_batch(*limit)?);
            }
            Step::Commit(who) => {
                let Some(batch) = batches[*who].take() else { continue };
                match batch.commit(&store) {
                    Ok(()) => committed.add(&batch),
                    Err(Error::BatchSuperseded { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Step::Replace(who, has_left, long) => {
                let old = workers[*who].take().expect("a worker");
                if *has_left {
                    old.leave()?;
                }
                leases[*who] = *long;
                workers[*who] = Some(worker(&store, &invoices, lease(*long))?);
            }
            Step::Alone(limit) => match invoices.changes(&store, "mailer")?.next_batch(*limit) {
                Ok(batch) => {
                    batch.commit(&store)?;
                    committed.add(&batch);
                }
                Err(Error::ConsumerShared { .. }) => {}
                Err(error) => return Err(error),
            },
            Step::Reopen => {
                for worker in workers.drain(..).flatten() {
                    worker.leave()?;
                }
                batches = vec![None, None, None];
                drop((invoices, store));
                store = open()?;
                invoices = InvoiceRepository::open(&store)?;
                workers = join(&store, &invoices, leases)?;
            }
        }
    }
    // A worker that was replaced without leaving has a lease for an hour, so its keys are taken by skipping its lease.
    for worker in workers.into_iter().flatten() {
        worker.leave()?;
    }
    let mut last = worker(&store, &invoices, LONG)?;
    loop {
        let batch = last.next_batch(50)?;
        if batch.is_empty() {
            break;
        }
        batch.commit(&store)?;
        committed.add(&batch);
    }
    let behind = last.consumer().lag()?.changes;
    assert!(committed.count <= written);
    assert!(behind > 0 || committed.count == written, "{} of {written}", committed.count);
    let left = steps.iter().all(|it| !matches!(it, Step::Replace(_, false, _)));
    assert!(!left || committed.count == written, "{} of {written}", committed.count);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn each_change_is_committed_once_and_in_the_order_of_its_key(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        run(&steps)?;
    }
}
