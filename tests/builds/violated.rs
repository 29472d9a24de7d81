//! Unique indexes with duplicates. Until the duplicates are resolved, such an index is maintained and read
//! like an index that isn't unique.

use std::collections::{BTreeMap, BTreeSet};

use index_table::{Error, FindingKind, IndexState, Store};
use proptest::prelude::*;

use crate::{TestResult, after, assert_clean, fill, item, on_each, unreadable};

const UNIQUE: [&str; 4] = ["code", "coded", "noted", "once"];

/// Returns the rows 0 to 59. Some have the keys of one of the two rows before them.
fn duplicates() -> impl Iterator<Item = after::Item> + Clone {
    (0..60).map(|id| {
        let key_holder = match (id % 10, id % 3) {
            (9, _) => id - 2,
            (_, 2) => id - 1,
            _ => id,
        };
        after::Item { town: "Oz".into(), ..item(id, key_holder * 2) }
    })
}

/// Returns the number of duplicates.
fn count() -> u64 {
    let by_code: BTreeSet<_> = duplicates().map(|row| row.code).collect();
    60 - by_code.len() as u64
}

/// Opens the table, and builds the indexes as far as duplicates allow.
fn open(store: &Store) -> Result<after::ItemRepository, Box<dyn std::error::Error>> {
    let items = after::ItemRepository::open_online(store)?;
    items.build(store).batch_bytes(500).run()?;
    Ok(items)
}

fn is_violated(store: &Store) -> index_table::Result<bool> {
    let states = unreadable(store)?;
    assert!(states.iter().all(|(_, state)| matches!(state, IndexState::Violated(_))), "{states:?}");
    Ok(!states.is_empty())
}

/// Compares the unique indexes with the rows.
fn compare(items: &after::ItemRepository, store: &Store) -> TestResult {
    let txn = store.read()?;
    let rows = items.all(&txn).rows().collect::<Result<Vec<_>, _>>()?;
    let mut by_code: BTreeMap<(u64, u32), &after::Item> = BTreeMap::new();
    let mut by_note: BTreeMap<(&str, u32), &after::Item> = BTreeMap::new();
    for row in &rows {
        by_code.insert((row.code, row.id), row);
        by_note.extend(row.note.as_deref().map(|note| ((note, row.id), row)));
    }
    let expected: Vec<_> = by_code.values().copied().cloned().collect();
    assert_eq!(items.by_code(&txn).rows().collect::<Result<Vec<_>, _>>()?, expected);
    let reversed = items.by_code(&txn).rev().rows().collect::<Result<Vec<_>, _>>()?;
    assert!(reversed.iter().eq(expected.iter().rev()));
    assert_eq!(items.by_code(&txn).count()?, expected.len() as u64);
    let entries = items.by_coded(&txn).entries().collect::<Result<Vec<_>, _>>()?;
    let entries = entries.iter().map(|entry| (entry.code, entry.id, entry.name));
    let in_order =
        |a: &&after::Item, b: &&after::Item| (a.code, &a.town, a.id).cmp(&(b.code, &b.town, b.id));
    let mut coded: Vec<_> = rows.iter().collect();
    coded.sort_by(in_order);
    assert!(entries.eq(coded.iter().map(|row| (row.code, row.id, row.name.as_str()))));
    let noted = items.by_noted(&txn).entries().collect::<Result<Vec<_>, _>>()?;
    let noted = noted.iter().map(|entry| (entry.note, entry.id, entry.town));
    assert!(noted.eq(by_note.values().map(|row| (row.note.as_deref(), row.id, &*row.town))));

    // Pages of every size, in both directions, have each row once.
    for size in [1, 2, 3, 7] {
        for reverse in [false, true] {
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let scan = items.by_code(&txn);
                let scan = if reverse { scan.rev() } else { scan };
                let scan = if let Some(after) = &after { scan.after(after) } else { scan };
                let page = scan.page(size)?;
                paged.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            if reverse {
                paged.reverse();
            }
            assert_eq!(paged, expected);
        }
    }

    let mut groups: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (code, id) in by_code.keys() {
        groups.entry(*code).or_default().push(*id);
    }
    for (code, ids) in &groups {
        let found = |scan: index_table::Scan<'_, _>| scan.keys().collect::<Result<Vec<u32>, _>>();
        assert_eq!(found(items.find_by_code(&txn, *code))?, *ids);
        assert_eq!(items.find_by_code(&txn, *code).count()?, ids.len() as u64);
        let both = items.find_by_code(&txn, *code).and(items.find_by_town(&txn, "Oz"));
        let oz = |id: &u32| by_code[&(*code, *id)].town == "Oz";
        let expected: Vec<_> = ids.iter().copied().filter(oz).collect();
        assert_eq!(both.keys().collect::<Result<Vec<u32>, _>>()?, expected);
    }
    let distinct = items.distinct_code(&txn);
    let expected = groups.iter().map(|(code, ids)| (*code, ids.len() as u64));
    assert_eq!(distinct.counts().collect::<Result<Vec<_>, _>>()?, expected.collect::<Vec<_>>());
    for row in &rows {
        let same = rows.iter().filter(|other| other.url == row.url).map(|other| other.id);
        let found = items.find_by_once(&txn, &row.url).keys().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(found, same.collect::<Vec<_>>());
    }
    assert_clean(items, &txn)?;
    Ok(())
}

#[test]
fn a_scan_returns_all_rows_of_a_duplicate_key() -> TestResult {
    on_each(duplicates(), |store| {
        let items = open(store)?;
        let states = unreadable(store)?;
        assert!(states.iter().map(|(name, _)| name.as_str()).eq(UNIQUE), "{states:?}");
        compare(&items, store)?;
        let txn = store.read()?;
        assert_eq!(items.find_by_code(&txn, 114).keys().collect::<Result<Vec<_>, _>>()?, [7, 8, 9]);
        let results = [
            items.get_by_code(&txn, 114).map(drop),
            // This key has no duplicates.
            items.get_by_code(&txn, 106).map(drop),
            items.get_by_once(&txn, "https://example.com/14").map(drop),
        ];
        for results in results {
            let Err(Error::IndexNotReadable { table: "items", state, .. }) = &results else {
                return Err(format!("{results:?}").into());
            };
            let IndexState::Violated(duplicates) = state else { return Err("a state".into()) };
            assert_eq!((duplicates.count, duplicates.first.len() as u64), (count(), count()));
        }
        Ok(())
    })
}

#[test]
fn a_violated_index_is_maintained_and_refuses_no_key() -> TestResult {
    on_each(duplicates(), |store| {
        let items = open(store)?;
        let write = |change: &dyn Fn(&mut index_table::WriteTxn<'_>) -> index_table::Result<()>| {
            store.transaction(|txn| change(txn))?;
            compare(&items, store)
        };
        // New rows with a key of other rows, with primary keys before, after and between theirs.
        for id in [200, 6, 100] {
            write(&|txn| {
                items.delete(txn, 6)?;
                items.insert(txn, &after::Item { town: "Bonn".into(), ..item(id, 14) })
            })?;
        }
        assert_eq!(items.find_by_code(&store.read()?, 114).count()?, 5);
        // The first row of a key is deleted, a row in the middle, and the last one.
        for id in [7, 9, 200] {
            write(&|txn| items.delete(txn, id).map(drop))?;
        }
        // Updates change keys, included fields and primary keys.
        write(&|txn| items.update(txn, 8, |row| row.code = 1).map(drop))?;
        write(&|txn| items.update(txn, 8, |row| row.code = 100).map(drop))?;
        write(&|txn| items.update(txn, 1, |row| row.name = "Other".into()).map(drop))?;
        write(&|txn| items.update(txn, 2, |row| row.name = "Another".into()).map(drop))?;
        write(&|txn| items.update(txn, 1, |row| row.id = 300).map(drop))?;
        write(&|txn| items.update(txn, 300, |row| row.id = 0).map(drop)).unwrap_err();
        write(&|txn| items.update(txn, 300, |row| row.id = 1).map(drop))?;
        write(&|txn| items.put(txn, &item(2, 4)))?;
        let rows = (30..90).map(|id| item(id, id / 2));
        items.bulk_load(store, rows).on_duplicate(index_table::OnDuplicate::Replace).run()?;
        compare(&items, store)?;
        assert!(is_violated(store)?);
        Ok(())
    })
}

/// Between two pages, the first row of a key is deleted, or another row is inserted before it.
#[test]
fn pages_of_a_shared_key_skip_and_repeat_no_row() -> TestResult {
    on_each(duplicates(), |store| {
        let items = open(store)?;
        let txn = store.read()?;
        let (from, to) = (items.find_by_code(&txn, 114), items.find_by_code(&txn, 114).rev());
        let (from, to) = (from.page(1)?, to.page(2)?);
        let ids = |rows: &[after::Item]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!((ids(&from.items), ids(&to.items)), (vec![7], vec![9, 8]));
        let (from, to) = (from.next.ok_or("no more")?, to.next.ok_or("no more")?);
        drop(txn);
        let check = |second_entry: &[u32], before: &[u32]| -> TestResult {
            let txn = store.read()?;
            let rest = items.find_by_code(&txn, 114).after(&from).page(9)?;
            assert_eq!(ids(&rest.items), second_entry);
            let rest = items.find_by_code(&txn, 114).rev().after(&to).page(9)?;
            assert_eq!(ids(&rest.items), before);
            Ok(())
        };
        check(&[8, 9], &[7])?;
        store.transaction(|txn| items.delete(txn, 7))?;
        check(&[8, 9], &[])?;
        store.transaction(|txn| items.put(txn, &item(4, 14)))?;
        check(&[8, 9], &[4])?;
        store.transaction(|txn| items.delete(txn, 8))?;
        check(&[9], &[4])
    })
}

/// The build reads no row, because the index has all entries.
#[test]
fn a_violated_index_becomes_readable_when_the_duplicates_are_resolved() -> TestResult {
    on_each(duplicates(), |store| {
        let items = open(store)?;
        // The catalog lists resolved duplicates until the next build.
        store.transaction(|txn| items.delete(txn, 2))?;
        let report = items.build(store).run()?;
        assert_eq!((report.rows, report.steps), (0, 0), "{report}");
        let code = report.indexes.iter().find(|index| index.name == "code").ok_or("none")?;
        let IndexState::Violated(duplicates) = &code.state else { return Err("readable".into()) };
        assert_eq!(duplicates.count, count() - 1);
        let first = &duplicates.first[0];
        assert_eq!((&*first.key, &*first.holder, &*first.row), ("108", "4", "5"));

        let ids: Vec<u32> = items.all(&store.read()?).keys().collect::<Result<_, _>>()?;
        store.transaction(|txn| {
            let mut ids = ids.iter().copied();
            ids.try_for_each(|id| items.put(txn, &item(id, id * 2)))
        })?;
        assert!(is_violated(store)?, "the index became readable without a build");
        let report = items.build(store).run()?;
        assert!(report.is_readable() && report.rows == 0, "{report}");
        assert!(!is_violated(store)?);
        compare(&items, store)?;
        assert_eq!(items.get_by_code(&store.read()?, 110)?.map(|row| row.id), Some(5));
        let result = store.transaction(|txn| items.insert(txn, &item(500, 10)));
        assert!(matches!(result, Err(Error::UniqueViolation { index: "code", .. })), "{result:?}");
        Ok(())
    })
}

/// A row with a duplicate key has its entry before and after the build reads it.
#[test]
fn a_build_keeps_the_entries_of_duplicates() -> TestResult {
    on_each(duplicates(), |store| {
        let items = after::ItemRepository::open_online(store)?;
        items.build(store).batch_bytes(500).limit(3).run()?;
        store.transaction(|txn| {
            for id in (0..60).rev() {
                items.update(txn, id, |row| row.name.push('x'))?;
            }
            items.update(txn, 50, |row| row.id = 90)?;
            items.delete(txn, 7)
        })?;
        items.build(store).batch_bytes(500).run()?;
        assert!(is_violated(store)?);
        compare(&items, store)
    })
}

#[test]
fn an_index_stays_violated_in_a_reopened_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 28).durability(index_table::Durability::None);
    {
        let store = options.open(dir.path())?;
        fill(&store, duplicates())?;
        drop(open(&store)?);
    }
    let store = options.open(dir.path())?;
    let result = after::ItemRepository::open(&store).map(drop);
    assert!(matches!(result, Err(Error::UniqueViolation { .. })), "{result:?}");
    let items = after::ItemRepository::open_online(&store)?;
    compare(&items, &store)?;
    store.transaction(|txn| (0..60).try_for_each(|id| items.put(txn, &item(id, id * 2))))?;
    drop(items);
    let items = after::ItemRepository::open(&store)?;
    assert!(!is_violated(&store)?);
    compare(&items, &store)
}

/// Further entries of a key are stored under key and primary key, whose common length has a limit.
#[test]
fn a_key_without_room_for_a_primary_key_is_not_shared() -> TestResult {
    mod before {
        #[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]
        #[table(name = "pages")]
        pub(crate) struct Page {
            #[primary_key]
            pub(crate) path: String,
            pub(crate) title: String,
        }
    }
    #[derive(Debug, serde::Serialize, serde::Deserialize, index_table::IndexTable)]
    #[table(name = "pages")]
    #[index(title, unique)]
    struct Page {
        #[primary_key]
        path: String,
        title: String,
    }

    let title = |letter: &str| letter.repeat(400);
    let path = |letter: &str, len: usize| letter.repeat(len);
    let store = Store::in_memory();
    let dir = tempfile::tempdir()?;
    let on_disk = Store::options().map_size(1 << 26).open(dir.path())?;
    for store in [on_disk, store] {
        let pages = before::PageRepository::open(&store)?;
        let row = |path: String, title: String| before::Page { path, title };
        store.transaction(|txn| {
            pages.insert(txn, &row(path("m", 20), title("a")))?;
            pages.insert(txn, &row(path("n", 20), title("a")))?;
            pages.insert(txn, &row(path("p", 120), title("b")))?;
            pages.insert(txn, &row(path("q", 120), title("b")))
        })?;
        drop(pages);
        let pages = PageRepository::open_online(&store)?;
        let outcome = pages.build(&store).run();
        assert!(
            matches!(
                &outcome,
                Err(Error::KeyTooLong { index: Some("title"), len: 522, row: Some(row), .. })
                    if row.starts_with("\"q")
            ),
            "{outcome:?}"
        );
        store.transaction(|txn| pages.delete(txn, &path("q", 120)))?;
        pages.build(&store).run()?;
        assert!(is_violated(&store)?);
        let assert_too_long = |path: String, letter: &str| {
            let page = Page { path, title: title(letter) };
            let result = store.transaction(|txn| {
                let result = pages.put(txn, &page);
                assert!(pages.get(txn, &page.path)?.is_none(), "the refused row was written");
                result
            });
            assert!(matches!(result, Err(Error::KeyTooLong { .. })), "{result:?}");
        };
        assert_too_long(path("z", 120), "a");
        // The existing row with the key would no longer be the first one.
        assert_too_long(path("o", 20), "b");
        store.transaction(|txn| {
            pages.put(txn, &Page { path: path("z", 120), title: title("c") })?;
            // The entry of the first row has no primary key after its key.
            pages.put(txn, &Page { path: path("a", 120), title: title("a") })
        })?;
        let txn = store.read()?;
        assert_eq!(pages.find_by_title(&txn, &title("a")).count()?, 3);
        assert!(pages.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

/// Damage of a violated index is found and repaired.
#[test]
fn entries_of_a_violated_index_are_verified_and_repaired() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 28).durability(index_table::Durability::None);
    {
        let store = options.open(dir.path())?;
        fill(&store, duplicates())?;
        drop(open(&store)?);
    }
    let code = |id: u64| (100 + id).to_be_bytes().to_vec();
    let second_entry = |id: u64, row: u32| [code(id), row.to_be_bytes().to_vec()].concat();
    let value = |row: u32| row.to_be_bytes().to_vec();
    raw(dir.path(), "items.code", |index, txn| {
        // The damage: a further entry is missing, the first entry of a key, and both; an entry is stored
        // twice, another at the wrong position, and another has no row.
        assert!(index.delete(txn, &second_entry(14, 8))?);
        assert!(index.delete(txn, &code(2))?);
        assert!(index.delete(txn, &code(8))? && index.delete(txn, &second_entry(8, 5))?);
        index.put(txn, &second_entry(14, 7), &value(7))?;
        index.put(txn, &second_entry(20, 3), &value(3))?;
        index.put(txn, &second_entry(26, 999), &value(999))
    })?;
    let store = options.open(dir.path())?;
    let items = after::ItemRepository::open_online(&store)?;
    let report = items.verify(&store.read()?).run()?;
    assert!(report.count(FindingKind::Malformed) >= 2, "{report}");
    assert!(report.count(FindingKind::Missing) >= 3, "{report}");
    assert_eq!(report.count(FindingKind::Dangling), 1, "{report}");
    let report = store.transaction(|txn| items.repair(txn).run())?;
    assert_eq!(report.left, 0, "{report}");
    compare(&items, &store)
}

/// Earlier releases emptied violated indexes.
#[test]
fn an_index_emptied_by_an_earlier_release_is_built() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 28).durability(index_table::Durability::None);
    {
        let store = options.open(dir.path())?;
        fill(&store, duplicates())?;
        drop(open(&store)?);
    }
    raw(dir.path(), ".catalog", |catalog, txn| {
        catalog.put(txn, b"items.code", b"\x01\x01\x01\x05\"a@x\"\x011\x012")
    })?;
    raw(dir.path(), "items.code", |index, txn| index.clear(txn))?;
    let store = options.open(dir.path())?;
    let items = after::ItemRepository::open_online(&store)?;
    let result = items.by_code(&store.read()?).count();
    let Err(Error::IndexNotReadable { index: "code", state, .. }) = result else {
        return Err(format!("{result:?}").into());
    };
    assert!(matches!(state, IndexState::Building { rows: 0, .. }), "{state:?}");
    assert_eq!(items.build(&store).run()?.rows, 60);
    assert!(is_violated(&store)?);
    compare(&items, &store)
}

/// Runs `work` on a database of the file in a write transaction.
fn raw(
    path: &std::path::Path,
    name: &str,
    work: impl FnOnce(
        heed::Database<'_, heed::types::Bytes, heed::types::Bytes>,
        &mut heed::RwTxn<'_>,
    ) -> heed::Result<()>,
) -> TestResult {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(40).map_size(1 << 28).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.open_database(txn, Some(name))?.expect("the database exists");
        work(database, txn)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    Put(u32, u32),
    Move(u32, u32),
    Rename(u32),
    Delete(u32),
    Build,
    Step,
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || 0..40_u32;
    prop_oneof![
        4 => (id(), 0..12_u32).prop_map(|(id, number)| Operation::Put(id, number)),
        2 => (id(), id()).prop_map(|(from, to)| Operation::Move(from, to)),
        2 => id().prop_map(Operation::Rename),
        2 => id().prop_map(Operation::Delete),
        1 => Just(Operation::Build),
        2 => Just(Operation::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_changes_of_a_violated_index_are_maintained(
        numbers in prop::collection::vec(0..12_u32, 5..30),
        steps in 0..4_u64,
        operations in prop::collection::vec(operation(), 1..40),
    ) {
        let rows = (0..).zip(numbers).map(|(id, number)| item(id, number));
        on_each(rows.collect::<Vec<_>>(), |store| {
            let items = after::ItemRepository::open_online(store)?;
            items.build(store).batch_bytes(200).limit(steps).run()?;
            for operation in &operations {
                // During the build, and without duplicates, writes may be refused.
                let _ = match operation {
                    Operation::Put(id, number) => {
                        store.transaction(|txn| items.put(txn, &item(*id, *number)))
                    }
                    Operation::Move(from, to) => store.transaction(|txn| {
                        items.update(txn, *from, |row| row.id = *to).map(drop)
                    }),
                    Operation::Rename(id) => store.transaction(|txn| {
                        items.update(txn, *id, |row| row.name.push('x')).map(drop)
                    }),
                    Operation::Delete(id) => store.transaction(|txn| items.delete(txn, *id).map(drop)),
                    Operation::Build => {
                        items.build(store).batch_bytes(200).run()?;
                        compare(&items, store)?;
                        Ok(())
                    }
                    Operation::Step => {
                        items.build(store).batch_bytes(200).limit(1).run()?;
                        Ok(())
                    }
                };
            }
            items.build(store).batch_bytes(200).run()?;
            compare(&items, store)?;
            let ids: Vec<u32> = items.all(&store.read()?).keys().collect::<Result<_, _>>()?;
            store.transaction(|txn| ids.iter().try_for_each(|id| items.delete(txn, *id).map(drop)))?;
            store.transaction(|txn| {
                ids.iter().try_for_each(|id| items.put(txn, &item(*id, 100 + *id)))
            })?;
            assert!(items.build(store).run()?.is_readable());
            compare(&items, store)
        }).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
