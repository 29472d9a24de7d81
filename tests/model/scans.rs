//! Checks of scans, whose expected rows are given in order.

use std::fmt::Debug;

use index_table::{IndexEntry, Result, Scan};
use proptest::prelude::*;

use crate::{fail, turning::assert_pages};

/// Compares all the ways to read a scan with the rows that it should find, in order.
pub(crate) fn assert_scan<'txn, E, K>(
    scan: impl Fn() -> Scan<'txn, E>,
    rows: &[E::Row],
    keys: impl Fn(Scan<'txn, E>) -> Result<Vec<K>>,
    key: impl Fn(&E::Row) -> K,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Debug + Clone + PartialEq,
    K: Debug + Ord,
{
    let reversed: Vec<_> = rows.iter().rev().cloned().collect();
    let collect = |scan: Scan<'txn, E>| scan.rows().collect::<Result<Vec<_>>>().map_err(fail);

    prop_assert_eq!(collect(scan())?, rows);
    prop_assert_eq!(&collect(scan().rev())?, &reversed);
    prop_assert_eq!(collect(scan().rev().rev().limit(2).limit(5))?, &rows[..rows.len().min(2)]);
    prop_assert_eq!(collect(scan().limit(1).rev())?, &reversed[..rows.len().min(1)]);
    prop_assert_eq!(keys(scan()).map_err(fail)?, rows.iter().map(&key).collect::<Vec<_>>());
    prop_assert_eq!(scan().count().map_err(fail)?, rows.len() as u64);
    prop_assert_eq!(scan().rev().limit(3).count().map_err(fail)?, rows.len().min(3) as u64);
    prop_assert_eq!(scan().first().map_err(fail)?, rows.first().cloned());
    prop_assert_eq!(scan().exists().map_err(fail)?, !rows.is_empty());
    prop_assert!(!scan().limit(0).exists().map_err(fail)?);
    let entries = scan().entries().map(|entry| entry.map(drop)).collect::<Result<Vec<_>>>();
    prop_assert_eq!(entries.map_err(fail)?.len(), rows.len());
    // Reading page by page is quadratic, so long results take large pages.
    for size in if rows.len() < 50 { [1, 7] } else { [rows.len() / 5, rows.len() / 3] } {
        assert_pages(&scan, rows, size)?;
        assert_pages(|| scan().rev(), &reversed, size)?;
    }
    assert_filtered(scan, rows, &reversed, keys, key)
}

/// Compares a scan of some of the rows with these.
fn assert_filtered<'txn, E, K>(
    scan: impl Fn() -> Scan<'txn, E>,
    rows: &[E::Row],
    reversed: &[E::Row],
    keys: impl Fn(Scan<'txn, E>) -> Result<Vec<K>>,
    key: impl Fn(&E::Row) -> K,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Debug + Clone + PartialEq,
    K: Debug + Ord,
{
    // Cheap, because it runs for each row of each scan.
    let omitted: Vec<_> = rows.iter().step_by(rows.len() / 3 + 1).cloned().collect();
    let passes = move |row: &E::Row| !omitted.contains(row);
    let some = |rows: &[E::Row]| rows.iter().filter(|row| passes(row)).cloned().collect::<Vec<_>>();
    let (rows, reversed) = (some(rows), some(reversed));
    let scan = || scan().filter(passes.clone());
    prop_assert_eq!(&scan().rows().collect::<Result<Vec<_>>>().map_err(fail)?, &rows);
    prop_assert_eq!(scan().count().map_err(fail)?, rows.len() as u64);
    if rows.len() > 50 {
        return Ok(());
    }
    let last = scan().limit(2).rev().rows().collect::<Result<Vec<_>>>();
    prop_assert_eq!(&last.map_err(fail)?, &reversed[..rows.len().min(2)]);
    let expected: Vec<_> = rows.iter().map(key).collect();
    prop_assert_eq!(keys(scan()).map_err(fail)?, expected);
    prop_assert_eq!(scan().boxed().count().map_err(fail)?, rows.len() as u64);
    prop_assert_eq!(scan().exists().map_err(fail)?, !rows.is_empty());
    let entries = scan().entries().map(|entry| entry.map(drop)).collect::<Result<Vec<_>>>();
    prop_assert_eq!(entries.map_err(fail)?.len(), rows.len());
    assert_pages(scan, &rows, 2)?;
    assert_pages(|| scan().rev(), &reversed, 3)
}
