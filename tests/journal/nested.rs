//! Nested transactions in a record of several parts.

use std::ops::Range;

use index_table::{Error, WriteTxn};

use crate::{NoteRepository, TestResult, killed, note, options};

/// Returns some of the next primary keys.
fn rows(next: &mut u32, random: u32) -> Range<u32> {
    let from = *next;
    *next += [0, 3, 200, 2_500][random as usize % 4];
    from..*next
}

/// A transaction that inserts rows, runs nested transactions, and inserts further rows.
struct Node {
    rows: [Range<u32>; 2],
    nested: Vec<Self>,
    is_rolled_back: bool,
}

impl Node {
    /// Returns a transaction with up to this number of levels of nested transactions.
    fn random(levels: u32, next: &mut u32, random: &mut impl FnMut() -> u32) -> Self {
        let first = rows(next, random());
        let children = if levels == 0 { 0 } else { random() % 4 };
        let nested = (0..children).map(|_| Self::random(levels - 1, next, random)).collect();
        let last = rows(next, random());
        Self { rows: [first, last], nested, is_rolled_back: random().is_multiple_of(3) }
    }

    fn run(&self, txn: &mut WriteTxn<'_>, notes: &NoteRepository) -> Result<(), Error> {
        let [first, last] = &self.rows;
        first.clone().try_for_each(|id| notes.insert(txn, &note(id, 0)))?;
        for nested in &self.nested {
            let outcome = txn.nested(|txn| {
                nested.run(txn, notes)?;
                if nested.is_rolled_back { Err(Error::WriteInProgress) } else { Ok(()) }
            });
            assert_eq!(outcome.is_err(), nested.is_rolled_back);
        }
        last.clone().try_for_each(|id| notes.insert(txn, &note(id, 0)))
    }

    /// Adds the primary keys that stay.
    fn kept(&self, ids: &mut Vec<u32>) {
        let [first, last] = self.rows.clone();
        ids.extend(first);
        for nested in self.nested.iter().filter(|nested| !nested.is_rolled_back) {
            nested.kept(ids);
        }
        ids.extend(last);
    }
}

#[test]
fn a_rolled_back_nested_transaction_leaves_no_part_of_its_record() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let (mut next, mut expected, mut state) = (0, Vec::new(), 7_u32);
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    for round in 0..8 {
        let root = Node::random(3, &mut next, &mut random);
        store.transaction(|txn| root.run(txn, &notes))?;
        root.kept(&mut expected);
        let left = killed(&path, &dir.path().join(format!("left {round}")))?;
        let store = options().open(&left)?;
        let notes = NoteRepository::open(&store)?;
        let txn = store.read()?;
        let ids = notes.all(&txn).keys().collect::<Result<Vec<_>, _>>()?;
        assert!(ids == expected, "round {round}: {} of {} rows", ids.len(), expected.len());
        assert!(notes.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
