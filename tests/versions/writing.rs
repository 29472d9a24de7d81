//! What is written has the current version.

use crate::{Customer, TestResult, expected, fill, is_clean, on_both_engines};

#[test]
fn a_row_gets_the_current_version_when_it_is_written() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 30)?;
        let mut rows = expected(30);
        store.transaction(|txn| {
            // The same row, as far as anybody can see.
            customers.put(txn, &rows[0])?;
            customers.update(txn, 1, |_| {})?;
            customers.update(txn, 3, |row| row.town = "Pisa".into())?;
            customers.put(txn, &Customer { age: 99, ..rows[4].clone() })?;
            assert!(customers.delete(txn, 6)?);
            assert!(customers.delete(txn, 7)?);
            customers.update(txn, 9, |row| row.id = 900).map(drop)
        })?;
        rows[3].town = "Pisa".into();
        rows[4].age = 99;
        rows[9].id = 900;
        let moved = rows.remove(9);
        rows.drain(6..8);
        rows.push(moved);
        let txn = store.read()?;
        assert_eq!(customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, rows);
        drop(txn);
        is_clean(&customers, store)?;
        // 20 had an older one; 0, 1, 3, 4 and 9 were written, 6 and 7 deleted.
        assert_eq!(customers.upgrade(store).run()?.upgraded, 13);
        is_clean(&customers, store)
    })
}

#[test]
fn unique_keys_are_those_of_the_converted_rows() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 9)?;
        let rows = expected(9);
        let mut txn = store.write()?;
        for (email, url) in [("0@x", "new"), ("new", rows[0].url.as_str())] {
            let row = Customer { id: 100, email: email.into(), url: url.into(), ..rows[2].clone() };
            let refused = customers.insert(&mut txn, &row);
            assert!(
                matches!(refused, Err(index_table::Error::UniqueViolation { .. })),
                "{refused:?}"
            );
        }
        customers.delete(&mut txn, 0)?;
        let row = Customer { id: 100, ..rows[0].clone() };
        customers.insert(&mut txn, &row)?;
        txn.commit()?;
        is_clean(&customers, store)
    })
}

/// `repair` writes what rows of older versions say.
#[test]
fn repair_mends_entries_of_rows_of_older_versions() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 30)?;
        let mut txn = store.write()?;
        let report = customers.repair(&mut txn).delete_unreadable_rows().run()?;
        assert!(report.is_clean(), "{report}");
        txn.commit()?;
        assert_eq!(customers.all(&store.read()?).count()?, 30);
        Ok(())
    })
}
