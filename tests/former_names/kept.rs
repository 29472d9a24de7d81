//! What a renamed table keeps.

use index_table::{Error, IndexState};

use crate::{Place, TENANTS, TestResult, fill, shop, with};

/// Checks everything that the store has of a release, after `writes` further customers of each tenant, and adds one to each.
macro_rules! check {
    ($place:expr, $release:ident, $name:literal, $writes:expr) => {
        with!($place, $release, |store, people, orders| {
            let release = stringify!($release);
            let regions = shop::$release::Regions::open(&store)?;
            let rows = 3 + $writes;
            for tenant in TENANTS {
                let txn = store.read()?;
                assert_eq!(people.get(&txn, tenant, 2)?, Some(shop::$release::person(tenant, 2)), "{release}");
                assert_eq!(people.find_by_tenant_parent(&txn, tenant, 1).count()?, rows, "{release}");
                let one = people.get_by_email(&txn, format!("1@{tenant}.org").as_str())?;
                assert_eq!(one.map(|row| row.tenant), Some(tenant), "{release}");
                drop(txn);
                // Rows of other tables and of the table itself still refer to a row, and it to others.
                let refused = store.transaction(|txn| people.delete(txn, tenant, 2));
                assert!(matches!(refused, Err(Error::Referenced { by: "orders", .. })), "{release}: {refused:?}");
                let refused = store.transaction(|txn| people.delete(txn, tenant, 1));
                assert!(matches!(refused, Err(Error::Referenced { by: $name, .. })), "{release}: {refused:?}");
                let mut row = shop::$release::person(tenant, 2);
                row.region = 9;
                let refused = store.transaction(|txn| people.put(txn, &row));
                assert!(matches!(refused, Err(Error::MissingReference { table: $name, .. })), "{release}: {refused:?}");
                let lost = shop::$release::Order { tenant, number: 9, customer: 99 };
                let refused = store.transaction(|txn| orders.put(txn, &lost));
                assert!(matches!(refused, Err(Error::MissingReference { to: $name, .. })), "{release}: {refused:?}");
                // The next number follows the last.
                let add = |id| shop::$release::person(tenant, id);
                let id = store.transaction(|txn| people.insert_with(txn, tenant, add))?;
                // A server assigns blocks of numbers.
                assert!(u64::from(id) == rows + 1 || $place.has_gaps(), "{release}: {id}");
                assert!(u64::from(id) > rows, "{release}: {id}");
            }
            let refused = store.transaction(|txn| regions.delete(txn, 1));
            assert!(matches!(refused, Err(Error::Referenced { by: $name, .. })), "{release}: {refused:?}");
            let txn = store.read()?;
            let oz = people.aggregate_by_town(&txn, "Oz")?;
            let all = people.all(&txn).rows().collect::<index_table::Result<Vec<_>>>()?;
            assert_eq!(all.len() as u64, 3 * (rows + 1), "{release}");
            let in_oz = || all.iter().filter(|row| row.town == "Oz");
            assert_eq!(oz.count, in_oz().count() as u64, "{release}");
            assert_eq!(oz.sum_amount, in_oz().map(|row| i128::from(row.amount)).sum::<i128>());
            let report = people.verify(&txn).run()?;
            assert!(report.is_clean(), "{release}: {report:?}");
            assert!(orders.verify(&txn).run()?.is_clean(), "{release}");
            drop(txn);
            let tables: Vec<_> = store.catalog()?.tables.into_iter().map(|table| table.name).collect();
            let mut expected = [$name, "orders", "regions"];
            expected.sort_unstable();
            assert_eq!(tables, expected, "{release}");
        })
    };
}

/// Applies all messages, and returns the number of unread changes.
macro_rules! consume {
    ($place:expr, $release:ident) => {
        with!($place, $release, |store, people, _orders| {
            assert!(people.lag(&store.read()?)?.messages > 0);
            people.drain(&store, u64::MAX)?;
            let mut mailer = people.changes(&store, "mailer")?;
            let mut read = 0;
            while mailer.lag()?.changes > 0 {
                let batch = mailer.next_batch(1_000)?;
                read += batch.iter().count();
                batch.commit(&store)?;
            }
            let txn = store.read()?;
            let report = people.verify(&txn).run()?;
            assert!(report.is_clean(), "{report:?}");
            read
        })
    };
}

#[test]
fn a_renamed_table_keeps_its_rows_indexes_totals_references_numbers_changes_and_messages()
-> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        check!(place, second, "clients", 0);
        // The former name stays in the declaration.
        check!(place, second, "clients", 1);
        assert_eq!(consume!(place, second), 9 - 2 + 6);
        check!(place, plain, "clients", 2);
    }
    Ok(())
}

#[test]
fn a_table_is_renamed_again_and_back() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        check!(place, second, "clients", 0);
        check!(place, third, "buyers", 1);
        check!(place, third, "buyers", 2);
        drop(with!(place, third, |store, _people, _orders| { store }));
        assert_eq!(consume!(place, third), 9 - 2 + 9);
    }
    for place in Place::all()? {
        fill(&place)?;
        // The release between them was skipped.
        check!(place, third, "buyers", 0);
    }
    for place in Place::all()? {
        fill(&place)?;
        check!(place, second, "clients", 0);
        check!(place, back, "customers", 1);
        check!(place, second, "clients", 2);
        assert_eq!(consume!(place, second), 9 - 2 + 9);
    }
    Ok(())
}

#[test]
fn a_renamed_table_gets_new_indexes_in_the_same_opening() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        check!(place, indexed, "clients", 0);
        with!(place, indexed, |store, people, _orders| {
            let txn = store.read()?;
            assert_eq!(people.find_by_amount(&txn, 2).count()?, 3);
        });
        // They are retired by the name of the table.
        check!(place, second, "clients", 1);
        with!(place, second, |store, _people, _orders| {
            let retired = |name: &str| {
                let table =
                    store.catalog()?.tables.into_iter().find(|table| table.name == "clients");
                let indexes = table.map(|table| table.indexes).unwrap_or_default();
                Ok::<_, Error>(
                    indexes.iter().any(|it| it.name == name && it.state == IndexState::Retired),
                )
            };
            assert!(retired("amount")?);
            assert!(store.drop_retired()?.contains(&"clients.amount".to_owned()));
            assert!(!retired("amount")?);
        });
        check!(place, indexed, "clients", 2);
    }
    Ok(())
}
