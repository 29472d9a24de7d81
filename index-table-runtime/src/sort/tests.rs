use std::{collections::BTreeSet, error::Error, path::Path};

use proptest::prelude::*;

use super::{LEAST_MEMORY, Sorted, Sorter, Sorters};
use crate::{engine::Ascending, model::entry::RawEntry};

type TestResult = Result<(), Box<dyn Error>>;
type Entry = (Vec<u8>, Vec<u8>, Vec<u8>);

fn read(sorted: &Sorted) -> crate::Result<Vec<Entry>> {
    let (mut merge, mut entries) = (sorted.read(), Vec::new());
    while let Some(RawEntry { key, primary_key, data }) = merge.next()? {
        entries.push((key.to_vec(), primary_key.to_vec(), data.to_vec()));
    }
    Ok(entries)
}

/// Sorts by both keys. Entries with the same keys stay in the order of arrival.
fn in_order(entries: &[Entry]) -> Vec<Entry> {
    let mut ordered = entries.to_vec();
    ordered.sort_by_key(|(key, primary_key, _)| [key.as_slice(), primary_key].concat());
    ordered
}

/// Sorts with runs that end after these entries.
fn sorted(directory: &Path, entries: &[Entry], runs: &[usize]) -> crate::Result<Sorted> {
    let mut sorter = Sorter::new(directory.into(), 64);
    for (at, (key, primary_key, data)) in entries.iter().enumerate() {
        let (data, tail) = data.split_at(data.len() / 2);
        sorter.push(key, primary_key, data, tail)?;
        if runs.contains(&at) {
            sorter.spill(16)?;
        }
    }
    sorter.finish(0)
}

fn entry() -> impl Strategy<Value = Entry> {
    // Few different bytes, including zero, so that keys share prefixes, and some keys are prefixes of others.
    let bytes =
        |longest| prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..longest);
    (bytes(30), bytes(4), prop::collection::vec(any::<u8>(), 0..40))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn entries_are_returned_in_order(
        entries in prop::collection::vec(entry(), 0..100),
        runs in prop::collection::vec(0_usize..100, 0..8),
    ) {
        let directory = tempfile::tempdir()?;
        let sorted = sorted(directory.path(), &entries, &runs)?;
        prop_assert_eq!(sorted.len(), entries.len() as u64);
        let expected = in_order(&entries);
        prop_assert_eq!(&read(&sorted)?, &expected);
        // The entries can be read again.
        prop_assert_eq!(read(&sorted)?, expected);
    }

    #[test]
    fn ascending_entries_are_detected(
        entries in prop::collection::vec(entry(), 0..40),
        runs in prop::collection::vec(0_usize..40, 0..6),
        change in 0..3,
    ) {
        let keys = |(key, primary_key, _): &Entry| [key.as_slice(), primary_key].concat();
        let mut entries = in_order(&entries);
        entries.dedup_by_key(|entry| keys(entry));
        match change {
            1 if !entries.is_empty() => entries.insert(0, entries[0].clone()),
            2 if entries.len() > 1 => entries.swap(0, 1),
            _ => {}
        }
        let ascending = entries.is_sorted_by(|one, other| keys(one) < keys(other));
        let directory = tempfile::tempdir()?;
        prop_assert_eq!(sorted(directory.path(), &entries, &runs)?.came_ascending(), ascending);
    }
}

fn numbers(count: u64) -> impl Iterator<Item = [u8; 8]> {
    (0..count).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes())
}

#[test]
fn a_sorter_stays_within_its_memory() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (mut sorters, mut expected) = (Sorters::new(2, directory.path(), 0), BTreeSet::new());
    for number in numbers(50_000) {
        sorters.push(0, &number, &[1], &[2; 20], &[3])?;
        sorters.push(1, &[], &number, &[], &[])?;
        expected.insert(number);
        assert!(sorters.allocated <= LEAST_MEMORY);
    }
    let sorted = sorters.finish()?;
    assert!(sorted.iter().all(|sorted| sorted.runs.as_ref().is_some_and(|runs| runs.len() > 0)));
    let keys = read(&sorted[0])?.into_iter().map(|(key, ..)| key);
    assert!(keys.eq(expected.iter().map(|key| key.to_vec())));
    let keys = read(&sorted[1])?.into_iter().map(|(_, key, _)| key);
    assert!(keys.eq(expected.iter().map(|key| key.to_vec())));
    Ok(())
}

#[test]
fn keys_with_a_common_prefix_are_sorted() -> TestResult {
    let directory = tempfile::tempdir()?;
    let entries: Vec<Entry> = numbers(5_000)
        .map(|number| {
            let len = usize::from(number[0]) % 40;
            (vec![0; len], [&[7; 9][..], &number].concat(), number[..3].to_vec())
        })
        .collect();
    assert_eq!(read(&sorted(directory.path(), &entries, &[])?)?, in_order(&entries));
    Ok(())
}

#[test]
fn an_entry_larger_than_the_memory_is_sorted() -> TestResult {
    let directory = tempfile::tempdir()?;
    let mut sorters = Sorters::new(1, directory.path(), 0);
    let large = vec![7; 10 * LEAST_MEMORY];
    sorters.push(0, b"b", b"1", &large, &[])?;
    sorters.push(0, b"a", b"1", &large, b"!")?;
    sorters.push(0, b"c", b"1", &[], &[])?;
    let sorted = sorters.finish()?;
    let lengths = read(&sorted[0])?.into_iter().map(|(key, _, data)| (key, data.len()));
    let expected =
        [(b"a".to_vec(), large.len() + 1), (b"b".to_vec(), large.len()), (b"c".to_vec(), 0)];
    assert!(lengths.eq(expected));
    Ok(())
}

#[test]
fn temporary_files_are_removed() -> TestResult {
    let directory = tempfile::tempdir()?;
    let mut sorter = Sorter::new(directory.path().into(), 64);
    sorter.push(b"a", b"b", b"c", b"")?;
    sorter.spill(16)?;
    // On Windows, the file exists until it is closed.
    #[cfg(unix)]
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
    drop(sorter.finish(0)?);
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
    Ok(())
}

#[test]
fn a_full_disk_is_reported_with_its_directory() {
    let mut sorter = Sorter::new(Path::new("/nowhere/at/all").into(), 64);
    sorter.push(b"a", b"b", b"c", b"").expect("memory");
    let error = sorter.spill(16).expect_err("no directory").to_string();
    assert!(error.starts_with("/nowhere/at/all: "), "{error}");
}
