//! Scans of different indexes with one type.

#[path = "support/people.rs"]
mod people;
#[path = "support/stores.rs"]
mod stores;

use index_table::{IndexEntry, ReadTxn, Result, Scan};
use people::*;

/// Returns a scan of each index and of the fact table.
fn scans<'txn>(people: &'txn PersonRepository, txn: &'txn ReadTxn<'_>) -> [Scan<'txn, Person>; 7] {
    [
        people.all(txn),
        people.find_by_region(txn, "region 1").boxed(),
        people.find_by_town(txn, "town 1").boxed(),
        people.by_name(txn).boxed(),
        people.find_by_code_range(txn, 80..95).boxed(),
        people.find_by_url(txn, "https://example.com/3").boxed(),
        people.find_by_hashed(txn, "name 4").boxed(),
    ]
}

/// Checks that all ways to run a scan return these rows.
fn check<'txn>(scan: impl Fn() -> Scan<'txn, Person>, rows: &[Person]) -> TestResult {
    assert_eq!(scan().rows().collect::<Result<Vec<_>>>()?, rows);
    assert_eq!(scan().entries().collect::<Result<Vec<_>>>()?, rows);
    let keys = scan().keys().collect::<Result<Vec<_>>>()?;
    assert_eq!(keys, rows.iter().map(|row| (row.region.clone(), row.id)).collect::<Vec<_>>());
    let views =
        scan().views().map(|view| view.map(|view| view.code)).collect::<Result<Vec<_>>>()?;
    assert_eq!(views, rows.iter().map(|row| row.code).collect::<Vec<_>>());
    assert_eq!(scan().count()?, rows.len() as u64);
    assert_eq!(scan().first()?.as_ref(), rows.first());
    assert_eq!(scan().limit(2).entries().collect::<Result<Vec<_>>>()?, rows[..2]);
    let page = scan().page(2)?;
    assert_eq!(page.items, rows[..2]);
    let rest = || scan().after(page.next.as_ref().expect("there are more"));
    assert_eq!(rest().page(100)?.items, rows[2..]);
    assert_eq!(rest().entries().collect::<Result<Vec<_>>>()?, rows[2..]);
    Ok(())
}

#[test]
fn a_boxed_scan_has_the_rows_of_its_index() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let counts = scans(people, &txn).map(|scan| scan.count().ok());
        assert_eq!(counts, [30, 10, 15, 30, 15, 7, 6].map(Some));
        for which in 0..counts.len() {
            let scan = || {
                let [first, ..] = {
                    let mut all = scans(people, &txn);
                    all.rotate_left(which);
                    all
                };
                first
            };
            let rows = scan().rows().collect::<Result<Vec<_>>>()?;
            check(scan, &rows)?;
            let reversed: Vec<_> = rows.iter().rev().cloned().collect();
            check(|| scan().rev(), &reversed)?;
        }
        Ok(())
    })
}

/// A boxed scan has the order of its index, as the scan itself.
#[test]
fn boxing_keeps_the_query_and_its_cursors() -> TestResult {
    fn check<'txn, E: IndexEntry<'txn, Row = Person>>(
        scan: impl Fn() -> Scan<'txn, E>,
    ) -> TestResult {
        let rows = scan().rev().rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(scan().rev().boxed().entries().collect::<Result<Vec<_>>>()?, rows);
        assert_eq!(scan().boxed().rev().entries().collect::<Result<Vec<_>>>()?, rows);
        assert_eq!(scan().rev().limit(3).boxed().entries().collect::<Result<Vec<_>>>()?, rows[..3]);
        let (page, boxed) = (scan().page(3)?, scan().boxed().page(3)?);
        assert_eq!(page, boxed);
        let cursor = page.next.ok_or("there are more")?;
        assert_eq!(scan().after(&cursor).boxed().page(3)?, scan().boxed().after(&cursor).page(3)?);
        assert_eq!(scan().boxed().boxed().after(&cursor).count()?, rows.len() as u64 - 3);
        Ok(())
    }
    on_all_stores(|store, people| {
        let txn = store.read()?;
        check(|| people.all(&txn))?;
        check(|| people.find_by_town(&txn, "town 1"))?;
        check(|| people.by_name(&txn))?;
        check(|| people.by_code_region(&txn))?;
        check(|| people.find_by_url(&txn, "https://example.com/3"))?;
        check(|| people.find_by_hashed(&txn, "name 4"))
    })
}

#[test]
fn boxed_scans_combine_and_delete() -> TestResult {
    on_all_stores(|store, people| {
        {
            let txn = store.read()?;
            let in_town = people.find_by_town_name(&txn, "town 1", "name 2").boxed();
            let both = in_town.and(people.find_by_url(&txn, "https://example.com/3").boxed());
            let rows = both.rows().collect::<Result<Vec<_>>>()?;
            assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [27, 7]);
        }
        let mut txn = store.write()?;
        if store.is_sharded {
            // All rows of this query are in one shard.
            let query = people.find_by_region(&txn, "region 1").boxed().query();
            assert_eq!(query.delete(&mut txn)?, 10);
            txn.commit()?;
            assert_eq!(people.all(&store.read()?).count()?, 20);
            return Ok(());
        }
        let query = people.find_by_town(&txn, "town 1").boxed().query();
        assert_eq!(query.delete(&mut txn)?, 15);
        assert_eq!(people.all(&txn).count()?, 15);
        Ok(())
    })
}

/// Reading entries of a boxed scan reads the fact of each entry, as reading rows does.
#[test]
fn entries_of_a_boxed_scan_cost_what_rows_cost() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let cost = |run: &dyn Fn() -> usize| {
            let before = txn.stats();
            let count = run();
            let after = txn.stats();
            (
                count,
                after.seeks - before.seeks,
                after.facts - before.facts,
                after.bytes - before.bytes,
            )
        };
        let rows = cost(&|| people.find_by_town(&txn, "town 1").rows().count());
        let entries = cost(&|| people.find_by_town(&txn, "town 1").boxed().entries().count());
        let seeks = if store.is_sharded { 3 } else { 1 };
        assert_eq!((rows.0, rows.1, rows.2), (15, seeks, 15));
        assert_eq!((entries.0, entries.1, entries.2), (15, seeks, 15));
        assert!(entries.3 > rows.3, "the bytes of the keys are not counted");
        let full = cost(&|| people.by_name(&txn).boxed().entries().count());
        assert_eq!((full.0, full.2), (30, 0));
        Ok(())
    })
}
