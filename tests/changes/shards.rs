//! The change stream of a table in several shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::Duration,
};

use index_table::{
    ChangeBatch,
    ChangeKind::{self, Deleted, Inserted, Updated},
    Error, IndexTable, OnDuplicate, Result, ShardMap, Store,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", changes, shard_by = tenant)]
#[index(amount)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "totals")]
struct Total {
    #[primary_key]
    name: String,
    amount: i64,
}

const LONG: Duration = Duration::from_hours(1);

fn order(tenant: u32, number: u32, amount: i64) -> Order {
    Order { tenant, number, amount }
}

fn opened(path: &Path) -> Result<Store> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    options.map("orders", map).place("totals", "b").open(path)
}

fn new() -> Result<(Store, TempDir)> {
    let dir = tempfile::tempdir().expect("a directory");
    Ok((opened(&dir.path().join("store"))?, dir))
}

type Seen = (ChangeKind, (u32, u32), i64);

fn seen(batch: &ChangeBatch<Order>) -> Vec<Seen> {
    batch.iter().map(|change| (change.kind, change.key, change.row.amount)).collect()
}

#[test]
fn a_consumer_gets_the_changes_of_all_shards_in_their_order() -> Result<()> {
    let (store, dir) = new()?;
    let orders = OrderRepository::open(&store)?;
    for tenant in [25, 5, 15, 5, 25] {
        store.transaction(|txn| orders.put(txn, &order(tenant, 1, i64::from(tenant))))?;
        store.transaction(|txn| orders.update(txn, tenant, 1, |row| row.amount += 1).map(drop))?;
    }
    store.transaction(|txn| {
        orders.delete(txn, 15, 1)?;
        orders.update(txn, 5, 1, |row| row.tenant = 26).map(drop)
    })?;
    let expected = [
        (Inserted, (25, 1), 25),
        (Updated, (25, 1), 26),
        (Inserted, (5, 1), 5),
        (Updated, (5, 1), 6),
        (Inserted, (15, 1), 15),
        (Updated, (15, 1), 16),
        (Updated, (5, 1), 5),
        (Updated, (5, 1), 6),
        (Updated, (25, 1), 25),
        (Updated, (25, 1), 26),
        (Deleted, (15, 1), 16),
        (Deleted, (5, 1), 6),
        (Inserted, (26, 1), 6),
    ];
    let mut changes = orders.changes(&store, "copy")?;
    assert_eq!(changes.lag()?.changes, 13);
    let batch = changes.next_batch(100)?;
    assert_eq!(seen(&batch), expected);
    assert!(batch.iter().map(|change| change.number).is_sorted_by(|a, b| a < b));
    let first = changes.next_batch(4)?;
    first.commit(&store)?;
    assert!(matches!(batch.commit(&store), Err(Error::BatchSuperseded { .. })));
    drop((changes, orders, store));
    let store = opened(&dir.path().join("store"))?;
    let orders = OrderRepository::open(&store)?;
    let mut changes = orders.changes(&store, "copy")?;
    let rest = changes.next_batch(100)?;
    assert_eq!(seen(&rest), expected[4..]);
    rest.commit(&store)?;
    let last = rest.last().map(|change| change.number);
    store.transaction(|txn| orders.put(txn, &order(5, 9, 1)))?;
    let next = changes.next_batch(100)?;
    assert!(next.first().map(|change| change.number) > last);
    let [consumer] = orders.change_consumers(&store.read()?)?.try_into().expect("one consumer");
    assert_eq!((consumer.name.as_str(), consumer.lag.changes, consumer.missed), ("copy", 1, 0));
    assert!(orders.remove_change_consumer(&store, "copy")?);
    assert!(matches!(changes.next_batch(1), Err(Error::NoConsumer { .. })));
    Ok(())
}

#[test]
fn an_effect_in_the_store_is_made_once_and_across_shards() -> Result<()> {
    let (store, _dir) = new()?;
    let (orders, totals) = (OrderRepository::open(&store)?, TotalRepository::open(&store)?);
    store.transaction(|txn| {
        (0..30).try_for_each(|tenant| orders.insert(txn, &order(tenant, 1, 1)))
    })?;
    let mut changes = orders.changes(&store, "totals")?;
    loop {
        let batch = changes.next_batch(7)?;
        if batch.is_empty() {
            break;
        }
        let amount: i64 = batch.iter().map(|change| change.row.amount).sum();
        let work = |fails: bool| {
            store.transaction(|txn| {
                let before = totals.get(txn, "all")?.map_or(0, |total| total.amount);
                totals.put(txn, &Total { name: "all".into(), amount: before + amount })?;
                batch.commit_in(txn)?;
                if fails { Err(Error::WriteInProgress) } else { Ok(()) }
            })
        };
        assert!(work(true).is_err());
        work(false)?;
        assert!(matches!(work(false), Err(Error::BatchSuperseded { .. })));
    }
    assert_eq!(totals.get(&store.read()?, "all")?.map(|total| total.amount), Some(30));
    Ok(())
}

#[test]
fn the_order_of_a_key_is_kept_when_it_moves() -> Result<()> {
    let (store, _dir) = new()?;
    let orders = OrderRepository::open(&store)?;
    let mut changes = orders.changes(&store, "copy")?;
    store.add_shard("d", "d")?;
    let mut expected = Vec::new();
    for (amount, to) in (0..).zip(["b", "d", "c", "a", "d"]) {
        store.transaction(|txn| orders.put(txn, &order(5, 1, amount)))?;
        expected.push(amount);
        store.move_range("orders", ..10u32, to).run()?;
    }
    store.transaction(|txn| orders.put(txn, &order(5, 1, 9)))?;
    expected.push(9);
    let batch = changes.next_batch(100)?;
    let amounts: Vec<_> = batch.iter().map(|change| change.row.amount).collect();
    assert_eq!(amounts, expected, "a move adds no changes");
    // A shard whose changes are not committed stays.
    store.move_range("orders", 20u32.., "b").run()?;
    let refused = store.remove_shard("c");
    assert!(matches!(refused, Err(Error::ShardRefused { .. })), "{refused:?}");
    batch.commit(&store)?;
    store.remove_shard("c")?;
    store.transaction(|txn| orders.delete(txn, 5, 1))?;
    assert_eq!(seen(&changes.next_batch(9)?), [(Deleted, (5, 1), 9)]);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn workers_share_the_keys_of_all_shards() -> Result<()> {
    let (store, _dir) = new()?;
    let orders = OrderRepository::open(&store)?;
    let fill = |amount| {
        store.transaction(|txn| {
            (0..30).try_for_each(|tenant| {
                (0..4).try_for_each(|number| orders.put(txn, &order(tenant, number, amount)))
            })
        })
    };
    fill(1)?;
    let worker = || Ok::<_, Error>(orders.changes(&store, "mailer")?.share(LONG));
    let mut one = worker()?;
    let all = one.next_batch(1000)?;
    assert_eq!(all.len(), 120);
    all.commit(&store)?;
    let mut two = worker()?;
    assert!(two.next_batch(10)?.is_empty());
    assert!(one.next_batch(10)?.is_empty());
    fill(2)?;
    store.move_range("orders", ..10u32, "c").run()?;
    fill(3)?;
    let (first, second) = (one.next_batch(1000)?, two.next_batch(1000)?);
    assert_eq!(first.len() + second.len(), 240);
    let keys = |batch: &ChangeBatch<Order>| -> BTreeSet<_> {
        batch.iter().map(|change| change.key).collect()
    };
    assert!(keys(&first).is_disjoint(&keys(&second)));
    for batch in [&first, &second] {
        let mut amounts: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for change in batch {
            amounts.entry(change.key).or_default().push(change.row.amount);
        }
        assert!(amounts.values().all(|amounts| amounts == &[2, 3]), "{amounts:?}");
    }
    let unshared = orders.changes(&store, "mailer")?.next_batch(1);
    assert!(matches!(unshared, Err(Error::ConsumerShared { .. })));
    second.commit(&store)?;
    assert!(matches!(second.commit(&store), Err(Error::BatchSuperseded { .. })));
    two.leave()?;
    first.commit(&store)?;
    assert_eq!(one.consumer().lag()?.changes, 0);
    fill(4)?;
    assert_eq!(one.next_batch(1000)?.len(), 120, "the keys were handed on");
    one.leave()?;
    assert_eq!(orders.changes(&store, "mailer")?.next_batch(1000)?.len(), 120);
    Ok(())
}

#[test]
fn changes_of_writers_in_threads_arrive_once() -> Result<()> {
    const EACH: u32 = 60;
    let (store, _dir) = new()?;
    let orders = OrderRepository::open(&store)?;
    let mut changes = orders.changes(&store, "copy")?;
    let mut copy: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    let mut drain = || -> Result<usize> {
        let batch = changes.next_batch(16)?;
        for change in &batch {
            let old = copy.insert(change.key, change.row.amount);
            assert_eq!(old.unwrap_or(0) + 1, change.row.amount, "in order");
        }
        batch.commit(&store)?;
        Ok(batch.len())
    };
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = [5, 15, 25]
            .into_iter()
            .map(|tenant| {
                let (store, orders) = (&store, &orders);
                scope.spawn(move || {
                    for round in 0..EACH {
                        let number = round % 5;
                        let write = store.transaction(|txn| {
                            let amount = orders.get(txn, tenant, number)?.map_or(0, |it| it.amount);
                            orders.put(txn, &order(tenant, number, amount + 1))
                        });
                        write.expect("a write");
                    }
                })
            })
            .collect();
        for to in ["b", "c", "a"] {
            store.move_range("orders", ..10u32, to).run()?;
            drain()?;
        }
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            drain()?;
        }
        Ok(())
    })?;
    while drain()? > 0 {}
    assert_eq!(copy.values().sum::<i64>(), i64::from(3 * EACH));
    assert_eq!(copy.len(), 15);
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Put(u32, u32, i64),
    Rename(u32, u32, u32),
    Delete(u32, u32),
    Load(Vec<(u32, u32)>, i64),
    /// Several writes that are rolled back.
    Abort(Vec<(u32, u32)>),
    Consume(usize, usize, bool),
    SkipBefore(usize),
    Move(u32, usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let tenant = || (0..3_u32).prop_map(|it| it * 10 + 5);
    let number = || 0..4_u32;
    let keys = move || prop::collection::vec((tenant(), number()), 0..5);
    prop_oneof![
        4 => (tenant(), number(), 0..4_i64).prop_map(|(t, n, a)| Step::Put(t, n, a)),
        2 => (tenant(), number(), tenant()).prop_map(|(t, n, to)| Step::Rename(t, n, to)),
        2 => (tenant(), number()).prop_map(|(t, n)| Step::Delete(t, n)),
        1 => (keys(), 0..4_i64).prop_map(|(keys, amount)| Step::Load(keys, amount)),
        1 => keys().prop_map(Step::Abort),
        4 => (0..2_usize, 0..6_usize, any::<bool>())
            .prop_map(|(who, limit, commit)| Step::Consume(who, limit, commit)),
        1 => (0..2_usize).prop_map(Step::SkipBefore),
        2 => (tenant(), 0..3_usize).prop_map(|(tenant, to)| Step::Move(tenant, to)),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<(u32, u32), i64>,
    log: Vec<Seen>,
}

impl Model {
    fn set(&mut self, key: (u32, u32), amount: i64) {
        match self.rows.insert(key, amount) {
            Some(old) if old == amount => {}
            Some(_) => self.log.push((Updated, key, amount)),
            None => self.log.push((Inserted, key, amount)),
        }
    }

    fn remove(&mut self, key: (u32, u32)) -> Option<i64> {
        let old = self.rows.remove(&key)?;
        self.log.push((Deleted, key, old));
        Some(old)
    }
}

const NAMES: [&str; 2] = ["a", "b"];

fn run(steps: &[Step]) -> Result<()> {
    let (mut store, dir) = new()?;
    let mut orders = OrderRepository::open(&store)?;
    let (mut model, mut positions) = (Model::default(), [0_usize; 2]);
    for name in NAMES {
        orders.changes(&store, name)?;
    }
    for step in steps {
        match step {
            Step::Put(tenant, number, amount) => {
                store.transaction(|txn| orders.put(txn, &order(*tenant, *number, *amount)))?;
                model.set((*tenant, *number), *amount);
            }
            Step::Rename(tenant, number, to) => {
                let renamed = store
                    .transaction(|txn| orders.update(txn, *tenant, *number, |it| it.tenant = *to));
                match renamed {
                    Err(Error::DuplicateKey { .. }) => {
                        assert!(model.rows.contains_key(&(*to, *number)));
                    }
                    renamed => {
                        if renamed?
                            && tenant != to
                            && let Some(amount) = model.remove((*tenant, *number))
                        {
                            model.set((*to, *number), amount);
                        }
                    }
                }
            }
            Step::Delete(tenant, number) => {
                let deleted = store.transaction(|txn| orders.delete(txn, *tenant, *number))?;
                assert_eq!(deleted, model.remove((*tenant, *number)).is_some());
            }
            Step::Load(keys, amount) => {
                let keys: BTreeSet<_> = keys.iter().copied().collect();
                // The shards are loaded in parallel, so the changes of one shard are in order.
                for tenant in [5, 15, 25] {
                    let own = keys.iter().filter(|key| key.0 == tenant);
                    let rows = own.clone().map(|(tenant, number)| order(*tenant, *number, *amount));
                    orders.bulk_load(&store, rows).on_duplicate(OnDuplicate::Replace).run()?;
                    own.for_each(|key| model.set(*key, *amount));
                }
            }
            Step::Abort(keys) => {
                let aborted: Result<()> = store.transaction(|txn| {
                    for (tenant, number) in keys {
                        orders.put(txn, &order(*tenant, *number, 99))?;
                    }
                    Err(Error::WriteInProgress)
                });
                assert!(aborted.is_err());
            }
            Step::Consume(who, limit, commit) => {
                let mut changes = orders.changes(&store, NAMES[*who])?;
                let position = &mut positions[*who];
                assert_eq!(changes.lag()?.changes, (model.log.len() - *position) as u64);
                let batch = changes.next_batch(*limit)?;
                let expected = model.log[*position..].iter().take(*limit).copied();
                assert_eq!(seen(&batch), expected.collect::<Vec<_>>());
                if *commit {
                    batch.commit(&store)?;
                    *position += batch.len();
                }
            }
            Step::SkipBefore(who) => {
                let mut changes = orders.changes(&store, NAMES[*who])?;
                let skipped = changes.skip_before(&store.read()?)?;
                assert_eq!(skipped, (model.log.len() - positions[*who]) as u64);
                positions[*who] = model.log.len();
            }
            Step::Move(tenant, to) => {
                let range = tenant - 5..tenant + 5;
                store.move_range("orders", range, ["a", "b", "c"][*to]).run()?;
            }
            Step::Reopen => {
                drop((orders, store));
                store = opened(&dir.path().join("store"))?;
                orders = OrderRepository::open(&store)?;
            }
        }
    }
    let txn = store.read()?;
    let rows: BTreeMap<_, _> = orders
        .all(&txn)
        .rows()
        .map(|row| row.map(|row| ((row.tenant, row.number), row.amount)))
        .collect::<Result<_>>()?;
    assert_eq!(rows, model.rows);
    drop(txn);
    for (who, name) in NAMES.iter().enumerate() {
        let batch = orders.changes(&store, name)?.next_batch(1000)?;
        assert_eq!(seen(&batch), model.log[positions[who]..]);
    }
    assert!(store.verify()?.is_clean());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn random_changes_and_moves_agree_with_a_model(steps in prop::collection::vec(step(), 0..40)) {
        run(&steps)?;
    }
}
