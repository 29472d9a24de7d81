//! Change streams of several clients. Changes get their numbers below the oldest running transaction.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use index_table::{
    __private::Entity, ChangeBatch, ChangeKind, Changes, Error, IndexTable, ReadTxn, Result, Store,
};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parcels", changes)]
#[index(town)]
struct Parcel {
    #[primary_key]
    id: u32,
    town: u8,
    weight: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parcels_kept_until_consumed", changes(until_consumed))]
struct Kept {
    #[primary_key]
    id: u32,
}

fn parcel(id: u32, weight: u64) -> Parcel {
    Parcel { id, town: 1, weight }
}

type Seen = (ChangeKind, u32, u64);

fn seen(batch: &ChangeBatch<Parcel>) -> Vec<Seen> {
    batch.iter().map(|change| (change.kind, change.key, change.row.weight)).collect()
}

/// Waits for a batch of `len` changes. Transactions of other tests delay changes.
fn batch<R: Entity>(changes: &mut Changes<R>, len: usize) -> Result<ChangeBatch<R>> {
    loop {
        let batch = changes.next_batch(len)?;
        if batch.len() == len {
            return Ok(batch);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads and commits `len` changes, and checks that there are no others.
fn drain(changes: &mut Changes<Parcel>, store: &Store, len: usize) -> Result<Vec<Seen>> {
    let mut all = Vec::new();
    while all.len() < len {
        let batch = changes.next_batch(7)?;
        all.extend(seen(&batch));
        batch.commit(store)?;
    }
    assert_eq!(changes.lag()?.changes, 0);
    Ok(all)
}

#[test]
fn a_consumer_receives_the_changes_of_all_clients_once_and_in_order() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (parcels, of_other) = (ParcelRepository::open(&store)?, ParcelRepository::open(&other)?);
    store.transaction(|txn| {
        parcels.insert(txn, &parcel(1, 10))?;
        let undone = txn.nested(|txn| {
            parcels.insert(txn, &parcel(9, 90))?;
            parcels.insert(txn, &parcel(1, 11))
        });
        assert!(matches!(undone, Err(Error::DuplicateKey { .. })));
        parcels.insert(txn, &parcel(2, 20))
    })?;
    of_other.bulk_load(&other, [parcel(3, 30), parcel(4, 40)]).run()?;
    other.transaction(|txn| {
        of_other.update(txn, 1, |row| row.weight = 11)?;
        of_other.update(txn, 2, |row| row.id = 5)?;
        of_other.delete(txn, 3)
    })?;
    parcels.put(&mut store.autocommit()?, &parcel(6, 60))?;

    let mut changes = parcels.changes(&store, "mailer")?;
    let lag = changes.lag()?;
    assert_eq!(lag.changes, 9);
    assert!(lag.since.is_some());
    let (inserted, updated, deleted) =
        (ChangeKind::Inserted, ChangeKind::Updated, ChangeKind::Deleted);
    let all = [
        (inserted, 1, 10),
        (inserted, 2, 20),
        (inserted, 3, 30),
        (inserted, 4, 40),
        (updated, 1, 11),
        (deleted, 2, 20),
        (inserted, 5, 20),
        (deleted, 3, 30),
        (inserted, 6, 60),
    ];
    let first = batch(&mut changes, 4)?;
    assert_eq!(seen(&first), all[..4]);
    let numbers: Vec<u64> = first.iter().map(|change| change.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(seen(&of_other.changes(&other, "mailer")?.next_batch(4)?), all[..4]);
    first.commit(&store)?;
    assert!(matches!(first.commit(&store), Err(Error::BatchSuperseded { .. })));
    assert_eq!(drain(&mut of_other.changes(&other, "mailer")?, &other, 5)?, all[4..]);
    assert_eq!(changes.lag()?.changes, 0);
    assert_eq!(parcels.last_change(&store.read()?)?, 9);
    // A later consumer begins at the oldest kept change.
    assert_eq!(drain(&mut parcels.changes(&store, "second")?, &store, 9)?, all);
    let consumers = parcels.change_consumers(&store.read()?)?;
    let lags = consumers.iter().map(|it| (&*it.name, it.lag.changes)).collect::<Vec<_>>();
    assert_eq!(lags, [("mailer", 0), ("second", 0)]);
    Ok(())
}

#[test]
fn a_running_transaction_delays_later_changes() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (parcels, of_other) = (ParcelRepository::open(&store)?, ParcelRepository::open(&other)?);
    let mut changes = parcels.changes(&store, "mailer")?;
    let mut first = store.write()?;
    parcels.insert(&mut first, &parcel(1, 10))?;
    thread::scope(|scope| {
        let second = || other.transaction(|txn| of_other.insert(txn, &parcel(2, 20)));
        scope.spawn(second).join().expect("a thread")
    })?;
    let batch = of_other.changes(&other, "mailer")?.next_batch(10)?;
    assert!(batch.is_empty(), "the change of the first transaction precedes this change");
    assert_eq!(of_other.change_consumers(&other.read()?)?[0].lag.changes, 1);
    first.commit()?;
    let all = drain(&mut changes, &store, 2)?;
    assert_eq!(all, [(ChangeKind::Inserted, 1, 10), (ChangeKind::Inserted, 2, 20)]);
    Ok(())
}

/// Applies a change to a copy, and checks that it follows the state of the row in the copy.
fn apply(copy: &mut BTreeMap<u32, Parcel>, batch: &ChangeBatch<Parcel>) {
    for change in batch {
        let old = match change.kind {
            ChangeKind::Deleted => copy.remove(&change.key),
            _ => copy.insert(change.key, change.row.clone()),
        };
        match change.kind {
            ChangeKind::Inserted => assert_eq!(old, None, "{change:?}"),
            ChangeKind::Deleted => assert_eq!(old.as_ref(), Some(&change.row), "{change:?}"),
            _ => {
                let before = old.map(|row| row.weight);
                assert!(before.is_some_and(|before| before < change.row.weight), "{change:?}");
            }
        }
    }
}

#[test]
fn a_copy_of_a_table_with_many_writers_equals_it() -> TestResult {
    const CLIENTS: u32 = 6;
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let parcels = ParcelRepository::open(&store)?;
    let mut changes = parcels.changes(&store, "copy")?;
    let is_done = AtomicBool::new(false);
    let copy = thread::scope(|scope| -> Result<BTreeMap<u32, Parcel>> {
        let (schema, is_done) = (&schema, &is_done);
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let store = schema.open().expect("a store");
                    let parcels = ParcelRepository::open(&store).expect("a table");
                    let mut random = u64::from(client) + 1;
                    let mut next = move |below: u64| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 33) % below
                    };
                    for round in 0..60 {
                        let steps: Vec<_> = (0..=next(2)).map(|_| (next(5), next(4))).collect();
                        let gives_up = next(8) == 0;
                        let written = store.transaction(|txn| {
                            for &(kind, id) in &steps {
                                let id = u32::try_from(id).expect("a small number");
                                let weight = |txn: &ReadTxn<'_>| {
                                    let row = parcels.get(txn, id)?;
                                    Ok::<_, Error>(row.map_or(0, |row| row.weight) + 1)
                                };
                                match kind {
                                    0 => drop(parcels.delete(txn, id)?),
                                    1 | 2 => match parcels.insert(txn, &parcel(id, 1)) {
                                        Err(Error::DuplicateKey { .. }) => {}
                                        outcome => outcome?,
                                    },
                                    3 => parcels.put(txn, &parcel(id, weight(txn)?))?,
                                    _ => drop(parcels.update(txn, id, |row| row.weight += 1)?),
                                }
                            }
                            if gives_up {
                                return Err(Error::ReadOnly {
                                    path: "given up".into(),
                                    source: None,
                                });
                            }
                            Ok(())
                        });
                        assert!(written.is_ok() || gives_up, "{round}: {written:?}");
                    }
                })
            })
            .collect();
        let reader = scope.spawn(move || -> Result<BTreeMap<u32, Parcel>> {
            let mut copy = BTreeMap::new();
            loop {
                let was_done = is_done.load(Ordering::Acquire);
                let batch = changes.next_batch(5)?;
                apply(&mut copy, &batch);
                batch.commit(&store)?;
                if batch.is_empty() {
                    if was_done && changes.lag()?.changes == 0 {
                        return Ok(copy);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        is_done.store(true, Ordering::Release);
        reader.join().expect("a reader")
    })?;
    let store = schema.open()?;
    let parcels = ParcelRepository::open(&store)?;
    let rows = parcels.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(copy.into_values().collect::<Vec<_>>(), rows);
    Ok(())
}

#[test]
fn workers_in_several_clients_share_the_keys() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let parcels = [ParcelRepository::open(&stores[0])?, ParcelRepository::open(&stores[1])?];
    let rows = (0..40).map(|id| parcel(id, 1));
    parcels[0].bulk_load(&stores[0], rows.clone()).run()?;
    stores[1].transaction(|txn| {
        (0..40).try_for_each(|id| parcels[1].update(txn, id, |row| row.weight = 2).map(drop))
    })?;
    let lease = Duration::from_mins(1);
    let mut workers = Vec::new();
    for (store, parcels) in stores.iter().zip(&parcels) {
        workers.push(parcels.changes(store, "shared")?.share(lease));
    }
    let (mut all, mut of_worker) = (BTreeMap::<u32, Vec<u64>>::new(), [0, 0]);
    while all.values().map(Vec::len).sum::<usize>() < 80 {
        for (at, (worker, store)) in workers.iter_mut().zip(&stores).enumerate() {
            let batch = worker.next_batch(9)?;
            for change in &batch {
                all.entry(change.key).or_default().push(change.row.weight);
                of_worker[at] += 1;
            }
            batch.commit(store)?;
        }
    }
    assert!(all.len() == 40 && all.values().all(|weights| *weights == [1, 2]), "{all:?}");
    assert!(of_worker.iter().all(|count| *count > 0), "{of_worker:?}");
    Ok(())
}

#[test]
fn changes_are_kept_until_all_consumers_have_committed_them() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let kept = KeptRepository::open(&store)?;
    let mut changes = kept.changes(&store, "archive")?;
    store.transaction(|txn| (0..300).try_for_each(|id| kept.insert(txn, &Kept { id })))?;
    assert_eq!(kept.remove_old_changes(&store, 1000)?, 0);
    batch(&mut changes, 200)?.commit(&store)?;
    assert_eq!(kept.remove_old_changes(&store, 1000)?, 200);
    let rest = batch(&mut changes, 100)?;
    assert_eq!(
        rest.iter().map(|change| change.key).collect::<Vec<_>>(),
        (200..300).collect::<Vec<_>>()
    );
    assert_eq!(rest.first().map(|change| change.number), Some(201));
    assert_eq!(kept.changes(&store, "late")?.next_batch(1)?.first().map(|it| it.key), Some(200));
    Ok(())
}
