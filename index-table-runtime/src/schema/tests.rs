//! The words that the catalog has for forms and conditions.

use super::{Condition, FieldSchema, IndexSchema, KeyField, Strategy, TableRecord, TableSchema};

static TABLE: TableSchema = TableSchema {
    name: "films",
    version: 1,
    fields: &[FieldSchema { name: "year", declared: "Option<u16>" }],
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
        conditions: &[Condition::Sparse, Condition::Filter("is_shown")],
        findings: &[],
    }],
};

#[test]
fn forms_and_conditions_are_recorded_by_name() {
    let record = TableRecord::of(&TABLE, |_| "unique").encode("films").unwrap();
    let expected = [
        &b"\x01\x01\x01\x04year\x0bOption<u16>\x01\x02id\x03u16\x05field"[..],
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
