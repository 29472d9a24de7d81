//! The number of lists, random rows, damaged rows and damaged catalogs.

#![allow(clippy::option_option, reason = "the values to test")]

use std::collections::BTreeMap;

use index_table_rows::Catalog;
use proptest::{collection, option, prelude::*};
use serde::{Deserialize, Serialize, de::IgnoredAny};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Inner {
    a: Option<u32>,
    b: Option<String>,
    c: i64,
    deep: Option<Deep>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Deep {
    x: Option<f64>,
    y: Option<bool>,
    z: Vec<Option<u8>>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum State {
    New,
    Paid { at: u64, by: Option<String> },
    Moved(Inner),
    Pair(Option<u8>, f32),
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(tag = "type")]
enum Event {
    Created { by: Option<u64> },
    Renamed { from: String, to: Option<String> },
    Closed,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(untagged)]
enum Loose {
    Number(i64),
    Text(String),
    Inner(Inner),
    Many(Vec<Loose>),
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Row {
    numbers: (Option<u64>, Option<i32>, Option<i8>, Option<f32>),
    texts: (Option<String>, Option<char>, Option<Option<u8>>),
    maps: Option<BTreeMap<String, Option<u8>>>,
    first: Option<Inner>,
    second: Option<Deep>,
    state: Option<State>,
    pair: Option<(u8, String)>,
    lines: Vec<Inner>,
    states: Vec<State>,
    event: Event,
    events: Vec<Event>,
    loose: Loose,
    many: Vec<Loose>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    empty: Vec<Deep>,
}

fn text() -> impl Strategy<Value = String> {
    "[a-zé]{0,9}"
}

fn deep() -> impl Strategy<Value = Deep> {
    let floats = option::of(any::<u32>().prop_map(f64::from));
    let z = collection::vec(option::of(any::<u8>()), 0..3);
    (floats, option::of(any::<bool>()), z).prop_map(|(x, y, z)| Deep { x, y, z })
}

fn inner() -> impl Strategy<Value = Inner> {
    (option::of(any::<u32>()), option::of(text()), any::<i64>(), option::of(deep()))
        .prop_map(|(a, b, c, deep)| Inner { a, b, c, deep })
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::New),
        (any::<u64>(), option::of(text())).prop_map(|(at, by)| State::Paid { at, by }),
        inner().prop_map(State::Moved),
        option::of(any::<u8>()).prop_map(|it| State::Pair(it, 0.5)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        option::of(any::<u64>()).prop_map(|by| Event::Created { by }),
        (text(), option::of(text())).prop_map(|(from, to)| Event::Renamed { from, to }),
        Just(Event::Closed),
    ]
}

fn loose() -> impl Strategy<Value = Loose> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Loose::Number),
        text().prop_map(Loose::Text),
        inner().prop_map(Loose::Inner)
    ];
    leaf.prop_recursive(3, 8, 3, |inner| collection::vec(inner, 0..3).prop_map(Loose::Many))
}

fn row() -> impl Strategy<Value = Row> {
    let floats = option::of((-9_i16..9).prop_map(f32::from));
    let numbers =
        (option::of(any::<u64>()), option::of(any::<i32>()), option::of(any::<i8>()), floats);
    let texts =
        (option::of(text()), option::of(any::<char>()), option::of(option::of(any::<u8>())));
    let maps = option::of(collection::btree_map(text(), option::of(any::<u8>()), 0..3));
    let structs = (option::of(inner()), option::of(deep()), option::of(state()));
    let many = (
        collection::vec(inner(), 0..3),
        collection::vec(state(), 0..3),
        collection::vec(event(), 0..3),
    );
    let attributes = (event(), loose(), collection::vec(loose(), 0..3), option::of(any::<u64>()));
    let rest = (option::of((any::<u8>(), text())), collection::vec(deep(), 0..2));
    (numbers, texts, maps, structs, many, attributes, rest).prop_map(
        |(numbers, texts, maps, structs, many, attributes, (pair, empty))| {
            let (first, second, state) = structs;
            let (lines, states, events) = many;
            let (event, loose, many, absent) = attributes;
            Row {
                numbers,
                texts,
                maps,
                first,
                second,
                state,
                pair,
                lines,
                states,
                event,
                events,
                loose,
                many,
                absent,
                empty,
            }
        },
    )
}

/// Encodes rows as a store does.
#[derive(Default)]
struct Table {
    catalog: Catalog,
    rows: Vec<(Row, Vec<u8>)>,
    /// The number of rows that were recorded, which takes more time than to encode them.
    recorded: usize,
}

impl Table {
    fn put(&mut self, row: Row) {
        let mut bytes = Vec::new();
        if self.catalog.encode(&row, &mut bytes).is_err() {
            self.catalog.record(&row, &mut bytes).unwrap();
            self.recorded += 1;
            let mut again = Vec::new();
            self.catalog.encode(&row, &mut again).unwrap();
            assert_eq!(again, bytes);
        }
        assert_eq!(self.catalog.decode::<Row>(&bytes).unwrap(), row);
        self.rows.push((row, bytes));
    }

    fn put_all(&mut self, rows: Vec<Row>) {
        for row in rows {
            self.put(row);
        }
    }

    fn check(&self) {
        let stored = Catalog::from_bytes(&self.catalog.to_bytes()).unwrap();
        assert_eq!(stored, self.catalog);
        for (row, bytes) in &self.rows {
            assert_eq!(stored.decode::<Row>(bytes).unwrap(), *row);
            assert_eq!(stored.decode_noting::<Row>(bytes).unwrap().1, None);
            assert!(stored.is_same(bytes, row));
            stored.decode::<IgnoredAny>(bytes).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn random_rows_are_read_with_every_later_catalog(rows in collection::vec(row(), 1..40)) {
        let mut table = Table::default();
        table.put_all(rows);
        table.check();
    }

    #[test]
    fn damaged_rows_are_an_error_or_another_value(
        rows in collection::vec(row(), 1..4),
        damage in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut table = Table::default();
        table.put_all(rows);
        for (_, bytes) in &table.rows {
            for (at, byte) in &damage {
                let mut bytes = bytes.clone();
                let at = at.index(bytes.len());
                bytes[at] = *byte;
                let _ = table.catalog.decode::<Row>(&bytes);
                let _ = table.catalog.decode::<IgnoredAny>(&bytes);
                let _ = table.catalog.decode::<serde_json::Value>(&bytes);
                let _ = table.catalog.decode_noting::<Inner>(&bytes);
            }
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert!(table.catalog.decode::<Row>(short).is_err());
            let long = [bytes, &[0][..]].concat();
            prop_assert!(table.catalog.decode::<Row>(&long).is_err());
        }
    }

    #[test]
    fn damaged_catalogs_are_an_error_or_read_in_bounded_time(
        rows in collection::vec(row(), 1..4),
        damage in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut table = Table::default();
        table.put_all(rows);
        let stored = table.catalog.to_bytes();
        for (at, byte) in &damage {
            let mut stored = stored.clone();
            let at = at.index(stored.len());
            stored[at] = *byte;
            if let Ok(mut catalog) = Catalog::from_bytes(&stored) {
                for (row, bytes) in &table.rows {
                    let _ = catalog.decode::<Row>(bytes);
                    let _ = catalog.decode::<serde_json::Value>(bytes);
                    let _ = catalog.encode(row, &mut Vec::new());
                    let _ = catalog.is_same(bytes, row);
                    let _ = catalog.record(row, &mut Vec::new());
                }
            }
        }
    }

    #[test]
    fn random_bytes_are_no_catalog(bytes in collection::vec(any::<u8>(), 0..60)) {
        let _ = Catalog::from_bytes(&bytes);
    }
}

/// 10,000 rows make as few lists as their types have fields that grow.
#[test]
fn lists_stay_few() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = row();
    let mut table = Table::default();
    for _ in 0..10_000 {
        table.put(strategy.new_tree(&mut runner).unwrap().current());
        table.rows.truncate(100);
    }
    table.check();
    let size = table.catalog.to_bytes().len();
    assert!(table.catalog.len() <= 30, "{} lists in {size} bytes", table.catalog.len());
    assert!(size <= 30 * 256, "{} lists in {size} bytes", table.catalog.len());
    assert!(table.recorded <= 100, "{} rows", table.recorded);
    let version = table.catalog.version();
    for (row, _) in table.rows.clone() {
        table.put(row);
    }
    assert_eq!(table.catalog.version(), version);
}

/// Nested lists without bytes, a list of itself, and a union of itself would take time without end.
#[test]
fn catalogs_that_do_harm_are_refused() {
    let list = |fields: &[&[u8]]| {
        let mut bytes = vec![0, fields.len() as u8];
        for (position, kind) in fields.iter().enumerate() {
            bytes.extend([1, b'a' + position as u8, 0]);
            bytes.extend_from_slice(kind);
        }
        bytes
    };
    let catalog = |lists: &[Vec<u8>], unions: &[u8]| {
        let mut bytes = vec![1, 1, lists.len() as u8];
        bytes.extend(lists.concat());
        bytes.push(0);
        bytes.extend_from_slice(unions);
        Catalog::from_bytes(&bytes)
    };
    let none = [2, 0, 0, 0, 0, 0, 0];
    catalog(&[list(&[&[14]])], &none).unwrap();
    let doubled: Vec<_> =
        (0..23_u8)
            .map(|at| {
                if at == 0 { list(&[&[14], &[14]]) } else { list(&[&[20, at - 1], &[20, at - 1]]) }
            })
            .collect();
    assert!(catalog(&doubled, &none).is_err(), "2^23 values without a byte");
    assert!(catalog(&[list(&[&[20, 0]])], &none).is_err(), "a list of itself");
    assert!(catalog(&[list(&[&[17, 14]])], &none).is_err(), "elements without bytes");
    assert!(
        catalog(&[list(&[&[18, 0xff, 0xff, 3, 14]])], &none).is_err(),
        "an array without bytes"
    );
    assert!(catalog(&[list(&[&[19, 14, 14]])], &none).is_err(), "pairs without bytes");
    assert!(catalog(&[list(&[&[20, 7]])], &none).is_err(), "a list that is missing");
    assert!(catalog(&[], &[2, 1, 23, 0, 0, 1, 0, 0, 0]).is_err(), "a union of itself");
    assert!(
        catalog(&[], &[2, 1, 17, 23, 0, 0, 1, 0, 0, 0]).is_ok(),
        "a union of sequences of itself"
    );
}

/// The bytes of rows and of a catalog.
#[test]
fn golden_bytes() {
    let mut catalog = Catalog::new();
    let mut row = Vec::new();
    let deep = Deep { x: None, y: Some(true), z: vec![Some(7), None] };
    catalog
        .record(&State::Moved(Inner { a: Some(300), b: None, c: -1, deep: Some(deep) }), &mut row)
        .unwrap();
    assert_eq!(row, b"\0\0\x01\xac\x02\0\x01\x01\0\x01\x01\x02\x01\x07\0");
    let stored = b"\x01\x05\x02\x04Deep\x03\x01x\0\x10\0\x01y\0\x10\x09\x01z\0\x11\x10\x01\
        \x05Inner\x04\x01a\0\x10\x03\x01b\0\x10\0\x01c\0\x04\x04deep\0\x10\x14\0\
        \x01\x05State\x01\x05Moved\x01\x14\x01\x02\x01\x16\0\0\x01\0\0\0";
    assert_eq!(catalog.to_bytes().escape_ascii().to_string(), stored.escape_ascii().to_string());
    let mut row = Vec::new();
    catalog.record(&serde_json::json!({ "k": [1, -1, 0.5, "x", null, true] }), &mut row).unwrap();
    assert_eq!(row, b"\x01\x90\x01\x41k\x8f\x06\x01\x81\x01\x85\0\0\0\0\0\0\xe0\x3f\x41x\x8c\x87");
}

#[test]
fn a_later_version_extends_each_earlier_one_and_no_other() {
    #[derive(serde::Serialize)]
    struct Row<'r> {
        id: u64,
        note: Option<&'r str>,
    }

    let (mut catalog, mut out) = (index_table_rows::Catalog::new(), Vec::new());
    let mut versions = vec![catalog.clone()];
    for row in [Row { id: 1, note: None }, Row { id: 1, note: Some("a") }] {
        catalog.record(&row, &mut out).unwrap();
        versions.push(catalog.clone());
    }
    catalog.record(&(1, 2), &mut out).unwrap();
    versions.push(catalog);
    for (at, earlier) in versions.iter().enumerate() {
        for (later_at, later) in versions.iter().enumerate() {
            assert_eq!(later.extends(earlier), later_at >= at, "{later_at} {at}");
        }
    }
    let mut other = versions[1].clone();
    other.record(&("a", 2), &mut out).unwrap();
    other.record(&("a", "b"), &mut out).unwrap();
    assert!(!other.extends(&versions[3]) && !versions[3].extends(&other));
}

#[test]
fn a_struct_with_another_name_has_a_list_of_its_own() {
    #[derive(Serialize)]
    struct Line {
        article: u64,
        count: u32,
    }
    #[derive(Serialize)]
    struct Stock {
        article: u64,
        count: u32,
    }
    #[derive(Serialize)]
    struct Both {
        lines: Vec<Line>,
        stock: Vec<Stock>,
        others: Vec<Stock>,
    }
    let (line, stock) = (Line { article: 1, count: 2 }, || Stock { article: 1, count: 2 });
    let both = Both { lines: vec![line], stock: vec![stock()], others: vec![stock()] };
    let mut catalog = Catalog::new();
    catalog.record(&both, &mut Vec::new()).unwrap();
    assert_eq!(catalog.len(), 3);
}
