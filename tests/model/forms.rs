//! Combinations of the forms of a field and the conditions of an index.

pub(crate) mod notes;
pub(crate) mod pages;
pub(crate) mod tasks;
pub(crate) mod words;

use std::collections::BTreeMap;

use index_table::{__private::Viewed, IndexEntry, Result, Scan};
use proptest::prelude::*;
use serde::Serialize;

use crate::{fail, scans::assert_scan};

/// A row of a model.
trait Row: Clone + std::fmt::Debug + PartialEq + Serialize {
    type Id: Clone + std::fmt::Debug + Ord;

    fn id(&self) -> Self::Id;
}

type Model<R> = BTreeMap<<R as Row>::Id, R>;

/// Compares a scan with the sorted and filtered keys of the model's rows.
fn assert_query<'txn, E, K: Ord>(
    model: &Model<E::Row>,
    scan: impl Fn() -> Scan<'txn, E>,
    ids: impl Fn(Scan<'txn, E>) -> Result<Vec<<E::Row as Row>::Id>>,
    keys: impl Fn(&E::Row) -> Vec<K>,
    keep: impl Fn(&K) -> bool,
) -> Result<(), TestCaseError>
where
    E: IndexEntry<'txn>,
    E::Row: Row + Viewed<View<'txn>: Serialize>,
{
    let mut found = Vec::new();
    for row in model.values() {
        let mut keys = keys(row);
        keys.sort();
        keys.dedup();
        found.extend(keys.into_iter().filter(&keep).map(|key| (key, row.id(), row)));
    }
    found.sort_by(|(a, a_id, _), (b, b_id, _)| (a, a_id).cmp(&(b, b_id)));
    let rows: Vec<E::Row> = found.into_iter().map(|(_, _, row)| row.clone()).collect();
    // A view is serialized like its row.
    let views = scan().views().map(|view| Ok(json(&view?))).collect::<Result<Vec<_>>>();
    prop_assert_eq!(views.map_err(fail)?, rows.iter().map(json).collect::<Vec<_>>());
    assert_scan(scan, &rows, ids, Row::id)
}

fn json(row: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(row).unwrap()
}
