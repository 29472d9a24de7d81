//! Aggregates of several clients: a group is in stripes, so that writes of its rows don't conflict.

use std::thread;

use index_table::{__private::run_sql, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[aggregate(account, sum = [amount])]
#[aggregate(sum = [amount, weight])]
struct Payment {
    #[primary_key]
    id: u64,
    account: String,
    amount: i64,
    weight: i128,
}

fn payment(id: u64, account: &str, amount: i64) -> Payment {
    Payment { id, account: account.to_owned(), amount, weight: 1 }
}

fn stripes(store: &Store, schema: &Schema, aggregate: &str) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM \"{}\".\"payments.{aggregate}\"", schema.name());
    Ok(run_sql(store, &sql)?.and_then(|count| count.parse().ok()).unwrap_or_default())
}

#[test]
fn eight_clients_that_insert_into_one_group_do_not_conflict() -> TestResult {
    const EACH: u64 = 60;
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let payments = PaymentRepository::open(&store)?;
    let clients = |work: fn(&Store, &PaymentRepository, u64) -> Result<()>| {
        thread::scope(|scope| {
            let clients = (0..8).map(|client| {
                let schema = &schema;
                scope.spawn(move || -> Result<()> {
                    let store = schema.open()?;
                    let payments = PaymentRepository::open(&store)?;
                    (client * EACH..(client + 1) * EACH)
                        .try_for_each(|id| work(&store, &payments, id))
                })
            });
            let clients: Vec<_> = clients.collect();
            clients.into_iter().try_for_each(|client| client.join().expect("a client"))
        })
    };
    // A transaction from `write` does not run again, so a conflict would be an error.
    clients(|store, payments, id| {
        let mut txn = store.write()?;
        payments.insert(&mut txn, &payment(id, "one", id.cast_signed()))?;
        txn.commit()
    })?;
    // An update reads its row. Such a read can conflict with changes beside it, so these transactions may run again.
    clients(|store, payments, id| {
        store.transaction(|txn| payments.update(txn, id, |row| row.amount *= -1))?;
        if id % 4 == 0 {
            store.transaction(|txn| payments.delete(txn, id))?;
        }
        // The totals have the rows that this adds and removes.
        let other = id + 8 * EACH;
        store.transaction(|txn| payments.insert(txn, &payment(other, "one", 1)))?;
        store.transaction(|txn| payments.delete(txn, other)).map(drop)
    })?;
    let left = (0..8 * EACH).filter(|id| id % 4 != 0);
    let (count, sum) = (left.clone().count() as u64, -left.map(i128::from).sum::<i128>());
    let txn = store.read()?;
    let one = payments.aggregate_by_account(&txn, "one")?;
    assert_eq!((one.count, one.sum_amount), (count, sum));
    let all = payments.aggregate(&txn)?;
    assert_eq!((all.count, all.sum_amount, all.sum_weight), (count, sum, count.into()));
    assert_eq!(payments.aggregates_by_account(&txn).count(), 1);
    let report = payments.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn stripes_are_merged_and_totals_stay() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let payments = PaymentRepository::open(&store)?;
    let (mut id, mut is_merged) = (0, false);
    // One in 64 stripes on average merges its group.
    while !is_merged && id < 5_000 {
        payments.insert(&mut store.autocommit()?, &payment(id, "one", 3))?;
        id += 1;
        is_merged = stripes(&store, &schema, "aggregate_by_account")? < id;
    }
    assert!(is_merged);
    let totals = payments.aggregate_by_account(&store.read()?, "one")?;
    assert_eq!((totals.count, totals.sum_amount), (id, i128::from(3 * id)));

    // A load adds one stripe for each group.
    let before = stripes(&store, &schema, "aggregate_by_account")?;
    payments.bulk_load(&store, (10_000..12_000).map(|id| payment(id, "two", 1))).run()?;
    assert!(stripes(&store, &schema, "aggregate_by_account")? <= before + 1);
    let txn = store.read()?;
    let groups = payments.aggregates_by_account(&txn);
    let groups =
        groups.map(|it| it.map(|it| (it.account, it.count))).collect::<Result<Vec<_>>>()?;
    assert_eq!(groups, [("one".to_owned(), id), ("two".to_owned(), 2_000)]);
    assert_eq!(store.sizes()?[0].aggregates[0].groups, 2);
    Ok(())
}

#[test]
fn a_group_without_rows_is_no_group() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (payments, of_other) = (PaymentRepository::open(&store)?, PaymentRepository::open(&other)?);
    for id in 0..6 {
        store.transaction(|txn| {
            payments.insert(txn, &payment(id, ["a", "b"][id as usize % 2], 5))
        })?;
    }
    // The stripes of these deletions are negative.
    for id in [0, 2, 4] {
        assert!(other.transaction(|txn| of_other.delete(txn, id))?);
    }
    let txn = store.read()?;
    let groups = payments.aggregates_by_account(&txn);
    let groups =
        groups.map(|it| it.map(|it| (it.account, it.count))).collect::<Result<Vec<_>>>()?;
    assert_eq!(groups, [("b".to_owned(), 3)]);
    assert_eq!(payments.aggregate_by_account(&txn, "a")?.count, 0);
    assert_eq!(store.sizes()?[0].aggregates[0].groups, 1);
    assert!(payments.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn wrong_stripes_are_found_and_repaired() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let payments = PaymentRepository::open(&store)?;
    for id in 0..10 {
        store.transaction(|txn| payments.insert(txn, &payment(id, "one", 7)))?;
    }
    let table = format!("\"{}\".\"payments.aggregate_by_account\"", schema.name());
    let first = format!("(SELECT k FROM {table} ORDER BY k LIMIT 1)");
    for damage in [
        format!("DELETE FROM {table} WHERE k = {first}"),
        format!("INSERT INTO {table} (k, v) SELECT k || '\\x00', v FROM {table} LIMIT 1"),
        format!("UPDATE {table} SET v = '\\x01' WHERE k = {first}"),
        format!("UPDATE {table} SET v = decode(repeat('ff', 24), 'hex')"),
        format!("DELETE FROM {table}"),
    ] {
        run_sql(&store, &damage)?;
        let report = payments.verify(&store.read()?).run()?;
        assert!(!report.is_clean(), "{damage}");
        store.transaction(|txn| payments.repair(txn).run().map(drop))?;
        let txn = store.read()?;
        let report = payments.verify(&txn).run()?;
        assert!(report.is_clean(), "{damage}: {report}");
        let totals = payments.aggregate_by_account(&txn, "one")?;
        assert_eq!((totals.count, totals.sum_amount), (10, 70));
    }
    Ok(())
}

#[test]
fn a_sum_out_of_range_is_an_error_of_the_reader() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let payments = PaymentRepository::open(&store)?;
    let heavy = |id| Payment { weight: i128::MAX, ..payment(id, "one", 1) };
    store.transaction(|txn| payments.insert(txn, &heavy(1)))?;
    assert_eq!(payments.aggregate(&store.read()?)?.sum_weight, i128::MAX);
    store.transaction(|txn| payments.insert(txn, &heavy(2)))?;
    let refused = payments.aggregate(&store.read()?);
    assert!(matches!(refused, Err(Error::AggregateOverflow { .. })), "{refused:?}");
    // The order of the changes does not matter.
    assert!(store.transaction(|txn| payments.delete(txn, 1))?);
    assert_eq!(payments.aggregate(&store.read()?)?.sum_weight, i128::MAX);
    Ok(())
}
