//! Tests of advice for given numbers. Integration tests check the counters with real indexes.

use super::{IndexUsage, Usage, advice};
use crate::model::schema::{IndexSchema, KeyField, Strategy};

const fn index(strategy: Strategy, unique: bool) -> IndexSchema {
    let key = &const { [KeyField::new::<u16>("year")] };
    IndexSchema {
        name: "year",
        key,
        strategy,
        unique,
        eventual: false,
        conditions: &[],
        findings: &[],
    }
}

/// Returns the advice for these numbers of inserted rows, and of queries, entries, facts and written entries.
fn reasons(index: &IndexSchema, inserts: u64, figures: [u64; 4]) -> Vec<String> {
    let [queries, entries, facts, written] = figures;
    let advice = Vec::new();
    let usage = IndexUsage { name: "year", strategy: "", queries, entries, facts, written, advice };
    let [gets, scans, scanned, puts, updates, deletes, refused_expiries, uncommitted] = [0; 8];
    let (table, indexes) = ("films", Vec::new());
    let rows = Usage {
        table,
        gets,
        scans,
        scanned,
        inserts,
        puts,
        updates,
        deletes,
        refused_expiries,
        uncommitted,
        indexes,
    };
    advice::of(index, &rows, &usage)
}

fn is_advised(index: &IndexSchema, inserts: u64, figures: [u64; 4]) -> bool {
    !reasons(index, inserts, figures).is_empty()
}

const NORMALIZED: Strategy = Strategy::Normalized;
const PARTIAL: Strategy = Strategy::Partial(&["title"]);
const FULL: Strategy = Strategy::Full;

#[test]
fn an_unused_index_gets_advice() {
    for strategy in [NORMALIZED, PARTIAL, FULL] {
        assert_eq!(
            reasons(&index(strategy, false), 1000, [0, 0, 0, 1000]),
            ["it was never queried, and 1000 of its entries were written or removed; if other \
                 processes don't query it either, it costs writes and space for nothing"]
        );
        assert!(!is_advised(&index(strategy, false), 999, [0, 0, 0, 999]));
        assert!(!is_advised(&index(strategy, true), 9999, [0, 0, 0, 9999]));
    }
    assert!(!is_advised(&index(NORMALIZED, false), 9999, [1, 0, 0, 9999]));
}

#[test]
fn an_index_whose_references_are_always_followed_gets_advice() {
    assert_eq!(
        reasons(&index(NORMALIZED, false), 100, [50, 1100, 1000, 100]),
        ["of the 1100 entries that were read, 1000 were followed to their rows, a second \
             look-up each, and 100 rows were written; `include` the fields that are read most and \
             use `entries()`, or make it `strategy = \"full\"`, if there is space for it"]
    );
    assert_eq!(
        reasons(&index(PARTIAL, false), 9999, [50, 1100, 1000, 9999]),
        ["of the 1100 entries that were read, 1000 were followed to their rows, so the \
             included fields were rarely used; use `entries()` where that is enough, or leave out the \
             `include`"]
    );
    for strategy in [NORMALIZED, PARTIAL] {
        // Too few entries for advice, or too small a part of them was followed.
        assert!(!is_advised(&index(strategy, false), 1, [50, 999, 999, 1]));
        assert!(!is_advised(&index(strategy, false), 1, [50, 1112, 1000, 1]));
    }
    // Included fields would be written too often.
    assert!(!is_advised(&index(NORMALIZED, false), 101, [50, 1000, 1000, 1]));
    assert!(!is_advised(&index(FULL, false), 1, [50, 1000, 1000, 1]));
}

#[test]
fn unread_included_fields_get_advice() {
    assert_eq!(
        reasons(&index(FULL, false), 9, [1, 100, 0, 1000]),
        ["1000 of its entries were written or removed and 100 were read, so it carries the \
             whole row for little; a normalized index is written less often"]
    );
    assert!(is_advised(&index(PARTIAL, true), 9, [1, 0, 0, 1000]));
    assert!(!is_advised(&index(PARTIAL, false), 9, [1, 101, 0, 1000]));
    assert!(!is_advised(&index(FULL, false), 9, [1, 0, 0, 999]));
    assert!(!is_advised(&index(NORMALIZED, false), 9, [1, 0, 0, 9999]));
}

#[test]
fn warnings_of_the_derive_are_repeated() {
    let index = IndexSchema { findings: &["it is doubtful"], ..index(NORMALIZED, false) };
    assert_eq!(reasons(&index, 0, [0; 4]), ["it is doubtful"]);
}
