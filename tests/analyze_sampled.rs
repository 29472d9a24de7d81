//! Estimated analyses against exact ones, on skewed data.

use index_table::{
    IndexTable, Result, ShardMap, Store,
    report::{AdviceKind, Analysis, KeyDistribution},
};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const ROWS: u32 = 60_000;
const PAGES: u64 = 64;

/// An index of blocks, an index of single entries, and a unique index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
#[index(town)]
#[index(town, street, include = [name])]
#[index(name, unique, scope = "global")]
#[index(tenant, open)]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: u32,
    street: String,
    name: String,
    open: bool,
}

/// Returns a number from 0 to 1 that is determined by `seed`.
fn random(seed: u32) -> f64 {
    let mut bits = u64::from(seed) + 0x9E37_79B9_7F4A_7C15;
    for _ in 0..3 {
        bits = (bits ^ (bits >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Returns a person. The number of people in the towns follows Zipf's law: some towns have many, and most have few.
#[expect(clippy::cast_sign_loss, reason = "no number is negative")]
fn person(number: u32) -> Person {
    let town = (8.5 * random(number)).exp() as u32;
    let street = format!("{} Street", (40.0 * random(number + ROWS)) as u32);
    let tenant = (30.0 * random(number).sqrt()) as u32;
    let name = format!("{number:08}");
    Person { tenant, id: number, town, street, name, open: number.is_multiple_of(50) }
}

fn load(store: &Store) -> Result<PersonRepository> {
    let people = PersonRepository::open(store)?;
    people.bulk_load(store, (0..ROWS).map(person)).run()?;
    Ok(people)
}

fn sharded(dir: &std::path::Path) -> Result<Store> {
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .shard("east", "east")
        .map(
            "person",
            ShardMap::list().to("north", 0..8u32).to("east", 8..20u32).otherwise("south"),
        )
        .open(dir)
}

/// Whether a figure differs from the exact figure by at most this percentage, or by 1.
fn is_near(figure: u64, exact: u64, percent: u64) -> bool {
    figure.abs_diff(exact) * 100 <= (exact * percent).max(100)
}

/// Checks the documented bounds.
#[expect(clippy::cast_precision_loss, reason = "the number is small")]
fn check(estimate: &KeyDistribution, exact: &KeyDistribution, pages: u64) {
    let shown = format!("{estimate:?}\n{exact:?}");
    assert_eq!(estimate.fields, exact.fields);
    assert!(is_near(estimate.distinct, exact.distinct, 20), "{shown}");
    assert!(is_near(estimate.rows.p50, exact.rows.p50, 30), "{shown}");
    assert!(is_near(estimate.rows.p99, exact.rows.p99, 40), "{shown}");
    let bound = 2.0 / pages as f64;
    for common in exact.most_common.iter().filter(|it| it.share > bound * 1.5) {
        let found = estimate.most_common.iter().find(|it| it.value == common.value);
        let found = found.unwrap_or_else(|| panic!("{} is not found: {shown}", common.value));
        assert!((found.share - common.share).abs() <= bound, "{found:?} {common:?}");
    }
    for found in &estimate.most_common {
        let common = exact.most_common.iter().find(|it| it.value == found.value);
        assert!(common.is_some_and(|it| (found.share - it.share).abs() <= bound), "{found:?}");
    }
}

fn check_all(estimate: &Analysis, exact: &Analysis, pages: u64) {
    let sample = estimate.sample.expect("a sample");
    assert!(sample < u64::from(ROWS) * 2, "{sample} entries");
    assert_eq!((exact.sample, estimate.rows), (None, exact.rows));
    let keys = |of: &Analysis| of.shard_key.clone().expect("a shard key");
    check(&keys(estimate), &keys(exact), pages);
    for (estimate, exact) in estimate.indexes.iter().zip(&exact.indexes) {
        assert_eq!((estimate.name, estimate.bytes), (exact.name, exact.bytes));
        assert!(is_near(estimate.entries, exact.entries, 10), "{estimate:?}");
        assert_eq!(estimate.keys.len(), exact.keys.len());
        for (estimate, exact) in estimate.keys.iter().zip(&exact.keys) {
            check(estimate, exact, pages);
        }
    }
}

#[test]
fn a_sample_estimates_skewed_keys_within_the_documented_bounds() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = load(&store)?;
    let txn = store.read()?;
    let before = txn.stats();
    let estimate = people.analyze_sampled(&txn, PAGES)?;
    assert_eq!(txn.stats(), before, "an analysis is no query");
    let exact = people.analyze(&txn)?;
    check_all(&estimate, &exact, PAGES);
    let text = estimate.to_string();
    let sample = estimate.sample.ok_or("a sample")?;
    assert!(text.contains(&format!("; estimated from {sample} entries")), "{text}");
    drop(txn);

    store.transaction(|txn| people.keep_analysis(txn, &estimate))?;
    let kept = people.kept_analysis(&store.read()?)?.ok_or("an analysis")?;
    assert_eq!(kept.analysis, estimate);
    Ok(())
}

#[test]
fn a_sample_of_shards_counts_a_value_of_several_shards_once() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = sharded(dir.path())?;
    let people = load(&store)?;
    let txn = store.read()?;
    let [estimate, exact] = [people.analyze_sampled(&txn, PAGES)?, people.analyze(&txn)?];
    check_all(&estimate, &exact, PAGES);
    Ok(())
}

#[test]
fn an_analysis_of_few_pages_or_in_memory_is_exact() -> TestResult {
    let dir = tempfile::tempdir()?;
    let in_memory = (Store::in_memory(), PAGES);
    for (store, pages) in [(Store::open(dir.path())?, 1 << 20), in_memory] {
        let people = load(&store)?;
        let txn = store.read()?;
        assert_eq!(people.analyze_sampled(&txn, pages)?, people.analyze(&txn)?);
    }
    Ok(())
}

#[test]
fn a_sample_in_a_write_transaction_includes_its_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    let mut txn = store.write()?;
    let add = |txn: &mut index_table::WriteTxn<'_>, numbers: std::ops::Range<u32>| {
        numbers.into_iter().try_for_each(|number| people.insert(txn, &person(number)))
    };
    add(&mut txn, 0..20_000)?;
    // No page of the table has been committed, so all entries are read.
    assert_eq!(people.analyze_sampled(&txn, PAGES)?, people.analyze(&txn)?);
    txn.commit()?;
    let mut txn = store.write()?;
    add(&mut txn, 20_000..30_000)?;
    let [estimate, exact] = [people.analyze_sampled(&txn, PAGES)?, people.analyze(&txn)?];
    assert!(estimate.sample.is_some(), "{estimate}");
    assert_eq!((estimate.rows, exact.rows), (30_000, 30_000));
    check(&estimate.indexes[0].keys[0], &exact.indexes[0].keys[0], PAGES / 2);
    Ok(())
}

#[test]
fn advice_from_a_sample_says_so() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(kind, include = [text])]
    #[index(kind, name = "by_reference", allow(few_values))]
    struct Item {
        #[primary_key]
        id: String,
        kind: u8,
        text: String,
    }
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let item =
        |id: u32| Item { id: format!("{id:06}"), kind: (id % 3) as u8, text: "x".repeat(20) };
    items.bulk_load(&store, (0..20_000).map(item)).run()?;
    let analysis = items.analyze_sampled(&store.read()?, 32)?;
    let sample = analysis.sample.ok_or("a sample")?;
    let of_keys = analysis.advice.iter().filter(|it| it.kind == AdviceKind::NotDiscriminating);
    let reasons: Vec<_> = of_keys.map(|it| it.reason.as_str()).collect();
    assert!(!reasons.is_empty(), "{analysis}");
    let suffix = format!("(estimated from {sample} entries)");
    assert!(reasons.iter().all(|reason| reason.ends_with(&suffix)), "{reasons:?}");
    Ok(())
}
