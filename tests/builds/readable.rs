//! The transactions for which an index is readable.

use index_table::{Error, IndexState, Store};

use crate::{TestResult, after, assert_clean, fill, item, on_each, on_each_local, unreadable};

fn assert_not_readable<T: std::fmt::Debug>(result: index_table::Result<T>) -> String {
    match result {
        Err(error @ Error::IndexNotReadable { table: "items", .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn queries_on_an_index_under_construction_are_refused() -> TestResult {
    on_each((0..200).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        let run_queries = |txn: &index_table::ReadTxn<'_>| {
            vec![
                items.find_by_town(txn, "Oz").rows().collect::<Result<Vec<_>, _>>().map(|_| ()),
                items.find_by_town(txn, "Oz").count().map(drop),
                items.find_by_town(txn, "Oz").exists().map(drop),
                items.find_by_town(txn, "Oz").page(3).map(drop),
                items.by_name(txn).entries().next().transpose().map(drop),
                items.by_live(txn).keys().next().transpose().map(drop),
                items.get_by_code(txn, 100).map(drop),
                items.get_by_once(txn, "https://example.com/1").map(drop),
                items.distinct_town(txn).values().next().transpose().map(drop),
                items.distinct_town(txn).counts().next().transpose().map(drop),
                items.find_by_town(txn, "Oz").and(items.find_by_tags(txn, "a")).count().map(drop),
                items
                    .find_by_id(txn, 1)
                    .or(items.find_by_town(txn, "Oz"))
                    .keys()
                    .next()
                    .transpose()
                    .map(drop),
            ]
        };
        let before = store.read()?;
        for result in run_queries(&before) {
            let text = assert_not_readable(result);
            assert!(
                text.contains("is not readable: it is under construction, with 0 of 200 rows done"),
                "{text}"
            );
            assert!(text.contains("`build` continues it"), "{text}");
        }
        assert!(items.get(&before, 3)?.is_some());
        assert_eq!(items.all(&before).count()?, 200);
        assert_eq!(items.find_by_id_range(&before, 1..5).rows().count(), 4);
        items.build(store).batch_bytes(1000).limit(3).run()?;
        let later = store.read()?;
        assert!(
            !assert_not_readable(items.find_by_town(&later, "Oz").count()).contains(" 0 of 200")
        );
        let report = items.build(store).run()?;
        assert!(report.is_readable());

        // An index that is built later is not readable in earlier snapshots.
        for txn in [&before, &later] {
            for result in run_queries(txn) {
                assert_not_readable(result);
            }
            assert_clean(&items, txn)?;
        }
        let current = store.read()?;
        for result in run_queries(&current) {
            result?;
        }
        assert_eq!(items.find_by_town(&current, "Oz").count()?, 68);
        assert_clean(&items, &current)?;
        Ok(())
    })
}

#[test]
fn write_transactions_refuse_the_same_queries() -> TestResult {
    on_each((0..50).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        let mut txn = store.write()?;
        items.insert(&mut txn, &item(60, 60))?;
        assert_not_readable(items.find_by_town(&txn, "Oz").count());
        assert!(matches!(items.build(store).run(), Err(Error::WriteInProgress)));
        txn.commit()?;
        items.build(store).run()?;
        let mut txn = store.write()?;
        items.insert(&mut txn, &item(61, 61))?;
        assert_eq!(items.by_code(&txn).count()?, 52);
        Ok(())
    })
}

#[test]
fn an_empty_table_has_nothing_to_build() -> TestResult {
    on_each([], |store| {
        let items = after::ItemRepository::open_online(store)?;
        assert_eq!(unreadable(store)?, []);
        assert_eq!(items.by_town(&store.read()?).count()?, 0);
        let report = items.build(store).run()?;
        assert_eq!((report.steps, report.rows, report.indexes.len()), (0, 0, 0));
        Ok(())
    })
}

#[test]
fn progress_and_report_count_rows() -> TestResult {
    // A server has no stored number of rows.
    on_each_local((0..300).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        let mut reports = Vec::new();
        let report = items.build(store).batch_bytes(2000).progress(|it| reports.push(it)).run()?;
        assert_eq!((report.rows, report.steps), (300, reports.len() as u64));
        assert_eq!(report.indexes.len(), 11);
        assert!(reports.len() > 5 && reports.is_sorted_by_key(|it| it.done));
        assert!(reports.iter().all(|it| it.total == Some(300) && it.left.is_some()));
        assert_eq!(reports.last().map(|it| it.done), Some(300));
        assert!(report.to_string().contains("  index `town`: readable\n"), "{report}");
        Ok(())
    })
}

#[test]
fn an_exclusive_build_gives_the_same_index() -> TestResult {
    on_each((0..3000).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(10_000).limit(2).run()?;
        let report = items.build(store).exclusive().run()?;
        assert_eq!((report.rows, report.steps, report.is_readable()), (3000, 1, true));
        assert_clean(&items, &store.read()?)?;
        assert_eq!(items.by_town(&store.read()?).count()?, 3000);
        Ok(())
    })
}

/// Indexes that were declared at different times are built together, from the position of the first.
#[test]
fn indexes_declared_at_different_times_are_built_together() -> TestResult {
    mod first {
        use index_table::IndexTable;
        use serde::{Deserialize, Serialize};

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "items")]
        #[index(town)]
        pub(crate) struct Item {
            #[primary_key]
            id: u32,
            town: String,
            name: String,
            code: u64,
            tags: Vec<String>,
            note: Option<String>,
            url: String,
            live: bool,
        }
    }
    on_each((0..400).map(|id| item(id, id)), |store| {
        let items = first::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(5_000).limit(2).run()?;
        let [(_, IndexState::Building { rows, .. })] = &unreadable(store)?[..] else {
            return Err("one index".into());
        };
        let rows = *rows;
        drop(items);
        let items = after::ItemRepository::open_online(store)?;
        assert_eq!(unreadable(store)?.len(), 11);
        let report = items.build(store).batch_bytes(3_000).run()?;
        assert!(report.is_readable());
        assert_eq!(report.rows, 400, "{rows} rows of the first index are not read again");
        assert_clean(&items, &store.read()?)?;
        Ok(())
    })
}

#[test]
fn usage_does_not_count_the_entries_of_a_build() -> TestResult {
    let store = Store::in_memory();
    fill(&store, (0..10).map(|id| item(id, id)))?;
    let items = after::ItemRepository::open_online(&store)?;
    store.transaction(|txn| items.insert(txn, &item(20, 20)))?;
    assert_eq!(items.usage().indexes[0].written, 1);
    Ok(())
}
