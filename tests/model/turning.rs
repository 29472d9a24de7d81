//! Pages in both directions, and the rows before and after their cursors.

use std::fmt::Debug;

use index_table::{Cursor, IndexEntry, Page, Result, Scan};
use proptest::prelude::*;

use crate::fail;

/// Reads all pages forward, and then backward. Each cursor is converted to text and back.
pub(crate) fn assert_pages<'txn, E>(
    scan: impl Fn() -> Scan<'txn, E>,
    rows: &[E::Row],
    size: usize,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Debug + Clone + PartialEq,
{
    let mut pages: Vec<Page<E::Row>> = Vec::new();
    let mut cursor = None;
    let mut read = 0;
    let mut has_checked_middle = false;
    loop {
        let rest = || match &cursor {
            None => scan(),
            Some(cursor) => scan().after(cursor),
        };
        let left = rows.len() - read;
        prop_assert_eq!(rest().count().map_err(fail)?, left as u64);
        prop_assert_eq!(rest().limit(2).count().map_err(fail)?, left.min(2) as u64);
        let page = rest().page(size).map_err(fail)?;
        prop_assert!(page.items.len() <= size);
        prop_assert_eq!(&page.items, &rows[read..rows.len().min(read + size)]);
        // The page starts where the previous page ended.
        prop_assert_eq!(&page.previous, &cursor);
        if read <= size {
            let entries = rest().page_entries(size).map_err(fail)?;
            prop_assert_eq!(entries.items.len(), page.items.len());
            prop_assert_eq!((&entries.next, &entries.previous), (&page.next, &page.previous));
        }
        if let Some(cursor) = &cursor
            && size > 1
            && read * 2 >= rows.len()
            && !std::mem::replace(&mut has_checked_middle, true)
        {
            assert_before(&scan, rows, read, cursor)?;
        }
        read += page.items.len();
        cursor = through_text(page.next.as_ref())?;
        let is_last = cursor.is_none();
        pages.push(page);
        if is_last {
            break;
        }
    }
    prop_assert_eq!(read, rows.len());
    // Skips large results with small pages, which take long.
    let is_short = if size > 1 { rows.len() < 50 } else { rows.len() < 10 };
    if is_short || size > rows.len() / 4 {
        turn_back(|cursor| scan().before(cursor).page(size), &pages)
    } else {
        Ok(())
    }
}

/// Checks the rows before a cursor that is after `read` rows.
fn assert_before<'txn, E>(
    scan: impl Fn() -> Scan<'txn, E>,
    rows: &[E::Row],
    read: usize,
    cursor: &Cursor,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Debug + Clone + PartialEq,
{
    let (before, after) = rows.split_at(read);
    let collect = |scan: Scan<'txn, E>| scan.rows().collect::<Result<Vec<_>>>().map_err(fail);
    prop_assert_eq!(&collect(scan().before(cursor))?, &before);
    prop_assert_eq!(scan().before(cursor).count().map_err(fail)?, read as u64);
    prop_assert_eq!(scan().before(cursor).first().map_err(fail)?, before.first().cloned());
    // A limit counts from the cursor.
    for limit in [0, 1, 3, read + 1] {
        let last = &before[read.saturating_sub(limit)..];
        if limit <= 3 || read < 50 {
            prop_assert_eq!(&collect(scan().before(cursor).limit(limit))?, &last);
        }
        let count = scan().limit(limit).before(cursor).count().map_err(fail)?;
        prop_assert_eq!(count, last.len() as u64);
    }
    // The rows between two cursors.
    let Some(end) = scan().after(cursor).page(3).map_err(fail)?.next else { return Ok(()) };
    let between = || scan().after(cursor).before(&end);
    prop_assert_eq!(&collect(between())?, &after[..3]);
    prop_assert_eq!(&collect(between().limit(2))?, &after[1..3]);
    prop_assert_eq!(between().count().map_err(fail)?, 3);
    let page = between().page(2).map_err(fail)?;
    prop_assert_eq!(&page.items, &after[1..3]);
    prop_assert_eq!(page.next, Some(end));
    Ok(())
}

/// Reads these pages from the last to the first. `page_before` reads the page before a cursor.
pub(crate) fn turn_back<R: Debug + PartialEq>(
    page_before: impl Fn(&Cursor) -> Result<Page<R>>,
    pages: &[Page<R>],
) -> Result<(), TestCaseError> {
    let Some((last, others)) = pages.split_last() else { return Ok(()) };
    let mut cursor = through_text(last.previous.as_ref())?;
    for page in others.iter().rev() {
        let Some(end) = cursor else { return Err(TestCaseError::fail("no previous page")) };
        let previous = page_before(&end).map_err(fail)?;
        prop_assert_eq!(&previous, page);
        cursor = through_text(previous.previous.as_ref())?;
    }
    prop_assert_eq!(cursor, None);
    Ok(())
}

/// Converts a cursor to text and back.
pub(crate) fn through_text(cursor: Option<&Cursor>) -> Result<Option<Cursor>, TestCaseError> {
    cursor.map(|cursor| cursor.to_string().parse()).transpose().map_err(fail)
}
