//! Watching the rows of scans.

use index_table::{ChangeKind, ChangeKind::*, Error, Event, IndexTable, Store, Watcher};
use serde::{Deserialize, Serialize};

use crate::{Person, TestResult, on_each, person, received, summary};

#[test]
fn rows_enter_and_leave_a_key() -> TestResult {
    on_each(|store, people| {
        let watcher = {
            let txn = store.read()?;
            people.watch(&store).only(people.find_by_town(&txn, "Redmond")).start()?
        };
        let mut txn = store.write()?;
        people.insert(&mut txn, &person(1))?; // Seattle
        people.insert(&mut txn, &person(2))?; // Redmond
        people.update(&mut txn, 1, |row| row.town = "Redmond".into())?;
        people.update(&mut txn, 1, |row| row.age += 1)?;
        people.update(&mut txn, 2, |row| row.town = "Redmonds".into())?;
        people.update(&mut txn, 2, |row| row.age += 1)?;
        people.update(&mut txn, 1, |row| row.id = 11)?;
        people.update(&mut txn, 11, |row| (row.id, row.town) = (12, "Oslo".into()))?;
        people.delete(&mut txn, 12)?;
        txn.commit()?;
        assert_eq!(
            received(&watcher).iter().map(summary).collect::<Vec<_>>(),
            [
                (Inserted, None, Some(2)),
                (Inserted, None, Some(1)),
                (Updated, Some(1), Some(1)),
                (Deleted, Some(2), None),
                (Moved, Some(1), Some(11)),
                (Deleted, Some(11), None),
            ]
        );
        Ok(())
    })
}

/// Events of rows that are not watched take no room.
#[test]
fn only_watched_rows_fill_the_buffer() -> TestResult {
    on_each(|store, people| {
        let watcher = {
            let txn = store.read()?;
            people.watch(&store).only(people.find_by_town(&txn, "Redmond")).buffer(2).start()?
        };
        let others = (0..100).map(|id| person(id * 2 + 1));
        store.transaction(|txn| others.clone().try_for_each(|row| people.insert(txn, &row)))?;
        store.transaction(|txn| people.insert(txn, &person(2)))?;
        assert_eq!(received(&watcher).len(), 1);
        Ok(())
    })
}

#[test]
fn several_scans_are_watched_together() -> TestResult {
    on_each(|store, people| {
        let watcher = {
            let txn = store.read()?;
            let (redmond, old) = (people.find_by_town(&txn, "Redmond"), people.by_adults(&txn));
            people.watch(&store).only(redmond).only(old).start()?
        };
        let child = Person { age: 3, ..person(1) };
        store.transaction(|txn| {
            people.insert(txn, &child)?; // in neither scan
            people.insert(txn, &person(21))?; // in the second scan
            people.insert(txn, &person(2))?; // in the first scan
            people.insert(txn, &person(22)) // in both scans, delivered once
        })?;
        assert_eq!(
            received(&watcher).iter().map(summary).collect::<Vec<_>>(),
            [21, 2, 22].map(|id| (Inserted, None, Some(id)))
        );
        Ok(())
    })
}

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
struct Reading {
    #[primary_key]
    sensor: u16,
    #[primary_key]
    at: u64,
    value: i32,
}

#[test]
fn ranges_and_prefixes_of_keys_are_watched() -> TestResult {
    let store = Store::in_memory();
    let readings = ReadingRepository::open(&store)?;
    let txn = store.read()?;
    let sensor = readings.watch(&store).only(readings.find_by_sensor(&txn, 7)).start()?;
    let range = readings.find_by_sensor_at_range(&txn, 7, 10..20);
    let range = readings.watch(&store).only(range).start()?;
    drop(txn);
    store.transaction(|txn| {
        [(6, 15), (7, 9), (7, 10), (7, 19), (7, 20), (8, 15)]
            .into_iter()
            .try_for_each(|(sensor, at)| readings.insert(txn, &Reading { sensor, at, value: 1 }))
    })?;
    assert_eq!(std::iter::from_fn(|| sensor.try_recv().ok()).count(), 4);
    assert_eq!(std::iter::from_fn(|| range.try_recv().ok()).count(), 2);
    Ok(())
}

mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
    #[table(name = "item")]
    pub(super) struct Item {
        #[primary_key]
        pub(super) id: u32,
        pub(super) code: u32,
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[table(name = "item")]
#[index(code)]
struct Item {
    #[primary_key]
    id: u32,
    code: u32,
}

#[test]
fn an_index_that_is_not_readable_can_not_be_watched() -> TestResult {
    let store = Store::in_memory();
    let items = before::ItemRepository::open(&store)?;
    store.transaction(|txn| items.insert(txn, &before::Item { id: 1, code: 2 }))?;
    drop(items);
    let items = ItemRepository::open_online(&store)?;
    let txn = store.read()?;
    let watch = items.watch(&store).only(items.find_by_code(&txn, 2));
    assert!(matches!(watch.start(), Err(Error::IndexNotReadable { .. })));
    drop(txn);
    // Building the index gives no events.
    let watcher = items.watch(&store).start()?;
    items.build(&store).run()?;
    assert!(watcher.try_recv().is_err());
    let txn = store.read()?;
    assert!(items.watch(&store).only(items.find_by_code(&txn, 2)).start().is_ok());
    Ok(())
}

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may be eventual")]
#[index(each(words), consistency = "eventual")]
#[index(hash(url), consistency = "eventual")]
struct Page {
    #[primary_key]
    id: u32,
    words: Vec<String>,
    url: String,
}

/// Events have the rows of the table, not the outdated copies in an eventual index.
#[test]
fn an_eventual_index_is_watched_by_its_rows() -> TestResult {
    let store = Store::in_memory();
    let pages = PageRepository::open(&store)?;
    let txn = store.read()?;
    let word = pages.watch(&store).only(pages.find_by_words(&txn, "loom")).start()?;
    let prefix = pages.find_by_words_starting_with(&txn, "lo").rev().limit(1);
    let prefix = pages.watch(&store).only(prefix).start()?;
    let url = pages.watch(&store).only(pages.find_by_url(&txn, "/2")).start()?;
    drop(txn);
    let page = |id: u32, words: &[&str]| Page {
        id,
        words: words.iter().map(ToString::to_string).collect(),
        url: format!("/{id}"),
    };
    store.transaction(|txn| {
        pages.insert(txn, &page(1, &["lord", "loom"]))?;
        pages.insert(txn, &page(2, &["engine", "lord"]))?;
        pages.put(txn, &page(1, &["lord"]))
    })?;
    let kinds = |watcher: &Watcher<Page>| -> Vec<ChangeKind> {
        let events = std::iter::from_fn(|| watcher.try_recv().ok());
        let kind = |event| match event {
            Event::Change(change) => change.kind(),
            Event::Lagged(lagged) => panic!("{lagged:?}"),
        };
        events.map(kind).collect()
    };
    assert_eq!(kinds(&word), [Inserted, Deleted]);
    assert_eq!(kinds(&prefix), [Inserted, Inserted, Updated]);
    assert_eq!(kinds(&url), [Inserted]);
    // The worker gives no events either.
    pages.drain(&store, u64::MAX)?;
    assert_eq!((kinds(&word), kinds(&url)), (vec![], vec![]));
    Ok(())
}
