//! `#[aggregate(…, consistency = "eventual")]`, and builds of aggregates while rows are written.

use std::collections::BTreeMap;

use index_table::{
    Error, FindingKind, IndexState, IndexTable, OnDuplicate, ReadTxn, Result, Store, WhenFull,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::stores::{Tried, plain_stores, stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sales", shard_by = hash(id))]
#[index(shop)]
#[index(amount, consistency = "eventual")]
#[aggregate(shop, sum = [amount], consistency = "eventual")]
#[aggregate(sum = [amount], consistency = "strong")]
struct Sale {
    #[primary_key]
    id: u8,
    shop: u8,
    amount: i64,
}

/// The table before it had aggregates.
mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "sales", shard_by = hash(id))]
    #[index(shop)]
    #[index(amount, consistency = "eventual")]
    pub(super) struct Sale {
        #[primary_key]
        pub(super) id: u8,
        pub(super) shop: u8,
        pub(super) amount: i64,
    }
}

fn sale(id: u8, shop: u8, amount: i64) -> Sale {
    Sale { id, shop, amount }
}

type Model = BTreeMap<u8, Sale>;

/// Returns the count and the sum of each shop in the rows.
fn totals_of(model: &Model) -> Vec<(u8, u64, i128)> {
    let mut totals: BTreeMap<u8, (u64, i128)> = BTreeMap::new();
    for row in model.values() {
        let of_shop = totals.entry(row.shop).or_default();
        *of_shop = (of_shop.0 + 1, of_shop.1 + i128::from(row.amount));
    }
    totals.into_iter().map(|(shop, (count, sum))| (shop, count, sum)).collect()
}

fn totals(sales: &SaleRepository, txn: &ReadTxn<'_>) -> Result<Vec<(u8, u64, i128)>> {
    let totals = sales.aggregates_by_shop(txn);
    totals.map(|it| it.map(|it| (it.shop, it.count, it.sum_amount))).collect()
}

/// Applies all messages, and compares the aggregates with the rows of the model.
fn compare(sales: &SaleRepository, store: &Store, model: &Model) -> Result<()> {
    verify(sales, store)?;
    let drained = sales.drain(store, u64::MAX)?;
    assert_eq!((drained.dead_letters, drained.left), (0, 0));
    let txn = store.read()?;
    assert_eq!(totals(sales, &txn)?, totals_of(model));
    let whole = sales.aggregate(&txn)?;
    let sum: i128 = model.values().map(|row| i128::from(row.amount)).sum();
    assert_eq!((whole.count, whole.sum_amount), (model.len() as u64, sum));
    drop(txn);
    verify(sales, store)
}

fn verify(sales: &SaleRepository, store: &Store) -> Result<()> {
    let report = sales.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_worker_applies_the_totals_after_the_commit() -> Result<()> {
    for tried in stores("sales")? {
        let sales = SaleRepository::open(&tried)?;
        let mut txn = tried.write()?;
        for row in [sale(1, 7, 50), sale(2, 7, -8), sale(9, 4, 1)] {
            sales.insert(&mut txn, &row)?;
        }
        let token = txn.commit_with_token()?;
        let txn = tried.read()?;
        assert_eq!(totals(&sales, &txn)?, []);
        assert_eq!(sales.aggregate(&txn)?.count, 3, "the strong aggregate");
        assert_eq!(sales.lag(&txn)?.messages, 3);
        // A count is exact.
        assert_eq!(sales.find_by_shop(&txn, 7).count()?, 2);
        drop(txn);
        verify(&sales, &tried)?;

        let worker = tried.start_index_worker()?;
        assert!(sales.wait_for(&tried, &token, std::time::Duration::from_mins(1))?);
        drop(worker);
        let txn = tried.read()?;
        assert_eq!(totals(&sales, &txn)?, [(4, 1, 1), (7, 2, 42)]);
        assert_eq!(sales.aggregate_by_shop(&txn, 7)?.sum_amount, 42);
        drop(txn);

        let mut txn = tried.write()?;
        sales.update(&mut txn, 1, |row| row.shop = 4)?;
        sales.update(&mut txn, 9, |row| row.id = 200)?;
        sales.delete(&mut txn, 2)?;
        txn.commit()?;
        assert_eq!(totals(&sales, &tried.read()?)?, [(4, 1, 1), (7, 2, 42)]);
        let model = [sale(1, 4, 50), sale(200, 4, 1)].map(|row| (row.id, row));
        compare(&sales, &tried, &model.into_iter().collect())?;
    }
    Ok(())
}

#[test]
fn with_a_full_queue_writes_change_totals_in_line() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Store::options().index_queue(2, WhenFull::ApplyInLine);
    let store = options.open(directory.path())?;
    let sales = SaleRepository::open(&store)?;
    store.transaction(|txn| (1..=2).try_for_each(|id| sales.insert(txn, &sale(id, 7, 10))))?;
    // The messages of these rows are not applied yet, so the stored count is negative for some time.
    store.transaction(|txn| (1..=2).try_for_each(|id| sales.delete(txn, id).map(drop)))?;
    store.transaction(|txn| sales.insert(txn, &sale(3, 7, 5)))?;
    assert_eq!(sales.lag(&store.read()?)?.messages, 2);
    assert_eq!(totals(&sales, &store.read()?)?, []);
    assert_eq!(sales.aggregate_by_shop(&store.read()?, 7)?.count, 0);
    compare(&sales, &store, &Model::from([(3, sale(3, 7, 5))]))
}

#[test]
fn a_queue_without_room_refuses_the_write() -> Result<()> {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[aggregate(shop, consistency = "eventual")]
    struct Visit {
        #[primary_key]
        id: u8,
        shop: u8,
        note: u8,
    }
    let directory = tempfile::tempdir().expect("a directory");
    let wait = WhenFull::Wait(std::time::Duration::ZERO);
    let store = Store::options().index_queue(1, wait).open(directory.path())?;
    let visits = VisitRepository::open(&store)?;
    let visit = |id, shop, note| Visit { id, shop, note };
    store.transaction(|txn| visits.insert(txn, &visit(1, 7, 0)))?;
    let refused = store.transaction(|txn| visits.insert(txn, &visit(2, 7, 0)));
    assert!(matches!(refused, Err(Error::IndexQueueFull { .. })), "{refused:?}");
    // This write changes no group, so it leaves no message.
    store.transaction(|txn| visits.put(txn, &visit(1, 7, 9)))?;
    visits.drain(&store, 10)?;
    store.transaction(|txn| visits.insert(txn, &visit(2, 7, 0)))?;
    visits.drain(&store, 10)?;
    assert_eq!(visits.aggregate_by_shop(&store.read()?, 7)?.count, 2);
    Ok(())
}

#[test]
fn a_disabled_aggregate_is_built_again() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::options().index_queue(2, WhenFull::Disable).open(directory.path())?;
    let sales = SaleRepository::open(&store)?;
    let rows: Model = (0..9).map(|id| (id, sale(id, id % 2, id.into()))).collect();
    for row in rows.values() {
        store.transaction(|txn| sales.insert(txn, row))?;
    }
    let refused = sales.aggregate_by_shop(&store.read()?, 1);
    assert!(
        matches!(
            refused,
            Err(Error::IndexNotReadable {
                index: "aggregate_by_shop",
                state: IndexState::Disabled,
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(sales.aggregates_by_shop(&store.read()?).next().is_some_and(|it| it.is_err()));
    assert_eq!(sales.aggregate(&store.read()?)?.count, 9);
    verify(&sales, &store)?;
    let report = sales.build(&store).run()?;
    assert!(report.is_readable(), "{report}");
    compare(&sales, &store, &rows)
}

#[test]
fn a_sum_out_of_range_becomes_a_dead_letter() -> Result<()> {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[aggregate(sum = [amount], consistency = "eventual")]
    struct Debt {
        #[primary_key]
        id: u8,
        amount: i128,
    }
    for tried in plain_stores()? {
        let debts = DebtRepository::open(&tried)?;
        let insert = |id, amount| tried.transaction(|txn| debts.insert(txn, &Debt { id, amount }));
        insert(1, i128::MAX)?;
        insert(2, 1)?;
        insert(3, -2)?;
        let drained = debts.drain(&tried, 2)?;
        assert_eq!((drained.applied, drained.dead_letters), (1, 1));
        let dead_letters = debts.dead_letters(&tried.read()?)?;
        assert_eq!(dead_letters[0].indexes, ["aggregate"]);
        assert!(dead_letters[0].error.contains("aggregate"), "{}", dead_letters[0].error);
        // The changes in dead letters are not missing.
        assert!(debts.verify(&tried.read()?).run()?.is_clean());
        debts.drain(&tried, 2)?;
        assert_eq!(debts.retry_dead_letters(&tried)?.applied, 1);
        let totals = debts.aggregate(&tried.read()?)?;
        assert_eq!((totals.count, totals.sum_amount), (3, i128::MAX - 1));
        assert!(debts.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_change_of_the_consistency_keeps_or_counts_the_totals() -> Result<()> {
    mod strong {
        use super::{Deserialize, IndexTable, Serialize};

        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
        #[table(name = "sales", shard_by = hash(id))]
        #[index(shop)]
        #[index(amount, consistency = "eventual")]
        #[aggregate(shop, sum = [amount])]
        #[aggregate(sum = [amount])]
        pub(super) struct Sale {
            #[primary_key]
            id: u8,
            shop: u8,
            amount: i64,
        }
    }
    for tried in stores("sales")? {
        let sales = SaleRepository::open(&tried)?;
        tried
            .fill([sale(1, 7, 50), sale(2, 7, 1)].into_iter(), |txn, row| sales.insert(txn, row))?;
        drop(sales);
        // The pending messages are void, because the rows are counted.
        let strong = strong::SaleRepository::open(&tried)?;
        assert_eq!(strong.aggregate_by_shop(&tried.read()?, 7)?.count, 2);
        drop(strong);
        let sales = SaleRepository::open(&tried)?;
        assert_eq!(totals(&sales, &tried.read()?)?, [(7, 2, 51)]);
        let catalog = tried.catalog()?;
        let found = catalog.tables[0].indexes.iter().find(|it| it.name == "aggregate_by_shop");
        assert_eq!(found.map(|it| it.options.clone()), Some(vec!["eventual".to_owned()]));
        let model = [sale(1, 7, 50), sale(2, 7, 1)].map(|row| (row.id, row));
        compare(&sales, &tried, &model.into_iter().collect())?;
    }
    Ok(())
}

#[test]
fn a_repair_leaves_the_pending_changes_to_the_worker() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let store = Store::open(path)?;
    let sales = SaleRepository::open(&store)?;
    store.transaction(|txn| (1..5).try_for_each(|id| sales.insert(txn, &sale(id, id % 2, 10))))?;
    sales.drain(&store, u64::MAX)?;
    store.transaction(|txn| {
        sales.delete(txn, 1)?;
        sales.insert(txn, &sale(6, 0, 10))?;
        sales.insert(txn, &sale(7, 3, 10))
    })?;
    drop((sales, store));
    crate::aggregates::damage_of(path, "sales.aggregate_by_shop", |put| {
        put(vec![0], Some([&9_u64.to_be_bytes()[..], &1_i128.to_be_bytes()].concat()));
        put(vec![1], None);
        put(vec![8], Some([&1_u64.to_be_bytes()[..], &1_i128.to_be_bytes()].concat()));
    });
    let store = Store::open(path)?;
    let sales = SaleRepository::open(&store)?;
    let report = sales.verify(&store.read()?).run()?;
    assert_eq!(report.count(FindingKind::WrongTotals), 3, "{report}");
    let mut txn = store.write()?;
    let report = sales.repair(&mut txn).run()?;
    assert_eq!((report.count(FindingKind::WrongTotals), report.left), (3, 0));
    txn.commit()?;
    assert_eq!(sales.lag(&store.read()?)?.messages, 3);
    assert_eq!(totals(&sales, &store.read()?)?, [(0, 2, 20), (1, 2, 20)]);
    let rows = [sale(2, 0, 10), sale(3, 1, 10), sale(4, 0, 10), sale(6, 0, 10), sale(7, 3, 10)];
    compare(&sales, &store, &rows.into_iter().map(|row| (row.id, row)).collect())
}

#[test]
fn an_aggregate_is_built_while_rows_are_written() -> Result<()> {
    for tried in stores("sales")? {
        let mut model = with_rows(&tried, 200)?;
        let sales = SaleRepository::open_online(&tried)?;
        let refused = sales.aggregate(&tried.read()?);
        assert!(
            matches!(
                refused,
                Err(Error::IndexNotReadable {
                    index: "aggregate",
                    state: IndexState::Building { .. },
                    ..
                })
            ),
            "{refused:?}"
        );
        assert!(sales.aggregate_by_shop(&tried.read()?, 1).is_err());
        // The entries of the index are counted instead.
        let count = sales.find_by_shop(&tried.read()?, 1).count()?;
        assert_eq!(count, model.values().filter(|row| row.shop == 1).count() as u64);
        let mut steps = 0_u8;
        loop {
            let report = sales.build(&tried).batch_bytes(25).limit(1).run()?;
            verify(&sales, &tried)?;
            if report.is_done() {
                break;
            }
            steps += 1;
            // Rows before and after the position change, and move over it.
            let id = steps.wrapping_mul(7) % 200;
            let mut txn = tried.write()?;
            let changed = sale(id, 9, steps.into());
            sales.put(&mut txn, &changed)?;
            model.insert(id, changed);
            let gone = 199 - id;
            assert_eq!(sales.delete(&mut txn, gone)?, model.remove(&gone).is_some());
            let (from, to) = (id / 2, 201 + steps % 50);
            if model.contains_key(&from) && !model.contains_key(&to) {
                sales.update(&mut txn, from, |row| row.id = to)?;
                let moved = model.remove(&from).map(|row| Sale { id: to, ..row });
                model.extend(moved.map(|row| (to, row)));
            }
            txn.commit()?;
        }
        assert!(steps > 5, "{steps} steps");
        compare(&sales, &tried, &model)?;
    }
    Ok(())
}

/// Adds rows to the table before it had aggregates.
fn with_rows(tried: &Tried, rows: u8) -> Result<Model> {
    let model: Model = (0..rows).map(|id| (id, sale(id, id % 5, i64::from(id) - 50))).collect();
    let sales = before::SaleRepository::open(tried)?;
    let rows = model.values().map(|&Sale { id, shop, amount }| before::Sale { id, shop, amount });
    tried.fill(rows, |txn, row| sales.insert(txn, row))?;
    Ok(model)
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Sale),
    Put(Sale),
    Update(u8, Sale),
    Delete(u8),
    Load(Vec<Sale>),
    Undone(Sale),
    Drain(u64),
    Build,
    Repair,
}

fn row() -> impl Strategy<Value = Sale> {
    (0..30_u8, 0..3_u8, any::<i64>()).prop_map(|(id, shop, amount)| sale(id, shop, amount))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => row().prop_map(Operation::Insert),
        4 => row().prop_map(Operation::Put),
        4 => (0..30_u8, row()).prop_map(|(id, row)| Operation::Update(id, row)),
        3 => (0..30_u8).prop_map(Operation::Delete),
        1 => prop::collection::vec(row(), 0..6).prop_map(Operation::Load),
        1 => row().prop_map(Operation::Undone),
        2 => (0..5_u64).prop_map(Operation::Drain),
        3 => Just(Operation::Build),
        1 => Just(Operation::Repair),
    ]
}

fn apply(
    sales: &SaleRepository,
    store: &Store,
    model: &mut Model,
    operation: &Operation,
) -> Result<()> {
    match operation {
        Operation::Drain(messages) => return sales.drain(store, *messages).map(drop),
        Operation::Build => {
            return sales.build(store).batch_bytes(20).limit(2).run().map(drop);
        }
        _ => {}
    }
    let mut txn = store.write()?;
    match operation {
        Operation::Drain(_) | Operation::Build => {}
        Operation::Insert(row) => {
            let outcome = sales.insert(&mut txn, row);
            assert_eq!(outcome.is_ok(), !model.contains_key(&row.id), "{outcome:?}");
            model.entry(row.id).or_insert_with(|| row.clone());
        }
        Operation::Put(row) => {
            sales.put(&mut txn, row)?;
            model.insert(row.id, row.clone());
        }
        Operation::Update(id, row) => {
            let is_refused = model.contains_key(id) && row.id != *id && model.contains_key(&row.id);
            let outcome = sales.update(&mut txn, *id, |stored| *stored = row.clone());
            assert_eq!(outcome.is_err(), is_refused, "{outcome:?}");
            if !is_refused && model.remove(id).is_some() {
                model.insert(row.id, row.clone());
            }
        }
        Operation::Delete(id) => {
            assert_eq!(sales.delete(&mut txn, *id)?, model.remove(id).is_some());
        }
        Operation::Load(rows) => {
            sales.bulk_load_in(&mut txn, rows).on_duplicate(OnDuplicate::Replace).run()?;
            model.extend(rows.iter().map(|row| (row.id, row.clone())));
        }
        Operation::Undone(row) => {
            let undone: Result<()> = txn.nested(|txn| {
                sales.put(txn, row)?;
                Err(Error::InvalidCursor { reason: "undone" })
            });
            assert!(undone.is_err());
        }
        Operation::Repair => {
            let report = sales.repair(&mut txn).run()?;
            assert_eq!(report.count(FindingKind::WrongTotals), 0, "{report}");
        }
    }
    txn.commit()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_builds_and_messages_keep_the_totals_of_the_model(
        operations in prop::collection::vec(operation(), 1..40),
        messages in 1..12_u64,
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Store::options().index_queue(messages, WhenFull::ApplyInLine);
        let small = options.open(directory.path()).expect("a store");
        for tried in stores("sales").expect("stores") {
            let mut model = with_rows(&tried, 20).expect("rows");
            let sales = SaleRepository::open_online(&tried).expect("a repository");
            for operation in &operations {
                apply(&sales, &tried, &mut model, operation).expect("an operation");
                verify(&sales, &tried).expect("a report");
            }
            sales.build(&tried).run().expect("a build");
            compare(&sales, &tried, &model).expect("totals");
        }
        let sales = SaleRepository::open(&small).expect("a repository");
        let mut model = Model::new();
        for operation in &operations {
            apply(&sales, &small, &mut model, operation).expect("an operation");
            verify(&sales, &small).expect("a report");
        }
        compare(&sales, &small, &model).expect("totals");
    }
}
