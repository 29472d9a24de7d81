//! Pages forward and backward, and what lies before and after their cursors.

use std::fmt::Debug;

use index_table::{Cursor, IndexEntry, Page, Result, Scan};
use proptest::prelude::*;

use crate::fail;

/// Reads page after page, each with a cursor that went through text, and back again.
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
    let mut in_the_middle = false;
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
        // The page begins where the one before it ended.
        prop_assert_eq!(&page.previous, &cursor);
        if read <= size {
            let entries = rest().page_entries(size).map_err(fail)?;
            prop_assert_eq!(entries.items.len(), page.items.len());
            prop_assert_eq!((&entries.next, &entries.previous), (&page.next, &page.previous));
        }
        if let Some(cursor) = &cursor
            && size > 1
            && read * 2 >= rows.len()
            && !std::mem::replace(&mut in_the_middle, true)
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
    // As many pages as there are rows take long, and long answers are read often enough.
    let is_short = if size > 1 { rows.len() < 50 } else { rows.len() < 10 };
    if is_short || size > rows.len() / 4 { turn_back(scan, &pages, size) } else { Ok(()) }
}

/// What comes up to a cursor after so many rows.
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
    let (before, behind) = rows.split_at(read);
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
    // Between two cursors.
    let Some(end) = scan().after(cursor).page(3).map_err(fail)?.next else { return Ok(()) };
    let between = || scan().after(cursor).before(&end);
    prop_assert_eq!(&collect(between())?, &behind[..3]);
    prop_assert_eq!(&collect(between().limit(2))?, &behind[1..3]);
    prop_assert_eq!(between().count().map_err(fail)?, 3);
    let page = between().page(2).map_err(fail)?;
    prop_assert_eq!(&page.items, &behind[1..3]);
    prop_assert_eq!(page.next, Some(end));
    Ok(())
}

/// From the last page to the first, page by page.
fn turn_back<'txn, E>(
    scan: impl Fn() -> Scan<'txn, E>,
    pages: &[Page<E::Row>],
    size: usize,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Debug + Clone + PartialEq,
{
    let Some((last, others)) = pages.split_last() else { return Ok(()) };
    let mut cursor = through_text(last.previous.as_ref())?;
    for page in others.iter().rev() {
        let Some(at) = cursor else { return Err(TestCaseError::fail("no previous page")) };
        let back = scan().before(&at).page(size).map_err(fail)?;
        prop_assert_eq!(&back, page);
        cursor = through_text(back.previous.as_ref())?;
    }
    prop_assert_eq!(cursor, None);
    Ok(())
}

fn through_text(cursor: Option<&Cursor>) -> Result<Option<Cursor>, TestCaseError> {
    cursor.map(|cursor| cursor.to_string().parse()).transpose().map_err(fail)
}
