//! The distributions of keys.

use std::time::{Duration, UNIX_EPOCH};

use super::{
    Advice, AdviceKind, Analysis, CommonValue, IndexAnalysis, KeyDistribution, Measure, Quantiles,
    kept,
};
use crate::model::{
    key::KeyBuf,
    schema::{FieldSchema, IndexSchema, KeyField, Strategy, TableSchema},
};

#[expect(clippy::duplicate_mod, reason = "the module in the key tests is private")]
#[path = "../../model/key/tests/format.rs"]
mod format;
use format::{documented, hex};

static KEY: [KeyField; 2] = [KeyField::new::<String>("town"), KeyField::new::<u32>("number")];

fn key(town: &str, number: u32) -> KeyBuf {
    let mut key = KeyBuf::new();
    key.push::<String>(&town.to_owned()).push::<u32>(&number);
    key
}

#[test]
fn each_leading_part_of_a_key_is_measured() {
    let mut measure = Measure::each_prefix(&KEY);
    for (town, number) in [("a", 1), ("a", 1), ("a", 2), ("ab", 1), ("b", 7)] {
        measure.add(key(town, number).as_bytes()).expect("a key");
    }
    let (entries, keys) = measure.finish();
    assert_eq!(entries, 5);
    let [towns, whole] = keys.as_slice() else { panic!("two parts") };
    assert_eq!((towns.fields.as_slice(), towns.distinct), (["town"].as_slice(), 3));
    assert_eq!(towns.rows, Quantiles { min: 1, p50: 1, p90: 3, p99: 3, max: 3 });
    let shown: Vec<_> =
        towns.most_common.iter().map(|it| (it.value.as_str(), it.entries)).collect();
    assert_eq!(shown, [(r#""a""#, 3), (r#""ab""#, 1), (r#""b""#, 1)]);
    assert!((towns.most_common[0].share - 0.6).abs() < 1e-9);
    assert_eq!((whole.distinct, whole.rows.max), (4, 2));
}

#[test]
fn the_most_common_values_are_exact_in_any_order() {
    let mut measure = Measure::whole(&KEY[1..]);
    // The number `n` has `n % 37` entries.
    for number in 0..370_u32 {
        let mut key = KeyBuf::new();
        key.push::<u32>(&number);
        for _ in 0..number % 37 {
            measure.add(key.as_bytes()).expect("a key");
        }
    }
    let (entries, keys) = measure.finish();
    assert_eq!(entries, 10 * (0..37).sum::<u64>());
    let common: Vec<_> = keys[0].most_common.iter().map(|it| it.value.clone()).collect();
    let expected: Vec<_> = (0..10).map(|n| (36 + n * 37).to_string()).collect();
    assert_eq!(common, expected);
    assert_eq!(keys[0].rows, Quantiles { min: 1, p50: 18, p90: 33, p99: 36, max: 36 });
}

#[test]
fn without_entries_all_figures_are_zero() {
    let (entries, keys) = Measure::whole(&KEY).finish();
    assert_eq!((entries, keys[0].distinct, keys[0].rows), (0, 0, Quantiles::default()));
    assert!(keys[0].most_common.is_empty());
}

/// The vector of `docs/FORMAT.md` never changes, because files contain these bytes.
#[test]
fn a_kept_analysis_has_the_documented_bytes() {
    static TABLE: TableSchema = TableSchema {
        name: "people",
        was: &[],
        version: 1,
        fields: &[FieldSchema::new::<String>("town", "String")],
        previous: None,
        changed: &[],
        aggregates: &[],
        primary_key: &[KeyField::new::<u32>("id")],
        indexes: &[IndexSchema {
            name: "town",
            key: &[KeyField::new::<String>("town")],
            strategy: Strategy::Normalized,
            unique: false,
            eventual: false,
            conditions: &[],
            findings: &[],
        }],
    };
    let most_common = vec![CommonValue { value: r#""Oz""#.to_owned(), entries: 2, share: 1.0 }];
    let rows = Quantiles { min: 2, p50: 2, p90: 2, p99: 2, max: 2 };
    let keys = vec![KeyDistribution { fields: vec!["town"], distinct: 1, rows, most_common }];
    let index = IndexAnalysis { name: "town", readable: true, entries: 2, bytes: 0, keys };
    let kind = AdviceKind::NotDiscriminating;
    let advice =
        Advice { index: Some("town"), kind, reason: "few".to_owned(), change: "x".to_owned() };
    let analysis = Analysis {
        table: "people",
        rows: 2,
        bytes: 0,
        shard_key: None,
        indexes: vec![index],
        advice: vec![advice],
        sample: None,
    };
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let record = kept::encode(&TABLE, &analysis, time).expect("a record");
    assert_eq!(documented("### Analyses"), [format!("| `2` | `{}` |", hex(&record))]);
    let read = kept::decode(&TABLE, &record).expect("an analysis");
    assert_eq!((read.time, &read.analysis), (time, &analysis));
    let sampled = Analysis { sample: Some(300), ..analysis };
    let with_sample = kept::encode(&TABLE, &sampled, time).expect("a record");
    assert_eq!(with_sample, [record.as_slice(), &[0xac, 0x02]].concat());
    assert_eq!(kept::decode(&TABLE, &with_sample).expect("an analysis").analysis, sampled);
    assert!(kept::decode(&TABLE, &record[..record.len() - 1]).is_err());
}
