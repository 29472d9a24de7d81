//! Checks of combinations: in both directions, page by page, before and after cursors, and with filters.

use std::fmt::Debug;

use index_table::{__private::Entity, Combined, Cursor, Page, Result};
use proptest::prelude::*;

use crate::{
    fail,
    turning::{through_text, turn_back},
};

/// Reads a combination in all ways, and compares the results with the expected rows.
pub(crate) fn assert_combination<'txn, R>(
    combination: impl Fn() -> Combined<'txn, R>,
    rows: &[R],
) -> Result<(), TestCaseError>
where
    R: Entity + Debug + Clone + PartialEq,
{
    let reversed: Vec<R> = rows.iter().rev().cloned().collect();
    assert_direction(&combination, rows)?;
    assert_direction(&|| combination().rev(), &reversed)?;
    let omitted: Vec<R> = rows.iter().step_by(3).cloned().collect();
    let passes = move |row: &R| !omitted.contains(row);
    let left: Vec<R> = rows.iter().filter(|row| passes(row)).cloned().collect();
    assert_direction(&|| combination().filter(passes.clone()), &left)
}

fn assert_direction<'txn, R>(
    combination: &impl Fn() -> Combined<'txn, R>,
    rows: &[R],
) -> Result<(), TestCaseError>
where
    R: Entity + Debug + Clone + PartialEq,
{
    let collect = |rows: Combined<'txn, R>| rows.rows().collect::<Result<Vec<_>>>().map_err(fail);
    prop_assert_eq!(&collect(combination())?, &rows);
    prop_assert_eq!(combination().count().map_err(fail)?, rows.len() as u64);
    prop_assert_eq!(combination().first().map_err(fail)?, rows.first().cloned());
    prop_assert_eq!(&collect(combination().rev().rev().limit(2))?, &rows[..rows.len().min(2)]);
    let size = rows.len() / 3 + 1;
    let mut pages: Vec<Page<R>> = Vec::new();
    let (mut cursor, mut read): (Option<Cursor>, usize) = (None, 0);
    loop {
        let rest = || match &cursor {
            None => combination(),
            Some(cursor) => combination().after(cursor),
        };
        let page = rest().page(size).map_err(fail)?;
        prop_assert_eq!(&page.items, &rows[read..rows.len().min(read + size)]);
        prop_assert_eq!(&page.previous, &cursor);
        prop_assert_eq!(rest().count().map_err(fail)?, (rows.len() - read) as u64);
        if let Some(cursor) = &cursor {
            let before = || combination().before(cursor);
            prop_assert_eq!(&collect(before())?, &rows[..read]);
            prop_assert_eq!(before().count().map_err(fail)?, read as u64);
            prop_assert_eq!(&collect(before().limit(2))?, &rows[read.saturating_sub(2)..read]);
            prop_assert_eq!(before().limit(2).count().map_err(fail)?, read.min(2) as u64);
            prop_assert_eq!(before().first().map_err(fail)?, rows.first().cloned());
        }
        read += page.items.len();
        cursor = through_text(page.next.as_ref())?;
        pages.push(page);
        if cursor.is_none() {
            break;
        }
    }
    prop_assert_eq!(read, rows.len());
    turn_back(|cursor| combination().before(cursor).page(size), &pages)
}
