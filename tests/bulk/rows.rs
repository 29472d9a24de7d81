//! Errors, reports and counters of bulk loads, and growth of the map.

use std::{
    error::Error as StdError,
    panic::{AssertUnwindSafe, catch_unwind},
};

use index_table::{Durability, Error, OnDuplicate, Progress, Result, Store, WriteTxn};

use crate::{Item, ItemRepository, all, item, open};

type TestResult = Result<(), Box<dyn StdError>>;

fn store() -> Result<(Store, ItemRepository)> {
    let store = Store::in_memory();
    let items = ItemRepository::open(&store)?;
    Ok((store, items))
}

#[test]
fn a_load_accepts_rows_references_and_results() -> TestResult {
    let (store, items) = store()?;
    items.bulk_load(&store, vec![item(1)]).run()?;
    items.bulk_load(&store, &[item(2)]).run()?;
    let rows = [3, 4].map(|id| Ok::<_, Box<dyn StdError>>(item(id)));
    assert_eq!(items.bulk_load(&store, rows).try_run()?.written, 2);
    let rows = [Ok(item(5)), Err("no such row")].map(|row| row.map_err(Box::from));
    let error: Result<_, Box<dyn StdError>> = items.bulk_load(&store, rows).try_run();
    assert_eq!(error.map_err(|error| error.to_string()), Err("no such row".to_owned()));
    assert_eq!(items.all(&store.read()?).count()?, 4);
    Ok(())
}

#[test]
fn errors_name_the_existing_row() -> TestResult {
    let (store, items) = store()?;
    store.transaction(|txn| items.insert(txn, &item(1)))?;
    let load = |rows: &[Item]| items.bulk_load(&store, rows).run().map_err(|it| it.to_string());
    let starts = |rows: &[Item], expected: &str| {
        let error = load(rows).expect_err("the key is taken");
        assert!(error.starts_with(expected), "{error}");
    };
    starts(&[item(3), item(1)], "table `items` already has a row with primary key 1");
    starts(&[item(3), item(2), item(3)], "table `items` already has a row with primary key 3");
    let code = |id, code| Item { code, ..item(id) };
    starts(&[code(2, 9), code(3, 9)], "unique index `code` of table `items` already has the key 9");
    starts(
        &[code(2, item(1).code)],
        "unique index `code` of table `items` already has the key 265443",
    );
    let url = Item { url: item(1).url, ..item(2) };
    starts(
        &[url],
        "unique index `once` of table `items` already has the key \"https://example.com/1\"",
    );
    // The holder of a key is another row of the load, or of the table.
    let error = load(&[code(3, 9), code(2, 9)]).expect_err("the same code");
    assert!(error.contains("for the row with primary key 2"), "{error}");
    assert_eq!(all(&items, &store.read()?)?, [item(1)]);
    Ok(())
}

#[test]
fn every_policy_refuses_rows_that_can_not_be_written() -> TestResult {
    let (store, items) = store()?;
    let long = Item { name: "x".repeat(600), ..item(2) };
    for policy in [OnDuplicate::Fail, OnDuplicate::Skip, OnDuplicate::Replace] {
        let load = items.bulk_load(&store, [item(1), long.clone()]).on_duplicate(policy);
        assert!(matches!(load.run(), Err(Error::KeyTooLong { index: Some("town_name"), .. })));
        assert_eq!(items.all(&store.read()?).count()?, 0);
    }
    Ok(())
}

#[test]
fn replaced_rows_can_exchange_unique_keys() -> TestResult {
    let (store, items) = store()?;
    let code = |id, code| Item { code, ..item(id) };
    items.bulk_load(&store, [code(1, 1), code(2, 2), code(3, 3)]).run()?;
    let replace =
        |rows: &[Item]| items.bulk_load(&store, rows).on_duplicate(OnDuplicate::Replace).run();
    let report = replace(&[code(1, 2), code(2, 1), code(3, 3)])?;
    assert_eq!((report.written, report.replaced, report.skipped), (3, 2, 0));
    assert_eq!(all(&items, &store.read()?)?, [code(1, 2), code(2, 1), code(3, 3)]);
    // The load fails if the other row keeps the key.
    let error = replace(&[code(1, 3), code(2, 7)]).expect_err("row 3 has the key");
    assert!(matches!(error, Error::UniqueViolation { index: "code", holder, .. } if holder == "3"));
    assert_eq!(items.get_by_code(&store.read()?, 7)?, None);
    Ok(())
}

#[test]
fn equal_rows_are_not_written() -> TestResult {
    let (store, items) = store()?;
    let rows: Vec<Item> = (0..100).map(item).collect();
    items.bulk_load(&store, &rows).run()?;
    let before = items.usage();
    let counted = |usage: &index_table::Usage| -> Vec<u64> {
        usage.indexes.iter().map(|index| index.written).collect()
    };
    let mut changed = rows.clone();
    changed[7].town = "Elsewhere".to_owned();
    let load = items.bulk_load(&store, &changed).on_duplicate(OnDuplicate::Replace);
    let report = load.run()?;
    assert_eq!((report.written, report.replaced), (100, 1));
    let after = items.usage();
    let written: Vec<u64> = counted(&after)
        .iter()
        .zip(counted(&before))
        .map(|(after, before)| after - before)
        .collect();
    // `town` and `town_name` lose an entry and get another. `name` carries the town, and so does `noted`, but
    // row 7 has no note.
    assert_eq!(written, [2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((before.inserts, after.inserts, after.puts), (100, 100, 1));
    Ok(())
}

#[test]
fn a_load_reports_its_progress() -> TestResult {
    let (store, items) = store()?;
    let mut reports: Vec<Progress> = Vec::new();
    let load = items.bulk_load(&store, (0..10_000).map(item));
    load.progress(|progress| reports.push(progress)).run()?;
    assert!(reports.is_sorted_by_key(|it| (it.total.is_some(), it.done)));
    assert_eq!(
        (reports[0].unit, reports[0].done, reports[0].total, reports[0].left),
        ("rows read", 4096, None, None)
    );
    assert_eq!(
        (reports[1].done, reports[2].unit, reports[2].done),
        (8192, "rows and entries written", 0)
    );
    let last = reports[reports.len() - 1];
    assert!(last.total.is_some_and(|total| total - last.done < 4096));
    assert_eq!(reports[0].to_string(), "4096 rows read");
    assert_eq!(
        reports[2].to_string(),
        format!("0 of {} rows and entries written", last.total.unwrap_or(0))
    );
    Ok(())
}

#[test]
fn a_load_enlarges_the_map() -> TestResult {
    let directory = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 20).durability(Durability::None);
    let store = options.open(directory.path())?;
    let items = ItemRepository::open(&store)?;
    let load = items.bulk_load(&store, (0..5_000).map(item)).memory(1 << 20);
    assert_eq!(load.run()?.written, 5_000);
    assert_eq!(all(&items, &store.read()?)?, (0..5_000).map(item).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_load_in_a_dropped_transaction_changes_nothing() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (store, items) = open(directory.path())?;
    let mut txn = store.write()?;
    items.bulk_load_in(&mut txn, (0..100).map(item)).run()?;
    // The transaction reads its own rows.
    assert_eq!(all(&items, &txn)?.len(), 100);
    drop(txn);
    assert_eq!(items.all(&store.read()?).count()?, 0);
    Ok(())
}

/// Loads half of the rows, ignores the error, and continues.
fn load_half(items: &ItemRepository, txn: &mut WriteTxn<'_>) -> Result<()> {
    let half = |at: Progress| {
        assert!(at.total.is_none() || at.done < 5_000, "the load continued past its first half");
    };
    let load = items.bulk_load_in(txn, (0..1_000).map(item)).on_duplicate(OnDuplicate::Replace);
    assert!(catch_unwind(AssertUnwindSafe(|| load.progress(half).run())).is_err());
    items.put(txn, &item(2_000))
}

#[test]
fn a_transaction_with_half_a_load_can_not_be_committed() -> TestResult {
    let directory = tempfile::tempdir()?;
    for (store, items) in [open(directory.path())?, store()?] {
        store.transaction(|txn| items.insert(txn, &Item { live: false, ..item(1) }))?;
        let mut txn = store.write()?;
        load_half(&items, &mut txn)?;
        let error = txn.commit().expect_err("half").to_string();
        assert!(error.contains("a load into table `items` has failed before its end"), "{error}");
        assert!(matches!(
            store.transaction(|txn| load_half(&items, txn)),
            Err(Error::TransactionFailed { .. })
        ));

        // In a group, the other closures are committed, whether the failed closure is the first or not.
        let writer = store.writer()?;
        let txn = store.write()?;
        let submit =
            |half: bool, id| {
                let items = items.clone();
                writer.submit(move |txn| {
                    if half { load_half(&items, txn) } else { items.insert(txn, &item(id)) }
                })
            };
        let submitted =
            [submit(true, 0), submit(false, 3_000), submit(true, 0), submit(false, 4_000)];
        drop(txn);
        let outcomes = submitted.map(|submitted| submitted.wait().is_ok());
        assert_eq!(outcomes, [false, true, false, true]);
        let ids: Vec<u32> = all(&items, &store.read()?)?.iter().map(|item| item.id).collect();
        assert_eq!(ids, [1, 3_000, 4_000]);
    }
    Ok(())
}

#[test]
fn other_threads_write_while_a_load_reads_its_rows() -> TestResult {
    let (store, items) = store()?;
    let rows = (0..10).map(|id| {
        let other = item(100 + id);
        store.transaction(|txn| items.insert(txn, &other)).map(|()| item(id))
    });
    let written = items.bulk_load(&store, rows).try_run::<_, Error>()?.written;
    assert_eq!((written, items.all(&store.read()?).count()?), (10, 20));
    Ok(())
}

#[test]
fn a_load_refuses_another_store() -> TestResult {
    let ((store, _), (_, others)) = (store()?, store()?);
    let mut has_read = false;
    let rows = std::iter::from_fn(|| {
        has_read = true;
        Some(item(1))
    });
    let error = others.bulk_load(&store, rows).run().expect_err("another store");
    assert!(matches!(error, Error::WrongStore { table: "items" }));
    assert!(!has_read);
    Ok(())
}
