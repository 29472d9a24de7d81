//! Sizes from a limited number of pages, against exact counts.

use std::{collections::BTreeMap, path::Path};

use index_table::{Durability, IndexTable, Result, ShardMap, Store, report::TableSize};
use serde::{Deserialize, Serialize};

/// The documented factor of an estimate.
const FACTOR: f64 = 1.5;
/// The documented number of pages.
const PAGES: u64 = 500;

/// Packed indexes of skewed keys, one of them filtered and one with several entries of a row, and indexes with a stored count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
#[index(town)]
#[index(street, filter = is_open, name = "open_street")]
#[index(each(tags))]
#[index(mixed)]
#[index(id, include = [street])]
#[index(tenant, street, unique)]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: u32,
    street: u32,
    mixed: u32,
    tags: Vec<u32>,
}

impl Person {
    const fn is_open(&self) -> bool {
        self.street.is_multiple_of(7)
    }
}

const PACKED: [&str; 4] = ["town", "open_street", "tags", "mixed"];

/// Returns a number from 0 to 1 that is determined by `seed`.
fn random(seed: u32) -> f64 {
    let mut bits = u64::from(seed) + 0x9E37_79B9_7F4A_7C15;
    for _ in 0..3 {
        bits = (bits ^ (bits >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Returns a person. The numbers of people follow Zipf's law, and every second value of `mixed` is of a single person.
#[expect(clippy::cast_sign_loss, reason = "no number is negative")]
fn person(number: u32) -> Person {
    let town = (11.0 * random(number)).exp() as u32;
    let tags = if number.is_multiple_of(10) {
        (0..20).map(|tag| tag * town).collect()
    } else {
        vec![town % 10]
    };
    let mixed = if number.is_multiple_of(100) { number } else { number / 2_000 * 2_000 + 1 };
    Person { tenant: number % 100, id: number, town, street: number, mixed, tags }
}

fn load(store: &Store, rows: u32) -> Result<PersonRepository> {
    let people = PersonRepository::open(store)?;
    people.bulk_load(store, (0..rows).map(person)).run()?;
    Ok(people)
}

fn one(dir: &Path, rows: u32) -> Result<(Store, PersonRepository)> {
    let store = Store::options().durability(Durability::Relaxed).open(dir)?;
    let people = load(&store, rows)?;
    Ok((store, people))
}

fn sharded(dir: &Path, rows: u32) -> Result<(Store, PersonRepository)> {
    let map = ShardMap::ranges().to("north", ..50u32).to("south", 50u32..);
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("person", map)
        .open(dir)?;
    let people = load(&store, rows)?;
    Ok((store, people))
}

/// Returns the numbers of entries, and whether they are exact, by the names of the indexes.
fn entries(sizes: &[TableSize]) -> BTreeMap<&'static str, (u64, bool)> {
    let indexes = sizes[0].indexes.iter();
    indexes.map(|index| (index.name, (index.entries, index.entries_exact))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn check_near(what: &str, estimate: u64, exact: u64, factor: f64) {
    let ratio = estimate as f64 / exact as f64;
    assert!(ratio < factor && ratio > 1.0 / factor, "{what}: {estimate} for {exact}");
}

/// Checks the sizes of a store in which no keys move.
fn check(store: &Store, expected: &BTreeMap<&'static str, u64>) -> Result<()> {
    let [exact, estimate] = [store.sizes()?, store.estimated_sizes()?];
    assert_eq!((exact[0].rows, exact[0].rows_exact), (expected["rows"], true));
    assert_eq!((estimate[0].rows, estimate[0].rows_exact), (expected["rows"], true));
    assert_eq!(estimate[0].total_bytes(), exact[0].total_bytes());
    let estimates = entries(&estimate);
    for (name, (entries, is_exact)) in entries(&exact) {
        assert_eq!((entries, is_exact), (expected[name], true), "{name}");
        let (estimate, is_exact) = estimates[name];
        assert_eq!(is_exact, !PACKED.contains(&name), "{name}");
        check_near(name, estimate, entries, if is_exact { 1.000_001 } else { FACTOR });
    }
    let text = estimate[0].to_string();
    assert!(text.contains("index `town`: ≈") && text.contains("index `id`: 100000 "), "{text}");
    assert!(!exact[0].to_string().contains('≈'));
    Ok(())
}

/// Returns the numbers that the rows define.
fn expected(rows: u32) -> BTreeMap<&'static str, u64> {
    let people = || (0..rows).map(person);
    let tags = people().map(|person| {
        let tags: std::collections::BTreeSet<_> = person.tags.iter().collect();
        tags.len() as u64
    });
    let open = people().filter(Person::is_open).count() as u64;
    let all = u64::from(rows);
    let names = ["rows", "town", "mixed", "id", "tenant_street"];
    let mut expected: BTreeMap<_, _> = names.map(|name| (name, all)).into();
    expected.extend([("open_street", open), ("tags", tags.sum())]);
    expected
}

#[test]
fn estimates_of_skewed_indexes_are_within_the_documented_factor() -> Result<()> {
    const ROWS: u32 = 100_000;
    let expected = expected(ROWS);
    let dir = tempfile::tempdir().expect("a directory");
    let (store, _people) = one(&dir.path().join("one"), ROWS)?;
    check(&store, &expected)?;
    let (store, _people) = sharded(&dir.path().join("sharded"), ROWS)?;
    check(&store, &expected)
}

/// Packed indexes of a few rows.
#[derive(Serialize, Deserialize, IndexTable)]
#[index(first)]
#[index(second)]
#[index(third)]
#[index(fourth)]
struct Small {
    #[primary_key]
    id: u32,
    first: u32,
    second: u32,
    third: u32,
    fourth: u32,
}

#[test]
fn small_indexes_take_no_pages_from_the_samples_of_large_ones() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, _people) = one(dir.path(), 100_000)?;
    let smalls = SmallRepository::open(&store)?;
    let small = Small { id: 1, first: 1, second: 2, third: 3, fourth: 4 };
    store.transaction(|txn| smalls.insert(txn, &small))?;
    let both = store.estimated_sizes()?;
    assert_eq!(both.len(), 2);
    assert!(both[1].indexes.iter().all(|index| index.entries_exact && index.entries == 1));
    drop(smalls);
    // The samples of one state are the same.
    assert_eq!(store.estimated_sizes()?, both[..1]);
    Ok(())
}

#[test]
fn small_tables_and_other_engines_are_counted() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, _on_disk) = one(dir.path(), 300)?;
    let memory = Store::in_memory();
    let _in_memory = load(&memory, 20_000)?;
    for store in [disk, memory] {
        assert_eq!(store.estimated_sizes()?, store.sizes()?);
        assert!(entries(&store.estimated_sizes()?).values().all(|(_, is_exact)| *is_exact));
    }
    Ok(())
}

/// Returns the bytes that this thread has read by system calls.
#[cfg(target_os = "linux")]
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").expect("the figures of a thread");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("read bytes");
    line.parse().expect("a number")
}

/// Returns the number of pages that `sizes` reads. Each page is read by a system call before LMDB reads it; a page of a sample,
/// twice.
#[cfg(target_os = "linux")]
fn pages<T>(sizes: impl FnOnce() -> Result<T>) -> Result<u64> {
    use index_table::__private::admin::checked;

    let before = read_bytes();
    checked(sizes)?;
    Ok((read_bytes() - before) / 4096)
}

#[cfg(target_os = "linux")]
#[test]
fn the_number_of_read_pages_does_not_grow_with_the_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut exact = Vec::new();
    for rows in [25_000, 250_000] {
        let (store, _people) = one(&dir.path().join(rows.to_string()), rows)?;
        let estimate = pages(|| store.estimated_sizes())?;
        assert!((10..=PAGES).contains(&estimate), "{estimate} pages of {rows} rows");
        exact.push(pages(|| store.sizes())?);
    }
    assert!(exact[1] > 4 * PAGES, "the pages are counted: {exact:?}");
    let (store, _people) = sharded(&dir.path().join("sharded"), 100_000)?;
    let estimate = pages(|| store.estimated_sizes())?;
    assert!((10..=PAGES).contains(&estimate), "{estimate} pages of two shards");
    let shards = pages(|| store.shards())?;
    assert!(shards < 60, "{shards} pages for the rows and bytes of two shards");
    Ok(())
}

#[test]
fn rows_of_a_moving_range_are_counted_once() -> Result<()> {
    const ROWS: u32 = 40_000;
    let dir = tempfile::tempdir().expect("a directory");
    let (store, _people) = sharded(dir.path(), ROWS)?;
    let expected = expected(ROWS);
    let (mut steps, mut physical) = (0, 0);
    let moving = store.move_range("person", 20u32..50, "south").progress(|_| {
        steps += 1;
        if steps % 16 != 0 {
            return;
        }
        let [exact, estimate] = [store.sizes(), store.estimated_sizes()].map(Result::unwrap);
        assert_eq!((exact[0].rows, exact[0].rows_exact), (u64::from(ROWS), true));
        assert!(!estimate[0].rows_exact);
        check_near("rows", estimate[0].rows, u64::from(ROWS), 1.1);
        let estimates = entries(&estimate);
        for (name, (entries, is_exact)) in entries(&exact) {
            assert_eq!((entries, is_exact), (expected[name], true), "{name}");
            let (estimate, is_exact) = estimates[name];
            assert!(!is_exact);
            let factor = if PACKED.contains(&name) { FACTOR } else { 1.1 };
            check_near(name, estimate, entries, factor);
        }
        let shards = store.shards().unwrap();
        physical = physical.max(shards.iter().map(|shard| shard.rows).sum());
    });
    assert_eq!(moving.run()?.rows, u64::from(ROWS) * 3 / 10);
    assert!(steps >= 16, "{steps} steps");
    assert!(physical > u64::from(ROWS) * 11 / 10, "copies are in both shards: {physical}");
    check_moved(&store, &expected)
}

/// After the move, the engine's numbers are those of the rows again.
fn check_moved(store: &Store, expected: &BTreeMap<&'static str, u64>) -> Result<()> {
    let sizes = store.estimated_sizes()?;
    assert_eq!((sizes[0].rows, sizes[0].rows_exact), (expected["rows"], true));
    Ok(())
}
