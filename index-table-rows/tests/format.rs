//! The test vectors of `docs/FORMAT.md`. A vector never changes, because files contain these bytes.

#![allow(clippy::option_option, reason = "the values to test")]

use std::collections::BTreeMap;

use index_table_rows::Catalog;
use serde::{Serialize, Serializer};

/// A value that is written as bytes.
struct Bytes(&'static [u8]);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

#[derive(Serialize)]
struct Point {
    x: u8,
    y: i16,
}

#[derive(Serialize)]
struct Skips {
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<u8>,
    b: u8,
}

#[derive(Serialize)]
enum Form {
    Empty,
    Round(u8),
    Box { w: u8 },
}

/// Values of different kinds, so that each has a tag.
#[derive(Serialize)]
#[serde(untagged)]
enum Tagged {
    U64(u64),
    I64(i64),
    U128(u128),
    I128(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    Char(char),
    Text(&'static str),
    Bytes(Bytes),
    Unit(()),
    Maybe(Option<Option<()>>),
    Some(Option<u8>),
    Seq(Vec<u8>),
    Map(BTreeMap<u8, bool>),
    Point(Point),
    Form(Form),
    Skips(Skips),
}

/// A field of any kind that may be skipped.
#[derive(Serialize)]
struct Loose {
    #[serde(skip_serializing_if = "is_unit")]
    a: Tagged,
}

fn is_unit(value: &Tagged) -> bool {
    matches!(value, Tagged::Unit(()))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item {
    Number(u8),
    Text(&'static str),
    Old { x: u8 },
    New { y: u8 },
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Returns the row of a value, alone in its catalog, and the bytes of the catalog.
fn recorded(value: &impl Serialize) -> (String, String) {
    let (mut catalog, mut row) = (Catalog::new(), Vec::new());
    catalog.record(value, &mut row).unwrap();
    let mut again = Vec::new();
    catalog.encode(value, &mut again).unwrap();
    assert_eq!(again, row);
    (hex(&row), hex(&catalog.to_bytes()))
}

/// Returns the columns of the table under a heading of the page.
fn documented(heading: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("##"));
    let rows = section.filter(|line| line.starts_with("| `"));
    let columns = rows.map(|row| row.split('|').map(|it| it.trim().trim_matches('`').to_owned()));
    columns.map(|row| row.filter(|column| !column.is_empty()).collect()).collect()
}

#[test]
fn rows_and_catalogs_match_the_vectors() {
    macro_rules! vectors {
        ($($text:literal: $value:expr,)*) => { vec![$(($text, recorded(&$value)),)*] };
    }
    let vectors = vectors! {
        "7_u8": 7_u8,
        "-1_i8": -1_i8,
        "300_u16": 300_u16,
        "-2_i32": -2_i32,
        "1_u128": 1_u128,
        "-2_i128": -2_i128,
        "1.0_f32": 1.0_f32,
        "-1.5_f64": -1.5_f64,
        "true": true,
        "'é'": 'é',
        "\"Oz\"": "Oz",
        "Bytes(&[7, 8])": Bytes(&[7, 8]),
        "Bytes(&[7; 16])": Bytes(&[7; 16]),
        "()": (),
        "None::<u8>": None::<u8>,
        "Some(7_u8)": Some(7_u8),
        "vec![7_u8, 8]": vec![7_u8, 8],
        "[1_u16, 300]": [1_u16, 300],
        "BTreeMap::from([(\"a\", 1_u8)])": BTreeMap::from([("a", 1_u8)]),
        "(1_u8, \"a\")": (1_u8, "a"),
        "Point { x: 1, y: -1 }": Point { x: 1, y: -1 },
        "Skips { a: None, b: 7 }": Skips { a: None, b: 7 },
        "Form::Empty": Form::Empty,
        "Form::Round(2)": Form::Round(2),
        "Form::Box { w: 2 }": Form::Box { w: 2 },
        "vec![Item::Number(1), Item::Text(\"a\")]": vec![Item::Number(1), Item::Text("a")],
        "vec![Item::Old { x: 1 }, Item::New { y: 2 }]": vec![Item::Old { x: 1 }, Item::New { y: 2 }],
    };
    let found: Vec<_> =
        vectors.into_iter().map(|(text, (row, catalog))| [text.to_owned(), row, catalog]).collect();
    let documented = documented("### Test vectors of rows");
    let documented: Vec<_> = documented
        .into_iter()
        .map(|columns| match &*columns {
            [text, _, row, catalog] => [text.clone(), row.clone(), catalog.clone()],
            _ => panic!("{columns:?}"),
        })
        .collect();
    assert_eq!(documented, found);
}

/// Each tag of the page, in its order.
#[test]
fn values_of_any_kind_have_their_tags() {
    let skips = || Skips { a: None, b: 7 };
    let cases: Vec<(Tagged, &[u8])> = vec![
        (Tagged::U64(0), b"\x00"),
        (Tagged::U64(63), b"\x3f"),
        (Tagged::Text(""), b"\x40"),
        (Tagged::Text("ab"), b"\x42ab"),
        (Tagged::U64(64), b"\x80\x40"),
        (Tagged::I64(-1), b"\x81\x01"),
        (Tagged::U128(1 << 64), b"\x82\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),
        (Tagged::I128(-1), b"\x83\x01"),
        (Tagged::F32(1.0), b"\x84\0\0\x80\x3f"),
        (Tagged::F64(1.0), b"\x85\0\0\0\0\0\0\xf0\x3f"),
        (Tagged::Bool(false), b"\x86"),
        (Tagged::Bool(true), b"\x87"),
        (Tagged::Char('a'), b"\x88a"),
        (
            Tagged::Text("0123456789012345678901234567890123456789012345678901234567890123"),
            b"\x89\x400123456789012345678901234567890123456789012345678901234567890123",
        ),
        (Tagged::Bytes(Bytes(&[7, 8])), b"\x8a\x02\x07\x08"),
        (Tagged::Bytes(Bytes(b"0123456789abcdef")), b"\x8b0123456789abcdef"),
        (Tagged::Unit(()), b"\x8c"),
        (Tagged::Maybe(None), b"\x8d"),
        (Tagged::Maybe(Some(None)), b"\x8e\x8d"),
        (Tagged::Maybe(Some(Some(()))), b"\x8e\x8e\x8c"),
        (Tagged::Some(Some(7)), b"\x07"),
        (Tagged::Seq(vec![7, 200]), b"\x8f\x02\x07\x80\xc8\x01"),
        (Tagged::Map(BTreeMap::from([(1, true)])), b"\x90\x01\x01\x87"),
        (Tagged::Point(Point { x: 1, y: -1 }), b"\x91\x00\x01\x01"),
        (Tagged::Form(Form::Round(2)), b"\x92\x00\x00\x02"),
        (Tagged::Skips(skips()), b"\x91\x01\x02\x07"),
    ];
    let mut expected = vec![0, cases.len() as u8];
    for (_, bytes) in &cases {
        expected.extend_from_slice(bytes);
    }
    let values: Vec<Tagged> = cases.into_iter().map(|(value, _)| value).collect();
    assert_eq!(recorded(&values).0, hex(&expected));
    let loose = [Tagged::U64(1), Tagged::Text("a"), Tagged::Unit(())].map(|a| Loose { a });
    assert_eq!(recorded(&Vec::from(loose)).0, "00 03 01 41 61 93");
}
