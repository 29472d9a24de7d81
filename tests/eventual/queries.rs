//! Results of indexes with pending messages, with `stale` and with `verified`.

use index_table::Result;

use crate::{Item, ItemRepository, TestResult, assert_clean, assert_drained, item, on_each};

/// Returns a row whose town is Rome and whose name is Li.
fn roman(id: u32) -> Item {
    Item { town: "Rome".into(), name: "Li".into(), ..item(id, 0) }
}

#[test]
fn verified_scans_leave_out_outdated_entries() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        store.transaction(|txn| (0..6).try_for_each(|id| items.insert(txn, &roman(id))))?;
        items.drain(store, u64::MAX)?;
        store.transaction(|txn| {
            items.delete(txn, 0)?;
            items.update(txn, 1, |row| row.town = "Oslo".into())?;
            items.update(txn, 2, |row| row.code = 77)?;
            items.insert(txn, &roman(9))
        })?;

        let txn = store.read()?;
        let rome = || items.find_by_town_name(&txn, "Rome", "Li");
        // The index has the old values.
        let stale: Vec<_> = rome()
            .stale()
            .entries()
            .map(|entry| entry.map(|entry| (entry.id, entry.code)))
            .collect::<Result<_, _>>()?;
        assert_eq!(stale, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        assert_eq!(rome().stale().count()?, 6);
        assert_eq!(rome().stale().keys().collect::<Result<Vec<_>, _>>()?, [0, 1, 2, 3, 4, 5]);
        // Verified results have current rows. A row without an entry yet is missing.
        let ids = |rows: Vec<Item>| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let rows: Vec<_> = rome().verified().rows().collect::<Result<_, _>>()?;
        assert_eq!(rows[0].code, 77);
        let mut iterated = Vec::new();
        for row in rome().verified() {
            iterated.push(row?);
        }
        assert_eq!(iterated, rows);
        assert_eq!(ids(rows), [2, 3, 4, 5]);
        assert_eq!(rome().verified().count()?, 4);
        assert_eq!(rome().verified().first()?.map(|row| row.id), Some(2));
        assert!(rome().verified().exists()?);
        assert!(!items.find_by_town(&txn, "Oslo").verified().exists()?);
        // Limits count the remaining entries.
        let two: Vec<_> = rome().limit(2).verified().rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(two), [2, 3]);
        let last: Vec<_> = rome().rev().limit(1).verified().rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(last), [5]);
        assert_eq!(rome().limit(2).stale().entries().count(), 2);
        // Stale results leave out entries whose rows were deleted.
        let town = || items.find_by_town(&txn, "Rome").stale();
        let stale: Vec<_> = town().rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(stale), [1, 2, 3, 4, 5]);
        assert_eq!(town().limit(1).rows().count(), 1);
        assert_eq!(town().filter(|row| row.town == "Rome").count()?, 4);
        assert_eq!((town().count()?, ids(town().page(2)?.items)), (6, vec![1, 2]));
        let verified = || items.find_by_town(&txn, "Rome").verified();
        assert_eq!(verified().filter(|row| row.code == 77).count()?, 1);
        assert_eq!(ids(verified().filter(|row| row.id > 2).page(2)?.items), [3, 4]);
        let both: Vec<_> = verified().and(items.by_now(&txn)).rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(both), [2, 3, 4, 5]);
        let either: Vec<_> = town().or(verified()).rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(either), [1, 2, 3, 4, 5]);
        let both: Vec<_> = town().and(verified()).rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(both), [2, 3, 4, 5]);
        let entries: Vec<Item> = verified().entries().collect::<Result<_, _>>()?;
        assert_eq!(entries, rome().verified().rows().collect::<Result<Vec<_>, _>>()?);
        // Pages are verified too.
        let page = rome().verified().page(3)?;
        assert_eq!(ids(page.items), [2, 3, 4]);
        let next = page.next.ok_or("a page")?;
        let page = rome().after(&next).verified().page(3)?;
        assert_eq!((ids(page.items), page.next), (vec![5], None));
        let back = page.previous.ok_or("the first page")?;
        let page = rome().before(&back).verified().page(2)?;
        assert_eq!((ids(page.items), page.next.as_ref()), (vec![3, 4], Some(&back)));
        let page = rome().before(&page.previous.ok_or("the row 2")?).verified().page(2)?;
        assert_eq!((ids(page.items), page.previous), (vec![2], None));
        let last: Vec<_> =
            rome().before(&back).limit(2).verified().rows().collect::<Result<_, _>>()?;
        assert_eq!(ids(last), [3, 4]);
        assert_eq!(rome().before(&back).limit(9).verified().count()?, 3);
        assert_eq!(rome().before(&back).limit(0).verified().count()?, 0);
        // A hashed field is compared with the row, which may have been deleted.
        assert_eq!(items.find_by_url(&txn, &roman(0).url).verified().count()?, 5);
        assert_eq!(items.find_by_url(&txn, &roman(0).url).stale().entries().count(), 5);
        drop(txn);

        items.drain(store, u64::MAX)?;
        let txn = store.read()?;
        let rows: Vec<_> = items
            .find_by_town_name(&txn, "Rome", "Li")
            .verified()
            .rows()
            .collect::<Result<_, _>>()?;
        assert_eq!(ids(rows), [2, 3, 4, 5, 9]);
        // A strong index is always current.
        assert_eq!(items.by_now(&txn).count()?, 6);
        Ok(())
    })
}

/// The worker reads the current rows, so the order of the messages of both rows does not matter.
#[test]
fn rows_exchange_their_keys_before_their_messages_are_applied() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        store.transaction(|txn| {
            items.insert(txn, &item(1, 1))?;
            items.insert(txn, &item(2, 6))
        })?;
        let exchanged = [Item { number: 2, ..item(1, 6) }, Item { number: 1, ..item(2, 1) }];
        store.transaction(|txn| {
            items.update(txn, 1, |row| row.number = 0)?;
            items.put(txn, &exchanged[1])?;
            items.put(txn, &exchanged[0])
        })?;
        let check = || -> Result<()> {
            let txn = store.read()?;
            assert_clean(&items, &txn)?;
            assert_eq!(items.get_by_number(&txn, 1)?.as_ref(), Some(&exchanged[1]));
            assert_eq!(items.get_by_number(&txn, 2)?.as_ref(), Some(&exchanged[0]));
            Ok(())
        };
        check()?;
        while items.drain(store, 1)?.left > 0 {
            check()?;
        }
        check()?;
        assert_drained(&items, store)?;
        Ok(())
    })
}
