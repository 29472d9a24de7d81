//! Rows with unordered collections.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use index_table::{Durability, FindingKind, IndexTable, OnDuplicate, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{counts, raw};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "pages", view)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(title, include = [tags, counts, maybe, list, nested, pair])]
#[index(title, name = "full", strategy = "full", allow(redundant))]
#[index(title, name = "later", include = [tags, counts], consistency = "eventual", allow(redundant))]
#[index(each(tags))]
struct Page {
    #[primary_key]
    id: u32,
    title: String,
    tags: HashSet<String>,
    counts: HashMap<u16, String>,
    maybe: Option<HashSet<i64>>,
    list: Vec<HashMap<String, u8>>,
    nested: BTreeMap<u8, HashMap<u8, HashSet<u32>>>,
    pair: (HashSet<u8>, Vec<u8>, Box<[std::collections::HashSet<u8>]>),
    /// A list, which keeps its order.
    words: Vec<String>,
}

/// A row with a collection that is ordered by `#[serde(with)]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "scores")]
struct Score {
    #[primary_key]
    id: u32,
    tags: HashSet<u32>,
    #[serde(with = "descending")]
    points: HashSet<u32>,
}

/// A serde format with the greatest element first.
mod descending {
    use std::collections::HashSet;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        points: &HashSet<u32>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut points: Vec<u32> = points.iter().copied().collect();
        points.sort_unstable_by(|a, b| b.cmp(a));
        points.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<HashSet<u32>, D::Error> {
        let points = Vec::<u32>::deserialize(from)?;
        if points.is_sorted_by(|a, b| a > b) {
            Ok(points.into_iter().collect())
        } else {
            Err(D::Error::custom("the points have another order"))
        }
    }
}

/// Returns an equal row each time, with its collections in a different order.
fn page(id: u32) -> Page {
    let strings = || (0..30).map(|n| format!("tag {}", n * 7 % 30));
    let numbers = 0..30_u8;
    Page {
        id,
        title: "Index".into(),
        tags: strings().collect(),
        counts: (0..3000).step_by(100).zip(strings()).collect(),
        maybe: Some((-15..15).collect()),
        list: vec![strings().zip(0..).collect(), HashMap::new(), strings().zip(7..).collect()],
        nested: [1, 2]
            .map(|key| {
                let sets = numbers.clone().map(|n| (n, (0..u32::from(n)).collect()));
                (key, sets.collect())
            })
            .into(),
        pair: (
            numbers.clone().collect(),
            numbers.clone().rev().collect(),
            [numbers.clone().collect(), numbers.collect()].into(),
        ),
        words: ["b", "c", "a"].map(String::from).into(),
    }
}

fn score(id: u32) -> Score {
    Score { id, tags: (0..30).collect(), points: (0..300).step_by(10).collect() }
}

fn open(dir: &Path) -> Result<(Store, PageRepository)> {
    let store = Store::options().map_size(1 << 24).durability(Durability::None).open(dir)?;
    let pages = PageRepository::open(&store)?;
    Ok((store, pages))
}

#[test]
fn an_equal_row_is_no_change() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, pages) = open(dir.path())?;
    store.transaction(|txn| (0..20).try_for_each(|id| pages.insert(txn, &page(id))))?;
    pages.drain(&store, u64::MAX)?;
    let watcher = pages.watch(&store).start()?;
    let written = || {
        let written = pages.usage();
        written.indexes.iter().map(|index| index.written).collect::<Vec<_>>()
    };
    let before = written();
    store.transaction(|txn| {
        (0..20).try_for_each(|id| {
            pages.put(txn, &page(id))?;
            pages.update(txn, id, |row| *row = page(id)).map(|found| assert!(found))
        })
    })?;
    pages
        .bulk_load(&store, (0..20).map(page))
        .on_duplicate(OnDuplicate::Replace)
        .run()
        .map(|report| assert_eq!(report.replaced, 0))?;
    assert!(watcher.try_recv().is_err());
    assert_eq!(written(), before);
    let txn = store.read()?;
    assert_eq!(pages.lag(&txn)?.messages, 0);
    let report = pages.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn equal_rows_have_the_same_bytes() -> Result<()> {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for dir in &dirs {
        let (store, pages) = open(dir.path())?;
        store.transaction(|txn| pages.insert(txn, &page(7)))?;
        pages.drain(&store, u64::MAX)?;
    }
    for name in ["pages", "pages.title", "pages.full", "pages.later", "pages.tags"] {
        let [one, other] = [0, 1].map(|dir| raw::on(dirs[dir].path(), name, |raw| raw.entries()));
        assert!(!one.is_empty());
        assert_eq!(one, other, "{name}");
    }
    Ok(())
}

#[test]
fn every_query_reads_sorted_collections() -> Result<()> {
    let store = Store::in_memory();
    let pages = PageRepository::open(&store)?;
    store.transaction(|txn| pages.insert(txn, &page(7)))?;
    pages.drain(&store, u64::MAX)?;
    let txn = store.read()?;
    assert_eq!(pages.get(&txn, 7)?, Some(page(7)));
    assert_eq!(pages.find_by_title(&txn, "Index").page(10)?.items, [page(7)]);
    assert_eq!(pages.find_by_full(&txn, "Index").rows().collect::<Result<Vec<_>>>()?, [page(7)]);
    assert_eq!(pages.find_by_tags(&txn, "tag 3").rows().count(), 1);
    let view = pages.get_view(&txn, 7)?.expect("a row");
    assert_eq!((&view.tags, &view.nested, view.words.len()), (&page(7).tags, &page(7).nested, 3));
    let entry = pages.find_by_title(&txn, "Index").entries().next().expect("an entry")?;
    let Page { tags, counts, maybe, list, nested, pair, .. } = page(7);
    assert_eq!((entry.tags, entry.counts, entry.maybe), (tags, counts, maybe));
    assert_eq!((entry.list, entry.nested, entry.pair), (list, nested, pair));
    Ok(())
}

#[test]
fn a_format_of_serde_with_keeps_its_order() -> Result<()> {
    let store = Store::in_memory();
    let scores = ScoreRepository::open(&store)?;
    let watcher = scores.watch(&store).start()?;
    store.transaction(|txn| scores.insert(txn, &score(1)))?;
    store.transaction(|txn| scores.put(txn, &score(1)))?;
    assert_eq!(scores.get(&store.read()?, 1)?, Some(score(1)));
    assert!(watcher.try_recv().is_ok() && watcher.try_recv().is_err());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "groups")]
#[index(name, include = [set, map])]
#[index(name, name = "full", strategy = "full", allow(redundant))]
struct Group {
    #[primary_key]
    id: u8,
    name: String,
    set: HashSet<u8>,
    map: HashMap<String, u8>,
}

fn group() -> Group {
    let map = [("b", 1), ("a", 2), ("ab", 0)].map(|(key, value)| (key.to_owned(), value));
    Group { id: 7, name: "Oz".into(), set: [9, 3, 200].into(), map: map.into() }
}

/// The bytes in `docs/FORMAT.md`: the number of the list, then the fields.
#[rustfmt::skip]
const GROUP: [u8; 20] = [
    0x00, 0x07, 0x02, 0x4f, 0x7a,
    0x03, 0x03, 0x09, 0xc8,
    0x03, 0x01, 0x61, 0x02, 0x01, 0x62, 0x01, 0x02, 0x61, 0x62, 0x00,
];

#[test]
fn elements_are_stored_in_the_order_of_their_bytes() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = small(dir.path())?;
        let groups = GroupRepository::open(&store)?;
        store.transaction(|txn| groups.insert(txn, &group()))?;
    }
    let stored = |name: &str| raw::on(dir.path(), name, |raw| raw.entries());
    assert_eq!(stored("groups"), [(vec![7], GROUP.to_vec())]);
    assert_eq!(
        stored("groups.name"),
        [(b"Oz\0\x07".to_vec(), [&GROUP[..1], &GROUP[5..]].concat())]
    );
    assert_eq!(stored("groups.full"), [(b"Oz\0\x07".to_vec(), GROUP.to_vec())]);
    Ok(())
}

fn small(dir: &Path) -> Result<Store> {
    Store::options().map_size(1 << 24).durability(Durability::None).open(dir)
}

/// A table as two releases declare it. The later one has another field in a struct inside of its rows, so its rows have
/// the second list, with a union of both structs.
mod earlier {
    use super::{Deserialize, HashSet, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "crowds")]
    #[index(name, include = [set])]
    #[index(name, name = "full", strategy = "full", allow(redundant))]
    pub(super) struct Crowd {
        #[primary_key]
        pub(super) id: u8,
        pub(super) name: String,
        pub(super) set: HashSet<u8>,
        pub(super) place: Place,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Place {
        pub(super) town: String,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "crowds")]
#[index(name, include = [set])]
#[index(name, name = "full", strategy = "full", allow(redundant))]
struct Crowd {
    #[primary_key]
    id: u8,
    name: String,
    set: HashSet<u8>,
    place: Place,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    #[serde(default)]
    floor: u8,
    town: String,
}

fn crowd() -> Crowd {
    let place = Place { floor: 0, town: "Rome".into() };
    Crowd { id: 7, name: "Oz".into(), set: [9, 3, 200].into(), place }
}

/// The row of the earlier release, which has the first list.
const EARLIER: &[u8] = b"\x00\x07\x02Oz\x03\x03\x09\xc8\x04Rome";

/// Writes the row with the earlier release.
fn write_earlier(dir: &Path) -> Result<()> {
    let place = earlier::Place { town: "Rome".into() };
    let row = earlier::Crowd { id: 7, name: "Oz".into(), set: [200, 9, 3].into(), place };
    let store = small(dir)?;
    let crowds = earlier::CrowdRepository::open(&store)?;
    store.transaction(|txn| crowds.insert(txn, &row))
}

/// Checks that the row and its entry in the full index have these bytes.
fn assert_crowd(dir: &Path, row: &[u8]) {
    let stored = |name: &str| raw::on(dir, name, |raw| raw.entries());
    assert_eq!(stored("crowds"), [(vec![7], row.to_vec())]);
    assert_eq!(stored("crowds.full"), [(b"Oz\0\x07".to_vec(), row.to_vec())]);
    let included = [&row[..1], &row[5..9]].concat();
    assert_eq!(stored("crowds.name"), [(b"Oz\0\x07".to_vec(), included)]);
}

#[test]
fn an_equal_row_of_another_list_is_no_change() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    assert_crowd(dir.path(), EARLIER);
    {
        let store = small(dir.path())?;
        let crowds = CrowdRepository::open(&store)?;
        let watcher = crowds.watch(&store).start()?;
        store.transaction(|txn| {
            crowds.put(txn, &crowd())?;
            crowds.update(txn, 7, |row| *row = crowd()).map(|found| assert!(found))
        })?;
        assert!(watcher.try_recv().is_err());
        let report = crowds.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
    }
    assert_crowd(dir.path(), EARLIER);
    {
        // A different row of the same length is written.
        let store = small(dir.path())?;
        let crowds = CrowdRepository::open(&store)?;
        let watcher = crowds.watch(&store).start()?;
        let change = |row: &mut Crowd| row.set = [9, 3, 201].into();
        store.transaction(|txn| crowds.update(txn, 7, change).map(drop))?;
        assert!(watcher.try_recv().is_ok());
        assert!(crowds.verify(&store.read()?).run()?.is_clean());
    }
    assert_crowd(dir.path(), b"\x01\x07\x02Oz\x03\x03\x09\xc9\x01\x00\x04Rome");
    Ok(())
}

#[test]
fn a_bulk_load_of_an_equal_row_of_another_list_is_no_change() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    {
        let store = small(dir.path())?;
        let crowds = CrowdRepository::open(&store)?;
        let watcher = crowds.watch(&store).start()?;
        let report =
            crowds.bulk_load(&store, [crowd()]).on_duplicate(OnDuplicate::Replace).run()?;
        assert_eq!(report.replaced, 0);
        assert!(watcher.try_recv().is_err());
        let report = crowds.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
    }
    // The load has written the row with its current list.
    assert_crowd(dir.path(), b"\x01\x07\x02Oz\x03\x03\x09\xc8\x01\x00\x04Rome");
    Ok(())
}

#[test]
fn included_elements_in_another_order_are_stale() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    raw::on(dir.path(), "crowds.name", |raw| raw.put(b"Oz\0\x07", [3, 0xc8, 9, 3]));
    let store = small(dir.path())?;
    let crowds = CrowdRepository::open(&store)?;
    let report = crowds.verify(&store.read()?).run()?;
    assert_eq!(counts(&report), [(FindingKind::Stale, 1)], "{report}");
    store.transaction(|txn| crowds.repair(txn).run().map(|report| assert_eq!(report.left, 0)))?;
    assert!(crowds.verify(&store.read()?).run()?.is_clean());
    Ok(())
}
