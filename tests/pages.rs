//! Pages of rows, of views and of entries.

#[path = "support/people.rs"]
mod people;
#[path = "support/stores.rs"]
mod stores;

use index_table::{Cursor, Error, IndexEntry, Page, ReadTxn, Result, Scan};
use people::*;

/// Reads a scan page by page in all forms, in pages of one, of some and of all rows.
fn check<'txn, E: IndexEntry<'txn, Row = Person> + 'txn>(
    scan: impl Fn() -> Scan<'txn, E>,
    id: impl Fn(&E) -> u32,
) -> TestResult {
    check_direction(&scan, &id)?;
    check_direction(&|| scan().rev(), &id)
}

fn check_direction<'txn, E: IndexEntry<'txn, Row = Person> + 'txn>(
    scan: &impl Fn() -> Scan<'txn, E>,
    id: &impl Fn(&E) -> u32,
) -> TestResult {
    let count = scan().rows().count();
    assert!(count > 3, "the scan has too few rows");
    for size in [1, 3, count - 1, count, count + 1, usize::MAX] {
        let mut cursor: Option<Cursor> = None;
        let mut read = 0;
        loop {
            let rest = || match &cursor {
                None => scan(),
                Some(cursor) => scan().after(cursor),
            };
            let rows = rest().page(size)?;
            read += rows.items.len();
            let ids: Vec<_> = rows.items.iter().map(|row| row.id).collect();
            let entries = rest().page_entries(size)?;
            assert_eq!(entries.items.iter().map(id).collect::<Vec<_>>(), ids);
            let views = rest().page_views(size)?;
            assert_eq!(views.items.iter().map(|view| view.id).collect::<Vec<_>>(), ids);
            assert_eq!((&entries.next, &views.next), (&rows.next, &rows.next));
            // A limit ends the last page.
            let limited = rest().limit(2).page_entries(size)?;
            assert_eq!(limited.items.len(), ids.len().min(2));
            assert_eq!(limited.next.is_some(), size == 1 && count - read >= 1);
            let Some(next) = rows.next else { break };
            cursor = Some(next.to_string().parse()?);
        }
        assert_eq!(read, count);
    }
    assert!(matches!(scan().page_entries(0), Err(Error::EmptyPage { .. })));
    assert!(matches!(scan().page_views(0), Err(Error::EmptyPage { .. })));
    let nothing = scan().limit(0).page_views(5)?;
    assert_eq!((nothing.items.len(), nothing.next), (0, None));
    Ok(())
}

#[test]
fn pages_of_entries_and_views_are_those_of_rows() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        check(|| people.all(&txn), |row| row.id)?;
        check(|| people.find_by_region(&txn, "region 1"), |row| row.id)?;
        check(|| people.find_by_town(&txn, "town 1"), |entry| entry.id)?;
        check(|| people.by_name(&txn), |entry| entry.id)?;
        check(|| people.find_by_code_range(&txn, 80..95), |entry| entry.id)?;
        check(|| people.find_by_url(&txn, "https://example.com/3"), |entry| entry.id)?;
        check(|| people.find_by_hashed(&txn, "name 4"), |entry| entry.id)?;
        check(|| people.find_by_town(&txn, "town 1").boxed(), |row| row.id)
    })
}

#[test]
fn a_page_of_entries_reads_no_facts() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let page = people.find_by_town(&txn, "town 1").page_entries(5)?;
        assert_eq!((page.items.len(), page.items[0].town), (5, "town 1"));
        let stats = txn.stats();
        let (seeks, shards) = if store.is_sharded { (3, 3) } else { (1, 0) };
        assert_eq!((stats.seeks, stats.shards, stats.entries, stats.facts), (seeks, shards, 6, 0));
        Ok(())
    })
}

/// The items of a page borrow from the transaction, not from the scan.
#[test]
fn entries_and_views_outlive_their_page() -> TestResult {
    fn names<'txn>(
        people: &'txn PersonRepository,
        txn: &'txn ReadTxn<'_>,
    ) -> Result<Vec<&'txn str>> {
        let page: Page<_> = people.find_by_town(txn, "town 0").page_entries(2)?;
        let views = people.find_by_town(txn, "town 0").page_views(1)?;
        Ok(page.items.iter().map(|it| it.name).chain(views.items.iter().map(|it| it.url)).collect())
    }
    on_all_stores(|store, people| {
        let txn = store.read()?;
        assert_eq!(names(people, &txn)?, ["name 0", "name 0", "https://example.com/0"]);
        Ok(())
    })
}

#[test]
fn an_empty_scan_has_one_empty_page() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let none = || people.find_by_town(&txn, "nowhere");
        let (entries, views) = (none().page_entries(5)?, none().page_views(5)?);
        assert_eq!((entries.items.len(), entries.next), (0, None));
        assert_eq!((views.items.len(), views.next), (0, None));
        Ok(())
    })
}

#[test]
fn pages_of_entries_and_views_refuse_the_cursor_of_another_scan() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let cursor = people.all(&txn).page(5)?.next.ok_or("more")?;
        let entries = people.by_name(&txn).after(&cursor).page_entries(5);
        assert!(matches!(entries, Err(index_table::Error::InvalidCursor { .. })), "{entries:?}");
        let views = people.by_name(&txn).after(&cursor).page_views(5).map(|page| page.items.len());
        assert!(matches!(views, Err(index_table::Error::InvalidCursor { .. })), "{views:?}");
        Ok(())
    })
}
