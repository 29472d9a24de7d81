//! Writes to a table with rows of older versions.

use index_table::FindingKind;

use crate::{
    Customer, CustomerRepository, TestResult, expected, fill, golden::raw, is_clean,
    on_both_engines, store,
};

#[test]
fn a_row_gets_the_current_version_when_it_is_written() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 30)?;
        let mut rows = expected(30);
        store.transaction(|txn| {
            // The row is equal to the stored row, which has an older version.
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
        // 20 rows had an older version. Rows 0, 1, 3, 4 and 9 were written, and rows 6 and 7 deleted.
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
            let result = customers.insert(&mut txn, &row);
            assert!(
                matches!(result, Err(index_table::Error::UniqueViolation { .. })),
                "{result:?}"
            );
        }
        customers.delete(&mut txn, 0)?;
        let row = Customer { id: 100, ..rows[0].clone() };
        customers.insert(&mut txn, &row)?;
        txn.commit()?;
        is_clean(&customers, store)
    })
}

/// A row of an older version can be read, so `repair` has nothing to do.
#[test]
fn repair_leaves_rows_of_older_versions() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 30)?;
        let mut txn = store.write()?;
        let report = customers.repair(&mut txn).delete_unreadable_rows().run()?;
        assert!(report.is_clean(), "{report}");
        txn.commit()?;
        assert_eq!(customers.all(&store.read()?).count()?, 30);
        // The rows have kept their versions.
        assert_eq!(customers.upgrade(store).run()?.upgraded, 20);
        Ok(())
    })
}

/// `repair` writes the entries of rows of older versions.
#[test]
fn repair_writes_the_entries_of_rows_of_older_versions() -> TestResult {
    let dir = tempfile::tempdir()?;
    drop(fill(&store(dir.path())?, 30)?);
    for index in ["last_name", "initials", "email"] {
        raw(dir.path(), &format!("customers.{index}"), |database, txn| database.clear(txn))?;
    }
    let store = store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    assert_eq!(customers.by_last_name(&store.read()?).count()?, 0);
    let repaired = store.transaction(|txn| customers.repair(txn).run())?;
    assert_eq!((repaired.count(FindingKind::Missing), repaired.left), (90, 0), "{repaired}");
    let named = customers.by_last_name(&store.read()?).rows().collect::<Result<Vec<_>, _>>()?;
    let mut rows = expected(30);
    rows.sort_by(|a, b| (&a.last_name, a.id).cmp(&(&b.last_name, b.id)));
    assert_eq!(named, rows);
    is_clean(&customers, &store)
}
