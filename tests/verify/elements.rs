//! Rows with many elements, each with an entry.

use std::{
    cell::Cell,
    path::Path,
    time::{Duration, Instant},
};

use index_table::{Durability, FindingKind::*, IndexTable, Result, Store, VerifyReport};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{counts, raw};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(each(words))]
#[index(each(words), include = [title], name = "titled")]
struct Text {
    #[primary_key]
    id: u32,
    title: String,
    words: Vec<u32>,
    #[serde(deserialize_with = "counted")]
    read: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(each(codes), unique)]
struct Claim {
    #[primary_key]
    id: u32,
    codes: Vec<u32>,
    #[serde(deserialize_with = "counted")]
    read: bool,
}

thread_local! {
    static DECODED: Cell<u64> = const { Cell::new(0) };
}

fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    DECODED.set(DECODED.get() + 1);
    bool::deserialize(from)
}

/// Runs `work`, and returns how often it decoded a row.
fn decoded<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let before = DECODED.get();
    Ok((work()?, DECODED.get() - before))
}

fn text(id: u32, words: u32) -> Text {
    // All texts share these words. Their order differs from the order of the index.
    let words = (0..words).map(u32::reverse_bits).collect();
    Text { id, title: format!("text {id}"), words, read: false }
}

fn open(dir: &Path) -> Result<(Store, TextRepository)> {
    let store = Store::options().map_size(1 << 26).durability(Durability::None).open(dir)?;
    let texts = TextRepository::open(&store)?;
    Ok((store, texts))
}

fn filled(texts: u32, words: u32) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, repository) = open(dir.path())?;
    store.transaction(|txn| {
        (0..texts).try_for_each(|id| repository.insert(txn, &text(id, words)))
    })?;
    Ok(dir)
}

/// The maximum number of times that a row may be decoded, in a table with two indexes.
const TIMES: u64 = 6;

#[test]
fn verifying_decodes_a_row_a_few_times() -> Result<()> {
    for (texts, words) in [(1, 3000), (40, 100)] {
        let dir = filled(texts, words)?;
        let (store, repository) = open(dir.path())?;
        let txn = store.read()?;
        let whole = || repository.verify(&txn).run();
        let in_parts = || repository.verify(&txn).limit(u64::MAX).run();
        let ways: [&dyn Fn() -> Result<VerifyReport>; 2] = [&whole, &in_parts];
        for way in ways {
            let (report, times) = decoded(way)?;
            assert!(report.is_clean(), "{report}");
            assert_eq!(report.entries, u64::from(2 * texts * words));
            assert!(times <= TIMES * u64::from(texts), "{texts} rows were decoded {times} times");
        }
        drop(txn);
        let (report, times) = decoded(|| store.transaction(|txn| repository.repair(txn).run()))?;
        assert!(report.is_clean(), "{report}");
        assert!(times <= TIMES * u64::from(texts), "{texts} rows were decoded {times} times");
    }
    Ok(())
}

#[test]
fn repairing_decodes_a_row_a_few_times() -> Result<()> {
    for (texts, words) in [(1, 3000), (40, 100)] {
        let dir = filled(texts, words)?;
        // Half of the words are replaced.
        let other = |id| {
            let mut text = text(id, words);
            text.words.iter_mut().filter(|word| **word & 1 << 31 != 0).for_each(|word| *word += 1);
            Text { title: "other".into(), ..text }
        };
        let elsewhere = tempfile::tempdir().expect("a directory");
        {
            let (store, repository) = open(elsewhere.path())?;
            let insert = |id| store.transaction(|txn| repository.insert(txn, &other(id)));
            (0..texts).try_for_each(insert)?;
        }
        let rows = raw::on(elsewhere.path(), "text", |raw| raw.entries());
        raw::on(dir.path(), "text", |raw| {
            for (key, row) in rows {
                raw.put(key, row);
            }
        });

        let (store, repository) = open(dir.path())?;
        let txn = store.read()?;
        let (found, times) = decoded(|| repository.verify(&txn).run())?;
        let entries = u64::from(texts * words);
        // The kept half of the entries of `titled` carry another title.
        assert_eq!(counts(&found), [(Missing, entries), (Stale, entries + entries / 2)]);
        assert!(times <= TIMES * u64::from(texts), "{texts} rows were decoded {times} times");
        assert_eq!(repository.verify(&txn).limit(u64::MAX).run()?, found);
        drop(txn);
        let (repaired, times) = decoded(|| store.transaction(|txn| repository.repair(txn).run()))?;
        assert_eq!((repaired.left, &repaired.counts), (0, &found.counts));
        assert!(times <= TIMES * u64::from(texts), "{texts} rows were decoded {times} times");
        assert!(repository.verify(&store.read()?).run()?.is_clean());
        drop((store, repository));
        for name in ["text.words", "text.titled"] {
            let entries = |path: &Path| raw::on(path, name, |raw| raw.entries());
            assert_eq!(entries(dir.path()), entries(elsewhere.path()));
        }
    }
    Ok(())
}

#[test]
fn rows_with_the_same_unique_keys_are_decoded_a_few_times() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let claim = |id| Claim { id, codes: (0..3000).collect(), read: false };
    let open = || -> Result<_> {
        let store = Store::options().map_size(1 << 26).open(dir.path())?;
        Ok((ClaimRepository::open(&store)?, store))
    };
    {
        let (claims, store) = open()?;
        store.transaction(|txn| claims.insert(txn, &claim(1)))?;
    }
    raw::on(dir.path(), "claim", |raw| {
        let mut row = raw.entries().remove(0).1;
        // The byte after the version.
        row[1] = 2;
        raw.put([0, 0, 0, 2], row);
    });
    let (claims, store) = open()?;
    let (found, times) = decoded(|| claims.verify(&store.read()?).run())?;
    assert_eq!(counts(&found), [(Duplicate, 3000)]);
    assert!(times <= 2 * TIMES, "two rows were decoded {times} times");
    Ok(())
}

/// With sixteen times as many elements, the time is about sixteen times as long, not 256 times.
#[test]
fn the_time_does_not_grow_with_the_square_of_the_elements() -> Result<()> {
    const FEW: u32 = 1000;
    let time = |words| -> Result<Duration> {
        let dir = filled(1, words)?;
        let (store, repository) = open(dir.path())?;
        let txn = store.read()?;
        let began = Instant::now();
        assert!(repository.verify(&txn).run()?.is_clean());
        assert!(repository.verify(&txn).limit(u64::MAX).run()?.is_clean());
        Ok(began.elapsed())
    };
    let mut ratios = Vec::new();
    // Another process may use the processor at the same time, so the measurement is repeated.
    while ratios.len() < 5 {
        let ratio = time(16 * FEW)?.as_secs_f64() / time(FEW)?.as_secs_f64();
        if ratio < 64. {
            return Ok(());
        }
        ratios.push(ratio);
    }
    panic!("the time grew by {ratios:?}");
}
