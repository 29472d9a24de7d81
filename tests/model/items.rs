//! A table with a primary key of fixed length, whose normalized indexes are packed into blocks.

use std::{collections::BTreeMap, ops::Bound};

use index_table::{Error, IndexEntry, IndexTable, ReadTxn, Result, Scan, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Open, assert_clean, fail, on_both_engines, pairs, scans::assert_scan, text};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(color)]
#[index(color, size, strategy = "partial", include = [weight, note])]
#[index(size, color, name = "size_then_color")]
#[index(size, strategy = "full")]
#[index(code, unique)]
#[index(code, color, unique, include = [size], name = "coded")]
#[index(each(tags))]
#[index(kind, each(tags), include = [tags])]
#[index(each(tags), kind, strategy = "full", name = "tagged", allow(doubled_full))]
#[index(note)]
struct Item {
    #[primary_key]
    id: i32,
    color: String,
    size: i16,
    code: u32,
    kind: bool,
    weight: f64,
    note: Option<String>,
    tags: Vec<String>,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::of::<Item>();

type Model = BTreeMap<i32, Item>;

#[derive(Debug, Clone)]
enum Operation {
    Insert(Item),
    Put(Item),
    Update(i32, Item),
    Delete(i32),
    Commit,
    Abort,
    /// Commits, closes the store and opens it again.
    Reopen,
}

fn item() -> impl Strategy<Value = Item> {
    let tags = prop::collection::vec(text(), 0..4);
    let fields = (text(), -3..3_i16, 0..40_u32, any::<bool>(), -1.0..1.0, prop::option::of(text()));
    (-30..30_i32, fields, tags).prop_map(|(id, (color, size, code, kind, weight, note), tags)| {
        Item { id, color, size, code, kind, weight, note, tags }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => item().prop_map(Operation::Insert),
        10 => item().prop_map(Operation::Put),
        6 => (-30..30, item()).prop_map(|(id, item)| Operation::Update(id, item)),
        4 => (-30..30).prop_map(Operation::Delete),
        2 => Just(Operation::Commit),
        1 => Just(Operation::Abort),
        1 => Just(Operation::Reopen),
    ]
}

/// Returns the error that writing `new` instead of `old` must return.
fn obstacle(model: &Model, old: Option<i32>, new: &Item, overwrite: bool) -> Option<&'static str> {
    if !overwrite && old != Some(new.id) && model.contains_key(&new.id) {
        return Some("DuplicateKey");
    }
    let others = || model.values().filter(|other| other.id != new.id && Some(other.id) != old);
    // `coded` can't be violated without `code`.
    others().any(|other| other.code == new.code).then_some("UniqueViolation")
}

fn check_outcome(outcome: Result<()>, expected: Option<&str>) -> Result<bool, TestCaseError> {
    match (outcome, expected) {
        (Ok(()), None) => Ok(true),
        (Err(Error::DuplicateKey { .. }), Some("DuplicateKey"))
        | (Err(Error::UniqueViolation { .. }), Some("UniqueViolation")) => Ok(false),
        (outcome, expected) => {
            Err(TestCaseError::fail(format!("{outcome:?} instead of {expected:?}")))
        }
    }
}

/// Runs operations until the next `Reopen`. At the start and at the end, the model equals the committed rows.
fn run_in_one_store(
    store: &Store,
    committed: &mut Model,
    operations: &[Operation],
) -> Result<(), TestCaseError> {
    let items = ItemRepository::open(store).map_err(fail)?;
    compare(&items, &store.read().map_err(fail)?, committed)?;
    let mut model = committed.clone();
    let mut txn = store.write().map_err(fail)?;
    for operation in operations {
        match operation {
            Operation::Insert(item) => {
                let expected = obstacle(&model, None, item, false);
                if check_outcome(items.insert(&mut txn, item), expected)? {
                    model.insert(item.id, item.clone());
                }
            }
            Operation::Put(item) => {
                let expected = obstacle(&model, None, item, true);
                if check_outcome(items.put(&mut txn, item), expected)? {
                    model.insert(item.id, item.clone());
                }
            }
            Operation::Update(id, item) => {
                let expected = if model.contains_key(id) {
                    obstacle(&model, Some(*id), item, false)
                } else {
                    None
                };
                let found = items.update(&mut txn, *id, |row| row.clone_from(item));
                if let Ok(found) = found {
                    prop_assert_eq!(found, model.contains_key(id));
                }
                if check_outcome(found.map(drop), expected)? && model.remove(id).is_some() {
                    model.insert(item.id, item.clone());
                }
            }
            Operation::Delete(id) => {
                let deleted = items.delete(&mut txn, *id).map_err(fail)?;
                prop_assert_eq!(deleted, model.remove(id).is_some());
            }
            Operation::Commit => {
                compare(&items, &txn, &model)?;
                txn.commit().map_err(fail)?;
                committed.clone_from(&model);
                compare(&items, &store.read().map_err(fail)?, committed)?;
                txn = store.write().map_err(fail)?;
            }
            Operation::Abort => {
                drop(txn);
                model.clone_from(committed);
                compare(&items, &store.read().map_err(fail)?, committed)?;
                txn = store.write().map_err(fail)?;
            }
            Operation::Reopen => {}
        }
    }
    compare(&items, &txn, &model)?;
    txn.commit().map_err(fail)?;
    *committed = model;
    Ok(())
}

/// Closes the store at each `Reopen`, and opens it again.
fn run(open: Open<'_>, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut committed = Model::new();
    let is_reopen = |operation: &Operation| matches!(operation, Operation::Reopen);
    for operations in operations.split(is_reopen) {
        run_in_one_store(&open()?, &mut committed, operations)?;
    }
    Ok(())
}

/// Compares a scan with the filtered and sorted model.
fn assert_query<'txn, E: IndexEntry<'txn, Row = Item>, S: Ord>(
    model: &Model,
    scan: impl Fn() -> Scan<'txn, E>,
    sort: impl Fn(&Item) -> Vec<S>,
    keep: impl Fn(&S) -> bool,
) -> Result<(), TestCaseError> {
    let mut found: Vec<(S, i32, &Item)> = Vec::new();
    for item in model.values() {
        let mut keys = sort(item);
        keys.sort();
        keys.dedup();
        found.extend(keys.into_iter().filter(&keep).map(|key| (key, item.id, item)));
    }
    found.sort_by(|(a, a_id, _), (b, b_id, _)| (a, a_id).cmp(&(b, b_id)));
    let rows: Vec<Item> = found.into_iter().map(|(_, _, item)| item.clone()).collect();
    assert_scan(scan, &rows, |scan| scan.keys().collect::<Result<Vec<i32>>>(), |item| item.id)
}

fn compare(items: &ItemRepository, txn: &ReadTxn<'_>, model: &Model) -> Result<(), TestCaseError> {
    let m = model;
    assert_query(m, || items.all(txn), |i| vec![i.id], |_| true)?;
    assert_query(
        m,
        || items.find_by_id_range(txn, -5..=5),
        |i| vec![i.id],
        |id| (-5..=5).contains(id),
    )?;
    assert_query(m, || items.by_color(txn), |i| vec![i.color.clone()], |_| true)?;
    assert_query(m, || items.by_size(txn), |i| vec![i.size], |_| true)?;
    assert_query(m, || items.by_color_size(txn), |i| vec![(i.color.clone(), i.size)], |_| true)?;
    assert_query(
        m,
        || items.by_size_then_color(txn),
        |i| vec![(i.size, i.color.clone())],
        |_| true,
    )?;
    assert_query(m, || items.by_code(txn), |i| vec![i.code], |_| true)?;
    assert_query(m, || items.by_coded(txn), |i| vec![(i.code, i.color.clone())], |_| true)?;
    assert_query(m, || items.by_note(txn), |i| vec![i.note.clone()], |_| true)?;
    assert_query(m, || items.by_tags(txn), |i| i.tags.clone(), |_| true)?;
    let kind_tags = |i: &Item| i.tags.iter().map(|tag| (i.kind, tag.clone())).collect();
    assert_query(m, || items.by_kind_tags(txn), kind_tags, |_| true)?;
    let tagged = |i: &Item| i.tags.iter().map(|tag| (tag.clone(), i.kind)).collect();
    assert_query(m, || items.by_tagged(txn), tagged, |_| true)?;

    for color in ["a", "a\0", "", "missing"] {
        assert_query(
            m,
            || items.find_by_color(txn, color),
            |i| vec![i.color.clone()],
            |c| c == color,
        )?;
        let key = |i: &Item| vec![(i.color.clone(), i.size)];
        assert_query(
            m,
            || items.find_by_color_size_range(txn, color, -1..2),
            key,
            |(c, s)| c == color && (-1..2).contains(s),
        )?;
        let key = |i: &Item| vec![i.color.clone()];
        assert_query(
            m,
            || items.find_by_color_starting_with(txn, color),
            key,
            |c| c.starts_with(color),
        )?;
        let after_color = (Bound::Excluded(color), Bound::Unbounded);
        assert_query(
            m,
            || items.find_by_color_range(txn, after_color),
            key,
            |c| c.as_str() > color,
        )?;
        assert_query(m, || items.find_by_color_range(txn, ..=color), key, |c| c.as_str() <= color)?;
        let key = |i: &Item| i.tags.clone();
        assert_query(m, || items.find_by_tags(txn, color), key, |t| t == color)?;
        assert_query(
            m,
            || items.find_by_kind_tags(txn, true, color),
            kind_tags,
            |(k, t)| *k && t == color,
        )?;
        let key = |i: &Item| vec![i.note.clone()];
        let note = Some(color);
        assert_query(m, || items.find_by_note(txn, note), key, |n| n.as_deref() == note)?;
        assert_query(m, || items.find_by_note_range(txn, note..), key, |n| n.as_deref() >= note)?;
    }
    assert_query(m, || items.find_by_note(txn, None), |i| vec![i.note.clone()], Option::is_none)?;
    for code in 0..3 {
        let expected = m.values().find(|item| item.code == code);
        prop_assert_eq!(items.get_by_code(txn, code).map_err(fail)?, expected.cloned());
    }
    entries(items, txn, m)?;
    assert_clean(items.verify(txn))
}

/// Compares the fields of the entries with the rows.
fn entries(items: &ItemRepository, txn: &ReadTxn<'_>, m: &Model) -> Result<(), TestCaseError> {
    for entry in items.by_color_size(txn).entries() {
        let entry = entry.map_err(fail)?;
        let item = &m[&entry.id];
        prop_assert_eq!((entry.color, entry.size), (item.color.as_str(), item.size));
        prop_assert_eq!((entry.weight, entry.note), (item.weight, item.note.as_deref()));
    }
    for entry in items.by_coded(txn).entries() {
        let entry = entry.map_err(fail)?;
        let item = &m[&entry.id];
        prop_assert_eq!(
            (entry.code, entry.color, entry.size),
            (item.code, item.color.as_str(), item.size)
        );
    }
    for entry in items.by_size(txn).entries() {
        let entry = entry.map_err(fail)?;
        let item = &m[&entry.id];
        prop_assert_eq!(
            (entry.code, entry.color, entry.size),
            (item.code, item.color.as_str(), item.size)
        );
        prop_assert_eq!(
            (entry.kind, entry.weight, entry.note),
            (item.kind, item.weight, item.note.as_deref())
        );
        prop_assert_eq!(&entry.tags, &item.tags);
    }
    for entry in items.by_kind_tags(txn).entries() {
        let entry = entry.map_err(fail)?;
        let item = &m[&entry.id];
        prop_assert!(item.tags.iter().any(|tag| tag == entry.tags));
        prop_assert_eq!((entry.kind, &entry.all_tags), (item.kind, &item.tags));
    }
    for entry in items.by_tagged(txn).entries() {
        let entry = entry.map_err(fail)?;
        let item = &m[&entry.id];
        prop_assert!(item.tags.iter().any(|tag| tag == entry.tags));
        prop_assert_eq!((entry.color, &entry.all_tags), (item.color.as_str(), &item.tags));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(48)))]

    #[test]
    fn packed_indexes_match_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        on_both_engines(|open| run(open, &operations))?;
    }
}

/// Enough rows under one key to fill blocks, split them, and empty them again.
#[test]
fn blocks_match_the_model_while_they_fill_split_and_empty() {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut item = |id: i32, code: i32| Item {
        id,
        color: ["a", "b"][random(2) as usize].to_owned(),
        size: random(2) as i16,
        code: code.cast_unsigned(),
        kind: true,
        weight: 0.0,
        note: None,
        tags: vec![["a", "b", "c"][random(3) as usize].to_owned(), "all".to_owned()],
    };
    let mut operations = Vec::new();
    // Rows in order fill blocks, rows between them split blocks, and deletions then empty blocks.
    operations.extend((0..1500).map(|n| Operation::Insert(item(n * 3, n))));
    operations.push(Operation::Commit);
    operations.extend((0..1500).rev().map(|n| Operation::Insert(item(n * 3 + 1, 10_000 + n))));
    operations.push(Operation::Commit);
    operations.extend((0..1500).filter(|n| n % 7 != 0).map(|n| Operation::Delete(n * 3)));
    operations.push(Operation::Reopen);
    operations.extend((0..700).map(|n| Operation::Delete(n * 3 + 1)));
    operations.extend((0..300).map(|n| Operation::Put(item(n * 3 + 2, 20_000 + n))));
    on_both_engines(|open| run(open, &operations)).unwrap();
}
