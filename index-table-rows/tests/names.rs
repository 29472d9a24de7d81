//! The names that a type reads, and the fields of later lists that it does not.

#![allow(dead_code, reason = "the fields are only named")]

use std::collections::{BTreeMap, HashMap};

use index_table_rows::{Catalog, Unknown, names};
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

#[derive(Deserialize, PartialEq, Eq, Hash)]
enum Currency {
    Euro,
    Other(String),
}

#[derive(Deserialize)]
struct Wrapper<T> {
    inner: T,
}

type Pair = (Wrapper<(u8, Inches)>, Wrapper<B>);

#[derive(Deserialize)]
struct Places {
    prices: HashMap<Currency, Wrapper<A>>,
    pairs: Vec<Pair>,
    twice: Wrapper<Wrapper<C>>,
}

#[test]
fn names_are_found_at_every_place_of_a_generic_struct() {
    assert_eq!(
        texts::<Places>(),
        ["in_a", "in_b", "in_c", "inches", "inner", "prices,pairs,twice", "|Euro,Other"]
    );
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
fn only_fields_of_later_lists_are_unknown() {
    let (mut catalog, mut row, mut own) = (Catalog::new(), Vec::new(), Vec::new());
    let line = later::Line { article: 1, note: "soon".into() };
    catalog.record(&later::Row { id: 7, lines: vec![line], gone: 1 }, &mut row).unwrap();
    let mut has_unread = false;
    catalog.decode_whole::<Row>(&row, &mut has_unread).unwrap();
    assert!(has_unread);
    let unknown = |since| catalog.unknown::<Row>(&row, since).unwrap().1;
    let both = unknown(0);
    assert!(both.fields.iter().eq(["gone"]) && both.inside.iter().eq(["note"]), "{both:?}");
    // The list of the row or of its lines is the first one.
    let one = unknown(1);
    assert!(one.fields.is_empty() != one.inside.is_empty(), "{one:?}");
    for since in [2, 9] {
        assert_eq!(unknown(since), Unknown::default());
    }

    let value = Row { id: 7, lines: vec![Line { article: 1 }] };
    let mut catalog = catalog.clone();
    catalog.record(&value, &mut own).unwrap();
    assert_eq!(catalog.decode_whole::<Row>(&own, &mut has_unread).unwrap(), value);
    assert!(!has_unread);
}

#[derive(Serialize)]
struct Extended {
    id: u64,
    extra: Vec<later::Line>,
    lines: Vec<Line>,
}

#[test]
fn an_unknown_field_is_unknown_as_a_whole() {
    let (mut catalog, mut row) = (Catalog::new(), Vec::new());
    let line = || later::Line { article: 1, note: "soon".into() };
    let later = Extended { id: 7, extra: vec![line(), line()], lines: Vec::new() };
    catalog.record(&later, &mut row).unwrap();
    let unknown = catalog.unknown::<Row>(&row, 0).unwrap().1;
    assert_eq!(unknown, Unknown { fields: vec!["extra".into()], ..Unknown::default() });
}

#[test]
fn the_content_of_a_variant_without_one_is_unknown() {
    #[derive(Deserialize, Serialize, PartialEq, Debug)]
    enum State {
        Closed,
    }
    #[derive(Serialize)]
    enum Later {
        Closed { by: String },
    }
    let (mut catalog, mut first, mut row) = (Catalog::new(), Vec::new(), Vec::new());
    catalog.record(&State::Closed, &mut first).unwrap();
    let since = catalog.len();
    catalog.record(&Later::Closed { by: "me".into() }, &mut row).unwrap();
    let mut has_unread = false;
    assert_eq!(catalog.decode_whole::<State>(&row, &mut has_unread).unwrap(), State::Closed);
    assert!(has_unread);
    let unknown = |since| catalog.unknown::<State>(&row, since).unwrap().1;
    let found = unknown(since);
    assert!(found.fields.is_empty() && found.inside.iter().eq(["Closed"]), "{found:?}");
    // A release that has removed the content.
    assert_eq!(unknown(catalog.len()), Unknown::default());
}

mod carried {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    struct Later {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        id: u64,
        sizes: Vec<Shape>,
        text: String,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    enum Shape {
        Round(u8),
        Box { width: u8 },
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    struct Earlier {
        id: u64,
        text: String,
    }

    #[test]
    fn fields_are_carried_into_another_row() {
        let mut catalog = Catalog::new();
        for note in [Some("n".to_owned()), None] {
            let sizes = vec![Shape::Box { width: 3 }, Shape::Round(1)];
            let later = Later { note, id: 7, sizes, text: "a".into() };
            let (mut from, mut row, mut out) = (Vec::new(), Vec::new(), b"before".to_vec());
            catalog.record(&later, &mut from).unwrap();
            let (mut earlier, unknown) = catalog.unknown::<Earlier>(&from, 0).unwrap();
            earlier.text.push('!');
            catalog.record(&earlier, &mut row).unwrap();
            let names = &unknown.fields;
            let _ = catalog.carried(&row, &from, names, &mut out);
            catalog.record_carried(&row, &from, names, &mut out).unwrap();
            let out = &out["before".len()..];
            let mut again = Vec::new();
            let stored = Catalog::from_bytes(&catalog.to_bytes()).unwrap();
            stored.carried(&row, &from, names, &mut again).unwrap();
            assert!(out.ends_with(&again));
            let expected = Later { text: "a!".into(), ..later };
            assert_eq!(stored.decode::<Later>(&again).unwrap(), expected);
            assert_eq!(stored.decode::<Earlier>(&again).unwrap(), earlier);

            // Once more, from the row with the carried fields.
            let (len, mut third) = (catalog.len(), Vec::new());
            let unknown = catalog.unknown::<Earlier>(&again, 0).unwrap().1;
            catalog.record_carried(&row, &again, &unknown.fields, &mut third).unwrap();
            assert_eq!(catalog.decode::<Later>(&third).unwrap(), expected);
            assert_eq!(catalog.len(), len);
        }
    }

    #[test]
    fn what_is_no_struct_carries_nothing() {
        let (mut catalog, mut row, mut from) = (Catalog::new(), Vec::new(), Vec::new());
        catalog.record(&Earlier { id: 1, text: String::new() }, &mut row).unwrap();
        catalog.record(&7_u64, &mut from).unwrap();
        let before = catalog.clone();
        let names = ["id".to_owned()];
        for (row, from) in [(&row, &from), (&from, &row), (&vec![9, 9], &row), (&vec![], &row)] {
            let mut out = Vec::new();
            assert!(catalog.record_carried(row, from, &names, &mut out).is_err());
            assert!(out.is_empty() && catalog == before);
        }
        // Damaged bytes are an error or another row.
        for at in 0..row.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = row.clone();
                damaged[at] = byte;
                let _ =
                    catalog.record_carried(&row, &damaged, &["text".to_owned()], &mut Vec::new());
            }
        }
    }
}
