//! Duplicates in a unique index under construction.

use index_table::{Error, IndexState, Store};

use crate::{TestResult, after, assert_clean, item, on_each, unreadable};

/// Returns the rows 0 to 99. Every tenth row has the keys of the row before it.
fn with_duplicates() -> impl Iterator<Item = after::Item> + Clone {
    (0..100).map(|id| item(id, if id % 10 == 0 && id > 0 { id - 1 } else { id }))
}

fn violated(store: &Store) -> index_table::Result<Vec<(String, u64)>> {
    let states = unreadable(store)?.into_iter();
    Ok(states
        .filter_map(|(name, state)| match state {
            IndexState::Violated(duplicates) => Some((name, duplicates.count)),
            _ => None,
        })
        .collect())
}

#[test]
fn all_duplicates_are_listed_and_can_be_resolved() -> TestResult {
    for exclusive in [false, true] {
        on_each(with_duplicates(), |store| {
            let items = after::ItemRepository::open_online(store)?;
            let build = || {
                let build = items.build(store).batch_bytes(700);
                if exclusive { build.exclusive().run() } else { build.run() }
            };
            let report = build()?;
            assert!(report.is_done() && !report.is_readable(), "{report}");
            // The other indexes are built.
            let names = ["code", "coded", "once"].map(str::to_owned);
            let counts = violated(store)?;
            assert!(counts.iter().map(|(name, _)| name).eq(&names), "{counts:?}");
            assert_eq!(counts.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [9, 6, 9]);
            assert_eq!(items.find_by_town(&store.read()?, "Oz").count()?, 34);

            let result = items.get_by_code(&store.read()?, 100);
            let Err(Error::IndexNotReadable { index: "code", state, .. }) = &result else {
                return Err(format!("{result:?}").into());
            };
            let IndexState::Violated(duplicates) = state else { return Err("violated".into()) };
            let first = &duplicates.first[0];
            let first = [&first.key, &first.holder, &first.row].map(String::as_str);
            assert_eq!(first, ["109", "9", "10"]);
            let text = result.unwrap_err().to_string();
            assert!(text.contains("its build has found 9 duplicates"), "{text}");
            assert!(text.contains("(the row 10 has the key 109, and so has the row 9)"), "{text}");
            assert!(store.catalog()?.to_string().contains("violated, 9 duplicates"));

            // A violated index is maintained, and refuses no key.
            store.transaction(|txn| {
                items.insert(txn, &after::Item { town: "Bonn".into(), ..item(200, 5) })
            })?;
            store.transaction(|txn| items.delete(txn, 200))?;
            assert_clean(&items, &store.read()?)?;
            for id in (10..100).step_by(10) {
                let other = item(id, 1000 + id);
                store.transaction(|txn| items.put(txn, &other))?;
            }
            assert!(build()?.is_readable());
            assert_clean(&items, &store.read()?)?;
            assert_eq!(items.get_by_code(&store.read()?, 1110)?.map(|row| row.id), Some(10));
            Ok(())
        })?;
    }
    Ok(())
}

/// A writer refuses keys that are in the index already. The build finds the other duplicates later.
#[test]
fn writes_of_a_key_in_the_index_are_refused_during_a_build() -> TestResult {
    on_each((0..100).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(2000).limit(1).run()?;
        let result = store.transaction(|txn| items.insert(txn, &item(500, 3)));
        assert!(matches!(result, Err(Error::UniqueViolation { index: "code", .. })), "{result:?}");
        // The index has no entries of row 90 yet.
        store.transaction(|txn| items.insert(txn, &item(501, 90)))?;
        let result = store.transaction(|txn| items.insert(txn, &item(502, 90)));
        assert!(matches!(result, Err(Error::UniqueViolation { index: "code", .. })), "{result:?}");
        // Row 90 is changed, moved and changed back. Its keys belong to the entries of another row all the
        // time.
        store.transaction(|txn| items.update(txn, 90, |row| row.name.push('x')))?;
        store.transaction(|txn| items.update(txn, 90, |row| row.id = 600))?;
        store.transaction(|txn| items.update(txn, 600, |row| row.id = 90))?;
        let report = items.build(store).batch_bytes(2000).run()?;
        assert!(!report.is_readable(), "{report}");
        assert!(violated(store)?.contains(&("code".to_owned(), 1)));
        store.transaction(|txn| items.delete(txn, 501))?;
        assert!(items.build(store).run()?.is_readable());
        assert_clean(&items, &store.read()?)?;
        assert_eq!(items.get_by_code(&store.read()?, 190)?.map(|row| row.id), Some(90));
        Ok(())
    })
}

/// Duplicates that are resolved before the build reads them have no effect.
#[test]
fn duplicates_resolved_before_the_end_do_not_violate_an_index() -> TestResult {
    on_each(with_duplicates(), |store| {
        let items = after::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(100).limit(1).run()?;
        for id in (10..100).step_by(10) {
            store.transaction(|txn| items.put(txn, &item(id, 1000 + id)))?;
        }
        let report = items.build(store).batch_bytes(2000).run()?;
        assert!(report.is_readable(), "{report}");
        assert_clean(&items, &store.read()?)?;
        Ok(())
    })
}

#[test]
fn more_duplicates_than_are_listed_are_counted() -> TestResult {
    for exclusive in [false, true] {
        on_each((0..400).map(|id| item(id, 7)), |store| {
            let items = after::ItemRepository::open_online(store)?;
            let build = items.build(store);
            let report = if exclusive { build.exclusive().run()? } else { build.run()? };
            let code = report.indexes.iter().find(|index| index.name == "code");
            let Some(IndexState::Violated(duplicates)) = code.map(|code| &code.state) else {
                return Err(format!("{report}").into());
            };
            assert_eq!((duplicates.count, duplicates.first.len()), (399, 100));
            Ok(())
        })?;
    }
    Ok(())
}

/// A row with a duplicate key can't be moved from unbuilt to built primary keys.
#[test]
fn a_duplicate_can_not_be_moved_past_the_build() -> TestResult {
    let rows = (2..100).map(|id| item(id, if id == 90 { 9 } else { id }));
    on_each(rows, |store| {
        let items = after::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(2000).limit(1).run()?;
        let moved = |from, to| store.transaction(|txn| items.update(txn, from, |row| row.id = to));
        assert!(moved(90, 95).is_err(), "row 95 exists");
        assert!(moved(90, 200)?, "row 200 is not built yet");
        for index in ["code", "once"] {
            // The error names the first violated index. For `once`, no other key of the row is a duplicate.
            if index == "once" {
                let apart = |row: &mut after::Item| (row.code, row.note) = (1, None);
                store.transaction(|txn| items.update(txn, 200, apart))?;
            }
            let result = moved(200, 1);
            let Err(Error::UniqueViolation { index: named, holder, .. }) = result else {
                return Err(format!("{result:?}").into());
            };
            assert_eq!((named, holder.as_str()), (index, "9"));
        }
        assert!(moved(80, 0)?, "no other row has the keys of row 80");
        assert!(moved(9, 1)?, "the entries of the keys belong to row 9");
        let report = items.build(store).batch_bytes(2000).run()?;
        assert!(!report.is_readable(), "{report}");
        assert_eq!(violated(store)?, [("once".to_owned(), 1)]);
        assert!(moved(200, 9)?, "a violated index refuses no key");
        store.transaction(|txn| items.delete(txn, 9))?;
        assert!(items.build(store).run()?.is_readable());
        assert_clean(&items, &store.read()?)?;
        Ok(())
    })
}
