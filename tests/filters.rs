//! `filter` on scans: with limits, counts, entries, pages, combinations, watchers and deletions.

#[path = "support/stores.rs"]
mod stores;

use index_table::{Error, IndexEntry, IndexTable, ReadTxn, Result, Scan};
use serde::{Deserialize, Serialize};
use stores::Tried;

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, shard_by = hash(id))]
#[indexes(
    (town, name),
    (name, strategy = "full"),
    (code, id, unique, include = [town]),
    (hash(url)),
    (hash(name), include = [name], name = "hashed"),
    (each(tags)),
)]
struct Customer {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    code: u32,
    url: String,
    tags: Vec<String>,
    phone: String,
}

fn customer(id: u32) -> Customer {
    Customer {
        id,
        town: format!("town {}", id % 2),
        name: format!("name {}", id % 5),
        code: 100 - id,
        url: format!("https://example.com/{}", id % 4),
        tags: vec![format!("tag {}", id % 3), "all".to_owned()],
        phone: format!("555-{id:02}"),
    }
}

/// Runs `test` on plain and on sharded stores.
fn on_all_stores(test: impl Fn(&Tried, &CustomerRepository) -> TestResult) -> TestResult {
    for store in stores::stores("customer")? {
        let customers = CustomerRepository::open(&store)?;
        store.fill(0..60, |txn, id| customers.insert(txn, &customer(*id)))?;
        test(&store, &customers)?;
    }
    Ok(())
}

/// Compares a filtered scan with the same scan whose rows are filtered one by one.
fn check<'txn, E: IndexEntry<'txn, Row = Customer> + 'txn>(
    scan: impl Fn() -> Scan<'txn, E>,
) -> TestResult {
    let passes = |row: &Customer| row.phone.ends_with('7') || row.id.is_multiple_of(7);
    for reverse in [false, true] {
        let scan = || if reverse { scan().rev() } else { scan() };
        let mut rows = scan().rows().collect::<Result<Vec<_>>>()?;
        rows.retain(passes);
        assert!(rows.len() > 1, "some rows pass");
        let filtered = || scan().filter(passes);
        assert_eq!(filtered().rows().collect::<Result<Vec<_>>>()?, rows);
        assert_eq!(filtered().boxed().rows().collect::<Result<Vec<_>>>()?, rows);
        assert_eq!(scan().boxed().filter(passes).entries().collect::<Result<Vec<_>>>()?, rows);
        assert_eq!(
            filtered().views().map(|view| view.map(|it| it.id)).collect::<Result<Vec<_>>>()?,
            rows.iter().map(|row| row.id).collect::<Vec<_>>()
        );
        assert_eq!(filtered().entries().count(), rows.len());
        assert_eq!(
            filtered().keys().collect::<Result<Vec<_>>>()?,
            rows.iter().map(|row| row.id).collect::<Vec<_>>()
        );
        assert_eq!(filtered().first()?.as_ref(), rows.first());
        assert_eq!(filtered().count()?, rows.len() as u64);
        assert!(filtered().exists()?);
        assert!(!filtered().filter(|_| false).exists()?);
        // A limit counts the rows that pass, whether it is set before or after the filter.
        assert_eq!(filtered().limit(2).rows().collect::<Result<Vec<_>>>()?, rows[..2]);
        assert_eq!(scan().limit(2).filter(passes).rows().collect::<Result<Vec<_>>>()?, rows[..2]);
        assert_eq!(filtered().limit(2).count()?, 2);
        assert_eq!(filtered().limit(1).entries().count(), 1);
        for size in [1, 2, rows.len(), rows.len() + 1] {
            let mut read = Vec::new();
            let mut cursor = None;
            loop {
                let rest = || match &cursor {
                    None => filtered(),
                    Some(cursor) => filtered().after(cursor),
                };
                let page = rest().page(size)?;
                assert_eq!(rest().page_entries(size)?.items.len(), page.items.len());
                assert_eq!(rest().page_views(size)?.next, page.next);
                assert_eq!(rest().count()?, (rows.len() - read.len()) as u64);
                read.extend(page.items);
                let Some(next) = page.next else { break };
                cursor = Some(next);
            }
            assert_eq!(read, rows);
        }
    }
    Ok(())
}

#[test]
fn a_filtered_scan_finds_the_rows_that_pass() -> TestResult {
    on_all_stores(|store, customers| {
        let txn = store.read()?;
        check(|| customers.all(&txn))?;
        check(|| customers.find_by_id_range(&txn, 5..50))?;
        check(|| customers.find_by_town(&txn, "town 1"))?;
        check(|| customers.find_by_town_in(&txn, ["town 1", "nowhere", "town 0"]))?;
        check(|| customers.by_name(&txn))?;
        check(|| customers.find_by_code_range(&txn, 50..95))?;
        check(|| customers.find_by_url(&txn, "https://example.com/3"))?;
        check(|| customers.find_by_hashed(&txn, "name 2"))?;
        check(|| customers.by_tags(&txn))?;
        check(|| customers.find_by_town_starting_with(&txn, "to").boxed())
    })
}

/// The example of `boxed` and `filter`: a scan chosen at run time, a filter, and a page.
#[test]
fn a_boxed_scan_of_a_match_is_filtered_and_paged() -> TestResult {
    fn search(
        customers: &CustomerRepository,
        txn: &ReadTxn<'_>,
        town: Option<&str>,
        digit: char,
    ) -> Result<Vec<u32>> {
        let scan = match town {
            Some(town) => customers.find_by_town(txn, town).boxed(),
            None => customers.by_name(txn).boxed(),
        };
        let suffix = String::from(digit);
        let page = scan.filter(|row| row.phone.ends_with(&suffix)).page(20)?;
        Ok(page.items.into_iter().map(|row| row.id).collect())
    }
    on_all_stores(|store, customers| {
        let txn = store.read()?;
        assert_eq!(search(customers, &txn, Some("town 1"), '7')?, [7, 17, 27, 37, 47, 57]);
        assert_eq!(search(customers, &txn, None, '6')?, [6, 16, 26, 36, 46, 56]);
        Ok(())
    })
}

/// The row of each entry is looked up once, even for queries that need no rows, unless the entry has the row.
#[test]
fn a_filter_reads_the_row_of_each_entry_once() -> TestResult {
    on_all_stores(|store, customers| {
        let txn = store.read()?;
        let facts = |run: &dyn Fn() -> usize| {
            let before = txn.stats().facts;
            (run(), txn.stats().facts - before)
        };
        let in_town = || customers.find_by_town(&txn, "town 1").filter(|row| row.id % 3 == 0);
        assert_eq!(facts(&|| in_town().rows().count()), (10, 30));
        assert_eq!(facts(&|| in_town().entries().count()), (10, 30));
        assert_eq!(facts(&|| in_town().keys().count()), (10, 30));
        assert_eq!(facts(&|| in_town().count().unwrap_or(0) as usize), (10, 30));
        let by_name = || customers.by_name(&txn).filter(|row| row.id % 3 == 0);
        assert_eq!(facts(&|| by_name().rows().count()), (20, 0));
        assert_eq!(facts(&|| by_name().entries().count()), (20, 0));
        // Entries that don't pass the filter count as read.
        let mut rows = in_town().rows();
        assert_eq!(rows.by_ref().count(), 10);
        assert_eq!(rows.stats().entries, 30);
        Ok(())
    })
}

#[test]
fn filtered_scans_are_combined() -> TestResult {
    on_all_stores(|store, customers| {
        let txn = store.read()?;
        let named = |name: &str| customers.find_by_name(&txn, name);
        let tagged = || customers.find_by_tags(&txn, "tag 0").filter(|row| row.id > 10);
        let ids =
            |scan: index_table::Combined<'_, Customer>| scan.keys().collect::<Result<Vec<_>>>();
        assert_eq!(ids(tagged().and(named("name 0")))?, [15, 30, 45]);
        assert_eq!(ids(named("name 0").and(tagged()))?, [15, 30, 45]);
        let small = named("name 0").filter(|row| row.id < 20);
        assert_eq!(ids(small.or(tagged().filter(|row| row.id < 20)))?, [0, 5, 10, 12, 15, 18]);
        Ok(())
    })
}

#[test]
fn watchers_and_deletions_refuse_a_filter() -> TestResult {
    on_all_stores(|store, customers| {
        let mut txn = store.write()?;
        if store.is_sharded {
            let query = customers.find_by_id(&txn, 7).filter(|row| row.id > 5).query();
            let result = query.delete(&mut txn);
            assert!(matches!(result, Err(Error::NotCombinable { .. })), "{result:?}");
            return Ok(());
        }
        let query = customers.find_by_town(&txn, "town 1").filter(|row| row.id > 5).query();
        let result = query.delete(&mut txn);
        assert!(
            matches!(result, Err(Error::NotCombinable { index: Some("town_name"), .. })),
            "{result:?}"
        );
        assert_eq!(customers.all(&txn).count()?, 60);
        let watch = customers.watch(store);
        let result = watch.only(customers.find_by_town(&txn, "town 1").filter(|_| true)).start();
        let message = result.map(drop).map_err(|error| error.to_string());
        assert_eq!(
            message.as_ref().map_err(String::as_str),
            Err(
                "the scan of index `town_name` of table `customer` can't be combined: a watcher takes no \
                 `filter`; filter its events"
            )
        );
        Ok(())
    })
}

/// The values that a filter borrows may be younger than the transaction.
#[test]
fn a_filter_can_borrow_values_younger_than_the_transaction() -> TestResult {
    on_all_stores(|store, customers| {
        let txn = store.read()?;
        let ids = vec![3_u32, 5, 8];
        let chosen = customers.all(&txn).filter(|row| ids.contains(&row.id));
        assert_eq!(chosen.keys().collect::<Result<Vec<_>>>()?, ids);
        Ok(())
    })
}
