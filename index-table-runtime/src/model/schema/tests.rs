//! Tests of the catalog's records, and of the states of indexes.

use super::{
    AggregateSchema, Building, Condition, FieldSchema, IndexRecord, IndexSchema, KeptDeclaration,
    KeyField, KeyFieldRecord, PreviousRow, RowSchema, StateRecord, Strategy, StrategyRecord,
    SumSchema, TableRecord, TableSchema, VersionRecord, is_index,
};
use crate::model::index_state::{Duplicate, Duplicates};

#[expect(clippy::duplicate_mod, reason = "the module in the key tests is private")]
#[path = "../key/tests/format.rs"]
mod format;
use format::{documented, hex};

static TABLE: TableSchema = TableSchema {
    name: "films",
    was: &[],
    version: 1,
    fields: &[FieldSchema::new::<Option<u16>>("year", "Option<u16>")],
    previous: None,
    changed: &[],
    aggregates: &[],
    primary_key: &[KeyField::new::<u16>("id")],
    indexes: &[IndexSchema {
        name: "all",
        key: &[
            KeyField::desc::<Option<u16>>("year"),
            KeyField::each::<Vec<u8>>("tags"),
            KeyField::computed::<String>("stem"),
            KeyField::hash::<Option<String>>("url"),
        ],
        strategy: Strategy::Full,
        unique: true,
        eventual: false,
        conditions: &[Condition::Sparse, Condition::Filter("is_shown")],
        findings: &[],
    }],
};

#[test]
fn forms_and_conditions_are_recorded_by_name() {
    let record = TableRecord::of(&TABLE, |_| "unique").encode("films").unwrap();
    let expected = [
        &b"\x02\x01\x01\x04year\x0bOption<u16>\x01\x02id\x03u16\x05field"[..],
        b"\x01\x03all\x04",
        b"\x04year\x11desc<option<u16>>\x04desc",
        b"\x04tags\x02u8\x04each",
        b"\x04stem\x04text\x08computed",
        b"\x03url\x14blake3<option<text>>\x04hash",
        b"\x02",
        b"\x03\x06unique\x06sparse\x0ffilter=is_shown",
        b"\x06unique",
    ];
    assert_eq!(record, expected.concat());
}

#[test]
fn aggregates_follow_the_indexes() {
    static AGGREGATES: [AggregateSchema; 1] = [AggregateSchema {
        name: "aggregate_by_year",
        key: &[KeyField::new::<u16>("year")],
        sums: &[SumSchema::new::<u16>("length"), SumSchema::new::<i64>("cost")],
        extremes: &[],
        eventual: false,
    }];
    let record = TableRecord::of(&TABLE, |_| "unique");
    let before = record.encode("films").unwrap();
    let record = record.with_aggregates(&TABLE, &AGGREGATES).encode("films").unwrap();
    // The number of indexes follows the primary key.
    let at = before.windows(5).position(|bytes| bytes == b"\x01\x03all").unwrap();
    assert_eq!(&record[..at], &before[..at]);
    assert_eq!(&record[at..=at], [2]);
    let expected = [
        &b"\x11aggregate_by_year\x01\x04year\x03u16\x05field"[..],
        b"\x01\x02\x06length\x04cost",
        b"\x00",
        b"\x09aggregate",
    ];
    assert_eq!(&record[before.len()..], expected.concat());
}

/// The vectors of `docs/FORMAT.md` never change, because files contain these bytes.
#[test]
fn the_bytes_of_states_match_the_format() {
    let building = |last_read, rows| {
        StateRecord::Building(Building {
            last_read,
            rows,
            total: 1000,
            duplicates: Duplicates::default(),
        })
    };
    let [key, holder, row] = ["\"a@x\"", "1", "2"].map(str::to_owned);
    let duplicates = Duplicates { count: 1, first: vec![Duplicate { key, holder, row }] };
    let [town, text, field] = ["town", "text", "field"].map(str::to_owned);
    let index = IndexRecord {
        name: town.clone(),
        key: vec![KeyFieldRecord { name: town, shape: text, form: field }],
        strategy: StrategyRecord::Normalized,
        options: Vec::new(),
        layout: "short-blocks".to_owned(),
    };
    let states = [
        building(None, 0),
        building(Some(vec![2, 3]), 513),
        StateRecord::Emptied(duplicates.clone()),
        StateRecord::Retired(KeptDeclaration { version: 1, index: index.clone() }),
        StateRecord::Disabled,
        StateRecord::Violated(duplicates),
        StateRecord::Announced(KeptDeclaration { version: 1, index }),
    ];
    let documented = documented("### States of indexes");
    let documented: Vec<_> = documented.iter().filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(documented.len(), states.len());
    for (state, documented) in states.into_iter().zip(documented) {
        let bytes = state.encode("films").unwrap();
        assert_eq!(hex(&bytes), documented, "{state:?}");
        assert_eq!(
            StateRecord::is_violated(&bytes),
            matches!(state, StateRecord::Violated(_)),
            "{state:?}"
        );
        assert_eq!(StateRecord::decode(&bytes), Some(state));
        assert_eq!(StateRecord::decode(&[&bytes, &[0][..]].concat()), None);
        assert_eq!(StateRecord::decode(&bytes[..bytes.len() - 1]), None);
    }
    assert_eq!(StateRecord::decode(&[6]), None);
}

#[test]
fn the_first_duplicates_are_listed_and_all_are_counted() {
    let mut duplicates = Duplicates::default();
    let duplicate = || Duplicate { key: "k".into(), holder: "1".into(), row: "2".into() };
    (0..150).for_each(|_| duplicates.add(1, duplicate));
    assert_eq!((duplicates.count, duplicates.first.len()), (150, 100));
}

#[test]
fn numbers_are_versions_and_not_indexes() {
    assert!(is_index("town") && is_index("_1") && is_index("été"));
    assert!(!is_index("1") && !is_index("12"));
}

/// The number follows the record, unless it is the first record of its table.
#[test]
fn a_record_has_the_number_of_its_replacements() {
    let mut record = TableRecord::of(&TABLE, |_| "unique");
    let first = record.encode("films").unwrap();
    assert_eq!(TableRecord::read(&first).as_ref(), Ok(&record));
    record.changes = 300;
    let later = record.encode("films").unwrap();
    assert_eq!(later, [&first[..], &[0xAC, 0x02]].concat());
    assert_eq!(TableRecord::read(&later).as_ref(), Ok(&record));
    for left_over in [&[0][..], &[1, 0], &[0xAC]] {
        assert!(TableRecord::read(&[&first, left_over].concat()).is_err());
    }
}

/// A chain of three versions, each with a list of changed fields.
mod chain {
    use super::{FieldSchema, KeyField, PreviousRow, RowSchema, TableSchema, VersionRecord};

    /// A shape of an enum whose variants have changed.
    struct State;

    const fn row(
        version: u32,
        fields: &'static [FieldSchema],
        previous: Option<&'static RowSchema>,
        changed: &'static [&'static str],
    ) -> RowSchema {
        let previous = match previous {
            Some(schema) => Some(PreviousRow { schema }),
            None => None,
        };
        RowSchema { version, fields, previous, changed }
    }

    static ONE: RowSchema = row(
        1,
        &[
            FieldSchema::new::<String>("town", "String"),
            FieldSchema::new::<String>("name", "String"),
            FieldSchema::new::<u8>("state", "State"),
            FieldSchema::new::<String>("url", "String"),
            FieldSchema::new::<String>("note", "String"),
        ],
        None,
        &[],
    );
    static THREE: RowSchema = row(
        3,
        &[
            FieldSchema::new::<String>("note", "Text"),
            FieldSchema::new::<String>("name", "String"),
            FieldSchema::new::<State>("state", "State"),
            FieldSchema::new::<String>("town", "String"),
        ],
        Some(&ONE),
        &["town"],
    );
    static TABLE: TableSchema = TableSchema {
        name: "chained",
        was: &[],
        version: 4,
        fields: &[
            FieldSchema::new::<String>("town", "String"),
            FieldSchema::new::<String>("name", "String"),
            FieldSchema::new::<State>("state", "State"),
            FieldSchema::new::<String>("url", "String"),
            FieldSchema::new::<String>("note", "String"),
        ],
        previous: Some(PreviousRow { schema: &THREE }),
        changed: &["name"],
        aggregates: &[],
        primary_key: &[KeyField::new::<u16>("id")],
        indexes: &[],
    };

    fn kept(version: u32) -> Vec<&'static str> {
        let fields = ["town", "name", "state", "url", "note", "other"];
        let Some(older) = TABLE.older(version) else { return Vec::new() };
        let VersionRecord { fields: recorded } = VersionRecord::of(older.schema);
        fields.into_iter().filter(|field| TABLE.keeps(version, field, &recorded)).collect()
    }

    #[test]
    fn a_field_is_kept_if_each_version_keeps_it() {
        // The types are compared, and not their names.
        assert_eq!(kept(3), ["town", "state", "note"]);
        // Version 3 changes `town` and lacks `url`.
        assert_eq!(kept(1), ["note"]);
        // Versions that are not declared.
        assert!(kept(0).is_empty() && kept(2).is_empty() && kept(4).is_empty());
    }

    #[test]
    fn chains_with_different_changed_fields_are_not_equal() {
        let other = row(1, ONE.fields, None, &[]);
        assert!(other == ONE && row(3, THREE.fields, Some(&ONE), &["town"]) == THREE);
        assert!(row(3, THREE.fields, Some(&ONE), &[]) != THREE);
    }
}
