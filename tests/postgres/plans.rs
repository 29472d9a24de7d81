//! The plans of the statements of all operations, on tables with 10,000 rows.

use std::{thread, time::Duration};

use index_table::{__private::run_sql, Result, Store};

use super::{Customer, CustomerRepository, TestResult, customer, postgres::Schema};

/// Runs each kind of operation.
fn operations(store: &Store) -> Result<()> {
    let customers = CustomerRepository::open(store)?;
    {
        let txn = store.read()?;
        assert!(customers.get(&txn, 77)?.is_some());
        assert_eq!(customers.get_many(&txn, [1, 2, 9_999]).count(), 3);
        assert!(customers.get_by_email(&txn, "c7@example.com")?.is_some());
        assert_eq!(customers.find_by_town(&txn, "Oslo").rows().count(), 2_500);
        assert_eq!(customers.find_by_town(&txn, "Oslo").rev().keys().count(), 2_500);
        assert_eq!(customers.find_by_town_last_name(&txn, "Oslo", "Ng").count()?, 834);
        assert_eq!(customers.find_by_town_last_name(&txn, "Oslo", "Ng").entries().count(), 834);
        assert_eq!(customers.find_by_last_name(&txn, "Ng").page(20)?.items.len(), 20);
        assert_eq!(customers.find_by_town_in(&txn, ["Oslo", "Graz"]).limit(9).keys().count(), 9);
        assert_eq!(customers.all(&txn).rows().count(), 10_000);
        assert_eq!(customers.aggregate_by_town(&txn, "Oslo")?.count, 2_500);
        assert_eq!(customers.aggregates_by_town(&txn).count(), 4);
        assert!(customers.verify(&txn).run()?.is_clean());
    }
    let mut each = store.autocommit()?;
    customers.insert(&mut each, &customer(20_000))?;
    assert_eq!(customers.insert_with(&mut each, customer)?, 20_001);
    customers.put(&mut each, &customer(20_002))?;
    customers.put(&mut each, &Customer { town: "Oslo".to_owned(), ..customer(20_002) })?;
    assert!(customers.delete(&mut each, 20_000)?);
    drop(each);
    store.transaction(|txn| {
        customers.insert(txn, &customer(30_000))?;
        assert_eq!(customers.insert_with(txn, customer)?, 30_001);
        customers.update(txn, 5, |row| "new@example.com".clone_into(&mut row.email))?;
        customers.put_by_email(txn, &Customer { id: 6, ..customer(6) })?;
        txn.nested(|txn| customers.delete(txn, 8))?;
        customers.find_by_town_last_name(txn, "Graz", "Smith").query().delete(txn).map(drop)
    })?;
    customers.bulk_load(store, (40_000..40_100).map(customer)).run()?;
    customers.drain(store, u64::MAX)?;
    store.transaction(|txn| customers.repair(txn).run().map(drop))
}

/// Returns the number of scans of whole tables, and of scans of primary keys. The opening of a store reads all tokens of commits, which are
/// few.
fn scans(store: &Store, schema: &Schema) -> Result<(u64, u64)> {
    let number = |column: &str| -> Result<u64> {
        let sql = format!(
            "SELECT coalesce(sum({column}), 0) FROM pg_stat_user_tables WHERE schemaname = '{}' \
             AND relname <> '.commits'",
            schema.name()
        );
        Ok(run_sql(store, &sql)?.and_then(|sum| sum.parse().ok()).unwrap_or_default())
    };
    Ok((number("seq_scan")?, number("idx_scan")?))
}

#[test]
fn no_operation_scans_a_table_without_its_primary_key() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    {
        let customers = CustomerRepository::open(&store)?;
        customers.bulk_load(&store, (0..10_000).map(customer)).run()?;
    }
    drop(store);
    // The server counts the scans of a session at its end, at the latest.
    let settled = |seen: &dyn Fn((u64, u64)) -> bool| -> Result<(u64, u64)> {
        // Each opening reads the catalog.
        let store = schema.open()?;
        let (mut now, mut times) = (scans(&store, &schema)?, 0);
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(50));
            let next = scans(&store, &schema)?;
            times = if next == now { times + 1 } else { 0 };
            if times >= 10 && seen(now) {
                break;
            }
            now = next;
        }
        Ok(now)
    };
    let (before, of_keys) = settled(&|_| true)?;
    let client = schema.open()?;
    operations(&client)?;
    drop(client);
    let (after, of_keys_after) = settled(&|(_, of_keys_now)| of_keys_now > of_keys + 40)?;
    assert!(of_keys_after > of_keys + 40, "{of_keys} and then {of_keys_after}");
    assert_eq!(after, before, "the number of scans of whole tables");
    Ok(())
}
