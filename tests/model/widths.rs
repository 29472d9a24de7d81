//! Primary keys of all lengths without their leading zeros, in blocks and in unique entries.

use std::collections::BTreeMap;

use index_table::{IndexTable, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{assert_clean, cases, fail, on_both_engines, scans::assert_scan};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(code, unique)]
struct Place {
    #[primary_key]
    id: u64,
    town: u8,
    code: u64,
}

/// Puts a row in this town, or deletes it.
type Operation = (u64, Option<u8>);

fn id() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..300_u64,
        1 => (1..8_u32, 0..4_u64).prop_map(|(bytes, offset)| (1 << (8 * bytes)) - 2 + offset),
        1 => u64::MAX - 2..=u64::MAX,
        1 => any::<u64>(),
    ]
}

fn run(store: &Store, operations: &[Operation]) -> Result<(), TestCaseError> {
    let places = PlaceRepository::open(store).map_err(fail)?;
    let mut model = BTreeMap::new();
    let mut txn = store.write().map_err(fail)?;
    for (id, town) in operations {
        if let Some(town) = town {
            let place = Place { id: *id, town: *town, code: !id };
            places.put(&mut txn, &place).map_err(fail)?;
            model.insert(*id, place);
        } else {
            let deleted = places.delete(&mut txn, *id).map_err(fail)?;
            prop_assert_eq!(deleted, model.remove(id).is_some());
        }
    }
    for town in 0..2 {
        let rows: Vec<_> = model.values().filter(|row| row.town == town).cloned().collect();
        let keys = |scan: index_table::Scan<'_, PlaceByTown>| scan.keys().collect();
        assert_scan(|| places.find_by_town(&txn, town), &rows, keys, |row| row.id)?;
    }
    for row in model.values() {
        let found = places.get_by_code(&txn, row.code).map_err(fail)?;
        prop_assert_eq!(found.as_ref(), Some(row));
    }
    let rows: Vec<_> = model.values().rev().cloned().collect();
    let keys = |scan: index_table::Scan<'_, PlaceByCode>| scan.keys().collect();
    assert_scan(|| places.by_code(&txn), &rows, keys, |row| row.id)?;
    assert_clean(places.verify(&txn))?;
    txn.commit().map_err(fail)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), ..ProptestConfig::default() })]

    #[test]
    fn primary_keys_of_all_lengths_match_the_model(
        operations in prop::collection::vec((id(), prop::option::weighted(0.8, 0..2_u8)), 1..300),
    ) {
        on_both_engines(|open| run(&open()?, &operations))?;
    }
}

/// Blocks that are full of short primary keys, and get longer primary keys or are split.
#[test]
fn full_blocks_of_short_primary_keys_match_the_model() {
    let ascending = || (0..1200).map(|id| (id, Some(0))).collect::<Vec<Operation>>();
    let moved = || (0..1200).step_by(3).map(|id| (id, Some(1))).collect::<Vec<Operation>>();
    let long = || [1 << 20, 1 << 33, 1 << 62, 700].map(|id| (id, Some(0))).to_vec();
    let descending = || ascending().into_iter().rev().collect::<Vec<_>>();
    let deleted = || moved().into_iter().map(|(id, _)| (id, None)).collect::<Vec<_>>();
    let mixed = || (0..1200).map(|id| (id * 7 % 1200, Some(0))).collect::<Vec<_>>();
    let orders = [
        [ascending(), moved(), long()],
        [descending(), long(), deleted()],
        [long(), ascending(), moved()],
        [mixed(), moved(), deleted()],
    ];
    for operations in orders.map(|parts| parts.concat()) {
        on_both_engines(|open| run(&open()?, &operations)).expect("the model");
    }
}
