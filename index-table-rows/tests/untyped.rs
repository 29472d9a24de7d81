//! Rows that are written without their type.

#![allow(clippy::option_option, reason = "the values to test")]

use std::collections::BTreeMap;

use index_table_rows::{Catalog, Error, Reason};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn keep(name: &str) -> &'static str {
    name.to_owned().leak()
}

/// Returns a row as JSON, without its type.
fn shown(catalog: &Catalog, row: &[u8]) -> Result<Value, Option<Error>> {
    let row = catalog.row(row, keep);
    serde_json::to_value(&row).map_err(|_| row.failure())
}

#[derive(Serialize)]
struct Small {
    a: u8,
}

#[derive(Serialize)]
struct Large {
    a: String,
    b: Option<Option<u8>>,
}

/// Two structs at one place, which make a union.
#[derive(Serialize)]
#[serde(untagged)]
enum Either {
    Small(Small),
    Large(Large),
    Number(i64),
}

#[derive(Serialize)]
enum Form {
    Unit,
    One(f32),
    Two(u8, char),
    Named { x: i128 },
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "$id")]
    id: u64,
    each: Vec<Either>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    any: Value,
    forms: Vec<Form>,
    array: [u16; 2],
    unit: (),
    wide: u128,
    map: BTreeMap<String, (i8, bool)>,
}

fn rows() -> (Catalog, Vec<Vec<u8>>) {
    let row = |note: Option<&str>, each, any| Row {
        id: 1,
        each,
        note: note.map(str::to_owned),
        any,
        forms: vec![Form::Unit, Form::One(0.5), Form::Two(1, 'é'), Form::Named { x: -1 }],
        array: [1, 300],
        unit: (),
        wide: 7,
        map: BTreeMap::from([("k".to_owned(), (-1, true))]),
    };
    let large = Large { a: "x".to_owned(), b: Some(None) };
    let each = vec![Either::Small(Small { a: 1 }), Either::Large(large), Either::Number(-7)];
    let all = [
        row(None, Vec::new(), json!(null)),
        row(Some("n"), each, json!({ "a": [1, -2, 0.5, "t", false, {}], "b": null })),
        row(None, Vec::new(), json!("y".repeat(100))),
    ];
    let (mut catalog, mut rows) = (Catalog::new(), Vec::new());
    for row in &all {
        let mut bytes = Vec::new();
        catalog.record(row, &mut bytes).expect("a row");
        rows.push(bytes);
    }
    (catalog, rows)
}

#[test]
fn each_kind_has_the_form_of_its_type() {
    let (catalog, rows) = rows();
    let all: Vec<_> = rows.iter().map(|row| shown(&catalog, row).expect("a row")).collect();
    let forms = json!(["Unit", { "One": 0.5 }, { "Two": [1, "é"] }, { "Named": { "x": -1 } }]);
    let first = json!({
        "$id": 1, "each": [], "any": null, "forms": forms, "array": [1, 300], "unit": null,
        "wide": 7, "map": { "k": [-1, true] },
    });
    assert_eq!(all[0], first);
    assert_eq!(all[1]["note"], json!("n"));
    assert_eq!(all[1]["each"], json!([{ "a": 1 }, { "a": "x", "b": null }, -7]));
    assert_eq!(all[1]["any"], json!({ "a": [1, -2, 0.5, "t", false, {}], "b": null }));
    assert_eq!(all[2]["any"], json!("y".repeat(100)));
    // The order is that of the fields.
    let text = serde_json::to_string(&catalog.row(&rows[0], keep)).expect("JSON");
    assert!(text.starts_with("{\"$id\":1,\"each\":[],\"any\":null,\"forms\":"), "{text}");
}

#[test]
fn absent_fields_are_not_counted() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Inner {
        #[serde(skip_serializing_if = "Option::is_none")]
        a: Option<u8>,
        b: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        c: Option<Vec<u8>>,
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Either {
        Named {
            #[serde(skip_serializing_if = "Option::is_none")]
            x: Option<char>,
            y: bool,
        },
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Outer {
        inner: Vec<Inner>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        either: Vec<Either>,
    }
    let inner = |a, c| Inner { a, b: "b".to_owned(), c };
    let either = |x| Either::Named { x, y: true };
    let both = || vec![inner(None, Some(vec![1, 2])), inner(Some(1), None)];
    let rows = [
        Outer { inner: both(), note: None, either: vec![either(None), either(Some('x'))] },
        Outer { inner: both(), note: Some("n".to_owned()), either: Vec::new() },
    ];
    let mut catalog = Catalog::new();
    for row in rows {
        let (mut bytes, mut written, mut own) = (Vec::new(), Vec::new(), Vec::new());
        catalog.record(&row, &mut bytes).expect("a row");
        // It writes the number of fields before them.
        ciborium::into_writer(&catalog.row(&bytes, keep), &mut written).expect("CBOR");
        ciborium::into_writer(&row, &mut own).expect("CBOR");
        assert_eq!(written, own);
        assert_eq!(ciborium::from_reader::<Outer, _>(&*written).expect("the row"), row);
    }
}

#[test]
fn keys_that_are_no_text_and_nested_options_are_kept() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Nested {
        map: BTreeMap<(u8, bool), Option<Option<()>>>,
        float: f64,
        wide: (u128, i128),
    }
    let map =
        BTreeMap::from([((1, true), None), ((2, true), Some(None)), ((3, false), Some(Some(())))]);
    let wide = (u128::MAX, i128::MIN);
    let nan = f64::from_bits(0x7ff8_0000_0000_0001);
    let (mut catalog, mut row) = (Catalog::new(), Vec::new());
    catalog.record(&Nested { map, float: nan, wide }, &mut row).expect("a row");
    let (mut other, mut copy) = (Catalog::new(), Vec::new());
    other.record(&catalog.row(&row, keep), &mut copy).expect("a row");
    let read: Nested = other.decode(&copy).expect("the row");
    assert_eq!(read.map.into_values().collect::<Vec<_>>(), [None, Some(None), Some(Some(()))]);
    assert_eq!((read.float.to_bits(), read.wide), (nan.to_bits(), wide));
}

#[test]
fn damaged_rows_are_refused_with_the_reason() {
    let (catalog, rows) = rows();
    for row in &rows {
        for end in 0..row.len() {
            assert!(shown(&catalog, &row[..end]).expect_err("refused").is_some(), "{end}");
        }
        let longer = [row, &[0][..]].concat();
        let error = shown(&catalog, &longer).expect_err("refused").expect("a reason");
        assert_eq!(error.reason(), &Reason::Damaged);
        for at in 0..row.len() {
            for bit in 0..8 {
                let mut other = row.clone();
                other[at] ^= 1 << bit;
                // It is another row, or no row; JSON has no maps whose keys are numbers.
                let _ = shown(&catalog, &other);
            }
        }
    }
    let error = shown(&Catalog::new(), &rows[0]).expect_err("refused").expect("a reason");
    assert!(error.is_unrecorded());
    // The error names the field.
    let row = &rows[1];
    let error = shown(&catalog, &row[..row.len() - 1]).expect_err("refused").expect("a reason");
    assert_eq!(error.field(), "map");
}
