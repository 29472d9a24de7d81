//! The names that a type reads, and the fields of later lists that it does not.

#![allow(dead_code, reason = "the fields are only named")]

use std::collections::{BTreeMap, HashMap};

use index_table_rows::{Catalog, names};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

fn texts<T: DeserializeOwned>() -> Vec<String> {
    names::<T>().into_iter().collect()
}

#[derive(Deserialize)]
struct Tree {
    children: Vec<Tree>,
    leaf: Option<Box<Leaf>>,
}

#[derive(Deserialize)]
#[serde(try_from = "u64")]
struct Even(u64);

impl TryFrom<u64> for Even {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        panic!("an invented number: {number}")
    }
}

#[derive(Deserialize)]
struct Leaf {
    even: Even,
    #[serde(default, alias = "color")]
    colour: String,
}

#[derive(Deserialize, PartialEq, Eq, Hash)]
enum Size {
    Small,
    Other(Inches),
}

#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Inches {
    inches: u8,
}

#[derive(Deserialize)]
struct Deep {
    a: HashMap<String, Vec<A>>,
    b: BTreeMap<u64, (bool, u8, String, B)>,
    c: [Option<C>; 2],
    by_size: HashMap<Size, u8>,
    flat: (Tuple, u8),
}

#[derive(Deserialize)]
struct Tuple(Wrapped, u8);

#[derive(Deserialize)]
#[serde(transparent)]
struct Wrapped {
    inner: Inches,
}

#[derive(Deserialize)]
struct A {
    in_a: u8,
}

#[derive(Deserialize)]
struct B {
    in_b: u8,
}

#[derive(Deserialize)]
struct C {
    in_c: u8,
}

#[test]
fn names_are_found_at_every_depth() {
    assert_eq!(texts::<Tree>(), ["children,leaf", "even,color,colour"]);
    assert_eq!(
        texts::<Deep>(),
        ["a,b,c,by_size,flat", "in_a", "in_b", "in_c", "inches", "|Small,Other"]
    );
    assert_eq!(texts::<(u8, String)>(), [""; 0]);
    assert_eq!(texts::<Vec<Nested>>(), [""; 0]);
}

/// Nothing ends it.
#[derive(Deserialize)]
struct Nested(Vec<Nested>);

mod later {
    use super::*;

    #[derive(Serialize)]
    pub(super) struct Row {
        pub(super) id: u64,
        pub(super) lines: Vec<Line>,
        pub(super) gone: u8,
    }

    #[derive(Serialize)]
    pub(super) struct Line {
        pub(super) article: u64,
        pub(super) note: String,
    }
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Row {
    id: u64,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Line {
    article: u64,
}

#[test]
fn only_fields_of_later_lists_are_noted() {
    let (mut catalog, mut row, mut own) = (Catalog::new(), Vec::new(), Vec::new());
    let line = later::Line { article: 1, note: "soon".into() };
    catalog.record(&later::Row { id: 7, lines: vec![line], gone: 1 }, &mut row).unwrap();
    let noted = |row, since| catalog.decode_noting::<Row>(row, since).unwrap().1;
    let (_, left) = catalog.decode_whole::<Row>(&row).unwrap();
    assert!(left);
    let first = noted(&row, 0);
    assert!(matches!(first.as_deref(), Some("note" | "gone")), "{first:?}");
    let inner = (0..=catalog.len()).find(|since| noted(&row, *since) != first).unwrap();
    let last = noted(&row, inner);
    assert_ne!(last, first);
    assert!(matches!(last.as_deref(), Some("note" | "gone")), "{last:?}");
    assert_eq!(noted(&row, catalog.len()), None);
    assert_eq!(noted(&row, catalog.len() + 7), None);

    let mut catalog = catalog.clone();
    let value = Row { id: 7, lines: vec![Line { article: 1 }] };
    catalog.record(&value, &mut own).unwrap();
    assert_eq!(catalog.decode_whole::<Row>(&own).unwrap(), (value, false));
}
