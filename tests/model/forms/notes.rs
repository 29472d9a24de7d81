//! The forms of a field and the conditions of an index after a composite primary key.

use std::cmp::Reverse;

use index_table::{IndexTable, ReadTxn, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Model, Row};
use crate::{assert_clean, fail, on_both_engines, pairs, text};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(view)]
#[index(hash(title))]
#[index(desc(due), include = [done, text])]
#[index(due, number, sparse, filter = is_open, name = "open")]
#[index(computed(initial: String), done, computed(size: u8), hash(title), include = [title, text], name = "outline")]
struct Note {
    #[primary_key]
    author: String,
    #[primary_key]
    number: u8,
    title: String,
    due: Option<i8>,
    done: bool,
    /// A field in no key.
    text: String,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::with_view::<Note>();

impl Note {
    fn is_open(&self) -> bool {
        !self.done
    }

    fn initial(&self) -> String {
        self.author.chars().take(1).collect()
    }

    fn size(&self) -> u8 {
        u8::try_from(self.title.len()).unwrap_or(u8::MAX)
    }
}

impl Row for Note {
    type Id = (String, u8);

    fn id(&self) -> (String, u8) {
        (self.author.clone(), self.number)
    }
}

fn note() -> impl Strategy<Value = Note> {
    (text(), 0..3_u8, text(), prop::option::of(-1..2_i8), any::<bool>(), text()).prop_map(
        |(author, number, title, due, done, text)| Note { author, number, title, due, done, text },
    )
}

fn compare(
    notes: &NoteRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Note>,
) -> Result<(), TestCaseError> {
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            super::assert_query(m, || $scan, |scan| scan.keys().collect(), $keys, $keep)?
        };
    }
    let due = |n: &Note| vec![Reverse(n.due)];
    let open = |n: &Note| Vec::from_iter(n.due.filter(|_| !n.done).map(|due| (due, n.number)));
    assert_query!(notes.by_due(txn), due, |_| true);
    assert_query!(notes.find_by_due_range(txn, Some(0)..), due, |due| due.0 >= Some(0));
    assert_query!(notes.by_open(txn), open, |_| true);
    assert_query!(notes.find_by_open_range(txn, 1, 1..), open, |(due, number)| {
        *due == 1 && *number >= 1
    });
    for part in ["", "a", "a\0", "\u{1}", "b"] {
        assert_query!(notes.find_by_title(txn, part), |n| vec![n.title == part], |is| *is);
        for done in [false, true] {
            let initials = |n: &Note| vec![(n.initial(), n.done, n.size())];
            let first = part.chars().next().map(String::from).unwrap_or_default();
            let outline = |n: &Note| vec![(n.initial(), n.done, n.size(), n.title == part)];
            assert_query!(notes.find_by_outline(txn, &first, done, 1, part), outline, |key| {
                *key == (first.clone(), done, 1, true)
            });
            let sizes = notes.find_by_outline_initial_done_size_range(txn, &first, done, 1..3);
            let expected = m.values().flat_map(initials);
            let expected = expected.filter(|(initial, is, size)| {
                (initial, *is) == (&first, done) && (1..3).contains(size)
            });
            prop_assert_eq!(sizes.count().map_err(fail)?, expected.count() as u64);
        }
    }
    entries(notes, txn, m)?;
    assert_clean(notes.verify(txn))
}

/// Compares the fields of the entries with the rows.
fn entries(
    notes: &NoteRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Note>,
) -> Result<(), TestCaseError> {
    let note = |author: &str, number| &m[&(author.to_owned(), number)];
    for entry in notes.by_due(txn).entries() {
        let entry = entry.map_err(fail)?;
        let note = note(entry.author, entry.number);
        let carried = (entry.due, entry.done, entry.text);
        prop_assert_eq!(carried, (note.due, note.done, note.text.as_str()));
    }
    for entry in notes.by_outline(txn).entries() {
        let entry = entry.map_err(fail)?;
        let note = note(entry.author, entry.number);
        prop_assert_eq!((entry.initial.to_owned(), entry.size), (note.initial(), note.size()));
        prop_assert_eq!((entry.title, entry.text), (note.title.as_str(), note.text.as_str()));
    }
    Ok(())
}

fn run(store: &Store, batches: &[Vec<(Note, u8)>]) -> Result<(), TestCaseError> {
    let notes = NoteRepository::open(store).map_err(fail)?;
    let mut model = Model::<Note>::new();
    for batch in batches {
        let mut txn = store.write().map_err(fail)?;
        for (note, action) in batch {
            let id = note.id();
            match action {
                0 => {
                    let deleted = notes.delete(&mut txn, &id.0, id.1).map_err(fail)?;
                    prop_assert_eq!(deleted, model.remove(&id).is_some());
                }
                1..=4 => {
                    let change = |old: &mut Note| old.text.clone_from(&note.text);
                    let found = notes.update(&mut txn, &id.0, id.1, change).map_err(fail)?;
                    prop_assert_eq!(found, model.get_mut(&id).map(change).is_some());
                }
                _ => {
                    notes.put(&mut txn, note).map_err(fail)?;
                    model.insert(id, note.clone());
                }
            }
        }
        txn.commit().map_err(fail)?;
        compare(&notes, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(32)))]

    #[test]
    fn queries_after_a_composite_primary_key_match_the_model(
        batches in prop::collection::vec(
            prop::collection::vec((note(), 0..10_u8), 1..25),
            1..4,
        ),
    ) {
        on_both_engines(|open| run(&open()?, &batches))?;
    }
}
