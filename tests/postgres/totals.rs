//! Aggregates that are declared, built and applied beside writers of other clients.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use index_table::{Error, IndexState, IndexTable, Result, Store, WhenFull};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

/// The table before it had aggregates.
mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "sales")]
    pub(super) struct Sale {
        #[primary_key]
        pub(super) id: u32,
        pub(super) shop: u32,
        pub(super) amount: i64,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sales")]
#[aggregate(shop, sum = [amount])]
#[aggregate(sum = [amount])]
struct Sale {
    #[primary_key]
    id: u32,
    shop: u32,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
#[aggregate(shop, sum = [seconds], consistency = "eventual")]
struct Visit {
    #[primary_key]
    id: u32,
    shop: u32,
    seconds: u32,
}

fn visit(id: u32, round: u32) -> Visit {
    Visit { id, shop: (id + round) % 5, seconds: round }
}

/// Writes, changes and deletes visits, in each step another.
fn change(store: &Store, visits: &VisitRepository, client: u32, round: u32) -> Result<()> {
    let id = client * 1_000 + round * 7 % 40;
    store.transaction(|txn| {
        if round % 6 == 5 {
            visits.delete(txn, id).map(drop)
        } else {
            visits.put(txn, &visit(id, round))
        }
    })
}

/// Compares the totals of each shop with the rows, in one snapshot.
fn compare(store: &Store, visits: &VisitRepository) -> TestResult {
    let txn = store.read()?;
    let mut expected = std::collections::BTreeMap::<u32, (u64, i128)>::new();
    for row in visits.all(&txn).rows() {
        let row = row?;
        let (count, sum) = expected.entry(row.shop).or_default();
        (*count, *sum) = (*count + 1, *sum + i128::from(row.seconds));
    }
    let found = visits.aggregates_by_shop(&txn);
    let found = found.map(|it| it.map(|it| (it.shop, (it.count, it.sum_seconds))));
    assert_eq!(found.collect::<Result<std::collections::BTreeMap<_, _>>>()?, expected);
    let report = visits.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn an_aggregate_that_is_declared_beside_writers_counts_each_row_once() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let Some(other) = Schema::new() else { return Ok(()) };
    for (opens_online, schema) in [(false, schema), (true, other)] {
        let store = schema.open()?;
        let old = before::SaleRepository::open(&store)?;
        let sale = |id| before::Sale { id, shop: id % 3, amount: id.into() };
        store.transaction(|txn| (0..200).try_for_each(|id| old.put(txn, &sale(id))))?;
        drop(old);
        let (is_declared, others) = (AtomicBool::new(false), [schema.open()?, schema.open()?]);
        thread::scope(|scope| -> TestResult {
            let writers: Vec<_> = others
                .iter()
                .enumerate()
                .map(|(of, store)| {
                    let is_declared = &is_declared;
                    scope.spawn(move || -> Result<(u32, Option<Error>)> {
                        let old = before::SaleRepository::open(store)?;
                        for number in 0.. {
                            let id = 1_000 * (of as u32 + 1) + number % 500;
                            let row = sale(id);
                            let written = store.transaction(|txn| {
                                old.put(txn, &row)?;
                                if number % 3 == 2 {
                                    old.delete(txn, id - 1).map(drop)
                                } else {
                                    Ok(())
                                }
                            });
                            if let Err(error) = written {
                                return Ok((number, Some(error)));
                            }
                            if is_declared.load(Relaxed) {
                                return Ok((number, None));
                            }
                        }
                        Ok((0, None))
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(200));
            let declare = || -> Result<SaleRepository> {
                let open =
                    if opens_online { SaleRepository::open_online } else { SaleRepository::open };
                let sales = open(&store)?;
                sales.build(&store).refuse_earlier_releases().run()?;
                Ok(sales)
            };
            let declared = declare();
            // The old program has time for further writes, which must be refused or counted.
            thread::sleep(Duration::from_millis(100));
            is_declared.store(true, Relaxed);
            let sales = declared?;
            for writer in writers {
                let (written, error) = writer.join().expect("a writer")?;
                assert!(written > 0, "no write was before the declaration");
                let refused = matches!(error, None | Some(Error::SchemaMismatch { .. }));
                assert!(refused, "{error:?}");
            }
            let txn = store.read()?;
            let report = sales.verify(&txn).run()?;
            assert!(report.is_clean(), "{report}");
            assert_eq!(sales.aggregate(&txn)?.count, sales.all(&txn).rows().count() as u64);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn eventual_totals_of_several_clients_converge() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let visits = [VisitRepository::open(&stores[0])?, VisitRepository::open(&stores[1])?];
    let workers = [stores[0].start_index_worker()?, stores[1].start_index_worker()?];
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|client| {
                let (store, visits) = (&stores[client as usize % 2], &visits[client as usize % 2]);
                // Two clients write the same rows.
                let write =
                    move || (0..25).try_for_each(|round| change(store, visits, client / 2, round));
                scope.spawn(write)
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer"))
    })?;
    drop(workers);
    visits[0].drain(&stores[0], u64::MAX)?;
    compare(&stores[0], &visits[0])
}

#[test]
fn a_disabled_aggregate_is_built_again_beside_writers() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let open = || schema.open_with(&schema.options().index_queue(2, WhenFull::Disable));
    let (store, other) = (open()?, open()?);
    let visits = VisitRepository::open(&store)?;
    store.transaction(|txn| (0..400).try_for_each(|id| visits.put(txn, &visit(id, 1))))?;
    // The writers count the messages again after a second.
    thread::sleep(Duration::from_millis(1_100));
    store.transaction(|txn| (0..10).try_for_each(|id| visits.put(txn, &visit(id, 2))))?;
    let refused = visits.aggregate_by_shop(&store.read()?, 1);
    let is_disabled =
        matches!(refused, Err(Error::IndexNotReadable { state: IndexState::Disabled, .. }));
    assert!(is_disabled, "{refused:?}");
    drop((visits, store));

    // Without a limit, the queue stays open for the messages beside the build.
    let store = schema.open()?;
    let visits = VisitRepository::open(&store)?;
    drop(other);
    let is_built = AtomicBool::new(false);
    thread::scope(|scope| -> TestResult {
        let writers: Vec<_> = (0..2)
            .map(|client| {
                let (schema, is_built) = (&schema, &is_built);
                scope.spawn(move || -> Result<()> {
                    let store = schema.open()?;
                    let visits = VisitRepository::open(&store)?;
                    for round in 0..10_000 {
                        if is_built.load(Relaxed) {
                            break;
                        }
                        change(&store, &visits, 0, round * 2 + client)?;
                    }
                    Ok(())
                })
            })
            .collect();
        loop {
            let report = visits.build(&store).batch_bytes(200).limit(1).run()?;
            if report.is_done() {
                break;
            }
        }
        is_built.store(true, Relaxed);
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer"))?;
        Ok(())
    })?;
    visits.drain(&store, u64::MAX)?;
    compare(&store, &visits)
}
