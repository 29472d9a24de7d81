//! `examine_at_most` on scans: pages that end after a number of examined entries.

#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/stores.rs"]
mod stores;

use std::{cell::Cell, rc::Rc};

use index_table::{Cursor, Error, IndexEntry, IndexTable, Page, ReadTxn, Result, Scan, Store};
use proptest::{prelude::*, test_runner::TestRunner};
use serde::{Deserialize, Serialize};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, shard_by = hash(id))]
#[indexes(
    (town, name),
    (name, strategy = "full"),
    (code, id, unique, include = [town]),
    (hash(url)),
    (each(tags)),
    (size, consistency = "eventual"),
    (size, name, scope = "global", name = "everywhere"),
)]
struct Item {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    code: u32,
    url: String,
    tags: Vec<String>,
    size: u32,
}

fn item(id: u32) -> Item {
    Item {
        id,
        town: format!("town {}", id % 2),
        name: format!("name {}", id % 5),
        code: 100 - id,
        url: format!("https://example.com/{}", id % 4),
        tags: vec![format!("tag {}", id % 3), "all".to_owned()],
        size: id % 3,
    }
}

const ROWS: u32 = 40;

fn fill(store: &Store) -> Result<ItemRepository> {
    let items = ItemRepository::open(store)?;
    store.transaction(|txn| (0..ROWS).try_for_each(|id| items.insert(txn, &item(id))))?;
    items.drain(store, u64::MAX)?;
    Ok(items)
}

/// Runs `test` on plain and on sharded stores, and on the server if there is one.
fn on_all_stores(test: impl Fn(&Store, &ItemRepository) -> TestResult) -> TestResult {
    for store in stores::stores("item")? {
        test(&store, &fill(&store)?)?;
    }
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        let store = schema.open()?;
        test(&store, &fill(&store)?)?;
    }
    Ok(())
}

/// The size of a page, the number of entries that it examines, and the ids that pass its filter.
#[derive(Debug, Clone)]
struct Case {
    size: usize,
    most: usize,
    passing: Vec<u32>,
    reverse: bool,
    /// Whether the pages are read from the last to the first.
    back: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let most = prop_oneof![4 => 1..9_usize, 1 => 9..90_usize, 1 => Just(usize::MAX)];
    let passing = prop_oneof![
        prop::sample::subsequence((0..ROWS).collect::<Vec<_>>(), 0..5),
        prop::sample::subsequence((0..ROWS).collect::<Vec<_>>(), 0..ROWS as usize),
    ];
    (1..8_usize, most, passing, any::<bool>(), any::<bool>()).prop_map(
        |(size, most, passing, reverse, back)| Case { size, most, passing, reverse, back },
    )
}

fn ids<T>(page: Page<T>, id: impl Fn(&T) -> u32) -> (Vec<u32>, Option<Cursor>, Option<Cursor>) {
    (page.items.iter().map(id).collect(), page.next, page.previous)
}

/// Reads a scan page by page, and compares the pages with the scan without pages.
fn check<'txn, E: IndexEntry<'txn, Row = Item> + 'txn>(
    case: &Case,
    scan: impl Fn() -> Scan<'txn, E>,
    id: impl Fn(&E) -> u32,
) -> TestResult {
    let tested = Rc::new(Cell::new(0_usize));
    let scan = || if case.reverse { scan().rev() } else { scan() };
    // Backward pages are between two cursors.
    let rows = scan().rows().count();
    let (from, to) = if case.back && rows > 3 {
        (scan().page(1)?.next, scan().page(rows - 1)?.next)
    } else {
        (None, None)
    };
    let filtered = || {
        let (tested, passing) = (Rc::clone(&tested), case.passing.clone());
        let scan = from.as_ref().map_or_else(scan, |from| scan().after(from));
        scan.filter(move |row| {
            tested.set(tested.get() + 1);
            passing.contains(&row.id)
        })
    };
    let whole = to.as_ref().map_or_else(filtered, |to| filtered().before(to));
    let expected = whole.keys().collect::<Result<Vec<u32>>>()?;
    let (mut at, mut read, mut pages) = (to.clone(), Vec::new(), 0);
    loop {
        let rest = || {
            let scan = match &at {
                None => filtered(),
                Some(at) if to.is_some() => filtered().before(at),
                Some(at) => filtered().after(at),
            };
            tested.set(0);
            scan.examine_at_most(case.most)
        };
        let is_bounded = || assert!(tested.get() <= case.most, "{} tested", tested.get());
        let page = ids(rest().page(case.size)?, |row| row.id);
        is_bounded();
        assert_eq!(ids(rest().page_views(case.size)?, |view| view.id), page);
        is_bounded();
        assert_eq!(ids(rest().page_entries(case.size)?, &id), page);
        is_bounded();
        let (items, next, previous) = page;
        assert!(items.len() <= case.size);
        pages += 1;
        assert!(pages < 200, "the pages don't end: {case:?}");
        let cursor = if to.is_some() {
            read.splice(0..0, items);
            previous.filter(|previous| Some(previous) != from.as_ref())
        } else {
            read.extend(items);
            next
        };
        let Some(cursor) = cursor else { break };
        at = Some(cursor.to_string().parse()?);
    }
    assert_eq!(read, expected, "{case:?}");
    Ok(())
}

fn check_all(items: &ItemRepository, txn: &ReadTxn<'_>, case: &Case) -> TestResult {
    check(case, || items.all(txn), |row| row.id)?;
    check(case, || items.find_by_id_range(txn, 5..30), |row| row.id)?;
    check(case, || items.find_by_town(txn, "town 1"), |entry| entry.id)?;
    check(case, || items.find_by_town_in(txn, ["town 1", "nowhere", "town 0"]), |entry| entry.id)?;
    check(case, || items.by_name(txn), |entry| entry.id)?;
    check(case, || items.find_by_code_range(txn, 70..95), |entry| entry.id)?;
    check(case, || items.find_by_url(txn, "https://example.com/3"), |entry| entry.id)?;
    check(case, || items.by_tags(txn), |entry| entry.id)?;
    check(case, || items.find_by_size(txn, 1).stale(), |entry| entry.id)?;
    check(case, || items.find_by_size(txn, 1).verified(), |row| row.id)?;
    check(case, || items.by_everywhere(txn), |entry| entry.id)?;
    check(case, || items.by_everywhere(txn).boxed(), |row| row.id)
}

#[test]
fn all_pages_together_are_the_filtered_scan() -> TestResult {
    on_all_stores(|store, items| {
        let txn = store.read()?;
        let config = ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() };
        let mut runner = TestRunner::new(config);
        let outcome = runner.run(&case(), |case| {
            check_all(items, &txn, &case).map_err(|error| TestCaseError::fail(error.to_string()))
        });
        Ok(outcome?)
    })
}

#[test]
fn a_page_ends_at_the_bound_without_rows() -> TestResult {
    on_all_stores(|store, items| {
        let txn = store.read()?;
        let none = || items.find_by_town(&txn, "town 0").filter(|_| false);
        let page = none().examine_at_most(7).page(5)?;
        assert!(page.items.is_empty() && page.next.is_some());
        let before = txn.stats();
        let page = none().after(&page.next.ok_or("more")?).examine_at_most(7).page(5)?;
        let stats = txn.stats();
        assert_eq!(stats.entries - before.entries, 7);
        assert_eq!(stats.facts - before.facts, 7);
        assert!(page.items.is_empty() && page.next.is_some());
        // The bound is greater than the number of the rows.
        let page = none().examine_at_most(21).page(5)?;
        assert!(page.items.is_empty() && page.next.is_none());
        Ok(())
    })
}

#[test]
fn a_full_page_is_not_changed_by_its_bound() -> TestResult {
    on_all_stores(|store, items| {
        let txn = store.read()?;
        let scan = || items.find_by_town(&txn, "town 0");
        assert_eq!(scan().examine_at_most(6).page(5)?, scan().page(5)?);
        assert_eq!(scan().examine_at_most(5).page(5)?, scan().page(5)?);
        // A limit ends the last page, at the bound too.
        for most in [2, 3] {
            let page = scan().limit(2).examine_at_most(most).page(5)?;
            assert_eq!((page.items.len(), page.next), (2, None));
        }
        Ok(())
    })
}

#[test]
fn a_page_that_examines_nothing_is_refused() -> TestResult {
    on_all_stores(|store, items| {
        let txn = store.read()?;
        let scan = || items.by_name(&txn).examine_at_most(0);
        assert!(matches!(scan().page(5), Err(Error::EmptyPage { table: "item" })));
        assert!(matches!(scan().page_entries(5), Err(Error::EmptyPage { .. })));
        assert!(matches!(scan().page_views(5), Err(Error::EmptyPage { .. })));
        Ok(())
    })
}
