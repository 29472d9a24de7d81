//! Pages in both directions, of rows, views and entries, while rows are inserted and deleted.

#[path = "support/stores.rs"]
mod stores;

use index_table::{Cursor, Error, IndexEntry, IndexTable, Page, Result, Scan};
use serde::{Deserialize, Serialize};
use stores::{Session, Tried};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, shard_by = hash(id))]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town, name)]
#[index(code, id, unique)]
#[index(name, strategy = "full")]
#[index(hash(town), name = "hashed")]
struct Person {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    code: u32,
}

fn person(id: u32) -> Person {
    Person { id, town: format!("town {}", id % 2), name: format!("name {id:03}"), code: id }
}

/// Runs `test` on plain and on sharded stores with the even ids up to 38 and an index of each layout.
fn on_all_stores(test: impl Fn(&Tried, &PersonRepository) -> TestResult) -> TestResult {
    for store in stores::stores("person")? {
        let people = PersonRepository::open(&store)?;
        store.fill(0..20, |txn, n| people.insert(txn, &person(n * 2)))?;
        test(&store, &people)?;
    }
    Ok(())
}

fn ids<'txn, E: IndexEntry<'txn, Row = Person>>(scan: Scan<'txn, E>) -> Result<Vec<u32>> {
    scan.rows().map(|row| row.map(|row| row.id)).collect()
}

fn page_ids(page: &Page<Person>) -> Vec<u32> {
    page.items.iter().map(|person| person.id).collect()
}

/// Returns the cursor at the end of the first page, after row 8.
fn gap<'txn, E: IndexEntry<'txn, Row = Person>>(scan: Scan<'txn, E>) -> TestResult<Cursor> {
    let page = scan.page(5)?;
    assert_eq!(page_ids(&page), [0, 2, 4, 6, 8]);
    Ok(page.next.ok_or("no next page")?)
}

#[test]
fn a_cursor_is_a_position_after_its_row() -> TestResult {
    /// Checks the rows before and after a cursor.
    fn check<'txn, E: IndexEntry<'txn, Row = Person>>(
        scan: impl Fn() -> Scan<'txn, E>,
        gap: &Cursor,
        before: &[u32],
        after: &[u32],
    ) -> TestResult {
        assert_eq!(ids(scan().before(gap))?, before);
        assert_eq!(ids(scan().after(gap))?, after);
        let last = &before[before.len().saturating_sub(3)..];
        let page = scan().before(gap).page(3)?;
        assert_eq!(page_ids(&page), last);
        assert_eq!(page.next.as_ref(), Some(gap));
        assert_eq!(page.previous.is_some(), before.len() > 3);
        assert_eq!(ids(scan().before(gap).limit(3))?, last);
        let page = scan().after(gap).page(3)?;
        assert_eq!(page_ids(&page), after[..after.len().min(3)]);
        assert_eq!(page.previous.as_ref(), Some(gap));
        assert_eq!(page.next.is_some(), after.len() > 3);
        Ok(())
    }
    let ids_after: Vec<u32> = (5..20).map(|n| n * 2).collect();
    on_all_stores(|store, people| {
        let mut session = store.session()?;
        let by_id = session.query(|txn| gap(people.all(txn)))?;
        let by_town = session.query(|txn| gap(people.find_by_town(txn, "town 0")))?;
        let by_code = session.query(|txn| gap(people.by_code_id(txn)))?;
        let by_name = session.query(|txn| gap(people.by_name(txn)))?;
        let everywhere = |session: &Session<'_>, before: &[u32], after: &[u32]| {
            session.query(|txn| {
                check(|| people.all(txn), &by_id, before, after)?;
                check(|| people.find_by_town(txn, "town 0"), &by_town, before, after)?;
                check(|| people.by_code_id(txn), &by_code, before, after)?;
                check(|| people.by_name(txn), &by_name, before, after)
            })
        };
        let delete = |session: &mut Session<'_>, mut ids: std::ops::Range<u32>| {
            ids.try_for_each(|id| session.change(|txn| people.delete(txn, id)).map(drop))
        };
        everywhere(&session, &[0, 2, 4, 6, 8], &ids_after)?;
        // The row before the cursor is deleted.
        delete(&mut session, 8..9)?;
        everywhere(&session, &[0, 2, 4, 6], &ids_after)?;
        // Rows are inserted on both sides.
        let near = |id| Person { town: "town 0".into(), ..person(id) };
        session.change(|txn| people.insert(txn, &near(7)))?;
        session.change(|txn| people.insert(txn, &near(9)))?;
        everywhere(&session, &[0, 2, 4, 6, 7], &[&[9], ids_after.as_slice()].concat())?;
        // The deleted row is inserted again.
        session.change(|txn| people.insert(txn, &person(8)))?;
        everywhere(&session, &[0, 2, 4, 6, 7, 8], &[&[9], ids_after.as_slice()].concat())?;
        // One side becomes empty.
        delete(&mut session, 0..9)?;
        everywhere(&session, &[], &[&[9], ids_after.as_slice()].concat())?;
        delete(&mut session, 9..40)?;
        everywhere(&session, &[], &[])?;
        session.change(|txn| people.insert(txn, &person(4)))?;
        everywhere(&session, &[4], &[])
    })
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(code, unique)]
struct Coded {
    #[primary_key]
    id: u32,
    code: u32,
}

/// In a unique index, a cursor is a position after a key, whichever row has the key.
#[test]
fn a_cursor_after_a_unique_key_is_after_its_next_holder() -> TestResult {
    for store in stores::plain_stores()? {
        let coded = CodedRepository::open(&store)?;
        store.fill((0..20).map(|n| n * 2), |txn, id| {
            coded.insert(txn, &Coded { id: *id, code: *id })
        })?;
        let mut txn = store.write()?;
        let gap = coded.by_code(&txn).page(5)?.next.ok_or("no next page")?;
        let ids = |scan: Scan<'_, CodedByCode>| scan.keys().collect::<Result<Vec<_>>>();
        for id in [1, 39] {
            coded.update(&mut txn, if id == 1 { 8 } else { 1 }, |row| row.id = id)?;
            let holder = coded.get_by_code(&txn, 8)?.map(|row| row.id);
            assert_eq!(holder, Some(id));
            assert_eq!(ids(coded.by_code(&txn).before(&gap))?, [0, 2, 4, 6, id]);
            assert_eq!(coded.by_code(&txn).before(&gap).count()?, 5);
            assert_eq!(coded.by_code(&txn).after(&gap).count()?, 15);
            let page = coded.by_code(&txn).before(&gap).page(2)?;
            assert_eq!(page.items.iter().map(|row| row.id).collect::<Vec<_>>(), [6, id]);
        }
    }
    Ok(())
}

#[test]
fn a_reversed_scan_turns_pages_in_its_own_direction() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let newest = || people.by_name(&txn).rev();
        let first = newest().page(4)?;
        assert_eq!(page_ids(&first), [38, 36, 34, 32]);
        let second = newest().after(&first.next.clone().ok_or("more")?).page(4)?;
        assert_eq!(page_ids(&second), [30, 28, 26, 24]);
        let back = second.previous.ok_or("the first page")?;
        assert_eq!(newest().before(&back).page(4)?, first);
        assert_eq!(ids(newest().before(&back).limit(2))?, [34, 32]);
        // The other direction refuses the cursor, as `after` does.
        let result = people.by_name(&txn).before(&back).page(4);
        assert!(matches!(result, Err(Error::InvalidCursor { .. })), "{result:?}");
        let result = people.by_name(&txn).before(&back).rows().next();
        assert!(matches!(result, Some(Err(Error::InvalidCursor { .. }))), "{result:?}");
        assert!(matches!(people.all(&txn).before(&back).count(), Err(Error::InvalidCursor { .. })));
        Ok(())
    })
}

#[test]
fn entries_and_views_have_pages() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let in_town = || people.find_by_town(&txn, "town 0");
        let rows = in_town().page(6)?;
        let facts = txn.stats().facts;
        let entries = in_town().page_entries(6)?;
        assert_eq!(txn.stats().facts, facts, "entries are covered");
        let of_rows: Vec<_> = rows.items.iter().map(|row| (row.id, row.name.as_str())).collect();
        let of_entries: Vec<_> = entries.items.iter().map(|entry| (entry.id, entry.name)).collect();
        assert_eq!(of_entries, of_rows);
        assert_eq!(entries.next, rows.next);

        let next = entries.next.ok_or("more")?;
        let views = in_town().after(&next).page_views(6)?;
        assert_eq!(
            views.items.iter().map(|view| view.id).collect::<Vec<_>>(),
            [12, 14, 16, 18, 20, 22]
        );
        let back = in_town().before(&views.previous.ok_or("the first page")?);
        let names: Vec<_> = back.page_entries(2)?.items.iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["name 008", "name 010"]);
        Ok(())
    })
}

#[test]
fn a_page_costs_little_more_than_its_rows() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let read = |scan: Scan<'_, PersonByTownName>| -> Result<(u64, u64)> {
            let before = txn.stats();
            scan.page(5)?;
            let after = txn.stats();
            Ok((after.seeks - before.seeks, after.entries - before.entries))
        };
        let in_town = || people.find_by_town(&txn, "town 0");
        let next = in_town().page(5)?.next.ok_or("more")?;
        let seeks = if store.is_sharded { 3 } else { 1 };
        // One more entry is read to find out whether there is a next page.
        assert_eq!(read(in_town())?, (seeks, 5 + 1));
        assert_eq!(read(in_town().after(&next))?, (seeks, 5 + 1));
        // No entry precedes these rows.
        assert_eq!(read(in_town().before(&next))?, (seeks, 5));
        let next = in_town().after(&next).page(5)?.next.ok_or("more")?;
        assert_eq!(read(in_town().before(&next))?, (seeks, 5 + 1));
        Ok(())
    })
}

#[test]
fn an_empty_page_is_refused() -> TestResult {
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let next = people.all(&txn).page(5)?.next.ok_or("more")?;
        for scan in
            [people.all(&txn), people.all(&txn).after(&next), people.all(&txn).before(&next)]
        {
            assert!(matches!(scan.page(0), Err(Error::EmptyPage { .. })));
        }
        // A limit ends a page, which then has no next page.
        let page = people.all(&txn).after(&next).limit(2).page(5)?;
        assert_eq!((page_ids(&page), page.next), (vec![10, 12], None));
        let page = people.all(&txn).before(&next).limit(2).page(5)?;
        assert_eq!((page_ids(&page), page.previous), (vec![6, 8], None));
        assert_eq!(page.next, Some(next));
        Ok(())
    })
}

/// Lists, hashed values and filters are no bounds of a range.
#[test]
fn a_page_before_a_cursor_keeps_the_conditions_of_its_scan() -> TestResult {
    fn check<'txn, E: IndexEntry<'txn, Row = Person>>(
        scan: impl Fn() -> Scan<'txn, E>,
    ) -> TestResult {
        for reverse in [false, true] {
            let scan = || if reverse { scan().rev() } else { scan() };
            let all = ids(scan())?;
            for at in 1..all.len() {
                let cursor = scan().page(at)?.next.ok_or("no next page")?;
                assert_eq!(ids(scan().before(&cursor))?, all[..at]);
                assert_eq!(scan().before(&cursor).count()?, at as u64);
                assert_eq!(scan().before(&cursor).first()?.map(|row| row.id), Some(all[0]));
                assert!(!scan().before(&cursor).limit(0).exists()?);
                for size in [1, 2, at] {
                    let last = &all[at.saturating_sub(size)..at];
                    assert_eq!(page_ids(&scan().before(&cursor).page(size)?), last);
                    assert_eq!(ids(scan().limit(size).before(&cursor))?, last);
                    assert_eq!(scan().before(&cursor).limit(size).count()?, last.len() as u64);
                }
                let start = scan().page(1)?.next.ok_or("no next page")?;
                let between = || scan().after(&start).before(&cursor);
                assert_eq!(ids(between())?, all[1..at]);
                assert_eq!(between().count()?, at as u64 - 1);
                let page = between().page(3)?;
                assert_eq!(page_ids(&page), all[at.saturating_sub(3).max(1)..at]);
                assert_eq!((page.previous.is_some(), page.next.as_ref()), (true, Some(&cursor)));
            }
        }
        Ok(())
    }
    on_all_stores(|store, people| {
        let txn = store.read()?;
        let names = || (0..9).map(|id| format!("name {:03}", id * 4));
        check(|| people.find_by_name_in(&txn, names()))?;
        check(|| people.find_by_town_in(&txn, ["town 1", "town 0"]).filter(|row| row.id % 3 != 0))?;
        check(|| people.find_by_id_in(&txn, [3, 4, 6, 30, 22, 41]).boxed())?;
        check(|| people.find_by_code_range(&txn, 5..30).filter(|row| row.id > 8))?;
        check(|| people.find_by_hashed(&txn, "town 0"))?;
        check(|| people.find_by_hashed_in(&txn, ["town 0", "town 1"]).filter(|row| row.id % 4 == 0))
    })
}

#[test]
fn rows_between_two_cursors_are_deleted() -> TestResult {
    for store in stores::plain_stores()? {
        let people = &PersonRepository::open(&store)?;
        store.fill(0..20, |txn, n| people.insert(txn, &person(n * 2)))?;
        let mut txn = store.write()?;
        let first = people.by_name(&txn).page(5)?.next.ok_or("more")?;
        let second = people.by_name(&txn).after(&first).page(5)?.next.ok_or("more")?;
        let query = people.by_name(&txn).after(&first).before(&second).query();
        assert_eq!(query.delete(&mut txn)?, 5);
        let left: Vec<u32> = (0..20).filter(|n| !(5..10).contains(n)).map(|n| n * 2).collect();
        assert_eq!(ids(people.all(&txn))?, left);
        let query = people.by_name(&txn).before(&second).limit(2).query();
        assert_eq!(query.delete(&mut txn)?, 2);
        assert_eq!(ids(people.all(&txn).limit(4))?, [0, 2, 4, 20]);
    }
    Ok(())
}
