//! Tests of the changes between an old and a new row.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    Change, Error, Image, List, Owned, Result, Sink, changes, entry_changes,
    film::{
        CAST, CAST_GENRE, Entries, EntryKey, Film, GENRE, GENRE_YEAR, SPARSE_YEAR, TITLE,
        UNIQUE_CODES, UNIQUE_TITLE, casablanca, changed, films,
    },
    image, image_of, unique_keys,
};
use crate::model::{entity::Entity, lists::Lists};

fn location(index: usize, key: &[u8], primary_key: &[u8]) -> EntryKey {
    let unique = Film::TABLE.indexes[index].unique;
    (index, key.to_vec(), (!unique).then(|| primary_key.to_vec()))
}

/// Applies the changes. Each change must have an effect, and each entry may change only once.
fn apply(entries: &mut Entries, changes: &[Owned]) {
    let mut touched = BTreeSet::new();
    for change in changes {
        let at = match change {
            Owned::Put { index, key, primary_key, data } => {
                let at = location(*index, key, primary_key);
                let entry = (primary_key.clone(), data.clone());
                let before = entries.insert(at.clone(), entry.clone());
                assert_ne!(before, Some(entry), "written as it was: {change:?}");
                at
            }
            Owned::Delete { index, key, primary_key } => {
                let at = location(*index, key, primary_key);
                let before = entries.remove(&at);
                let before = before.map(|(primary_key, _)| primary_key);
                assert_eq!(before.as_ref(), Some(primary_key), "was not there: {change:?}");
                at
            }
        };
        assert!(touched.insert(at), "changed twice: {change:?}");
    }
}

fn check(old: Option<&Film>, new: Option<&Film>) {
    let expected = new.map(Film::expected).unwrap_or_default();
    let mut entries = old.map(Film::expected).unwrap_or_default();
    apply(&mut entries, &changes(old, new));
    assert_eq!(entries, expected);
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases: 1000, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_change_of_a_row_changes_its_entries((old, new) in changed()) {
        check(Some(&old), Some(&new));
    }

    #[test]
    fn a_new_row_gets_its_entries_and_a_removed_row_loses_them(film in films()) {
        check(None, Some(&film));
        check(Some(&film), None);
    }

    #[test]
    fn a_row_that_stays_changes_nothing(film in films()) {
        prop_assert_eq!(changes(Some(&film), Some(&film.clone())), []);
    }

    /// A reused image contains only the last loaded row.
    #[test]
    fn images_can_be_reused(used in films(), (old, new) in changed()) {
        let mut images = [image(&used), image(&used)];
        let [old_image, new_image] = &mut images;
        let lists = Lists::default();
        let stored = image_of(&lists, &old);
        old_image.load_stored(&lists, &old, stored.row(), None).unwrap();
        new_image.load(&lists, &new).unwrap();
        let mut list = List::default();
        entry_changes(Film::TABLE, Some(old_image), Some(new_image), &mut list).unwrap();
        prop_assert_eq!(list.0, changes(Some(&old), Some(&new)));
    }

    #[test]
    fn one_index_gets_its_own_changes_in_order((old, new) in changed()) {
        let all = changes(Some(&old), Some(&new));
        let keys: Vec<_> = all.iter().map(|change| match change {
            Owned::Put { index, key, .. } | Owned::Delete { index, key, .. } => (*index, key),
        }).collect();
        prop_assert!(keys.is_sorted(), "{:?}", all);
    }

    /// The keys to check are the keys that the write adds.
    #[test]
    fn added_keys_are_checked_for_uniqueness(old in prop::option::of(films()), (_, new) in changed()) {
        let (old_image, new_image) = (old.as_ref().map(image), image(&new));
        let mut checked = Vec::new();
        unique_keys(Film::TABLE, old_image.as_ref(), &new_image, |index, key| {
            checked.push((index, key.to_vec()));
            Ok(())
        }).unwrap();
        let expected: Vec<_> = [UNIQUE_TITLE, UNIQUE_CODES]
            .into_iter()
            .flat_map(|index| {
                let before = old.as_ref().map(|old| old.keys(index)).unwrap_or_default();
                let keys = new.keys(index);
                keys.into_iter().filter(move |key| !before.contains(key)).map(move |key| (index, key))
            })
            .collect();
        prop_assert_eq!(checked, expected);
    }
}

fn indexes(changes: &[Owned]) -> Vec<(usize, bool)> {
    let change = |change: &Owned| match change {
        Owned::Put { index, .. } => (*index, true),
        Owned::Delete { index, .. } => (*index, false),
    };
    changes.iter().map(change).collect()
}

/// Changes `casablanca`. Returns the changed indexes; `true` means a put.
fn touched(change: impl FnOnce(&mut Film)) -> Vec<(usize, bool)> {
    let old = casablanca();
    let mut new = old.clone();
    change(&mut new);
    check(Some(&old), Some(&new));
    indexes(&changes(Some(&old), Some(&new)))
}

#[test]
fn a_repeated_element_has_one_entry() {
    let changes = changes(None, Some(&casablanca()));
    let count = |index| indexes(&changes).iter().filter(|change| **change == (index, true)).count();
    assert_eq!(count(CAST), 2);
    assert_eq!(count(UNIQUE_CODES), 2);
    assert_eq!(count(CAST_GENRE), 2);
    assert_eq!(changes.len(), 5 + 3 * 2);
}

#[test]
fn a_field_changes_the_indexes_that_contain_it() {
    // Full indexes carry every field.
    let full = |others: &[(usize, bool)]| {
        let mut all = [others, &[(TITLE, true), (SPARSE_YEAR, true)]].concat();
        all.sort_by_key(|(index, _)| *index);
        all
    };
    assert_eq!(
        touched(|film| film.rating = 9.0),
        full(&[(GENRE_YEAR, true), (UNIQUE_CODES, true), (UNIQUE_CODES, true)])
    );
    assert_eq!(
        touched(|film| film.genre = "Romance".to_owned()),
        full(&[
            (GENRE_YEAR, false),
            (GENRE_YEAR, true),
            (GENRE, false),
            (GENRE, true),
            (CAST_GENRE, false),
            (CAST_GENRE, true),
            (CAST_GENRE, false),
            (CAST_GENRE, true),
        ])
    );
    assert_eq!(
        touched(|film| film.cast.push("Rains".to_owned())),
        full(&[(CAST, true), (CAST_GENRE, true)])
    );
    // The order and the repetition of the elements are not part of any key.
    assert_eq!(touched(|film| film.cast.swap(0, 1)), full(&[]));
    assert_eq!(touched(|film| film.cast.truncate(2)), full(&[]));
}

#[test]
fn an_optional_key_is_added_and_removed() {
    let without = |film: &mut Film| film.year = None;
    let changes = touched(without);
    let year: Vec<_> = changes.iter().filter(|(index, _)| *index == SPARSE_YEAR).collect();
    assert_eq!(year, [&(SPARSE_YEAR, false)]);

    let (mut old, new) = (casablanca(), casablanca());
    without(&mut old);
    check(Some(&old), Some(&new));
    let changes = self::changes(Some(&old), Some(&new));
    let year = |change: &&Owned| matches!(change, Owned::Put { index: SPARSE_YEAR, .. });
    assert_eq!(changes.iter().filter(year).count(), 1);
}

#[test]
fn the_entries_of_a_moved_row_are_replaced() {
    let mut moved = casablanca();
    moved.id += 1;
    let old_entries = casablanca().expected().len();
    let unique = 1 + 2;
    let changes = changes(Some(&casablanca()), Some(&moved));
    let puts = indexes(&changes).iter().filter(|(_, put)| *put).count();
    // In a unique index, the new entry replaces the old entry. In other indexes, the old entry is deleted.
    assert_eq!((puts, changes.len() - puts), (old_entries, old_entries - unique));
    for change in &changes {
        let (key, deleted) = match change {
            Owned::Put { primary_key, .. } => (primary_key, false),
            Owned::Delete { index, primary_key, .. } => {
                assert!(!Film::TABLE.indexes[*index].unique, "{change:?}");
                (primary_key, true)
            }
        };
        assert_eq!(*key == casablanca().primary_key_bytes(), deleted, "{change:?}");
    }
    check(Some(&casablanca()), Some(&moved));
}

/// Some unique keys of the moved row change, and others stay.
#[test]
fn a_moved_row_may_change_its_unique_keys() {
    let mut moved = casablanca();
    moved.country = "UK".to_owned();
    moved.codes = vec![3, 9];
    check(Some(&casablanca()), Some(&moved));
    let all = changes(Some(&casablanca()), Some(&moved));
    let keys = all.iter().filter_map(|change| match change {
        Owned::Put { index: UNIQUE_CODES, key, .. } => Some((key[0], true)),
        Owned::Delete { index: UNIQUE_CODES, key, .. } => Some((key[0], false)),
        _ => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [(1, false), (3, true), (9, true)]);
}

#[test]
fn no_rows_have_no_changes() {
    assert_eq!(changes::<Film>(None, None), []);
}

/// A sink that fails at the change with this number.
struct Failing(usize);

impl Sink for Failing {
    fn change(&mut self, _: Change<'_>) -> Result<()> {
        let left = self.0.checked_sub(1).expect("called after it has failed");
        self.0 = left;
        if left == 0 { Err(Error::WriteInProgress) } else { Ok(()) }
    }
}

#[test]
fn no_change_is_sent_after_an_error() {
    let (old, mut new) = (casablanca(), casablanca());
    new.id += 1;
    new.codes = vec![3, 4];
    let all = changes(Some(&old), Some(&new)).len();
    let (old, new) = (image(&old), image(&new));
    let run = |sink: &mut Failing| entry_changes(Film::TABLE, Some(&old), Some(&new), sink);
    for at in 1..=all {
        assert!(matches!(run(&mut Failing(at)), Err(Error::WriteInProgress)), "{at}");
    }
    run(&mut Failing(all + 1)).unwrap();

    let mut calls = 0;
    let checked = unique_keys(Film::TABLE, None, &new, |_, _| {
        calls += 1;
        Err(Error::WriteInProgress)
    });
    assert!(matches!(checked, Err(Error::WriteInProgress)));
    assert_eq!(calls, 1);
}

#[test]
fn an_image_without_a_row_has_no_entries() {
    let mut list = List::default();
    entry_changes(Film::TABLE, None, Some(&Image::default()), &mut list).unwrap();
    assert_eq!(list.0, []);
}
